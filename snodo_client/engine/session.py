"""The one blocking path. A session owns a transport and its link, agrees on a protocol version once, and takes each
call from request to outcome in the thread that makes it. Every other thread only delivers, settles or wakes.
"""

from __future__ import annotations

from itertools import count
from os import getpid
from typing import TYPE_CHECKING

from ..outcome import McpError, Ok, Progress, local_error
from ..protocol import jsonrpc, operations, refusals, results, versions
from ..protocol.requests import Request
from ..reasons import HEADER_MISMATCH, UNSUPPORTED_VERSION
from . import exits
from .answering import Answering
from .call import Call, timeout_error
from .catalog import Catalog
from .connection import Connection
from .deadline import Deadline
from .exchange import let_go, received
from .flight import Flight
from .handlers import Handlers
from .inbound import Router
from .lists import Lists
from .pending import Pending
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from ..outcome import Outcome
    from ..protocol.agreement import Agreement
    from ..protocol.requests import Identity
    from ..transports.base import Link, Transport
    from .call import Message
    from .inbound import OnLog, OnNotification

    OnProgress = Callable[[Progress], object]

# How long a cancellation may try to reach a server that does not read.
CANCEL_SECONDS = 5.0
# The same for the answer to something the server asked.
ANSWER_SECONDS = 10.0
CLOSE_SECONDS = 10.0
# How long closing waits for callbacks that are still to be called.
CALLBACK_SECONDS = 1.0
MAX_WAITING_CALLBACKS = 1000
# How many messages are read after the deadline, for the answer may be among them.
MAX_LATE = 1000
# Errors that say a request was refused, not that it failed; and what only an input round of 2026-07-28 has.
REFUSED = (-32700, -32600, -32601, -32602, -32000, UNSUPPORTED_VERSION)
SETTINGS = ("logging/setLevel", "resources/subscribe")
ROUND_MEMBERS = ("inputResponses", "requestState")


class Session:
    def __init__(
        self,
        transport: Transport,
        identity: Identity,
        allowed: Sequence[str],
        *,
        probe_timeout: float,
        max_pages: int,
        remembered: Agreement | None = None,
        handlers: Handlers | None = None,
        on_log: OnLog | None = None,
        on_notification: OnNotification | None = None,
    ) -> None:
        self.identity = identity
        self.pid = getpid()
        self.catalog = Catalog()
        self._allowed = allowed
        self._callbacks = Worker("snodo-callbacks", MAX_WAITING_CALLBACKS)
        self._control = Worker("snodo-control", MAX_WAITING_CALLBACKS)
        self._ids = count(1)
        self._pending = Pending()
        router = Router(self._pending, self.catalog, self._callbacks, on_log, on_notification)
        connection = Connection(transport, router, self._pending, identity, allowed, probe_timeout, remembered)
        # Nothing in there leads to the session, which is closed when the last of its users lets go of it.
        self.connection = connection
        self._answering = Answering(
            handlers or Handlers({}),
            lambda message, link: connection.send(message, link, Deadline(ANSWER_SECONDS)),
            self._control,
            lambda: agreement.server_info if (agreement := connection.agreement) else None,
        )
        self._router = router
        router.answering = self._answering
        self.lists = Lists(self.call, lambda: self.name, self._mirrored_catalog, max_pages)
        self._relist: Flight[list[Any]] = Flight("listing the tools")

    # -- readiness

    def ready(self, deadline: Deadline) -> Link | McpError:
        """The link to use, opened and agreed on if it is not yet."""
        link = self.connection.link
        if link is not None and link.lost is None:
            return link
        if not self.connection.closed:
            exits.add(self)
        return self.connection.ready(deadline)

    def begin(self, deadline: Deadline) -> None:
        """Negotiate in the background; calls wait for it, each inside its own deadline."""
        exits.add(self)
        self.connection.begin(deadline)

    @property
    def agreement(self) -> Agreement | None:
        return self.connection.agreement

    # -- calls

    def call(self, request: Request, deadline: Deadline, on_progress: OnProgress | None = None) -> Outcome:
        """Take one call from request to outcome.

        Only what `on_progress` raises, and an interruption of the calling thread, get out of here; the request is
        cancelled then. Raises ValueError, before anything is sent, for an argument that no header can carry.
        """
        if request.annotations is None and self._mirrors(request):
            known = self.catalog.annotations(request.params.get("name"))
            request = request.copy(annotations=known) if known else request
        wants_progress = on_progress is not None or deadline.max_total is not None
        call = Call(next(self._ids), request, deadline, wants_progress=wants_progress)
        outcome: Outcome | None = None
        try:
            outcome = self._perform(call, on_progress)
        finally:
            try:
                if outcome is None:
                    self._cancel(call, "The client stopped waiting")
                elif isinstance(outcome, McpError) and outcome.reason in ("timeout", "max_total_timeout"):
                    self._cancel(call, "The client's time for this request is over")
                self._pending.forget(call)
            except BaseException:  # interrupted again, or only now
                self._pending.forget(call)
                raise
        return call.settle(outcome)

    def _perform(self, call: Call, on_progress: OnProgress | None) -> Outcome:
        link = self.ready(call.deadline)
        if isinstance(link, McpError):
            return link
        made: set[str] = set()  # corrections
        while True:
            refused = operations.refusal(call.request.method, link.version, link.name)
            if refused is not None:
                return refused
            call.request = _fitted(call.request, link.version)
            outcome = self._attempt(call, link, on_progress)
            again = self._again(call, link, outcome, made)
            if not isinstance(again, tuple):
                return again
            link, request = again
            call.restart(request)
            try:
                call.check()
            except McpError as error:
                return error

    def _again(self, call: Call, link: Link, outcome: Outcome, made: set[str]) -> Outcome | tuple[Link, Request]:
        """Where to send which request again, for the few refusals that say it was not run; else the outcome there is.
        Each correction is made once.
        """
        agreement = link.agreement
        if not isinstance(outcome, McpError):
            if call.request.method in SETTINGS:
                self.connection.settings.add(call.request.method)
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
            self._answered(call)
            other = self.connection.renew(link, call.deadline)
            return other if isinstance(other, McpError) else (other, call.request)
        if outcome.reason is not None:
            return outcome
        self._answered(call)
        corrected = self._corrected(call, link, outcome, made)
        return (link, corrected) if isinstance(corrected, Request) else corrected

    def _answered(self, call: Call) -> None:
        """There is nothing to cancel until the call is sent again."""
        self._pending.forget(call)
        call.wire_id = None

    def _doubted(self, call: Call, link: Link, outcome: McpError) -> Outcome | tuple[Link, Request] | None:
        """An error, when the era is only remembered: it may be that of a server of the other one. Such a server has not
        run what it refused, and is asked again in its own way. None when the era is right.
        """
        agreement, traits = link.agreement, self.connection.transport.traits
        gone = traits.silence_is_legacy and (outcome.reason == "timeout" or link.lost is not None)
        refused = refusals.legacy_signal(outcome) or (outcome.reason is None and outcome.code == UNSUPPORTED_VERSION)
        if agreement is not None and agreement.remembered:
            if not (gone or refused):
                agreement.remembered = outcome.reason is not None
                return None
            self.connection.doubt(link, agreement)
        elif not (gone or refused):
            return None  # trouble on the way: it may have run
        if gone:
            return outcome  # it may have run; the next call asks the server what it speaks
        other = self.ready(call.deadline)
        if isinstance(other, McpError):
            return outcome
        if not other.legacy:
            return None
        self._answered(call)
        not_run = call.request.idempotent or outcome.reason is not None or outcome.code in REFUSED
        return (other, call.request) if not_run else outcome

    def _corrected(self, call: Call, link: Link, refusal: McpError, refused: set[str]) -> Request | McpError:
        """The request to send after a refusal of its version or its headers, or the error there is."""
        request = call.request
        if link.legacy:
            return refusal
        if refusal.code == UNSUPPORTED_VERSION:
            version = refusals.another_version(refusal, self._allowed, refused)
            if version is None:
                return refusals.no_version_left(refusal, self._allowed, self.name)
            refused.add(version)
            return request.copy(version=version)
        if refusal.code == HEADER_MISMATCH and self._mirrors(request) and "headers" not in refused:
            refused.add("headers")
            listed = self._relist.run(self._list_tools, call.deadline)
            annotations = self.catalog.annotations(request.params.get("name"))
            if annotations and not isinstance(listed, McpError):
                try:
                    return request.copy(annotations=annotations)
                except ValueError as error:  # only now known: the tool mirrors an argument that no header can carry
                    return local_error("invalid_arguments", str(error), data={"method": request.method})
        return refusal

    def _list_tools(self, deadline: Deadline) -> list[Any] | McpError:
        return self.lists.whole("tools", Request("tools/list"), deadline)

    @property
    def mirrors(self) -> bool:
        """Whether arguments of tools are mirrored in headers, as far as is known by now."""
        return self._mirrored_catalog() is not None

    def _mirrors(self, request: Request) -> bool:
        return request.method == "tools/call" and self.mirrors

    def _mirrored_catalog(self) -> Catalog | None:
        """The catalog, where tool definitions matter for sending."""
        link = self.connection.link
        legacy = link is not None and link.legacy
        return self.catalog if self.connection.transport.traits.mirrors_headers and not legacy else None

    def _attempt(self, call: Call, link: Link, on_progress: OnProgress | None) -> Outcome:
        """One request on the wire and what came back for it."""
        exchange = self.connection.exchange(call, link)
        if isinstance(exchange, McpError):
            return exchange
        try:
            return self._receive(call, link, exchange, on_progress)
        finally:
            let_go(exchange)

    def _receive(self, call: Call, link: Link, exchange: Iterator[Message], on_progress: OnProgress | None) -> Outcome:
        method, wire_id, late = call.request.method, call.wire_id or 0, 0
        while True:
            message = received(exchange, link, method)
            if isinstance(message, McpError):
                return message
            if "method" not in message:
                astray = results.misdirected(message, wire_id, link.name, call.status)
                if astray is None and "id" in message and type(message["id"]) is not int:
                    self._router.tolerate(message, link)
                return astray or results.decode(message, method, link.name, call.status, call.request.version)
            progress = _progress_of(message, wire_id) if call.wants_progress else None
            settled = call.outcome
            if settled is not None:
                return settled
            if call.deadline.over:  # what has arrived may still hold the answer; an endless stream does not
                late += 1
                if late > MAX_LATE:
                    return timeout_error(call)
            if progress is None:
                self._router.notice(message, link, call)
                continue
            call.deadline.extend()
            if on_progress is not None and not call.deadline.over:
                on_progress(Progress(progress))

    def _cancel(self, call: Call, reason: str) -> None:
        """Tell the server that nobody waits any more, where dropping the exchange has not told it already."""
        link = call.link
        if link is None or link.lost or call.wire_id is None or call.delivery == "not_sent":
            return
        if not link.legacy and self.connection.transport.traits.cancel != "notify":
            return
        if "task" in call.request.params:  # tasks/cancel ends a task, and nothing else may (2025-11-25: tasks)
            return
        message = jsonrpc.notification("notifications/cancelled", {"requestId": call.wire_id, "reason": reason})
        self._control.submit(lambda: self.connection.send(message, link, Deadline(CANCEL_SECONDS)))

    # -- notifications

    def notify(self, method: str, params: dict[str, Any], deadline: Deadline) -> Outcome:
        """Send a notification. Raises ValueError, before anything is sent, for params that JSON cannot carry."""
        message = jsonrpc.notification(method, params or None)
        jsonrpc.encode(message)
        link = self.ready(deadline)
        if isinstance(link, McpError):
            return link
        if self.connection.closed:
            return self.connection.closed_error()
        refused = operations.refusal(method, link.version, link.name)
        if refused is not None:
            return refused
        failed = self.connection.send(message, link, deadline)
        if failed is not None and failed.reason == "session_lost":
            other = self.connection.renew(link, deadline)
            failed = other if isinstance(other, McpError) else self.connection.send(message, other, deadline)
        return failed or Ok({})

    def roots_changed(self) -> None:
        """Tell a server that was told it would be; the others ask when they need them."""
        link = self.connection.link
        if link is not None and link.legacy and self.identity.legacy_capabilities.get("roots", {}).get("listChanged"):
            message = jsonrpc.notification("notifications/roots/list_changed")
            self._control.submit(lambda: self.connection.send(message, link, Deadline(CANCEL_SECONDS)))

    # -- the end

    def close(self, deadline: Deadline) -> None:
        """End every call with "closed" and let go of the transport. Idempotent, from any thread."""
        connection = self.connection
        connection.closed = True
        error = local_error("closed", f"the client of {self.name} was closed")
        for call in self._pending.calls():
            call.finish(error.copy())
        exits.discard(self)
        connection.close(deadline)
        # Notifications that arrived are still told, within reason; cancellations have nowhere to go any more.
        self._answering.close(deadline.sub(0.0))
        self._control.close(deadline.sub(0.0))
        self._callbacks.close(deadline.sub(CALLBACK_SECONDS))

    def forked(self) -> None:
        """In the child of a fork. A transport that can be used there reopens by itself; the others are lost, and let go
        of what is the parent's.
        """
        self.pid = getpid()
        self._pending.forked()
        self._relist = Flight(self._relist.name)
        self._callbacks.forked()
        self._control.forked()
        self._answering.forked()
        self.connection.forked()

    @property
    def name(self) -> str:
        """What errors call the server."""
        return self.connection.name

    @property
    def closed(self) -> bool:
        return self.connection.closed or self.connection.lost


def _fitted(request: Request, version: str) -> Request:
    """The request for this version. In the legacy era a call is made again without what only input rounds have."""
    legacy = version in versions.LEGACY
    if legacy and not request.params.keys().isdisjoint(ROUND_MEMBERS):
        params = request.params
        request = request.copy(params={name: params[name] for name in params if name not in ROUND_MEMBERS})
    if request.version == version or (request.version in versions.MODERN and not legacy):
        return request
    if request.version:
        return request.copy(version=version)
    request.version = version
    return request


def _progress_of(message: Message, wire_id: int) -> dict[str, Any] | None:
    if message["method"] != "notifications/progress":
        return None
    params = message.get("params")
    if not isinstance(params, dict) or type(params.get("progress")) not in (int, float):
        return None
    token = params.get("progressToken")
    return params if type(token) is int and token == wire_id else None
