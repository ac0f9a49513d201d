"""A fork at the very moment in which another thread starts a server: the child must not keep pipes of it open."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from snodo_client import Client, McpError
from snodo_client.transports import forks
from support.forking import in_a_child
from support.http_calls import VERSION, Took
from support.waiting import until

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),  # Python 3.12 warns where threads run
]
SERVER = str(Path(__file__).parents[1] / "support" / "stdio_servers" / "stubborn.py")
TARGET = ("stdio", sys.executable, ["-I", "-S", SERVER])
GRACE = 10.0  # a server that sees no end of its input is left alone for half of it


def test_every_server_sees_the_end_of_its_input_though_children_live_on() -> None:
    """The children live until the end, and so does every pipe that one of them has inherited unnoticed."""
    stop, times = Event(), []

    def starts_and_ends() -> None:
        while not stop.is_set():
            client = Client.connect(TARGET, protocol=VERSION, shutdown_timeout=GRACE)
            with Took() as took:
                client.close()
            times.append(took.seconds)

    threads = [Thread(target=starts_and_ends) for _ in range(4)]
    for thread in threads:
        thread.start()
    read, write = os.pipe()
    pids = []
    try:
        while len(pids) < 60:
            done = len(times)
            pid = os.fork()
            if pid == 0:
                os.close(write)
                os.read(read, 1)
                os._exit(0)
            pids.append(pid)
            until(lambda done=done: len(times) > done)  # type: ignore[misc]
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
        os.close(write)
        os.close(read)
        for pid in pids:
            os.waitpid(pid, 0)
    assert max(times) < GRACE / 2


@pytest.mark.parametrize("restart", [None, "on_call"])
def test_a_fork_while_a_client_connects(restart: Any) -> None:
    """Wherever the parent has got to: without `restart` the client is the parent's, with it the child has its own."""
    for _ in range(10):
        with Client.connect(TARGET, protocol=VERSION, wait=False, restart=restart) as client:
            outcome = in_a_child(lambda client=client: client.request("tools/list", timeout=10.0))
            own = client.request("tools/list", timeout=10.0).unwrap()
            if restart is None:
                assert isinstance(outcome, McpError)
                assert outcome.reason == "forked"
            else:
                assert outcome.unwrap()["server"] != own["server"]


def test_a_start_that_hangs_holds_a_fork_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "SECONDS", 0.2)
    inside, leave = Event(), Event()

    def start() -> None:
        with forks.kept_out():
            inside.set()
            leave.wait(20)

    thread = Thread(target=start)
    thread.start()
    inside.wait(20)
    try:
        with Took() as took:
            assert in_a_child(lambda: "alive") == "alive"
        assert 0.2 <= took.seconds < 2.2
    finally:
        leave.set()
        thread.join(20)
    with Took() as took:
        assert in_a_child(lambda: "alive") == "alive"
        with forks.kept_out():
            pass
    assert took.seconds < 1
