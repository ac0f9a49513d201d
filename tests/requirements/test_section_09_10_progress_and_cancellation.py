"""Progress of many calls on one channel, and cancellations that are not the server's to send."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from snodo_client import Client, Ok, Progress
from snodo_client.testing.demo import demo_server
from support.waiting import together

# Before it answers, cancels the request it is about to answer, and the one before it.
CANCELLING = """
import json, sys
for line in sys.stdin.buffer:
    message = json.loads(line)
    for wire_id in (message["id"], message["id"] - 1, str(message["id"])):
        params = {"requestId": wire_id, "reason": "because"}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}) + "\\n")
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}) + "\\n")
    sys.stdout.flush()
"""


@contextmanager
def over_http() -> Iterator[Client]:
    with demo_server().serve_http() as serving, Client.connect(serving.url) as client:
        yield client


CONNECTIONS: dict[str, Callable[[], object]] = {
    "direct": lambda: Client.direct(demo_server()),
    "stdio": lambda: Client.connect(("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"])),
    "http": over_http,
}


@pytest.mark.parametrize("kind", CONNECTIONS)
def test_p01_p02_each_of_many_calls_gets_its_own_progress(kind: str) -> None:
    with CONNECTIONS[kind]() as client:  # type: ignore[attr-defined]

        def call(steps: int) -> None:
            got: list[Progress] = []
            assert isinstance(client.call_tool("count", {"steps": steps}, progress=got.append), Ok)
            assert [(each.progress, each.total) for each in got] == [(i, steps) for i in range(1, steps + 1)]

        together([lambda steps=steps: call(steps) for steps in range(1, 21)])  # type: ignore[misc]


def test_x05_x06_a_servers_cancellation_ends_no_call() -> None:
    target = ("stdio", sys.executable, ["-I", "-S", "-c", CANCELLING])
    with Client.connect(target, protocol="2026-07-28") as client:  # type: ignore[arg-type]
        for _ in range(3):
            assert client.call_tool("t", timeout=10) == Ok({})
