"""Lists and their pages (spec: server/utilities/pagination). Cursors are opaque; an empty string is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import McpError, Page, local_error

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any


def page(result: dict[str, Any], method: str, key: str, server: str) -> Page | McpError:
    """One page out of a result. Entries that are not objects are left out; `result` has them still."""
    items, cursor = result.get(key), result.get("nextCursor")
    if not isinstance(items, list):
        return local_error("invalid_result", f"{server} answered {method} without an array {key!r}")
    if cursor is not None and not isinstance(cursor, str):
        return local_error("invalid_result", f"{server} answered {method} with a nextCursor that is no string")
    return Page([item for item in items if isinstance(item, dict)], cursor, result)


def walk(method: str, max_pages: int, server: str) -> Generator[str | None, Page, list[dict[str, Any]] | McpError]:
    """Yields the cursor of each page wanted, is sent the page, returns all items. A cursor that repeats ends it: an
    endless list.
    """
    items: list[dict[str, Any]] = []
    cursor: str | None = None
    seen: set[str] = set()
    for number in range(1, max_pages + 1):
        got = yield cursor
        items += got.items
        cursor = got.next_cursor
        if cursor is None:
            return items
        if cursor in seen:
            return local_error(
                "repeated_cursor",
                f"{server} answered {method} with the same cursor twice, on page {number}",
                data={"method": method, "pages": number},
            )
        seen.add(cursor)
    return local_error(
        "max_pages",
        f"{server} has more than {max_pages} pages of {method}",
        data={"method": method, "max_pages": max_pages},
    )
