"""Handles at the end of things: a fork while they run, and an interpreter that exits."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from snodo_client import McpError
from support.forking import in_a_child
from support.interleaving import KINDS, staged

TESTS = Path(__file__).parents[1]


def reason_of(outcome: Any) -> str | None:
    return outcome.reason if isinstance(outcome, McpError) else None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_running_handle_in_the_child_of_a_fork(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client:
        handle, other = client.start_tool_call("t"), client.start_tool_call("other")
        future = handle.future
        stage.arrived(2)

        def child() -> Any:
            begun = time.monotonic()
            told = [
                handle.done(),
                reason_of(handle.result(5)),
                reason_of(future.result(5)),
                reason_of(other.future.result(5)),
                handle.cancel().local,
                other.future.cancel(),
                client.cancel_all(),
            ]
            return told, time.monotonic() - begun

        told, took = in_a_child(child)
        assert told == [True, "forked", "forked", "forked", "finished", False, []]
        assert took < 2
        assert not handle.done()
        for arrived in stage.calls:
            arrived.answer()
        assert handle.result(10).ok
        assert future.result(10) is handle.result()
        assert other.result(10).ok
        assert stage.cancellations == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kind", ["http-json", "direct"])
def test_new_handles_in_the_child(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        stage.arrived()

        def child() -> Any:
            before = len(stage.calls)  # of the server in this process, if it is one
            another = client.start_tool_call("in the child", timeout=20)
            if kind == "direct":
                stage.arrived(before + 1).answer()
            return another.result(15).ok

        if kind == "direct":
            assert in_a_child(child) is True
        else:
            from threading import Thread

            answering = Thread(target=lambda: stage.arrived(2).answer(), daemon=True)
            answering.start()
            assert in_a_child(child) is True
            answering.join(10)
        stage.arrived().answer()
        assert handle.result(10).ok


SCRIPT = dedent(
    """
    import sys, threading
    from snodo_client import Client
    from support.interleaving import staged
    from support.waiting import until

    kind, ending = sys.argv[1:]
    staging = staged(kind)
    stage = staging.__enter__()
    client = stage.connect()
    handles = [client.start_tool_call("t") for _ in range(4)]
    futures = [handle.future for handle in handles]
    futures[0].add_done_callback(lambda future: print("told", flush=True))
    stage.arrived(4)
    threading.Thread(target=handles[0].result, daemon=True).start()
    if ending == "waiting":
        waiting = threading.Thread(target=lambda: print(handles[1].result().reason, flush=True))
        waiting.start()  # which the interpreter waits for
        until(lambda: handles[1]._waiting._flags)
        threading.Timer(0.1, client.close).start()
    if ending == "raise":
        print("ends", flush=True)
        raise SystemExit(3)
    print("ends", flush=True)
    """
)


@pytest.mark.parametrize("ending", ["return", "raise", "waiting"])
@pytest.mark.parametrize("kind", ["direct", "stdio", "http-stream", "http-legacy", "sse-legacy", "websocket-legacy"])
def test_the_interpreter_exits_with_running_handles(kind: str, ending: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    program = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, kind, ending],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert program.stdout is not None
    try:
        until_end = [program.stdout.readline()]
        while until_end[-1] and "ends" not in until_end[-1]:
            until_end.append(program.stdout.readline())
        begun = time.monotonic()
        rest, errors = program.communicate(timeout=30)
        took = time.monotonic() - begun
    finally:
        program.kill()
        program.wait()
    assert until_end[-1] == "ends\n", errors
    assert program.returncode == (3 if ending == "raise" else 0), errors
    assert took < 3
    assert "Traceback" not in errors
    if ending == "waiting":
        assert "closed" in rest
