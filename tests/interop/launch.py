"""Starts the peers' servers and ends them, gives our clients to them, and counts the connections made to one."""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from interop.legacy_scenarios import make_bench

from snodo_client import Client
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from interop.quirks import Peer
    from interop.scenarios import Bench

    from peers import Peers

SERVERS = Path(__file__).parent / "servers"
START_SECONDS = 30.0
END_SECONDS = 5.0
GATEWAYS = {
    "gateway-stateless": (["--outputTransport", "streamableHttp"], "http", "/mcp"),
    "gateway-http": (["--outputTransport", "streamableHttp", "--stateful"], "http", "/mcp"),
    "gateway-sse": (["--outputTransport", "sse"], "http", "/sse"),
    "gateway-websocket": (["--outputTransport", "ws"], "ws", "/message"),
}
EVERYTHING = {"http": ("streamableHttp", "/mcp"), "sse": ("sse", "/sse")}


def command(peers: Peers, peer: Peer, *arguments: str) -> list[str]:
    """The command line of a peer's server."""
    match peer.server:
        case "ts":
            return [str(peers.node), str(SERVERS / "ts_server.mjs"), str(peers.packages), *arguments]
        case "everything":
            return [*peers.everything, *arguments]
        case "time":
            assert peers.mcp_time is not None
            return peers.mcp_time
        case server:
            python = peers.legacy if server == "legacy" else peers.modern
            return [str(python), str(SERVERS / f"{server}_server.py"), *arguments]


def bench(peers: Peers, peer: Peer, stack: ExitStack) -> Bench:
    """The bench of a peer over its connection, whose server is up until the stack is left."""
    where = stack.enter_context(target(peers, peer))
    made = make_bench(peer, lambda **options: Client.connect(where, **options))
    made.target = where
    stack.callback(made.close)
    return made


@contextmanager
def target(peers: Peers, peer: Peer) -> Iterator[Any]:
    """What to connect to for a peer over its connection. Other than over stdio, its server is up inside the `with`."""
    if peer.connection == "stdio":
        program, *arguments = command(peers, peer, "stdio")
        yield "stdio", program, arguments
    else:
        kind = peer.connection.removeprefix("gateway-")
        with serving(peers, peer) as url:
            yield kind if kind in ("sse", "websocket") else "http", url


@contextmanager
def serving(peers: Peers, peer: Peer) -> Iterator[str]:
    """The URL of a peer's server, which is up inside the `with`."""
    if peer.connection == "proxy":
        inner = ["--", *command(peers, peer, "stdio")]
        with listening(lambda port: [*peers.mcp_proxy, "--host", "127.0.0.1", "--port", port, *inner]) as port:
            yield f"http://127.0.0.1:{port}/mcp"
    elif peer.connection.startswith("gateway-"):
        output, scheme, path = GATEWAYS[peer.connection]
        options = ["--stdio", shlex.join(command(peers, peer, "stdio")), "--logLevel", "none", *output]
        with listening(lambda port: [*peers.supergateway, *options, "--port", port]) as port:
            yield f"{scheme}://127.0.0.1:{port}{path}"
    elif peer.server == "everything":
        mode, path = EVERYTHING[peer.connection]
        with listening(lambda port: ["env", f"PORT={port}", *command(peers, peer, mode)]) as port:
            yield f"http://127.0.0.1:{port}{path}"
    else:
        with running(command(peers, peer, peer.connection, "0")) as server:
            yield first_line(server)


@contextmanager
def listening(arguments: Callable[[str], list[str]], port: int | None = None) -> Iterator[int]:
    """The port of a server that has to be told one, and would not tell which it has chosen itself: a free one, or the
    one given.
    """
    with socket.create_server(("127.0.0.1", port or 0)) as free:
        port = free.getsockname()[1]
    with running(arguments(str(port)), stdout=subprocess.DEVNULL) as server:
        until(lambda: server.poll() is not None or accepts(port), START_SECONDS)
        assert server.poll() is None, f"it ended with code {server.returncode}"
        yield port


@contextmanager
def running(arguments: list[str], stdout: int = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:
    """A process and all it starts, ended with the `with`. Its stdin stays open: some leave when it ends."""
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=stdout, start_new_session=True)
    with process:
        try:
            yield process
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(END_SECONDS)


def first_line(process: subprocess.Popen[bytes]) -> str:
    """What the process prints first."""
    assert process.stdout is not None
    line = b""
    end = time.monotonic() + START_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            assert selector.select(max(0.0, end - time.monotonic())), f"no line within {START_SECONDS} s"
            piece = os.read(process.stdout.fileno(), 4096)
            assert piece, "it ended without a line"
            line += piece
    return line.decode().strip()


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Relay:
    """Passes bytes on to the server of a URL, and counts the connections made to it.

    url: where to connect instead. connections: how many have been accepted.
    """

    def __init__(self, url: str) -> None:
        target = urlsplit(url)
        self._target = (target.hostname, target.port)
        self._sockets = ExitStack()
        self._listener = self._sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._threads: list[Thread] = []
        self.url = target._replace(netloc=f"127.0.0.1:{self._listener.getsockname()[1]}").geturl()
        self.connections = 0

    def __enter__(self) -> Relay:
        self._start(self._accept)
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(END_SECONDS)
        for thread in self._threads[1:]:  # they end with the client's connections
            thread.join(END_SECONDS)
        self._sockets.close()
        assert not any(thread.is_alive() for thread in self._threads)

    def _start(self, function: object, *arguments: object) -> None:
        thread = Thread(target=function, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            far = socket.create_connection(self._target)
            for one, other in ((near, far), (far, near)):
                self._sockets.enter_context(one)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._start(self._pass_on, one, other)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                target.sendall(piece)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
