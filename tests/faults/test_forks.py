"""A client made before a fork: in the child, and afterwards in the parent."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from snodo_client.testing.demo import demo_server
from support.forking import in_a_child

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),  # Python 3.12 warns where threads run
]
STDIO = ("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"])


def told(outcome: Any) -> Any:
    return outcome.value["structuredContent"] if isinstance(outcome, Ok) else (outcome.reason, outcome.code)


def test_a_subprocess_stays_the_parents() -> None:
    with Client.connect(STDIO) as client:
        client.call_tool("add", {"a": 1, "b": 1}).unwrap()

        def child() -> Any:
            begun = time.monotonic()
            answers = [told(client.call_tool("add", {"a": 1, "b": 2})), told(client.notify("notifications/x"))]
            client.close()
            return answers, time.monotonic() - begun

        answers, took = in_a_child(child)
        assert answers == [("forked", -32000)] * 2
        assert took < 1
        assert told(client.call_tool("add", {"a": 20, "b": 22})) == 42
        begun = time.monotonic()
    assert time.monotonic() - begun < 1, "the server saw no end of its input"


def test_the_server_ends_though_a_child_lives_on() -> None:
    client = Client.connect(STDIO)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)  # lives until the parent is done
        os._exit(0)
    os.close(read)
    try:
        begun = time.monotonic()
        client.close()
        assert time.monotonic() - begun < 1
    finally:
        os.close(write)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("kind", ["http", "direct"])
def test_the_others_work_on_both_sides(kind: str) -> None:
    server = demo_server()
    with server.serve_http() as serving:
        made = Client.connect(serving.url) if kind == "http" else Client.direct(server)
        with made as client:
            assert told(client.call_tool("add", {"a": 1, "b": 1})) == 2
            assert in_a_child(lambda: [told(client.call_tool("add", {"a": n, "b": 1})) for n in range(3)]) == [1, 2, 3]
            assert [told(client.call_tool("add", {"a": n, "b": 1})) for n in range(3)] == [1, 2, 3]


def test_a_call_that_is_under_way_when_its_thread_forks_goes_on_in_the_parent() -> None:
    with Client.connect(STDIO) as client:
        seen: list[Any] = []

        def fork_now(step: Any) -> None:
            if not seen:
                seen.append(in_a_child(lambda: isinstance(client.call_tool("echo", {"message": "x"}), McpError)))

        assert isinstance(client.call_tool("count", {"steps": 3}, progress=fork_now), Ok)
        assert seen == [True]
