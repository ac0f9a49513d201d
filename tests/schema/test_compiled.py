"""Compiled schemas: what they find in values, in every dialect, and what they say of it."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from referencing import Registry

from snodo_client.schema.compiled import Compiled, Problem, compile_schema

DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "http://json-schema.org/draft-06/schema#": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-04/schema#": jsonschema.Draft4Validator,
    "http://json-schema.org/draft-03/schema#": jsonschema.Draft3Validator,
}
NEWEST = next(iter(DIALECTS))
WEATHER = {
    "type": "object",
    "properties": {
        "temperature": {"type": "number"},
        "conditions": {"enum": ["sunny", "cloudy"]},
        "humidity": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "hours": {"type": "array", "items": {"$ref": "#/$defs/hour"}},
    },
    "required": ["temperature", "conditions"],
    "additionalProperties": False,
    "$defs": {"hour": {"type": "integer", "minimum": 0, "exclusiveMaximum": 24}},
}


def compiled(schema: object) -> Compiled:
    found = compile_schema(schema)
    assert isinstance(found, Compiled), found
    return found


def is_valid(schema: object, value: object) -> bool:
    problem = compiled(schema).problem(value)
    assert not isinstance(problem, str), problem
    return problem is None


def test_a_valid_value_has_no_problem() -> None:
    weather = {"temperature": -3, "conditions": "sunny", "humidity": None, "hours": [0, 23, 5.0]}
    assert compiled(WEATHER).problem(weather) is None


@pytest.mark.parametrize(
    ("change", "path", "rule", "text"),
    [
        ({"temperature": True}, "/temperature", "type", "/temperature is true and breaks the rule type: 'number'"),
        ({"conditions": 1}, "/conditions", "enum", "/conditions is 1 and breaks the rule enum"),
        ({"humidity": []}, "/humidity", "anyOf", "/humidity is an array of 0 and breaks the rule anyOf"),
        ({"hours": [1, 24]}, "/hours/1", "exclusiveMaximum", "/hours/1 is 24 and breaks the rule exclusiveMaximum: 24"),
        ({"a/b~c": 1}, "/a~1b~0c", "additionalProperties", "/a~1b~0c is not allowed (additionalProperties)"),
    ],
)
def test_a_problem_tells_place_and_rule(change: dict[str, Any], path: str, rule: str, text: str) -> None:
    problem = compiled(WEATHER).problem({"temperature": 1, "conditions": "sunny", **change})
    assert isinstance(problem, Problem)
    assert (problem.path, problem.rule, problem.text) == (path, rule, text)
    assert str(problem) == text


def test_a_missing_member_is_named() -> None:
    problem = compiled(WEATHER).problem({"temperature": 1})
    assert isinstance(problem, Problem)
    assert (problem.path, problem.rule) == ("", "required")
    assert problem.text == "the value lacks 'conditions' (required)"


@pytest.mark.parametrize("value", ["secret" * 5000, ["secret" * 5000], {"secret" * 5000: 1}, 10**4000])
def test_a_text_quotes_little_of_the_value(value: object) -> None:
    for schema in ({"type": "null"}, {"additionalProperties": False, "items": False, "maxLength": 1, "maximum": 1}):
        problem = compiled(schema).problem(value)
        assert isinstance(problem, Problem)
        assert len(problem.text) < 500
        assert len(repr(problem)) < 500


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        (True, [1, None, {}], []),
        (False, [], [1, None, {}]),
        ({}, [1, None, {}], []),
        ({"type": "integer"}, [5, 5.0, -(10**30)], [True, 5.5, "5", None]),
        ({"type": "number"}, [5, 5.5], [False, "5"]),
        ({"const": 1}, [1, 1.0], [True, [1]]),
        ({"enum": [0]}, [0, 0.0, -0.0], [False]),
        ({"type": "null"}, [None], [0, False, ""]),
        ({"format": "email", "type": "string"}, ["no address"], []),
        ({"properties": {"a": False}}, [{}, {"b": 1}], [{"a": 1}]),
        ({"uniqueItems": True}, [[1, True, "1", [1], {"a": 1}], [[1], [True]]], [[1, 1.0], [{"a": 0, "b": 1.0}] * 2]),
        ({"items": False, "prefixItems": [True]}, [[], [1]], [[1, 2]]),
        ({"pattern": r"^\d+$"}, ["12", 12], ["1x", "\u0661", "12\n", ""]),
        (
            {"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": False},
            [{"x": ""}],
            [{"x": 1}, {"y": 1}],
        ),
        ({"unevaluatedProperties": False, "allOf": [{"properties": {"a": True}}]}, [{"a": 1}], [{"b": 1}]),
        ({"unevaluatedItems": False, "prefixItems": [True]}, [[1]], [[1, 2]]),
        ({"properties": {"$ref": {"type": "string"}}}, [{"$ref": "x"}], [{"$ref": 1}]),
    ],
)
def test_values(schema: object, valid: list[Any], invalid: list[Any]) -> None:
    assert [value for value in valid if not is_valid(schema, value)] == []
    assert [value for value in invalid if is_valid(schema, value)] == []


def test_a_tree_refers_to_itself() -> None:
    tree = {"type": "object", "properties": {"leaves": {"type": "array", "items": {"$ref": "#"}}}}
    assert is_valid(tree, {"leaves": [{"leaves": [{}, {}]}, {}]})
    assert not is_valid(tree, {"leaves": [{"leaves": [{}, 1]}, {}]})


@pytest.mark.parametrize("declared", DIALECTS)
def test_each_dialect_has_its_own_rules(declared: str) -> None:
    # Exclusive limits were booleans once, and draft-03 wants `required` at the property.
    old = declared.endswith(("draft-03/schema#", "draft-04/schema#"))
    limit: dict[str, Any] = {"minimum": 1, "exclusiveMinimum": True} if old else {"exclusiveMinimum": 1}
    assert not is_valid({"$schema": declared, **limit}, 1)
    assert is_valid({"$schema": declared, **limit}, 2)
    wrong = compile_schema({"$schema": declared, **({"exclusiveMinimum": 1} if old else {"exclusiveMinimum": True})})
    assert isinstance(wrong, str)
    assert "not valid in its dialect" in wrong
    first: dict[str, Any] = {"prefixItems": [{"type": "null"}]} if declared == NEWEST else {"items": [{"type": "null"}]}
    assert not is_valid({"$schema": declared, **first}, [1])
    assert is_valid({"$schema": declared, **first}, [None, 1])


def test_required_of_draft_03() -> None:
    schema = {"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"a": {"required": True}}}
    problem = compiled(schema).problem({})
    assert isinstance(problem, Problem)
    assert problem.rule == "required"


def test_references_by_identifier_and_anchor() -> None:
    schema = {
        "$id": "https://example.test/root",
        "properties": {"a": {"$ref": "item"}, "b": {"$ref": "#name"}, "c": {"$ref": "item#inner"}},
        "$defs": {
            "x": {
                "$id": "item",
                "type": "array",
                "items": {"$ref": "#inner"},
                "$defs": {"y": {"$anchor": "inner", "type": "string"}},
            },
            "z": {"$anchor": "name", "type": "integer"},
        },
    }
    assert is_valid(schema, {"a": ["s"], "b": 1, "c": "s"})
    for wrong in ({"a": [1]}, {"b": "s"}, {"c": 1}):
        assert not is_valid(schema, wrong)


def test_dynamic_references() -> None:
    schema = {
        "$id": "https://example.test/strict",
        "$dynamicAnchor": "node",
        "$ref": "tree",
        "unevaluatedProperties": False,
        "$defs": {
            "tree": {
                "$id": "tree",
                "$dynamicAnchor": "node",
                "properties": {"data": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
            }
        },
    }
    assert is_valid(schema, {"children": [{"data": 1}]})
    assert not is_valid(schema, {"children": [{"daat": 1}]})


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (None, "no object"),
        ([], "no object"),
        ("x", "no object"),
        ({"type": 5}, "not valid in its dialect: /type"),
        ({"properties": {"a": {"required": "a"}}}, "not valid in its dialect: /properties/a/required"),
        ({"$schema": "https://example.test/dialect"}, "declares the dialect 'https://example.test/dialect'"),
        ({"$schema": 7}, "declares the dialect"),
        ({"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "mixes dialects"),
        ({"$ref": "#/$defs/none"}, "refers to '#/$defs/none', which it does not have"),
        ({"$ref": "#none"}, "refers to '#none', which it does not have"),
        ({"$ref": "#/required", "required": []}, "which is no schema"),
        ({"$ref": "#/x-schemas/a", "x-schemas": {"a": {"minimum": "1"}}}, "not valid in its dialect: /minimum"),
        ({"$ref": "https://[", "$id": "https://example.test/"}, "which is no URI"),
        ({"default": {1}}, "holds a set, which is no JSON"),
        ({"default": {1: 1}}, "a name that is no text"),
    ],
)
def test_what_cannot_be_compiled_has_a_reason(schema: object, reason: str) -> None:
    found = compile_schema(schema)
    assert isinstance(found, str)
    assert reason in found


def test_the_reason_quotes_little_of_the_schema() -> None:
    for schema in (
        {"$schema": "x" * 10_000},
        {"$ref": "#" + "x" * 10_000},
        {"pattern": "(" * 900},
        {"type": "x" * 10_000},
    ):
        found = compile_schema(schema)
        assert isinstance(found, str)
        assert len(found) < 400


def test_the_schema_of_the_caller_stays_as_it_is_and_may_change() -> None:
    schema = {"$schema": NEWEST, "properties": {"a": False, "b": {"pattern": "^x"}}, "patternProperties": {"c": True}}
    before = copy.deepcopy(schema)
    found = compiled(schema)
    assert schema == before
    schema.clear()
    assert isinstance(found.problem({"a": 1}), Problem)
    assert isinstance(found.problem({"b": "y"}), Problem)


def test_one_schema_serves_many_threads() -> None:
    found = compiled(WEATHER)
    good, bad = (
        {"temperature": 1, "conditions": "sunny", "hours": list(range(24))},
        {"temperature": 1, "conditions": ""},
    )
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(found.problem, [good, bad] * 200))
    assert [result is None for result in results] == [True, False] * 200


# --- the same verdict as jsonschema ---------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "ab", "c"])
SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, 2, 2.5, -1, "", "a", "ab", "abc"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
COUNT = st.integers(0, 3)
PATTERNS = st.sampled_from(["^a", "b$", "^ab?$", "[ac]", "^(a|b)+$", "^$"])


def schemas_of(declared: str) -> st.SearchStrategy[Any]:
    """Small schemas of the keywords that the dialect and the newest one have in common, and of its own."""
    old = declared.endswith(("draft-03/schema#", "draft-04/schema#"))
    oldest, newest = "draft-03" in declared, declared == NEWEST
    young = declared.startswith("https")

    def with_inner(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        some, by_name = st.lists(inner, min_size=1, max_size=3), st.dictionaries(NAMES, inner, max_size=3)
        keywords: dict[str, st.SearchStrategy[Any]] = {
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3, unique_by=repr).filter(_are_unique),
            **dict.fromkeys(["minLength", "maxLength", "minItems", "maxItems"], COUNT),
            **dict.fromkeys(["minimum", "maximum"], st.sampled_from([0, 1, 1.5])),
            "pattern": PATTERNS,
            "uniqueItems": st.booleans(),
            "properties": by_name,
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "definitions": st.dictionaries(NAMES, inner, max_size=1),
        }
        if oldest:
            keywords |= {"extends": inner | some, "disallow": TYPES, "divisibleBy": st.sampled_from([1, 2, 0.5])}
        else:
            keywords |= dict.fromkeys(["allOf", "anyOf", "oneOf"], some)
            keywords |= {"not": inner, "multipleOf": st.sampled_from([1, 2, 0.5])}
            keywords |= {"required": st.lists(NAMES, min_size=1, max_size=2, unique=True)}
            keywords |= dict.fromkeys(["minProperties", "maxProperties"], COUNT)
        if not old:
            keywords |= {"const": VALUES, "contains": inner, "propertyNames": inner}
            keywords |= {"exclusiveMinimum": st.sampled_from([0, 1, 1.5])}
        if young:
            keywords |= dict.fromkeys(["if", "then", "else"], inner)
            keywords |= {"minContains": COUNT, "dependentSchemas": by_name}
            keywords |= {"dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True))}
        if newest:
            keywords |= {"prefixItems": some, "unevaluatedProperties": inner, "unevaluatedItems": inner}
        chosen = st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True)
        return chosen.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))

    leaf: st.SearchStrategy[Any] = st.just({}) if old else st.just({}) | st.booleans()
    refs = st.sampled_from(["#/definitions/a", "#/definitions/b"]).map(lambda ref: {"$ref": ref})
    nested = st.recursive(leaf | refs, with_inner, max_leaves=8)
    return nested.map(
        lambda schema: {
            **(schema if isinstance(schema, dict) and "$ref" not in schema else {}),
            "$schema": declared,
            "definitions": {"a": {"type": "string"}, "b": {"items": {"$ref": "#/definitions/a"}}},
        }
    )


def _are_unique(values: list[Any]) -> bool:
    return is_valid({"uniqueItems": True}, values)


@pytest.mark.parametrize("declared", DIALECTS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_verdict_is_that_of_jsonschema(declared: str, data: st.DataObject) -> None:
    schema, values = data.draw(schemas_of(declared)), data.draw(st.lists(VALUES, min_size=1, max_size=4))
    found = compiled(schema)
    registry: Registry[Any] = Registry()
    plain = DIALECTS[declared](schema, registry=registry)
    for value in values:
        problem = found.problem(value)
        assert not isinstance(problem, str), problem
        assert (problem is None) == plain.is_valid(value), (value, problem)


@settings(max_examples=150, deadline=None)
@given(
    schema=st.recursive(
        SCALARS | NAMES,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "$ref",
                        "$id",
                        "id",
                        "$anchor",
                        "$defs",
                        "definitions",
                        "items",
                        "type",
                        "properties",
                        "allOf",
                        "not",
                        "dependencies",
                        "extends",
                        "$schema",
                        "pattern",
                        "patternProperties",
                        "enum",
                        "required",
                        "a",
                    ]
                ),
                inner | st.sampled_from(["#", "#/a", "#/items", "#a", "string", "http://[", *DIALECTS]),
                max_size=4,
            )
        ),
        max_leaves=15,
    ),
    declared=st.sampled_from(sorted(DIALECTS)),
    value=VALUES,
)
def test_whatever_a_schema_is_the_answer_is_a_value(schema: Any, declared: str, value: Any) -> None:
    if isinstance(schema, dict):
        schema = {"$schema": declared, **schema}
    found = compile_schema(schema)
    if isinstance(found, Compiled):
        assert isinstance(found.problem(value), (Problem, str, type(None)))
    else:
        assert found
