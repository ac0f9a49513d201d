"""Results and arguments of tools against the schemas in their definitions, through clients of real servers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from snodo_client.changes import Notification
from snodo_client.engine import catalog
from support.shaped import CHANGED, CONNECTIONS, LEGACY, define, lists, shaped, tool
from support.waiting import together

COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
IN_TIME = 2.0
DRAFT_03 = "http://json-schema.org/draft-03/schema#"

each_connection = pytest.mark.parametrize("connection", CONNECTIONS)


def structured(value: Any, **members: Any) -> dict[str, Any]:
    return {"content": [], "structuredContent": value, **members}


def call(client: Client, result: Any, name: Any = "t", **options: Any) -> Any:
    """What becomes of a call whose result this is."""
    return client.call_tool(name, {"result": result}, **{"timeout": 20, **options})


def broken(outcome: Any) -> tuple[str, str]:
    """Path and rule of a result that was found wrong."""
    assert isinstance(outcome, McpError), outcome
    assert (outcome.reason, outcome.kind) == ("invalid_structured_content", "validation")
    return outcome.data["path"], outcome.data["rule"]


# -- results


@each_connection
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (COUNT, {"n": 1, "more": [None]}),
        (COUNT, {"n": 5.0}),
        ({"type": "null"}, None),
        ({"type": "boolean"}, False),
        ({"type": "integer"}, 0),
        ({"type": "string"}, ""),
        ({"type": "array", "items": {"type": "string"}}, []),
        ({}, {}),
        ({"format": "email"}, "formats are not asserted"),
    ],
)
def test_a_result_of_any_type_that_follows_its_schema_is_given_as_sent(
    connection: str, schema: Any, value: Any
) -> None:
    result = structured(value, resultType="complete", **{"com.example/x": 1})
    with shaped(connection, tool(schema)) as client:
        assert call(client, result) == Ok(result)
        assert client.start_tool_call("t", {"result": result}).result(20) == Ok(result)
        assert lists(client) == 1


@each_connection
@pytest.mark.parametrize(
    ("schema", "value", "path", "rule"),
    [
        (COUNT, {"n": "1"}, "/n", "type"),
        (COUNT, {"n": True}, "/n", "type"),
        (COUNT, {}, "", "required"),
        (COUNT, None, "", "type"),
        (COUNT, [], "", "type"),
        ({"type": "string"}, 1, "", "type"),
        ({"items": {"maximum": 2}}, [1, 2, 3], "/2", "maximum"),
        ({"properties": {"a/b": {"const": None}}}, {"a/b": False}, "/a~1b", "const"),
    ],
)
def test_one_that_does_not_is_an_error_that_tells_where_and_has_the_result(
    connection: str, schema: Any, value: Any, path: str, rule: str
) -> None:
    result = structured(value)
    with shaped(connection, tool(schema)) as client:
        outcome = call(client, result)
        assert broken(outcome) == (path, rule)
        assert outcome.data == {"tool": "t", "path": path, "rule": rule, "result": result}
        assert "'t'" in outcome.message
        assert client.protocol_info["status"] == "ready"
        assert broken(client.start_tool_call("t", {"result": result}).result(20)) == (path, rule)


@each_connection
def test_what_a_tool_reports_as_its_own_failure_follows_no_schema(connection: str) -> None:
    with shaped(connection, tool(COUNT), validate="all") as client:
        for members in ({"structuredContent": "no count"}, {}):
            result = {"content": [{"type": "text", "text": "it failed"}], "isError": True, **members}
            outcome = call(client, result)
            assert outcome == Ok(result)
            assert outcome.is_error
        assert broken(call(client, structured("no count", isError=False))) == ("", "type")
        assert broken(call(client, structured("no count", isError="true"))) == ("", "type")


@each_connection
def test_what_is_missing_is_wrong_only_where_all_is_checked_and_null_is_not_missing(connection: str) -> None:
    bare = {"content": [{"type": "text", "text": "{}"}]}
    with shaped(connection, tool(COUNT)) as client:
        assert call(client, bare) == Ok(bare)
        assert broken(call(client, structured(None))) == ("", "type")
    with shaped(connection, tool(COUNT), tool({"type": "null"}, "nothing"), validate="all") as client:
        assert broken(call(client, bare)) == ("", "structuredContent")
        assert call(client, structured(None), "nothing").ok
        assert broken(call(client, bare, "nothing")) == ("", "structuredContent")
        assert call(client, bare, {"name": "t"}).ok, "a tool without a schema owes nothing"


def test_nothing_is_checked_where_that_is_not_wanted() -> None:
    with shaped("http", tool(COUNT), validate="off") as client:
        assert call(client, structured("no count")).ok
        assert call(client, structured("no count"), tool(COUNT)).ok
        assert lists(client) == 1


@pytest.mark.parametrize("validate", ["structured", "all"])
def test_a_tool_that_was_not_listed_is_not_checked_and_not_listed_for_that(validate: Any) -> None:
    with shaped("direct", tool(COUNT), listed=False, validate=validate) as client:
        assert call(client, structured("no count")).ok
        assert call(client, {"content": []}).ok
        assert lists(client) == 0


@pytest.mark.parametrize("params", [{}, {"name": None}, {"name": ["t"]}, {"name": 1}])
@pytest.mark.parametrize("validate", ["structured", "all"])
def test_a_raw_call_without_a_proper_name_is_answered_as_the_server_does(validate: Any, params: Any) -> None:
    result = structured("no count")
    with shaped("direct", tool(COUNT), validate=validate) as client:
        assert client.request("tools/call", {**params, "arguments": {"result": result}}) == Ok(result)
        assert broken(client.request("tools/call", {"name": "t", "arguments": {"result": result}})) == ("", "type")


def test_the_result_of_a_task_is_no_result_of_the_tool() -> None:
    result = structured("no count")
    with shaped("http", tool(COUNT), validate="all", protocol="2025-11-25") as client:
        assert client.request("tools/call", {"name": "t", "task": {}, "arguments": {"result": result}}) == Ok(result)


# -- definitions that are old


@each_connection
def test_a_result_that_does_not_fit_is_judged_again_by_a_new_definition(connection: str) -> None:
    with shaped(connection, tool(COUNT)) as client:
        define(client, tool({"type": "string"}))
        assert call(client, structured("a new one")).ok
        assert call(client, structured("another")).ok
        assert lists(client) == 2
        assert broken(call(client, structured(5))) == ("", "type")
        assert lists(client) == 3


@pytest.mark.parametrize("now", [[], [{"name": "t", "inputSchema": {"type": "object"}}], [tool({"type": "string"})]])
def test_what_the_tool_no_longer_promises_is_not_asked_for(now: Any) -> None:
    with shaped("http", tool(COUNT)) as client:
        define(client, *now)
        assert call(client, structured("no count")).ok is (bool(now))
        if not now:  # a list without it does not say what it promises
            assert lists(client) == 2


@pytest.mark.parametrize("now", [[], [{"name": "t", "inputSchema": {"type": "object"}}]])
def test_where_all_is_checked_a_new_definition_may_also_do_without(now: Any) -> None:
    with shaped("direct", tool(COUNT), validate="all") as client:
        define(client, *now)
        outcome = call(client, {"content": []})
        assert outcome.ok is bool(now)


def test_a_list_that_cannot_be_had_changes_no_judgement() -> None:
    with shaped("http", tool(COUNT)) as client:
        define(client, tool({"type": "string"}), refusing=[True])
        assert broken(call(client, structured("new"))) == ("", "type")
        assert lists(client) == 2


def test_a_definition_of_the_caller_is_the_one_that_counts() -> None:
    with shaped("http", tool(COUNT)) as client:
        mine = tool({"type": "string"})
        assert call(client, structured("text"), mine).ok
        assert broken(call(client, structured({"n": 1}), mine)) == ("", "type")
        assert broken(client.start_tool_call(mine, {"result": structured(1)}).result(20)) == ("", "type")
        assert lists(client) == 1, "it was taken for old"
        assert call(client, structured({"n": 1})).ok
        assert call(client, structured("text"), {"name": "t"}).ok


def test_a_list_that_changed_is_forgotten_at_once() -> None:
    with shaped("http", tool(COUNT)) as client:
        subscription = client.listen([CHANGED], timeout=20)
        assert not isinstance(subscription, McpError)
        define(client, tool({"type": "string"}), tell=True)
        assert isinstance(subscription.next(20), Notification)
        assert call(client, structured(5)).ok, "nothing is known of it"
        client.list_tools().unwrap()
        assert broken(call(client, structured(5))) == ("", "type")
        assert lists(client) == 3, "one of ours, one of the caller, and one for the result that did not fit"


# -- what cannot be checked


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$schema": "https://example.test/dialect", "type": "string"}, "declares the dialect"),
        ({"type": 5}, "not valid in its dialect"),
        ("string", "no object"),
        ({"$ref": "https://example.test/schema"}, "nothing is fetched"),
        ({"$ref": "#/$defs/none"}, "does not have"),
        ({"pattern": "^(a+)+$"}, "pattern"),
    ],
)
def test_it_is_told_once_and_the_tool_can_be_used(schema: Any, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), shaped("http", tool(schema), tool(COUNT, "other")) as client:
        for value in (1, "a", None):
            assert call(client, structured(value)).ok
        assert broken(call(client, structured(1), "other")) == ("", "type")
        assert lists(client) == 2, "the list was asked for because of what is not checked"
    (said,) = [record.getMessage() for record in caplog.records if record.name == "snodo_client.schema"]
    assert reason in said
    assert "outputSchema of the tool 't'" in said


def nested(times: int, inner: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(times):
        inner = wrap(inner)
    return inner


BOMBS = {
    "itself": ({"$ref": "#"}, "a"),
    "backtracking": ({"pattern": "^(a|a)*$"}, "a" * 60 + "!"),
    "doubling": ({"allOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}, nested(40, 1, lambda value: {"a": value})),
    "deep": (nested(100, {}, lambda schema: {"not": schema}), {}),
    "wide": ({"anyOf": [{"type": "string"}] * 1500}, [[0] * 100] * 300),
    "long": ({"items": {"uniqueItems": True}}, [list(range(200))] * 300),
    "number": ({"multipleOf": 0.1}, 10**400),
    "type": ({"$schema": DRAFT_03, "type": "text"}, 1),
}


@each_connection
@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_end_in_time_and_harm_neither_the_tool_nor_others(connection: str, bomb: str) -> None:
    schema, value = BOMBS[bomb]
    with shaped(connection, tool(schema), tool(COUNT, "other")) as client:
        for _ in range(2):
            began = monotonic()
            outcome = call(client, structured(value))
            assert monotonic() - began < IN_TIME
            assert outcome == Ok(structured(value))
        assert call(client, structured({"n": 1}), "other").ok
        assert broken(call(client, structured({}), "other")) == ("", "required")


def test_a_value_that_was_too_much_does_not_end_the_checking() -> None:
    with shaped("http", tool({"items": {"type": "integer"}})) as client:
        assert call(client, structured([0] * 200_000)).ok
        assert broken(call(client, structured([1, "2"]))) == ("/1", "type")


# -- arguments

TAKES = {"name": "t", "inputSchema": {**COUNT, "additionalProperties": True}}


@each_connection
def test_arguments_are_checked_before_anything_is_sent_where_all_is(connection: str) -> None:
    with shaped(connection, TAKES, validate="all") as client:
        began = client.start_tool_call("t", {"n": "1", "result": {"content": []}})
        for outcome in (client.call_tool("t", {"n": "1", "result": {"content": []}}), began.result(20)):
            assert isinstance(outcome, McpError)
            assert (outcome.reason, outcome.kind) == ("invalid_arguments", "validation")
            assert outcome.data == {"method": "tools/call", "path": "/n", "rule": "type"}
        assert began._call.delivery == "not_sent"
        missing = client.call_tool("t")
        assert isinstance(missing, McpError)
        assert missing.data["rule"] == "required"
        assert client.call_tool("t", {"n": 1, "result": {"content": []}}).ok
        assert client.call_tool({"name": "t"}, {"result": {"content": []}}).ok, "the caller's definition counts"
        other = {"name": "lists", "inputSchema": {"required": ["x"]}}
        assert not client.call_tool(other).ok


@pytest.mark.parametrize("validate", ["structured", "off"])
def test_else_arguments_are_the_servers_to_judge(validate: Any) -> None:
    with shaped("http", TAKES, validate=validate) as client:
        assert client.call_tool("t", {"n": "1", "result": {"content": []}}).ok


def test_arguments_that_cannot_be_checked_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    odd = {"name": "t", "inputSchema": {"type": "object", "pattern": "^(a+)+$"}}
    with caplog.at_level(logging.WARNING), shaped("http", odd, validate="all") as client:
        assert call(client, {"content": []}).ok
        assert call(client, {"content": []}).ok
    assert [record.getMessage() for record in caplog.records if "inputSchema of the tool" in record.getMessage()] != []
    assert caplog.text.count("inputSchema of the tool") == 1


# -- everywhere


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("connection", ["stdio", "http"])
def test_older_revisions_are_held_to_what_they_say(connection: str, version: str) -> None:
    if (connection, version) == ("http", "2024-11-05"):
        version = "2025-03-26"
    with shaped(connection, tool(COUNT), protocol=version) as client:
        assert client.protocol_info["version"] == version
        assert call(client, structured({"n": 1})).ok
        assert broken(call(client, structured({"n": None}))) == ("/n", "type")
        define(client, tool({"type": "string"}))
        assert call(client, structured("new")).ok


def test_many_threads_are_judged_each_by_itself() -> None:
    tools = [tool({"const": number}, f"t{number}") for number in range(8)]
    with shaped("http", *tools) as client:

        def work(own: int) -> None:
            for number in range(16):
                outcome = call(client, structured(own), f"t{number % 8}")
                assert outcome.ok is (number % 8 == own)

        together([lambda own=own: work(own) for own in range(4)])  # type: ignore[misc]


def test_what_is_compiled_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MAX_CHECKERS", 3)
    tools = [tool({"const": number}, f"t{number}") for number in range(10)]
    with shaped("direct", *tools) as client:
        for number in range(10):
            assert call(client, structured(number), f"t{number}").ok
            assert len(client._session.catalog._checkers) <= 3
        assert broken(call(client, structured(0), "t9")) == ("", "const")
