"""What hostile files, stores and servers, and signals at the worst moment, must not do to a client of long life."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from threading import Barrier
from time import monotonic
from typing import Any

import pytest

from snodo_client import Client, Clients, config
from snodo_client.cache import MemoryStore
from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import local_error
from snodo_client.protocol.requests import Request
from snodo_client.testing import Server
from snodo_client.variables import MAX_EXPANDED
from support.scripted_transport import SUPPORTED, ScriptedTransport, result

TOOLS = "notifications/tools/list_changed"


# -- signals

INTERRUPTED = dedent(
    """
    import random, signal, threading, time
    from snodo_client import Client
    from snodo_client.testing import Server

    server = Server("changing")

    @server.tool
    def nothing() -> int:
        return 0

    class Interruption(BaseException):
        pass

    def interrupt(*_):
        raise Interruption

    signal.signal(signal.SIGALRM, interrupt)
    random.seed(4)
    over = threading.Event()

    def change():
        while not over.wait(0.0005):
            server.emit("notifications/tools/list_changed")

    with Client.direct(server) as client:
        subscription = client.listen({"toolsListChanged": True})
        handle = client.start_tool_call("nothing")
        assert handle.result(10).ok
        changing = threading.Thread(target=change)
        changing.start()
        hits, end = 0, time.monotonic() + 2
        while time.monotonic() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 3e-4))
                while True:
                    subscription.next(0.0001)
                    handle.result(0.0001)
            except Interruption:
                hits += 1
        over.set()
        changing.join(5)
        assert not changing.is_alive(), "who tells of changes waits for a lock that nobody has"
        assert hits > 100, hits
        server.emit("notifications/tools/list_changed")
        while subscription.next(0):
            pass
        assert client.call_tool("nothing", timeout=5).ok
        subscription.close()
        assert subscription.next(1).reason == "closed"
    """
)


def _run(script: str) -> str:
    tests = Path(__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)])}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs interval timers")
def test_what_a_signal_handler_raises_in_a_wait_gets_out_and_leaves_no_lock() -> None:
    _run(INTERRUPTED)


def test_an_interruption_while_a_call_is_ended_keeps_nobody_waiting() -> None:
    call, told = Call(1, Request("tools/call", {"name": "t"}), Deadline(10)), []
    interruptions = [KeyboardInterrupt()]

    def wake() -> None:
        if interruptions:
            raise interruptions.pop()

    call.wake, call.told = wake, lambda: told.append(True)
    with pytest.raises(KeyboardInterrupt):
        call.finish(local_error("cancelled"))
    assert told == [True]
    assert call.outcome is not None


# -- files


@pytest.mark.parametrize(
    "text",
    ["/* " * 1_000_000, '"' + '\\"' * 1_000_000, '"' + "\\" * 1_000_001, "," + " " * 1_000_000, "/" * 1_000_000],
    ids=["comments", "quotes", "backslashes", "comma", "slashes"],
)
def test_a_file_without_ends_is_read_in_time(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"a": ' + text)
    begun = monotonic()
    with pytest.raises(ValueError, match="no JSON at line 1"):
        config.load(path)
    assert monotonic() - begun < 2


def test_variables_that_multiply_are_bounded() -> None:
    servers = {"mcpServers": {"a": {"command": "x", "args": ["${A}" * 1000]}}}
    with pytest.raises(ValueError, match=rf"'a', key 'args\[0\]'.*{MAX_EXPANDED}"):
        config.load(servers, env={"A": "v" * (MAX_EXPANDED // 999)})
    assert config.load(servers, env={"A": "v" * (MAX_EXPANDED // 1000)})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("entry", [{"envFile": "{}"}, {"args": ["${{file:{}}}"]}], ids=["envFile", "file"])
def test_a_pipe_is_no_file_of_variables(tmp_path: Path, entry: dict[str, Any]) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    entry = {key: [each.format(pipe) for each in value] if key == "args" else pipe for key, value in entry.items()}
    with pytest.raises(ValueError, match="is no file"):
        config.load({"mcpServers": {"a": {"command": "x", **entry}}})


# -- stores


class Raising(MemoryStore):
    def delete(self, key: str, /) -> None:
        raise OSError


def test_what_a_store_made_from_ours_raises_ends_no_subscription() -> None:
    server = Server("changing", ttl_ms=60_000)
    server.tool(lambda: 0)
    with Client.direct(server, cache=Raising()) as client:
        assert client.list_tools().ok
        subscription = client.listen([TOOLS])
        for _ in range(3):
            server.emit(TOOLS)
            event = subscription.next(5)  # type: ignore[union-attr]
            assert event is not None
            assert event.method == TOOLS  # type: ignore[union-attr]
        assert client.list_tools().ok


# -- many servers


def _closing_together(all_are_here: Barrier) -> Callable[[], ScriptedTransport]:
    class Slow(ScriptedTransport):
        def close(self, deadline: Deadline) -> None:
            all_are_here.wait(8)
            super().close(deadline)

    return lambda: Slow(lambda call: [result(call, **SUPPORTED)])


def test_no_server_is_left_because_others_take_long_to_close() -> None:
    all_are_here = Barrier(40)
    clients = Clients()
    for number in range(40):
        clients.start(f"s{number}", _closing_together(all_are_here))
    connected = [clients[name] for name in clients]
    assert all(client.await_ready(20).ok for client in connected)
    clients.close()
    assert not all_are_here.broken
    assert {client.protocol_info["status"] for client in connected} == {"closed"}


# -- no descriptor left

FULL = dedent(
    """
    import os, resource, sys
    from snodo_client import Client

    with Client.connect(("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"])) as client:
        process = client._session.connection.link.process
        pipes = [file.fileno() for file in (process.stdin, process.stdout, process.stderr)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        taken = []
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        child = os.fork()
        if not child:
            os.close(taken.pop())  # for looking
            held = [os.readlink(f"/proc/self/fd/{pipe}") for pipe in pipes]
            os._exit(0 if held == ["/dev/null"] * 3 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.call_tool("add", {"a": 1, "b": 2}, timeout=5).ok
    """
)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_child_lets_go_of_the_pipes_also_where_no_descriptor_is_left() -> None:
    _run(FULL)
