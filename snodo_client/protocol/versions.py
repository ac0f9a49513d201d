"""Protocol revisions: their names, their eras, and how to pick one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    Era = Literal["modern", "legacy"]

MODERN = ("2026-07-28",)
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
KNOWN = MODERN + LEGACY  # newest first
BATCHING = "2025-03-26"  # the one revision in which messages may come in arrays


def era(version: str) -> Era:
    """The era of a revision: "modern" has no handshake and puts its metadata on every request."""
    return "modern" if version in MODERN else "legacy"


def mutual(allowed: Iterable[str], supported: object) -> str | None:
    """The newest of `allowed` (newest first) that `supported`, as sent by a server, lists. None when there is none."""
    if not isinstance(supported, list):
        return None
    return next((version for version in allowed if version in supported), None)


def allowed(protocol: str | Iterable[str]) -> tuple[str, ...]:
    """The revisions the `protocol=` option allows, newest first: "auto" is every revision. Raises ValueError for an
    unknown one.
    """
    if protocol == "auto":
        return KNOWN
    wanted = (protocol,) if isinstance(protocol, str) else tuple(protocol)
    if not wanted:
        raise ValueError('protocol= is empty: give "auto", a version, or a list of versions')
    for version in wanted:
        if version not in KNOWN:
            raise ValueError(f'protocol={version!r} is unknown: use "auto" or {", ".join(KNOWN)}')
    return tuple(version for version in KNOWN if version in wanted)
