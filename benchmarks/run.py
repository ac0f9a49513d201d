"""Compare snodo_client with the official SDK, bare requests and the floors, side by side in one run.

    python benchmarks/run.py [--quick | --smoke] [--only import,cold,stdio,http,sse,threads] [--json OUT]
                             [--peer-python PATH] [--profile stdio|http|sse|import]

This module starts the processes, lets the contenders take turns (A B C, B C A, ...) and hands the samples to `report`.
What is compared is in `clients` and `whole`; the servers they all talk to are in `servers`.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import report
import whole

HERE = Path(__file__).resolve().parent
SERVER = str(HERE / "servers.py")
SECTIONS = ("import", "cold", "stdio", "http", "sse", "threads")
PEER_VERSION = "2.3.0"
PATIENCE = 120  # seconds a process may take over one turn before it counts as hung


class Effort(NamedTuple):
    """How long to look."""

    rounds: int
    seconds: float  # of calls in one turn; 0 for as few calls as make sense
    processes: int  # rounds of whole processes
    threads: tuple[int, ...]


FULL = Effort(rounds=9, seconds=0.25, processes=9, threads=(1, 8, 32, 128))
QUICK = Effort(rounds=3, seconds=0.1, processes=3, threads=(1, 8, 32, 128))
SMOKE = Effort(rounds=1, seconds=0.0, processes=1, threads=(1, 8))


class Helper:
    """A process of ours that answers one JSON line for each line it gets; `first` is what it says unasked."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=whole.environment()
        )
        self.first = self._line()

    @property
    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def _line(self) -> Any:
        stdout = self._pipes[1]
        if not select.select([stdout], [], [], PATIENCE)[0]:
            self.process.kill()
            return {"error": f"no answer within {PATIENCE} s"}
        line = stdout.readline()
        return json.loads(line) if line else {"error": f"ended with exit code {self.process.wait()}"}

    def ask(self, command: dict[str, int] | None = None) -> Any:
        stdin, _ = self._pipes
        stdin.write(json.dumps(command or {}) + "\n")
        stdin.flush()
        return self._line()

    def close(self) -> None:
        """End it by the end of its input; kill it when that is not enough."""
        stdin, stdout = self._pipes
        try:
            stdin.close()
            self.process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        stdout.close()


class Run:
    """One run: its effort, its interpreters, its HTTP server, and what went wrong."""

    def __init__(self, effort: Effort, peer: str | None) -> None:
        self.effort = effort
        self.pythons = {"mcp": peer} if peer else {}
        self.notes: list[str] = [] if peer else [f"mcp {PEER_VERSION} not found, no column for it (see --peer-python)"]
        self.failures: list[str] = []
        self.server = Helper(sys.executable, SERVER, "http")

    def names(self, *, http: bool) -> list[str]:
        """Give the contenders of a connection, the floor first."""
        names = ["floor", "snodo_client"] + ["requests"] * http
        return names + ["mcp"] * ("mcp" in self.pythons)

    def target(self, connection: str) -> str:
        return SERVER if connection == "stdio" else f"http://127.0.0.1:{self.server.first}/{connection}"

    def drop(self, where: str, name: str, reason: str) -> None:
        """Leave a contender out of what is left of a section."""
        note = f"{where}: {name} left out: {reason}"
        if note not in self.notes:
            self.notes.append(note)

    def turns(self, names: Iterable[str], turn: int) -> list[str]:
        """Give the order of one round: each contender goes first in turn."""
        names = list(names)
        first = turn % len(names) if names else 0
        return names[first:] + names[:first]

    def processes(self, where: str, names: list[str], cost: Callable[[str], float]) -> report.Samples:
        """Take the CPU time of whole processes. A round before the first writes byte code and warms the disk."""
        samples: report.Samples = {name: [] for name in names}
        for turn in range(-1 if self.effort.seconds else 0, self.effort.processes):
            for name in self.turns(samples, turn):
                before = self.server.ask()["requests"]
                try:
                    cpu = cost(name)
                except (whole.Failed, subprocess.TimeoutExpired) as error:
                    self.drop(where, name, str(error))
                    del samples[name]
                    continue
                if turn >= 0:
                    samples[name].append({"cpu": cpu, "requests": self.server.ask()["requests"] - before})
        return samples

    def calls(self, connection: str, threads: tuple[int, ...] = (1,), *, shared: bool = False) -> list[report.Samples]:
        """Take the samples of one connection for each number of threads on one client."""
        workers: dict[str, Helper] = {}
        target = self.target(connection)
        most = str(max(threads) if shared else 1)
        samples: list[report.Samples] = [{} for _ in threads]
        try:
            for name in self.names(http=connection != "stdio"):
                python = self.pythons.get(name, sys.executable)
                workers[name] = Helper(python, str(HERE / "clients.py"), name, connection, target, most)
                if error := workers[name].first.get("error"):
                    self.drop(connection, name, error)
                    workers.pop(name).close()
            counts = {(name, count): self.calibrate(workers[name], count) for name in workers for count in threads}
            for turn in range(self.effort.rounds):
                for count, of_count in zip(threads, samples, strict=True):
                    for name in self.turns(workers, turn):
                        sample = self.sample(workers[name], {"calls": counts[name, count], "threads": count})
                        if "error" in sample:
                            self.drop(f"{connection}, {count} threads", name, sample["error"])
                            workers.pop(name).close()
                            for of_any in samples:
                                of_any.pop(name, None)
                            continue
                        if sample["wrong"]:
                            mixed = f"{name} mixed {sample['wrong']} replies"
                            self.failures.append(f"{connection}, {count} threads: {mixed}")
                        of_count.setdefault(name, []).append(sample)
        finally:
            for worker in workers.values():
                worker.close()
        return samples

    def calibrate(self, worker: Helper, threads: int) -> int:
        """Warm a contender up and give the number of calls that fills one turn."""
        calls = max(20, 2 * threads)
        worker.ask({"calls": calls, "threads": threads})
        sample = worker.ask({"calls": calls, "threads": threads})
        if "error" in sample or not self.effort.seconds:
            return calls
        each = int(self.effort.seconds * calls / sample["wall"]) // threads
        return max(each, 3) * threads

    def sample(self, worker: Helper, command: dict[str, int]) -> dict[str, Any]:
        before = self.server.ask()["connections"]
        sample: dict[str, Any] = worker.ask(command)
        sample["connections"] = self.server.ask()["connections"] - before
        return sample

    def section(self, name: str) -> list[report.Row]:
        """Measure one section and give its rows."""
        if name == "import":
            samples = self.processes(name, self.names(http=True), partial(whole.import_cost, self.pythons))
            return report.import_rows(samples)
        if name == "stdio":
            return self.placed(lambda where: report.call_rows("stdio", self.calls("stdio")[0], where))
        if name == "http":
            return self.placed(lambda where: report.call_rows("json", self.calls("json")[0], where))
        if name == "sse":
            rows = self.placed(lambda where: report.call_rows("sse", self.calls("sse")[0], where))
            return rows + report.late_rows(self.calls("late")[0])
        return [row for connection in ("stdio", "json") for row in self.both(name, connection)]

    def both(self, name: str, connection: str) -> list[report.Row]:
        """Measure one connection of the sections that look at stdio and HTTP alike."""
        if name == "cold":
            cost = partial(whole.script_cost, self.pythons, connection, self.target(connection))
            samples = self.processes(f"cold {connection}", self.names(http=connection == "json"), cost)
            return report.cold_rows(connection, samples)
        threads = self.effort.threads
        return self.placed(
            lambda where: report.thread_rows(connection, threads, self.calls(connection, threads, shared=True), where)
        )

    def placed(self, measure: Callable[[str], list[report.Row]]) -> list[report.Row]:
        """Measure where the scheduler likes, and again with clients and servers on one CPU where the system can."""
        rows = measure("")
        if not self.effort.seconds:
            return rows  # no time is judged: once is enough
        with one_cpu() as possible:
            if possible:
                free, self.server = self.server, Helper(sys.executable, SERVER, "http")
                try:
                    rows += measure(report.ONE_CPU)
                finally:
                    self.server.close()
                    self.server = free
        return rows


@contextmanager
def one_cpu() -> Iterator[bool]:
    """Keep the processes started meanwhile on one CPU; give whether the system can.

    Where the scheduler puts a reader thread and the thread that waits for it decides most of what a hand-over costs,
    and differs from start to start. On one CPU only the code itself is left.
    """
    if sys.platform != "linux":
        yield False
        return
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usual)})
    try:
        yield True
    finally:
        os.sched_setaffinity(0, usual)


def find_peer(given: str | None) -> str | None:
    """Give an interpreter that has the official SDK: the one given, or one that the tests installed."""
    if given:
        return given
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "snodo_client-peers"
    found = sorted(cache.glob(f"*/lib/python3*/site-packages/mcp-{PEER_VERSION}.dist-info"))
    return str(found[0].parents[3] / "bin" / "python") if found else None


def profile(what: str, server: Helper) -> int:
    """Print where our own time goes."""
    if what == "import":
        command = [sys.executable, "-S", "-X", "importtime", "-c", whole.IMPORTS["snodo_client"]]
        found = whole.packages_of(sys.executable)
        done = subprocess.run(command, cwd=whole.ROOT, env=found, capture_output=True, text=True)
        timed = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
        print(timed[0])
        print("\n".join(sorted(timed[1:], key=lambda line: -int(line[12:].split("|")[0]))[:40]))
        return 0
    connection = "json" if what == "http" else what
    target = SERVER if what == "stdio" else f"http://127.0.0.1:{server.first}/{connection}"
    with one_cpu():
        command = [sys.executable, str(HERE / "clients.py"), "profile", connection, target, "5000"]
        return subprocess.run(command).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare snodo_client with peers and floors.")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_true", help="fewer, shorter rounds: a first look")
    effort.add_argument("--smoke", action="store_true", help="check that everything runs and answers; judge no time")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"sections, of {','.join(SECTIONS)}")
    parser.add_argument("--json", metavar="OUT", help="write the rows and all samples to this file")
    parser.add_argument("--peer-python", metavar="PATH", help=f"an interpreter that has mcp=={PEER_VERSION}")
    parser.add_argument("--profile", choices=("stdio", "http", "sse", "import"), help="show where our time goes")
    options = parser.parse_args()
    sections = options.only.split(",")
    if unknown := set(sections) - set(SECTIONS):
        parser.error(f"unknown sections: {', '.join(sorted(unknown))}")

    run = Run(SMOKE if options.smoke else QUICK if options.quick else FULL, find_peer(options.peer_python))
    try:
        if options.profile:
            return profile(options.profile, run.server)
        machine = report.machine()
        rows = [row for name in SECTIONS if name in sections for row in run.section(name)]
        machine["load_after"] = report.load()
    finally:
        run.server.close()
    if options.smoke:
        run.failures += report.missing(rows)
    else:
        print(report.table(rows, machine))
    for note in run.notes:
        print(f"note: {note}")
    for failure in run.failures:
        print(f"FAILED: {failure}")
    if options.json:
        plain = [row.plain() for row in rows]
        document = {"machine": machine, "notes": run.notes, "failures": run.failures, "rows": plain}
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n")
    if options.smoke and not run.failures:
        print(f"smoke: {len(rows)} rows, every reply its caller's own")
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
