"""Starting threads: what is told when there is none, and what a signal handler raises meanwhile."""

from __future__ import annotations

from threading import Event, Thread

import pytest

from snodo_client import McpError
from snodo_client.engine import threads


class Stillborn(Thread):
    """Its start fails the way it does at the limit on threads."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


class Interrupted(Thread):
    """What Python makes of a signal handler that raises at the end of its wait for the thread."""

    def start(self) -> None:
        super().start()
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("release unlocked lock")


def test_a_thread_that_starts() -> None:
    ran = Event()
    thread = threads.start("snodo-test", ran.set)
    assert ran.wait(10)
    assert (thread.name, thread.daemon) == ("snodo-test", True)
    thread.join(10)


def test_why_a_thread_cannot_be_started_is_told() -> None:
    assert threads.refusal(Stillborn()) == "can't start new thread"
    try:
        raise ValueError("what is being handled by the caller is no interruption")
    except ValueError:
        assert threads.refusal(Stillborn()) == "can't start new thread"


def test_an_error_where_a_thread_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "Thread", Stillborn)
    with pytest.raises(McpError) as raised:
        threads.start("snodo-test", print)
    assert raised.value.reason == "transport_failure"
    assert raised.value.__context__ is None


def test_an_interruption_is_not_taken_for_a_refusal() -> None:
    thread = Interrupted(target=lambda: None)
    with pytest.raises(KeyboardInterrupt):
        threads.refusal(thread)
    thread.join(10)
