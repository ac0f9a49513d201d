"""The scriptable server as a real subprocess: lines in, lines out."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

from support.kit_child import DEMO, Child
from support.mcp_requests import META, VERSION, request, tool_call


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def start_child(script: str | None = None) -> Child:
        head = "from snodo_client.testing import *\nserver = Server()\n"
        command = DEMO if script is None else [sys.executable, "-c", head + textwrap.dedent(script)]
        children.append(Child(command))
        return children[-1]

    yield start_child
    for child in children:
        child.kill()


def test_requests_are_answered_and_the_end_of_input_ends_it(start: Callable[..., Child]) -> None:
    child = start()
    first, second = request("server/discover"), tool_call("add", {"a": 2, "b": 3})
    child.send(first, second)
    answers = child.read_all(2)
    assert answers[first["id"]]["result"]["supportedVersions"] == [VERSION]
    assert answers[second["id"]]["result"]["structuredContent"] == 5
    assert child.end() == 0


def test_what_was_asked_before_the_end_of_input_is_still_answered(start: Callable[..., Child]) -> None:
    child = start()
    child.send(tool_call("echo", {"message": "last words"}))
    assert child.end() == 0
    assert child.read()["result"]["content"][0]["text"] == "last words"


def test_a_slow_request_does_not_hold_up_another_or_the_exit(start: Callable[..., Child]) -> None:
    child = start()
    quick = tool_call("echo", {"message": "quick"})
    child.send(tool_call("sleep", {"seconds": 600}), quick)
    assert child.read()["id"] == quick["id"]
    assert child.end() == 0


def test_progress_comes_before_the_result(start: Callable[..., Child]) -> None:
    child = start()
    child.send(tool_call("count", {"steps": 3}, progressToken=7))
    messages = [child.read() for _ in range(4)]
    assert [m["params"]["progress"] for m in messages[:3]] == [1, 2, 3]
    assert messages[3]["result"]["content"][0]["text"] == "counted to 3"


def test_a_cancelled_request_is_never_answered(start: Callable[..., Child]) -> None:
    child = start()
    slow, after = tool_call("sleep", {"seconds": 600}), request("server/discover")
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    child.send(slow)
    for params in (None, {}, {"requestId": "unknown"}, {"requestId": str(slow["id"])}, {"requestId": slow["id"]}):
        child.send(cancel if params is None else {**cancel, "params": params})
    child.send(after)
    assert child.read()["id"] == after["id"]
    child.stdin.close()
    assert child.stdout.read() == b""
    assert child.process.wait(10) == 0


def test_a_running_id_cannot_be_used_again(start: Callable[..., Child]) -> None:
    child = start()
    slow = tool_call("sleep", {"seconds": 600})
    child.send(slow, slow)
    refused = child.read()
    assert refused["error"]["code"] == -32600
    assert "id" not in refused


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"junk", -32700),
        (b"", -32700),
        (b"\xff", -32700),
        (b"NaN", -32700),
        (b"[" * 100_000, -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', -32600),
    ],
)
def test_junk_costs_one_line(start: Callable[..., Child], line: bytes, code: int) -> None:
    child = start()
    child.write(line + b"\n")
    refused = child.read()
    assert refused["error"]["code"] == code
    assert "id" not in refused
    child.send(request("server/discover"))
    assert "result" in child.read()


def test_what_a_tool_prints_stays_out_of_the_protocol(start: Callable[..., Child]) -> None:
    child = start(
        """
        @server.tool
        def noisy() -> str:
            print("hello from the tool", flush=True)
            return "ok"
        server.serve_stdio()
        """
    )
    child.send(tool_call("noisy"))
    assert child.read()["result"]["content"][0]["text"] == "ok"
    assert child.end() == 0
    assert child.process.stderr is not None
    assert b"hello from the tool" in child.process.stderr.read()


def test_a_result_that_is_not_json_is_an_internal_error(start: Callable[..., Child]) -> None:
    child = start('server.tool(name="t")(lambda: {"x": float("nan")})\nserver.serve_stdio()')
    child.send(tool_call("t"))
    assert child.read()["error"]["code"] == -32603


def test_large_messages_go_both_ways(start: Callable[..., Child]) -> None:
    child = start()
    message = "é\u2028" * 500_000
    child.send(tool_call("echo", {"message": message}))
    assert child.read()["result"]["content"][0]["text"] == message


def test_a_subscription_hears_a_change_and_is_closed_with_the_input(start: Callable[..., Child]) -> None:
    child = start(
        """
        server.tool(name="change")(lambda: server.emit("notifications/tools/list_changed"))
        server.serve_stdio()
        """
    )
    listen = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    child.send(listen)
    assert child.read()["method"] == "notifications/subscriptions/acknowledged"
    child.send(tool_call("change"))
    heard = [child.read(), child.read()]
    changed = next(m for m in heard if "method" in m)
    assert changed["params"]["_meta"][f"{META}subscriptionId"] == listen["id"]
    assert child.end() == 0
    assert child.read()["id"] == listen["id"]


def test_faults_on_the_wire(start: Callable[..., Child]) -> None:
    child = start(
        r"""
        for name, faults in {
            "a": [Fault.garbage(b"junk")],
            "b": [Fault.duplicate(3), Fault.wrong_id("foreign")],
            "c": [Fault.drip(0.0001)],
            "d": [Fault.drop()],
            "e": [Fault.crash(7)],
        }.items():
            server.on(name)(lambda message, context: {})
            server.fault(name, *faults)
        server.serve_stdio()
        """
    )
    child.send(request("a"))
    assert child.stdout.readline() == b"junk\n"
    child.send(request("b"))
    assert [json.loads(child.stdout.readline())["id"] for _ in range(3)] == ["foreign"] * 3
    dripping = request("c")
    child.send(dripping)
    assert json.loads(child.stdout.readline()) == {"jsonrpc": "2.0", "id": dripping["id"], "result": {}}
    child.send(request("d"), request("e"))
    assert child.stdout.read() == b""
    assert child.process.wait(10) == 7
