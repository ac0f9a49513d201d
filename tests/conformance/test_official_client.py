"""Our client in the official conformance suite, each scenario alone.

Only those without authorization. All of them, and the sets as the suite runs them, are the work of ``run.py``, which
needs most of a minute.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peers import Peers
from support.official_suite import CONFORMANCE, DRIVER, client_scenarios, run_scenario

SCENARIOS = {row: claim.fewest for row, claim in client_scenarios().items() if not row[0].startswith("auth/")}


@pytest.mark.parametrize(("scenario", "version"), SCENARIOS)
def test_client_scenario(scenario: str, version: str, peers: Peers, tmp_path: Path) -> None:
    statuses = run_scenario(peers, "client", scenario, tmp_path, "--command", DRIVER, version=version)
    assert statuses["SUCCESS"] >= SCENARIOS[scenario, version], statuses


def test_every_scenario_of_authorization_is_in_a_table_of_requirements_and_no_other() -> None:
    tables = CONFORMANCE.with_name("requirements").glob("section_*.md")
    named = {name for table in tables for name in re.findall(r"`(auth/[a-z0-9-]+)`", table.read_text())}
    assert named == {scenario for scenario, _ in client_scenarios() if scenario.startswith("auth/")}
