"""Tools, resources, completion and logs: what is unusual is passed on, not judged."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from snodo_client.testing import Server
from support.http_calls import connect
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event, result

DONE: dict[str, Any] = {"resultType": "complete"}


@pytest.mark.parametrize("name", ["", " x ", "a/b:c", "日本語", "=?base64?a?=", "x" * 300, "tab\tin", "line\nend"])
def test_tl05_a_tool_is_called_by_any_name(name: str) -> None:
    server = Server()

    @server.on("tools/call")
    def call(message: dict[str, Any], context: object) -> dict[str, Any]:
        return {**DONE, "content": [], "name": message["params"]["name"]}

    with server.serve_http() as serving, Client.connect(serving.url) as client:
        assert client.call_tool(name).unwrap()["name"] == name


@pytest.mark.parametrize("content", [[{"type": "hologram", "data": 5}], [{}], [], None])
def test_tl09_content_of_an_unknown_kind_is_given_as_sent(content: object) -> None:
    server = Server()
    server.on("tools/call")(lambda message, context: {**DONE, "content": content, "later": {"a": [1]}})
    outcome = Client.direct(server).call_tool("t")
    assert outcome == Ok({**DONE, "content": content, "later": {"a": [1]}})


@pytest.mark.parametrize("contents", [[], [{"uri": "a:b", "text": ""}, {"uri": "a:c", "blob": "AA=="}]])
def test_rs02_no_contents_are_a_success_and_several_stay_apart(contents: list[Any]) -> None:
    server = Server()
    server.on("resources/read")(lambda message, context: {**DONE, "contents": contents, "ttlMs": 0})
    outcome = Client.direct(server).read_resource("a:b")
    assert isinstance(outcome, Ok)
    assert outcome.value["contents"] == contents


@pytest.mark.parametrize("code", [-32602, -32002])
def test_rs01_either_code_of_a_missing_resource_is_kept(code: int) -> None:
    server = Server()
    failure = {"code": code, "message": "not found", "data": {"uri": "a:b"}}
    server.on("resources/read")(lambda message, context: {"jsonrpc": "2.0", "id": message["id"], "error": failure})
    outcome = Client.direct(server).read_resource("a:b")
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.data, outcome.reason) == (code, {"uri": "a:b"}, None)


@pytest.mark.parametrize("completion", [{"values": ["x"] * 150}, {"values": []}, {"values": ["a"], "hasMore": True}])
def test_co01_more_than_a_hundred_values_and_missing_members_are_tolerated(completion: dict[str, Any]) -> None:
    server = Server()
    server.on("completion/complete")(lambda message, context: {**DONE, "completion": completion})
    outcome = Client.direct(server).complete({"type": "ref/prompt", "name": "p"}, {"name": "a", "value": ""})
    assert outcome == Ok({**DONE, "completion": completion})


def test_lg01_a_log_message_nobody_asked_for_costs_nothing() -> None:
    def reply(peer: Peer, request: Request) -> None:
        params = {"level": "error", "data": {"a": None}, "logger": 5}
        peer.start_sse()
        peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))
        peer.chunk(event(result(request)))
        peer.end()

    logged: list[tuple[Any, ...]] = []
    came = Event()

    def on_log(*message: Any) -> None:
        logged.append(message)
        came.set()

    with ScriptedServer(each_request(reply)) as server, connect(server.url, on_log=on_log) as client:
        assert isinstance(client.call_tool("test"), Ok)
        assert came.wait(10)
        assert logged == [("error", {"a": None}, None)]
