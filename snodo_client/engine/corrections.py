"""What may be sent again: the few refusals that say that a request was not run, and what to change before it is sent
again. Each correction is made once; everything else is the outcome of its call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import McpError, local_error
from ..protocol import refusals, versions
from ..protocol.requests import Request
from ..reasons import HEADER_MISMATCH, UNSUPPORTED_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..outcome import Outcome
    from ..transports.base import Link
    from .call import Call
    from .catalog import Catalog
    from .connection import Connection
    from .deadline import Deadline

# Errors that say a request was refused, not that it failed.
REFUSED = (-32700, -32600, -32601, -32602, -32000, UNSUPPORTED_VERSION)
# What sets something on the server for as long as the link lasts.
SETTINGS = ("logging/setLevel", "resources/subscribe")


class Again:
    """Send `request` on `link`. `why` is "version", "headers", "session" or "era"."""

    __slots__ = ("link", "request", "why")

    def __init__(self, link: Link, request: Request, why: str) -> None:
        self.link = link
        self.request = request
        self.why = why


class Corrections:
    """`ready` gives the link to use by now; `relist` learns the definitions of the tools again."""

    def __init__(
        self,
        connection: Connection,
        catalog: Catalog,
        ready: Callable[[Deadline], Link | McpError],
        relist: Callable[[Deadline], object],
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._ready = ready
        self._relist = relist

    def after(self, call: Call, link: Link, outcome: Outcome, made: set[str]) -> Outcome | Again:
        """What to send again after an attempt, else the outcome there is. `made` are the corrections of this call."""
        agreement = link.agreement
        if not isinstance(outcome, McpError):
            if call.request.method in SETTINGS:
                self._connection.settings.add(call.request.method)
            if agreement is not None:
                agreement.remembered = False  # it was right
            return outcome
        crossed = link.legacy and call.request.version in versions.MODERN  # somebody found it out meanwhile
        if agreement is not None and (agreement.remembered or crossed):
            doubted = self._doubted(call, link, outcome)
            if doubted is not None:
                return doubted
        if outcome.reason == "session_lost" and "session" not in made:
            made.add("session")
            other = self._connection.renew(link, call.deadline)
            return other if isinstance(other, McpError) else Again(other, call.request, "session")
        if outcome.reason is not None or link.legacy:
            return outcome
        return self._corrected(call, link, outcome, made)

    def _doubted(self, call: Call, link: Link, outcome: McpError) -> Outcome | Again | None:
        """An error, when the era is only remembered: it may be that of a server of the other one. Such a server has not
        run what it refused, and is asked again in its own way. None when the era is right.
        """
        agreement, traits = link.agreement, self._connection.transport.traits
        gone = traits.silence_is_legacy and (outcome.reason == "timeout" or link.lost is not None)
        refused = refusals.legacy_signal(outcome) or (outcome.reason is None and outcome.code == UNSUPPORTED_VERSION)
        if agreement is not None and agreement.remembered:
            if not (gone or refused):
                agreement.remembered = outcome.reason is not None
                return None
            self._connection.doubt(link, agreement)
        elif not (gone or refused):
            return None  # trouble on the way: it may have run
        if gone:
            return outcome  # it may have run; the next call asks the server what it speaks
        other = self._ready(call.deadline)
        if isinstance(other, McpError):
            return outcome
        if not other.legacy:
            return None
        not_run = call.request.idempotent or outcome.reason is not None or outcome.code in REFUSED
        return Again(other, call.request, "era") if not_run else outcome

    def _corrected(self, call: Call, link: Link, refusal: McpError, made: set[str]) -> McpError | Again:
        """A refusal of the version or the headers of a request."""
        request = call.request
        if refusal.code == UNSUPPORTED_VERSION:
            allowed = self._connection.allowed
            version = refusals.another_version(refusal, allowed, made)
            if version is None:
                return refusals.no_version_left(refusal, allowed, self._connection.name)
            made.add(version)
            return Again(link, request.copy(version=version), "version")
        mirrored = request.method == "tools/call" and self._connection.mirrors
        if refusal.code == HEADER_MISMATCH and mirrored and "headers" not in made:
            made.add("headers")
            listed = self._relist(call.deadline)
            annotations = self._catalog.annotations(request.params.get("name"))
            if annotations and not isinstance(listed, McpError):
                try:
                    return Again(link, request.copy(annotations=annotations), "headers")
                except ValueError as error:  # only now known: the tool mirrors an argument that no header can carry
                    return local_error("invalid_arguments", str(error), data={"method": request.method})
        return refusal
