"""A protected MCP server and its authorization server, on real sockets, doing what the test says.

    with OAuthWorld() as world:
        oauth = OAuth(sign_in=world.authorize)          # world.authorize is the person
        with Client.connect(world.resource_url, auth=oauth) as client: ...
        assert world.count("token") == 1

Every option is an attribute, and may be changed while it runs; those of the authorization server hold for all of them.
Routes, for `faults`, `seen` and `count`: "mcp", "resource_metadata", "server_metadata", "authorize", "token",
"register", "other".
"""

from __future__ import annotations

import http.client
import io
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from secrets import token_urlsafe
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from snodo_client.testing import Server
from snodo_client.testing.http_handler import HttpHandler
from snodo_client.testing.httpd import HttpServing, _Handler
from snodo_client.testing.listener import Serving
from support import oauth_proofs
from support.oauth_issuer import Answer, Granted, Issuer, Registered, fields
from support.oauth_proofs import BadProof, UseNonce

PRM = "/.well-known/oauth-protected-resource"


class Fault:
    """What happens to the requests of a route. Without `status` the proper answer follows, after `wait`, with `drip`.

    wait: nothing is answered before it is set. drip: seconds between two bytes. size: the body has so many bytes.
    redirect: a Location, by 307. close: the connection ends without an answer. processed: the request is dealt with all
    the same, only its answer is another. times: so many requests, then no more.
    """

    def __init__(
        self,
        status: int | None = None,
        body: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        wait: threading.Event | None = None,
        drip: float = 0.0,
        size: int | None = None,
        redirect: str | None = None,
        close: bool = False,
        processed: bool = False,
        times: int | None = None,
    ) -> None:
        self.status = status if redirect is None else status or 307
        self.headers = {**({"Location": redirect} if redirect else {}), **(headers or {})}
        self.body = body if size is None else b" " * size
        if size is not None and self.status is None:
            self.status = 200
        self.wait = wait
        self.drip = drip
        self.close = close
        self.processed = processed
        self.times = times


class Seen:
    """A request: `headers` by lower-case names, `query` and `form` decoded. `server` is the origin it came to, `status`
    that of the answer (0: none).
    """

    def __init__(self, server: str, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        self.server = server
        self.route = "other"
        self.method = method
        self.path, _, query = target.partition("?")
        self.query = fields(query)
        self.url = server + target
        self.headers = headers
        self.body = body
        is_form = headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
        self.form = fields(body.decode()) if is_form else {}
        self.status = 0

    def __repr__(self) -> str:
        return f"<{self.status} {self.method} {self.url}>"


class OAuthWorld:
    """See the attributes for what can be asked of it. `tls` serves everything by https; `same_origin` puts the
    authorization server at the origin of the MCP server (as in 2025-03-26); `issuer_path` gives its issuer a path.
    """

    def __init__(
        self, *, tls: ssl.SSLContext | None = None, same_origin: bool = False, issuer_path: str = "", sse: bool = False
    ) -> None:
        self.lock = threading.RLock()
        self.log: list[Seen] = []
        self.faults: dict[str, Fault] = {}
        # The protected resource
        self.prm_paths = [f"{PRM}/mcp"]  # where its metadata is; f"{PRM}" is the root
        self.prm: dict[str, Any] = {}  # over the proper metadata; None removes
        self.challenge_metadata: bool | str = True  # whether a challenge names the first of prm_paths, or what it names
        self.challenge_scope: str | None = None  # of a 401
        self.challenge: str | list[str] | None = None  # in place of every challenge; a list: one line each
        self.scope = ""  # needed for everything
        self.tool_scopes: dict[str, str] = {"admin-tool": "admin"}  # needed for a tool: else 403 insufficient_scope
        self.open_methods: set[str] = set()  # that need no token, such as "server/discover"
        self.rs_nonce = False  # DPoP proofs need the nonce of the resource
        # The authorization server
        self.metadata: dict[str, Any] = {}  # over the proper metadata; None removes
        self.metadata_kinds = ["oauth"]  # where it is: "oauth", "oidc", "oidc-appended"
        self.scopes_supported: list[str] | None = None
        self.registration = True
        self.registered_method: str | None = None  # what registration makes of the token_endpoint_auth_method asked for
        self.client_documents: dict[str, dict[str, Any]] = {}  # client id metadata documents, by URL
        self.token_methods = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
        self.consent = "allow"  # or the error of the redirect
        self.redirect_iss: str | None = "correct"
        self.redirect_extra: dict[str, str | None] = {}  # over the parameters of the redirect; None removes
        self.granted_scope: str | None = None  # whatever was asked for
        self.token_lifetime: float | None = 3600.0
        self.token_extra: dict[str, Any] = {}  # over the token response; None removes
        self.refresh = True
        self.rotate = True
        # Makes what is issued: "access_token", "refresh_token", "code", "client_secret" or "id_jag"
        self.mint: Callable[[str], str] = lambda kind: token_urlsafe(32)
        self.dpop = False  # advertised
        self.dpop_required = False
        self.as_nonce = False
        # Machine flows
        self.workload_assertions: set[str] = set()
        self.subject_tokens: set[str] = set()  # taken for token exchange, by any authorization server
        self.id_jags: dict[str, tuple[str, Granted]] = {}  # given for them, with the audience
        self.reused_refresh = 0  # refresh tokens that came again after they were rotated

        self._tls = tls
        self._seen_proofs: set[str] = set()
        self._nonce = "resource-nonce-1"
        self.server = _mcp_server()
        self._serving = HttpServing(
            self.server, "127.0.0.1", 0, "/mcp", sse=sse or "auto", ssl_context=tls, max_body_bytes=2**24
        )
        scheme = "https" if tls else "http"
        self.origin = f"{scheme}://localhost:{self._serving.port}"
        self.resource_url = f"{self.origin}/mcp"
        self.resource: str | None = self.resource_url  # what clients have to name as resource; None: anything
        world = self

        class Guarded(_Guarded):
            oauth_world = world

        self._serving._listener.RequestHandlerClass = Guarded
        self._issuer_servings: list[_IssuerServing] = []
        if same_origin:
            self.authorization_server = Issuer(self, self.origin, issuer_path)
        else:
            self.authorization_server = self.add_authorization_server(issuer_path)
        self.same_origin = same_origin

    def __enter__(self) -> OAuthWorld:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._serving.close()
        for serving in self._issuer_servings:
            serving.close()

    @property
    def issuer(self) -> str:
        return self.authorization_server.issuer

    # -- what tests do to it

    def authorize(self, url: str) -> str:
        """The person: follow the URL, consent, and give the URL the browser is sent back to. Usable as `sign_in=`."""
        parts = urlsplit(url)
        assert parts.hostname
        if parts.scheme == "https":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            browser: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=10, context=context
            )
        else:
            browser = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
        try:
            browser.request("GET", f"{parts.path}?{parts.query}")
            answer = browser.getresponse()
            text = answer.read()
            location = answer.getheader("Location")
            assert location is not None, f"the browser shows {answer.status} {text!r}"
            return location
        finally:
            browser.close()

    def add_client(
        self,
        client_id: str,
        secret: str | None = None,
        *,
        redirect_uris: list[str] | None = None,
        method: str | None = None,
        key: str | None = None,
    ) -> None:
        """Pre-register a client at the authorization server of now. Without `redirect_uris` any will do; `key` is its
        public key (PEM), for private_key_jwt."""
        client = Registered(client_id, secret, redirect_uris=redirect_uris, method=method, key=key)
        self.authorization_server.clients[client_id] = client

    def add_authorization_server(self, issuer_path: str = "") -> Issuer:
        """Another one, at a port of its own. The MCP server does not name it: an identity provider, an attacker."""
        serving = _IssuerServing(self, issuer_path, self._tls)
        self._issuer_servings.append(serving)
        return serving.issuer

    def migrate(self, issuer_path: str = "") -> str:
        """The MCP server moves to a new authorization server; tokens of the old one are worth nothing. Its issuer."""
        self.authorization_server = self.add_authorization_server(issuer_path)
        return self.issuer

    def revoke_all(self) -> None:
        """Every access token is worth nothing from now on; refresh tokens are good."""
        with self.lock:
            self.authorization_server.access.clear()

    def revoke_refresh(self) -> None:
        with self.lock:
            self.authorization_server.refresh.clear()

    def forget_clients(self) -> None:
        """Every client is unknown from now on."""
        with self.lock:
            self.authorization_server.clients.clear()

    def rotate_nonces(self) -> None:
        """The nonces of DPoP are others from now on."""
        with self.lock:
            self.authorization_server.nonce += "+"
            self._nonce += "+"

    # -- what tests ask of it

    def seen(self, route: str, **form: str) -> list[Seen]:
        """The requests of a route, in order; of those, the ones with these fields: `grant_type="refresh_token"`."""
        with self.lock:
            found = [one for one in self.log if one.route == route]
        return [one for one in found if form.items() <= one.form.items()]

    def count(self, route: str, **form: str) -> int:
        return len(self.seen(route, **form))

    def issued(self) -> list[str]:
        """Every access and refresh token that is good now."""
        with self.lock:
            return [*self.authorization_server.access, *self.authorization_server.refresh]

    # -- serving

    def serve(self, handler: HttpHandler, seen: Seen, issuer: Issuer | None) -> bool:
        """Answer a request, unless the MCP server may see it: then True. `issuer` is who lives there, too."""
        if seen.server == self.origin and seen.path == "/mcp":
            seen.route = "mcp"
        elif seen.server == self.origin and (seen.path.startswith(PRM) or seen.path in self.prm_paths):
            seen.route = "resource_metadata"
        elif issuer is not None:
            seen.route = issuer.route(seen.path)
        with self.lock:
            self.log.append(seen)
            fault = self._fault_for(seen.route)
        if fault is not None and fault.wait is not None:
            while not fault.wait.wait(0.02):
                if handler.gone():
                    handler.close_connection = True
                    return False
        scripted = fault is not None and (fault.status is not None or fault.close)
        answer = None
        if not scripted or (fault is not None and fault.processed):
            with self.lock:
                answer = self._answer(seen, issuer)
        if fault is not None and scripted:
            if fault.close:
                handler.close_connection = True
                return False
            answer = Answer(fault.status or 200, fault.body, fault.headers)
        if answer is None:
            return True
        seen.status = answer.status
        self._send(handler, answer, fault.drip if fault is not None else 0.0)
        return False

    def _send(self, handler: HttpHandler, answer: Answer, drip: float) -> None:
        lines = {"Content-Length": str(len(answer.body)), **answer.headers}
        challenges = lines.pop("WWW-Authenticate", None)
        head = handler.head(answer.status, lines)[:-2]
        for line in (challenges or "").split("\n"):
            head += f"WWW-Authenticate: {line}\r\n".encode() if line else b""
        try:
            handler.write(head + b"\r\n", answer.body, drip)
        except OSError:
            handler.close_connection = True

    def _fault_for(self, route: str) -> Fault | None:
        fault = self.faults.get(route)
        if fault is not None and fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                del self.faults[route]
        return fault

    def _answer(self, seen: Seen, issuer: Issuer | None) -> Answer | None:
        if seen.route == "mcp":
            return self._guard(seen)
        if seen.route == "resource_metadata":
            published = seen.path in self.prm_paths
            return Answer(200, self.resource_metadata()) if published else Answer(404, b"none here")
        return Answer(404, b"no such page") if issuer is None else issuer.handle(seen)

    def resource_metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "resource": self.resource_url,
            "authorization_servers": [self.issuer],
            "bearer_methods_supported": ["header"],
            "dpop_bound_access_tokens_required": True if self.dpop_required else None,
            **self.prm,
        }
        return {name: value for name, value in found.items() if value is not None}

    # -- the guard of the MCP server

    def _guard(self, seen: Seen) -> Answer | None:
        """Why a request of the MCP server is refused, None when it is not."""
        message = _message(seen.body)
        if message.get("method") in self.open_methods:
            return None
        scheme, _, token = seen.headers.get("authorization", "").partition(" ")
        if not token:
            return self._challenged(401, {"scope": self.challenge_scope})
        granted = self.authorization_server.access.get(token)
        if granted is None or granted.ends <= time.monotonic():
            return self._challenged(401, {"error": "invalid_token", "scope": self.challenge_scope})
        if (granted.jkt is None) != (scheme.lower() == "bearer") or (self.dpop_required and granted.jkt is None):
            return self._challenged(401, {"error": "invalid_token", "error_description": f"not by {scheme}"})
        if granted.jkt is not None:
            problem = self._unproven(seen, token, granted.jkt)
            if problem is not None:
                return problem
        tool = message["params"].get("name") if message.get("method") == "tools/call" else None
        needed = f"{self.scope} {self.tool_scopes.get(tool, '') if tool else ''}".split()
        if not set(needed) <= set(granted.scope.split()):
            return self._challenged(403, {"error": "insufficient_scope", "scope": " ".join(needed)})
        return None

    def _unproven(self, seen: Seen, token: str, jkt: str) -> Answer | None:
        nonce = self._nonce if self.rs_nonce else None
        proof = seen.headers.get("dpop", "")
        try:
            proven = oauth_proofs.dpop(proof, seen.method, seen.url, self._seen_proofs, nonce=nonce, token=token)
        except UseNonce:
            answer = self._challenged(401, {"error": "use_dpop_nonce"})
            answer.headers["DPoP-Nonce"] = self._nonce
            return answer
        except BadProof as problem:
            return self._challenged(401, {"error": "invalid_dpop_proof", "error_description": str(problem)})
        if proven != jkt:
            return self._challenged(401, {"error": "invalid_token", "error_description": "bound to another key"})
        return None

    def _challenged(self, status: int, parameters: dict[str, str | None]) -> Answer:
        named = self.challenge_metadata
        if named is True:
            named = self.origin + self.prm_paths[0] if self.prm_paths else ""
        shown = {"resource_metadata": named or None, **parameters}
        value = ", ".join(f'{name}="{text}"' for name, text in shown.items() if text is not None)
        challenge = f"{'DPoP' if self.dpop_required else 'Bearer'} {value}".strip()
        if self.challenge is not None:
            challenge = self.challenge if isinstance(self.challenge, str) else "\n".join(self.challenge)
        return Answer(status, b"no entry", {"WWW-Authenticate": challenge, "Content-Type": "text/plain"})


def _message(body: bytes) -> dict[str, Any]:
    """The JSON-RPC message of a body, empty when there is none."""
    try:
        message = json.loads(body)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _mcp_server() -> Server:
    server = Server("protected")

    @server.tool(name="test-tool")
    def test_tool() -> str:
        """Say that the call arrived."""
        return "reached"

    @server.tool(name="admin-tool")
    def admin_tool() -> str:
        """Say that the call arrived, to those with the scope."""
        return "administered"

    return server


def _request(handler: HttpHandler, origin: str) -> Seen:
    size = int(handler.headers.get("content-length") or 0)
    body = handler.rfile.read(size)
    headers = {name: ", ".join(values) for name, values in handler.fields.items()}
    return Seen(origin, handler.command, handler.path, headers, body)


class _Guarded(_Handler):
    """The MCP server behind its guard."""

    oauth_world: OAuthWorld
    seen: Seen

    def _guarded(self, pass_on: Callable[[], None]) -> None:
        world = self.oauth_world
        self.seen = seen = _request(self, world.origin)
        if not world.serve(self, seen, world.authorization_server if world.same_origin else None):
            return
        rest, self.rfile = self.rfile, io.BytesIO(seen.body)
        try:
            pass_on()
        finally:
            self.rfile = rest

    def head(self, status: int, fields: Mapping[str, str]) -> bytes:
        self.seen.status = status
        return super().head(status, fields)

    def do_POST(self) -> None:
        self._guarded(super().do_POST)

    def do_GET(self) -> None:
        self._guarded(super().do_GET)

    def do_DELETE(self) -> None:
        self._guarded(super().do_DELETE)


class _IssuerHandler(HttpHandler):
    def do_GET(self) -> None:
        serving = self.server.serving
        assert isinstance(serving, _IssuerServing)
        serving.world.serve(self, _request(self, serving.issuer.origin), serving.issuer)

    do_POST = do_GET


class _IssuerServing(Serving):
    """An authorization server at a port of its own."""

    def __init__(self, world: OAuthWorld, path: str, tls: ssl.SSLContext | None) -> None:
        self.world = world
        super().__init__(world.server, _IssuerHandler, "http", "127.0.0.1", 0, path, tls)
        self.issuer = Issuer(world, f"http{'s' if tls else ''}://localhost:{self.port}", path)

    def end(self) -> None:
        """Nothing ends in its own way here."""
