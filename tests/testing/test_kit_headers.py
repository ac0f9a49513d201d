"""Headers against bodies, with the examples of the specification."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snodo_client.testing.headers import HeaderProblem, check
from support.mcp_requests import request, tool_call

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "flag": {"type": "boolean", "x-mcp-header": "Flag"},
        "nested": {"type": "object", "properties": {"deep": {"type": "string", "x-mcp-header": "Deep"}}},
        "list": {"type": "array", "items": {"type": "string", "x-mcp-header": "Ignored"}},
        "ratio": {"type": "number", "x-mcp-header": "Ratio"},
        "x-mcp-header": {"type": "string"},
    },
}


def headers(message: dict[str, Any], **extra: str) -> dict[str, list[str]]:
    fields = {"mcp-protocol-version": ["2026-07-28"], "mcp-method": [message["method"]]}
    if "name" in message["params"]:
        fields["mcp-name"] = [message["params"]["name"]]
    return {**fields, **{f"mcp-param-{name.lower()}": [value] for name, value in extra.items()}}


def sentinel(value: str) -> str:
    return f"=?base64?{b64encode(value.encode()).decode()}?="


def test_what_agrees_is_accepted() -> None:
    check(request("tools/list"), headers(request("tools/list")), None)
    message = tool_call("t", {"region": "us west 1", "count": -7, "flag": False, "nested": {"deep": ""}, "ratio": 1.5})
    fields = headers(message, Region="us west 1", Count="-7", Flag="false", Deep="")
    check(message, fields, SCHEMA)


@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name"])
@pytest.mark.parametrize("values", [None, [], ["other"], ["a", "a"], ["TOOLS/CALL"], ["é"], ["a\x7f"]])
def test_the_standard_headers_are_required(name: str, values: list[str] | None) -> None:
    message = tool_call("a")
    fields = headers(message)
    fields.pop(name)
    if values is not None:
        fields[name] = values
    with pytest.raises(HeaderProblem, match=name.replace("mcp-", "(?i)mcp-")):
        check(message, fields, None)


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "名前"}, sentinel("名前")),
        ("prompts/get", {"name": " x "}, sentinel(" x ")),
        ("prompts/get", {"name": "=?base64?a?="}, sentinel("=?base64?a?=")),
        ("resources/read", {"uri": "file:///a"}, "file:///a"),
        ("completion/complete", {"ref": {"name": "p"}}, None),
    ],
)
def test_names_may_be_encoded(method: str, params: dict[str, Any], name: str | None) -> None:
    message = request(method, params)
    fields = {"mcp-protocol-version": ["2026-07-28"], "mcp-method": [method]}
    check(message, fields if name is None else {**fields, "mcp-name": [name]}, None)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64?no suffix", "=?base64?no suffix"),
        ("a\tb", "a\tb"),
    ],
)
def test_the_encodings_of_the_specification(value: str, encoded: str) -> None:
    message = tool_call("t", {"region": value})
    check(message, headers(message, Region=encoded), SCHEMA)


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ({"region": "a"}, {}),
        ({"region": "a"}, {"Region": "A"}),
        ({"region": "Hello"}, {"Region": "=?base64?SGVsbG8?="}),
        ({"region": "Hello"}, {"Region": "=?base64?SGVs!!!bG8=?="}),
        ({"region": "é"}, {"Region": "=?base64?6Q==?="}),
        ({"region": "é"}, {"Region": "é"}),
        ({"region": None}, {"Region": "null"}),
        ({}, {"Region": ""}),
        ({"count": 1}, {"Count": "1.5"}),
        ({"count": 1}, {"Count": "one"}),
        ({"count": 2**53}, {"Count": str(2**53)}),
        ({"flag": True}, {"Flag": "True"}),
        ({"count": True}, {"Count": "1"}),
        ({"nested": {"deep": "x"}}, {}),
    ],
)
def test_parameters_that_do_not_agree(arguments: dict[str, Any], sent: dict[str, str]) -> None:
    message = tool_call("t", arguments)
    with pytest.raises(HeaderProblem, match="Mcp-Param"):
        check(message, headers(message, **sent), SCHEMA)


def test_integers_are_compared_as_numbers() -> None:
    for value, sent in ((42, "42.0"), (42.0, "42"), (0, "-0")):
        message = tool_call("t", {"count": value})
        check(message, headers(message, Count=sent), SCHEMA)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_text_gets_through_encoded(value: str) -> None:
    message = tool_call("t", {"region": value})
    check(message, headers(message, Region=sentinel(value)), SCHEMA)


def test_a_body_without_a_version_is_left_to_the_check_of_the_body() -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    check(message, {"mcp-method": ["tools/list"]}, None)
