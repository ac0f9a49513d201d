"""Handles while a server asks for input: one id, one outcome, and cancellations aimed at what is in flight."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from snodo_client import InputRequired, McpError
from snodo_client.engine.cancelling import CancelReport
from support.interleaving import Arrived, Stage, staged
from support.waiting import until

MODERN = ("direct", "stdio", "http-json", "http-stream")
SCHEMA = {"type": "object", "properties": {}}
FORM = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": SCHEMA}}


class Person:
    """Answers forms when told to."""

    def __init__(self) -> None:
        self.asked = Event()
        self.go_on = Event()
        self.cancelled: list[bool] = []

    def __call__(self, request: Any) -> dict[str, Any]:
        self.asked.set()
        self.go_on.wait(20)
        self.cancelled.append(request.cancelled)
        return {"action": "accept", "content": {}}


def is_told(stage: Stage, arrived: Arrived) -> None:
    """Wait until the server knows that this round is cancelled."""
    until(lambda: arrived.cancellations if stage.kind == "stdio" else arrived.dropped.is_set())


@pytest.mark.parametrize("kind", MODERN)
def test_the_round_in_flight_is_what_is_cancelled(kind: str) -> None:
    with staged(kind) as stage, stage.connect(handlers={"form": lambda _: {"action": "decline"}}) as client:
        handle = client.start_tool_call("t")
        number = handle.id
        for round_ in (1, 2):
            stage.arrived(round_).ask(q=FORM)
        last = stage.arrived(3)
        until(lambda: handle._call.delivery == "accepted")
        assert handle.id == number
        assert len({each.id for each in stage.calls}) == 3
        report = handle.cancel("enough")
        assert report == CancelReport("cancelled", "accepted", "accepted" if kind == "stdio" else "not_needed")
        is_told(stage, last)
        stage.flush(client)
        assert [each.cancellations for each in stage.calls[:2]] == [[], []]
        assert last.cancellations == ([{"requestId": last.id, "reason": "enough"}] if kind == "stdio" else [])


@pytest.mark.parametrize("kind", MODERN)
@pytest.mark.parametrize("end", ["cancel", "close", "timeout"])
def test_while_a_person_is_asked_nothing_is_in_flight(kind: str, end: str) -> None:
    person = Person()
    with staged(kind) as stage, stage.connect(handlers={"form": person}) as client:
        handle = client.start_tool_call("t", timeout=0.5 if end == "timeout" else 20)
        stage.arrived().ask(q=FORM)
        assert person.asked.wait(10)
        try:
            if end == "cancel":
                assert handle.cancel() == CancelReport("cancelled", "accepted", "not_needed")
                outcome = handle.result(0)
            elif end == "close":
                client.close()
                outcome = handle.result(0)
            else:
                until(lambda: handle._call.deadline.over)
        finally:
            person.go_on.set()
        outcome = handle.result(10)
        assert isinstance(outcome, McpError)
        assert outcome.reason == {"cancel": "cancelled", "close": "closed", "timeout": "timeout"}[end]
        until(lambda: person.cancelled)
        assert person.cancelled == [True]
        if end == "timeout":  # the caller can go on by hand
            assert isinstance(outcome.cause, InputRequired)
        if end != "close":
            stage.flush(client)
        assert [each.params["name"] for each in stage.calls] == ["t"] + ["last"] * (end != "close")
        assert stage.arrived().cancellations == []


def test_the_pause_before_a_round_that_asks_nothing_ends_at_once() -> None:
    with staged("stdio") as stage, stage.connect(handlers={"form": lambda _: {"action": "decline"}}) as client:
        handle = client.start_tool_call("t")
        stage.arrived().ask()
        until(lambda: handle._call.wire_id is None)  # it is answered, and not asked again yet
        report = handle.cancel()
        if report.notification_delivery == "not_needed":
            assert len(stage.calls) == 1
        else:  # this machine was slow: the next round is there
            is_told(stage, stage.arrived(2))
        until(lambda: not client._session._live)


@pytest.mark.parametrize("kind", MODERN)
def test_the_answer_of_the_last_round_is_the_outcome(kind: str) -> None:
    with staged(kind) as stage, stage.connect(handlers={"form": lambda _: {"action": "accept"}}) as client:
        handle = client.start_tool_call("t")
        future = handle.future
        stage.arrived().ask(q=FORM)
        assert not handle.done()
        stage.arrived(2).answer("done")
        assert handle.result(10).ok
        assert future.result(10) is handle.result()
        assert handle.cancel() == CancelReport("finished", "accepted", "not_needed")
        assert stage.cancellations == []


@pytest.mark.parametrize("kind", ["stdio", "http-stream"])
def test_a_late_answer_of_an_earlier_round_is_for_nobody(kind: str) -> None:
    with staged(kind) as stage, stage.connect(handlers={"form": lambda _: {"action": "accept"}}) as client:
        handle = client.start_tool_call("t")
        first = stage.arrived()
        first.ask(q=FORM)
        second = stage.arrived(2)
        first.answer("of the first round")
        second.answer("of the second")
        assert handle.result(10).unwrap()["content"][0]["text"] == "of the second"


def test_a_call_that_is_answered_is_not_cancelled_while_its_result_is_judged() -> None:
    """The result does not fit what is remembered of the tool, so the definitions are asked for again: meanwhile there
    is nothing in flight that could be cancelled.
    """
    old = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    with staged("stdio") as stage, stage.connect() as client:
        stage.tools = [{"name": "t", "inputSchema": {"type": "object"}, "outputSchema": old}]
        client.list_tools().unwrap()
        handle = client.start_tool_call("t")
        arrived = stage.arrived()
        stage.gate.clear()
        asked = len(stage.asked)
        content = {"content": [], "structuredContent": {"a": 1}, "resultType": "complete"}
        arrived.say({"id": arrived.id, "result": content})
        until(lambda: len(stage.asked) > asked)  # the server has been asked for the tools
        report = handle.cancel()
        stage.gate.set()
        assert report == CancelReport("cancelled", "accepted", "not_needed")
        stage.flush(client)
        assert arrived.cancellations == []
