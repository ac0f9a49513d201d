"""Runs the official conformance suite and reads what it recorded.

The suite's own verdict is not enough. A set run looks past warnings, time limits and the client's exit code, and
everywhere a scenario passes in which nothing was checked. So what was recorded is read and held to what is claimed: the
client's claims are in ``conformance/client_scenarios.txt``.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from peers import Peers

CONFORMANCE = Path(__file__).parents[1] / "conformance"
SCENARIO_SECONDS = 60
SET_SECONDS = 180
OUTPUT = 2000  # characters, from the end

# What the suite runs for each client scenario. It splits this at spaces and adds the URL.
DRIVER = f"{sys.executable} -W error {CONFORMANCE / 'driver.py'}"

# How the driver ends when it refused the server. Any other exception is a fault in it or in us.
REFUSED = "snodo_client.outcome.McpError: "


class Claim(NamedTuple):
    """What has to come of a scenario: how many successful checks at least, and whether the server is to be refused."""

    fewest: int
    refused: bool = False


class Recorded:
    """What one scenario left behind. `exit_code` is the suite's, None in a set run, which has one for all of them."""

    def __init__(self, folder: Path, exit_code: int | None = None, output: str = "", seconds: float = 0.0) -> None:
        self.exit_code = exit_code
        self.output = output
        self.seconds = seconds
        self.checks = [check for file in folder.rglob("checks.json") for check in json.loads(file.read_text())]
        self.statuses = Counter(check["status"] for check in self.checks)
        errors = [file.read_text() for file in folder.rglob("stderr.txt")]
        self.driver_errors = [text.strip().splitlines()[-1] for text in errors if "Traceback" in text]

    def losses(self, claim: Claim) -> list[str]:
        """What is wrong with it, in lines."""
        bad = (check for check in self.checks if check["status"] in ("FAILURE", "WARNING"))
        found = ["{status} {id} {name}: {errorMessage}".format_map({"errorMessage": "", **check}) for check in bad]
        if self.statuses["SUCCESS"] < claim.fewest:
            found.append(f"{self.statuses['SUCCESS']} successes of at least {claim.fewest}")
        if claim.refused and not self.driver_errors:
            found.append("the server was not refused")
        for line in self.driver_errors:
            if not (claim.refused and line.startswith(REFUSED)):
                found.append(f"the driver ended with {line}")
        if self.exit_code:
            found.append(f"exit code {self.exit_code}" + ("" if found else f"\n{self.output[-OUTPUT:]}"))
        return found


def client_scenarios() -> dict[tuple[str, str], Claim]:
    """(scenario, revision) -> what is claimed of it, for every client scenario."""
    text = (CONFORMANCE / "client_scenarios.txt").read_text()
    rows = (line.partition("#")[0].split() for line in text.splitlines())
    return {
        (scenario, revision): Claim(int(fewest), refused == ["refused"])
        for revision, scenario, fewest, *refused in filter(None, rows)
    }


def run_alone(
    peers: Peers, side: str, scenario: str, folder: Path, *arguments: str, version: str = "2026-07-28"
) -> Recorded:
    """Run one ``client`` or ``server`` scenario at a revision; `folder` takes what it records."""
    command = [*peers.conformance, side, *arguments, "--scenario", scenario, "--spec-version", version, "--force"]
    started = time.monotonic()
    exit_code, output = _run(command, folder, SCENARIO_SECONDS)
    return Recorded(folder, exit_code, output, time.monotonic() - started)


def run_scenario(
    peers: Peers, side: str, scenario: str, folder: Path, *arguments: str, version: str = "2026-07-28"
) -> Counter[str]:
    """Run one scenario alone and fail if anything is wrong; how many checks ended with which status is for the caller
    to judge.
    """
    recorded = run_alone(peers, side, scenario, folder, *arguments, version=version)
    losses = recorded.losses(Claim(0))
    assert not losses, "\n".join(losses)
    return recorded.statuses


def run_set(peers: Peers, revision: str, folder: Path) -> tuple[int, str, dict[str, Recorded]]:
    """Run every client scenario of a revision at once, as the suite does it; its exit code, its output, and what each
    scenario recorded.
    """
    sides = ["client", "--command", DRIVER, "--requirements", revision, "--timeout", "60000"]
    exit_code, output = _run([*peers.conformance, *sides], folder, SET_SECONDS)
    folders = {file.parent for file in folder.rglob("checks.json")}
    names = {found: re.sub(r"-\d{4}-\d\d-\d\dT[\w-]+Z$", "", str(found.relative_to(folder))) for found in folders}
    return exit_code, output, {name: Recorded(found) for found, name in names.items()}


def _run(command: list[str], folder: Path, seconds: float) -> tuple[int, str]:
    """The output goes through a file: a pipe would stay open for as long as anything that the suite started lives."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "suite.log"
    with log.open("w") as file:
        suite = subprocess.Popen(
            [*command, "--output-dir", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            exit_code = suite.wait(seconds)
            late = ""
        except subprocess.TimeoutExpired:
            os.killpg(suite.pid, signal.SIGKILL)
            exit_code = suite.wait()
            late = f"\nended after {seconds} s"
    return exit_code, log.read_text(errors="replace") + late
