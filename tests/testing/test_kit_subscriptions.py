"""What a test can do to a subscription: every way to open it, to end it, and to keep it alive."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from typing import Any

import pytest

from snodo_client.testing import RpcError, Server, Subscription
from support.kit_child import Child
from support.mcp_requests import META, VERSION, request
from support.waiting import until

ALL = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["x://a"]}
TOOLS, PROMPTS = "notifications/tools/list_changed", "notifications/prompts/list_changed"
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Context:
    """In process: what was sent, and whether the caller has given up."""

    auth = "alice"

    def __init__(self) -> None:
        self.cancelled = False
        self.sent: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    @property
    def methods(self) -> list[str]:
        return [message["method"] for message in self.sent]


class Listening:
    """A subscription in process, on a thread of its own."""

    def __init__(self, server: Server, wanted: dict[str, Any] | None = None) -> None:
        self.message = request("subscriptions/listen", {"notifications": ALL if wanted is None else wanted})
        self.context = Context()
        self.replies: list[Any] = []
        self.thread = threading.Thread(target=lambda: self.replies.append(server(self.message, self.context)))
        self.thread.start()

    def over(self) -> Any:
        """The reply."""
        self.thread.join(10)
        (reply,) = self.replies
        return reply


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.tool(name="t")(lambda: None)
    server.prompt(name="p")(lambda: "")
    server.resource("x://a")(lambda: "")
    yield server
    server.subscriptions.end()


def test_a_subscription_as_the_test_sees_it(server: Server) -> None:
    one, two = Listening(server), Listening(server, {"toolsListChanged": True, "resourcesListChanged": False})
    until(lambda: [len(each.context.sent) for each in (one, two)] == [1, 1])
    assert {each.id for each in server.subscriptions} == {one.message["id"], two.message["id"]}
    seen = next(each for each in server.subscriptions if each.id == two.message["id"])
    assert (seen.auth, seen.accepted) == ("alice", {"toolsListChanged": True})
    assert seen.requested == {"toolsListChanged": True, "resourcesListChanged": False}
    assert server.emit(PROMPTS) == 1
    assert server.emit(TOOLS, times=3, rate=1000) == 6
    until(lambda: [len(each.context.sent) for each in (one, two)] == [5, 4])
    seen.end()
    assert two.over()["result"]["_meta"][f"{META}subscriptionId"] == seen.id
    until(lambda: len(server.subscriptions) == 1)
    server.subscriptions[0].end()
    assert one.over()["result"]["resultType"] == "complete"


def test_a_rate_is_kept(server: Server) -> None:
    listening = Listening(server)
    until(lambda: listening.context.sent)
    begun = time.monotonic()
    assert server.emit(TOOLS, times=11, rate=100) == 11
    assert time.monotonic() - begun >= 0.1
    until(lambda: listening.context.methods.count(TOOLS) == 11)


def test_what_a_slow_client_does_not_get_is_not_counted(server: Server) -> None:
    stuck = threading.Event()

    @server.on_subscribe
    def opening(subscription: Subscription) -> None:
        subscription.acknowledge()
        stuck.wait(10)

    listening = Listening(server)
    until(lambda: len(server.subscriptions) == 1 and server.subscriptions[0].accepted is not None)
    told = server.emit(TOOLS, times=2000)
    stuck.set()
    server.subscriptions.end()
    listening.over()
    assert 900 < told < 2000
    assert listening.context.methods == [ACKNOWLEDGED, *[TOOLS] * told]


def test_the_end_by_a_cancellation(server: Server) -> None:
    listening = Listening(server)
    until(lambda: listening.context.sent)
    server.subscriptions[0].cancel("enough")
    assert listening.over() is None
    cancelled = listening.context.sent[-1]
    assert (cancelled["method"], cancelled["params"]["requestId"]) == (
        "notifications/cancelled",
        listening.message["id"],
    )
    assert len(server.subscriptions) == 0


@pytest.mark.parametrize("accepted", [{}, {"toolsListChanged": True}, {**ALL, "resourcesListChanged": True}])
def test_an_acknowledgement_of_ones_own(server: Server, accepted: dict[str, Any]) -> None:
    server.on_subscribe(lambda subscription: subscription.acknowledge(accepted))
    listening = Listening(server)
    until(lambda: listening.context.sent)
    assert listening.context.sent[0]["params"]["notifications"] == accepted
    assert server.emit(TOOLS) == bool(accepted)
    assert server.emit("notifications/resources/list_changed") == ("resourcesListChanged" in accepted)


def test_never_acknowledged(server: Server) -> None:
    server.on_subscribe(lambda subscription: None)
    listening = Listening(server)
    until(lambda: len(server.subscriptions) == 1)
    assert server.emit(TOOLS) == 0
    assert server.subscriptions[0].accepted is None
    listening.context.cancelled = True
    listening.over()
    assert listening.context.sent == []


def test_sent_too_early_and_never_asked_for(server: Server) -> None:
    @server.on_subscribe
    def opening(subscription: Subscription) -> None:
        assert subscription.notify(TOOLS)
        subscription.acknowledge()
        assert subscription.notify("notifications/message", {"level": "info", "data": 1, "_meta": {"a": 1}})

    listening = Listening(server, {})
    until(lambda: len(listening.context.sent) == 3)
    assert listening.context.methods == [TOOLS, ACKNOWLEDGED, "notifications/message"]
    tag = {f"{META}subscriptionId": listening.message["id"]}
    assert [message["params"]["_meta"] for message in listening.context.sent] == [tag, tag, {"a": 1, **tag}]


def test_a_refusal(server: Server) -> None:
    @server.on_subscribe
    def opening(subscription: Subscription) -> None:
        raise RpcError(-32603, "Not today")

    assert Listening(server).over()["error"] == {"code": -32603, "message": "Not today"}
    assert len(server.subscriptions) == 0


# Over HTTP


@pytest.fixture
def listen(server: Server) -> Iterator[Callable[..., HTTPResponse]]:
    opened: list[Any] = []

    def listen(**options: Any) -> HTTPResponse:
        serving = server.serve_http(**options)
        connection = HTTPConnection("127.0.0.1", serving.port, timeout=10)
        opened.extend((connection, serving))
        message = request("subscriptions/listen", {"notifications": ALL})
        head = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        head |= {"MCP-Protocol-Version": VERSION, "Mcp-Method": message["method"]}
        connection.request("POST", "/mcp", json.dumps(message), head)
        return connection.getresponse()

    yield listen
    for each in opened:
        each.close()


def test_comments_while_there_is_nothing_to_say(server: Server, listen: Callable[..., HTTPResponse]) -> None:
    response = listen(keep_alive=0.02)
    lines = [response.readline() for _ in range(9)]
    assert [line for line in lines if line.startswith(b":")] == [b": still here\n"] * 3
    server.emit(TOOLS)
    server.subscriptions.end()
    assert TOOLS.encode() in response.read()


def test_no_comments_unless_asked_for(server: Server, listen: Callable[..., HTTPResponse]) -> None:
    response = listen()
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > 0.1)
    server.subscriptions.end()
    assert b"\n:" not in response.read()


def test_a_cancelled_stream_ends(server: Server, listen: Callable[..., HTTPResponse]) -> None:
    response = listen()
    until(lambda: len(server.subscriptions) == 1)
    server.subscriptions[0].cancel()
    events = response.read().decode().split("\n\n")
    assert [json.loads(event.partition("data: ")[2])["method"] for event in events[:-1]] == [
        ACKNOWLEDGED,
        "notifications/cancelled",
    ]


def test_a_dropped_stream_breaks_off(server: Server, listen: Callable[..., HTTPResponse]) -> None:
    response = listen()
    until(lambda: len(server.subscriptions) == 1)
    server.subscriptions[0].drop()
    with pytest.raises(IncompleteRead):
        response.read()


# Over stdio


def test_a_dropped_subscription_ends_the_process() -> None:
    script = (
        "from snodo_client.testing import Server\n"
        "server = Server()\n"
        "server.tool(name='t')(lambda: server.subscriptions[0].drop())\n"
        "server.serve_stdio()\n"
    )
    child = Child([sys.executable, "-c", script])
    try:
        child.send(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        assert child.read()["method"] == ACKNOWLEDGED
        child.send(request("tools/call", {"name": "t", "arguments": {}}))
        assert child.process.wait(10) == 1
    finally:
        child.kill()
