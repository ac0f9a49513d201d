"""Lists: one page out of a result, and following cursors to the end, however hostile they are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client import McpError, Page
from snodo_client.protocol import pages

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def walk(results: list[Page], max_pages: int = 100) -> tuple[Any, list[str | None]]:
    """What the walk returns when these are the pages, and the cursors it asked for."""
    steps, asked, given_pages = pages.walk("tools/list", max_pages, "x"), [], iter(results)
    try:
        cursor = next(steps)
        while True:
            asked.append(cursor)
            cursor = steps.send(next(given_pages))
    except StopIteration as end:
        return end.value, asked


def page(names: str, cursor: str | None = None) -> Page:
    return Page([{"name": name} for name in names], cursor, {})


def names(items: Any) -> str:
    assert isinstance(items, list), items
    return "".join(item["name"] for item in items)


def test_all_pages_in_order() -> None:
    items, asked = walk([page("ab", "1"), page("", "2"), page("c")])
    assert names(items) == "abc"
    assert asked == [None, "1", "2"]


def test_an_empty_string_is_a_cursor() -> None:
    items, asked = walk([page("a", ""), page("b")])
    assert names(items) == "ab"
    assert asked == [None, ""]


@pytest.mark.parametrize(
    ("cursors", "number"), [(["a", "a"], 2), (["", ""], 2), (["a", "b", "a"], 3), (["a", "b", "c", "b"], 4)]
)
def test_a_repeated_cursor_is_an_error_and_never_a_short_list(cursors: list[str], number: int) -> None:
    error, asked = walk([page("x", cursor) for cursor in cursors])
    assert isinstance(error, McpError)
    assert (error.reason, error.data) == ("repeated_cursor", {"method": "tools/list", "pages": number})
    assert len(asked) == number


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_no_more_pages_than_allowed(limit: int) -> None:
    error, asked = walk([page("x", str(number)) for number in range(20)], limit)
    assert isinstance(error, McpError)
    assert (error.reason, error.data) == ("max_pages", {"method": "tools/list", "max_pages": limit})
    assert len(asked) == limit
    items, _ = walk([*(page("x", str(number)) for number in range(limit - 1)), page("y")], limit)
    assert names(items) == "x" * (limit - 1) + "y"


@given(st.lists(st.text(max_size=3), max_size=30), st.integers(1, 20))
def test_a_walk_ends_and_is_complete_or_an_error(cursors: list[str], limit: int) -> None:
    outcome, asked = walk([*(page("x", cursor) for cursor in cursors), page("x")], limit)
    assert len(asked) <= limit
    if isinstance(outcome, McpError):
        assert len(set(cursors)) < len(cursors) or len(cursors) >= limit
    else:
        assert names(outcome) == "x" * (len(cursors) + 1)
        assert asked == [None, *cursors]


def test_a_page_of_a_result() -> None:
    result = {"tools": [{"name": "a"}, 5, None, [], {"name": "b"}], "nextCursor": "", "other": 1}
    got = pages.page(result, "tools/list", "tools", "x")
    assert isinstance(got, Page)
    assert names(got.items) == "ab"
    assert got.next_cursor == ""
    assert got.result is result
    assert len(result["tools"]) == 5


def test_no_cursor_and_null_both_end_a_list() -> None:
    for result in ({"tools": []}, {"tools": [], "nextCursor": None}):
        got = pages.page(result, "tools/list", "tools", "x")
        assert isinstance(got, Page)
        assert got.next_cursor is None


@pytest.mark.parametrize("cursor", [0, 5, 1.5, True, False, [], {}, ["a"]])
def test_a_cursor_that_is_no_string_is_an_error(cursor: object) -> None:
    error = pages.page({"tools": [], "nextCursor": cursor}, "tools/list", "tools", "x")
    assert isinstance(error, McpError)
    assert error.reason == "invalid_result"
    assert "nextCursor" in error.message


@pytest.mark.parametrize("result", [{}, {"tools": None}, {"tools": {}}, {"tools": "ab"}, {"resources": []}])
def test_a_list_that_is_none_is_an_error(result: dict[str, Any]) -> None:
    error = pages.page(result, "tools/list", "tools", "x")
    assert isinstance(error, McpError)
    assert error.reason == "invalid_result"
    assert "'tools'" in error.message


@given(st.fixed_dictionaries({}, optional={"tools": JSON, "nextCursor": JSON}))
def test_a_page_of_anything(result: dict[str, Any]) -> None:
    got = pages.page(result, "tools/list", "tools", "x")
    assert isinstance(got, Page) or got.reason == "invalid_result"
