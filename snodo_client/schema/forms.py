"""Elicitation forms: the flat schemas a server may have a person fill in, and what was filled in (spec:
client/elicitation).

A form is an object schema whose properties are texts, numbers, booleans and choices. Keywords beyond those are
tolerated and ignored, `pattern` among them. Two habits of real servers are taken as well: a field that may be null,
written as `anyOf` with `{"type": "null"}`, and a list of free texts.

What is wrong is told by place and rule; values never stand in the text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ..protocol.capabilities import MODES_SINCE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from jsonschema import FormatChecker

    Rules = dict[str, Any]

MAX_PROPERTIES = 256
MAX_CHOICES = 1000  # of one field
MAX_SHOWN = 64  # characters of a name in the text


def problem_of_schema(schema: object, version: str = "") -> str | None:
    """Why this is no form, or None when it is one. The `version` is that of the server; an empty one is the newest."""
    rules = _form(schema)
    if isinstance(rules, str):
        return rules
    old = bool(version) and version < MODES_SINCE
    if old and any("array" in field["type"] for field in rules["properties"].values()):
        return f"a field is a list, which version {version} has not"
    return None


def with_defaults(schema: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with the defaults of the fields it leaves out. `schema` is a form."""
    filled = dict(content)
    for name, field in schema["properties"].items():
        default = field.get("default")
        if name not in filled and default is not None:
            filled[name] = list(default) if isinstance(default, list) else default
    return filled


def problem(schema: Mapping[str, Any], content: Mapping[str, Any]) -> str | None:
    """What is wrong with the content of a form, or None. It may have the fields of the form only."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    rules = _form(schema)
    if isinstance(rules, str):
        return rules
    registry: Registry[Any] = Registry()  # the default one fetches what a schema refers to
    validator = Draft202012Validator(rules, registry=registry, format_checker=_format_checker())
    error = next(validator.iter_errors(content), None)
    if error is None:
        return None
    place = "/".join(["content", *(str(step)[:MAX_SHOWN] for step in error.absolute_path)])
    if error.validator == "required":
        missing = next(name for name in rules["required"] if name not in content)
        return f"{place} lacks {_shown(missing)}"
    if error.validator == "additionalProperties":
        return f"{place} has a member that the form does not ask for"
    limit = error.validator_value
    return f"{place} breaks the rule {error.validator}" + (f": {limit}" if isinstance(limit, (str, int, float)) else "")


# --- what a form may be -------------------------------------------------------------------------------------------


def _form(schema: object) -> Rules | str:
    """The rules of a form as a schema of the keywords that count, or why it is none."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "the schema is no object schema"
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return "the schema has no properties"
    if len(properties) > MAX_PROPERTIES:
        return f"the schema has more than {MAX_PROPERTIES} properties"
    fields = {}
    for name, field in properties.items():
        rules = _field(field)
        if isinstance(rules, str):
            return f"the property {_shown(name)} {rules}"
        fields[name] = rules
    required = [] if required is None else required
    if not isinstance(required, list) or not all(isinstance(name, str) and name in fields for name in required):
        return "the schema requires what is not among its properties"
    return {"type": "object", "required": required, "properties": fields, "additionalProperties": False}


def _field(field: object) -> Rules | str:
    inner = _of_nullable(field)
    nullable = inner is not field
    kind = inner.get("type") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(kind, str) or kind not in _KINDS:
        return "has no type that a form can have"
    rules = _KINDS[kind](inner)
    if isinstance(rules, str):
        return rules
    rules["type"] = kind
    default = inner.get("default")
    if default is not None and not _is_of(kind, default):
        return f"has a default that is no {kind}"
    if nullable:
        rules["type"] = [kind, "null"]
        if "enum" in rules:
            rules["enum"] = [*rules["enum"], None]
    return rules


def _of_nullable(field: object) -> object:
    """The field that stands in `anyOf` beside null, with the outer title and default; any other as it is."""
    branches = field.get("anyOf") if isinstance(field, dict) and "type" not in field else None
    if not isinstance(branches, list) or len(branches) != 2 or {"type": "null"} not in branches:
        return field
    inner = branches[0] if branches[1] == {"type": "null"} else branches[1]
    return {**field, **inner} if isinstance(field, dict) and isinstance(inner, dict) else field


def _text(field: Rules) -> Rules | str:
    choices, limits = _choices(field, "oneOf"), _limits(field, ("minLength", "maxLength"), count=True)
    if isinstance(choices, str) or isinstance(limits, str):
        return choices if isinstance(choices, str) else limits
    format_ = field.get("format")
    known = {"format": format_} if isinstance(format_, str) and format_ in _FORMATS else {}
    return {**choices, **limits, **known}


def _number(field: Rules) -> Rules | str:
    return _limits(field, ("minimum", "maximum"), count=False)


def _boolean(field: Rules) -> Rules | str:
    return {}


def _selection(field: Rules) -> Rules | str:
    items = field.get("items")
    if not isinstance(items, dict) or items.get("type", "string") != "string":
        return "is a list of something else than texts"
    choices, limits = _choices(items, "anyOf"), _limits(field, ("minItems", "maxItems"), count=True)
    if isinstance(choices, str) or isinstance(limits, str):
        return choices if isinstance(choices, str) else limits
    return {"items": {"type": "string", **choices}, **limits}


_KINDS = {"string": _text, "number": _number, "integer": _number, "boolean": _boolean, "array": _selection}


def _choices(field: Rules, titled: str) -> Rules | str:
    """`enum`, bare or with `enumNames`, or choices with titles under the keyword `titled`; no rule when there are
    none.
    """
    if titled in field:
        options = field[titled]
        if not isinstance(options, list) or not all(
            isinstance(option, dict) and isinstance(option.get("title"), str) for option in options
        ):
            return "has choices without a title"
        values: Any = [option.get("const") for option in options]
    elif "enum" in field:
        values, names = field["enum"], field.get("enumNames")
        if names is not None and (not _are_texts(names) or not isinstance(values, list) or len(names) != len(values)):
            return "has other names than choices"
    else:
        return {}
    if not _are_texts(values) or not values:
        return "has choices that are no texts"
    return {"enum": values} if len(values) <= MAX_CHOICES else f"has more than {MAX_CHOICES} choices"


def _limits(field: Rules, names: tuple[str, str], *, count: bool) -> Rules | str:
    limits = {}
    for name in names:
        limit = field.get(name)
        if limit is None:
            continue
        if not _is_of("integer" if count else "number", limit) or (count and limit < 0):
            return f"has a {name} that is no {'count' if count else 'number'}"
        limits[name] = limit
    return limits


def _is_of(kind: str, value: object) -> bool:
    """Whether a JSON value has the type of a field; as ever, True is no number, and 5.0 is an integer."""
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "array":
        return _are_texts(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and (kind == "number" or value % 1 == 0)  # type: ignore[operator]


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _shown(name: object) -> str:
    return repr(str(name)[:MAX_SHOWN])


# --- formats ------------------------------------------------------------------------------------------------------

# Compiled on first use.
_EMAIL = r"[^@\s]+@[^@\s]+"
_URI = r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"


def _is_email(text: str) -> bool:
    return re.fullmatch(_EMAIL, text) is not None


def _is_uri(text: str) -> bool:
    return re.fullmatch(_URI, text) is not None


def _is_date(text: str) -> bool:
    from datetime import date

    if not re.fullmatch(_DATE, text):  # the parser below knows more ways to write a date
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    return text[10:11] in ("T", "t") and _is_date(text[:10]) and re.fullmatch(_TIME, text[11:]) is not None


_FORMATS = {"email": _is_email, "uri": _is_uri, "date": _is_date, "date-time": _is_date_time}


@lru_cache(maxsize=1)
def _format_checker() -> FormatChecker:
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    for name, is_one in _FORMATS.items():
        checker.checks(name)(lambda value, is_one=is_one: not isinstance(value, str) or is_one(value))
    return checker
