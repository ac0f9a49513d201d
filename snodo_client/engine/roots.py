"""The roots a client offers to its server: the places in the file system that it may work in (spec: client/roots)."""

from __future__ import annotations

import re
from os import PathLike, fspath
from threading import RLock
from typing import TYPE_CHECKING

from ..protocol import jsonrpc

if TYPE_CHECKING:
    from typing import Any

# Compiled on first use. A host may stand before the path; a query or a fragment is no part of a file's name.
_FILE_URI = r"file://[A-Za-z0-9._~-]*(/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)"
_UP = r"(?i)/(?:\.|%2e){2}(?:/|$)"


def problem_of_uri(uri: object) -> str | None:
    """Why this cannot be the URI of a root, or None."""
    match = re.fullmatch(_FILE_URI, uri) if isinstance(uri, str) else None
    if match is None:
        return "the URI of a root is file:///path, percent-encoded; as_uri() of a pathlib.Path makes one"
    return "the URI of a root has no '..' in its path" if re.search(_UP, match[1]) else None


class Roots:
    """Roots in the order they were added, each URI once. May be used from any thread. `given` is True once somebody
    has said what there is, be it nothing.
    """

    def __init__(self) -> None:
        self.given = False
        self._lock = RLock()  # guards the table; reentrant, for signal handlers
        self._names: dict[str, str | None] = {}

    def add(self, root: str | PathLike[str], name: str | None = None) -> bool:
        """Offer a root: a `file://` URI or a path. One that is there already takes the new name.

        True when something changed. Raises ValueError for a URI of anything else than a file.
        """
        uri = _uri(root)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a root must be a string, not {type(name).__name__}")
        jsonrpc.encode(name)
        with self._lock:
            changed = uri not in self._names or self._names[uri] != name
            self._names[uri] = name
            self.given = True
        return changed

    def remove(self, root: str | PathLike[str]) -> bool:
        """Offer it no longer. True when it was there."""
        uri = _uri(root)
        with self._lock:
            known = uri in self._names
            self._names.pop(uri, None)
        return known

    def clear(self) -> bool:
        """Offer none. True when there were any."""
        with self._lock:
            had, self._names = bool(self._names), {}
            self.given = True
        return had

    def listed(self) -> list[dict[str, Any]]:
        """The roots as the protocol writes them: `uri`, and `name` where there is one."""
        with self._lock:
            names = list(self._names.items())
        return [{"uri": uri} if name is None else {"uri": uri, "name": name} for uri, name in names]

    def forked(self) -> None:
        """In the child of a fork: whoever held the lock stayed with the parent."""
        self._lock = RLock()


def _uri(root: str | PathLike[str]) -> str:
    if isinstance(root, PathLike):
        from os.path import abspath
        from pathlib import Path

        path = fspath(root)
        if not isinstance(path, str):
            raise TypeError("the path of a root must be a text path, not bytes")
        return Path(abspath(path)).as_uri()
    if not isinstance(root, str):
        raise TypeError(f"a root must be a file:// URI or a path, not {type(root).__name__}")
    problem = problem_of_uri(root)
    if problem is not None:
        raise ValueError(problem)
    return root
