"""What one thread waits for and any thread, or a signal handler, puts there.

A deque and a lock used as a flag. `queue.SimpleQueue` would do but for one thing: in CPython 3.11 its `get` waits for
ever when a signal handler runs past the timeout.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from .deadline import Deadline

T = TypeVar("T")


class Empty(Exception):
    """Nothing came in time."""


class Mailbox(Generic[T]):
    __slots__ = ("_flag", "_items")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._flag = Lock()  # unlocked: there may be something new
        self._flag.acquire()

    def put(self, item: T) -> None:
        """Never blocks."""
        self._items.append(item)
        try:
            self._flag.release()
        except RuntimeError:  # it is up already
            return

    def get(self, deadline: Deadline) -> T:
        """The oldest item, waited for until the deadline. Raises Empty."""
        while not self._items:
            if not self._flag.acquire(timeout=deadline.left()) and not self._items:
                raise Empty
        return self._items.popleft()

    def clear(self) -> None:
        self._items.clear()

    def __len__(self) -> int:
        return len(self._items)
