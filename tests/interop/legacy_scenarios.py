"""What is tried with the servers of other people that speak a revision with a handshake, over the public API only.

`SHARED` names the scenarios of `scenarios` that ask nothing of a revision; those here are of what came with the
handshake: log levels, subscriptions by request, and the server's own requests. `LEGACY_SCENARIOS` is both.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from interop.scenarios import CALL_SECONDS, SCENARIOS, Bench, text_of

from snodo_client import McpError
from support.waiting import together, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from interop.quirks import Peer

    from snodo_client import Client

    Scenario = Callable[["LegacyBench"], None]

TOOLS = {
    *("add", "progress", "ask", "open_page", "sample", "roots", "ping", "log", "touch"),
    *("fail", "big", "wait", "cancelled"),
}
SHARED = (
    *("structured_content", "a_tool_that_fails", "arguments_the_tool_refuses", "an_unknown_tool", "an_unknown_method"),
    *("progress", "resources", "prompts", "completion", "a_large_result", "a_notification", "many_threads"),
    *("a_timeout_reaches_the_server", "a_raising_callback_cancels"),
)
THREADS = 8

LEGACY_SCENARIOS: dict[str, Scenario] = {name: SCENARIOS[name] for name in SHARED}


class LegacyBench(Bench):
    """A peer of the era with a handshake. What its client was asked, and told, is in `asked`, `logs` and `notices`."""

    def __init__(self, peer: Peer, connect: Callable[..., Client]) -> None:
        super().__init__(peer, connect)
        self.agreed = True
        self.asked: list[Any] = []
        self.logs: list[tuple[Any, ...]] = []
        self.notices: list[tuple[str, Any]] = []
        self.own = {
            "handlers": {"form": self._form, "url": self._url, "sampling": self._sampling},
            "client_capabilities": ["roots"],
            "on_log": lambda *log: self.logs.append(log),
            "on_notification": lambda method, params: self.notices.append((method, params)),
        }

    def _form(self, request: Any) -> dict[str, Any]:
        self.asked.append(request)
        return {"action": "accept", "content": {"confirm": self.agreed}}

    def _url(self, request: Any) -> dict[str, Any]:
        self.asked.append(request)
        return {"action": "accept" if self.agreed else "decline"}

    def _sampling(self, request: Any) -> dict[str, Any]:
        self.asked.append(request)
        question = request.params["messages"][0]["content"]["text"]
        content = {"type": "text", "text": f"{question} Yes."}
        return {"role": "assistant", "content": content, "model": "a-model", "stopReason": "endTurn"}


def make_bench(peer: Peer, connect: Callable[..., Client]) -> Bench:
    return (LegacyBench if peer.legacy else Bench)(peer, connect)


def scenarios_of(peer: Peer) -> dict[str, Any]:
    """What is tried with this peer, by name."""
    every: dict[str, Any] = LEGACY_SCENARIOS if peer.legacy else SCENARIOS
    return {name: function for name, function in every.items() if name not in peer.without}


def scenario(function: Scenario) -> Scenario:
    LEGACY_SCENARIOS[function.__name__] = function
    return function


@scenario
def lists(bench: LegacyBench) -> None:
    assert {tool["name"] for tool in bench.client.list_tools().unwrap()} == TOOLS
    assert [resource["uri"] for resource in bench.client.list_resources().unwrap()] == ["peer://greeting"]
    templates = bench.client.list_resource_templates().unwrap()
    assert [template["uriTemplate"] for template in templates] == ["peer://items/{item}"]
    assert [prompt["name"] for prompt in bench.client.list_prompts().unwrap()] == ["greet"]


@scenario
def what_only_the_newest_revision_has(bench: LegacyBench) -> None:
    refused = bench.client.discover()
    assert isinstance(refused, McpError)
    assert refused.reason == "unsupported_operation"


@scenario
def pings(bench: LegacyBench) -> None:
    assert bench.client.ping().unwrap() == {}
    assert text_of(bench.client.call_tool("ping")) == "pong"


@scenario
def questions_whose_ids_are_those_of_our_calls(bench: LegacyBench) -> None:
    """Both sides count from the beginning, and each on its own."""
    with bench.connect() as fresh:
        assert text_of(fresh.call_tool("ping", {"times": 20}, timeout=10)) == "pong"


@scenario
def a_timeout_and_the_next_call(bench: LegacyBench) -> None:
    outcome = bench.client.call_tool("wait", {"key": "nobody asks"}, timeout=CALL_SECONDS)
    assert isinstance(outcome, McpError), outcome
    assert (outcome.code, outcome.reason) == (-32001, "timeout")
    assert text_of(bench.client.call_tool("progress", {"steps": 1})) == "1 steps"


@scenario
def logs_of_a_level(bench: LegacyBench) -> None:
    def log(level: str) -> tuple[str, str, str]:
        sent = (level, f"{level} {time.monotonic_ns()}", "peer")
        assert text_of(bench.client.call_tool("log", {"level": level, "text": sent[1]})) == "logged"
        return sent

    quiet, loud = log("debug"), log("error")
    until(lambda: loud in bench.logs)
    assert quiet in bench.logs
    assert bench.client.set_log_level("warning").unwrap() == {}
    quiet, loud = log("info"), log("error")
    until(lambda: loud in bench.logs)
    assert quiet not in bench.logs
    bench.client.set_log_level("debug").unwrap()


@scenario
def a_subscription(bench: LegacyBench) -> None:
    client, updated = bench.client, ("notifications/resources/updated", {"uri": "peer://greeting"})

    def told(times: int) -> bool:
        return bench.notices.count(updated) >= times

    before = bench.notices.count(updated)
    assert client.subscribe_resource("peer://greeting").unwrap() == {}
    assert text_of(client.call_tool("touch", {"uri": "peer://greeting"})) == "touched"
    until(lambda: told(before + 1))
    assert client.unsubscribe_resource("peer://greeting").unwrap() == {}
    client.call_tool("touch", {"uri": "peer://greeting"}).unwrap()
    client.call_tool("log", {"level": "error", "text": "after"}).unwrap()
    until(lambda: any(log[1] == "after" for log in bench.logs))
    assert bench.notices.count(updated) == before + 1


@scenario
def a_form(bench: LegacyBench) -> None:
    for bench.agreed, answer in ((False, "refused"), (True, "confirmed")):
        assert text_of(bench.client.call_tool("ask")) == answer
        asked = bench.asked[-1]
        assert (asked.method, asked.mode, asked.message) == ("elicitation/create", "form", "Go on?")
        assert asked.schema["required"] == ["confirm"]
        assert asked.server_info == bench.client.server_info


@scenario
def a_page_to_open(bench: LegacyBench) -> None:
    for bench.agreed, answer in ((False, "decline"), (True, "accept")):
        assert text_of(bench.client.call_tool("open_page", {"url": "https://peer.test/sign-in"})) == answer
        assert (bench.asked[-1].mode, bench.asked[-1].url) == ("url", "https://peer.test/sign-in")


@scenario
def sampling(bench: LegacyBench) -> None:
    assert text_of(bench.client.call_tool("sample", {"question": "Well?"})) == "a-model: Well? Yes."
    assert bench.asked[-1].params["maxTokens"] == 100


@scenario
def roots(bench: LegacyBench) -> None:
    client = bench.client
    client.add_root("file:///srv/first", "first")
    client.add_root("file:///srv/second")
    assert text_of(client.call_tool("roots")) == "file:///srv/first file:///srv/second"
    client.remove_root("file:///srv/first")
    assert text_of(client.call_tool("roots")) == "file:///srv/second"
    client.clear_roots()
    assert text_of(client.call_tool("roots")) == ""


@scenario
def many_questions_at_once(bench: LegacyBench) -> None:
    bench.agreed = True
    client, before = bench.client, len(bench.asked)

    def work(thread: int) -> None:
        assert text_of(client.call_tool("ask")) == "confirmed"
        answer = text_of(client.call_tool("sample", {"question": f"Thread {thread}?"}))
        assert answer == f"a-model: Thread {thread}? Yes."

    together([lambda thread=thread: work(thread) for thread in range(THREADS)])  # type: ignore[misc]
    assert len(bench.asked) == before + 2 * THREADS


@scenario
def a_client_that_answers_nothing(bench: LegacyBench) -> None:
    with bench.connect() as silent:
        outcome = silent.call_tool("sample", {"question": "Well?"})
        assert outcome.unwrap()["isError"] is True, outcome
        assert silent.call_tool("add", {"a": 1, "b": 2}).unwrap()["structuredContent"] == {"total": 3}
