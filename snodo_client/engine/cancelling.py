"""How a call is cancelled: it is settled on this side first, then the server is told, where ending the exchange does
not tell it already (spec: basic/patterns/cancellation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import local_error
from ..protocol import jsonrpc
from .deadline import Deadline
from .mailbox import Empty, Mailbox

if TYPE_CHECKING:
    from typing import Any, Literal

    from ..transports.base import Link
    from .call import Call, Delivery
    from .connection import Connection
    from .events import Events
    from .worker import Worker

    Local = Literal["cancelled", "finished"]
    Delivered = Literal["not_needed", "accepted", "failed", "timeout", "unsupported"]

# How long a cancellation nobody waits for may try to reach a server that does not read.
CANCEL_SECONDS = 5.0
# How much longer than the time it is given a cancellation is waited for.
GRACE_SECONDS = 0.1


class CancelReport:
    """What became of a cancellation.

    local: "cancelled", or "finished" when the call had its outcome before. request_delivery: what is known of the
    request: "not_sent", "accepted" (this side's transport took it) or "unknown". notification_delivery: of the message
    that tells the server: "accepted", "failed", "timeout", "unsupported" (the protocol has none for this call) or
    "not_needed" (there is nothing to cancel, or ending the exchange has told it). remote: always "unknown": what the
    server has done by then, it has done.
    """

    __slots__ = ("local", "notification_delivery", "remote", "request_delivery")

    def __init__(
        self,
        local: Local,
        request_delivery: Delivery,
        notification_delivery: Delivered,
    ) -> None:
        self.local: Local = local
        self.request_delivery: Delivery = request_delivery
        self.notification_delivery: Delivered = notification_delivery
        self.remote: Literal["unknown"] = "unknown"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CancelReport) and repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"CancelReport(local={self.local!r}, request_delivery={self.request_delivery!r}, "
            f"notification_delivery={self.notification_delivery!r}, remote={self.remote!r})"
        )


class Cancelling:
    """Tells the server of a session, by way of its control worker: a signal handler must not write on top of a write
    of its own thread.
    """

    def __init__(self, connection: Connection, control: Worker, events: Events) -> None:
        self._connection = connection
        self._control = control
        self._events = events

    def cancel(self, call: Call, reason: str, notification_timeout: float) -> CancelReport:
        """Settle the call, and wait until the server is told, within the time. Any thread, and signal handlers."""
        (report,) = self.cancel_all([call], reason, notification_timeout)
        return report

    def cancel_all(self, calls: list[Call], reason: str, notification_timeout: float) -> list[CancelReport]:
        """The same for many; the time is for all of them."""
        error = local_error("cancelled", f"the call was cancelled on this side: {reason}")
        limit = Deadline(notification_timeout)
        waiting = [
            self._told(call, reason, limit) if call.finish(error.copy()) else _Telling("finished", call.delivery)
            for call in calls
        ]
        patience = Deadline(notification_timeout + GRACE_SECONDS)
        return [told.report(patience) for told in waiting]

    def tell(self, call: Call, reason: str) -> None:
        """Tell the server, in the background, that nobody waits any more for a call that was settled here."""
        self._told(call, reason, Deadline(CANCEL_SECONDS))

    def _told(self, call: Call, reason: str, limit: Deadline) -> _Telling:
        # In this order: an attempt has its id before it is sent, and says that it is sent before it is.
        delivery, wire_id, link = call.delivery, call.wire_id, call.link
        telling = _Telling("cancelled", delivery)
        self._events.of_call("cancelled", call, request_delivery=delivery)
        if delivery == "not_sent" or wire_id is None or link is None:
            return telling
        if not link.legacy and self._connection.transport.traits.cancel != "notify":
            return telling
        if "task" in call.request.params:  # tasks/cancel ends a task, and nothing else may (2025-11-25: tasks)
            telling.delivered = "unsupported"
            return telling
        message = jsonrpc.notification("notifications/cancelled", {"requestId": wire_id, "reason": reason})
        telling.delivered = "failed"
        if not link.lost and self._control.submit(lambda: telling.done(self._send(message, link, limit))):
            telling.delivered = None
        return telling

    def _send(self, message: dict[str, Any], link: Link, limit: Deadline) -> Delivered:
        failed = self._connection.send(message, link, limit)
        if failed is None:
            return "accepted"
        return "timeout" if failed.reason == "timeout" else "failed"


class _Telling:
    """A cancellation on its way to the server; `delivered` is None while it is."""

    __slots__ = ("_done", "_local", "_request_delivery", "delivered")

    def __init__(self, local: Local, request_delivery: Delivery) -> None:
        self.delivered: Delivered | None = "not_needed"
        self._local: Local = local
        self._request_delivery: Delivery = request_delivery
        self._done: Mailbox[Delivered] = Mailbox()  # not an Event: a signal handler may wait for it

    def done(self, delivered: Delivered) -> None:
        self._done.put(delivered)

    def report(self, patience: Deadline) -> CancelReport:
        delivered = self.delivered
        if delivered is None:
            try:
                delivered = self._done.get(patience)
            except Empty:
                delivered = "timeout"
        return CancelReport(self._local, self._request_delivery, delivered)
