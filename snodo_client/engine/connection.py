"""A transport and the link of it that is in use: opened and agreed on once, by one thread for all, and replaced when it
is lost or turns out to be of another era than was remembered.

What to ask and what follows from the answers is `protocol.negotiation`; calls are the session's.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING

from .. import log
from ..outcome import McpError, local_error
from ..protocol import jsonrpc, results
from ..protocol.negotiation import Answer, Negotiation
from ..transports.base import Link
from . import threads
from .call import Call
from .deadline import timed_out
from .flight import Flight

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..protocol.agreement import Agreement
    from ..protocol.negotiation import Step
    from ..protocol.requests import Identity
    from ..transports.base import Transport
    from .call import Message
    from .deadline import Deadline
    from .inbound import Router
    from .pending import Pending


class Connection:
    """`transport` changes once at most, to the one it falls back on. `link` is the one in use, None until it was agreed
    on; `error` is why there is none. Nobody tries again where that would take another process.
    """

    def __init__(
        self,
        transport: Transport,
        router: Router,
        pending: Pending,
        identity: Identity,
        allowed: Sequence[str],
        probe_timeout: float,
        remembered: Agreement | None = None,
    ) -> None:
        self.transport = transport
        self.link: Link | None = None
        self.error: McpError | None = None
        self.closed = False
        self._router = router
        self._pending = pending
        self._identity = identity
        self._allowed = allowed
        self._probe_timeout = probe_timeout
        self._memory = remembered
        self._opened: Link | None = None  # the last one, agreed on or not
        self._lock = RLock()  # guards which link is in use
        self._flight: Flight[Link] = Flight("negotiating the protocol version")

    @property
    def name(self) -> str:
        """What errors call the server."""
        return self._opened.name if self._opened is not None else "a server"

    @property
    def agreement(self) -> Agreement | None:
        """What was agreed on for the link in use."""
        return self.link.agreement if self.link is not None else None

    @property
    def lost(self) -> bool:
        """Whether every further call will fail."""
        link = self.link or (self._opened if self.error is not None else None)
        return link is not None and link.lost is not None and not self.transport.traits.reopens

    def ready(self, deadline: Deadline) -> Link | McpError:
        """The link to use, after opening it and negotiating if nobody has yet. A lost one only where there will be no
        other.
        """
        link = self.link
        if link is not None and (link.lost is None or not self.transport.traits.reopens):
            return link
        return self._flight.run(self._negotiate, deadline)

    def begin(self, deadline: Deadline) -> None:
        """Negotiate on a thread of its own, so that nobody in a hurry begins it instead."""
        under_way = Event()

        def lead(deadline: Deadline) -> Link | McpError:
            under_way.set()
            return self._negotiate(deadline)

        thread = Thread(target=self._flight.run, args=(lead, deadline), name="snodo-connecting", daemon=True)
        if threads.refusal(thread) is None:  # else the first call does it
            under_way.wait(deadline.left())

    def renew(self, link: Link, deadline: Deadline) -> Link | McpError:
        """Another link in place of this one, whose session the server has forgotten; one for all who ask."""
        with self._lock:
            if self.link is link:
                self.link = self._opened = None
                self._router.forgotten(link)
        return self.ready(deadline)

    def doubt(self, link: Link, agreement: Agreement) -> None:
        """What was remembered of the era of this link seems to be wrong: the next call negotiates from the start,
        unless somebody has by now.
        """
        with self._lock:
            if self.link is link and link.agreement is agreement:
                self.link = self._memory = None

    def forked(self) -> None:
        """In the child of a fork: a session with the server is the parent's alone, and so is a process."""
        self._flight, self._lock = Flight(self._flight.name), RLock()
        forked, link = getattr(self.transport, "forked", None), self.link
        if forked is not None and self._opened is not None:
            forked()
            error = local_error("forked", f"the client of {self.name} was made in another process")
            self._router.lost(error, self._opened)
        if link is not None and self.transport.traits.reopens and link.legacy:
            self.link = self._opened = None

    def send(self, message: Message, link: Link, deadline: Deadline) -> McpError | None:
        """Send a message nobody waits for."""
        try:
            self.transport.send(message, link, deadline)
        except McpError as error:
            return fault(error)
        return None

    def close(self, deadline: Deadline) -> None:
        self.closed = True
        with suppress(McpError):
            self.transport.close(deadline)

    def closed_error(self) -> McpError:
        return local_error("closed", f"the client of {self.name} is closed: nothing was sent")

    # -- negotiating

    def _negotiate(self, deadline: Deadline) -> Link | McpError:
        link = self.link
        if link is not None and (link.lost is None or not self.transport.traits.reopens):
            return link
        if self.closed:
            return self.closed_error()
        if self.lost and self.error is not None:
            return self.error.copy()
        agreed = _Opening(self, deadline).run()
        if isinstance(agreed, McpError):
            if not _personal(agreed, deadline):
                self.error = agreed.copy()
            return agreed
        with self._lock:
            self.link, self.error = agreed, None
        return agreed


class _Opening:
    """One try: opens a link, and drives the negotiation on it."""

    def __init__(self, connection: Connection, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline
        self._calls: list[Call] = []  # what may still be answered
        self._exchange: Iterator[Message] | None = None
        self._replaced: Transport | None = None  # by the one it falls back on

    def run(self) -> Link | McpError:
        connection = self._connection
        agreed: Link | McpError | None = None
        try:
            agreed = self._run()
        except McpError as error:
            return fault(error)
        else:
            return agreed
        finally:
            self._forget()  # a probe that timed out is not cancelled: some servers end at a notification
            self._let_go_of_the_other(isinstance(agreed, Link))
            if connection.closed:
                with suppress(McpError):
                    connection.transport.close(self._deadline.sub(0.0))  # what was opened while somebody closed us

    def _run(self) -> Link | McpError:
        connection = self._connection
        link = connection._opened
        if link is None or link.lost is not None:
            link = self._open()
        traits = connection.transport.traits
        talk = Negotiation(
            connection._allowed,
            traits.eras,
            connection._identity,
            link.name,
            silence_is_legacy=traits.silence_is_legacy,
            has_before=hasattr(connection.transport, "older"),
            remembered=connection._memory,
        )
        steps = talk.run()
        try:
            step = next(steps)
            while True:
                answer = self._take(step, talk)
                outcome = answer.outcome
                if isinstance(outcome, McpError) and outcome.reason == "timeout" and self._deadline.over:
                    return outcome  # our own time, not the probe's: it says nothing about the server
                if connection.closed:
                    return connection.closed_error()
                step = steps.send(answer)
        except StopIteration as verdict:
            agreement: Agreement | McpError = verdict.value
        if isinstance(agreement, McpError):
            return agreement
        return self._agreed(agreement)

    def _open(self) -> Link:
        connection = self._connection
        link = connection.transport.open(connection._router, self._deadline)
        if not isinstance(link, Link):
            raise TypeError(f"{type(connection.transport).__name__}.open() must return a Link")
        connection._opened = link
        if connection.closed:  # while it was opened
            raise connection.closed_error()
        return link

    def _agreed(self, agreement: Agreement) -> Link | McpError:
        connection, link = self._connection, self._connection._opened
        assert link is not None
        link.agreement, link.version = agreement, agreement.version
        log.info("session", "%s: speaking %s (%s)%s", link.name, agreement.version, agreement.why, _told(agreement))
        if link.legacy:
            refused = connection.send(jsonrpc.notification("notifications/initialized"), link, self._deadline)
            if refused is not None:
                return refused
            attend = getattr(connection.transport, "attend", None)
            if attend is not None:
                attend(link, self._deadline)
        connection._memory = agreement
        return link

    # -- one step

    def _take(self, step: Step, talk: Negotiation) -> Answer:
        request = step.request
        if request is None:
            return self._receive()
        try:
            if step.where != "same":
                self._forget()
                self._replace(step.where)
                talk.server = self._connection.name
        except McpError as error:
            return Answer(request.method, fault(error))
        if not step.beside:
            self._forget()
        limit = self._deadline.sub(self._connection._probe_timeout, "probe_timeout") if step.brief else self._deadline
        call = Call(0, request, limit)
        if step.beside and self._calls:
            call.share(self._calls[-1])
        self._calls.append(call)
        return self._send(call)

    def _replace(self, where: str) -> None:
        connection = self._connection
        if where == "before":
            self._replaced = connection.transport
            connection.transport = self._replaced.older()  # type: ignore[attr-defined]
        self._open()

    def _let_go_of_the_other(self, agreed: bool) -> None:
        """Close the transport that is not used in the end."""
        connection, unused = self._connection, self._replaced
        if unused is not None and not agreed:
            unused, connection.transport = connection.transport, unused
            connection._opened = None
        if unused is not None:
            with suppress(McpError):
                unused.close(self._deadline.sub(0.0))

    def _forget(self) -> None:
        for call in self._calls:
            self._connection._pending.forget(call)
        self._calls.clear()
        self._close_exchange()

    def _send(self, call: Call) -> Answer:
        connection = self._connection
        link = connection._opened
        assert link is not None
        wire_id = connection._pending.attempt(call, link)
        if connection.closed:
            return Answer(call.request.method, connection.closed_error())
        if link.lost is not None:
            return Answer(call.request.method, link.lost.copy())
        call.body = call.request.encode(wire_id, connection._identity)
        try:
            self._exchange = connection.transport.exchange(call)
        except McpError as error:  # a transport that is no generator
            return Answer(call.request.method, fault(error))
        return self._receive()

    def _receive(self) -> Answer:
        """The next answer to anything that was asked."""
        call, exchange = self._calls[-1], self._exchange
        assert exchange is not None
        link, method = call.link, call.request.method
        assert link is not None
        while True:
            try:
                message = next(exchange)
            except StopIteration:
                error = local_error("closed", f"{link.name} ended the exchange before {method} was answered")
                return self._failed(error)
            except McpError as raised:
                return self._failed(fault(raised))
            if not isinstance(message, dict):
                text = f"{link.name}: the transport gave a {type(message).__name__} for {method}"
                return self._failed(local_error("malformed", text))
            if "method" in message:
                self._connection._router.notice(message, link, call)
                if call.deadline.over:
                    return self._failed(timed_out(f"{method} was not answered by {link.name}", call.deadline))
                continue
            return self._judge(message, link)

    def _judge(self, message: Message, link: Link) -> Answer:
        call = self._calls[-1]
        if len(self._calls) > 1:  # with two open, only an id tells which was answered
            named = (each for each in self._calls if jsonrpc.same_id(message.get("id"), each.wire_id or 0))
            call = next(named, call)
        else:
            self._close_exchange()
        request, wire_id = call.request, call.wire_id or 0
        astray = results.misdirected(message, wire_id, link.name, call.status)
        outcome = astray or results.decode(message, request.method, link.name, call.status, request.version)
        return Answer(request.method, outcome)

    def _failed(self, error: McpError) -> Answer:
        call = self._calls[-1]
        self._close_exchange()
        ended = call.link is not None and call.link.lost is not None and call.delivery != "not_sent"
        return Answer(call.request.method, error, ended=ended)

    def _close_exchange(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            let_go(exchange)


def let_go(exchange: Iterator[Message]) -> None:
    close = getattr(exchange, "close", None)  # generators have it; an iterator of somebody's transport need not
    if close is not None:
        try:
            close()
        except McpError:
            return


def fault(error: McpError) -> McpError:
    """What a transport raised, as a value: without the frames it came through, which hold requests and headers, and
    never to be taken for an error the server sent.
    """
    if error.reason is None:
        return local_error("transport_failure", error.message)
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def _personal(error: McpError, deadline: Deadline) -> bool:
    """Whether it was the time of the one who tried that was over: somebody else may have more."""
    return error.reason in ("timeout", "max_total_timeout") and deadline.over


def _told(agreement: Agreement) -> str:
    steps = "; ".join(f"{step['sent']}: {step['received']}" for step in agreement.steps)
    return f": {steps}" if steps else ""
