"""`Session`: one client of the older revisions, from `initialize` to the end of its connection.

What lives as long as a connection is here: the version agreed on, what the client declared, the requests that are
running either way. The methods are in `legacy.py`, tasks in `tasks.py`. Knows no wire: stdio, HTTP, HTTP+SSE and
WebSocket all give it decoded messages and send what it says.
"""

from __future__ import annotations

import itertools
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from snodo_client.testing.errors import INVALID_REQUEST, ClientError, RpcError
from snodo_client.testing.legacy import LegacyCall, check, result_of
from snodo_client.testing.replies import Reply, error_response
from snodo_client.testing.revisions import is_modern
from snodo_client.testing.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from snodo_client.testing.call import Context
    from snodo_client.testing.server import Server

ASK_SECONDS = 60.0  # what a client has to answer a request of a handler
_TICK = 0.02  # seconds between looks at whether the caller has gone
_LIST_CHANGED = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


class Session:
    """One client of the older revisions, on one connection.

    For a serving loop: give every message of the client, decoded, to `accept` in the order of arrival. That never
    blocks. If what it gives is `slow`, have its `deliver(finish)` called on a thread of its own, otherwise do it at
    once. `finish` sends a `Reply` as usual; one without message and `raw` bytes means that there is nothing to say: 202
    over HTTP. Call `end()` when the connection is gone. The statuses of replies are those of HTTP, where an error of a
    method is 200.

    `send(message)` carries what belongs to no request: notifications, requests of the server, what tasks say. Any
    thread calls it; it must not wait for the client for long; it gives False when the client cannot be reached at
    present. With `send=None` what belongs to no request goes with one that is running, or nowhere. The `context` of a
    request (see `call.Context`) gets requests of the server as well as notifications in its `send`.

    `version=` makes a session without a handshake, for a wire that keeps none (stateless HTTP): it is not listed in
    `Server.sessions`, and its client can be asked nothing. With `modern=True` requests of the 2026-07-28 revision are
    served too, until `initialize`.

    For a test: `request` and `notify` send anything to the client; `version` (None before the handshake),
    `client_info`, `client_capabilities`, `log_level`, `subscribed` and `initialized` tell what it said.
    """

    def __init__(
        self,
        server: Server,
        send: Callable[[dict[str, Any]], bool] | None,
        *,
        version: str | None = None,
        modern: bool = False,
    ) -> None:
        self.server = server
        self.version = version
        self.initialized = version is not None
        self.client_info: dict[str, Any] = {}
        self.client_capabilities: dict[str, Any] = {}
        self.log_level: str | None = None
        self.subscribed: set[str] = set()
        self.tasks: Tasks = Tasks(self)
        self.ended = False
        self.can_ask = version is None
        self._send = send
        self._modern = modern
        self._ids = itertools.count()
        self._asked: dict[int, SimpleQueue[dict[str, Any]]] = {}
        self._running: dict[tuple[type, str], Running] = {}
        self._idle = threading.Condition()

    def __repr__(self) -> str:
        return f"<Session {self.version or 'not initialized'}>"

    # What the client sends

    def accept(self, message: Any, context: Context, headers: Mapping[str, Sequence[str]] | None = None) -> Accepted:
        """Take a decoded message in the order of arrival. `headers` when it came over HTTP."""
        if isinstance(message, list) and message and self.version == "2025-03-26":
            return Accepted([self._accept(item, context, headers) for item in message], batch=True)
        return Accepted([self._accept(message, context, headers)], batch=False)

    def answer(self, message: Any, context: Context, headers: Mapping[str, Sequence[str]] | None = None) -> Reply:
        """`accept`, and the reply, in one step; for a loop that has a thread for each message anyway."""
        return self.accept(message, context, headers).answer()

    def take_response(self, message: dict[str, Any]) -> bool:
        """Hand an answer of the client to who waits for it; False when nobody does. `accept` does this."""
        wanted = message.get("id")
        waiting = self._asked.get(wanted) if type(wanted) is int else None
        if waiting is not None:
            waiting.put(message)
        return waiting is not None

    def _accept(self, message: Any, context: Context, headers: Mapping[str, Sequence[str]] | None) -> Running:
        running = Running(self, message, context, headers)
        if isinstance(message, dict) and "method" in message and "id" in message:
            with self._idle:
                if running.key in self._running:
                    error = RpcError(INVALID_REQUEST, "A request with this id is running")
                    running.reply = Reply(error_response({}, error), error.status)
                else:
                    self._running[running.key] = running
        elif self._is_response(message):
            self.server.record(message, headers)
            running.reply = Reply(None, 202)
            self.take_response(message)
        else:
            running.reply = self.server.serve(message, running, self, headers)
            if running.reply.message is None:
                self._notified(message)
        return running

    def _is_response(self, message: Any) -> bool:
        """Whether a message can be an answer of the client; one that was asked nothing yet has none to give."""
        if not isinstance(message, dict) or "method" in message or (self.version is None and not self._asked):
            return False
        return "result" in message or "error" in message

    def _notified(self, message: dict[str, Any]) -> None:
        params = message.get("params")
        if message["method"] == "notifications/initialized" and self.version is not None:
            self.initialized = True
        elif message["method"] == "notifications/cancelled" and isinstance(params, dict):
            with self._idle:
                running = self._running.get(_key(params.get("requestId")))
                if running is not None and running.message["method"] != "initialize":
                    running.cancelled = True
                    self._idle.notify_all()

    def run(self, running: Running) -> Reply:
        """The reply to an accepted request; use `Accepted`."""
        if self._modern and self.version is None and is_modern(running.message) and self.server.modern_versions:
            reply = self.server.answer(running.message, running, running.headers)
        else:
            reply = self.server.serve(running.message, running, self, running.headers)
        return Reply(None, 202) if running.cancelled and reply.crash is None else reply

    def over(self, running: Running) -> None:
        """A request was answered; use `Accepted`."""
        with self._idle:
            if self._running.get(running.key) is running:
                del self._running[running.key]
            self._idle.notify_all()

    # How the server serves it: see `Server.serve`

    maps_codes = False

    def check(self, message: dict[str, Any]) -> None:
        """Refuse what may not be asked now."""
        check(self, message)

    def result(self, message: dict[str, Any], context: Context) -> dict[str, Any]:
        """The result of a request that passed the check."""
        return result_of(self, LegacyCall(message, context, self))

    def open(self, version: str, capabilities: dict[str, Any], client_info: dict[str, Any]) -> None:
        """The handshake succeeded."""
        self.version, self.client_capabilities, self.client_info = version, capabilities, client_info
        with self._idle:  # not after `end`
            if not self.ended:
                self.server.opened(self)

    # What the server sends

    def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        timeout: float = ASK_SECONDS,
        *,
        context: Context | None = None,
    ) -> dict[str, Any]:
        """Send a request to the client and give its result; nothing is checked, so that tests can send anything.

        With a `context` the request belongs to the one that is served with it: it goes the same way, and ends when that
        is cancelled. Raises `ClientError` when the client answers with an error, TimeoutError after `timeout` seconds,
        and ConnectionError when it cannot be asked, has cancelled, or has gone. What is given up is cancelled.
        """
        if not self.can_ask:
            raise ConnectionError("the client cannot be asked on this connection")
        number, waiting = next(self._ids), SimpleQueue[dict[str, Any]]()
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": number, "method": method}
        if params is not None:
            message["params"] = params
        self._asked[number] = waiting
        try:
            if context is not None:
                context.send(message)
            elif not self.send(message):
                raise ConnectionError("the client cannot be reached")
            return self._await(number, waiting, timeout, context)
        finally:
            del self._asked[number]

    def _await(
        self, number: int, waiting: SimpleQueue[dict[str, Any]], timeout: float, context: Context | None
    ) -> dict[str, Any]:
        end = time.monotonic() + timeout
        while True:
            try:
                response = waiting.get(timeout=min(max(end - time.monotonic(), 0), _TICK))
                break
            except Empty:
                if self.ended:
                    raise ConnectionError("the client has gone") from None
                cancelled = context is not None and context.cancelled
                if cancelled or time.monotonic() >= end:
                    reason = "The request it belongs to was cancelled" if cancelled else "No answer in time"
                    self.notify("notifications/cancelled", {"requestId": number, "reason": reason})
                    raise (ConnectionError if cancelled else TimeoutError)(reason) from None
        if "error" in response:
            raise ClientError(response["error"])
        result = response["result"]
        if not isinstance(result, dict):
            raise ClientError({"code": INVALID_REQUEST, "message": f"the result is {type(result).__name__}"})
        return result

    def notify(self, method: str, params: dict[str, Any] | None = None) -> bool:
        """Send any notification to the client, outside of its requests; False when it could not be sent."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        return self.send(message)

    def send(self, message: dict[str, Any]) -> bool:
        """Send what belongs to no request; False when it could not be sent."""
        if self.ended:
            return False
        if self._send is not None:
            return self._send(message)
        with self._idle:
            carrier = next(reversed(self._running.values()), None)
        if carrier is not None:
            carrier.send(message)
        return carrier is not None

    def changed(self, method: str, params: dict[str, Any]) -> bool:
        """Tell the client of a change, if it is to hear of it; see `Server.emit`."""
        if not self.initialized:
            return False
        if method in _LIST_CHANGED:
            wanted = self.server.capabilities.get(_LIST_CHANGED[method], {}).get("listChanged") is True
        else:
            wanted = params.get("uri") in self.subscribed
        return wanted and self.notify(method, params or None)

    # The end

    def end(self, grace: float = 0.0) -> None:
        """The connection is gone: running requests have `grace` seconds, then all is cancelled. Idempotent."""
        with self._idle:
            self._idle.wait_for(lambda: all(each.cancelled for each in self._running.values()), grace)
            self.ended = True
            for running in self._running.values():
                running.cancelled = True
        self.tasks.end()
        self.server.closed(self)


class Running:
    """One message that was accepted, and the context its handler gets: what `call.Context` says."""

    __slots__ = ("_cancelled", "_context", "_session", "headers", "message", "reply")

    def __init__(
        self, session: Session, message: Any, context: Context, headers: Mapping[str, Sequence[str]] | None
    ) -> None:
        self.message = message
        self.headers = headers
        self.reply: Reply | None = None
        self._session = session
        self._context = context
        self._cancelled = False

    @property
    def key(self) -> tuple[type, str]:
        return _key(self.message["id"])

    @property
    def auth(self) -> Any:
        return self._context.auth

    @property
    def cancelled(self) -> bool:
        return self._cancelled or self._context.cancelled

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        self._cancelled = value

    def send(self, message: dict[str, Any], /) -> None:
        """Send to the client while the request runs."""
        if not self.cancelled:
            self._context.send(message)

    def run(self) -> Reply:
        """The reply, which is still to be sent."""
        return self._session.run(self) if self.reply is None else self.reply

    def over(self) -> None:
        """The reply was sent."""
        if self.reply is None:
            self._session.over(self)


class Accepted:
    """What `Session.accept` took: one message, or a batch of them (spec: 2025-03-26, basic), which makes one reply."""

    __slots__ = ("_batch", "_items")

    def __init__(self, items: list[Running], *, batch: bool) -> None:
        self._items = items
        self._batch = batch

    @property
    def slow(self) -> bool:
        """Whether the reply may take its time: true of requests alone."""
        return any(item.reply is None for item in self._items)

    def deliver(self, finish: Callable[[Reply], None]) -> None:
        """Make the reply and have `finish` send it; until then the requests count as running."""
        try:
            finish(self._together() if self._batch else self._items[0].run())
        finally:
            for item in self._items:
                item.over()

    def answer(self) -> Reply:
        """The reply."""
        replies: list[Reply] = []
        self.deliver(replies.append)
        return replies[0]

    def _together(self) -> Reply:
        """The responses as one list, made one after the other; bytes in place of one cannot be part of it."""
        replies = [item.run() for item in self._items]
        messages = [reply.message for reply in replies if not (reply.message is None or reply.dropped or reply.raw)]
        reply = Reply(messages or None, 200 if messages else 202)
        reply.crash = next((each.crash for each in replies if each.crash is not None), None)
        return reply


def _key(identifier: Any) -> tuple[type, str]:
    """An id by type and value: 1 is not "1"."""
    return type(identifier), repr(identifier)
