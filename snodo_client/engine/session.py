"""The one blocking path. A session owns a transport and its link, agrees on a protocol version once, and takes each
call from request to outcome in the thread that makes it. Every other thread only delivers, settles or wakes.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from os import getpid
from typing import TYPE_CHECKING

from .. import log
from ..outcome import McpError, Ok, Progress, local_error
from ..protocol import jsonrpc, negotiation, results
from ..protocol.requests import Request
from ..reasons import HEADER_MISMATCH, UNSUPPORTED_VERSION
from ..transports.base import Link
from . import exits
from .call import Call, timeout_error
from .catalog import Catalog
from .deadline import Deadline
from .flight import Flight
from .inbound import Router
from .lists import Lists
from .pending import Pending
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from ..outcome import Outcome
    from ..protocol.negotiation import Agreement
    from ..protocol.requests import Identity
    from ..transports.base import Transport
    from .call import Message
    from .inbound import OnLog, OnNotification

    OnProgress = Callable[[Progress], object]

# How long a cancellation may try to reach a server that does not read.
CANCEL_SECONDS = 5.0
CLOSE_SECONDS = 10.0
# How long closing waits for callbacks that are still to be called.
CALLBACK_SECONDS = 1.0
MAX_WAITING_CALLBACKS = 1000
# How many messages are read after the deadline, for the answer may be among them.
MAX_LATE = 1000


class Session:
    def __init__(
        self,
        transport: Transport,
        identity: Identity,
        allowed: Sequence[str],
        *,
        probe_timeout: float,
        max_pages: int,
        on_log: OnLog | None = None,
        on_notification: OnNotification | None = None,
    ) -> None:
        self.transport = transport
        self.identity = identity
        self.pid = getpid()
        self.agreement: Agreement | None = None
        self.catalog = Catalog()
        self._allowed = allowed
        self._probe_timeout = probe_timeout
        self._callbacks = Worker("snodo-callbacks", MAX_WAITING_CALLBACKS)
        self._control = Worker("snodo-control", MAX_WAITING_CALLBACKS)
        self._ids = count(1)
        self._pending = Pending()
        self._router = Router(self._pending, self.catalog, self._callbacks, on_log, on_notification)
        catalog = self.catalog if transport.traits.mirrors_headers else None
        self.lists = Lists(self.call, lambda: self.name, catalog, max_pages)
        self._link: Link | None = None
        self._ready: Flight[Agreement] = Flight("negotiating the protocol version")
        self._relist: Flight[list[Any]] = Flight("listing the tools")
        self._closed = False

    # -- readiness

    def ready(self, deadline: Deadline) -> Agreement | McpError:
        """The agreement, after opening the link and negotiating if nobody has yet."""
        return self.agreement or self._ready.run(self._negotiate, deadline)

    def _negotiate(self, deadline: Deadline) -> Agreement | McpError:
        if self.agreement is not None:
            return self.agreement
        exits.add(self)
        try:
            if self._link is None and not self._closed:
                self._link = self.transport.open(self._router, deadline)
                if not isinstance(self._link, Link):
                    raise TypeError(f"{type(self.transport).__name__}.open() must return a Link")
        except McpError as error:
            return _fault(error)
        if self._closed or self._link is None:
            with suppress(McpError):
                self.transport.close(Deadline(CLOSE_SECONDS))  # it was opened while somebody closed us
            return self._closed_error()
        traits = self.transport.traits
        steps = negotiation.negotiate(
            self._allowed, traits.eras, self._link.name, silence_is_legacy=traits.silence_is_legacy
        )
        try:
            request = next(steps)
            while True:
                answer = self._probe(request, deadline)
                if isinstance(answer, McpError) and answer.reason == "timeout" and deadline.over:
                    return answer  # our own time, not the probe's: it says nothing about the server
                request = steps.send(answer)
        except StopIteration as verdict:
            agreement: Agreement | McpError = verdict.value
        if isinstance(agreement, McpError):
            return agreement
        self.agreement = agreement
        log.info("session", "%s: speaking %s (%s)", self._link.name, agreement.version, agreement.why)
        return agreement

    def _probe(self, request: Request, deadline: Deadline) -> Outcome:
        call = Call(next(self._ids), request, deadline.sub(self._probe_timeout, "probe_timeout"))
        try:
            return self._attempt(call, None)
        finally:  # a probe that timed out is not cancelled: some servers end at a notification before their handshake
            self._pending.forget(call)

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
        agreement = self.ready(call.deadline)
        if isinstance(agreement, McpError):
            return agreement
        call.request.version = agreement.version
        refused: set[str] = set()  # versions, and once the headers
        while True:
            outcome = self._attempt(call, on_progress)
            if not isinstance(outcome, McpError) or outcome.reason is not None:
                return outcome
            self._pending.forget(call)
            call.wire_id = None  # it was answered: there is nothing to cancel until it is sent again
            again = self._corrected(call, outcome, refused)
            if not isinstance(again, Request):
                return again
            call.restart(again)
            try:
                call.check()
            except McpError as error:
                return error

    def _corrected(self, call: Call, refusal: McpError, refused: set[str]) -> Request | McpError:
        """The request to send after a refusal that says it was not run, or the error there is. Each correction is made
        once.
        """
        request = call.request
        if refusal.code == UNSUPPORTED_VERSION:
            version = negotiation.another_version(refusal, self._allowed, refused)
            if version is None:
                return negotiation.no_version_left(refusal, self._allowed, self.name)
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

    def _mirrors(self, request: Request) -> bool:
        return request.method == "tools/call" and self.transport.traits.mirrors_headers

    def _attempt(self, call: Call, on_progress: OnProgress | None) -> Outcome:
        """One request on the wire and what came back for it."""
        link = self._link
        if link is None:
            return self._closed_error()
        wire_id = self._pending.attempt(call, link)
        if self._closed:  # only now: whoever closes or loses the link from here on finds the call in the table
            return self._closed_error()
        if link.lost is not None:
            return link.lost.copy()
        call.body = call.request.encode(wire_id, self.identity, progress=call.wants_progress)
        try:
            exchange = self.transport.exchange(call)
        except McpError as error:  # a transport that is no generator
            return _fault(error)
        try:
            return self._receive(call, link, exchange, on_progress)
        finally:
            _let_go(exchange)

    def _receive(self, call: Call, link: Link, exchange: Iterator[Message], on_progress: OnProgress | None) -> Outcome:
        method, wire_id, late = call.request.method, call.wire_id or 0, 0
        while True:
            try:
                message = next(exchange)
            except StopIteration:
                return local_error("closed", f"{link.name} ended the exchange before {method} was answered")
            except McpError as error:
                return _fault(error)
            if not isinstance(message, dict):
                return local_error(
                    "malformed", f"{link.name}: the transport gave a {type(message).__name__} for {method}"
                )
            if "method" not in message:
                astray = results.misdirected(message, wire_id, link.name, call.status)
                if astray is None and "id" in message and type(message["id"]) is not int:
                    self._router.tolerate(message, link)
                return astray or results.decode(message, method, link.name, call.status)
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
        if self.transport.traits.cancel != "notify":
            return
        message = jsonrpc.notification("notifications/cancelled", {"requestId": call.wire_id, "reason": reason})
        self._control.submit(lambda: self._send(message, link, Deadline(CANCEL_SECONDS)))

    # -- notifications

    def notify(self, method: str, params: dict[str, Any], deadline: Deadline) -> Outcome:
        """Send a notification. Raises ValueError, before anything is sent, for params that JSON cannot carry."""
        message = jsonrpc.notification(method, params or None)
        jsonrpc.encode(message)
        agreement = self.ready(deadline)
        if isinstance(agreement, McpError):
            return agreement
        if self._closed or self._link is None:
            return self._closed_error()
        return self._send(message, self._link, deadline) or Ok({})

    def _send(self, message: Message, link: Link, deadline: Deadline) -> McpError | None:
        try:
            self.transport.send(message, link, deadline)
        except McpError as error:
            return _fault(error)
        return None

    # -- the end

    def close(self, deadline: Deadline) -> None:
        """End every call with "closed" and let go of the transport. Idempotent, from any thread."""
        self._closed = True
        error = local_error("closed", f"the client of {self.name} was closed")
        for call in self._pending.calls():
            call.finish(error.copy())
        exits.discard(self)
        with suppress(McpError):
            self.transport.close(deadline)
        # Notifications that arrived are still told, within reason; cancellations have nowhere to go any more.
        self._control.close(deadline.sub(0.0))
        self._callbacks.close(deadline.sub(CALLBACK_SECONDS))

    def forked(self) -> None:
        """In the child of a fork. A transport that can be used there reopens by itself; the others are lost, and let go
        of what is the parent's.
        """
        self._pending.forked()
        self._ready, self._relist = Flight(self._ready.name), Flight(self._relist.name)
        self._callbacks.forked()
        self._control.forked()
        forked = getattr(self.transport, "forked", None)
        if forked is not None and self._link is not None:
            forked()
            self._router.lost(
                local_error("forked", f"the client of {self.name} was made in another process"), self._link
            )

    def _closed_error(self) -> McpError:
        return local_error("closed", f"the client of {self.name} is closed: nothing was sent")

    @property
    def name(self) -> str:
        """What errors call the server."""
        return self._link.name if self._link is not None else "a server"

    @property
    def closed(self) -> bool:
        return self._closed or (self._link is not None and self._link.lost is not None)


def _let_go(exchange: Iterator[Message]) -> None:
    close = getattr(exchange, "close", None)  # generators have it; an iterator of somebody's transport need not
    if close is not None:
        try:
            close()
        except McpError:
            return


def _progress_of(message: Message, wire_id: int) -> dict[str, Any] | None:
    if message["method"] != "notifications/progress":
        return None
    params = message.get("params")
    if not isinstance(params, dict) or type(params.get("progress")) not in (int, float):
        return None
    token = params.get("progressToken")
    return params if type(token) is int and token == wire_id else None


def _fault(error: McpError) -> McpError:
    """What a transport raised, as a value: without the frames it came through, which hold requests and headers, and
    never to be taken for an error the server sent.
    """
    if error.reason is None:
        return local_error("transport_failure", error.message)
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error
