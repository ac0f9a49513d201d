"""Tasks of the 2025-11-25 revision."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from snodo_client.testing import Call, RpcError, Server, Session, ToolError
from snodo_client.testing.demo import demo_server
from support.legacy_peer import LegacyPeer
from support.mcp_requests import Caller, request
from support.waiting import PATIENCE, until

RELATED = "io.modelcontextprotocol/related-task"
ABLE: dict[str, Any] = {"elicitation": {}}


@pytest.fixture
def released() -> threading.Event:
    return threading.Event()


@pytest.fixture
def stopped() -> threading.Event:
    return threading.Event()


@pytest.fixture
def server(released: threading.Event, stopped: threading.Event) -> Server:
    server = Server(page_size=2)

    @server.tool(task_support="optional")
    def waits(call: Call) -> str:
        while not released.is_set():
            if not call.sleep(0.01):
                stopped.set()
                return "stopped"
        return "waited"

    @server.tool(task_support="required")
    def only() -> int:
        return 5

    @server.tool(task_support="optional")
    def fails() -> None:
        raise ToolError("no luck")

    @server.tool(task_support="optional")
    def refuses() -> None:
        raise RpcError(1234, "Because", {"why": 1})

    server.tool(name="never")(lambda: "plain")
    return server


def create(peer: LegacyPeer, tool: str, task: dict[str, Any] | None = None, **arguments: Any) -> str:
    created = peer.call(tool, arguments, task=task or {})
    assert created.keys() == {"task"}
    assert created["task"]["status"] == "working"
    return str(created["task"]["taskId"])


def status(peer: LegacyPeer, task: str) -> str:
    return str(peer.result("tasks/get", {"taskId": task})["status"])


def test_tasks_are_declared_where_the_revision_has_them(server: Server) -> None:
    peer = LegacyPeer(server)
    told: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    assert peer.told["capabilities"]["tasks"] == told
    tools = [*peer.result("tools/list")["tools"], *peer.result("tools/list", {"cursor": "2"})["tools"]]
    supports = {tool["name"]: tool.get("execution") for tool in tools}
    assert supports["waits"] == {"taskSupport": "optional"}
    assert supports["only"] == {"taskSupport": "required"}
    assert peer.result("tools/list", {"cursor": "4"})["tools"][0].keys() == {"name", "inputSchema"}

    older = LegacyPeer(server, "2025-06-18")
    assert "tasks" not in older.told["capabilities"]
    assert "execution" not in older.result("tools/list")["tools"][0]
    assert older.error("tasks/list")["code"] == -32601
    assert older.call("only", task={})["content"][0]["text"] == "5"
    for tool in Caller().result(server, request("tools/list"))["tools"]:
        assert "execution" not in tool


def test_a_task_ends_with_the_result_of_its_tool(server: Server, released: threading.Event) -> None:
    peer = LegacyPeer(server)
    created = peer.call("waits", task={"ttl": 60_000})["task"]
    assert (created["ttl"], created["pollInterval"]) == (60_000, 50)
    task = created["taskId"]
    assert status(peer, task) == "working"
    waiting = peer.start(peer.message("tasks/result", {"taskId": task}))
    assert peer.result("ping") == {}
    assert waiting.running
    released.set()
    result = waiting.response()["result"]
    assert result == {"content": [{"type": "text", "text": "waited"}], "_meta": {RELATED: {"taskId": task}}}
    assert status(peer, task) == "completed"
    assert peer.result("tasks/result", {"taskId": task}) == result
    told = peer.heard("notifications/tasks/status")
    assert [(params["taskId"], params["status"]) for params in told] == [(task, "completed")]


def test_a_failed_tool_is_a_failed_task(server: Server) -> None:
    peer = LegacyPeer(server)
    task = create(peer, "fails")
    assert peer.result("tasks/result", {"taskId": task})["isError"] is True
    assert status(peer, task) == "failed"


def test_the_error_of_a_task_is_the_error_of_its_result(server: Server) -> None:
    peer = LegacyPeer(server)
    task = create(peer, "refuses")
    error = peer.error("tasks/result", {"taskId": task})
    assert error == {"code": 1234, "message": "Because", "data": {"why": 1}}
    told = peer.result("tasks/get", {"taskId": task})
    assert (told["status"], told["statusMessage"]) == ("failed", "Because")


def test_a_cancelled_task_stops_and_cannot_be_cancelled_again(server: Server, stopped: threading.Event) -> None:
    peer = LegacyPeer(server)
    task = create(peer, "waits")
    waiting = peer.start(peer.message("tasks/result", {"taskId": task}))
    assert peer.result("tasks/cancel", {"taskId": task})["status"] == "cancelled"
    assert waiting.response()["error"]["code"] == -32603
    assert peer.error("tasks/cancel", {"taskId": task})["code"] == -32602
    assert status(peer, task) == "cancelled"
    assert stopped.wait(PATIENCE)


def test_notifications_cancelled_ends_the_wait_and_not_the_task(server: Server) -> None:
    peer = LegacyPeer(server)
    task = create(peer, "waits")
    waiting = peer.start(peer.message("tasks/result", {"taskId": task}))
    peer.notify("notifications/cancelled", {"requestId": waiting.message["id"]})
    assert waiting.response() is None
    assert status(peer, task) == "working"
    peer.session.end()


def test_who_may_and_who_must_be_a_task(server: Server) -> None:
    peer = LegacyPeer(server)
    assert peer.error("tools/call", {"name": "never", "task": {}})["code"] == -32601
    assert peer.error("tools/call", {"name": "only"})["code"] == -32601
    assert peer.error("tools/call", {"name": "unknown", "task": {}})["code"] == -32602
    assert peer.call("never")["content"][0]["text"] == "plain"
    plain = LegacyPeer(demo_server())
    assert plain.call("research", {"topic": "rain", "seconds": 0})["content"][0]["text"] == "researched rain"


@pytest.mark.parametrize("task", [None, 5, [], {"ttl": "1"}, {"ttl": True}, {"ttl": -1}, {"ttl": 1.5}])
def test_malformed_tasks_are_refused(server: Server, task: Any) -> None:
    assert LegacyPeer(server).error("tools/call", {"name": "only", "task": task})["code"] == -32602


def test_unknown_and_expired_tasks(server: Server) -> None:
    peer = LegacyPeer(server)
    for params in ({}, {"taskId": "x"}, {"taskId": 5}):
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert peer.error(method, params)["code"] == -32602
    task = create(peer, "only", {"ttl": 0})
    until(lambda: peer.heard("notifications/tasks/status"))
    until(lambda: peer.exchange(peer.message("tasks/get", {"taskId": task})).get("error"))
    assert peer.result("tasks/list")["tasks"] == []
    assert LegacyPeer(server).error("tasks/get", {"taskId": create(peer, "waits")})["code"] == -32602
    peer.session.end()


def test_the_list_has_pages(server: Server) -> None:
    peer = LegacyPeer(server)
    tasks = [create(peer, "only") for _ in range(3)]
    first = peer.result("tasks/list")
    second = peer.result("tasks/list", {"cursor": first["nextCursor"]})
    assert [task["taskId"] for task in first["tasks"] + second["tasks"]] == tasks
    assert "nextCursor" not in second
    assert peer.error("tasks/list", {"cursor": "x"})["code"] == -32602


def test_a_task_that_asks_needs_input_meanwhile() -> None:
    peer = LegacyPeer(demo_server(), capabilities=ABLE)
    task = create(peer, "research", topic="rain", seconds=0, confirm=True)
    until(lambda: peer.asked)
    assert status(peer, task) == "input_required"
    asked = peer.asked[0]
    assert asked["params"]["_meta"] == {RELATED: {"taskId": task}}
    peer.reply(asked, {"action": "accept", "content": {"confirm": True}})
    assert peer.result("tasks/result", {"taskId": task})["content"][0]["text"] == "researched rain"
    told = [params["status"] for params in peer.heard("notifications/tasks/status")]
    assert told == ["input_required", "working", "completed"]


def test_what_cannot_be_sent_waits_for_who_asks_for_the_result() -> None:
    server = demo_server()
    peer = LegacyPeer(server, capabilities=ABLE, handshake=False)
    peer.session = Session(server, lambda message: False)
    peer.initialize()
    peer.notify("notifications/initialized")
    task = create(peer, "research", topic="rain", seconds=0, confirm=True)
    until(lambda: status(peer, task) == "input_required")
    assert peer.asked == []
    waiting = peer.start(peer.message("tasks/result", {"taskId": task}))
    until(lambda: peer.asked)
    peer.reply(peer.asked[0], {"action": "decline"})
    assert waiting.response()["result"]["content"][0]["text"] == "not researched"


def test_progress_goes_on_after_the_answer() -> None:
    peer = LegacyPeer(demo_server())
    call = {"name": "research", "arguments": {"topic": "rain", "seconds": 0}, "task": {}}
    task = peer.result("tools/call", call, progressToken="t")["task"]["taskId"]
    peer.result("tasks/result", {"taskId": task})
    steps = peer.heard("notifications/progress")
    assert [step["progress"] for step in steps] == [1, 2, 3]
    assert {step["_meta"][RELATED]["taskId"] for step in steps} == {task}


def test_tasks_end_with_their_session(server: Server, stopped: threading.Event) -> None:
    peer = LegacyPeer(server)
    create(peer, "waits")
    peer.session.end()
    assert stopped.wait(PATIENCE)
