"""What client and server agreed on, and how it is remembered for another time.

Nothing of a credential, a session or a state is in here: it may be written to a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import versions
from .requests import PREFIX

if TYPE_CHECKING:
    from typing import Any


class Agreement:
    """`version` and `era` as negotiated; `pinned` when protocol= allowed no other; `server_info`,
    `capabilities` and `instructions` as the server gave them, None when it was not asked; `server_versions` those it
    named; `steps` what was sent and what came back, and `why` this version was chosen.

    `remembered`: it comes from an earlier time, and no answer has proved it yet.
    """

    __slots__ = (
        "capabilities",
        "era",
        "instructions",
        "pinned",
        "remembered",
        "server_info",
        "server_versions",
        "steps",
        "version",
        "why",
    )

    def __init__(
        self,
        version: str,
        *,
        why: str = "",
        server_info: object = None,
        capabilities: object = None,
        instructions: object = None,
        server_versions: object = None,
    ) -> None:
        self.version = version
        self.era = versions.era(version)
        self.pinned = False
        self.remembered = False
        self.why = why
        self.steps: list[dict[str, str]] = []
        self.server_info: dict[str, Any] | None = server_info if isinstance(server_info, dict) else None
        self.capabilities: dict[str, Any] | None = capabilities if isinstance(capabilities, dict) else None
        self.instructions: str | None = instructions if isinstance(instructions, str) else None
        named = server_versions if isinstance(server_versions, list) else []
        self.server_versions = [name[:32] for name in named if isinstance(name, str)][:16]

    @property
    def probed(self) -> str | None:
        """What the server was asked first, None when nothing."""
        return self.steps[0]["sent"].partition(" ")[0] if self.steps else None

    def again(self) -> Agreement:
        """The same, for a link on which nothing was asked."""
        again = Agreement(
            self.version,
            why="remembered",
            server_info=self.server_info,
            capabilities=self.capabilities,
            instructions=self.instructions,
            server_versions=self.server_versions,
        )
        again.remembered = True
        return again

    def told(self) -> dict[str, Any]:
        """The part of `protocol_info` that is agreed. JSON can carry it; `remembered()` reads it."""
        return {
            "pinned": self.pinned,
            "era": self.era if self.version else None,
            "version": self.version or None,
            "probed": self.probed,
            "steps": [dict(step) for step in self.steps],
            "why": self.why or None,
            "server_versions": list(self.server_versions),
            "server_info": self.server_info,
            "server_capabilities": self.capabilities,
            "instructions": self.instructions,
        }


def discovered(result: Mapping[str, Any], version: str, why: str) -> Agreement:
    """The agreement after `server/discover`."""
    meta = result.get("_meta")
    info = meta.get(PREFIX + "serverInfo") if isinstance(meta, dict) else None
    return Agreement(
        version,
        why=why,
        server_info=info if info is not None else result.get("serverInfo"),
        capabilities=result.get("capabilities"),
        instructions=result.get("instructions"),
        server_versions=result.get("supportedVersions"),
    )


def initialized(result: Mapping[str, Any], version: str, why: str) -> Agreement:
    """The agreement after `initialize`."""
    return Agreement(
        version,
        why=why,
        server_info=result.get("serverInfo"),
        capabilities=result.get("capabilities"),
        instructions=result.get("instructions"),
        server_versions=[version],
    )


def remembered(told: Mapping[str, Any] | None) -> Agreement | None:
    """An agreement out of an earlier `protocol_info`; None when there is none of a known version in it.

    Raises TypeError for what is no mapping: that is a mistake, while contents that nothing can be made of are only old.
    """
    if told is None:
        return None
    if not isinstance(told, Mapping):
        raise TypeError(f"remembered must be an earlier protocol_info, a mapping, not {type(told).__name__}")
    version = told.get("version")
    if not isinstance(version, str) or version not in versions.KNOWN:
        return None
    return Agreement(
        version,
        why="remembered",
        server_info=told.get("server_info"),
        capabilities=told.get("server_capabilities"),
        instructions=told.get("instructions"),
        server_versions=told.get("server_versions"),
    )
