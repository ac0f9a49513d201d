"""Signing in to a server of HTTP+SSE, where the first request is a GET that opens the link."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from snodo_client import Client, McpError
from snodo_client.auth import MemoryTokenStore, OAuth
from support.oauth_server import OAuthWorld

WELL_KNOWN = "/.well-known/oauth-protected-resource/sse"


@contextmanager
def protected(world: OAuthWorld) -> Iterator[str]:
    """The URL of the stream of a server that takes the tokens of the world."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

        def log_message(self, *_: Any) -> None:
            pass

        def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def welcome(self) -> bool:
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if token not in world.authorization_server.access:
                self.reply(401, WWW_Authenticate="Bearer")
                return False
            return True

        def do_GET(self) -> None:
            if self.path == WELL_KNOWN:
                document = {"resource": f"{base}/sse", "authorization_servers": [world.issuer]}
                self.reply(200, json.dumps(document).encode(), Content_Type="application/json")
            elif self.welcome():
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(b"event: endpoint\ndata: /messages\n\n")
                while (answer := self.answers.get()) is not None:
                    self.wfile.write(b"data: " + json.dumps(answer).encode() + b"\n\n")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not self.welcome():
                return
            self.reply(202)
            message = json.loads(body)
            if "id" in message:
                hello = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}}
                hello["serverInfo"] = {"name": "sse", "version": "1"}
                result = hello if message["method"] == "initialize" else {"content": []}
                self.answers.put({"jsonrpc": "2.0", "id": message["id"], "result": result})

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    server.daemon_threads = True
    base = f"http://localhost:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"{base}/sse"
    finally:
        Handler.answers.put(None)
        server.shutdown()
        server.server_close()


def test_a_person_signs_in_while_the_link_is_opened() -> None:
    with OAuthWorld() as world, protected(world) as url:
        world.resource = None
        oauth = OAuth(sign_in=world.authorize, store=MemoryTokenStore())
        with Client.connect(("sse", url), auth=oauth) as client:
            assert client.call_tool("anything").ok
            world.revoke_all()
            assert client.call_tool("anything").ok  # refreshed for a message
        assert (world.count("authorize"), world.count("token")) == (1, 2)


def test_the_time_of_the_person_is_not_that_of_the_connection() -> None:
    with OAuthWorld() as world, protected(world) as url:
        world.resource = None
        timer = threading.Event()

        def slow(page: str) -> str:
            timer.wait(1.5)
            return world.authorize(page)

        with Client.connect(("sse", url), auth=OAuth(sign_in=slow, store=MemoryTokenStore()), timeout=1) as client:
            assert client.call_tool("anything").ok


def test_nobody_to_ask_is_an_error_at_once() -> None:
    with OAuthWorld() as world, protected(world) as url:
        with pytest.raises(McpError) as caught:
            Client.connect(("sse", url), auth=OAuth(sign_in="never", store=MemoryTokenStore()))
        assert caught.value.reason == "sign_in_required"
