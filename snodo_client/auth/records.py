"""What outlives a call: the credential that a sign-in gave, and a sign-in that a person is still busy with. Both are
JSON for somebody else to keep, and secret as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol import jsonrpc
from .clients import LATEST

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LEEWAY = 30.0  # seconds before its end from which a token is renewed, or the last quarter of a short life
TIMES = ("begun_at", "expires_at", "renew_at")
SIGN_IN_SECONDS = 600.0  # how long a sign-in that was begun may be finished


class Credential:
    """An access token with what belongs to it: who issued it to which client, for what, and how to renew it.

    `requested` are all scopes that were asked for; `expires_at` is in seconds since 1970, and so is `renew_at`, from
    when on it is better to have another. `at_origin`: the server is its own authorization server, as in 2025-03-26.
    """

    __slots__ = (
        "access_token",
        "at_origin",
        "client_id",
        "dpop_key",
        "expires_at",
        "issuer",
        "refresh_token",
        "renew_at",
        "requested",
        "resource",
        "scope",
    )

    def __init__(
        self,
        access_token: str,
        *,
        issuer: str,
        client_id: str | None = None,
        resource: str | None = None,
        expires_at: float | None = None,
        renew_at: float | None = None,
        refresh_token: str | None = None,
        scope: str | None = None,
        requested: tuple[str, ...] = (),
        dpop_key: str | None = None,
        at_origin: bool = False,
    ) -> None:
        self.access_token = access_token
        self.issuer = issuer
        self.client_id = client_id
        self.resource = resource
        self.expires_at = expires_at
        self.renew_at = renew_at
        self.refresh_token = refresh_token
        self.scope = scope
        self.requested = requested
        self.dpop_key = dpop_key
        self.at_origin = at_origin

    def expires(self, now: float) -> bool:
        """Whether it is to be renewed at `now`."""
        at = self.expires_at if self.renew_at is None else self.renew_at
        return at is not None and at <= now

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def text(self) -> str:
        return _text(self, requested=list(self.requested))

    @classmethod
    def of(cls, text: str) -> Credential | None:
        """The credential of a text; None for any other text."""
        value = _object(text, {"access_token": str, "issuer": str}, cls.__slots__)
        if value is None or not isinstance(value.get("requested"), list):
            return None
        value["requested"] = tuple(map(str, value["requested"]))
        return cls(**value)

    def __repr__(self) -> str:
        return f"<Credential by {self.issuer}>"


class Pending:
    """A sign-in that was begun: what the answer to it is checked against, and what the code is exchanged with."""

    __slots__ = (
        "at_origin",
        "begun_at",
        "client_id",
        "dpop",
        "issuer",
        "redirect_uri",
        "requested",
        "resource",
        "sends_iss",
        "server",
        "state",
        "verifier",
    )

    def __init__(
        self,
        *,
        server: str,
        issuer: str,
        client_id: str,
        redirect_uri: str,
        state: str,
        verifier: str,
        begun_at: float,
        sends_iss: bool = False,
        resource: str | None = None,
        requested: tuple[str, ...] = (),
        dpop: bool = False,
        at_origin: bool = False,
    ) -> None:
        self.server = server
        self.issuer = issuer
        self.client_id = client_id
        self.redirect_uri = redirect_uri
        self.state = state
        self.verifier = verifier
        self.begun_at = begun_at
        self.sends_iss = sends_iss
        self.resource = resource
        self.requested = requested
        self.dpop = dpop
        self.at_origin = at_origin

    def text(self) -> str:
        return _text(self, requested=list(self.requested))

    @classmethod
    def of(cls, text: str) -> Pending | None:
        """The sign-in of a text; None for any other text."""
        needed = dict.fromkeys(("server", "issuer", "client_id", "redirect_uri", "state", "verifier"), str)
        value = _object(text, {**needed, "begun_at": (int, float)}, cls.__slots__)
        if value is None or not isinstance(value.get("requested"), list):
            return None
        value["requested"] = tuple(map(str, value["requested"]))
        return cls(**value)

    def __repr__(self) -> str:
        return f"<Pending at {self.issuer}>"


def _text(record: Credential | Pending, **changed: object) -> str:
    return jsonrpc.encode({name: getattr(record, name) for name in record.__slots__} | changed).decode()


def _object(text: str, needed: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any] | None:
    try:
        value = jsonrpc.decode(text.encode())
        jsonrpc.encode(value)  # half a character can be escaped in JSON, but is nothing to send
    except ValueError:
        return None
    if not isinstance(value, dict) or not all(isinstance(value.get(name), kind) for name, kind in needed.items()):
        return None
    optional: dict[str, Any] = {
        "client_id": (str, type(None)),
        "resource": (str, type(None)),
        "refresh_token": (str, type(None)),
        "scope": (str, type(None)),
        "dpop_key": (str, type(None)),
        "expires_at": (int, float, type(None)),
        "renew_at": (int, float, type(None)),
    }
    if not all(isinstance(value.get(name), kind) for name, kind in optional.items()):
        return None
    found = {name: value[name] for name in known if name in value}
    if any(found.get(name) is not None and abs(found[name]) >= LATEST for name in TIMES):
        return None
    return found
