"""Lists over all their pages, and what is learnt from them of the tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..log import logger
from ..outcome import McpError, Ok, Page
from ..protocol import pages
from ..protocol.requests import LISTS, list_params
from .wishes import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..outcome import Outcome
    from ..protocol.requests import Request
    from .catalog import Catalog
    from .connection import Connection
    from .deadline import Deadline
    from .session import OnProgress
    from .wishes import Wishes

    Send = Callable[[Request, Deadline, OnProgress | None, Wishes], Outcome]


class Lists:
    """`send` makes one call, `connection` is what it is made on; `catalog` learns the definitions of tools."""

    def __init__(self, send: Send, connection: Connection, catalog: Catalog, max_pages: int) -> None:
        self._send = send
        self._connection = connection
        self._catalog = catalog
        self._max_pages = max_pages
        self._warned: set[str] = set()

    def whole(
        self,
        kind: str,
        request: Request,
        deadline: Deadline,
        on_progress: OnProgress | None = None,
        wishes: Wishes = PLAIN,
    ) -> list[dict[str, Any]] | McpError:
        """Every item of a list, all pages inside one deadline. `request` is the one for the first page."""
        steps = pages.walk(request.method, self._max_pages, self._connection.name)
        try:
            cursor = next(steps)
            while True:
                page = self.page(kind, request.copy(params=list_params(cursor)), deadline, on_progress, wishes)
                if isinstance(page, McpError):
                    return page
                cursor = steps.send(page)
        except StopIteration as end:
            items: list[dict[str, Any]] | McpError = end.value
            return items

    def page(
        self,
        kind: str,
        request: Request,
        deadline: Deadline,
        on_progress: OnProgress | None = None,
        wishes: Wishes = PLAIN,
    ) -> Page | McpError:
        outcome = self._send(request, deadline, on_progress, wishes)
        if not isinstance(outcome, Ok):
            return outcome  # type: ignore[return-value]  # results.decode lets no list ask for input
        method, key = LISTS[kind]
        server = self._connection.name
        page = pages.page(outcome.value, method, key, server)
        if isinstance(page, Page):
            left_out = len(page.result[key]) - len(page.items)
            if left_out and method not in self._warned:
                self._warned.add(method)
                text = "%s: %d entries of %s are no objects and are left out"
                logger("session").warning(text, server, left_out, method)
            if kind == "tools":
                page.items = self._catalog.remember(page.items, server, mirrors=self._connection.mirrors)
        return page
