"""What the revisions before 2026-07-28 do not have: pure functions that leave it out of what is sent to their clients.

Revisions are dates, so that a comparison of their names tells which is older. The server's own reading, kept apart from
the client's on purpose.
"""

from __future__ import annotations

from typing import Any

from snodo_client.testing.call import META

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # newest first
MODERN = "2026-07-28"

# The member of a definition, and the revision that introduced it; everything else is as old as the protocol.
_SINCE = {"title": "2025-06-18", "_meta": "2025-06-18", "icons": "2025-11-25"}
_TOOL_SINCE = {**_SINCE, "annotations": "2025-03-26", "execution": "2025-11-25"}
_BLOCK_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
_CAPABILITY_SINCE = {"completions": "2025-03-26", "tasks": "2025-11-25", "extensions": MODERN}
_LISTS = {"tools", "resources", "resourceTemplates", "prompts"}


def is_modern(message: Any) -> bool:
    """Whether a message carries the metadata that every request of the 2026-07-28 revision has."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and f"{META}protocolVersion" in meta


def capabilities(told: dict[str, Any], version: str, *, tasks: bool) -> dict[str, Any]:
    """Server capabilities as the revision knows them; `tasks` says that a tool can run as a task."""
    kept = {name: value for name, value in told.items() if version >= _CAPABILITY_SINCE.get(name, "")}
    if tasks and version >= _CAPABILITY_SINCE["tasks"]:
        kept.setdefault("tasks", {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}})
    return kept


def result(members: dict[str, Any], version: str) -> dict[str, Any]:
    """The result of a method as the revision knows it."""
    kept = {name: value for name, value in members.items() if name not in ("ttlMs", "cacheScope")}
    for name in _LISTS & kept.keys():
        kept[name] = [_definition(item, version, tool=name == "tools") for item in kept[name]]
    if "content" in kept:
        kept["content"] = [_block(block, version) for block in kept["content"] if _has_block(block, version)]
    if "messages" in kept:
        kept["messages"] = [
            {**message, "content": _block(message["content"], version)}
            for message in kept["messages"]
            if _has_block(message["content"], version)
        ]
    if "structuredContent" in kept and (version < "2025-06-18" or not isinstance(kept["structuredContent"], dict)):
        del kept["structuredContent"]
    return kept


def asked(request: dict[str, Any], version: str, elicitation: str) -> dict[str, Any]:
    """The params of a request to the client as the revision knows them; `elicitation` is an id for one by URL."""
    params = dict(request.get("params", {}))
    if request["method"] == "elicitation/create":
        if params.get("mode") == "url":
            params.setdefault("elicitationId", elicitation)
        elif version < "2025-11-25":
            params.pop("mode", None)
    return params


def declarable(version: str, capability: str, parts: dict[str, Any]) -> bool:
    """Whether a client of the revision can have the capability with these parts at all."""
    if capability == "elicitation":
        return version >= ("2025-11-25" if "url" in parts else "2025-06-18")
    return capability != "sampling" or "tools" not in parts or version >= "2025-11-25"


def _definition(definition: dict[str, Any], version: str, *, tool: bool) -> dict[str, Any]:
    since = _TOOL_SINCE if tool else _SINCE
    kept = {name: value for name, value in definition.items() if version >= since.get(name, "")}
    schema = kept.get("outputSchema")
    if schema is not None and (version < "2025-06-18" or schema.get("type") != "object"):
        del kept["outputSchema"]
    return kept


def _has_block(block: Any, version: str) -> bool:
    return not isinstance(block, dict) or version >= _BLOCK_SINCE.get(block.get("type", ""), "")


def _block(block: Any, version: str) -> Any:
    if not isinstance(block, dict) or version >= "2025-06-18":
        return block
    return {name: value for name, value in block.items() if name != "_meta"}
