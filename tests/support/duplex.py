"""Drives a transport that answers on a shared channel, with the engine's calls and table and a minimal inbound side."""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError
from snodo_client.protocol import jsonrpc
from snodo_client.protocol.requests import Request
from support.stdio_peer import Inbox

VERSION = "2025-06-18"


class Duplex:
    """A transport with an open link, as a context manager."""

    def __init__(self, transport: Any, timeout: float = 10.0) -> None:
        self.transport = transport
        self.inbox = Inbox()
        self.link: Any = transport.open(self.inbox, Deadline(timeout))

    def __enter__(self) -> Duplex:
        return self

    def __exit__(self, *_: object) -> None:
        self.transport.close(Deadline(10))

    def reopen(self, timeout: float = 10.0) -> None:
        self.link = self.transport.open(self.inbox, Deadline(timeout))

    def prepare(self, method: str = "echo", params: dict[str, Any] | None = None, timeout: float = 20.0) -> Call:
        call = Call(0, Request(method, params or {}).copy(version=VERSION), Deadline(timeout))
        wire_id = self.inbox.pending.attempt(call, self.link)
        call.body = jsonrpc.encode(jsonrpc.request(wire_id, method, params))
        return call

    def perform(self, call: Call) -> Any:
        """The result, or the error as a value."""
        exchange = self.transport.exchange(call)
        try:
            message = next(exchange)
            return message.get("result", message)
        except McpError as error:
            return error
        finally:
            exchange.close()
            self.inbox.pending.forget(call)

    def call(self, method: str = "echo", params: dict[str, Any] | None = None, timeout: float = 20.0) -> Any:
        return self.perform(self.prepare(method, params, timeout))

    def send(self, method: str, timeout: float = 10.0) -> None:
        self.transport.send({"jsonrpc": "2.0", "method": method}, self.link, Deadline(timeout))


def open_error(transport: Any, timeout: float = 10.0) -> McpError:
    """The error of an `open` that must fail."""
    try:
        with pytest.raises(McpError) as raised:
            transport.open(Inbox(), Deadline(timeout))
    finally:
        transport.close(Deadline(5))
    assert raised.value.__cause__ is None
    return raised.value
