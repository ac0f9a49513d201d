"""Which arguments travel as headers: valid and invalid annotations everywhere in a schema, and the values sent."""

from __future__ import annotations

import enum
import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.protocol.tool_headers import Annotation, param_headers, scan

MARKED = {"type": "string", "x-mcp-header": "Region"}


def schema(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def found(input_schema: object) -> list[tuple[str, tuple[str, ...], str]]:
    result = scan(input_schema)
    assert isinstance(result, list), result
    return [(annotation.name, annotation.path, annotation.type) for annotation in result]


def refused(input_schema: object) -> str:
    result = scan(input_schema)
    assert isinstance(result, str)
    assert "\n" not in result
    return result


# --- scan -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["string", "integer", "boolean"])
def test_annotations_are_found_at_any_depth_of_properties(kind: str) -> None:
    marked = {"type": kind, "x-mcp-header": "Deep"}
    assert found(schema(a=schema(b=schema(c=marked)))) == [("Deep", ("a", "b", "c"), kind)]


def test_several_annotations() -> None:
    marked = schema(region=MARKED, where=schema(zone={"type": "integer", "x-mcp-header": "Zone"}), plain={})
    assert found(marked) == [("Region", ("region",), "string"), ("Zone", ("where", "zone"), "integer")]


@pytest.mark.parametrize(
    "value", [None, True, [], 5, {}, {"type": "object"}, {"properties": []}, {"properties": {"a": True}}]
)
def test_schemas_without_annotations(value: object) -> None:
    assert found(value) == []


@pytest.mark.parametrize("name", ["Method", "a", "9", "!#$%&'*+-.^_`|~", "Name"])
def test_names_that_are_headers(name: str) -> None:
    assert found(schema(a={"type": "string", "x-mcp-header": name})) == [(name, ("a",), "string")]


@pytest.mark.parametrize(
    "name", ["", "a b", "a:b", "é", "\t", "a\r\nb", "a\n", "\x00", None, 5, True, ["a"], {"a": "b"}]
)
def test_names_that_are_none(name: object) -> None:
    assert "'properties/a'" in refused(schema(a={"type": "string", "x-mcp-header": name}))


@pytest.mark.parametrize(
    "kind", ["number", "array", "object", "null", "String", ["string"], ["integer", "null"], None, {}, 5]
)
def test_types_that_have_no_header(kind: object) -> None:
    assert "type" in refused(schema(a={"type": kind, "x-mcp-header": "A"}))


@pytest.mark.parametrize("rest", [{}, {"enum": ["a"]}, {"const": "a"}, {"$ref": "#/properties/b"}])
def test_a_type_must_be_there(rest: dict[str, object]) -> None:
    assert "type" in refused(schema(a={"x-mcp-header": "A"} | rest, b={"type": "string"}))


@pytest.mark.parametrize("other", ["Region", "REGION", "region"])
def test_names_are_unique_in_any_case_and_depth(other: str) -> None:
    reason = refused(schema(a=MARKED, b=schema(c={"type": "boolean", "x-mcp-header": other})))
    assert "'properties/a'" in reason
    assert "'properties/b/properties/c'" in reason


SINGLE = ["items", "contains", "additionalProperties", "propertyNames", "not", "if", "then", "else"]
SINGLE += ["unevaluatedItems", "unevaluatedProperties", "contentSchema", "additionalItems"]
LISTS = ["prefixItems", "allOf", "anyOf", "oneOf", "items"]
MAPS = ["patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"]
FORMS: dict[str, Callable[[object], object]] = {
    "": lambda part: part,
    "/1": lambda part: [True, part],
    "/k": lambda part: {"k": part},
}
PLACES = [
    *((keyword, "") for keyword in SINGLE),
    *((keyword, "/1") for keyword in LISTS),
    *((keyword, "/k") for keyword in MAPS),
]


@pytest.mark.parametrize(("keyword", "form"), PLACES)
def test_annotations_anywhere_else_are_invalid(keyword: str, form: str) -> None:
    def at(part: object) -> dict[str, object]:
        return {keyword: FORMS[form](part)}

    path = keyword + form
    assert f"'{path}'" in refused(at(MARKED))
    assert f"'properties/a/{path}'" in refused(schema(a=at(MARKED)))
    assert f"'{path}/properties/a'" in refused(at(schema(a=MARKED)))
    assert f"'{path}/{path}'" in refused(at(at(MARKED)))


def test_an_annotation_at_the_root_is_invalid() -> None:
    assert "the root" in refused(MARKED)


def test_a_property_called_like_the_annotation_is_none() -> None:
    assert found({"properties": {"x-mcp-header": {"type": "string"}}, "$defs": {"x-mcp-header": {}}}) == []
    named_alike = schema(**{"x-mcp-header": {"type": "string", "x-mcp-header": "X"}})
    assert found(named_alike) == [("X", ("x-mcp-header",), "string")]
    assert found(schema(properties=schema(properties=MARKED))) == [("Region", ("properties", "properties"), "string")]
    assert found(schema(items=MARKED)) == [("Region", ("items",), "string")]


@pytest.mark.parametrize("keyword", ["default", "const", "examples", "enum", "x-other", "required"])
def test_data_is_no_schema(keyword: str) -> None:
    for data in (MARKED, [MARKED], {"properties": {"a": MARKED}}):
        assert found({keyword: data, "properties": {"a": {keyword: data}}}) == []


def test_schemas_as_deep_or_as_wide_as_the_bound_and_beyond() -> None:
    deep: dict[str, Any] = {"type": "string", "x-mcp-header": "Deep"}
    for _ in range(19_999):
        deep = schema(a=deep)
    assert found(deep) == [("Deep", ("a",) * 19_999, "string")]
    assert "20000 parts" in refused(schema(a=deep))
    looped: dict[str, Any] = {}
    looped["not"] = looped
    assert "20000 parts" in refused(looped)


def test_a_schema_of_many_parts_takes_little_memory() -> None:
    wide: dict[str, object] = {"anyOf": [{}] * 1_000_000}
    tracemalloc.start()
    try:
        assert "20000 parts" in refused(wide)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_reason_stays_short() -> None:
    deep: dict[str, Any] = {"x-mcp-header": "A"}
    for _ in range(5000):
        deep = schema(**{"long\nname" * 10: deep})
    assert len(refused(deep)) < 1000


KEYS = st.sampled_from([*SINGLE, *LISTS, *MAPS, "properties", "default", "type", "x-mcp-header"])
PARTS = st.recursive(
    st.sampled_from([MARKED, {"type": "integer", "x-mcp-header": "N"}, {"x-mcp-header": 5}, True, None, "a", 5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
)


def naive(part: Any, path: tuple[str, ...] | None, names: list[str]) -> bool:
    """Whether a schema is valid, written as a plain recursion; collects the paths of annotations."""
    if not isinstance(part, dict):
        return True
    if "x-mcp-header" in part:
        if not path or part["x-mcp-header"] not in ("Region", "N") or part.get("type") not in ("string", "integer"):
            return False
        names.append(part["x-mcp-header"])
    for key, value in part.items():
        children: list[tuple[Any, tuple[str, ...] | None]] = []
        if key == "properties" and isinstance(value, dict):
            children = [(child, None if path is None else (*path, name)) for name, child in value.items()]
        elif key in MAPS and isinstance(value, dict):
            children = [(child, None) for child in value.values()]
        elif key in LISTS and isinstance(value, list):
            children = [(child, None) for child in value]
        elif key in SINGLE:
            children = [(value, None)]
        for child, where in children:
            if not naive(child, where, names):
                return False
    return True


@given(PARTS)
def test_the_walk_agrees_with_a_plain_recursion(part: Any) -> None:
    names: list[str] = []
    valid = naive(part, (), names) and len(names) == len(set(names))
    result = scan(part)
    assert isinstance(result, list) == valid
    if valid:
        assert sorted(annotation.name for annotation in result if isinstance(annotation, Annotation)) == sorted(names)


# --- param_headers ----------------------------------------------------------------------------------------------


def header(kind: str, value: object) -> str | None:
    headers = param_headers([Annotation("X", ("a",), kind)], {"a": value})
    assert set(headers) <= {"Mcp-Param-X"}
    return headers.get("Mcp-Param-X")


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("string", "us west 1", "us west 1"),
        ("string", "", ""),
        ("string", "日本語", "=?base64?5pel5pys6Kqe?="),
        ("string", Colour.RED, "red"),
        ("integer", 42, "42"),
        ("integer", -7, "-7"),
        ("integer", 0, "0"),
        ("integer", 42.0, "42"),
        ("integer", -0.0, "0"),
        ("integer", 1e15, "1000000000000000"),
        ("integer", Level.HIGH, "3"),
        ("integer", 2**53 - 1, "9007199254740991"),
        ("integer", 1 - 2**53, "-9007199254740991"),
        ("boolean", True, "true"),
        ("boolean", False, "false"),
        ("string", None, None),
        ("integer", None, None),
    ],
)
def test_values(kind: str, value: object, text: str | None) -> None:
    assert header(kind, value) == text


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("integer", 2**53),
        ("integer", -(2**53)),
        ("integer", 1e300),
        ("integer", 1.5),
        ("integer", math.nan),
        ("integer", math.inf),
        ("integer", True),
        ("integer", "42"),
        ("integer", [1]),
        ("boolean", 1),
        ("boolean", "true"),
        ("string", 1),
        ("string", True),
        ("string", b"x"),
        ("string", ["x"]),
        ("string", {"x": 1}),
        ("string", "\ud800"),
    ],
)
def test_values_no_header_can_carry_are_refused(kind: str, value: object) -> None:
    with pytest.raises(ValueError, match="'a' cannot be mirrored"):
        header(kind, value)


def test_refused_values_are_not_quoted() -> None:
    with pytest.raises(ValueError, match=r"a\.b") as caught:
        param_headers([Annotation("X", ("a", "b"), "integer")], {"a": {"b": "s3cret"}})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "arguments", [{}, {"a": None}, {"a": 5}, {"a": []}, {"a": "b"}, {"a": {}}, {"a": {"b": None}}, {"b": "x"}]
)
def test_what_is_missing_anywhere_on_the_path_has_no_header(arguments: dict[str, Any]) -> None:
    assert param_headers([Annotation("X", ("a", "b"), "string")], arguments) == {}


def test_scanned_annotations_fill_headers() -> None:
    annotations = scan(schema(region=MARKED, where=schema(zone={"type": "integer", "x-mcp-header": "Method"})))
    assert isinstance(annotations, list)
    arguments = {"region": "", "where": {"zone": 3.0}, "other": 1}
    assert param_headers(annotations, arguments) == {"Mcp-Param-Region": "", "Mcp-Param-Method": "3"}
