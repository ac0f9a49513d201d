"""What a `CancelReport` says, against what the server has really seen."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest
import requests

from snodo_client import Client, McpError, local_error
from snodo_client.engine.call import Call
from snodo_client.engine.cancelling import CancelReport
from snodo_client.engine.deadline import Deadline
from snodo_client.protocol.requests import Request as ToolRequest
from snodo_client.transports.websocket import Letter
from support.interleaving import KINDS, NOTIFIED, halt, staged
from support.legacy_http import came, legacy
from support.legacy_http import connect as connect_legacy
from support.scripted_http import Peer, Request, ScriptedServer
from support.scripted_sse import SseServer
from support.scripted_websocket import CLOSE, answer, read_frame, read_message, serving, upgrade
from support.waiting import until

BIG = {"data": "x" * 6_000_000}  # more than pipes and sockets hold
SHORT = 0.3  # the notification_timeout of cancellations that will not get through
FROM_HERE = ("not_sent", "not_needed")


def told(report: CancelReport) -> tuple[str, str]:
    assert (report.local, report.remote) == ("cancelled", "unknown")
    return report.request_delivery, report.notification_delivery


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_the_server_has(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        arrived = stage.arrived()
        until(lambda: handle._call.delivery == "accepted")
        assert arrived.id == handle.id + (not stage.modern)  # the handshake has an id of its own
        report = handle.cancel("not wanted")
        outcome = handle.result(0)
        assert isinstance(outcome, McpError)
        assert (outcome.reason, "not wanted" in outcome.message) == ("cancelled", True)
        if kind in NOTIFIED:
            assert told(report) == ("accepted", "accepted")
            until(lambda: arrived.cancellations)
            assert arrived.cancellations == [{"requestId": arrived.id, "reason": "not wanted"}]
        else:
            assert told(report) == ("accepted", "not_needed")
            assert arrived.dropped.wait(10)
            assert stage.cancellations == []
        assert handle.cancel() == CancelReport("finished", "accepted", "not_needed")


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_is_over_is_not_cancelled_for_the_server(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        arrived = stage.arrived()
        arrived.answer()
        handle.result(10).unwrap()
        assert handle.cancel() == CancelReport("finished", "accepted", "not_needed")
        assert client.cancel_all() == []
        stage.flush(client)
        assert arrived.cancellations == []


@pytest.mark.parametrize(
    "kind", ["stdio", "stdio-legacy", "http-json", "http-legacy", "sse-legacy", "websocket-legacy"]
)
def test_a_call_that_waits_for_the_negotiation_is_never_sent(kind: str) -> None:
    with staged(kind) as stage:
        stage.gate.clear()
        client = stage.connect(wait=False, protocol="auto" if stage.modern else "2025-11-25")
        until(lambda: stage.asked)  # the server has the probe, and does not answer
        first, second = client.start_tool_call("first"), client.start_tool_call("second")
        began = monotonic()
        assert told(first.cancel()) == FROM_HERE
        assert first.result(0) is first.result()
        assert monotonic() - began < 2
        assert not second.done()
        stage.gate.set()
        arrived = stage.arrived()
        assert arrived.params["name"] == "second"
        arrived.answer()
        second.result(10).unwrap()
        assert [each.params["name"] for each in stage.calls] == ["second"]
        assert stage.cancellations == []


@pytest.mark.parametrize("own_session", [False, True], ids=["ours", "session="])
def test_a_call_that_still_connects(own_session: bool) -> None:
    """TCP is there, and the server never gets as far as TLS."""
    hello = Event()

    def say_nothing(peer: Peer) -> None:
        peer.receive()
        hello.set()
        peer.silence()

    with ScriptedServer(say_nothing) as server:
        options: dict[str, Any] = {"session": requests.Session()} if own_session else {}
        url = server.url.replace("http:", "https:")
        with Client.connect(url, protocol="2026-07-28", **options) as client:
            handle = client.start_tool_call("t")
            assert hello.wait(10)
            report = handle.cancel()
            # What the session of somebody else has sent is not known here.
            assert told(report) == (("unknown", "not_needed") if own_session else FROM_HERE)
            assert server.requests == []


# -- servers that do not read


@pytest.mark.parametrize("kind", ["stdio", "stdio-legacy"])
def test_a_process_that_does_not_read(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client:
        go_on = halt(client)
        try:
            begun = client.start_tool_call("begun", BIG)
            until(lambda: begun._call.delivery == "unknown")
            behind = client.start_tool_call("behind", {"data": "y" * 100})
            until(lambda: behind._call.wire_id is not None)
            before = monotonic()
            assert told(behind.cancel(notification_timeout=SHORT)) == FROM_HERE
            assert told(begun.cancel(notification_timeout=SHORT)) == ("unknown", "timeout")
            assert SHORT <= monotonic() - before < SHORT + 2
        finally:
            go_on()
        after = client.start_tool_call("after")  # a frame with a byte on the pipe is finished before the next
        stage.arrived(2).answer()
        after.result(10).unwrap()
        assert [each.params["name"] for each in stage.calls] == ["begun", "after"]
        assert stage.calls[0].params["arguments"] == BIG
        assert stage.cancellations == []


@contextmanager
def deaf_websocket() -> Iterator[tuple[Client, list[Any], Event]]:
    """Reads nothing between the handshake and the event."""
    go_on, seen = Event(), []

    def script(peer: Peer) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        upgrade(peer)
        capabilities = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        answer(peer, read_message(peer), {**capabilities, "serverInfo": {"name": "deaf", "version": "1"}})
        read_message(peer)
        while not go_on.wait(0.05):
            if peer.server.closing.is_set():
                return
        while (got := read_frame(peer))[0] != CLOSE:
            seen.append(json.loads(got[1]))
            if "id" in seen[-1]:
                answer(peer, seen[-1], {})

    with serving(script) as server, Client.connect(("websocket", server.url), protocol="2025-11-25") as client:
        yield client, seen, go_on


def test_a_websocket_that_is_not_read() -> None:
    with deaf_websocket() as (client, seen, go_on):
        begun = client.start_tool_call("begun", BIG)
        until(lambda: begun._call.delivery == "unknown")
        behind = client.start_tool_call("behind")
        until(lambda: behind._call.wire_id is not None)
        assert told(behind.cancel(notification_timeout=SHORT)) == FROM_HERE
        assert told(begun.cancel(notification_timeout=SHORT)) == ("unknown", "timeout")
        go_on.set()
        client.call_tool("after").unwrap()
        assert [each["params"]["name"] for each in seen] == ["begun", "after"]


def test_a_websocket_message_that_is_withdrawn_while_its_turn_comes() -> None:
    """The thread that writes has just taken the letter, and has not yet asked whether it is still wanted."""
    with staged("websocket-legacy") as stage, stage.connect() as client:
        link: Any = client._session.connection.link
        request = ToolRequest("tools/call", {"name": "withdrawn"}).copy(version="2025-11-25")
        call = Call(99, request, Deadline(10))
        call.link, call.body = link, request.encode(99, client._session.identity)

        class Taken(Letter):
            def claim(self, to: Any) -> bool:
                first = super().claim(to)
                if to == "write":
                    call.finish(local_error("cancelled"))
                    link.withdraw(self)
                    taken.set()
                return first

        taken = Event()
        link.post(Taken(call.body, call))
        assert taken.wait(10)
        after = client.start_tool_call("after")
        arrived = stage.arrived()
        assert arrived.params["name"] == "after"
        arrived.answer()
        after.result(10).unwrap()
        assert call.delivery == "not_sent"


def test_an_http_server_that_does_not_read() -> None:
    """Ending the exchange is all there is to tell."""
    parts: list[bytes] = []

    def script(peer: Peer) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        parts.append(peer.receive())
        while not peer.server.closing.wait(0.02):
            pass

    with ScriptedServer(script) as server, Client.connect(server.url, protocol="2026-07-28") as client:
        handle = client.start_tool_call("t", BIG)
        until(lambda: parts)
        before = monotonic()
        assert told(handle.cancel()) == ("unknown", "not_needed")
        assert monotonic() - before < 2


def test_an_http_server_of_old_that_does_not_read() -> None:
    """The notification has a connection of its own."""
    parts: list[bytes] = []
    handshake = legacy()

    def script(peer: Peer) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        if peer.sock.recv(2000, socket.MSG_PEEK).find(b"Content-Length: 6000") < 0:
            return handshake(peer)
        parts.append(peer.receive())
        while not peer.server.closing.wait(0.02):
            pass
        return None

    with ScriptedServer(script) as server, connect_legacy(server.url, pool_size=0) as client:
        handle = client.start_tool_call("t", BIG)
        until(lambda: parts)
        assert told(handle.cancel()) == ("unknown", "accepted")
        (notice,) = came(server, "notifications/cancelled")
        assert notice.message["params"]["requestId"] == handle._call.wire_id


# -- notifications that do not get through


def legacy_server(said: Any, *, hold: Event) -> ScriptedServer:
    def reply(peer: Peer, request: Request) -> None:
        hold.set()
        peer.silence()

    def first_is_fine(peer: Peer, request: Request) -> None:
        if request.message["method"] == "notifications/initialized":
            peer.respond("202 Accepted")
        else:
            said(peer, request)

    return ScriptedServer(legacy(reply, said=first_is_fine))


@pytest.mark.parametrize(
    ("said", "delivered"),
    [
        (lambda peer, _: peer.respond("500 Internal Server Error"), "failed"),
        (lambda peer, _: peer.respond("400 Bad Request"), "failed"),
        (lambda peer, _: peer.sock.shutdown(socket.SHUT_RDWR), "failed"),
        (lambda peer, _: peer.silence(), "timeout"),
    ],
    ids=["500", "400", "cut", "silence"],
)
def test_an_http_server_that_does_not_take_the_notification(said: Any, delivered: str) -> None:
    hold = Event()
    with legacy_server(said, hold=hold) as server, connect_legacy(server.url) as client:
        handle = client.start_tool_call("t")
        assert hold.wait(10)
        until(lambda: handle._call.delivery == "accepted")
        before = monotonic()
        assert told(handle.cancel(notification_timeout=SHORT)) == ("accepted", delivered)
        took = monotonic() - before
        assert took < SHORT + 2
        assert delivered != "timeout" or took >= SHORT
        assert isinstance(handle.result(0), McpError)


def test_an_sse_server_that_does_not_take_the_notification() -> None:
    arrived = Event()

    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        method = request.message["method"]
        if method == "notifications/cancelled":
            return peer.respond("503 Service Unavailable")
        peer.respond("202 Accepted")
        if method == "initialize":
            about = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
            return server.say({"jsonrpc": "2.0", "id": request.id, "result": about})
        if method == "tools/call":
            arrived.set()
        return None

    with SseServer(reply) as server, Client.connect(("sse", server.url), protocol="2025-11-25") as client:
        handle = client.start_tool_call("t")
        assert arrived.wait(10)
        until(lambda: handle._call.delivery == "accepted")
        assert told(handle.cancel()) == ("accepted", "failed")


HALF_DEAD = """
import os, sys, time
sys.stdin.buffer.readline()
os.close(0)
print("reads no more", file=sys.stderr, flush=True)
time.sleep(60)
"""


def test_a_process_that_reads_no_more() -> None:
    closed = Event()
    target = ("stdio", sys.executable, ["-c", HALF_DEAD])
    with Client.connect(
        target,
        protocol="2026-07-28",
        stderr=lambda _: closed.set(),
        shutdown_timeout=0.2,
    ) as client:
        handle = client.start_tool_call("t")
        assert closed.wait(10)
        assert told(handle.cancel()) == ("accepted", "failed")


def test_a_link_that_is_gone_is_not_told() -> None:
    """The call is held in its callback when its process ends: there is nobody to tell, and that is known at once."""
    with staged("stdio") as stage, stage.connect() as client:
        held, go_on = Event(), Event()

        def hold(_: object) -> None:
            held.set()
            go_on.wait(20)

        handle = client.start_tool_call("t", progress=hold)
        arrived = stage.arrived()
        arrived.progress()
        assert held.wait(10)
        try:
            arrived.lose()
            until(lambda: client.protocol_info["status"] == "closed")
            assert told(handle.cancel()) == ("accepted", "failed")
        finally:
            go_on.set()


@pytest.mark.parametrize("kind", [kind for kind in NOTIFIED if kind.endswith("-legacy")])
def test_a_task_is_not_cancelled_by_a_notification(kind: str) -> None:
    """Revision 2025-11-25 has tasks/cancel for it, and it alone."""
    with staged(kind) as stage, stage.connect() as client:
        outcomes: list[Any] = []
        caller = Thread(target=lambda: outcomes.append(client.call_tool("t", task=True)), daemon=True)
        caller.start()
        arrived = stage.arrived()
        assert "task" in arrived.params
        (report,) = client.cancel_all()
        assert told(report) == ("accepted", "unsupported")
        caller.join(10)
        assert outcomes[0].reason == "cancelled"
        stage.flush(client)
        assert arrived.cancellations == []


def test_a_cancellation_waits_for_its_time_and_no_longer_for_many_calls() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        handles = [client.start_tool_call(f"t{n}") for n in range(20)]
        stage.arrived(20)
        go_on = halt(client)
        try:
            filler = client.start_tool_call("filler", BIG)
            until(lambda: filler._call.delivery == "unknown")
            before = monotonic()
            reports = client.cancel_all("all of them", notification_timeout=SHORT)
            assert SHORT <= monotonic() - before < SHORT + 2
        finally:
            go_on()
        assert len(reports) == 21
        assert {told(report) for report in reports} == {("accepted", "timeout"), ("unknown", "timeout")}
        assert {handle.result(0).reason for handle in handles} == {"cancelled"}  # type: ignore[union-attr]
