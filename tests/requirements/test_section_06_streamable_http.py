"""Streamable HTTP: no sessions, no resuming, and header names in any case."""

from __future__ import annotations

import json

from snodo_client import McpError, Ok
from support.http_calls import connect
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event, replies, result


def test_h10_a_stream_that_broke_is_not_taken_up_again() -> None:
    def broken(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(b"id: 41\nretry: 1\ndata:\n\n" + event({"jsonrpc": "2.0", "method": "notifications/x"}))
        peer.end()

    with ScriptedServer(replies(broken, lambda peer, request: peer.answer(request))) as server:
        with connect(server.url) as client:
            lost = client.call_tool("test")
            assert isinstance(lost, McpError)
            assert lost.reason == "closed"
            assert isinstance(client.call_tool("test"), Ok)
        assert [request.line.split(" ")[0] for request in server.requests] == ["POST", "POST"]
        assert all(request.header("last-event-id") is None for request in server.requests)
        first, second = (request.id for request in server.requests)
        assert first != second


def test_h17_a_session_id_is_ignored() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.json(result(request), "200 OK", "Mcp-Session-Id: 5e55104")

    with ScriptedServer(each_request(reply)) as server:
        with connect(server.url) as client:
            assert isinstance(client.call_tool("test"), Ok)
            assert isinstance(client.call_tool("test"), Ok)
        assert [request.line.split(" ")[0] for request in server.requests] == ["POST", "POST"]
        assert all(request.header("mcp-session-id") is None for request in server.requests)


def test_h16_names_of_headers_have_no_case() -> None:
    def reply(peer: Peer, request: Request) -> None:
        body = json.dumps(result(request)).encode()
        if request.id % 2:
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nCONTENT-TYPE: Application/JSON\r\n\r\n" % len(body))
            peer.send(body)
        else:
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: Text/Event-Stream; x=y\r\ntransfer-encoding: Chunked\r\n\r\n")
            peer.chunk(event(result(request)))
            peer.end()

    with ScriptedServer(each_request(reply)) as server, connect(server.url) as client:
        assert isinstance(client.call_tool("test"), Ok)
        assert isinstance(client.call_tool("test"), Ok)
        assert server.connections == 1
