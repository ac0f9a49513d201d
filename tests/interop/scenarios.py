"""What is tried with every server of other people, over the public API only.

`SCENARIOS` is all of it. How a peer differs from the others is in `quirks`, never in a copy of a scenario. No pytest
here: they also run in the peers' own environment, next to servers in the same process.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from snodo_client import Client, InputRequired, McpError, Ok
from support.waiting import together, until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from interop.quirks import Peer

    from snodo_client import Progress

    Scenario = Callable[["Bench"], None]

TOOLS = {"add", "progress", "ask", "fail", "null", "big", "wait", "cancelled"}
CALL_SECONDS = 0.6
THREADS = 12
CALLS = 8

SCENARIOS: dict[str, Scenario] = {}


class Bench:
    """A peer that is up, and how to reach it.

    client: the one that most scenarios share; own: its options. target: what to connect to, for a peer with a process.
    """

    own: Mapping[str, Any] = {"client_capabilities": ["elicitation"]}
    target: Any = None

    def __init__(self, peer: Peer, connect: Callable[..., Client]) -> None:
        self.peer = peer
        self._connect = connect
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = self.connect(**self.own)
        return self._client

    def connect(self, **options: Any) -> Client:
        return self._connect(**{"protocol": self.peer.protocol, **options})

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def text_of(outcome: object) -> str:
    assert isinstance(outcome, Ok), outcome
    return str(outcome.value["content"][0]["text"])


def sent_error(outcome: object, code: int) -> McpError:
    """The outcome, when it is an error that the server sent with this code."""
    assert isinstance(outcome, McpError), outcome
    assert (outcome.code, outcome.reason) == (code, None), outcome
    return outcome


@scenario
def agreement(bench: Bench) -> None:
    info = bench.client.protocol_info
    assert (info["status"], info["era"], info["version"]) == ("ready", "modern", "2026-07-28"), info
    assert (info["preference"], info["pinned"], info["probed"]) == ("auto", False, "server/discover"), info
    assert bench.client.server_info == {"name": f"{bench.peer.server}-peer", "version": "1.0.0"}
    assert bench.client.instructions == "A peer for tests."
    assert {"tools", "resources", "prompts", "completions"} <= (bench.client.server_capabilities or {}).keys()


@scenario
def discovery(bench: Bench) -> None:
    found = bench.client.discover().unwrap()
    assert found["supportedVersions"] == ["2026-07-28"]
    assert found["capabilities"] == bench.client.server_capabilities


@scenario
def lists(bench: Bench) -> None:
    tools = {tool["name"]: tool for tool in bench.client.list_tools().unwrap()}
    assert tools.keys() == TOOLS
    assert tools["add"]["inputSchema"]["properties"].keys() == {"a", "b"}
    assert tools["add"]["outputSchema"]["properties"]["total"]["type"] == "integer"
    assert [resource["uri"] for resource in bench.client.list_resources().unwrap()] == ["peer://greeting"]
    templates = bench.client.list_resource_templates().unwrap()
    assert [template["uriTemplate"] for template in templates] == ["peer://items/{item}"]
    (prompt,) = bench.client.list_prompts().unwrap()
    assert (prompt["name"], [argument["name"] for argument in prompt["arguments"]]) == ("greet", ["name"])
    page = bench.client.list_page("tools").unwrap()
    assert ({tool["name"] for tool in page.items}, page.next_cursor) == (TOOLS, None)


@scenario
def structured_content(bench: Bench) -> None:
    by_name = bench.client.call_tool("add", {"a": 2, "b": 3}).unwrap()
    assert by_name["structuredContent"] == {"total": 5}
    assert "5" in by_name["content"][0]["text"]
    definition = next(tool for tool in bench.client.list_tools().unwrap() if tool["name"] == "add")
    assert bench.client.call_tool(definition, {"a": -2, "b": 3}).unwrap()["structuredContent"] == {"total": 1}


@scenario
def explicit_null(bench: Bench) -> None:
    outcome = bench.client.call_tool("null")
    if isinstance(bench.peer.null, int):
        assert "received null" in sent_error(outcome, bench.peer.null).message
        return
    result = outcome.unwrap()
    assert "structuredContent" in result
    assert result["structuredContent"] == bench.peer.null


@scenario
def a_tool_that_fails(bench: Bench) -> None:
    outcome = bench.client.call_tool("fail")
    assert text_of(outcome).endswith("this tool always fails")
    assert isinstance(outcome, Ok)
    assert outcome.is_error


@scenario
def arguments_the_tool_refuses(bench: Bench) -> None:
    outcome = bench.client.call_tool("add", {"a": "many", "b": 3})
    assert isinstance(outcome, Ok), outcome
    assert outcome.is_error
    assert "number" in text_of(outcome) or "integer" in text_of(outcome)


@scenario
def an_unknown_tool(bench: Bench) -> None:
    outcome = bench.client.call_tool("nobody")
    if bench.peer.unknown_tool is None:
        assert isinstance(outcome, Ok), outcome
        assert outcome.is_error
        assert "nobody" in text_of(outcome)
    else:
        assert "nobody" in sent_error(outcome, bench.peer.unknown_tool).message


@scenario
def an_unknown_method(bench: Bench) -> None:
    error = sent_error(bench.client.request("com.example/nothing"), bench.peer.unknown_method)
    assert (error.data == "com.example/nothing") is bench.peer.names_method


@scenario
def progress(bench: Bench) -> None:
    seen: list[Progress] = []
    outcome = bench.client.call_tool("progress", {"steps": 3}, progress=seen.append)
    assert text_of(outcome) == "3 steps"
    told = [(step.progress, step.total, step.message) for step in seen]
    sent = [(number, 3, f"step {number}") for number in (1, 2, 3)]
    if bench.peer.loses_progress:
        assert told == [step for step in sent if step in told]
    else:
        assert told == sent
    assert text_of(bench.client.call_tool("progress", {"steps": 3})) == "3 steps"


@scenario
def an_input_round(bench: Bench) -> None:
    asked = bench.client.call_tool("ask")
    if not bench.peer.asks:
        sent_error(asked, -32021)
        return
    assert isinstance(asked, InputRequired), asked
    (key,) = asked.requests
    assert key == bench.peer.ask_key
    question = asked.requests[key]
    assert (question["method"], question["params"]["message"]) == ("elicitation/create", "Go on?")
    assert question["params"]["requestedSchema"]["required"] == ["confirm"]
    for agreed, answer in ((True, "confirmed"), (False, "refused")):
        responses = {key: {"action": "accept", "content": {"confirm": agreed}}}
        done = bench.client.call_tool("ask", input_responses=responses, request_state=asked.request_state)
        assert text_of(done) == answer


@scenario
def resources(bench: Bench) -> None:
    for uri, text in (("peer://greeting", "hello"), ("peer://items/7", "item 7")):
        (content,) = bench.client.read_resource(uri).unwrap()["contents"]
        assert (content["uri"], content["mimeType"], content["text"]) == (uri, "text/plain", text)
    error = sent_error(bench.client.read_resource("peer://nowhere"), bench.peer.unknown_resource)
    assert (error.data == {"uri": "peer://nowhere"}) is bench.peer.names_resource


@scenario
def prompts(bench: Bench) -> None:
    (message,) = bench.client.get_prompt("greet", {"name": "Ærø 日本 🙂\n"}).unwrap()["messages"]
    assert message == {"role": "user", "content": {"type": "text", "text": "Say hello to Ærø 日本 🙂\n."}}
    sent_error(bench.client.get_prompt("greet"), bench.peer.bad_prompt)
    sent_error(bench.client.get_prompt("nobody"), bench.peer.bad_prompt)


@scenario
def completion(bench: Bench) -> None:
    found = bench.client.complete("greet", {"name": "name", "value": "A"}).unwrap()["completion"]
    assert found["values"] == ["Ada", "Alan"]
    none = bench.client.complete("greet", {"name": "name", "value": "nobody"}).unwrap()["completion"]
    assert none["values"] == []


@scenario
def a_large_result(bench: Bench) -> None:
    assert text_of(bench.client.call_tool("big", {"n": 1_000_000})) == "x" * 1_000_000


@scenario
def a_notification(bench: Bench) -> None:
    assert bench.client.notify("notifications/com.example/hello", {"n": 1}) == Ok({})
    assert text_of(bench.client.call_tool("progress", {"steps": 0})) == "0 steps"


@scenario
def a_timeout_reaches_the_server(bench: Bench) -> None:
    client = bench.client  # connecting is no part of what is timed
    seen: list[Progress] = []
    key = f"timeout-{time.monotonic_ns()}"
    begun = time.monotonic()
    outcome = client.call_tool("wait", {"key": key}, timeout=CALL_SECONDS, progress=seen.append)
    took = time.monotonic() - begun
    assert isinstance(outcome, McpError), outcome
    assert (outcome.code, outcome.reason, outcome.data) == (-32001, "timeout", {"timeout": CALL_SECONDS})
    assert CALL_SECONDS <= took < CALL_SECONDS + 2, took
    assert [step.progress for step in seen] == [1]
    until(lambda: key in text_of(client.call_tool("cancelled")).split())


@scenario
def a_raising_callback_cancels(bench: Bench) -> None:
    def refuse(step: Progress) -> None:
        raise LookupError("enough")

    key = f"callback-{time.monotonic_ns()}"
    try:
        outcome = bench.client.call_tool("wait", {"key": key}, progress=refuse)
    except LookupError:
        pass
    else:
        raise AssertionError(outcome)
    until(lambda: key in text_of(bench.client.call_tool("cancelled")).split())


@scenario
def many_threads(bench: Bench) -> None:
    client = bench.client

    def work(thread: int) -> None:
        for number in range(CALLS):
            result = client.call_tool("add", {"a": 1000 * thread, "b": number}).unwrap()
            assert result["structuredContent"] == {"total": 1000 * thread + number}

    together([lambda thread=thread: work(thread) for thread in range(THREADS)])  # type: ignore[misc]


@scenario
def a_second_client(bench: Bench) -> None:
    """It pins the version, so that nothing is asked, and it does not take part in elicitation."""
    assert text_of(bench.client.call_tool("progress", {"steps": 1})) == "1 steps"
    with bench.connect(protocol="2026-07-28") as second:
        info = second.protocol_info
        assert (info["pinned"], info["probed"], second.server_info) == (True, None, None)
        assert text_of(second.call_tool("progress", {"steps": 2})) == "2 steps"
        asked = second.call_tool("ask")
        if bench.peer.asks_anyway:
            assert isinstance(asked, InputRequired), asked
        else:
            assert sent_error(asked, -32021).data["requiredCapabilities"].keys() == {"elicitation"}
    assert second.protocol_info["status"] == "closed"
    assert text_of(bench.client.call_tool("progress", {"steps": 3})) == "3 steps"
