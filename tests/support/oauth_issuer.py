"""An authorization server without sockets: its metadata, clients, codes and tokens. `oauth_server.py` serves it.

What it does is what the options of its world say at that moment.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

from support import oauth_proofs
from support.oauth_proofs import BadProof, UseNonce

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.oauth_server import OAuthWorld, Seen

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


class Answer:
    def __init__(self, status: int, body: Any = b"", headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.headers = dict(headers or {})
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        if not isinstance(body, bytes):
            self.headers.setdefault("Content-Type", "application/json")


class Refused(Exception):
    def __init__(self, error: str, description: str, status: int = 400, headers: dict[str, str] | None = None) -> None:
        self.answer = Answer(status, {"error": error, "error_description": description}, headers)


class Registered:
    """A client that the server knows. `method` None: any. `key` is its public key (PEM)."""

    def __init__(
        self,
        client_id: str,
        secret: str | None = None,
        *,
        redirect_uris: list[str] | None = None,
        method: str | None = None,
        key: str | None = None,
    ) -> None:
        self.client_id = client_id
        self.secret = secret
        self.redirect_uris = redirect_uris
        self.method = method
        self.key = key


class Granted:
    """What a code or a token stands for."""

    def __init__(self, client_id: str, scope: str, resource: str | None, jkt: str | None = None) -> None:
        self.client_id = client_id
        self.scope = scope
        self.resource = resource
        self.jkt = jkt
        self.ends = float("inf")
        self.challenge = ""
        self.redirect_uri = ""


class Issuer:
    """`issuer` is its identifier, `clients`, `access` and `refresh` what it has given out."""

    def __init__(self, world: OAuthWorld, origin: str, path: str) -> None:
        self.world = world
        self.origin = origin
        self.path = path
        self.issuer = origin + path
        self.clients: dict[str, Registered] = {}
        self.codes: dict[str, Granted] = {}
        self.access: dict[str, Granted] = {}
        self.refresh: dict[str, Granted] = {}
        self.used_refresh: set[str] = set()
        self.id_jags: dict[str, tuple[str, Granted]] = {}  # with the audience
        self.nonce = token_urlsafe(8)
        self._seen: set[str] = set()

    def route(self, path: str) -> str:
        """The name of what is at a path; "other" for nothing."""
        if path in [self.path + end for end in ("/authorize", "/token", "/register")]:
            return path.rpartition("/")[2]
        return "server_metadata" if "/.well-known/o" in path and "protected-resource" not in path else "other"

    def handle(self, seen: Seen) -> Answer:
        """The answer to a request, of any status."""
        world = self.world
        try:
            if seen.route == "server_metadata":
                published = [self.path_of(kind) for kind in world.metadata_kinds]
                return Answer(200, self.metadata()) if seen.path in published else Answer(404, b"none here")
            if seen.route == "authorize":
                return self.authorize(seen.query)
            if seen.route == "register" and seen.method == "POST" and world.registration:
                return self.register(json.loads(seen.body))
            if seen.route == "token" and seen.method == "POST":
                return self.token(seen)
        except Refused as refused:
            return refused.answer
        return Answer(404, b"no such page")

    # -- metadata

    def path_of(self, kind: str) -> str:
        """Where metadata is: "oauth" (RFC 8414), "oidc" (the same way) or "oidc-appended"."""
        if kind == "oauth":
            return f"/.well-known/oauth-authorization-server{self.path}"
        return {"oidc": f"/.well-known/openid-configuration{self.path}"}.get(
            kind, f"{self.path}/.well-known/openid-configuration"
        )

    def metadata(self) -> dict[str, Any]:
        world = self.world
        found: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register" if world.registration else None,
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials", JWT_BEARER],
            "token_endpoint_auth_methods_supported": list(world.token_methods),
            "token_endpoint_auth_signing_alg_values_supported": ["ES256", "RS256"],
            "code_challenge_methods_supported": ["S256"],
            "scopes_supported": world.scopes_supported,
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True if world.client_documents else None,
            "dpop_signing_alg_values_supported": ["ES256"] if world.dpop else None,
            "authorization_grant_profiles_supported": ["urn:ietf:params:oauth:grant-profile:id-jag"],
        }
        found.update(world.metadata)
        return {name: value for name, value in found.items() if value is not None}

    # -- clients

    def register(self, asked: dict[str, Any]) -> Answer:
        method = self.world.registered_method or asked.get("token_endpoint_auth_method", "client_secret_basic")
        secret = self.world.mint("client_secret") if method.startswith("client_secret") else None
        if asked.get("application_type") not in ("native", "web"):
            raise Refused("invalid_client_metadata", "application_type is missing")
        if not asked.get("redirect_uris"):
            raise Refused("invalid_redirect_uri", "there is none")
        client = Registered(
            f"client-{token_urlsafe(6)}", secret, redirect_uris=list(asked["redirect_uris"]), method=method
        )
        self.clients[client.client_id] = client
        answer = {**asked, "client_id": client.client_id, "token_endpoint_auth_method": method}
        if secret is not None:
            answer.update(client_secret=secret, client_secret_expires_at=0)
        return Answer(201, answer)

    def client(self, client_id: str) -> Registered | None:
        document = self.world.client_documents.get(client_id)
        if document is not None:
            return Registered(client_id, redirect_uris=document["redirect_uris"], method="none")
        return self.clients.get(client_id)

    def authenticated(self, seen: Seen) -> Registered:
        """The client of a request to the token endpoint."""
        form, client_id, secret, method = seen.form, "", None, "none"
        authorization = seen.headers.get("authorization", "")
        if authorization.startswith("Basic "):
            method = "client_secret_basic"
            user, _, password = b64decode(authorization[6:]).decode().partition(":")
            client_id, secret = unquote_plus(user), unquote_plus(password)
        elif "client_assertion" in form:
            method = "private_key_jwt"
            client_id = form.get("client_id") or oauth_proofs.subject(form["client_assertion"]) or ""
        else:
            client_id, secret = form.get("client_id", ""), form.get("client_secret")
            method = "none" if secret is None else "client_secret_post"
        client = self.client(client_id)
        if client is None:
            raise Refused("invalid_client", "unknown client", 401)
        if method not in self.world.token_methods or client.method not in (None, method):
            raise Refused("invalid_client", f"not by {method}", 401)
        if method.startswith("client_secret") and (client.secret is None or secret != client.secret):
            raise Refused("invalid_client", "wrong secret", 401)
        if method == "none" and client.secret is not None and client.method != "none":
            raise Refused("invalid_client", "no secret", 401)
        if method == "private_key_jwt":
            if form.get("client_assertion_type") != ASSERTION or client.key is None:
                raise Refused("invalid_client", "no assertion of this client", 401)
            try:
                named = oauth_proofs.assertion(form["client_assertion"], client.key, self.issuer, self._seen)
            except BadProof as problem:
                raise Refused("invalid_client", str(problem), 401) from None
            if named != client_id:
                raise Refused("invalid_client", "an assertion of another client", 401)
        return client

    # -- the authorization endpoint: the person has consented as soon as the request is there

    def authorize(self, query: dict[str, str]) -> Answer:
        world = self.world
        client = self.client(query.get("client_id", ""))
        redirect_uri = query.get("redirect_uri", "")
        if client is None or not _redirects_to(client, redirect_uri):
            return Answer(400, b"unknown client, or a redirect_uri that is not its own")
        back: dict[str, str | None] = {"state": query.get("state")}
        problem = self._problem_of(query)
        if problem is not None or world.consent != "allow":
            back["error"] = "invalid_request" if problem else world.consent
            back["error_description"] = problem or "the person said no"
        else:
            granted = Granted(client.client_id, self._scope(query.get("scope", "")), query.get("resource"))
            granted.challenge, granted.redirect_uri = query.get("code_challenge", ""), redirect_uri
            back["code"] = world.mint("code")
            self.codes[str(back["code"])] = granted
        back["iss"] = self.issuer if world.redirect_iss == "correct" else world.redirect_iss
        back.update(world.redirect_extra)
        shown = urlencode({name: value for name, value in back.items() if value is not None})
        return Answer(302, b"", {"Location": f"{redirect_uri}{'&' if '?' in redirect_uri else '?'}{shown}"})

    def _problem_of(self, query: dict[str, str]) -> str | None:
        if query.get("response_type") != "code":
            return "response_type is not code"
        if query.get("code_challenge_method") != "S256" or len(query.get("code_challenge", "")) != 43:
            return "no S256 challenge"
        return self._problem_of_resource(query.get("resource"))

    def _problem_of_resource(self, resource: str | None) -> str | None:
        expected = self.world.resource
        if expected is not None and resource != expected:
            return f"resource is {resource}, not {expected}"
        return None

    # -- the token endpoint

    def token(self, seen: Seen) -> Answer:
        grants: dict[str, Callable[[Seen], Granted | Answer]] = {
            "authorization_code": self._by_code,
            "refresh_token": self._by_refresh,
            "client_credentials": self._by_itself,
            JWT_BEARER: self._by_assertion,
            TOKEN_EXCHANGE: self._exchanged,
        }
        grant = grants.get(seen.form.get("grant_type", ""))
        if grant is None:
            raise Refused("unsupported_grant_type", "no such grant")
        jkt = self._proven(seen)
        answer = grant(seen)
        if isinstance(answer, Granted):
            answer.jkt = jkt
            return self._issued(answer, refresh=seen.form["grant_type"] in ("authorization_code", "refresh_token"))
        return answer

    def _proven(self, seen: Seen) -> str | None:
        world, proof = self.world, seen.headers.get("dpop")
        if proof is None:
            if world.dpop_required:
                raise Refused("invalid_dpop_proof", "DPoP is required")
            return None
        nonce = self.nonce if world.as_nonce else None
        try:
            return oauth_proofs.dpop(proof, seen.method, seen.url, self._seen, nonce=nonce)
        except UseNonce:
            raise Refused("use_dpop_nonce", "with the nonce, please", headers={"DPoP-Nonce": self.nonce}) from None
        except BadProof as problem:
            raise Refused("invalid_dpop_proof", str(problem)) from None

    def _by_code(self, seen: Seen) -> Granted:
        client, form = self.authenticated(seen), seen.form
        granted = self.codes.pop(form.get("code", ""), None)
        if granted is None or granted.client_id != client.client_id:
            raise Refused("invalid_grant", "no such code")
        if granted.redirect_uri != form.get("redirect_uri"):
            raise Refused("invalid_grant", "redirect_uri is not that of the authorization request")
        if oauth_proofs.digest(form.get("code_verifier", "")) != granted.challenge:
            raise Refused("invalid_grant", "the verifier does not match")
        self._check_resource(form)
        return granted

    def _by_refresh(self, seen: Seen) -> Granted:
        client, token = self.authenticated(seen), seen.form.get("refresh_token", "")
        granted = self.refresh.get(token)
        if granted is None or granted.client_id != client.client_id:
            self.world.reused_refresh += token in self.used_refresh
            raise Refused("invalid_grant", "no such refresh token")
        self._check_resource(seen.form)
        if self.world.rotate:
            del self.refresh[token]
            self.used_refresh.add(token)
        scope = seen.form.get("scope", granted.scope)
        if not set(scope.split()) <= set(granted.scope.split()):
            raise Refused("invalid_scope", "more than was granted")
        return Granted(granted.client_id, granted.scope, granted.resource)

    def _by_itself(self, seen: Seen) -> Granted:
        client = self.authenticated(seen)
        if client.secret is None and client.key is None:
            raise Refused("unauthorized_client", "a public client")
        self._check_resource(seen.form)
        return Granted(client.client_id, self._scope(seen.form.get("scope", "")), seen.form.get("resource"))

    def _by_assertion(self, seen: Seen) -> Granted:
        form, assertion = seen.form, seen.form.get("assertion", "")
        if assertion in self.world.workload_assertions:
            self._check_resource(form)
            return Granted("workload", self._scope(form.get("scope", "")), form.get("resource"))
        client = self.authenticated(seen)
        audience, granted = self.world.id_jags.pop(assertion, ("", None))
        if granted is None or audience != self.issuer:
            raise Refused("invalid_grant", "no such assertion")
        return Granted(client.client_id, self._scope(form.get("scope", granted.scope)), granted.resource)

    def _exchanged(self, seen: Seen) -> Answer:
        client, form = self.authenticated(seen), seen.form
        if form.get("subject_token") not in self.world.subject_tokens:
            raise Refused("invalid_grant", "no such subject token")
        if form.get("requested_token_type") != ID_JAG or "audience" not in form or "subject_token_type" not in form:
            raise Refused("invalid_request", "requested_token_type, audience or subject_token_type")
        jag = self.world.mint("id_jag")
        granted = Granted(client.client_id, form.get("scope", ""), form.get("resource"))
        self.world.id_jags[jag] = form["audience"], granted
        answer = {"issued_token_type": ID_JAG, "access_token": jag, "token_type": "N_A", "expires_in": 60}
        return Answer(200, answer, {"Cache-Control": "no-store"})

    def _check_resource(self, form: dict[str, str]) -> None:
        problem = self._problem_of_resource(form.get("resource"))
        if problem is not None:
            raise Refused("invalid_target", problem)

    def _scope(self, asked: str) -> str:
        return asked if self.world.granted_scope is None else self.world.granted_scope

    def _issued(self, granted: Granted, *, refresh: bool) -> Answer:
        world, token = self.world, self.world.mint("access_token")
        self.access[token] = granted
        answer: dict[str, Any] = {"access_token": token, "token_type": "DPoP" if granted.jkt else "Bearer"}
        if world.token_lifetime is not None:
            granted.ends = time.monotonic() + world.token_lifetime
            answer["expires_in"] = world.token_lifetime
        if granted.scope:
            answer["scope"] = granted.scope
        if refresh and world.refresh and (world.rotate or not self._has_refresh(granted)):
            answer["refresh_token"] = world.mint("refresh_token")
            self.refresh[answer["refresh_token"]] = granted
        answer.update(world.token_extra)
        shown = {name: value for name, value in answer.items() if value is not None}
        return Answer(200, shown, {"Cache-Control": "no-store"})

    def _has_refresh(self, granted: Granted) -> bool:
        return any(one.client_id == granted.client_id and one.scope == granted.scope for one in self.refresh.values())


def _redirects_to(client: Registered, uri: str) -> bool:
    """Whether it is registered; the port of a loopback address does not count (RFC 8252, section 7.3)."""
    if client.redirect_uris is None:
        return bool(uri)
    parts = urlsplit(uri)
    if parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        return uri in client.redirect_uris
    same = [urlsplit(one) for one in client.redirect_uris]
    return any((one.scheme, one.hostname, one.path) == (parts.scheme, parts.hostname, parts.path) for one in same)


def fields(text: str) -> dict[str, str]:
    """A form or a query; a name that comes twice is a fault of the client."""
    pairs = parse_qsl(text, keep_blank_values=True)
    assert len({name for name, _ in pairs}) == len(pairs), f"a parameter came twice: {[name for name, _ in pairs]}"
    return dict(pairs)
