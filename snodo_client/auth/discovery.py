"""Where a server's tokens come from: the metadata of the server, and of the authorization servers that it names.

These are flows of GET requests (spec: basic/authorization/authorization-server-discovery; RFC 9728, RFC 8414). Where
a document may be at several places, a place without one is passed over: a refusal (4xx), a redirect, or a page that is
no JSON object. A place that cannot be asked just now (5xx, 408, 429, no connection) ends the flow, and so does a
document that is wrong: the next place, or the defaults of an old revision, could lead to another authorization server,
to one without its protections, and whoever can disturb a connection would choose. All of a document but what is looked
at here is ignored, and of that what has the wrong type counts as absent. Which libraries were weighed for the flows is
told in `flow`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..protocol.origins import Endpoint, endpoint
from .faults import failed, shown
from .steps import Fetch
from .urls import MAX_URL, named

if TYPE_CHECKING:
    from typing import Any, Literal

    from ..protocol.challenges import Challenge
    from .faults import Step
    from .steps import Flow, Reply
    from .urls import Rules

    Document = dict[str, Any]
    Needed = Literal["authorization_endpoint", "token_endpoint", "registration_endpoint"]

MAX_ENTRIES = 100  # of a list
MAX_ENTRY = MAX_URL  # characters

_RESOURCE = "/.well-known/oauth-protected-resource"
_OAUTH = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
_FOR_NOW = (408, 429)  # a refusal of this moment, as is every 5xx
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # scope-token of RFC 6749, section 3.3


class ResourceMetadata:
    """What a server says about itself (RFC 9728). `resource` is its identifier, and `authorization_servers` are
    issuers, all as written: they are compared and sent back byte by byte. There is at least one issuer.
    """

    __slots__ = ("authorization_servers", "dpop_required", "resource", "scopes_supported")

    def __init__(
        self,
        resource: str,
        authorization_servers: list[str],
        scopes_supported: tuple[str, ...] | None = None,
        dpop_required: bool = False,
    ) -> None:
        self.resource = resource
        self.authorization_servers = authorization_servers
        self.scopes_supported = scopes_supported
        self.dpop_required = dpop_required

    def __repr__(self) -> str:
        return f"<ResourceMetadata {self.resource!r}>"


class ServerMetadata:
    """What an authorization server says about itself (RFC 8414, OpenID Connect Discovery); None where it says nothing.

    `token_methods` are the ways a client proves who it is at the token endpoint, `signing_algorithms` those of its
    assertions, `pkce` the challenge methods; `sends_iss`: it names itself in the answer of a sign-in (RFC 9207);
    `takes_metadata_documents`: the URL of a document is an id for a client. `assumed`: nothing was published, the
    endpoints are the defaults of 2025-03-26. An endpoint that may not be used is None, and `required` tells why.
    """

    __slots__ = (
        "assumed",
        "authorization_endpoint",
        "dpop_algorithms",
        "grant_profiles",
        "issuer",
        "pkce",
        "refused",
        "registration_endpoint",
        "scopes_supported",
        "sends_iss",
        "signing_algorithms",
        "takes_metadata_documents",
        "token_endpoint",
        "token_methods",
    )

    def __init__(
        self,
        issuer: str,
        token_endpoint: Endpoint,
        *,
        authorization_endpoint: Endpoint | None = None,
        registration_endpoint: Endpoint | None = None,
        scopes_supported: tuple[str, ...] | None = None,
        token_methods: tuple[str, ...] | None = None,
        signing_algorithms: tuple[str, ...] | None = None,
        pkce: tuple[str, ...] | None = None,
        sends_iss: bool = False,
        takes_metadata_documents: bool = False,
        dpop_algorithms: tuple[str, ...] = (),
        grant_profiles: tuple[str, ...] = (),
        assumed: bool = False,
        refused: dict[str, str] | None = None,
    ) -> None:
        self.issuer = issuer
        self.token_endpoint = token_endpoint
        self.authorization_endpoint = authorization_endpoint
        self.registration_endpoint = registration_endpoint
        self.scopes_supported = scopes_supported
        self.token_methods = token_methods
        self.signing_algorithms = signing_algorithms
        self.pkce = pkce
        self.sends_iss = sends_iss
        self.takes_metadata_documents = takes_metadata_documents
        self.dpop_algorithms = dpop_algorithms
        self.grant_profiles = grant_profiles
        self.assumed = assumed
        self.refused = refused or {}

    def required(self, name: Needed) -> Endpoint:
        """The endpoint of that name. Raises `McpError` when the server has none, or one that is refused."""
        found: Endpoint | None = getattr(self, name)
        if found is None:
            raise failed("server_metadata", _lacking(self.issuer, name, self.refused))
        return found

    def __repr__(self) -> str:
        return f"<ServerMetadata of {self.issuer!r}>"


def resource_metadata(server: Endpoint, challenge: Challenge | None, rules: Rules) -> Flow[ResourceMetadata | None]:
    """The metadata of the server that sent the challenge; None when it has none at either well-known place.

    The place that a challenge names is the only one that is asked: the specification wants it used, and a server that
    names a place where nothing is, or where nothing may be asked, is not one without metadata. (A challenge with a
    malformed URL parameter has none, and the well-known places are asked.)
    """
    announced = challenge.resource_metadata if challenge is not None else None
    if announced is not None:
        place = _usable(announced, rules, "resource_metadata", f"the URL {server.origin} names for its metadata")
        fetch, reply, document = yield from _ask(place, "resource_metadata")
        if document is None:
            said = f"{_told(fetch, reply)}, and the server says its metadata is there"
            raise failed("resource_metadata", said, fetch=fetch, reply=reply)
        return _resource_metadata(document, server, fetch)
    for path in dict.fromkeys((server.path if server.path != "/" else "", "")):
        # Without the query: it is no part of where the specification looks, and may be a secret.
        place = _usable(server.origin + _RESOURCE + path, rules, "resource_metadata", "the server")
        fetch, reply, document = yield from _ask(place, "resource_metadata")
        if document is not None:
            return _resource_metadata(document, server, fetch)
    return None


def server_metadata(issuer: str, rules: Rules) -> Flow[ServerMetadata]:
    """The metadata of an authorization server, looked for as RFC 8414 and OpenID Connect place it. It has to name
    exactly this issuer. Raises `McpError` when there is none.
    """
    base = _usable(issuer, rules, "server_metadata", "the authorization server the server names")
    if base.query:
        raise failed("server_metadata", f"the issuer {base.name} has a query, which no issuer has (RFC 8414)")
    path = base.path.rstrip("/")
    places = [_OAUTH + path, _OPENID + path, path + _OPENID]
    tried: list[str] = []
    for place in dict.fromkeys(places):
        at = _usable(base.origin + place, rules, "server_metadata", "the authorization server")
        fetch, reply, document = yield from _ask(at, "server_metadata")
        if document is not None:
            return _server_metadata(document, (issuer,), rules, fetch)
        tried.append(_told(fetch, reply))
    raise failed("server_metadata", f"the authorization server {base.name} has no metadata: {'; '.join(tried)}")


def origin_metadata(server: Endpoint, rules: Rules) -> Flow[ServerMetadata]:
    """The metadata of a server of 2025-03-26, which is its own authorization server: what its origin publishes, else
    the default endpoints (spec: 2025-03-26 basic/authorization). For servers without `resource_metadata` only.
    """
    at = _usable(server.origin + _OAUTH, rules, "server_metadata", "the server")
    fetch, _, document = yield from _ask(at, "server_metadata", {"MCP-Protocol-Version": "2025-03-26"})
    if document is not None:
        # Nobody wrote the issuer down before: both spellings of an origin lead to this place.
        return _server_metadata(document, (server.origin, f"{server.origin}/"), rules, fetch)
    authorize, token, register = (
        _usable(server.origin + path, rules, "server_metadata", "the server")
        for path in ("/authorize", "/token", "/register")
    )
    return ServerMetadata(
        server.origin, token, authorization_endpoint=authorize, registration_endpoint=register, assumed=True
    )


def covers(resource: str, server: Endpoint) -> bool:
    """Whether a resource identifier is that of the server: its URL, or one of the same origin whose path leads to it,
    whole segments only. A slash at the end makes no difference. (RFC 9728 wants identical URLs; servers publish, and
    other clients accept, the origin for an endpoint below it.)
    """
    try:
        parent = endpoint(resource)
    except ValueError:
        return False
    above = parent.path.removesuffix("/")
    return (
        parent.origin == server.origin
        and parent.query in ("", server.query)
        and (server.path == above or server.path.startswith(f"{above}/"))
    )


def _ask(
    place: Endpoint, step: Literal["resource_metadata", "server_metadata"], headers: dict[str, str] | None = None
) -> Flow[tuple[Fetch, Reply, Document | None]]:
    """What a place says, and its document: None when it has none."""
    of = "the protected server" if step == "resource_metadata" else "the authorization server"
    fetch = Fetch("GET", place, f"the metadata of {of}", headers=headers, step=step)
    reply = yield fetch
    if reply.status >= 500 or reply.status in _FOR_NOW:
        raise failed(step, f"{place.name} answered {reply.status}", fetch=fetch, reply=reply)
    document = reply.json() if reply.status == 200 else None
    return fetch, reply, document if isinstance(document, dict) else None


def _told(fetch: Fetch, reply: Reply) -> str:
    said = "no JSON object" if reply.status == 200 else f"status {reply.status}"
    return f"{fetch.endpoint.name} answered {said}"


def _usable(url: object, rules: Rules, step: Step, what: str) -> Endpoint:
    try:
        return named(url, rules)
    except ValueError as error:
        why = str(error)
    raise failed(step, f"{what} is refused: {why}")


def _resource_metadata(document: Document, server: Endpoint, fetch: Fetch) -> ResourceMetadata:
    at = fetch.endpoint.name
    resource = document.get("resource")
    if not isinstance(resource, str) or len(resource) > MAX_URL:
        raise failed("resource_metadata", f"the metadata at {at} names no resource", fetch=fetch)
    if not covers(resource, server):
        raise failed(
            "resource_metadata",
            f"the metadata at {at} is of the resource {shown(resource)}, not of {server.name}",
            fetch=fetch,
        )
    issuers = _texts(document, "authorization_servers")
    if not issuers:
        raise failed("resource_metadata", f"the metadata at {at} names no authorization server", fetch=fetch)
    return ResourceMetadata(
        resource, list(issuers), _scopes(document), document.get("dpop_bound_access_tokens_required") is True
    )


def _server_metadata(document: Document, issuers: tuple[str, ...], rules: Rules, fetch: Fetch) -> ServerMetadata:
    at = fetch.endpoint.name
    issuer = document.get("issuer")
    if not isinstance(issuer, str):
        raise failed("server_metadata", f"the metadata at {at} names no issuer", fetch=fetch)
    if issuer not in issuers:  # compared as text: who is almost the same is someone else
        raise failed(
            "server_metadata",
            f"the metadata at {at} is of the issuer {shown(issuer)}, not of {shown(issuers[0])}",
            fetch=fetch,
        )
    endpoints: dict[str, Endpoint] = {}
    refused: dict[str, str] = {}
    for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint"):
        if document.get(name) is not None:
            try:
                endpoints[name] = named(document[name], rules)
            except ValueError as error:
                refused[name] = str(error)
    if "token_endpoint" not in endpoints:
        raise failed("server_metadata", _lacking(issuer, "token_endpoint", refused), fetch=fetch)
    return ServerMetadata(
        issuer,
        endpoints["token_endpoint"],
        authorization_endpoint=endpoints.get("authorization_endpoint"),
        registration_endpoint=endpoints.get("registration_endpoint"),
        scopes_supported=_scopes(document),
        token_methods=_texts(document, "token_endpoint_auth_methods_supported"),
        signing_algorithms=_texts(document, "token_endpoint_auth_signing_alg_values_supported"),
        pkce=_texts(document, "code_challenge_methods_supported"),
        sends_iss=document.get("authorization_response_iss_parameter_supported") is True,
        takes_metadata_documents=document.get("client_id_metadata_document_supported") is True,
        dpop_algorithms=_texts(document, "dpop_signing_alg_values_supported") or (),
        grant_profiles=_texts(document, "authorization_grant_profiles_supported") or (),
        refused=refused,
    )


def _lacking(issuer: str, name: str, refused: dict[str, str]) -> str:
    if name in refused:
        return f"the {name} of the authorization server {shown(issuer)} is refused: {refused[name]}"
    return f"the authorization server {shown(issuer)} has no {name}"


def _texts(document: Document, name: str) -> tuple[str, ...] | None:
    """The texts of a list, within the bounds; None for what is no list."""
    found = document.get(name)
    if not isinstance(found, list):
        return None
    return tuple(text for text in found[:MAX_ENTRIES] if isinstance(text, str) and len(text) <= MAX_ENTRY)


def _scopes(document: Document) -> tuple[str, ...] | None:
    """The scopes there are. What is no scope is left out: joined to others by spaces it would be another one."""
    found = _texts(document, "scopes_supported")
    return found if found is None else tuple(scope for scope in found if _SCOPE.fullmatch(scope))
