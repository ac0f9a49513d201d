"""Schemas from functions, and the small check of arguments: it must never refuse what a real validator accepts."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snodo_client.testing import Call
from snodo_client.testing.signature import Signature, problem, schema_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null"])
SCHEMAS = st.recursive(
    st.fixed_dictionaries({}, optional={"type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True)}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES,
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "enum": st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=2, unique=True),
            "const": st.sampled_from(["a", None]),
        },
    ),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None.__class__, {"type": "null"}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict, {"type": "object"}),
        (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045 - the older spelling
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, "b"], {"enum": [1, "b"]}),
        (Annotated[str, "ignored", {"x-mcp-header": "R"}], {"type": "string", "x-mcp-header": "R"}),
        (Any, {}),
        (object(), {}),
    ],
)
def test_type_hints_become_schemas(hint: Any, schema: dict[str, Any]) -> None:
    assert schema_of(hint) == schema


def test_parameters_become_properties() -> None:
    def function(a: int, b, call: Call, *, c: str = "x", d: bool | None = None): ...  # type: ignore[no-untyped-def]

    signature = Signature(function, Call)
    assert signature.call == "call"
    assert signature.required == ["a", "b"]
    assert signature.schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {},
            "c": {"type": "string", "default": "x"},
            "d": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    }


def test_methods_extra_arguments_and_names_local_to_a_function() -> None:
    class Local: ...

    from snodo_client.testing import Call as LocalCall

    class Thing:
        def method(self, a: Local, call: LocalCall, other: Call) -> Local:
            return a

    signature = Signature(Thing().method, Call)
    assert signature.names == ["a", "call"]  # what cannot be resolved is an ordinary argument of any type
    assert signature.call == "other"
    assert signature.schema["properties"]["a"] == {}
    assert signature.returns is None

    open_signature = Signature(lambda **anything: None, Call)
    assert open_signature.schema == {"type": "object", "properties": {}}


async def coroutine() -> None: ...


def positional_only(a: int, /) -> None: ...


@pytest.mark.parametrize("function", [coroutine, positional_only, print, 5])
def test_what_cannot_be_called_by_name_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="plain function"):
        Signature(function, Call)


@settings(deadline=None)
@given(value=JSON, schema=SCHEMAS)
def test_the_check_agrees_with_a_validator(value: Any, schema: dict[str, Any]) -> None:
    valid = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (problem(value, schema) is None) == valid


def test_problems_name_the_place() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}, "required": ["a"]}
    assert problem({}, schema) == "a is missing"
    assert problem({"a": [1, "x"]}, schema) == "a[1] must be of type integer"
    assert problem([], schema) == "the arguments must be of type object"
