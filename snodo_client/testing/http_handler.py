"""What every HTTP connection of the scriptable server needs: reading a body, refusing, writing a response or a stream.

Which request gets which answer is not here but in `httpd.py` and `sse.py`.
"""

from __future__ import annotations

import re
import select
import socket
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from snodo_client.testing.errors import INVALID_REQUEST, RpcError
from snodo_client.testing.replies import error_response
from snodo_client.testing.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from snodo_client.testing.http_sessions import Stream
    from snodo_client.testing.listener import Listener
    from snodo_client.testing.replies import Reply

_LOCAL_ORIGIN = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.IGNORECASE)
_GONE = getattr(select, "POLLRDHUP", 0)
_STREAM = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "Transfer-Encoding": "chunked",
}
LAST_CHUNK = b"0\r\n\r\n"


class HttpHandler(BaseHTTPRequestHandler):
    """The requests of one connection. `fields` maps the lower-case names of the headers to their values, in order."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Listener

    @property
    def allowed(self) -> tuple[str, ...]:
        """The HTTP methods that are taken at the path of the request."""
        raise NotImplementedError

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test server that writes a line per request hides the test's own output."""

    def other(self) -> None:
        """Refuse a request for its HTTP method."""
        self.close_connection = True  # a body may follow that nobody reads
        allowed = ", ".join(self.allowed)
        self.refuse(HTTPStatus.METHOD_NOT_ALLOWED, f"The MCP endpoint takes {allowed}", {"Allow": allowed})

    @property
    def fields(self) -> dict[str, list[str]]:
        fields: dict[str, list[str]] = {}
        for name, value in self.headers.items():
            fields.setdefault(name.lower(), []).append(value.strip(" \t"))
        return fields

    def body(self, limit: int) -> bytes | None:
        """The body of the request, of at most `limit` bytes; None when it was refused."""
        length = self.headers.get("content-length", "").strip(" \t")
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            self.refuse(HTTPStatus.LENGTH_REQUIRED, "Content-Length is required")
        elif int(length) > limit:
            self.close_connection = True
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A message may have {limit} bytes")
        else:
            body = self.rfile.read(int(length))
            if len(body) == int(length):
                return body
            self.close_connection = True
        return None

    def refuse(self, status: HTTPStatus, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.refuse_with(RpcError(INVALID_REQUEST, message, status=status), headers)

    def refuse_with(self, error: RpcError, headers: Mapping[str, str] | None = None) -> None:
        """Answer with an error that belongs to no request."""
        self.send(error.status, encode(error_response({}, error)), headers=headers)

    def send(
        self,
        status: int,
        body: bytes = b"",
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

    def plain(self, reply: Reply, headers: Mapping[str, str] | None = None) -> None:
        """Send a reply as a response of its own; `headers` are added unless the reply is scripted bytes."""
        if reply.raw is not None:
            kind, own = reply.raw.content_type, reply.raw.headers
            self.send(reply.raw.status, reply.payload(), content_type=kind, headers=own, pause=reply.drip)
        elif reply.message is None:
            self.send(reply.status, headers=headers)
        else:
            self.send(reply.status, reply.payload(), headers=headers, pause=reply.drip)

    def head(self, status: int, fields: Mapping[str, str]) -> bytes:
        phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Scripted"
        lines = [f"HTTP/1.1 {status} {phrase}", f"Date: {self.date_time_string()}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def stream_head(self, headers: Mapping[str, str] | None = None) -> bytes:
        """The head of a response that is an event stream, to be sent in chunks."""
        return self.head(200, {**_STREAM, **(headers or {})})

    def carry(self, head: bytes, first: bytes, stream: Stream, follower: object, after: int) -> None:
        """Send a stream, from after this event on, for as long as this connection carries it; `first` goes first."""
        try:
            self.write(head, chunk(first) if first else b"")
            for each in stream.follow(follower, after, self.gone):
                self.write(b"", chunk(each.data), each.pause)
            if stream.broken or self.gone():
                self.close_connection = True
            else:
                self.write(b"", LAST_CHUNK)
        except OSError:
            self.close_connection = True

    def write(self, head: bytes, body: bytes, pause: float = 0.0) -> None:
        """Send the head and the body together, or the body byte by byte."""
        if not pause:
            self.connection.sendall(head + body)
            return
        self.connection.sendall(head)
        for i in range(len(body)):
            time.sleep(pause)
            self.connection.sendall(body[i : i + 1])

    def gone(self) -> bool:
        """Whether the other end has closed, or the server is being closed."""
        return self.server.aborted or self.hung_up()

    def hung_up(self) -> bool:
        """Whether the other end has closed, without taking anything from the stream."""
        try:
            if _GONE:
                poll = select.poll()
                poll.register(self.connection, _GONE)
                return bool(poll.poll(0))
            readable = select.select([self.connection], [], [], 0)[0]
            return bool(readable) and socket.socket.recv(self.connection, 1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True


def foreign(origins: Iterable[str]) -> bool:
    """Whether an `Origin` header names anything but this machine: DNS rebinding is refused."""
    return not all(_LOCAL_ORIGIN.fullmatch(origin) for origin in origins)


def accepts(values: Iterable[str], *wanted: str) -> bool:
    """Whether the `Accept` headers list all of these media types."""
    accepted = {item.partition(";")[0].strip().lower() for value in values for item in value.split(",")}
    return accepted.issuperset(wanted)


def is_json(values: list[str]) -> bool:
    """Whether the `Content-Type` headers announce JSON."""
    return bool(values) and values[0].partition(";")[0].strip().lower() == "application/json"


def event(data: bytes, *, name: bytes = b"message", id: bytes = b"") -> bytes:
    """One server-sent event with a single line of data."""
    return (b"id: %b\n" % id if id else b"") + b"event: " + name + b"\ndata: " + data + b"\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
