"""One monotonic deadline per logical call, shared by everything the call does."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from ..outcome import local_error

if TYPE_CHECKING:
    from ..outcome import McpError

# The longest single wait handed to the operating system: poll() counts milliseconds in 31 bits. Loops ask again.
LONGEST_WAIT = 1_000_000.0


class Deadline:
    """`seconds` from now. With `max_total`, `extend()` may move it, never past that many seconds from the start."""

    __slots__ = ("_at", "_latest", "max_total", "seconds")

    def __init__(self, seconds: float, max_total: float | None = None) -> None:
        now = monotonic()
        self.seconds = seconds
        self.max_total = max_total
        self._latest = now + max_total if max_total is not None else None
        self._at = now + seconds if self._latest is None else min(now + seconds, self._latest)

    def left(self) -> float:
        """Seconds left for one wait: 0.0 when over, never more than `LONGEST_WAIT`."""
        left = self._at - monotonic()
        if left <= 0.0:
            return 0.0
        return left if left < LONGEST_WAIT else LONGEST_WAIT

    @property
    def over(self) -> bool:
        return self._at <= monotonic()

    def extend(self) -> None:
        """Progress arrived: the full time again from now, capped by `max_total`. Without `max_total` nothing moves."""
        if self._latest is not None:
            self._at = max(self._at, min(monotonic() + self.seconds, self._latest))

    @property
    def capped(self) -> bool:
        """True when it was `max_total`, not `seconds`, that set the end."""
        return self._latest is not None and self._at == self._latest and self._latest != inf

    def sub(self, seconds: float) -> Deadline:
        """A deadline inside this one: a probe, a notification, a drain. Its `seconds` are those of what ends first."""
        left = max(self._at - monotonic(), 0.0)
        inner = Deadline(min(seconds, left))
        inner.seconds = seconds if seconds <= left else self.seconds
        return inner


def timed_out(what: str, deadline: Deadline) -> McpError:
    """The error of a wait that lasted to the end of its deadline; `what` says what has not happened in that time."""
    if deadline.capped:
        return local_error(
            "max_total_timeout",
            f"{what} within the total limit of {deadline.max_total:g} s",
            data={"max_total_timeout": deadline.max_total},
        )
    return local_error("timeout", f"{what} within {deadline.seconds:g} s", data={"timeout": deadline.seconds})
