"""Our client in the official conformance suite, each scenario alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from peers import Peers
from support.official_suite import run_scenario

DRIVER = Path(__file__).parent / "driver.py"

# The number of checks that a complete run of a scenario makes at a revision. Without the number, a client that did
# nothing at all would pass some of them.
MODERN, LEGACY = "2026-07-28", "2025-11-25"
SCENARIOS = {
    ("tools_call", MODERN): 2,
    ("request-metadata", MODERN): 8,
    ("sep-2322-client-request-state", MODERN): 5,
    ("http-standard-headers", MODERN): 9,
    ("http-custom-headers", MODERN): 18,
    ("http-invalid-tool-headers", MODERN): 12,
    ("json-schema-ref-no-deref", MODERN): 1,
    ("json-schema-2020-12-preservation", MODERN): 9,
    ("initialize", LEGACY): 1,
    ("tools_call", LEGACY): 2,
    ("elicitation-sep1034-client-defaults", LEGACY): 5,
    ("sse-retry", LEGACY): 3,
    ("json-schema-2020-12-preservation", LEGACY): 9,
}


@pytest.mark.parametrize(("scenario", "version"), SCENARIOS)
def test_client_scenario(scenario: str, version: str, peers: Peers, tmp_path: Path) -> None:
    command = f"{sys.executable} -W error {DRIVER}"
    statuses = run_scenario(peers, "client", scenario, tmp_path, "--command", command, version=version)
    assert statuses["SUCCESS"] >= SCENARIOS[scenario, version], statuses
