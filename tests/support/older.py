"""One server of an older revision over every connection that carries them, scripted message by message.

    with older("websocket", on={"tools/call": asks_first}) as server, server.connect() as client: ...

`on` says by method what is done with a message of the client: `on[method](line, message)`; what answers a request of
ours has the method "answer". The handshake, ping, tools/list and tools/call are done rightly without it. All of it
runs in this process: over stdio there is a process in between, which only carries bytes.

A line is one session with a client: a process, a WebSocket, a stream of HTTP+SSE, or an HTTP session.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from snodo_client import Client
from support import scripted_websocket as ws
from support.scripted_http import Gone, Peer, Request, ScriptedServer, event
from support.waiting import together, until

RELAY = str(Path(__file__).parent / "stdio_servers" / "relay.py")
KINDS = ("stdio", "http", "sse", "websocket")
REOPENING = ("http", "sse", "websocket")
VERSION = "2025-11-25"
PATIENT = 10.0  # seconds: the limit of what must end long before

Message = dict[str, Any]
Act = Callable[["Line", Message], object]


class Line:
    """One session. `received` is what came on it, in order."""

    def __init__(self, server: Older, number: int) -> None:
        self.server = server
        self.number = number
        self.received: list[Message] = []
        self.gone = threading.Event()
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._writing = threading.Lock()
        self._posts: dict[Any, _Post] = {}
        self.peer: Peer | None = None  # of the channel

    # -- for scripts and tests, in any thread

    def say(self, *messages: Any, within: Message | None = None) -> None:
        """Send what belongs to no request; over HTTP in the stream opened by GET, or with `within` in the one of that
        request.
        """
        post = self._posts.get(within["id"]) if within is not None else None
        if post is not None:
            for message in messages:
                post.stream(message)
            return
        for message in messages:
            self.raw(self._framed(message))

    def raw(self, data: bytes) -> None:
        """Bytes as they are on the channel."""
        if self.server.kind in ("sse", "http"):
            self._outbox.put(data)
        elif self.peer is not None:
            with self._writing:
                self.peer.send(data)

    def reply(self, message: Any, to: Message) -> None:
        """Send the answer to a request, whatever it is."""
        post = self._posts.pop(to["id"], None)
        if post is not None:
            post.end(message)
        else:
            self.say(message)

    def answer(self, request: Message, **result: Any) -> None:
        text = (request.get("params", {}).get("arguments") or {}).get("text", "ok")
        value = result or {"content": [{"type": "text", "text": text}]}
        self.reply({"jsonrpc": "2.0", "id": request["id"], "result": value}, request)

    def ask(self, method: str, id: Any, params: Message | None = None, within: Message | None = None) -> None:
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        self.say(message if params is None else {**message, "params": params}, within=within)

    def answers(self, id: Any = ...) -> list[Message]:
        """What the client answered, to all requests or those with this very id."""
        found = [message for message in list(self.received) if "method" not in message]
        return [each for each in found if id is ... or (each["id"] == id and type(each["id"]) is type(id))]

    def answered(self, id: Any) -> Message:
        """The one answer to a request, waited for."""
        until(lambda: self.answers(id))
        (found,) = self.answers(id)
        return found

    def methods(self) -> list[str]:
        return [message.get("method", "answer") for message in list(self.received)]

    def end(self) -> None:
        """Break the channel off."""
        if self.server.kind in ("sse", "http"):
            self._outbox.put(None)
        elif self.peer is not None:
            self.peer.sock.shutdown(socket.SHUT_RDWR)

    # -- inside

    def _framed(self, message: Any) -> bytes:
        if self.server.kind == "stdio":
            return json.dumps(message).encode() + b"\n"
        return ws.frame(json.dumps(message)) if self.server.kind == "websocket" else event(message)

    def take(self, message: Any, post: _Post | None = None) -> None:
        self.received.append(message)
        method = message.get("method", "answer")
        if post is not None and "id" in message and "method" in message:
            self._posts[message["id"]] = post
        act = self.server.on.get(method, _RIGHT.get(method))
        if act is not None:
            act(self, message)

    def relay(self, peer: Peer) -> None:
        """The channel of HTTP: what is put into the outbox goes out on this stream until its end is."""
        while True:
            try:
                data = self._outbox.get(timeout=0.02)
            except Empty:
                if peer.server.closing.is_set() or self.gone.is_set() or _is_gone(peer):
                    raise Gone from None
                continue
            if data is None:
                return
            peer.chunk(data)


class _Post:
    """The answer to one POST over HTTP."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._begun = False
        self.done = threading.Event()
        self.headers: list[str] = []

    def stream(self, message: Any) -> None:
        if not self._begun:
            self._begun = True
            self._peer.start_sse(*self.headers)
        self._peer.chunk(event(message))

    def end(self, message: Any) -> None:
        try:
            if self._begun:
                self._peer.chunk(event(message))
                self._peer.end()
            else:
                self._peer.json(message, "200 OK", *self.headers)
        finally:
            self.done.set()


class Older(ScriptedServer):
    def __init__(
        self,
        kind: str,
        on: Mapping[str, Act] | None = None,
        *,
        version: str = VERSION,
        opened: Callable[[Line], object] | None = None,
        **options: Any,
    ) -> None:
        scripts = {"stdio": self._stdio, "http": self._http, "sse": self._sse, "websocket": self._websocket}
        super().__init__(scripts[kind], **options)
        self.kind = kind
        self.on = dict(on or {})
        self.version = version
        self.opened = opened
        self.lines: list[Line] = []
        self.clients: list[Client] = []
        self.verbs: list[str] = []  # of HTTP
        self._more = threading.Lock()

    def __enter__(self) -> Older:
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for client in self.clients:
            client.close()
        super().__exit__(*error)

    @property
    def target(self) -> Any:
        if self.kind == "stdio":
            return ("stdio", sys.executable, ["-I", "-S", RELAY, str(self.port)])
        return (self.kind, self.url if self.kind != "websocket" else f"ws{self.url.removeprefix('http')}")

    def connect(self, **options: Any) -> Client:
        client = Client.connect(self.target, **{"protocol": self.version, "timeout": PATIENT, **options})
        self.clients.append(client)
        return client

    @property
    def line(self) -> Line:
        """The latest."""
        return self.lines[-1]

    def received(self, method: str) -> list[Message]:
        """Messages of this method on all lines."""
        return [each for line in list(self.lines) for each in list(line.received) if each.get("method") == method]

    def runs(self) -> list[str]:
        """The texts of the tool calls that came."""
        return [message["params"]["arguments"]["text"] for message in self.received("tools/call")]

    def begin(self) -> Line:
        with self._more:
            line = Line(self, len(self.lines) + 1)
            self.lines.append(line)
        return line

    # -- the connections

    def _stdio(self, peer: Peer) -> None:
        line = self.begin()
        line.peer = peer
        self._welcome(line)
        try:
            while True:
                line.take(json.loads(peer.until(b"\n")))
        finally:
            line.gone.set()

    def _websocket(self, peer: Peer) -> None:
        ws.upgrade(peer)
        line = self.begin()
        line.peer = peer
        self._welcome(line)
        try:
            while True:
                opcode, data = ws.read_frame(peer)
                if opcode == ws.CLOSE:
                    peer.send(ws.frame(data, ws.CLOSE))
                    return
                if opcode == ws.TEXT:
                    line.take(json.loads(data))
        finally:
            line.gone.set()

    def _sse(self, peer: Peer) -> None:
        while True:
            request = peer.request()
            self.verbs.append(request.line.split(" ")[0])
            if request.line.startswith("GET "):
                line = self.begin()
                peer.start_sse()
                peer.chunk(f"event: endpoint\ndata: /messages?sid={line.number}\n\n".encode())
                self._welcome(line)
                try:
                    line.relay(peer)
                finally:
                    line.gone.set()
                return
            line = self.lines[int(request.target.rpartition("=")[2]) - 1]
            peer.respond("202 Accepted", b"Accepted")
            line.take(request.message)

    def _http(self, peer: Peer) -> None:
        while True:
            request = peer.request()
            verb = request.line.split(" ")[0]
            self.verbs.append(verb)
            session = request.header("mcp-session-id")
            line = self.lines[int(session.rpartition("-")[2]) - 1] if session else None
            if verb == "POST":
                self._post(peer, request, line)
            elif verb == "DELETE" or line is None:
                peer.respond("200 OK")
            else:
                peer.start_sse()
                peer.chunk(b": hello\n\n")
                self._welcome(line)
                line.relay(peer)
                return

    def _post(self, peer: Peer, request: Request, line: Line | None) -> None:
        message, post = request.message, _Post(peer)
        if message.get("method") == "initialize":
            line = self.begin()
            post.headers.append(f"Mcp-Session-Id: secret-session-{line.number}")
        elif line is None or line.gone.is_set():
            return peer.respond("404 Not Found")
        if "id" in message and "method" in message:
            line.take(message, post)
            while not post.done.wait(0.005):
                if peer.server.closing.is_set() or _is_gone(peer):
                    raise Gone
        else:
            line.take(message)
            peer.respond("202 Accepted")
        return None

    def _welcome(self, line: Line) -> None:
        if self.opened is not None:
            self.opened(line)


def older(kind: str, on: Mapping[str, Act] | None = None, **options: Any) -> Older:
    return Older(kind, on, **options)


def _is_gone(peer: Peer) -> bool:
    if isinstance(peer.sock, ssl.SSLSocket):  # cannot be asked; it is found out by writing
        return False
    try:
        return peer.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def initialized(line: Line, message: Message) -> None:
    info = {"name": "older", "version": "1"}
    line.answer(message, protocolVersion=line.server.version, capabilities={"tools": {}}, serverInfo=info)


def empty(line: Line, message: Message) -> None:
    line.reply({"jsonrpc": "2.0", "id": message["id"], "result": {}}, message)


def listed(line: Line, message: Message) -> None:
    line.answer(message, tools=[{"name": "ok", "inputSchema": {"type": "object"}}])


_RIGHT: dict[str, Act] = {
    "initialize": initialized,
    "ping": empty,
    "tools/list": listed,
    "tools/call": lambda line, message: line.answer(message),
}


def says(client: Client, text: str = "hello", **options: Any) -> Any:
    """The outcome of a call whose right answer is its own text."""
    return client.call_tool("ok", {"text": text}, **options)


def assert_says(client: Client, text: str = "hello", **options: Any) -> None:
    outcome = says(client, text, **options)
    assert getattr(outcome, "ok", False), outcome
    assert outcome.unwrap()["content"] == [{"type": "text", "text": text}]


def assert_all_say(client: Client, texts: Iterable[str]) -> None:
    """The same for many calls at once, each in a thread."""
    together([partial(assert_says, client, text) for text in texts])


def lost(client: Client) -> bool:
    """Whether the client has found out that its connection is gone."""
    link = client._session.connection.link
    return link is None or link.lost is not None
