"""One attempt at a call: one request on the wire, and what came back for it."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from ..outcome import McpError, Progress
from ..protocol import results
from .call import timeout_error
from .exchange import let_go, received

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..outcome import Outcome
    from ..transports.base import Link
    from .call import Call, Message
    from .connection import Connection
    from .events import Events
    from .inbound import Router
    from .session import OnProgress

# How many messages are read after the deadline, for the answer may be among them.
MAX_LATE = 1000


class Attempts:
    """`router` gets what arrives in an exchange and is not for its call."""

    def __init__(self, connection: Connection, router: Router, events: Events) -> None:
        self._connection = connection
        self._router = router
        self._events = events

    def run(self, call: Call, link: Link, on_progress: OnProgress | None) -> Outcome:
        events, since = self._events if self._events.wanted else None, monotonic()
        exchange = self._connection.exchange(call, link)
        if isinstance(exchange, McpError):
            return exchange
        if events is not None:
            events.of_call("sent", call)
        try:
            outcome = self._receive(call, link, exchange, on_progress)
        finally:
            let_go(exchange)
        if events is not None:
            events.received(call, outcome, monotonic() - since)
        if not isinstance(outcome, McpError) or outcome.reason in (None, "session_lost"):
            self._connection.pending.answered(call)
        return outcome

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
            if call.listens:
                call.put(message)
                continue
            if progress is None:
                self._router.notice(message, link, call)
                continue
            call.deadline.extend()
            if on_progress is not None and not call.deadline.over:
                on_progress(Progress(progress))


def _progress_of(message: Message, wire_id: int) -> dict[str, Any] | None:
    if message["method"] != "notifications/progress":
        return None
    params = message.get("params")
    if not isinstance(params, dict) or type(params.get("progress")) not in (int, float):
        return None
    token = params.get("progressToken")
    return params if type(token) is int and token == wire_id else None
