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
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import server as peer
from rig import AMPLE, GRACE, OLDER, Connection, NetServer, Residue, handler, memory, seeded, stdio

from snodo_client import Client, McpError, Ok, Progress

THREADS = 4  # per connection
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
        client, before = connection.look()
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
        ended = not connection.quiet(client, before)
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


def load(seconds: float, seed: int, ledger: str, tally: Tally) -> int:
    """Run it. The growth of memory in MiB."""
    web, older_web, sse, websocket = servers = [
        NetServer(kind, ledger) for kind in ("http", "http", "sse", "websocket")
    ]
    book = peer.Ledger(ledger)
    process = stdio(ledger)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to call (default 20)")
    parser.add_argument("--seed", type=int, default=None, help="of the random choices; threads still race")
    options = parser.parse_args()
    seed = seeded(options.seed)
    logging.getLogger("snodo_client").setLevel(logging.CRITICAL)  # faults are logged, and there are many
    tally = Tally()
    residue = Residue()
    with tempfile.TemporaryDirectory() as folder:
        ledger = str(Path(folder) / "ledger")
        growth = load(options.seconds, seed, ledger, tally)
        ran = Counter(Path(ledger).read_text().split())
    left = residue.left()
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
