"""The tables of requirements name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


# The tests of each file, and the tables that have to name them all.
TABLES = {
    "requirements/test_section_08_input_rounds.py": ["section_08.md"],
    "requirements/test_section_09_10_progress_and_cancellation.py": ["section_09.md", "section_10.md"],
    "requirements/test_section_16_17_elicitation_sampling_roots.py": ["section_16.md", "section_17.md"],
    "requirements/test_section_22_legacy.py": ["section_22.md"],
}


@pytest.mark.parametrize("own", TABLES)
def test_every_test_of_a_table_exists_and_every_test_is_in_it(own: str) -> None:
    text = "".join((FOLDER / table).read_text() for table in TABLES[own])
    named = {(path.removesuffix("::") or own, name) for path, name in re.findall(r"`([\w/.]+::)?(test_\w+)`", text)}
    found = {path: set(re.findall(r"^def (test_\w+)", (FOLDER.parent / path).read_text(), re.M)) for path, _ in named}
    assert [(path, name) for path, name in sorted(named) if name not in found[path]] == []
    assert found[own] - {name for path, name in named if path == own} == set()
