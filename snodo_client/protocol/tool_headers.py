"""Tool arguments that travel as HTTP headers too: reading `x-mcp-header` annotations and filling the headers.

A tool's input schema may mark some parameters; over HTTP their values are mirrored as `Mcp-Param-*` headers, and a
tool that is marked wrongly must not be offered (spec: basic/transports/streamable-http, "Custom headers from tool
parameters"). Schemas come from servers: the walk is iterative and bounded. It only matters from 2026-07-28 on;
callers leave older revisions and other transports alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .headers import encode_value, is_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

KEYWORD = "x-mcp-header"
MAX_SCHEMAS = 20_000
MAX_INTEGER = 2**53 - 1

_TYPES = frozenset({"string", "integer", "boolean"})

# Where a schema holds schemas, current and earlier drafts. Anything else is data: "default" or "examples" may well
# hold an object with a member called x-mcp-header.
_ONE = frozenset({
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_LIST = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_MAP = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})


class Annotation:
    """One mirrored parameter: the header is `Mcp-Param-<name>`, *path* leads to the argument through nested
    objects, *type* is "string", "integer" or "boolean"."""

    __slots__ = ("name", "path", "type")

    def __init__(self, name: str, path: tuple[str, ...], type: str) -> None:
        self.name = name
        self.path = path
        self.type = type

    def __repr__(self) -> str:
        return f"Annotation({self.name!r}, {self.path!r}, {self.type!r})"


class _Place:
    """A schema and the way to it. The way is a chain of parents: paths in full would cost quadratic memory."""

    __slots__ = ("argument", "parent", "schema", "step")

    def __init__(self, schema: dict[str, Any], parent: _Place | None, step: tuple[str, ...], argument: bool) -> None:
        self.schema = schema
        self.parent = parent
        self.step = step
        self.argument = argument  # reached from the root through "properties" alone

    def steps(self) -> list[tuple[str, ...]]:
        found = []
        place: _Place = self
        while place.parent is not None:
            found.append(place.step)
            place = place.parent
        return found[::-1]

    def __str__(self) -> str:
        path = "/".join(part for step in self.steps() for part in step) or "the root"
        return repr(path if len(path) <= 200 else path[:200] + "...")


def scan(input_schema: object) -> list[Annotation] | str:
    """The annotations of a tool's input schema, or the reason why they are invalid and the tool must be left out.

    Every place a schema can hold a schema is looked at, up to 20,000 of them; `$ref` is not followed. The reason is
    one line for people, and names the place.
    """
    found: list[Annotation] = []
    places: dict[str, _Place] = {}
    for number, place in enumerate(_walk(input_schema)):
        if number == MAX_SCHEMAS:
            return f"the input schema has more than {MAX_SCHEMAS} parts"
        if KEYWORD not in place.schema:
            continue
        name = place.schema[KEYWORD]
        kind = place.schema.get("type")
        if place.parent is None or not place.argument:
            return f"{KEYWORD} at {place} is not on a property reached through 'properties' alone"
        if not isinstance(name, str) or not is_token(name):
            return f"{KEYWORD} at {place} is not the name of a header"
        if not isinstance(kind, str) or kind not in _TYPES:
            return f"{KEYWORD} at {place} is on a property whose type is not string, integer or boolean"
        earlier = places.setdefault(name.lower(), place)
        if earlier is not place:
            return f"{KEYWORD} at {place} has the same name as the one at {earlier}"
        found.append(Annotation(name, tuple(step[-1] for step in place.steps()), kind))
    return found


def _walk(schema: object) -> Iterator[_Place]:
    """Every schema in *schema*, breadth first, one more than the bound at most."""
    if not isinstance(schema, dict):
        return
    queue = [_Place(schema, None, (), True)]
    for place in queue:  # grows while it is walked
        yield place
        for keyword, value in place.schema.items():
            for step, child in _children(keyword, value):
                if len(queue) > MAX_SCHEMAS:
                    break
                if isinstance(child, dict):
                    queue.append(_Place(child, place, step, place.argument and keyword == "properties"))


def _children(keyword: str, value: object) -> Iterable[tuple[tuple[str, ...], object]]:
    if isinstance(value, dict):
        if keyword in _MAP:
            return (((keyword, name), child) for name, child in value.items())
        if keyword in _ONE:
            return (((keyword,), value),)
    elif isinstance(value, list) and keyword in _LIST:
        return (((keyword, str(index)), child) for index, child in enumerate(value))
    return ()


def param_headers(annotations: Sequence[Annotation], arguments: dict[str, Any]) -> dict[str, str]:
    """The `Mcp-Param-*` headers of a call with *arguments*. An argument that is absent or None has no header.

    Raises `ValueError`, before anything is sent, for an argument of another type than its schema says, an integer
    beyond ±(2**53 - 1), or a lone surrogate. An integral float counts as an integer.
    """
    headers = {}
    for annotation in annotations:
        value = _argument(arguments, annotation.path)
        if value is not None:
            try:
                headers["Mcp-Param-" + annotation.name] = _text(value, annotation.type)
            except ValueError as error:
                raise ValueError(f"argument {'.'.join(annotation.path)!r} cannot be mirrored: {error}") from None
    return headers


def _argument(arguments: dict[str, Any], path: tuple[str, ...]) -> object:
    value: object = arguments
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _text(value: object, type_: str) -> str:
    if type_ == "string" and isinstance(value, str):
        return encode_value(value)
    if type_ == "boolean" and isinstance(value, bool):
        return "true" if value else "false"
    if type_ == "integer" and not isinstance(value, bool):
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int):
            if abs(value) > MAX_INTEGER:
                raise ValueError("an integer in a header lies within ±(2**53 - 1)")
            return int.__repr__(value)
    raise ValueError(f"its schema says {type_}, it is {type(value).__name__}")
