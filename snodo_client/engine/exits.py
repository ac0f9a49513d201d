"""The end of what nobody closed: sessions still open when the interpreter exits, and those whose client was dropped.

Sessions are held weakly. At exit all are closed at once, within one bound.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys
from contextlib import suppress
from os import getpid
from threading import Thread
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, finalize

from .deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from .connection import Connection
    from .session import Session

SECONDS = 2.5
LAST_SECONDS = 0.3

_open: WeakKeyDictionary[Session, finalize[[Connection, int], Session]] = WeakKeyDictionary()
_orphans: dict[int, Connection] = {}
_last: list[Callable[[], object]] = []
_registered = 0  # the process that has arranged for its end


def add(session: Session) -> None:
    """Close the session's connection when the interpreter exits, or the session is no longer used by anybody."""
    if _registered != getpid():
        _register()
    if session in _open:
        return
    orphaned = finalize(session, _orphaned, session.connection, session.pid)
    orphaned.atexit = False
    _open[session] = orphaned


def at_last(job: Callable[[], object]) -> None:
    """Have a job done at the very end of the interpreter, for what closing has not brought about in its time."""
    _last.append(job)


def discard(session: Session) -> None:
    orphaned = _open.pop(session, None)
    if orphaned is not None:
        orphaned.detach()


def _orphaned(connection: Connection, pid: int) -> None:
    """Runs inside the garbage collector, at any point of any code: it may neither wait nor take a lock."""
    if pid == getpid():
        _orphans[id(connection)] = connection
        with suppress(RuntimeError):  # no more threads: it is closed at the exit
            _thread.start_new_thread(_close_orphan, (connection,))  # threading.Thread would take a lock


def _close_orphan(connection: Connection) -> None:
    try:
        connection.close(Deadline(SECONDS))
    finally:
        _orphans.pop(id(connection), None)


def _register() -> None:
    """Once in a process: those of `multiprocessing` may end without exit handlers, but not without its finalizers."""
    global _registered
    _registered = getpid()
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _close_all, exitpriority=0)


def _close_all() -> None:
    # A child of a fork inherits the table, but not the servers.
    here = [session for session in list(_open) if session.pid == getpid()]
    deadline = Deadline(SECONDS - LAST_SECONDS)  # in the rest a server is killed that did not leave by itself
    until = Deadline(SECONDS)
    closers = [session.close for session in here] + [connection.close for connection in list(_orphans.values())]
    threads = []
    for close in closers:
        thread = Thread(target=close, args=(deadline,), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or none any more at this point of the exit
            close(deadline)
        else:
            threads.append(thread)
    try:
        for thread in threads:
            thread.join(until.left())
    finally:  # also when somebody is in a hurry, and interrupts
        for job in _last:
            job()


def _forked() -> None:
    """In the child of a fork, before anything else runs there: the threads and the servers stayed with the parent."""
    for session in list(_open):
        discard(session)  # until it is used here, and has something of its own to close
        session.forked()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
