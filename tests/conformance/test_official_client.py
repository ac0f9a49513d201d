"""Our client in the official conformance suite, each scenario alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from peers import Peers
from support.official_suite import run_scenario

DRIVER = Path(__file__).parent / "driver.py"

# Scenario and the number of checks that a complete run of it makes. Without the number, a client that did nothing at
# all would pass some of them.
SCENARIOS = {
    "tools_call": 2,
    "request-metadata": 8,
    "sep-2322-client-request-state": 5,
    "http-standard-headers": 9,
    "http-custom-headers": 18,
    "http-invalid-tool-headers": 12,
    "json-schema-ref-no-deref": 1,
    "json-schema-2020-12-preservation": 9,
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_client_scenario(scenario: str, peers: Peers, tmp_path: Path) -> None:
    command = f"{sys.executable} -W error {DRIVER}"
    statuses = run_scenario(peers, "client", scenario, tmp_path, "--command", command)
    assert statuses["SUCCESS"] >= SCENARIOS[scenario], statuses
