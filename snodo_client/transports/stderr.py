"""What a server says on stderr: passed on line by line, and its end kept for the error that tells why it died.

Bounded whatever it writes. Programs that fail like to print their configuration, so what looks like a secret of the
environment they were given is masked wherever this library shows their words. Reading the pipe is not done here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import log
from ..masking import Masking
from .lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .lines import TooLong

SECRET_WORDS = ("token", "key", "secret", "pass", "cred", "auth")
SHORTEST_SECRET = 8

LINE_BYTES = 65_536
TAIL_BYTES = 8192
EXCERPT_CHARACTERS = 2048  # shown in an error


class Stderr:
    """Takes what a server writes: each line goes to `sink`, as text, or to the log; the last ones are kept.

    Lines longer than 64 KiB are cut. Values of `env` whose names speak of a secret are masked in the log and the error.
    """

    __slots__ = ("_complained", "_lines", "_masking", "_name", "_sink", "_tail", "_truncated")

    def __init__(self, env: Mapping[str, str], sink: Callable[[str], object] | None, name: str) -> None:
        secret = (value for key, value in env.items() if any(word in key.lower() for word in SECRET_WORDS))
        self._masking = Masking(secret, SHORTEST_SECRET)
        self._lines = Lines(LINE_BYTES)
        self._sink = sink
        self._name = name
        self._complained = False
        self._tail = b""
        self._truncated = False

    def feed(self, chunk: bytes) -> None:
        self._truncated = self._truncated or len(self._tail) + len(chunk) > TAIL_BYTES
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        for line in self._lines.feed(chunk):
            self._say(line)

    def finish(self) -> None:
        """The last line, when it has no end."""
        for line in self._lines.finish():
            self._say(line)

    def tail(self) -> str:
        """The last lines, fit to be shown."""
        text = self._masking(_text(self._tail))
        if self._truncated:
            text = text[self._masking.longest :]  # the beginning may be the end of a secret
        text = text[-EXCERPT_CHARACTERS:].strip()
        return "".join(c for c in text if c.isprintable() or c in "\n\t")

    def _say(self, line: bytes | TooLong) -> None:
        text = _text(line if isinstance(line, bytes) else line.prefix)
        if not isinstance(line, bytes):
            text = text[: len(text) - self._masking.longest]  # the cut may have gone through a secret
        try:
            if self._sink is not None:
                self._sink(text)
            elif log.says_info("stdio"):
                log.info("stdio", "%s: %s", self._name, self._masking(text))
        except Exception:
            if not self._complained:
                self._complained = True
                log.logger("stdio").exception("%s: the stderr callback raised; this is said once", self._name)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
