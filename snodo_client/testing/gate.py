"""`Gate`: where a handler waits until the test lets it go, so that a test decides what happens before what.

A gate is a file that every process appends to, one event a line, and that all of them read in the same order. So it
works in process, over stdio and across forks, needs no thread, and there is nothing to close.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from os import PathLike

    from snodo_client.testing.call import Call

_TICK = 0.002  # seconds between looks at the file


class Gate:
    """A gate at this path; the test and its server make one each of the same path, or share one in process.

        @server.tool
        def slow(call: Call) -> str:
            return "done" if gate.hold(call) else "cancelled"

        handle = client.start_tool_call("slow")
        gate.wait(started=1)      # the handler runs
        gate.release()            # and may go on

    `started` handlers have come, `released` ones were let go, `cancelled` ones left since their caller gave up.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = os.fspath(path)

    def __repr__(self) -> str:
        return f"<Gate {self.path}>"

    def hold(self, call: Call) -> bool:
        """Wait here until let go (True), or until the caller gives up (False)."""
        me = os.urandom(8).hex()
        self._add(f"start {me}")
        while me not in self._read().released:
            if not call.sleep(_TICK):
                self._add(f"cancel {me}")
                return me in self._read().released
        return True

    def release(self, count: int = 1) -> None:
        """Let those go that have waited longest; where none waits, the next to come."""
        for _ in range(count):
            self._add("release")

    def open(self) -> None:
        """Let everybody go, now and from now on."""
        self._add("open")

    def wait(self, *, started: int = 0, released: int = 0, cancelled: int = 0, timeout: float = 10.0) -> None:
        """Wait until at least so many have started, were released, and were cancelled; TimeoutError after `timeout`
        seconds.
        """
        end = time.monotonic() + timeout
        while self.started < started or self.released < released or self.cancelled < cancelled:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.started} started, {self.released} released, {self.cancelled} cancelled")
            time.sleep(_TICK)

    @property
    def started(self) -> int:
        return self._read().started

    @property
    def released(self) -> int:
        return len(self._read().released)

    @property
    def cancelled(self) -> int:
        return self._read().cancelled

    def _add(self, event: str) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, event.encode() + b"\n")  # whole: appended lines of several processes do not mix
        finally:
            os.close(descriptor)

    def _read(self) -> _Story:
        try:
            with open(self.path, encoding="ascii") as file:
                return _Story(file.read().splitlines())
        except FileNotFoundError:
            return _Story([])


class _Story:
    """What follows from the events, which every reader sees in the same order."""

    def __init__(self, events: list[str]) -> None:
        self.started = self.cancelled = 0
        self.released: set[str] = set()
        self._waiting: dict[str, None] = {}
        self._free = 0.0
        for event in events:
            what, _, who = event.partition(" ")
            if what == "start":
                self.started += 1
                self._waiting[who] = None
            elif what == "cancel" and who in self._waiting:
                del self._waiting[who]
                self.cancelled += 1
            elif what != "cancel":
                self._free += 1 if what == "release" else float("inf")
            while self._free and self._waiting:
                oldest = next(iter(self._waiting))
                del self._waiting[oldest]
                self.released.add(oldest)
                self._free -= 1
