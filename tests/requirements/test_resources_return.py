"""A hundred connections that came and went leave no thread and no file descriptor behind."""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from snodo_client import Client, Ok
from snodo_client.testing.demo import demo_server
from support.waiting import until

DESCRIPTORS = "/proc/self/fd" if Path("/proc/self/fd").exists() else "/dev/fd"


def ours() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("snodo-"))


@pytest.mark.parametrize("kind", ["direct", "http-json", "http-sse"])
def test_counts_return_after_a_hundred_cycles(kind: str) -> None:
    server = demo_server()
    serving: Any = nullcontext() if kind == "direct" else server.serve_http(sse=kind == "http-sse")
    with serving as served:

        def cycle() -> None:
            client = Client.direct(server) if served is None else Client.connect(served.url)
            with client:
                assert isinstance(client.call_tool("add", {"a": 1, "b": 2}), Ok)

        before = ours()
        cycle()
        until(lambda: ours() == before)
        descriptors = len(os.listdir(DESCRIPTORS))
        for _ in range(100):
            cycle()
        until(lambda: ours() == before)
        until(lambda: len(os.listdir(DESCRIPTORS)) <= descriptors)
