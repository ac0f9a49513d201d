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
    """`seconds` from now, the limit an option called `name` sets. With `max_total`, `extend()` may move it, never past
    that many seconds from the start.
    """

    __slots__ = ("_at", "_latest", "_of", "_pauses", "max_total", "name", "seconds")

    def __init__(self, seconds: float, max_total: float | None = None, name: str = "timeout") -> None:
        now = monotonic()
        self.seconds = seconds
        self.max_total = max_total
        self.name = name
        self._of: Deadline | None = None  # the one this is inside of
        self._pauses = 0
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

    def sub(self, seconds: float, name: str | None = None) -> Deadline:
        """A deadline inside this one: a probe, a notification, a drain. It is called after whichever ends first."""
        left = max(self._at - monotonic(), 0.0)
        if seconds <= left:
            inner = Deadline(seconds, name=name or self.name)
        else:
            inner = Deadline(left, name=self.name)
            inner.seconds = self.seconds
        inner._of = self
        return inner

    @property
    def paused(self) -> bool:
        """Whether a person is waited for, whose time does not count."""
        return self._pauses > 0

    def pause(self, seconds: float) -> Pause:
        """For `with`: a person does something, for at most so many seconds, which count neither here nor in the
        deadlines this one is inside of.
        """
        return Pause(self, seconds)

    def move(self, seconds: float) -> None:
        """Put the end off by so many seconds, whatever the limits say."""
        self._at += seconds
        if self._latest is not None:
            self._latest += seconds


class Pause:
    """The time of a person. The end is put off by all of it at first, so that who waits for it need not be told."""

    __slots__ = ("_deadlines", "_seconds", "_since")

    def __init__(self, deadline: Deadline, seconds: float) -> None:
        self._deadlines = [deadline]
        while (outer := self._deadlines[-1]._of) is not None:
            self._deadlines.append(outer)
        self._seconds = min(seconds, LONGEST_WAIT)
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = monotonic()
        for deadline in self._deadlines:
            deadline._pauses += 1
            deadline.move(self._seconds)

    def __exit__(self, *_: object) -> None:
        unused = self._seconds - (monotonic() - self._since)
        for deadline in self._deadlines:
            deadline._pauses -= 1
            deadline.move(-max(unused, 0.0))


class Following:
    """For who waits for another, in a loop: while a person is waited for there, one's own deadline is paused, too."""

    __slots__ = ("_deadline", "_other", "_pause")

    def __init__(self, deadline: Deadline, other: Deadline) -> None:
        self._deadline = deadline
        self._other = other
        self._pause: Pause | None = None

    def look(self) -> None:
        if not self._other.paused:
            self.end()
        elif self._pause is None:
            self._pause = self._deadline.pause(self._other.left())
            self._pause.__enter__()

    def end(self) -> None:
        pause, self._pause = self._pause, None
        if pause is not None:
            pause.__exit__()


def timed_out(what: str, deadline: Deadline) -> McpError:
    """The error of a wait that lasted to the end of its deadline; `what` says what has not happened in that time."""
    if deadline.capped:
        return local_error(
            "max_total_timeout",
            f"{what} within max_total_timeout={deadline.max_total:g} s",
            data={"max_total_timeout": deadline.max_total},
        )
    return local_error(
        "timeout", f"{what} within {deadline.name}={deadline.seconds:g} s", data={"timeout": deadline.seconds}
    )
