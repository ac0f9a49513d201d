"""How a WebSocket connection comes about: TCP, TLS, and the HTTP request that is answered by 101 (RFC 6455, section 4).

Everything waits in slices, so that a deadline or a close from another thread ends it at once. An answer that is no 101
is read here, as far as it explains itself within a second; `websockets` judges the others. Redirects are not followed:
the request carries credentials.
"""

from __future__ import annotations

import os
import ssl
from http.client import HTTPException, HTTPResponse, IncompleteRead
from io import BytesIO
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import TYPE_CHECKING

from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from ..engine.deadline import Deadline
from ..log import logger
from ..masking import Masking, of_headers, of_query, plain
from ..outcome import McpError, local_error
from ..protocol.origins import REDIRECTS, Refusal, redirected
from .http_dial import SLICE, dial
from .http_options import BASE_HEADERS
from .http_trust import trust

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from typing import Any

    from .http_options import HttpOptions

SUBPROTOCOL = "mcp"
MAX_HEAD = 65_536  # bytes of the answer's head
MAX_REFUSAL = 65_536  # bytes of an answer that is no 101
REFUSAL_SECONDS = 1.0  # how long to wait for the text of it

_END_OF_HEAD = b"\r\n\r\n"


class Handshake:
    """One attempt. `masking` hides what the request carries; `check` raises what ended the attempt."""

    def __init__(self, name: str, options: HttpOptions, check: Callable[[], None]) -> None:
        self.name = name
        self._options = options
        self._check = check
        self._own = options.own_headers()
        self.masking = Masking([*of_headers(self._own.items()), *of_query(options.endpoint.query[1:])])

    def run(self) -> tuple[socket.socket, ClientProtocol, bytes]:
        """A connected non-blocking socket, its protocol, and what came after the handshake. Raises McpError."""
        options = self._options
        uri = parse_uri(f"ws{options.endpoint.url.removeprefix('http')}")
        protocol = ClientProtocol(
            uri,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            max_size=options.max_response_bytes,
            logger=_silent(),
        )
        sock = self._connected(options.endpoint.host, uri.port)
        error: McpError
        try:
            self._send(sock, self._request(protocol))
            return sock, protocol, self._answered(sock, protocol)
        except (OSError, HTTPException) as fault:
            error = self._error_of(fault, up=True)
        except BaseException:
            sock.close()
            raise
        sock.close()
        raise error

    # -- the connection

    def _connected(self, host: str, port: int) -> socket.socket:
        seconds, options = self._options.connect_timeout, self._options
        limit = Deadline(float("inf") if seconds is None else seconds, name="connect_timeout")
        secure = options.endpoint.scheme == "https"
        context = trust(_bundle(options.verify), options.cert) if secure else None
        sock = dial(host, port, self.name, limit, self._check)
        if context is None:
            return sock
        error: McpError
        try:
            if context.verify_mode == ssl.CERT_NONE:
                logger("websocket").warning("%s: certificates are not verified (verify=False)", self.name)
            sock = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
            self._shake_hands(sock, limit)
            return sock
        except OSError as fault:
            error = self._error_of(fault, up=False)
        except BaseException:
            sock.close()
            raise
        sock.close()
        raise error

    def _shake_hands(self, sock: ssl.SSLSocket, limit: Deadline) -> None:
        while True:
            try:
                return sock.do_handshake()
            except ssl.SSLWantReadError:
                event = EVENT_READ
            except ssl.SSLWantWriteError:
                event = EVENT_WRITE
            self._wait(sock, event, limit)
            if limit.over:
                self._check()
                text = f"no connection to {self.name} within {limit.seconds:g} s (connect_timeout)"
                raise local_error("unreachable", text, data={"tried": []})

    # -- the request

    def _request(self, protocol: ClientProtocol) -> bytes:
        request = protocol.connect()
        lines = [f"{name}: {value}\r\n" for name, value in request.headers.raw_items()]
        ours = {"User-Agent": BASE_HEADERS["User-Agent"], **self._own}
        lines += [f"{name}: {value}\r\n" for name, value in ours.items()]
        return f"GET {request.path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")

    def _send(self, sock: socket.socket, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[sock.send(rest) :]
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(sock, EVENT_WRITE)
            except ssl.SSLWantReadError:
                self._wait(sock, EVENT_READ)

    # -- the answer

    def _answered(self, sock: socket.socket, protocol: ClientProtocol) -> bytes:
        data = b""
        while _END_OF_HEAD not in data:
            if data[:5] != b"HTTP/"[: len(data)] or len(data) > MAX_HEAD:
                raise local_error("malformed", f"{self.name} answered the WebSocket handshake with what is not HTTP")
            chunk = self._receive(sock)
            if not chunk:
                raise local_error("closed", f"{self.name} closed the connection during the WebSocket handshake")
            data += chunk
        if data.split(None, 2)[1:2] != [b"101"]:
            raise self._refusal(sock, data)
        head, _, rest = data.partition(_END_OF_HEAD)
        protocol.receive_data(head + _END_OF_HEAD)
        protocol.events_received()
        fault: Exception | None = protocol.handshake_exc
        if fault is not None:
            why = f"broke the WebSocket handshake: {self._plain(str(fault))}"
        elif protocol.state is not State.OPEN or protocol.subprotocol != SUBPROTOCOL:
            why = f"did not agree to the WebSocket subprotocol {SUBPROTOCOL!r}: it may be no MCP server"
        else:
            return rest
        raise local_error("malformed", f"{self.name} {why}", data={"http_status": 101})

    def _receive(self, sock: socket.socket, limit: Deadline | None = None) -> bytes:
        """Some bytes; none at the end, or when the limit is over."""
        while limit is None or not limit.over:
            try:
                return sock.recv(65_536)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(sock, EVENT_READ, limit)
            except ssl.SSLWantWriteError:
                self._wait(sock, EVENT_WRITE, limit)
        return b""

    def _refusal(self, sock: socket.socket, data: bytes) -> McpError:
        """The error of an answer that is no 101."""
        limit = Deadline(REFUSAL_SECONDS)
        response, body, whole = _parsed(data)
        while not whole and len(data) < MAX_REFUSAL:
            try:
                chunk = self._receive(sock, limit)
            except OSError:
                break
            if not chunk:
                break
            data += chunk
            response, body, whole = _parsed(data)
        status, headers = response.status, response.headers
        said = f"{self.name} answered {status} {self._plain(response.reason or '', 60)}".rstrip()
        if status in REDIRECTS:
            return self._redirect(said, status, headers.get("location"))
        from .http_faults import refusal

        said = f"{said} to the WebSocket handshake"
        return refusal(said, status, headers, body, self.masking, bool(self._own))

    def _redirect(self, said: str, status: int, location: str | None) -> McpError:
        scheme, colon, rest = (location or "").partition(":")
        if colon and scheme.lower() in ("ws", "wss"):
            location = f"http{scheme[2:]}:{rest}"
        target = redirected(self._options.endpoint, 307, location, 1)
        leads = target.location if isinstance(target, Refusal) else target.name
        reason = target.reason if isinstance(target, Refusal) else "invalid_redirect"
        details: dict[str, Any] = {"http_status": status}
        why = ""
        if leads is not None:
            details["location"] = shown = self._plain(f"ws{leads.removeprefix('http')}")
            why = f" to {shown}"
        return local_error(
            reason, f"{said}: a redirect{why}, which a WebSocket handshake does not follow", data=details
        )

    # -- everywhere

    def _wait(self, sock: socket.socket, event: int, limit: Deadline | None = None) -> None:
        """Until something may have happened, or the limit is over. Raises what ended the attempt."""
        with DefaultSelector() as selector:
            selector.register(sock, event)
            while limit is None or not limit.over:
                self._check()
                if selector.select(SLICE if limit is None else min(SLICE, limit.left())):
                    return

    def _error_of(self, fault: BaseException, up: bool) -> McpError:
        from .http_faults import error_of

        return error_of(fault, self.name, up, self.masking)

    def _plain(self, text: str, limit: int = 300) -> str:
        return plain(text, self.masking, limit)


def _bundle(verify: bool | str) -> bool | str:
    if verify is not True:
        return verify
    return os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True


def _silent() -> Any:
    """A logger that says nothing: the package would log headers and messages."""
    import logging

    return logging.Logger("websockets", logging.CRITICAL + 1)


class _Received:
    """Bytes in the place of a socket, for `http.client`."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> BytesIO:
        return BytesIO(self._data)


def _parsed(data: bytes) -> tuple[HTTPResponse, bytes, bool]:
    """The response in *data*, of which the head is there, as much of its body as has come, and whether that is all."""
    response = HTTPResponse(_Received(data))  # type: ignore[arg-type]
    response.begin()
    whole = response.length is not None or response.chunked
    try:
        return response, response.read(), whole
    except IncompleteRead as incomplete:
        return response, incomplete.partial, False
