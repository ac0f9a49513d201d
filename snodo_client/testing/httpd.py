"""Serving Streamable HTTP of every revision at one URL (spec: basic/transports/streamable-http).

What is being served, the door that every POST passes, and the modern era. The legacy eras are in `http_legacy.py`; the
threads and sockets are in `listener.py`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

from snodo_client.testing.errors import PARSE_ERROR, RpcError
from snodo_client.testing.http_handler import LAST_CHUNK, accepts, chunk, event, foreign, is_json
from snodo_client.testing.http_legacy import LegacyHandler
from snodo_client.testing.listener import GRACE, Serving
from snodo_client.testing.revisions import LEGACY, is_modern
from snodo_client.testing.wire import decode, encode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Collection, Mapping

    from snodo_client.testing.http_sessions import HttpSession
    from snodo_client.testing.replies import Reply
    from snodo_client.testing.server import Server

_SESSIONS = 1000  # kept; then the oldest is forgotten


class HttpServing(Serving):
    """A server that is being served at `url` until it is closed.

    `seen` counts what has arrived: "POST", "GET", "DELETE" and "initialize".
    """

    def __init__(
        self,
        server: Server,
        host: str,
        port: int,
        path: str,
        *,
        sse: bool | Literal["auto"],
        ssl_context: ssl.SSLContext | None,
        max_body_bytes: int,
        sessions: bool = True,
        offers: Collection[str] = ("GET", "DELETE"),
        polling: float | None = None,
        keep_alive: float | None = None,
    ) -> None:
        self.sse = sse
        self.keep_alive = keep_alive
        self.max_body_bytes = max_body_bytes
        self.sessions = sessions
        self.polling = polling
        self.seen: Counter[str] = Counter()
        self._offers = [method for method in ("GET", "DELETE") if sessions and method in offers]
        self._clients: dict[str, HttpSession] = {}
        self._lock = threading.Lock()
        super().__init__(server, _Handler, "http", host, port, path, ssl_context)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The HTTP methods that the endpoint takes."""
        return ("POST", *self._offers) if any(version in LEGACY for version in self.server.versions) else ("POST",)

    def expire_sessions(self) -> None:
        """End every session of the legacy eras: their ids are unknown from now on (404)."""
        with self._lock:
            clients = list(self._clients.values())
            self._clients.clear()
        for client in clients:
            client.end()

    def end_streams(self) -> None:
        """End the connections of all legacy streams that are open; clients may come back and resume them."""
        with self._lock:
            clients = list(self._clients.values())
        for client in clients:
            client.release()

    def speaks_legacy(self, message: Any, fields: Mapping[str, list[str]]) -> bool:
        """Whether a POST is one of the legacy eras. Where only one era is served, everything is of that era."""
        legacy = [version for version in self.server.versions if version in LEGACY]
        if len(legacy) in (0, len(self.server.versions)):
            return bool(legacy)
        named = fields.get("mcp-protocol-version", [""])[0]
        return not is_modern(message) and (named in ("", *LEGACY) or "mcp-session-id" in fields)

    def count(self, what: str) -> None:
        with self._lock:
            self.seen[what] += 1

    def remember(self, client: HttpSession) -> None:
        with self._lock:
            self._clients[client.id] = client
            oldest = next(iter(self._clients.values())) if len(self._clients) > _SESSIONS else None
        if oldest is not None:
            self.forget(oldest)
            oldest.end()

    def find(self, session_id: str) -> HttpSession | None:
        with self._lock:
            return self._clients.get(session_id)

    def forget(self, client: HttpSession) -> None:
        with self._lock:
            self._clients.pop(client.id, None)

    def end(self) -> None:
        super().end()
        with self._lock:
            clients = list(self._clients.values())
        for client in clients:
            self._listener.start(lambda client=client: client.end(GRACE))  # type: ignore[misc]


class _Handler(LegacyHandler):
    """The requests of one connection."""

    def do_POST(self) -> None:
        self.serving.count("POST")
        fields = self.fields
        body = self.body(self.serving.max_body_bytes)
        if body is None:
            return
        refusal = self._refusal(fields)
        if refusal is not None:
            self.refuse(*refusal)
            return
        try:
            message = decode(body)
        except ValueError as problem:
            self.refuse_with(RpcError(PARSE_ERROR, f"Not JSON: {problem}"))
            return
        with self.server.busy():
            if self.serving.speaks_legacy(message, fields):
                self.answer_legacy(message, fields)
            else:
                self._answer_modern(message, fields)
        if self.server.closing.is_set():
            self.close_connection = True

    do_PUT = do_PATCH = do_HEAD = do_OPTIONS = LegacyHandler.other

    def _refusal(self, fields: Mapping[str, list[str]]) -> tuple[HTTPStatus, str] | None:
        """Why a POST is refused before its body is looked at."""
        if foreign(fields.get("origin", ())):
            return HTTPStatus.FORBIDDEN, "Origin not allowed"
        if not accepts(fields.get("accept", ()), "application/json", "text/event-stream"):
            return HTTPStatus.NOT_ACCEPTABLE, "Accept must list application/json and text/event-stream"
        if not is_json(fields.get("content-type", [])):
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json"
        if self.path.partition("?")[0] != self.serving.path:
            return HTTPStatus.NOT_FOUND, "No MCP endpoint here"
        return None

    def _answer_modern(self, message: Any, fields: Mapping[str, list[str]]) -> None:
        exchange = _Exchange(self, fields)
        exchange.finish(self.serving.server.answer(message, exchange, fields))
        if exchange.broken:
            self.close_connection = True


class _Exchange:
    """The context of one modern request, and its response: JSON, or a stream from the first notification on."""

    def __init__(self, handler: _Handler, fields: Mapping[str, list[str]]) -> None:
        self.auth = fields.get("authorization", [None])[0]
        self.broken = False
        self._handler = handler
        self._sse = handler.serving.sse
        self._interval = handler.serving.keep_alive
        self._spoke = time.monotonic()
        self._streaming = False
        self._finished = False
        self._lock = threading.Lock()

    @property
    def cancelled(self) -> bool:
        """The client has closed the connection, or the server is being closed."""
        if not self.broken and self._handler.hung_up():
            self.broken = True
        return self.broken or self._handler.server.aborted

    def send(self, message: dict[str, Any]) -> None:
        always = str(message.get("method", "")).startswith("notifications/subscriptions/")
        if self._streaming or self._sse is not False or always:
            self._put(event(encode(message)))

    def keep_alive(self) -> None:
        """Send a comment when nothing was sent for a while."""
        due = self._interval is not None and time.monotonic() - self._spoke >= self._interval
        if due and (self._streaming or self._sse is not False):
            self._put(b": still here\n\n")

    def finish(self, reply: Reply) -> None:
        """Send the reply and end the response."""
        gone = self.cancelled
        with self._lock:
            self._finished = True
        if gone or reply.dropped or reply.crash is not None:
            self.broken = True
            return
        try:
            self._finish(reply)
        except OSError:
            self.broken = True

    def _finish(self, reply: Reply) -> None:
        streams = self._sse is True or (self._sse == "auto" and reply.copies > 1)
        if self._streaming or (streams and reply.raw is None and reply.status == 200 and reply.message is not None):
            head = b"" if self._streaming else self._handler.stream_head()
            sent = reply.payload() if reply.raw is not None else event(reply.payload()) * reply.copies
            self._handler.write(head, (chunk(sent) if sent else b"") + LAST_CHUNK, reply.drip)
        else:
            self._handler.plain(reply)

    def _put(self, data: bytes) -> None:
        with self._lock:
            if self._finished or self.cancelled:
                return
            head = b"" if self._streaming else self._handler.stream_head()
            self._streaming, self._spoke = True, time.monotonic()
            try:
                self._handler.write(head, chunk(data))
            except OSError:
                self.broken = True
