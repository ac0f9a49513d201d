"""A lock that holds against threads and against other processes of one machine: a lock of the system on a side file.

The system lets go of it when its holder dies, so nothing is ever stale, and the side files stay where they are: who
removes one may remove it from under another's feet. Locks are asked for again and again instead of waited for, so that
who waits can be told to stop. filelock and portalocker do this too, but neither asks its caller while it waits.
"""

from __future__ import annotations

import errno
import os
import sys
from threading import Condition, RLock
from time import monotonic, sleep
from typing import TYPE_CHECKING

from .private_files import make_folder, opened

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds between two looks; the pause grows from the first to the last.
FIRST_PAUSE, LAST_PAUSE = 0.002, 0.05

_changed = Condition(RLock())  # guards `_holders`; reentrant, for signal handlers
# By path. Some network file systems lock for the whole process, so its own threads are kept apart here.
_holders: dict[str, FileLock] = {}


class FileLock:
    """A context manager, inside of which one holder at a time is. Not reentrant, and each is used once.

    `wait()` gives the seconds that are left, and may raise to end the wait. TimeoutError when none are left; McpError
    for a side file that is not this user's alone, OSError from the system. In the child of a fork nothing is held.
    """

    __slots__ = ("_descriptor", "_path", "_wait")

    def __init__(self, path: str, wait: Callable[[], float]) -> None:
        self._path = path
        self._wait = wait
        self._descriptor: int | None = None

    def __enter__(self) -> None:
        make_folder(os.path.dirname(self._path))
        pause = FIRST_PAUSE
        try:
            while True:
                left = max(0.0, self._wait())
                if self._alone_here(min(pause, left)):
                    if self._alone():
                        return
                    sleep(min(pause, left))
                if not left:
                    raise TimeoutError(f"{self._path} is held by another")
                pause = min(2 * pause, LAST_PAUSE)
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _alone_here(self, seconds: float) -> bool:
        with _changed:
            _changed.wait_for(lambda: _holders.get(self._path, self) is self, seconds)
            return _holders.setdefault(self._path, self) is self

    def _alone(self) -> bool:
        descriptor = self._descriptor = opened(self._path, os.O_RDWR | os.O_CREAT)
        if _taken(descriptor):
            return True
        self._descriptor = None
        os.close(descriptor)
        return False

    def _leave(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        try:
            if descriptor is not None:
                # Not left to the closing, which does nothing while a child of a fork has a copy.
                _let_go(descriptor)
                os.close(descriptor)
        finally:
            with _changed:
                if _holders.get(self._path) is self:
                    del _holders[self._path]
                    _changed.notify_all()

    def abandon(self) -> None:
        """In the child of a fork: close the copy, without a word to the system, whose lock is the parent's."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def for_at_most(seconds: float) -> Callable[[], float]:
    """A `wait` for what is held only for moments."""
    end = monotonic() + seconds
    return lambda: max(0.0, end - monotonic())


if sys.platform == "win32":
    import msvcrt

    def _taken(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EDEADLK):
                return False
            raise
        return True

    def _let_go(descriptor: int) -> None:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        except OSError:
            return  # not locked, or it is let go of at the closing

else:
    import fcntl

    def _taken(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def _let_go(descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        except OSError:
            return  # it is let go of at the closing


def _forked() -> None:
    """In the child of a fork: whoever held a lock stayed with the parent."""
    global _changed
    holders = list(_holders.values())
    _holders.clear()
    _changed = Condition(RLock())
    for holder in holders:
        holder.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
