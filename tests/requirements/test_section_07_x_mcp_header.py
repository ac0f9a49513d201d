"""Mirrored arguments on a real wire: in every attempt, also when they are empty, and never for an invalid tool."""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client import Client, InputRequired, Ok
from snodo_client.testing import Call, Server

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "x-mcp-header": "Method"},
        "flag": {"type": "boolean", "x-mcp-header": "Flag"},
        "deep": {"type": "object", "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
    },
}
CONFIRM = {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": {}}}


def a_server(schema: dict[str, Any]) -> Server:
    server = Server()

    @server.tool(name="t", input_schema=schema)
    def tool(call: Call, **arguments: Any) -> str:
        return "done" if call.ask("confirm", CONFIRM) else ""

    return server


def mirrored(server: Server) -> list[dict[str, str]]:
    """The mirrored headers of each tool call."""
    return [
        {name: value for name, value in call.headers.items() if name.startswith("mcp-param-")}
        for call in server.calls
        if call.method == "tools/call"
    ]


@pytest.mark.parametrize("by_name", [True, False])
def test_xh17_a_retry_with_input_mirrors_the_same_arguments(by_name: bool) -> None:
    server = a_server(SCHEMA)
    with server.serve_http() as serving, Client.connect(serving.url, client_capabilities=["elicitation"]) as client:
        (definition,) = client.list_tools().unwrap()
        tool = "t" if by_name else definition
        arguments = {"text": "ü", "flag": True, "deep": {"count": 7}}
        asked = client.call_tool(tool, arguments)
        assert isinstance(asked, InputRequired)
        answers = {"confirm": {"action": "accept", "content": {}}}
        done = client.call_tool(tool, arguments, input_responses=answers, request_state=asked.request_state)
        assert isinstance(done, Ok), done
        first, second = mirrored(server)
        assert first == second
        assert len(first) == 3


def test_xh08_xh14_xh15_empty_values_are_sent_and_absent_ones_are_not() -> None:
    server = a_server(SCHEMA)
    with server.serve_http() as serving, Client.connect(serving.url, client_capabilities=["elicitation"]) as client:
        client.list_tools().unwrap()
        calls: list[dict[str, Any]] = [
            {"text": "", "flag": False, "deep": {"count": 0}},
            {"text": None, "deep": None},
            {"deep": {}},
            {"deep": 5},
        ]
        for arguments in calls:
            client.call_tool("t", arguments)
        assert mirrored(server) == [
            {"mcp-param-method": "", "mcp-param-flag": "false", "mcp-param-count": "0"},
            {},
            {},
            {},
        ]


def test_xh19_an_invalid_tool_called_by_name_has_no_mirrored_headers() -> None:
    server = a_server({"type": "object", "properties": {"text": {"type": "array", "x-mcp-header": "Text"}}})
    with server.serve_http() as serving, Client.connect(serving.url, client_capabilities=["elicitation"]) as client:
        (definition,) = [entry.definition for entry in server.tools.values()]
        assert client.list_tools() == Ok([])
        client.call_tool("t", {"text": ["eu"]})
        with pytest.raises(ValueError, match="x-mcp-header"):
            client.call_tool(definition, {"text": ["eu"]})
        assert mirrored(server) == [{}]
