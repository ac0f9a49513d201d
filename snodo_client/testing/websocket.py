"""Serving WebSocket: one JSON text in each text frame, the subprotocol `mcp`, any of the older revisions.

No revision of MCP names this wire; the subprotocol is what the SDKs of the older revisions agree on. The frames are the
business of the `websockets` package (the extra of this name), used without its own sockets and threads so that closing
is the same as for the other wires (`listener.py`).
"""

from __future__ import annotations

import socket
import threading
from http import HTTPStatus
from socketserver import BaseRequestHandler
from typing import TYPE_CHECKING, cast

from snodo_client.testing.duplex import Duplex
from snodo_client.testing.errors import PARSE_ERROR, RpcError
from snodo_client.testing.http_handler import foreign
from snodo_client.testing.listener import GRACE, Listener, Serving
from snodo_client.testing.replies import error_response
from snodo_client.testing.wire import decode

try:
    from websockets.extensions.permessage_deflate import enable_server_permessage_deflate
    from websockets.frames import CloseCode, Frame, Opcode
    from websockets.http11 import Request
    from websockets.protocol import OPEN
    from websockets.server import ServerProtocol
    from websockets.typing import Subprotocol
except ImportError as missing:
    raise ImportError("serving WebSocket needs the extra: pip install 'snodo_client[websocket]'") from missing

if TYPE_CHECKING:
    import ssl

    from snodo_client.testing.server import Server

_READ = 65_536  # bytes
_LINGER = 1.0  # seconds that a client has to close its side after ours is closed
_MESSAGES = (Opcode.TEXT, Opcode.CONT)


class WebSocketServing(Serving):
    """A server that is being served at `url` until it is closed."""

    def __init__(
        self,
        server: Server,
        host: str,
        port: int,
        path: str,
        *,
        ssl_context: ssl.SSLContext | None,
        max_message_bytes: int,
    ) -> None:
        self.max_message_bytes = max_message_bytes
        self._open: set[_Handler] = set()
        self._lock = threading.Lock()
        super().__init__(server, _Handler, "ws", host, port, path, ssl_context)

    def end_connections(self, code: int = CloseCode.GOING_AWAY, *, abruptly: bool = False) -> None:
        """Close every connection with this code, or without a word."""
        for handler in self._handlers():
            if abruptly:
                handler.cut()
            else:
                handler.say_goodbye(code)

    def enter(self, handler: _Handler) -> None:
        with self._lock:
            self._open.add(handler)

    def leave(self, handler: _Handler) -> None:
        with self._lock:
            self._open.discard(handler)

    def end(self) -> None:
        super().end()
        for handler in self._handlers():
            self._listener.start(handler.finish)

    def _handlers(self) -> list[_Handler]:
        with self._lock:
            return list(self._open)


class _Handler(BaseRequestHandler):
    """One connection: its handshake, its frames, its session."""

    server: Listener
    request: socket.socket

    def setup(self) -> None:
        self.serving = cast("WebSocketServing", self.server.serving)
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lock = threading.Lock()
        self._parts: list[bytes] = []
        self._duplex: Duplex | None = None
        self._protocol = ServerProtocol(
            subprotocols=[Subprotocol("mcp")],
            extensions=enable_server_permessage_deflate(None),
            max_size=self.serving.max_message_bytes,
        )

    def handle(self) -> None:
        while self._duplex is None:
            if not self._step():
                return
        with self.server.busy():
            while self._step():
                continue

    def finish(self) -> None:
        """Running requests have a moment if the connection is still open; then it is closed."""
        if self._duplex is not None:
            self._duplex.session.end(GRACE if self._protocol.state is OPEN else 0.0)
            self.serving.leave(self)
        self.say_goodbye(CloseCode.GOING_AWAY)

    def say_goodbye(self, code: int) -> None:
        """Begin the closing handshake."""
        with self._lock:
            if self._protocol.state is OPEN:
                self._protocol.send_close(code)
            self._flush()

    def cut(self) -> None:
        """End the connection without a word."""
        try:
            socket.socket.shutdown(self.request, socket.SHUT_RDWR)
        except OSError:
            return

    def _step(self) -> bool:
        """Serve what arrives next; False when nothing more will."""
        try:
            data = self.request.recv(_READ)
        except OSError:
            data = b""
        with self._lock:
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            self._flush()
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._shake_hands(event)
            elif isinstance(event, Frame):
                self._take(event)
        return bool(data)

    def _shake_hands(self, request: Request) -> None:
        fields: dict[str, list[str]] = {}
        for name, value in request.headers.raw_items():
            fields.setdefault(name.lower(), []).append(value)
        with self._lock:
            if foreign(fields.get("origin", ())):
                response = self._protocol.reject(HTTPStatus.FORBIDDEN, "Origin not allowed\n")
            elif request.path.partition("?")[0] != self.serving.path:
                response = self._protocol.reject(HTTPStatus.NOT_FOUND, "No MCP endpoint here\n")
            else:
                response = self._protocol.accept(request)
            self._protocol.send_response(response)
            if self._protocol.state is OPEN:
                self._duplex = Duplex(self.serving.server, self.server, fields, self._write)
                self.serving.enter(self)
            self._flush()

    def _take(self, frame: Frame) -> None:
        if self._duplex is None or frame.opcode not in _MESSAGES:
            if frame.opcode is Opcode.BINARY:
                self.say_goodbye(CloseCode.UNSUPPORTED_DATA)
            return
        self._parts.append(bytes(frame.data))
        if not frame.fin:
            return
        data, self._parts = b"".join(self._parts), []
        try:
            message = decode(data)
        except ValueError as problem:
            self._duplex.push(error_response({}, RpcError(PARSE_ERROR, f"Not JSON: {problem}")))
        else:
            self._duplex.take(message)

    def _write(self, data: bytes, pause: float) -> bool:
        with self._lock:
            if self._protocol.state is not OPEN:
                return False
            self._protocol.send_text(data)
            return self._flush()

    def _flush(self) -> bool:
        """Send what the protocol has to send; an empty piece ends our side."""
        try:
            for piece in self._protocol.data_to_send():
                if piece:
                    self.request.sendall(piece)
                else:
                    self.request.settimeout(_LINGER)
                    self.request.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        return True
