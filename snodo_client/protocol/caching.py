"""Which answers may be used again, for how long, and what a change makes invalid (spec: server/utilities/caching).

Where they are kept, and for whom, is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import versions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

READ = "resources/read"
CACHEABLE = frozenset(
    ("server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", READ)
)
CHANGED = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
UPDATED = "notifications/resources/updated"
# What a subscription can be for, by the members of its filter.
SUBSCRIBED = {
    "toolsListChanged": CHANGED["notifications/tools/list_changed"],
    "promptsListChanged": CHANGED["notifications/prompts/list_changed"],
    "resourcesListChanged": CHANGED["notifications/resources/list_changed"],
    "resourceSubscriptions": (READ,),
}

MAX_LIFETIME = 24 * 60 * 60  # seconds
# A URI beyond these has no parents that could be told.
MAX_URI = 8192  # characters
MAX_PARENTS = 64

# A later page belongs to the first one, and an answer to input to that input.
_NEVER = frozenset(("cursor", "inputResponses", "requestState"))
_WITHOUT_EFFECT = frozenset(("traceparent", "tracestate", "baggage", "progressToken"))


def cacheable(method: str, params: Mapping[str, Any], version: str) -> bool:
    """Whether the answer to a request may be used again, if it allows that itself."""
    return method in CACHEABLE and version in versions.MODERN and _NEVER.isdisjoint(params)


def relevant(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata that an answer may depend on."""
    return {name: meta[name] for name in meta if name not in _WITHOUT_EFFECT}


def lifetime(result: Mapping[str, Any]) -> float:
    """How many seconds a result may be used for, 24 hours at most. 0.0 for a list with more pages, and when `ttlMs` is
    no positive integer; an integral float is one.
    """
    ttl = result.get("ttlMs")
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not ttl > 0 or ttl % 1:
        return 0.0
    if result.get("nextCursor") is not None or result.get("resultType", "complete") != "complete":
        return 0.0
    return min(ttl, MAX_LIFETIME * 1000) / 1000


def with_parents(uri: str) -> list[str]:
    """A URI, the same without its query and fragment, and everything above it in its path, each with and without the
    slash at the end. Empty when that is too much.
    """
    plain = uri.partition("#")[0].partition("?")[0]
    found, floor, cut = [uri, plain], plain.find("://") + 3, len(plain)
    if len(uri) > MAX_URI or plain.count("/", floor) > MAX_PARENTS:
        return []
    while floor > 2 and (cut := plain.rfind("/", floor, cut)) >= 0:
        found += (plain[: cut + 1], plain[:cut])
    return list(dict.fromkeys(found))
