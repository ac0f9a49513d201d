"""What an error says of the server that sent it: which era it may be of, and which versions it names.

Asked while a version is negotiated, and afterwards when a request is refused. What to do about it is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import McpError, Ok, local_error
from ..reasons import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from . import versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..outcome import Outcome

# Statuses about who asks, and how often, not about the protocol.
NOT_THE_PROTOCOL = (401, 403, 429)
# After these an `initialize` that was refused may be due to a server of the first HTTP transport.
MAY_BE_SSE = (400, 404, 405)
MODERN_ERRORS = (HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION)


def legacy_signal(answer: McpError) -> bool:
    """Whether an error speaks for a server of the legacy era. A failing network or server never does."""
    status = _status_of(answer)
    if status is not None and (not 400 <= status < 500 or status in NOT_THE_PROTOCOL):
        return False
    if answer.reason == "http_status":
        return status is not None
    return answer.reason is None and answer.code not in MODERN_ERRORS


def speaks_for_another_era(error: McpError) -> bool:
    """Whether `initialize` is refused as by a server that does not know it. Trouble is no refusal."""
    return legacy_signal(error) or (error.reason is None and error.code in MODERN_ERRORS)


def only_the_probe_is_refused(answer: McpError) -> bool:
    """A credential was sent, and does for everything but an unknown method, as some gateways have it."""
    data = answer.data if answer.reason == "unauthorized" else None
    return bool(data and data.get("credential") and "insufficient_scope" not in data.get("challenge", ""))


def may_be_sse(answer: McpError) -> bool:
    """Whether a refused POST may be due to a server of HTTP+SSE (2025-11-25: basic/transports, "Backwards
    Compatibility").
    """
    status = _status_of(answer)
    return status in MAY_BE_SSE and (answer.reason is not None or answer.code not in MODERN_ERRORS)


def _status_of(answer: McpError) -> int | None:
    """The HTTP status of a refusal, whether or not an error of the server came with it."""
    if answer.reason == "http_status":
        return answer.data.get("http_status") if answer.data else None
    cause = answer.cause
    return cause[1] if isinstance(cause, tuple) and cause[0] == "http_status" else None


def shown(outcome: Outcome) -> str:
    """What came back, in few words and without the server's."""
    if isinstance(outcome, Ok):
        told = outcome.value.get("supportedVersions", [outcome.value.get("protocolVersion")])
        return ", ".join(named(told) or ["a result without a version"])
    if not isinstance(outcome, McpError):
        return "a request for input"
    status = _status_of(outcome)
    text = f"error {outcome.code}" if outcome.reason is None else outcome.reason.replace("_", " ")
    return f"{text} {status}" if outcome.reason == "http_status" else text + (f" (HTTP {status})" if status else "")


def another_version(refusal: McpError, allowed: Sequence[str], tried: set[str]) -> str | None:
    """After -32022: a version both sides know that was not tried for this reason before. The one just refused may be
    listed: once more.
    """
    modern = [version for version in allowed if version in versions.MODERN and version not in tried]
    return versions.mutual(modern, supported(refusal))


def no_version_left(refusal: McpError, allowed: Sequence[str], server: str) -> McpError:
    """The error after -32022 when there is nothing else to try."""
    return incompatible(allowed, supported(refusal), f"{server} refuses every version offered")


def supported(refusal: McpError) -> object:
    """What a refusal of a version has in the place of the supported ones; whatever it is."""
    return refusal.data.get("supported") if isinstance(refusal.data, dict) else None


def named(supported: object) -> list[str] | None:
    """The versions a server names: at most 16, of 32 characters each. None for what is no list."""
    if not isinstance(supported, list):
        return None
    return [version[:32] for version in supported if isinstance(version, str)][:16]


def incompatible(allowed: Sequence[str], supported: object, why: str, cause: McpError | None = None) -> McpError:
    """The error when the two sides have no version in common; `supported` is what the server named, whatever it is."""
    names = named(supported)
    text = f"; the server supports {', '.join(names) or 'none'}" if names is not None else ""
    return local_error(
        "incompatible_versions",
        f"{why}; this client speaks {', '.join(allowed)}{text}",
        data={"requested": list(allowed), "supported": names},
        cause=cause,
    )
