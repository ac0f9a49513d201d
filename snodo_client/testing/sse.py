"""Serving HTTP+SSE, the transport of 2024-11-05 (spec: 2024-11-05, basic/transports, "HTTP with SSE").

A stream opened by GET carries everything to the client, POSTs carry everything to the server. Any of the older
revisions can be agreed on over it.
"""

from __future__ import annotations

import secrets
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qs, urljoin, urlsplit

from snodo_client.testing.duplex import Duplex
from snodo_client.testing.errors import PARSE_ERROR, RpcError
from snodo_client.testing.http_handler import HttpHandler, event, foreign, is_json
from snodo_client.testing.http_sessions import Stream
from snodo_client.testing.listener import GRACE, Serving
from snodo_client.testing.wire import decode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from snodo_client.testing.server import Server


class SseServing(Serving):
    """A server that is being served at `url` until it is closed."""

    def __init__(
        self,
        server: Server,
        host: str,
        port: int,
        path: str,
        *,
        message_path: str,
        ssl_context: ssl.SSLContext | None,
        max_body_bytes: int,
    ) -> None:
        self.endpoint = message_path
        self.message_path = urlsplit(urljoin(path, message_path)).path
        self.max_body_bytes = max_body_bytes
        self._clients: dict[str, _Client] = {}
        self._lock = threading.Lock()
        super().__init__(server, _Handler, "http", host, port, path, ssl_context)

    def end_streams(self) -> None:
        """End every open stream, and its session with it."""
        for client in self._open():
            client.stream.end()

    def enter(self, handler: HttpHandler) -> _Client:
        client = _Client(self, handler)
        with self._lock:
            self._clients[client.id] = client
        return client

    def find(self, session_id: str) -> _Client | None:
        with self._lock:
            return self._clients.get(session_id)

    def leave(self, client: _Client) -> None:
        with self._lock:
            del self._clients[client.id]
        client.end()

    def end(self) -> None:
        super().end()
        for client in self._open():
            self._listener.start(client.end)

    def _open(self) -> list[_Client]:
        with self._lock:
            return list(self._clients.values())


class _Client:
    """One open stream and its session."""

    def __init__(self, serving: SseServing, handler: HttpHandler) -> None:
        self.id = secrets.token_hex(16)
        self.stream = Stream()
        self.duplex = Duplex(serving.server, handler.server, handler.fields, self._write)

    def _write(self, data: bytes, pause: float) -> bool:
        self.stream.put(data, pause)
        return self.stream.attached

    def end(self) -> None:
        """Running requests have a moment if the stream is still open; then it ends."""
        self.duplex.session.end(GRACE if self.stream.attached else 0.0)
        self.stream.end()


class _Handler(HttpHandler):
    """The requests of one connection."""

    @property
    def serving(self) -> SseServing:
        return cast("SseServing", self.server.serving)

    @property
    def allowed(self) -> tuple[str, ...]:
        return ("GET",) if self._path == self.serving.path else ("POST",)

    @property
    def _path(self) -> str:
        return self.path.partition("?")[0]

    def do_GET(self) -> None:
        """Open a stream; its first event says where to POST."""
        fields = self.fields
        self.close_connection = True
        if self._refused(fields, self.serving.path):
            return
        with self.server.busy():
            client = self.serving.enter(self)
            follower = client.stream.attach()
            try:
                endpoint = f"{self.serving.endpoint}?session_id={client.id}".encode()
                self.carry(self.stream_head(), event(endpoint, name=b"endpoint"), client.stream, follower, 0)
            finally:
                self.serving.leave(client)

    def do_POST(self) -> None:
        """Take a message; what there is to say to it goes into the stream."""
        fields = self.fields
        body = self.body(self.serving.max_body_bytes)
        if body is None or self._refused(fields, self.serving.message_path):
            return
        named = parse_qs(urlsplit(self.path).query).get("session_id")
        client = self.serving.find(named[0]) if named else None
        if client is None:
            status = HTTPStatus.NOT_FOUND if named else HTTPStatus.BAD_REQUEST
            self.refuse(status, "No such session" if named else "session_id is required")
        elif not is_json(fields.get("content-type", [])):
            self.refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json")
        else:
            try:
                message = decode(body)
            except ValueError as problem:
                self.refuse_with(RpcError(PARSE_ERROR, f"Not JSON: {problem}"))
                return
            client.duplex.take(message)
            self.send(202, b"Accepted", content_type="text/plain")

    do_DELETE = do_PUT = do_PATCH = do_HEAD = do_OPTIONS = HttpHandler.other

    def _refused(self, fields: Mapping[str, list[str]], path: str) -> bool:
        if foreign(fields.get("origin", ())):
            self.refuse(HTTPStatus.FORBIDDEN, "Origin not allowed")
        elif self._path not in (self.serving.path, self.serving.message_path):
            self.refuse(HTTPStatus.NOT_FOUND, "No MCP endpoint here")
        elif self._path != path:
            self.other()
        else:
            return False
        return True
