"""Schemas and values made to hurt: each is answered in time, with the reason when it is not checked, and nothing is
fetched for any.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest

from snodo_client.schema.compiled import Compiled, Problem, compile_schema

IN_TIME = 2.0  # seconds, for each step; on a quiet machine the slowest take 0.3


def nested(times: int, inner: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(times):
        inner = wrap(inner)
    return inner


T = TypeVar("T")


def in_time(work: Callable[[], T]) -> T:
    started = time.monotonic()
    done = work()
    assert time.monotonic() - started < IN_TIME
    return done


def answer(schema: object, value: object) -> Problem | str | None:
    """What is wrong with the value, or why it was not checked, at whichever step."""
    found = in_time(lambda: compile_schema(schema))
    if not isinstance(found, Compiled):
        return found
    return in_time(lambda: found.problem(value))


def doubling(levels: int, keyword: str = "allOf") -> dict[str, Any]:
    steps = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**steps, f"d{levels}": {"type": "string"}}}


def dependent(levels: int) -> dict[str, Any]:
    steps = {
        f"d{n}": {"dependentSchemas": {name: {"$ref": f"#/$defs/d{n + 1}"} for name in "ab"}} for n in range(levels)
    }
    return {"unevaluatedProperties": False, "$ref": "#/$defs/d0", "$defs": {**steps, f"d{levels}": {}}}


ROWS = [{"a": number, "b": str(number), "c": None} for number in range(30_000)]
TOO_LONG = "takes too long"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        pytest.param(nested(100, {}, lambda s: {"properties": {"a": s}}), "nests more than", id="deep"),
        pytest.param(nested(50_000, {}, lambda s: {"not": s}), "nests more than", id="very deep"),
        pytest.param({"properties": {f"p{n}": {} for n in range(5000)}}, "more than 2000 schemas", id="wide"),
        pytest.param({"anyOf": [{"const": n} for n in range(15_000)]}, "values or", id="many branches"),
        pytest.param({"enum": list(range(10**6))}, "values or", id="long enum"),
        pytest.param({"const": "x" * 10**6}, "characters", id="long const"),
        pytest.param({"required": ["x" * 10**6]}, "characters", id="long name"),
        pytest.param({"properties": {f"p{n}": {"pattern": f"^{n}"} for n in range(60)}}, "50 patterns", id="patterns"),
        pytest.param({"$ref": "#"}, "refers to itself without end", id="self"),
        pytest.param({"allOf": [{"not": {"$ref": "#"}}]}, "refers to itself without end", id="self inside"),
        pytest.param(
            {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
            "refers to itself without end",
            id="mutual",
        ),
        pytest.param(
            {"$dynamicAnchor": "x", "if": {"$dynamicRef": "#x"}}, "refers to itself without end", id="dynamic self"
        ),
        pytest.param(
            {"$schema": "https://json-schema.org/draft/2019-09/schema", "then": {"$recursiveRef": "#"}},
            "refers to itself without end",
            id="recursive self",
        ),
        pytest.param(doubling(12), "schemas to one value", id="doubling"),
        pytest.param(doubling(12, "oneOf"), "schemas to one value", id="doubling oneOf"),
        pytest.param(doubling(10_000), "values or", id="long doubling"),
        pytest.param(dependent(12), "schemas to one value", id="doubling by dependency"),
        pytest.param(
            {"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(900)} | {"d900": {}}},
            "a chain",
            id="chain",
        ),
        pytest.param({"allOf": [False] * 1999}, "", id="many refusals"),
        pytest.param({"pattern": "^(a+)+$"}, "the pattern '^(a+)+$' can be matched in several ways", id="exponential"),
        pytest.param({"patternProperties": {"(x*)*y": {}}}, "the pattern '(x*)*y'", id="exponential name"),
        pytest.param({"pattern": r"\d+x"}, "quadratic", id="quadratic"),
        pytest.param({"pattern": "(" * 2000}, "more than 1000 characters", id="long pattern"),
    ],
)
def test_a_schema_that_would_take_too_long_is_not_used(schema: Any, reason: str) -> None:
    found = answer(schema, "a" * 4000)
    assert isinstance(found, str)
    assert reason in found


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        pytest.param(
            {"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2},
            nested(40, 1, lambda value: {"a": value}),
            TOO_LONG,
            id="doubling with depth",
        ),
        pytest.param(
            {"oneOf": [{"properties": {"a": {"$ref": "#"}}}, {"required": ["b"]}, {"items": {"$ref": "#"}, "not": {}}]},
            nested(200, 1, lambda value: {"a": value}),
            "nest more than 150 deep",
            id="deep value",
        ),
        pytest.param({"items": {"type": "object"}}, ROWS * 10, TOO_LONG, id="long array"),
        pytest.param({"items": {}}, [0] * 100_000, TOO_LONG, id="schemas that ask nothing"),
        pytest.param({"type": "string"}, ROWS * 10, TOO_LONG, id="quoted value"),
        pytest.param({"anyOf": [{"type": "string"}] * 1500}, ROWS, TOO_LONG, id="quoted often"),
        pytest.param({"allOf": [{"anyOf": [{"not": {}}, {}]}] * 300}, ROWS, TOO_LONG, id="quoted and dropped"),
        pytest.param({"allOf": [{"contains": {"type": "null"}}] * 99}, list(range(9999)), TOO_LONG, id="contains"),
        pytest.param({"items": {"enum": [[n] * 9 for n in range(900)]}}, [[1] * 8 + [2]] * 9999, TOO_LONG, id="enum"),
        pytest.param({"items": {"not": {"const": [0] * 9999}}}, [[0] * 9998 + [1]] * 20, TOO_LONG, id="const"),
        pytest.param(
            {"unevaluatedItems": False, "allOf": [{"prefixItems": [True] * 100}] * 10},
            list(range(20_000)),
            TOO_LONG,
            id="unevaluatedItems",
        ),
        pytest.param(
            {"unevaluatedProperties": False, "allOf": [{"properties": {f"p{n}": True for n in range(1000)}}] * 10},
            {f"p{n}": 1 for n in range(2000)},
            TOO_LONG,
            id="unevaluatedProperties",
        ),
        pytest.param({"items": {"pattern": "^[a-z]*$"}}, ["a" * 4000] * 9999, TOO_LONG, id="many searches"),
        pytest.param(
            {"patternProperties": {f"^[a-z]*{n}$": {} for n in range(40)}},
            {"a" * 3000 + str(n): 1 for n in range(300)},
            TOO_LONG,
            id="many names",
        ),
        pytest.param({"pattern": "^a"}, "a" * 4097, "more than 4096 characters would meet a pattern", id="long text"),
        pytest.param(
            {"patternProperties": {"^a": {}}}, {"a" * 4097: 1}, "more than 4096 characters would meet", id="long name"
        ),
        pytest.param({"items": {"multipleOf": 7}}, [10**4000] * 9999, TOO_LONG, id="long numbers"),
        pytest.param({"multipleOf": 0.1}, 10**400, "too large to work with", id="number that no float is"),
        pytest.param({"maximum": 1}, 10**9000, "too large to work with", id="number that has no text"),
        pytest.param(
            {
                "$id": "https://example.test/",
                "$dynamicAnchor": "x",
                "items": {"$dynamicRef": "#x"},
                "$defs": {f"d{n}": {"$id": f"d{n}"} for n in range(900)},
            },
            [[[]] * 50] * 50,
            TOO_LONG,
            id="dynamic references",
        ),
        pytest.param(
            {"$schema": "http://json-schema.org/draft-03/schema#", "type": "text"}, 1, "not known here", id="type"
        ),
    ],
)
def test_a_value_that_would_take_too_long_is_not_checked(schema: Any, value: Any, reason: str) -> None:
    found = in_time(lambda: compile_schema(schema))
    assert isinstance(found, Compiled), found
    problem = in_time(lambda: found.problem(value))
    assert isinstance(problem, str), problem
    assert reason in problem


def test_after_a_value_that_was_not_checked_the_next_one_is() -> None:
    found = compile_schema({"items": {"type": "object"}})
    assert isinstance(found, Compiled)
    assert isinstance(found.problem(ROWS * 10), str)
    assert found.problem(ROWS[:10]) is None
    assert isinstance(found.problem([1]), Problem)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param({"items": {"type": "object", "required": ["a", "b"]}}, ROWS[:1000], id="rows"),
        pytest.param({"uniqueItems": True}, list(range(20_000)), id="unique numbers"),
        pytest.param({"uniqueItems": True}, [[n] for n in range(10_000)], id="unique arrays"),
        pytest.param({"uniqueItems": True}, [n * (2**61 - 1) for n in range(10_000)], id="numbers with one hash"),
        pytest.param({"properties": {"text": {"type": "string"}}}, {"text": "x" * 5_000_000}, id="long text"),
        pytest.param({"enum": [str(n) for n in range(1000)]}, "999", id="enum"),
        pytest.param(nested(30, {}, lambda s: {"properties": {"a": s}}), nested(30, 1, lambda v: {"a": v}), id="deep"),
        pytest.param({"properties": {f"p{n}": {"type": "string"} for n in range(500)}}, {"p499": ""}, id="wide"),
        pytest.param({"items": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}, list(range(3000)), id="optional"),
    ],
)
def test_what_honest_servers_send_is_within_the_bounds(schema: Any, value: Any) -> None:
    assert answer(schema, value) is None


def test_a_nearly_full_stack_is_a_reason() -> None:
    schema = nested(40, {}, lambda inner: {"properties": {"a": inner}})
    ready = compile_schema(schema)
    assert isinstance(ready, Compiled)
    value = nested(40, 1, lambda inner: {"a": inner})

    def deeper(left: int, work: Callable[[], Any]) -> Any:
        return deeper(left - 1, work) if left else work()

    frame, used = sys._getframe(), 0
    while frame.f_back is not None:
        frame, used = frame.f_back, used + 1
    left = sys.getrecursionlimit() - used - 60
    for found in (deeper(left, lambda: compile_schema(schema)), deeper(left, lambda: ready.problem(value))):
        assert isinstance(found, str)
        assert "too deep" in found


# --- nothing is fetched ---------------------------------------------------------------------------------------------


class Canary(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        body = b'{"type": "string"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def canary() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that has every schema, and what it was asked for."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Canary) as server:
        asked: list[str] = []
        server.asked = asked  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/schema", asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "place",
    [
        lambda url: {"$ref": url},
        lambda url: {"properties": {"a": {"$ref": url}}},
        lambda url: {"$defs": {"unused": {"items": {"$ref": f"{url}#/$defs/x"}}}},
        lambda url: {"$id": url, "$ref": "other"},
        lambda url: {"$dynamicRef": f"{url}#node"},
        lambda url: {"$schema": url, "type": "string"},
        lambda url: {"items": {"$schema": url, "type": "string"}},
        lambda url: {"$ref": "#/x-hidden", "x-hidden": {"not": {"$ref": url}}},
        lambda url: {"$ref": "#/$defs/a", "$defs": {"a": {"$id": url, "$ref": "b"}}},
        lambda url: {"$schema": "http://json-schema.org/draft-07/schema#", "id": url, "$ref": url},
        lambda url: {"$schema": "http://json-schema.org/draft-04/schema#", "id": url, "items": {"$ref": "x"}},
        lambda url: {"$schema": "http://json-schema.org/draft-03/schema#", "extends": [{"$ref": url}]},
        lambda url: {"$ref": url.replace("http://", "//")},
    ],
)
def test_nothing_is_fetched_from_the_network(
    place: Callable[[str], dict[str, Any]], canary: tuple[str, list[str]]
) -> None:
    url, asked = canary
    found = compile_schema(place(url))
    assert isinstance(found, str)
    assert "nothing is fetched" in found or "dialect" in found
    assert asked == []


def test_identifiers_are_names_and_not_fetched(canary: tuple[str, list[str]]) -> None:
    url, asked = canary
    found = compile_schema({"$id": url, "$ref": f"{url}/x", "$defs": {"x": {"$id": f"{url}/x", "type": "null"}}})
    assert isinstance(found, Compiled)
    assert found.problem(None) is None
    assert isinstance(found.problem("a"), Problem)
    assert asked == []


def test_nothing_is_read_from_files(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "string"}')
    for reference in (file.as_uri(), str(file), f"file:{file}", f"{file}#/type"):
        found = compile_schema({"properties": {"a": {"$ref": reference}}})
        assert isinstance(found, str)
        assert "outside of itself; nothing is fetched" in found
