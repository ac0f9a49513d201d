"""The scriptable server and clients of the older revisions: the handshake, and the methods that were always there."""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client.testing import Call, Fault, Raw, RpcError, Server, Session, Structured, audio, link, text
from snodo_client.testing.demo import demo_server
from support.legacy_peer import VERSIONS, LegacyPeer
from support.mcp_requests import Caller, request, tool_call

INFO = {"name": "tests", "version": "1"}
FORM: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}},
}


@pytest.fixture
def server() -> Server:
    return Server("kit", "2.0", instructions="Be kind.")


# The handshake


@pytest.mark.parametrize("version", VERSIONS)
def test_the_version_of_the_client_is_agreed_on(server: Server, version: str) -> None:
    peer = LegacyPeer(server, version, {"roots": {}})
    assert peer.told == {
        "protocolVersion": version,
        "capabilities": {"logging": {}},
        "serverInfo": {"name": "kit", "version": "2.0"},
        "instructions": "Be kind.",
    }
    assert (peer.session.version, peer.session.initialized) == (version, True)
    assert (peer.session.client_info, peer.session.client_capabilities) == (INFO, {"roots": {}})
    assert server.sessions == [peer.session]


@pytest.mark.parametrize("wanted", ["2099-01-01", "2026-07-28", "2024-10-07", ""])
def test_an_unknown_version_gets_the_newest_older_one(wanted: str) -> None:
    peer = LegacyPeer(Server(versions=["2026-07-28", "2025-03-26", "2025-06-18"]), "2025-06-18", handshake=False)
    params = {"protocolVersion": wanted, "capabilities": {}, "clientInfo": INFO}
    assert peer.result("initialize", params)["protocolVersion"] == "2025-06-18"


def test_a_server_without_older_versions_refuses_the_handshake_and_names_its_own() -> None:
    peer = LegacyPeer(Server(versions=["2026-07-28"]), handshake=False)
    error = peer.error("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO})
    assert error["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}
    assert peer.session.version is None


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"protocolVersion": 1, "capabilities": {}, "clientInfo": INFO},
        {"protocolVersion": "2025-11-25", "clientInfo": INFO},
        {"protocolVersion": "2025-11-25", "capabilities": {"roots": True}, "clientInfo": INFO},
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x"}},
    ],
)
def test_a_malformed_handshake_is_refused_and_can_be_tried_again(server: Server, params: dict[str, Any]) -> None:
    peer = LegacyPeer(server, handshake=False)
    assert peer.error("initialize", params)["code"] == -32602
    assert server.sessions == []
    assert peer.initialize()["protocolVersion"] == "2025-11-25"


def test_requests_have_to_wait_for_the_handshake(server: Server) -> None:
    server.versions = ["2025-11-25"]
    server.tool(name="t")(lambda: None)
    peer = LegacyPeer(server, handshake=False)
    assert peer.result("ping") == {}
    assert peer.error("tools/list")["code"] == -32600
    peer.initialize()
    assert peer.result("ping") == {}
    assert peer.error("tools/list")["code"] == -32600
    peer.notify("notifications/initialized")
    assert len(peer.result("tools/list")["tools"]) == 1
    assert peer.error("initialize", {"protocolVersion": "", "capabilities": {}, "clientInfo": INFO})["code"] == -32600


def test_initialized_means_nothing_before_the_handshake(server: Server) -> None:
    peer = LegacyPeer(server, handshake=False)
    peer.notify("notifications/initialized")
    peer.initialize()
    assert not peer.session.initialized


def test_an_old_server_does_not_know_discover_unless_it_is_scripted() -> None:
    server = Server(versions=["2025-11-25"])
    peer = LegacyPeer(server, handshake=False)
    assert peer.exchange(request("server/discover"))["error"]["code"] == -32601
    assert server.answer(request("server/discover"), peer).message["error"]["code"] == -32601  # type: ignore[index, call-overload]
    assert peer.exchange(tool_call("t"))["error"]["code"] == -32600
    assert server(tool_call("t"), peer)["error"]["code"] == -32600
    server.on("server/discover", check=False)(lambda message, context: Raw(b"junk"))
    reply = peer.session.answer(request("server/discover"), peer)
    assert reply.payload() == b"junk"


def test_one_connection_speaks_the_new_revision_until_it_initializes() -> None:
    server = demo_server()
    peer, caller = LegacyPeer(server, handshake=False), Caller()
    asked = tool_call("add", {"a": 1, "b": 2})
    assert caller.result(lambda message, context: peer.session.answer(message, context).message, asked)["resultType"]
    peer.initialize()
    peer.notify("notifications/initialized")
    assert peer.exchange(tool_call("add", {"a": 1, "b": 2}))["error"]["code"] == -32600
    assert peer.call("add", {"a": 1, "b": 2})["content"][0]["text"] == "3"


def test_a_session_without_a_handshake() -> None:
    server = demo_server()
    peer = LegacyPeer(server, "2025-06-18", handshake=False)
    peer.session = Session(server, None, version="2025-06-18")
    assert peer.call("echo", {"message": "m"})["content"][0]["text"] == "m"
    assert server.sessions == []
    assert peer.error("tools/call", {"name": "deploy"})["code"] == -32602
    peer.session.client_capabilities = {"elicitation": {}}
    assert peer.error("tools/call", {"name": "deploy"})["code"] == -32603
    with pytest.raises(ConnectionError):
        peer.session.request("ping")
    assert peer.asked == []


def test_the_end_of_a_session_takes_it_off_the_list(server: Server) -> None:
    one, two = LegacyPeer(server), LegacyPeer(server)
    one.session.end()
    one.session.end()
    assert server.sessions == [two.session]
    assert server.emit("notifications/tools/list_changed") == 0


# What a revision does not have


def everything() -> Server:
    server = Server()
    blocks = [text("t", _meta={"x/y": 1}), audio(b"\x00"), link("x://l", "l")]

    @server.tool(
        name="t", title="T", annotations={"readOnlyHint": True}, meta={"x/y": 1}, output_schema={"type": "object"}
    )
    def tool() -> Structured:
        return Structured({"a": 1}, *blocks)

    server.tool(name="n")(lambda: Structured(5))
    server.prompt(name="p", title="P", meta={"x/y": 1})(lambda: blocks)
    server.resource("x://r", title="R", name="r")(lambda: "r")
    server.completion("p", "a")(lambda value: [])
    return server


@pytest.mark.parametrize(
    ("version", "members", "blocks", "capabilities"),
    [
        (
            "2025-11-25",
            {"title", "annotations", "_meta", "outputSchema"},
            ["text", "audio", "resource_link"],
            {"completions"},
        ),
        (
            "2025-06-18",
            {"title", "annotations", "_meta", "outputSchema"},
            ["text", "audio", "resource_link"],
            {"completions"},
        ),
        ("2025-03-26", {"annotations"}, ["text", "audio"], {"completions"}),
        ("2024-11-05", set(), ["text"], set()),
    ],
)
def test_what_a_revision_does_not_have_is_left_out(
    version: str, members: set[str], blocks: list[str], capabilities: set[str]
) -> None:
    peer = LegacyPeer(everything(), version)
    assert peer.told["capabilities"].keys() == {"tools", "prompts", "resources", "logging"} | capabilities
    tool, other = peer.result("tools/list")["tools"]
    assert tool.keys() == {"name", "inputSchema"} | members
    assert "outputSchema" not in other
    assert ("title" in peer.result("prompts/list")["prompts"][0]) == ("title" in members)
    assert ("title" in peer.result("resources/list")["resources"][0]) == ("title" in members)
    result = peer.call("t")
    assert [block["type"] for block in result["content"]] == blocks
    assert ("_meta" in result["content"][0]) == (version >= "2025-06-18")
    assert ("structuredContent" in result) == (version >= "2025-06-18")
    assert peer.call("n") == {"content": [{"type": "text", "text": "5"}]}
    messages = peer.result("prompts/get", {"name": "p"})["messages"]
    assert [message["content"]["type"] for message in messages] == blocks


def test_the_registered_definitions_stay_as_they_are() -> None:
    server = everything()
    LegacyPeer(server, "2024-11-05").result("tools/list")
    assert {"title", "annotations", "_meta", "outputSchema"} < server.tools["t"].definition.keys()


# The methods


@pytest.mark.parametrize("version", VERSIONS)
def test_the_demo_answers_alike_in_every_revision(version: str) -> None:
    peer = LegacyPeer(demo_server(), version)
    names: list[str] = []
    params: dict[str, Any] = {}
    while True:
        page = peer.result("tools/list", params)
        names += [tool["name"] for tool in page["tools"]]
        if "nextCursor" not in page:
            break
        params = {"cursor": page["nextCursor"]}
    assert {"add", "deploy", "research", "sign_up", "roots", "poem", "announce", "write_note"} <= set(names)
    assert peer.call("add", {"a": 2, "b": 3})["content"] == [{"type": "text", "text": "5"}]
    assert peer.call("fail")["isError"] is True
    assert peer.result("resources/templates/list")["resourceTemplates"][0]["uriTemplate"] == "demo://items/{id}"
    assert peer.result("resources/read", {"uri": "demo://items/7"})["contents"][0]["text"] == "This is item 7."
    assert peer.result("resources/read", {"uri": "demo://pixel.png"})["contents"][0]["blob"]
    assert len(peer.result("prompts/get", {"name": "review", "arguments": {"code": "x"}})["messages"]) == 2
    ref, argument = {"type": "ref/prompt", "name": "greet"}, {"name": "style", "value": "p"}
    completion = peer.result("completion/complete", {"ref": ref, "argument": argument})["completion"]
    assert completion["values"] == ["pirate", "plain"]


def test_an_unknown_resource_has_its_own_code(server: Server) -> None:
    server.resource("x://r")(lambda: "")
    peer = LegacyPeer(server)
    for method in ("resources/read", "resources/subscribe"):
        error = peer.error(method, {"uri": "x://other"})
        assert (error["code"], error["data"]) == (-32002, {"uri": "x://other"})


@pytest.mark.parametrize(
    "method", ["server/discover", "subscriptions/listen", "tools/list", "resources/subscribe", "tasks/list", "no/such"]
)
def test_methods_it_does_not_have(server: Server, method: str) -> None:
    peer = LegacyPeer(server)
    assert peer.error(method)["code"] == -32601
    assert peer.session.answer(peer.message(method), peer).status == 200


def test_statuses_of_errors_are_those_that_were_given(server: Server) -> None:
    @server.tool
    def refuses() -> None:
        raise RpcError(-32601, "no", status=418)

    peer = LegacyPeer(server)
    call = {"name": "refuses"}
    assert peer.session.answer(peer.message("tools/call", call), peer).status == 418
    server.fault("tools/call", Fault.error(-32601, "scripted"), times=1)
    assert peer.session.answer(peer.message("tools/call", call), peer).status == 200
    server.fault("tools/call", Fault.error(-32601, "scripted", status=503), times=1)
    assert peer.session.answer(peer.message("tools/call", call), peer).status == 503


def test_overrides_and_faults_work_as_always(server: Server) -> None:
    server.tool(name="t")(lambda: None)
    peer = LegacyPeer(server)
    server.on("tools/list")(lambda message, context: {"tools": [], "nextCursor": ""})
    assert peer.result("tools/list") == {"tools": [], "nextCursor": ""}
    server.fault("tools/call", Fault.wrong_id("other"), times=1)
    assert peer.exchange(peer.message("tools/call", {"name": "t"}))["id"] == "other"
    server.fault("tools/call", Fault.drop(), times=1)
    assert peer.session.answer(peer.message("tools/call", {"name": "t"}), peer).dropped
    assert [call.method for call in server.calls][:2] == ["initialize", "notifications/initialized"]


# Logging, progress, changes


def test_log_messages_from_the_level_that_was_set() -> None:
    peer = LegacyPeer(demo_server())
    peer.call("announce", {"message": "all"})
    assert len(peer.heard("notifications/message")) == 8
    peer.received.clear()
    assert peer.result("logging/setLevel", {"level": "error"}) == {}
    peer.call("announce", {"message": "few"})
    levels = [params["level"] for params in peer.heard("notifications/message")]
    assert levels == ["error", "critical", "alert", "emergency"]
    assert peer.error("logging/setLevel", {"level": "loud"})["code"] == -32602
    assert peer.session.log_level == "error"


@pytest.mark.parametrize("version", VERSIONS)
def test_progress_for_those_who_asked(version: str) -> None:
    peer = LegacyPeer(demo_server(), version)
    peer.result("tools/call", {"name": "count", "arguments": {"steps": 2}}, progressToken="t")
    steps = peer.heard("notifications/progress")
    assert [step["progress"] for step in steps] == [1, 2]
    assert ("message" in steps[0]) == (version >= "2025-03-26")
    peer.received.clear()
    peer.call("count", {"steps": 2})
    assert peer.heard("notifications/progress") == []


def test_a_subscription_hears_of_its_resource_until_it_ends() -> None:
    server = demo_server()
    peer, other = LegacyPeer(server), LegacyPeer(server)
    assert peer.result("resources/subscribe", {"uri": "demo://notes/1"}) == {}
    peer.call("write_note", {"number": 1, "text": "new"})
    peer.call("write_note", {"number": 2, "text": "new"})
    assert peer.heard("notifications/resources/updated") == [{"uri": "demo://notes/1"}]
    assert peer.result("resources/read", {"uri": "demo://notes/1"})["contents"][0]["text"] == "new"
    assert peer.result("resources/unsubscribe", {"uri": "demo://notes/1"}) == {}
    peer.call("write_note", {"number": 1, "text": "newer"})
    assert len(peer.received) == 1
    assert other.received == []
    assert peer.error("resources/subscribe", {})["code"] == -32602


def test_changes_of_lists_are_told_to_every_initialized_session() -> None:
    server = demo_server()
    peers = [LegacyPeer(server), LegacyPeer(server, "2024-11-05")]
    early = LegacyPeer(server, handshake=False)
    early.initialize()
    assert server.emit("notifications/tools/list_changed") == 2
    for peer in peers:
        assert peer.received == [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
    assert early.received == []
    server = Server(capabilities={"tools": {}, "resources": {}})
    quiet = LegacyPeer(server)
    assert server.emit("notifications/tools/list_changed") == 0
    assert quiet.error("resources/subscribe", {"uri": "x://r"})["code"] == -32601


# Batches


def test_a_batch_has_one_reply_with_all_responses() -> None:
    peer = LegacyPeer(demo_server(), "2025-03-26")
    one, two = peer.message("ping"), peer.message("no/such")
    note = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    responses = peer.exchange([one, note, two, 5])
    assert [response.get("id") for response in responses] == [one["id"], two["id"], None]
    assert [response["error"]["code"] for response in responses[1:]] == [-32601, -32600]
    reply = peer.session.answer([note], peer)
    assert (reply.message, reply.status) == (None, 202)
    assert peer.exchange([])["error"]["code"] == -32600


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2024-11-05"])
def test_other_revisions_have_no_batches(version: str) -> None:
    peer = LegacyPeer(demo_server(), version)
    assert peer.exchange([peer.message("ping")])["error"]["code"] == -32600


# In process


def test_in_process_the_last_client_that_initialized_has_the_session() -> None:
    server, caller = demo_server(), Caller()

    def ask(method: str, params: dict[str, Any]) -> Any:
        return server({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, caller)

    for version in ("2025-11-25", "2024-11-05"):
        told = ask("initialize", {"protocolVersion": version, "capabilities": {"elicitation": {}}, "clientInfo": INFO})
        assert told["result"]["protocolVersion"] == version
        assert server({"jsonrpc": "2.0", "method": "notifications/initialized"}, caller) is None
        assert [session.version for session in server.sessions] == [version]
    assert ask("resources/subscribe", {"uri": "demo://notes/1"})["result"] == {}
    assert server.emit("notifications/resources/updated", {"uri": "demo://notes/1"}) == 0
    ask("tools/call", {"name": "write_note", "arguments": {"number": 1, "text": "x"}})
    assert [message["params"] for message in caller.received] == [{"uri": "demo://notes/1"}]
    assert caller.result(server, tool_call("add", {"a": 1, "b": 1}))["structuredContent"] == 2


def test_in_process_a_client_is_asked_with_the_request_that_needs_it() -> None:
    server = demo_server()
    peer = LegacyPeer(server, capabilities={"elicitation": {}}, handshake=False)
    peer.session = Session(server, None)
    peer.handlers["elicitation/create"] = lambda params: {"action": "accept", "content": {"confirm": True}}
    peer.initialize()
    peer.notify("notifications/initialized")
    assert peer.call("deploy")["content"][0]["text"] == "deployed"
    with pytest.raises(ConnectionError):
        peer.session.request("ping")


def test_what_a_handler_knows_of_the_client(server: Server) -> None:
    @server.tool
    def look(call: Call) -> str:
        return f"{sorted(call.capabilities)} {call.auth} {call.attempt} {call.cancelled}"

    peer = LegacyPeer(server, capabilities={"roots": {}})
    peer.auth = "alice"
    assert peer.call("look")["content"][0]["text"] == "['roots'] alice 1 False"
