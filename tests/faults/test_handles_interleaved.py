"""What can end a tool call meets what can end it too: result, cancellation, deadline, close, loss of what carries it.

Each pair is forced, on each kind of connection: one after the other in both orders, at the same time, and with the
answer already there but not read. There is one outcome, it stays, and every way of asking gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations
from threading import Barrier, Event
from time import monotonic
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from snodo_client.calls import ToolCall
from support.interleaving import KINDS, LOSSES, NOTIFIED, TALKING, Arrived, Stage, staged
from support.waiting import together, until

BRIEFS = (0.12, 0.6, 3.0)  # deadlines of calls that are to meet them: the next where this machine was too slow
EVENTS = ("result", "cancel", "timeout", "close", "loss")
FINAL = ("close", "loss")  # after these the client is of no use, or the connection is another one
ROUNDS = 4  # of each race


class TooSlow(Exception):
    """The deadline was over before what was to come before it."""


class Meeting:
    """A call that the server has, and everything that can end it."""

    def __init__(self, stage: Stage, client: Client, timeout: float = 20.0, **options: Any) -> None:
        self.stage = stage
        self.client = client
        number = len(stage.calls) + 1
        self.due = monotonic() + timeout
        self.handle: ToolCall = client.start_tool_call("t", timeout=timeout, **options)
        self.future = self.handle.future
        self.told: list[object] = []
        self.future.add_done_callback(lambda done: self.told.append(done.result()))
        self.reports: list[str] = []
        until(lambda: len(stage.calls) >= number or self.handle.done())
        if len(stage.calls) < number:
            raise TooSlow
        self.arrived: Arrived = stage.arrived(number)

    def happens(self, event: str) -> None:
        act: dict[str, Callable[[], object]] = {
            "result": self.arrived.answer,
            "cancel": lambda: self.reports.append(self.handle.cancel().local),
            "timeout": lambda: until(lambda: monotonic() > self.due + 0.03),
            "close": self.client.close,
            "loss": self.arrived.lose,
        }
        act[event]()

    def ends_by(self, *events: str) -> str:
        """The event that was the end of it, which must be one of these."""
        outcome = self.handle.result(10)
        until(self.future.done)
        until(lambda: self.told)
        assert self.handle.done()
        assert self.handle.result() is self.handle.result(0) is outcome
        assert self.future.result(0) is outcome
        assert self.told == [outcome]
        assert (self.future.running(), self.future.cancelled()) == (False, False)
        reasons = {LOSSES[self.stage.kind]: "loss", "closed": "close", "cancelled": "cancel", "timeout": "timeout"}
        if isinstance(outcome, Ok):
            found = "result"
        else:
            assert isinstance(outcome, McpError)
            assert outcome.reason is not None
            found = reasons[outcome.reason]
        if found == "close" and "close" not in events and LOSSES[self.stage.kind] == "closed":
            found = "loss"  # the two have one reason
        assert found in events, outcome
        assert self.reports.count("cancelled") == (found == "cancel")
        return found

    def server_was_told(self, first: str) -> None:
        """That the call is over: once where that is a message, for calls nobody waits for any more, and else never."""
        ended_here = first in ("cancel", "timeout")
        if self.stage.kind in NOTIFIED:
            if ended_here:
                until(lambda: self.arrived.cancellations)
            self.stage.flush(self.client)
            assert len(self.arrived.cancellations) == ended_here
        else:
            assert self.stage.cancellations == []
            if ended_here:
                assert self.arrived.dropped.wait(10)


def in_time(events: tuple[str, ...], scene: Callable[[float], None]) -> None:
    """Play a scene with calls of this timeout, and again with a longer one where that was too short for it."""
    for timeout in BRIEFS if "timeout" in events else (20.0,):
        try:
            return scene(timeout)
        except TooSlow:
            continue
    raise AssertionError("the machine is too slow")


@pytest.mark.parametrize(("first", "second"), [*permutations(EVENTS, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_of_two_events_decides(kind: str, first: str, second: str) -> None:
    def scene(timeout: float) -> None:
        with staged(kind) as stage:
            meeting = Meeting(stage, stage.connect(), timeout)
            meeting.happens(first)
            meeting.handle.result(10)
            if first != "timeout" and monotonic() > meeting.due:
                raise TooSlow
            assert meeting.ends_by(first) == first
            if first in ("cancel", "timeout") and kind not in NOTIFIED:
                assert meeting.arrived.dropped.wait(10)
            meeting.happens(second)
            assert meeting.ends_by(first) == first
            if first not in FINAL and second not in FINAL:
                meeting.server_was_told(first)
                after = Meeting(stage, meeting.client)
                after.happens("result")
                after.ends_by("result")

    in_time((first, second), scene)


@pytest.mark.parametrize(("one", "other"), [*combinations(EVENTS, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_two_events_at_once(kind: str, one: str, other: str) -> None:
    def meet(meeting: Meeting) -> None:
        start = Barrier(2)

        def run(event: str) -> None:
            if "timeout" in (one, other):  # it is met where it is
                until(lambda: monotonic() > meeting.due - 0.001)
            start.wait(10)
            meeting.happens(event)

        together([lambda: run(one), lambda: run(other)])
        meeting.ends_by(one, other)

    def scene(timeout: float) -> None:
        with staged(kind) as stage:
            client = stage.connect()
            for _ in range(ROUNDS if timeout > 10 else 2):
                meet(Meeting(stage, client, timeout))
                if one in FINAL or other in FINAL:
                    client.close()
                    client = stage.connect()

    in_time((one, other), scene)


@pytest.mark.parametrize("event", ["cancel", "timeout", "close", "loss"])
@pytest.mark.parametrize("kind", TALKING)
def test_an_answer_that_is_there_but_not_read(kind: str, event: str) -> None:
    """The thread of the call is held by its own progress callback meanwhile."""

    def scene(timeout: float) -> None:
        held, go_on = Event(), Event()

        def hold(_: object) -> None:
            held.set()
            go_on.wait(20)

        with staged(kind) as stage:
            meeting = Meeting(stage, stage.connect(), timeout, progress=hold)
            try:
                meeting.arrived.progress()
                until(lambda: held.is_set() or meeting.handle.done())
                if not held.is_set():
                    raise TooSlow
                meeting.arrived.answer()
                meeting.happens(event)
                if event in ("cancel", "close"):  # these do not wait for the thread
                    assert meeting.ends_by(event) == event
            finally:
                go_on.set()
            meeting.ends_by(event, "result")

    in_time((event,), scene)


@pytest.mark.parametrize("kind", KINDS)
def test_many_cancel_at_once_and_one_of_them_did_it(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client:
        meeting = Meeting(stage, client)
        start = Barrier(16)

        def cancel() -> None:
            start.wait(10)
            meeting.happens("cancel")

        together([cancel] * 16)
        meeting.ends_by("cancel")
        assert sorted(meeting.reports) == ["cancelled"] + ["finished"] * 15
        meeting.server_was_told("cancel")
