"""Every way an HTTP server can take its time: each ends by the deadline, can be cancelled, and lets the next call work.

The mark for a deadline is 50 ms and 2 %; what a test on a busy machine can hold is two seconds.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from snodo_client.outcome import McpError, Ok, local_error
from support.http_calls import Took, connect, error_of, exchange, failed, make_call, opened
from support.scripted_http import Peer, ScriptedServer, each_request, event, result

DEADLINE = 0.5
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
NOTE = {"jsonrpc": "2.0", "method": "notifications/x"}


def silence(peer: Peer) -> None:
    peer.silence()


def stalled_head(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-")
    peer.silence()


def stalled_body(peer: Peer) -> None:
    peer.send(HEAD + b"Content-Length: 100\r\n\r\n{")
    peer.silence()


def silent_stream(peer: Peer) -> None:
    peer.start_sse()
    peer.silence()


def dripped_head(peer: Peer) -> None:
    peer.drip(HEAD + b"Content-Length: 10\r\n\r\n")


def endless_head(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\n")
    peer.drip(b"X: y\r\n" * 50, 0.05)


def interim_heads(peer: Peer) -> None:
    while True:
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.pause(0.05)


def dripped_body(peer: Peer) -> None:
    peer.send(HEAD + b"Content-Length: 100\r\n\r\n")
    peer.drip(b" " * 100)


def dripped_open_body(peer: Peer) -> None:
    peer.send(HEAD + b"\r\n")
    peer.drip(b" " * 100)


def dripped_chunks(peer: Peer) -> None:
    peer.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    peer.drip(b"1\r\n \r\n" * 30)


def dripped_trailers(peer: Peer) -> None:
    peer.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n")
    peer.drip(b"X: y\r\n" * 30)


def dripped_stream(peer: Peer) -> None:
    peer.start_sse()
    peer.drip(b"1\r\n:\r\n" * 30)


def endless_pings(peer: Peer) -> None:
    peer.start_sse()
    while True:
        peer.chunk(b": ping\n\n")
        peer.pause(0.01)


def endless_notes(peer: Peer) -> None:
    peer.start_sse()
    while True:
        peer.chunk(event(NOTE) * 100)


SLOW = [
    silence, stalled_head, stalled_body, silent_stream, dripped_head, endless_head, interim_heads, dripped_body,
    dripped_open_body, dripped_chunks, dripped_trailers, dripped_stream, endless_pings, endless_notes,
]  # fmt: skip


def slow_once(way: Callable[[Peer], None]) -> Callable[[Peer], None]:
    """Slow on the first connection, swift on the others."""

    def script(peer: Peer) -> None:
        request = peer.request()
        if peer.number == 1:
            way(peer)
        while True:
            peer.answer(request)
            request = peer.request()

    return script


@pytest.mark.parametrize("way", SLOW)
def test_a_slow_server_costs_the_deadline_and_no_more(way: Callable[[Peer], None]) -> None:
    with ScriptedServer(slow_once(way)) as server, connect(server.url) as client:
        with Took() as took:
            outcome = client.call_tool("test", timeout=DEADLINE)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "timeout"
        assert took.on_time(DEADLINE), took.seconds
        assert isinstance(client.call_tool("test"), Ok)


@pytest.mark.parametrize("way", SLOW)
def test_a_slow_exchange_can_be_cancelled_from_another_thread(way: Callable[[Peer], None]) -> None:
    with ScriptedServer(slow_once(way)) as server, opened(server.url) as transport:
        call = make_call(timeout=30)
        threading.Timer(0.1, lambda: call.finish(local_error("cancelled"))).start()
        with Took() as took:
            assert failed(transport, call).reason == "cancelled"
        assert took.seconds < 2.0
        assert exchange(transport, make_call(wire_id=2))[0]["id"] == 2


def test_a_call_settled_before_its_exchange_sends_nothing() -> None:
    with ScriptedServer(slow_once(silence)) as server, opened(server.url) as transport:
        call = make_call()
        call.finish(local_error("cancelled"))
        assert failed(transport, call).reason == "cancelled"
        late = make_call(timeout=1e-9)
        assert failed(transport, late).reason == "timeout"
        assert server.requests == []


def test_a_reader_that_stalls_cannot_hold_a_large_request_up() -> None:
    def script(peer: Peer) -> None:
        if peer.number == 1:
            peer.server.closing.wait()
        else:
            peer.answer(peer.request())

    with ScriptedServer(script) as server, connect(server.url) as client:
        with Took() as took:
            outcome = client.call_tool("test", {"text": "x" * 4 * 1024 * 1024}, timeout=DEADLINE)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "timeout"
        assert took.on_time(DEADLINE), took.seconds
        assert isinstance(client.call_tool("test"), Ok)


def test_progress_that_extends_the_deadline_keeps_the_connection_open() -> None:
    """The socket's own timeout must not be the deadline of the moment when the request was sent."""

    def script(peer: Peer) -> None:
        request = peer.request()
        peer.start_sse()
        for _ in range(4):
            peer.pause(0.25)
            progress = {"progressToken": request.id, "progress": 1}
            peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}))
        peer.pause(0.35)
        peer.chunk(event(result(request)))
        peer.end()

    with ScriptedServer(script) as server, connect(server.url) as client:
        outcome = client.call_tool("test", timeout=0.6, reset_timeout_on_progress=True, progress=lambda _: None)
        assert isinstance(outcome, Ok)


def test_the_hard_limit_holds_over_progress() -> None:
    def script(peer: Peer) -> None:
        request = peer.request()
        peer.start_sse()
        while True:
            progress = {"progressToken": request.id, "progress": 1}
            peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}))
            peer.pause(0.05)

    with ScriptedServer(script) as server, connect(server.url) as client, Took() as took:
        outcome = client.call_tool(
            "test", timeout=0.4, reset_timeout_on_progress=True, max_total_timeout=0.8, progress=lambda _: None
        )
        assert isinstance(outcome, McpError)
        assert outcome.reason == "max_total_timeout"
    assert took.on_time(0.8)


def test_for_ever_is_a_timeout_too() -> None:
    with (
        ScriptedServer(each_request(lambda peer, request: peer.answer(request))) as server,
        connect(server.url) as client,
    ):
        assert isinstance(client.call_tool("test", timeout=float("inf")), Ok)


# -- connecting


@pytest.fixture
def black_hole() -> Iterator[str]:
    """A URL where connections are neither made nor refused: a listener whose queue is full."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = []
    for _ in range(8):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    select.select([], fillers[:1], [], 5)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    for sock in [listener, *fillers]:
        sock.close()


def test_connecting_ends_by_the_deadline(black_hole: str) -> None:
    with Took() as took:
        error = error_of(black_hole, DEADLINE)
    assert error.reason == "timeout"
    assert took.on_time(DEADLINE)


def test_connecting_has_a_limit_of_its_own(black_hole: str) -> None:
    with Took() as took:
        error = error_of(black_hole, 30.0, connect_timeout=DEADLINE)
    assert error.reason == "unreachable"
    assert "within 0.5 s" in error.message
    assert len(error.data["tried"]) == 1
    assert took.on_time(DEADLINE)


def test_connecting_can_be_cancelled(black_hole: str) -> None:
    with opened(black_hole) as transport:
        call = make_call(timeout=30)
        threading.Timer(0.1, lambda: call.finish(local_error("cancelled"))).start()
        with Took() as took:
            assert failed(transport, call).reason == "cancelled"
        assert took.seconds < 2.0
        assert call.delivery == "not_sent"


@pytest.mark.parametrize("way", [silence, lambda peer: peer.drip(b"\x16\x03\x03" + b"\0" * 100)])
@pytest.mark.parametrize("connect_timeout", [None, DEADLINE])
def test_a_tls_handshake_ends_by_the_deadline(way: Callable[[Peer], None], connect_timeout: float | None) -> None:
    with ScriptedServer(way) as server, Took() as took:
        url = server.url.replace("http:", "https:")
        error = error_of(url, 30.0 if connect_timeout else DEADLINE, connect_timeout=connect_timeout, verify=False)
    assert error.reason in ("tls", "unreachable" if connect_timeout else "timeout")
    assert took.seconds < DEADLINE + 2.0


def test_a_connect_timeout_does_not_bound_the_answer() -> None:
    def script(peer: Peer) -> None:
        request = peer.request()
        peer.pause(0.6)
        peer.answer(request)

    with ScriptedServer(script) as server, connect(server.url, connect_timeout=0.3) as client:
        assert isinstance(client.call_tool("test"), Ok)


SLOW_RESOLVER = """
import socket, sys, threading, time
real = socket.getaddrinfo
def slow(host, *args, **options):
    if host == "slow.example":
        if not options.get("flags"):
            time.sleep(1.5)
            host = "127.0.0.1"
    return real(host, *args, **options)
socket.getaddrinfo = slow
from snodo_client import Client
client = Client.connect(sys.argv[1], protocol="2026-07-28")
start = time.monotonic()
first = client.call_tool("test", timeout=0.4)
print(first.reason, round(time.monotonic() - start, 1) < 1.0)
client.call_tool("test", timeout=0.1)
print(sum(thread.name == "snodo-resolver" for thread in threading.enumerate()))
print(type(client.call_tool("test", timeout=5)).__name__)
start = time.monotonic()
hurried = Client.connect(sys.argv[1], protocol="2026-07-28", connect_timeout=0.3).call_tool("test", timeout=5)
print(hurried.reason, time.monotonic() - start < 1.0, hurried.data)
"""


def test_a_resolver_that_hangs_is_left_behind(tmp_path: Path) -> None:
    with ScriptedServer(each_request(lambda peer, request: peer.answer(request)), name="slow.example") as server:
        program = [sys.executable, "-c", SLOW_RESOLVER, server.url]
        done = subprocess.run(program, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines() == [
        "timeout True",
        "1",
        "Ok",
        "unreachable True {'tried': ['slow.example: its address was not found within 0.3 s']}",
    ]
