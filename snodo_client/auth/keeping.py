"""What is kept in a token store, and under which keys. The store may be anybody's: it may raise anything, and what it
says may be a secret.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeVar

from .. import log
from ..engine.deadline import timed_out
from ..fingerprint import fingerprint
from ..outcome import McpError
from ..protocol import jsonrpc
from .clients import ClientIdentity
from .faults import failed
from .records import Credential

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from ..protocol.origins import Endpoint
    from .errand import Errand
    from .stores import TokenStore

T = TypeVar("T")


class Kept:
    """The credential for one server, of the client that `who` names, and the registrations. All raise McpError."""

    def __init__(self, store: TokenStore, server: Endpoint, who: str) -> None:
        self._store = store
        self._name = server.name
        query = f" {fingerprint(server.query).hex()[:16]}" if server.query else ""
        self._key = f"token {server.name}{query} {who}"

    def credential(self) -> Credential | None:
        text = self._text(self._key)
        return None if text is None else Credential.of(text)

    def keep(self, credential: Credential) -> None:
        self._asked("written", lambda: self._store.set(self._key, credential.text()))

    def forget(self) -> None:
        self._asked("written", lambda: self._store.delete(self._key))

    def registration(self, issuer: str) -> ClientIdentity | None:
        """The client that was registered with an authorization server."""
        text = self._text(_registration(issuer))
        try:
            return None if text is None else ClientIdentity.from_dict(jsonrpc.decode(text.encode()))
        except ValueError:
            return None

    def register(self, issuer: str, client: ClientIdentity) -> None:
        text = jsonrpc.encode(client.to_dict()).decode()
        self._asked("written", lambda: self._store.set(_registration(issuer), text))

    def unregister(self, issuer: str, client: ClientIdentity | None) -> None:
        """An authorization server does not know this client any more: the next sign-in registers another."""
        if client is not None and client.source == "registered":
            self._asked("written", lambda: self._store.delete(_registration(issuer)))

    def issuer_of(self, client_id: str) -> str | None:
        """The authorization server where a client of the caller's was first used."""
        return self._text(f"issuer of {client_id}")

    def bind(self, client_id: str, issuer: str) -> None:
        self._asked("written", lambda: self._store.set(f"issuer of {client_id}", issuer))

    def locked(self, errand: Errand) -> AbstractContextManager[object]:
        """While nobody else gets a credential for the server, as far as the store can tell."""
        lock = getattr(self._store, "lock", None)
        if lock is None:
            return nullcontext()

        def wait() -> float:
            if not errand.deadline.over:  # else it is told what was waited for
                errand.check()
            return errand.deadline.left() if errand.patient else 0.0

        return _Locked(self._asked("locked", lambda: lock(self._key, wait)), self, errand)

    def _text(self, key: str) -> str | None:
        text: object = self._asked("read", lambda: self._store.get(key))
        if text is None or isinstance(text, str):
            return text
        store = type(self._store).__name__  # a client of Redis that does not decode, say
        raise failed("store", f"the token store {store} gave {type(text).__name__} in place of text")

    def _asked(self, what: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except McpError:
            raise
        except Exception as raised:
            problem = type(raised).__name__
        raise failed("store", f"the token store {type(self._store).__name__} could not be {what}: {problem}")


class _Locked:
    def __init__(self, lock: AbstractContextManager[object], kept: Kept, errand: Errand) -> None:
        self._lock = lock
        self._kept = kept
        self._errand = errand

    def __enter__(self) -> None:
        if not self._kept._asked("locked", self._taken):
            what = f"another process did not finish signing in to {self._kept._name}"
            raise timed_out(what, self._errand.deadline)

    def __exit__(self, *fault: object) -> None:
        try:
            self._lock.__exit__(*fault)  # type: ignore[arg-type]
        except Exception as raised:  # no reason to lose what was got meanwhile
            log.info("auth", "a lock of a token store could not be released: %s", type(raised).__name__)

    def _taken(self) -> bool:
        try:
            self._lock.__enter__()
        except TimeoutError:
            return False
        return True


def _registration(issuer: str) -> str:
    return f"client {issuer}"
