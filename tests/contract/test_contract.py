"""What every connection must do alike: the same calls, the same values, the same errors."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from snodo_client import Client, InputRequired, McpError, Ok, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    Connect = Callable[..., Client]

YES = {"confirm": {"action": "accept", "content": {"confirm": True}}}


def text_of(outcome: Any) -> str:
    assert isinstance(outcome, Ok), outcome
    return str(outcome.value["content"][0]["text"])


def test_agreement(client: Client) -> None:
    info = client.protocol_info
    assert (info["status"], info["era"], info["version"]) == ("ready", "modern", "2026-07-28")
    assert info["probed"] == "server/discover"
    assert client.server_info == {"name": "snodo-demo", "version": "1.0"}
    assert client.server_capabilities is not None
    assert "tools" in client.server_capabilities
    assert client.instructions == "Try add, count and deploy."
    assert "ready, 2026-07-28" in repr(client)


def test_a_pin_asks_nothing(connect: Connect) -> None:
    client = connect(protocol="2026-07-28")
    assert client.protocol_info["pinned"] is True
    assert client.protocol_info["probed"] is None
    assert client.server_info is None
    assert text_of(client.call_tool("add", {"a": 1, "b": 2})) == "3"


def test_discover(client: Client) -> None:
    outcome = client.discover()
    assert isinstance(outcome, Ok)
    assert outcome.value["supportedVersions"] == ["2026-07-28"]


def test_lists_follow_pages(client: Client) -> None:
    tools = client.list_tools().unwrap()
    assert {"add", "echo", "weather", "count", "deploy", "fail", "sleep", "nothing"} <= {tool["name"] for tool in tools}
    assert len({resource["uri"] for resource in client.list_resources().unwrap()}) == 7
    assert [template["uriTemplate"] for template in client.list_resource_templates().unwrap()] == ["demo://items/{id}"]
    assert [prompt["name"] for prompt in client.list_prompts().unwrap()] == ["greet", "review"]


def test_pages_by_hand(client: Client) -> None:
    first = client.list_page("tools").unwrap()
    assert len(first.items) == 5
    assert first.next_cursor is not None
    assert first.result["nextCursor"] == first.next_cursor
    second = client.list_page("tools", first.next_cursor).unwrap()
    names = [tool["name"] for tool in first.items + second.items]
    assert names == [tool["name"] for tool in client.list_tools().unwrap()][: len(names)]


def test_an_invalid_cursor_is_the_servers_error(client: Client) -> None:
    outcome = client.list_page("tools", "no such cursor")
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.reason) == (-32602, None)


def test_call_by_name_and_by_definition(client: Client) -> None:
    assert client.call_tool("add", {"a": 1, "b": 2}).unwrap()["structuredContent"] == 3
    weather = next(tool for tool in client.list_tools().unwrap() if tool["name"] == "weather")
    assert client.call_tool(weather, {"region": "eu"}).unwrap()["structuredContent"]["region"] == "eu"
    assert client.call_tool("weather", {"region": "日本"}).unwrap()["structuredContent"]["region"] == "日本"


def test_a_mirrored_argument_by_name_without_a_list(client: Client) -> None:
    assert client.call_tool("weather", {"region": " padded "}).unwrap()["structuredContent"]["region"] == " padded "


@pytest.mark.parametrize("text", ["", "plain", "日本 é 🙂", "a\nb\r\nc\u2028\u2029\x85", '"\\', "x" * 200_000], ids=len)
def test_text_arrives_as_sent(client: Client, text: str) -> None:
    assert text_of(client.call_tool("echo", {"message": text})) == text


def test_structured_content_may_be_null(client: Client) -> None:
    result = client.call_tool("nothing").unwrap()
    assert "structuredContent" in result
    assert result["structuredContent"] is None


def test_a_tool_that_fails_is_ok(client: Client) -> None:
    outcome = client.call_tool("fail", {"reason": "on purpose"})
    assert isinstance(outcome, Ok)
    assert outcome.is_error
    assert text_of(outcome) == "on purpose"


def test_errors_of_the_server_are_kept_as_sent(client: Client) -> None:
    outcome = client.call_tool("no such tool")
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.kind, outcome.reason) == (-32602, "protocol", None)
    assert "no such tool" in outcome.message
    with pytest.raises(McpError, match="no such tool"):
        outcome.unwrap()
    outcome = client.request("no/such/method")
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.reason) == (-32601, None)


def test_resources_and_prompts(client: Client) -> None:
    result = client.read_resource("demo://readme").unwrap()
    assert result["contents"][0]["text"] == "A demo server of snodo_client."
    assert client.read_resource("demo://items/7").unwrap()["contents"][0]["text"] == "This is item 7."
    missing = client.read_resource("demo://nowhere")
    assert isinstance(missing, McpError)
    assert missing.code == -32602
    result = client.get_prompt("greet", {"name": "Ada"}).unwrap()
    assert result["messages"][0]["content"]["text"] == "Greet Ada in a plain style."


def test_completion(client: Client) -> None:
    outcome = client.complete({"type": "ref/prompt", "name": "greet"}, {"name": "style", "value": "f"})
    assert isinstance(outcome, Ok)
    assert isinstance(outcome.value["completion"]["values"], list)
    assert client.complete("greet", {"name": "style", "value": "f"}) == outcome


def test_progress_comes_before_the_answer_in_this_thread(client: Client) -> None:
    seen: list[tuple[Any, Any, str]] = []

    def note(step: Progress) -> None:
        seen.append((step.progress, step.total, threading.current_thread().name))

    assert text_of(client.call_tool("count", {"steps": 3}, progress=note)) == "counted to 3"
    me = threading.current_thread().name
    assert seen == [(1, 3, me), (2, 3, me), (3, 3, me)]


def test_no_progress_unless_wanted(client: Client) -> None:
    assert text_of(client.call_tool("count", {"steps": 3})) == "counted to 3"


def test_a_raising_progress_callback_reaches_the_caller(client: Client) -> None:
    def refuse(step: Progress) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        client.call_tool("count", {"steps": 50}, progress=refuse)
    assert text_of(client.call_tool("echo", {"message": "still here"})) == "still here"


def test_a_callback_may_call_the_same_client(client: Client) -> None:
    nested: list[str] = []

    def call_again(step: Progress) -> None:
        nested.append(text_of(client.call_tool("echo", {"message": f"nested {step.progress}"})))

    client.call_tool("count", {"steps": 2}, progress=call_again).unwrap()
    assert nested == ["nested 1", "nested 2"]


def test_log_messages_come_only_when_asked_for(connect: Connect) -> None:
    logged: list[tuple[str, Any, str | None]] = []
    enough = threading.Event()

    def note(level: str, data: Any, name: str | None) -> None:
        logged.append((level, data, name))
        if len(logged) == 2:
            enough.set()

    client = connect(on_log=note)
    client.call_tool("count", {"steps": 2}).unwrap()
    client.call_tool("count", {"steps": 2}, log_level="info").unwrap()
    assert enough.wait(5)
    assert logged == [("info", "counted 1", "count"), ("info", "counted 2", "count")]


def test_an_input_round(client: Client) -> None:
    outcome = client.call_tool("deploy")
    assert isinstance(outcome, InputRequired)
    assert outcome.requests["confirm"]["method"] == "elicitation/create"
    assert outcome.request_state is not None
    assert outcome.request_state not in repr(outcome)
    done = client.call_tool("deploy", input_responses=YES, request_state=outcome.request_state)
    assert text_of(done) == "deployed"


def test_a_changed_request_state_is_refused(client: Client) -> None:
    outcome = client.call_tool("deploy")
    assert isinstance(outcome, InputRequired)
    refused = client.call_tool("deploy", input_responses=YES, request_state=f"{outcome.request_state}x")
    assert isinstance(refused, McpError)
    assert refused.code == -32602


def test_a_missing_capability_is_the_servers_error(connect: Connect) -> None:
    outcome = connect().call_tool("deploy")
    assert isinstance(outcome, McpError)
    assert outcome.code == -32021
    assert "elicitation" in outcome.data["requiredCapabilities"]


def test_a_timeout_ends_the_call_in_time_and_the_next_is_served(client: Client) -> None:
    begun = time.monotonic()
    outcome = client.call_tool("sleep", {"seconds": 1.0}, timeout=0.3)
    took = time.monotonic() - begun
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.kind, outcome.reason, outcome.data) == (
        -32001,
        "transport",
        "timeout",
        {"timeout": 0.3},
    )
    assert 0.3 <= took < 2.3
    assert text_of(client.call_tool("echo", {"message": "next"})) == "next"


def test_one_client_in_many_threads(client: Client) -> None:
    def call(number: int) -> bool:
        return text_of(client.call_tool("echo", {"message": f"call {number}"})) == f"call {number}"

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(call, range(200)))


def test_arguments_json_cannot_carry_are_refused_before_sending(client: Client) -> None:
    for bad in (float("nan"), "\ud800", b"bytes", {1: 2}, object()):
        with pytest.raises(ValueError, match=r".+"):
            client.call_tool("echo", {"message": bad})
    with pytest.raises(TypeError):
        client.call_tool("echo", ["not", "a", "dict"])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        client.get_prompt("greet", {"name": 5})  # type: ignore[dict-item]


def test_notify(client: Client) -> None:
    assert client.notify("notifications/com.example/hello", {"n": 1}) == Ok({})


def test_a_closed_client_answers_at_once(client: Client) -> None:
    client.close()
    client.close()
    begun = time.monotonic()
    outcome = client.call_tool("echo", {"message": "too late"})
    assert time.monotonic() - begun < 1.0
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.reason) == (-32000, "closed")
    assert client.protocol_info["status"] == "closed"


def test_close_ends_calls_in_flight(client: Client, request: pytest.FixtureRequest) -> None:
    if "direct-inline" in request.node.name:
        pytest.skip("an inline call runs in the caller's thread: there is nothing to interrupt")
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(client.call_tool, "sleep", {"seconds": 10.0}) for _ in range(4)]
        deadline = time.monotonic() + 5
        while len(client._session._pending) < 4 and time.monotonic() < deadline:
            time.sleep(0.005)
        client.close()
        outcomes = [call.result(timeout=5) for call in calls]
    assert [outcome.reason for outcome in outcomes] == ["closed"] * 4
