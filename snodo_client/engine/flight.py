"""Work that many threads want and one does: negotiating, relisting. The others wait, each for its own deadline."""

from __future__ import annotations

from os import getpid
from threading import Event, RLock
from typing import TYPE_CHECKING, Generic, TypeVar

from ..outcome import McpError, local_error
from .deadline import Following, timed_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from .deadline import Deadline

T = TypeVar("T")

# How often one who waits looks whether that is still wanted, and whether a person is waited for.
SLICE = 0.05

# How a leader fails for reasons of its own, as it also does once its work is not wanted any more, since its client is
# closed, say: its result says nothing to those who wait.
_PERSONAL = ("timeout", "max_total_timeout", "cancelled")


class _Trip:
    __slots__ = ("deadline", "done", "result")

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        self.done = Event()
        self.result: object = None


class Flight(Generic[T]):
    """Single-flight with hand-over: when the leader's own time runs out or its thread is interrupted, a waiter takes
    over.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._pid = getpid()
        self._lock = RLock()  # guards the current trip
        self._trip: _Trip | None = None

    @property
    def under_way(self) -> bool:
        """Whether somebody is at it."""
        return self._trip is not None and self._pid == getpid()

    def run(
        self, work: Callable[[Deadline], T | McpError], deadline: Deadline, wanted: Callable[[], bool] | None = None
    ) -> T | McpError:
        """The result of the work. Who waits for another to do it gets "cancelled" soon after it is not wanted, and is
        not charged for the time of a person that the other waits for.
        """
        if self._pid != getpid():  # the trip, and who may hold the lock, stayed with the parent
            self._lock, self._trip, self._pid = RLock(), None, getpid()  # the last one is what other threads look at
        while True:
            with self._lock:
                trip, leads = self._trip, self._trip is None
                if trip is None:
                    trip = self._trip = _Trip(deadline)
            if leads:
                return self._lead(trip, work, deadline, wanted)
            following = Following(deadline, trip.deadline)
            try:
                while not trip.done.wait(min(deadline.left(), SLICE)):
                    if wanted is not None and not wanted():
                        return local_error("cancelled")
                    following.look()
                    if deadline.over:
                        return timed_out(f"{self.name} did not end", deadline)
            finally:
                following.end()
            if isinstance(trip.result, McpError):
                return trip.result.copy()
            if trip.result is not None:
                return trip.result  # type: ignore[return-value]

    def _lead(
        self,
        trip: _Trip,
        work: Callable[[Deadline], T | McpError],
        deadline: Deadline,
        wanted: Callable[[], bool] | None,
    ) -> T | McpError:
        try:
            result = work(deadline)
            unwanted = wanted is not None and not wanted()
            if not isinstance(result, McpError) or not (unwanted or result.reason in _PERSONAL):
                trip.result = result
            return result
        finally:
            with self._lock:
                self._trip = None
            trip.done.set()
