"""An HTTP+SSE server over raw sockets. What it says goes on its stream; what it answers to a POST is a function."""

from __future__ import annotations

import json
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from support.scripted_http import Gone, Peer, Request, ScriptedServer, event

Reply = Callable[["SseServer", Peer, Request], None]


def accept(server: SseServer, peer: Peer, request: Request) -> None:
    """Answer a request with its parameters: first the POST, then on the stream."""
    peer.respond("202 Accepted", b"Accepted")
    server.echo(request)


class SseServer(ScriptedServer):
    """`stream(peer)` answers a GET until its return, by default with the address and then what is told to `say`."""

    def __init__(
        self,
        reply: Reply = accept,
        *,
        address: str = "/messages?sid=1",
        stream: Callable[[SseServer, Peer], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(self._script, path=options.pop("path", "/sse"), **options)
        self.address = address
        self.reply = reply
        self.stream = stream or SseServer.told
        self.outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self.posts: list[Request] = []
        self.gets: list[Request] = []

    def __enter__(self) -> SseServer:
        super().__enter__()
        return self

    def _script(self, peer: Peer) -> None:
        while True:
            request = peer.request()
            if request.line.startswith("GET "):
                self.gets.append(request)
                self.stream(self, peer)
                return
            self.posts.append(request)
            self.reply(self, peer, request)

    def told(self, peer: Peer) -> None:
        """The address, and then what was said, until the end is said."""
        peer.start_sse()
        peer.chunk(f"event: endpoint\ndata: {self.address}\n\n".encode())
        self.relay(peer)

    def relay(self, peer: Peer) -> None:
        while True:
            try:
                said = self.outbox.get(timeout=0.02)
            except Empty:
                if self.closing.is_set():
                    raise Gone from None
                continue
            if said is None:
                return peer.end()
            peer.chunk(said)

    def say(self, *messages: object) -> None:
        for message in messages:
            self.outbox.put(event(message))

    def say_raw(self, data: bytes) -> None:
        self.outbox.put(data)

    def end_stream(self) -> None:
        self.outbox.put(None)

    def echo(self, request: Request) -> None:
        message = json.loads(request.body)
        if "id" in message:
            self.say({"jsonrpc": "2.0", "id": message["id"], "result": message.get("params", {})})
