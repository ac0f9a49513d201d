"""A gate holds handlers in this process and in others, and everybody sees the same story."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from snodo_client.testing import Call, Gate, Server
from support.kit_child import Child
from support.mcp_requests import Caller, tool_call
from support.waiting import together, until


class Held:
    """A handler that waits at a gate, on a thread of its own."""

    def __init__(self, gate: Gate) -> None:
        self.caller = Caller()
        self.passed: bool | None = None
        self._call = Call(tool_call("slow"), self.caller)
        self._thread = Thread(target=self._run, args=(gate,), daemon=True)
        self._thread.start()

    def _run(self, gate: Gate) -> None:
        self.passed = gate.hold(self._call)

    def over(self) -> bool | None:
        self._thread.join(10)
        return self.passed


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gate")


def holding(gate: Gate, count: int) -> list[Held]:
    """Handlers that came one after the other."""
    held = []
    for number in range(count):
        held.append(Held(gate))
        gate.wait(started=number + 1)
    return held


def test_a_gate_that_nobody_has_come_to(gate: Gate) -> None:
    assert (gate.started, gate.released, gate.cancelled) == (0, 0, 0)
    with pytest.raises(TimeoutError, match="0 started"):
        gate.wait(started=1, timeout=0.01)


def test_the_oldest_goes_first(gate: Gate) -> None:
    first, second, third = holding(gate, 3)
    gate.release()
    assert first.over() is True
    assert (second.passed, third.passed) == (None, None)
    gate.release(2)
    assert (second.over(), third.over()) == (True, True)
    assert (gate.started, gate.released, gate.cancelled) == (3, 3, 0)


def test_one_whose_caller_gives_up_leaves(gate: Gate) -> None:
    first, second = holding(gate, 2)
    first.caller.cancelled = True
    gate.wait(cancelled=1)
    assert first.over() is False
    gate.release()
    assert second.over() is True
    assert (gate.started, gate.released, gate.cancelled) == (2, 1, 1)


def test_a_release_before_anybody_comes_is_kept(gate: Gate) -> None:
    gate.release()
    first, second = holding(gate, 2)
    assert first.over() is True
    assert second.passed is None
    gate.open()
    assert second.over() is True
    assert Held(gate).over() is True


def test_a_release_and_a_cancellation_at_once_agree_on_what_was_first(gate: Gate) -> None:
    """A release that came too late for one is left for the next."""
    for number in range(1, 51):
        held = Held(gate)
        gate.wait(started=number)
        together([lambda held=held: setattr(held.caller, "cancelled", True), gate.release])  # type: ignore[misc]
        passed = held.over()
        assert passed is not None
        assert gate.released + gate.cancelled == number
        if not passed:
            gate.wait(cancelled=1)
            assert Held(gate).over() is True
            return


def test_many_handlers_and_many_releases(gate: Gate) -> None:
    held = [Held(gate) for _ in range(20)]
    together([gate.release] * 20)
    assert [each.over() for each in held] == [True] * 20
    assert gate.released == 20


@pytest.fixture
def child(gate: Gate) -> Iterator[Child]:
    script = (
        "import sys\n"
        "from snodo_client.testing import Call, Gate, Server\n"
        "server, gate = Server(), Gate(sys.argv[1])\n"
        "@server.tool\n"
        "def slow(call: Call) -> str:\n"
        "    return 'done' if gate.hold(call) else 'cancelled'\n"
        "server.serve_stdio()\n"
    )
    child = Child([sys.executable, "-c", script, gate.path])
    yield child
    child.kill()


def test_over_stdio(gate: Gate, child: Child) -> None:
    first, second = tool_call("slow"), tool_call("slow")
    child.send(first)
    gate.wait(started=1)
    child.send(second)
    gate.wait(started=2)
    child.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": first["id"]}})
    gate.wait(cancelled=1)
    gate.release()
    answer = child.read()
    assert (answer["id"], answer["result"]["content"][0]["text"]) == (second["id"], "done")


def test_across_a_fork(gate: Gate) -> None:
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=gate.release, args=(2,))
    first, second = holding(gate, 2)
    process.start()
    process.join(10)
    assert (first.over(), second.over()) == (True, True)


def test_in_process_with_a_server(gate: Gate) -> None:
    server = Server()

    @server.tool
    def slow(call: Call) -> str:
        return "done" if gate.hold(call) else "cancelled"

    results = []
    caller = Caller()
    thread = Thread(target=lambda: results.append(caller.result(server, tool_call("slow"))))
    thread.start()
    gate.wait(started=1)
    caller.cancelled = True
    thread.join(10)
    until(lambda: results)
    assert results[0]["content"][0]["text"] == "cancelled"
