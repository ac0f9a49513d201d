"""A transport whose answers are written in the test: a function of the call that yields messages or raises.

It is about as long as a custom transport has to be, and nothing in it is private to this package. Helpers for scripts
follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from threading import Event
from typing import Any

from snodo_client import Inbound, Link, Traits
from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline

Message = dict[str, Any]
Script = Callable[[Call], Iterable[Message]]


class ScriptedTransport:
    """Each request is answered by `script(call)`. `requests` has the requests, `sent` the notifications."""

    def __init__(self, script: Script, traits: Traits | None = None) -> None:
        self.traits = traits or Traits()
        self.script = script
        self.requests: list[Message] = []
        self.sent: SimpleQueue[Message] = SimpleQueue()
        self.closed = Event()

    def open(self, inbound: Inbound, deadline: Deadline) -> Link:
        self.inbound, self.link = inbound, Link("the scripted server")
        return self.link

    def exchange(self, call: Call) -> Iterator[Message]:
        self.requests.append(call.message)
        call.delivery = "accepted"
        yield from self.script(call)

    def send(self, message: Message, link: Link, deadline: Deadline) -> None:
        self.sent.put(message)

    def close(self, deadline: Deadline) -> None:
        self.closed.set()


# -- for scripts

NOTIFY = Traits(cancel="notify")
SUPPORTED = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 0, "cacheScope": "private"}


def result(call: Call, /, **members: Any) -> Message:
    """The response to the current attempt of the call."""
    return {"jsonrpc": "2.0", "id": call.wire_id, "result": {"resultType": "complete", **members}}


def error(call: Call, code: int, message: str = "no", **members: Any) -> Message:
    """The error response to the current attempt; `data=` goes into the error."""
    return {"jsonrpc": "2.0", "id": call.wire_id, "error": {"code": code, "message": message, **members}}


def progress(call: Call, value: Any, **members: Any) -> Message:
    """A progress notification for the current attempt."""
    params = {"progressToken": call.wire_id, "progress": value, **members}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def busy(call: Call, seconds: float) -> None:
    """A server that works for so long; the transport stands by the deadline meanwhile."""
    Event().wait(min(seconds, call.deadline.left()))
    call.check()


def silent(call: Call) -> Iterator[Message]:
    """No answer of its own: the exchange yields what is delivered to the call, as on a shared channel."""
    return call.messages()
