"""Sampling: the shape of what a server asks of a model, and of what the model's handler gives (spec: client/sampling).

What is wrong is told by place; prompts and answers never stand in the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.capabilities import AUDIO_SINCE, MODES_SINCE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_OLD_BLOCKS = frozenset({"text", "image", "audio"})
_ROLES = ("user", "assistant")
# The members each kind of content must have.
_BLOCKS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"toolUseId": str, "content": list},
}
_OPTIONAL: dict[str, type | tuple[type, ...]] = {
    "systemPrompt": str,
    "includeContext": str,
    "temperature": (int, float),
    "stopSequences": list,
    "modelPreferences": dict,
    "metadata": dict,
    "tools": list,
    "toolChoice": dict,
}
# Members of the message around a result: a peer would take the answer for something else.
_ENVELOPE = ("id", "jsonrpc", "resultType")


def problem_of_request(params: Mapping[str, Any]) -> str | None:
    """What is wrong with the parameters of `sampling/createMessage`, or None."""
    if type(params.get("maxTokens")) not in (int, float):
        return "maxTokens is no number"
    for name, kind in _OPTIONAL.items():
        if params.get(name) is not None and not isinstance(params[name], kind):
            return f"{name} has the wrong type"
    messages = params.get("messages")
    if not isinstance(messages, list):
        return "messages are no list"
    for number, message in enumerate(messages):
        why = _problem_of_message(message)
        if why is not None:
            return f"messages/{number} {why}"
    return _problem_of_tool_results(messages)


def fitted(result: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The result as an older version has it: one block of content instead of a list of one."""
    content = result.get("content")
    if version and version < MODES_SINCE and isinstance(content, list) and len(content) == 1:
        return {**result, "content": content[0]}
    return dict(result)


def problem(result: Mapping[str, Any], version: str = "") -> str | None:
    """What is wrong with the result of `sampling/createMessage`, or None. The `version` is that of the server; an empty
    one is the newest.
    """
    if not isinstance(result.get("model"), str):
        return "has no model, a text"
    if not isinstance(result.get("stopReason", ""), str):
        return "has a stopReason that is no text"
    if any(name in result for name in _ENVELOPE):
        return f"has members that belong to the message around it ({', '.join(_ENVELOPE)})"
    return _problem_of_message(result) or _problem_of_age(result, version)


def _problem_of_age(result: Mapping[str, Any], version: str) -> str | None:
    kinds = {block["type"] for block in _blocks(result)}
    if version and version < MODES_SINCE and (isinstance(result["content"], list) or not kinds <= _OLD_BLOCKS):
        return f"has several blocks of content, or uses tools, which version {version} has not"
    if version and version < AUDIO_SINCE and "audio" in kinds:
        return f"has audio content, which version {version} has not"
    return None


def _problem_of_message(message: object) -> str | None:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        return f"has no role, one of {' and '.join(_ROLES)}"
    for block in _blocks(message):
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str) or kind not in _BLOCKS:
            return f"has content of no known type ({', '.join(_BLOCKS)})"
        for name, wanted in _BLOCKS[kind].items():
            if not isinstance(block.get(name), wanted):
                return f"has {kind} content without {name}, or with a wrong one"
    return None


def _blocks(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else [content]


def _problem_of_tool_results(messages: list[dict[str, Any]]) -> str | None:
    """Every tool an assistant's message uses is answered by the user's next message, which holds nothing else."""
    used: list[str] = []
    for number, message in enumerate(messages):
        blocks = _blocks(message)
        results = [block["toolUseId"] for block in blocks if block["type"] == "tool_result"]
        if results and (message["role"] != "user" or len(results) != len(blocks)):
            return f"messages/{number} mixes tool results with something else"
        if sorted(results) != sorted(used):
            return f"messages/{number} has not the results of the tools used before"
        used = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if used and message["role"] != "assistant":
            return f"messages/{number} uses tools but is not the assistant's"
    return "the results of the tools used last are missing" if used else None
