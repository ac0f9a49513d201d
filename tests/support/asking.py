"""A server of the test kit that asks its client whatever a test wants, and tells all it has received.

    with asking("stdio", "2025-11-25") as connect:
        client = connect(handlers=...)
        ask(client, "roots/list")       # {"result": ...} or {"error": ...}: what the client answered
        say(client, {...})              # the server says this before it answers
    received(client)                # every message of the client so far

Run as a program it serves stdio; its argument is the one revision it speaks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from snodo_client import Client, Ok
from snodo_client.testing import Call, ClientError, Server
from snodo_client.testing.demo import demo_server

if TYPE_CHECKING:
    from snodo_client.testing.legacy import LegacyCall

    Connect = Callable[..., Client]

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
KNOWN = ("2026-07-28", *LEGACY)
# Every connection with every revision it carries.
CELLS = [
    *(("stdio", version) for version in KNOWN),
    *(("http", version) for version in KNOWN[:-1]),
    *(("http-stream", version) for version in KNOWN[:2]),
    *(("sse", version) for version in LEGACY),
    *(("websocket", version) for version in LEGACY),
]
LEGACY_CELLS = [(kind, version) for kind, version in CELLS if version in LEGACY]


def asking_server(version: str) -> Server:
    """The demo server in one revision, with the tools `ask`, `say` and `received`, and `lasting`, which is a task."""
    server = demo_server()
    server.versions = [version]

    @server.tool(task_support="optional")
    def ask(method: str, params: Any, call: Call) -> str:
        """Ask the client, and tell what it answers."""
        legacy: LegacyCall = call  # type: ignore[assignment]
        try:
            answer = {"result": legacy.session.request(method, params, timeout=30, context=call.context)}
        except ClientError as error:
            answer = {"error": {"code": error.code, "message": error.message, "data": error.data}}
        return json.dumps(answer)

    @server.tool
    def say(messages: list[Any], call: Call) -> str:
        """Send these first, with the id of the request in place of "$ID"."""
        for message in json.loads(json.dumps(messages).replace('"$ID"', json.dumps(call.id))):
            call.context.send(message)
        return "said"

    @server.tool(task_support="required")
    def lasting(call: Call) -> str:
        """Report progress until it is cancelled."""
        step = 0
        while call.sleep(0.02):
            call.progress(step := step + 1)
        return "over"

    @server.tool
    def received() -> str:
        """Every message received so far."""
        return json.dumps([each.message for each in server.calls])

    return server


@contextmanager
def asking(kind: str, version: str) -> Iterator[Connect]:
    """What connects to such a server over "stdio", "http", "http-stream", "sse" or "websocket"."""
    clients: list[Client] = []

    def connect(target: Any, **options: Any) -> Client:
        client = Client.connect(target, **options)
        clients.append(client)
        return client

    try:
        if kind == "stdio":
            yield lambda **options: connect(("stdio", sys.executable, [__file__, version]), **options)
            return
        server = asking_server(version)
        if kind in ("http", "http-stream"):
            serving: Any = server.serve_http(sse=True if kind == "http-stream" else "auto")
        else:
            serving = server.serve_sse() if kind == "sse" else server.serve_websocket()
        target = serving.url if kind.startswith("http") else (kind, serving.url)
        with serving:
            yield lambda **options: connect(target, **options)
            for client in clients:
                client.close()
    finally:
        for client in clients:
            client.close()


def ask(client: Client, method: str, params: dict[str, Any] | None = None, **options: Any) -> Any:
    outcome = client.call_tool("ask", {"method": method, "params": params}, timeout=30, **options)
    assert isinstance(outcome, Ok), outcome
    return json.loads(outcome.value["content"][0]["text"])


def say(client: Client, *messages: Any, **options: Any) -> Any:
    return client.call_tool("say", {"messages": list(messages)}, timeout=30, **options)


def received(client: Client) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = json.loads(client.call_tool("received", timeout=30).unwrap()["content"][0]["text"])
    return messages


if __name__ == "__main__":
    asking_server(sys.argv[1]).serve_stdio()
