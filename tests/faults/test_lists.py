"""Lists that never end, or are none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from snodo_client import Client, Ok
from support.faulty import ALL, AT_ONCE, assert_error, assert_serves, serving
from support.http_calls import VERSION, Took
from support.waiting import together

TOOL = {"name": "ok", "inputSchema": {"type": "object"}}


@pytest.fixture(params=ALL)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def page(cursor: str | None = None, tools: Any = (TOOL,), **more: Any) -> dict[str, Any]:
    """A page; the cursor is JSON text."""
    result = json.dumps({"tools": tools, **more})[:-1] + (f',"nextCursor":{cursor}' if cursor is not None else "") + "}"
    return {"send": ['{"jsonrpc":"2.0","id":$ID,"result":' + result + "}"]}


def listed(kind: str, *pages: dict[str, Any], asked: int, **options: Any) -> Any:
    """The outcome of a list in these pages, of which so many are asked for; the last comes again and again."""
    with serving(kind, {"tools/list": pages}) as server, server.connect(**options) as client:
        with Took() as took:
            outcome = client.list_tools()
        assert took.seconds < AT_ONCE
        assert_serves(client)
        assert server.count("tools/list") == asked
        if asked > 1:
            cursors = [m["params"].get("cursor") for m in server.received() if m["method"] == "tools/list"]
            assert cursors[0] is None
            assert all(isinstance(cursor, str) for cursor in cursors[1:])
    return outcome


@pytest.mark.parametrize("cursor", ['"same"', '""', '"\\u0000"', '"日本"'.encode().decode("latin-1")])
def test_a_cursor_that_repeats(kind: str, cursor: str) -> None:
    error = assert_error(listed(kind, page(cursor), asked=2), "repeated_cursor", method="tools/list", pages=2)
    assert "tools/list" in error.message


def test_cursors_that_go_round(kind: str) -> None:
    pages = page('"a"'), page('"b"'), page('"c"'), page('"a"')
    assert_error(listed(kind, *pages, asked=4), "repeated_cursor", pages=4)


def test_an_empty_cursor_is_a_cursor(kind: str) -> None:
    assert listed(kind, page('""'), page(), asked=2) == Ok([TOOL, TOOL])


@pytest.mark.parametrize("cursor", ["1", "true", "false", "0", "[]", "{}", '["a"]', "1.5"])
def test_a_cursor_that_is_no_string(kind: str, cursor: str) -> None:
    assert_error(listed(kind, page(cursor), asked=1), "invalid_result")
    assert_error(listed(kind, page('"a"'), page(cursor), asked=2), "invalid_result")


def test_a_null_cursor_ends_the_list(kind: str) -> None:
    assert listed(kind, page("null"), asked=1) == Ok([TOOL])


def test_more_pages_than_allowed(kind: str) -> None:
    outcome = listed(kind, page('"$N"'), asked=5, max_pages=5)
    error = assert_error(outcome, "max_pages", method="tools/list", max_pages=5)
    assert "max_pages=" in error.message


def test_just_as_many_pages_as_allowed(kind: str) -> None:
    pages = page('"a"'), page('"b"'), page()
    assert listed(kind, *pages, asked=3, max_pages=3) == Ok([TOOL] * 3)


def test_a_thousand_and_one_pages() -> None:
    assert_error(listed("direct", page('"$N"'), asked=1000), "max_pages", max_pages=1000)


def test_one_limit_holds_over_endless_pages(kind: str) -> None:
    faults = {"tools/list": [page('"$N"')]}
    with serving(kind, faults) as server, server.connect(max_pages=10**9) as client:
        with Took() as took:
            outcome = client.list_tools(timeout=0.3)
        assert took.on_time(0.3)
        assert_error(outcome, "timeout", code=-32001, timeout=0.3)
        assert_serves(client)


@pytest.mark.parametrize("tools", [None, {}, "x", 1, True])
def test_a_list_that_is_none(kind: str, tools: Any) -> None:
    assert_error(listed(kind, page(tools=tools), asked=1), "invalid_result")


def test_a_list_that_is_missing(kind: str) -> None:
    text = '{"jsonrpc":"2.0","id":$ID,"result":{"resources":[]}}'
    assert_error(listed(kind, {"send": [text]}, asked=1), "invalid_result")


def test_entries_that_are_no_objects_are_left_out(kind: str) -> None:
    assert listed(kind, page(tools=[1, None, "x", [], TOOL]), asked=1) == Ok([TOOL])


def test_a_list_may_not_ask_for_input(kind: str) -> None:
    outcome = listed(kind, page(resultType="input_required", requestState="x"), asked=1)
    assert_error(outcome, "invalid_result")


@pytest.mark.parametrize("kind_of_result", ["null", "1", '"partial"'])
def test_a_page_of_another_type_makes_no_short_list(kind: str, kind_of_result: str) -> None:
    odd = {"send": ['{"jsonrpc":"2.0","id":$ID,"result":{"tools":[],"resultType":' + kind_of_result + "}}"]}
    assert_error(listed(kind, page('"a"'), odd, asked=2), "unknown_result_type")


def test_definitions_that_are_hostile(kind: str) -> None:
    deep: Any = {}
    for _ in range(100):
        deep = {"properties": {"a": deep}}
    tools = [
        {},
        {"name": None},
        {"name": 5, "inputSchema": 5},
        {"name": "a" * 100_000, "inputSchema": {"type": "object", "properties": []}},
        {"name": "ref", "inputSchema": {"$ref": "#"}},
        {"name": "deep", "inputSchema": deep},
        {"name": "header", "inputSchema": {"properties": {"a": {"type": "string", "x-mcp-header": "A\r\nB: c"}}}},
        TOOL,
    ]
    with serving(kind, {"tools/list": [page(tools=tools)]}) as server, server.connect() as client:
        outcome = client.list_tools()
        assert isinstance(outcome, Ok), outcome
        assert TOOL in outcome.value
        assert ("header" in [tool.get("name") for tool in outcome.value]) == (kind in ("direct", "stdio"))
        for name in ("header", "deep", "ref"):
            assert isinstance(client.call_tool(name, {"a": "b"}), Ok)
        assert_serves(client)


def test_pages_from_many_threads() -> None:
    def handle(message: Any, context: Any) -> Any:
        cursor = int((message.get("params") or {}).get("cursor") or 0)
        result = {"tools": [{"name": str(cursor)}]} | ({"nextCursor": str(cursor + 1)} if cursor < 9 else {})
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    with Client.direct(handle, protocol=VERSION) as client:
        outcomes: list[Any] = []
        together([lambda: outcomes.append(client.list_tools())] * 16)
    assert outcomes == [Ok([{"name": str(number)} for number in range(10)])] * 16
