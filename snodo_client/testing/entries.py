"""What a server offers: handlers, with the definitions that lists show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from snodo_client.testing.call import Call
from snodo_client.testing.signature import Signature, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_STRUCTURED = ("integer", "number", "boolean", "array", "object")


class Entry:
    """A handler and its `definition`, the object that a list shows: the members given, those that are None left out."""

    __slots__ = ("definition", "handler", "signature")

    def __init__(self, handler: Callable[..., Any], **members: Any) -> None:
        self.handler = handler
        self.signature = Signature(handler, Call)
        if members.get("name") is None:
            members["name"] = handler.__name__
        if members.get("description") is None and handler.__doc__:
            members["description"] = "\n".join(line.strip() for line in handler.__doc__.strip().splitlines())
        self.definition = {name: value for name, value in members.items() if value is not None}

    def run(self, call: Call, arguments: Mapping[str, Any]) -> Any:
        """Call the handler with these arguments, and with the `Call` where it wants it."""
        if self.signature.call is None:
            return self.handler(**arguments)
        return self.handler(**{**arguments, self.signature.call: call})


class Tool(Entry):
    """A tool; its schemas come from the type hints unless they are given. `task_support` is that of 2025-11-25."""

    __slots__ = ("task_support",)

    def __init__(
        self,
        handler: Callable[..., Any],
        input_schema: dict[str, Any] | None,
        output_schema: dict[str, Any] | None,
        task_support: str | None,
        **members: Any,
    ) -> None:
        super().__init__(handler, **members)
        self.task_support = task_support
        self.definition["inputSchema"] = self.signature.schema if input_schema is None else input_schema
        told = schema_of(self.signature.returns) if output_schema is None else output_schema
        if output_schema is not None or told.get("type") in _STRUCTURED:
            self.definition["outputSchema"] = told


class Prompt(Entry):
    """A prompt; its arguments are the handler's parameters."""

    __slots__ = ()

    def __init__(self, handler: Callable[..., Any], **members: Any) -> None:
        super().__init__(handler, **members)
        required = self.signature.required
        self.definition["arguments"] = [{"name": name, "required": name in required} for name in self.signature.names]


class Template(Entry):
    """A resource template."""

    __slots__ = ("_pattern",)

    def __init__(self, handler: Callable[..., Any], template: str, **members: Any) -> None:
        super().__init__(handler, uriTemplate=template, **members)
        pieces = re.split(r"\{(\w+)\}", template)
        pattern = "".join(f"(?P<{piece}>[^/]+)" if i % 2 else re.escape(piece) for i, piece in enumerate(pieces))
        self._pattern = re.compile(pattern)

    def match(self, uri: str) -> dict[str, str] | None:
        """The values of the parts, decoded; None when the URI is none of this template's."""
        found = self._pattern.fullmatch(uri)
        if found is None:
            return None
        from urllib.parse import unquote

        return {name: unquote(value) for name, value in found.groupdict().items()}


class Completion:
    """A completion handler, which may ignore the arguments already chosen."""

    __slots__ = ("_handler", "_wants_chosen")

    def __init__(self, handler: Callable[..., Any]) -> None:
        self._handler = handler
        self._wants_chosen = len(Signature(handler, Call).names) > 1

    def run(self, value: str, chosen: dict[str, str]) -> list[str]:
        return list(self._handler(value, chosen) if self._wants_chosen else self._handler(value))
