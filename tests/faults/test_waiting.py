"""`wait=False` and `await_ready`: connecting returns at once, calls wait inside their own deadline, and what becomes of
it is a value. And many threads that call first make one negotiation.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from support.eras import (
    CALL,
    HANDSHAKE,
    INITIALIZE,
    KINDS,
    PROBE,
    SILENCE,
    assert_speaks,
    plan,
    playing,
    refuses,
    say,
    served,
)
from support.faulty import assert_error, assert_timeout
from support.http_calls import Took
from support.scripted_http import ScriptedServer, each_request
from support.stdio_servers.eras import NEW, OLD, Play
from support.waiting import together, until

LATER = OLD[0]
SLOW = plan("dual", discover={"wait": 1.5})
AT_ONCE = 1.0  # seconds: less than the slow server takes


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- readiness


def test_connecting_returns_at_once_and_calls_wait(kind: str) -> None:
    with playing(kind, SLOW) as stage:
        with Took() as took:
            client = stage.connect(wait=False)
        assert took.seconds < AT_ONCE
        info = client.protocol_info
        assert (info["status"], info["era"], info["version"], info["steps"]) == ("connecting", None, None, [])
        assert (client.server_info, client.server_capabilities, client.instructions) == (None, None, None)
        assert "connecting" in repr(client)
        assert_speaks(client, NEW)
        assert stage.methods == [PROBE, CALL]


def test_a_call_in_a_hurry_harms_nobody(kind: str) -> None:
    with playing(kind, SLOW) as stage:
        client = stage.connect(wait=False)
        with Took() as took:
            outcome = client.call_tool("ok", timeout=0.2)
        assert_timeout(outcome, 0.2, took)
        assert client.protocol_info["status"] == "connecting"
        assert_speaks(client, NEW)
        assert stage.methods == [PROBE, CALL]


def test_await_ready_runs_out_without_harm_and_is_ready_later(kind: str) -> None:
    with playing(kind, SLOW) as stage:
        client = stage.connect(wait=False)
        with Took() as took:
            error = client.await_ready(timeout=0.2)
        assert_timeout(error, 0.2, took)
        ready = client.await_ready()
        assert ready == Ok(client.protocol_info)
        assert (client.protocol_info["status"], client.protocol_info["version"]) == ("ready", NEW)
        with Took() as took:
            assert client.await_ready(timeout=0.5) == ready
        assert took.seconds < AT_ONCE
        assert stage.methods == [PROBE]


@pytest.mark.parametrize(("era", "methods"), [("modern", []), ("legacy", HANDSHAKE)])
def test_pins_wait_as_well(kind: str, era: str, methods: list[str]) -> None:
    version = NEW if era == "modern" else LATER
    with playing(kind, plan(era, initialize={"wait": 0.3})) as stage:
        client = stage.connect(wait=False, protocol=version)
        assert isinstance(client.await_ready(), Ok)
        assert_speaks(client, version)
        assert stage.methods == [*methods, CALL]


def test_a_client_that_has_waited_is_ready(kind: str) -> None:
    with playing(kind, {}) as stage, stage.connect() as client:
        assert client.await_ready(timeout=0.001) == Ok(client.protocol_info)
        assert stage.methods == [PROBE]


@pytest.mark.parametrize("timeout", [0, -1, "1", True, float("nan")])
def test_a_wrong_limit_is_a_mistake(timeout: Any) -> None:
    with playing("http", {}) as stage, stage.connect() as client:
        with pytest.raises((TypeError, ValueError)):
            client.await_ready(timeout=timeout)
        with pytest.raises(TypeError):
            stage.connect(wait="no")


def test_the_limit_of_connecting_is_the_clients_and_a_longer_call_goes_on(kind: str) -> None:
    """Who waits longer than the thread that connects takes over from it."""
    with playing(kind, plan("dual", discover=[SILENCE, {}], initialize=[SILENCE])) as stage:
        client = stage.connect(wait=False, timeout=0.3)
        outcome = client.call_tool("ok", timeout=10)
        assert isinstance(outcome, Ok), outcome
        beside = [INITIALIZE] if kind == "stdio" else []
        assert stage.methods == [PROBE, *beside, PROBE, CALL]


# -- failure


def test_a_failure_is_given_to_every_call_that_waits(kind: str) -> None:
    failing = plan("dual", discover=say(refuses(-32021, message="sampling is wanted"), wait=1.0))
    with playing(kind, failing) as stage:
        client = stage.connect(wait=False)
        outcomes: list[Any] = []
        with Took() as took:
            together([
                *[lambda: outcomes.append(client.call_tool("ok"))] * 4,
                lambda: outcomes.append(client.await_ready()),
                lambda: outcomes.append(client.list_tools()),
                lambda: outcomes.append(client.notify("notifications/x")),
            ])  # fmt: skip
        assert took.seconds < 1.0 + 2.0
        assert {(outcome.code, outcome.message) for outcome in outcomes} == {(-32021, "sampling is wanted")}
        assert len({id(outcome) for outcome in outcomes}) == 7
        info = client.protocol_info
        assert (info["status"], info["error"], info["version"]) == ("failed", "sampling is wanted", None)
        assert stage.methods == [PROBE]


def test_a_server_that_cannot_be_started_is_a_value() -> None:
    client = Client.connect(("stdio", "no-such-command-here"), wait=False)
    assert_error(client.await_ready(), "exited")
    assert_error(client.call_tool("ok"), "exited")
    assert client.protocol_info["status"] == "failed"
    client.close()


def test_a_server_that_exits_is_a_value_and_is_not_started_again_by_calls() -> None:
    with playing("stdio", {"exit": 3, "stderr": "no key given\n"}) as stage:
        client = stage.connect(wait=False)
        for _ in range(5):
            assert_error(client.await_ready(), "exited", exit_code=3, stderr="no key given")
            assert_error(client.call_tool("ok"), "exited", exit_code=3, stderr="no key given")
        assert stage.processes <= 2


def test_an_http_server_that_comes_up_later_works_with_the_next_call() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = Client.connect(f"http://127.0.0.1:{port}/mcp", wait=False, timeout=10)
    assert_error(client.await_ready(), "unreachable")
    assert_error(client.call_tool("ok"), "unreachable")
    assert client.protocol_info["status"] == "failed"
    with Later(port) as server:
        assert_speaks(client, NEW)
        assert [request.message["method"] for request in server.requests] == [PROBE, CALL]
        client.close()


class Later(ScriptedServer):
    """A server at the port where there was none before."""

    def __init__(self, port: int) -> None:
        super().__init__(each_request(served(Play({}), [])))
        self._listener.close()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)


def test_a_failure_is_not_for_ever_over_http() -> None:
    down = {"status": 503, "body": "starting", "send": []}
    with playing("http", plan("dual", discover=[down, down, {}])) as stage:
        client = stage.connect(wait=False)
        assert_error(client.await_ready(), "http_status", http_status=503)
        assert_error(client.call_tool("ok"), "http_status", http_status=503)
        assert_speaks(client, NEW)
        assert stage.methods == [PROBE, PROBE, PROBE, CALL]


# -- the end


@pytest.mark.parametrize("silent", [plan("dual", discover=SILENCE), {"behind": 9}], ids=["silent", "not reading"])
def test_closing_while_it_connects_ends_every_wait(kind: str, silent: Any) -> None:
    if kind == "http" and "behind" in silent:
        silent = plan("legacy", initialize=SILENCE)
    with playing(kind, silent) as stage:
        client = stage.connect(wait=False, shutdown_timeout=0.5) if kind == "stdio" else stage.connect(wait=False)
        outcomes: list[Any] = []

        def close() -> None:
            until(lambda: stage.methods or (kind == "stdio" and stage.processes))
            client.close()

        with Took() as took:
            together([
                close,
                *[lambda: outcomes.append(client.call_tool("ok"))] * 4,
                lambda: outcomes.append(client.await_ready()),
            ])  # fmt: skip
        assert took.seconds < AT_ONCE + 1.5
        assert [outcome.reason for outcome in outcomes] == ["closed"] * 5
        assert client.protocol_info["status"] == "closed"
        assert_error(client.call_tool("ok"), "closed")
        assert_error(client.await_ready(), "closed")
        assert CALL not in stage.methods


def test_closing_before_anything_was_started_leaves_nothing(kind: str) -> None:
    before = set(threading.enumerate())
    with playing(kind, {}) as stage:
        for _ in range(10):
            stage.connect(wait=False).close()
    until(lambda: set(threading.enumerate()) <= before)


@pytest.mark.parametrize("target", ["stdio", "http", "refused"])
@pytest.mark.parametrize("waits", [False, True])
def test_the_interpreter_exits_while_it_connects(target: str, waits: bool, tmp_path: Path) -> None:
    with ScriptedServer(lambda peer: peer.silence()) as server:
        shown = {
            "stdio": ("stdio", sys.executable, ["-c", "import time; time.sleep(60)"]),
            "http": ("http", server.url),
            "refused": ("http", "http://127.0.0.1:9/mcp"),
        }[target]
        ask = "threading.Thread(target=client.call_tool, args=('ok',), daemon=True).start(); time.sleep(0.2)"
        program = (
            f"import sys, threading, time; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
            f"from snodo_client import Client\nclient = Client.connect({shown!r}, wait=False)\n{ask if waits else ''}"
        )
        with Took() as took:
            done = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
            )
        assert (done.returncode, done.stderr) == (0, "")
        assert took.seconds < 3.0


# -- many at once


@pytest.mark.parametrize(("era", "methods"), [("modern", [PROBE]), ("dual", [PROBE]), ("legacy", [PROBE, *HANDSHAKE])])
def test_many_first_calls_make_one_negotiation(kind: str, era: str, methods: list[str]) -> None:
    with playing(kind, plan(era, discover={"wait": 0.2}, initialize={"wait": 0.2})) as stage:
        client = stage.connect(wait=False)
        outcomes: list[Any] = []
        together([lambda: outcomes.append(client.call_tool("ok"))] * 32)
        assert all(isinstance(outcome, Ok) for outcome in outcomes), outcomes
        assert stage.methods == [*methods, *[CALL] * 32]
        assert stage.runs == 32
        if kind == "stdio":
            assert stage.processes == 1


def test_many_first_calls_fail_together(kind: str) -> None:
    failing = plan("dual", discover=say(refuses(-32021), wait=1.0))
    with playing(kind, failing) as stage:
        client = stage.connect(wait=False)
        outcomes: list[Any] = []
        together([lambda: outcomes.append(client.call_tool("ok"))] * 32)
        assert {outcome.code for outcome in outcomes} == {-32021}
        assert stage.methods == [PROBE]


def test_a_server_that_is_silent_to_many(kind: str) -> None:
    """Each waits as long as it wants, and no longer."""
    with playing(kind, plan("legacy", discover=SILENCE, initialize=SILENCE)) as stage:
        client = stage.connect(wait=False, probe_timeout=20)
        errors: list[McpError] = []

        def call(timeout: float) -> None:
            with Took() as took:
                outcome = client.call_tool("ok", timeout=timeout)
            assert_timeout(outcome, timeout, took)
            errors.append(outcome)

        together([lambda timeout=0.1 * n: call(timeout) for n in range(1, 9)])  # type: ignore[misc]
        assert len(errors) == 8
        stage.saw(PROBE)
