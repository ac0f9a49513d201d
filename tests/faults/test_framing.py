"""HTTP that is wrong below the level of messages: lengths, chunks, interim answers, and bytes nobody asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from support.faulty import AT_ONCE, assert_error, assert_serves, assert_timeout, http_server
from support.http_calls import MemoryPeak, Took
from support.scripted_http import Peer, Request, event, result

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"

Send = Callable[[Peer, Request], None]


def body_of(request: Request, text: str = "ok", id_: int | None = None) -> bytes:
    message = result(request, text)
    return json.dumps(message if id_ is None else {**message, "id": id_}).encode()


def whole(body: bytes) -> bytes:
    return JSON + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def outcome_of(reply: Send, **options: Any) -> Any:
    """The outcome of a call answered like this, found at once, on a client that gets its next answers right."""
    with http_server(reply) as server, Client.connect(server.url) as client:
        with MemoryPeak() as peak, Took() as took:
            outcome = client.call_tool("fault", **options)
        assert took.seconds < AT_ONCE
        assert peak.mib < 100
        for number in range(3):
            assert_serves(client, f"next {number}")
    return outcome


def endlessly(head: bytes, piece: bytes) -> Send:
    def reply(peer: Peer, _: Request) -> None:
        peer.send(head)
        while True:
            peer.send(piece)

    return reply


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        (JSON + CHUNKED, b"1\r\n \r\n" * 1000),
        (JSON + CHUNKED + b"2\r\n{}\r\n0\r\n", b"X: y\r\n" * 1000),
        (SSE + CHUNKED, b"1\r\n:\r\n1\r\n\n\r\n" * 1000),
    ],
    ids=["interim answers", "tiny chunks", "trailers", "comments"],
)
def test_what_never_ends_ends_by_the_limit(head: bytes, piece: bytes) -> None:
    with http_server(endlessly(head, piece)) as server, Client.connect(server.url) as client:
        with Took() as took, MemoryPeak() as peak:
            outcome = client.call_tool("fault", timeout=0.3)
        if isinstance(outcome, McpError) and outcome.reason != "timeout":  # a bound of its own was there first
            assert took.seconds < 0.3 + 2.0
            assert outcome.reason in ("malformed", "too_large")
        else:
            assert_timeout(outcome, 0.3, took)
        assert peak.mib < 100
        assert_serves(client)


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"", b"x" * 65536),
        (b"HTTP/1.1 200 ", b"x" * 65536),
        (JSON + b"X: ", b"x" * 65536),
        (JSON, b"X: y\r\n" * 1000),
        (JSON + CHUNKED, b"1" * 65536),
        (JSON + CHUNKED + b"1;extension=", b"x" * 65536),
        (SSE + CHUNKED, b"0" * 65536),
    ],
    ids=["status line", "reason", "header", "headers", "chunk length", "chunk extension", "zeros"],
)
def test_a_line_that_never_ends_is_malformed_at_once(head: bytes, piece: bytes) -> None:
    outcome = outcome_of(endlessly(head, piece), timeout=5)
    assert isinstance(outcome, McpError)
    assert outcome.reason in ("malformed", "closed"), outcome


def test_trailers_without_end_after_the_answer_cost_nothing() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(event(result(request)))
        peer.send(b"0\r\n")
        while True:
            peer.send(b"X: y\r\n" * 1000)

    assert isinstance(outcome_of(reply), Ok)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("extra", ["text", "answer"])
def test_bytes_after_the_answer_are_nobodys_answer(together: bool, extra: str) -> None:
    sent = threading.Event()

    def reply(peer: Peer, request: Request) -> None:
        right = whole(body_of(request, "right"))
        more = whole(body_of(request, "wrong", request.id + 1)) if extra == "answer" else b"and some more text"
        if together:
            peer.send(right + more)
        else:
            peer.send(right)
            peer.send(more)
        sent.set()

    with http_server(reply) as server, Client.connect(server.url) as client:
        for number in range(5):
            assert client.call_tool("fault").unwrap()["content"][0]["text"] == "right"
            assert sent.wait(5)  # what comes still later, while the next request is sent, no client can tell apart
            sent.clear()
            assert_serves(client, f"next {number}")


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_a_body_where_none_may_be_is_nobodys_answer(status: str) -> None:
    def reply(peer: Peer, request: Request) -> None:
        more = whole(body_of(request, "wrong", request.id + 1))
        peer.send(f"HTTP/1.1 {status}\r\n\r\n".encode() + more)

    assert_error(outcome_of(reply), "malformed" if status.startswith("204") else "http_status")


def test_a_length_that_is_too_short() -> None:
    def reply(peer: Peer, request: Request) -> None:
        body = body_of(request)
        peer.send(JSON + b"Content-Length: %d\r\n\r\n%b" % (len(body) - 10, body))

    assert_error(outcome_of(reply), "malformed", http_status=200)


@pytest.mark.parametrize("length", [b"99999999999999999999999999", b"16777217"])
def test_a_length_over_the_limit(length: bytes) -> None:
    def reply(peer: Peer, _: Request) -> None:
        peer.send(JSON + b"Content-Length: " + length + b"\r\n\r\n")
        peer.silence()

    assert_error(outcome_of(reply), "too_large", limit=16 * 2**20)


@pytest.mark.parametrize("headers", [b"Content-Length: 5\r\nContent-Length: 9\r\n", b"Content-Length: 5, 9\r\n"])
def test_two_lengths(headers: bytes) -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.send(JSON + headers + b"\r\n" + body_of(request))

    assert_error(outcome_of(reply), "malformed")


@pytest.mark.parametrize(
    "chunks",
    [b"zz\r\n{}\r\n0\r\n\r\n", b"2{}\r\n0\r\n\r\n", b"\r\n\r\n"],
)
@pytest.mark.parametrize("head", [JSON, SSE], ids=["json", "sse"])
def test_chunks_that_are_none(chunks: bytes, head: bytes) -> None:
    outcome = outcome_of(lambda peer, _: peer.send(head + CHUNKED + chunks), timeout=2.5)
    assert isinstance(outcome, McpError)
    assert outcome.reason in ("malformed", "closed"), outcome


@pytest.mark.parametrize("kind", ["", "application", "/json", "text/event-stream-x", "\x00", "x" * 5000])
def test_a_content_type_that_is_none(kind: str) -> None:
    outcome = outcome_of(lambda peer, request: peer.respond("200 OK", body_of(request), kind=kind))
    if "json" in kind or not kind:
        assert isinstance(outcome, Ok)
    else:
        error = assert_error(outcome, "malformed", http_status=200)
        assert len(error.message) < 1000
        assert error.message.isprintable()
