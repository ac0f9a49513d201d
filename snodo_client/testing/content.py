"""Content blocks, and how the return values of tools, resources and prompts become result members.

Pure functions over JSON values. The blocks are plain dictionaries of their own class, so that a tool may return any
other dictionary as structured data without being misunderstood.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from typing import Any


class Block(dict[str, Any]):
    """One content block, as it is sent."""


def text(value: str, **members: Any) -> Block:
    """A text block; `members` are added as they are (`annotations=...`, `_meta=...`)."""
    return Block(type="text", text=value, **members)


def image(data: bytes, mime_type: str = "image/png", **members: Any) -> Block:
    """An image block."""
    return Block(type="image", data=_base64(data), mimeType=mime_type, **members)


def audio(data: bytes, mime_type: str = "audio/wav", **members: Any) -> Block:
    """An audio block."""
    return Block(type="audio", data=_base64(data), mimeType=mime_type, **members)


def embedded(uri: str, value: str | bytes, mime_type: str = "text/plain", **members: Any) -> Block:
    """A resource embedded in a result or a prompt."""
    return Block(type="resource", resource=_contents(uri, value, mime_type), **members)


def link(uri: str, name: str, **members: Any) -> Block:
    """A link to a resource that the client may read."""
    return Block(type="resource_link", uri=uri, name=name, **members)


class Structured:
    """A tool's structured result, told apart from text: `Structured(None)` is an explicit `null`.

    `content` replaces the text block that otherwise repeats the value as JSON.
    """

    __slots__ = ("content", "value")

    def __init__(self, value: Any, *content: str | Block) -> None:
        self.value = value
        self.content = content


def tool_result(value: Any, *, structured: bool) -> dict[str, Any]:
    """The members of a CallToolResult (spec: server/tools).

    A string or a block is content, and so is a list of them; None is no content; everything else is structured content,
    repeated as JSON text. `structured` says that the tool has an output schema, which makes strings structured content
    as well.
    """
    if isinstance(value, Structured):
        blocks = [_block(item) for item in value.content] or [text(_json(value.value))]
        return {"content": blocks, "structuredContent": value.value}
    if isinstance(value, Block):
        return {"content": [value]}
    if isinstance(value, list) and value and any(isinstance(item, Block) for item in value):
        return {"content": [_block(item) for item in value]}
    if isinstance(value, str):
        return {"content": [text(value)], **({"structuredContent": value} if structured else {})}
    if value is None:
        return {"content": []}
    return {"content": [text(_json(value))], "structuredContent": value}


def tool_failure(content: tuple[str | dict[str, Any], ...]) -> dict[str, Any]:
    """The members of a CallToolResult that reports a failure of the tool."""
    return {"content": [_block(item) for item in content], "isError": True}


def resource_contents(value: Any, uri: str, mime_type: str | None) -> list[dict[str, Any]]:
    """The `contents` of a ReadResourceResult: text for a string, a blob for bytes, dictionaries as they are."""
    if isinstance(value, str | bytes):
        return [_contents(uri, value, mime_type)]
    if isinstance(value, dict):
        return [value]
    return list(value)


def prompt_messages(value: Any) -> list[dict[str, Any]]:
    """The `messages` of a GetPromptResult: strings and blocks are the user's, dictionaries with a role stay."""
    items = value if isinstance(value, list) else [value]
    return [
        item if isinstance(item, dict) and "role" in item else {"role": "user", "content": _block(item)}
        for item in items
    ]


def _block(item: str | dict[str, Any]) -> dict[str, Any]:
    return text(item) if isinstance(item, str) else item


def _contents(uri: str, value: str | bytes, mime_type: str | None) -> dict[str, Any]:
    contents: dict[str, Any] = {"uri": uri}
    if mime_type is not None:
        contents["mimeType"] = mime_type
    if isinstance(value, str):
        contents["text"] = value
    else:
        contents["blob"] = _base64(value)
    return contents


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode("ascii")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
