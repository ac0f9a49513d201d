"""Server-sent events out of a stream of bytes, with bounds on the size of an event (WHATWG HTML, "Server-sent events").

`sseclient` decodes the fields of an event, and only that: it is handed one complete, normalised event block at a
time. Which bytes make up a block is decided here (byte order mark, the three line ends, comments, broken UTF-8, an
unfinished block at the end), because there it has no bounds and errs on cut-off input. Neither reconnecting nor
what an event means is known here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    import sseclient

_BOM = b"\xef\xbb\xbf"
_COMMENT = ord(":")
# Above this size the decoder is not kept for the next event: its suspended frames hold several copies of the last.
_REUSE_BYTES = 65_536

# Fields that are there but do not count: the specification tells to ignore them, the decoder would take them.
_VOID_FIELD = re.compile(rb"id(?::.*)?\0.*|retry(?!: ?[0-9]{1,15}\Z).*", re.DOTALL)


class TooLarge(Exception):
    """An event went over a bound, and the stream is of no use any more. `events` are those complete before it that no
    call has returned yet."""

    def __init__(self, problem: str, events: list[Event]) -> None:
        super().__init__(problem)
        self.events = events


class Event:
    """One event: its *name* ("message" when it has none), its *data* (None when it had no data field), the *id* and
    the *retry* milliseconds it sets (None when it sets none), and *last_id*, the id in force after it."""

    __slots__ = ("data", "id", "last_id", "name", "retry")

    def __init__(self, name: str, data: str | None, id: str | None, retry: int | None, last_id: str) -> None:
        self.name = name
        self.data = data
        self.id = id
        self.retry = retry
        self.last_id = last_id


class EventStream:
    """The events of one response body, fed in pieces of any size.

    `max_event_bytes` bounds the lines of an event in sum, their ends not counted and comments only as long as each is
    read; `max_event_lines` bounds their number, comments apart. `comments` counts those: they are signs of life and
    no events. What is unfinished when the stream ends is no event either.
    """

    __slots__ = (
        "_at_start", "_block", "_decoded", "_last_id", "_lines", "_max_bytes", "_max_lines", "_partial", "_problem",
        "_size", "_skip_lf", "comments",
    )  # fmt: skip

    def __init__(self, max_event_bytes: int, max_event_lines: int = 1024) -> None:
        self._max_bytes = max_event_bytes
        self._max_lines = max_event_lines
        self._at_start: bytes | None = b""  # what may be the start of a byte order mark; None once that is settled
        self._skip_lf = False  # the last byte was a carriage return, and ended a line
        self._partial = bytearray()  # the line that has no end yet
        self._lines: list[bytes] = []  # the lines of the event that has no end yet
        self._size = 0  # the bytes in them
        self._last_id = ""
        self._block: list[bytes] = []  # the decoder takes its input from here
        self._decoded: Iterator[sseclient.Event] | None = None
        self._problem: str | None = None
        self.comments = 0

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that *chunk* completes.

        A block without data counts as an event when it sets an id or a retry time. Broken UTF-8 is replaced. Raises
        `TooLarge` once a bound is passed, and from then on.
        """
        if self._problem is not None:
            raise TooLarge(self._problem, [])
        lines = self._normalised(chunk).split(b"\n")
        rest = lines.pop()
        if lines and self._partial:
            self._partial += lines[0]
            lines[0] = bytes(self._partial)
            self._partial = bytearray()
        events: list[Event] = []
        lines.reverse()
        while lines:
            line = lines.pop()  # and not held by the list any more: it may be large
            if not line:
                if self._lines and (event := self._event()) is not None:
                    events.append(event)
            elif self._size + len(line) > self._max_bytes:
                self._fail(f"an event of more than {self._max_bytes} bytes", events)
            elif line[0] == _COMMENT:
                self.comments += 1
            elif len(self._lines) == self._max_lines:
                self._fail(f"an event of more than {self._max_lines} lines", events)
            else:
                self._size += len(line)
                self._lines.append(line)
        if rest:
            self._partial += rest
            if self._size + len(self._partial) > self._max_bytes:
                self._fail(f"an event of more than {self._max_bytes} bytes", events)
        return events

    def _normalised(self, chunk: bytes) -> bytes:
        """`chunk` with line feeds for its line ends, and without the byte order mark of the stream."""
        if self._at_start is not None:
            chunk = self._at_start + chunk
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._at_start = chunk
                return b""
            self._at_start = None
            chunk = chunk.removeprefix(_BOM)
        if self._skip_lf and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skip_lf = False
        if b"\r" in chunk:
            self._skip_lf = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk

    def _fail(self, problem: str, events: list[Event]) -> NoReturn:
        self._problem = problem
        self._partial = bytearray()
        self._lines = []
        self._decoded = None
        raise TooLarge(problem, events)

    def _event(self) -> Event | None:
        """What the collected lines say, which are let go."""
        lines, self._lines, self._size = self._lines, [], 0
        lines += (b"", b"")
        block = b"\n".join(lines)
        if b"retry" in block or b"\0" in block:
            block = b"\n".join([line for line in lines if not _VOID_FIELD.fullmatch(line)])
        del lines
        if not block.isascii():
            try:
                block.decode("utf-8")
            except UnicodeDecodeError:
                block = block.decode("utf-8", "replace").encode("utf-8")
        has_data = block.startswith((b"data:", b"data\n")) or b"\ndata:" in block or b"\ndata\n" in block
        # The decoder passes over blocks without data, and with them over what they set: one event for every block.
        decoded = self._decode(block if has_data else b"data\n" + block)
        if not has_data and decoded.id is None and decoded.retry is None:
            return None
        if decoded.id is not None:
            self._last_id = decoded.id
        return Event(
            decoded.event,
            decoded.data if has_data else None,
            decoded.id,
            None if decoded.retry is None else int(decoded.retry),
            self._last_id,
        )

    def _decode(self, block: bytes) -> sseclient.Event:
        if self._decoded is None:
            from sseclient import SSEClient

            self._decoded = SSEClient(iter(self._block.pop, None)).events()
        self._block.append(block)
        event = next(self._decoded)
        if len(block) > _REUSE_BYTES:
            self._decoded = None
        return event
