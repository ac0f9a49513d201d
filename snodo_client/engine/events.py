"""What happens on a connection, told to the callback `on_event`: names and plain fields, for logs, metrics and traces.

Nothing secret is among the fields, and nothing a caller or a server put into a message beyond the names of methods and
tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import InputRequired, McpError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..outcome import Outcome
    from .call import Call
    from .worker import Worker

    OnEvent = Callable[[str, dict[str, Any]], object]


class Events:
    """Tells `callback(name, fields)` on the thread of `callbacks`, in order; without a callback nothing.

    negotiated: server, era, version, probed, why. closed: server, reason; when an agreed connection is lost or the
    client closed. The others are of a call: server, id, wire_id, method, version, and tool where one is called. `id`
    stays the same for the whole call; `wire_id` is that of the request on the wire, None when none is.

    sent: no more than that. received: outcome ("ok", "input_required" or "error"), code, reason, and the seconds since
    it was sent. retried: why ("version", "headers", "session", "era" or "input"); what is sent again within one HTTP
    exchange, such as after a redirect, is not told. cancelled: request_delivery.
    """

    __slots__ = ("_callback", "_callbacks")

    def __init__(self, callback: OnEvent | None, callbacks: Worker) -> None:
        self._callback = callback
        self._callbacks = callbacks

    @property
    def wanted(self) -> bool:
        return self._callback is not None

    def tell(self, name: str, **fields: Any) -> None:
        callback = self._callback
        if callback is not None:
            self._callbacks.submit(lambda: callback(name, fields), 256)

    def of_call(self, name: str, call: Call, **fields: Any) -> None:
        if self._callback is None:
            return
        request = call.request
        about: dict[str, Any] = {
            "server": call.link.name if call.link is not None else None,
            "id": call.id,
            "wire_id": call.wire_id,
            "method": request.method,
            "version": request.version,
        }
        if request.method == "tools/call":
            about["tool"] = request.params.get("name")
        self.tell(name, **about, **fields)

    def received(self, call: Call, outcome: Outcome, seconds: float) -> None:
        if self._callback is None:
            return
        error = outcome if isinstance(outcome, McpError) else None
        self.of_call(
            "received",
            call,
            outcome="error" if error else "input_required" if isinstance(outcome, InputRequired) else "ok",
            code=error.code if error else None,
            reason=error.reason if error else None,
            seconds=seconds,
        )
