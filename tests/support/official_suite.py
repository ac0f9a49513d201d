"""Runs one scenario of the official conformance suite alone and reads what it recorded."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

from peers import Peers

SCENARIO_SECONDS = 60


def run_scenario(
    peers: Peers, side: str, scenario: str, folder: Path, *arguments: str, version: str = "2026-07-28"
) -> Counter[str]:
    """Run a ``client`` or ``server`` scenario at a revision; returns how many checks ended with which status.

    Fails unless the suite exits with 0 and no check ended as FAILURE or WARNING. The suite's own verdict is not enough:
    a run in which nothing was checked passes there, so the caller has to look at the number of successes.
    """
    command = [*peers.conformance, side, *arguments, "--scenario", scenario, "--spec-version", version]
    done = subprocess.run(
        [*command, "--force", "--output-dir", str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SCENARIO_SECONDS,
        check=False,
    )
    checks = [check for file in folder.rglob("checks.json") for check in json.loads(file.read_text())]
    statuses = Counter(check["status"] for check in checks)
    bad = [check for check in checks if check["status"] in ("FAILURE", "WARNING")]
    assert done.returncode == 0, f"exit code {done.returncode}\n{_report(bad)}\n{done.stdout}"
    assert not bad, _report(bad)
    return statuses


def _report(checks: list[dict[str, object]]) -> str:
    lines = ("{status} {id} {name}: {errorMessage}".format_map({"errorMessage": "", **check}) for check in checks)
    return "\n".join(lines)
