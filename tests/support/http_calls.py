"""Calls through an HTTP transport: with a whole client, or with the transport alone where a test looks inside."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snodo_client import Client
from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError
from snodo_client.protocol.requests import Identity, Request
from snodo_client.transports.http import HttpTransport

VERSION = "2026-07-28"
_identity = Identity({"name": "test", "version": "1"}, {})


class Deaf:
    """An `Inbound` that nothing must reach: HTTP brings everything in the exchange."""

    def deliver(self, *_: Any) -> None:
        raise AssertionError("nothing is delivered outside an exchange")

    reject = lost = deliver


def connect(url: str, **options: Any) -> Client:
    """A client that sends nothing of its own."""
    return Client.connect(url, protocol=VERSION, **options)


def call_tool(url: str, timeout: float = 10.0, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
    """The outcome of one tool call by a client of its own."""
    with connect(url, **options) as client:
        return client.call_tool("test", arguments or {}, timeout=timeout)


def error_of(url: str, timeout: float = 10.0, **options: Any) -> McpError:
    """The error of one tool call that must fail."""
    outcome = call_tool(url, timeout, **options)
    assert isinstance(outcome, McpError), outcome
    return outcome


def text_of(outcome: Any) -> str:
    text: str = outcome.unwrap()["content"][0]["text"]
    return text


def make_call(
    method: str = "tools/call", timeout: float = 10.0, wire_id: int = 1, max_total: float | None = None
) -> Call:
    request = Request(method, {"name": "test"}).copy(version=VERSION)
    call = Call(1, request, Deadline(timeout))
    call.wire_id = wire_id
    call.body = request.encode(wire_id, _identity)
    return call


@contextmanager
def opened(url: str, **options: Any) -> Iterator[HttpTransport]:
    """A transport with a link; `exchange` takes calls for it."""
    transport = HttpTransport(url, **options)
    transport.open(Deaf(), Deadline(10))
    try:
        yield transport
    finally:
        transport.close(Deadline(5))


def exchange(transport: HttpTransport, call: Call) -> list[dict[str, Any]]:
    """All messages of one exchange."""
    call.link = transport._link
    return list(transport.exchange(call))


def failed(transport: HttpTransport, call: Call) -> McpError:
    """The error of an exchange that must fail."""
    try:
        messages = exchange(transport, call)
    except McpError as error:
        return error
    raise AssertionError(messages)


class Took:
    """How long a block took: `with Took() as took: ...`, then `took.seconds`."""

    def __enter__(self) -> Took:
        self.start = time.monotonic()
        self.seconds = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self.start

    def on_time(self, deadline: float) -> bool:
        return deadline - 0.01 <= self.seconds < deadline + 2.0


class MemoryPeak:
    """By how much a block raised the memory this process has in use, at its worst: `mib`. Zero where Linux's books are
    not kept.
    """

    def __enter__(self) -> MemoryPeak:
        self.mib = 0.0
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self._before = self._peak()
        except OSError:
            self._before = -1
        return self

    def __exit__(self, *_: object) -> None:
        if self._before >= 0:
            self.mib = (self._peak() - self._before) / 1024

    def _peak(self) -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(found[1]) if found else 0
