"""The tables of requirements name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.parametrize(("table", "own"), [("section_22.md", "requirements/test_section_22_legacy.py")])
def test_every_test_of_a_table_exists_and_every_test_is_in_it(table: str, own: str) -> None:
    text = (FOLDER / table).read_text()
    named = {(path.removesuffix("::") or own, name) for path, name in re.findall(r"`([\w/.]+::)?(test_\w+)`", text)}
    found = {path: set(re.findall(r"^def (test_\w+)", (FOLDER.parent / path).read_text(), re.M)) for path, _ in named}
    assert [(path, name) for path, name in sorted(named) if name not in found[path]] == []
    assert found[own] - {name for _, name in named} == set()
