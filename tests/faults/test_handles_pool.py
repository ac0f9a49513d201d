"""Cancelling one HTTP call never hits another that has its connection by then, however late the cancellation comes."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

import pytest

from snodo_client import McpError, Ok
from snodo_client.calls import ToolCall
from support.legacy_http import connect as connect_legacy
from support.legacy_http import legacy
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event, result
from support.waiting import together

THREADS = 32
ROUNDS = 12
MODERN = "2026-07-28"


class Server:
    """Answers each call with its argument. Right before or after the answer to a victim it hands the victim over to
    those who cancel.
    """

    def __init__(self, stream: bool) -> None:
        self.stream = stream
        self.due: SimpleQueue[str | None] = SimpleQueue()

    def reply(self, peer: Peer, request: Request) -> None:
        arguments = request.message["params"]["arguments"]
        victim, early = arguments.get("victim"), arguments.get("early")
        if victim is not None and early:
            self.due.put(victim)
        answer = result(request, arguments["own"])
        if self.stream:
            peer.start_sse()
            peer.chunk(event(answer))
            peer.end()
        else:
            peer.json(answer)
        if victim is not None and not early:
            self.due.put(victim)


class Victims:
    """The handles that may be cancelled, by name."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.handles: dict[str, ToolCall] = {}
        self.lock = Lock()
        self.cancelled = 0
        self.threads = [Thread(target=self._cancel, daemon=True) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def _cancel(self) -> None:
        while (name := self.server.due.get()) is not None:
            with self.lock:
                handle = self.handles.get(name)
            if handle is not None and handle.cancel().local == "cancelled":
                self.cancelled += 1

    def end(self) -> None:
        for _ in self.threads:
            self.server.due.put(None)
        for thread in self.threads:
            thread.join(30)


@pytest.mark.parametrize("kind", ["json", "stream", "legacy"])
def test_innocent_calls_are_never_hit(kind: str) -> None:
    server = Server(kind == "stream")
    script = legacy(server.reply) if kind == "legacy" else each_request(server.reply)
    with ScriptedServer(script) as serving:
        client = (
            connect_legacy(serving.url, pool_size=THREADS)
            if kind == "legacy"
            else connect_legacy(serving.url, MODERN, pool_size=THREADS)
        )
        victims = Victims(server)
        with client:

            def work(number: int) -> None:
                for round_ in range(ROUNDS):
                    own = f"{number}.{round_}"
                    if number % 2:
                        arguments: dict[str, Any] = {"own": own, "victim": own, "early": round_ % 2 == 0}
                        handle = client.start_tool_call("t", arguments)
                        with victims.lock:
                            victims.handles[own] = handle
                        outcome = handle.result(30)
                        assert isinstance(outcome, Ok) or (
                            isinstance(outcome, McpError) and outcome.reason == "cancelled"
                        ), outcome
                        handle.cancel()  # and once more: it is over
                    else:
                        outcome = client.call_tool("t", {"own": own})
                    if isinstance(outcome, Ok):
                        assert outcome.value["content"][0]["text"] == own

            try:
                together([lambda number=number: work(number) for number in range(THREADS)])  # type: ignore[misc]
            finally:
                victims.end()
        calls = THREADS * ROUNDS
        assert len(victims.handles) == calls // 2
        if kind != "legacy":  # connections were kept: it is they that a late cancellation could have hit
            assert serving.connections <= THREADS + victims.cancelled + calls // 4


@pytest.mark.parametrize("protocol", [MODERN, "2025-11-25"])
def test_a_wake_up_that_comes_late_finds_nothing_to_cut(protocol: str) -> None:
    """One connection in all, and the first call's means of ending it used while the second call has it."""
    second, go_on = SimpleQueue[None](), SimpleQueue[None]()

    def reply(peer: Peer, request: Request) -> None:
        if request.message["params"]["name"] == "second":
            second.put(None)
            go_on.get(timeout=20)
        peer.answer(request)

    script = each_request(reply) if protocol == MODERN else legacy(reply)
    with ScriptedServer(script) as server, connect_legacy(server.url, protocol) as client:
        first = client.start_tool_call("first")
        assert first.result(10).ok
        kept = server.connections
        later = client.start_tool_call("second")
        second.get(timeout=10)
        assert server.connections == kept
        assert first.cancel().local == "finished"
        first._call.wake()
        go_on.put(None)
        assert later.result(10).ok
        assert server.connections == kept
