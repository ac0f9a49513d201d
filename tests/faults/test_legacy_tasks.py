"""Tasks of revision 2025-11-25 over every connection that carries it: what a task asks reaches the handlers, whether or
not anybody waits for its result, and every change of its status is told.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from snodo_client.testing import Call, RpcError, Server, ToolError
from snodo_client.testing.demo import demo_server
from support.asking import asking
from support.http_calls import text_of
from support.waiting import until

VERSION = "2025-11-25"
YES = {"action": "accept", "content": {"confirm": True}}
ASKS = {"topic": "owls", "confirm": True}


class Told:
    """The notifications about tasks, in order."""

    def __init__(self) -> None:
        self.tasks: list[dict[str, Any]] = []

    def __call__(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/tasks/status":
            self.tasks.append(params)

    def of(self, task_id: str) -> list[str]:
        return [task["status"] for task in self.tasks if task["taskId"] == task_id]


APART = ["stdio", "http", "http-stream", "sse", "websocket"]


# A server in this process speaks while a call runs, and not between two.
@pytest.fixture(params=["direct", *APART])
def connect(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param != "direct":
        with asking(request.param, VERSION) as connect:
            yield connect
        return
    server = demo_server()
    server.versions = [VERSION]
    clients: list[Client] = []

    def direct(**options: Any) -> Client:
        clients.append(Client.direct(server, **options))
        return clients[-1]

    yield direct
    for client in clients:
        client.close()


def begin(client: Client, arguments: dict[str, Any]) -> str:
    task: dict[str, Any] = client.call_tool("research", arguments, task={"ttl": 60_000}).unwrap()["task"]
    assert task["status"] in ("working", "input_required")
    return str(task["taskId"])


@pytest.mark.parametrize("connect", APART, indirect=True)
def test_a_task_asks_while_nobody_waits_for_it(connect: Any) -> None:
    told, asked, go = Told(), threading.Event(), threading.Event()

    def confirm(request: Any) -> dict[str, Any]:
        asked.set()
        assert go.wait(20)
        return YES

    client = connect(handlers={"form": confirm}, on_notification=told)
    task_id = begin(client, ASKS)
    assert asked.wait(20)
    assert client.tasks.get(task_id).unwrap()["status"] == "input_required"
    assert [task["status"] for task in client.tasks.list().unwrap()] == ["input_required"]
    go.set()
    until(lambda: client.tasks.get(task_id).unwrap()["status"] == "completed")
    assert text_of(client.tasks.result(task_id)) == "researched owls"
    until(lambda: len(told.tasks) >= 3)
    assert told.of(task_id) == ["input_required", "working", "completed"]
    for task in told.tasks:
        assert {"createdAt", "lastUpdatedAt", "ttl"} <= task.keys()


def test_a_task_asks_while_its_result_is_waited_for_and_the_handler_asks_for_it_too(connect: Any) -> None:
    statuses: list[str] = []

    def confirm(request: Any) -> dict[str, Any]:
        statuses.append(client.tasks.get(task_id).unwrap()["status"])
        return YES

    held = threading.Event()

    def first(request: Any) -> dict[str, Any]:
        assert held.wait(20)  # until the id of the task is known here
        return confirm(request)

    client = connect(handlers={"form": first})
    task_id = begin(client, ASKS)
    held.set()
    assert text_of(client.tasks.result(task_id, timeout=20)) == "researched owls"
    assert statuses == ["input_required"]


def test_a_task_whose_question_is_declined_is_completed(connect: Any) -> None:
    client = connect(handlers={"form": lambda request: {"action": "decline"}})
    assert text_of(client.tasks.result(begin(client, ASKS), timeout=20)) == "not researched"


def test_a_task_whose_question_is_not_answered_fails(connect: Any) -> None:
    def fail(request: Any) -> dict[str, Any]:
        raise LookupError("s3cret")

    client = connect(handlers={"form": fail})
    task_id = begin(client, ASKS)
    outcome = client.tasks.result(task_id, timeout=20)
    assert isinstance(outcome, McpError) or outcome.is_error
    assert "s3cret" not in repr(outcome)
    assert client.tasks.get(task_id).unwrap()["status"] == "failed"


def test_a_wait_for_the_result_that_runs_out_ends_no_task(connect: Any) -> None:
    go, told = threading.Event(), Told()

    def confirm(request: Any) -> dict[str, Any]:
        assert go.wait(20)
        return YES

    client = connect(handlers={"form": confirm}, on_notification=told)
    task_id = begin(client, ASKS)
    outcome = client.tasks.result(task_id, timeout=0.3)
    assert isinstance(outcome, McpError)
    assert outcome.reason == "timeout"
    assert client.tasks.get(task_id).unwrap()["status"] == "input_required"
    go.set()
    assert text_of(client.tasks.result(task_id, timeout=20)) == "researched owls"
    assert "cancelled" not in told.of(task_id)


@pytest.mark.parametrize("connect", APART, indirect=True)
def test_a_task_that_is_cancelled_asks_no_more(connect: Any) -> None:
    told, asked, go = Told(), threading.Event(), threading.Event()

    def confirm(request: Any) -> dict[str, Any]:
        asked.set()
        assert go.wait(20)
        return YES

    client = connect(handlers={"form": confirm}, on_notification=told)
    task_id = begin(client, ASKS)
    assert asked.wait(20)
    assert client.tasks.cancel(task_id).unwrap()["status"] == "cancelled"
    until(lambda: "cancelled" in told.of(task_id))
    go.set()
    assert isinstance(client.call_tool("echo", {"message": "next"}), Ok)
    assert client.tasks.get(task_id).unwrap()["status"] == "cancelled"


# -- how a task ends


@contextmanager
def ending() -> Iterator[Client]:
    server = Server("ending", "1")
    server.versions = [VERSION]

    @server.tool(task_support="required")
    def fail() -> str:
        """Fail."""
        raise ToolError("on purpose")

    @server.tool(task_support="required")
    def refuse(call: Call) -> str:
        """Answer with an error."""
        raise RpcError(-32050, "not today", {"until": "tomorrow"})

    with Client.direct(server) as client:
        yield client


def test_a_tool_that_failed_as_a_task_is_ok_as_it_would_have_been() -> None:
    with ending() as client:
        task_id = client.call_tool("fail", task=True).unwrap()["task"]["taskId"]
        outcome = client.tasks.result(task_id)
        assert isinstance(outcome, Ok)
        assert outcome.is_error
        assert text_of(outcome) == "on purpose"
        assert client.tasks.get(task_id).unwrap()["status"] == "failed"


def test_an_error_of_a_task_is_the_servers_as_it_would_have_been() -> None:
    with ending() as client:
        task_id = client.call_tool("refuse", task=True).unwrap()["task"]["taskId"]
        outcome = client.tasks.result(task_id)
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.reason, outcome.data) == (-32050, None, {"until": "tomorrow"})
        assert client.tasks.get(task_id).unwrap()["status"] == "failed"


def test_a_tool_that_needs_a_task_says_so_when_it_is_called_without_one() -> None:
    with ending() as client:
        outcome = client.call_tool("fail")
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.reason) == (-32601, None)
