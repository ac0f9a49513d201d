"""Who the client is to an authorization server: its identity, how it shows it at the token endpoint, and the dynamic
registration that gets it one (RFC 7591).

An identity belongs to the issuer that knows it. Which kind is used, and where a registered one is kept, is decided by
who runs the flow. No secret is in a repr.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..checks import choice
from ..protocol.origins import endpoint as endpoint_of
from ..protocol.origins import is_loopback
from .faults import answered, failed, shown
from .steps import Fetch

if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    from .discovery import ServerMetadata
    from .steps import Flow, Reply

    Source: TypeAlias = Literal["given", "metadata_document", "registered"]

NONE, BASIC, POST, PRIVATE_KEY = METHODS = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")
SOURCES = ("given", "metadata_document", "registered")
LONGEST_SECRET = 65536  # characters
LATEST = 10**11  # seconds since 1970: what is later is no time in seconds

_CLIENT_ID = re.compile(r"[\x20-\x7e]{1,2048}")
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class ClientIdentity:
    """A client as one authorization server knows it.

    `method` is how it shows who it is at the token endpoint, one of `METHODS`; None leaves that to what the server
    publishes. `private_key` is the text of a PEM file and `algorithm` what it signs with. `redirect_uri` is the one it
    was registered with. `secret_expires_at` is in seconds since 1970, None for never.

    Raises TypeError or ValueError for what cannot be used.
    """

    __slots__ = (
        "algorithm",
        "client_id",
        "client_secret",
        "method",
        "private_key",
        "redirect_uri",
        "secret_expires_at",
        "source",
    )

    def __init__(
        self,
        client_id: str,
        *,
        client_secret: str | None = None,
        method: str | None = None,
        private_key: str | None = None,
        algorithm: str | None = None,
        redirect_uri: str | None = None,
        secret_expires_at: float | None = None,
        source: Source = "given",
    ) -> None:
        self.client_id = _id(client_id)
        self.client_secret = None if client_secret is None else _secret(client_secret, "client_secret")
        self.method: str | None = None if method is None else choice(method, "method", METHODS)
        if method in (BASIC, POST) and client_secret is None:
            raise ValueError(f"{method} needs a client_secret")
        if method == PRIVATE_KEY and private_key is None:
            raise ValueError(f"{method} needs a private_key")
        if private_key is not None:
            from .signing import check_key

            algorithm = check_key(private_key, algorithm)
        elif algorithm is not None:
            raise ValueError("an algorithm goes with a private_key")
        if redirect_uri is not None and not isinstance(redirect_uri, str):
            raise TypeError(f"redirect_uri must be a string, not {type(redirect_uri).__name__}")
        if secret_expires_at is not None and _time(secret_expires_at) is None:
            raise ValueError("secret_expires_at must be in seconds since 1970")
        self.private_key = private_key
        self.algorithm = algorithm
        self.redirect_uri = redirect_uri
        self.secret_expires_at = secret_expires_at
        self.source: Source = choice(source, "source", SOURCES)

    def expired(self, now: float) -> bool:
        """Whether the secret is past its time at `now`, so that the client has to be registered again."""
        return self.method != NONE and self.secret_expires_at is not None and self.secret_expires_at <= now

    def method_at(self, metadata: ServerMetadata) -> str:
        """How to show who this is at the token endpoint: as given, else what goes with what the client has. With a
        secret that is what the server takes, where a server that publishes nothing takes Basic (RFC 8414, section 2).
        Raises McpError when there is no way.
        """
        if self.private_key is not None and self.method in (None, PRIVATE_KEY):
            if metadata.signing_algorithms and self.algorithm not in metadata.signing_algorithms:
                taken = shown(", ".join(metadata.signing_algorithms))
                raise failed("token", f"{metadata.issuer} takes assertions signed with {taken}, not {self.algorithm}")
            return PRIVATE_KEY
        if self.method is not None:
            return self.method
        if self.client_secret is None:
            return NONE
        for method in (BASIC, POST, NONE):
            if method in (metadata.token_methods or (BASIC,)):
                return method
        raise failed("token", f"{metadata.issuer} takes no client secret, only {_methods(metadata)}")

    def credentials(self, method: str, audience: str, now: float) -> tuple[dict[str, str], dict[str, str]]:
        """The headers and the form parameters that show who this is, by one of `METHODS`. `audience` is what a signed
        assertion is for, the issuer of the authorization server; `now` is in seconds since 1970.
        """
        if method == BASIC:
            # The id again in the form: servers of the official Python SDK look clients up by it, whatever the method.
            basic = _basic(self.client_id, self.client_secret or "")
            return {"Authorization": f"Basic {basic}"}, {"client_id": self.client_id}
        if method == POST:
            return {}, {"client_id": self.client_id, "client_secret": self.client_secret or ""}
        if method == PRIVATE_KEY:
            from .signing import client_assertion

            signed = client_assertion(self.private_key or "", self.algorithm, self.client_id, audience, now)
            return {}, {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": signed}
        return {}, {"client_id": self.client_id}

    def to_dict(self) -> dict[str, object]:
        """A registered client as JSON values, for a place that may keep secrets. Raises ValueError for another: its
        user gives it anew each time.
        """
        if self.source != "registered":
            raise ValueError("only a registered client is stored")
        return {
            "client_id": self.client_id,
            "client_secret": self.client_secret,
            "method": self.method,
            "redirect_uri": self.redirect_uri,
            "secret_expires_at": self.secret_expires_at,
        }

    @classmethod
    def from_dict(cls, stored: object) -> ClientIdentity:
        """The registered client of `to_dict`. Raises ValueError for anything else."""
        if not isinstance(stored, dict) or stored.get("method") == PRIVATE_KEY:
            raise ValueError("what is stored is no registered client")
        try:
            return cls(
                stored.get("client_id"),  # type: ignore[arg-type]
                client_secret=stored.get("client_secret"),
                method=stored.get("method"),
                redirect_uri=stored.get("redirect_uri"),
                secret_expires_at=stored.get("secret_expires_at"),
                source="registered",
            )
        except TypeError as error:
            raise ValueError(f"what is stored is no registered client: {error}") from None

    def __repr__(self) -> str:
        method = self.method or "as the server publishes"
        return f"<ClientIdentity {self.client_id!r}, {self.source}, authentication: {method}>"


def register(
    metadata: ServerMetadata,
    redirect_uri: str,
    client_name: str,
    *,
    scope: str | None = None,
) -> Flow[ClientIdentity]:
    """Registers a client for the authorization code flow. With an https `redirect_uri` it is an application on the web,
    and asks for a secret where the server has a choice; else one on the user's machine, which asks for none.

    Raises McpError when the server registers nobody, refuses, or answers with no client id. spec:
    basic/authorization/client-registration
    """
    endpoint = metadata.registration_endpoint
    if "registration_endpoint" in metadata.refused:
        endpoint = metadata.required("registration_endpoint")  # raises, and says why it is refused
    if endpoint is None:
        text = f"{metadata.issuer} registers no clients by itself: register one there, and pass its client_id="
        raise failed("registration", text)
    web = redirect_uri[:6].lower() == "https:" and not is_loopback(endpoint_of(redirect_uri).host)
    asked = _method_to_ask_for(metadata, web)
    wishes: dict[str, object] = {
        "client_name": client_name,
        "application_type": "web" if web else "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": asked,
    }
    if scope is not None:
        wishes["scope"] = scope
    fetch = Fetch("POST", endpoint, "the registration of the client", json=wishes, step="registration")
    reply = yield fetch
    if scope is not None and _error(reply) == "invalid_client_metadata":
        # Some servers register only scopes of their own, not those of the resources that they issue tokens for.
        del wishes["scope"]
        fetch = Fetch("POST", endpoint, "the registration of the client", json=wishes, step="registration")
        reply = yield fetch
    said = answered("registration", fetch, reply, needed="client_id")
    try:
        secret = None if said.get("client_secret") in (None, "") else _secret(said["client_secret"], "client_secret")
        method = said.get("token_endpoint_auth_method")
        return ClientIdentity(
            _id(said.get("client_id")),
            client_secret=secret,
            # A server that echoes the wish for a secret but issues none has a client without one.
            method=NONE if secret is None else method if method in (NONE, BASIC, POST) else asked,
            redirect_uri=redirect_uri,
            secret_expires_at=_time(said.get("client_secret_expires_at")),
            source="registered",
        )
    except (TypeError, ValueError) as error:
        problem = str(error)
    raise failed("registration", f"{endpoint.name} registered no usable client: {problem}", fetch=fetch)


def _error(reply: Reply) -> object:
    said = reply.json() if reply.status == 400 else None
    return said.get("error") if isinstance(said, dict) else None


def _method_to_ask_for(metadata: ServerMetadata, web: bool) -> str:
    offered = metadata.token_methods or (BASIC,)
    for method in (BASIC, POST, NONE) if web else (NONE, BASIC, POST):
        if method in offered:
            return method
    text = f"{metadata.issuer} takes from clients only {_methods(metadata)}: pass client_id= and private_key="
    raise failed("registration", text)


def _methods(metadata: ServerMetadata) -> str:
    return shown(", ".join(metadata.token_methods or (BASIC,)))


def _basic(client_id: str, secret: str) -> str:
    """Both are encoded as in a form before they are joined (RFC 6749, section 2.3.1)."""
    from binascii import b2a_base64
    from urllib.parse import quote_plus

    return b2a_base64(f"{quote_plus(client_id)}:{quote_plus(secret)}".encode(), newline=False).decode()


def _id(value: object) -> str:
    """A client id: 1 to 2048 printable ASCII characters (RFC 6749, appendix A.1). Raises TypeError or ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"client_id must be a string, not {type(value).__name__}")
    if not _CLIENT_ID.fullmatch(value):
        raise ValueError("client_id must have 1 to 2048 printable ASCII characters")
    return value


def _secret(value: object, name: str) -> str:
    """A text that is never shown, of 1 to `LONGEST_SECRET` printable characters. Raises TypeError or ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    if not value or len(value) > LONGEST_SECRET or not value.isprintable():
        raise ValueError(f"{name} must have 1 to {LONGEST_SECRET} printable characters")
    return value


def _time(value: object) -> float | None:
    """A time in seconds since 1970; None for 0, which means never, and for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < LATEST:
        return None
    return float(value)
