"""What is remembered of tool definitions: which arguments a call must mirror in headers, and the schemas its arguments
and results follow. Bounded, and dropped when the list changes.
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
    from ..schema.compiled import Compiled

MAX_TOOLS = 100_000
MAX_CHECKERS = 1000


class Catalog:
    """Tool name to what its latest definition says."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._annotations: dict[str, Sequence[Annotation]] = {}
        self._definitions: dict[str, dict[str, Any]] = {}
        self._checkers: dict[tuple[str, str], tuple[object, Compiled | None]] = {}
        self._warned: set[str] = set()

    def remember(self, tools: list[dict[str, Any]], server: str, *, mirrors: bool = True) -> list[dict[str, Any]]:
        """Learn from a page of `tools/list` and give back the tools that may be used: where arguments are mirrored in
        headers, those with an invalid annotation are left out, with a warning.
        """
        valid = []
        for tool in tools:
            found = tool_headers.scan(tool.get("inputSchema")) if mirrors else ()
            name = tool.get("name")
            if isinstance(found, str):
                self._warn(name, found, server)
                found = []
            else:
                valid.append(tool)
            if isinstance(name, str):
                self._learn(name, found, tool)
        return valid

    def _learn(self, name: str, annotations: Sequence[Annotation], tool: dict[str, Any]) -> None:
        with self._lock:
            self._annotations.pop(name, None)
            if annotations and len(self._annotations) < MAX_TOOLS:
                self._annotations[name] = annotations
            self._definitions.pop(name, None)
            if len(self._definitions) < MAX_TOOLS:
                # Not the tool itself: callers change what they were given.
                self._definitions[name] = {key: tool[key] for key in ("inputSchema", "outputSchema") if key in tool}

    def annotations(self, name: object) -> Sequence[Annotation]:
        return self._annotations.get(name, ()) if isinstance(name, str) else ()

    def definition(self, name: object) -> dict[str, Any] | None:
        """The schemas of a tool, None when it was not listed."""
        return self._definitions.get(name) if isinstance(name, str) else None

    def checker(self, name: str, member: str, schema: object) -> tuple[object, Compiled | None] | None:
        """What was kept for this schema, the `member` of the tool's definition; None when nothing was."""
        kept = self._checkers.get((name, member))
        return kept if kept is not None and (kept[0] is schema or kept[0] == schema) else None

    def keep(self, name: str, member: str, schema: object, checker: Compiled | None) -> None:
        """Keep what a schema was compiled to, None when it is not checked."""
        with self._lock:
            if len(self._checkers) >= MAX_CHECKERS:
                self._checkers.clear()
            self._checkers[name, member] = schema, checker

    def changed(self, method: str, params: dict[str, Any]) -> None:
        """A list changed, as this notification tells: what is remembered of the tools may be wrong."""
        if method == "notifications/tools/list_changed":
            self.clear()

    def clear(self) -> None:
        with self._lock:
            self._annotations.clear()
            self._definitions.clear()
            self._checkers.clear()

    def forked(self) -> None:
        """In the child of a fork: whoever held the lock stayed with the parent."""
        self._lock = RLock()

    def _warn(self, name: object, why: str, server: str) -> None:
        shown = name[:128] if isinstance(name, str) else "without a name"
        if shown not in self._warned and len(self._warned) < 1000:
            self._warned.add(shown)
            logger("session").warning("%s: the tool %r is left out: %s", server, shown, why)
