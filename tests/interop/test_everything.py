"""The official example server, exactly as published: all that a server could ask of a client before 2026-07-28."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from interop import launch
from interop.quirks import Peer
from interop.scenarios import CALL_SECONDS, sent_error, text_of

from snodo_client import Client, InputRequired, McpError, Ok
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peers import Peers

ROOT = "file:///srv/project"
TASK_SECONDS = 30


class Everything:
    """A client of the server, what it was asked in `asked`, and what it was told in `logs` and `notices`."""

    def __init__(self, target: Any, stack: ExitStack) -> None:
        self.action = "accept"
        self.content: dict[str, Any] = {}
        self.asked: list[Any] = []
        self.logs: list[tuple[Any, ...]] = []
        self.notices: list[tuple[str, Any]] = []
        self.client = stack.enter_context(
            Client.connect(
                target,
                handlers={"form": self._form, "url": self._url, "sampling": self._sampling},
                client_capabilities=["roots"],
                on_log=lambda *log: self.logs.append(log),
                on_notification=lambda method, params: self.notices.append((method, params)),
            )
        )

    def _form(self, request: Any) -> dict[str, Any]:
        self.asked.append(request)
        return {"action": self.action, "content": self.content}

    def _url(self, request: Any) -> dict[str, Any]:
        self.asked.append(request)
        return {"action": self.action}

    def _sampling(self, request: Any) -> dict[str, Any]:
        self.asked.append(request)
        return {"role": "assistant", "content": {"type": "text", "text": "Paris."}, "model": "a-model"}


def received(outcome: object) -> Any:
    """The answer that the server has got, which is the JSON at the end of the last text of the result."""
    assert isinstance(outcome, Ok), outcome
    text = outcome.value["content"][-1]["text"]
    return json.loads(text[text.index("{") :])


@pytest.fixture(scope="module", params=["stdio", "http", "sse"])
def everything(request: pytest.FixtureRequest, peers: Peers) -> Iterator[Everything]:
    with ExitStack() as stack:
        target = stack.enter_context(launch.target(peers, Peer("everything", request.param)))
        yield Everything(target, stack)


@pytest.fixture
def client(everything: Everything) -> Client:
    everything.action, everything.content = "accept", {}
    return everything.client


def test_agreement(client: Client) -> None:
    info = client.protocol_info
    assert (info["status"], info["era"], info["version"]) == ("ready", "legacy", "2025-11-25")
    assert client.server_info["name"] == "mcp-servers/everything"  # type: ignore[index]
    assert {"tools", "prompts", "resources", "logging", "tasks", "completions"} <= client.server_capabilities.keys()  # type: ignore[union-attr]
    assert client.instructions
    assert client.ping() == Ok({})


def test_lists(client: Client) -> None:
    """Some tools are there only for a client that can be asked."""
    tools = {tool["name"] for tool in client.list_tools().unwrap()}
    assert {"echo", "get-sum", "get-roots-list", "trigger-sampling-request", "simulate-research-query"} <= tools
    assert {"trigger-elicitation-request", "trigger-url-elicitation"} <= tools
    assert not {"trigger-sampling-request-async", "trigger-elicitation-request-async"} & tools  # tasks of the client's
    assert {"args-prompt", "completable-prompt"} <= {prompt["name"] for prompt in client.list_prompts().unwrap()}
    assert client.list_resources().unwrap()
    assert len(client.list_resource_templates().unwrap()) == 2


def test_calls(client: Client) -> None:
    assert text_of(client.call_tool("echo", {"message": "Ærø 日本 🙂\n"})) == "Echo: Ærø 日本 🙂\n"
    assert "is 5" in text_of(client.call_tool("get-sum", {"a": 2, "b": 3}))
    weather = client.call_tool("get-structured-content", {"location": "Chicago"}).unwrap()
    assert weather["structuredContent"].keys() == {"temperature", "conditions", "humidity"}
    image = client.call_tool("get-tiny-image").unwrap()["content"]
    assert "image" in {block["type"] for block in image}
    links = client.call_tool("get-resource-links", {"count": 2}).unwrap()["content"]
    assert [block["type"] for block in links] == ["text", "resource_link", "resource_link"]


def test_errors(client: Client) -> None:
    refused = client.call_tool("get-sum", {"a": "many", "b": 3})
    assert isinstance(refused, Ok)
    assert refused.is_error
    unknown = client.call_tool("nobody")
    assert isinstance(unknown, Ok)
    assert unknown.is_error
    sent_error(client.request("com.example/nothing"), -32601)
    sent_error(client.get_prompt("nobody"), -32602)


def test_prompts_and_completion(client: Client) -> None:
    (message,) = client.get_prompt("args-prompt", {"city": "Oslo"}).unwrap()["messages"]
    assert message["content"]["text"] == "What's weather in Oslo?"
    found = client.complete("completable-prompt", {"name": "department", "value": "E"}).unwrap()
    assert found["completion"]["values"] == ["Engineering"]
    context = {"arguments": {"department": "Engineering"}}
    narrowed = client.complete("completable-prompt", {"name": "name", "value": "A"}, context).unwrap()
    assert narrowed["completion"]["values"] == ["Alice"]


def test_resources(client: Client) -> None:
    (content,) = client.read_resource("demo://resource/dynamic/text/7").unwrap()["contents"]
    assert content["text"].startswith("Resource 7:")
    (blob,) = client.read_resource("demo://resource/dynamic/blob/7").unwrap()["contents"]
    assert blob["blob"]


def test_progress(client: Client) -> None:
    seen: list[Any] = []
    arguments = {"duration": 0.3, "steps": 3}
    outcome = client.call_tool("trigger-long-running-operation", arguments, progress=seen.append)
    assert "completed" in text_of(outcome)
    assert [(step.progress, step.total) for step in seen] == [(1, 3), (2, 3), (3, 3)]


def test_a_timeout_and_the_next_call(client: Client) -> None:
    begun = time.monotonic()
    arguments = {"duration": 30, "steps": 10}
    outcome = client.call_tool("trigger-long-running-operation", arguments, timeout=CALL_SECONDS)
    took = time.monotonic() - begun
    assert isinstance(outcome, McpError), outcome
    assert (outcome.code, outcome.reason) == (-32001, "timeout")
    assert CALL_SECONDS <= took < CALL_SECONDS + 2, took
    assert text_of(client.call_tool("echo", {"message": "next"})) == "Echo: next"


def test_a_form_whose_fields_have_defaults(everything: Everything, client: Client) -> None:
    everything.content = {"name": "Ada", "check": True, "email": "ada@example.test", "integer": 7}
    told = received(client.call_tool("trigger-elicitation-request"))
    assert told == {
        "action": "accept",
        "content": {
            **everything.content,
            "firstLine": "It was a dark and stormy night.",
            "number": 3.14,
            "untitledSingleSelectEnum": "Monica",
            "untitledMultipleSelectEnum": ["Guitar"],
            "titledSingleSelectEnum": "hero-1",
            "titledMultipleSelectEnum": ["fish-1"],
            "legacyTitledEnum": "pet-1",
        },
    }
    asked = everything.asked[-1]
    assert asked.message == "Please provide inputs for the following fields:"
    assert asked.schema["required"] == ["name"]
    assert asked.server_info["name"] == "mcp-servers/everything"


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_form_that_is_not_filled_in(everything: Everything, client: Client, action: str) -> None:
    everything.action = action
    assert received(client.call_tool("trigger-elicitation-request")) == {"action": action}


def test_a_form_that_is_filled_in_wrongly(everything: Everything, client: Client) -> None:
    everything.content = {"name": "Ada", "integer": 1000}
    outcome = client.call_tool("trigger-elicitation-request")
    assert isinstance(outcome, Ok), outcome
    assert outcome.is_error
    assert "-32603" in text_of(outcome)
    assert text_of(client.call_tool("echo", {"message": "next"})) == "Echo: next"


def test_a_page_to_open(everything: Everything, client: Client) -> None:
    arguments = {"url": "https://peer.test/sign-in", "message": "Sign in, please.", "elicitationId": "one"}
    assert received(client.call_tool("trigger-url-elicitation", arguments)) == {"action": "accept"}
    asked = everything.asked[-1]
    assert (asked.mode, asked.url, asked.message) == ("url", "https://peer.test/sign-in", "Sign in, please.")
    assert asked.params["elicitationId"] == "one"


def test_a_page_to_open_before_a_call_is_made_again(client: Client) -> None:
    arguments = {"url": f"https://peer.test/{time.monotonic_ns()}", "errorPath": True}
    refused = client.call_tool("trigger-url-elicitation", arguments, answer_input=False)
    assert isinstance(refused, InputRequired), refused
    (wanted,) = refused.requests.values()
    assert (wanted["method"], wanted["params"]["mode"]) == ("elicitation/create", "url")
    assert received(client.call_tool("trigger-url-elicitation", arguments)) == {"action": "accept"}


def test_sampling(everything: Everything, client: Client) -> None:
    arguments = {"prompt": "The capital of France?", "maxTokens": 20}
    told = received(client.call_tool("trigger-sampling-request", arguments))
    assert (told["model"], told["content"]) == ("a-model", {"type": "text", "text": "Paris."})
    params = everything.asked[-1].params
    assert (params["maxTokens"], params["systemPrompt"]) == (20, "You are a helpful test server.")
    assert "The capital of France?" in params["messages"][0]["content"]["text"]


def test_roots(client: Client) -> None:
    """It asks anew whenever it is told that they have changed."""
    client.add_root(ROOT, "project")
    until(lambda: ROOT in text_of(client.call_tool("get-roots-list")))
    client.remove_root(ROOT)
    until(lambda: ROOT not in text_of(client.call_tool("get-roots-list")))


def test_roots_of_a_handler(peers: Peers) -> None:
    """It asks as soon as the handshake is over, and ends although it may wait for the answer."""
    with launch.target(peers, Peer("everything", "stdio")) as target:
        handlers = {"roots": lambda request: {"roots": [{"uri": ROOT}]}}
        with Client.connect(target, handlers=handlers) as client:
            until(lambda: ROOT in text_of(client.call_tool("get-roots-list")))


def test_log_messages(everything: Everything, client: Client) -> None:
    """It logs one message of a random level when it is told to begin, and next five seconds later."""
    uri = f"demo://resource/dynamic/text/{time.monotonic_ns()}"
    client.set_log_level("error").unwrap()
    client.subscribe_resource(uri).unwrap()
    client.set_log_level("info").unwrap()
    client.unsubscribe_resource(uri).unwrap()
    until(lambda: any(uri in str(log[1]) for log in everything.logs))
    messages = [str(log[1]) for log in everything.logs if uri in str(log[1])]
    assert [message.split()[1] for message in messages] == ["Unsubscribe"]  # the other one was below the level
    client.set_log_level("debug").unwrap()


def test_a_subscription(everything: Everything, client: Client) -> None:
    uri = f"demo://resource/dynamic/text/{time.monotonic_ns()}"
    client.subscribe_resource(uri).unwrap()
    client.call_tool("toggle-subscriber-updates").unwrap()
    until(lambda: ("notifications/resources/updated", {"uri": uri}) in everything.notices)
    client.call_tool("toggle-subscriber-updates").unwrap()
    client.unsubscribe_resource(uri).unwrap()


def test_a_task(client: Client) -> None:
    created = client.call_tool("simulate-research-query", {"topic": "tea"}, task={"ttl": 60_000}).unwrap()["task"]
    assert created["status"] == "working"
    identity = created["taskId"]
    assert identity in {task["taskId"] for task in client.tasks.list().unwrap()}
    assert client.tasks.get(identity).unwrap()["status"] == "working"
    result = client.tasks.result(identity, timeout=TASK_SECONDS)
    assert text_of(result).startswith("# Research Report: tea")
    assert client.tasks.get(identity).unwrap()["status"] == "completed"
    sent_error(client.tasks.cancel(identity), -32602)


def test_a_task_that_asks(everything: Everything, client: Client) -> None:
    everything.content = {"interpretation": "snake"}
    arguments = {"topic": "python", "ambiguous": True}
    created = client.call_tool("simulate-research-query", arguments, task={"ttl": 60_000}).unwrap()["task"]
    result = client.tasks.result(created["taskId"], timeout=TASK_SECONDS)
    assert "python (snake)" in text_of(result)
    related = {"io.modelcontextprotocol/related-task": {"taskId": created["taskId"]}}
    assert everything.asked[-1].params["_meta"] == related


def test_a_task_that_is_cancelled(client: Client) -> None:
    created = client.call_tool("simulate-research-query", {"topic": "tea"}, task={"ttl": 60_000}).unwrap()["task"]
    assert client.tasks.cancel(created["taskId"]).unwrap()["status"] == "cancelled"
    assert client.tasks.get(created["taskId"]).unwrap()["status"] == "cancelled"


def test_a_tool_that_needs_a_task(client: Client) -> None:
    outcome = client.call_tool("simulate-research-query", {"topic": "tea"})
    assert isinstance(outcome, McpError) or outcome.unwrap()["isError"]
