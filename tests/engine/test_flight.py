"""Work many threads want and one does: one run, one result for all, and a hand-over when the leader fails by itself."""

from __future__ import annotations

from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest

from snodo_client import McpError
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.flight import Flight
from snodo_client.outcome import local_error
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
