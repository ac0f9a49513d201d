"""The authorization code flow up to the browser and after it: where a server's tokens come from, as whom and for what
they are asked, and whether what the browser brought back is the answer (spec: basic/authorization).

oauthlib and Authlib were weighed for it: neither has the discovery, the registration, the client documents or the
proofs of MCP, and both send by themselves, with redirects and without limits. So it is written here, without I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..masking import Masking, plain
from ..protocol.challenges import challenges, chosen
from . import discovery
from .clients import ClientIdentity, register
from .faults import failed, shown
from .records import SIGN_IN_SECONDS, Pending
from .redirects import MAX_CALLBACK
from .steps import Fetch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from ..outcome import McpError
    from ..protocol.challenges import Challenge
    from ..protocol.origins import Endpoint
    from .discovery import ServerMetadata
    from .steps import Flow
    from .urls import Rules

OFFLINE = "offline_access"
MAX_PARAMETERS = 64
MAX_SCOPE = 16 * 1024  # characters of all scopes: they are in the address that a browser opens

# What is added to the address of the authorization endpoint.
_ADDED = {
    "client_id",
    "code_challenge",
    "code_challenge_method",
    "prompt",
    "redirect_uri",
    "resource",
    "response_type",
    "scope",
    "state",
}


class Found:
    """Who issues the tokens of a server. `resource` is what they are asked for, None in 2025-03-26; `at_origin`: the
    server is its own authorization server.
    """

    __slots__ = ("at_origin", "dpop_required", "metadata", "resource", "scopes")

    def __init__(
        self,
        metadata: ServerMetadata,
        resource: str | None = None,
        scopes: tuple[str, ...] | None = None,
        dpop_required: bool = False,
        at_origin: bool = False,
    ) -> None:
        self.metadata = metadata
        self.resource = resource
        self.scopes = scopes
        self.dpop_required = dpop_required
        self.at_origin = at_origin

    @property
    def issuer(self) -> str:
        return self.metadata.issuer


def asked(server: Endpoint) -> Flow[tuple[bool, Challenge | None]]:
    """Whether a server refuses who comes without a token, and its challenge, if it sends one."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Accept": "application/json, text/event-stream"}
    reply = yield Fetch(
        "POST", server, "the challenge of the server", headers=headers, json=body, step="resource_metadata"
    )
    return reply.status in (401, 403), chosen(challenges([reply.headers.get("www-authenticate", "")]))


def discover(server: Endpoint, challenge: Challenge | None, issuers: Sequence[str], rules: Rules) -> Flow[Found]:
    """Who issues tokens for the server: the first authorization server it names, or the first of these that are in
    `issuers`, where any are. Raises McpError where there is none.
    """
    published = yield from discovery.resource_metadata(server, challenge, rules)
    if published is not None:
        allowed = [issuer for issuer in published.authorization_servers if not issuers or issuer in issuers]
        if not allowed:
            named = shown(", ".join(published.authorization_servers))
            text = f"{server.name} gets its tokens from {named}, and none of that is in issuer="
            raise failed("server_metadata", text)
        metadata = yield from discovery.server_metadata(allowed[0], rules)
        return Found(metadata, published.resource, published.scopes_supported, published.dpop_required)
    if issuers:
        metadata = yield from discovery.server_metadata(issuers[0], rules)
        return Found(metadata, server.origin if server.path == "/" and not server.query else server.url)
    metadata = yield from discovery.origin_metadata(server, rules)
    return Found(metadata, at_origin=True)


def scopes(
    challenge: Challenge | None, found: Found, own: Iterable[str], before: Iterable[str], *, offline: bool
) -> tuple[str, ...]:
    """The scopes to ask for: what the challenge names, else all that the server knows; those of the caller, and those
    that were asked for before. `offline`: also what may bring a refresh token, where that is known.
    """
    published = tuple(scope for scope in found.scopes or () if scope != OFFLINE)  # not for the server to offer
    base = challenge.scope if challenge is not None and challenge.scope else published
    every = [*before, *base, *own]
    if not offline:
        every = [scope for scope in every if scope != OFFLINE or scope in own]
    elif OFFLINE in (found.metadata.scopes_supported or ()):
        every.append(OFFLINE)
    wanted = tuple(dict.fromkeys(every))
    if len(" ".join(wanted)) > MAX_SCOPE:
        text = f"the scopes that {found.resource or found.issuer} wants have more than {MAX_SCOPE} characters"
        raise failed("resource_metadata", text)
    return wanted


def identify(
    found: Found,
    given: ClientIdentity | None,
    document: str | None,
    stored: ClientIdentity | None,
    redirect_uri: str,
    client_name: str,
    scope: tuple[str, ...],
) -> Flow[ClientIdentity]:
    """Who to be for the authorization server, in the order of the specification: who is known there, a document of
    one's own, who was registered before, else somebody new (spec: basic/authorization/client-registration).
    """
    _entrance(found.metadata)  # nobody is registered where nobody signs in
    if given is not None:
        return given
    if document is not None and found.metadata.takes_metadata_documents:
        return ClientIdentity(document, method="none", source="metadata_document")
    if stored is not None:
        return stored
    return (yield from register(found.metadata, redirect_uri, client_name, scope=" ".join(scope) or None))


def _entrance(metadata: ServerMetadata) -> Endpoint:
    """Where a person signs in. Raises McpError where the answer could be stolen: without S256 (RFC 7636)."""
    from urllib.parse import parse_qsl

    if not metadata.assumed and "S256" not in (metadata.pkce or ()):
        text = f"{metadata.issuer} does not say that it knows PKCE with S256: nobody is sent there to sign in"
        raise failed("server_metadata", text)
    endpoint = metadata.required("authorization_endpoint")
    twice = _ADDED.intersection(name for name, _ in parse_qsl(endpoint.query[1:], keep_blank_values=True))
    if twice:  # which of the two would count is up to whoever reads it (RFC 6749, section 3.1)
        names = ", ".join(sorted(twice))
        text = f"the authorization_endpoint of {metadata.issuer} has parameters of a sign-in: {names}"
        raise failed("server_metadata", text)
    return endpoint


def sign_in(
    server: Endpoint, found: Found, client: ClientIdentity, redirect_uri: str, scope: tuple[str, ...], now: float
) -> tuple[str, Pending]:
    """The address where a person signs in, and what is to be remembered until then. Raises McpError as `_entrance`."""
    from base64 import urlsafe_b64encode
    from hashlib import sha256
    from secrets import token_urlsafe
    from urllib.parse import urlencode

    metadata = found.metadata
    endpoint = _entrance(metadata)
    pending = Pending(
        server=server.url,
        issuer=metadata.issuer,
        client_id=client.client_id,
        redirect_uri=redirect_uri,
        state=token_urlsafe(32),
        verifier=token_urlsafe(64),
        begun_at=now,
        sends_iss=metadata.sends_iss,
        resource=found.resource,
        requested=scope,
        at_origin=found.at_origin,
    )
    challenge = urlsafe_b64encode(sha256(pending.verifier.encode()).digest()).rstrip(b"=").decode()
    parameters = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "state": pending.state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    if found.resource is not None:
        parameters["resource"] = found.resource
    if scope:
        parameters["scope"] = " ".join(scope)
    if OFFLINE in scope:  # OpenID Connect gives no refresh token without asking (OpenID Connect Core, section 11)
        parameters["prompt"] = "consent"
    return endpoint.url + ("&" if endpoint.query else "?") + urlencode(parameters), pending


def code(pending: Pending, callback_url: str, now: float) -> str:
    """The authorization code in the address the browser came back with. Raises McpError when it is not the answer to
    this sign-in, comes from another authorization server (RFC 9207), or says no.
    """
    from hmac import compare_digest
    from urllib.parse import parse_qsl, urlsplit

    if len(callback_url) > MAX_CALLBACK:
        raise failed("sign_in", f"the answer to the sign-in is longer than {MAX_CALLBACK} characters")
    try:
        callback_url.encode()  # half a character is nothing to compare, or to send
        pairs = parse_qsl(urlsplit(callback_url).query, keep_blank_values=True, max_num_fields=MAX_PARAMETERS)
    except ValueError:
        pairs = []
    values = dict(pairs)
    if len(values) != len(pairs):
        raise failed("sign_in", "the answer to the sign-in has a parameter twice")
    if not compare_digest(values.get("state", "").encode(), pending.state.encode()):
        raise failed("sign_in", "what came back is not the answer to this sign-in (state): begin again")
    if now - pending.begun_at > SIGN_IN_SECONDS:
        raise failed("sign_in", f"the sign-in was begun more than {SIGN_IN_SECONDS:g} s ago: begin again")
    issuer = values.get("iss")
    if issuer is None and pending.sends_iss:
        raise failed(
            "sign_in",
            f"the answer to the sign-in, a refusal perhaps, does not say that it is from {pending.issuer} (iss)",
        )
    if issuer is not None and issuer != pending.issuer:
        raise failed("sign_in", f"the answer to the sign-in is not from {pending.issuer} (iss): nothing of it is used")
    if "error" in values:
        raise _refused(pending, values)
    if not values.get("code"):
        raise failed("sign_in", f"the answer of {pending.issuer} to the sign-in has no code")
    return values["code"]


def _refused(pending: Pending, values: dict[str, str]) -> McpError:
    masking = Masking([pending.state, pending.verifier, values.get("code", "")])
    data: dict[str, Any] = {"error": plain(values["error"], masking, 100)}
    text = f"{pending.issuer} refused the sign-in: {data['error']}"
    if values.get("error_description"):
        data["error_description"] = plain(values["error_description"], masking)
        text += f" ({data['error_description']})"
    return failed("sign_in", text, **data)
