"""Secrets that are unmistakable, a world of authorization that issues them and repeats what it was sent, and a search
for them, or for a part of one, in whatever a program can show.
"""

from __future__ import annotations

import html
import json
import logging
import pickle
import re
import traceback
import warnings
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from secrets import token_urlsafe
from typing import Any
from urllib.parse import parse_qs, quote, quote_plus, unquote_plus, urlsplit

from snodo_client.testing.http_handler import HttpHandler
from support.oauth_issuer import Answer, Issuer
from support.oauth_server import OAuthWorld, Seen

PART = 12  # characters in a row that give a secret away; with fewer, texts would have them by chance

# Each once in every secret that may have them: what JSON, HTML, URLs and forms spell in ways of their own.
_TOKEN = "/+=~%."
_TEXT = _TOKEN + "&\"<'>\\ "
_MADE_OF = {"access_token": _TOKEN, "id_jag": _TOKEN, "id_token": _TOKEN, "assertion": _TOKEN}
_SECRET_FIELDS = (
    "assertion",
    "client_assertion",
    "client_secret",
    "code",
    "code_verifier",
    "refresh_token",
    "subject_token",
)
_SIGNED = ("proof", "client_assertion")


class Canaries:
    """The secrets of a test, by value, with what each is and whose."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def new(self, kind: str) -> str:
        specials = _MADE_OF.get(kind, _TEXT)
        return self.add("".join(f"{token_urlsafe(6)}{special}" for special in specials) + token_urlsafe(6), kind)

    def add(self, value: str, kind: str) -> str:
        self.known.setdefault(value, kind)
        return value

    def of(self, *kinds: str) -> list[str]:
        """Those of these kinds. A secret that was sent in another place keeps the kind it was made as."""
        return [value for value, kind in self.known.items() if kind in kinds]

    def found(self, text: str, *, allowed: Iterable[str] = ()) -> list[str]:
        """The kinds of the secrets of which a part is in the text, in any spelling."""
        shown = {text[start : start + PART] for start in range(len(text) - PART + 1)}
        return sorted(
            f"{kind}: {part}"
            for value, kind in self.known.items()
            if kind not in allowed
            for part in _parts(value) & shown
        )


@lru_cache(1024)
def _parts(value: str) -> set[str]:
    parts: set[str] = set()
    for line in value.splitlines():
        for spelled in {
            line,
            quote(line),
            quote(line, safe=""),
            quote_plus(line),
            json.dumps(line)[1:-1],
            html.escape(line),
            *_base64(line),
        }:
            parts.update(spelled[start : start + PART] for start in range(len(spelled) - PART + 1))
    return parts


def _base64(text: str) -> Iterator[str]:
    """As in Basic credentials: at each place in a group of three, without what depends on what is around it."""
    for before in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(b"\0" * before + text.encode()).decode().rstrip("=")[4 if before else 0 : -1]


class EchoWorld(OAuthWorld):
    """A world whose secrets are canaries. `spoil` says by route what becomes of an answer, after the request was dealt
    with: it is called with the request and its proper answer, which is None for what the MCP server may see, and gives
    what is sent. Only requests with secrets are spoiled.
    """

    def __init__(self, canaries: Canaries, **options: Any) -> None:
        super().__init__(**options)
        self.canaries = canaries
        self.mint = canaries.new
        self.spoil: dict[str, Callable[[Seen, Answer | None], Answer | None]] = {}
        self.spoiled = 0

    def _answer(self, seen: Seen, issuer: Issuer | None) -> Answer | None:
        secret = self._learn(seen)
        answer = super()._answer(seen, issuer)
        if seen.route == "register" and answer is not None and answer.status == 201:
            said = {**json.loads(answer.body), "registration_access_token": self.mint("registration_access_token")}
            answer = Answer(201, said)
        if seen.route == "token" and answer is not None and answer.status == 200:
            answer = Answer(200, {**json.loads(answer.body), "id_token": self.mint("id_token")}, answer.headers)
        spoil = self.spoil.get(seen.route)
        if spoil is None or not (secret or seen.route in ("register", "resource_metadata", "server_metadata")):
            return answer
        self.spoiled += 1
        return spoil(seen, answer)

    def _learn(self, seen: Seen) -> bool:
        """Take in the secrets of a request, also those that the client made; whether it has any."""
        found = [(name, value) for name, value in seen.form.items() if name in _SECRET_FIELDS]
        scheme, _, credential = seen.headers.get("authorization", "").partition(" ")
        if scheme:
            found.append(("credential", credential))
        if scheme == "Basic":
            password = b64decode(credential).decode().partition(":")[2]
            found += [("client_secret", password), ("client_secret", unquote_plus(password))]
        if "dpop" in seen.headers:
            found.append(("proof", seen.headers["dpop"]))
        # Of what is signed only the signature is a secret: the rest is much the same in all of them.
        found = [(name, value.rpartition(".")[2] if name in _SIGNED else value) for name, value in found]
        if seen.route == "authorize":
            self.canaries.add(seen.query["state"], "state")
        for name, value in found:
            self.canaries.add(value, name)
        return bool(found)

    def _send(self, handler: HttpHandler, answer: Answer, drip: float) -> None:
        super()._send(handler, answer, drip)
        if "Content-Length" in answer.headers:  # more than there is: the answer is cut off
            handler.close_connection = True


# --- what a server may do with what it was sent -----------------------------------------------------------------------


def sent(seen: Seen) -> str:
    """All of a request, as the pages of debuggers show it: as it came, and decoded."""
    head = "\n".join(f"{name}: {value}" for name, value in seen.headers.items())
    basic = seen.headers.get("authorization", "")
    decoded = b64decode(basic[6:]).decode() if basic.startswith("Basic ") else ""
    form = "\n".join(f"{name} is {value}" for name, value in seen.form.items())
    return f"{decoded}\n{form}\n{seen.body.decode()}\n{head}\n{seen.url}"


def as_json(status: int, **headers: str) -> Callable[[Seen, Answer | None], Answer]:
    return lambda seen, _: Answer(
        status, {"error": "invalid_request", "error_description": sent(seen), "detail": sent(seen)}, headers
    )


def as_other_json(status: int) -> Callable[[Seen, Answer | None], Answer]:
    """What is shown is an excerpt of the text, with the escapes of JSON in it."""
    return lambda seen, _: Answer(status, {"detail": [sent(seen)]})


def as_error(status: int) -> Callable[[Seen, Answer | None], Answer]:
    return lambda seen, _: Answer(status, {"error": sent(seen)})


def as_html(status: int) -> Callable[[Seen, Answer | None], Answer]:
    return lambda seen, _: Answer(
        status, f"<pre>{html.escape(sent(seen))}</pre>".encode(), {"Content-Type": "text/html"}
    )


def as_text(status: int) -> Callable[[Seen, Answer | None], Answer]:
    """Over and over, so that what is masked makes room for more."""
    return lambda seen, _: Answer(status, (sent(seen) + "\n").encode() * 40, {"Content-Type": "text/plain"})


def each(status: int) -> Callable[[Seen, Answer | None], Answer]:
    """Each secret alone, many times without anything in between: an excerpt that is cut first ends within one."""

    def answer(seen: Seen, _: Answer | None) -> Answer:
        values = [value for name, value in seen.form.items() if name in _SECRET_FIELDS]
        values += [seen.headers[name].partition(" ")[2] or seen.headers[name] for name in seen.headers if name in _HEAD]
        return Answer(status, "\n".join(value * 60 for value in values).encode(), {"Content-Type": "text/plain"})

    return answer


_HEAD = ("authorization", "dpop")


def cut_off(status: int) -> Callable[[Seen, Answer | None], Answer]:
    """The connection ends within a secret."""

    def answer(seen: Seen, _: Answer | None) -> Answer:
        values = [value for name, value in seen.form.items() if name in _SECRET_FIELDS]
        values += [seen.headers[name].partition(" ")[2] or seen.headers[name] for name in seen.headers if name in _HEAD]
        body = f"you sent {values[0][: len(values[0]) // 2]}".encode()
        return Answer(status, body, {"Content-Type": "text/plain", "Content-Length": str(len(body) + 100)})

    return answer


def to_elsewhere(seen: Seen, _: Answer | None) -> Answer:
    target = f"{seen.server}/elsewhere?{quote(sent(seen))}"
    return Answer(307, sent(seen).encode(), {"Location": target})


def to_another_origin(seen: Seen, _: Answer | None) -> Answer:
    return Answer(302, sent(seen).encode(), {"Location": f"http://127.0.0.2:1/{quote(sent(seen), safe='')}"})


def in_challenges(seen: Seen, _: Answer | None) -> Answer:
    text = re.sub(r"[\r\n]+", " ", sent(seen)).replace("\\", "\\\\").replace('"', '\\"')
    challenge = f'Bearer error="invalid_token", error_description="{text}"'
    return Answer(401, b"no", {"WWW-Authenticate": challenge, "X-Echo": re.sub(r"[\r\n]+", " ", sent(seen))})


def half(_: Seen, answer: Answer | None) -> Answer:
    """The proper answer, cut off."""
    body = b"nothing" if answer is None else answer.body
    return Answer(200, body[: len(body) // 2], {"Content-Type": "application/json"})


def with_status(status: int) -> Callable[[Seen, Answer | None], Answer]:
    """The proper answer, with a status that says otherwise."""
    return lambda _, answer: Answer(status, b"{}" if answer is None else answer.body)


def otherwise(**members: Any) -> Callable[[Seen, Answer | None], Answer]:
    """The proper answer with these members; None removes."""

    def answered(_: Seen, answer: Answer | None) -> Answer:
        said = {} if answer is None else {**json.loads(answer.body), **members}
        return Answer(200, {name: value for name, value in said.items() if value is not None})

    return answered


def within(_: Seen, answer: Answer | None) -> Answer:
    """The proper answer within another, as a gateway has it."""
    return Answer(200, [{"result": "" if answer is None else answer.body.decode()}])


# --- what a program can show ------------------------------------------------------------------------------------------


def shown(value: object) -> str:
    """All that printing, logging, pickling or walking about in a value can bring out. Not what an outcome is for: the
    values of `Ok`.
    """
    parts = [repr(value), str(value), f"{value}"]
    if isinstance(value, BaseException):
        parts += traceback.format_exception(value)
        for error in _chain(value):
            parts += [repr(error), str(error), repr(error.args), repr(vars(error))]
            parts += map(repr, getattr(error, "__notes__", ()))
            try:
                parts.append(pickle.dumps(error).decode("latin-1"))
            except (TypeError, AttributeError, pickle.PicklingError):
                parts.append("not for pickle")
    return "\n".join(parts)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error with all that Python keeps with it, hidden or not, and the causes it names."""
    known: list[BaseException] = []
    waiting: list[object] = [error]
    while waiting:
        found = waiting.pop()
        if isinstance(found, BaseException) and not any(found is one for one in known):
            known.append(found)
            yield found
            waiting += [found.__cause__, found.__context__, getattr(found, "cause", None), *found.args]


class Heard(logging.Handler):
    """All that is logged, by anybody, with the exceptions."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += [self.format(record), repr(record.args)]


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collects what is logged by every logger at DEBUG, and what is warned of."""
    heard, root = Heard(), logging.getLogger()
    before = root.level
    root.addHandler(heard)
    root.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield heard.lines
            heard.lines += [str(one) for one in warned]
    finally:
        root.removeHandler(heard)
        root.setLevel(before)


def parameters(url: str) -> dict[str, str]:
    """The query of an address; each once."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
