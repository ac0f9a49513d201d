"""A server over raw sockets that does exactly what a script says, byte by byte: what no HTTP library would send.

    with ScriptedServer(script) as server: ...

`script(peer)` runs on a thread for each connection. It reads with `peer.request()`, writes with `peer.send()` and the
shorthands beside it, and closes the connection by returning. When the server closes, reads and writes of scripts still
running fail, which ends them quietly; what else they raise fails the test.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any


class Gone(Exception):
    """The client has closed the connection, or the server is closing."""


class Request:
    """One request as it came: the first line, the headers (lower-case names, in order) and the body."""

    def __init__(self, line: str, headers: list[tuple[str, str]], body: bytes) -> None:
        self.line = line
        self.headers = headers
        self.body = body

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key == name.lower()]
        assert len(values) < 2, f"header {name} came {len(values)} times"
        return values[0] if values else None

    @property
    def message(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> Any:
        return self.message["id"]


class Peer:
    """One connection, for a script."""

    def __init__(self, server: ScriptedServer, sock: socket.socket, number: int) -> None:
        self.server = server
        self.sock = sock
        self.number = number  # of the connection, from 1
        self._data = b""

    # -- reading

    def request(self) -> Request:
        """The next request. Raises Gone when the client has closed instead."""
        head = self.until(b"\r\n\r\n")
        line, *lines = head.decode("latin-1").split("\r\n")
        headers = [(name.lower(), value.strip()) for name, _, value in (entry.partition(":") for entry in lines)]
        size = next((int(value) for name, value in headers if name == "content-length"), 0)
        while len(self._data) < size:
            self._data += self.receive()
        body, self._data = self._data[:size], self._data[size:]
        request = Request(line, headers, body)
        self.server.requests.append(request)
        return request

    def until(self, end: bytes) -> bytes:
        """The bytes before *end*, which is read too."""
        while end not in self._data:
            self._data += self.receive()
        found, _, self._data = self._data.partition(end)
        return found

    def receive(self) -> bytes:
        try:
            data = self.sock.recv(65536)
        except OSError:
            raise Gone from None
        if not data:
            raise Gone
        return data

    # -- writing

    def send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except OSError:
            raise Gone from None

    def respond(self, status: str = "200 OK", body: bytes = b"", *headers: str, kind: str | None = None) -> None:
        """A whole response with a Content-Length."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        if kind is not None:
            lines.append(f"Content-Type: {kind}")
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def json(self, value: object, status: str = "200 OK", *headers: str, kind: str = "application/json") -> None:
        self.respond(status, json.dumps(value).encode(), *headers, kind=kind)

    def answer(self, request: Request, text: str = "ok") -> None:
        """The result a tool call expects."""
        self.json(result(request, text))

    def start_sse(self, *headers: str, status: str = "200 OK") -> None:
        """The head of a chunked event stream."""
        lines = [f"HTTP/1.1 {status}", "Content-Type: text/event-stream", "Transfer-Encoding: chunked", *headers]
        self.send("\r\n".join([*lines, "", ""]).encode())

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.send(b"0\r\n\r\n")

    def drip(self, data: bytes, seconds: float = 0.2) -> None:
        """One byte at a time."""
        for byte in data:
            self.send(bytes([byte]))
            self.pause(seconds)

    def pause(self, seconds: float) -> None:
        """Do nothing for that long. Raises Gone when the server closes meanwhile."""
        if self.server.closing.wait(seconds):
            raise Gone

    def silence(self) -> None:
        """Do nothing until the client is gone."""
        while True:
            self.receive()


def result(request: Request, text: str = "ok") -> dict[str, Any]:
    value = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
    return {"jsonrpc": "2.0", "id": request.id, "result": value}


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


class ScriptedServer:
    """Serves `script` at `url` until its `with` ends. `connections` and `requests` tell what came."""

    def __init__(
        self,
        script: Callable[[Peer], None],
        *,
        context: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        name: str | None = None,
        path: str = "/mcp",
    ) -> None:
        self.script = script
        self.closing = threading.Event()
        self.connections = 0
        self.requests: list[Request] = []
        self.errors: list[BaseException] = []
        self._context = context
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=128)
        self.port: int = self._listener.getsockname()[1]
        shown = name or (f"[{host}]" if ":" in host else host)
        self.origin = f"{'https' if context else 'http'}://{shown}:{self.port}"
        self.url = self.origin + path
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> ScriptedServer:
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)
        with self._lock:
            for sock in self._sockets:
                _shut(sock)
        for thread in self._threads:
            thread.join(5)
        assert not [thread for thread in self._threads if thread.is_alive()]
        if error is None and self.errors:
            raise self.errors[0]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(sock, self.connections), daemon=True)
                self._threads.append(thread)
                self._sockets.add(sock)
            thread.start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        raw = sock
        try:
            if self._context is not None:
                sock.settimeout(10)
                sock = self._context.wrap_socket(sock, server_side=True)
                sock.settimeout(None)
                with self._lock:
                    self._sockets.discard(raw)
                    self._sockets.add(sock)
            self.script(Peer(self, sock, number))
        except (Gone, ssl.SSLError, ConnectionError, TimeoutError):
            pass
        except BaseException as error:
            self.errors.append(error)
        finally:
            with self._lock:
                self._sockets.discard(sock)
                self._sockets.discard(raw)
            _shut(sock)
            sock.close()


def each_request(reply: Callable[[Peer, Request], None]) -> Callable[[Peer], None]:
    """A script that treats every request of a connection alike."""

    def script(peer: Peer) -> None:
        while True:
            reply(peer, peer.request())

    return script


def replies(*steps: Callable[[Peer, Request], None]) -> Callable[[Peer], None]:
    """A script that answers the first request of the server with the first step, and so on; then the last again."""
    lock, count = threading.Lock(), iter(range(10**9))

    def reply(peer: Peer, request: Request) -> None:
        with lock:
            number = next(count)
        steps[min(number, len(steps) - 1)](peer, request)

    return each_request(reply)


def in_pieces(data: bytes, size: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
