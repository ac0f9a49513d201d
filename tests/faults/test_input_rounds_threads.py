"""Input rounds of many threads on one client, and handlers that call the client they answer for, over every
connection.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from snodo_client import Client, InputRequest, Ok
from support.asking import received
from support.questions import CELLS, MODERN, answering, questioning
from support.waiting import together

each_cell = pytest.mark.parametrize(("kind", "version"), CELLS)
modern_cells = pytest.mark.parametrize("kind", [kind for kind, version in CELLS if version == MODERN])


def greeted(client: Client, who: str, name: str, **options: Any) -> None:
    outcome = client.call_tool("greet", {"who": who}, timeout=30, **options)
    assert isinstance(outcome, Ok), outcome
    assert outcome.value["content"] == [{"type": "text", "text": f"{name} greets {who}"}]


def echoed(client: Client, text: str) -> None:
    outcome = client.call_tool("echo", {"message": text}, timeout=30)
    assert isinstance(outcome, Ok), outcome
    assert outcome.value["content"][0]["text"] == text


@each_cell
def test_a_handler_may_call_the_client_it_answers_for(kind: str, version: str) -> None:
    """From many threads, four deep; a strict server refuses whatever strays from one call into another. What an older
    server asks is answered by sixteen threads at most, and here all of them are needed.
    """

    def answer(request: InputRequest) -> Any:
        who = (request.message or "").removeprefix("Who greets ").removesuffix("?")
        echoed(client, f"for {who}")
        if not who.endswith("..."):
            greeted(client, who + ".", f"host of {who}.")
        return {"action": "accept", "content": {"name": f"host of {who}"}}

    with questioning(kind, version) as connect:
        client = connect(handlers=answering(form=answer))
        callers = 16 if version == MODERN else 4
        together([lambda n=n: greeted(client, f"t{n}", f"host of t{n}") for n in range(callers)])  # type: ignore[misc]
        assert client._session.pending.calls() == []
        assert client._session._live == {}


@modern_cells
def test_answers_and_states_stay_with_their_calls(kind: str) -> None:
    def answer(request: InputRequest) -> Any:
        return {"action": "accept", "content": {"name": own.name}}

    def work(number: int) -> None:
        for turn in range(3):
            own.name = f"n{number}-{turn}"
            greeted(client, f"t{number}", own.name)
            echoed(client, own.name)

    own = threading.local()
    with questioning(kind, MODERN) as connect:
        client = connect(handlers=answering(form=answer))
        together([lambda n=n: work(n) for n in range(16)])  # type: ignore[misc]
        messages = [message for message in received(client) if message.get("method") == "tools/call"]
    for message in messages:
        params = message["params"]
        if params["name"] == "greet" and "inputResponses" in params:
            (key,) = params["inputResponses"]
            assert key == f"name-{params['arguments']['who']}"
        else:
            assert params.keys() == {"_meta", "name", "arguments"}
    ids = [message["id"] for message in messages]
    assert len(set(ids)) == len(ids) == 16 * 3 * 3 + 1
