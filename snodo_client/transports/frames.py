"""Writes frames to a pipe that nobody may be reading: no wait passes a deadline, and no two frames mix.

The pipe is non-blocking and the lock is held for one write at a time, never while waiting. A frame with a byte on the
pipe is finished before the next one begins, by whichever thread writes next if its own has given up; a frame without
one is withdrawn. A signal handler may raise out of a write at any point, or write itself; framing survives both. What
the frames mean, and what becomes of the process that reads them, is not known here.
"""

from __future__ import annotations

import os
import select
from threading import RLock
from typing import TYPE_CHECKING

from ..engine.deadline import timed_out
from ..outcome import McpError, local_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engine.call import Call
    from ..engine.deadline import Deadline

# Up to this size a pipe takes all of a write or nothing. Windows has no such promise, nor non-blocking pipes.
_PIPE_BUF: int = getattr(select, "PIPE_BUF", 512)

# How often a writer that waits for room looks whether its call was settled or the pipe closed by somebody else.
_SLICE = 0.05

_FREE, _WRITING, _CLOSED = "free", "writing", "closed"


class _Frame:
    """What is left to write of a frame. `torn` when an interruption left unknown how much that is."""

    __slots__ = ("atomic", "begun", "rest", "torn")

    def __init__(self, data: bytes) -> None:
        self.rest = memoryview(data)
        self.atomic = len(data) <= _PIPE_BUF
        self.begun = False
        self.torn = False


class Frames:
    """The writing end of a non-blocking pipe. `await_writable(seconds)` waits for room, no longer than that."""

    __slots__ = ("_await_writable", "_fd", "_lock", "_state", "_torn", "_unfinished")

    def __init__(self, fd: int, await_writable: Callable[[float], None]) -> None:
        self._fd = fd
        self._await_writable = await_writable
        # Guards the fields below. Reentrant: a signal handler may write or close on top of a write of its own thread.
        self._lock = RLock()
        self._state = _FREE
        self._unfinished: _Frame | None = None
        self._torn = False  # a frame was cut at an unknown place

    def write(self, body: bytes, deadline: Deadline, call: Call | None = None) -> None:
        """Write one message and its line end; `call.delivery` tells how far it got.

        Raises `BrokenPipeError` when nobody can read it any more, `McpError` when time is over or `call` was settled.
        """
        frame = _Frame(body + b"\n")
        while True:
            with self._lock:
                self._advance(frame, call)
            if not frame.rest:
                if call is not None:
                    call.delivery = "accepted"
                return
            if frame.torn:
                raise local_error("transport_failure", "another thread was interrupted while it wrote this message")
            if call is not None:
                call.check()
            elif deadline.over:
                raise timed_out("the server did not take the message", deadline)
            self._await_writable(min(deadline.left(), _SLICE))

    def close(self, close_pipe: Callable[[], object]) -> None:
        """No more frames; `close_pipe` closes the file descriptor. A writer that waits for room lets go."""
        with self._lock:
            if self._state is not _CLOSED:
                self._state = _CLOSED
                close_pipe()

    def _advance(self, frame: _Frame, call: Call | None) -> None:
        """Under the lock: one write, for the unfinished frame, or for this one when there is none."""
        # Python runs signal handlers after calls. There is none between reading the state here and taking it, none
        # between the second look at it and the write, and none where the state is put back.
        state, self._state = self._state, _WRITING
        target = self._unfinished or frame
        try:
            if state is not _FREE:
                raise _refusal(state)
            if self._torn:
                target = self._unfinished = _Frame(b"\n")  # ends what was cut: the server refuses it, and reads on
                self._torn = False
            if target is frame and call is not None:
                call.sending()  # before the write: an interruption must not find it too low
            if self._state is not _WRITING:
                raise BrokenPipeError
            target.rest = target.rest[os.write(self._fd, target.rest) :]
            target.begun = True
            self._unfinished = target if target.rest else None
        except BlockingIOError:
            pass
        except OSError:
            raise BrokenPipeError from None
        except McpError:
            raise
        except BaseException:  # raised by a signal handler; the write may have happened, and nobody counted
            target.torn = True
            self._torn = self._torn or target.begun or not target.atomic
            raise
        finally:
            if self._state is _WRITING:  # and was not closed by a signal handler meanwhile
                self._state = state
            if call is not None and not frame.begun and not frame.torn:
                call.delivery = "not_sent"


def _refusal(state: str) -> Exception:
    if state is _CLOSED:
        return BrokenPipeError()
    text = "a signal handler cannot write in the middle of a write of its own thread"
    return local_error("transport_failure", text)
