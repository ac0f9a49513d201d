"""Ctrl-C at any moment of connecting, calling and closing: nothing is left behind, and the next client works."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

SCRIPT = dedent(
    """
    import gc, random, signal, sys, threading, time
    from snodo_client import Client
    from snodo_client.testing.demo import demo_server
    from support.leaks import children

    kind, rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    random.seed(seed)

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)

    def connect():
        if kind == "stdio":
            return Client.connect(("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"]))
        return Client.connect(served.url) if kind == "http" else Client.direct(server)

    server = demo_server()
    with server.serve_http() as served:
        connect().close()
        hit = 0
        for _ in range(rounds):
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.08 if kind == "stdio" else 0.01))
                try:
                    with connect() as client:
                        until = time.monotonic() + 1.0  # Python drops an interrupt that falls into a destructor
                        while time.monotonic() < until:
                            client.call_tool("add", {"a": 1, "b": 2}).unwrap()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                hit += 1
            client = None
        assert hit > rounds * 0.8, hit
        with connect() as client:
            assert client.call_tool("add", {"a": 20, "b": 22}).unwrap()["structuredContent"] == 42
            assert len(client._session.pending) == 0

    def left():
        gc.collect()
        # Python itself may go on listing a thread whose start was interrupted, and which never ran.
        return children(), [t.name for t in threading.enumerate() if t.name.startswith("snodo-") and t.is_alive()]

    until = time.monotonic() + 12  # threads of a client that was dropped half-way end when they are idle
    while left() != (0, []) and time.monotonic() < until:
        time.sleep(0.02)
    assert left() == (0, []), left()
    """
)


@pytest.mark.skipif(sys.platform != "linux", reason="counts processes in /proc")
@pytest.mark.parametrize(("kind", "rounds"), [("stdio", 40), ("http", 100), ("direct", 100)])
def test_ctrl_c_at_any_moment_leaves_nothing(kind: str, rounds: int) -> None:
    command = [sys.executable, "-c", SCRIPT, kind, str(rounds), "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=_env(), check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def _env() -> dict[str, str]:
    import os
    from pathlib import Path

    tests = Path(__file__).parents[1]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
