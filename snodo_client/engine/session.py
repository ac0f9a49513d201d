"""The one blocking path. A session owns a connection and takes each call from request to outcome in the thread that
makes it: the attempts, what is sent again, the rounds of input. Every other thread only delivers, settles or wakes.
"""

from __future__ import annotations

import sys
from itertools import count
from os import getpid
from typing import TYPE_CHECKING

from ..outcome import InputRequired, McpError, Ok, Progress, local_error
from ..protocol import jsonrpc, operations, rounds, versions
from ..protocol.requests import Request
from . import exits
from .answering import Answering
from .attempts import Attempts
from .call import Call, timeout_error
from .cancelling import CANCEL_SECONDS, Cancelling
from .catalog import Catalog
from .checking import Checking
from .connection import Connection
from .corrections import Again, Corrections
from .deadline import Deadline
from .events import Events
from .flight import Flight
from .handlers import Handlers
from .inbound import Router
from .listening import Listening
from .lists import Lists
from .pending import Pending
from .rounds import PAUSE_SECONDS, Rounds
from .wishes import PLAIN, Wishes
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ..cache import Store
    from ..outcome import Outcome
    from ..protocol.agreement import Agreement
    from ..protocol.requests import Identity
    from ..transports.base import Link, Transport
    from .cancelling import CancelReport
    from .checking import Validate
    from .events import OnEvent
    from .inbound import OnListChanged, OnLog, OnNotification
    from .keeping import Keeping

    OnProgress = Callable[[Progress], object]

# How long the answer to something the server asked may try to reach it.
ANSWER_SECONDS = 10.0
CLOSE_SECONDS = 10.0
# How long closing waits for callbacks that are still to be called.
CALLBACK_SECONDS = 1.0
MAX_WAITING_CALLBACKS = 1000
MAX_INPUT_ROUNDS = 10
ANEW = Wishes(cache="refresh")


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
        max_input_rounds: int = MAX_INPUT_ROUNDS,
        on_log: OnLog | None = None,
        on_notification: OnNotification | None = None,
        on_event: OnEvent | None = None,
        on_list_changed: OnListChanged | None = None,
        cache: Store | None = None,
        validate: Validate = "structured",
    ) -> None:
        self.identity = identity
        self.pid = getpid()
        self.catalog = Catalog()
        self._callbacks = Worker("snodo-callbacks", MAX_WAITING_CALLBACKS)
        self._control = Worker("snodo-control", MAX_WAITING_CALLBACKS)
        self.events = Events(on_event, self._callbacks)
        self._ids = count(1)
        self._live: dict[int, Call] = {}  # the logical calls that are not over, in whatever phase; its steps are atomic
        self.pending = Pending()
        self.router = Router(self.pending, self._callbacks, self.events, on_log, on_notification, on_list_changed)
        # Nothing in there leads to the session, which is closed when the last of its users lets go of it.
        self.connection = connection = Connection(
            transport, self.router, self.pending, identity, allowed, probe_timeout, remembered, self.events
        )
        handlers = handlers or Handlers({})
        self.router.answering = self._answering = Answering(
            handlers,
            lambda message, link: connection.send(message, link, Deadline(ANSWER_SECONDS)),
            self._control,
            lambda: agreement.server_info if (agreement := connection.agreement) else None,
        )
        self._attempts = Attempts(connection, self.router, self.events)
        self._rounds = Rounds(handlers, max_input_rounds)
        self._cancelling = Cancelling(connection, self._control, self.events)
        self._corrections = Corrections(connection, self.catalog, self.ready, self._listed)
        self._keeping = None if cache is None else _keeping(cache, connection)
        if self._keeping is not None:
            self.router.on_stale.append(self._keeping.cache.changed)
        self._checking = Checking(validate, self.catalog, connection, self._listed)
        self.router.on_stale.append(self.catalog.changed)
        self.lists = Lists(self.call, connection, self.catalog, max_pages)
        self._relist: Flight[list[Any]] = Flight("listing the tools")

    # -- readiness

    def ready(self, deadline: Deadline, wanted: Callable[[], bool] | None = None) -> Link | McpError:
        """The link to use, opened and agreed on if it is not yet. Who only waits does so while it is `wanted`."""
        link = self.connection.link
        if link is not None and link.lost is None:
            return link
        if not self.connection.closed:
            exits.add(self)
        return self.connection.ready(deadline, wanted)

    def begin(self, deadline: Deadline) -> None:
        """Negotiate in the background; calls wait for it, each inside its own deadline."""
        exits.add(self)
        self.connection.begin(deadline)

    @property
    def agreement(self) -> Agreement | None:
        return self.connection.agreement

    # -- calls

    def call(
        self,
        request: Request,
        deadline: Deadline,
        on_progress: OnProgress | None = None,
        wishes: Wishes = PLAIN,
    ) -> Outcome:
        """Take one call from request to outcome.

        Only what `on_progress` and the handlers raise, and an interruption of the calling thread, get out of here; the
        request is cancelled then. Raises ValueError, before anything is sent, for an argument that no header can carry.
        """
        return self.run(self.prepare(request, deadline, on_progress), on_progress, wishes)

    def prepare(self, request: Request, deadline: Deadline, on_progress: OnProgress | None = None) -> Call:
        """A call that can be settled from now on, and is to be run."""
        if request.annotations is None and request.method == "tools/call" and self.connection.mirrors:
            known = self.catalog.annotations(request.params.get("name"))
            request = request.copy(annotations=known) if known else request
        wants_progress = on_progress is not None or deadline.max_total is not None
        call = Call(next(self._ids), request, deadline, wants_progress=wants_progress)
        self._live[call.id] = call
        return call

    def run(self, call: Call, on_progress: OnProgress | None = None, wishes: Wishes = PLAIN) -> Outcome:
        """Take a prepared call to its outcome, in this thread."""
        outcome: Outcome | None = None
        try:
            outcome = self._outcome(call, on_progress, wishes)
        finally:
            try:
                self._conclude(call, outcome)
            except BaseException:  # interrupted again, or only now
                self._forget(call)
                raise
        return call.settle(outcome)

    def _outcome(self, call: Call, on_progress: OnProgress | None, wishes: Wishes) -> Outcome:
        if call.request.method == "tools/call":
            return self._checked(call, on_progress, wishes)
        if self._keeping is not None and wishes.cache != "bypass":
            return self._kept(self._keeping, call, on_progress, wishes)
        return self._asked(call, on_progress, wishes)

    def _checked(self, call: Call, on_progress: OnProgress | None, wishes: Wishes) -> Outcome:
        """The outcome of a tool call, once its arguments and its result are seen to follow the tool's definition."""
        wrong = self._checking.arguments(call, wishes.definition)
        if wrong is not None:
            return wrong
        return self._checking.result(call, self._asked(call, on_progress, wishes), wishes.definition)

    def _kept(self, keeping: Keeping, call: Call, on_progress: OnProgress | None, wishes: Wishes) -> Outcome:
        """The outcome, from the cache or for it."""
        link = self.ready(call.deadline, call.unsettled)
        if isinstance(link, McpError):
            return link
        if self.connection.closed or link.lost is not None:
            return self._asked(call, on_progress, wishes)  # which tells why not: a change would not be heard any more
        call.request = _fitted(call.request, link.version)
        ticket = keeping.begin(call, link, wishes.cache)
        if isinstance(ticket, Ok):
            return ticket
        outcome = self._asked(call, on_progress, wishes)
        if ticket is not None and call.link is link:
            keeping.keep(ticket, call, outcome)
        return outcome

    def _asked(self, call: Call, on_progress: OnProgress | None, wishes: Wishes) -> Outcome:
        outcome = self._perform(call, on_progress)
        if isinstance(outcome, InputRequired) and self._rounds.wanted(wishes.answer_input):
            return self._with_input(call, outcome, on_progress)
        return outcome

    def _conclude(self, call: Call, outcome: Outcome | None) -> None:
        """Settle the call, and where nobody waits for its answer any more tell the server so."""
        why = ""
        if outcome is None:
            why = "The client stopped waiting"
            outcome, raised = local_error("cancelled", "the thread that made the call was interrupted"), sys.exception()
            if raised is not None and call.raised is not None:
                call.raised.append((outcome, raised))
        elif isinstance(outcome, McpError) and outcome.reason in ("timeout", "max_total_timeout"):
            why = "The client's time for this request is over"
        if call.settle(outcome) is outcome and why:
            self._cancelling.tell(call, why)
        self._forget(call)

    def let_go(self, call: Call, error: McpError, why: str) -> bool:
        """End a call from outside, and tell the server in the background. True when this was its end."""
        first = call.finish(error)
        if first:
            self._cancelling.tell(call, why)
        return first

    def abandon(self, call: Call, error: McpError) -> None:
        """End a prepared call that cannot be run."""
        call.settle(error)
        self._forget(call)

    def _forget(self, call: Call) -> None:
        self.pending.forget(call)
        self._live.pop(call.id, None)

    def _perform(self, call: Call, on_progress: OnProgress | None) -> Outcome:
        """One round: attempts until one is not to be corrected."""
        link = self.ready(call.deadline, call.unsettled)
        if isinstance(link, McpError):
            return link
        made: set[str] = set()  # corrections
        while True:
            if call.outcome is not None:
                return call.outcome
            refused = operations.refusal(call.request.method, link.version, link.name)
            if refused is not None:
                return refused
            call.request = _fitted(call.request, link.version)
            outcome = self._attempts.run(call, link, on_progress)
            if call.begun:
                return outcome
            after = self._corrections.after(call, link, outcome, made)
            if not isinstance(after, Again):
                return after
            self.events.of_call("retried", call, why=after.why)
            self.pending.answered(call)
            call.restart(after.request)
            link = after.link
            if call.deadline.over:
                return timeout_error(call)

    def _with_input(self, call: Call, asked: InputRequired, on_progress: OnProgress | None) -> Outcome:
        """The rounds after the first: what handlers answer goes out with the call again, in its time."""
        number = 0
        while True:
            number += 1
            link = call.link
            assert link is not None
            if number > self._rounds.limit:
                return self._rounds.exhausted(call, link, asked)
            responses = self._rounds.responses(call, link, asked)
            if not isinstance(responses, dict):
                return responses
            if not responses or (link.legacy and number > 1):
                try:
                    call.pause(PAUSE_SECONDS)
                except McpError as error:
                    error.cause = asked
                    return error
            self.events.of_call("retried", call, why="input")
            params = rounds.next_params(call.request.params, asked, {} if link.legacy else responses)
            call.restart(call.request.copy(params=params))
            outcome = self._perform(call, on_progress)
            if not isinstance(outcome, InputRequired):
                if isinstance(outcome, McpError) and outcome.reason is not None and outcome.cause is None:
                    outcome.cause = asked
                return outcome
            asked = outcome

    def _listed(self, deadline: Deadline) -> list[Any] | McpError:
        """The definitions of the tools, listed anew; once for all who want that."""
        return self._relist.run(
            lambda limit: self.lists.whole("tools", Request("tools/list"), limit, wishes=ANEW), deadline
        )

    # -- subscriptions

    def listen(
        self, request: Request, *, timeout: float, idle_timeout: float | None, buffer: int
    ) -> Listening | McpError:
        """Open a subscription, and wait until it is acknowledged."""
        listening = Listening(
            next(self._ids),
            request,
            self,
            timeout=timeout,
            idle_timeout=idle_timeout,
            buffer=buffer,
            stale=self._unheard,
        )
        self._live[listening.id] = listening
        return listening.open()

    def _unheard(self, accepted: dict[str, Any]) -> None:
        """A subscription ended: changes of what it was for are not told any more."""
        if self._keeping is not None:
            self._keeping.cache.stale(accepted)

    # -- cancelling

    def cancel(self, call: Call, reason: str, notification_timeout: float) -> CancelReport:
        """End a call from outside: on this side first, then for the server."""
        return self._cancelling.cancel(call, reason, notification_timeout)

    def cancel_all(self, reason: str, notification_timeout: float) -> list[CancelReport]:
        """End every call that is not over. Subscriptions go on."""
        calls = [call for call in list(self._live.values()) if call.outcome is None and not call.listens]
        return self._cancelling.cancel_all(calls, reason, notification_timeout)

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
        for call in [*self._live.values(), *self.pending.calls()]:
            call.finish(error.copy())
        exits.discard(self)
        connection.close(deadline)
        if connection.link is not None:
            self.router.lost(error, connection.link)
        # Notifications that arrived are still told, within reason; cancellations have nowhere to go any more.
        self._answering.close(deadline.sub(0.0))
        self._control.close(deadline.sub(0.0))
        self._callbacks.close(deadline.sub(CALLBACK_SECONDS))

    def forked(self) -> None:
        """In the child of a fork. A transport that can be used there reopens by itself; the others are lost, and let go
        of what is the parent's.
        """
        self.pid = getpid()
        self.pending.forked()
        self.router.forked()
        for call in list(self._live.values()):
            call.forked(local_error("forked", f"the call was made in another process, which waits for {self.name}"))
        self._live.clear()
        self.catalog.forked()
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


def _keeping(store: Store, connection: Connection) -> Keeping:
    from ..cache import Cache
    from .keeping import Keeping

    return Keeping(Cache(store, connection.identity.capabilities), connection)


def _fitted(request: Request, version: str) -> Request:
    """The request for this version. In the legacy era a call is made again without what only input rounds have."""
    legacy = version in versions.LEGACY
    if legacy and not request.params.keys().isdisjoint(rounds.MEMBERS):
        request = request.copy(params=rounds.without_members(request.params))
    if request.version == version or (request.version in versions.MODERN and not legacy):
        return request
    if request.version:
        return request.copy(version=version)
    request.version = version
    return request
