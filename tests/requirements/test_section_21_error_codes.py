"""Codes that look like ours, or like those of another era, stay the server's own."""

from __future__ import annotations

import pytest

from snodo_client import McpError
from support.http_calls import connect
from support.scripted_http import Peer, Request, ScriptedServer, each_request

DATA = {"supported": ["2026-07-28"], "requiredCapabilities": {"roots": {}}, "elicitations": [], "uri": "a:b"}


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "404 Not Found"])
@pytest.mark.parametrize("code", [-32700, -32603, -32601, -32042, -32021, -32004, -32003, -32001, -32000, -1, 0, 7])
def test_j10_an_error_of_the_server_is_sent_once_and_kept(code: int, status: str) -> None:
    def reply(peer: Peer, request: Request) -> None:
        failure = {"code": code, "message": "it says", "data": DATA}
        peer.json({"jsonrpc": "2.0", "id": request.id, "error": failure}, status)

    with ScriptedServer(each_request(reply)) as server, connect(server.url) as client:
        outcome = client.call_tool("test")
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.message, outcome.data, outcome.reason) == (code, "it says", DATA, None)
        assert outcome.cause == (None if status.startswith("200") else ("http_status", int(status[:3])))
        assert len(server.requests) == 1
