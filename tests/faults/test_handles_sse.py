"""A cancellation that has a connection of its own does not overtake its request: HTTP+SSE, and Streamable HTTP before
2026-07-28. The server reads a request and takes it in when the test says so.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest

from snodo_client import Client, McpError
from snodo_client.engine.cancelling import CancelReport
from snodo_client.transports import http_legacy, sse_link
from support.legacy_http import connect as connect_http
from support.legacy_http import initialized, legacy
from support.scripted_http import Gone, Peer, Request, ScriptedServer, result
from support.scripted_sse import SseServer
from support.waiting import until

KINDS = ("sse", "http-legacy")
AMPLE = 20.0
BIG = {"data": "x" * 6_000_000}  # more than sockets hold


class Busy:
    """What a busy server did: `order` is what it took in, of the calls that it holds and their cancellations."""

    def __init__(self) -> None:
        self.came, self.cut = Event(), Event()  # a call that is held was read; its client left before it was taken in
        self.go_on = Event()
        self.order: list[str] = []

    def hold(self, peer: Peer) -> None:
        self.came.set()
        while not self.go_on.wait(0.005):
            if left(peer):
                self.cut.set()
                raise Gone
        self.order.append("tools/call")

    def told(self, peer: Peer, request: Request) -> None:
        if request.message["method"] == "notifications/cancelled":
            self.order.append("notifications/cancelled")
        peer.respond("202 Accepted")


def left(peer: Peer) -> bool:
    if peer.server.closing.is_set():
        raise Gone
    readable, _, _ = select.select([peer.sock], [], [], 0)
    try:
        return len(readable) == 1 and not peer.sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def held(request: Request) -> bool:
    method, params = request.message["method"], request.message.get("params", {})
    return (method, params.get("name")) == ("tools/call", "held")


@contextmanager
def over_sse(busy: Busy, **options: Any) -> Iterator[Client]:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        if "id" not in request.message:
            return busy.told(peer, request)
        if held(request):
            busy.hold(peer)
            return peer.respond("202 Accepted")
        peer.respond("202 Accepted")
        server.say(initialized(request) if request.message["method"] == "initialize" else result(request))
        return None

    with SseServer(reply) as server, Client.connect(("sse", server.url), protocol="2025-11-25", **options) as client:
        yield client


@contextmanager
def over_http(busy: Busy, **options: Any) -> Iterator[Client]:
    def reply(peer: Peer, request: Request) -> None:
        if not held(request):
            return peer.json(result(request))
        busy.hold(peer)
        peer.start_sse()
        return peer.silence()

    with ScriptedServer(legacy(reply, said=busy.told)) as server, connect_http(server.url, **options) as client:
        yield client


CONNECT = {"sse": over_sse, "http-legacy": over_http}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(http_legacy, "PATIENCE", AMPLE)  # that of HTTP+SSE is long enough for a busy machine
    return str(request.param)


def posting() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "snodo-http-post"]


def cancelled(handle: Any, reports: list[CancelReport]) -> Thread:
    """A thread that cancels the call, once that has happened on this side."""
    thread = Thread(target=lambda: reports.append(handle.cancel(notification_timeout=AMPLE)), daemon=True)
    thread.start()
    until(handle.done)
    return thread


def test_the_server_has_the_request_before_it_is_told(kind: str) -> None:
    busy, reports = Busy(), list[CancelReport]()
    with CONNECT[kind](busy) as client:
        handle = client.start_tool_call("held")
        assert busy.came.wait(AMPLE)
        until(lambda: handle._call.delivery == "accepted")
        thread = cancelled(handle, reports)
        client.call_tool("beside").unwrap()  # nobody else waits for that
        assert (busy.order, busy.cut.is_set()) == ([], False)
        busy.go_on.set()
        thread.join(AMPLE)
        assert busy.order == ["tools/call", "notifications/cancelled"]
        (report,) = reports
        assert (report.request_delivery, report.notification_delivery) == ("accepted", "accepted")
        until(lambda: not posting())


def test_the_same_after_a_timeout(kind: str) -> None:
    busy = Busy()
    with CONNECT[kind](busy) as client:
        outcome = client.call_tool("held", timeout=1.0)
        assert isinstance(outcome, McpError)
        assert (outcome.reason, busy.came.is_set()) == ("timeout", True)
        client.call_tool("beside").unwrap()
        assert (busy.order, busy.cut.is_set()) == ([], False)
        busy.go_on.set()
        until(lambda: len(busy.order) == 2)
        assert busy.order == ["tools/call", "notifications/cancelled"]
        until(lambda: not posting())


def test_many_are_waited_for_together(kind: str) -> None:
    """The time of one cancellation is not spent for each."""
    busy = Busy()
    with CONNECT[kind](busy) as client:
        calls = [client.start_tool_call("held") for _ in range(8)]
        until(lambda: all(each._call.delivery == "accepted" for each in calls))
        began = monotonic()
        reports = client.cancel_all(notification_timeout=4.0)
        assert monotonic() - began < 2.0 + 2
        assert [report.notification_delivery for report in reports] == ["accepted"] * 8
        assert busy.order == ["notifications/cancelled"] * 8


def test_what_is_half_sent_is_sent_whole_and_what_was_told_of_it_stays(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """6 MB that the server begins to read when the call is cancelled."""
    busy, reports = Busy(), list[CancelReport]()
    reading, read, plain = Event(), Event(), Peer.receive

    def receive(peer: Peer) -> bytes:
        if len(peer._data) > 1000:  # the head, and some of the body
            reading.set()
            read.wait(AMPLE)
        return plain(peer)

    busy.go_on.set()
    monkeypatch.setattr(Peer, "receive", receive)
    with CONNECT[kind](busy) as client:
        handle = client.start_tool_call("held", BIG)
        assert reading.wait(AMPLE)
        until(lambda: handle._call.delivery == "unknown")
        thread = cancelled(handle, reports)
        assert handle._call.delivery == "unknown"
        read.set()
        thread.join(AMPLE)
        assert busy.order == ["tools/call", "notifications/cancelled"]
        assert reports == [CancelReport("cancelled", "unknown", "accepted")]
        assert handle.cancel() == CancelReport("finished", "unknown", "not_needed")


@pytest.mark.parametrize("answers", [False, True], ids=["never", "at its end"])
def test_a_post_that_is_not_answered_is_waited_for_half_of_the_time(answers: bool) -> None:
    busy = Busy()
    with over_sse(busy) as client:
        handle = client.start_tool_call("held")
        assert busy.came.wait(AMPLE)
        began = monotonic()
        report = handle.cancel(notification_timeout=1.0)
        assert 0.5 <= monotonic() - began < 0.5 + 2
        assert report.notification_delivery == "accepted"
        if answers:
            busy.go_on.set()
        else:
            assert busy.cut.wait(AMPLE)
        until(lambda: not posting())


def test_a_request_that_is_older_than_a_moment_is_cancelled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many servers of Streamable HTTP say nothing before the answer."""
    monkeypatch.setattr(http_legacy, "PATIENCE", 0.01)
    busy = Busy()
    with over_http(busy) as client:
        handle = client.start_tool_call("held")
        assert busy.came.wait(AMPLE)
        until(lambda: handle._call.delivery == "accepted")
        client.call_tool("beside").unwrap()
        began = monotonic()
        assert handle.cancel(notification_timeout=AMPLE).notification_delivery == "accepted"
        assert monotonic() - began < 2
        assert busy.order == ["notifications/cancelled"]
        assert busy.cut.wait(AMPLE)


def test_where_nothing_is_told_no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for a task is not cancelled by a notification."""
    monkeypatch.setattr(sse_link, "PATIENCE", 0.3)
    busy = Busy()
    with over_sse(busy) as client:
        call = Thread(target=client.request, args=("tools/call", {"name": "held", "task": {}}), daemon=True)
        call.start()
        assert busy.came.wait(AMPLE)
        assert [report.notification_delivery for report in client.cancel_all()] == ["unsupported"]
        assert busy.cut.wait(AMPLE)
        until(lambda: not posting())
        assert busy.order == []


def test_what_was_not_sent_is_not_sent_any_more(kind: str) -> None:
    """The call is cancelled while its headers are made."""
    busy, armed, making, go_on = Busy(), Event(), Event(), Event()

    def headers() -> dict[str, str]:
        if threading.current_thread().name == "snodo-http-post" and armed.is_set():
            making.set()
            go_on.wait(AMPLE)
        return {}

    with CONNECT[kind](busy, headers=headers) as client:
        client.call_tool("beside").unwrap()
        armed.set()
        handle = client.start_tool_call("held")
        assert making.wait(AMPLE)
        assert handle.cancel() == CancelReport("cancelled", "not_sent", "not_needed")
        armed.clear()
        go_on.set()
        until(lambda: not posting())
        client.call_tool("beside").unwrap()
        assert (busy.came.is_set(), busy.order) == (False, [])


def test_to_close_does_not_wait_for_it(kind: str) -> None:
    busy, reports = Busy(), list[CancelReport]()
    with CONNECT[kind](busy) as client:
        handle = client.start_tool_call("held")
        assert busy.came.wait(AMPLE)
        until(lambda: handle._call.delivery == "accepted")
        thread = cancelled(handle, reports)
        began = monotonic()
        client.close()
        thread.join(AMPLE)
        assert monotonic() - began < 2
        assert reports == [CancelReport("cancelled", "accepted", "failed")]
        until(lambda: not posting())
