"""Hiding secrets in text that others wrote: servers echo what they were sent, and print how they were configured.

A secret is found in any case, line by line, and as JSON or a URL would spell it. What is shorter than `SHORTEST`
characters is no secret: it would be found in any text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SHORTEST = 4
MASK = "***"

_USERINFO = re.compile(r"(?<=://)\S{1,500}@")  # up to the last @: a password may hold one, or a slash


class Masking:
    """Masks the given secrets, and the user and password in any URL."""

    __slots__ = ("_pattern", "longest")

    def __init__(self, secrets: Iterable[str], shortest: int = SHORTEST) -> None:
        spelled = {spelling for secret in secrets for spelling in _spellings(secret) if len(spelling) >= shortest}
        parts = sorted(spelled, key=len, reverse=True)  # one may be part of another
        self.longest = len(parts[0]) if parts else 0
        self._pattern = re.compile("|".join(map(re.escape, parts)), re.IGNORECASE) if parts else None

    def __call__(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        return _USERINFO.sub(MASK + "@", text) if "://" in text else text


def _spellings(secret: str) -> Iterable[str]:
    from json import dumps
    from urllib.parse import quote, unquote

    for line in secret.splitlines():
        line = line.strip()
        yield from (line, dumps(line)[1:-1], line.replace("/", "\\/"), quote(line), quote(line, safe=""), unquote(line))


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
