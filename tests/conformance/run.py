"""The gate of the official suite's client scenarios: ``python tests/conformance/run.py``.

Each set of a revision runs twice: all of it at once, as the suite counts it, and each scenario alone, where the suite
also looks at the driver's exit code, its time and its warnings. Prints a table, and exits with 1 when anything is lost:
a failure, a warning, an exit code, too few successes, a server that should have been refused, a scenario of
``client_scenarios.txt`` that the suite no longer has, or one of a set that the file does not name. Nothing is tried
again: what passes at times is lost.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import peers
from support.official_suite import DRIVER, OUTPUT, Claim, Recorded, client_scenarios, run_alone, run_set

SETS = ["2026-07-28", "2025-11-25"]
AT_ONCE = 2

Row = tuple[str, str]  # scenario, revision


def main() -> int:
    """Run everything; the exit code."""
    started = time.monotonic()
    installed = peers.install()
    claimed = client_scenarios()
    with tempfile.TemporaryDirectory() as folder:
        together, losses = sets(installed, claimed, Path(folder, "sets"))
        alone = each_alone(installed, claimed, Path(folder, "alone"))
    losses += lost("alone", claimed, alone)
    print(table(claimed, together, alone))
    for revision in dict.fromkeys(revision for _, revision in claimed):
        rows = [row for row in claimed if row[1] == revision]
        kept = [sum(row in of and not of[row].losses(claimed[row]) for row in rows) for of in (alone, together)]
        print(f"{revision}: {kept[0]}/{len(rows)} alone" + f", {kept[1]}/{len(rows)} in the set" * (revision in SETS))
    print(f"{len(losses)} lost, {time.monotonic() - started:.0f} s", *losses, sep="\n")
    return 1 if losses else 0


def sets(installed: peers.Peers, claimed: dict[Row, Claim], folder: Path) -> tuple[dict[Row, Recorded], list[str]]:
    """What each scenario recorded in the set of its revision, and what was lost there."""
    found: dict[Row, Recorded] = {}
    losses: list[str] = []
    for revision in SETS:
        exit_code, output, recorded = run_set(installed, revision, folder / revision)
        here = {(scenario, revision): recorded[scenario] for scenario in sorted(recorded)}
        wanted = {row for row in claimed if row[1] == revision}
        new = [f"{revision} {scenario} in the set: not run" for scenario, _ in sorted(wanted - set(here))]
        new += [f"{revision} {scenario} in the set: not claimed" for scenario, _ in sorted(set(here) - wanted)]
        new += lost("in the set", claimed, here)
        if exit_code:
            new.append(f"{revision} set: exit code {exit_code}" + ("" if new else f"\n{output[-OUTPUT:]}"))
        losses += new
        found |= here
    return found, losses


def lost(where: str, claimed: dict[Row, Claim], recorded: dict[Row, Recorded]) -> list[str]:
    """One text for each scenario that is lost: what was wrong, in lines."""
    losses = {row: recorded[row].losses(claimed.get(row, Claim(1))) for row in recorded}
    return ["\n    ".join([f"{row[1]} {row[0]} {where}:", *found]) for row, found in losses.items() if found]


def each_alone(installed: peers.Peers, claimed: dict[Row, Claim], folder: Path) -> dict[Row, Recorded]:
    """What each scenario recorded by itself."""

    def run(row: Row) -> Recorded:
        scenario, revision = row
        return run_alone(
            installed, "client", scenario, folder / revision / scenario, "--command", DRIVER, version=revision
        )

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(claimed, pool.map(run, claimed), strict=True))


def table(claimed: dict[Row, Claim], together: dict[Row, Recorded], alone: dict[Row, Recorded]) -> str:
    """One line a scenario: successes/failures/warnings in the set and alone."""
    lines = [f"{'revision':10}  {'scenario':45}  {'in the set':10}  {'alone':10}  exit  seconds"]
    for row in claimed:
        scenario, revision = row
        done = alone[row]
        counts = (counted(together.get(row)), counted(done))
        lines.append(
            f"{revision:10}  {scenario:45}  {counts[0]:10}  {counts[1]:10}  {done.exit_code:4}  {done.seconds:7.1f}"
        )
    return "\n".join(lines)


def counted(recorded: Recorded | None) -> str:
    """Successes, failures and warnings; "-" for a scenario that was not run."""
    return "-" if recorded is None else "/".join(str(recorded.statuses[s]) for s in ("SUCCESS", "FAILURE", "WARNING"))


if __name__ == "__main__":
    sys.exit(main())
