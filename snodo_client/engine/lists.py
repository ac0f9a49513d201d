"""Lists over all their pages, and what is learnt from them: over HTTP, which tools may be used, and which of their
arguments are mirrored in headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..log import logger
from ..outcome import McpError, Ok, Page
from ..protocol import pages
from ..protocol.requests import LISTS, list_params

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..outcome import Outcome
    from ..protocol.requests import Request
    from .catalog import Catalog
    from .deadline import Deadline
    from .session import OnProgress

    Send = Callable[[Request, Deadline, OnProgress | None], Outcome]


class Lists:
    """`send` makes one call, `server` tells what to call the server. `catalog` gives None where tool definitions do not
    matter for sending.
    """

    def __init__(
        self, send: Send, server: Callable[[], str], catalog: Callable[[], Catalog | None], max_pages: int
    ) -> None:
        self._send = send
        self._server = server
        self._catalog = catalog
        self._max_pages = max_pages
        self._warned: set[str] = set()

    def whole(
        self, kind: str, request: Request, deadline: Deadline, on_progress: OnProgress | None = None
    ) -> list[dict[str, Any]] | McpError:
        """Every item of a list, all pages inside one deadline. `request` is the one for the first page."""
        steps = pages.walk(request.method, self._max_pages, self._server())
        try:
            cursor = next(steps)
            while True:
                page = self.page(kind, request.copy(params=list_params(cursor)), deadline, on_progress)
                if isinstance(page, McpError):
                    return page
                cursor = steps.send(page)
        except StopIteration as end:
            items: list[dict[str, Any]] | McpError = end.value
            return items

    def page(
        self, kind: str, request: Request, deadline: Deadline, on_progress: OnProgress | None = None
    ) -> Page | McpError:
        outcome = self._send(request, deadline, on_progress)
        if not isinstance(outcome, Ok):
            return outcome  # type: ignore[return-value]  # results.decode lets no list ask for input
        method, key = LISTS[kind]
        page = pages.page(outcome.value, method, key, self._server())
        if isinstance(page, Page):
            left_out = len(page.result[key]) - len(page.items)
            if left_out and method not in self._warned:
                self._warned.add(method)
                text = "%s: %d entries of %s are no objects and are left out"
                logger("session").warning(text, self._server(), left_out, method)
            catalog = self._catalog() if kind == "tools" else None
            if catalog is not None:
                page.items = catalog.remember(page.items, self._server())
        return page
