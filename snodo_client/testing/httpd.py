"""Serving Streamable HTTP on a thread per connection (spec: basic/transports/streamable-http).

Built on `socketserver` and `http.server`, which are imported only by a program that serves HTTP. Keeps count of its
threads and sockets, so that `close` leaves nothing behind.
"""

from __future__ import annotations

import re
import select
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Literal, cast

from snodo_client.testing.errors import INVALID_REQUEST, PARSE_ERROR, RpcError
from snodo_client.testing.replies import Raw, Reply, error_response
from snodo_client.testing.wire import decode, encode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from types import TracebackType

    from snodo_client.testing.server import Server

_GRACE = 1.0  # seconds that running requests have to finish when the server closes
_PATIENCE = 5.0  # seconds `close` waits for handlers that ignore their cancellation
_HANDSHAKE = 10.0  # seconds
_LOCAL_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.IGNORECASE)
_GONE = getattr(select, "POLLRDHUP", 0)


class HttpServing:
    """A server that is being served at `url` until it is closed."""

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
    ) -> None:
        self._server = server
        self._listener = _Listener((host, port), server, path, sse, ssl_context, max_body_bytes)
        self.port: int = self._listener.server_address[1]
        self.url = f"{'https' if ssl_context else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}{path}"
        self._thread = threading.Thread(target=self._listener.run, name="snodo-testing-http", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Block until the server is closed."""
        self._thread.join()

    def close(self) -> None:
        """Stop: subscriptions end, running requests have a second, then every connection is cut. Idempotent."""
        if self._listener.closing.is_set():
            return
        self._listener.closing.set()
        self._server.listeners.end()
        self._listener.wake()
        self._thread.join()
        self._listener.server_close()
        self._listener.cut(idle=True)
        self._listener.join(_GRACE)
        self._listener.aborted = True
        self._listener.cut()
        self._listener.join(_PATIENCE)

    def __enter__(self) -> HttpServing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Listener(ThreadingMixIn, TCPServer):
    """The listening socket, and the threads and sockets of its connections."""

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        server: Server,
        path: str,
        sse: bool | Literal["auto"],
        ssl_context: ssl.SSLContext | None,
        max_body_bytes: int,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.mcp, self.path, self.sse, self.max_body_bytes = server, path, sse, max_body_bytes
        self.closing = threading.Event()
        self.aborted = False
        self._ssl_context = ssl_context
        self._live: dict[threading.Thread, socket.socket] = {}
        self._busy: set[threading.Thread] = set()
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def run(self) -> None:
        while not self.closing.is_set():
            self.handle_request()

    def wake(self) -> None:
        """Make `run` look at `closing`: it waits for a connection, so it gets one."""
        host, port = self.server_address[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(cast(str, host), cast(str, host))
        try:
            socket.create_connection((host, port), timeout=_PATIENCE).close()
        except OSError:
            return

    def answer(self, message: Any, exchange: _Exchange, fields: Mapping[str, list[str]]) -> None:
        """Serve one request; meanwhile the connection is not idle."""
        thread = threading.current_thread()
        with self._lock:
            self._busy.add(thread)
        try:
            exchange.finish(self.mcp.answer(message, exchange, fields))
        finally:
            with self._lock:
                self._busy.discard(thread)

    def cut(self, *, idle: bool = False) -> None:
        """Shut down every connection, or every idle one, without touching what its own thread may be using."""
        with self._lock:
            connections = [sock for thread, sock in self._live.items() if not (idle and thread in self._busy)]
        for connection in connections:
            try:
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError:
                continue

    def join(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self._lock:
            threads = [thread for thread in self._live if thread is not threading.current_thread()]
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self._ssl_context is not None:
            try:
                connection = self._ssl_context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            except OSError:
                connection.close()
                raise
        return connection, address

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return not self.closing.is_set()

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        with self._lock:
            self._live[thread] = request
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                del self._live[threading.current_thread()]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks, or that never was TLS, concerns its client alone."""
        from snodo_client.log import logger

        logger("testing").debug("connection lost", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def setup(self) -> None:
        handshake = getattr(self.request, "do_handshake", None)
        if handshake is not None:
            self.request.settimeout(_HANDSHAKE)
            handshake()
            self.request.settimeout(None)
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test server that writes a line per request hides the test's own output."""

    def do_POST(self) -> None:
        fields: dict[str, list[str]] = {}
        for name, value in self.headers.items():
            fields.setdefault(name.lower(), []).append(value.strip(" \t"))
        body = self._body(fields)
        if body is None:
            return
        refusal = _refusal(fields)
        if refusal is not None:
            self._refuse(*refusal)
            return
        if self.path.partition("?")[0] != self.server.path:
            self._refuse(HTTPStatus.NOT_FOUND, "No MCP endpoint here")
            return
        try:
            message = decode(body)
        except ValueError as problem:
            self._send(400, encode(error_response({}, RpcError(PARSE_ERROR, f"Not JSON: {problem}"))))
            return
        exchange = _Exchange(self, fields)
        self.server.answer(message, exchange, fields)
        if exchange.broken or self.server.closing.is_set():
            self.close_connection = True

    def _other(self) -> None:
        self.close_connection = True  # a body may follow that nobody reads
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "The MCP endpoint takes POST", {"Allow": "POST"})

    do_GET = do_DELETE = do_PUT = do_PATCH = do_HEAD = do_OPTIONS = _other

    def _body(self, fields: Mapping[str, list[str]]) -> bytes | None:
        """The request body; None when it was refused."""
        length = fields.get("content-length", [""])[0]
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "Content-Length is required")
        elif int(length) > self.server.max_body_bytes:
            self.close_connection = True
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A message may have {self.server.max_body_bytes} bytes")
        else:
            body = self.rfile.read(int(length))
            if len(body) == int(length):
                return body
            self.close_connection = True
        return None

    def _refuse(self, status: HTTPStatus, message: str, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, encode(error_response({}, RpcError(INVALID_REQUEST, message))), headers=headers)

    def _send(
        self,
        status: int,
        body: bytes,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        pause: float = 0.0,
    ) -> None:
        """One response with a known length, in one write."""
        fields = {
            "Content-Length": str(len(body)),
            **({"Content-Type": content_type} if body else {}),
            **(headers or {}),
        }
        if self.close_connection:
            fields["Connection"] = "close"
        self.write(self.head(status, fields), b"" if self.command == "HEAD" else body, pause)

    def head(self, status: int, fields: Mapping[str, str]) -> bytes:
        phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Scripted"
        lines = [f"HTTP/1.1 {status} {phrase}", f"Date: {self.date_time_string()}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def write(self, head: bytes, body: bytes, pause: float = 0.0) -> None:
        """Send the head and the body together, or the body byte by byte."""
        if not pause:
            self.connection.sendall(head + body)
            return
        self.connection.sendall(head)
        for i in range(len(body)):
            time.sleep(pause)
            self.connection.sendall(body[i : i + 1])


class _Exchange:
    """The context of one request, and its response: JSON, or an event stream from the first notification on."""

    def __init__(self, handler: _Handler, fields: Mapping[str, list[str]]) -> None:
        self.auth = fields.get("authorization", [None])[0]
        self.broken = False
        self._handler = handler
        self._listener = handler.server
        self._streaming = False
        self._finished = False
        self._lock = threading.Lock()

    @property
    def cancelled(self) -> bool:
        """The client has closed the connection, or the server is being closed."""
        if not self.broken and _hung_up(self._handler.connection):
            self.broken = True
        return self.broken or self._listener.aborted

    def send(self, message: dict[str, Any]) -> None:
        always = str(message.get("method", "")).startswith("notifications/subscriptions/")
        if self._streaming or self._listener.sse is not False or always:
            self._event(encode(message))

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
        body, streams = (
            reply.payload(),
            self._listener.sse is True or (self._listener.sse == "auto" and reply.copies > 1),
        )
        if self._streaming or (streams and reply.raw is None and reply.status == 200 and reply.message is not None):
            head = b"" if self._streaming else self._stream_head()
            event = body if reply.raw is not None else _event(body) * reply.copies
            self._handler.write(head, _chunk(event) + b"0\r\n\r\n", reply.drip)
        elif reply.raw is not None:
            raw: Raw = reply.raw
            self._handler._send(raw.status, body, content_type=raw.content_type, headers=raw.headers, pause=reply.drip)
        elif reply.message is None:
            self._handler._send(reply.status, b"")
        else:
            self._handler._send(reply.status, body, pause=reply.drip)

    def _event(self, data: bytes) -> None:
        with self._lock:
            if self._finished or self.cancelled:
                return
            head = b"" if self._streaming else self._stream_head()
            self._streaming = True
            try:
                self._handler.write(head, _chunk(_event(data)))
            except OSError:
                self.broken = True

    def _stream_head(self) -> bytes:
        fields = {
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
            "Transfer-Encoding": "chunked",
        }
        return self._handler.head(200, fields)


def _refusal(fields: Mapping[str, list[str]]) -> tuple[HTTPStatus, str] | None:
    """Why a POST is refused before its body is looked at."""
    if not all(_LOCAL_ORIGIN.fullmatch(origin) for origin in fields.get("origin", ())):
        return HTTPStatus.FORBIDDEN, "Origin not allowed"
    accepted = {
        item.partition(";")[0].strip().lower() for value in fields.get("accept", ()) for item in value.split(",")
    }
    if not {"application/json", "text/event-stream"} <= accepted:
        return HTTPStatus.NOT_ACCEPTABLE, "Accept must list application/json and text/event-stream"
    if fields.get("content-type", [""])[0].partition(";")[0].strip().lower() != "application/json":
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json"
    return None


def _hung_up(connection: socket.socket) -> bool:
    """Whether the other end has closed, without taking anything from the stream."""
    try:
        if _GONE:
            poll = select.poll()
            poll.register(connection, _GONE)
            return bool(poll.poll(0))
        readable = select.select([connection], [], [], 0)[0]
        return bool(readable) and socket.socket.recv(connection, 1, socket.MSG_PEEK) == b""
    except (OSError, ValueError):
        return True


def _event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
