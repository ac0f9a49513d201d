"""What a server offers: handlers with the definitions that lists show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from snodo_client.testing.call import Call
from snodo_client.testing.signature import Signature, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_STRUCTURED = ("integer", "number", "boolean", "array", "object")


class Entry:
    """A handler and its `definition`, the object that a list shows."""

    __slots__ = ("definition", "handler", "signature")

    def __init__(
        self,
        handler: Callable[..., Any],
        key: dict[str, str],
        *,
        name: str | None,
        description: str | None,
        members: Mapping[str, Any],
        mime_type: str | None = None,
    ) -> None:
        self.handler = handler
        self.signature = Signature(handler, Call)
        self.definition: dict[str, Any] = {**key, "name": handler.__name__ if name is None else name}
        description = handler.__doc__ if description is None else description
        if description:
            self.definition["description"] = "\n".join(line.strip() for line in description.strip().splitlines())
        if mime_type is not None:
            self.definition["mimeType"] = mime_type
        self.definition.update({key: value for key, value in members.items() if value is not None})

    def run(self, call: Call, arguments: Mapping[str, Any]) -> Any:
        """Call the handler with these arguments, and with the `Call` where it wants it."""
        if self.signature.call is None:
            return self.handler(**arguments)
        return self.handler(**{**arguments, self.signature.call: call})


class Template(Entry):
    """A resource template; `match` gives the values of its parts, or None."""

    __slots__ = ("_pattern",)

    def __init__(self, handler: Callable[..., Any], template: str, **options: Any) -> None:
        super().__init__(handler, {"uriTemplate": template}, **options)
        pieces = re.split(r"\{(\w+)\}", template)
        pattern = "".join(f"(?P<{piece}>[^/]+)" if i % 2 else re.escape(piece) for i, piece in enumerate(pieces))
        self._pattern = re.compile(pattern)

    def match(self, uri: str) -> dict[str, str] | None:
        found = self._pattern.fullmatch(uri)
        if found is None:
            return None
        from urllib.parse import unquote

        return {name: unquote(value) for name, value in found.groupdict().items()}


class Completion:
    """A completion handler, which may ignore the arguments already chosen."""

    __slots__ = ("_handler", "_wants_context")

    def __init__(self, handler: Callable[..., Any]) -> None:
        self._handler = handler
        self._wants_context = len(Signature(handler, Call).names) > 1

    def run(self, value: str, chosen: dict[str, str]) -> list[str]:
        return list(self._handler(value, chosen) if self._wants_context else self._handler(value))


def tool_definition(handler: Callable[..., Any], options: dict[str, Any]) -> Entry:
    """A tool's entry; see `Server.tool`."""
    name, description = options.pop("name", None), options.pop("description", None)
    input_schema, output_schema = options.pop("input_schema", None), options.pop("output_schema", None)
    entry = Entry(handler, {}, name=name, description=description, members=options)
    entry.definition["inputSchema"] = entry.signature.schema if input_schema is None else input_schema
    if output_schema is None:
        told = schema_of(entry.signature.returns)
        output_schema = told if told.get("type") in _STRUCTURED else None
    if output_schema is not None:
        entry.definition["outputSchema"] = output_schema
    return entry


def prompt_definition(handler: Callable[..., Any], options: dict[str, Any]) -> Entry:
    """A prompt's entry; see `Server.prompt`."""
    name, description = options.pop("name", None), options.pop("description", None)
    entry = Entry(handler, {}, name=name, description=description, members=options)
    required = entry.signature.required
    entry.definition["arguments"] = [{"name": each, "required": each in required} for each in entry.signature.names]
    return entry
