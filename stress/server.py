"""The server of the stress programs. It does to each call what the call's own arguments say, and writes down every tool
call that it runs, so that one that was sent twice is found, and every one that it was told to cancel. None of it comes
from the library: one misreading cannot pass twice.

    python stress/server.py stdio LEDGER
    python stress/server.py http|sse|websocket LEDGER PORT

Over stdio and HTTP it speaks the revision the client does; HTTP+SSE and WebSocket are for the older ones. A
subscription to `flood://RATE/COUNT` gets COUNT numbered events, RATE a second, each with the time it was sent.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Message = dict[str, Any]
VERSION = "2026-07-28"
TOOLS = 7
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
CAPABLE: Message = {"capabilities": {"tools": {}, "resources": {"subscribe": True}}}
INFO = {"name": "soak", "version": "1"}


class Ledger:
    """A file with a line for each tool call that was run, and `cancel:TOKEN` for each that was cancelled. Lines of
    several processes do not mix.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, token: str) -> None:
        os.write(self._fd, token.encode() + b"\n")

    def close(self) -> None:
        os.close(self._fd)


class Wire:
    """How messages leave. `broken` sends something in the place of the answer to a request that is none, and `cut` ends
    the connection.
    """

    gone = False  # the client has left, as far as the wire can tell

    def __init__(self) -> None:
        self.tokens: dict[object, str] = {}

    def take(self, message: Message, ledger: Ledger) -> None:
        """Serve what arrived, a request on a thread of its own."""
        if "method" in message and "id" in message:
            if message["method"] == "tools/call":
                self.tokens[message["id"]] = message["params"]["arguments"]["token"]
            threading.Thread(target=serve, args=(message, self, ledger), daemon=True).start()
        elif message.get("method") == "notifications/cancelled":
            ledger.note(f"cancel:{self.tokens.get(message['params']['requestId'], 'unknown')}")

    def send(self, message: Message) -> None:
        raise NotImplementedError

    def noise(self) -> None:
        """What a client must pass over."""

    def broken(self, request: Message) -> None:
        raise NotImplementedError

    def cut(self) -> None:
        raise NotImplementedError


def answer(request: Message, result: Message) -> Message:
    return {"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "complete", **result}}


def serve(request: Message, wire: Wire, ledger: Ledger) -> None:
    """One request, from start to end."""
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        wire.send(answer(request, {"protocolVersion": params["protocolVersion"], "serverInfo": INFO, **CAPABLE}))
    elif method == "server/discover":
        wire.send(answer(request, {"supportedVersions": [VERSION], **CAPABLE}))
    elif method == "tools/list":
        at = int(params.get("cursor", "0"))
        page: Message = {"tools": [{"name": f"tool{at}", "inputSchema": {"type": "object"}}]}
        wire.send(answer(request, page if at + 1 == TOOLS else {**page, "nextCursor": str(at + 1)}))
    elif method == "subscriptions/listen":
        flood(request, params["notifications"], wire)
    else:
        call(request, params["arguments"], wire, ledger)


def flood(request: Message, wanted: Message, wire: Wire) -> None:
    """One subscription, from its acknowledgement to its end."""
    (uri,) = wanted["resourceSubscriptions"]
    rate, count = (int(part) for part in uri.removeprefix("flood://").split("/"))
    tag: Message = {"_meta": {SUBSCRIPTION: request["id"]}}
    acknowledged = {"notifications": wanted, **tag}
    wire.send({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": acknowledged})
    begun = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        if wire.gone:
            return
        event = {"uri": uri, "number": number, "sent": time.monotonic(), **tag}
        wire.send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": event})
    wire.send(answer(request, tag))


def call(request: Message, arguments: Message, wire: Wire, ledger: Ledger) -> None:
    token, how = arguments["token"], arguments["how"]
    ledger.note(token)
    good = answer(request, {"content": [], "structuredContent": {"token": token}, "filler": arguments["filler"]})
    time.sleep(arguments["seconds"])
    if how == "die":
        os._exit(3)
    elif how == "cut":
        wire.cut()
    elif how == "broken":
        wire.broken(request)
    elif how == "error":
        wire.send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": 7, "message": token}})
    elif how == "foreign":
        wire.send({**good, "id": request["id"] + 1_000_000_000})
    elif how != "never":
        if how == "noise":
            wire.noise()
            if "io.modelcontextprotocol/protocolVersion" not in request["params"].get("_meta", {}):
                wire.send({"jsonrpc": "2.0", "id": f"asks {token}", "method": "ping"})
        for number in range(arguments["steps"]):
            progress = {"progressToken": params_token(request), "progress": number, "message": token}
            wire.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        wire.send(good)
        if how == "twice":
            wire.send(good)


def params_token(request: Message) -> object:
    return request["params"]["_meta"].get("progressToken")


# -- stdio


class Lines(Wire):
    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def _write(self, data: bytes) -> None:
        with self._lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def send(self, message: Message) -> None:
        self._write(json.dumps(message).encode() + b"\n")

    def noise(self) -> None:
        self._write(b'\n\x1b[1mbanner\n"half": \nnull\n\xff\xfe\n')
        sys.stderr.write("noise\n")

    def broken(self, request: Message) -> None:
        self._write(b'{"jsonrpc":"2.0","id":%d,"result":{"cut": nul\n' % request["id"])

    def cut(self) -> None:
        os._exit(3)


def stdio(ledger: Ledger) -> None:
    wire = Lines()
    for line in sys.stdin.buffer:
        wire.take(json.loads(line), ledger)


# -- HTTP


class Events(Wire):
    """The answer to one POST: as JSON when it is the first thing said and no stream was asked for, else as events."""

    def __init__(self, handler: BaseHTTPRequestHandler, stream: bool, *headers: str) -> None:
        super().__init__()
        self._handler = handler
        self._headers = headers
        self._stream = stream
        self._begun = False

    def _head(self, *headers: str) -> None:
        lines = ["HTTP/1.1 200 OK", *headers, *self._headers, "", ""]
        self._handler.wfile.write("\r\n".join(lines).encode())

    def _event(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            self._head("Content-Type: text/event-stream", "Transfer-Encoding: chunked")
        self._handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def send(self, message: Message) -> None:
        body = json.dumps(message).encode()
        if self._stream:
            self._event(b"data: " + body + b"\r\n\r\n")
        else:
            self._head("Content-Type: application/json", f"Content-Length: {len(body)}")
            self._handler.wfile.write(body)

    def noise(self) -> None:
        self._event(b": comment\n\nid: 1\ndata:\n\nevent: ping\ndata: x\n\ndata: no json\n\n")

    def broken(self, request: Message) -> None:
        self._head("Content-Type: application/json", "Content-Length: 1000")
        self._handler.wfile.write(b'{"jsonrpc":')
        self._handler.close_connection = True

    def cut(self) -> None:
        self._handler.close_connection = True
        self._handler.connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        if self._begun:
            self._handler.wfile.write(b"0\r\n\r\n")
        else:
            self._handler.close_connection |= self._stream


class Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Nothing: clients that leave are what this is about."""


def http(ledger: Ledger, port: int) -> None:
    session = f"session-{os.getpid()}-{time.monotonic_ns()}"  # one for all, until the server is started again

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            given = self.headers.get("Mcp-Session-Id", session)  # clients of the newest revision have none
            if given != session:
                return self.short("404 Not Found")
            if "id" not in request or "method" not in request:
                return self.short("202 Accepted")
            arguments = request.get("params", {}).get("arguments", {})
            new = [f"Mcp-Session-Id: {session}"] if request["method"] == "initialize" else []
            wire = Events(self, arguments.get("stream", "notifications" in request.get("params", {})), *new)
            serve(request, wire, ledger)
            if arguments.get("how") == "never":
                time.sleep(1)
                self.close_connection = True
            elif arguments.get("how") != "cut":
                wire.end()
            return None

        def do_GET(self) -> None:
            self.short("405 Method Not Allowed")

        def do_DELETE(self) -> None:
            self.short("200 OK")

        def short(self, status: str) -> None:
            self.wfile.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = Http(("127.0.0.1", port), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


# -- HTTP+SSE


class Stream(Wire):
    """The one stream of a client; a thread of the server writes what is put here."""

    def __init__(self) -> None:
        super().__init__()
        self.said: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def send(self, message: Message) -> None:
        self.said.put(b"data: " + json.dumps(message).encode() + b"\n\n")

    def noise(self) -> None:
        self.said.put(b": comment\n\nid: 1\ndata:\n\nevent: ping\ndata: x\n\ndata: no json\n\n")

    def broken(self, request: Message) -> None:
        self.said.put(b'data: {"jsonrpc":"2.0","id":%d,"result":{"cut": nul\n\n' % request["id"])

    def cut(self) -> None:
        self.said.put(None)


def sse(ledger: Ledger, port: int) -> None:
    streams: dict[str, Stream] = {}
    numbers = itertools.count()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            number, stream = str(next(numbers)), Stream()
            streams[number] = stream
            self.close_connection = True
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            self.wfile.write(f"event: endpoint\ndata: /messages?{number}\n\n".encode())
            while True:
                try:
                    said = stream.said.get(timeout=0.5)
                except queue.Empty:
                    said = b":\n\n"  # finds out whether the client has left
                if said is None:
                    return
                self.wfile.write(said)

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            stream = streams.get(self.path.partition("?")[2])
            status = "202 Accepted" if stream is not None else "404 Not Found"
            if stream is not None:  # before it is answered: then no later message can be taken first
                stream.take(message, ledger)
            self.wfile.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = Http(("127.0.0.1", port), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


# -- WebSocket


class Frames(Wire):
    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection

    def _write(self, text: str | bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            self._connection.send(text)
        except ConnectionClosed:  # clients that leave are what this is about
            return

    def send(self, message: Message) -> None:
        self._write(json.dumps(message))

    def noise(self) -> None:
        self._write(b"\x00\x01")
        self._write("null")

    def broken(self, request: Message) -> None:
        self._write(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"cut": nul')

    def cut(self) -> None:
        with suppress(OSError):  # another call has cut it
            self._connection.socket.shutdown(socket.SHUT_RDWR)


def websocket(ledger: Ledger, port: int) -> None:
    import logging

    from websockets.exceptions import ConnectionClosed
    from websockets.sync.server import serve as listen

    logging.getLogger("websockets").setLevel(logging.CRITICAL)

    def handle(connection: Any) -> None:
        wire = Frames(connection)
        try:
            for text in connection:
                wire.take(json.loads(text), ledger)
        except ConnectionClosed:
            return

    with listen(handle, "127.0.0.1", port, subprotocols=["mcp"], compression=None) as server:  # type: ignore[list-item]
        print(server.socket.getsockname()[1], flush=True)
        server.serve_forever()


# -- in process


class Direct(Wire):
    def __init__(self, send: Callable[[Message], None], gone: Callable[[], bool]) -> None:
        super().__init__()
        self._send = send
        self._gone = gone
        self.reply: Message | None = None

    @property
    def gone(self) -> bool:  # type: ignore[override]
        return self._gone()

    def send(self, message: Message) -> None:
        if "method" in message:
            self._send(message)
        else:
            self.reply = message

    def broken(self, request: Message) -> None:
        raise ArithmeticError("broken on purpose")

    def cut(self) -> None:
        raise ArithmeticError("cut on purpose")


if __name__ == "__main__":
    book = Ledger(sys.argv[2])
    if sys.argv[1] == "stdio":
        stdio(book)
    else:
        {"http": http, "sse": sse, "websocket": websocket}[sys.argv[1]](book, int(sys.argv[3]))
