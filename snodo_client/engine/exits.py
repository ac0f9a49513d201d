"""Interpreter exit: every session still open is closed, all at once, within one bound. Holds sessions weakly."""

from __future__ import annotations

import atexit
from os import getpid
from threading import Thread
from typing import TYPE_CHECKING
from weakref import WeakSet

from .deadline import Deadline

if TYPE_CHECKING:
    from .session import Session

SECONDS = 2.5

_open: WeakSet[Session] = WeakSet()


def add(session: Session) -> None:
    _open.add(session)


def discard(session: Session) -> None:
    _open.discard(session)


def _close_all() -> None:
    # A child of a fork inherits the set, but not the servers.
    sessions = [session for session in _open if session.pid == getpid()]
    deadline = Deadline(SECONDS)
    if len(sessions) == 1:
        return sessions[0].close(deadline)
    threads = [Thread(target=session.close, args=(deadline,), daemon=True) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(deadline.left())
    return None


atexit.register(_close_all)
