"""Connections: each has one owner, nobody else's cancellation touches it, and none is left over."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError, Ok, local_error
from snodo_client.transports import http_reaper
from support.http_calls import connect, exchange, failed, make_call, opened
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event, result
from support.waiting import together, until

ANSWERS = each_request(lambda peer, request: peer.answer(request))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd" if Path("/proc/self/fd").exists() else "/dev/fd"))


def idle(transport: Any) -> list[Any]:
    found: list[Any] = transport._link.slots._idle
    return found


# -- reuse


def test_calls_in_turn_share_one_connection() -> None:
    with ScriptedServer(ANSWERS) as server, connect(server.url) as client:
        for _ in range(50):
            assert isinstance(client.call_tool("test"), Ok)
        assert server.connections == 1


def test_calls_at_once_are_without_limit_and_idle_connections_are_not() -> None:
    arrived = threading.Barrier(41, timeout=10)

    def reply(peer: Peer, request: Request) -> None:
        if request.id <= 40:
            arrived.wait()
        peer.answer(request, str(request.id))

    with ScriptedServer(each_request(reply)) as server, opened(server.url, pool_size=3) as transport:

        def call(number: int) -> None:
            [message] = exchange(transport, make_call(wire_id=number))
            assert message["result"]["content"][0]["text"] == str(number)

        together([*(lambda number=number: call(number) for number in range(1, 41)), arrived.wait])
        assert server.connections == 40
        assert len(idle(transport)) == 3
        newest = idle(transport)[-1]
        call(41)
        assert idle(transport)[-1] is newest
        assert server.connections == 40


def test_no_connection_is_kept_without_a_pool() -> None:
    with ScriptedServer(ANSWERS) as server, connect(server.url, pool_size=0) as client:
        for _ in range(5):
            client.call_tool("test")
        assert server.connections == 5


def test_a_call_may_be_made_while_another_streams_in_the_same_thread() -> None:
    def reply(peer: Peer, request: Request) -> None:
        if request.message["params"]["arguments"]:
            return peer.answer(request)
        peer.start_sse()
        progress = {"progressToken": request.id, "progress": 1}
        peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}))
        peer.chunk(event(result(request)))
        return peer.end()

    inner: list[Any] = []
    with ScriptedServer(each_request(reply)) as server, connect(server.url, pool_size=1) as client:
        outer = client.call_tool("test", progress=lambda _: inner.append(client.call_tool("test", {"nested": True})))
        assert isinstance(outer, Ok)
        assert isinstance(inner[0], Ok)


@pytest.mark.parametrize("header", ["Connection: close", "Connection: Close, x"])
def test_a_connection_the_server_gives_up_is_closed_at_once(header: str) -> None:
    gone: list[bool] = []

    def reply(peer: Peer, request: Request) -> None:
        peer.json(result(request), "200 OK", header)
        peer.until(b"nothing more is expected")

    def script(peer: Peer) -> None:
        try:
            reply(peer, peer.request())
        finally:
            gone.append(True)

    with ScriptedServer(script) as server, connect(server.url) as client:
        for _ in range(3):
            assert isinstance(client.call_tool("test"), Ok)
        until(lambda: len(gone) == 3, 2.0)
        assert server.connections == 3


def test_replies_of_many_threads_are_never_mixed_up() -> None:
    def reply(peer: Peer, request: Request) -> None:
        text = request.message["params"]["arguments"]["n"]
        if text % 2:
            return peer.answer(request, str(text))
        peer.start_sse()
        peer.chunk(event(result(request, str(text))))
        return peer.end()

    with ScriptedServer(each_request(reply)) as server, connect(server.url, pool_size=4) as client:

        def calls(base: int) -> None:
            for number in range(base, base + 25):
                outcome = client.call_tool("test", {"n": number}, timeout=60)
                assert outcome.unwrap()["content"][0]["text"] == str(number)

        together([lambda base=base: calls(base) for base in range(0, 40_000, 1000)], 110)


# -- late cancellations


def test_a_late_cancellation_hits_nobody_else() -> None:
    """Thousands of calls on few connections, each woken at a random time during and after its exchange. None but a
    call that was settled may fail.
    """
    with ScriptedServer(ANSWERS) as server, opened(server.url, pool_size=4) as transport:
        done: list[Call] = []
        stop = threading.Event()
        settled: set[int] = set()
        wrong: list[Any] = []
        hits = 0

        def disturb() -> None:
            rng = random.Random(1)
            while not stop.is_set():
                for call in done[-50:]:
                    if rng.random() < 0.3:
                        call.wake()  # the exchange is over, or nearly so
                time.sleep(0.0002)

        def calls(base: int) -> None:
            nonlocal hits
            rng = random.Random(base)
            for wire_id in range(base, base + 400):
                call = make_call(wire_id=wire_id, timeout=30)
                if rng.random() < 0.1:
                    settled.add(wire_id)
                    threading.Timer(
                        rng.random() * 0.004, lambda call=call: call.finish(local_error("cancelled"))
                    ).start()
                try:
                    [message] = exchange(transport, call)
                    if message["id"] != wire_id:
                        wrong.append(message)
                except McpError as error:
                    if error.reason == "cancelled" and wire_id in settled:
                        hits += 1
                    else:
                        wrong.append((wire_id, error))
                done.append(call)

        disturbers = [threading.Thread(target=disturb) for _ in range(2)]
        for thread in disturbers:
            thread.start()
        together([lambda base=base: calls(base) for base in range(1, 8 * 1000, 1000)], 100)
        stop.set()
        for thread in disturbers:
            thread.join()
        assert wrong == []
        assert hits > 0


def test_a_signal_handler_may_cancel_the_call_of_its_own_thread() -> None:
    with ScriptedServer(lambda peer: peer.silence()) as server, opened(server.url) as transport:
        call = make_call(timeout=30)
        before = signal.signal(signal.SIGALRM, lambda *_: call.finish(local_error("cancelled")))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            assert failed(transport, call).reason == "cancelled"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def test_a_keyboard_interrupt_drops_the_connection() -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with ScriptedServer(lambda peer: peer.silence()) as server, opened(server.url) as transport:
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                exchange(transport, make_call(timeout=30))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert idle(transport) == []
        assert not transport._link.slots._leases  # type: ignore[union-attr]


# -- nothing is left


def test_opening_and_closing_leaves_nothing_behind() -> None:
    def stream(peer: Peer, request: Request) -> None:
        if request.id % 3 == 0:
            return peer.answer(request)
        peer.start_sse()
        peer.chunk(event(result(request)))
        return peer.end() if request.id % 3 == 1 else peer.silence()

    def clients() -> int:
        names = [thread.name for thread in threading.enumerate()]
        return sum(name.startswith("snodo-") for name in names)

    with ScriptedServer(each_request(stream)) as server:

        def cycle() -> None:
            with opened(server.url) as transport:
                for wire_id in (1, 2, 3):
                    exchange(transport, make_call(wire_id=wire_id))

        cycle()
        gc.collect()
        until(lambda: clients() == 0)
        until(lambda: not server._sockets)
        before = descriptors()
        for _ in range(100):
            cycle()
        until(lambda: clients() == 0)
        until(lambda: not server._sockets)
        assert descriptors() <= before


def test_a_failed_exchange_leaves_nothing_behind() -> None:
    def script(peer: Peer) -> None:
        request = peer.request()
        ways = [
            lambda: None,
            peer.silence,
            lambda: peer.send(b"HTTP/1.1 200 OK\r\n\r\n{"),
            lambda: peer.answer(request),
        ]
        ways[request.id % 4]()

    with ScriptedServer(script) as server, opened(server.url) as transport:
        for round_ in range(12):
            with contextlib.suppress(McpError):
                exchange(transport, make_call(wire_id=round_, timeout=0.05 if round_ % 4 == 1 else 5))
            if round_ == 3:
                until(lambda: not server._sockets)
                before = descriptors()
        until(lambda: not server._sockets)
        assert descriptors() <= before
        assert not transport._link.slots._leases  # type: ignore[union-attr]


def test_the_reaper_ends_when_there_is_nothing_to_watch() -> None:
    class Watched:
        def __init__(self, seconds: float) -> None:
            self.limit = Deadline(seconds)
            self.cut = threading.Event()

        def kill(self) -> None:
            self.cut.set()

    reaper = http_reaper.Reaper()
    first, second = Watched(0.05), Watched(60)
    reaper.watch(first)
    reaper.watch(second)
    assert first.cut.wait(2)
    reaper.forget(first)
    reaper.forget(second)
    until(lambda: not reaper._running)
    assert not second.cut.is_set()
    third = Watched(0.05)
    reaper.watch(third)
    assert third.cut.wait(2)
    until(lambda: not reaper._running)  # what has been cut need not be forgotten


def test_nothing_is_watched_that_was_closed_or_has_no_end() -> None:
    """An owner may have been interrupted before it could release its lease."""
    reaper = http_reaper.reaper
    with opened("http://127.0.0.1:1/") as transport:
        slots = transport._link.slots  # type: ignore[union-attr]
        endless = slots.lease(make_call(timeout=float("inf")))
        endless.begin()
        assert endless not in reaper._watched
        held = slots.lease(make_call(timeout=60))
        held.begin()
        assert held in reaper._watched
        slots.close()
        assert held not in reaper._watched


# -- fork


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_uses_connections_of_its_own() -> None:
    with ScriptedServer(ANSWERS) as server, opened(server.url) as transport:
        exchange(transport, make_call())
        stuck = make_call(wire_id=2, timeout=30)
        assert server.connections == 1
        child = os.fork()
        if child == 0:
            code = 1
            try:
                [message] = exchange(transport, make_call(wire_id=3, timeout=5))
                late = make_call(wire_id=4, timeout=0.3)
                code = 0 if message["id"] == 3 and not idle(transport)[:-1] and late else 2
                transport.close(Deadline(1))
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert server.connections == 2
        assert exchange(transport, stuck)[0]["id"] == 2
        assert server.connections == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_deadlines_hold_in_a_child() -> None:
    """The reaper's thread stays with the parent; the child starts its own."""

    def drip(peer: Peer) -> None:
        peer.request()
        peer.start_sse()
        peer.drip(b"1\r\n:\r\n" * 50, 0.05)

    with ScriptedServer(drip) as server, opened(server.url) as transport:
        assert failed(transport, make_call(timeout=0.1)).reason == "timeout"
        child = os.fork()
        if child == 0:
            code = 1
            try:
                start = time.monotonic()
                reason = failed(transport, make_call(timeout=0.3)).reason
                code = 0 if reason == "timeout" and time.monotonic() - start < 2 else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_made_in_mid_exchange_leaves_it_to_the_parent() -> None:
    forked = threading.Event()

    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/x"}))
        assert forked.wait(10)
        peer.chunk(event(result(request)))
        peer.end()

    with ScriptedServer(each_request(reply)) as server, opened(server.url) as transport:
        call = make_call()
        call.link = transport._link
        messages = iter(transport.exchange(call))
        next(messages)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                next(messages)
            except McpError as error:
                code = 0 if error.reason == "forked" else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        forked.set()
        assert next(messages)["id"] == 1
        assert list(messages) == []
        assert exchange(transport, make_call(wire_id=2))[-1]["id"] == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("forks", [False, True])
def test_a_program_may_end_while_another_thread_reads(forks: bool) -> None:
    """Nobody may close under it what that thread, here or in the parent, holds the lock of."""
    program = f"""
import gc, os, sys, threading
from snodo_client import Client
client = Client.connect(sys.argv[1], protocol="2026-07-28")
client.call_tool("test")
there = threading.Event()
stuck = lambda: client.call_tool("stuck", progress=lambda _: there.set())
threading.Thread(target=stuck, daemon=True).start()
there.wait()
if not {forks} or os.fork() == 0:
    gc.collect()
    ok = client.call_tool("test").ok
    print(ok, flush=True)
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""

    def reply(peer: Peer, request: Request) -> None:
        if request.message["params"]["name"] == "test":
            return peer.answer(request)
        peer.start_sse()
        progress = {"progressToken": request.id, "progress": 1}
        peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}))
        return peer.silence()

    with ScriptedServer(each_request(reply)) as server:
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program, server.url],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True\n", "")
