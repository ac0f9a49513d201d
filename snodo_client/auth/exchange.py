"""The credential in one exchange: how it is put into a request, and what a refusal leads to.

Nothing that a refusal led to is done twice for the same reason, and a person is asked at most three times.
"""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING

from ..outcome import McpError
from ..protocol.challenges import chosen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..engine.call import Call
    from ..protocol.challenges import Challenge
    from ..transports.http_adapter import Outgoing
    from .account import Account, How
    from .records import Credential

MOST_GRANTS = 3
MOST_RENEWALS = 6
MOST_NONCES = 2


class Exchange:
    """A `Signature` of the transport; `call` is None for an exchange that is never sent."""

    __slots__ = ("_account", "_call", "_challenge", "_made", "_nonces", "_only_nonce", "_sent", "_status")

    renews = True

    def __init__(self, account: Account, call: Call | None) -> None:
        self._account = account
        self._call = call
        self._sent: Credential | None = None
        self._made: list[How] = []
        self._nonces = 0
        self._only_nonce = False
        self._challenge: Challenge | None = None
        self._status = 0

    def apply(self, outgoing: Outgoing) -> None:
        account = self._account
        credential = self._sent = account.credential(self._call)
        if credential is None:
            return
        token, key = credential.access_token, account.proof_key(credential)
        headers = {"Authorization": f"{'Bearer' if key is None else 'DPoP'} {token}"}
        if key is not None:
            endpoint = outgoing.endpoint
            nonce = account.nonces.newest(endpoint.origin)
            headers["DPoP"] = key.proof(outgoing.method or "", endpoint.name, time(), token=token, nonce=nonce)
        outgoing.headers.update(headers)
        outgoing.secret.update(headers)

    def heard(self, headers: Mapping[str, str]) -> None:
        self._account.nonces.heard(self._account.server.origin, headers.get("dpop-nonce"))

    def answers(self, status: int, found: Sequence[Challenge]) -> bool:
        self._challenge, self._status = chosen(found), status
        errors = [challenge.error for challenge in found]
        self._only_nonce = status == 401 and "use_dpop_nonce" in errors
        if self._only_nonce:
            self._nonces += 1
            return self._nonces <= MOST_NONCES
        if self._call is None or (status == 403 and "insufficient_scope" not in errors):
            return False
        grants = self._made.count("granted")
        vain = len(self._made) >= MOST_RENEWALS or (grants > 0 if status == 401 else grants >= MOST_GRANTS)
        if vain and grants:
            self._account.in_vain()
        return not vain and (status == 401 or self._wants_more())

    def renew(self) -> bool:
        if self._only_nonce:
            return True
        assert self._call is not None
        got = self._account.renew(self._call, self._sent, self._challenge, self._status, self._made)
        if isinstance(got, McpError):
            raise got
        self._made.append(got[1])
        return got[1] != "same"

    def _wants_more(self) -> bool:
        """Whether the server wants a scope that was not asked for yet. A server made with the official Python SDK never
        says which: what it publishes may be more.
        """
        wanted = self._challenge.scope if self._challenge is not None else None
        if wanted is None:
            return "granted" not in self._made
        return not set(wanted) <= set(self._sent.requested if self._sent is not None else ())
