"""One try to open a link and to agree on a version over it, in the thread of whoever tries: what `protocol.negotiation`
asks for is sent, and waited for.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from .. import log
from ..outcome import McpError
from ..protocol import jsonrpc, results
from ..protocol.negotiation import Answer, Negotiation
from ..transports.base import Link
from .call import Call
from .deadline import timed_out
from .exchange import fault, let_go, received

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..protocol.agreement import Agreement
    from ..protocol.negotiation import Step
    from ..transports.base import Transport
    from .call import Message
    from .connection import Connection
    from .deadline import Deadline


class Opening:
    """One try for a connection, which has the outcome only when `run` has given it. Use it once."""

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
        link = connection.opened
        if link is None or link.lost is not None:
            link = self._open()
        traits = connection.transport.traits
        talk = Negotiation(
            connection.allowed,
            traits.eras,
            connection.identity,
            link.name,
            silence_is_legacy=traits.silence_is_legacy,
            has_before=hasattr(connection.transport, "older"),
            remembered=connection.memory,
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
        link = connection.transport.open(connection.router, self._deadline)
        if not isinstance(link, Link):
            raise TypeError(f"{type(connection.transport).__name__}.open() must return a Link")
        connection.opened, connection.name = link, link.name
        if connection.closed:  # while it was opened
            raise connection.closed_error()
        return link

    def _agreed(self, agreement: Agreement) -> Link | McpError:
        connection, link = self._connection, self._connection.opened
        assert link is not None
        link.agreement, link.version = agreement, agreement.version
        log.info("session", "%s: speaking %s (%s)%s", link.name, agreement.version, agreement.why, _told(agreement))
        if link.legacy:
            refused = connection.send(jsonrpc.notification("notifications/initialized"), link, self._deadline)
            if refused is not None:
                return refused
            if connection.settings:
                lost = ", ".join(sorted(connection.settings))
                text = "%s: the connection was begun again; what was set on the last one is gone: %s"
                log.logger("session").warning(text, link.name, lost)
                connection.settings.clear()
            attend = getattr(connection.transport, "attend", None)
            if attend is not None:
                attend(link, self._deadline)
        connection.memory = agreement
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
        limit = self._patience(step)
        call = Call(0, request, limit)
        if step.beside and self._calls:
            call.share(self._calls[-1])
        self._calls.append(call)
        return self._send(call)

    def _patience(self, step: Step) -> Deadline:
        """How long a question may go unanswered. The first leaves the time to ask in another way."""
        if not step.brief:
            return self._deadline
        half = self._deadline.left() / 2
        if (
            half < self._connection.probe_timeout
            and not step.beside
            and self._connection.transport.traits.silence_is_legacy
        ):
            return self._deadline.sub(half, "half of timeout")
        return self._deadline.sub(self._connection.probe_timeout, "probe_timeout")

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
            connection.opened = None
        if unused is not None:
            with suppress(McpError):
                unused.close(self._deadline.sub(0.0))

    def _forget(self) -> None:
        for call in self._calls:
            self._connection.pending.forget(call)
        self._calls.clear()
        self._close_exchange()

    def _send(self, call: Call) -> Answer:
        connection = self._connection
        link = connection.opened
        assert link is not None
        exchange = connection.exchange(call, link)
        if isinstance(exchange, McpError):
            return Answer(call.request.method, exchange)
        self._exchange = exchange
        return self._receive()

    def _receive(self) -> Answer:
        """The next answer to anything that was asked."""
        call, exchange = self._calls[-1], self._exchange
        assert exchange is not None
        link, method = call.link, call.request.method
        assert link is not None
        while True:
            message = received(exchange, link, method)
            if isinstance(message, McpError):
                return self._failed(message)
            if "method" in message:
                self._connection.router.notice(message, link, call)
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


def _told(agreement: Agreement) -> str:
    steps = "; ".join(f"{step['sent']}: {step['received']}" for step in agreement.steps)
    return f": {steps}" if steps else ""
