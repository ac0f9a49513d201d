"""Where arriving messages go: to the call that waits for them, to the caller's callbacks, or to the log.

Called by reader threads and by the owners of HTTP exchanges; it only delivers, and one bad message costs that message
only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..log import logger
from ..outcome import McpError, local_error
from ..protocol import jsonrpc
from ..protocol.subscriptions import SUBSCRIPTION_ID
from ..protocol.versions import BATCHING, MODERN

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..transports.base import Link
    from .answering import Answering
    from .call import Call, Message
    from .events import Events
    from .pending import Pending
    from .worker import Worker

    OnLog = Callable[[str, Any, str | None], object]
    OnNotification = Callable[[str, dict[str, Any]], object]
    OnListChanged = Callable[[str], object]

# What is heavier than this is weighed no further.
MAX_WEIGHED = 16 * 1024 * 1024
# Characters of a server's log message that go to our own log.
MAX_LOGGED = 2000
# Progress is a hint: what a slow callback cannot keep up with is dropped, and what is too large to be one.
MAX_WAITING_PROGRESS = 1000
MAX_PROGRESS_WEIGHT = 65_536

# Notifications of changes, and the list that changed.
CHANGES = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
    "notifications/resources/updated": None,
}

_PYTHON_LEVELS = {
    "debug": 10,
    "info": 20,
    "notice": 20,
    "warning": 30,
    "error": 40,
    "critical": 50,
    "alert": 50,
    "emergency": 50,
}


class Router:
    """The `Inbound` of one session."""

    def __init__(
        self,
        pending: Pending,
        callbacks: Worker,
        events: Events,
        on_log: OnLog | None,
        on_notification: OnNotification | None,
        on_list_changed: OnListChanged | None = None,
    ) -> None:
        self._pending = pending
        self._callbacks = callbacks
        self._events = events
        self._on_log = on_log
        self._on_notification = on_notification
        self._on_list_changed = on_list_changed
        # The lists whose change is still to be told, with what the queue had dropped by then: it may be among that.
        self._changed: dict[str, int] = {}
        # Called with a change before anybody hears of it: what is kept of the list or the resource is stale.
        self.on_stale: list[Callable[[str, dict[str, Any]], object]] = []
        self.answering: Answering | None = None  # set by the session before anything is opened
        self._said: set[str] = set()

    # -- from reader threads

    def deliver(self, message: object, link: Link) -> None:
        if link.lost is not None:
            return
        if isinstance(message, dict) and isinstance(message.get("method"), str):
            self.notice(message, link)
        elif isinstance(message, dict) and ("result" in message or "error" in message):
            call = self._call_for(message, link)
            if call is not None:
                call.answer(message)
        elif isinstance(message, list) and message and link.version == BATCHING:
            for part in jsonrpc.batched(message):
                self.deliver(part, link)
        else:
            self._no_message(message, link)

    def answer(self, body: bytes, wire_id: int, link: Link) -> bool:
        call = self._pending.find(wire_id)
        if call is None or call.link is not link or link.lost is not None:
            return False
        call.answer(body)
        return True

    def reject(self, error: McpError, link: Link, wire_id: int | None) -> None:
        call = self._pending.find(wire_id) if wire_id is not None else self._pending.only(link)
        if call is not None and call.link is link:
            call.answer(error)
        else:
            self._once(link, "a message that cannot be read, for a request that cannot be told")

    def lost(self, error: McpError, link: Link) -> None:
        if link.lost is None:
            link.lost = error
            if link.agreement is not None and error.reason != "forked":
                self._events.tell("closed", server=link.name, reason=error.reason)
            self._pending.fail_all(link, error)
            self.forgotten(link)

    def forked(self) -> None:
        """In the child of a fork: what was still to be told is the parent's to tell."""
        self._changed.clear()

    def forgotten(self, link: Link) -> None:
        """The server waits for nothing any more that it asked for on this link."""
        if self.answering is not None:
            self.answering.link_lost(link)

    def _call_for(self, message: Message, link: Link) -> Call | None:
        got = message.get("id")
        wire_id = got if type(got) is int else _loose_id(got)
        if wire_id is not None and self._pending.issued(wire_id):
            # An answer nobody waits for any more is late, not wrong.
            call = self._pending.find(wire_id)
            return call if call is not None and call.link is link else None
        call = self._pending.only(link)
        if call is None:
            error = message.get("error")
            if isinstance(error, dict) and isinstance(error.get("message"), str):
                detail = f": {error.get('code')!r:.20} {error['message'][:200]!r}"  # not all of it: this is the reader
                self._once(link, "an error that names no request", detail=detail)
            else:
                self._once(link, "an answer to no request of ours")
        return call

    def _no_message(self, message: object, link: Link) -> None:
        """JSON that is no JSON-RPC message. Where it names a request of ours, its caller need not wait any longer."""
        for part in message[:100] if isinstance(message, list) else [message]:
            wire_id = part.get("id") if isinstance(part, dict) else None
            call = self._pending.find(wire_id) if type(wire_id) is int else None
            if call is not None and call.link is link:
                what = "a batch, which this protocol version has not" if part is not message else "no JSON-RPC message"
                call.answer(local_error("malformed", f"{link.name} answered {call.request.method} with {what}"))
        self._once(link, "JSON that is no JSON-RPC message")

    # -- from anywhere

    def tolerate(self, message: Message, link: Link) -> None:
        """An answer was taken although its id is no integer."""
        self._once(
            link, f"an id of type {type(message['id']).__name__} instead of the integer it was given", "accepted"
        )

    def notice(self, message: Message, link: Link, owner: Call | None = None) -> None:
        """A notification, or a request of the server. `owner` is the call in whose exchange it came, when it came in
        one.
        """
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str):
            return self._once(link, "a malformed notification")
        if "id" in message:
            # Nothing is agreed on while a server is probed; in the stream of a modern request the era is known.
            modern = link.version in MODERN or (owner is not None and owner.request.version in MODERN)
            if modern or self.answering is None:
                what = f"the request {method[:64]!r}, which no server may send in this protocol version"
                return self._once(link, what)
            return self.answering.take(message, link)
        if not isinstance(params, (dict, type(None))):
            return self._once(link, "a malformed notification")
        params = params or {}
        if method == "notifications/cancelled" and link.version not in MODERN and self.answering is not None:
            return self.answering.cancel(params, link)  # of a request of its own: the two sides count apart
        if method == "notifications/progress" and self._progress(message, params, owner):
            return None
        listener = self._listener(method, params, link) if owner is None and link.version in MODERN else None
        if listener is not None:
            return listener.put(message)
        if method == "notifications/cancelled" and link.version in MODERN:
            return None  # only ever of a subscription (spec: basic/patterns/cancellation)
        if method in CHANGES:
            self.changed(method, params)
        if owner is None and link.version in MODERN and self._pending.issued(_stamp(params)):
            return None  # of a subscription that is over
        if method == "notifications/message":
            return self._log(params, link)
        if self._on_notification is not None:
            callback = self._on_notification
            self._callbacks.submit(lambda: callback(method, params), weight((method, params)))
        return None

    def _listener(self, method: str, params: dict[str, Any], link: Link) -> Call | None:
        """The subscription a notification on a shared channel belongs to."""
        wire_id = params.get("requestId") if method == "notifications/cancelled" else _stamp(params)
        call = self._pending.find(wire_id) if type(wire_id) is int else None
        return call if call is not None and call.listens and call.link is link else None

    def changed(self, method: str, params: dict[str, Any]) -> None:
        """A list or a resource changed. What is kept of it is dropped before anybody is told."""
        for stale in self.on_stale:
            stale(method, params)
        kind, callback = CHANGES.get(method), self._on_list_changed
        dropped = self._callbacks.dropped
        if kind is None or callback is None or self._changed.get(kind) == dropped:
            return  # of many changes in a row, the callback hears once

        def tell() -> None:
            self._changed.pop(kind, None)
            callback(kind)

        self._changed[kind] = dropped
        self._callbacks.submit(tell)

    def _progress(self, message: Message, params: dict[str, Any], owner: Call | None) -> bool:
        """True when the progress is of a request of ours: given to the call that wants it, or dropped because nobody
        does.
        """
        token = params.get("progressToken")
        if type(token) is not int or not self._pending.issued(token):
            return False
        call = self._pending.find(token)
        if owner is not None or call is None or not call.wants_progress:
            return True
        if call.backlog < MAX_WAITING_PROGRESS and weight(params) <= MAX_PROGRESS_WEIGHT:
            call.put(message)
        return True

    def _log(self, params: dict[str, Any], link: Link) -> None:
        level, name = params.get("level"), params.get("logger")
        if not isinstance(level, str) or level not in _PYTHON_LEVELS:
            return self._once(link, "a log message without a level")
        name = name if isinstance(name, str) else None
        data = params.get("data")
        if self._on_log is not None:
            callback = self._on_log
            self._callbacks.submit(lambda: callback(level, data, name), weight((name, data)))
        else:
            self._callbacks.submit(lambda: _log(link.name, level, name, data), weight((name, data)))
        return None

    def _once(self, link: Link, what: str, done: str = "ignored", detail: str = "") -> None:
        """Say a fault of the server once; a server that repeats it for every message must not flood the log."""
        if what not in self._said and len(self._said) < 64:
            self._said.add(what)
            text = "%s sent %s%s; it is %s, and this is said once"
            logger("session").warning(text, link.name, what, detail, done)


def _stamp(params: dict[str, Any]) -> int:
    """The id of the subscription a notification belongs to, 0 when it belongs to none."""
    meta = params.get("_meta")
    stamp = meta.get(SUBSCRIPTION_ID) if isinstance(meta, dict) else None
    return stamp if type(stamp) is int else 0


def _loose_id(got: object) -> int | None:
    """The integer a string or float id stands for: servers exist that send ours back that way."""
    try:
        wire_id = int(got) if isinstance(got, (str, float)) and len(str(got)) <= 20 else None
    except (ValueError, OverflowError):
        return None
    return wire_id if wire_id is not None and jsonrpc.same_id(got, wire_id) is not None else None


def _log(server: str, level: str, name: str | None, data: object) -> None:
    shown = f"{name if name.isprintable() else repr(name)}: {data!r}" if name else repr(data)
    logger("server").log(_PYTHON_LEVELS[level], "%s: %s", server, shown[:MAX_LOGGED])


def weight(value: object) -> int:
    """About how many bytes of memory a JSON value holds: never much less, and all of it counts up to `MAX_WEIGHED`."""
    total, parts = 0, [value]
    while parts and total <= MAX_WEIGHED:
        part = parts.pop()
        total += 64
        if isinstance(part, str):
            total += len(part)
        elif isinstance(part, dict):
            total += sum(map(len, part))
            parts += part.values()
        elif isinstance(part, (list, tuple)):
            parts += part
    return total
