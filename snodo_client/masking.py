"""Hiding secrets in text that others wrote: servers echo what they were sent, and print how they were configured.

A secret is found in any case, line by line, and as JSON, HTML or a URL would spell it. What is shorter than `SHORTEST`
characters is no secret: it would be found in any text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SHORTEST = 4
MASK = "***"
EXCERPT = 300  # characters of a text that a server sent, in an error

_USERINFO = re.compile(r"(?<=://)\S{1,500}@")  # up to the last @: a password may hold one, or a slash


class Masking:
    """Masks the given secrets, and the user and password in any URL."""

    __slots__ = ("_parts", "_pattern", "longest")

    def __init__(self, secrets: Iterable[str], shortest: int = SHORTEST) -> None:
        spelled = {spelling for secret in secrets for spelling in _spellings(secret) if len(spelling) >= shortest}
        parts = sorted(spelled, key=len, reverse=True)  # one may be part of another
        self.longest = len(parts[0]) if parts else 0
        self._parts = parts
        self._pattern = re.compile("|".join(map(re.escape, parts)), re.IGNORECASE) if parts else None

    def __call__(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        return _USERINFO.sub(MASK + "@", text) if "://" in text else text

    def cut(self, text: str) -> str:
        """Masks text that may end anywhere: also what a secret begins with, at the end."""
        masked = self(text)
        for part in self._parts:
            start = masked.find(part[:SHORTEST], max(0, len(masked) - len(part)))
            while start >= 0:
                if part.startswith(masked[start:]):
                    return masked[:start] + MASK
                start = masked.find(part[:SHORTEST], start + 1)
        return masked


def plain(text: object, masking: Masking, limit: int = EXCERPT) -> str:
    """Text of a server, or of the system, on one line: bounded, without control characters, secrets masked."""
    if isinstance(text, OSError) and text.strerror:
        text = text.strerror
    shown = masking.cut(str(text))  # all of it: in text that was cut first there is the begin of a secret at the end
    shown = re.sub(r"\s+", " ", shown[: 4 * limit]).strip()
    shown = printable(shown)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def printable(text: str) -> str:
    """The text without what a terminal would obey, or what turns its direction."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _spellings(secret: str) -> Iterable[str]:
    from html import escape
    from json import dumps
    from urllib.parse import quote, quote_plus, unquote

    for line in secret.splitlines():
        line = line.strip()
        yield from (line, dumps(line)[1:-1], line.replace("/", "\\/"))
        yield from (quote(line), quote(line, safe=""), quote_plus(line), unquote(line))
        page = escape(line)  # what writes pages has two ways with quotes, or leaves them
        yield from (page, page.replace("&quot;", "&#34;").replace("&#x27;", "&#39;"), escape(line, quote=False))


def of_headers(headers: Iterable[tuple[str, str]]) -> Iterable[str]:
    """The secrets in header values: each whole, without the scheme of a credential, and its parts: cookies one by one,
    and the user and password of Basic credentials.
    """
    from binascii import Error, a2b_base64

    for name, value in headers:
        scheme, _, credential = value.partition(" ")
        yield from (value, credential)
        if name.lower() == "cookie":
            yield from (part.partition("=")[2] for part in value.split(";"))
        if scheme.lower() == "basic":
            try:
                user, _, password = a2b_base64(credential).decode("utf-8", "replace").partition(":")
            except Error:
                continue
            yield from (f"{user}:{password}", password)


def of_query(query: str) -> Iterable[str]:
    """The secrets in the query of a URL: every value, and the whole."""
    from urllib.parse import parse_qsl

    yield query
    yield from (value for _, value in parse_qsl(query))
    yield from (part.partition("=")[2] or part for part in query.split("&"))


def of_userinfo(url: str) -> Iterable[str]:
    """The secrets in a URL with a user and password, such as a proxy's: as written, and as the header they become."""
    from binascii import b2a_base64
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url if "://" in url else f"//{url}")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if user or password:
        yield from (password, f"{user}:{password}", b2a_base64(f"{user}:{password}".encode(), newline=False).decode())
