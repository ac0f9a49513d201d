"""What a fork must not do to servers: a child that keeps copies of their pipes keeps them from seeing the end of their
input, for as long as it lives.

Every process started here is known, and the child lets go of its pipes before anything else runs there. A fork waits
for a start and for a close, and they for it: in the middle of a start there are pipes that nobody knows of yet, and in
the middle of a close one that nobody knows of any more, since Python forgets the descriptor before it closes it.
"""

from __future__ import annotations

import os
from threading import Condition, RLock
from typing import TYPE_CHECKING
from weakref import WeakSet

from ..engine import exits

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from .process import Process

# How long that is: a start may hang on a dead disk, and a fork is not ours to refuse.
SECONDS = 1.0


class _Gate:
    def __init__(self) -> None:
        self.changed = Condition(RLock())  # guards both fields; reentrant, for signal handlers
        # Weakly: whom an interruption hit on the way in or out is not inside for ever.
        self.inside: WeakSet[_Visit] = WeakSet()
        self.forks = 0

    def before_fork(self) -> None:
        with self.changed:
            self.forks += 1
            self.changed.wait_for(lambda: not self.inside, SECONDS)

    def after_fork(self) -> None:
        with self.changed:
            self.forks = max(0, self.forks - 1)
            self.changed.notify_all()


class _Visit:
    def __init__(self, gate: _Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        gate = self._gate
        with gate.changed:
            gate.changed.wait_for(lambda: not gate.forks, SECONDS)
            gate.inside.add(self)

    def __exit__(self, *_: object) -> None:
        with self._gate.changed:
            self._gate.inside.discard(self)
            self._gate.changed.notify_all()


_gate = _Gate()
_started: WeakSet[Process] = WeakSet()


def kept_out() -> AbstractContextManager[None]:
    """No fork happens inside of it."""
    return _Visit(_gate)


def add(process: Process) -> None:
    """Have the child of a fork let go of its pipes."""
    _started.add(process)


def _kill_all() -> None:
    for process in list(_started):
        if process.stopping:  # others see the end of their input, and may leave by themselves
            process.kill()


exits.at_last(_kill_all)


def _forked() -> None:
    global _gate
    _gate = _Gate()  # the old one may be locked by a thread that is not here
    processes = list(_started)
    _started.clear()
    if processes:
        pipes = [pipe for process in processes for pipe in process.pipes()]
        null = _null_device(pipes)
        for process in processes:
            process.abandon(null)
        if null not in pipes:
            os.close(null)


def _null_device(pipes: list[int]) -> int:
    """A descriptor of it; where none is left, that of one of the pipes, which is closed for it."""
    try:
        return os.open(os.devnull, os.O_RDWR)
    except OSError:
        if not pipes:
            raise
        os.close(pipes[0])
        return os.open(os.devnull, os.O_RDWR)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _gate.before_fork(),
        after_in_parent=lambda: _gate.after_fork(),
        after_in_child=_forked,
    )
