"""The tables of requirements name tests that exist, and every test that was written for one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TABLES = sorted(Path(__file__).parent.glob("section_*.md"))


def own(table: Path) -> str:
    """Where the tests are that the table names without a path."""
    found = re.search(r"without\s+a\s+path\s+are\s+in\s+`([\w/]+\.py)`", table.read_text())
    assert found is not None, table.name
    return found[1]


def named(table: Path) -> set[tuple[str, str]]:
    """The tests a table names, each with its file."""
    found = re.findall(r"`(?:([\w/]+\.py)::)?(test_\w+)`", table.read_text())
    return {(path or own(table), name) for path, name in found}


def written(path: str) -> set[str]:
    return set(re.findall(r"^def (test_\w+)", (TESTS / path).read_text(), re.M))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_every_test_of_a_table_exists(table: Path) -> None:
    assert [(path, name) for path, name in sorted(named(table)) if name not in written(path)] == []


@pytest.mark.parametrize("path", sorted({own(table) for table in TABLES} - {"test_client_cache.py"}))
def test_every_test_that_was_written_for_a_table_is_in_one(path: str) -> None:
    assert sorted(written(path) - {name for table in TABLES for of, name in named(table) if of == path}) == []
