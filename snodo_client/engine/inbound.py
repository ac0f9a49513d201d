"""Where arriving messages go: to the call that waits for them, to the caller's callbacks, or to the log.

Called by reader threads and by the owners of HTTP exchanges; it only delivers, and one bad message costs that message
only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..log import logger
from ..outcome import McpError
from ..protocol import jsonrpc

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..transports.base import Link
    from .call import Call, Message
    from .catalog import Catalog
    from .pending import Pending
    from .worker import Worker

    OnLog = Callable[[str, Any, str | None], object]
    OnNotification = Callable[[str, dict[str, Any]], object]

# Characters of a server's log message that go to our own log.
MAX_LOGGED = 2000
# Progress is a hint: what a slow callback cannot keep up with is dropped.
MAX_WAITING_PROGRESS = 1000

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
        catalog: Catalog,
        callbacks: Worker,
        on_log: OnLog | None,
        on_notification: OnNotification | None,
    ) -> None:
        self._pending = pending
        self._catalog = catalog
        self._callbacks = callbacks
        self._on_log = on_log
        self._on_notification = on_notification
        self._said: set[str] = set()

    # -- from reader threads

    def deliver(self, message: object, link: Link) -> None:
        if link.lost is not None:
            return None
        if not isinstance(message, dict):
            return self._once(link, "something that is no JSON-RPC message")
        if "method" in message:
            return self.notice(message, link)
        if "result" not in message and "error" not in message:
            return self._once(link, "an object that is no JSON-RPC message")
        call = self._call_for(message, link)
        if call is not None:
            call.put(message)
        return None

    def answer(self, body: bytes, wire_id: int, link: Link) -> bool:
        call = self._pending.find(wire_id)
        if call is None or call.link is not link or link.lost is not None:
            return False
        call.put(body)
        return True

    def reject(self, error: McpError, link: Link, wire_id: int | None) -> None:
        call = self._pending.find(wire_id) if wire_id is not None else self._pending.only(link)
        if call is not None and call.link is link:
            call.put(error)
        else:
            self._once(link, "a message that cannot be read, for a request that cannot be told")

    def lost(self, error: McpError, link: Link) -> None:
        if link.lost is None:
            link.lost = error
            self._pending.fail_all(link, error)

    def _call_for(self, message: Message, link: Link) -> Call | None:
        got = message.get("id")
        wire_id = got if type(got) is int else self._loose_id(got, link)
        if wire_id is not None and self._pending.issued(wire_id):
            call = self._pending.find(wire_id)
            return (
                call if call is not None and call.link is link else None
            )  # an answer nobody waits for any more is late, not wrong
        call = self._pending.only(link)
        if call is None:
            self._once(link, "an answer to no request of ours")
        return call

    def _loose_id(self, got: object, link: Link) -> int | None:
        """The integer a string or float id stands for. Ids are integers here, but servers exist that send them back
        otherwise.
        """
        try:
            wire_id = int(got) if isinstance(got, (str, float)) and len(str(got)) <= 20 else None
        except (ValueError, OverflowError):
            return None
        if wire_id is None or jsonrpc.same_id(got, wire_id) is None:
            return None
        self._once(link, "an id as a string or a fraction instead of the integer it was given", "accepted")
        return wire_id

    # -- from anywhere

    def notice(self, message: Message, link: Link, owner: Call | None = None) -> None:
        """A notification, or a request of the server. `owner` is the call in whose exchange it came, when it came in
        one.
        """
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str) or not isinstance(params, (dict, type(None))):
            return self._once(link, "a malformed notification")
        if "id" in message:
            return self._once(link, f"the request {method[:64]!r}, which no server may send in this protocol version")
        params = params or {}
        if method == "notifications/progress" and self._progress(message, params, owner):
            return None
        if method == "notifications/tools/list_changed":
            self._catalog.clear()
        if method == "notifications/message":
            return self._log(params, link)
        if self._on_notification is not None:
            callback = self._on_notification
            self._callbacks.submit(lambda: callback(method, params))
        return None

    def _progress(self, message: Message, params: dict[str, Any], owner: Call | None) -> bool:
        """True when the progress is of a request of ours: given to the call that wants it, or dropped because nobody
        does.
        """
        token = params.get("progressToken")
        if type(token) is not int or not self._pending.issued(token):
            return False
        call = self._pending.find(token)
        if owner is None and call is not None and call.wants_progress and call.backlog < MAX_WAITING_PROGRESS:
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
            self._callbacks.submit(lambda: callback(level, data, name))
        else:
            shown = f"{name}: {data!r}" if name else repr(data)
            arguments = _PYTHON_LEVELS[level], "%s: %s", link.name, shown[:MAX_LOGGED]
            self._callbacks.submit(lambda: logger("server").log(*arguments))
        return None

    def _once(self, link: Link, what: str, done: str = "ignored") -> None:
        """Say a fault of the server once; a server that repeats it for every message must not flood the log."""
        if what not in self._said and len(self._said) < 64:
            self._said.add(what)
            logger("session").warning("%s sent %s; it is %s, and this is said once", link.name, what, done)
