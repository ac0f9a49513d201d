"""Base JSON-RPC on real wires: what a server may not send is neither answered nor fatal."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from snodo_client import Client, Ok
from support.http_calls import connect
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event, result

# Writes the messages it is given before it answers, and answers with all it has received so far.
SERVER = """
import json, sys
received = []
for line in sys.stdin.buffer:
    message = json.loads(line)
    received.append(message)
    if "id" in message:
        extra = message["params"].get("arguments", {}).get("extra", [])
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"received": received}}
        for each in [*extra, answer]:
            sys.stdout.write(json.dumps(each) + "\\n")
        sys.stdout.flush()
"""

REQUESTS = [
    {"jsonrpc": "2.0", "id": 1, "method": "ping"},
    {"jsonrpc": "2.0", "id": "a", "method": "roots/list", "params": {}},
    {"jsonrpc": "2.0", "id": 0, "method": "sampling/createMessage", "params": {"messages": []}},
]
NOTIFICATIONS = [
    {"jsonrpc": "2.0", "method": "notifications/unheard-of", "params": {"a": [None]}},
    {"jsonrpc": "2.0", "method": "notifications/message", "params": []},
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": None, "progress": "x"}},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}},
]


@pytest.mark.parametrize("extra", [NOTIFICATIONS, REQUESTS], ids=["j04", "j05"])
def test_j04_j05_nothing_is_written_back_over_stdio(extra: list[dict[str, Any]]) -> None:
    with Client.connect(("stdio", sys.executable, ["-I", "-S", "-c", SERVER]), protocol="2026-07-28") as client:
        for _ in range(3):
            result_object = client.call_tool("t", {"extra": extra}, timeout=10).unwrap()
        assert [message.get("method") for message in result_object["received"]] == ["tools/call"] * 3


@pytest.mark.parametrize("extra", [NOTIFICATIONS, REQUESTS], ids=["j04", "j05-h12"])
def test_j04_j05_h12_nothing_is_posted_back_over_http(extra: list[dict[str, Any]]) -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        for message in [*extra, result(request)]:
            peer.chunk(event(message))
        peer.end()

    with ScriptedServer(each_request(reply)) as server, connect(server.url) as client:
        for _ in range(3):
            assert isinstance(client.call_tool("test"), Ok)
        assert [request.message["method"] for request in server.requests] == ["tools/call"] * 3


@pytest.mark.parametrize("extra", REQUESTS, ids=lambda request: request["method"])
def test_j05_h12_nothing_is_posted_back_in_the_stream_of_the_probe(extra: dict[str, Any]) -> None:
    known = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}}

    def reply(peer: Peer, request: Request) -> None:
        probed = request.message["method"] == "server/discover"
        answer = {"jsonrpc": "2.0", "id": request.id, "result": known} if probed else result(request)
        peer.start_sse()
        for message in [extra, answer]:
            peer.chunk(event(message))
        peer.end()

    with ScriptedServer(each_request(reply)) as server:
        with Client.connect(server.url) as client:
            assert isinstance(client.call_tool("test"), Ok)
        assert [request.message.get("method") for request in server.requests] == ["server/discover", "tools/call"]
