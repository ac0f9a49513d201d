"""What a fork must not do to servers: a child that keeps copies of their pipes keeps them from seeing the end of their
input, for as long as it lives.

Every process started here is known, and the child lets go of its pipes before anything else runs there. A fork and the
start of a process wait for each other, for in the middle of a start there are pipes that nobody knows of yet.
"""

from __future__ import annotations

import os
from threading import Condition, RLock
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from .process import Process

# How long they wait for each other: a start may hang on a dead disk, and a fork is not ours to refuse.
SECONDS = 1.0


class _Gate:
    """Entered by those who start a process."""

    def __init__(self) -> None:
        self._changed = Condition(RLock())  # guards both counts; reentrant, for signal handlers
        self._starts = 0
        self._forks = 0

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._forks, SECONDS)
            self._starts += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._starts -= 1
            self._changed.notify_all()

    def before_fork(self) -> None:
        with self._changed:
            self._forks += 1
            self._changed.wait_for(lambda: not self._starts, SECONDS)

    def after_fork(self) -> None:
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()


_gate = _Gate()
_started: WeakSet[Process] = WeakSet()


def kept_out() -> AbstractContextManager[None]:
    """No fork happens inside of it."""
    return _gate


def add(process: Process) -> None:
    """Have the child of a fork let go of its pipes."""
    _started.add(process)


def _forked() -> None:
    global _gate
    _gate = _Gate()  # the old one may be locked by a thread that is not here
    processes = list(_started)
    _started.clear()
    if processes:
        null = os.open(os.devnull, os.O_RDWR)
        for process in processes:
            process.abandon(null)
        os.close(null)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _gate.before_fork(),
        after_in_parent=lambda: _gate.after_fork(),
        after_in_child=_forked,
    )
