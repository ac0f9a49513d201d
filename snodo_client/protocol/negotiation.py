"""Which protocol version to speak, as a generator: it yields the requests to send, is sent their outcomes, and returns
the verdict.

The session drives it and waits; nothing here does (spec: basic/versioning).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import McpError, Ok, local_error
from ..reasons import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from . import versions
from .requests import PREFIX, Request

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Any

    from ..outcome import Outcome

# Statuses about who asks, and how often, not about the protocol.
NOT_THE_PROTOCOL = (401, 403, 429)
MODERN_ERRORS = (HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION)


class Agreement:
    """What client and server agreed on.

    `version` and `era` as negotiated; `pinned` when the caller chose them and nothing was asked; `server_info`,
    `capabilities` and `instructions` as the server gave them, None when it was not asked; `probed` what was sent and
    `why` this version was chosen.
    """

    __slots__ = ("capabilities", "era", "instructions", "pinned", "probed", "server_info", "version", "why")

    def __init__(
        self,
        version: str,
        *,
        why: str,
        pinned: bool = False,
        probed: str | None = None,
        discovered: dict[str, Any] | None = None,
    ) -> None:
        discovered = discovered or {}
        self.version = version
        self.era = versions.era(version)
        self.pinned = pinned
        self.probed = probed
        self.why = why
        meta = discovered.get("_meta")
        info = meta.get(PREFIX + "serverInfo") if isinstance(meta, dict) else None
        info = info if info is not None else discovered.get("serverInfo")
        self.server_info: dict[str, Any] | None = info if isinstance(info, dict) else None
        capabilities = discovered.get("capabilities")
        self.capabilities: dict[str, Any] | None = capabilities if isinstance(capabilities, dict) else None
        instructions = discovered.get("instructions")
        self.instructions: str | None = instructions if isinstance(instructions, str) else None


def negotiate(
    allowed: Sequence[str], eras: Sequence[str], server: str, *, silence_is_legacy: bool
) -> Generator[Request, Outcome, Agreement | McpError]:
    """Decide between the `allowed` versions (newest first) that the transport's `eras` can carry. A single era that is
    modern needs no question.
    """
    modern = [version for version in allowed if version in versions.MODERN and "modern" in eras]
    if not modern:
        return _incompatible(allowed, None, "this client speaks only 2026-07-28 on this connection")
    if len(modern) == len(allowed):
        return Agreement(modern[0], pinned=True, why="chosen by protocol=")
    version, refused = modern[0], set[str]()
    while True:
        answer = yield Request("server/discover").copy(version=version)
        if isinstance(answer, Ok):
            return _discovered(answer.value, allowed, modern, version, server)
        if not isinstance(answer, McpError):
            return local_error("invalid_result", f"{server} answered server/discover by asking for input")
        if _legacy_signal(answer, silence_is_legacy):
            return _maybe_legacy(answer, modern, server)
        if answer.reason is not None or answer.code != UNSUPPORTED_VERSION:
            return answer
        other = another_version(answer, modern, refused)
        if other is None:
            return no_version_left(answer, allowed, server)
        refused.add(other)
        version = other


def _legacy_signal(answer: McpError, silence_is_legacy: bool) -> bool:
    """Whether the answer to the probe speaks for a server of the legacy era. A failing network or server never does."""
    if answer.reason == "timeout":
        return silence_is_legacy
    status = answer.data.get("http_status") if answer.reason == "http_status" and answer.data else _status_of(answer)
    if status is not None and (not 400 <= status < 500 or status in NOT_THE_PROTOCOL):
        return False
    if answer.reason == "http_status":
        return status is not None
    return answer.reason is None and answer.code not in MODERN_ERRORS


def _status_of(answer: McpError) -> int | None:
    """The HTTP status of 400 and more that a server's error came with."""
    cause = answer.cause
    return cause[1] if isinstance(cause, tuple) and cause[0] == "http_status" else None


def _maybe_legacy(answer: McpError, modern: Sequence[str], server: str) -> McpError:
    """The error for a server that may be of the legacy era, and may as well be no MCP server, or none at this place."""
    said = answer.message
    if answer.reason is None:
        said = f"{server} refused server/discover with error {answer.code} ({said[:300]})"
    why = f"{said}; it may be no MCP server, or one older than {modern[-1]}, the oldest version this client speaks"
    details = answer.data if isinstance(answer.data, dict) and answer.reason is not None else {}
    data = {**details, "requested": list(modern), "supported": None}
    return local_error("incompatible_versions", why, data=data, cause=answer)


def another_version(refusal: McpError, allowed: Sequence[str], tried: set[str]) -> str | None:
    """After -32022: a version both sides know that was not tried for this reason before. The one just refused may be
    listed: once more.
    """
    modern = [version for version in allowed if version in versions.MODERN and version not in tried]
    return versions.mutual(modern, _supported(refusal))


def no_version_left(refusal: McpError, allowed: Sequence[str], server: str) -> McpError:
    """The error after -32022 when there is nothing else to try."""
    return _incompatible(allowed, _supported(refusal), f"{server} refuses every version offered")


def _supported(refusal: McpError) -> object:
    return refusal.data.get("supported") if isinstance(refusal.data, dict) else None


def _discovered(
    result: dict[str, Any], allowed: Sequence[str], modern: Sequence[str], asked: str, server: str
) -> Agreement | McpError:
    supported = result.get("supportedVersions")
    if not isinstance(supported, list) or not all(isinstance(version, str) for version in supported):
        return local_error("invalid_result", f"{server} answered server/discover without a list of supportedVersions")
    version = versions.mutual(modern, supported)
    if version is None:
        return _incompatible(allowed, supported, f"{server} lists no version this client speaks")
    return Agreement(
        version, probed="server/discover", why=f"server/discover, asked with {asked}, lists it", discovered=result
    )


def _incompatible(allowed: Sequence[str], supported: object, why: str) -> McpError:
    names = (
        [version[:32] for version in supported if isinstance(version, str)][:16]
        if isinstance(supported, list)
        else None
    )
    shown = f"; the server supports {', '.join(names) or 'none'}" if names is not None else ""
    allowed = [version for version in allowed if version in versions.MODERN] or list(allowed)
    return local_error(
        "incompatible_versions",
        f"{why}; this client speaks {', '.join(allowed)}{shown}",
        data={"requested": list(allowed), "supported": names},
    )
