"""Servers that refuse mirrored headers for ever: one list, one more try, and then it is their error."""

from __future__ import annotations

from threading import Barrier
from typing import Any

import pytest

from snodo_client import Client, McpError
from support.faulty import AT_ONCE, assert_serves, http_server
from support.http_calls import Took
from support.scripted_http import Peer, Request
from support.waiting import together

TOOL = {
    "name": "fault",
    "inputSchema": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
}
REFUSED = {"code": -32020, "message": "header mismatch", "data": {"missing": "Mcp-Param-Region"}}


def refuse(peer: Peer, request: Request, status: str = "400 Bad Request") -> None:
    peer.json({"jsonrpc": "2.0", "id": request.id, "error": REFUSED}, status)


def listed(peer: Peer, request: Request, *tools: Any) -> None:
    peer.json({"jsonrpc": "2.0", "id": request.id, "result": {"resultType": "complete", "tools": list(tools)}})


def counts(server: Any) -> tuple[int, int]:
    """How many calls of the tool, and how many lists."""
    methods = [request.message["method"] for request in server.requests if b'"ok"' not in request.body]
    return methods.count("tools/call"), methods.count("tools/list")


def assert_refused(outcome: Any) -> None:
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.message, outcome.reason) == (-32020, "header mismatch", None)
    assert outcome.data == REFUSED["data"]


@pytest.mark.parametrize("status", ["400 Bad Request", "200 OK"])
def test_refused_for_ever(status: str) -> None:
    def reply(peer: Peer, request: Request) -> None:
        listed(peer, request, TOOL) if request.message["method"] == "tools/list" else refuse(peer, request, status)

    with http_server(reply) as server, Client.connect(server.url) as client:
        with Took() as took:
            assert_refused(client.call_tool("fault", {"region": "eu"}))
        assert took.seconds < AT_ONCE
        assert counts(server) == (2, 1)
        sent = [request.header("mcp-param-region") for request in server.requests if b'"fault"' in request.body]
        assert sent == [None, "eu"]
        assert_serves(client)
        assert_refused(client.call_tool("fault", {"region": "eu"}))
        assert counts(server) == (4, 2)


def test_refused_for_ever_by_definition() -> None:
    def reply(peer: Peer, request: Request) -> None:
        listed(peer, request, TOOL) if request.message["method"] == "tools/list" else refuse(peer, request)

    with http_server(reply) as server, Client.connect(server.url) as client:
        assert_refused(client.call_tool(TOOL, {"region": "eu"}))
        assert counts(server) == (2, 1)
        sent = [request.header("mcp-param-region") for request in server.requests if b'"fault"' in request.body]
        assert sent == ["eu", "eu"]
        assert_serves(client)


@pytest.mark.parametrize("tools", [[], [{"name": "fault", "inputSchema": {}}], [{**TOOL, "name": "other"}]])
def test_a_list_that_does_not_help(tools: list[Any]) -> None:
    def reply(peer: Peer, request: Request) -> None:
        listed(peer, request, *tools) if request.message["method"] == "tools/list" else refuse(peer, request)

    with http_server(reply) as server, Client.connect(server.url) as client:
        assert_refused(client.call_tool("fault", {"region": "eu"}))
        assert counts(server) in ((1, 1), (2, 1))
        assert_serves(client)


def test_a_list_that_fails() -> None:
    def reply(peer: Peer, request: Request) -> None:
        if request.message["method"] == "tools/list":
            peer.respond("500 Oops", b"no list", kind="text/plain")
        else:
            refuse(peer, request)

    with http_server(reply) as server, Client.connect(server.url) as client:
        assert_refused(client.call_tool("fault", {"region": "eu"}))
        assert counts(server) == (1, 1)
        assert_serves(client)


def test_a_list_that_never_comes_costs_the_limit_of_the_call() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.silence() if request.message["method"] == "tools/list" else refuse(peer, request)

    with http_server(reply) as server, Client.connect(server.url) as client:
        with Took() as took:
            outcome = client.call_tool("fault", {"region": "eu"}, timeout=0.3)
        assert took.on_time(0.3)
        assert_refused(outcome)  # which is all that is known
        assert_serves(client)


def test_eight_threads_share_one_list() -> None:
    refused, tried = Barrier(8), set()

    def reply(peer: Peer, request: Request) -> None:
        if request.message["method"] == "tools/list":
            peer.pause(0.4)  # for the others to come along
            return listed(peer, request, TOOL)
        number = request.message["params"]["arguments"]["n"]
        if number not in tried:
            tried.add(number)
            refused.wait(10)
        return refuse(peer, request)

    with http_server(reply) as server, Client.connect(server.url) as client:
        outcomes: list[Any] = []

        def call(number: int) -> None:
            outcomes.append(client.call_tool("fault", {"region": "eu", "n": number}))

        together([lambda number=number: call(number) for number in range(8)])  # type: ignore[misc]
        assert len(outcomes) == 8
        for outcome in outcomes:
            assert_refused(outcome)
        assert counts(server) == (16, 1)
        assert_serves(client)
