"""The connections the contract suite runs over: every one must behave the same."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from snodo_client import Client
from snodo_client.testing.demo import demo_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Connect = Callable[..., Client]

STDIO = ("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"])


@pytest.fixture(params=["direct", "direct-inline", "stdio", "http-json", "http-sse"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients of the demo server over one kind of connection; they are closed at the end."""
    clients: list[Client] = []
    kind = request.param

    def made(client: Client) -> Client:
        clients.append(client)
        return client

    if kind.startswith("direct"):
        server = demo_server()
        inline = kind.endswith("inline")
        yield lambda **options: made(Client.direct(server, inline=inline, **options))
    elif kind == "stdio":
        yield lambda **options: made(Client.connect(STDIO, **options))
    else:
        with demo_server().serve_http(sse=True if kind == "http-sse" else "auto") as serving:

            def over_http(**options: Any) -> Client:
                return made(Client.connect(("http", serving.url), **options))

            yield over_http
            for client in clients:
                client.close()
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Connect) -> Client:
    return connect(client_capabilities=["elicitation"])
