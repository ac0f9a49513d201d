"""Servers that answer when the test says so, on every connection, with one interface: for forcing the order of events.

    with staged("stdio") as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        arrived = stage.arrived()      # the server has it, and does nothing of its own
        arrived.answer()               # or progress(), lose(), ...

A tool call waits for the test; the handshake, and whatever else is asked, is answered at once, unless `stage.gate` is
down. Nothing here knows the library beyond `Client.connect`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

from snodo_client import Client
from support.scripted_http import Gone, Peer, Request, ScriptedServer, each_request, event
from support.scripted_sse import SseServer
from support.scripted_websocket import CLOSE, frame, read_frame, serving, upgrade
from support.waiting import until

Message = dict[str, Any]
MODERN, LEGACY = "2026-07-28", "2025-11-25"
RELAY = str(Path(__file__).parent / "stdio_servers" / "relay.py")

# Every kind of connection with an era, and how a handle ends there when what carries it is gone.
LOSSES = {
    "direct": "handler_failure",
    "stdio": "exited",
    "http-json": "closed",
    "http-stream": "closed",
    "direct-legacy": "handler_failure",
    "stdio-legacy": "exited",
    "http-legacy": "closed",
    "sse-legacy": "closed",
    "websocket-legacy": "closed",
}
KINDS = tuple(LOSSES)
# Where a cancellation is a message, not the end of an exchange.
NOTIFIED = tuple(kind for kind in KINDS if kind == "stdio" or kind.endswith("-legacy"))
# Where something can be said before the answer.
TALKING = tuple(kind for kind in KINDS if kind != "http-json")
# Where many calls share one channel, so that losing it ends all of them for good, or until the next call.
SHARED = ("stdio", "stdio-legacy", "sse-legacy", "websocket-legacy")


class Arrived:
    """A tool call that the server has. Where ending the exchange cancels it, `dropped` tells that it was ended."""

    def __init__(self, stage: Stage, message: Message) -> None:
        self.stage = stage
        self.message = message
        self.id: int = message["id"]
        self.dropped = threading.Event()
        self.said: SimpleQueue[Message | None] = SimpleQueue()
        self.write: Callable[[Message], object] = self.said.put
        self.lose: Callable[[], object] = lambda: self.said.put(None)  # its connection ends without an answer

    @property
    def params(self) -> Message:
        found: Message = self.message["params"]
        return found

    def say(self, message: Message) -> None:
        self.write({"jsonrpc": "2.0", **message})

    def answer(self, text: str = "ok") -> None:
        result = {"content": [{"type": "text", "text": text}]}
        self.say({"id": self.id, "result": {"resultType": "complete", **result} if self.stage.modern else result})

    def ask(self, **requests: Message) -> None:
        """Answer that input is required."""
        state = {} if requests else {"requestState": "s"}
        self.say({"id": self.id, "result": {"resultType": "input_required", "inputRequests": requests, **state}})

    def progress(self, value: float = 1) -> None:
        params = {"progressToken": self.params["_meta"]["progressToken"], "progress": value}
        self.say({"method": "notifications/progress", "params": params})

    @property
    def cancellations(self) -> list[Message]:
        """The params of each notification that it is cancelled."""
        return [params for params in self.stage.cancellations if params["requestId"] == self.id]


class Stage:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.modern = not kind.endswith("-legacy")
        self.gate = threading.Event()  # down: nothing is answered by itself
        self.gate.set()
        self.calls: list[Arrived] = []
        self.asked: list[str] = []  # the methods of all other requests
        self.notices: list[Message] = []
        self.target: Any = None
        self.tools: list[Message] = [
            {"name": "t", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
        ]
        self.closing = threading.Event()
        self.clients: list[Client] = []

    def connect(self, **options: Any) -> Client:
        """A client that sends nothing of its own in the modern era."""
        given = {"protocol": MODERN if self.modern else LEGACY, "timeout": 20.0, **options}
        make = Client.direct if callable(self.target) else Client.connect
        client = make(self.target, **given)
        self.clients.append(client)
        return client

    def arrived(self, number: int = 1) -> Arrived:
        """The call of this number, counted from 1, once it is there."""
        until(lambda: len(self.calls) >= number)
        return self.calls[number - 1]

    @property
    def cancellations(self) -> list[Message]:
        notices = list(self.notices)
        return [each["params"] for each in notices if each["method"] == "notifications/cancelled"]

    def flush(self, client: Client) -> None:
        """Returns when whatever cancellation the client had still to send has arrived: they go out in order."""
        number = len(self.calls) + 1
        last = client.start_tool_call("last")
        arrived = self.arrived(number)
        last.cancel()
        if self.kind in NOTIFIED:
            until(lambda: arrived.cancellations)

    def take(self, message: Message, say: Callable[[Message], object]) -> Arrived | None:
        """What came in. A tool call is to be served by the caller."""
        method = message.get("method")
        if method == "tools/call":
            arrived = Arrived(self, message)
            self.calls.append(arrived)
            return arrived
        if "id" not in message:
            self.notices.append(message)
        elif method is not None:
            self.asked.append(method)
            while not self.gate.wait(0.01) and not self.closing.is_set():
                pass
            say({"jsonrpc": "2.0", "id": message["id"], "result": self._result(method)})
        return None

    def _result(self, method: str) -> Message:
        info = {"name": "staged", "version": "1"}
        if method == "initialize":
            capabilities: Message = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
            return {"protocolVersion": LEGACY, "capabilities": capabilities, "serverInfo": info}
        if method == "server/discover":
            about = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "serverInfo": info}
            return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **about}
        own: Message = {"tools": self.tools} if method == "tools/list" else {}
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **own} if self.modern else own

    def told(self, arrived: Arrived, left: Callable[[], bool]) -> Iterator[Message]:
        """What is said to a call, up to and including its answer. Ends early when it is to be lost, and when the client
        has left.
        """
        while not self.closing.is_set():
            with suppress(Empty):
                said = arrived.said.get(timeout=0.005)
                if said is None:
                    return
                yield said
                if "method" not in said:
                    return
            if left():
                return arrived.dropped.set()


@contextmanager
def staged(kind: str) -> Iterator[Stage]:
    """A server of this kind. Its clients are closed at the end."""
    stage = Stage(kind)
    try:
        with _SERVED[kind.partition("-")[0]](stage):
            try:
                yield stage
            finally:
                stage.closing.set()
                for client in stage.clients:
                    client.close()
    finally:
        stage.closing.set()


# -- in this process


@contextmanager
def _direct(stage: Stage) -> Iterator[None]:
    def handle(message: Message, context: Any) -> Message | None:
        answers: list[Message] = []
        arrived = stage.take(message, answers.append)
        if arrived is None:
            return answers[0] if answers else None
        for said in stage.told(arrived, lambda: context.cancelled):
            if "method" not in said:
                return said
            context.send(said)
        if arrived.dropped.is_set() or stage.closing.is_set():
            return None  # to nobody
        raise ConnectionError("the handler has no answer")

    stage.target = handle
    yield


# -- a channel of lines


@contextmanager
def _stdio(stage: Stage) -> Iterator[None]:
    """The process only carries bytes to a port of ours and back."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=_lines, args=(stage, sock), daemon=True))
            threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    stage.target = ("stdio", sys.executable, ["-I", "-S", RELAY, str(listener.getsockname()[1])])
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in [accepting, *threads]:
            thread.join(5)


def _lines(stage: Stage, sock: socket.socket) -> None:
    def write(message: Message) -> None:
        with suppress(OSError):
            sock.sendall(json.dumps(message).encode() + b"\n")

    with sock, sock.makefile("rb") as lines, suppress(OSError):
        for line in lines:
            arrived = stage.take(json.loads(line), write) if line.endswith(b"\n") else None
            if arrived is not None:
                arrived.write, arrived.lose = write, lambda: _shut(sock)


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def halt(client: Client) -> Callable[[], None]:
    """Stop the process of a stdio client; gives what lets it go on."""
    pid: int = client._session.connection.link.process.pid  # type: ignore[union-attr]
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)


# -- HTTP


@contextmanager
def _http(stage: Stage) -> Iterator[None]:
    stream = stage.kind != "http-json"

    def reply(peer: Peer, request: Request) -> None:
        if not request.line.startswith("POST"):
            return peer.respond("405 Method Not Allowed" if request.line.startswith("GET") else "200 OK")
        message = request.message
        arrived = stage.take(message, peer.json)
        if arrived is None:
            return peer.respond("202 Accepted") if "id" not in message else None
        return _exchange(stage, peer, arrived, stream)

    with ScriptedServer(each_request(reply)) as server:
        stage.target = server.url
        yield


def _exchange(stage: Stage, peer: Peer, arrived: Arrived, stream: bool) -> None:
    """Say what is said to the call, in the answer to its POST. Raises Gone where that was not the answer."""
    begun = False
    for said in stage.told(arrived, lambda: _has_left(peer.sock)):
        if not stream:
            return peer.json(said)
        if not begun:
            peer.start_sse()
            begun = True
        peer.chunk(event(said))
        if "method" not in said:
            return peer.end()
    raise Gone


def _has_left(sock: socket.socket) -> bool:
    try:
        return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@contextmanager
def _sse(stage: Stage) -> Iterator[None]:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        peer.respond("202 Accepted", b"Accepted")
        arrived = stage.take(request.message, server.say)
        if arrived is not None:
            arrived.write, arrived.lose = server.say, server.end_stream

    def stream(server: SseServer, peer: Peer) -> None:
        """Each stream has what is said from its beginning on."""
        mine: SimpleQueue[bytes | None] = SimpleQueue()
        server.outbox = mine
        peer.start_sse()
        peer.chunk(f"event: endpoint\ndata: {server.address}\n\n".encode())
        while not server.closing.is_set():
            with suppress(Empty):
                said = mine.get(timeout=0.02)
                if said is None:
                    peer.end()
                    return
                peer.chunk(said)

    with SseServer(reply, stream=stream) as server:
        stage.target = ("sse", server.url)
        yield


@contextmanager
def _websocket(stage: Stage) -> Iterator[None]:
    def script(peer: Peer) -> None:
        upgrade(peer)

        def write(message: Message) -> None:
            with suppress(Gone):
                peer.send(frame(message))

        while True:
            opcode, data = read_frame(peer)
            if opcode == CLOSE:
                return peer.send(frame(data, CLOSE))
            arrived = stage.take(json.loads(data), write)
            if arrived is not None:
                arrived.write, arrived.lose = write, lambda: _shut(peer.sock)

    with serving(script) as server:
        stage.target = ("websocket", server.url)
        yield


_SERVED = {"direct": _direct, "stdio": _stdio, "http": _http, "sse": _sse, "websocket": _websocket}


# -- signals


@contextmanager
def on_signal(action: Callable[[], object]) -> Iterator[list[Any]]:
    """Do this in a handler of SIGUSR1; what it gives is in the list."""
    gave: list[Any] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: gave.append(action()))
    try:
        yield gave
    finally:
        signal.signal(signal.SIGUSR1, before)


def when_main_is_in(function: str, ready: Callable[[], object] = lambda: True) -> threading.Thread:
    """Send SIGUSR1 to the main thread as soon as it is in a function of that name, and whatever else is so."""
    main = threading.main_thread().ident or 0

    def inside() -> bool:
        frame: FrameType | None = sys._current_frames()[main]
        while frame is not None and frame.f_code.co_name != function:
            frame = frame.f_back
        return frame is not None

    def send() -> None:
        until(lambda: ready() and inside())
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread
