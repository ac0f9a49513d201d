"""Waiting for something to become true, and running many threads, always with a deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Event, Thread
from time import monotonic

PATIENCE = 20.0


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Return as soon as the condition is true; AssertionError when it does not become so."""
    end, pause = monotonic() + seconds, Event()
    while not condition():
        assert monotonic() < end, "it did not happen"
        pause.wait(0.005)


def together(jobs: Iterable[Callable[[], object]], seconds: float = 60.0) -> None:
    """Run the jobs at the same time, each in a thread. An AssertionError when one raises or does not end."""
    start, raised = Event(), []

    def run(job: Callable[[], object]) -> None:
        start.wait()
        try:
            job()
        except BaseException as error:
            raised.append(error)

    threads = [Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    start.set()
    end = monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, end - monotonic()))
    assert not any(thread.is_alive() for thread in threads)
    assert raised == []
