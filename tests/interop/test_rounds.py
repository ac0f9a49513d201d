"""One set of handlers for every way a server can ask: the input rounds of other people's newest servers, the requests
of the same servers before 2026-07-28, and those of the official example server.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from interop import launch
from interop.quirks import Peer
from interop.scenarios import sent_error, text_of

from snodo_client import Client, InputRequired, McpError, Ok
from support.waiting import together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from peers import Peers

    Connect = Callable[..., Client]

SERVERS = Path(__file__).parent / "servers"
MODERN, OLDER = "2026-07-28", "2025-11-25"
ROOT = "file:///srv/project"
# What each server asks one thing at a time, and the kind of handler that answers it.
SINGLE = {"ask_name": "form", "ask_page": "url", "ask_word": "sampling", "ask_roots": "roots"}
ANSWERED = {"ask_name": "Ada", "ask_page": "accept", "ask_word": "word", "ask_roots": ROOT}


class Person:
    """The handlers, and what they were asked: `(kind, message or method)`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.action = "accept"
        self.handlers = {"form": self._form, "url": self._url, "sampling": self._sampling, "roots": self._roots}

    def _form(self, request: Any) -> dict[str, Any]:
        self.asked.append(("form", request.message))
        return {"action": self.action, **({"content": {"name": "Ada"}} if self.action == "accept" else {})}

    def _url(self, request: Any) -> dict[str, Any]:
        self.asked.append(("url", request.url))
        return {"action": self.action}

    def _sampling(self, request: Any) -> dict[str, Any]:
        self.asked.append(("sampling", request.params["messages"][0]["content"]["text"]))
        return {"role": "assistant", "content": {"type": "text", "text": "word"}, "model": "a-model"}

    def _roots(self, request: Any) -> dict[str, Any]:
        self.asked.append(("roots", request.method))
        return {"roots": [{"uri": ROOT}]}


@contextmanager
def connecting(peers: Peers, server: str, connection: str) -> Iterator[Connect]:
    """What connects to one of the two servers, which is up inside the `with`."""
    if server == "mcp":
        program, script = str(peers.modern), [str(SERVERS / "rounds_mcp_server.py")]
    else:
        program, script = str(peers.node), [str(SERVERS / "rounds_ts_server.mjs"), str(peers.packages)]
    with ExitStack() as stack:
        target: Any = ("stdio", program, [*script, "stdio"])
        if connection == "http":
            target = launch.first_line(stack.enter_context(launch.running([program, *script, "http", "0"])))
        yield lambda **options: stack.enter_context(Client.connect(target, **options))


@pytest.fixture(scope="module", params=["mcp-stdio", "mcp-http", "ts-stdio", "ts-http"])
def connect(request: pytest.FixtureRequest, peers: Peers) -> Iterator[Connect]:
    with connecting(peers, *request.param.split("-")) as connect:
        yield connect


@pytest.fixture(scope="module")
def person() -> Person:
    return Person()


@pytest.fixture(scope="module")
def asking(connect: Connect, person: Person) -> Client:
    """A client that answers everything."""
    client = connect(handlers=person.handlers)
    assert client.protocol_info["version"] == MODERN
    return client


@pytest.fixture(autouse=True)
def nothing_asked(person: Person) -> None:
    person.asked.clear()
    person.action = "accept"


@pytest.mark.parametrize("tool", SINGLE)
def test_one_question(asking: Client, person: Person, tool: str) -> None:
    assert text_of(asking.call_tool(tool)) == ANSWERED[tool]
    assert [kind for kind, _ in person.asked] == [SINGLE[tool]]


@pytest.mark.parametrize("tool", ["ask_name", "ask_page"])
def test_a_person_who_declines(asking: Client, person: Person, tool: str) -> None:
    person.action = "decline"
    assert text_of(asking.call_tool(tool)) == "decline"


def test_a_round_of_a_state_alone(asking: Client, person: Person) -> None:
    assert text_of(asking.call_tool("wait_twice")) == "after 2"
    assert person.asked == []


def test_all_questions_at_once_and_no_state(asking: Client, person: Person) -> None:
    assert text_of(asking.call_tool("ask_all")) == f"name Ada, roots {ROOT}, word word"
    assert sorted(kind for kind, _ in person.asked) == ["form", "roots", "sampling"]


def test_a_later_round_has_its_own_answers_alone(asking: Client, person: Person) -> None:
    assert text_of(asking.call_tool("ask_thrice")) == "Ada Ada Ada; last with name2"
    assert [message for _, message in person.asked] == ["Name 0?", "Name 1?", "Name 2?"]


def test_a_server_that_never_has_enough(connect: Connect, person: Person) -> None:
    client = connect(handlers=person.handlers, max_input_rounds=3)
    outcome = client.call_tool("ask_forever")
    assert isinstance(outcome, McpError), outcome
    assert outcome.reason == "input_rounds"
    assert len(person.asked) == 3
    last = outcome.cause
    assert isinstance(last, InputRequired)
    answer = {"name": {"action": "accept", "content": {"name": "Ada"}}}
    again = client.call_tool(
        "ask_forever", input_responses=answer, request_state=last.request_state, answer_input=False
    )
    assert isinstance(again, InputRequired), again


def test_by_hand_where_there_are_handlers(asking: Client, person: Person) -> None:
    first = asking.call_tool("ask_name", answer_input=False)
    assert isinstance(first, InputRequired), first
    (key,) = first.requests
    answer = {key: {"action": "accept", "content": {"name": "Grace"}}}
    assert text_of(asking.call_tool("ask_name", input_responses=answer, request_state=first.request_state)) == "Grace"
    assert person.asked == []


def test_a_handle_answers_too(asking: Client, person: Person) -> None:
    calls = [asking.start_tool_call(tool) for tool in SINGLE]
    assert [text_of(call.result()) for call in calls] == [ANSWERED[tool] for tool in SINGLE]
    assert len(person.asked) == len(SINGLE)


def test_rounds_of_many_threads_do_not_mix(asking: Client, person: Person) -> None:
    def work() -> None:
        for tool in (*SINGLE, "wait_twice"):
            assert text_of(asking.call_tool(tool)) == {**ANSWERED, "wait_twice": "after 2"}[tool]

    together([work] * 6)
    assert len(person.asked) == 6 * len(SINGLE)


# The revision before, where both servers ask by requests while the call waits; not the one in TypeScript over HTTP,
# which serves every older request by itself.

LEGACY = {"mcp": ["ask_name", "ask_word", "ask_roots"], "ts": [*SINGLE]}


@pytest.fixture(scope="module", params=["mcp-stdio", "mcp-http", "ts-stdio"])
def older(request: pytest.FixtureRequest, peers: Peers, person: Person) -> Iterator[tuple[str, Client]]:
    server, connection = request.param.split("-")
    with connecting(peers, server, connection) as connect:
        yield server, connect(handlers=person.handlers, protocol=OLDER)


def test_the_same_handlers_before_there_were_rounds(older: tuple[str, Client], person: Person) -> None:
    server, client = older
    for tool in LEGACY[server]:
        assert text_of(client.call_tool(tool)) == ANSWERED[tool]
    assert [kind for kind, _ in person.asked] == [SINGLE[tool] for tool in LEGACY[server]]


def test_the_same_handlers_for_several_requests_of_one_call(older: tuple[str, Client], person: Person) -> None:
    server, client = older
    if server == "mcp":  # what returns rounds fails for older clients
        sent_error(client.call_tool("ask_all"), -32603)
        return
    assert text_of(client.call_tool("ask_all")) == f"name Ada, roots {ROOT}, word word"
    assert text_of(client.call_tool("ask_thrice")) == "Ada Ada Ada; last with name2"
    assert len(person.asked) == 6


# The official example server


@pytest.fixture(scope="module", params=["stdio", "http"])
def example(request: pytest.FixtureRequest, peers: Peers, person: Person) -> Iterator[Client]:
    with (
        launch.target(peers, Peer("everything", request.param)) as target,
        Client.connect(target, handlers=person.handlers) as client,
    ):
        assert client.protocol_info["version"] == OLDER
        yield client


def test_the_same_handlers_for_the_example_server(example: Client, person: Person) -> None:
    person.asked.clear()  # it asks for the roots when it likes
    form = example.call_tool("trigger-elicitation-request")
    assert isinstance(form, Ok)
    assert "Ada" in str(form.value["content"])
    page = example.call_tool(
        "trigger-url-elicitation",
        {"url": "https://peer.test/sign-in", "message": "Sign in", "elicitationId": "rounds"},
    )
    assert "accept" in str(page)
    words = example.call_tool("trigger-sampling-request", {"prompt": "Say a word.", "maxTokens": 5})
    assert "a-model" in str(words)
    assert ROOT in str(example.call_tool("get-roots-list"))
    kinds = [kind for kind, _ in person.asked if kind != "roots"]
    assert kinds == ["form", "url", "sampling"]


def test_the_same_handler_for_a_page_that_is_required_first(example: Client, person: Person) -> None:
    arguments: dict[str, Any] = {"url": f"https://peer.test/{time.monotonic_ns()}", "errorPath": True}
    assert isinstance(example.call_tool("trigger-url-elicitation", arguments, answer_input=False), InputRequired)
    arguments["url"] += "0"
    assert '"action": "accept"' in str(example.call_tool("trigger-url-elicitation", arguments))
    assert ("url", arguments["url"]) in person.asked
