"""Signals at any moment of a client of an older revision: Ctrl-C leaves nothing behind, and a signal handler may use
the client on top of what it interrupts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

KINDS = ("stdio", "http", "sse", "websocket")

BEGINNING = dedent(
    """
    import gc, random, signal, sys, threading, time
    from contextlib import ExitStack
    from snodo_client import Client, McpError
    from snodo_client.testing.demo import demo_server
    from support.leaks import children

    kind, rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    random.seed(seed)
    VERSION = "2025-06-18"
    server = demo_server()
    server.versions = [VERSION]
    stack = ExitStack()
    if kind == "stdio":
        target = ("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio", "--versions", VERSION])
    else:
        serve = {"http": server.serve_http, "sse": server.serve_sse, "websocket": server.serve_websocket}[kind]
        target = (kind, stack.enter_context(serve()).url)

    def connect(**options):
        return Client.connect(target, **options)

    def add(client, a, b):
        assert client.call_tool("echo", {"message": f"{a} {b}"}).unwrap()["content"][0]["text"] == f"{a} {b}"

    def left():

        gc.collect()
        return children(), [t.name for t in threading.enumerate() if t.is_alive() and t.name.startswith("snodo-")]

    def nothing_left():
        until = time.monotonic() + 12  # threads of a client that was dropped half-way end when they are idle
        while left() != (0, []) and time.monotonic() < until:
            time.sleep(0.02)
        assert left() == (0, []), left()
    """
)

CTRL_C = BEGINNING + dedent(
    """
    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    with stack:
        connect().close()
        hit = 0
        longest = {"stdio": 0.12, "http": 0.03, "sse": 0.03, "websocket": 0.03}[kind]
        for _ in range(rounds):
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, longest))
                try:
                    with connect() as client:
                        until = time.monotonic() + 1.0  # Python drops an interrupt that falls into a destructor
                        while time.monotonic() < until:
                            add(client, 1, 2)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                hit += 1
            client = None
        assert hit > rounds * 0.8, hit
        with connect() as client:
            add(client, 20, 22)
            assert len(client._session.pending) == 0
        client = None
    nothing_left()
    """
)

IN_CALLS = BEGINNING + dedent(
    """
    class Stop(BaseException):
        pass

    def interrupt(*_):
        raise Stop

    signal.signal(signal.SIGALRM, interrupt)
    with stack, connect(client_capabilities=["elicitation"]) as client:
        hit = 0
        for number in range(rounds):
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.01))
                try:
                    for _ in range(1000):
                        add(client, number, 2)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Stop:
                hit += 1
            add(client, 20, 22)
        assert hit > rounds * 0.8, hit
        assert len(client._session.pending) == 0
        assert client.protocol_info["status"] == "ready"
    client = None
    nothing_left()
    """
)

USING = BEGINNING + dedent(
    """
    calls = 0

    def use(*_):
        global calls
        try:
            add(client, calls, 1)
            calls += 1
        finally:  # not before this one is over
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.006))

    with stack, connect() as client:
        signal.signal(signal.SIGALRM, use)
        signal.setitimer(signal.ITIMER_REAL, 0.003)
        number = 0
        until = time.monotonic() + 60
        while calls < rounds and time.monotonic() < until:
            number += 1
            try:
                add(client, number, 2)
            except McpError as error:  # of the handler or of what it interrupted: a write inside a write
                assert error.reason == "transport_failure", error
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        assert calls >= rounds, calls
        add(client, 20, 22)
        assert len(client._session.pending) == 0
    client = None
    nothing_left()
    """
)

CLOSING = BEGINNING + dedent(
    """
    with stack:
        for number in range(rounds):
            client = None

            def close(*_):
                if client is not None:
                    client.close()

            signal.signal(signal.SIGALRM, close)
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.001, 0.02))
            with connect() as client:
                begun = time.monotonic()
                while time.monotonic() < begun + 5:
                    outcome = client.call_tool("add", {"a": 1, "b": 2})
                    if not outcome.ok:
                        break
                    if client.protocol_info["status"] == "closed":
                        break
                    if signal.getitimer(signal.ITIMER_REAL)[0] == 0:
                        client.close()
                assert outcome.ok or outcome.reason == "closed", outcome
            signal.setitimer(signal.ITIMER_REAL, 0)
    client = None
    nothing_left()
    """
)


def run(script: str, kind: str, rounds: int, seed: int = 7) -> None:
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
    # A socket whose making is interrupted is closed by the garbage collector, which Python thinks worth a warning.
    warnings = ["-W", "error", "-W", "ignore::ResourceWarning"]
    command = [sys.executable, *warnings, "-c", script, kind, str(rounds), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Exception in thread" not in done.stderr, done.stderr[-3000:]


@pytest.mark.skipif(sys.platform != "linux", reason="counts processes in /proc")
@pytest.mark.parametrize("kind", KINDS)
class TestSignals:
    def test_ctrl_c_at_any_moment_leaves_nothing(self, kind: str) -> None:
        run(CTRL_C, kind, 30 if kind == "stdio" else 80)

    def test_calls_that_are_interrupted_leave_the_client_of_use(self, kind: str) -> None:
        run(IN_CALLS, kind, 100)

    def test_a_signal_handler_may_call(self, kind: str) -> None:
        run(USING, kind, 150)

    def test_a_signal_handler_may_close(self, kind: str) -> None:
        run(CLOSING, kind, 15 if kind == "stdio" else 60)
