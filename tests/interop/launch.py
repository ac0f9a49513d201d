"""Starts the peers' servers and ends them, and counts the connections that are made to one."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interop.quirks import Peer

    from peers import Peers

SERVERS = Path(__file__).parent / "servers"
START_SECONDS = 30.0
END_SECONDS = 5.0


def command(peers: Peers, peer: Peer, *arguments: str) -> list[str]:
    """The command line of a peer's server."""
    if peer.server == "ts":
        return [str(peers.node), str(SERVERS / "ts_server.mjs"), str(peers.packages), *arguments]
    return [str(peers.modern), str(SERVERS / f"{peer.server}_server.py"), *arguments]


@contextmanager
def serving(peers: Peers, peer: Peer) -> Iterator[str]:
    """The URL of a peer's server, which is up inside the `with`."""
    if peer.connection == "proxy":
        with socket.create_server(("127.0.0.1", 0)) as free:  # its own choice of a port would not be told
            port = free.getsockname()[1]
        address = ["--host", "127.0.0.1", "--port", str(port)]
        with running([*peers.mcp_proxy, *address, "--", *command(peers, peer, "stdio")]) as server:
            until(lambda: server.poll() is not None or accepts(port), START_SECONDS)
            assert server.poll() is None, f"mcp-proxy ended with code {server.returncode}"
            yield f"http://127.0.0.1:{port}/mcp"
    else:
        with running(command(peers, peer, "http", "0")) as server:
            yield first_line(server)


@contextmanager
def running(arguments: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process and all it starts, ended with the `with`."""
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
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
