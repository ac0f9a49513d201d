"""The server of `snodo_client.testing` in the official conformance suite, each claimed scenario alone.

The other side of every test that uses that server: here its bytes are judged by people who read the specification
without us.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from peers import Peers
from support.official_suite import run_scenario

HERE = Path(__file__).parent
START_SECONDS = 20


def claimed() -> list[str]:
    """The scenarios that our server says it serves."""
    lines = (line.partition("#")[0].strip() for line in (HERE / "server_scenarios.txt").read_text().splitlines())
    return [line for line in lines if line]


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, HERE / "server.py", str(port)], stdout=subprocess.DEVNULL)
    try:
        wait_for(port, server)
        yield f"http://localhost:{port}/mcp"
    finally:
        server.terminate()
        server.wait(10)


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < give_up:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"the server did not listen within {START_SECONDS} s (exit code {server.poll()})")


@pytest.mark.parametrize("scenario", claimed())
def test_server_scenario(scenario: str, peers: Peers, tmp_path: Path, server_url: str) -> None:
    statuses = run_scenario(peers, "server", scenario, tmp_path, "--url", server_url)
    assert statuses["SUCCESS"] >= 1, statuses
