"""Tokens and what is given for them at a token endpoint: the requests of every grant, and what the answers are worth.

Nothing here is tried twice, but for the nonce of a proof (RFC 9449, section 8): codes, refresh tokens and assertions
are good once. An answer is a token or an error; no part of a token, or of what was sent for it, is in an error.
Which libraries were weighed for the flows is told in `flow`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..checks import choice
from .clients import BASIC, NONE, ClientIdentity
from .faults import answered, failed
from .steps import Fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from ..protocol.origins import Endpoint
    from .discovery import ServerMetadata
    from .steps import Flow, Reply

    # Adds the header `DPoP` to a request; with the nonce that the server asked for, if it did.
    Proof: TypeAlias = Callable[[Fetch, str | None], None]

LONGEST_TOKEN = 65536  # characters
LONGEST_LIFE = 10**9  # seconds, 31 years: what is longer was not meant

TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"

PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
SUBJECTS = {
    "id_token": "urn:ietf:params:oauth:token-type:id_token",
    "refresh_token": "urn:ietf:params:oauth:token-type:refresh_token",
    "saml2": "urn:ietf:params:oauth:token-type:saml2",
}

# Every other parameter of a token request is a secret.
_SHOWN = {
    "audience",
    "client_assertion_type",
    "client_id",
    "grant_type",
    "redirect_uri",
    "requested_token_type",
    "resource",
    "scope",
    "subject_token_type",
}
_TOKEN = re.compile(r"[\x21-\x7e]+")
_TEXT = re.compile(r"[\x20-\x7e]+")
_DIGITS = re.compile(r"[0-9]{1,10}(?:\.[0-9]{1,10})?")


class Token:
    """An access token and what came with it. `expires_in` is in seconds, None where that is not known; `scope` is what
    was granted, None where that is what was asked for.

    Raises TypeError or ValueError for what cannot be used.
    """

    __slots__ = ("access_token", "expires_in", "refresh_token", "scope", "token_type")

    def __init__(
        self,
        access_token: str,
        token_type: str = "bearer",
        *,
        expires_in: float | None = None,
        refresh_token: str | None = None,
        scope: str | None = None,
    ) -> None:
        self.access_token = _checked(access_token, "access_token", _TOKEN)
        if token_type not in ("bearer", "dpop"):  # what it is instead may be anything, a secret too
            raise ValueError("token_type must be bearer or dpop")
        if expires_in is not None and (isinstance(expires_in, bool) or not isinstance(expires_in, (int, float))):
            raise TypeError(f"expires_in must be a number of seconds, not {type(expires_in).__name__}")
        self.token_type = token_type
        self.expires_in = expires_in
        self.refresh_token = None if refresh_token is None else _checked(refresh_token, "refresh_token", _TEXT)
        self.scope = None if scope is None else _checked(scope, "scope", _TEXT)

    def __repr__(self) -> str:
        life = "" if self.expires_in is None else f", for {self.expires_in:g} s"
        return f"<Token {self.token_type}{life}{', can be refreshed' if self.refresh_token else ''}>"


def authorization_code(code: str, verifier: str, redirect_uri: str, resource: str | None) -> dict[str, str]:
    """The parameters of the authorization code grant. `resource` is None for servers of 2025-03-26, here and below."""
    given = {"code": code, "code_verifier": verifier, "redirect_uri": redirect_uri}
    return _parameters("authorization_code", given, resource=resource)


def refresh(refresh_token: str, resource: str | None) -> dict[str, str]:
    """The parameters of a refresh: all that was granted is asked for again."""
    return _parameters("refresh_token", {"refresh_token": refresh_token}, resource=resource)


def client_credentials(resource: str | None, scope: str | None) -> dict[str, str]:
    """The parameters of a request by the client for itself. spec: extensions/auth/oauth-client-credentials"""
    return _parameters("client_credentials", {}, resource=resource, scope=scope)


def jwt_bearer(assertion: str, resource: str | None, scope: str | None = None) -> dict[str, str]:
    """The parameters of a request with an assertion by someone the authorization server trusts (RFC 7523)."""
    return _parameters(JWT_BEARER, {"assertion": assertion}, resource=resource, scope=scope)


def token_request(
    metadata: ServerMetadata,
    client: ClientIdentity | None,
    parameters: Mapping[str, str],
    *,
    now: float,
) -> Fetch:
    """The request to the token endpoint, with the authentication of the client, or without when that is None. `now` is
    in seconds since 1970. Raises McpError when the server takes nothing that the client has.
    """
    if client is None:
        return _post(metadata.token_endpoint, "a token", parameters)
    method = client.method_at(metadata)
    return _post(metadata.token_endpoint, "a token", parameters, client, method, metadata.issuer, now)


def token_from(fetch: Fetch, reply: Reply) -> Token:
    """The token in a reply. Raises McpError when the server refuses, with its `error` in the data, and for what is no
    answer of a token endpoint or no token that can be sent.
    """
    said = answered("token", fetch, reply, needed="access_token")
    token_type = said.get("token_type")
    try:
        return Token(
            said.get("access_token"),  # type: ignore[arg-type]
            token_type.lower() if isinstance(token_type, str) else "",
            expires_in=_lifetime(said.get("expires_in")),
            refresh_token=said.get("refresh_token") or None,  # type: ignore[arg-type]
            scope=said.get("scope") or None,  # type: ignore[arg-type]
        )
    except (TypeError, ValueError) as error:
        problem = str(error)
    raise failed("token", f"{fetch.endpoint.name} issued no usable token: {problem}", fetch=fetch)


def exchange(
    metadata: ServerMetadata,
    client: ClientIdentity | None,
    parameters: Mapping[str, str],
    *,
    proof: Proof | None = None,
    now: float,
) -> Flow[Token]:
    """One token for what `parameters` hold. With `proof` the token may be bound to its key, and a server that asks for
    a nonce in the proof is answered once.
    """
    fetch = token_request(metadata, client, parameters, now=now)
    if proof is not None:
        proof(fetch, None)
    reply = yield fetch
    nonce = reply.headers.get("dpop-nonce")
    if proof is not None and nonce and _asks_for_nonce(reply):
        fetch = token_request(metadata, client, parameters, now=now)
        proof(fetch, nonce)
        reply = yield fetch
    token = token_from(fetch, reply)
    if token.token_type == "dpop" and proof is None:
        text = f"{fetch.endpoint.name} issued a token for proofs (DPoP), and none was sent"
        raise failed("token", text, fetch=fetch)
    return token


class EnterpriseManaged:
    """Sign-in that an enterprise manages: its identity provider vouches for the user to the authorization server of the
    MCP server, and nobody is asked. spec: extensions/auth/enterprise-managed-authorization

    `id_token` is what the provider issued when the user signed in there, or a callable without arguments that gives it:
    it is called whenever a token is needed. `subject_token_type` says what it is: "id_token", "refresh_token" or
    "saml2". The client id and secret are those of this program at the identity provider.

    Raises TypeError or ValueError for what cannot be used, such as an endpoint without https.
    """

    __slots__ = ("_client", "_endpoint", "_id_token", "_method", "_subject_type")

    def __init__(
        self,
        *,
        idp_token_endpoint: str,
        id_token: str | Callable[[], str],
        idp_client_id: str | None = None,
        idp_client_secret: str | None = None,
        subject_token_type: str = "id_token",
    ) -> None:
        if not callable(id_token):
            _checked(id_token, "id_token", _TOKEN)
        if idp_client_id is None and idp_client_secret is not None:
            raise ValueError("idp_client_secret= goes with idp_client_id=")
        self._endpoint = _provider(idp_token_endpoint)
        self._id_token = id_token
        self._method = NONE if idp_client_secret is None else BASIC
        self._client = None
        if idp_client_id is not None:
            self._client = ClientIdentity(idp_client_id, client_secret=idp_client_secret, method=self._method)
        self._subject_type = SUBJECTS[choice(subject_token_type, "subject_token_type", tuple(SUBJECTS))]

    def request(self, audience: str, resource: str | None, scope: str | None) -> Fetch:
        """The request to the identity provider for a grant (ID-JAG) that the issuer `audience` takes."""
        supplied = self._id_token
        given = {
            "requested_token_type": ID_JAG,
            "subject_token": _supplied("id_token", supplied) if callable(supplied) else supplied,
            "subject_token_type": self._subject_type,
            "audience": audience,
        }
        parameters = _parameters(TOKEN_EXCHANGE, given, resource=resource, scope=scope)
        return _post(self._endpoint, "a grant of the identity provider", parameters, self._client, self._method)

    def __repr__(self) -> str:
        return f"<EnterpriseManaged by {self._endpoint.name}>"


class WorkloadIdentity:
    """The identity that a platform gives to a running program, such as the token of a Kubernetes service account. spec:
    extensions/auth/workload-identity-federation

    `assertion` is a callable that gives the JWT of the platform. It is called with the audience that the JWT must name,
    the URL of the token endpoint, whenever a token is needed.
    """

    __slots__ = ("_assertion",)

    def __init__(self, *, assertion: Callable[[str], str]) -> None:
        if not callable(assertion):
            raise TypeError(f"assertion must be callable, with the audience, not {type(assertion).__name__}")
        self._assertion = assertion

    def assertion(self, audience: str) -> str:
        """A fresh JWT for this audience. Raises McpError when there is none."""
        return _supplied("assertion", self._assertion, audience)

    def __repr__(self) -> str:
        return "<WorkloadIdentity>"


def enterprise(
    options: EnterpriseManaged,
    metadata: ServerMetadata,
    client: ClientIdentity | None,
    *,
    resource: str | None,
    scope: str | None,
    proof: Proof | None = None,
    now: float,
) -> Flow[Token]:
    """A token by way of the identity provider, whose grant is good once and so is asked for each time. `client` is the
    client at the authorization server of the MCP server; the grant says what its scope is.
    """
    if metadata.grant_profiles and PROFILE not in metadata.grant_profiles:
        raise failed("token", f"{metadata.issuer} takes no grants of identity providers, as it publishes")
    fetch = options.request(metadata.issuer, resource, scope)
    reply = yield fetch
    said = answered("token", fetch, reply, needed="access_token")
    problem = ""
    if said.get("issued_token_type") != ID_JAG:
        problem = f"it is not of the type {ID_JAG}"
    else:
        try:
            grant = _checked(said.get("access_token"), "access_token", _TOKEN)
        except (TypeError, ValueError) as error:
            problem = str(error)
    if problem:
        raise failed("token", f"{fetch.endpoint.name} issued no grant for another server: {problem}", fetch=fetch)
    parameters = jwt_bearer(grant, resource)
    return (yield from exchange(metadata, client, parameters, proof=proof, now=now))


def workload(
    options: WorkloadIdentity,
    metadata: ServerMetadata,
    client: ClientIdentity | None,
    *,
    resource: str | None,
    scope: str | None,
    proof: Proof | None = None,
    now: float,
) -> Flow[Token]:
    """A token for the assertion of the platform. A refusal is final: nothing else is tried in its place."""
    parameters = jwt_bearer(options.assertion(metadata.token_endpoint.url), resource, scope)
    return (yield from exchange(metadata, client, parameters, proof=proof, now=now))


def _post(
    endpoint: Endpoint,
    what: str,
    parameters: Mapping[str, str],
    client: ClientIdentity | None = None,
    method: str = NONE,
    audience: str = "",
    now: float = 0.0,
) -> Fetch:
    """A request to a token endpoint. What is secret in it is masked wherever the answer repeats it."""
    from urllib.parse import quote_plus

    headers, shown = ({}, {}) if client is None else client.credentials(method, audience, now)
    form = {**parameters, **shown}
    secrets = [value for name, value in form.items() if name not in _SHOWN]
    secrets += [header.partition(" ")[2] for header in headers.values()]
    if client is not None and client.client_secret:
        secrets.append(client.client_secret)  # in a header it is in another spelling
    secrets += [quote_plus(value) for value in secrets if " " in value]  # as the form has it
    return Fetch("POST", endpoint, what, form=form, headers=headers, secrets=secrets)


def _parameters(grant_type: str, given: dict[str, str], **optional: str | None) -> dict[str, str]:
    return {"grant_type": grant_type, **given, **{name: value for name, value in optional.items() if value is not None}}


def _asks_for_nonce(reply: Reply) -> bool:
    said = reply.json()
    return 400 <= reply.status < 500 and isinstance(said, dict) and said.get("error") == "use_dpop_nonce"


def _checked(value: object, name: str, allowed: re.Pattern[str]) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    if len(value) > LONGEST_TOKEN or not allowed.fullmatch(value):
        raise ValueError(f"{name} must have 1 to {LONGEST_TOKEN} printable ASCII characters")
    return value


def _lifetime(value: object) -> float | None:
    """Seconds, also as text. What is no number, not positive or beyond reason says nothing: the server will tell."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LONGEST_LIFE:
        return None
    return float(value)


def _supplied(name: str, ask: Callable[..., object], *args: str) -> str:
    """What a callable of the user gives. It may have read a file that ends with a line break."""
    try:
        value = ask(*args)
    except Exception as error:
        fault = f"raised {type(error).__name__}"
    else:
        text = value.strip() if isinstance(value, str) else ""
        if _TOKEN.fullmatch(text) and len(text) <= LONGEST_TOKEN:
            return text
        fault = f"gave {type(value).__name__}, not a string" if not isinstance(value, str) else "gave no token"
    # Not where the exception is handled: it would be kept with this one, and what it says may be a secret.
    raise failed("token", f"the callable {name}= {fault}")


def _provider(url: str) -> Endpoint:
    """The token endpoint of an identity provider: https, but on this machine."""
    from .urls import Rules, named

    if not isinstance(url, str):
        raise TypeError(f"idp_token_endpoint must be a string, not {type(url).__name__}")
    try:
        return named(url, Rules(local=True))
    except ValueError:  # what it says names an option that does not allow this
        raise ValueError("idp_token_endpoint must be an https URL without a user name, or on this machine") from None
