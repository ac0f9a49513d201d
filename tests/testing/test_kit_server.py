"""The scriptable server in process: dictionaries in, dictionaries out, each held to the official schema."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from snodo_client.testing import (
    Call,
    Fault,
    NeedInput,
    Raw,
    RpcError,
    Server,
    Structured,
    ToolError,
    audio,
    embedded,
    image,
    link,
    text,
)
from snodo_client.testing.demo import demo_server
from support.mcp_requests import META, Caller, meta, request, tool_call

FORM: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Sure?",
        "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}},
    },
}
YES = {"action": "accept", "content": {"ok": True}}


@pytest.fixture
def server() -> Server:
    return Server("kit", "2.0")


@pytest.fixture
def caller() -> Caller:
    return Caller()


def retry(first: dict[str, Any], result: dict[str, Any], responses: dict[str, Any], **members: Any) -> dict[str, Any]:
    params = {k: v for k, v in first["params"].items() if k not in ("_meta", "requestState", "inputResponses")}
    echoed = {"requestState": result["requestState"], "inputResponses": responses}
    return request(first["method"], {**params, **echoed}, **members)


# Discovery and the envelope


def test_discover_tells_what_is_registered(server: Server, caller: Caller) -> None:
    bare = caller.result(server, request("server/discover"))
    assert bare["capabilities"] == {"logging": {}}
    assert bare["supportedVersions"] == ["2026-07-28"]
    assert bare["_meta"][f"{META}serverInfo"] == {"name": "kit", "version": "2.0"}
    assert "instructions" not in bare

    full = caller.result(demo_server(), request("server/discover"))
    assert set(full["capabilities"]) == {"tools", "resources", "prompts", "completions", "logging"}
    assert full["instructions"]


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
def test_requests_without_their_metadata_are_refused(server: Server, caller: Caller, missing: str) -> None:
    message = request("server/discover")
    del message["params"]["_meta"][META + missing]
    assert caller.error(server, message)["code"] == -32602
    assert server.answer(message, caller).status == 400


@pytest.mark.parametrize("capabilities", [None, [], {"roots": True}])
def test_capabilities_are_objects(server: Server, caller: Caller, capabilities: Any) -> None:
    message = request("server/discover", {"_meta": {**meta(), f"{META}clientCapabilities": capabilities}})
    assert caller.error(server, message)["code"] == -32602


def test_another_version_is_refused_with_those_supported(server: Server, caller: Caller) -> None:
    message = request("server/discover", {"_meta": {**meta(), f"{META}protocolVersion": "2099-01-01"}})
    error = caller.error(server, message)
    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "2099-01-01"}


@pytest.mark.parametrize("method", ["initialize", "ping", "tools/list", "resources/read", "prompts/get", "no/such"])
def test_methods_the_server_does_not_have(server: Server, caller: Caller, method: str) -> None:
    assert caller.error(server, request(method))["code"] == -32601
    assert server.answer(request(method), caller).status == 404


@pytest.mark.parametrize(
    "message",
    [
        [],
        "x",
        {"jsonrpc": "1.0", "id": 1, "method": "m"},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": None, "method": "m"},
        {"jsonrpc": "2.0", "id": True, "method": "m"},
        {"jsonrpc": "2.0", "id": 1.0, "method": "m"},
        {"jsonrpc": "2.0", "id": 1, "method": "m", "params": []},
    ],
)
def test_what_is_no_request_is_refused(server: Server, caller: Caller, message: Any) -> None:
    reply = server.answer(message, caller)
    assert reply.status == 400
    assert reply.message is not None
    assert reply.message["error"]["code"] in (-32600, -32602)
    assert reply.message.get("id", 1) == 1


def test_notifications_have_no_answer(server: Server, caller: Caller) -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    assert server(message, caller) is None
    assert [call.method for call in server.calls] == ["notifications/cancelled"]


def test_everything_received_is_recorded_without_secrets_in_the_repr(server: Server, caller: Caller) -> None:
    message = request("server/discover", traceparent="secret")
    server(message, caller)
    assert server.calls[0].message == message
    assert server.calls[0].id == message["id"]
    assert "secret" not in repr(server.calls)


# Tools


def test_every_kind_of_return_value(server: Server, caller: Caller) -> None:
    values: list[tuple[Any, dict[str, Any]]] = [
        ("plain", {"content": [{"type": "text", "text": "plain"}]}),
        (None, {"content": []}),
        (text("t"), {"content": [{"type": "text", "text": "t"}]}),
        ([text("a"), "b"], {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        (
            Structured(None),
            {"content": [{"type": "text", "text": "null"}], "structuredContent": None},
        ),
        (
            Structured([1], "one"),
            {"content": [{"type": "text", "text": "one"}], "structuredContent": [1]},
        ),
        (
            {"type": "text", "é": 1},
            {
                "content": [{"type": "text", "text": '{"type": "text", "é": 1}'}],
                "structuredContent": {"type": "text", "é": 1},
            },
        ),
        (0, {"content": [{"type": "text", "text": "0"}], "structuredContent": 0}),
        ([], {"content": [{"type": "text", "text": "[]"}], "structuredContent": []}),
    ]
    for value, expected in values:
        server.tool(name="give")(lambda value=value: value)
        result = caller.result(server, tool_call("give"))
        assert {name: result[name] for name in result if name not in ("resultType", "_meta")} == expected


def test_every_kind_of_block_is_valid(server: Server, caller: Caller) -> None:
    blocks = [image(b"\x00"), audio(b"\x00"), embedded("x://a", "t"), embedded("x://b", b"\xff"), link("x://c", "c")]
    server.tool(name="blocks")(lambda: blocks)
    assert caller.result(server, tool_call("blocks"))["content"] == blocks


def test_a_text_of_a_tool_with_an_output_schema_is_structured(server: Server, caller: Caller) -> None:
    server.tool(name="word", output_schema={"type": "string"})(lambda: "w")
    assert caller.result(server, tool_call("word"))["structuredContent"] == "w"


def test_failures_are_results_of_the_tool(server: Server, caller: Caller) -> None:
    @server.tool
    def fails() -> str:
        raise ToolError("no luck", text("twice"))

    result = caller.result(server, tool_call("fails"))
    assert result["isError"] is True
    assert [block["text"] for block in result["content"]] == ["no luck", "twice"]


def test_a_bug_in_a_tool_is_a_failure_with_its_name(
    server: Server, caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    @server.tool
    def buggy() -> str:
        raise KeyError("nothing")

    result = caller.result(server, tool_call("buggy"))
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith("KeyError")
    assert "buggy" in caplog.text


def test_arguments_are_checked_before_the_tool_runs(server: Server, caller: Caller) -> None:
    ran: list[int] = []

    @server.tool
    def takes(number: int, word: str = "x") -> str:
        ran.append(number)
        return word

    for arguments in ({}, {"number": "1"}, {"number": True}, {"number": 1, "other": 2}, {"number": 1, "word": None}):
        assert caller.result(server, tool_call("takes", arguments))["isError"] is True
    assert ran == []
    assert caller.result(server, tool_call("takes", {"number": 1}))["content"][0]["text"] == "x"


def test_unknown_tools_and_malformed_arguments_are_errors(server: Server, caller: Caller) -> None:
    server.tool(name="known")(lambda: None)
    assert caller.error(server, tool_call("unknown"))["code"] == -32602
    assert caller.error(server, request("tools/call", {"name": "known", "arguments": []}))["code"] == -32602
    assert caller.error(server, request("tools/call", {"name": 5}))["code"] == -32602


def test_a_tool_may_answer_with_an_error_of_the_protocol(server: Server, caller: Caller) -> None:
    @server.tool
    def refuses() -> None:
        raise RpcError(1234, "Because", {"why": None}, status=418)

    assert caller.error(server, tool_call("refuses")) == {"code": 1234, "message": "Because", "data": {"why": None}}
    assert server.answer(tool_call("refuses"), caller).status == 418


def test_definitions_come_from_the_function(server: Server, caller: Caller) -> None:
    @server.tool(title="Sum", annotations={"readOnlyHint": True}, meta={"x/y": 1})
    def add(a: int, b: int = 2) -> int:
        """Add.

        Really.
        """
        return a + b

    listed = caller.result(server, request("tools/list"))["tools"]
    assert listed == [
        {
            "name": "add",
            "title": "Sum",
            "description": "Add.\n\nReally.",
            "annotations": {"readOnlyHint": True},
            "_meta": {"x/y": 1},
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
                "required": ["a"],
                "additionalProperties": False,
            },
            "outputSchema": {"type": "integer"},
        }
    ]


# Paging


def test_lists_have_pages_that_add_up(caller: Caller) -> None:
    server = Server(page_size=3)
    for number in range(8):
        server.tool(name=f"t{number}")(lambda: None)
    names: list[str] = []
    params: dict[str, Any] = {}
    for _ in range(3):
        page = caller.result(server, request("tools/list", params))
        names += [tool["name"] for tool in page["tools"]]
        params = {"cursor": page.get("nextCursor")}
    assert names == [f"t{number}" for number in range(8)]
    assert params == {"cursor": None}


@pytest.mark.parametrize("cursor", ["", "1", "-3", "9", "x", "²", 3, None])
def test_foreign_cursors_are_refused(caller: Caller, cursor: Any) -> None:
    server = Server(page_size=3)
    server.tool(name="t")(lambda: None)
    assert caller.error(server, request("tools/list", {"cursor": cursor}))["code"] == -32602


def test_a_page_needs_a_size() -> None:
    with pytest.raises(ValueError, match="page_size"):
        Server(page_size=0)


# Resources, prompts, completion


def test_resources_are_read_as_what_they_give(server: Server, caller: Caller) -> None:
    server.resource("x://text", mime_type="text/plain")(lambda: "t")
    server.resource("x://blob")(lambda: b"\xff")
    server.resource("x://as-is")(lambda: [{"uri": "x://other", "text": "o"}])
    read = {
        uri: caller.result(server, request("resources/read", {"uri": uri}))["contents"]
        for uri in ("x://text", "x://blob", "x://as-is")
    }
    assert read["x://text"] == [{"uri": "x://text", "mimeType": "text/plain", "text": "t"}]
    assert read["x://blob"] == [{"uri": "x://blob", "blob": "/w=="}]
    assert read["x://as-is"] == [{"uri": "x://other", "text": "o"}]


def test_templates_fill_in_decoded_parts(server: Server, caller: Caller) -> None:
    server.resource_template("x://a/{one}/b/{two}")(lambda one, two: f"{one}+{two}")
    result = caller.result(server, request("resources/read", {"uri": "x://a/%C3%A9/b/2"}))
    assert result["contents"][0]["text"] == "é+2"
    listed = caller.result(server, request("resources/templates/list"))["resourceTemplates"]
    assert [template["uriTemplate"] for template in listed] == ["x://a/{one}/b/{two}"]


def test_a_resource_that_does_not_exist_is_named(server: Server, caller: Caller) -> None:
    server.resource_template("x://{id}")(lambda id: id)
    error = caller.error(server, request("resources/read", {"uri": "x://a/b"}))
    assert (error["code"], error["data"]) == (-32602, {"uri": "x://a/b"})


def test_prompts_give_messages(server: Server, caller: Caller) -> None:
    @server.prompt
    def write(topic: str, style: str = "plain") -> list[Any]:
        """Write."""
        return [f"{topic} in {style}", image(b"\x00"), {"role": "assistant", "content": text("ok")}]

    assert caller.result(server, request("prompts/list"))["prompts"] == [
        {
            "name": "write",
            "description": "Write.",
            "arguments": [{"name": "topic", "required": True}, {"name": "style", "required": False}],
        }
    ]
    result = caller.result(server, request("prompts/get", {"name": "write", "arguments": {"topic": "rain"}}))
    assert [message["role"] for message in result["messages"]] == ["user", "user", "assistant"]
    assert result["messages"][0]["content"] == {"type": "text", "text": "rain in plain"}
    for arguments in ({}, {"topic": 1}, {"topic": "a", "other": "b"}):
        message = request("prompts/get", {"name": "write", "arguments": arguments})
        assert caller.error(server, message)["code"] == -32602


def test_completion_is_cut_at_a_hundred(caller: Caller) -> None:
    ref = {"type": "ref/resource", "uri": "demo://items/{id}"}
    message = request("completion/complete", {"ref": ref, "argument": {"name": "id", "value": ""}})
    completion = caller.result(demo_server(), message)["completion"]
    assert (len(completion["values"]), completion["total"], completion["hasMore"]) == (100, 150, True)


def test_completion_sees_the_arguments_already_chosen(server: Server, caller: Caller) -> None:
    server.prompt(name="p")(lambda a, b: "")
    server.completion("p", "b")(lambda value, chosen: [chosen["a"] + value])
    ref = {"type": "ref/prompt", "name": "p"}
    params = {"ref": ref, "argument": {"name": "b", "value": "!"}, "context": {"arguments": {"a": "x"}}}
    assert caller.result(server, request("completion/complete", params))["completion"]["values"] == ["x!"]
    params["argument"] = {"name": "a", "value": ""}
    assert caller.result(server, request("completion/complete", params))["completion"]["values"] == []
    params["ref"] = {"type": "ref/prompt", "name": "q"}
    assert caller.error(server, request("completion/complete", params))["code"] == -32602


# What a handler can do while it runs


def test_progress_only_for_those_who_asked(caller: Caller) -> None:
    server = demo_server()
    caller.result(server, tool_call("count", {"steps": 2}))
    assert caller.received == []
    caller.result(server, tool_call("count", {"steps": 2}, progressToken="t"))
    assert [message["params"] for message in caller.received] == [
        {"progressToken": "t", "progress": 1, "total": 2, "message": "step 1"},
        {"progressToken": "t", "progress": 2, "total": 2, "message": "step 2"},
    ]


@pytest.mark.parametrize(("level", "heard"), [("debug", 1), ("info", 1), ("notice", 0)])
def test_logs_only_from_the_level_asked_for(caller: Caller, level: str, heard: int) -> None:
    caller.result(demo_server(), tool_call("count", {"steps": 1}, **{f"{META}logLevel": level}))
    assert len(caller.received) == heard


def test_an_unknown_log_level_is_refused(caller: Caller) -> None:
    message = tool_call("count", {"steps": 1}, **{f"{META}logLevel": "loud"})
    assert caller.error(demo_server(), message)["code"] == -32602


def test_a_handler_learns_that_the_caller_gave_up(caller: Caller) -> None:
    server, results = demo_server(), []
    thread = threading.Thread(target=lambda: results.append(server(tool_call("sleep", {"seconds": 60}), caller)))
    thread.start()
    caller.cancelled = True
    thread.join(5)
    assert results[0]["result"]["content"][0]["text"] == "cancelled"


def test_the_principal_reaches_the_handler(server: Server, caller: Caller) -> None:
    @server.tool
    def who(call: Call) -> str:
        return str(call.auth)

    caller.auth = "alice"
    assert caller.result(server, tool_call("who"))["content"][0]["text"] == "alice"


# Input rounds


def test_answers_add_up_over_rounds(server: Server, caller: Caller) -> None:
    attempts = []

    @server.tool
    def ask(call: Call) -> str:
        attempts.append(call.attempt)
        first = call.ask("first", FORM)
        second = call.ask("second", FORM)
        return f"{first['action']} {second['action']}"

    able: dict[str, Any] = {"elicitation": {}}
    message = tool_call("ask", capabilities=able)
    one = caller.result(server, message)
    assert one["inputRequests"] == {"first": FORM}
    two = caller.result(server, retry(message, one, {"first": YES}, capabilities=able))
    assert two["inputRequests"] == {"second": FORM}
    three = caller.result(server, retry(message, two, {"second": {"action": "decline"}}, capabilities=able))
    assert three["content"][0]["text"] == "accept decline"
    assert attempts == [1, 2, 3]


def test_what_is_still_missing_is_asked_again(server: Server, caller: Caller) -> None:
    @server.tool
    def both(call: Call) -> str:
        return str(sorted(call.ask_all({"a": FORM, "b": FORM})))

    able: dict[str, Any] = {"elicitation": {"form": {}}}
    message = tool_call("both", capabilities=able)
    one = caller.result(server, message)
    assert set(one["inputRequests"]) == {"a", "b"}
    two = caller.result(server, retry(message, one, {"a": YES, "foreign": YES}, capabilities=able))
    assert set(two["inputRequests"]) == {"b"}


def test_a_round_with_a_state_alone(server: Server, caller: Caller) -> None:
    @server.tool
    def busy(call: Call) -> str:
        if call.attempt < 3:
            raise NeedInput({})
        return "done"

    message = tool_call("busy")
    result = caller.result(server, message)
    assert "inputRequests" not in result
    result = caller.result(server, retry(message, result, {}))
    assert caller.result(server, retry(message, result, {}))["content"][0]["text"] == "done"


@pytest.mark.parametrize(
    ("asked", "declared", "required"),
    [
        (FORM, {}, {"elicitation": {"form": {}}}),
        (FORM, {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        (
            {"method": "elicitation/create", "params": {"mode": "url"}},
            {"elicitation": {}},
            {"elicitation": {"url": {}}},
        ),
        ({"method": "roots/list"}, {"sampling": {}}, {"roots": {}}),
        (
            {"method": "sampling/createMessage", "params": {"tools": []}},
            {"sampling": {}},
            {"sampling": {"tools": {}}},
        ),
    ],
)
def test_asking_for_what_the_client_cannot_give(
    server: Server, caller: Caller, asked: dict[str, Any], declared: dict[str, Any], required: dict[str, Any]
) -> None:
    @server.tool
    def ask(call: Call) -> None:
        call.ask("k", asked)

    error = caller.error(server, tool_call("ask", capabilities=declared))
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": required})


def test_prompts_and_resources_can_ask_too(server: Server, caller: Caller) -> None:
    @server.prompt
    def prompt(call: Call) -> str:
        return str(call.ask("k", FORM)["action"])

    @server.resource("x://r")
    def resource(call: Call) -> str:
        return str(call.ask("k", FORM)["action"])

    able: dict[str, Any] = {"elicitation": {}}
    for first in (
        request("prompts/get", {"name": "prompt"}, capabilities=able),
        request("resources/read", {"uri": "x://r"}, capabilities=able),
    ):
        result = caller.result(server, first)
        assert "accept" in str(caller.result(server, retry(first, result, {"k": YES}, capabilities=able)))


@pytest.mark.parametrize(
    "tamper", ["suffix", "flip", "text", "number", "other tool", "other principal", "other server"]
)
def test_a_state_is_good_for_its_own_request_only(server: Server, caller: Caller, tamper: str) -> None:
    def ask(call: Call) -> str:
        return str(call.ask("k", FORM))

    server.tool(name="one")(ask)
    server.tool(name="two")(ask)
    able: dict[str, Any] = {"elicitation": {}}
    message = tool_call("one", capabilities=able)
    result = caller.result(server, message)
    again = retry(message, result, {"k": YES}, capabilities=able)
    params, state = again["params"], result["requestState"]
    target = server
    if tamper == "suffix":
        params["requestState"] = state + "A"
    elif tamper == "flip":
        params["requestState"] = ("B" if state[0] == "A" else "A") + state[1:]
    elif tamper == "text":
        params["requestState"] = "é"
    elif tamper == "number":
        params["requestState"] = 5
    elif tamper == "other tool":
        params["name"] = "two"
    elif tamper == "other principal":
        caller.auth = "mallory"
    else:
        target = Server()
        target.tool(name="one")(ask)
    assert caller.error(target, again)["code"] == -32602


@pytest.mark.parametrize("responses", [None, [], "x", {"k": 5}, {"k": None}])
def test_malformed_answers_are_refused(server: Server, caller: Caller, responses: Any) -> None:
    server.tool(name="t")(lambda: None)
    message = request("tools/call", {"name": "t", "inputResponses": responses})
    assert caller.error(server, message)["code"] == -32602


# Scripting


def test_an_override_is_sent_as_it_is(server: Server, caller: Caller) -> None:
    server.tool(name="t")(lambda: None)
    seen = []

    @server.on("tools/list")
    def lists(message: dict[str, Any], context: Any) -> dict[str, Any]:
        seen.append(message["params"].get("cursor"))
        return {"tools": [], "nextCursor": ""}

    assert server(request("tools/list", {"cursor": ""}), caller)["result"] == {"tools": [], "nextCursor": ""}
    assert seen == [""]
    assert server({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, caller)["error"]["code"] == -32602


def test_an_override_can_give_a_whole_response_or_bytes(server: Server, caller: Caller) -> None:
    response = {"jsonrpc": "2.0", "id": "other", "result": 5}
    server.on("a", check=False)(lambda message, context: response)
    server.on("b", check=False)(lambda message, context: Raw(b"bytes", status=503))
    assert server({"jsonrpc": "2.0", "id": 1, "method": "a"}, caller) == response
    assert server({"jsonrpc": "2.0", "id": 1, "method": "b"}, caller) == b"bytes"


def test_faults_are_combined_counted_and_healed(server: Server, caller: Caller) -> None:
    ran = []
    server.tool(name="t")(lambda: ran.append(1))
    server.fault("tools/call", Fault.error(-1, "no", [1]), Fault.wrong_id("x"), times=2)
    for _ in range(2):
        response = server(tool_call("t"), caller)
        assert response == {"jsonrpc": "2.0", "id": "x", "error": {"code": -1, "message": "no", "data": [1]}}
    assert ran == []
    caller.result(server, tool_call("t"))
    server.fault("tools/call", Fault.drop())
    assert server(tool_call("t"), caller) is None
    server.heal()
    caller.result(server, tool_call("t"))
    assert ran == [1, 1, 1]


def test_the_other_faults_in_process(server: Server, caller: Caller) -> None:
    server.fault("server/discover", Fault.delay(0.05), Fault.garbage(b"junk"), times=1)
    start = time.monotonic()
    assert server(request("server/discover"), caller) == b"junk"
    assert time.monotonic() - start >= 0.05
    server.fault("server/discover", Fault.crash(3))
    assert server(request("server/discover"), caller) is None


def test_a_bug_in_an_override_is_an_internal_error(
    server: Server, caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    server.on("server/discover")(lambda message, context: 1 / 0)
    assert caller.error(server, request("server/discover"))["code"] == -32603
    assert "server/discover" in caplog.text


# Subscriptions


def listening(server: Server, caller: Caller, message: dict[str, Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(caller.call(server, message)))
    thread.start()
    until(lambda: caller.received or results)
    return thread, results


def until(condition: Any) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_listeners_hear_what_they_asked_for_and_an_end(caller: Caller) -> None:
    server = demo_server()
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["demo://readme"], "promptsListChanged": False}
    message = request("subscriptions/listen", {"notifications": {**wanted, "unknown": True}})
    thread, results = listening(server, caller, message)
    assert server.emit("notifications/prompts/list_changed") == 0
    assert server.emit("notifications/resources/updated", {"uri": "demo://other"}) == 0
    assert server.emit("notifications/resources/updated", {"uri": "demo://readme"}) == 1
    assert server.emit("notifications/tools/list_changed") == 1
    until(lambda: len(caller.received) == 3)
    server.subscriptions.end()
    thread.join(5)
    acknowledged, updated, changed = caller.received
    assert acknowledged["params"]["notifications"] == {
        "toolsListChanged": True,
        "resourceSubscriptions": ["demo://readme"],
    }
    assert updated["params"]["uri"] == "demo://readme"
    assert changed["method"] == "notifications/tools/list_changed"
    tags = {m["params"]["_meta"][f"{META}subscriptionId"] for m in caller.received}
    assert tags == {message["id"]}
    assert results[0]["result"]["_meta"][f"{META}subscriptionId"] == message["id"]
    assert len(server.subscriptions) == 0


def test_a_listener_that_leaves_is_forgotten(caller: Caller) -> None:
    server = demo_server()
    thread, _ = listening(server, caller, request("subscriptions/listen", {"notifications": {}}))
    assert len(server.subscriptions) == 1
    caller.cancelled = True
    thread.join(5)
    assert len(server.subscriptions) == 0


@pytest.mark.parametrize("notifications", [None, [], {"resourceSubscriptions": "x"}, {"resourceSubscriptions": [1]}])
def test_malformed_filters_are_refused(caller: Caller, notifications: Any) -> None:
    message = request("subscriptions/listen", {"notifications": notifications})
    assert caller.error(demo_server(), message)["code"] == -32602


def test_only_change_notifications_can_be_emitted(server: Server) -> None:
    with pytest.raises(ValueError, match="progress"):
        server.emit("notifications/progress")


# Many callers


def test_many_threads_get_their_own_answers() -> None:
    server, wrong = demo_server(), []

    def work(base: int) -> None:
        caller = Caller()
        for number in range(base, base + 50):
            message = tool_call("add", {"a": number, "b": base})
            if caller.result(server, message)["structuredContent"] != number + base:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(base,)) for base in range(0, 800, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(server.calls) == 400
