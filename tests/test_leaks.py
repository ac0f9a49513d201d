"""What connecting, calling and closing leaves behind: no thread, no file descriptor, no process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from snodo_client import Client, McpError
from snodo_client.testing.demo import demo_server
from support.faulty import SCRIPT, serving
from support.http_calls import VERSION
from support.leaks import repeat
from support.scripted_http import ScriptedServer, each_request

if TYPE_CHECKING:
    from peers import Peers

CYCLES = 100
FAILURES = 50

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files where Linux lists them")


@pytest.fixture
def no_waiting_peer() -> Iterator[int]:
    """A port nobody listens on."""
    with socket.socket() as bound:  # and nobody can while it is bound
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("inline", [False, True])
def test_direct(inline: bool) -> None:
    server = demo_server()

    def once() -> None:
        with Client.direct(server, inline=inline) as client:
            client.call_tool("add", {"a": 1, "b": 2}).unwrap()

    repeat(CYCLES, once)


SDK_CYCLES = """
from mcp.server import MCPServer
from snodo_client import Client
from support.leaks import repeat

server = MCPServer("leaks")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

def once():
    with Client.direct(server) as client:
        client.call_tool("add", {"a": 1, "b": 2}).unwrap()

repeat(100, once)
print("nothing left")
"""


def test_direct_with_a_server_object(peers: Peers) -> None:
    """In an environment that has the SDK."""
    tests = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)])}
    command = [str(peers.modern), "-c", SDK_CYCLES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.endswith("nothing left\n"), done.stderr[-5000:]


@pytest.mark.parametrize("callback", [False, True])
def test_stdio(callback: bool) -> None:
    target = ("stdio", sys.executable, ["-I", "-S", SCRIPT])
    options: dict[str, Any] = {"on_notification": lambda *_: None, "stderr": lambda _: None} if callback else {}
    note = '{"jsonrpc":"2.0","method":"notifications/x"}'
    answer = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}'

    def once() -> None:
        with Client.connect(target, **options) as client:
            client.call_tool("fault", {"send": [note, answer], "stderr": "hello\n"}).unwrap()

    repeat(CYCLES if not callback else CYCLES // 4, once)


@pytest.mark.parametrize("sse", [False, True], ids=["json", "sse"])
def test_http(sse: bool) -> None:
    with demo_server().serve_http(sse=True if sse else "auto") as serving_:

        def once() -> None:
            with Client.connect(("http", serving_.url)) as client:
                client.call_tool("add", {"a": 1, "b": 2}).unwrap()

        repeat(CYCLES, once)


@pytest.mark.parametrize("kind", ["direct", "stdio", "json", "sse"])
def test_calls_that_time_out(kind: str) -> None:
    with serving(kind) as server, server.connect() as client:

        def once() -> None:
            assert isinstance(client.call_tool("fault", {"send": []}, timeout=0.01), McpError)

        repeat(FAILURES // 2, once)


# -- connects that fail


def failing(connect: Callable[[], Client]) -> Callable[[], None]:
    def once() -> None:
        with pytest.raises(McpError):
            connect()

    return once


def test_no_such_command() -> None:
    repeat(FAILURES, failing(lambda: Client.connect(("stdio", "no-such-command-here"))))


@pytest.mark.parametrize("program", ["raise SystemExit(3)", "print('usage')", "import os; os.close(1); input()"])
def test_a_command_that_exits_at_once(program: str) -> None:
    target = ("stdio", sys.executable, ["-I", "-S", "-c", program])
    repeat(FAILURES if "3" in program else 10, failing(lambda: Client.connect(target)))


def test_a_port_nobody_listens_on(no_waiting_peer: int) -> None:
    repeat(FAILURES, failing(lambda: Client.connect(f"http://127.0.0.1:{no_waiting_peer}/mcp")))


@pytest.mark.parametrize("kind", ["direct", "stdio", "json", "sse"])
def test_a_malformed_discovery(kind: str) -> None:
    text = '{"jsonrpc":"2.0","id":$ID,"result":{"supportedVersions":"none"}}'
    with serving(kind, {"server/discover": [{"send": [text]}]}) as server:
        repeat(FAILURES, failing(server.connect))


def test_a_server_that_hangs_up() -> None:
    def hang_up(peer: Any, request: Any) -> None:
        peer.sock.shutdown(socket.SHUT_RDWR)

    with ScriptedServer(each_request(hang_up)) as server:
        repeat(FAILURES, failing(lambda: Client.connect(server.url)))


def test_a_pinned_client_that_is_never_used() -> None:
    with ScriptedServer(each_request(lambda peer, request: peer.answer(request))) as server:
        repeat(FAILURES, lambda: Client.connect(server.url, protocol=VERSION).close())
