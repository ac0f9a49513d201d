"""What something is done for: until when, for which call, and whether a person may be asked. And the flows that are run
for it, with real requests.
"""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, TypeVar

from ..outcome import McpError
from ..reasons import REASONS
from .dpop import Nonces, ProofKey
from .faults import failed

if TYPE_CHECKING:
    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from .fetching import Fetcher
    from .grants import Proof
    from .steps import Fetch, Flow, Reply

T = TypeVar("T")


class Errand:
    """`call` is the call that waits for it; None where somebody asked for just this. `patient`: other processes that
    are at the same are waited for.
    """

    __slots__ = ("call", "deadline", "patient")

    def __init__(self, deadline: Deadline, call: Call | None = None, *, patient: bool = True) -> None:
        self.deadline = deadline
        self.call = call
        self.patient = patient

    @property
    def for_a_person(self) -> bool:
        """Whether somebody waits, who may sign in: not so for the end of a session, say."""
        call = self.call
        return call is None or call.wire_id is not None or getattr(call.request, "opens", False)

    def check(self) -> None:
        """Raise what ended the call, if anything has."""
        if self.call is not None:
            self.call.check()


class Runner:
    """Runs flows. `nonces` are those of authorization servers, by origin: servers have others."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._nonces = Nonces()

    def run(self, flow: Flow[T], errand: Errand) -> T:
        """What a flow finds. Raises McpError: what goes wrong with a request is an error of the flow, not of the
        server whose call it is for.
        """
        try:
            fetch = next(flow)
            while True:
                try:
                    reply = self._fetched(fetch, errand)
                except McpError as error:
                    fetch = flow.throw(error)
                else:
                    fetch = flow.send(reply)
        except StopIteration as done:
            found: T = done.value
            return found

    def proof(self, key: ProofKey | None) -> Proof | None:
        """What proves the possession of a key in token requests."""
        if key is None:
            return None

        def prove(fetch: Fetch, nonce: str | None) -> None:
            nonce = nonce or self._nonces.newest(fetch.endpoint.origin)
            fetch.headers["DPoP"] = key.proof(fetch.method, fetch.endpoint.name, time(), nonce=nonce)

        return prove

    def _fetched(self, fetch: Fetch, errand: Errand) -> Reply:
        try:
            reply = self._fetcher.fetch(fetch, errand.deadline, errand.call or errand.check)
        except McpError as error:
            if error.reason == "timeout" and errand.deadline.over:
                raise  # it says who was slow; the check of the call would blame the protected server
            errand.check()
            fault = error
        else:
            self._nonces.heard(fetch.endpoint.origin, reply.headers.get("dpop-nonce"))
            return reply
        said = fault.message.removesuffix(f" ({REASONS[fault.reason or ''].advice})")  # ours has its own
        raise failed(fetch.step, said, fetch=fetch, cause=fault.with_traceback(None))
