"""What the Python clients of this folder share: where to connect to, and how they say what they saw."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

CONCURRENT = 20
LARGE = "é" * 500_000


def target() -> str | list[str]:
    """The server to call: a URL, or the command line that starts it."""
    return sys.argv[1] if sys.argv[1].startswith("http") else sys.argv[1:]


class Facts:
    """Used as a decorator, it collects functions that each find out one thing."""

    def __init__(self) -> None:
        self._finders: list[Callable[[], Awaitable[Any]]] = []

    def __call__(self, find: Callable[[], Awaitable[Any]]) -> None:
        self._finders.append(find)

    async def report(self) -> None:
        """Call each and print a line of JSON: its name and what it returned, or how it failed."""
        for find in self._finders:
            line: dict[str, Any] = {"name": find.__name__}
            try:
                line["value"] = await find()
            except Exception:
                line["failure"] = traceback.format_exc()
            print(json.dumps(line), flush=True)
