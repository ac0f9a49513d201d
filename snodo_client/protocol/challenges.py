"""What a server asks for in `WWW-Authenticate`: every challenge of every header line (RFC 9110, section 11.6.1).

Lines may be repeated or joined, and hold several schemes, so a comma ends a parameter or a challenge. The parser is
lenient where that cannot change a value (a missing comma, an empty element) and stops a line at anything else, keeping
what was whole before it. It never raises, and its time is linear: each pattern is possessive, none goes back.
What the values mean is decided elsewhere; they are text of a server, and may echo what it was sent. (What requests and
the standard library have for it knows one challenge in one line.)
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_LINES = 16
MAX_LINE = 8192  # characters; a longer line is left out whole, since a cut would make other values of its last ones
MAX_CHALLENGES = 32
MAX_PARAMETERS = 32  # of one challenge; the first ones are kept

_TELLING = {"error", "resource_metadata", "scope"}

_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]++"
_TEXT = r"[^\x00-\x08\x0a-\x1f\x7f"  # what a quoted string may hold
_ENDS = r"(?=[ \t,]|\Z)"

_SCHEME = re.compile(rf"[ \t,]*+({_TOKEN}){_ENDS}(?![ \t]*+=)")
# Between scheme and comma, like parameters; "realm=" is one as well, since its padding is written the same way.
_TOKEN68 = re.compile(r"[ \t]++[A-Za-z0-9._~+/-]++=*+(?=[ \t]*+(?:,|\Z))")
_PARAMETER = re.compile(rf'[ \t,]*+({_TOKEN})[ \t]*+=[ \t]*+(?:({_TOKEN})|"((?:{_TEXT}"\\]|\\{_TEXT}])*+)"){_ENDS}')
_ESCAPED = re.compile(r"\\(.)")


class Challenge:
    """One challenge: its `scheme` and its `parameters`, the names in lower case; of a repeated parameter the first
    counts. A scheme with a token in place of parameters (`Negotiate abc=`) has none.
    """

    __slots__ = ("parameters", "scheme")

    def __init__(self, scheme: str, parameters: dict[str, str]) -> None:
        self.scheme = scheme
        self.parameters = parameters

    @property
    def error(self) -> str | None:
        return self.parameters.get("error")

    @property
    def error_description(self) -> str | None:
        return self.parameters.get("error_description")

    @property
    def scope(self) -> tuple[str, ...] | None:
        """The scopes in order, each once; None also for a text without any."""
        return tuple(dict.fromkeys(filter(None, self.parameters.get("scope", "").split(" ")))) or None

    @property
    def resource_metadata(self) -> str | None:
        """Where the metadata of the server is, as it says: a URL that nobody has looked at (RFC 9728, section 5.1)."""
        return self.parameters.get("resource_metadata")

    def __repr__(self) -> str:
        return f"<Challenge {self.scheme}: {', '.join(self.parameters)}>"


def challenges(values: Iterable[str]) -> list[Challenge]:
    """The challenges of an answer, in order. Each of `values` is one header line, or several joined by commas."""
    lines = (line for line in islice(values, MAX_LINES) if len(line) <= MAX_LINE)
    return list(islice((challenge for line in lines for challenge in _of_line(line)), MAX_CHALLENGES))


def chosen(found: Sequence[Challenge]) -> Challenge | None:
    """The challenge to answer: the first for a token (Bearer or DPoP) that says something, else the first for one.

    (spec: basic/authorization)
    """
    fitting = [challenge for challenge in found if challenge.scheme in ("bearer", "dpop")]
    telling = (challenge for challenge in fitting if challenge.parameters.keys() & _TELLING)
    return next(telling, fitting[0] if fitting else None)


def _of_line(line: str) -> Iterator[Challenge]:
    position = 0
    while scheme := _SCHEME.match(line, position):
        challenge = Challenge(scheme[1].lower(), {})
        position = scheme.end()
        if token := _TOKEN68.match(line, position):
            position = token.end()
        else:
            while parameter := _PARAMETER.match(line, position):
                name, plain, quoted = parameter.groups()
                if len(challenge.parameters) < MAX_PARAMETERS:
                    value = plain if plain is not None else _ESCAPED.sub(r"\1", quoted)
                    challenge.parameters.setdefault(name.lower(), value)
                position = parameter.end()
        yield challenge
