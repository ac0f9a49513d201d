"""The scriptable server as a subprocess whose client speaks an older revision."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support import legacy_peer
from support.kit_child import DEMO, Child
from support.mcp_requests import request, tool_call

Start = Callable[..., Child]
CANCELLED = {"jsonrpc": "2.0", "method": "notifications/cancelled"}


def message(number: int, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}


def call(number: int, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return message(number, "tools/call", {"name": tool, "arguments": arguments})


@pytest.fixture
def start() -> Iterator[Start]:
    children: list[Child] = []

    def start_child(version: str = "2025-11-25", capabilities: dict[str, Any] | None = None, *options: str) -> Child:
        check = functools.partial(_check, version)
        child = Child([*DEMO, *options], check)
        children.append(child)
        info = {"name": "tests", "version": "1"}
        params = {"protocolVersion": version, "capabilities": capabilities or {}, "clientInfo": info}
        child.send(message(99, "initialize", params))
        assert child.read()["result"]["protocolVersion"] == version
        child.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return child

    yield start_child
    for child in children:
        child.kill()


def _check(version: str, received: Any, method: str) -> Any:
    return legacy_peer.check_from_server(received, version, method)


@pytest.mark.parametrize("version", legacy_peer.VERSIONS)
def test_a_session_from_the_handshake_to_the_end_of_input(start: Start, version: str) -> None:
    child = start(version)
    child.send(message(1, "ping"), call(2, "add", a=2, b=3))
    answers = child.read_all(2)
    assert answers[1]["result"] == {}
    assert answers[2]["result"]["content"][0]["text"] == "5"
    assert child.end() == 0


def test_requests_of_the_server_have_ids_of_their_own(start: Start) -> None:
    child = start(capabilities={"elicitation": {}, "roots": {}})
    child.send(call(0, "roots"))
    asked = child.read()
    assert (asked["id"], asked["method"]) == (0, "roots/list")
    child.send({"jsonrpc": "2.0", "id": 0, "result": {"roots": [{"uri": "file:///a"}]}})
    child.methods[0] = "tools/call"
    assert child.read()["result"]["content"][0]["text"] == '["file:///a"]'


def test_a_cancelled_request_is_never_answered(start: Start) -> None:
    child = start()
    child.send(call(1, "sleep", seconds=600), {**CANCELLED, "params": {"requestId": 1}}, message(2, "ping"))
    assert child.read()["id"] == 2
    child.stdin.close()
    assert child.stdout.read() == b""
    assert child.process.wait(10) == 0


def test_a_subscription_and_a_task(start: Start) -> None:
    child = start()
    child.send(message(1, "resources/subscribe", {"uri": "demo://notes/3"}))
    assert child.read()["result"] == {}
    child.send(call(2, "write_note", number=3, text="new"))
    assert child.read()["method"] == "notifications/resources/updated"
    assert child.read()["id"] == 2
    task = {"name": "research", "arguments": {"topic": "rain", "seconds": 0}, "task": {}}
    child.send(message(3, "tools/call", task))
    heard = [child.read(), child.read()]
    created = next(answer for answer in heard if "id" in answer)["result"]["task"]
    child.send(message(4, "tasks/result", {"taskId": created["taskId"]}))
    assert child.read()["result"]["content"][0]["text"] == "researched rain"


def test_a_batch_is_one_line_each_way(start: Start) -> None:
    child = start("2025-03-26")
    child.write(json.dumps([message(1, "ping"), message(2, "ping")]).encode() + b"\n")
    assert [answer["id"] for answer in child.read()] == [1, 2]


def test_requests_of_the_new_revision_are_served_until_the_handshake(start: Start) -> None:
    child = start()
    child.send(tool_call("add", {"a": 1, "b": 1}))
    assert child.read()["error"]["code"] == -32600

    other = Child(DEMO)
    try:
        other.send(tool_call("add", {"a": 1, "b": 1}))
        assert other.read()["result"]["structuredContent"] == 2
    finally:
        other.kill()


def test_versions_can_be_limited(start: Start) -> None:
    child = start("2025-03-26", None, "--versions", "2025-03-26, 2024-11-05")
    child.send(message(1, "tools/list"))
    assert child.read()["result"]["tools"]

    old = Child([*DEMO, "--versions", "2025-06-18"])
    try:
        old.send(request("server/discover"))
        assert json.loads(old.stdout.readline())["error"]["code"] == -32601
    finally:
        old.kill()


@pytest.mark.parametrize("mode", ["stdio", "http", "sse", "websocket"])
def test_every_mode_has_help(mode: str) -> None:
    command = [sys.executable, "-m", "snodo_client.testing", mode, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--versions" in done.stdout
    assert ("--port" in done.stdout) == (mode != "stdio")
