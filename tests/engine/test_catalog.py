"""What is remembered of tool definitions, and which tools may not be offered."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from snodo_client.engine import catalog as module
from snodo_client.engine.catalog import Catalog


def tool(name: Any, header: Any = None, type_: str = "string") -> dict[str, Any]:
    marked = {"type": type_, "x-mcp-header": header} if header is not None else {"type": type_}
    return {"name": name, "inputSchema": {"type": "object", "properties": {"a": marked}}}


def test_the_latest_definition_counts() -> None:
    catalog = Catalog()
    catalog.remember([tool("x", "One"), tool("plain")], "the server")
    assert [annotation.name for annotation in catalog.annotations("x")] == ["One"]
    assert list(catalog.annotations("plain")) == list(catalog.annotations("unknown")) == []
    catalog.remember([tool("x", "Two")], "the server")
    assert [annotation.name for annotation in catalog.annotations("x")] == ["Two"]
    catalog.remember([tool("x")], "the server")
    assert list(catalog.annotations("x")) == []


def test_clearing_forgets() -> None:
    catalog = Catalog()
    catalog.remember([tool("x", "One")], "the server")
    catalog.clear()
    assert list(catalog.annotations("x")) == []


def test_invalid_tools_are_left_out_with_one_warning_each(caplog: pytest.LogCaptureFixture) -> None:
    catalog, bad = Catalog(), tool("bad", "One", "number")
    with caplog.at_level(logging.WARNING, "snodo_client.session"):
        for _ in range(3):
            assert catalog.remember([tool("x", "One"), bad, tool("y")], "the server") == [tool("x", "One"), tool("y")]
    assert len(caplog.records) == 1
    assert "'bad'" in caplog.text
    assert "the server" in caplog.text
    assert list(catalog.annotations("bad")) == []


@pytest.mark.parametrize("odd", [{}, {"name": 5}, {"name": None, "inputSchema": 5}, {"name": "x", "inputSchema": True}])
def test_odd_tools_are_kept_and_cost_nothing(odd: dict[str, Any]) -> None:
    assert Catalog().remember([odd, tool("x")], "the server") == [odd, tool("x")]


def test_the_memory_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOOLS", 10)
    catalog = Catalog()
    catalog.remember([tool(f"t{number}", "H") for number in range(50)], "the server")
    assert len([number for number in range(50) if catalog.annotations(f"t{number}")]) == 10


def test_names_of_invalid_tools_are_shown_short(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "snodo_client.session"):
        Catalog().remember([tool("x" * 100_000, "bad header")], "the server")
    assert len(caplog.text) < 1000
