"""Schemas of servers, compiled once so that values can be checked against them, whatever both are.

The check is that of jsonschema, within bounds: of the schema when it is compiled, of the work for each value. Where
they are exceeded nothing is guessed: checking is off for that schema or that value, and the reason is told. Nothing is
fetched. (spec: server/tools, output schema; basic, JSON Schema usage)
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from .bounded import Meter, bounded
from .subschemas import DIALECTS, NEVER, Subschemas, copied, dialect_of
from .work import Refused

if TYPE_CHECKING:
    from typing import Any

    from .subschemas import Schema

STEPS = 150_000  # of one value: about a tenth of a second, enough for a thousand rows of a table
CHECK_STEPS = 500_000  # of the schema itself, once
MAX_QUOTED = 100  # characters of data in a text
MAX_PATH = 300


class Problem:
    """How a value breaks its schema: `path` is a JSON pointer into the value ("" is the value itself; shortened with
    "..." when long), `rule` the keyword that is broken, `text` a sentence of both that quotes at most some hundred
    characters of the value.
    """

    __slots__ = ("path", "rule", "text")

    def __init__(self, path: str, rule: str, text: str) -> None:
        self.path, self.rule, self.text = path, rule, text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Problem(path={self.path!r}, rule={self.rule!r})"


class Compiled:
    """A schema ready to check values; may be shared by threads."""

    __slots__ = ("_known", "_validator")

    def __init__(self, validator: Any, known: Subschemas) -> None:
        self._validator, self._known = validator, known

    def problem(self, value: object) -> Problem | str | None:
        """The first problem of a JSON value; None when it is valid; a text when it was not checked to the end, and why.
        Never raises for what a schema or value may be. `5.0` is an integer, `True` is no number, formats are not
        asserted.
        """
        try:
            return _first_problem(self._validator, self._known, value, STEPS)
        except Refused as refused:
            return str(refused)


def compile_schema(schema: object) -> Compiled | str:
    """A JSON Schema made ready, or why values cannot be checked against it.

    `schema` is the object (or boolean) as it was sent; it is copied. Dialects: 2020-12, also when none is declared,
    2019-09, draft-07, -06, -04 and -03. Costs some 50 microseconds for each schema within the schema.
    """
    try:
        copy = copied(schema)
        if isinstance(copy, bool):
            copy = {} if copy else NEVER
        if not isinstance(copy, dict):
            return "the schema is no object"
        return _compiled(copy, dialect_of(copy))
    except Refused as refused:
        return str(refused)
    except RecursionError:  # the bounds fit into an ordinary stack, but the caller's may be nearly full
        return "the schema nests too deep for what is left of the stack"


def _compiled(schema: Schema, dialect: str) -> Compiled:
    from referencing.jsonschema import specification_with

    known = Subschemas(schema, dialect, specification_with(dialect), lambda inner: _check(inner, dialect))
    return Compiled(bounded(DIALECTS[dialect])(schema, registry=known.registry), known)


def _first_problem(validator: Any, known: Subschemas, value: Any, steps: int) -> Problem | None:
    from jsonschema.exceptions import UnknownType
    from referencing.exceptions import Unresolvable

    crawl = len(known) if known.resources > 1 else 0
    meter = Meter(steps, known.prices, known.applied, crawl)
    meter.weigh(value, per_step=1)
    try:
        error = next(validator.evolve(format_checker=meter).iter_errors(value), None)
    except RecursionError:
        raise Refused("the value or its schema nests too deep") from None
    except (OverflowError, ValueError):  # an integer that no float can be, or that has too many digits to write
        raise Refused("the value has a number that is too large to work with") from None
    except UnknownType:  # draft-03 allows any name
        raise Refused("the schema has a type that is not known here") from None
    except Unresolvable:
        raise Refused("the schema refers to what it does not have") from None
    return None if error is None else _problem(error)


# --- the schema itself --------------------------------------------------------------------------------------------


def _check(schema: Schema, dialect: str) -> None:
    """Raises Refused when the schema is not valid in its dialect."""
    meta = _metaschema(dialect)
    try:
        problem = _first_problem(meta._validator, meta._known, schema, CHECK_STEPS)
    except Refused as refused:
        raise Refused(f"the schema cannot be checked itself: {refused}") from None
    if problem is not None:
        raise Refused(f"the schema is not valid in its dialect: {problem.text}")


@lru_cache(maxsize=16)
def _metaschema(dialect: str) -> Compiled:
    """The schema of schemas as one object: where it is spread over vocabularies, following them takes five times as
    long.
    """
    import re
    from json import dumps, loads

    import jsonschema
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
    from referencing.jsonschema import specification_with

    plain = getattr(jsonschema, DIALECTS[dialect]).META_SCHEMA
    base = dialect.rpartition("/")[0]
    parts = [REGISTRY.contents(f"{base}/{vocabulary['$ref']}") for vocabulary in plain.get("allOf", ())]
    whole: Schema = {name: value for name, value in plain.items() if name != "allOf"}
    for name in ("properties", "$defs"):
        whole[name] = {key: value for part in (plain, *parts) for key, value in part.get(name, {}).items()}
    whole = loads(re.sub(r'"meta/[a-z]+#', '"#', dumps(whole)))
    known = Subschemas(whole, dialect, specification_with(dialect), lambda inner: None)
    return Compiled(bounded(DIALECTS[dialect])(whole, registry=known.registry), known)


# --- words --------------------------------------------------------------------------------------------------------


def _problem(error: Any) -> Problem:
    path = "".join("/" + str(step)[:MAX_PATH].replace("~", "~0").replace("/", "~1") for step in error.absolute_path)
    if len(path) > MAX_PATH:
        path = path[:MAX_PATH] + "..."
    place = path or "the value"
    rule = "false" if error.schema is NEVER else str(error.validator)
    limit = error.validator_value
    if rule == "false" or (rule in ("additionalProperties", "additionalItems") and limit is False):
        return Problem(path, rule, f"{place} is not allowed ({rule})")
    if rule == "required" and isinstance(limit, list):
        missing = next(name for name in limit if name not in error.instance)
        return Problem(path, rule, f"{place} lacks {_quoted(missing)} ({rule})")
    told = f": {_quoted(limit)}" if isinstance(limit, (str, int, float)) else ""
    return Problem(path, rule, f"{place} is {_quoted(error.instance)} and breaks the rule {rule}{told}")


def _quoted(value: Any) -> str:
    """A value for a text: its beginning, or what it is."""
    if isinstance(value, str):
        return repr(value) if len(value) <= MAX_QUOTED else repr(value[:MAX_QUOTED]) + "..."
    if isinstance(value, (list, dict)):
        return f"{'an array' if isinstance(value, list) else 'an object'} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 256:
        return "a large number"
    return {"None": "null", "True": "true", "False": "false"}.get(repr(value), repr(value))
