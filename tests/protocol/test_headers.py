"""Header values, the headers every request carries, and the ones a user may add."""

from __future__ import annotations

import base64
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.protocol.headers import check_user_headers, encode_value, is_token, standard_headers


def decode_value(value: str) -> str:
    """What a server does with a value."""
    if len(value) >= 11 and value[:9] == "=?base64?" and value[-2:] == "?=":
        return base64.b64decode(value[9:-2], validate=True).decode("utf-8")
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("line1\r\nline2", "=?base64?bGluZTENCmxpbmUy?="),
        (" us-west1", "=?base64?IHVzLXdlc3Qx?="),
        ("us-west1 ", "=?base64?dXMtd2VzdDEg?="),
        ("日本語", "=?base64?5pel5pys6Kqe?="),
        ("\tindented", "=?base64?CWluZGVudGVk?="),
        ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64??=", "=?base64?PT9iYXNlNjQ/Pz0=?="),
        ("a\tb", "=?base64?YQli?="),
        ("\x7f", "=?base64?fw==?="),
        ("\x00", "=?base64?AA==?="),
        ("\x85", "=?base64?woU=?="),
        ("\ud83d\ude00", "=?base64?8J+YgA==?="),
    ],
)
def test_encoded_values(text: str, value: str) -> None:
    assert encode_value(text) == value


@pytest.mark.parametrize("text", ["", "us west 1", "=?BASE64?x?=", "=?base64?x", "x?=", "~!\"#$%&'()*,/:;<>?@[]^`{|}"])
def test_plain_values(text: str) -> None:
    assert encode_value(text) == text


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.text("=?base64 \t~\x7f"))
def test_values_are_safe_and_mean_the_text(text: str) -> None:
    value = encode_value(text)
    assert all(" " <= character <= "~" for character in value)
    assert value == value.strip()
    assert decode_value(value) == text


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ude00\ud83d"])
def test_lone_surrogates_are_refused_without_quoting(text: str) -> None:
    with pytest.raises(ValueError, match="lone surrogate") as caught:
        encode_value("s3cret" + text)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "search"}, "search"),
        ("tools/call", {"name": "名前"}, "=?base64?5ZCN5YmN?="),
        ("tools/call", {"name": " x "}, "=?base64?IHgg?="),
        ("tools/call", {"name": ""}, ""),
        ("tools/call", {"name": 5}, None),
        ("tools/call", {"name": None}, None),
        ("tools/call", {}, None),
        ("prompts/get", {"name": "greet", "uri": "no"}, "greet"),
        ("resources/read", {"uri": "file:///a", "name": "no"}, "file:///a"),
        ("resources/read", {"name": "no"}, None),
        ("tasks/get", {"taskId": "t"}, "t"),
        ("tasks/update", {"taskId": "t"}, "t"),
        ("tasks/cancel", {"taskId": "t"}, "t"),
        ("tasks/list", {"taskId": "t"}, None),
        ("tools/list", {"name": "no"}, None),
        ("completion/complete", {"ref": {"name": "no"}, "name": "no"}, None),
        ("subscriptions/listen", {"name": "no", "uri": "no"}, None),
    ],
)
def test_standard_headers(method: str, params: dict[str, Any], name: str | None) -> None:
    expected = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
    if name is not None:
        expected["Mcp-Name"] = name
    assert standard_headers(method, params, "2026-07-28") == expected


def test_no_method_can_smuggle_in_a_line() -> None:
    headers = standard_headers("x\r\nEvil: 1", {}, "2026-07-28")
    assert headers["Mcp-Method"] == encode_value("x\r\nEvil: 1")


@pytest.mark.parametrize("name", ["X", "x-1", "!#$%&'*+-.^_`|~"])
def test_tokens(name: str) -> None:
    assert is_token(name)


@pytest.mark.parametrize("name", ["", "a b", "a:", "é", "a\n", "\n", "a\x00", "(a)", "a/b", "a@b", "\uff41"])
def test_no_tokens(name: str) -> None:
    assert not is_token(name)
    with pytest.raises(ValueError, match="header name"):
        check_user_headers({name: "v"})


def test_good_headers_are_copied() -> None:
    given_headers = {"Authorization": "Bearer x", "X-Trace": "", "Cookie": "a=b; c=d", "User-Agent": "caf\xe9/1 (x)"}
    checked = check_user_headers(given_headers)
    assert checked == given_headers
    assert checked is not given_headers


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "CONTENT-TYPE", "content-length", "Transfer-Encoding", "Connection", "Accept", "Accept-Encoding"),
        *("TE", "Upgrade", "Last-Event-ID", "MCP-Protocol-Version", "mcp-session-id", "Mcp-Param-X", "Mcp-Anything"),
    ],
)
def test_headers_that_are_not_the_users_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        check_user_headers({name: "s3cret"})


@pytest.mark.parametrize(
    "value", ["\r", "a\nX: b", "a\x00", "a\tb", "\x1b[0m", "\x7f", " a", "a ", "\xa0a", "日本", "a\ud800"]
)
def test_bad_values_are_refused_and_never_shown(value: str) -> None:
    with pytest.raises(ValueError, match="X-Key") as caught:
        check_user_headers({"X-Key": "s3cret" + value if value[0] not in " \xa0" else value + "s3cret"})
    assert "s3cret" not in str(caught.value)


def test_a_line_given_as_a_name_does_not_show_its_value() -> None:
    with pytest.raises(ValueError, match="'Authorization'") as caught:
        check_user_headers({"Authorization: Bearer s3cret": ""})
    assert "s3cret" not in str(caught.value)


def test_a_name_in_two_spellings_is_refused() -> None:
    with pytest.raises(ValueError, match="x-a is given twice"):
        check_user_headers({"X-A": "1", "x-a": "2"})


@pytest.mark.parametrize("headers", [None, "a: b", [("a", "b")], {"a"}])
def test_only_mappings_are_headers(headers: Any) -> None:
    with pytest.raises(TypeError, match="mapping"):
        check_user_headers(headers)


@pytest.mark.parametrize("headers", [{1: "a"}, {b"a": "a"}, {"X-Key": b"s3cret"}, {"X-Key": 5}, {"X-Key": None}])
def test_only_strings_are_names_and_values(headers: Any) -> None:
    with pytest.raises(TypeError, match="must be str") as caught:
        check_user_headers(headers)
    assert "s3cret" not in str(caught.value)


@given(st.dictionaries(st.text() | st.integers(), st.text() | st.binary() | st.just(math.pi)))
def test_checking_raises_nothing_else(headers: Any) -> None:
    try:
        checked = check_user_headers(headers)
    except (TypeError, ValueError):
        return
    for name, value in checked.items():
        line = f"{name}: {value}".encode("latin-1")
        assert not any(byte < 32 or byte == 127 for byte in line)
