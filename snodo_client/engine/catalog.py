"""What is remembered of tool definitions: which arguments a call must mirror in headers. Bounded, and dropped when the
list changes.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING

from ..log import logger
from ..protocol import tool_headers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..protocol.tool_headers import Annotation

MAX_TOOLS = 100_000


class Catalog:
    """Tool name to the annotations of its latest definition; only for transports that mirror arguments in headers."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._annotations: dict[str, Sequence[Annotation]] = {}
        self._warned: set[str] = set()

    def remember(self, tools: list[dict[str, Any]], server: str) -> list[dict[str, Any]]:
        """Learn from a page of `tools/list` and give back the tools that may be used: those with an invalid annotation
        are left out, with a warning.
        """
        valid = []
        for tool in tools:
            found = tool_headers.scan(tool.get("inputSchema"))
            name = tool.get("name")
            if isinstance(found, str):
                self._warn(name, found, server)
                found = []
            else:
                valid.append(tool)
            if isinstance(name, str):
                with self._lock:
                    self._annotations.pop(name, None)
                    if found and len(self._annotations) < MAX_TOOLS:
                        self._annotations[name] = found
        return valid

    def annotations(self, name: object) -> Sequence[Annotation]:
        return self._annotations.get(name, ()) if isinstance(name, str) else ()

    def clear(self) -> None:
        with self._lock:
            self._annotations.clear()

    def _warn(self, name: object, why: str, server: str) -> None:
        shown = name[:128] if isinstance(name, str) else "without a name"
        if shown not in self._warned and len(self._warned) < 1000:
            self._warned.add(shown)
            logger("session").warning("%s: the tool %r is left out: %s", server, shown, why)
