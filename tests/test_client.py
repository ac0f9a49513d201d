"""The facade: what each method sends and gives back, one deadline over all it does, lists, and interruptions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from snodo_client import Client, InputRequired, Link, McpError, Ok, Page, Traits, __version__
from snodo_client.engine.call import Call
from snodo_client.outcome import local_error
from support.scripted_transport import (
    NOTIFY,
    SUPPORTED,
    Message,
    ScriptedTransport,
    busy,
    error,
    progress,
    result,
    silent,
)
from support.waiting import until

MIRRORS = Traits(mirrors_headers=True)


def connect(script: Any, traits: Traits | None = None, **options: Any) -> tuple[Client, ScriptedTransport]:
    transport = ScriptedTransport(script, traits)
    return Client.connect(transport, **{"protocol": "2026-07-28", **options}), transport


def ok(call: Call) -> list[Message]:
    return [result(call, tools=[], resources=[], resourceTemplates=[], prompts=[])]


def reason(outcome: Any) -> str | None:
    assert isinstance(outcome, McpError), outcome
    return outcome.reason


# -- connecting


def test_connecting_to_an_unknown_server_discovers_it() -> None:
    members = {**SUPPORTED, "capabilities": {"tools": {}}, "instructions": "be kind",
               "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "2"}}}  # fmt: skip
    client, transport = connect(lambda call: [result(call, **members)], protocol="auto")
    assert [request["method"] for request in transport.requests] == ["server/discover"]
    assert client.server_info == {"name": "s", "version": "2"}
    assert client.server_capabilities == {"tools": {}}
    assert client.instructions == "be kind"
    info = client.protocol_info
    assert json.loads(json.dumps(info)) == info
    assert {key: info[key] for key in ("preference", "pinned", "status", "era", "version", "probed")} == {
        "preference": "auto", "pinned": False, "status": "ready", "era": "modern", "version": "2026-07-28",
        "probed": "server/discover",
    }  # fmt: skip
    assert repr(client) == "<Client of the scripted server, ready, 2026-07-28>"
    client.close()
    assert client.protocol_info["status"] == "closed"
    assert "closed" in repr(client)


def test_a_pinned_client_sends_nothing_and_knows_nothing() -> None:
    client, transport = connect(ok)
    assert transport.requests == []
    assert (client.server_info, client.server_capabilities, client.instructions) == (None, None, None)
    assert client.protocol_info["pinned"] is True


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (lambda call: [error(call, -32601)], "incompatible_versions"),
        (lambda call: [result(call)], "invalid_result"),
        (lambda call: [result(call, supportedVersions=["1999-01-01"])], "incompatible_versions"),
        (lambda call: [], "closed"),
        (silent, "timeout"),
    ],
)
def test_connecting_raises_and_lets_go(script: Any, expected: str) -> None:
    transport = ScriptedTransport(script)
    with pytest.raises(McpError) as raised:
        Client.connect(transport, timeout=0.2)
    assert raised.value.reason == expected
    assert transport.closed.is_set()


def test_a_bug_in_a_transport_comes_out_and_lets_go() -> None:
    class Buggy(ScriptedTransport):
        def open(self, inbound: Any, deadline: Any) -> Link:
            raise ZeroDivisionError

    transport = Buggy(ok)
    with pytest.raises(ZeroDivisionError):
        Client.connect(transport)
    assert transport.closed.is_set()


def test_a_callable_makes_the_transport() -> None:
    with Client.connect(lambda: ScriptedTransport(ok), protocol="2026-07-28") as client:
        assert isinstance(client.list_tools(), Ok)


def test_the_client_says_who_it_is_in_every_request() -> None:
    client, transport = connect(ok, client_info={"name": "me", "version": "3"}, client_capabilities=["roots"])
    client.list_tools()
    prefix = "io.modelcontextprotocol/"
    assert transport.requests[0]["params"]["_meta"] == {
        prefix + "protocolVersion": "2026-07-28",
        prefix + "clientInfo": {"name": "me", "version": "3"},
        prefix + "clientCapabilities": {"roots": {}},
    }
    assert connect(ok)[0]._options.identity.info == {"name": "snodo_client", "version": __version__}


# -- what is sent


@pytest.mark.parametrize(
    ("call", "method", "params"),
    [
        (lambda c: c.discover(), "server/discover", {}),
        (lambda c: c.list_tools(), "tools/list", {}),
        (lambda c: c.list_resources(), "resources/list", {}),
        (lambda c: c.list_resource_templates(), "resources/templates/list", {}),
        (lambda c: c.list_prompts(), "prompts/list", {}),
        (lambda c: c.list_page("prompts", ""), "prompts/list", {"cursor": ""}),
        (lambda c: c.call_tool("t"), "tools/call", {"name": "t", "arguments": {}}),
        (lambda c: c.call_tool({"name": "t", "title": "T"}, {"a": 1}), "tools/call", {"name": "t",
        "arguments": {"a": 1}}),
        (lambda c: c.read_resource("a:b"), "resources/read", {"uri": "a:b"}),
        (lambda c: c.get_prompt("p"), "prompts/get", {"name": "p"}),
        (lambda c: c.get_prompt("p", {"a": "b"}), "prompts/get", {"name": "p", "arguments": {"a": "b"}}),
        (
            lambda c: c.complete("p", {"name": "a", "value": "b"}),
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "b"}},
        ),
        (lambda c: c.request("com.example/x"), "com.example/x", {}),
        (lambda c: c.request("com.example/x", {"a": None}), "com.example/x", {"a": None}),
        (
            lambda c: c.call_tool("t", input_responses={"a": {"action": "decline"}}, request_state="s"),
            "tools/call",
            {"name": "t", "arguments": {}, "inputResponses": {"a": {"action": "decline"}}, "requestState": "s"},
        ),
        (lambda c: c.read_resource("a:b", request_state=""), "resources/read", {"uri": "a:b", "requestState": ""}),
        (lambda c: c.get_prompt("p", input_responses=None, request_state=None), "prompts/get", {"name": "p"}),
        (lambda c: c.request("x/y", {"a": 1}, request_state="s"), "x/y", {"a": 1, "requestState": "s"}),
        (lambda c: c.request("x/y", None, request_state="s"), "x/y", {"requestState": "s"}),
        (lambda c: c.request("x/y", input_responses={"a": {}}), "x/y", {"inputResponses": {"a": {}}}),
    ],
)  # fmt: skip
def test_requests(call: Any, method: str, params: dict[str, Any]) -> None:
    client, transport = connect(ok)
    assert isinstance(call(client), Ok)
    (sent,) = transport.requests
    sent["params"].pop("_meta")
    assert (sent["method"], sent["params"]) == (method, params)


def test_what_the_caller_gave_is_not_changed() -> None:
    client, _ = connect(ok)
    params: dict[str, Any] = {"a": 1}
    client.request("x/y", params, input_responses={"b": {}}, request_state="s")
    assert params == {"a": 1}


def test_meta_and_log_level_reach_the_request() -> None:
    client, transport = connect(ok)
    client.call_tool("t", meta={"com.example/a": 1, "progressToken": "mine"}, log_level="debug")
    meta = transport.requests[0]["params"]["_meta"]
    assert meta["com.example/a"] == 1
    assert meta["progressToken"] == "mine"
    assert meta["io.modelcontextprotocol/logLevel"] == "debug"


@pytest.mark.parametrize("wanted", [{"reset_timeout_on_progress": True}, {"progress": print}])
def test_the_callers_progress_token_and_ours_exclude_each_other(wanted: dict[str, Any]) -> None:
    client, transport = connect(ok, protocol="2026-07-28")
    with pytest.raises(ValueError, match="progressToken"):
        client.call_tool("t", meta={"progressToken": "mine"}, **wanted)
    assert transport.requests == []


def test_notifications() -> None:
    client, transport = connect(ok)
    assert client.notify("notifications/x", {"a": 1}) == Ok({})
    assert client.notify("notifications/y") == Ok({})
    assert [transport.sent.get_nowait() for _ in range(2)] == [
        {"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": 1}},
        {"jsonrpc": "2.0", "method": "notifications/y"},
    ]
    assert transport.requests == []


def test_manual_input_rounds_echo_the_state() -> None:
    state = 'o"\\u0041\u2028é'

    def script(call: Call) -> list[Message]:
        if call.request.params.get("requestState") == state:
            return [result(call, content=call.request.params["inputResponses"])]
        return [
            result(call, resultType="input_required", requestState=state, inputRequests={"a": {"method": "roots/list"}})
        ]

    client, transport = connect(script)
    asked = client.call_tool("t", {"x": 1})
    assert isinstance(asked, InputRequired)
    done = client.call_tool("t", {"x": 1}, input_responses={"a": {"roots": []}}, request_state=asked.request_state)
    assert done.unwrap()["content"] == {"a": {"roots": []}}
    assert transport.requests[0]["id"] != transport.requests[1]["id"]


# -- lists


def paged(pages: list[Any], seconds: float = 0.0, kind: str = "tools") -> Any:
    """A list in pages; the cursor is the number of the page."""

    def script(call: Call) -> Iterator[Message]:
        busy(call, seconds)
        number = int(call.request.params.get("cursor", 0))
        more = {"nextCursor": str(number + 1)} if number + 1 < len(pages) else {}
        yield result(call, **{kind: pages[number]}, **more)

    return script


def test_lists_follow_every_page() -> None:
    client, transport = connect(paged([[{"name": "a"}], [], [{"name": "b"}, {"name": "c"}]]))
    assert client.list_tools() == Ok([{"name": "a"}, {"name": "b"}, {"name": "c"}])
    assert [request["params"].get("cursor") for request in transport.requests] == [None, "1", "2"]


def test_an_empty_cursor_is_followed() -> None:
    client, _ = connect(
        lambda call: [
            result(call, tools=[{"name": "b"}])
            if "cursor" in call.request.params
            else result(call, tools=[{"name": "a"}], nextCursor="")
        ]
    )
    assert client.list_tools() == Ok([{"name": "a"}, {"name": "b"}])


def test_one_deadline_holds_over_all_pages() -> None:
    client, transport = connect(paged([[]] * 100, 0.2))
    start = monotonic()
    outcome = client.list_tools(timeout=0.5)
    assert 0.5 <= monotonic() - start < 2.5
    assert (reason(outcome), len(transport.requests)) == ("timeout", 3)


def test_one_deadline_holds_over_a_refusal_the_list_and_the_second_try() -> None:
    def script(call: Call) -> Iterator[Message]:
        busy(call, 0.2)
        if call.request.method == "tools/list":
            schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
            yield result(call, tools=[{"name": "t", "inputSchema": schema}])
        else:
            yield error(call, -32020)

    client, transport = connect(script, MIRRORS)
    start = monotonic()
    outcome = client.call_tool("t", {"a": "b"}, timeout=0.5)
    assert 0.5 <= monotonic() - start < 2.5
    assert reason(outcome) == "timeout"
    assert [request["method"] for request in transport.requests] == ["tools/call", "tools/list", "tools/call"]


def test_progress_may_keep_a_list_alive_to_its_total() -> None:
    def script(call: Call) -> Iterator[Message]:
        busy(call, 0.2)
        yield progress(call, 1)
        yield from paged([[]] * 100, 0.2)(call)

    client, _ = connect(script)
    start = monotonic()
    outcome = client.list_tools(timeout=0.8, reset_timeout_on_progress=True, max_total_timeout=1)
    assert 1 <= monotonic() - start < 3
    assert reason(outcome) == "max_total_timeout"


def test_max_pages_and_repeated_cursors() -> None:
    client, transport = connect(paged([[{"name": "a"}]] * 5), max_pages=2)
    assert reason(client.list_tools()) == "max_pages"
    assert len(transport.requests) == 2
    client, _ = connect(lambda call: [result(call, tools=[], nextCursor="same")])
    assert reason(client.list_tools()) == "repeated_cursor"


def test_a_failure_on_any_page_fails_the_list() -> None:
    client, _ = connect(
        lambda call: (
            [error(call, -32602)] if "cursor" in call.request.params else [result(call, tools=[], nextCursor="1")]
        )
    )
    outcome = client.list_tools()
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.reason) == (-32602, None)


@pytest.mark.parametrize("members", [{}, {"tools": None}, {"tools": {}}, {"tools": [], "nextCursor": 5},
    {"tools": [], "nextCursor": True},
                                     {"tools": [], "resultType": "input_required", "requestState": "s"}])  # fmt: skip
def test_a_malformed_page_is_an_error(members: dict[str, Any]) -> None:
    client, _ = connect(lambda call: [result(call, **members)])
    assert reason(client.list_tools()) == "invalid_result"
    assert reason(client.list_page("tools")) == "invalid_result"


def test_one_page() -> None:
    client, _ = connect(paged([[{"name": "a"}, 5], []], kind="prompts"))
    outcome = client.list_page("prompts")
    assert isinstance(outcome, Ok)
    page = outcome.value
    assert isinstance(page, Page)
    assert (page.items, page.next_cursor, page.result["prompts"]) == ([{"name": "a"}], "1", [{"name": "a"}, 5])


# -- mirrored arguments

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
BAD = {"name": "bad", "inputSchema": {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}}


def mirroring(call: Call) -> list[Message]:
    if call.request.method == "tools/list":
        return [result(call, tools=[{"name": "t", "inputSchema": SCHEMA}, BAD])]
    return [result(call)] if "Mcp-Param-A" in call.request.headers() else [error(call, -32020)]


def test_definitions_from_a_list_are_remembered() -> None:
    client, transport = connect(mirroring, MIRRORS)
    client.list_tools()
    assert isinstance(client.call_tool("t", {"a": "b"}), Ok)
    assert [request["method"] for request in transport.requests] == ["tools/list", "tools/call"]


def test_a_call_by_name_learns_the_definition_once() -> None:
    client, transport = connect(mirroring, MIRRORS)
    for _ in range(2):
        assert isinstance(client.call_tool("t", {"a": "b"}), Ok)
    assert [request["method"] for request in transport.requests] == [
        "tools/call",
        "tools/list",
        "tools/call",
        "tools/call",
    ]


def test_a_definition_spares_the_list() -> None:
    client, transport = connect(mirroring, MIRRORS)
    assert isinstance(client.call_tool({"name": "t", "inputSchema": SCHEMA}, {"a": "b"}), Ok)
    with pytest.raises(ValueError, match="bad"):
        client.call_tool(BAD)
    with pytest.raises(ValueError, match="'a'"):
        client.call_tool({"name": "t", "inputSchema": SCHEMA}, {"a": 5})
    assert len(transport.requests) == 1


def test_invalid_tools_are_left_out_only_where_arguments_are_mirrored() -> None:
    for traits, expected in ((MIRRORS, ["t"]), (None, ["t", "bad"])):
        client, _ = connect(mirroring, traits)
        assert [tool["name"] for tool in client.list_tools().unwrap()] == expected
        page = client.list_page("tools").unwrap()
        assert [tool["name"] for tool in page.items] == expected
        assert len(page.result["tools"]) == 2


@pytest.mark.parametrize("params", [{}, None, {"name": 5}, {"name": []}, {"name": {}}])
def test_a_raw_tool_call_without_a_name_is_the_servers_to_refuse(params: Any) -> None:
    client, _ = connect(lambda call: [error(call, -32602)], MIRRORS)
    outcome = client.request("tools/call", params)
    assert isinstance(outcome, McpError)
    assert outcome.code == -32602


# -- the end


def test_closing_is_idempotent_and_from_any_thread() -> None:
    client, transport = connect(silent)
    outcomes: list[Any] = []
    caller = Thread(target=lambda: outcomes.append(client.call_tool("t")), daemon=True)
    caller.start()
    until(lambda: transport.requests)
    closers = [Thread(target=client.close, daemon=True) for _ in range(4)]
    for thread in closers:
        thread.start()
    for thread in (*closers, caller):
        thread.join(20)
    assert reason(outcomes[0]) == "closed"
    client.close()
    for outcome in (client.call_tool("t"), client.list_tools(), client.notify("notifications/x"), client.discover()):
        assert reason(outcome) == "closed"


def test_a_with_statement_closes_also_after_an_exception() -> None:
    client, transport = connect(ok)
    assert client.__enter__() is client
    with pytest.raises(ZeroDivisionError), client:
        raise ZeroDivisionError
    assert transport.closed.is_set()


def test_a_callback_may_close_the_client() -> None:
    def script(call: Call) -> Iterator[Message]:
        yield progress(call, 1)
        yield from silent(call)

    client, transport = connect(script)
    assert reason(client.call_tool("t", progress=lambda got: client.close())) == "closed"
    assert transport.closed.is_set()


def test_local_faults_show_no_secrets() -> None:
    client, _ = connect(lambda call: [result(call, resultType="s", content="s3cret")])
    outcome = client.call_tool("t", {"token": "s3cret"}, request_state="s3cret", meta={"a": "s3cret"})
    assert isinstance(outcome, McpError)
    assert "s3cret" not in f"{outcome!r} {outcome} {outcome.data} {outcome.cause}"
    silent_client, _ = connect(silent)
    late = silent_client.call_tool("t", {"token": "s3cret"}, request_state="s3cret", timeout=0.05)
    assert "s3cret" not in f"{late!r} {late} {late.data}"  # type: ignore[union-attr]


def test_an_interrupted_call_is_cancelled_and_the_client_goes_on() -> None:
    tests = Path(__file__).parent
    program = f"""
import signal, sys
sys.path[:0] = [{str(tests.parent)!r}, {str(tests)!r}]
from snodo_client import Client
from support.scripted_transport import NOTIFY, ScriptedTransport, result, silent
transport = ScriptedTransport(silent, NOTIFY)
client = Client.connect(transport, protocol="2026-07-28")
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    client.call_tool("slow", timeout=30)
except KeyboardInterrupt:
    print("interrupted")
print(transport.sent.get(timeout=10)["params"]["requestId"], len(client._session.pending))
transport.script = lambda call: [result(call)]
print(client.call_tool("quick").ok)
"""
    start = monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["interrupted", "1", "0", "True"], done.stderr
    assert monotonic() - start < 15


def test_an_error_made_here_can_be_told_from_one_the_server_sent() -> None:
    client, _ = connect(lambda call: [error(call, -32001, "timeout")])
    sent = client.call_tool("t")
    made = local_error("timeout")
    assert isinstance(sent, McpError)
    assert sent.code == made.code
    assert (sent.reason, made.reason) == (None, "timeout")


def test_a_cancelled_server_is_told_which_request() -> None:
    client, transport = connect(silent, NOTIFY)
    client.call_tool("t", timeout=0.05)
    until(lambda: not transport.sent.empty())
    assert transport.sent.get_nowait()["params"]["requestId"] == transport.requests[0]["id"]
