"""Messages in arrays: right in revision 2025-03-26, wrong in every other, and bounded everywhere."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from snodo_client import McpError, Ok, Progress
from support.faulty import AT_ONCE
from support.http_calls import MemoryPeak, Took
from support.older import KINDS, Line, Message, assert_all_say, assert_says, older, says
from support.waiting import together, until

BATCHING = "2025-03-26"
OTHERS = ("2025-11-25", "2025-06-18", "2024-11-05")
SHARED = ("stdio", "sse", "websocket")  # connections with one channel for all answers


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def answer(message: Message, text: str | None = None) -> Message:
    text = message["params"]["arguments"]["text"] if text is None else text
    return {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}]}}


def note(method: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def batch(*others: Any) -> dict[str, Any]:
    """A server that answers with an array: others first, then the answer. "$ID" in them is the id of the request."""

    def call(line: Line, message: Message) -> None:
        filled = [
            {**other, "params": {**other["params"], "progressToken": message["id"]}}
            if isinstance(other, dict) and "progress" in other.get("params", {})
            else other
            for other in others
        ]
        line.reply([*filled, answer(message)], message)

    return {"tools/call": call}


def test_everything_in_one_batch(kind: str) -> None:
    told, steps = [], []
    on = batch(
        note("notifications/progress", progress=1),
        note("notifications/com.example/x", n=1),
        {"jsonrpc": "2.0", "id": "asked", "method": "ping"},
        {"jsonrpc": "2.0", "id": 0, "method": "roots/list"},
        note("notifications/cancelled", requestId="nothing"),
        note("notifications/progress", progress=2),
    )
    with older(kind, on, version=BATCHING) as server:
        options: dict[str, Any] = {"handlers": {"roots": lambda _: {"roots": []}}}
        client = server.connect(**options, on_notification=lambda method, params: told.append((method, params)))
        outcome = says(client, progress=lambda step: steps.append(step))
        assert isinstance(outcome, Ok), outcome
        assert outcome.value["content"][0]["text"] == "hello"
        assert all(isinstance(step, Progress) for step in steps)
        assert [step.progress for step in steps] == [1, 2]
        assert server.line.answered("asked")["result"] == {}
        assert server.line.answered(0)["result"] == {"roots": []}
        until(lambda: told == [("notifications/com.example/x", {"n": 1})])
        assert_says(client)


def test_a_server_takes_back_in_the_same_batch_what_it_asks() -> None:
    started = Event()

    def roots(request: Any) -> dict[str, Any]:
        started.set()
        until(lambda: request.cancelled)
        return {"roots": []}

    on = batch(
        {"jsonrpc": "2.0", "id": 9, "method": "roots/list"},
        note("notifications/cancelled", requestId=9),
        {"jsonrpc": "2.0", "id": 10, "method": "ping"},
    )
    with older("stdio", on, version=BATCHING) as server, server.connect(handlers={"roots": roots}) as client:
        assert_says(client)
        server.line.answered(10)
        assert_says(client)
        assert server.line.answers(9) == []


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("number", [2, 8])
def test_answers_to_several_calls_in_one_batch(kind: str, number: int) -> None:
    kept: list[Message] = []

    def call(line: Line, message: Message) -> None:
        kept.append(message)
        if len(kept) == number:
            line.say([answer(each) for each in reversed(kept)])
            kept.clear()

    with older(kind, {"tools/call": call}, version=BATCHING) as server, server.connect() as client:
        assert_all_say(client, [f"text {n}" for n in range(number)])
        assert_all_say(client, [f"more {n}" for n in range(number)])
        assert len(server.runs()) == 2 * number


def test_answers_to_several_calls_in_the_body_for_one_of_them() -> None:
    """Over HTTP each answer belongs in the answer to its own POST; a server may bring both at once all the same."""
    first: list[Message] = []

    def call(line: Line, message: Message) -> None:
        if not first:
            first.append(message)
            return
        line.reply([answer(first[0]), answer(message)], message)

    with older("http", {"tools/call": call}, version=BATCHING) as server, server.connect() as client:
        jobs = [lambda n=n: assert_says(client, f"text {n}") for n in range(2)]
        with Took() as took:
            together(jobs)
        assert took.seconds < AT_ONCE


EMPTY_SENT = [[], [[]], [[], [[]]], [None, True, 1, "x", {}, []]]


@pytest.mark.parametrize("version", [BATCHING, OTHERS[0]])
@pytest.mark.parametrize("what", EMPTY_SENT, ids=str)
def test_batches_of_nothing_are_passed_over(kind: str, version: str, what: Any) -> None:
    def call(line: Line, message: Message) -> None:
        line.say(what, what, within=message)
        line.answer(message)

    with older(kind, {"tools/call": call}, version=version) as server, server.connect() as client:
        assert_says(client)
        server.line.say(what)
        assert_says(client)


@pytest.mark.parametrize("what", EMPTY_SENT, ids=str)
def test_a_body_of_nothing_is_malformed_at_once(what: Any) -> None:
    on = {"tools/call": lambda line, message: line.reply(what, message)}
    with older("http", on, version=BATCHING) as server, server.connect() as client:
        with Took() as took:
            outcome = says(client)
        assert outcome.reason == "malformed"
        assert took.seconds < AT_ONCE
        assert client.ping().ok


def test_a_batch_in_a_batch_is_none(kind: str) -> None:
    """Its answer is not taken, and costs the call its time at most."""

    def call(line: Line, message: Message) -> None:
        if message["params"]["arguments"]["text"] == "nested":
            line.reply([note("notifications/x"), [answer(message)]], message)
        else:
            line.answer(message)

    with older(kind, {"tools/call": call}, version=BATCHING) as server, server.connect() as client:
        with Took() as took:
            outcome = says(client, "nested", timeout=1.0)
        assert isinstance(outcome, McpError)
        assert outcome.reason in ("timeout", "malformed")
        assert took.seconds < 3.0
        assert_says(client)


@pytest.mark.parametrize("version", OTHERS)
def test_in_other_revisions_a_batch_with_the_answer_is_malformed_at_once(kind: str, version: str) -> None:
    with older(kind, batch(note("notifications/x")), version=version) as server, server.connect() as client:
        with Took() as took:
            outcome = says(client)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "malformed", outcome
        assert took.seconds < AT_ONCE
        assert client.ping().ok


def test_a_huge_batch_is_bounded(kind: str) -> None:
    told: list[int] = []
    notes = [note("notifications/x", n=n) for n in range(50_000)]

    def call(line: Line, message: Message) -> None:
        if message["params"]["arguments"]["text"] == "hello":
            line.say(notes, within=message)
        line.answer(message)

    with older(kind, {"tools/call": call}, version=BATCHING) as server:
        client = server.connect(on_notification=lambda _, params: told.append(params["n"]))
        with MemoryPeak() as peak:
            assert_says(client)
        assert peak.mib < 200
        until(lambda: told)
        assert_says(client, "only this")
        assert len(told) <= 10_000
