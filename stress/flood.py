"""A subscription with far more events than its reader can take, on every connection of the newest revision.

    python stress/flood.py [--seconds N] [--rate R] [--only NAME]

The server sends R numbered events a second; the reader takes a tenth of them. What is read and what is reported as
dropped must add up to what was sent, in order and without a gap that was not told of; what is read must be fresh;
memory must stay flat; calls beside must be answered. Exits with 1 when anything was wrong. The short form is for each
change; the long one is `--seconds 60`.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import server as peer
from rig import AMPLE, NetServer, Residue, handler, memory, stdio

from snodo_client import Client, Closed, Dropped, Notification, Ok, Subscription

BUFFER = 1000
SLOWNESS = 10  # how many times slower than the server the reader is
SLACK = 1.0  # seconds that what is read may be older than the buffer explains
GROWTH = 16  # MiB of memory after the first quarter
PATIENCE = 2.0  # seconds for a call beside
CONNECTIONS = ("direct", "stdio", "http")


class Reader:
    """One reader, and what it makes of the events."""

    def __init__(self, subscription: Subscription, rate: int, until: float) -> None:
        self.wrong: list[str] = []
        self.received = self.dropped = 0
        self.lag = 0.0
        self.end: Closed | None = None
        self._subscription = subscription
        self._pause = SLOWNESS / rate
        self._until = until
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        gap, last = 0, -1
        for event in self._subscription:
            if isinstance(event, Closed):
                self.end = event
                self.dropped += gap
            elif isinstance(event, Dropped):
                if gap:
                    self.wrong.append("dropped twice, with nothing in between")
                gap = event.count
            else:
                last = self._take(event, last, gap)
                gap = 0
        if self._subscription.next(0) is not self.end:
            self.wrong.append("after the end there is another end")

    def _take(self, event: Notification, last: int, gap: int) -> int:
        number: int = event.params["number"]
        if number != last + gap + 1:
            self.wrong.append(f"{number} after {last}, and {gap} dropped")
        self.received += 1
        self.dropped += gap
        self.lag = max(self.lag, time.monotonic() - event.params["sent"])
        if time.monotonic() < self._until:
            time.sleep(self._pause)
        return number


class Beside:
    """Calls on the same client, one after the other."""

    def __init__(self, client: Client) -> None:
        self.wrong: list[str] = []
        self.calls = 0
        self.slowest = 0.0
        self._client = client
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.02):
            arguments = {"token": f"beside-{self.calls}", "how": "plain", "seconds": 0, "steps": 0, "filler": "x" * 100}
            begun = time.monotonic()
            outcome = self._client.call_tool("work", arguments, timeout=AMPLE)
            self.slowest = max(self.slowest, time.monotonic() - begun)
            self.calls += 1
            if not isinstance(outcome, Ok):
                self.wrong.append(f"a call beside: {outcome!r}")


def load(name: str, target: Any, seconds: float, rate: int, book: peer.Ledger) -> tuple[str, list[str]]:
    """Flood one connection: a line about it, and what was wrong."""
    count = round(rate * seconds)
    with Client.direct(handler(book)) if name == "direct" else Client.connect(target) as client:
        begun = time.monotonic()
        subscription = client.listen({"resourceSubscriptions": [f"flood://{rate}/{count}"]}, buffer=BUFFER)
        if not isinstance(subscription, Subscription):
            return "not acknowledged", [repr(subscription)]
        reader, beside = Reader(subscription, rate, begun + seconds), Beside(client)
        samples: list[int] = []
        while reader.thread.is_alive():
            reader.thread.join(0.25)
            if time.monotonic() - begun > seconds / 4:
                gc.collect()
                samples.append(memory())
        beside.stop()
    growth = max(samples) - samples[0]
    wrong = reader.wrong + beside.wrong
    checks = {
        f"{reader.received} received and {reader.dropped} dropped of {count}": reader.received + reader.dropped
        != count,
        f"the end: {reader.end}": reader.end is None or reader.end.reason != "complete",
        f"nothing dropped of {count}": reader.dropped == 0 and count > 2 * BUFFER,
        f"{reader.lag:.2f} s behind": reader.lag > BUFFER / rate + SLACK,
        f"{growth} MiB of memory": growth > GROWTH,
        f"{beside.slowest:.2f} s for a call beside": beside.slowest > PATIENCE,
    }
    wrong += [text for text, found in checks.items() if found]
    line = (
        f"{count} sent, {reader.received} received, {reader.dropped} dropped, at most {reader.lag:.2f} s old, "
        f"{growth:+d} MiB; {beside.calls} calls beside, {beside.slowest * 1000:.0f} ms at most"
    )
    return line, wrong


def run(name: str, seconds: float, rate: int, folder: str) -> bool:
    """Flood one connection; whether nothing was wrong."""
    ledger = str(Path(folder) / name)
    residue = Residue()
    book = peer.Ledger(ledger)
    web = NetServer(name, ledger) if name == "http" else None
    try:
        line, wrong = load(name, stdio(ledger) if web is None else web.url, seconds, rate, book)
    finally:
        book.close()
        if web is not None:
            web.stop()
    wrong += [f"left: {what}" for what in residue.left()]
    print(f"{name}: {line}", *wrong[:10], sep="\n  wrong: ", flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="on each connection (default 4)")
    parser.add_argument("--rate", type=int, default=1000, help="events a second (default 1000)")
    parser.add_argument("--only", choices=CONNECTIONS, help="one connection instead of all")
    options = parser.parse_args()
    logging.getLogger("snodo_client").setLevel(logging.CRITICAL)  # losses are logged
    with tempfile.TemporaryDirectory() as folder:
        names = [options.only] if options.only else CONNECTIONS
        right = [run(name, options.seconds, options.rate, folder) for name in names]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
