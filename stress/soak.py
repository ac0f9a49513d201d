"""Mixed load with an oracle: every call gets exactly one outcome, and the right one; no tool call reaches a server
twice; nothing is left at the end.

    python stress/soak.py [--seconds N] [--seed S]

Threads share one client per connection. They call, wait too briefly, cancel from progress callbacks, close the client
under each other and kill the servers. Exits with 1 when anything was wrong.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import server as peer

from snodo_client import Client, McpError, Ok, Progress
from snodo_client.engine.call import Call

SERVER = str(Path(peer.__file__).resolve())
THREADS = 4  # per connection
AMPLE = 20.0  # seconds, for calls that are answered
GRACE = 2.0  # seconds a deadline may be late on a busy machine
LATE = 0.75  # seconds after the deadline that an answer comes: one that is there when a late caller looks counts
GROWTH = 48  # MiB of memory between the first third and the end

# What is done to a call, how often, and the outcomes it may have on a connection that nobody disturbs.
PLAN: dict[str, tuple[int, set[str]]] = {
    "plain": (30, {"ok"}),
    "list": (6, {"ok"}),
    "noise": (6, {"ok"}),
    "twice": (6, {"ok"}),
    "progress": (10, {"ok"}),
    "error": (6, {"error of the server"}),
    "late": (6, {"timeout"}),
    "never": (4, {"timeout"}),
    "foreign": (3, {"unexpected_id", "timeout", "closed"}),
    "broken": (3, {"malformed", "closed", "handler_failure"}),
    "cancel": (6, {"cancelled by the caller"}),
    "close": (1, {"ok", "closed"}),
    "die": (1, {"exited", "closed"}),
    "restart": (0, {"ok"}),  # in the place of "die" where the server is not the client's own
}
FAULTS = set(PLAN) - {"plain", "list", "progress"}
DISTURBED = {"closed", "exited", "unreachable", "session_lost"}
OLDER = "2025-11-25"


class Cancelled(Exception):
    pass


class Tally:
    """What happened, and what should not have."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.answered: set[str] = set()
        self.latest = 0.0  # seconds the worst deadline was late

    def note(self, how: str, outcome: str, token: str, fault: str | None, late: float) -> None:
        with self.lock:
            self.done[how] += 1
            self.outcomes[outcome] += 1
            self.latest = max(self.latest, late)
            if outcome == "ok" and how != "list":
                self.answered.add(token)
            if fault is not None:
                self.wrong.append(fault)


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


class Caller:
    """One thread of the load."""

    def __init__(self, connection: Connection, seed: str, tally: Tally, until: float) -> None:
        self.connection = connection
        self.random = random.Random(seed)
        self.seed = seed
        self.tally = tally
        self.until = until

    def run(self) -> None:
        ways, weights = list(PLAN), [weight for weight, _ in PLAN.values()]
        number = 0
        while time.monotonic() < self.until:
            number += 1
            (how,) = self.random.choices(ways, weights)
            if how == "die" and (self.connection.name == "direct" or self.random.random() < 0.7):
                how = "plain"
            elif how == "die" and self.connection.restart is not None:
                how = "restart"
            self.one(how, f"{self.seed}.{number}")

    def one(self, how: str, token: str) -> None:
        connection = self.connection
        with connection.lock:
            client, trouble, troubled = connection.client, connection.trouble, connection.troubled
        timeout = self.random.uniform(0.02, 0.3) if how in ("late", "never", "foreign") else AMPLE
        seen: list[float] = []
        if how in ("close", "die", "restart"):
            connection.disturb(began=True)
        started = time.monotonic()
        try:
            outcome, fault = self.judge(self.perform(client, how, token, timeout, seen), how, token)
        except Cancelled:
            outcome, fault = "cancelled by the caller", None
        except BaseException as escaped:
            outcome, fault = f"raised {type(escaped).__name__}", f"{token} {how}: raised {escaped!r}"
        took = time.monotonic() - started
        with connection.lock:
            ended = troubled > 0 or connection.trouble != trouble or connection.client is not client
        if how in ("close", "die", "restart"):
            connection.disturb(began=False)
        allowed = PLAN[how][1] | (DISTURBED if ended else set())
        if fault is None and outcome not in allowed:
            fault = f"{token} {how} on {connection.name}: {outcome}"
        if fault is None and took > timeout + GRACE:
            fault = f"{token} {how} on {connection.name}: took {took:.2f} s of {timeout:.2f}"
        if fault is None and seen != sorted(seen):
            fault = f"{token} {how} on {connection.name}: progress out of order"
        self.tally.note(how, outcome, token, fault, took - timeout)
        if client.protocol_info["status"] == "closed":
            connection.renew(client)

    def perform(self, client: Client, how: str, token: str, timeout: float, seen: list[float]) -> Any:
        if how == "list":
            return client.list_tools(timeout=timeout)
        if how == "close":
            closer = threading.Timer(self.random.uniform(0, 0.005), client.close)
            closer.start()
        if how == "restart" and self.connection.restart is not None:
            self.connection.restart()
        steps = self.random.randint(1, 5) if how in ("progress", "cancel") else 0
        arguments = {
            "token": token,
            "how": how,
            "seconds": timeout + LATE if how == "late" else self.random.choice((0, 0, 0, 0.001, 0.01)),
            "steps": steps,
            "stream": how in ("noise", "twice", "progress", "cancel") or self.random.random() < 0.3,
            "filler": "x" * self.random.choice((0, 0, 100, 5000, 200_000)),
        }

        def progress(step: Progress) -> None:
            seen.append(step.progress)
            if how == "cancel":
                raise Cancelled

        if steps:
            return client.call_tool("work", arguments, timeout=timeout, progress=progress)
        outcome = client.call_tool("work", arguments, timeout=timeout)
        if how == "close":
            closer.join()
        return outcome

    @staticmethod
    def judge(outcome: Any, how: str, token: str) -> tuple[str, str | None]:
        """The outcome by its kind, and what is wrong with its content."""
        if isinstance(outcome, McpError):
            if outcome.reason is not None:
                return outcome.reason, None
            return "error of the server", None if outcome.message == token else f"{token}: error of {outcome.message}"
        if not isinstance(outcome, Ok):
            return type(outcome).__name__, f"{token}: {outcome!r}"
        if how == "list":
            names = [tool["name"] for tool in outcome.value]
            return "ok", None if names == [f"tool{at}" for at in range(peer.TOOLS)] else f"{token}: listed {names}"
        got = outcome.value["structuredContent"]["token"]
        return "ok", None if got == token else f"{token}: the answer to {got}"


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


def handler(ledger: peer.Ledger) -> Callable[[Any, Any], Any]:
    def handle(message: Any, context: Any) -> Any:
        wire = peer.Direct(context.send)
        peer.serve(message, wire, ledger)
        if message.get("params", {}).get("arguments", {}).get("how") == "never":
            while not context.cancelled:
                time.sleep(0.01)
        return wire.reply or {}

    return handle


def memory() -> int:
    """MiB of this process."""
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20 if pages.exists() else 0


def descriptors() -> int:
    here = Path("/proc/self/fd")
    return len(list(here.iterdir())) if here.exists() else 0


def children() -> int:
    me = os.getpid()
    stats = [stat.read_text() for stat in Path("/proc").glob("[0-9]*/stat") if stat.exists()]
    return sum(stat.rpartition(")")[2].split()[1] == str(me) for stat in stats)


def load(seconds: float, seed: int, ledger: str, tally: Tally) -> int:
    """Run it. The growth of memory in MiB."""
    web, older_web, sse, websocket = servers = [
        NetServer(kind, ledger) for kind in ("http", "http", "sse", "websocket")
    ]
    book = peer.Ledger(ledger)
    process: Any = ("stdio", sys.executable, [SERVER, "stdio", ledger])
    connections = [
        Connection("stdio", lambda: Client.connect(process)),
        Connection("http", lambda: Client.connect(web.url), web.restart),
        Connection("direct", lambda: Client.direct(handler(book))),
        Connection("older-stdio", lambda: Client.connect(process, protocol=OLDER)),
        Connection("older-http", lambda: Client.connect(older_web.url, protocol=OLDER), older_web.restart),
        Connection("sse", lambda: Client.connect(("sse", sse.url), protocol=OLDER), sse.restart),
        Connection(
            "websocket", lambda: Client.connect(("websocket", websocket.url), protocol=OLDER), websocket.restart
        ),
    ]
    start = time.monotonic()
    callers = [
        Caller(connection, f"{seed}.{connection.name}.{number}", tally, start + seconds)
        for connection in connections
        for number in range(THREADS)
    ]
    threads = [threading.Thread(target=caller.run) for caller in callers]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 3)
    gc.collect()
    before = memory()
    for thread in threads:
        thread.join()
    growth = memory() - before
    for connection in connections:
        connection.client.close()
    for server in servers:
        server.stop()
    book.close()
    return growth


def leaks(threads: int, files: int, processes: int) -> list[str]:
    """What is left a while after everything was closed: idle threads take five seconds to end."""
    end = time.monotonic() + 15
    while True:
        gc.collect()
        calls = sum(isinstance(found, Call) for found in gc.get_objects())
        left = {
            "threads": threading.active_count() - threads,
            "file descriptors": descriptors() - files,
            "children": children() - processes,
            "calls": calls,
        }
        found = [f"{number} {what}" for what, number in left.items() if number > 0]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to call (default 20)")
    parser.add_argument("--seed", type=int, default=None, help="of the random choices; threads still race")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    logging.getLogger("snodo_client").setLevel(logging.CRITICAL)  # faults are logged, and there are many
    tally = Tally()
    threads, files, processes = threading.active_count(), descriptors(), children()
    with tempfile.TemporaryDirectory() as folder:
        ledger = str(Path(folder) / "ledger")
        growth = load(options.seconds, seed, ledger, tally)
        ran = Counter(Path(ledger).read_text().split())
    left = leaks(threads, files, processes)
    if growth > GROWTH:
        left.append(f"{growth} MiB of memory")
    doubled = [token for token, times in ran.items() if times > 1]
    tally.wrong += [f"{token}: an answer without a call" for token in sorted(tally.answered - ran.keys())]
    calls = sum(tally.done.values())
    print(f"seed {seed}: {calls} calls in {options.seconds:g} s, {sum(tally.done[how] for how in FAULTS)} with a fault")
    for title, counts in (("done", tally.done), ("outcomes", tally.outcomes)):
        print(f"{title:9} " + ", ".join(f"{what} {number}" for what, number in counts.most_common()))
    print(f"doubled   {len(doubled)} {doubled[:5] or ''}")
    print(f"wrong     {len(tally.wrong)}", *tally.wrong[:10], sep="\n          ")
    print(f"leaks     {', '.join(left) or 'none'} (memory {growth:+d} MiB)")
    print(f"deadlines at most {max(tally.latest, 0.0) * 1000:.0f} ms late")
    return 1 if doubled or tally.wrong or left else 0


if __name__ == "__main__":
    sys.exit(main())
