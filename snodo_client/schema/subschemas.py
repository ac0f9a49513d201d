"""A schema as a server gives it, taken apart before anything is checked against it.

Here it is copied within bounds, its dialect is found, its references are followed within it, and what would be
unsafe or endless is refused. Nothing is ever fetched: a reference leads to a place in the schema, or checking is off.
(spec: basic, section JSON Schema usage)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .patterns import readable
from .work import Refused

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator
    from typing import Any

    from referencing import Registry, Specification

    Schema = dict[str, Any]

MAX_NESTING = 128  # arrays and objects within each other
MAX_VALUES = 20_000
MAX_CHARACTERS = 500_000  # of all texts and names together
MAX_SUBSCHEMAS = 2000
MAX_PATTERNS = 50
MAX_CHAIN = 50  # schemas that each apply the next to the same value
MAX_APPLIED = 2000  # schemas that one schema applies to the same value, counted as often as they are

DEFAULT_DIALECT = "https://json-schema.org/draft/2020-12/schema"
DIALECTS = {  # -> the validator of jsonschema
    DEFAULT_DIALECT: "Draft202012Validator",
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "http://json-schema.org/draft-07/schema": "Draft7Validator",
    "http://json-schema.org/draft-06/schema": "Draft6Validator",
    "http://json-schema.org/draft-04/schema": "Draft4Validator",
    "http://json-schema.org/draft-03/schema": "Draft3Validator",
}

# What `false` stands for in the copy: jsonschema quotes the whole value wherever a `false` refuses it, and no keyword's
# cost could count that.
NEVER: Schema = {"not": {}}

# Here jsonschema takes the schema for additional properties for a list of properties that are evaluated.
_MISREAD = "https://json-schema.org/draft/2019-09/schema"

# Keywords of any dialect that hold schemas -> whether these apply to the same value as the schema around them.
_HOLDERS = {
    **dict.fromkeys(["not", "if", "then", "else", "allOf", "anyOf", "oneOf", "extends", "type", "disallow"], True),
    **dict.fromkeys(["dependentSchemas", "dependencies"], True),
    **dict.fromkeys(["properties", "patternProperties", "$defs", "definitions"], False),
    **dict.fromkeys(["items", "prefixItems", "additionalItems", "contains", "unevaluatedItems"], False),
    **dict.fromkeys(["additionalProperties", "propertyNames", "unevaluatedProperties", "contentSchema"], False),
}
_BY_NAME = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
# `false` has a meaning of its own for these, which costs nothing, or no schema stands for it.
_KEEP_FALSE = {"additionalItems", "additionalProperties", "unevaluatedItems", "unevaluatedProperties"}

_CHAINED = f"the schema has a chain of more than {MAX_CHAIN} schemas for one value"

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_IDENTIFIERS = ("$anchor", "$dynamicAnchor", "$schema")


def copied(value: object) -> Any:
    """A copy that no one else changes. Raises Refused when it is no JSON, or exceeds the bounds."""
    values = characters = 0

    def copy(value: object, depth: int) -> Any:
        nonlocal values, characters
        values += 1
        if isinstance(value, str):
            characters += len(value)
        if values > MAX_VALUES or characters > MAX_CHARACTERS:
            raise Refused(f"the schema has more than {MAX_VALUES} values or {MAX_CHARACTERS} characters")
        if depth > MAX_NESTING:
            raise Refused(f"the schema nests more than {MAX_NESTING} deep")
        if isinstance(value, dict):
            return {copy_name(name): copy(member, depth + 1) for name, member in value.items()}
        if isinstance(value, list):
            return [copy(item, depth + 1) for item in value]
        if value is None or isinstance(value, (str, int, float)):
            return value
        raise Refused(f"the schema holds a {type(value).__name__}, which is no JSON")

    def copy_name(name: object) -> str:
        nonlocal characters
        if not isinstance(name, str):
            raise Refused("the schema has a name that is no text")
        characters += len(name)
        return name

    return copy(value, 0)


def dialect_of(schema: Schema) -> str:
    """The key of DIALECTS that the schema is written in. Raises Refused when it declares another one."""
    declared = schema.get("$schema", DEFAULT_DIALECT)
    found = _dialect(declared)
    if found is None:
        raise Refused(f"the schema declares the dialect {shown(declared)}, which is not known here")
    return found


def _dialect(declared: object) -> str | None:
    if not isinstance(declared, str):
        return None
    plain = declared.removesuffix("#")
    secure = plain.replace("http:", "https:", 1)
    return next((uri for uri in DIALECTS if plain == uri or secure == uri.replace("http:", "https:", 1)), None)


class Subschemas:
    """The schemas in a schema: those at the places of its dialect, and those that are only referred to.

    `specification` is the dialect's in the package referencing; `check` is called with the schema, and with each schema
    that is found by reference only, and raises Refused when it is not valid in its dialect. The schema is changed in
    place: patterns become compiled ones, `false` becomes NEVER, `$schema` goes. Raises Refused.
    """

    def __init__(
        self, schema: Schema, dialect: str, specification: Specification[Any], check: Callable[[Schema], None]
    ) -> None:
        self.prices: dict[re.Pattern[str], int] = {}  # pattern -> see backtracking.price
        self.applied: dict[int, int] = {}  # id() of a schema with `unevaluated...` -> how many schemas it applies
        self.resources = 1
        self._dialect, self._specification, self._check = dialect, specification, check
        self._known: dict[int, Schema] = {}
        self._beside: dict[int, list[Schema]] = {}  # id() of a schema -> what it applies to the same value
        self._needs_crawl = False
        self._patterns: dict[str, re.Pattern[str]] = {}
        check(schema)
        self._take_apart(schema)
        self.registry = self._registry(schema)
        self._follow(schema)
        self._measure()

    def __len__(self) -> int:
        return len(self._known)

    # --- places ---------------------------------------------------------------------------------------------------

    def _take_apart(self, schema: Schema) -> None:
        """Make the schema and those in it known, and ready."""
        rest = [schema]
        while rest:
            schema = rest.pop()
            if id(schema) in self._known:
                continue
            self._known[id(schema)] = schema
            if len(self._known) > MAX_SUBSCHEMAS:
                raise Refused(f"the schema has more than {MAX_SUBSCHEMAS} schemas in it")
            self._prepare(schema, is_root=len(self._known) == 1)
            self._beside[id(schema)] = []
            for inner, here in _members(schema):
                rest.append(inner)
                if here:
                    self._beside[id(schema)].append(inner)

    def _prepare(self, schema: Schema, *, is_root: bool) -> None:
        identifies = "id" if self._dialect.endswith(("draft-03/schema", "draft-04/schema")) else "$id"
        for name in (*_REFERENCES, *_IDENTIFIERS, identifies):
            if not isinstance(schema.get(name, ""), str):
                raise Refused(f"the schema has a {name} that is no text")
        if _dialect(schema.pop("$schema", self._dialect)) != self._dialect:
            # The validator would change to that of jsonschema, which has no bounds.
            raise Refused("the schema mixes dialects")
        identifier = schema.get(identifies)
        if identifier is not None and not is_root:
            self.resources += 1
        self._needs_crawl |= "$anchor" in schema or "$dynamicAnchor" in schema or identifier is not None
        for text in (identifier, *map(schema.get, _REFERENCES)):
            if text is not None and not text.startswith("#"):
                self._needs_crawl = True
                if not text.isascii() or "[" in text or "]" in text:
                    raise Refused(f"the schema has the reference or identifier {shown(text)}, which is no URI")
        for name in [name for name in schema if name in _HOLDERS]:
            schema[name] = _without_false(name, schema[name])
        if "pattern" in schema and isinstance(schema["pattern"], str):
            schema["pattern"] = self._compiled(schema["pattern"])
        if "patternProperties" in schema:
            by_pattern = schema["patternProperties"].items()
            schema["patternProperties"] = {
                self._compiled(name) if isinstance(name, str) else name: inner for name, inner in by_pattern
            }

    def _compiled(self, text: str) -> re.Pattern[str]:
        if text not in self._patterns:
            if len(self._patterns) == MAX_PATTERNS:
                raise Refused(f"the schema has more than {MAX_PATTERNS} patterns")
            pattern, price = readable(text)
            self._patterns[text] = pattern
            self.prices[pattern] = max(price, self.prices.get(pattern, 0))
        return self._patterns[text]

    # --- references -----------------------------------------------------------------------------------------------

    def _registry(self, schema: Schema) -> Registry[Any]:
        from referencing import Registry

        resource = self._specification.create_resource(schema)
        empty: Registry[Any] = Registry()
        registry: Registry[Any] = empty.with_resource(resource.id() or "", resource)
        if not self._needs_crawl:
            return registry
        try:
            registry = registry.crawl()  # otherwise every look-up does
        except (AttributeError, TypeError, ValueError):  # shapes that it does not expect
            raise Refused("the references of the schema cannot be followed") from None
        return registry

    def _follow(self, schema: Schema) -> None:
        """Find what the references lead to, and make it known."""
        root = self._specification.create_resource(schema)
        rest: list[tuple[Schema, Any]] = [(schema, self.registry.resolver_with_root(root))]
        followed = {id(schema)}
        while rest:
            schema, resolver = rest.pop()
            found = [
                (inner, resolver.in_subresource(self._specification.create_resource(inner)))
                for inner, _ in _members(schema)
            ]
            for name in _REFERENCES:
                if name not in schema:
                    continue
                target, there = self._target(schema[name], resolver)
                if isinstance(target, dict):
                    if id(target) not in self._known:
                        self._check(target)
                        self._take_apart(target)
                    self._beside[id(schema)] += [target, *self._dynamic(name, schema[name])]
                    found.append((target, there))
            for inner, there in found:
                if id(inner) not in followed:
                    followed.add(id(inner))
                    rest.append((inner, there))

    def _target(self, reference: str, resolver: Any) -> tuple[Any, Any]:
        from referencing.exceptions import Unresolvable

        try:
            resolved = resolver.lookup(reference)
        except (Unresolvable, LookupError, AttributeError, TypeError, ValueError):
            if reference.startswith("#"):
                raise Refused(f"the schema refers to {shown(reference)}, which it does not have") from None
            raise Refused(f"the schema refers to {shown(reference)}, outside of itself; nothing is fetched") from None
        if resolved.contents is not True and not isinstance(resolved.contents, dict):
            raise Refused(f"the schema refers to {shown(reference)}, which is no schema")
        return resolved.contents, resolved.resolver

    def _dynamic(self, name: str, reference: str) -> list[Schema]:
        """All that a dynamic reference may lead to."""
        if name == "$recursiveRef":
            return [schema for schema in self._known.values() if schema.get("$recursiveAnchor") is True]
        if name == "$dynamicRef":
            anchor = reference.rpartition("#")[2]
            return [schema for schema in self._known.values() if schema.get("$dynamicAnchor") == anchor]
        return []

    # --- what applies to the same value ---------------------------------------------------------------------------

    def _measure(self) -> None:
        """Count what each schema applies to the same value, directly and through others."""
        counts: dict[int, tuple[int, int]] = {}  # id() -> how many, and how long the longest chain is
        open_: set[int] = set()

        def count(schema: Schema) -> tuple[int, int]:
            number = id(schema)
            if number in counts:
                return counts[number]
            if number in open_:
                raise Refused("the schema refers to itself without end")
            open_.add(number)
            total = chain = 1
            for inner in self._beside[number]:
                if len(open_) > MAX_CHAIN:
                    raise Refused(_CHAINED)
                more, longer = count(inner)
                total, chain = total + more, max(chain, longer + 1)
            open_.remove(number)
            if chain > MAX_CHAIN:
                raise Refused(_CHAINED)
            if total > MAX_APPLIED:
                raise Refused(f"the schema applies more than {MAX_APPLIED} schemas to one value")
            counts[number] = total, chain
            return total, chain

        closed = any("unevaluatedProperties" in inner for inner in self._known.values())
        for inner in self._known.values():
            total, _ = count(inner)
            if closed and self._dialect == _MISREAD and any(isinstance(inner.get(name), dict) for name in _KEEP_FALSE):
                raise Refused("the schema uses unevaluatedProperties in a way that is not understood for its dialect")
            if "unevaluatedProperties" in inner or "unevaluatedItems" in inner:
                self.applied[id(inner)] = total


def _members(schema: Schema) -> Iterator[tuple[Schema, bool]]:
    """The schemas that stand in this one, and whether each applies to the same value."""
    for name, held in schema.items():
        if name not in _HOLDERS:
            continue
        if isinstance(held, dict):
            inner = list(held.values()) if name in _BY_NAME else [held]
        else:
            inner = held if isinstance(held, list) else []
        for member in inner:
            if isinstance(member, dict):
                yield member, _HOLDERS[name]


def _without_false(name: str, held: Any) -> Any:
    if isinstance(held, list):
        return [NEVER if member is False else member for member in held]
    if name in _BY_NAME:
        if not isinstance(held, dict):
            raise Refused(f"the schema has {name} that are no object")
        return {key: NEVER if member is False else member for key, member in held.items()}
    return NEVER if held is False and name not in _KEEP_FALSE else held


def shown(value: object) -> str:
    """The beginning of a text of the schema, for a reason."""
    if not isinstance(value, str):
        return "(no text)"
    return repr(value if len(value) <= 80 else value[:80] + "...")
