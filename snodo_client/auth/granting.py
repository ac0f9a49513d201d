"""How one `OAuth` gets the credential for one server: from a person, as a program, or by another's word; and how it is
renewed without any of them.
"""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING

from .. import log
from ..engine.deadline import Deadline
from ..outcome import McpError, local_error
from . import discovery, flow, grants
from .clients import ClientIdentity
from .dpop import ALGORITHM, ProofKey
from .faults import failed, shown
from .records import LEEWAY, Credential

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocol.challenges import Challenge
    from ..protocol.origins import Endpoint
    from .discovery import ServerMetadata
    from .errand import Errand, Runner
    from .flow import Found
    from .grants import Token
    from .keeping import Kept
    from .oauth import OAuth
    from .records import Pending
    from .steps import Flow
    from .urls import Rules

# What is said of the server, or of a proof (RFC 9449), and not of what was sent with it.
PASSING = ("temporarily_unavailable", "server_error", "slow_down", "use_dpop_nonce", "invalid_dpop_proof")


class Granting:
    """All of it raises McpError. What is got is not kept here, but for a registration."""

    def __init__(self, oauth: OAuth, server: Endpoint, rules: Rules, runner: Runner, kept: Kept) -> None:
        self._oauth = oauth
        self._server = server
        self._rules = rules
        self._runner = runner
        self._kept = kept

    # -- where from

    def discover(self, challenge: Challenge | None, errand: Errand) -> Found:
        return self._runner.run(flow.discover(self._server, challenge, self._oauth.issuers, self._rules), errand)

    def asked(self, errand: Errand) -> tuple[Challenge | None, Found]:
        """The challenge of the server, and who issues its tokens."""
        refused, challenge = self._runner.run(flow.asked(self._server), errand)
        found = self.discover(challenge, errand)
        if found.metadata.assumed and not refused:
            silent = "asks for no token, and says nothing of where its tokens come from: is the URL right?"
            text = f"{self._server.name} {silent}"
            raise failed("resource_metadata", text)
        return challenge, found

    def described(self, issuer: str, at_origin: bool, errand: Errand) -> ServerMetadata:
        """What an authorization server that was found before says about itself now."""
        if at_origin:
            return self._runner.run(discovery.origin_metadata(self._server, self._rules), errand)
        return self._runner.run(discovery.server_metadata(issuer, self._rules), errand)

    def scopes(
        self, challenge: Challenge | None, found: Found, own: Sequence[str] = (), before: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """What to ask for."""
        return flow.scopes(challenge, found, (*self._oauth.scope, *own), before, offline=self._oauth.offline)

    def bound(self, challenge: Challenge | None, found: Found) -> bool:
        """Whether the token is to be bound to a key."""
        if self._oauth.dpop is not None:
            return self._oauth.dpop
        return found.dpop_required or (challenge is not None and challenge.scheme == "dpop")

    # -- a new one

    def grant(
        self, found: Found, scope: tuple[str, ...], bound: bool, errand: Errand, more: Sequence[str] = ()
    ) -> Credential:
        """A new credential, however this program gets them. `more` are scopes that the server only wants at times."""
        grant, metadata = self._oauth.grant, found.metadata
        if grant == "authorization_code":
            return self._by_a_person(found, scope, bound, errand, more)
        key = _new_key(metadata) if bound else None
        client, wanted, proof = self._client(metadata, None), " ".join(scope) or None, self._runner.proof(key)
        talk: Flow[Token]
        if isinstance(grant, grants.EnterpriseManaged):
            talk = grants.enterprise(
                grant, metadata, client, resource=found.resource, scope=wanted, proof=proof, now=time()
            )
        elif isinstance(grant, grants.WorkloadIdentity):
            talk = grants.workload(
                grant, metadata, client, resource=found.resource, scope=wanted, proof=proof, now=time()
            )
        else:
            parameters = grants.client_credentials(found.resource, wanted)
            talk = grants.exchange(metadata, client, parameters, proof=proof, now=time())
        token = self._runner.run(talk, errand)
        log.info("auth", "%s issued a token for %s", metadata.issuer, self._server.name)
        return self._credential(token, metadata.issuer, client, found.resource, scope, key)

    def _by_a_person(
        self, found: Found, scope: tuple[str, ...], bound: bool, errand: Errand, more: Sequence[str]
    ) -> Credential:
        oauth, server = self._oauth, self._server
        if oauth.sign_in == "never":
            command = oauth.command(server, more)
            text = f'{server.name} wants a person to sign in, and sign_in= is "never": run {command!r}'
            data = {"url": server.name, "command": command, "scope": list(scope)}
            raise local_error("sign_in_required", text, data=data)
        way, stored = oauth.way(), self._kept.registration(found.issuer)
        try:
            redirect_uri = way.redirect_uri(None if stored is None else stored.redirect_uri)
            url, pending = self.begin(found, scope, bound, redirect_uri, errand)
            limit = Deadline(oauth.sign_in_timeout, name="sign_in_timeout")

            def wait() -> float:
                errand.check()
                if limit.over:
                    self._kept.unregister(found.issuer, stored)  # it may be that this client is known there no more
                    text = (
                        f"nobody signed in to {server.name} within sign_in_timeout={limit.seconds:g} s; if the page "
                        "showed an error, see client_id= and redirect_uri="
                    )
                    raise failed("sign_in", text)
                return limit.left()

            with errand.deadline.pause(oauth.sign_in_timeout + 1.0):
                callback_url = way.sign_in(url, wait)
        except KeyboardInterrupt:
            self._kept.unregister(found.issuer, stored)  # the page may have said that it does not know the client
            raise
        finally:
            way.close()
        code = flow.code(pending, callback_url, pending.begun_at)  # the time a person has is sign_in_timeout
        return self.finish(pending, found, code, errand)

    def begin(
        self, found: Found, scope: tuple[str, ...], bound: bool, redirect_uri: str, errand: Errand
    ) -> tuple[str, Pending]:
        """The address where a person signs in, and what to go on with."""
        oauth = self._oauth
        stored = self._kept.registration(found.issuer)
        if stored is not None and (stored.redirect_uri != redirect_uri or stored.expired(time())):
            stored = None
        given = self._given(found.issuer)
        talk = flow.identify(found, given, oauth.document, stored, redirect_uri, oauth.client_name, scope)
        client = self._runner.run(talk, errand)
        if client.source == "registered" and client is not stored:
            self._kept.register(found.issuer, client)
        url, pending = flow.sign_in(self._server, found, client, redirect_uri, scope, time())
        pending.dpop = bound
        return url, pending

    def finish(self, pending: Pending, found: Found, code: str, errand: Errand) -> Credential:
        """The credential for the code that the browser came back with."""
        client = self._client(found.metadata, pending.client_id)
        if client is None:
            raise failed("token", f"the client that signed in at {found.issuer} is not known any more: begin again")
        key = _new_key(found.metadata) if pending.dpop else None
        parameters = grants.authorization_code(code, pending.verifier, pending.redirect_uri, pending.resource)
        proof = self._runner.proof(key)
        try:
            token = self._runner.run(
                grants.exchange(found.metadata, client, parameters, proof=proof, now=time()), errand
            )
        except McpError as error:
            if refusal_in(error) == "invalid_client":
                self._kept.unregister(found.issuer, client)
            raise
        log.info("auth", "signed in to %s at %s", self._server.name, found.issuer)
        credential = self._credential(token, found.issuer, client, pending.resource, pending.requested, key)
        credential.at_origin = pending.at_origin
        return credential

    # -- the same for longer

    def refresh(
        self, before: Credential, metadata: ServerMetadata, key: ProofKey | None, errand: Errand
    ) -> Credential | None:
        """The credential again, refreshed; None where the authorization server refuses that for good."""
        client = self._client(metadata, before.client_id)
        if client is None and before.client_id is not None:
            return None
        parameters = grants.refresh(before.refresh_token or "", before.resource)
        talk = grants.exchange(metadata, client, parameters, proof=self._runner.proof(key), now=time())
        try:
            token = self._runner.run(talk, errand)
        except McpError as error:
            refusal = refusal_in(error)
            if refusal is None:
                raise
            if refusal == "invalid_client":
                self._kept.unregister(metadata.issuer, client)
            log.info("auth", "%s does not refresh the token for %s", metadata.issuer, self._server.name)
            return None
        credential = self._credential(token, metadata.issuer, client, before.resource, before.requested, key)
        credential.refresh_token = token.refresh_token or before.refresh_token
        credential.scope = token.scope or before.scope
        credential.at_origin = before.at_origin
        return credential

    # -- parts of that

    def _client(self, metadata: ServerMetadata, client_id: str | None) -> ClientIdentity | None:
        """Who this is for an authorization server; None when that is nobody, or not who `client_id` says."""
        oauth = self._oauth
        known = self._given(metadata.issuer)
        takes_documents = metadata.takes_metadata_documents and not isinstance(oauth.grant, grants.WorkloadIdentity)
        if known is None and oauth.document is not None and takes_documents:
            document = ClientIdentity(oauth.document, method="none", source="metadata_document")
            known = document if client_id in (None, oauth.document) else None
        if known is None and oauth.grant == "authorization_code":
            known = self._kept.registration(metadata.issuer)
        return known if known is not None and client_id in (None, known.client_id) else None

    def _given(self, issuer: str) -> ClientIdentity | None:
        """The client of client_id=, if there is one. It is bound to its authorization server: to those of issuer=, else
        to the first one that it was used at. Another may be anybody's, and would get its secret.
        """
        oauth = self._oauth
        given = oauth.client
        if given is None or oauth.issuers:
            return given
        first = self._kept.issuer_of(given.client_id) or oauth.first_issuer.get(given.client_id, issuer)
        if first != issuer:
            text = (
                f"{self._server.name} gets its tokens from {issuer}, and client_id= was used at {first}: "
                "if both know this client, say so with issuer="
            )
            raise failed("server_metadata", text)
        return given

    def _credential(
        self,
        token: Token,
        issuer: str,
        client: ClientIdentity | None,
        resource: str | None,
        requested: tuple[str, ...],
        key: ProofKey | None,
    ) -> Credential:
        if self._oauth.dpop and token.token_type != "dpop":
            raise failed("token", f"{issuer} issued a bearer token, and dpop=True wants one bound to a key")
        if client is not None and client.source == "given" and not self._oauth.issuers:
            self._oauth.first_issuer.setdefault(client.client_id, issuer)
            self._kept.bind(client.client_id, issuer)  # not before: who only refuses is not where it belongs to
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


def refusal_in(error: McpError) -> str | None:
    """What an authorization server said when it refused something for good; None for trouble, which may pass."""
    data = error.data if error.reason == "authorization_failed" else None
    if not isinstance(data, dict) or data.get("http_status") not in (400, 401, 403):
        return None
    said: str | None = data.get("error")
    if said is None and data["http_status"] != 403:  # which may come from anything on the way
        return "refused"
    return None if said in PASSING else said


def _new_key(metadata: ServerMetadata) -> ProofKey:
    if metadata.dpop_algorithms and ALGORITHM not in metadata.dpop_algorithms:
        taken = shown(", ".join(metadata.dpop_algorithms))
        raise failed("token", f"{metadata.issuer} takes proofs (DPoP) signed with {taken}, not {ALGORITHM}")
    try:
        return ProofKey.new()
    except ValueError as error:
        problem = str(error)
    raise failed("token", f"{metadata.issuer} wants the token bound to a key: {problem}")
