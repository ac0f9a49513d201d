"""Misbehaving servers with one interface for every kind of connection, and the ways to judge what became of a call.

    with serving("stdio") as server, server.connect() as client:
        outcome = client.call_tool("fault", {"send": ["..."]})

When a server's `with` ends, what it received is checked: no id came twice, and nothing but requests and notifications.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snodo_client import Client, McpError, Ok
from snodo_client.reasons import REASONS
from support.http_calls import Took
from support.scripted_http import Peer, Request, ScriptedServer, each_request
from support.stdio_servers.faulty import Plan

SCRIPT = str(Path(__file__).parent / "stdio_servers" / "faulty.py")
ALL = ("direct", "stdio", "json", "sse")
WIRES = ("stdio", "json", "sse")

AT_ONCE = 2.0  # seconds
PATIENT = 2.5  # the limit of calls that must end at once: more than that, and no test hangs for long

Faults = Mapping[str, Sequence[Mapping[str, Any]]]
Reply = Callable[[Peer, Request], None]


class Serving:
    """A running server: how errors call it, how to connect to it, and what it has received."""

    def __init__(self, kind: str, name: str, connect: Callable[..., Client], received: Callable[[], list[Any]]) -> None:
        self.kind = kind
        self.name = name
        self._connect = connect
        self._received = received
        self.clients: list[Client] = []
        self.connects = 0

    def connect(self, **options: Any) -> Client:
        self.connects += 1
        client = self._connect(**{"timeout": PATIENT, **options})
        self.clients.append(client)
        return client

    def received(self) -> list[dict[str, Any]]:
        """Every message so far. Of a stdio server, those to the process of the first client, which must be alive."""
        return self._received()

    def count(self, method: str) -> int:
        return sum(message.get("method") == method for message in self.received())

    def calls(self, tool: str = "fault") -> int:
        """How often a tool was called."""
        return sum(
            message.get("method") == "tools/call" and message["params"]["name"] == tool for message in self.received()
        )


@contextmanager
def serving(kind: str, faults: Faults | None = None, **options: Any) -> Iterator[Serving]:
    """A server over "direct", "stdio", "json" or "sse" (HTTP) that follows the plan."""
    plan = Plan(faults or {})
    if kind == "direct":
        server = Serving(kind, "in-process server", lambda **more: Client.direct(_handler(plan), **more), _all(plan))
        yield server
        if server.connects == 1:  # ids are unique within one client
            check_received(plan.received)
    elif kind == "stdio":
        target = ("stdio", sys.executable, ["-I", "-S", SCRIPT, json.dumps(faults or {})])

        def seen() -> list[Any]:
            outcome = server.clients[0].call_tool("seen")
            return outcome.unwrap()["structuredContent"] if isinstance(outcome, Ok) else []

        server = Serving(kind, "python", lambda **more: Client.connect(target, **more), seen)
        yield server
        if server.clients and server.clients[0].protocol_info["status"] == "ready":
            check_received(server.received())
    else:
        with ScriptedServer(each_request(_deliver(plan, kind)), **options) as http:
            server = Serving(kind, http.url, lambda **more: Client.connect(http.url, **more), _all(plan))
            yield server
        if server.connects == 1:
            check_received(plan.received)
    for client in server.clients:
        client.close()


@contextmanager
def http_server(reply: Reply, *, once: bool = True, **options: Any) -> Iterator[ScriptedServer]:
    """An HTTP server that leaves to `reply` whatever is neither server/discover nor a call of the tool "ok". With
    `once`, no id may come twice.
    """
    plan = Plan({})
    right = _deliver(plan, "json")

    def choose(peer: Peer, request: Request) -> None:
        message = request.message
        tool = message.get("params", {}).get("name")
        if message["method"] == "server/discover" or (message["method"] == "tools/call" and tool == "ok"):
            right(peer, request)
        else:
            reply(peer, request)

    with ScriptedServer(each_request(choose), **options) as server:
        yield server
    if once:
        check_received([request.message for request in server.requests])


def check_received(messages: list[dict[str, Any]]) -> None:
    """No id came twice, each is an integer, and nothing was answered: a server may not ask."""
    assert all(isinstance(message.get("method"), str) for message in messages), messages
    ids = [message["id"] for message in messages if "id" in message]
    assert all(type(id_) is int for id_ in ids), ids
    assert len(ids) == len(set(ids)), ids


def _all(plan: Plan) -> Callable[[], list[Any]]:
    return lambda: list(plan.received)


def _handler(plan: Plan) -> Callable[[Any, Any], Any]:
    def handle(message: Any, context: Any) -> Any:
        fault = plan.fault(message)
        if not fault["send"]:
            until_cancelled(context)
            return None
        for text in fault["send"][:-1]:
            context.send(json.loads(text))
        return json.loads(fault["send"][-1])

    return handle


def until_cancelled(context: Any, seconds: float = 5.0) -> None:
    """What a handler does that never answers; it must still end for the test to."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if context.cancelled:
            return
        pause.wait(0.01)


def _deliver(plan: Plan, kind: str) -> Reply:
    def reply(peer: Peer, request: Request) -> None:
        faulty = request.message.get("params", {}).get("name") == "fault" or request.message["method"] in plan.faults
        fault = plan.fault(request.message)
        texts = [text.encode("latin-1") for text in fault["send"]]
        if "id" not in request.message:
            peer.respond("202 Accepted")
        elif kind == "json":
            if not texts:
                peer.silence()
            peer.respond(fault.get("status", "200 OK"), texts[-1], kind="application/json")
        else:
            peer.start_sse()
            for text in texts:
                peer.chunk(b"data: " + text + b"\n\n")
            if faulty:
                peer.silence()  # no end of the stream: what is wrong must be told from what came
            peer.end()

    return reply


# -- judging


def assert_error(outcome: Any, reason: str, *, code: int = -32000, kind: str = "transport", **data: Any) -> McpError:
    """The outcome is a fault found on this side, with at least this data, and says what to do."""
    assert isinstance(outcome, McpError), outcome
    assert (outcome.reason, outcome.code, outcome.kind) == (reason, code, kind), outcome
    assert REASONS[reason].advice in outcome.message
    assert {key: outcome.data.get(key) for key in data} == data, outcome.data
    assert set(outcome.data) <= set(REASONS[reason].data), outcome.data
    assert outcome.__cause__ is None
    assert outcome.__context__ is None
    return outcome


def assert_timeout(outcome: Any, seconds: float, took: Took) -> McpError:
    """The outcome is the timeout of a call with this limit, and came in time."""
    assert seconds <= took.seconds < seconds + 2.0, took.seconds
    return assert_error(outcome, "timeout", code=-32001, timeout=seconds)


def assert_serves(client: Client, text: str = "next") -> None:
    """The client gets the right answer to another call."""
    outcome = client.call_tool("ok", {"text": text}, timeout=10)
    assert isinstance(outcome, Ok), outcome
    assert outcome.value["content"][0]["text"] == text


def failed_connect(connect: Callable[..., Client], **options: Any) -> McpError:
    """What `connect` raises, as a value."""
    try:
        client = connect(**options)
    except McpError as error:
        return error.copy()
    client.close()
    raise AssertionError(f"connected: {client!r}")
