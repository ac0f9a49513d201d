"""A subscription as the call it is: `subscriptions/listen`, whose answer is a stream of notifications.

One daemon thread takes it from its request to its end, the way every call is taken. What belongs to the subscription is
put straight into its bounded buffer, by whichever thread receives it; nobody who reads from a server waits for the one
who reads here. Notifications are judged in `protocol.subscriptions`; the reading side is `subscription`.
"""

from __future__ import annotations

from collections import deque
from contextvars import copy_context
from math import inf
from threading import RLock, Thread
from time import monotonic
from typing import TYPE_CHECKING

from ..changes import Closed, Dropped, Notification
from ..log import logger
from ..outcome import McpError, local_error
from ..protocol import jsonrpc, subscriptions
from . import threads
from .call import Call
from .deadline import Deadline, timed_out
from .inbound import CHANGES, weight
from .waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from ..changes import Event
    from ..outcome import Outcome
    from ..protocol.requests import Request
    from .call import Message
    from .session import Session

    Stale = Callable[[dict[str, Any]], object]

MAX_WEIGHT = 16 * 1024 * 1024
# How much longer than its time the thread of a subscription may need to say that there is no acknowledgement.
GRACE_SECONDS = 0.25


def _nothing() -> None:
    pass


class Patience(Deadline):
    """The time until the acknowledgement; from then on `idle_timeout`, anew with every sign of life."""

    __slots__ = ()

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds, inf)

    def acknowledged(self, idle: float) -> None:
        self.seconds, self.name = idle, "idle_timeout"
        self._at = monotonic() + idle


class Listening(Call):
    """One subscription. It is handed out when it is acknowledged, and ends once: `closed` is how.

    `wanted` is the filter sent, `accepted` what of it was granted, `subscription_id` the id the server knows it by. At
    most `buffer` events wait, and `MAX_WEIGHT` bytes of them. `stale(accepted)` is called when it ends: changes of what
    was granted are not noticed from then on.
    """

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_closing",
        "_dropped",
        "_events",
        "_grant",
        "_idle",
        "_lock",
        "_readers",
        "_said",
        "_session",
        "_stale",
        "_weight",
        "closed",
        "subscription_id",
    )

    listens = True
    deadline: Patience

    def __init__(
        self,
        id: int,
        request: Request,
        session: Session,
        *,
        timeout: float,
        idle_timeout: float | None,
        buffer: int,
        stale: Stale,
    ) -> None:
        super().__init__(id, request, Patience(timeout))
        self.subscription_id = 0
        self.closed: Closed | None = None
        self._grant: subscriptions.Grant | None = None
        self._session = session
        self._idle = inf if idle_timeout is None else idle_timeout
        self._buffer = buffer
        self._stale = stale
        self._closing = False
        self._readers = Waiters()
        # Guards what is below, the grant and the end. Reentrant, for signal handlers.
        self._lock = RLock()
        self._events: deque[tuple[Notification, int]] = deque()
        self._weight = 0
        self._dropped = 0
        self._said: set[str] = set()
        self.told = self._ended

    @property
    def wanted(self) -> dict[str, Any]:
        filter: dict[str, Any] = self.request.params["notifications"]
        return filter

    @property
    def begun(self) -> bool:
        """Whether it is acknowledged: whatever ends it now, it is not sent again."""
        return self._grant is not None

    @property
    def accepted(self) -> dict[str, Any]:
        return self._grant.accepted if self._grant is not None else {}

    # -- from whichever thread receives

    def put(self, message: Message | McpError) -> None:
        if isinstance(message, McpError):
            super().put(message)
        elif "method" not in message:
            self.answer(message)
        elif "id" in message:
            self._once("a request, which no server may send in this protocol version")
        else:
            self._notified(message["method"], message.get("params"))

    def alive(self) -> None:
        if self._grant is not None:
            self.deadline.extend()

    def _notified(self, method: object, params: object) -> None:
        self.alive()
        params = {} if params is None else params
        if not isinstance(method, str) or not isinstance(params, dict):
            return self._once("a malformed notification")
        if method == subscriptions.CANCELLED:
            return self._cancelled(params)
        if method == subscriptions.ACKNOWLEDGED:
            return self._acknowledged(params)
        meta = params.get("_meta")
        stamp = meta.get(subscriptions.SUBSCRIPTION_ID) if isinstance(meta, dict) else None
        if stamp is not None and jsonrpc.same_id(stamp, self.wire_id or 0) is None:
            self._once("a notification with the id of another subscription", "accepted")
        grant = self._grant
        if method in CHANGES:
            self._session.router.changed(method, params)
        if grant is not None and not grant.covers(method, params):
            return self._once(f"{method[:80]!r} unasked, or malformed")
        if grant is None:
            self._once("a notification before the acknowledgement", "kept")
        size = weight((method, params))
        with self._lock:
            if self.closed is None:
                self._add(Notification(method, params), size)
        self._readers.wake()
        return None

    def _add(self, event: Notification, size: int) -> None:
        self._events.append((event, size))
        self._weight += size
        while len(self._events) > self._buffer or (self._weight > MAX_WEIGHT and len(self._events) > 1):
            self._weight -= self._events.popleft()[1]
            self._dropped += 1

    def _acknowledged(self, params: dict[str, Any]) -> None:
        grant = subscriptions.granted(self.wanted, params)
        with self._lock:
            again = self._grant is not None
            if not again and grant is not None and self.outcome is None:
                self._grant, self.subscription_id = grant, self.wire_id or 0
                self.deadline.acknowledged(self._idle)
                early, self._events = self._events, deque()
                self._weight = 0
                for event, size in early:
                    if grant.covers(event.method, event.params):
                        self._add(event, size)
                self._mailbox.put(None)  # whoever waits for messages waits as long as the other deadline said
        self._readers.wake()
        if again:
            self._once("a second acknowledgement")
        elif grant is None:
            text = f"{self._server} acknowledged {self.request.method} without saying what it grants"
            self._session.let_go(self, local_error("invalid_result", text), "The acknowledgement is invalid")
        elif grant.surplus:
            self._once(f"an acknowledgement of {', '.join(grant.surplus)[:200]!r}, which was not asked for like that")

    def _cancelled(self, params: dict[str, Any]) -> None:
        if jsonrpc.same_id(params.get("requestId"), self.wire_id or 0) is None:
            self._once("the cancellation of a request that is none of its subscriptions")
        elif not self._answered:  # the first end counts, and an answer may still wait to be read
            self.finish(local_error("not_acknowledged", f"{self._server} cancelled {self.request.method}"))

    # -- the end

    def close(self) -> None:
        """End it from this side. Any thread, more than once."""
        self._closing = True
        self._session.let_go(self, local_error("cancelled", "the subscription was closed"), "Closed by the client")

    def _ended(self) -> None:
        """Called once, by whoever settled the call."""
        closed = self._how(self.outcome)
        forked = closed.error is not None and closed.error.reason == "forked"
        if self._grant is not None and not forked:
            self._stale(self._grant.accepted)  # before anybody hears of it: the next change goes unnoticed
        with self._lock:
            if self.closed is None:  # else an interruption of this kept it from being done
                self.closed = closed
            self.told = _nothing  # not itself: nothing but its users is to keep it
            if closed.reason == "closed" or forked:
                self._events.clear()
                self._weight = self._dropped = 0
        self._readers.wake()

    def _how(self, outcome: Outcome | None) -> Closed:
        if not isinstance(outcome, McpError):
            return Closed("complete")
        match outcome.reason:
            case None:
                return Closed("error", outcome)
            case "not_acknowledged":
                return Closed("cancelled")
            case "timeout":
                return Closed("idle")
            case "cancelled" if self._closing:
                return Closed("closed")
            case "closed" if self._session.connection.closed:
                return Closed("closed")
        return Closed("lost", outcome)

    def forked(self, error: McpError) -> None:
        self._lock = RLock()  # a thread that is not here may hold the old one
        super().forked(error)

    def restart(self, request: Request) -> None:
        super().restart(request)
        with self._lock:
            self._events.clear()
            self._weight = self._dropped = 0

    # -- for the one who asked for it

    def open(self) -> Self | McpError:
        """Send it on a thread of its own, and wait until it is acknowledged, or why it is not."""
        patience = Deadline(self.deadline.seconds + GRACE_SECONDS)
        # In the context of the caller, which a server in this process may look at.
        thread = Thread(target=copy_context().run, args=(self._run,), name="snodo-listen", daemon=True)
        try:
            why = threads.refusal(thread)
            if why is not None:
                error = local_error("transport_failure", f"the subscription could not be started: {why}")
                self._session.abandon(self, error)
            return self._acknowledgement(patience)
        except BaseException:  # an interruption of the wait
            self.close()
            raise

    def _run(self) -> None:
        try:
            self._session.run(self)
        except BaseException:
            self._session.abandon(self, local_error("transport_failure", "the thread of the subscription failed"))
            raise

    def _acknowledgement(self, patience: Deadline) -> Self | McpError:
        self._readers.until(lambda: self._grant or self.closed, patience)
        with self._lock:
            if self._grant is not None:
                return self
            unheard = timed_out(f"{self.request.method} was not acknowledged by {self._server}", self.deadline)
        self._session.let_go(self, unheard, "The client's time for this request is over")
        outcome = self.outcome
        if not isinstance(outcome, McpError):
            text = f"{self._server} answered {self.request.method} in place of acknowledging it"
            return local_error("not_acknowledged", text)
        return unheard if outcome.reason == "timeout" else outcome

    def next(self, deadline: Deadline) -> Event | None:
        """The next event, None when none came by the deadline."""
        return self._readers.until(self._taken, deadline)

    def _taken(self) -> Event | None:
        """The next event, None when there is none yet."""
        with self._lock:
            if not self._events:
                return self.closed
            if self._dropped:
                dropped, self._dropped = Dropped(self._dropped), 0
                return dropped
            event, size = self._events.popleft()
            self._weight -= size
            return event

    # -- inside

    @property
    def _server(self) -> str:
        return self.link.name if self.link is not None else self._session.name

    def _once(self, what: str, done: str = "ignored") -> None:
        """Say a fault of the server once."""
        if what not in self._said and len(self._said) < 64:
            self._said.add(what)
            text = "%s sent on a subscription %s; it is %s, and this is said once"
            logger("subscriptions").warning(text, self._server, what, done)
