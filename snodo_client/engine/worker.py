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
from .waiters import Waiters

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
        self._closers = Waiters()
        self._renew_lock()
        self._running = 0  # the pid whose thread serves the queue
        self._thread = 0  # that thread
        self._closed = False
        self._said = False

    def submit(self, job: Callable[[], object], weight: int = 0) -> bool:
        """False when the job will not be done: the worker is closed."""
        with self._lock:
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
        self._renew_lock()

    def _renew_lock(self) -> None:
        # Guards the fields here; jobs and log handlers run without it. Reentrant, for signal handlers, and taken by
        # itself: on its way into a Condition an interruption may leave it locked.
        self._lock = RLock()
        self._changed = Condition(self._lock)  # only the thread of the worker waits for it

    def _start(self) -> None:
        """Under the lock. Where no thread can be started, what waits is tried again with the next job."""
        if threads.refusal(Thread(target=self._run, name=self._name, daemon=True)) is None:
            self._running = getpid()

    def close(self, deadline: Deadline) -> None:
        """Take no more jobs, and wait until those that wait are done; not when one of them is what closes us."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        if self._thread != get_ident():
            self._closers.until(lambda: True if self._running != getpid() else None, deadline)

    def _run(self) -> None:
        self._thread = get_ident()
        while True:
            with self._lock:
                while not self._jobs:
                    if self._closed or (not self._changed.wait(IDLE_SECONDS) and not self._jobs):
                        self._running = 0
                        self._closers.wake()
                        return
                job, weight = self._jobs.popleft()
                self._weight -= weight
            try:
                job()
            except BaseException:  # SystemExit too: it would end this thread and nobody would know
                logger("callbacks").exception("%s: a callback raised", self._name)
            del job
