"""Which operations an era has, and what stands in for those it has not (spec: changelog; 2025-11-25: basic, server)."""

from __future__ import annotations

from ..outcome import McpError, local_error
from . import versions

_NO_TASKS = "call the tool without task=; revision 2026-07-28 has tasks as an extension only"

# Method to what to use instead.
_ONLY_LEGACY = {
    "ping": "any request tells whether the server answers: use discover()",
    "logging/setLevel": "pass log_level= to the calls whose log messages are wanted",
    "resources/subscribe": 'listen({"resourceSubscriptions": [uri]}) tells of changes',
    "resources/unsubscribe": "close the subscription that listen() gave",
    "tasks/get": _NO_TASKS,
    "tasks/result": _NO_TASKS,
    "tasks/list": _NO_TASKS,
    "tasks/cancel": _NO_TASKS,
    "notifications/roots/list_changed": "the server asks for the roots when it needs them",
}
_ONLY_MODERN = {
    "server/discover": "server_info, server_capabilities and instructions hold what the server told when it connected",
    "subscriptions/listen": "changes reach on_notification= unasked; subscribe_resource(uri) is for single resources",
}
_SINCE = dict.fromkeys(("tasks/get", "tasks/result", "tasks/list", "tasks/cancel"), "2025-11-25")


def refusal(method: str, version: str, server: str) -> McpError | None:
    """The error for an operation that `version` has not, which names what to use instead; None when it may be sent."""
    instead = (_ONLY_LEGACY if version in versions.MODERN else _ONLY_MODERN).get(method)
    since = _SINCE.get(method, "")
    if instead is None and version < since and version in versions.LEGACY:
        instead = f"tasks came with {since}: call the tool without task="
    if instead is None:
        return None
    return local_error(
        "unsupported_operation",
        f"{method} is not in protocol version {version}, which {server} speaks: {instead}",
        data={"method": method, "version": version},
    )
