"""Input rounds while the process on the other side ends: each round stands for itself, so another one may answer it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from snodo_client import Client, InputRequest, InputRequired, McpError, Ok
from support.questions import FORM, MODERN, NAMED, answering, noting
from support.waiting import until

# Asks in answer to a first request, and tells in answer to a later one what it was and who answers it. "ends": it is
# gone after it has asked; "ends late": once it has read the answers.
ASKING = """
import json, os, sys
how, form = sys.argv[1], json.loads(sys.argv[2])
for line in sys.stdin.buffer:
    message = json.loads(line)
    params = message["params"]
    if "inputResponses" not in params:
        state = f"state of {os.getpid()}"
        result = {"resultType": "input_required", "inputRequests": {"a": form}, "requestState": state}
    elif how == "ends late":
        sys.exit(3)
    else:
        result = {"resultType": "complete", "pid": os.getpid(), "params": params}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    if how == "ends" and "inputResponses" not in params:
        sys.exit(3)
"""


def connect(how: str, handler: Callable[[InputRequest], Any], **options: Any) -> Client:
    command: Any = ("stdio", sys.executable, ["-I", "-S", "-c", ASKING, how, json.dumps(FORM)])
    return Client.connect(command, protocol=MODERN, handlers=answering(form=handler), **options)


def waiting_for_the_end(clients: list[Client]) -> Callable[[InputRequest], Any]:
    """A handler that answers when the process that asked is gone, as far as the client knows."""

    def handle(request: InputRequest) -> Any:
        link = clients[0]._session.connection.link
        until(lambda: link is None or link.lost is not None)
        return NAMED

    return handle


def test_a_round_is_answered_to_the_process_that_took_the_place_of_the_one_that_asked() -> None:
    clients: list[Client] = []
    with connect("ends", waiting_for_the_end(clients), restart="on_call") as client:
        clients.append(client)
        outcome = client.call_tool("t", {"x": 1})
        assert isinstance(outcome, Ok), outcome
        params = outcome.value["params"]
        assert params["requestState"] != f"state of {outcome.value['pid']}"
        assert params["requestState"].startswith("state of ")
        assert params["inputResponses"] == {"a": {"action": "accept", "content": {"name": "Ada", "age": 7}}}
        assert (params["name"], params["arguments"]) == ("t", {"x": 1})
        assert client._session.pending.calls() == []


@pytest.mark.parametrize("restart", [None, "on_call"])
def test_answers_that_may_have_been_read_are_not_sent_again(restart: Any) -> None:
    ran: list[InputRequest] = []
    with connect("ends late", noting(ran, NAMED), restart=restart) as client:
        outcome = client.call_tool("t")
        assert isinstance(outcome, McpError)
        assert (outcome.reason, len(ran)) == ("exited", 1)
        assert isinstance(client.call_tool("t", answer_input=False), InputRequired if restart else McpError)


def test_an_end_before_the_answers_can_be_sent_leaves_the_caller_what_was_asked() -> None:
    clients: list[Client] = []
    with connect("ends", waiting_for_the_end(clients)) as client:
        clients.append(client)
        outcome = client.call_tool("t")
        assert isinstance(outcome, McpError)
        assert outcome.reason == "exited"
        assert isinstance(outcome.cause, InputRequired)
        assert outcome.cause.requests == {"a": FORM}
    with connect("stays", answering_nothing) as client:
        by_hand = client.call_tool("t", input_responses={"a": NAMED}, request_state=outcome.cause.request_state)
        assert isinstance(by_hand, Ok)
        assert by_hand.value["params"]["requestState"] == outcome.cause.request_state


def answering_nothing(request: InputRequest) -> Any:
    raise AssertionError("a handler ran")


def test_a_call_that_times_out_between_two_rounds_cancels_nothing() -> None:
    def late(request: InputRequest) -> Any:
        until(lambda: request.cancelled)
        return NAMED

    with connect("stays", late) as client:
        outcome = client.call_tool("t", timeout=0.2)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "timeout"
        # A notification of the client would be a line without an id, and the end of this server.
        assert isinstance(client.call_tool("t", answer_input=False), InputRequired)
