"""One `OAuth` at one server: the credential it has there, how it is put into requests, and how another one is got.

Threads that need a new credential wait for the one that gets it; processes do so where their store has a lock. Nothing
that a refusal led to is asked for twice in one exchange, and a person at most three times.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from time import time
from typing import TYPE_CHECKING, TypeVar

from .. import log
from ..engine.deadline import Deadline, timed_out
from ..engine.flight import Flight
from ..fingerprint import fingerprint
from ..outcome import McpError, local_error
from ..protocol.challenges import chosen
from . import discovery, flow, grants
from .clients import ClientIdentity
from .dpop import ALGORITHM, Nonces, ProofKey
from .faults import failed
from .records import LEEWAY, Credential

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..engine.call import Call
    from ..protocol.challenges import Challenge
    from ..protocol.origins import Endpoint
    from ..transports.http_adapter import Outgoing
    from .fetching import Fetcher
    from .grants import Proof, Token
    from .oauth import OAuth
    from .records import Pending
    from .steps import Fetch, Flow, Reply
    from .urls import Rules

    Owner = Call | Callable[[], None]

T = TypeVar("T")

MOST_SIGN_INS = 3  # in one exchange
MOST_RENEWALS = 6
MOST_NONCES = 2


class Account:
    """Made by `OAuth`, which checked all it is made of."""

    def __init__(self, oauth: OAuth, server: Endpoint, rules: Rules, fetcher: Fetcher) -> None:
        self.server = server
        self.nonces = Nonces()  # of the server; those of authorization servers are others
        self._oauth = oauth
        self._rules = rules
        self._fetcher = fetcher
        self._server_nonces = Nonces()
        self._key = f"token {server.name}{_shown(server.query)} {oauth.who}"
        self._flight: Flight[tuple[Credential, str]] = Flight(f"signing in to {server.name}")
        self._credential: Credential | None = None
        self._proof_key: tuple[str, ProofKey] | None = None
        self._metadata: discovery.ServerMetadata | None = None

    def begin(self, call: Call | None) -> Exchange:
        return Exchange(self, call)

    # -- the credential there is

    def credential(self, call: Call | None) -> Credential | None:
        """What to send, renewed where its time is over and that takes no person; None when there is nothing."""
        known = self._credential
        if known is None:
            known = self._credential = self.load()
        if known is None or not known.expires(time()):
            return known
        if call is not None:
            known = self._refreshed_in_time(known, call)
        return None if known is None or known.expired(time()) else known

    def proof_key(self, credential: Credential) -> ProofKey | None:
        text = credential.dpop_key
        if text is None:
            return None
        if self._proof_key is None or self._proof_key[0] != text:
            self._proof_key = (text, _loaded(text))
        return self._proof_key[1]

    def load(self) -> Credential | None:
        text = self._stored("read", lambda: self._oauth.store.get(self._key))
        return None if text is None else Credential.of(text)

    def forget(self) -> None:
        """Drop the credential, here and in the store."""
        self._credential = None
        self._stored("written", lambda: self._oauth.store.delete(self._key))

    def _keep(self, credential: Credential) -> None:
        self._stored("written", lambda: self._oauth.store.set(self._key, credential.text()))
        self._credential = credential

    # -- another one

    def renew(
        self, call: Call, sent: Credential | None, challenge: Challenge | None, status: int, made: Sequence[str]
    ) -> tuple[Credential, str] | McpError:
        """A credential in the place of the one that was refused, and how it was got: "found", "refreshed" or
        "signed_in"; or "nothing", where it is the same. `made` is how those before it were got, in this exchange.
        """

        def work(deadline: Deadline) -> tuple[Credential, str] | McpError:
            return self._guarded(call, deadline, lambda: self._renewed(call, deadline, sent, challenge, status, made))

        return self._flight.run(work, call.deadline, call.unsettled)

    def _renewed(
        self,
        call: Call,
        deadline: Deadline,
        sent: Credential | None,
        challenge: Challenge | None,
        status: int,
        made: Sequence[str],
    ) -> tuple[Credential, str]:
        current = self.load()
        if current is not None and not current.expires(time()):
            other = sent is None or current.access_token != sent.access_token
            enough = status != 403 or set(challenge.scope or () if challenge else ()) <= set(current.requested)
            if other and enough:  # another thread or process was here
                self._credential = current
                return current, "found"
        # Nothing is taken from an earlier discovery: the server may have another authorization server by now.
        found = self._drive(flow.discover(self.server, challenge, self._oauth.issuers, self._rules), deadline, call)
        before = current
        if before is not None and before.issuer != found.issuer:
            self._moved(before, found)
            before = None
        if status == 401 and before is not None and before.refresh_token and "refreshed" not in made:
            refreshed = self._refresh(before, found.metadata, deadline, call)
            if refreshed is not None:
                return refreshed, "refreshed"
        requested = before.requested if before is not None else ()
        scope = flow.scopes(challenge, found, self._oauth.scope, requested, offline=self._oauth.offline)
        if status == 403 and before is not None and set(scope) <= set(requested):
            return before, "nothing"  # nobody is asked again for what was given, or refused
        credential = self._granted(found, scope, challenge, deadline, call)
        self._metadata = found.metadata
        self._keep(credential)
        return credential, "signed_in"

    def _moved(self, before: Credential, found: flow.Found) -> None:
        """The server has another authorization server than before."""
        if self._oauth.client is not None and not self._oauth.issuers:
            text = (
                f"{self.server.name} now gets its tokens from {found.issuer}, and client_id= was used at "
                f"{before.issuer}: if both know this client, say so with issuer="
            )
            raise failed("server_metadata", text)
        log.info(
            "auth", "%s gets its tokens from %s now, before from %s", self.server.name, found.issuer, before.issuer
        )

    # -- renewing without a person

    def _refreshed_in_time(self, known: Credential, call: Call) -> Credential | None:
        if known.refresh_token is None:
            return known

        def work(deadline: Deadline) -> tuple[Credential, str] | McpError:
            return self._guarded(call, deadline, lambda: again(deadline))

        def again(deadline: Deadline) -> tuple[Credential, str]:
            current = self.load()
            if current is None:
                return known, "gone"
            if not current.expires(time()):
                self._credential = current
                return current, "found"
            metadata = self._metadata
            if metadata is None or metadata.issuer != current.issuer:
                metadata = self._drive(self._described(current), deadline, call)
                self._metadata = metadata
            refreshed = self._refresh(current, metadata, deadline, call)
            return (known, "gone") if refreshed is None else (refreshed, "refreshed")

        result = self._flight.run(work, call.deadline, call.unsettled)
        if isinstance(result, McpError):
            if known.expired(time()):
                raise result
            return known  # good for a moment: the next call tries again
        if result[1] == "gone":
            self._credential = None
            return known
        return result[0]

    def _described(self, credential: Credential) -> Flow[discovery.ServerMetadata]:
        if credential.at_origin:
            return discovery.origin_metadata(self.server, self._rules)
        return discovery.server_metadata(credential.issuer, self._rules)

    def _refresh(
        self, before: Credential, metadata: discovery.ServerMetadata, deadline: Deadline, owner: Owner
    ) -> Credential | None:
        """A refreshed credential, kept; None where the authorization server refuses to refresh it."""
        if self._oauth.issuers and metadata.issuer not in self._oauth.issuers:
            return None
        client = self._client_of(metadata, before.client_id)
        if client is None and before.client_id is not None:
            return None
        key = self.proof_key(before)
        parameters = grants.refresh(before.refresh_token or "", before.resource)
        try:
            token = self._drive(
                grants.exchange(metadata, client, parameters, proof=self._proof(key), now=time()), deadline, owner
            )
        except McpError as error:
            said = _error_in(error)
            if said is None:
                raise
            if said == "invalid_client":
                self._unregister(client, metadata.issuer)
            log.info("auth", "%s does not refresh the token for %s", metadata.issuer, self.server.name)
            dead = Credential.of(before.text())
            assert dead is not None
            dead.refresh_token = None
            self._keep(dead)
            return None
        credential = self._credential_of(token, metadata.issuer, client, before.resource, before.requested, key)
        credential.refresh_token = token.refresh_token or before.refresh_token
        credential.scope = token.scope or before.scope
        credential.at_origin = before.at_origin
        self._keep(credential)
        return credential

    # -- a new one

    def _granted(
        self,
        found: flow.Found,
        scope: tuple[str, ...],
        challenge: Challenge | None,
        deadline: Deadline,
        owner: Owner,
    ) -> Credential:
        grant = self._oauth.grant
        bound = self._bound(found, challenge)
        if grant == "authorization_code":
            return self._signed_in(found, scope, bound, deadline, owner)
        key = self._new_key(found.metadata) if bound else None
        client = self._client_of(found.metadata, None)
        wanted = " ".join(scope) or None
        how = {"audience": None, "proof": self._proof(key), "now": time()}
        talk: Flow[Token]
        if isinstance(grant, grants.EnterpriseManaged):
            talk = grants.enterprise(grant, found.metadata, client, resource=found.resource, scope=wanted, **how)  # type: ignore[arg-type]
        elif isinstance(grant, grants.WorkloadIdentity):
            talk = grants.workload(grant, found.metadata, client, resource=found.resource, scope=wanted, **how)  # type: ignore[arg-type]
        else:
            parameters = grants.client_credentials(found.resource, wanted)
            talk = grants.exchange(found.metadata, client, parameters, **how)  # type: ignore[arg-type]
        token = self._drive(talk, deadline, owner)
        self._check_bound(token, found.metadata)
        log.info("auth", "%s issued a token for %s", found.issuer, self.server.name)
        return self._credential_of(token, found.issuer, client, found.resource, scope, key)

    def _signed_in(
        self, found: flow.Found, scope: tuple[str, ...], bound: bool, deadline: Deadline, owner: Owner
    ) -> Credential:
        oauth = self._oauth
        if oauth.sign_in == "never":
            command = oauth.command(self.server)
            text = f'{self.server.name} wants a person to sign in, and sign_in= is "never": run {command!r}'
            data = {"url": self.server.name, "command": command, "scope": list(scope)}
            raise local_error("sign_in_required", text, data=data)
        if not callable(owner) and owner.wire_id is None:  # such as the end of a session
            raise failed("sign_in", f"{self.server.name} wants a person to sign in, for a message nobody waits for")
        way = oauth.way()
        try:
            stored = self._registered(found.issuer)
            redirect_uri = way.redirect_uri(stored.redirect_uri if stored is not None else None)
            url, pending = self._sign_in_url(found, scope, bound, redirect_uri, deadline, owner)
            limit = Deadline(oauth.sign_in_timeout, name="sign_in_timeout")
            with deadline.pause(oauth.sign_in_timeout + 1.0):
                callback_url = way.sign_in(url, lambda: self._waits(owner, limit))
        finally:
            way.close()
        return self._redeemed(pending, found, callback_url, deadline, owner)

    def _waits(self, owner: Owner, limit: Deadline) -> float:
        _check(owner)
        if limit.over:
            text = f"nobody signed in to {self.server.name} within sign_in_timeout={limit.seconds:g} s"
            raise failed("sign_in", text)
        return limit.left()

    def _sign_in_url(
        self,
        found: flow.Found,
        scope: tuple[str, ...],
        bound: bool,
        redirect_uri: str,
        deadline: Deadline,
        owner: Owner,
    ) -> tuple[str, Pending]:
        oauth = self._oauth
        stored = self._registered(found.issuer)
        if stored is not None and (stored.redirect_uri != redirect_uri or stored.expired(time())):
            stored = None
        talk = flow.identify(found, oauth.client, oauth.document, stored, redirect_uri, oauth.client_name, scope)
        client = self._drive(talk, deadline, owner)
        if client.source == "registered" and client is not stored:
            text = _json(client.to_dict())
            self._stored("written", lambda: oauth.store.set(_registration(found.issuer), text))
        url, pending = flow.sign_in(self.server, found, client, redirect_uri, scope, time())
        pending.dpop = bound
        return url, pending

    def _redeemed(
        self, pending: Pending, found: flow.Found, callback_url: str, deadline: Deadline, owner: Owner
    ) -> Credential:
        code = flow.code(pending, callback_url, time())
        client = self._client_of(found.metadata, pending.client_id)
        if client is None:
            raise failed("token", f"the client that signed in at {found.issuer} is not known any more: begin again")
        key = self._new_key(found.metadata) if pending.dpop else None
        parameters = grants.authorization_code(code, pending.verifier, pending.redirect_uri, pending.resource)
        talk = grants.exchange(found.metadata, client, parameters, proof=self._proof(key), now=time())
        try:
            token = self._drive(talk, deadline, owner)
        except McpError as error:
            if _error_in(error) == "invalid_client":
                self._unregister(client, found.issuer)
            raise
        self._check_bound(token, found.metadata)
        log.info("auth", "signed in to %s at %s", self.server.name, found.issuer)
        credential = self._credential_of(token, found.issuer, client, pending.resource, pending.requested, key)
        credential.at_origin = pending.at_origin
        return credential

    # -- in two steps, and at once

    def ask(
        self, deadline: Deadline, owner: Owner, redirect_uri: str, scope: Sequence[str]
    ) -> tuple[str, Pending] | McpError:
        """The address where a person signs in to the server, and what to go on with."""

        def work() -> tuple[str, Pending]:
            challenge, found = self._found(deadline, owner)
            wanted = (*self._oauth.scope, *scope)
            every = flow.scopes(challenge, found, wanted, (), offline=self._oauth.offline)
            return self._sign_in_url(found, every, self._bound(found, challenge), redirect_uri, deadline, owner)

        return _valued(work)

    def finish(self, pending: Pending, callback_url: str, deadline: Deadline, owner: Owner) -> Credential | McpError:
        """Go on with what the browser brought back."""

        def work() -> Credential:
            flow.code(pending, callback_url, time())  # before anything is asked
            if pending.at_origin:
                metadata = self._drive(discovery.origin_metadata(self.server, self._rules), deadline, owner)
            else:
                metadata = self._drive(discovery.server_metadata(pending.issuer, self._rules), deadline, owner)
            found = flow.Found(metadata, pending.resource, at_origin=pending.at_origin)
            credential = self._redeemed(pending, found, callback_url, deadline, owner)
            self._keep(credential)
            return credential

        return _valued(work)

    def log_in(self, deadline: Deadline, owner: Owner, scope: Sequence[str]) -> Credential | McpError:
        """A new credential, whatever there is."""

        def work() -> Credential:
            challenge, found = self._found(deadline, owner)
            wanted = (*self._oauth.scope, *scope)
            every = flow.scopes(challenge, found, wanted, (), offline=self._oauth.offline)
            credential = self._granted(found, every, challenge, deadline, owner)
            self._keep(credential)
            return credential

        return _valued(work)

    def _found(self, deadline: Deadline, owner: Owner) -> tuple[Challenge | None, flow.Found]:
        challenge = self._drive(flow.asked(self.server), deadline, owner)
        talk = flow.discover(self.server, challenge, self._oauth.issuers, self._rules)
        return challenge, self._drive(talk, deadline, owner)

    # -- parts of all that

    def _client_of(self, metadata: discovery.ServerMetadata, client_id: str | None) -> ClientIdentity | None:
        """Who this is for an authorization server; None when that is nobody, or not who `client_id` says."""
        oauth = self._oauth
        known = oauth.client
        if known is None and oauth.document is not None and client_id in (None, oauth.document):
            known = ClientIdentity(oauth.document, method="none", source="metadata_document")
            if not metadata.takes_metadata_documents:
                known = None
        if known is None:
            known = self._registered(metadata.issuer)
        return known if known is not None and client_id in (None, known.client_id) else None

    def _registered(self, issuer: str) -> ClientIdentity | None:
        text = self._stored("read", lambda: self._oauth.store.get(_registration(issuer)))
        return None if text is None else _client(text)

    def _unregister(self, client: ClientIdentity | None, issuer: str) -> None:
        """The authorization server does not know this client any more: the next sign-in registers another."""
        if client is not None and client.source == "registered":
            self._stored("written", lambda: self._oauth.store.delete(_registration(issuer)))

    def _bound(self, found: flow.Found, challenge: Challenge | None) -> bool:
        """Whether the token is to be bound to a key."""
        if self._oauth.dpop is not None:
            return self._oauth.dpop
        return found.dpop_required or (challenge is not None and challenge.scheme == "dpop")

    def _new_key(self, metadata: discovery.ServerMetadata) -> ProofKey:
        if metadata.dpop_algorithms and ALGORITHM not in metadata.dpop_algorithms:
            text = (
                f"{metadata.issuer} takes proofs (DPoP) by {', '.join(metadata.dpop_algorithms)[:200]}, not {ALGORITHM}"
            )
            raise failed("token", text)
        try:
            return ProofKey.new()
        except ValueError as error:
            problem = str(error)
        raise failed("token", f"{metadata.issuer}: {problem}")

    def _check_bound(self, token: Token, metadata: discovery.ServerMetadata) -> None:
        if self._oauth.dpop and token.token_type != "dpop":
            raise failed("token", f"{metadata.issuer} issued a bearer token, and dpop=True wants one bound to a key")

    def _proof(self, key: ProofKey | None) -> Proof | None:
        if key is None:
            return None

        def prove(fetch: Fetch, nonce: str | None) -> None:
            nonce = nonce or self._server_nonces.newest(fetch.endpoint.origin)
            fetch.headers["DPoP"] = key.proof(fetch.method, fetch.endpoint.name, time(), nonce=nonce)

        return prove

    def _credential_of(
        self,
        token: Token,
        issuer: str,
        client: ClientIdentity | None,
        resource: str | None,
        requested: tuple[str, ...],
        key: ProofKey | None,
    ) -> Credential:
        now, life = time(), token.expires_in
        return Credential(
            token.access_token,
            issuer=issuer,
            client_id=None if client is None else client.client_id,
            resource=resource,
            expires_at=None if life is None else now + life,
            renew_at=None if life is None else now + life - min(LEEWAY, life / 4),
            refresh_token=token.refresh_token,
            scope=token.scope,
            requested=requested,
            dpop_key=key.pem if key is not None and token.token_type == "dpop" else None,
        )

    def _drive(self, talk: Flow[T], deadline: Deadline, owner: Owner) -> T:
        """Run a flow, with real requests. What goes wrong with one is an error of the flow, not of the server."""
        try:
            fetch = next(talk)
            while True:
                try:
                    reply = self._fetched(fetch, deadline, owner)
                except McpError as error:
                    fetch = talk.throw(error)
                else:
                    fetch = talk.send(reply)
        except StopIteration as done:
            result: T = done.value
            return result

    def _fetched(self, fetch: Fetch, deadline: Deadline, owner: Owner) -> Reply:
        try:
            reply = self._fetcher.fetch(fetch, deadline, owner)
        except McpError as error:
            _check(owner)
            if error.reason == "timeout" and deadline.over:
                raise
            fault = error
        else:
            nonce = reply.headers.get("dpop-nonce")
            if nonce is not None:
                self._server_nonces.heard(fetch.endpoint.origin, nonce)
            return reply
        raise failed(fetch.step, fault.message, fetch=fetch, cause=fault.with_traceback(None))

    def _guarded(self, owner: Owner, deadline: Deadline, work: Callable[[], T]) -> T | McpError:
        """Do it while no other process does the same; its error as a value."""

        def alone() -> T:
            with self._locked(owner, deadline):
                return work()

        return _valued(alone)

    def _locked(self, owner: Owner, deadline: Deadline) -> AbstractContextManager[object]:
        lock = getattr(self._oauth.store, "lock", None)
        if lock is None:
            return nullcontext()

        def wait() -> float:
            _check(owner)
            return deadline.left()

        return _Locked(lock(self._key, wait), self.server.name, deadline)

    def _stored(self, what: str, do: Callable[[], T]) -> T:
        """What a store says. It may be anybody's, and raise anything."""
        try:
            return do()
        except McpError:
            raise
        except Exception as raised:
            problem = type(raised).__name__
        raise failed("store", f"the token store {type(self._oauth.store).__name__} could not be {what}: {problem}")


class Exchange:
    """The credential of one exchange."""

    __slots__ = ("_account", "_call", "_challenge", "_made", "_nonces", "_only_nonce", "_sent", "_status")

    renews = True

    def __init__(self, account: Account, call: Call | None) -> None:
        self._account = account
        self._call = call
        self._sent: Credential | None = None
        self._made: list[str] = []  # how credentials were got
        self._nonces = 0
        self._only_nonce = False
        self._challenge: Challenge | None = None
        self._status = 0

    def apply(self, outgoing: Outgoing) -> None:
        account = self._account
        credential = self._sent = account.credential(self._call)
        if credential is None:
            return
        key = account.proof_key(credential)
        token = credential.access_token
        outgoing.headers["Authorization"] = outgoing.secret["Authorization"] = (
            f"{'Bearer' if key is None else 'DPoP'} {token}"
        )
        if key is not None:
            endpoint = outgoing.endpoint
            nonce = account.nonces.newest(endpoint.origin)
            proof = key.proof(outgoing.method or "POST", endpoint.name, time(), token=token, nonce=nonce)
            outgoing.headers["DPoP"] = outgoing.secret["DPoP"] = proof

    def heard(self, headers: Mapping[str, str]) -> None:
        nonce = headers.get("dpop-nonce")
        if nonce is not None:
            self._account.nonces.heard(self._account.server.origin, nonce)

    def answers(self, status: int, found: Sequence[Challenge]) -> bool:
        self._challenge, self._status = chosen(found), status
        errors = [challenge.error for challenge in found]
        self._only_nonce = status == 401 and "use_dpop_nonce" in errors
        if self._only_nonce:
            self._nonces += 1
            return self._nonces <= MOST_NONCES
        if len(self._made) >= MOST_RENEWALS or self._call is None:
            return False
        if status == 401:
            return "signed_in" not in self._made
        return "insufficient_scope" in errors and self._made.count("signed_in") < MOST_SIGN_INS

    def renew(self) -> bool:
        if self._only_nonce:
            return True
        assert self._call is not None
        if self._status == 403 and not self._more():
            return False
        result = self._account.renew(self._call, self._sent, self._challenge, self._status, self._made)
        if isinstance(result, McpError):
            raise result
        self._made.append(result[1])
        return result[1] != "nothing"

    def _more(self) -> bool:
        """Whether the server wants a scope that was not asked for yet: else nothing would come of asking again."""
        wanted = self._challenge.scope if self._challenge is not None else None
        if wanted is None:  # servers of the official Python SDK never say which: what they publish may be more
            return "signed_in" not in self._made
        return not set(wanted) <= set(self._sent.requested if self._sent is not None else ())


class _Locked:
    """A lock of a store, whose time being over is told as ours."""

    def __init__(self, lock: AbstractContextManager[object], name: str, deadline: Deadline) -> None:
        self._lock = lock
        self._deadline = deadline
        self._name = name

    def __enter__(self) -> None:
        try:
            self._lock.__enter__()
        except TimeoutError:
            late = True
        else:
            late = False
        if late:
            raise timed_out(f"another process did not finish signing in to {self._name}", self._deadline)

    def __exit__(self, *fault: object) -> None:
        self._lock.__exit__(*fault)  # type: ignore[arg-type]


def _check(owner: Owner) -> None:
    if callable(owner):
        owner()
    else:
        owner.check()


def _valued(work: Callable[[], T]) -> T | McpError:
    try:
        return work()
    except McpError as error:
        return error.with_traceback(None)


def _error_in(error: McpError) -> str | None:
    """What an authorization server said when it refused something for good; None for trouble, which may pass."""
    data = error.data if error.reason == "authorization_failed" else None
    if not isinstance(data, dict) or data.get("http_status") not in (400, 401, 403):
        return None
    said: str | None = data.get("error")
    return None if said in ("temporarily_unavailable", "server_error", "slow_down") else said


def _registration(issuer: str) -> str:
    return f"client {issuer}"


def _client(text: str) -> ClientIdentity | None:
    from ..protocol import jsonrpc

    try:
        return ClientIdentity.from_dict(jsonrpc.decode(text.encode()))
    except (ValueError, jsonrpc.Malformed):
        return None


def _json(value: object) -> str:
    from ..protocol import jsonrpc

    return jsonrpc.encode(value).decode()


def _loaded(pem: str) -> ProofKey:
    try:
        return ProofKey.load(pem)
    except ValueError:
        damaged = True
    assert damaged
    raise failed("store", "the key of a stored token cannot be read: sign in again")


def _shown(query: str) -> str:
    return f" {fingerprint(query).hex()[:16]}" if query else ""
