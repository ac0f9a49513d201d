"""Handles of tool calls under result, cancellation, timeout, close and loss at the same moment, on every connection.

    python stress/races.py [--iterations N] [--seed S] [--only NAME]

Threads share one client. Each iteration starts a call and lets some of these happen to it within milliseconds, from
several threads. An oracle holds what the handle, its future and the reports of cancellations say to what was done and
to what the server has seen; innocent calls on the same client must not notice. Exits with 1 when anything was wrong.
The short form is for each change; the long one is `--iterations 10000`, which takes two minutes.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import server as peer
from rig import AMPLE, GRACE, OLDER, Connection, NetServer, Residue, handler, seeded, stdio

from snodo_client import Client, McpError, Ok

RACERS = 3  # threads per connection that each make a third of the iterations
INNOCENTS = 2
MOMENT = 0.003  # seconds within which things happen
DISTURBED = {"closed", "exited", "unreachable", "session_lost", "cancelled"}

# What a connection that is cut makes of the call, and whether that ends all other calls on it too.
CUT: dict[str, tuple[set[str], bool]] = {
    "direct": ({"handler_failure"}, False),
    "http": ({"closed"}, False),
    "stdio": ({"exited"}, True),
    "sse": ({"closed"}, True),
    "websocket": ({"closed"}, True),
}
# Where the server is told of a cancellation by a message that comes after the request, so that the ledger shows it.
TOLD = {"stdio", "sse", "websocket"}


class Ticket:
    """One call of a racer: what was to happen to it, and what the library said of it."""

    def __init__(self, token: str, how: str, timeout: float) -> None:
        self.token = token
        self.how = how
        self.timeout = timeout
        self.allowed: set[str] = {"ok"} if how == "plain" else set()
        self.reports: list[Any] = []
        self.outcome = self.text = ""
        self.quiet = False

    def __repr__(self) -> str:
        return f"{self.token} {self.how} timeout={self.timeout:.4f} {self.outcome} {self.reports}"


class Tally:
    """What happened, and what should not have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.tickets: list[Ticket] = []
        self.innocent: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.hit: list[str] = []

    def add(self, ticket: Ticket, wrong: list[str]) -> None:
        with self._lock:
            self.tickets.append(ticket)
            self.wrong += [f"{ticket}: {text}" for text in wrong]

    def beside(self, outcome: str, hit: str | None) -> None:
        with self._lock:
            self.innocent[outcome] += 1
            if hit is not None:
                self.hit.append(hit)


def name_of(outcome: object) -> str:
    if isinstance(outcome, McpError):
        return outcome.reason or "error of the server"
    return "ok" if isinstance(outcome, Ok) else type(outcome).__name__


class Racer:
    """One thread that makes iterations."""

    def __init__(self, connection: Connection, seed: str, tally: Tally) -> None:
        self.connection = connection
        self.random = random.Random(seed)
        self.seed = seed
        self.tally = tally
        self.pool = ThreadPoolExecutor(4)

    def run(self, iterations: int) -> None:
        with self.pool:
            for number in range(iterations):
                self.one(f"{self.seed}.{number}")

    def moment(self) -> float:
        return self.random.choice((0.0, 0.0, self.random.uniform(0, MOMENT / 10), self.random.uniform(0, MOMENT)))

    def one(self, token: str) -> None:
        connection, chance = self.connection, self.random.random
        how = self.random.choices(("plain", "never", "cut"), (70, 20, 1 if CUT[connection.name][1] else 10))[0]
        hurried, cancels = chance() < 0.4, self.random.choices((0, 1, 2), (30, 55, 15))[0]
        closes, sweeps = chance() < 0.01, chance() < 0.005
        hurried |= how == "never" and not cancels
        ticket = Ticket(token, how, self.random.uniform(0.0005, MOMENT * 1.3) if hurried else AMPLE)
        cuts = how == "cut" and CUT[connection.name][1]
        disturbs = closes or sweeps or cuts
        client, before = connection.look()
        if disturbs:
            connection.disturb(began=True)
        try:
            wrong = self.race(client, ticket, cancels, closes=closes, sweeps=sweeps)
        finally:
            ticket.quiet = connection.quiet(client, before)
            if cuts:  # the server may only be about to
                connection.renew(client)
            if disturbs:
                connection.disturb(began=False)
        if not ticket.quiet:
            ticket.allowed |= DISTURBED
        if ticket.outcome not in ticket.allowed:
            wrong.append(f"only {sorted(ticket.allowed)} may be, not {ticket.text}")
        self.tally.add(ticket, wrong)
        if client.protocol_info["status"] == "closed":
            connection.renew(client)

    def race(self, client: Client, ticket: Ticket, cancels: int, *, closes: bool, sweeps: bool) -> list[str]:
        """Start the call, let things happen to it, and say what is wrong with what came of it."""
        arguments = {"token": ticket.token, "how": ticket.how, "seconds": self.moment(), "steps": 0, "filler": ""}
        wrong: list[str] = []
        settled: list[Any] = []
        begun = time.monotonic()
        handle = client.start_tool_call("work", arguments, timeout=ticket.timeout)
        viewed: Future[Any] | None = handle.future if self.random.random() < 0.5 else None
        if viewed is not None:
            viewed.add_done_callback(settled.append)

        def cancel() -> None:
            ticket.reports.append(handle.cancel("raced"))
            if not handle.done():
                wrong.append("cancelled, and not done")

        def close() -> None:
            client.close()
            if not handle.done():
                wrong.append("its client closed, and not done")

        jobs: list[Callable[[], object]] = [cancel] * cancels
        ticket.allowed |= {"cancelled"} if cancels else set()
        if ticket.timeout < AMPLE:
            ticket.allowed.add("timeout")
        if ticket.how == "cut":
            ticket.allowed |= CUT[self.connection.name][0]
        if closes:
            jobs.append(close)
        if sweeps:
            jobs.append(lambda: client.cancel_all("swept"))
        happening = [self.pool.submit(self.after, self.moment(), job) for job in jobs]
        outcome = handle.result(AMPLE)
        took = time.monotonic() - begun
        for each in happening:
            each.result()
        ticket.outcome, ticket.text = name_of(outcome) if handle.done() else "never", str(outcome)
        if took > ticket.timeout + GRACE:
            wrong.append(f"took {took:.2f} s")
        if handle.result(0) is not handle.result():
            wrong.append("its outcome changed")
        if isinstance(outcome, Ok) and outcome.value["structuredContent"]["token"] != ticket.token:
            wrong.append("the answer to another call")
        if viewed is not None:
            if name_of(viewed.result(AMPLE)) != ticket.outcome:
                wrong.append(f"its future has {viewed.result()!r}")
            end = time.monotonic() + AMPLE
            while len(settled) != 1 and time.monotonic() < end:
                time.sleep(0.001)
            if len(settled) != 1:
                wrong.append(f"its future was done {len(settled)} times")
        won = sum(report.local == "cancelled" for report in ticket.reports)
        if won > 1 or (won and ticket.outcome != "cancelled"):
            wrong.append("cancelled twice, or cancelled with another outcome")
        if not won and ticket.outcome == "cancelled" and cancels and not sweeps:
            ticket.allowed.discard("cancelled")  # it must have been somebody else
        return wrong

    @staticmethod
    def after(seconds: float, job: Callable[[], object]) -> None:
        if seconds:
            time.sleep(seconds)
        job()


def innocent(connection: Connection, name: str, tally: Tally, over: threading.Event) -> None:
    """Calls that nobody does anything to, one after the other."""
    number = 0
    while not over.is_set():
        number += 1
        token = f"{name}.{number}"
        client, before = connection.look()
        arguments = {"token": token, "how": "plain", "seconds": number % 3 / 1000, "steps": 0, "filler": ""}
        if number % 2:
            outcome = client.call_tool("work", arguments, timeout=AMPLE)
        else:
            outcome = client.start_tool_call("work", arguments, timeout=AMPLE).result()
        right = isinstance(outcome, Ok) and outcome.value["structuredContent"]["token"] == token
        hit = None if right or not connection.quiet(client, before) else f"{token}: {outcome!r}"
        tally.beside(name_of(outcome), hit)
        if client.protocol_info["status"] == "closed":
            connection.renew(client)


def compare(tally: Tally, seen: Counter[str], told: bool) -> list[str]:
    """What the library said against what the server has seen."""
    wrong = []
    for ticket in tally.tickets:
        runs, cancels = seen[ticket.token], seen[f"cancel:{ticket.token}"]
        deliveries = {report.request_delivery for report in ticket.reports}
        notified = {report.notification_delivery for report in ticket.reports if report.local == "cancelled"}
        problems = {
            "sent twice": runs > 1,
            "not sent, and the server saw it": "not_sent" in deliveries and runs > 0,
            "an answer without a call": ticket.outcome == "ok" and runs == 0,
            "accepted, and the server never saw it": ticket.quiet and "accepted" in deliveries and runs == 0,
            "the server was told twice": cancels > 1,
            "the server was told of what had its answer": cancels > 0 and ticket.outcome == "ok",
            "the server was not told": (told and ticket.quiet and runs > 0 and "accepted" in notified and cancels == 0),
            "nothing was to be told, and it was": "not_needed" in notified and cancels > 0,
            # Only where no answer can have come in the moment before the cancellation.
            "the server need not be told": (
                told and ticket.how == "never" and ticket.quiet and runs > 0 and "not_needed" in notified
            ),
        }
        wrong += [f"{ticket}: {text}" for text, found in problems.items() if found]
    return wrong


def load(name: str, iterations: int, seed: int, ledger: str) -> Tally:
    """Make all iterations on one connection, and close everything."""
    book = peer.Ledger(ledger)
    web = NetServer(name, ledger) if name in ("http", "sse", "websocket") else None
    target: Any = stdio(ledger) if web is None else (name, web.url)
    options: Any = {"protocol": OLDER} if name in ("sse", "websocket") else {}
    connection = Connection(
        name,
        lambda: Client.direct(handler(book)) if name == "direct" else Client.connect(target, **options),
    )
    tally, over = Tally(), threading.Event()
    racers = [
        threading.Thread(
            target=Racer(connection, f"{seed}.{name}.{number}", tally).run,
            args=(iterations // RACERS + (number < iterations % RACERS),),
        )
        for number in range(RACERS)
    ]
    innocents = [
        threading.Thread(target=innocent, args=(connection, f"{seed}.{name}.i{number}", tally, over))
        for number in range(INNOCENTS)
    ]
    for thread in (*racers, *innocents):
        thread.start()
    for thread in racers:
        thread.join()
    over.set()
    for thread in innocents:
        thread.join()
    connection.client.close()
    if web is not None:
        web.stop()
    book.close()
    return tally


def run(name: str, iterations: int, seed: int, folder: str) -> bool:
    """All iterations on one connection; whether nothing was wrong."""
    ledger = str(Path(folder) / name)
    residue, begun = Residue(), time.monotonic()
    tally = load(name, iterations, seed, ledger)
    took = time.monotonic() - begun
    left = residue.left()
    wrong = tally.wrong + compare(tally, Counter(Path(ledger).read_text().split()), name in TOLD)
    if len(tally.tickets) != iterations:
        wrong.append(f"{iterations - len(tally.tickets)} iterations raised")
    outcomes = Counter(ticket.outcome for ticket in tally.tickets)
    reports = Counter(
        f"{report.local}/{report.request_delivery}/{report.notification_delivery}"
        for ticket in tally.tickets
        for report in ticket.reports
    )
    print(f"{name}: {iterations} iterations in {took:.1f} s")
    for title, counts in (("outcomes", outcomes), ("reports", reports), ("innocent", tally.innocent)):
        print(f"  {title:9} " + ", ".join(f"{what} {number}" for what, number in counts.most_common()))
    print(f"  hit       {len(tally.hit)}", *tally.hit[:5], sep="\n            ")
    print(f"  wrong     {len(wrong)}", *wrong[:10], sep="\n            ")
    print(f"  left      {', '.join(left) or 'nothing'}", flush=True)
    return not (tally.hit or wrong or left)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=1000, help="on each connection (default 1000)")
    parser.add_argument("--seed", type=int, default=None, help="of the random choices; threads still race")
    parser.add_argument("--only", choices=CUT, help="one connection instead of all")
    options = parser.parse_args()
    seed = seeded(options.seed)
    logging.getLogger("snodo_client").setLevel(logging.CRITICAL)  # faults are logged, and there are many
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        names = [options.only] if options.only else list(CUT)
        right = [run(name, options.iterations, seed, folder) for name in names]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
