"""A server whose subscriptions do what a test says, the same over every connection; as a program it serves stdio.

Its tools are the test's hands, since over stdio there is no other way to it: `plan` says how the next subscriptions are
opened, `act` does something with one that is open, `opened` and `told` say what the server knows. Both take steps: a
list such as `["notify", "notifications/tools/list_changed", {}]`, whose first word is a key of `STEPS`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from snodo_client import Client
from snodo_client.testing import Server, Subscription
from snodo_client.testing.errors import RpcError

CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}
CONNECTIONS = ("direct", "inline", "stdio", "http")

STEPS: dict[str, Callable[..., object]] = {
    "acknowledge": Subscription.acknowledge,
    "notify": Subscription.notify,
    "end": Subscription.end,
    "cancel": Subscription.cancel,
    "drop": Subscription.drop,
}


def changing_server() -> Server:
    server = Server("changing", capabilities=CAPABILITIES)
    plans: list[list[list[Any]]] = []

    def follow(subscription: Subscription, steps: list[list[Any]]) -> None:
        for name, *arguments in steps:
            if name == "refuse":
                raise RpcError(*arguments)
            STEPS[name](subscription, *arguments)

    @server.on_subscribe
    def open(subscription: Subscription) -> None:
        follow(subscription, plans.pop(0) if plans else [["acknowledge"]])

    @server.tool()
    def plan(steps: list) -> None:  # type: ignore[type-arg]
        plans.append(steps)

    @server.tool()
    def act(steps: list, index: int = -1) -> None:  # type: ignore[type-arg]
        follow(server.subscriptions[index], steps)

    @server.tool()
    def emit(method: str, uri: str = "", times: int = 1) -> int:
        return server.emit(method, {"uri": uri} if uri else {}, times=times)

    @server.tool()
    def opened() -> int:
        return len(server.subscriptions)

    @server.tool()
    def told(method: str) -> list:  # type: ignore[type-arg]
        return [call.message for call in server.calls if call.method == method]

    @server.resource("test://a")
    def resource() -> str:
        return "a"

    return server


@contextmanager
def changing(connection: str, keep_alive: float | None = None, **options: Any) -> Iterator[Client]:
    """A client of such a server over one of `CONNECTIONS`; both are gone after the `with`."""
    if connection == "stdio":
        with Client.connect(("stdio", sys.executable, [__file__]), **options) as client:
            yield client
    elif connection in ("direct", "inline"):
        with Client.direct(changing_server(), inline=connection == "inline", **options) as client:
            yield client
    else:
        with changing_server().serve_http(keep_alive=keep_alive) as http, Client.connect(http.url, **options) as client:
            yield client


def use(client: Client, tool: str, *arguments: Any, **named: Any) -> Any:
    """What a tool of the server gives. `plan` and `act` take their steps one by one."""
    if arguments:
        named = {"steps": list(arguments), **named}
    result = client.call_tool(tool, named, timeout=20).unwrap()
    assert not result.get("isError"), result
    return result.get("structuredContent")


def subscribed(client: Client, filter: Any, **options: Any) -> Any:
    """The subscription there is to be."""
    subscription = client.listen(filter, **{"timeout": 20, **options})
    assert not isinstance(subscription, Exception), subscription
    return subscription


if __name__ == "__main__":
    changing_server().serve_stdio()
