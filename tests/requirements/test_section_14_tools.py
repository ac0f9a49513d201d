"""Tools (spec: server/tools) over every connection; `section_14.md` has the whole table, with the tests of other
files.
"""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from snodo_client.testing import Server, ToolError
from support.shaped import CONNECTIONS, define, shaped

each_connection = pytest.mark.parametrize("connection", CONNECTIONS)

EVERY_KIND: list[dict[str, Any]] = [
    {"type": "text", "text": "\u2028 \U0001f600", "annotations": {"audience": ["user"], "priority": 0.5}},
    {"type": "image", "data": "AA==", "mimeType": "image/png", "_meta": {"com.example/x": [None]}},
    {"type": "audio", "data": "no base64 at all!", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "test://a", "name": "a", "size": 5},
    {"type": "resource", "resource": {"uri": "test://a", "text": "a"}},
    {"type": "hologram", "depth": 1.5},
]
VALUES: list[Any] = [None, 0, "", [], {}, False]
RICH: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"node": {"$anchor": "node", "type": "object", "properties": {"next": {"$ref": "#node"}}}},
    "type": "object",
    "properties": {"kind": {"enum": ["a", 1, None]}, "node": {"$ref": "#/$defs/node"}},
    "if": {"properties": {"kind": {"const": "a"}}},
    "then": {"required": ["node"]},
    "else": {"not": {"required": ["node"]}},
    "unevaluatedProperties": False,
    "x-order": ["kind", "node"],
}


def give(client: Client, result: Any, name: str = "t") -> Any:
    return client.call_tool(name, {"result": result}, timeout=20)


@each_connection
def test_tl01_tl09_tl13_every_kind_of_content_is_given_as_sent(connection: str) -> None:
    result = {"resultType": "complete", "content": EVERY_KIND, "later": {"a": [1]}}
    with shaped(connection) as client:
        assert give(client, result) == Ok(result)


@each_connection
@pytest.mark.parametrize("members", [{}, *({"structuredContent": value} for value in VALUES)])
def test_tl01_null_is_content_and_what_is_absent_is_not(connection: str, members: dict[str, Any]) -> None:
    with shaped(connection) as client:
        outcome = give(client, {"content": [], **members})
    assert isinstance(outcome, Ok)
    assert {name: value for name, value in outcome.value.items() if name == "structuredContent"} == members


@each_connection
@pytest.mark.parametrize("said", [None, False, True])
def test_tl03_a_tool_that_failed_has_answered(connection: str, said: bool | None) -> None:
    members = {} if said is None else {"isError": said}
    with shaped(connection) as client:
        outcome = give(client, {"content": [{"type": "text", "text": "what the model is to read"}], **members})
    assert isinstance(outcome, Ok)
    assert outcome.is_error is bool(said)
    assert outcome.value["content"][0]["text"] == "what the model is to read"


def test_tl03_tl09_faults_of_a_tool_and_of_a_call_are_told_apart() -> None:
    server = Server()

    @server.tool
    def fail() -> str:
        raise ToolError("out of paper")

    with server.serve_http() as http, Client.connect(http.url) as client:
        failed, unknown = client.call_tool("fail"), client.call_tool("none")
    assert isinstance(failed, Ok)
    assert failed.is_error
    assert isinstance(unknown, McpError)
    assert (unknown.code, unknown.reason) == (-32602, None)


@each_connection
@pytest.mark.parametrize(
    "members",
    [
        {},
        {"annotations": {}},
        {
            "annotations": {"title": "A", "readOnlyHint": True, "com.example/x": 1},
            "title": "B",
            "icons": [{"src": "x"}],
        },
        {"annotations": "none", "execution": 5, "_meta": {"com.example/x": None}},
    ],
)
def test_tl04_tl06_tl07_a_definition_is_given_as_sent_and_completed_by_nothing(
    connection: str, members: dict[str, Any]
) -> None:
    definition = {"name": "t", "inputSchema": RICH, "outputSchema": RICH, **members}
    with shaped(connection, definition) as client:
        assert client.list_tools().unwrap() == [definition]
        assert client.list_page("tools").unwrap().items == [definition]


@each_connection
def test_tl05_names_that_differ_in_case_are_two_tools(connection: str) -> None:
    text, number = {"type": "string"}, {"type": "integer"}
    tools = [{"name": name, "inputSchema": {}, "outputSchema": schema} for name, schema in (("t", text), ("T", number))]
    with shaped(connection, *tools) as client:
        assert give(client, {"content": [], "structuredContent": "x"}, "t").ok
        assert give(client, {"content": [], "structuredContent": 1}, "T").ok
        assert not give(client, {"content": [], "structuredContent": "x"}, "T").ok


def test_tl05_a_name_that_comes_twice_costs_no_tool() -> None:
    twice: list[dict[str, Any]] = [{"name": "t", "inputSchema": {}, "title": title} for title in ("first", "second")]
    with shaped("http", *twice) as client:
        assert client.list_tools().unwrap() == twice


def test_tl10_tools_come_in_the_order_of_the_server() -> None:
    server, names = Server(page_size=3), [f"t{number}" for number in (5, 2, 9, 1, 7, 3, 8)]
    for name in names:
        server.tool(name=name)(lambda: "x")
    with server.serve_http() as http, Client.connect(http.url) as client:
        assert [tool["name"] for tool in client.list_tools().unwrap()] == names


@each_connection
def test_tl10_what_is_listed_is_what_the_server_lists_now(connection: str) -> None:
    with shaped(connection, {"name": "a", "inputSchema": {}}) as client:
        define(client, {"name": "b", "inputSchema": {}})
        assert [tool["name"] for tool in client.list_tools().unwrap()] == ["b"]


def test_tl11_a_link_to_what_no_list_has_can_be_read() -> None:
    server = Server()
    server.on("resources/list")(lambda message, context: {"resultType": "complete", "resources": [], "ttlMs": 0})

    @server.resource("test://hidden")
    def hidden() -> str:
        return "found"

    linked = [{"type": "resource_link", "uri": "test://hidden", "name": "h"}]
    server.on("tools/call")(lambda message, context: {"resultType": "complete", "content": linked})
    with server.serve_http() as http, Client.connect(http.url) as client:
        (link,) = client.call_tool("point").unwrap()["content"]
        assert client.list_resources().unwrap() == []
        assert client.read_resource(link["uri"]).unwrap()["contents"][0]["text"] == "found"
