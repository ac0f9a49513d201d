"""Newline-delimited messages out of a stream of bytes, with a bound on the length of a line.

Lines end at a line feed and nowhere else: text in JSON may hold every other character that some call a line end
(spec: basic/transports/stdio). Time and memory are linear in what is fed, however it is cut. No I/O and no parsing
happen here, except for the peek that tells whose answer an overlong line was.
"""

from __future__ import annotations

import re

PREFIX_BYTES = 65_536


class TooLong:
    """Stands for a line longer than allowed. `prefix` is its beginning: 64 KiB, or the allowed length if less."""

    __slots__ = ("prefix",)

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix


class Lines:
    """Splits what it is fed into lines of at most *max_bytes* bytes, line ends (LF, CRLF) not counted."""

    __slots__ = ("_discarding", "_max", "_pending")

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._pending = bytearray()  # grows in place, whereas many small pieces in a list weigh more than their bytes
        self._discarding = False

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """The lines that *chunk* completes, without their ends. A line that grows too long comes as one `TooLong` at
        once; the rest of it is skipped and not kept."""
        end = chunk.find(b"\n")
        if end == len(chunk) - 1 and 0 <= end <= self._max and not self._pending and not self._discarding:
            return [chunk[: end - 1 if chunk.endswith(b"\r\n") else end]]
        lines: list[bytes | TooLong] = []
        start = 0
        while end >= 0:
            if self._discarding:
                self._discarding = False
            elif self._pending:
                self._pending += memoryview(chunk)[start:end]
                lines.append(self._checked(self._pending))
                self._pending = bytearray()
            else:
                lines.append(self._checked(chunk[start:end]))
            start = end + 1
            end = chunk.find(b"\n", start)
        if not self._discarding and start < len(chunk):
            self._pending += memoryview(chunk)[start:]
            # A carriage return in last place may turn out to be half of the line's end.
            size = len(self._pending)
            if size > self._max and not (size == self._max + 1 and self._pending.endswith(b"\r")):
                lines.append(self._too_long(self._pending))
                self._pending = bytearray()
                self._discarding = True
        return lines

    def finish(self) -> list[bytes | TooLong]:
        """The last line, if the stream ended without a line end."""
        pending, self._pending = self._pending, bytearray()
        return [self._checked(pending)] if pending else []

    def _checked(self, line: bytes | bytearray) -> bytes | TooLong:
        size = len(line) - line.endswith(b"\r")
        return bytes(line[:size]) if size <= self._max else self._too_long(line)

    def _too_long(self, line: bytes | bytearray) -> TooLong:
        return TooLong(bytes(line[: min(self._max, PREFIX_BYTES)]))


# How servers usually write a response: the id in front, or at the very end. In a line that is JSON neither can match
# inside a string or a nested object.
_ID_IN_FRONT = re.compile(rb'\{"jsonrpc":"2\.0","id":([1-9][0-9]{0,17}),"(?:result|error)":')
_ID_AT_THE_END = re.compile(rb',"jsonrpc":"2\.0","id":([1-9][0-9]{0,17})\}\Z')


def response_id(line: bytes) -> int | None:
    """The id of a response written the usual way, told without decoding it. None for everything else."""
    match = _ID_IN_FRONT.match(line)
    if match is None and line.startswith((b'{"result":', b'{"error":')):  # a request may end like that as well
        match = _ID_AT_THE_END.search(line, max(0, len(line) - 64))
    return int(match[1]) if match else None


def request_id_in(prefix: bytes) -> int | None:
    """The id of the response that starts with *prefix*, when it stands before `result` or `error` and only plain
    values come before those; None when it cannot be told, and for anything that is no response with an integer id.
    """
    import json

    space = rb"[ \t\r\n]*+"
    string = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
    plain = re.compile(rb"%b(%b)%b:%b(%b|[a-z0-9+.E-]++)%b," % (space, string, space, space, string, space), re.DOTALL)
    outcome = re.compile(rb'%b"(?:result|error)"%b:' % (space, space))

    found: bytes | None = None
    at = re.match(rb"(?:\xef\xbb\xbf)?%b{?" % space, prefix).end()  # type: ignore[union-attr]
    if not prefix[:at].endswith(b"{"):
        return None
    while member := plain.match(prefix, at):
        at = member.end()
        try:
            key = json.loads(member[1])
        except ValueError:
            return None
        if key == "method":
            return None
        if key == "id":
            found = member[2]
    if found is None or not outcome.match(prefix, at) or not re.fullmatch(rb"-?(?:0|[1-9][0-9]{0,18})", found):
        return None
    return int(found)
