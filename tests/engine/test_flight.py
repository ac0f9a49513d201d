"""Work many threads want and one does: one run, one result for all, and a hand-over when the leader fails by itself."""

from __future__ import annotations

import sys
from threading import Event, Thread
from time import monotonic
from types import FrameType
from typing import Any

import pytest

from snodo_client import McpError
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.flight import Flight, _Trip
from snodo_client.outcome import local_error
from support.forking import in_a_child
from support.waiting import together, until


def start(work: Any) -> Thread:
    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_one_runs_and_all_get_its_result() -> None:
    flight: Flight[object] = Flight("working")
    go, runs, results = Event(), [], []
    value = object()

    def work(deadline: Deadline) -> object:
        runs.append(1)
        assert go.wait(20)
        return value

    def join() -> None:
        results.append(flight.run(work, Deadline(20)))

    leader = start(join)
    until(lambda: runs)
    waiters = [start(join) for _ in range(9)]
    go.set()
    for thread in (leader, *waiters):
        thread.join(20)
    assert results == [value] * 10
    assert 1 <= len(runs) <= 10


def test_the_next_run_is_new() -> None:
    flight: Flight[int] = Flight("working")
    numbers = iter(range(5))
    assert [flight.run(lambda deadline: next(numbers), Deadline(5)) for _ in range(3)] == [0, 1, 2]


def test_never_two_at_a_time() -> None:
    flight: Flight[int] = Flight("working")
    inside: list[int] = []

    def work(deadline: Deadline) -> int:
        inside.append(1)
        assert len(inside) == 1
        Event().wait(0.0005)
        inside.pop()
        return 1

    together([lambda: [flight.run(work, Deadline(20)) for _ in range(50)]] * 8)


def test_a_waiter_waits_no_longer_than_its_own_deadline() -> None:
    flight: Flight[int] = Flight("listing the tools")
    go, started = Event(), Event()

    def work(deadline: Deadline) -> int:
        started.set()
        go.wait(20)
        return 1

    leader = start(lambda: flight.run(work, Deadline(20)))
    assert started.wait(20)
    begun = monotonic()
    error = flight.run(work, Deadline(0.2))
    assert 0.2 <= monotonic() - begun < 2.2
    go.set()
    leader.join(20)
    assert isinstance(error, McpError)
    assert (error.reason, error.data) == ("timeout", {"timeout": 0.2})
    assert "listing the tools" in error.message


@pytest.mark.parametrize("reason", ["timeout", "max_total_timeout"])
def test_a_waiter_takes_over_when_the_leader_runs_out_of_its_own_time(reason: str) -> None:
    flight: Flight[str] = Flight("working")
    go, leading, results = Event(), Event(), {}

    def first(deadline: Deadline) -> McpError:
        leading.set()
        assert go.wait(20)
        return local_error(reason)

    leader = start(lambda: results.update(leader=flight.run(first, Deadline(20))))
    assert leading.wait(20)
    waiter = start(lambda: results.update(waiter=flight.run(lambda deadline: "done", Deadline(20))))
    go.set()
    leader.join(20)
    waiter.join(20)
    assert results["leader"].reason == reason
    assert results["waiter"] == "done"


def test_a_waiter_takes_over_when_the_leader_is_interrupted() -> None:
    flight: Flight[str] = Flight("working")
    go, leading, results = Event(), Event(), []

    def interrupted(deadline: Deadline) -> str:
        leading.set()
        assert go.wait(20)
        raise KeyboardInterrupt

    def lead() -> None:
        with pytest.raises(KeyboardInterrupt):
            flight.run(interrupted, Deadline(20))

    leader = start(lead)
    assert leading.wait(20)
    waiter = start(lambda: results.append(flight.run(lambda deadline: "done", Deadline(20))))
    go.set()
    leader.join(20)
    waiter.join(20)
    assert results == ["done"]


def test_a_shared_error_is_each_waiters_own() -> None:
    """An exception object holds one traceback: two threads that raise the same one would mix theirs."""
    flight: Flight[str] = Flight("working")
    go, leading, results = Event(), Event(), []
    waiting = []

    def fail(deadline: Deadline) -> McpError:
        leading.set()
        assert go.wait(20)
        return local_error("unreachable")

    def join() -> None:
        waiting.append(1)
        results.append(flight.run(fail, Deadline(20)))

    leader = start(join)
    assert leading.wait(20)
    waiters = [start(join) for _ in range(3)]
    until(lambda: len(waiting) == 4)
    Event().wait(0.05)
    go.set()
    for thread in (leader, *waiters):
        thread.join(20)
    assert [error.reason for error in results] == ["unreachable"] * 4
    assert len({id(error) for error in results}) == 4


# --- a leader who waits for a person


def paused_leader(flight: Flight[str], deadline: Deadline, until_then: Event) -> Thread:
    """A thread that leads, and waits for a person until then."""
    leading = Event()

    def work(deadline: Deadline) -> str:
        with deadline.pause(20):
            leading.set()
            assert until_then.wait(20)
        return "done"

    leader = start(lambda: flight.run(work, deadline))
    assert leading.wait(20)
    return leader


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_waiter_is_not_charged_for_the_person_of_the_leader(depth: int) -> None:
    flight: Flight[str] = Flight("working")
    go, results = Event(), []
    deadlines = [Deadline(0.3)]
    for _ in range(depth):
        deadlines.append(deadlines[-1].sub(0.3))
    leader = paused_leader(flight, Deadline(0.3), go)
    waiter = start(lambda: results.append(flight.run(lambda deadline: "too late", deadlines[-1])))
    end = monotonic() + 0.8
    until(lambda: monotonic() > end)
    assert not results
    assert all(deadline.paused and not deadline.over for deadline in deadlines)
    go.set()
    leader.join(20)
    waiter.join(20)
    assert results == ["done"]
    assert not any(deadline.paused for deadline in deadlines)
    assert all(deadline.left() <= 0.3 for deadline in deadlines)


def test_who_waits_for_a_waiter_is_not_charged_either() -> None:
    inner: Flight[str] = Flight("signing in")
    outer: Flight[str] = Flight("connecting")
    go, results = Event(), []
    leader = paused_leader(inner, Deadline(0.3), go)
    middle_leads = Event()

    def middle(deadline: Deadline) -> str | McpError:
        middle_leads.set()
        return inner.run(lambda deadline: "too late", deadline)

    waiters = [start(lambda: results.append(outer.run(middle, Deadline(0.3))))]
    assert middle_leads.wait(20)
    waiters.append(start(lambda: results.append(outer.run(lambda deadline: "too late", Deadline(0.3)))))
    end = monotonic() + 0.8
    until(lambda: monotonic() > end)
    assert not results
    go.set()
    for thread in (leader, *waiters):
        thread.join(20)
    assert results == ["done"] * 2


def test_after_the_person_a_waiter_has_the_time_it_had_before() -> None:
    flight: Flight[str] = Flight("working")
    go, leading, person_left = Event(), Event(), Event()

    def work(deadline: Deadline) -> str:
        with deadline.pause(20):
            leading.set()
            Event().wait(0.5)
        person_left.set()
        assert go.wait(20)
        return "done"

    leader = start(lambda: flight.run(work, Deadline(20)))
    assert leading.wait(20)
    error = flight.run(lambda deadline: "too late", Deadline(0.4))
    assert person_left.is_set()
    assert isinstance(error, McpError)
    assert error.reason == "timeout"
    go.set()
    leader.join(20)


def test_a_waiter_that_is_not_wanted_leaves_at_once() -> None:
    flight: Flight[str] = Flight("working")
    go, unwanted = Event(), Event()
    results: list[Any] = []
    leader = paused_leader(flight, Deadline(20), go)
    deadline, waits = Deadline(20), Event()

    def wanted() -> bool:
        waits.set()
        return not unwanted.is_set()

    waiter = start(lambda: results.append(flight.run(lambda deadline: "too late", deadline, wanted)))
    assert waits.wait(20)
    unwanted.set()
    waiter.join(2)
    assert [error.reason for error in results] == ["cancelled"]
    assert not deadline.paused
    go.set()
    leader.join(20)


# --- a fork


def test_a_child_of_a_fork_flies_for_itself() -> None:
    flight: Flight[str] = Flight("working")
    go = Event()
    leader = paused_leader(flight, Deadline(20), go)
    assert in_a_child(lambda: flight.run(lambda deadline: "in the child", Deadline(2))) == "in the child"
    assert leader.is_alive()
    results: list[object] = []
    waiter = start(lambda: results.append(flight.run(lambda deadline: "too late", Deadline(20))))
    go.set()
    leader.join(20)
    waiter.join(20)
    assert results[0] in ("done", "too late")  # what became of the parent's is as if there were no child


def test_a_fork_may_happen_while_another_thread_begins() -> None:
    flight: Flight[int] = Flight("working")
    inside, go = Event(), Event()

    def stop(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is _Trip.__init__.__code__:  # which is in the middle of what is guarded
            inside.set()
            go.wait(20)

    def lead() -> None:
        sys.setprofile(stop)
        flight.run(lambda deadline: 1, Deadline(20))

    leader = start(lead)
    assert inside.wait(20)
    try:
        assert in_a_child(lambda: flight.run(lambda deadline: 2, Deadline(5)), 2.0) == 2
    finally:
        go.set()
        leader.join(20)


def test_a_fork_may_happen_at_any_moment() -> None:
    flight: Flight[int] = Flight("working")
    over = Event()

    def busy() -> None:
        while not over.is_set():
            flight.run(lambda deadline: 1, Deadline(20))

    threads = [start(busy) for _ in range(2)]
    try:
        assert [in_a_child(lambda: flight.run(lambda deadline: 2, Deadline(5))) for _ in range(20)] == [2] * 20
    finally:
        over.set()
        for thread in threads:
            thread.join(20)
