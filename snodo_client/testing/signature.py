"""From a function's parameters to a JSON Schema, and from a JSON Schema to a verdict on arguments.

Reads `__annotations__` and `__code__` directly: importing `inspect` would double the start-up time of a small server.
Covers the simple types a test server needs; anything else is given by hand as `input_schema`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

_VAR_KEYWORDS = 0x08  # flags of a code object
_COROUTINE = 0x80 | 0x200
_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (NoneType,),
}


class Signature:
    """What a handler takes: the `schema` of its arguments, `required` names, the parameter that wants the `call`."""

    __slots__ = ("call", "names", "open", "required", "returns", "schema")

    def __init__(self, function: Callable[..., Any], injected: type) -> None:
        code = getattr(function, "__code__", None)
        if code is None or code.co_flags & _COROUTINE or code.co_posonlyargcount:
            raise TypeError(f"{function!r} must be a plain function or method whose parameters can be given by name")
        count = code.co_argcount
        positional = code.co_varnames[:count]
        keyword = code.co_varnames[count : count + code.co_kwonlyargcount]
        bound = positional[:1] if hasattr(function, "__self__") else ()
        defaults = dict(zip(reversed(positional), reversed(function.__defaults__ or ()), strict=False))
        defaults |= getattr(function, "__kwdefaults__", None) or {}
        hints = {name: _resolve(hint, function) for name, hint in function.__annotations__.items()}

        parameters = [name for name in (*positional, *keyword) if name not in bound]
        self.call = next((name for name in parameters if _is(hints.get(name), injected)), None)
        self.names = [name for name in parameters if name != self.call]
        self.required = [name for name in self.names if name not in defaults]
        self.open = bool(code.co_flags & _VAR_KEYWORDS)
        self.returns = None if isinstance(hints.get("return"), str) else hints.get("return")
        self.schema: dict[str, Any] = {"type": "object", "properties": {}}
        for name in self.names:
            schema = schema_of(hints.get(name))
            if defaults.get(name) is not None:
                schema["default"] = defaults[name]
            self.schema["properties"][name] = schema
        if self.required:
            self.schema["required"] = self.required
        if not self.open:
            self.schema["additionalProperties"] = False


def schema_of(hint: Any) -> dict[str, Any]:
    """The JSON Schema of a type hint; `Annotated[str, {"title": "Name"}]` adds keywords; other hints allow anything."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        schema = schema_of(arguments[0])
        for extra in hint.__metadata__:
            schema.update(extra if isinstance(extra, dict) else {})
        return schema
    if origin is Literal:
        return (
            {"type": "string", "enum": list(arguments)}
            if all(isinstance(a, str) for a in arguments)
            else {"enum": [*arguments]}
        )
    if origin in (Union, UnionType):
        return {"anyOf": [schema_of(argument) for argument in arguments]}
    if hint is list or origin is list:
        return {"type": "array", **({"items": schema_of(arguments[0])} if arguments else {})}
    if hint is dict or origin is dict:
        return {"type": "object", **({"additionalProperties": schema_of(arguments[1])} if arguments else {})}
    if isinstance(hint, type) and hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    return {}


def problem(value: Any, schema: Any, where: str = "") -> str | None:
    """What is wrong with `value`, in a few words, or None.

    A check of everyday keywords (type, enum, const, required, properties, additionalProperties, items, anyOf), not a
    validator.
    """
    if not isinstance(schema, dict):
        return None
    label = where or "the arguments"
    types = schema.get("type")
    if types is not None and not any(
        _has_type(value, name) for name in (types if isinstance(types, list) else [types])
    ):
        return f"{label} must be of type {types}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{label} must be one of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        return f"{label} must be {schema['const']!r}"
    if "anyOf" in schema and all(problem(value, branch) for branch in schema["anyOf"]):
        return f"{label} matches no allowed form"
    if isinstance(value, dict):
        return _object_problem(value, schema, where)
    if isinstance(value, list) and "items" in schema:
        return next(
            filter(None, (problem(item, schema["items"], f"{label}[{i}]") for i, item in enumerate(value))), None
        )
    return None


def _object_problem(value: dict[str, Any], schema: dict[str, Any], where: str) -> str | None:
    prefix = f"{where}." if where else ""
    missing = [name for name in schema.get("required", []) if name not in value]
    if missing:
        return f"{prefix}{missing[0]} is missing"
    known, other = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, item in value.items():
        if name not in known and other is False:
            return f"{prefix}{name} is not a known argument"
        found = problem(item, known.get(name, other), f"{prefix}{name}")
        if found:
            return found
    return None


def _has_type(value: Any, name: Any) -> bool:
    if name == "integer":
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        )
    if isinstance(value, bool) and name != "boolean":
        return False
    return isinstance(value, _PYTHON.get(name, object))


def _resolve(hint: Any, function: Callable[..., Any]) -> Any:
    """The object that a postponed annotation names; the text itself when that is local to another function."""
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, getattr(function, "__globals__", {}))
    except Exception:
        return hint


def _is(hint: Any, wanted: type) -> bool:
    return hint is wanted or (isinstance(hint, str) and hint.rpartition(".")[2] == wanted.__name__)
