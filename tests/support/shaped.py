"""A server whose tools have whatever definitions and results a test says, the same over every connection; as a program
it serves stdio.

`define` takes the definitions of the list, `lists` tells how often it was asked for, and every other tool answers with
its argument `result`, as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from snodo_client import Client
from snodo_client.testing import Server
from snodo_client.testing.errors import RpcError

CONNECTIONS = ("direct", "stdio", "http")
CHANGED = "notifications/tools/list_changed"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")


def shaped_server() -> Server:
    server = Server("shaped", capabilities={"tools": {"listChanged": True}})
    tools: list[Any] = []
    refusing: list[bool] = []

    @server.on("tools/list")
    def listed(message: dict[str, Any], context: object) -> Any:
        if refusing:
            raise RpcError(-32603, "no list today")
        return {"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private"}

    @server.on("tools/call")
    def call(message: dict[str, Any], context: object) -> Any:
        name, arguments = message["params"].get("name"), message["params"].get("arguments", {})
        if name == "lists":
            return {"content": [], "structuredContent": server.seen["tools/list"]}
        if name != "define":
            return arguments["result"]
        tools[:] = arguments["tools"]
        refusing[:] = arguments.get("refusing", [])
        if arguments.get("tell"):
            server.emit(CHANGED)
        return {"content": []}

    return server


@contextmanager
def shaped(connection: str, *tools: dict[str, Any], listed: bool = True, **options: Any) -> Iterator[Client]:
    """A client of such a server that has these tools, and has listed them."""
    if connection == "stdio":
        opened = Client.connect(("stdio", sys.executable, [__file__]), **options)
    elif connection == "direct":
        opened = Client.direct(shaped_server(), **options)
    else:
        with shaped_server().serve_http() as http, Client.connect(http.url, **options) as client:
            prepare(client, tools, listed)
            yield client
        return
    with opened as client:
        prepare(client, tools, listed)
        yield client


def prepare(client: Client, tools: Any, listed: bool) -> None:
    define(client, *tools)
    if listed:
        assert client.list_tools(timeout=20).unwrap() == list(tools)


def define(client: Client, *tools: dict[str, Any], **arguments: Any) -> None:
    client.call_tool("define", {"tools": list(tools), **arguments}, timeout=20).unwrap()


def lists(client: Client) -> Any:
    """How often the server was asked for its tools."""
    return client.call_tool("lists", timeout=20).unwrap()["structuredContent"]


def tool(output: Any, name: str = "t", **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "outputSchema": output, **members}


if __name__ == "__main__":
    shaped_server().serve_stdio()
