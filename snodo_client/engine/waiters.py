"""Threads that wait until something is so, and whoever makes it so.

A locked lock for each thread that waits. `Condition` and `Event` take a lock of their own on the way into a wait: a
signal handler that raises just then keeps it locked for ever, or breaks the wait with an error that is not its own.
"""

from __future__ import annotations

from _thread import LockType, allocate_lock
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from .deadline import Deadline

T = TypeVar("T")


class Waiters:
    __slots__ = ("_flags",)

    def __init__(self) -> None:
        self._flags: list[LockType] = []  # its steps are atomic

    def until(self, look: Callable[[], T], deadline: Deadline) -> T:
        """What `look` gives, once that is not None or the deadline is over. It is called in this thread."""
        found = look()
        if found is not None or deadline.over:
            return found
        flag = allocate_lock()
        flag.acquire()
        try:
            self._flags.append(flag)  # before the next look: who changes something from here on finds it
            while (found := look()) is None:
                if not flag.acquire(timeout=deadline.left()) and deadline.over:
                    return look()
            return found
        finally:
            with suppress(ValueError):  # interrupted before it was there
                self._flags.remove(flag)

    def wake(self) -> None:
        """Have all of them look again. Never blocks; any thread, and signal handlers."""
        for flag in list(self._flags):
            with suppress(RuntimeError):  # it is to look again already
                flag.release()
