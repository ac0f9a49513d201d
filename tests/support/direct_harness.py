"""Drives a transport the way the engine does, without a session on top: what arrives is kept to be looked at."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any

from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.pending import Pending
from snodo_client.outcome import McpError
from snodo_client.protocol import jsonrpc
from snodo_client.protocol.requests import Identity, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from snodo_client.transports.base import Link, Transport

    Message = dict[str, Any]

IDENTITY = Identity({"name": "harness", "version": "1"}, {})
VERSION = "2026-07-28"


class Harness:
    """One open link of `transport`. It is the transport's `Inbound` too: answers go to the calls they are for, the rest
    into `delivered`, `rejected` and `losses`.
    """

    def __init__(self, transport: Transport, timeout: float = 10) -> None:
        self.transport = transport
        self.pending = Pending()
        self.delivered: list[object] = []
        self.rejected: list[McpError] = []
        self.losses: list[McpError] = []
        self._ids = count(1)
        self.link = transport.open(self, Deadline(timeout))

    def call(self, method: str = "tools/call", *, timeout: float = 10, **params: Any) -> Call:
        """A call that is ready to be exchanged."""
        call = Call(
            next(self._ids), Request(method, params).copy(version=VERSION), Deadline(timeout), wants_progress=True
        )
        wire_id = self.pending.attempt(call, self.link)
        call.body = call.request.encode(wire_id, IDENTITY, progress=True)
        return call

    def exchange(self, call: Call) -> list[Message]:
        """What comes back for the call; the last is the response."""
        try:
            return list(self.transport.exchange(call))
        finally:
            self.pending.forget(call)

    def failure(self, call: Call) -> McpError:
        """The error the exchange of the call ends with."""
        try:
            answered = self.exchange(call)
        except McpError as error:
            return error
        raise AssertionError(f"answered: {answered}")

    def result(self, method: str = "tools/call", *, timeout: float = 10, **params: Any) -> Any:
        """The result in the answer to one call."""
        return self.exchange(self.call(method, timeout=timeout, **params))[-1]["result"]

    def text(self, tool: str, *, timeout: float = 10, **arguments: Any) -> str:
        """The text a tool answers with."""
        text: str = self.result(name=tool, arguments=arguments, timeout=timeout)["content"][0]["text"]
        return text

    def notify(self, method: str, *, timeout: float = 10, **params: Any) -> None:
        self.transport.send(jsonrpc.notification(method, params or None), self.link, Deadline(timeout))

    def close(self, timeout: float = 10) -> None:
        self.transport.close(Deadline(timeout))

    # -- what transports call

    def deliver(self, message: object, link: Link) -> None:
        answered = isinstance(message, dict) and "method" not in message and self.pending.find(message["id"])
        progress = isinstance(message, dict) and message.get("method") == "notifications/progress"
        call = self.pending.find(message["params"]["progressToken"]) if progress else answered  # type: ignore[index]
        if call:
            call.put(message)  # type: ignore[arg-type]
        else:
            self.delivered.append(message)

    def answer(self, body: bytes, wire_id: int, link: Link) -> bool:
        call = self.pending.find(wire_id)
        if call is not None:
            call.put(body)
        return call is not None

    def reject(self, error: McpError, link: Link, wire_id: int | None) -> None:
        self.rejected.append(error)
        call = self.pending.find(wire_id) if wire_id is not None else None
        if call is not None:
            call.put(error)

    def lost(self, error: McpError, link: Link) -> None:
        self.losses.append(error)
        if link.lost is None:
            link.lost = error
            self.pending.fail_all(link, error)


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    """Wait for something another thread is about to do."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
