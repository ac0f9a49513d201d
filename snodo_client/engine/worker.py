"""A daemon thread that does small jobs in order, started with the first one and gone when idle.

A session has two: one runs the caller's callbacks, one sends what nobody waits for. Neither may hold up a reader or a
    caller.
"""

from __future__ import annotations

from collections import deque
from os import getpid
from threading import Condition, RLock, Thread
from typing import TYPE_CHECKING

from ..log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE_SECONDS = 5.0


class Worker:
    """`submit` never blocks. At most `limit` jobs wait; then the oldest is dropped and counted in `dropped`."""

    def __init__(self, name: str, limit: int) -> None:
        self.dropped = 0
        self._name = name
        self._limit = limit
        self._jobs: deque[Callable[[], object]] = deque()
        self._changed = Condition(RLock())  # guards the fields here; jobs and log handlers run without it
        self._running = 0  # the pid whose thread serves the queue
        self._closed = False
        self._said = False

    def submit(self, job: Callable[[], object]) -> None:
        with self._changed:
            if self._closed:
                return
            if len(self._jobs) >= self._limit:
                self._jobs.popleft()
                self.dropped += 1
            self._jobs.append(job)
            first_drop = self.dropped == 1 and len(self._jobs) == self._limit
            if self._running != getpid():
                self._start()
            self._changed.notify()
        if first_drop and not self._said:
            self._said = True
            logger("callbacks").warning("%s: more than %d are waiting; the oldest are dropped", self._name, self._limit)

    def _start(self) -> None:
        """Under the lock. Where no thread can be started, what waits is tried again with the next job."""
        try:
            Thread(target=self._run, name=self._name, daemon=True).start()
        except RuntimeError:
            return
        self._running = getpid()

    def close(self) -> None:
        """Take no more jobs and end after those that wait. Does not wait itself: a job may be what closes us."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs:
                    if self._closed or (not self._changed.wait(IDLE_SECONDS) and not self._jobs):
                        self._running = 0
                        return
                job = self._jobs.popleft()
            try:
                job()
            except BaseException:  # SystemExit too: it would end this thread and nobody would know
                logger("callbacks").exception("%s: a callback raised", self._name)
            del job
