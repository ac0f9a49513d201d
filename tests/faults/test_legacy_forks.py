"""Forks of a process with a client of an older revision: in the child it works anew or says so, and the parent's
session is none of the child's.
"""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from threading import Event
from typing import Any

import pytest

from snodo_client import Client, Ok
from support.forking import in_a_child
from support.older import KINDS, Line, Message, Older, assert_says, older, says
from support.waiting import until

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),  # Python 3.12 warns where threads run
]
FORM = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def told(outcome: Any) -> Any:
    return outcome.value["content"][0]["text"] if isinstance(outcome, Ok) else (outcome.reason, outcome.code)


def calls(client: Client, text: str) -> list[Any]:
    return [told(says(client, text, timeout=10.0))]


def ended_sessions(server: Older) -> list[str | None]:
    return [each.header("mcp-session-id") for each in list(server.requests) if each.line.startswith("DELETE")]


def right(kind: str, texts: list[str]) -> list[Any]:
    return [("forked", -32000)] * len(texts) if kind == "stdio" else texts


def test_a_child_calls_on_a_connection_of_its_own_and_the_parent_goes_on(kind: str) -> None:
    with older(kind) as server, server.connect() as client:
        assert_says(client, "before")
        own = server.line

        def child() -> Any:
            begun = time.monotonic()
            answers = [told(says(client, text)) for text in ("one", "two")]
            client.close()
            return answers, time.monotonic() - begun

        answers, took = in_a_child(child)
        assert answers == right(kind, ["one", "two"])
        assert took < 2.0
        for number in range(3):
            assert_says(client, f"after {number}")
        assert not own.gone.is_set()
        assert own.methods().count("tools/call") == 4
        assert len(server.lines) == (1 if kind == "stdio" else 2)
        assert "secret-session-1" not in ended_sessions(server)
    assert ended_sessions(server)[-1:] == (["secret-session-1"] if kind == "http" else [])


@pytest.mark.parametrize("way", ["close", "leave", "exit"])
def test_a_child_that_never_calls_disturbs_nothing(kind: str, way: str) -> None:
    with older(kind) as server, server.connect() as client:
        assert_says(client)

        def child() -> Any:
            if way == "close":
                client.close()
            if way == "exit":
                import atexit

                atexit._run_exitfuncs()
            return True

        assert in_a_child(child)
        assert_says(client)
        server.line.ask("ping", 5)
        assert server.line.answered(5)["result"] == {}
        assert len(server.lines) == 1
        assert ended_sessions(server) == []


def test_forks_while_threads_call(kind: str) -> None:
    with older(kind) as server, server.connect() as client:
        stop, wrong, count = Event(), [], iter(range(10**9))

        def hammer() -> None:
            while not stop.is_set():
                text = f"parent {next(count)}"
                answer = told(says(client, text))
                if answer != text:
                    wrong.append(answer)

        threads = [threading.Thread(target=hammer) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for number in range(12):
                answers = in_a_child(partial(calls, client, f"child {number}"))
                assert answers == right(kind, [f"child {number}"])
        finally:
            stop.set()
            for thread in threads:
                thread.join(20)
        assert wrong == []
        assert_says(client)
        runs = server.runs()
        assert len(runs) == len(set(runs))
        assert "secret-session-1" not in ended_sessions(server)


def test_a_fork_in_the_middle_of_a_call_in_the_thread_that_makes_it(kind: str) -> None:
    def call(line: Line, message: Message) -> None:
        token = message["params"].get("_meta", {}).get("progressToken")
        for number in range(3 if token is not None else 0):
            progress = {"progressToken": token, "progress": number}
            line.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}, within=message)
        line.answer(message)

    with older(kind, {"tools/call": call}) as server, server.connect() as client:
        seen: list[Any] = []

        def fork_now(step: Any) -> None:
            if not seen:
                seen.append(in_a_child(lambda: [told(says(client, "child"))]))

        assert_says(client, "parent", progress=fork_now)
        assert seen == [right(kind, ["child"])]
        assert_says(client)


def test_a_call_that_was_under_way_is_over_in_a_child(kind: str) -> None:
    """The child leaves the progress callback by returning, and its copy of the call must not wait for ever."""

    def call(line: Line, message: Message) -> None:
        token = message["params"].get("_meta", {}).get("progressToken")
        if token is None:
            return line.answer(message)
        progress = {"progressToken": token, "progress": 1}
        line.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}, within=message)
        held.append((line, message))
        return None

    held: list[tuple[Line, Message]] = []
    with older(kind, {"tools/call": call}) as server, server.connect() as client:
        parent, pids = os.getpid(), []
        read, write = os.pipe()

        def fork_now(step: Any) -> None:
            pid = os.fork()
            if pid:
                pids.append(pid)
                line, message = held[0]
                until(lambda: os.waitpid(pid, os.WNOHANG) != (0, 0))
                line.answer(message)

        try:
            outcome = says(client, "parent", progress=fork_now, timeout=10.0)
        finally:
            if os.getpid() != parent:
                os.write(write, repr(told(outcome)).encode())
                os._exit(0)
        assert told(outcome) == "parent"
        assert os.read(read, 100) == repr(("forked", -32000)).encode()
        os.close(read)
        os.close(write)
        assert_says(client)


def test_a_fork_in_a_handler(kind: str) -> None:
    made: dict[str, Any] = {}

    def form(request: Any) -> dict[str, Any]:
        (answer,) = in_a_child(lambda: [told(says(made["client"], "child"))])
        return {"action": "accept", "content": {"name": str(answer)}}

    with older(kind) as server, server.connect(handlers={"form": form}) as client:
        made["client"] = client
        line = server.line
        line.ask("elicitation/create", 5, FORM)
        (answer,) = right(kind, ["child"])
        assert line.answered(5)["result"] == {"action": "accept", "content": {"name": str(answer)}}
        assert_says(client)


@pytest.mark.parametrize("kind", ["http", "sse", "websocket"])
def test_a_server_asks_in_the_child_what_it_asks_the_child(kind: str) -> None:
    def call(line: Line, message: Message) -> None:
        line.ask("elicitation/create", f"of line {line.number}", FORM, within=message)
        held[line.number] = message

    def answer(line: Line, message: Message) -> None:
        line.answer(held[line.number], content=[{"type": "text", "text": message["result"]["content"]["name"]}])

    def form(request: Any) -> dict[str, Any]:
        return {"action": "accept", "content": {"name": "parent" if os.getpid() == parent else "child"}}

    parent = os.getpid()
    held: dict[int, Message] = {}
    with older(kind, {"tools/call": call, "answer": answer}) as server:
        client = server.connect(handlers={"form": form})
        assert told(says(client)) == "parent"
        assert in_a_child(lambda: [told(says(client)) for _ in range(2)]) == ["child", "child"]
        assert told(says(client)) == "parent"
