"""What every connection must do alike: the same calls, the same values, the same errors."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from snodo_client import Client, InputRequest, InputRequired, McpError, Ok, Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.conftest import Cell

    Connect = Callable[..., Client]

YES = {"confirm": {"action": "accept", "content": {"confirm": True}}}


def text_of(outcome: Any) -> str:
    assert isinstance(outcome, Ok), outcome
    return str(outcome.value["content"][0]["text"])


def refused(outcome: Any, instead: str) -> None:
    """The outcome is the refusal of an operation that the version has not, which names what to use instead."""
    assert isinstance(outcome, McpError), outcome
    assert (outcome.reason, outcome.code, outcome.kind) == ("unsupported_operation", -32601, "protocol")
    assert instead in outcome.message


def test_agreement(client: Client, cell: Cell) -> None:
    info = client.protocol_info
    era = "legacy" if cell.legacy else "modern"
    assert (info["status"], info["era"], info["version"]) == ("ready", era, cell.version)
    assert (info["preference"], info["pinned"], info["error"]) == ("auto", False, None)
    assert info["probed"] == ("initialize" if cell.connection in ("sse", "websocket") else "server/discover")
    assert info["steps"][-1]["received"] == cell.version
    assert client.server_info == {"name": "snodo-demo", "version": "1.0"}
    assert client.server_capabilities is not None
    assert "tools" in client.server_capabilities
    assert client.instructions == "Try add, count and deploy."
    assert f"ready, {cell.version}" in repr(client)


def test_a_pin_asks_nothing_more_than_it_must(connect: Connect, cell: Cell) -> None:
    client = connect(protocol=cell.version)
    assert client.protocol_info["pinned"] is True
    assert client.protocol_info["probed"] == ("initialize" if cell.legacy else None)
    assert (client.server_info is None) == (not cell.legacy)
    assert text_of(client.call_tool("add", {"a": 1, "b": 2})) == "3"


def test_a_pin_of_another_version_is_refused(connect: Connect, cell: Cell) -> None:
    other = "2025-11-25" if cell.version != "2025-11-25" else "2025-06-18"
    with pytest.raises(McpError) as raised:
        connect(protocol=other)
    if cell.legacy:
        assert raised.value.reason == "incompatible_versions"
        assert cell.version in raised.value.message


def test_what_was_agreed_can_be_remembered(connect: Connect, cell: Cell) -> None:
    client = connect(remembered=json.loads(json.dumps(connect().protocol_info)))
    assert client.protocol_info["version"] == cell.version
    assert client.protocol_info["probed"] == ("initialize" if cell.legacy else None)
    assert client.server_info == {"name": "snodo-demo", "version": "1.0"}
    assert text_of(client.call_tool("add", {"a": 1, "b": 2})) == "3"


def test_connecting_in_the_background(connect: Connect, cell: Cell) -> None:
    client = connect(wait=False)
    assert text_of(client.call_tool("add", {"a": 1, "b": 2})) == "3"
    ready = client.await_ready(5)
    assert isinstance(ready, Ok)
    assert ready.value["version"] == cell.version


def test_discover(client: Client, cell: Cell) -> None:
    outcome = client.discover()
    if cell.legacy:
        refused(outcome, "server_info")
        return
    assert isinstance(outcome, Ok)
    assert outcome.value["supportedVersions"] == ["2026-07-28"]


def test_ping(client: Client, cell: Cell) -> None:
    outcome = client.ping()
    if cell.legacy:
        assert outcome == Ok({})
    else:
        refused(outcome, "discover")


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


def region_of(outcome: Any) -> Any:
    return json.loads(text_of(outcome))["region"]


def test_call_by_name_and_by_definition(client: Client, cell: Cell) -> None:
    assert client.call_tool("add", {"a": 1, "b": 2}).unwrap().get("structuredContent", 3) == 3
    weather = next(tool for tool in client.list_tools().unwrap() if tool["name"] == "weather")
    assert region_of(client.call_tool(weather, {"region": "eu"})) == "eu"
    assert region_of(client.call_tool("weather", {"region": "日本"})) == "日本"
    assert ("structuredContent" in client.call_tool(weather, {"region": "eu"}).unwrap()) == cell.structured


def test_a_mirrored_argument_by_name_without_a_list(client: Client) -> None:
    assert region_of(client.call_tool("weather", {"region": " padded "})) == " padded "


@pytest.mark.parametrize("text", ["", "plain", "日本 é 🙂", "a\nb\r\nc\u2028\u2029\x85", '"\\', "x" * 200_000], ids=len)
def test_text_arrives_as_sent(client: Client, text: str) -> None:
    assert text_of(client.call_tool("echo", {"message": text})) == text


def test_structured_content_may_be_null(client: Client, cell: Cell) -> None:
    result = client.call_tool("nothing").unwrap()
    assert ("structuredContent" in result) == (not cell.legacy)
    assert result.get("structuredContent") is None


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


def test_resources_and_prompts(client: Client, cell: Cell) -> None:
    result = client.read_resource("demo://readme").unwrap()
    assert result["contents"][0]["text"] == "A demo server of snodo_client."
    assert client.read_resource("demo://items/7").unwrap()["contents"][0]["text"] == "This is item 7."
    missing = client.read_resource("demo://nowhere")
    assert isinstance(missing, McpError)
    assert (missing.code, missing.reason) == (-32002 if cell.legacy else -32602, None)
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


def test_log_messages_come_as_asked_for(connect: Connect, cell: Cell) -> None:
    logged: list[tuple[str, Any, str | None]] = []
    enough = threading.Event()

    def note(level: str, data: Any, name: str | None) -> None:
        if name == "count":
            logged.append((level, data, name))
        if len(logged) == 2:
            enough.set()

    client = connect(on_log=note)
    if cell.legacy:
        if not cell.asks:
            return  # nothing is kept from one request to the next
        assert client.set_log_level("error") == Ok({})
        client.call_tool("count", {"steps": 2}).unwrap()
        assert client.set_log_level("info") == Ok({})
        client.call_tool("count", {"steps": 2}).unwrap()
    else:
        refused(client.set_log_level("info"), "log_level=")
        client.call_tool("count", {"steps": 2}).unwrap()
        client.call_tool("count", {"steps": 2}, log_level="info").unwrap()
    assert enough.wait(5)
    assert logged == [("info", "counted 1", "count"), ("info", "counted 2", "count")]


def test_a_log_level_of_a_call_harms_no_older_server(client: Client) -> None:
    assert text_of(client.call_tool("echo", {"message": "x"}, log_level="debug")) == "x"


def test_a_subscribed_resource(connect: Connect, cell: Cell) -> None:
    updated = threading.Event()

    def note(method: str, params: dict[str, Any]) -> None:
        if method == "notifications/resources/updated" and params == {"uri": "demo://notes/1"}:
            updated.set()

    client = connect(on_notification=note)
    if not cell.legacy:
        refused(client.subscribe_resource("demo://notes/1"), "listen")
        refused(client.unsubscribe_resource("demo://notes/1"), "listen")
        return
    if not cell.asks:
        return
    assert client.subscribe_resource("demo://notes/1") == Ok({})
    assert text_of(client.call_tool("write_note", {"number": 1, "text": "new"})) == "written"
    assert updated.wait(5)
    assert client.read_resource("demo://notes/1").unwrap()["contents"][0]["text"] == "new"
    updated.clear()
    assert client.unsubscribe_resource("demo://notes/1") == Ok({})
    client.call_tool("write_note", {"number": 1, "text": "newer"}).unwrap()
    client.call_tool("echo", {"message": "after it"}).unwrap()
    assert not updated.is_set()


# -- what a server asks


def test_an_input_round(client: Client, cell: Cell) -> None:
    outcome = client.call_tool("deploy")
    if cell.legacy:
        # It asks during the call, and nobody here answers: whatever the server makes of that, nothing is deployed.
        assert isinstance(outcome, McpError) or outcome.is_error
        return
    assert isinstance(outcome, InputRequired)
    assert outcome.requests["confirm"]["method"] == "elicitation/create"
    assert outcome.request_state is not None
    assert outcome.request_state not in repr(outcome)
    done = client.call_tool("deploy", input_responses=YES, request_state=outcome.request_state)
    assert text_of(done) == "deployed"


def test_a_changed_request_state_is_refused(client: Client, cell: Cell) -> None:
    if cell.legacy:
        return
    outcome = client.call_tool("deploy")
    assert isinstance(outcome, InputRequired)
    refused = client.call_tool("deploy", input_responses=YES, request_state=f"{outcome.request_state}x")
    assert isinstance(refused, McpError)
    assert refused.code == -32602


def test_a_missing_capability_is_the_servers_error(connect: Connect, cell: Cell) -> None:
    outcome = connect().call_tool("deploy")
    assert isinstance(outcome, McpError)
    assert outcome.code == (-32602 if cell.legacy else -32021)
    if not cell.legacy:
        assert "elicitation" in outcome.data["requiredCapabilities"]


def test_a_handler_answers_during_the_call(connect: Connect, cell: Cell) -> None:
    asked: list[InputRequest] = []

    def confirm(request: InputRequest) -> dict[str, Any]:
        asked.append(request)
        assert text_of(client.call_tool("echo", {"message": "from the handler"})) == "from the handler"
        return YES["confirm"]

    client = connect(handlers={"form": confirm})
    if cell.legacy and not cell.elicits:
        outcome = client.call_tool("deploy")
        assert isinstance(outcome, McpError)
        assert asked == []
    elif cell.legacy:
        assert text_of(client.call_tool("deploy")) == "deployed"
        (request,) = asked
        assert (request.mode, request.message) == ("form", "Deploy to production?")
        assert request.schema is not None
        assert request.schema["required"] == ["confirm"]
        assert request.server_info == {"name": "snodo-demo", "version": "1.0"}


def test_defaults_of_a_form_are_filled_in(connect: Connect, cell: Cell) -> None:
    if cell.legacy and cell.elicits:
        answer = {"action": "accept", "content": {"email": "ada@example.com"}}
        client = connect(handlers={"form": lambda request: answer})
        filled = json.loads(text_of(client.call_tool("sign_up")))
        assert filled["email"] == "ada@example.com"
        assert (filled["name"], filled["issues"], filled["html"], filled["topic"]) == ("Anonymous", 4, True, "science")


def test_a_handler_that_fails_tells_the_server_no_more(connect: Connect, cell: Cell) -> None:
    def fail(request: InputRequest) -> dict[str, Any]:
        raise LookupError("s3cret")

    if cell.legacy and cell.elicits:
        client = connect(handlers={"form": fail})
        outcome = client.call_tool("deploy")
        assert "s3cret" not in repr(outcome)
        assert text_of(client.call_tool("echo", {"message": "next"})) == "next"


def test_roots_and_sampling(connect: Connect, cell: Cell) -> None:
    def write(request: InputRequest) -> dict[str, Any]:
        text = request.params["messages"][0]["content"]["text"]
        return {"role": "assistant", "content": {"type": "text", "text": text.upper()}, "model": "shout"}

    if cell.legacy and cell.asks:
        client = connect(client_capabilities=["roots"], handlers={"sampling": write})
        assert client.add_root("file:///srv/data", "data") == Ok({})
        assert client.list_roots() == Ok([{"uri": "file:///srv/data", "name": "data"}])
        assert "file:///srv/data" in text_of(client.call_tool("roots"))
        assert text_of(client.call_tool("poem", {"topic": "rain"})) == "shout: A POEM ON RAIN"


def test_tasks(connect: Connect, cell: Cell) -> None:
    client = connect()
    begun = client.call_tool("research", {"topic": "owls"}, task={"ttl": 60_000})
    if cell.version != "2025-11-25":
        refused(begun, "without task=")
        refused(client.tasks.get("x"), "without task=")
        return
    if not cell.asks:
        return
    task = begun.unwrap()["task"]
    assert task["status"] in ("working", "completed")
    assert text_of(client.tasks.result(task["taskId"])) == "researched owls"
    assert client.tasks.get(task["taskId"]).unwrap()["status"] == "completed"
    assert task["taskId"] in [each["taskId"] for each in client.tasks.list().unwrap()]
    long = client.call_tool("research", {"topic": "bats", "seconds": 60.0}, task=True).unwrap()["task"]
    assert client.tasks.cancel(long["taskId"]).unwrap()["status"] == "cancelled"
    again = client.tasks.cancel(long["taskId"])
    assert isinstance(again, McpError)
    assert (again.code, again.reason) == (-32602, None)
    refused(client.call_tool("add", {"a": 1, "b": 2}, task=True), "without task=")


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


def test_close_ends_calls_in_flight(client: Client, cell: Cell) -> None:
    if cell.connection == "direct-inline":
        pytest.skip("an inline call runs in the caller's thread: there is nothing to interrupt")
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(client.call_tool, "sleep", {"seconds": 10.0}) for _ in range(4)]
        deadline = time.monotonic() + 5
        while len(client._session.pending) < 4 and time.monotonic() < deadline:
            time.sleep(0.005)
        client.close()
        outcomes = [call.result(timeout=5) for call in calls]
    assert [outcome.reason for outcome in outcomes] == ["closed"] * 4
