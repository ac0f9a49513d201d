"""Input rounds (spec: basic/patterns/mrtr) over every connection that has them; `section_08.md` has the whole table,
with the tests of other files.
"""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client import Client, InputRequest, InputRequired, McpError, Ok
from snodo_client.testing import inputs
from support import mcp_schema
from support.asking import received
from support.questions import (
    CELLS,
    FILLED,
    FORM,
    MODERN,
    NAMED,
    PLACES,
    WORD,
    answering,
    asks,
    noting,
    questioning,
    turns,
)
from support.scripted_transport import ScriptedTransport, result

each_connection = pytest.mark.parametrize("kind", [kind for kind, version in CELLS if version == MODERN])
OWN = ("inputResponses", "requestState")
# By the keys that the server of support.questions asks with.
DEFINITIONS = {
    "name": "ElicitResult",
    "page": "ElicitResult",
    "words": "CreateMessageResult",
    "roots": "ListRootsResult",
}


@each_connection
def test_every_message_of_a_session_with_rounds_follows_the_schema(kind: str) -> None:
    given: dict[str, Any] = {"meta": {"com.example/a": [None]}, "log_level": "debug"}
    with questioning(kind, MODERN) as connect:
        client = connect(handlers=answering(), client_capabilities={"sampling": {"tools": {}}, "roots": {}})
        outcomes = [
            client.call_tool("everything", progress=print, **given),
            client.get_prompt("asked", **given),
            client.read_resource("asked://name", **given),
            client.start_tool_call("counting", progress=print, **given).result(),
            client.call_tool("greet", {"who": "\u2028 \U0001f600"}, **given),
        ]
        assert [outcome for outcome in outcomes if not isinstance(outcome, Ok)] == []
        messages = [message for message in received(client) if message["method"] != "server/discover"][:-1]
    for message in messages:
        mcp_schema.check_from_client(message, MODERN)
        for key, answer in message["params"].get("inputResponses", {}).items():
            mcp_schema.check(answer, DEFINITIONS[key.partition("-")[0]])
            assert not {"jsonrpc", "id", "resultType"} & answer.keys()
    # M05, M07: another id, and the same params but for what belongs to the round.
    assert [len(attempts) for attempts in by_call(messages)] == [4, 2, 2, 2, 2]
    for first, *others in by_call(messages):
        assert not set(OWN) & first["params"].keys()
        for again in others:
            assert set(OWN) <= again["params"].keys()
            assert stripped(again) == stripped(first)
    ids = [message["id"] for message in messages]
    assert ids == sorted(set(ids))


def by_call(messages: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The requests of each call: one that brings no answers begins the next."""
    calls: list[list[dict[str, Any]]] = []
    for message in messages:
        if set(OWN) & message["params"].keys():
            calls[-1].append(message)
        else:
            calls.append([message])
    return calls


def stripped(message: dict[str, Any]) -> dict[str, Any]:
    """What is the same in all attempts; a progress token is that of its attempt."""
    params = {name: value for name, value in message["params"].items() if name not in OWN}
    params["_meta"] = dict(params["_meta"])
    assert params["_meta"].pop("progressToken", message["id"]) == message["id"]
    return {"method": message["method"], "params": params}


@each_connection
def test_m01_m08_each_round_brings_exactly_the_answers_to_the_last_questions(kind: str) -> None:
    with questioning(kind, MODERN) as connect:  # a strict server: a key too many or too few is an error
        client = connect(handlers=answering())
        assert isinstance(client.call_tool("everything"), Ok)
        brought = [
            message["params"]["inputResponses"]
            for message in received(client)
            if "inputResponses" in message.get("params", {})
        ]
    assert brought == [{"name": FILLED}, {"page": {"action": "accept"}, "words": WORD}, {"roots": PLACES}]


@each_connection
def test_m03_m04_the_state_comes_back_and_none_where_there_was_none(kind: str) -> None:
    with questioning(kind, MODERN) as connect:  # it signs its states, and refuses one that it did not give
        client = connect(handlers=answering(), client_capabilities=["elicitation"])
        outcome = client.call_tool("greet", {"who": "x"}, answer_input=False)
        assert isinstance(outcome, InputRequired)
        assert outcome.request_state
        wrong = client.call_tool("greet", {"who": "x"}, request_state=outcome.request_state + "=")
        assert isinstance(wrong, McpError)
        assert wrong.code == -32602
        for handed in ({"who": "x"}, {"who": "x"}):  # a state may come back more than once
            by_hand = client.call_tool(
                "greet", handed, input_responses={"name-x": NAMED}, request_state=outcome.request_state
            )
            assert isinstance(by_hand, Ok)


@pytest.mark.parametrize("fresh", [True, False])
def test_m12_what_came_of_rounds_is_never_kept(fresh: bool) -> None:
    kept: dict[str, Any] = {"contents": [], "ttlMs": 60_000, "cacheScope": "public"}
    transport = ScriptedTransport(
        turns(lambda call: [asks(call, {"a": FORM}, "s" if fresh else None)], lambda call: [result(call, **kept)])
    )
    with Client.connect(transport, protocol=MODERN, handlers=answering(), cache=True) as client:
        for sent in (2, 3, 3):  # the second read asks again, and its answer is one that may be kept
            assert isinstance(client.read_resource("a:b"), Ok)
            assert len(transport.requests) == sent
        by_hand = client.read_resource("a:b", input_responses={"a": NAMED}, request_state="s")
        assert isinstance(by_hand, Ok)
        assert len(transport.requests) == 4


@each_connection
def test_m09_el03_a_server_learns_with_each_request_what_it_may_ask(kind: str) -> None:
    ran: list[InputRequest] = []
    with questioning(kind, MODERN) as connect:
        client = connect(handlers={"sampling": noting(ran, WORD)}, client_capabilities={"elicitation": {"url": {}}})
        outcome = client.call_tool("everything")  # it wants to ask for a form first
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.reason) == (-32021, None)
        assert outcome.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}
        assert ran == []


@each_connection
def test_m11_rounds_without_end_have_one(kind: str) -> None:
    ran: list[InputRequest] = []
    with questioning(kind, MODERN) as connect:
        client = connect(handlers=answering(form=noting(ran, {"action": "accept"})), max_input_rounds=3)
        outcome = client.call_tool("insatiable")
        assert isinstance(outcome, McpError)
        assert outcome.reason == "input_rounds"
        assert isinstance(outcome.cause, InputRequired)
        assert outcome.cause.requests == {"again-4": inputs.form("Again?", {}, required=[])}
        assert len(ran) == 3
