"""Drives a `StdioTransport` against a real process, with the engine's calls and table and a minimal inbound side."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.pending import Pending
from snodo_client.outcome import McpError
from snodo_client.protocol import jsonrpc
from snodo_client.protocol.requests import Request
from snodo_client.transports.base import Link
from snodo_client.transports.stdio import StdioLink, StdioTransport

SERVERS = Path(__file__).parent / "stdio_servers"


class Inbox:
    """The inbound side: answers go to their calls, everything else is kept."""

    def __init__(self) -> None:
        self.pending = Pending()
        self.messages: list[object] = []
        self.rejected: list[tuple[McpError, int | None]] = []
        self.losses: list[McpError] = []
        self.lost_one = Event()

    def deliver(self, message: object, link: Link) -> None:
        call = self.pending.find(message.get("id")) if isinstance(message, dict) else None  # type: ignore[arg-type]
        if call is not None and isinstance(message, dict):
            call.put(message)
        else:
            self.messages.append(message)

    def answer(self, body: bytes, wire_id: int, link: Link) -> bool:
        call = self.pending.find(wire_id)
        if call is not None:
            call.put(body)
        return call is not None

    def reject(self, error: McpError, link: Link, wire_id: int | None) -> None:
        self.rejected.append((error, wire_id))
        call = self.pending.find(wire_id) if wire_id is not None else self.pending.only(link)
        if call is not None:
            call.put(error)

    def lost(self, error: McpError, link: Link) -> None:
        self.losses.append(error)
        link.lost = error
        self.pending.fail_all(link, error)
        self.lost_one.set()


class Peer:
    """One transport and its server, as a context manager. `server` is a script of `stdio_servers`."""

    def __init__(self, server: str, *flags: str, **options: Any) -> None:
        self.inbox = Inbox()
        self.transport = StdioTransport(sys.executable, ["-I", "-S", str(SERVERS / server), *flags], **options)
        self.link: StdioLink = self.transport.open(self.inbox, Deadline(10))

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.transport.close(Deadline(10))

    @property
    def pid(self) -> int:
        return self.link.process.pid

    def reopen(self) -> None:
        self.link = self.transport.open(self.inbox, Deadline(10))

    def prepare(self, method: str, params: dict[str, Any] | None = None, timeout: float = 20) -> Call:
        call = Call(0, Request(method, params or {}), Deadline(timeout))
        wire_id = self.inbox.pending.attempt(call, self.link)
        call.body = jsonrpc.encode(jsonrpc.request(wire_id, method, params))
        return call

    def perform(self, call: Call) -> Any:
        """The result, or the local error as a value."""
        exchange = self.transport.exchange(call)
        try:
            return next(exchange)["result"]
        except McpError as error:
            return error
        finally:
            exchange.close()  # type: ignore[attr-defined]
            self.inbox.pending.forget(call)

    def call(self, method: str, params: dict[str, Any] | None = None, timeout: float = 20) -> Any:
        return self.perform(self.prepare(method, params, timeout))


def eventually(condition: Callable[[], object], seconds: float = 10) -> bool:
    """Ask until it is true; False when it never was in that time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def running(pid: int) -> bool:
    """Whether there is such a process, not counting one that has ended and waits to be reaped by a parent not ours."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.parent.parent.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def reaped(pid: int) -> bool:
    """Whether our child of this id was waited for: no process, and no zombie either."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
