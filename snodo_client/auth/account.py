"""One `OAuth` at one server: the credential it has there, and when it is renewed, or another one is got.

Threads that need a new credential wait for the one that gets it; processes do so where their store has a lock.
"""

from __future__ import annotations

from time import monotonic, time
from typing import TYPE_CHECKING, TypeVar

from .. import log
from ..engine.flight import Flight
from ..outcome import McpError
from . import flow
from .dpop import Nonces, ProofKey
from .errand import Errand, Runner
from .exchange import Exchange
from .faults import failed
from .granting import Granting
from .keeping import Kept
from .records import Credential

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Literal, TypeAlias

    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from ..protocol.challenges import Challenge
    from ..protocol.origins import Endpoint
    from .discovery import ServerMetadata
    from .fetching import Fetcher
    from .oauth import OAuth
    from .records import Pending
    from .urls import Rules

    # How a credential was got: by another thread or process, by a refresh, or anew; "same": there is no other.
    How: TypeAlias = Literal["found", "refreshed", "granted", "same"]
    Got: TypeAlias = tuple[Credential | None, How]  # None: there is none, or somebody signed out

T = TypeVar("T")

VAIN_SECONDS = 60.0
AGAIN_SECONDS = 10.0  # from a vain try to renew what is still good to the next


class Account:
    """Made by `OAuth`, which checked all it is made of."""

    def __init__(self, oauth: OAuth, server: Endpoint, rules: Rules, fetcher: Fetcher) -> None:
        self.server = server
        self.nonces = Nonces()  # of the server
        self._oauth = oauth
        self._kept = Kept(oauth.store, server, oauth.who)
        self._granting = Granting(oauth, server, rules, Runner(fetcher), self._kept)
        self._flight: Flight[Got] = Flight(f"signing in to {server.name}")
        self._credential: Credential | None = None
        self._unkept: Credential | None = None  # what the store did not take
        self._vain_until = 0.0
        self._metadata: ServerMetadata | None = None  # of its issuer, as far as it was asked for
        self._proof_key: tuple[str, ProofKey] | None = None

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
        if call is not None and known.refresh_token is not None:
            known = self._refreshed_in_time(known, call)
        return None if known is None or known.expired(time()) else known

    def proof_key(self, credential: Credential) -> ProofKey | None:
        """The key that a credential is bound to, if it is bound to one."""
        pem = credential.dpop_key
        if pem is None:
            return None
        if self._proof_key is None or self._proof_key[0] != pem:
            self._proof_key = pem, _loaded(pem)
        return self._proof_key[1]

    def load(self) -> Credential | None:
        """What is kept in the store, if it is of use."""
        known = self._unkept or self._kept.credential()
        if known is None or (self._oauth.dpop and known.dpop_key is None):
            return None
        return known if not self._oauth.issuers or known.issuer in self._oauth.issuers else None

    def forget(self, deadline: Deadline) -> None:
        """Drop the credential, here and in the store, once nobody is renewing it."""
        with self._kept.locked(Errand(deadline)):
            self._credential = self._unkept = None
            self._kept.forget()

    def in_vain(self) -> None:
        """A credential that was just granted was refused: nobody is sent to sign in again for a while."""
        self._vain_until = monotonic() + VAIN_SECONDS

    # -- another one, for a call

    def renew(
        self, call: Call, sent: Credential | None, challenge: Challenge | None, status: int, made: Sequence[How]
    ) -> Got | McpError:
        """A credential in the place of the one that was refused. `made` is how those before it were got, in this
        exchange.
        """
        own = False

        def work(errand: Errand) -> Got:
            nonlocal own
            own = True
            return self._renewed(errand, sent, challenge, status, made)

        while True:
            got = self._once(call, work)
            if own or isinstance(got, McpError) or got[1] != "same":
                return got
            # That there is nothing else was said of another refusal, or to who may not ask a person.

    def _renewed(
        self,
        errand: Errand,
        sent: Credential | None,
        challenge: Challenge | None,
        status: int,
        made: Sequence[How],
    ) -> Got:
        current = self.load()
        if current is not None and not current.expires(time()):
            other = sent is None or current.access_token != sent.access_token
            enough = status != 403 or set(challenge.scope or () if challenge else ()) <= set(current.requested)
            if other and enough:
                self._credential = current
                return current, "found"
        # Nothing is taken from an earlier discovery: the server may have another authorization server by now.
        found = self._granting.discover(challenge, errand)
        self._metadata = found.metadata
        if current is not None and current.issuer != found.issuer:
            moved = "%s gets its tokens from %s now, before from %s"
            log.info("auth", moved, self.server.name, found.issuer, current.issuer)
            current = None
        if status == 401 and current is not None and current.refresh_token and "refreshed" not in made:
            refreshed = self._refreshed(current, found.metadata, errand)
            if refreshed is not None:
                return refreshed, "refreshed"
        before = current.requested if current is not None else ()
        scope = self._granting.scopes(challenge, found, before=before)
        if status == 403 and current is not None and set(scope) <= set(before):
            return current, "same"  # nobody is asked again for what was given, or refused
        by_a_person = self._oauth.grant == "authorization_code"
        if monotonic() < self._vain_until or (by_a_person and not errand.for_a_person):
            return current, "same"
        more = challenge.scope if status == 403 and challenge is not None else None
        bound = self._granting.bound(challenge, found)
        return self._keep(self._granting.grant(found, scope, bound, errand, more or ())), "granted"

    # -- the same for longer

    def _refreshed_in_time(self, known: Credential, call: Call) -> Credential | None:
        early = not known.expired(time())
        if early and self._flight.under_way:
            return known  # it may be a person who is waited for there
        result = self._once(call, self._again, patient=not early)
        if not isinstance(result, McpError):
            return result[0]
        if known.expired(time()):
            raise result
        known.renew_at = time() + AGAIN_SECONDS
        return known

    def _again(self, errand: Errand) -> Got:
        current = self.load()
        if current is None or not current.expires(time()) or current.refresh_token is None:
            self._credential = current
            return current, "found"
        metadata = self._metadata
        if metadata is None or metadata.issuer != current.issuer:
            metadata = self._metadata = self._granting.described(current.issuer, current.at_origin, errand)
        refreshed = self._refreshed(current, metadata, errand)
        return (current, "found") if refreshed is None else (refreshed, "refreshed")

    def _refreshed(self, before: Credential, metadata: ServerMetadata, errand: Errand) -> Credential | None:
        """A refreshed credential, kept. None where the authorization server refuses, which is kept as well."""
        if self._oauth.issuers and metadata.issuer not in self._oauth.issuers:
            return None
        refreshed = self._granting.refresh(before, metadata, self.proof_key(before), errand)
        if refreshed is None:
            current = self.load()
            if current is None or current.access_token != before.access_token:
                self._credential = current  # where the store has no lock, another process may have been faster
                return current
            before.refresh_token = None
        self._keep(refreshed or before)
        return refreshed

    # -- without a call

    def ask(self, deadline: Deadline, redirect_uri: str, scope: Sequence[str]) -> tuple[str, Pending] | McpError:
        """The address where a person signs in to the server, and what to go on with."""
        granting, errand = self._granting, Errand(deadline)

        def work() -> tuple[str, Pending]:
            challenge, found = granting.asked(errand)
            wanted = granting.scopes(challenge, found, scope)
            return granting.begin(found, wanted, granting.bound(challenge, found), redirect_uri, errand)

        return _valued(work)

    def finish(self, pending: Pending, callback_url: str, deadline: Deadline) -> Credential | McpError:
        """Go on with what the browser came back with."""
        granting, errand = self._granting, Errand(deadline)

        def work() -> Credential:
            code = flow.code(pending, callback_url, time())  # before anything is asked
            issuers = self._oauth.issuers
            if issuers and pending.issuer not in issuers:
                raise failed("server_metadata", f"the sign-in was begun at {pending.issuer}, which is not in issuer=")
            metadata = granting.described(pending.issuer, pending.at_origin, errand)
            found = flow.Found(metadata, pending.resource, at_origin=pending.at_origin)
            return self._keep_anew(granting.finish(pending, found, code, errand))

        return _valued(work)

    def log_in(self, deadline: Deadline, scope: Sequence[str]) -> Credential | McpError:
        """A new credential, whatever there is."""
        granting, errand = self._granting, Errand(deadline)

        def work() -> Credential:
            challenge, found = granting.asked(errand)
            wanted = granting.scopes(challenge, found, scope)
            return self._keep_anew(granting.grant(found, wanted, granting.bound(challenge, found), errand))

        return _valued(work)

    # -- parts of all that

    def _keep(self, credential: Credential) -> Credential:
        self._credential = self._unkept = credential  # used also where it cannot be kept
        self._kept.keep(credential)
        self._unkept = None
        return credential

    def _keep_anew(self, credential: Credential) -> Credential:
        """One that somebody asked for: what was in vain before says nothing of it."""
        self._vain_until = 0.0
        return self._keep(credential)

    def _once(self, call: Call, work: Callable[[Errand], Got], *, patient: bool = True) -> Got | McpError:
        """Do it for all threads and processes that want it now. Unless `patient`, no other process is waited for."""

        def alone(deadline: Deadline) -> Got | McpError:
            errand = Errand(deadline, call, patient=patient)

            def locked() -> Got:
                with self._kept.locked(errand):
                    return work(errand)

            return _valued(locked)

        return self._flight.run(alone, call.deadline, call.unsettled)


def _valued(work: Callable[[], T]) -> T | McpError:
    try:
        return work()
    except McpError as error:
        return error.with_traceback(None)


def _loaded(pem: str) -> ProofKey:
    try:
        return ProofKey.load(pem)
    except ValueError as error:
        problem = str(error)
    raise failed("store", f"the key of a stored token cannot be used, sign in again: {problem}")
