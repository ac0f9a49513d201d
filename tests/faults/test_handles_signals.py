"""Cancelling from a signal handler, whatever the main thread was doing, and Ctrl-C in the middle of waiting."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from concurrent.futures import FIRST_COMPLETED, as_completed, wait
from threading import Event, Thread, current_thread, main_thread
from time import monotonic
from types import FrameType
from typing import Any

import pytest

from snodo_client import McpError, local_error
from snodo_client.engine.call import Call
from snodo_client.engine.cancelling import CancelReport
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.waiters import Waiters
from snodo_client.protocol.requests import Request
from support.interleaving import KINDS, NOTIFIED, halt, on_signal, staged, when_main_is_in
from support.waiting import until

pytestmark = pytest.mark.skipif(current_thread() is not main_thread(), reason="signals reach the main thread only")

BIG = {"data": "x" * 1_000_000}  # more than a pipe holds


def reason_of(outcome: Any) -> str | None:
    assert isinstance(outcome, McpError), outcome
    return outcome.reason


@pytest.mark.parametrize("kind", KINDS)
def test_while_result_waits(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        arrived = stage.arrived()
        until(lambda: handle._call.delivery == "accepted")
        with on_signal(lambda: handle.cancel("by a signal")) as reports:
            sending = when_main_is_in("result")
            assert reason_of(handle.result(15)) == "cancelled"
            sending.join(10)
        (report,) = reports
        assert (report.local, report.request_delivery) == ("cancelled", "accepted")
        assert report.notification_delivery == ("accepted" if kind in NOTIFIED else "not_needed")
        if kind in NOTIFIED:
            until(lambda: arrived.cancellations)
        else:
            assert arrived.dropped.wait(10)


@pytest.mark.parametrize("kind", KINDS)
def test_while_a_blocking_call_waits(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client, on_signal(lambda: client.cancel_all("stop")) as reports:
        sending = when_main_is_in("call_tool", lambda: stage.calls)
        before = monotonic()
        assert reason_of(client.call_tool("t", timeout=15)) == "cancelled"
        assert monotonic() - before < 5
        sending.join(10)
        assert [report.local for report in reports[0]] == ["cancelled"]
        after = client.start_tool_call("after")
        stage.arrived(2).answer()
        after.result(10).unwrap()


@pytest.mark.parametrize("kind", ["stdio", "http-stream", "websocket-legacy"])
@pytest.mark.parametrize("function", ["as_completed", "wait"])
def test_while_futures_are_waited_for(kind: str, function: str) -> None:
    with staged(kind) as stage, stage.connect() as client:
        handles = [client.start_tool_call(f"t{n}") for n in range(4)]
        futures = [handle.future for handle in handles]
        stage.arrived(4)
        with on_signal(lambda: [handle.cancel() for handle in handles]) as reports:
            sending = when_main_is_in(function)
            if function == "wait":
                done = wait(futures, timeout=15)
                assert done.not_done == set()
            else:
                assert set(as_completed(futures, timeout=15)) == set(futures)
            sending.join(10)
        assert [report.local for report in reports[0]] == ["cancelled"] * 4
        assert {reason_of(future.result(0)) for future in futures} == {"cancelled"}


def test_while_the_first_future_is_waited_for() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        one, other = client.start_tool_call("one"), client.start_tool_call("other")
        stage.arrived(2)
        with on_signal(one.cancel):
            sending = when_main_is_in("wait")
            done, rest = wait([one.future, other.future], timeout=15, return_when=FIRST_COMPLETED)
            sending.join(10)
        assert (done, rest) == ({one.future}, {other.future})
        next(each for each in stage.calls if each.params["name"] == "other").answer()
        assert other.future.result(10).ok


def test_while_an_event_loop_waits() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        stage.arrived()

        async def main() -> Any:
            return await asyncio.wait_for(asyncio.wrap_future(handle.future), 15)

        with on_signal(handle.cancel):
            sending = when_main_is_in("select")
            assert reason_of(asyncio.run(main())) == "cancelled"
            sending.join(10)


def test_while_the_call_is_written_to_a_full_pipe() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        go_on = halt(client)
        try:
            with on_signal(lambda: client.cancel_all(notification_timeout=0.2)) as reports:
                sending = when_main_is_in("await_writable")
                assert reason_of(client.call_tool("t", BIG, timeout=15)) == "cancelled"
                sending.join(10)
        finally:
            go_on()
        (report,) = reports[0]
        assert (report.request_delivery, report.notification_delivery) == ("unknown", "timeout")
        after = client.start_tool_call("after")
        stage.arrived(2).answer()
        after.result(10).unwrap()
        assert [each.params["name"] for each in stage.calls] == ["t", "after"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_in_the_middle_of_the_write(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The writer's lock is held by the very thread that the handler runs on."""
    with staged("stdio") as stage, stage.connect() as client:
        write, armed = os.write, [True]

        def interrupted(fd: int, data: Any) -> int:
            hit = b'"hit"' in bytes(data[:1000]) and armed and armed.pop()
            if hit and when == "before":
                signal.raise_signal(signal.SIGUSR1)
            written = write(fd, data)
            if hit and when == "after":
                signal.raise_signal(signal.SIGUSR1)
            return written

        monkeypatch.setattr(os, "write", interrupted)
        with on_signal(lambda: client.cancel_all(notification_timeout=0.2)) as reports:
            assert reason_of(client.call_tool("hit", timeout=15)) == "cancelled"
        ((report,),) = reports
        # The control thread waits for the lock, and has the notification on the pipe right after the handler.
        assert report == CancelReport("cancelled", "unknown", "timeout")
        until(lambda: stage.arrived().cancellations)
        assert len(stage.arrived().cancellations) == 1


def test_many_signals_and_many_threads() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        stage.arrived()
        locals_: list[str] = []
        start = Event()

        def cancel() -> None:
            start.wait(10)
            locals_.append(handle.cancel().local)

        threads = [Thread(target=cancel, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        with on_signal(lambda: locals_.append(handle.cancel().local)):
            start.set()
            for _ in range(8):
                signal.raise_signal(signal.SIGUSR1)
            for thread in threads:
                thread.join(10)
        assert sorted(locals_) == ["cancelled"] + ["finished"] * 15
        stage.flush(client)
        assert len(stage.arrived().cancellations) == 1


# -- handlers that raise


class Stop(Exception):
    pass


def stop() -> None:
    raise Stop


@pytest.mark.parametrize("kind", ["direct", "stdio", "http-json", "http-legacy"])
def test_an_interrupted_wait_ends_nothing(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        arrived = stage.arrived()
        with on_signal(stop):
            sending = when_main_is_in("result")
            with pytest.raises(Stop):
                handle.result(15)
            sending.join(10)
        assert not handle.done()
        arrived.answer()
        assert handle.result(10).ok
        assert stage.cancellations == []


def at_each(what: str, function: Any, work: Any, before: str = "") -> int:
    """Do the work again and again, each time interrupted by an exception after one more "line" or "opcode" of the
    function, up to the line that says `before`; the last time it comes to its end. How often that was.
    """
    source, first = inspect.getsourcelines(function)
    end = next((first + n for n, line in enumerate(source) if before and before in line), first + len(source))
    for number in range(1, 500):
        seen = 0

        def trace(frame: FrameType, event: str, _: Any, number: int = number) -> Any:
            nonlocal seen
            if frame.f_code is not function.__code__:
                return None
            frame.f_trace_opcodes = what == "opcode"
            if event == what and frame.f_lineno < end:
                seen += 1
                if seen == number:
                    raise Stop
            return trace

        try:
            sys.settrace(trace)
            try:
                work()
            finally:
                sys.settrace(None)
        except Stop:
            continue
        return number
    raise AssertionError


def test_who_waits_hears_of_the_end_though_the_one_who_ended_it_is_interrupted() -> None:
    """The exception comes at each step until the end is settled. What has become of it is told to who waits."""
    runs: list[tuple[bool, bool, bool]] = []

    def work() -> None:
        call = Call(1, Request("tools/call", {"name": "t"}), Deadline(10))
        told, woken = Event(), Event()
        call.told, call.wake = told.set, woken.set
        try:
            call.finish(local_error("cancelled"))
        finally:
            runs.append((call.outcome is not None, told.is_set(), woken.is_set()))

    assert at_each("opcode", Call.finish, work, before="finally:") > 5
    assert runs[0] == (False, False, False)
    assert runs[-1] == (True, True, True)
    assert set(runs) == {runs[0], runs[-1]}
    assert runs[-2] == runs[-1]  # interrupted right after it was settled


def test_an_interrupted_wait_keeps_nobody_else_waiting() -> None:
    """The main thread waits with others, and is interrupted at each line of `result` in turn."""
    with staged("direct") as stage, stage.connect() as client:

        def work() -> None:
            number = len(stage.calls) + 1
            handle = client.start_tool_call("t")
            arrived = stage.arrived(number)
            heard: list[Any] = []
            others = [Thread(target=lambda: heard.append(handle.result()), daemon=True) for _ in range(3)]
            interrupted = Event()

            def answer() -> None:
                until(lambda: interrupted.is_set() or len(handle._waiting._flags) == 4)
                arrived.answer()

            answering = Thread(target=answer, daemon=True)
            for thread in [*others, answering]:
                thread.start()
            try:
                assert handle.result().ok
            finally:
                sys.settrace(None)
                interrupted.set()
                for thread in others:
                    thread.join(10)
                assert heard == [handle.result(0)] * 3

        assert at_each("line", Waiters.until, work) > 5
