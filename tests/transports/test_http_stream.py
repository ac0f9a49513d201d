"""Event streams by GET: read on a thread, told event by event, asked for again, and cut from anywhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError
from snodo_client.transports.events import Event, EventStream
from snodo_client.transports.http import HttpTransport
from snodo_client.transports.http_link import HttpLink
from snodo_client.transports.http_stream import EventSource, Pauses, messages_in
from support.http_calls import Took
from support.legacy_http import Listening
from support.scripted_http import Peer, Request, ScriptedServer, each_request
from support.waiting import until


@contextmanager
def opened(url: str, **options: Any) -> Iterator[HttpLink]:
    transport = HttpTransport(url, **options)
    try:
        yield transport.open(Listening(), Deadline(10))  # type: ignore[misc]
    finally:
        transport.close(Deadline(5))


class Reader:
    """A source, and what it told. It asks again after the pauses it is given, then no more."""

    def __init__(self, link: HttpLink, *pauses: float, headers: dict[str, str] | None = None, **options: Any) -> None:
        self.events: list[Event] = []
        self.ends: list[McpError] = []
        self.over = threading.Event()
        self._pauses = list(pauses)
        self.source = EventSource(link, self.events.append, self._end, headers=lambda: dict(headers or {}), **options)

    def _end(self, error: McpError) -> float | None:
        self.ends.append(error)
        if self._pauses:
            return self._pauses.pop(0)
        self.over.set()
        return None

    @property
    def data(self) -> list[str | None]:
        return [event.data for event in self.events]


def stream(*blocks: bytes) -> Any:
    def reply(peer: Peer, _: Request) -> None:
        peer.start_sse()
        for block in blocks:
            peer.chunk(block)
        peer.end()

    return each_request(reply)


def reading() -> bool:
    return any(thread.name == "snodo-http-stream" for thread in threading.enumerate())


def test_every_event_is_told_and_then_the_end() -> None:
    script = stream(
        b": hi\n\n", b"event: endpoint\ndata: /x\n\n", b"id: 1\n\n", b"retry: 1500\n\n", b"data: a\ndata: b\n\n"
    )
    with ScriptedServer(script) as server, opened(server.url, headers={"X-Key": "k"}, auth="t0k3n") as link:
        reader = Reader(link, headers={"X-More": "m"})
        reader.source.start()
        assert reader.source.opened(Deadline(5))
        assert reader.over.wait(5)
        assert [(event.name, event.data) for event in reader.events] == [
            ("endpoint", "/x"),
            ("message", None),
            ("message", None),
            ("message", "a\nb"),
        ]
        assert [error.reason for error in reader.ends] == ["closed"]
        assert (reader.source.last_id, reader.source.retry, reader.source.advanced) == ("1", 1.5, True)
        [request] = server.requests
        assert request.line == "GET /mcp HTTP/1.1"
        assert request.header("accept") == "text/event-stream"
        assert request.header("authorization") == "Bearer t0k3n"
        assert (request.header("x-key"), request.header("x-more")) == ("k", "m")
        assert request.header("last-event-id") is None
        until(lambda: not reading())


def test_events_are_told_as_they_come() -> None:
    seen = threading.Event()

    def reply(peer: Peer, _: Request) -> None:
        peer.start_sse()
        for block in (b"data: 1\n\n", b"data: 2\n\n"):
            peer.chunk(block)
            assert seen.wait(5)
            seen.clear()
        peer.silence()

    with ScriptedServer(each_request(reply)) as server, opened(server.url) as link:
        reader = Reader(link)
        reader.source.start()
        until(lambda: reader.data == ["1"])
        seen.set()
        until(lambda: reader.data == ["1", "2"])
        seen.set()
        reader.source.cut()


def test_a_stream_is_asked_for_again_with_its_last_id() -> None:
    with ScriptedServer(stream(b"id: e1\ndata: 1\n\n")) as server, opened(server.url) as link:
        reader = Reader(link, 0.0, 0.2, last_id="e0")
        with Took() as took:
            reader.source.start()
            assert reader.over.wait(5)
        assert took.seconds >= 0.2
        assert reader.data == ["1", "1", "1"]
        assert [request.header("last-event-id") for request in server.requests] == ["e0", "e1", "e1"]
        assert server.connections == 1


REFUSALS: dict[str, tuple[Any, str]] = {
    "not found": (lambda peer, _: peer.respond("404 Not Found", b"where?"), "http_status"),
    "busy": (lambda peer, _: peer.respond("503 Busy"), "http_status"),
    "credentials": (lambda peer, _: peer.respond("401 Unauthorized"), "unauthorized"),
    "json": (lambda peer, _: peer.json({}), "malformed"),
    "empty": (lambda peer, _: peer.respond("204 No Content"), "malformed"),
    "partial": (lambda peer, _: peer.start_sse(status="206 Partial Content"), "malformed"),
    "encoding": (lambda peer, _: peer.start_sse("Content-Encoding: br"), "malformed"),
    "elsewhere": (lambda peer, _: peer.respond("307 On", b"", "Location: http://x.example/"), "cross_origin_redirect"),
    "cut": (lambda peer, _: peer.sock.close(), "closed"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_comes_instead_of_a_stream_is_told(case: str) -> None:
    script, reason = REFUSALS[case]

    def reply(peer: Peer, request: Request) -> None:
        script(peer, request)
        peer.sock.close()

    with ScriptedServer(each_request(reply)) as server, opened(server.url) as link:
        reader = Reader(link)
        reader.source.start()
        with pytest.raises(McpError) as caught:
            reader.source.opened(Deadline(5))
        assert caught.value.reason == reason
        assert [error.reason for error in reader.ends] == [reason]
        assert reader.events == []


def test_a_server_that_cannot_be_reached_is_told() -> None:
    with ScriptedServer(stream()) as server:
        url = server.url
    with opened(url) as link:
        reader = Reader(link)
        reader.source.start()
        with pytest.raises(McpError) as caught:
            reader.source.opened(Deadline(5))
        assert caught.value.reason == "unreachable"


def test_redirects_within_the_origin_are_followed() -> None:
    def reply(peer: Peer, request: Request) -> None:
        if request.target == "/mcp":
            return peer.respond("307 On", b"", "Location: /new?key=k")
        peer.start_sse()
        peer.chunk(b"data: here\n\n")
        return peer.end()

    with ScriptedServer(each_request(reply)) as server, opened(server.url) as link:
        reader = Reader(link)
        reader.source.start()
        assert reader.over.wait(5)
        assert reader.data == ["here"]
        assert [request.line for request in server.requests] == ["GET /mcp HTTP/1.1", "GET /new?key=k HTTP/1.1"]


def test_an_event_has_a_bound_and_a_stream_has_none() -> None:
    block = b"data: " + b"x" * 900 + b"\n\n"

    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        for _ in range(50):
            peer.chunk(block)
        peer.chunk(b"data: " + b"x" * 2000)
        peer.silence()

    with ScriptedServer(each_request(reply)) as server, opened(server.url, max_response_bytes=1000) as link:
        reader = Reader(link)
        reader.source.start()
        assert reader.over.wait(5)
        assert len(reader.events) == 50
        assert [error.reason for error in reader.ends] == ["too_large"]


# -- cutting


def hang_before_the_head(peer: Peer, _: Request) -> None:
    peer.silence()


def hang_in_the_stream(peer: Peer, _: Request) -> None:
    peer.start_sse()
    peer.chunk(b"data: 1\n\n")
    peer.silence()


def flood(peer: Peer, request: Request) -> None:
    peer.start_sse()
    while True:
        peer.chunk(b"data: 1\n\n" * 100)


@pytest.mark.parametrize("script", [hang_before_the_head, hang_in_the_stream, flood])
def test_a_stream_can_be_cut_wherever_it_is(script: Any) -> None:
    gone = threading.Event()

    def reply(peer: Peer, request: Request) -> None:
        try:
            script(peer, request)
        finally:
            gone.set()

    with ScriptedServer(each_request(reply)) as server, opened(server.url) as link:
        reader = Reader(link)
        reader.source.start()
        until(lambda: server.requests and (script is hang_before_the_head or reader.events))
        for _ in range(2):
            reader.source.cut()
        assert gone.wait(5)
        until(lambda: not reading())
        assert reader.ends == []
        assert not reader.source.opened(Deadline(5))


def test_a_pause_can_be_cut() -> None:
    with ScriptedServer(stream()) as server, opened(server.url) as link:
        reader = Reader(link, 60.0)
        reader.source.start()
        until(lambda: reader.ends)
        reader.source.cut()
        until(lambda: not reading(), 5)
        assert len(server.requests) == 1


def test_closing_the_transport_ends_a_stream_that_nobody_cut() -> None:
    with ScriptedServer(each_request(hang_in_the_stream)) as server:
        with opened(server.url) as link:
            reader = Reader(link, 60.0)
            reader.source.start()
            until(lambda: reader.events)
        until(lambda: not reading(), 5)


def test_the_head_is_waited_for_as_long_as_the_caller_likes() -> None:
    go = threading.Event()

    def reply(peer: Peer, _: Request) -> None:
        assert go.wait(10)
        peer.start_sse()
        peer.silence()

    with ScriptedServer(each_request(reply)) as server, opened(server.url) as link:
        reader = Reader(link)
        reader.source.start()
        with Took() as took:
            assert not reader.source.opened(Deadline(0.2))
        assert took.on_time(0.2)
        go.set()
        assert reader.source.opened(Deadline(5))
        reader.source.cut()


def test_a_deadline_of_its_own_is_kept() -> None:
    def reply(peer: Peer, _: Request) -> None:
        peer.start_sse()
        peer.drip(b"1\r\n:\r\n" * 100, 0.02)

    with ScriptedServer(each_request(reply)) as server, opened(server.url) as link:
        reader = Reader(link, deadline=Deadline(0.3))
        with Took() as took:
            reader.source.run()
        assert took.on_time(0.3)
        assert [error.reason for error in reader.ends] == ["timeout"]


def test_connect_timeout_counts_for_a_stream_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(each_request(hang_in_the_stream)) as server, opened(server.url, connect_timeout=0.3) as link:
        reader = Reader(link)
        reader.source.start()
        assert reader.source.opened(Deadline(5))
        threading.Event().wait(0.6)  # the limit was for connecting alone
        assert reader.ends == []
        reader.source.cut()


@pytest.mark.parametrize("script", [hang_before_the_head, hang_in_the_stream])
def test_through_a_prepared_session(script: Any) -> None:
    """Its socket cannot always be woken; what is waited for can."""
    go = threading.Event()

    def reply(peer: Peer, request: Request) -> None:
        if script is hang_before_the_head:
            assert go.wait(10)
        peer.start_sse()
        peer.chunk(b"id: 1\ndata: 1\n\n")
        peer.silence()

    with requests.Session() as session, ScriptedServer(each_request(reply)) as server:
        session.headers["X-Session"] = "s"
        with opened(server.url, session=session) as link:
            reader = Reader(link)
            reader.source.start()
            until(lambda: server.requests)
            assert server.requests[0].header("x-session") == "s"
            assert server.requests[0].line.startswith("GET ")
            if script is hang_in_the_stream:
                until(lambda: reader.data == ["1"])
            reader.source.cut()
            go.set()
            until(lambda: not reading())
            assert reader.ends == []


# -- messages, and the time between two tries


def event_of(data: bytes) -> Event:
    [event] = EventStream(10_000).feed(b"data: " + data + b"\n\n")
    return event


@pytest.mark.parametrize(
    ("data", "version", "expected"),
    [
        (b'{"a":1}', "2025-11-25", [{"a": 1}]),
        (b"[1]", "2025-11-25", [[1]]),
        (b'[{"a":1},2]', "2025-03-26", [{"a": 1}, 2]),
        (b"[]", "2025-03-26", [[]]),
        (b"nothing", "2025-11-25", []),
        (b'{"id":1', "2025-11-25", []),
    ],
)
def test_an_event_holds_messages(data: bytes, version: str, expected: list[Any]) -> None:
    with opened("http://127.0.0.1:1/") as link:
        link.version = version
        assert messages_in(event_of(data), link) == expected
        assert link.inbound.delivered == []  # type: ignore[attr-defined]


def test_an_answer_that_cannot_be_read_fails_its_call() -> None:
    with opened("http://127.0.0.1:1/") as link:
        assert messages_in(event_of(b'{"jsonrpc":"2.0","id":7,"result":NaN}'), link) == []
        [error] = link.inbound.delivered  # type: ignore[attr-defined]
        assert error.reason == "malformed"


@pytest.mark.parametrize("block", [b"event: other\ndata: {}\n\n", b"id: 1\n\n", b"data:\n\n"])
def test_other_events_hold_none(block: bytes) -> None:
    [event] = EventStream(10_000).feed(block)
    with opened("http://127.0.0.1:1/") as link:
        assert messages_in(event, link) == []


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (None, [1.0, 1.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]),
        (0.0, [0.1, 0.1, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]),
        (3.0, [3.0, 3.0, 3.0, 3.0, 4.0, 8.0, 16.0, 30.0, 30.0]),
        (90.0, [90.0] * 9),
    ],
)
def test_vain_tries_come_slower_and_slower(retry: float | None, expected: list[float]) -> None:
    pauses = Pauses()
    with opened("http://127.0.0.1:1/") as link:
        source = Reader(link, retry=retry).source
        assert [pauses.after(source, vain=number > 0) for number in range(9)] == expected
        assert [pauses.after(source, vain=True) for _ in range(10_000)][-1] == max(retry or 0, 30.0)
        assert pauses.after(source, vain=False) == expected[0]
