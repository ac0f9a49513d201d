"""`OAuth`: how a program gets its tokens for MCP servers that ask for them (spec: basic/authorization)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import checks
from ..engine.deadline import Deadline
from ..outcome import McpError, Ok
from ..protocol import origins
from .account import Account
from .clients import ClientIdentity
from .grants import EnterpriseManaged, WorkloadIdentity
from .records import Credential, Pending
from .redirects import check_redirect_uri, port_of
from .stores import MemoryTokenStore, as_store, checked
from .urls import Rules, leads_here, named

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Literal, TypeAlias

    from ..outcome import Outcome
    from ..protocol.origins import Endpoint
    from ..transports.http_options import HttpOptions
    from .sign_in import Way
    from .stores import TokenStore

    Grant: TypeAlias = Literal["authorization_code", "client_credentials"] | EnterpriseManaged | WorkloadIdentity
    SignInBy: TypeAlias = Literal["browser", "console", "never"] | Callable[[str], str]

GRANTS = ("authorization_code", "client_credentials")
EXTENSIONS = {
    "client_credentials": "io.modelcontextprotocol/oauth-client-credentials",
    "EnterpriseManaged": "io.modelcontextprotocol/enterprise-managed-authorization",
}
FORGET_SECONDS = 10.0  # to wait for who is renewing it
WAYS = ("browser", "console", "never")


class SignIn:
    """A sign-in that was begun: send the person's browser to `url`, keep `state` (a secret, in the session of that
    person), and go on with `OAuth.finish`.
    """

    __slots__ = ("state", "url")

    def __init__(self, url: str, state: str) -> None:
        self.url = url
        self.state = state

    def __repr__(self) -> str:
        return f"<SignIn at {self.url.partition('?')[0]}>"


class OAuth:
    """For `auth=` of any number of clients: a server that answers 401 is asked where its tokens come from, one is got
    there and kept, renewed before its end, and asked for more when the server wants more.

    grant: who signs in. "authorization_code" (default): a person, by `sign_in`. "client_credentials": the program
        itself, by its client_id. `EnterpriseManaged(...)`, `WorkloadIdentity(...)`: somebody else vouches for it.
    sign_in: "browser" (default) opens one and waits for it at `http://localhost`; "console" prints the address and
        asks for the one the browser ended at; "never" fails with reason "sign_in_required"; a callable is given the
        address and gives the one the browser was sent back to. sign_in_timeout: seconds a person has (300), beside the
        timeout of the call; a callable's time is its own.
    client_id, client_secret: who the program is, where it is known already; or a private_key (text of a PEM file) with
        its signing_algorithm (needs the extra "oauth"). Else the program registers itself.
    issuer: the authorization server, or several, that may be used. Without it a client_id is bound to the first one
        that it is used at: pass it with every secret.
    client_metadata_url: the https URL of a document that describes the program, for servers that take those.
    client_name: what it is called where it registers itself.
    scope: scopes to ask for beside those that the server wants. offline_access: ask for a refresh token where that is
        a scope.
    redirect_uri: where the browser comes back to: fixed ports, or the page of a web application.
    dpop: bind tokens to a key, so that a stolen one is of no use: True, False, or None (default) as the server asks
        (RFC 9449; needs the extra "oauth").
    store: where tokens and registrations are kept: by default a file of this user (`FileTokenStore`) when a person
        signs in, else the memory of this process. Any object with `get`, `set` and `delete` will do: one for each user
        of a web application.
    insecure_http: allow http to other machines, for development. public_only: connect to no address of a private
        network for OAuth, in programs that let strangers name servers.

    Raises TypeError or ValueError for what cannot be used. A copy by pickle has the options; what is kept in memory
    only stays behind.
    """

    def __init__(
        self,
        *,
        grant: Grant = "authorization_code",
        sign_in: SignInBy = "browser",
        sign_in_timeout: float = 300.0,
        client_id: str | None = None,
        client_secret: str | None = None,
        private_key: str | None = None,
        signing_algorithm: str | None = None,
        issuer: str | Sequence[str] | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "snodo_client",
        scope: str | Sequence[str] = (),
        offline_access: bool = True,
        redirect_uri: str | None = None,
        dpop: bool | None = None,
        store: TokenStore | None = None,
        insecure_http: bool = False,
        public_only: bool = False,
    ) -> None:
        if not isinstance(grant, (EnterpriseManaged, WorkloadIdentity)):
            checks.choice(grant, "grant", GRANTS)
        self.grant = grant
        self.sign_in = sign_in if callable(sign_in) else checks.choice(sign_in, "sign_in", WAYS)
        self.sign_in_timeout = checks.seconds(sign_in_timeout, "sign_in_timeout")
        self.client = _client(client_id, client_secret, private_key, signing_algorithm)
        self.issuers = _issuers(issuer)
        self.document = None if client_metadata_url is None else _document(client_metadata_url)
        if not checked(client_name, "client_name"):
            raise ValueError("client_name must not be empty")
        self.client_name = client_name
        self.scope = _scope(scope)
        for name, flag in (
            ("offline_access", offline_access),
            ("insecure_http", insecure_http),
            ("public_only", public_only),
        ):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} must be True or False, not {type(flag).__name__}")
        if dpop is not None and not isinstance(dpop, bool):
            raise TypeError(f"dpop must be True, False or None, not {type(dpop).__name__}")
        person = grant == "authorization_code"
        self.offline = offline_access and person
        self.redirect_uri = None if redirect_uri is None else check_redirect_uri(redirect_uri)
        self.dpop = dpop
        if dpop:
            from .signing import require

            require("dpop=True")
        if grant == "client_credentials" and (client_id is None or (client_secret is None and private_key is None)):
            raise ValueError('grant="client_credentials" needs client_id= and client_secret= or private_key=')
        if not person and (sign_in != "browser" or redirect_uri is not None):
            raise ValueError('sign_in= and redirect_uri= are for a person who signs in (grant="authorization_code")')
        self.insecure_http = insecure_http
        self.public_only = public_only
        if store is not None:
            self.store = as_store(store)
        elif person:
            from .file_store import FileTokenStore

            self.store = FileTokenStore()
        else:
            self.store = MemoryTokenStore()
        # As the capabilities of the client name it. spec: extensions/auth
        self.extension = EXTENSIONS.get(grant if isinstance(grant, str) else type(grant).__name__)
        self.who = client_id or client_metadata_url or "registered"
        if not person:
            self.who += f" {grant if isinstance(grant, str) else type(grant).__name__}"
        self.first_issuer: dict[str, str] = {}  # of a client that was given without one
        self._accounts: dict[tuple[str, ...], Account] = {}

    # -- for web applications

    def begin(
        self,
        url: str,
        *,
        redirect_uri: str | None = None,
        scope: str | Sequence[str] = (),
        timeout: float = 30.0,
        verify: bool | str | os.PathLike[str] = True,
        proxies: Mapping[str, str] | None = None,
    ) -> SignIn | McpError:
        """Begin the sign-in of a person to the server at `url`: the address to send the browser to, and the state to
        go on with. `redirect_uri` is the page of the application that it comes back to.
        """
        if self.grant != "authorization_code":
            raise ValueError('only with grant="authorization_code" a person signs in')
        account = self._account(url, verify, proxies)
        back = self.redirect_uri if redirect_uri is None else check_redirect_uri(redirect_uri)
        if back is None:
            raise ValueError("redirect_uri= is needed: the page that the browser comes back to")
        deadline = Deadline(checks.seconds(timeout, "timeout"))
        begun = account.ask(deadline, back, _scope(scope))
        return begun if isinstance(begun, McpError) else SignIn(begun[0], begun[1].text())

    def finish(
        self,
        callback_url: str,
        state: str,
        *,
        timeout: float = 30.0,
        verify: bool | str | os.PathLike[str] = True,
        proxies: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Finish a sign-in: `callback_url` is the whole address the browser came back with, `state` the one of `begin`,
        to be dropped now: it is for one answer. The tokens are in the store then, and `Ok` has
        `{"url": ..., "scope": [...]}`. Raises ValueError for a state that is none.
        """
        pending = Pending.of(state) if isinstance(state, str) else None
        if pending is None:
            raise ValueError("state is what begin() gave")
        if not isinstance(callback_url, str):
            raise TypeError(f"callback_url must be a string, not {type(callback_url).__name__}")
        deadline = Deadline(checks.seconds(timeout, "timeout"))
        account = self._account(pending.server, verify, proxies)
        return _told(account, account.finish(pending, callback_url, deadline))

    # -- for everybody

    def login(
        self,
        url: str,
        *,
        scope: str | Sequence[str] = (),
        timeout: float = 30.0,
        verify: bool | str | os.PathLike[str] = True,
        proxies: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Get tokens for the server at `url` now, whatever there is already, and keep them for programs with the same
        store. `Ok` has `{"url": ..., "scope": [...]}`.
        """
        deadline = Deadline(checks.seconds(timeout, "timeout"))
        account = self._account(url, verify, proxies)
        return _told(account, account.log_in(deadline, _scope(scope)))

    def status(self, url: str) -> Mapping[str, Any] | McpError | None:
        """What is kept for the server at `url`, without its secrets: `issuer`, `scope`, `expires_at` (seconds since
        1970, or None) and `refreshes`; None when that is nothing.
        """
        try:
            known = self._account(url, True, None).load()
        except McpError as error:
            return error.with_traceback(None)
        if known is None:
            return None
        return {
            "issuer": known.issuer,
            "scope": _granted(known),
            "expires_at": known.expires_at,
            "refreshes": known.refresh_token is not None,
        }

    def forget(self, url: str) -> Outcome:
        """Drop the tokens for the server at `url`. They stay valid for whoever has a copy; the registration of this
        program is kept.
        """
        endpoint = origins.endpoint(url)
        known = [account for account in list(self._accounts.values()) if account.server.url == endpoint.url]
        deadline = Deadline(FORGET_SECONDS)
        try:
            for account in known or [self._account(url, True, None)]:
                account.forget(deadline)
        except McpError as error:
            return error.with_traceback(None)
        return Ok({})

    # -- for the transports and for accounts

    def for_server(self, options: HttpOptions) -> Account:
        """What signs the requests to one endpoint."""
        session = options.session
        if session is None:
            return self._account(options.endpoint.url, options.verify, options.proxies)
        verify = session.verify if session.verify is not None else True
        return self._account(options.endpoint.url, verify, dict(session.proxies) or None)

    def command(self, server: Endpoint, more: Sequence[str] = ()) -> str:
        """The command by which a person signs in, for programs that ask nobody."""
        from shlex import join

        # A query may be a secret: who types the command knows it.
        words = ["python", "-m", "snodo_client.auth", "login", server.name + ("?..." if server.query else "")]
        for option, value in (
            ("--client-id", self.client and self.client.client_id),
            ("--client-metadata-url", self.document),
            ("--issuer", self.issuers[0] if self.issuers else None),
            ("--scope", " ".join(dict.fromkeys((*self.scope, *more)))),
            ("--redirect-uri", self.redirect_uri if port_of(self.redirect_uri or "") is not None else None),
        ):
            if value:
                words += [option, value]
        return join([*words, "--insecure-http"] if self.insecure_http else words)

    def way(self) -> Way:
        from .sign_in import Asked, Browser, Console

        if callable(self.sign_in):
            return Asked(self.sign_in, self.redirect_uri)
        return Browser(self.redirect_uri) if self.sign_in == "browser" else Console(self.redirect_uri)

    def _account(self, url: str, verify: bool | str | os.PathLike[str], proxies: Mapping[str, str] | None) -> Account:
        endpoint = origins.endpoint(url)
        rules = Rules(leads_here(endpoint.host), self.insecure_http)
        try:
            named(endpoint.url, rules)
        except ValueError as error:
            raise ValueError(f"no token is sent to this URL: {error}") from None
        from .fetching import Fetcher

        key = (endpoint.url, repr(verify), repr(proxies))
        account = self._accounts.get(key)
        if account is None:
            fetcher = Fetcher(verify=verify, proxies=proxies, public_only=self.public_only)
            # Without a lock, which a fork could leave locked in the child.
            account = self._accounts.setdefault(key, Account(self, endpoint, rules, fetcher))
        return account

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_accounts": {}}

    def __repr__(self) -> str:
        grant = self.grant if isinstance(self.grant, str) else type(self.grant).__name__
        return f"<OAuth by {grant}>"


def _told(account: Account, result: Credential | McpError) -> Outcome:
    if isinstance(result, McpError):
        return result
    return Ok({"url": account.server.name, "scope": _granted(result)})


def _granted(credential: Credential) -> list[str]:
    return credential.scope.split() if credential.scope else list(credential.requested)


def _client(
    client_id: str | None, client_secret: str | None, private_key: str | None, algorithm: str | None
) -> ClientIdentity | None:
    if client_id is None:
        if client_secret is not None or private_key is not None or algorithm is not None:
            raise ValueError("client_secret=, private_key= and signing_algorithm= go with client_id=")
        return None
    if client_secret is not None and private_key is not None:
        raise ValueError("a client has a client_secret= or a private_key=, not both")
    return ClientIdentity(client_id, client_secret=client_secret, private_key=private_key, algorithm=algorithm)


def _issuers(issuer: object) -> tuple[str, ...]:
    if issuer is None:
        return ()
    every = (issuer,) if isinstance(issuer, str) else tuple(issuer)  # type: ignore[arg-type]
    if not every or not all(isinstance(each, str) for each in every):
        raise TypeError("issuer must be the URL of an authorization server, or several")
    for each in every:
        origins.endpoint(each)
    return every


def _document(url: str) -> str:
    endpoint = origins.endpoint(url)
    if endpoint.scheme != "https" or endpoint.path == "/":
        raise ValueError("client_metadata_url must be an https URL with a path")
    return url


def _scope(scope: str | Sequence[str]) -> tuple[str, ...]:
    every = scope.split() if isinstance(scope, str) else list(scope)
    if not all(
        isinstance(each, str) and each and each.isascii() and each.isprintable() and not set(each) & set(' "\\')
        for each in every
    ):
        raise ValueError("scope must be scopes with spaces between them, or a list of scopes")
    return tuple(every)
