"""Requests of the server to clients of the older revisions, and the cancellation of requests both ways."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from snodo_client.testing import Call, ClientError, NeedInput, Server
from snodo_client.testing.demo import demo_server
from support.legacy_peer import VERSIONS, LegacyPeer
from support.waiting import PATIENCE, until

ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
FORM: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}},
}
URL: dict[str, Any] = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Sign in", "url": "https://example.test/"},
}
ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}
SAMPLE = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "a poem"}}


def accept(params: dict[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": {"confirm": True, "email": "a@b.test"}}


def shared(params: dict[str, Any]) -> dict[str, Any]:
    return {"roots": [{"uri": "file:///tmp"}]}


@pytest.fixture
def server() -> Server:
    return Server()


# A handler that asks


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18"])
def test_the_demo_asks_while_it_runs(version: str) -> None:
    handlers: dict[str, Any] = {
        "elicitation_create": accept,
        "roots_list": shared,
        "sampling_createMessage": lambda params: SAMPLE,
    }
    peer = LegacyPeer(demo_server(), version, ABLE, **handlers)
    assert peer.call("deploy")["content"][0]["text"] == "deployed"
    assert peer.call("sign_up")["structuredContent"] == {"action": "accept", "confirm": True, "email": "a@b.test"}
    assert peer.call("roots")["content"][0]["text"] == '["file:///tmp"]'
    assert peer.call("poem", {"topic": "rain"})["content"][0]["text"] == "m: a poem"
    assert [request["id"] for request in peer.asked] == [0, 1, 2, 3]
    assert ("mode" in peer.asked[0]["params"]) == (version == "2025-11-25")
    assert peer.heard("notifications/cancelled") == []


@pytest.mark.parametrize("version", VERSIONS)
def test_roots_and_sampling_are_as_old_as_the_protocol(version: str) -> None:
    peer = LegacyPeer(demo_server(), version, ABLE, roots_list=shared, sampling_createMessage=lambda params: SAMPLE)
    assert peer.call("roots")["content"][0]["text"] == '["file:///tmp"]'
    assert peer.call("poem", {"topic": "rain"})["content"][0]["text"] == "m: a poem"


def test_a_handler_that_asks_does_not_run_again(server: Server) -> None:
    ran = []

    @server.tool
    def ask(call: Call) -> str:
        ran.append(call.attempt)
        call.progress(1)
        answers = call.ask_all({"a": FORM, "b": ROOTS})
        call.progress(2)
        return f"{answers['a']['action']} {len(answers['b']['roots'])} {call.ask('a', FORM)['action']}"

    peer = LegacyPeer(server, capabilities=ABLE, elicitation_create=accept, roots_list=shared)
    result = peer.result("tools/call", {"name": "ask"}, progressToken=1)
    assert result["content"][0]["text"] == "accept 1 accept"
    assert ran == [1]
    assert len(peer.asked) == 2
    assert [step["progress"] for step in peer.heard("notifications/progress")] == [1, 2]


def test_what_a_handler_raises_to_ask_makes_it_run_again(server: Server) -> None:
    @server.prompt
    def ask(call: Call) -> str:
        if call.attempt < 3:
            raise NeedInput({"k": FORM} if call.attempt == 1 else {})
        return f"{call.attempt} {call.answers['k']['action']}"

    peer = LegacyPeer(server, capabilities=ABLE, elicitation_create=accept)
    assert peer.result("prompts/get", {"name": "ask"})["messages"][0]["content"]["text"] == "3 accept"


def test_an_elicitation_by_url_has_an_id(server: Server) -> None:
    server.tool(name="sign_in", input_schema={"type": "object"})(_asks(URL))
    peer = LegacyPeer(server, capabilities=ABLE, elicitation_create=lambda params: {"action": "accept"})
    for _ in range(2):
        peer.call("sign_in")
    first, second = (request["params"]["elicitationId"] for request in peer.asked)
    assert first != second


def _asks(request: dict[str, Any]) -> Any:
    def handler(call: Call) -> str:
        return str(call.ask("k", request))

    return handler


@pytest.mark.parametrize(
    ("asked", "declared", "version"),
    [
        (FORM, {}, "2025-11-25"),
        (FORM, {"elicitation": {"url": {}}}, "2025-11-25"),
        (FORM, ABLE, "2025-03-26"),
        (URL, {"elicitation": {}}, "2025-11-25"),
        (URL, ABLE, "2025-06-18"),
        (ROOTS, {"sampling": {}}, "2024-11-05"),
        ({"method": "sampling/createMessage", "params": {"tools": []}}, ABLE, "2025-11-25"),
        (
            {"method": "sampling/createMessage", "params": {"tools": []}},
            {"sampling": {"tools": {}}},
            "2025-06-18",
        ),
    ],
)
def test_a_client_is_not_asked_for_what_it_cannot_give(
    server: Server, asked: dict[str, Any], declared: dict[str, Any], version: str
) -> None:
    server.tool(name="ask")(_asks(asked))
    peer = LegacyPeer(server, version, declared)
    error = peer.error("tools/call", {"name": "ask"})
    assert error["code"] == -32602
    assert error["data"]["requiredCapabilities"]
    assert peer.asked == []


def test_a_refusal_of_the_client_fails_the_tool_that_does_not_catch_it(server: Server) -> None:
    server.tool(name="hopes")(_asks(ROOTS))

    @server.tool
    def catches(call: Call) -> str:
        try:
            call.ask("k", ROOTS)
        except ClientError as error:
            return f"{error.code} {error.message}"
        return "answered"

    peer = LegacyPeer(server, capabilities=ABLE, roots_list=lambda params: Exception(-1, "User rejected"))
    failed = peer.call("hopes")
    assert failed["isError"] is True
    assert "-1 User rejected" in failed["content"][0]["text"]
    assert peer.call("catches")["content"][0]["text"] == "-1 User rejected"


# A test that asks


def test_a_test_can_send_anything() -> None:
    peer = LegacyPeer(demo_server(), ping=lambda params: {})
    assert peer.session.request("ping") == {}
    assert peer.asked == [{"jsonrpc": "2.0", "id": 0, "method": "ping"}]
    assert peer.session.notify("notifications/message", {"level": "info", "data": 1})
    assert peer.heard("notifications/message") == [{"level": "info", "data": 1}]


def test_a_ping_can_come_before_the_handshake() -> None:
    peer = LegacyPeer(demo_server(), handshake=False, ping=lambda params: {})
    assert peer.session.request("ping") == {}


def test_an_answer_that_is_late_is_cancelled_and_then_ignored() -> None:
    peer = LegacyPeer(demo_server(), capabilities=ABLE)
    with pytest.raises(TimeoutError):
        peer.session.request("roots/list", timeout=0.05)
    assert peer.heard("notifications/cancelled")[0]["requestId"] == 0
    assert not peer.session.take_response({"jsonrpc": "2.0", "id": 0, "result": {}})
    peer.reply(peer.asked[0], {"roots": []})


@pytest.mark.parametrize("foreign", ["0", 1, True, False, None, 0.0, [0]])
def test_an_answer_with_another_id_is_nobodys(foreign: Any) -> None:
    peer = LegacyPeer(demo_server(), capabilities=ABLE)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(peer.session.request("roots/list", timeout=PATIENCE)))
    thread.start()
    until(lambda: peer.asked)
    assert not peer.session.take_response({"jsonrpc": "2.0", "id": foreign, "result": {"roots": 5}})
    peer.reply(peer.asked[0], {"roots": []})
    thread.join(PATIENCE)
    assert answers == [{"roots": []}]


def test_a_result_that_is_no_object_is_an_error() -> None:
    peer = LegacyPeer(demo_server(), capabilities=ABLE, roots_list=lambda params: [])
    with pytest.raises(ClientError, match="list"):
        peer.session.request("roots/list")


def test_a_client_that_goes_ends_what_it_was_asked() -> None:
    peer = LegacyPeer(demo_server(), capabilities=ABLE)
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            peer.session.request("roots/list", timeout=PATIENCE)
        except ConnectionError as error:
            raised.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: peer.asked)
    peer.session.end()
    thread.join(PATIENCE)
    assert len(raised) == 1
    assert not peer.session.notify("notifications/message", {"level": "info", "data": 1})


# Cancellation


def test_a_cancelled_request_is_never_answered() -> None:
    peer = LegacyPeer(demo_server())
    slow = peer.start(peer.message("tools/call", {"name": "sleep", "arguments": {"seconds": 600}}))
    for params in ({}, {"requestId": str(slow.message["id"])}, {"requestId": 99}, {"requestId": None}):
        peer.notify("notifications/cancelled", params)
    assert peer.call("echo", {"message": "still there"})
    assert slow.running
    peer.notify("notifications/cancelled", {"requestId": slow.message["id"]})
    assert slow.response() is None


def test_cancelling_a_call_cancels_what_it_has_asked() -> None:
    peer = LegacyPeer(demo_server(), capabilities=ABLE)
    call = peer.start(peer.message("tools/call", {"name": "deploy"}))
    until(lambda: peer.asked)
    peer.notify("notifications/cancelled", {"requestId": call.message["id"], "reason": "enough"})
    assert call.response() is None
    assert peer.heard("notifications/cancelled")[0]["requestId"] == peer.asked[0]["id"]


def test_a_running_id_cannot_be_used_again() -> None:
    peer = LegacyPeer(demo_server())
    slow = peer.start(peer.message("tools/call", {"name": "sleep", "arguments": {"seconds": 600}}))
    refused = peer.exchange(slow.message)
    assert refused["error"]["code"] == -32600
    assert "id" not in refused
    assert peer.exchange({**peer.message("ping"), "id": str(slow.message["id"])})["result"] == {}
    peer.session.end()
    assert slow.response() is None


def test_the_end_leaves_running_requests_a_while() -> None:
    peer = LegacyPeer(demo_server())
    quick = peer.start(peer.message("tools/call", {"name": "sleep", "arguments": {"seconds": 0.1}}))
    peer.session.end(PATIENCE)
    assert quick.response()["result"]["content"][0]["text"] == "slept"
