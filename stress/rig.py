"""What the stress programs have in common: clients that are made again when they are lost, servers that can be started
again, and what may be left at the end.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import server as peer

from snodo_client import Client, McpError
from snodo_client.engine.call import Call

SERVER = str(Path(peer.__file__).resolve())
AMPLE = 20.0  # seconds, for calls that are answered
GRACE = 2.0  # seconds a deadline may be late on a busy machine
OLDER = "2025-11-25"


class Connection:
    """One client that threads share, and how to make the next when it is lost."""

    def __init__(self, name: str, connect: Callable[[], Client], restart: Callable[[], None] | None = None) -> None:
        self.name = name
        self.connect = connect
        self.restart = restart  # kills the server and starts it again; None where the server is the client's own
        self.lock = threading.Lock()
        self.client = connect()
        self.trouble = 0  # how many disturbances there were
        self.troubled = 0  # how many of them are not over

    def disturb(self, began: bool) -> None:
        with self.lock:
            self.trouble += began
            self.troubled += 1 if began else -1

    def look(self) -> tuple[Client, tuple[int, int]]:
        """The client of the moment, and what to ask `quiet` with later."""
        with self.lock:
            return self.client, (self.trouble, self.troubled)

    def quiet(self, client: Client, seen: tuple[int, int]) -> bool:
        """Whether nobody has disturbed the connection since it was looked at."""
        with self.lock:
            return seen == (self.trouble, 0) and self.client is client

    def renew(self, lost: Client) -> None:
        """Connect again, unless somebody has already."""
        with self.lock:
            if self.client is not lost:
                return
            lost.close()
            end = time.monotonic() + AMPLE
            while True:
                try:
                    self.client = self.connect()
                    break
                except McpError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.05)


class NetServer:
    """A server process behind connections by "http", "sse" or "websocket", always at the same port."""

    def __init__(self, kind: str, ledger: str) -> None:
        self._kind = kind
        self._ledger = ledger
        self._port = 0
        self._lock = threading.Lock()
        self._start()
        self.url = f"{'ws' if kind == 'websocket' else 'http'}://127.0.0.1:{self._port}/mcp"

    def _start(self) -> None:
        command = [sys.executable, SERVER, self._kind, self._ledger, str(self._port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())

    def stop(self) -> None:
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def restart(self) -> None:
        with self._lock:
            self.stop()
            self._start()


def stdio(ledger: str) -> Any:
    """What to connect to for a server of the client's own."""
    return "stdio", sys.executable, [SERVER, "stdio", ledger]


def handler(ledger: peer.Ledger) -> Callable[[Any, Any], Any]:
    """A server in process."""

    def handle(message: Any, context: Any) -> Any:
        wire = peer.Direct(context.send, lambda: context.cancelled)
        peer.serve(message, wire, ledger)
        if message.get("params", {}).get("arguments", {}).get("how") == "never":
            while not context.cancelled:
                time.sleep(0.01)
        return wire.reply or {}

    return handle


def seeded(seed: int | None) -> int:
    return seed if seed is not None else random.SystemRandom().randrange(10**6)


def memory() -> int:
    """MiB of this process."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20 if pages.exists() else 0


class Residue:
    """What there was before, to tell what is left after."""

    def __init__(self) -> None:
        self._before = self._count()

    def left(self) -> list[str]:
        """What is left a while after everything was closed: idle threads take five seconds to end."""
        end = time.monotonic() + 15
        while True:
            gc.collect()
            found = [f"{now - self._before[what]} {what}" for what, now in self._count().items()]
            found = [text for text in found if not text.startswith(("-", "0 "))]
            if not found or time.monotonic() > end:
                return found
            time.sleep(0.1)

    @staticmethod
    def _count() -> dict[str, int]:
        return {
            "threads": threading.active_count(),
            "file descriptors": _descriptors(),
            "children": _children(),
            "calls": sum(isinstance(found, Call) for found in gc.get_objects()),
        }


def _descriptors() -> int:
    here = Path("/proc/self/fd")
    return len(list(here.iterdir())) if here.exists() else 0


def _children() -> int:
    me = os.getpid()
    stats = [stat.read_text() for stat in Path("/proc").glob("[0-9]*/stat") if stat.exists()]
    return sum(stat.rpartition(")")[2].split()[1] == str(me) for stat in stats)
