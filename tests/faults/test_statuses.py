"""HTTP statuses, and connections that end where they should not: the right error at once, and no call sent twice."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from threading import Event
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from support.faulty import AT_ONCE, assert_error, assert_serves, failed_connect, http_server
from support.http_calls import VERSION, Took
from support.scripted_http import Gone, Peer, Request, ScriptedServer, each_request, event, result

HTML = b"<html><h1>Bad Gateway</h1></html>"


def outcome_of(reply: Any, times: int = 1) -> Any:
    """The outcome of a call, which reaches the server just so often."""
    with http_server(reply) as server, Client.connect(server.url) as client:
        with Took() as took:
            outcome = client.call_tool("fault")
        assert took.seconds < AT_ONCE
        assert_serves(client)
        assert sum(b'"fault"' in request.body for request in server.requests) == times
        if isinstance(outcome, McpError) and outcome.reason is not None:
            assert server.url in outcome.message
    return outcome


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
             b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n\r\n"]
)  # fmt: skip
def test_a_success_without_an_answer(head: bytes) -> None:
    assert_error(
        outcome_of(lambda peer, _: peer.send(head)), "malformed", http_status=int(head[9:12]), content_type=None
    )


@pytest.mark.parametrize(
    "status", ["400 Bad Request", "404 Not Found", "405 No", "500 Oops", "502 Bad Gateway", "503 Busy"]
)
def test_a_page_instead_of_an_answer(status: str) -> None:
    error = assert_error(
        outcome_of(lambda peer, _: peer.respond(status, HTML, kind="text/html")),
        "http_status",
        http_status=int(status[:3]),
        content_type="text/html",
        excerpt=HTML.decode(),
    )
    assert status in error.message
    assert "<h1>Bad Gateway" in error.message


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("120", 120, 120),
        ("0", 0, 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
        ("soon", None, None),
        ("-5", None, None),
        ("1e400", None, None),
        ("", None, None),
        ("9" * 5000, None, None),
        ("Wed, 99 Foo 2015", None, None),
    ],
    ids=lambda value: str(value)[:12],
)
@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Busy"])
def test_retry_after(status: str, header: str, least: float | None, most: float | None) -> None:
    outcome = outcome_of(
        lambda peer, _: peer.respond(status, b"slow down", f"Retry-After: {header}", kind="text/plain")
    )
    error = assert_error(outcome, "http_status", http_status=int(status[:3]), excerpt="slow down")
    if least is None or most is None:
        assert "retry_after" not in error.data
    else:
        assert least <= error.data["retry_after"] <= most


def test_retry_after_a_date() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=500), usegmt=True)
    outcome = outcome_of(
        lambda peer, _: peer.respond("503 Busy", b"slow down", f"Retry-After: {date}", kind="text/plain")
    )
    assert 300 <= assert_error(outcome, "http_status", http_status=503).data["retry_after"] <= 500


@pytest.mark.parametrize("status", [401, 403])
def test_a_credential_is_asked_for(status: int) -> None:
    challenge = 'Bearer error="invalid_token"'
    outcome = outcome_of(lambda peer, _: peer.respond(f"{status} No", b"who?", f"WWW-Authenticate: {challenge}"))
    assert_error(outcome, "unauthorized", kind="authorization", http_status=status, challenge=challenge)


@pytest.mark.parametrize("status", ["400 Bad Request", "401 No", "403 No", "404 Not Found", "500 Oops"])
@pytest.mark.parametrize("id_", ["ours", None, "foreign", "missing"])
def test_an_error_in_a_refusal_is_the_servers(status: str, id_: Any) -> None:
    def reply(peer: Peer, request: Request) -> None:
        message = {"jsonrpc": "2.0", "id": request.id if id_ == "ours" else id_}
        message["error"] = {"code": -32001, "message": "no such thing", "data": {"a": None}}
        if id_ == "missing":
            del message["id"]
        peer.json(message, status)

    outcome = outcome_of(reply)
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.message, outcome.data, outcome.reason) == (-32001, "no such thing", {"a": None}, None)
    assert outcome.kind == "protocol"


# -- on discovery


@pytest.mark.parametrize(
    ("status", "reason", "code", "kind"),
    [
        ("429 Too Many", "http_status", -32000, "transport"),
        ("500 Oops", "http_status", -32000, "transport"),
        ("502 Bad Gateway", "http_status", -32000, "transport"),
        ("401 No", "unauthorized", -32000, "authorization"),
        ("403 No", "unauthorized", -32000, "authorization"),
        ("200 OK", "malformed", -32000, "transport"),
        ("202 Accepted", "malformed", -32000, "transport"),
        ("400 Bad Request", "incompatible_versions", -32602, "protocol"),
        ("404 Not Found", "incompatible_versions", -32602, "protocol"),
        ("405 No", "incompatible_versions", -32602, "protocol"),
    ],
)
def test_a_page_instead_of_a_discovery(status: str, reason: str, code: int, kind: str) -> None:
    with ScriptedServer(each_request(lambda peer, _: peer.respond(status, HTML, kind="text/html"))) as server:
        with Took() as took:
            error = failed_connect(lambda: Client.connect(server.url))
        assert_error(error, reason, code=code, kind=kind)
        assert took.seconds < AT_ONCE
        # Where that may be due to an older server, its handshake follows, and then the stream of the oldest.
        assert len(server.requests) == (3 if reason == "incompatible_versions" else 1)


@pytest.mark.parametrize("protocol", ["auto", VERSION])
def test_nobody_listens(protocol: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    with Took() as took:
        if protocol == "auto":
            outcome: Any = failed_connect(lambda: Client.connect(url))
        else:
            with Client.connect(url, protocol=protocol) as client:
                outcome = client.call_tool("ok")
    assert took.seconds < AT_ONCE
    error = assert_error(outcome, "unreachable")
    assert url in error.message
    assert error.data["tried"]


# -- cut off


JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
NOTE = event({"jsonrpc": "2.0", "method": "notifications/x"})
CUTS = {
    "before the head": (b"", "closed"),
    "in the status line": (b"HTTP/1.", "malformed"),
    "in the head": (JSON, "closed"),
    "in the reason of a refusal": (b"HTTP/1.1 404 Not", "closed"),
    "after the head": (JSON + b"Content-Length: 100\r\n\r\n", "closed"),
    "in the body": (JSON + b'Content-Length: 100\r\n\r\n{"jsonrpc"', "closed"),
    "in a chunk": (JSON + CHUNKED + b'64\r\n{"jsonrpc"', "closed"),
    "between chunks": (JSON + CHUNKED + b"2\r\n{}\r\n", "closed"),
    "in the length of a chunk": (JSON + CHUNKED + b"6", "closed"),
    "in a stream": (SSE + CHUNKED + b"%x\r\n%b\r\n" % (len(NOTE), NOTE), "closed"),
    "in an event": (SSE + CHUNKED + b"64\r\ndata: {", "closed"),
    "in a stream without framing": (SSE + b"\r\n" + NOTE + b'data: {"json', "closed"),
    "no HTTP": (b"SSH-2.0-x\r\n\r\n", "malformed"),
    "rubbish": (bytes(range(128, 256)) * 4, "malformed"),
}


@pytest.mark.parametrize("where", CUTS)
@pytest.mark.parametrize("kept", [False, True], ids=["fresh", "kept"])
@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
def test_a_call_that_is_cut_off_is_not_sent_again(where: str, kept: bool, reset: bool) -> None:
    sent, reason = CUTS[where]

    def reply(peer: Peer, _: Request) -> None:
        peer.send(sent)
        if reset:
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.sock.close()
        raise Gone

    with http_server(reply) as server, Client.connect(server.url, protocol="auto" if kept else VERSION) as client:
        with Took() as took:
            outcome = client.call_tool("fault")
        assert took.seconds < AT_ONCE
        if reset and isinstance(outcome, McpError) and outcome.reason == "closed":
            reason = "closed"  # what was sent before may be lost with it
        error = assert_error(outcome, reason)
        assert server.url in error.message
        assert sum(b'"fault"' in request.body for request in server.requests) == 1
        assert_serves(client)


def test_a_body_that_ends_with_the_connection() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.send(JSON + b"\r\n" + json.dumps(result(request)).encode())
        raise Gone

    assert isinstance(outcome_of(reply), Ok)


def test_a_stream_cut_after_the_answer() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(event(result(request)))
        raise Gone

    assert isinstance(outcome_of(reply), Ok)


@pytest.mark.parametrize("method", ["tools/list", "resources/list", "tools/call", "resources/read", "prompts/get"])
def test_a_kept_connection_that_closes_under_a_request(method: str) -> None:
    """Lists and reads may be sent again, once, on another connection; what may have run may not."""
    params = {"tools/call": {"name": "fault"}, "resources/read": {"uri": "x:y"}}.get(method, {"name": "x"})
    repeatable = method.endswith("/list") or method == "resources/read"
    members: dict[str, Any] = {"tools": [], "resources": [], "contents": [], "messages": [], "content": []}

    def reply(peer: Peer, request: Request) -> None:
        if peer.number == 1:
            raise Gone
        peer.json({"jsonrpc": "2.0", "id": request.id, "result": members})

    with http_server(reply, once=False) as server, Client.connect(server.url) as client:
        outcome = client.request(method, params)
        sent = sum(request.message["method"] == method for request in server.requests)
        if repeatable:
            assert outcome == Ok(members)
            assert sent == 2
        else:
            assert_error(outcome, "closed")
            assert sent == 1
        assert_serves(client)


def test_a_list_is_not_sent_a_third_time() -> None:
    def reply(peer: Peer, _: Request) -> None:
        raise Gone

    with http_server(reply, once=False) as server, Client.connect(server.url) as client:
        assert_error(client.list_tools(), "closed")
        assert sum(b"tools/list" in request.body for request in server.requests) == 2
        assert_serves(client)


@pytest.mark.parametrize("how", ["fin", "rst", "408"])
def test_a_call_after_a_kept_connection_was_closed(how: str) -> None:
    closed = Event()

    def script(peer: Peer) -> None:
        peer.answer(peer.request(), "next")
        if how == "408":
            peer.send(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        if how == "rst":
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            peer.sock.close()
        else:
            peer.sock.shutdown(socket.SHUT_RDWR)
        closed.set()

    with ScriptedServer(script) as server, Client.connect(server.url, protocol=VERSION) as client:
        for number in range(1, 5):
            closed.clear()
            assert_serves(client)
            assert closed.wait(5)
            assert len(server.requests) == number


def test_an_answer_on_a_connection_that_says_close() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.json(result(request), "200 OK", "Connection: close")
        raise Gone

    with http_server(reply) as server, Client.connect(server.url) as client:
        for _ in range(5):
            assert isinstance(client.call_tool("fault"), Ok)
        assert_serves(client)
        assert server.connections == 6
