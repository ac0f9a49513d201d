"""The table of reasons: every error made here has a row, and the page made from the table is up to date."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from snodo_client.outcome import local_error
from snodo_client.reasons import REASONS

ROOT = Path(__file__).parents[1]
KINDS = {"json_rpc", "protocol", "execution", "transport", "authorization", "validation"}


def uses() -> Iterator[tuple[str, str | None, set[str]]]:
    """Where, reason and literal data keys of each call of local_error in the package."""
    for file in (ROOT / "snodo_client").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "local_error"):
                continue
            reason = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
            keys = {
                key.value
                for keyword in node.keywords
                if keyword.arg == "data" and isinstance(keyword.value, ast.Dict)
                for key in keyword.value.keys
                if isinstance(key, ast.Constant)
            }
            yield f"{file.relative_to(ROOT)}:{node.lineno}", reason, keys


def test_every_reason_in_the_source_has_a_row() -> None:
    found = list(uses())
    assert len(found) > 20
    assert [(where, reason) for where, reason, _ in found if reason is not None and reason not in REASONS] == []


def test_data_keys_in_the_source_are_those_of_the_table() -> None:
    odd = [(where, keys - set(REASONS[reason].data)) for where, reason, keys in uses() if reason in REASONS]
    assert [(where, extra) for where, extra in odd if extra] == []


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_rows_are_complete(reason: str) -> None:
    row = REASONS[reason]
    assert row.kind in KINDS
    assert row.code in {-32000, -32001, -32601, -32602, -32603}
    assert (row.code == -32001) == ("timeout" in reason)
    for text in (row.meaning, row.advice):
        assert text
        assert not text.endswith(".")
        assert "\n" not in text


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_errors_are_made_from_their_row(reason: str) -> None:
    error, row = local_error(reason, "this happened"), REASONS[reason]
    assert (error.code, error.kind, error.reason) == (row.code, row.kind, reason)
    assert error.message == f"this happened ({row.advice})"
    assert error.data == {}
    assert row.meaning in local_error(reason).message


def test_a_reason_without_a_row_is_a_bug_here() -> None:
    with pytest.raises(KeyError):
        local_error("no_such_reason")


def test_the_error_reference_is_up_to_date() -> None:
    program = "import runpy; print(runpy.run_path('docs/make_errors.py')['page'](), end='')"
    made = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (ROOT / "docs" / "errors.md").read_text() == made.stdout, "run: python docs/make_errors.py"
    assert [reason for reason in REASONS if f"| `{reason}` |" not in made.stdout] == []
