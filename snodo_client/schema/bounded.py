"""The validators of jsonschema with a meter: every keyword pays for what it is about to do.

The `Work` of one check travels as the validator's format checker, which every validator derived from it inherits;
formats are not asserted. What costs more than its keyword's function shows is paid here too: each schema that is
entered, comparisons, searches, and the value that the text of an error quotes.
"""

from __future__ import annotations

from functools import lru_cache
from json import JSONEncoder
from typing import TYPE_CHECKING

from .work import Refused, Work

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from .subschemas import Schema

    Keyword = Callable[[Any, Any, Any, Schema], Iterator[Any] | None]
    Cost = Callable[["Meter", Any, Any, Schema], int]

MAX_SEARCHED = 4096  # characters of a text that meets a pattern

_text_of = JSONEncoder(sort_keys=True).encode

_KEYWORD = 2  # steps: one function called
_ENTRY = 5  # one schema entered
_ERROR = 10  # one error made, or handed on


class Meter(Work):
    """The work of one check, and what the costs of a schema's keywords depend on."""

    __slots__ = ("applied", "crawl", "prices")

    def __init__(self, steps: int, prices: Mapping[re.Pattern[str], int], applied: Mapping[int, int], crawl: int):
        super().__init__(steps)
        self.prices = prices  # pattern -> see backtracking.price
        self.applied = applied  # see Subschemas.applied
        self.crawl = crawl  # of a dynamic reference, per rule it stands in

    def search(self, pattern: re.Pattern[str], text: str) -> int:
        """The cost of a search. Raises Refused when the text is too long for one."""
        if len(text) > MAX_SEARCHED:
            raise Refused(f"a text of more than {MAX_SEARCHED} characters would meet a pattern")
        return 1 + len(text) * self.prices[pattern] // 100


@lru_cache(maxsize=16)
def bounded(name: str) -> Any:
    """The class of jsonschema with that name, metered. Give its instances a Meter as `format_checker`."""
    import jsonschema
    from jsonschema.validators import extend

    plain: Any = getattr(jsonschema, name)
    keywords = {**plain.VALIDATORS, **_OWN}
    metered = {name: _metered(name, function) for name, function in keywords.items()}
    return extend(plain, metered)  # type: ignore[no-untyped-call]


def _metered(name: str, function: Keyword) -> Keyword:
    cost = _COSTS.get(name, _constant)
    quotes = name not in _QUOTE_NOTHING

    def keyword(validator: Any, rule: Any, value: Any, schema: Schema) -> Iterator[Any]:
        meter: Meter = validator.format_checker
        meter.spend(cost(meter, rule, value, schema))
        meter.enter()
        try:
            for error in function(validator, rule, value, schema) or ():
                meter.spend(_ERROR)
                if quotes or rule is False:
                    meter.weigh(value)
                    meter.weigh(rule)
                yield error
        finally:
            meter.leave()

    return keyword


# Keywords whose own errors quote names at most; the others' quote the value, the rule, or both.
_QUOTE_NOTHING = {
    *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "extends", "if", "format"),
    *("properties", "patternProperties", "additionalProperties", "propertyNames", "required"),
    *("items", "prefixItems", "additionalItems", "dependencies", "dependentRequired", "dependentSchemas"),
}


# --- costs --------------------------------------------------------------------------------------------------------


def _constant(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    return _KEYWORD


def _each_rule(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    return _KEYWORD + _ENTRY * (len(rule) if isinstance(rule, (list, dict)) else 1)


def _each_member(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    return _KEYWORD + _ENTRY * len(value) if isinstance(value, (list, dict)) else _KEYWORD


def _each_property(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    if not isinstance(value, dict):
        return _KEYWORD
    return _KEYWORD + len(rule) // 8 + _ENTRY * min(len(rule), len(value))


def _each_name(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    if not isinstance(rule, dict):
        return _KEYWORD + len(rule) // 8 if isinstance(rule, list) else _KEYWORD
    return _KEYWORD + sum(len(names) if isinstance(names, list) else _ENTRY for names in rule.values())


def _comparison(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    if isinstance(value, (dict, list)):
        meter.weigh(rule, per_step=1)
    return _KEYWORD + len(rule) if isinstance(rule, list) else _KEYWORD


def _division(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    return _KEYWORD + (value.bit_length() >> 5 if isinstance(value, int) else 0)


def _search(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    return _KEYWORD + (meter.search(rule, value) if isinstance(value, str) else 0)


def _searches(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    if not isinstance(value, dict):
        return _KEYWORD
    return _KEYWORD + sum(meter.search(pattern, name) + 1 for pattern in rule for name in value)


def _others(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    patterns = schema.get("patternProperties", ())
    return _each_member(meter, rule, value, schema) + _searches(meter, patterns, value, schema)


def _uniqueness(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    if isinstance(value, list):
        meter.weigh(value, per_step=1)
        return _KEYWORD + _ENTRY * len(value)
    return _KEYWORD


def _reference(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    return 2 * _ENTRY + (len(rule) >> 4)


def _dynamic_reference(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    return 3 * _ENTRY + (len(rule) >> 4) + meter.crawl * meter.depth


def _unevaluated(meter: Meter, rule: Any, value: Any, schema: Schema) -> int:
    # Each schema that applies is looked at again, and lists what it knows in one list, which is searched for each
    # member.
    if not isinstance(value, (list, dict)):
        return _KEYWORD
    applied, members = meter.applied[id(schema)], len(value)
    if isinstance(value, dict) and meter.prices:
        meter.spend(applied * sum(meter.search(pattern, name) for pattern in meter.prices for name in value))
    meter.spend(applied * (_ENTRY + _ENTRY * members + members * members // 16))
    for _ in range(applied):
        meter.weigh(value)
    return _KEYWORD


_COSTS: dict[str, Cost] = {
    **dict.fromkeys(["allOf", "anyOf", "oneOf", "extends", "disallow", "type", "not", "if"], _each_rule),
    **dict.fromkeys(["items", "prefixItems", "additionalItems", "contains", "propertyNames"], _each_member),
    **dict.fromkeys(["required", "dependentRequired", "dependentSchemas", "dependencies"], _each_name),
    **dict.fromkeys(["enum", "const"], _comparison),
    **dict.fromkeys(["multipleOf", "divisibleBy"], _division),
    **dict.fromkeys(["$dynamicRef", "$recursiveRef"], _dynamic_reference),
    **dict.fromkeys(["unevaluatedItems", "unevaluatedProperties"], _unevaluated),
    "properties": _each_property,
    "pattern": _search,
    "patternProperties": _searches,
    "additionalProperties": _others,
    "uniqueItems": _uniqueness,
    "$ref": _reference,
}


# --- keywords of our own ------------------------------------------------------------------------------------------


def _format(validator: Any, rule: Any, value: Any, schema: Schema) -> None:
    """Nothing: formats are annotations, and their place in the validator is taken."""


def _additional_properties(validator: Any, rule: Any, value: Any, schema: Schema) -> Iterator[Any]:
    """As in jsonschema, for patterns that are compiled; one error for each name."""
    from jsonschema import ValidationError

    if not isinstance(value, dict) or rule is True:
        return
    named, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
    for name in value:
        if name in named or any(pattern.search(name) for pattern in patterns):
            continue
        if rule is False:
            yield ValidationError("unexpected", path=[name])
        else:
            yield from validator.descend(value[name], rule, path=name)


def _unique_items(validator: Any, rule: Any, value: Any, schema: Schema) -> Iterator[Any]:
    """In linear time, as jsonschema does it for sortable items only."""
    from jsonschema import ValidationError

    if rule is not True or not isinstance(value, list):
        return
    texts = {_text_of(_comparable(item)) for item in value}  # no server can make the hashes of texts collide
    if len(texts) < len(value):
        yield ValidationError("not unique")


def _comparable(value: Any) -> Any:
    """The value with 1.0 as 1, which are the same to JSON Schema; true stays apart from them."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    if isinstance(value, dict):
        return {name: _comparable(member) for name, member in value.items()}
    return value


_OWN: dict[str, Keyword] = {
    "format": _format,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
