"""A daemon thread that does small jobs in order, started with the first one and gone when idle.

A session has two: one runs the caller's callbacks, one sends what nobody waits for. Neither may hold up a reader or a
caller.
"""

from __future__ import annotations

from collections import deque
from os import getpid
from threading import Condition, RLock, Thread, get_ident
from typing import TYPE_CHECKING

from ..log import logger
from . import threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from .deadline import Deadline

IDLE_SECONDS = 5.0


class Worker:
    """`submit` never blocks. At most `limit` jobs wait, and `max_weight` bytes of what they hold; then the oldest are
    dropped and counted in `dropped`.
    """

    def __init__(self, name: str, limit: int, max_weight: int = 16 * 1024 * 1024) -> None:
        self.dropped = 0
        self._name = name
        self._limit = limit
        self._max_weight = max_weight
        self._jobs: deque[tuple[Callable[[], object], int]] = deque()
        self._weight = 0
        # Guards the fields here; jobs and log handlers run without it. Reentrant, for signal handlers.
        self._changed = Condition(RLock())
        self._running = 0  # the pid whose thread serves the queue
        self._thread = 0  # that thread
        self._closed = False
        self._said = False

    def submit(self, job: Callable[[], object], weight: int = 0) -> bool:
        """False when the job will not be done: the worker is closed."""
        with self._changed:
            if self._closed:
                return False
            self._jobs.append((job, weight))
            self._weight += weight
            while len(self._jobs) > self._limit or (self._weight > self._max_weight and len(self._jobs) > 1):
                self._weight -= self._jobs.popleft()[1]
                self.dropped += 1
            say, self._said = self.dropped > 0 and not self._said, self.dropped > 0
            if self._running != getpid():
                self._start()
            self._changed.notify()
        if say:
            logger("callbacks").warning("%s: too much is waiting; the oldest is dropped", self._name)
        return True

    def forked(self) -> None:
        """In the child of a fork: the thread, what waited for it, and whoever held the lock stayed with the parent."""
        self._jobs.clear()
        self._weight = 0
        self._changed = Condition(RLock())

    def _start(self) -> None:
        """Under the lock. Where no thread can be started, what waits is tried again with the next job."""
        if threads.refusal(Thread(target=self._run, name=self._name, daemon=True)) is None:
            self._running = getpid()

    def close(self, deadline: Deadline) -> None:
        """Take no more jobs, and wait until those that wait are done; not when one of them is what closes us."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._running == getpid() and self._thread != get_ident() and not deadline.over:
                self._changed.wait(deadline.left())

    def _run(self) -> None:
        self._thread = get_ident()
        while True:
            with self._changed:
                while not self._jobs:
                    if self._closed or (not self._changed.wait(IDLE_SECONDS) and not self._jobs):
                        self._running = 0
                        self._changed.notify_all()
                        return
                job, weight = self._jobs.popleft()
                self._weight -= weight
            try:
                job()
            except BaseException:  # SystemExit too: it would end this thread and nobody would know
                logger("callbacks").exception("%s: a callback raised", self._name)
            del job
