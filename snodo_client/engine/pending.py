"""The locked table of requests in flight: wire id to call. Ids are integers from 1, counted once per client and never
used again.
"""

from __future__ import annotations

from itertools import count
from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..outcome import McpError
    from ..transports.base import Link
    from .call import Call


class Pending:
    def __init__(self) -> None:
        # Guards the table, and is held for table work only. Reentrant, for a signal handler that closes the client.
        self._lock = RLock()
        self._calls: dict[int, Call] = {}
        self._ids = count(1)
        self._last = 0

    def attempt(self, call: Call, link: Link) -> int:
        """Enter the call under a fresh wire id, in place of the one of its last attempt."""
        with self._lock:
            if call.wire_id is not None:
                self._calls.pop(call.wire_id, None)
            call.wire_id = self._last = wire_id = next(self._ids)
            call.link = link
            self._calls[wire_id] = call
        return wire_id

    def find(self, wire_id: int) -> Call | None:
        return self._calls.get(wire_id)

    def forget(self, call: Call) -> None:
        if call.wire_id is not None:
            with self._lock:
                self._calls.pop(call.wire_id, None)

    def answered(self, call: Call) -> None:
        """Nothing of the call is on its way: there is nothing to cancel until it is sent again."""
        self.forget(call)
        call.wire_id = None

    def issued(self, wire_id: int) -> bool:
        """True for an id this client has used: an answer to it that finds no call is late, not foreign."""
        return 0 < wire_id <= self._last

    def only(self, link: Link) -> Call | None:
        """The call that waits on `link`, when exactly one does."""
        with self._lock:
            calls = [call for call in self._calls.values() if call.link is link and not call.begun]
        return calls[0] if len(calls) == 1 else None

    def fail_all(self, link: Link, error: McpError) -> None:
        """The link is gone: end every attempt that waits on it. Answers delivered before are still read first."""
        with self._lock:
            calls = [call for call in self._calls.values() if call.link is link]
        for call in calls:
            call.put(error.copy())
            call.wake()

    def forked(self) -> None:
        """In the child of a fork: a thread that is not here may hold the lock."""
        self._lock = RLock()

    def calls(self) -> list[Call]:
        with self._lock:
            return list(self._calls.values())

    def __len__(self) -> int:
        return len(self._calls)
