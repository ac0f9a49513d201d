"""Elicitation forms: which schemas are one, what fills them, and that no value leaks into what is said of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.schema import forms
from support import mcp_schema

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
TEXTS = st.lists(st.text(max_size=5), min_size=1, max_size=4)
TITLED = st.lists(st.fixed_dictionaries({"const": st.text(max_size=5), "title": st.text(max_size=5)}), min_size=1)
COUNTS = st.integers(0, 9)
NUMBERS = st.integers(-9, 9) | st.floats(-9, 9)


def field(kind: str, **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    words = {"title": st.text(max_size=5), "description": st.text(max_size=5)}
    return st.fixed_dictionaries({"type": st.just(kind)}, optional={**words, **optional})


FORMATS = st.sampled_from(["email", "uri", "date", "date-time"])
TEXT = field("string", minLength=COUNTS, maxLength=COUNTS, format=FORMATS, default=st.text(max_size=5))
NUMBER = field("number", minimum=NUMBERS, maximum=NUMBERS, default=NUMBERS)
BOOLEAN = field("boolean", default=st.booleans())
CHOICE = TEXTS.flatmap(lambda texts: field("string", enum=st.just(texts), default=st.sampled_from(texts)))
NAMED = TEXTS.flatmap(lambda texts: field("string", enum=st.just(texts), enumNames=st.just(texts)))
TITLED_CHOICE = TITLED.flatmap(lambda choices: field("string", oneOf=st.just(choices)))
CHOICES = (TEXTS.map(lambda texts: {"type": "string", "enum": texts}) | TITLED.map(lambda c: {"anyOf": c})).flatmap(
    lambda items: field("array", minItems=COUNTS, maxItems=COUNTS, default=TEXTS).map(
        lambda whole: {**whole, "items": items}
    )
)
FIELDS = TEXT | NUMBER | BOOLEAN | CHOICE | NAMED | TITLED_CHOICE | CHOICES
FORMS = st.dictionaries(st.text(max_size=8), FIELDS, max_size=5).flatmap(
    lambda properties: st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.just(properties)},
        optional={
            "required": st.lists(st.sampled_from(sorted(properties)), unique=True) if properties else st.just([])
        },
    )
)


def form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@given(FORMS)
def test_every_form_of_the_official_schema_is_one(schema: dict[str, Any]) -> None:
    mcp_schema.check({"message": "", "requestedSchema": schema}, "ElicitRequestFormParams")
    assert forms.problem_of_schema(schema) is None


@given(JSON | st.fixed_dictionaries({"type": st.just("object"), "properties": JSON}, optional={"required": JSON}))
def test_whatever_a_server_sends_is_judged_and_raises_nothing(schema: Any) -> None:
    assert isinstance(forms.problem_of_schema(schema), (str, type(None)))


@given(FORMS, st.data())
def test_whatever_fills_a_form_is_judged_and_raises_nothing(schema: dict[str, Any], data: st.DataObject) -> None:
    names = st.sampled_from(sorted(schema["properties"])) if schema["properties"] else st.text(max_size=8)
    content = data.draw(st.dictionaries(names | st.text(max_size=8), JSON, max_size=5))
    filled = forms.with_defaults(schema, content)
    assert filled.items() >= content.items()
    assert isinstance(forms.problem(schema, filled), (str, type(None)))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (None, "no object schema"),
        ([], "no object schema"),
        ({}, "no object schema"),
        ({"type": "string"}, "no object schema"),
        ({"type": "object"}, "no properties"),
        ({"type": "object", "properties": []}, "no properties"),
        (form(a=True), "'a' has no type"),
        (form(a={}), "'a' has no type"),
        (form(a={"type": ["string", "null"]}), "'a' has no type"),
        (form(a={"type": "object", "properties": {}}), "'a' has no type"),
        (form(a={"type": "null"}), "'a' has no type"),
        (form(a={"$ref": "#/x"}), "'a' has no type"),
        (form(a={"anyOf": [{"type": "string"}, {"type": "integer"}]}), "'a' has no type"),
        (form(a={"anyOf": [{"type": "object"}, {"type": "null"}]}), "'a' has no type"),
        (form(a={"type": "array"}), "something else than texts"),
        (form(a={"type": "array", "items": {"type": "integer"}}), "something else than texts"),
        (form(a={"type": "array", "items": {"type": "string", "enum": []}}), "no texts"),
        (form(a={"type": "string", "enum": []}), "no texts"),
        (form(a={"type": "string", "enum": [1]}), "no texts"),
        (form(a={"type": "string", "enum": "ab"}), "no texts"),
        (form(a={"type": "string", "enum": ["x"], "enumNames": []}), "other names"),
        (form(a={"type": "string", "enum": 1, "enumNames": ["x"]}), "other names"),
        (form(a={"type": "string", "oneOf": [{"const": "x"}]}), "without a title"),
        (form(a={"type": "string", "oneOf": [{"const": 1, "title": "x"}]}), "no texts"),
        (form(a={"type": "string", "oneOf": ["x"]}), "without a title"),
        (form(a={"type": "string", "minLength": -1}), "minLength"),
        (form(a={"type": "string", "maxLength": 1.5}), "maxLength"),
        (form(a={"type": "string", "maxLength": True}), "maxLength"),
        (form(a={"type": "number", "minimum": "1"}), "minimum"),
        (form(a={"type": "array", "items": {"type": "string"}, "minItems": "1"}), "minItems"),
        (form(a={"type": "string", "default": 1}), "default that is no string"),
        (form(a={"type": "integer", "default": 1.5}), "default that is no integer"),
        (form(a={"type": "number", "default": True}), "default that is no number"),
        (form(a={"type": "boolean", "default": 0}), "default that is no boolean"),
        (form(a={"type": "array", "items": {"type": "string"}, "default": "x"}), "default that is no array"),
        ({**form(), "required": ["a"]}, "not among its properties"),
        ({**form(), "required": "a"}, "not among its properties"),
        ({**form(), "required": [["a"]]}, "not among its properties"),
        (form(**{f"p{number}": {"type": "string"} for number in range(forms.MAX_PROPERTIES + 1)}), "more than 256"),
        (form(a={"type": "string", "enum": ["x"] * (forms.MAX_CHOICES + 1)}), "more than 1000"),
        (form(**{"n" * 10_000: {}}), "'" + "n" * forms.MAX_SHOWN + "'"),
    ],
)
def test_what_is_no_form_and_why(schema: Any, why: str) -> None:
    assert why in str(forms.problem_of_schema(schema))


@pytest.mark.parametrize(
    "field",
    [
        {"type": "string", "pattern": "(a+)+$", "format": "uuid", "x-order": 1, "minLength": None},
        {"type": "integer", "minimum": 1.0, "exclusiveMinimum": 0, "default": 5.0},
        {"type": "string", "enum": ["x"], "default": None},
        {"type": "array", "items": {"enum": ["x"]}},
        {"type": "array", "items": {"type": "string"}},
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None, "title": "Age"},
        {"anyOf": [{"type": "null"}, {"type": "string", "enum": ["x"]}]},
    ],
)
def test_habits_of_real_servers_are_taken(field: dict[str, Any]) -> None:
    assert forms.problem_of_schema(form(a=field)) is None


def test_a_pattern_is_not_run() -> None:
    assert forms.problem(form(a={"type": "string", "pattern": "^(a+)+$"}), {"a": "a" * 64 + "!"}) is None


PERSON = {
    **form(
        name={"type": "string", "minLength": 2, "maxLength": 5},
        age={"type": "integer", "minimum": 18},
        share={"type": "number", "maximum": 1},
        agrees={"type": "boolean"},
        color={"type": "string", "enum": ["red", "blue"], "enumNames": ["Red", "Blue"]},
        hero={"type": "string", "oneOf": [{"const": "h1", "title": "One"}]},
        fish={"type": "array", "minItems": 1, "maxItems": 2, "items": {"anyOf": [{"const": "f1", "title": "F"}]}},
        tags={"type": "array", "items": {"type": "string"}},
        maybe={"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "null"}]},
    ),
    "required": ["name"],
}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"age": 18},
        {"age": 18.0},
        {"share": 0.5},
        {"share": -1},
        {"agrees": False},
        {"color": "red", "hero": "h1"},
        {"fish": ["f1"]},
        {"tags": []},
        {"maybe": None},
        {"maybe": "x"},
    ],
)
def test_what_fits(more: dict[str, Any]) -> None:
    assert forms.problem(PERSON, {"name": "Ann", **more}) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({}, "content lacks 'name'"),
        ({"name": "A"}, "content/name breaks the rule minLength: 2"),
        ({"name": "Annabel"}, "content/name breaks the rule maxLength: 5"),
        ({"name": None}, "content/name breaks the rule type: string"),
        ({"name": "Ann", "age": 17}, "content/age breaks the rule minimum: 18"),
        ({"name": "Ann", "age": True}, "content/age breaks the rule type: integer"),
        ({"name": "Ann", "age": 18.5}, "content/age breaks the rule type: integer"),
        ({"name": "Ann", "share": 1.5}, "content/share breaks the rule maximum: 1"),
        ({"name": "Ann", "share": True}, "content/share breaks the rule type: number"),
        ({"name": "Ann", "agrees": 1}, "content/agrees breaks the rule type: boolean"),
        ({"name": "Ann", "color": "Red"}, "content/color breaks the rule enum"),
        ({"name": "Ann", "hero": "One"}, "content/hero breaks the rule enum"),
        ({"name": "Ann", "fish": []}, "content/fish breaks the rule minItems: 1"),
        ({"name": "Ann", "fish": ["f1", "f1", "f1"]}, "content/fish breaks the rule maxItems: 2"),
        ({"name": "Ann", "fish": ["f1", "f2"]}, "content/fish/1 breaks the rule enum"),
        ({"name": "Ann", "fish": ("f1",)}, "content/fish breaks the rule type: array"),
        ({"name": "Ann", "tags": [1]}, "content/tags/0 breaks the rule type: string"),
        ({"name": "Ann", "maybe": "y"}, "content/maybe breaks the rule enum"),
        ({"name": "Ann", "nmae": "x"}, "content has a member that the form does not ask for"),
    ],
)
def test_what_does_not_fit_is_told_by_place_and_rule(content: dict[str, Any], why: str) -> None:
    assert forms.problem(PERSON, content) == why


@pytest.mark.parametrize(
    ("format", "fits", "breaks"),
    [
        (
            "email",
            ["a@b", "x.y+z@example.org", "jörg@bücher.example"],
            ["", "a", "a@", "@b", "a b@c", "a@b@c", "a@b\n"],
        ),
        (
            "uri",
            ["https://example.org/a?b#c", "urn:isbn:1", "mailto:a@b", "x:%41", "http://[::1]/"],
            ["", "a", "/a/b", "http:", "http://a b", "x:%4", "1a:b", "http://ä", "x:a\n"],
        ),
        ("date", ["2024-02-29", "0001-01-01"], ["2023-02-29", "20240229", "2024-W09-4", "2024-2-9", "٢٠٢٤-02-29", ""]),
        (
            "date-time",
            ["2024-02-29T23:59:60Z", "2024-02-29t00:00:00.123456789+14:00", "2024-02-29T00:00:00-00:00"],
            ["2024-02-29", "2024-02-29T00:00:00", "2024-02-29 00:00:00Z", "2023-02-29T00:00:00Z",
             "2024-02-29T24:00:00Z",
             "2024-02-29T00:60:00Z", "2024-02-29T00:00:00+24:00", "2024-02-29T00:00Z", "2024-02-29T00:00:00Z\n"],
        ),
    ],
)  # fmt: skip
def test_formats(format: str, fits: list[str], breaks: list[str]) -> None:
    schema = form(a={"type": "string", "format": format})
    assert [text for text in fits if forms.problem(schema, {"a": text}) is not None] == []
    assert [text for text in breaks if forms.problem(schema, {"a": text}) is None] == []


def test_defaults_fill_what_is_left_out_and_nothing_else() -> None:
    schema = form(
        a={"type": "string", "default": "x"},
        b={"type": "boolean", "default": False},
        c={"type": "integer", "default": 0},
        d={"type": "array", "items": {"type": "string"}, "default": ["x"]},
        e={"type": "string"},
        f={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    )
    given = {"a": "mine"}
    filled = forms.with_defaults(schema, given)
    assert filled == {"a": "mine", "b": False, "c": 0, "d": ["x"]}
    filled["d"].append("y")
    assert schema["properties"]["d"]["default"] == ["x"]
    assert given == {"a": "mine"}


@given(FORMS, st.data())
def test_what_is_said_quotes_no_value(schema: dict[str, Any], data: st.DataObject) -> None:
    secret = "5ecret5ecret"
    values = st.just(secret) | st.just([secret]) | st.just({secret: secret})
    names = st.sampled_from([*schema["properties"], secret])
    content = data.draw(st.dictionaries(names, values, min_size=1))
    assert secret not in str(forms.problem(schema, content))


def test_nothing_is_fetched_for_a_reference() -> None:
    """A reference is a keyword like any other that a form has not: tolerated, and never followed."""
    assert forms.problem(form(a={"type": "string", "$ref": "http://127.0.0.1:9/schema"}), {"a": "x"}) is None
