"""The one thread that keeps HTTP deadlines a socket's own timeout cannot keep: a server that sends a byte now and then.

It looks at the exchanges under way a few times a second, cuts the connection of each that is over its limit, and ends
when there has been nothing to look at for a while. It reads nothing, decides nothing and tells nobody: the thread that
owns the exchange finds out by its failing read.
"""

from __future__ import annotations

import os
from threading import RLock
from time import sleep
from typing import TYPE_CHECKING, Protocol

from ..engine import threads
from ..engine.deadline import LONGEST_WAIT

if TYPE_CHECKING:
    from ..engine.deadline import Deadline

    class Watched(Protocol):
        limit: Deadline

        def kill(self) -> None: ...


TICK = 0.025  # seconds: how late a cut may come
IDLE_TICKS = 20


class Reaper:
    def __init__(self) -> None:
        self._lock = RLock()  # re-entered by a signal handler that makes a call
        self._watched: set[Watched] = set()
        self._running = False

    def watch(self, exchange: Watched) -> None:
        """Cut the exchange when its `limit` is over, until it is forgotten."""
        with self._lock:
            self._watched.add(exchange)
            if self._running:
                return
            self._running = True
        try:
            threads.start("snodo-http-deadlines", self._run)
        except BaseException:
            self._running = False
            raise

    def forget(self, exchange: Watched) -> None:
        self._watched.discard(exchange)

    def _run(self) -> None:
        idle = 0
        while True:
            sleep(TICK)
            exchanges = list(self._watched)
            for exchange in exchanges:
                if exchange.limit.over:
                    exchange.kill()
                    self._watched.discard(exchange)
                elif exchange.limit.left() >= LONGEST_WAIT:  # a stream that has begun, and may last for ever
                    self._watched.discard(exchange)
            idle = 0 if exchanges else idle + 1
            if idle >= IDLE_TICKS:
                with self._lock:
                    if not self._watched:
                        self._running = False
                        return

    def forked(self) -> None:
        """In the child of a fork: the thread and the exchanges stayed with the parent."""
        self.__init__()  # type: ignore[misc]


reaper = Reaper()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reaper.forked)
