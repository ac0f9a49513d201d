"""Answers that are wrong as JSON-RPC messages, over every connection: the right value, at once, and the next call."""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client import Client, InputRequired, McpError, Ok
from support.faulty import ALL, AT_ONCE, WIRES, assert_error, assert_serves, serving
from support.http_calls import VERSION, Took
from support.waiting import together

RESULT = '"result":{"content":[]}'
ERROR = '"error":{"code":-32602,"message":"no","data":[1]}'


def answer(members: str) -> str:
    return '{"jsonrpc":"2.0","id":$ID,' + members + "}"


def with_id(id_: str, members: str = RESULT) -> str:
    return '{"jsonrpc":"2.0","id":' + id_ + "," + members + "}"


def outcome_of(kind: str, *texts: str, tool: str = "fault", **options: Any) -> Any:
    """The outcome of a call answered by these texts, found at once, on a client that goes on working."""
    with serving(kind) as server, server.connect(**options) as client:
        with Took() as took:
            outcome = client.call_tool(tool, {"send": list(texts)})
        assert_serves(client)
        assert server.calls() == 1
        assert took.seconds < AT_ONCE, outcome
    return outcome


@pytest.fixture(params=ALL)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# -- ids


@pytest.mark.parametrize("id_", ["$ID", '"$ID"', "$ID.0", "$ID.0e0"])
@pytest.mark.parametrize("protocol", ["auto", VERSION])
def test_an_id_equal_to_ours_is_accepted_in_any_dress(kind: str, id_: str, protocol: str) -> None:
    assert isinstance(outcome_of(kind, with_id(id_), protocol=protocol), Ok)


@pytest.mark.parametrize(
    "id_",
    ["true", "false", "null", "$ID.5", '"$ID.0"', '" $ID"', '"0$ID"', "999", "-$ID", '"x"', '""', "[$ID]", "{}",
     "1e300", "1" + "0" * 40],
)  # fmt: skip
def test_a_result_for_nobody_is_an_error_at_once(kind: str, id_: str) -> None:
    # The pinned client's call has id 1, which Python calls equal to True.
    error = assert_error(outcome_of(kind, with_id(id_), protocol=VERSION), "unexpected_id", expected=1)
    assert "got" in error.data


@pytest.mark.parametrize("id_", ["true", "999", '"x"'])
def test_an_error_for_nobody_is_no_error_of_ours(kind: str, id_: str) -> None:
    assert_error(outcome_of(kind, with_id(id_, ERROR), protocol=VERSION), "unexpected_id", expected=1)


def test_a_result_without_an_id_is_for_nobody(kind: str) -> None:
    assert_error(outcome_of(kind, '{"jsonrpc":"2.0",' + RESULT + "}"), "unexpected_id", got=None)


@pytest.mark.parametrize("text", [with_id("null", ERROR), '{"jsonrpc":"2.0",' + ERROR + "}"])
def test_an_error_without_an_id_is_of_the_only_call(kind: str, text: str) -> None:
    outcome = outcome_of(kind, text)  # its sender could not read the request
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.message, outcome.data, outcome.reason) == (-32602, "no", [1], None)


@pytest.mark.parametrize("kind", ["stdio", "sse"])
def test_a_second_answer_is_ignored(kind: str) -> None:
    first = answer('"result":{"content":[],"first":true}')
    outcome = outcome_of(kind, first, answer('"result":{"content":[]}'), answer(ERROR))
    assert isinstance(outcome, Ok)
    assert outcome.value["first"] is True


def test_a_late_answer_to_an_earlier_call_is_ignored() -> None:
    outcome = outcome_of("stdio", with_id("$PREV"), with_id("$PREV", ERROR), answer('"result":{"mine":1}'))
    assert outcome == Ok({"mine": 1})


def test_a_foreign_id_among_many_calls_harms_none() -> None:
    with serving("stdio") as server, server.connect() as client:
        arguments = {"send": [with_id("999"), answer(RESULT)], "reverse": 8}
        outcomes: list[Any] = []
        together([lambda: outcomes.append(client.call_tool("fault", arguments)) for _ in range(8)])
        # The last one waits alone, so it is the one that is told.
        reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, McpError)]
        assert reasons in ([], ["unexpected_id"])
        assert len(outcomes) == 8
        assert_serves(client)


# -- shapes


@pytest.mark.parametrize(
    "text",
    [
        answer(RESULT + "," + ERROR),
        answer(ERROR + "," + RESULT),
        '{"jsonrpc":"2.0","id":$ID}',
        answer('"something":1'),
        answer('"method":null'),
        answer('"result":null'),
        answer('"result":[]'),
        answer('"result":"text"'),
        answer('"result":1'),
        answer('"result":true'),
        answer('"error":null'),
        answer('"error":"text"'),
        answer('"error":{}'),
        answer('"error":{"code":"-32602","message":"x"}'),
        answer('"error":{"code":-32602.0,"message":"x"}'),
        answer('"error":{"code":true,"message":"x"}'),
        answer('"error":{"code":-32602}'),
        answer('"error":{"code":-32602,"message":null}'),
        '{"jsonrpc":"1.0","id":$ID,' + RESULT + "}",
        '{"jsonrpc":2.0,"id":$ID,' + RESULT + "}",
        '{"id":$ID,' + RESULT + "}",
    ],
)
def test_a_message_that_is_no_response_is_malformed_at_once(kind: str, text: str) -> None:
    assert_error(outcome_of(kind, text), "malformed")


@pytest.mark.parametrize("kind_of_result", ['"done"', '""', "null", "1", "true", "[]", "{}", '"COMPLETE"'])
def test_an_unknown_result_type_is_an_error(kind: str, kind_of_result: str) -> None:
    text = answer('"result":{"resultType":' + kind_of_result + "}")
    error = assert_error(outcome_of(kind, text), "unknown_result_type")
    assert "result_type" in error.data


@pytest.mark.parametrize(
    "members",
    ["", '"requestState":1', '"requestState":null', '"inputRequests":[]', '"inputRequests":{}',
     '"inputRequests":{"a":1}', '"inputRequests":{"a":{}}', '"inputRequests":{"a":{"method":1}}',
     '"inputRequests":{"a":{"method":"elicitation/create","params":[]}}'],
)  # fmt: skip
def test_a_malformed_request_for_input_is_an_error(kind: str, members: str) -> None:
    text = answer('"result":{' + ",".join(filter(None, ['"resultType":"input_required"', members])) + "}")
    assert_error(outcome_of(kind, text), "invalid_result")


def test_a_request_for_input_arrives(kind: str) -> None:
    outcome = outcome_of(kind, answer('"result":{"resultType":"input_required","requestState":""}'))
    assert isinstance(outcome, InputRequired)
    assert outcome.request_state == ""


# -- JSON


@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", "-Infinity", "1e999", "[" * 10_000 + "]" * 10_000, '{"a":' * 10_000 + "1" + "}" * 10_000,
     "[" * 10_000, "9" * 5000, "-" + "9" * 5000, "1." + "9" * 5000, "01", "tru", '"\\x"', '"unfinished', "1 2",
     '"\x01"'],
    ids=lambda value: value[:12],
)  # fmt: skip
@pytest.mark.parametrize("wire", ["stdio", "json"])
def test_json_that_is_none_is_malformed_at_once(wire: str, value: str) -> None:
    assert_error(outcome_of(wire, answer('"result":{"value":' + value + "}")), "malformed")


@pytest.mark.parametrize("value", ["NaN", "[" * 10_000 + "]" * 10_000, "9" * 5000], ids=lambda value: value[:3])
def test_json_that_is_none_but_has_our_id_is_malformed_at_once_in_a_stream(value: str) -> None:
    assert_error(outcome_of("sse", answer('"result":{"value":' + value + "}")), "malformed")


UNSENDABLE: list[Any] = [float("nan"), float("inf"), {1: 2}, b"bytes", "\ud800", object()]


@pytest.mark.parametrize("value", UNSENDABLE, ids=lambda value: repr(value)[:12])
def test_a_value_json_cannot_carry_is_malformed_in_process_too(value: Any) -> None:
    def handle(message: Any, context: Any) -> Any:
        arguments = message["params"].get("arguments") or {}
        content = [{"type": "text", "text": arguments.get("text")}]
        result = {"content": content, "value": 1 if arguments else value}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    with Client.direct(handle, protocol=VERSION) as client:
        assert_error(client.call_tool("fault"), "malformed")
        assert_serves(client)


def test_broken_utf_8(wire: str) -> None:
    outcome = outcome_of(wire, answer('"result":{"text":"a\xff\xfeb"}'))
    if wire == "sse":  # the event stream format replaces what it cannot decode
        assert outcome == Ok({"text": "a\ufffd\ufffdb"})
    else:
        assert_error(outcome, "malformed")


def test_white_space_and_a_byte_order_mark_around_the_answer_are_fine(wire: str) -> None:
    assert isinstance(outcome_of(wire, "  " + answer(RESULT) + " \t"), Ok)
    if wire != "sse":
        assert isinstance(outcome_of(wire, "\xef\xbb\xbf" + answer(RESULT)), Ok)


@pytest.mark.parametrize("text", ['"text"', "1", "null", "", " ", "<html>", "[]", "[1]", "{}"])
def test_junk_before_the_answer_is_skipped_where_messages_stream(text: str) -> None:
    for wire in ("stdio", "sse"):
        assert isinstance(outcome_of(wire, text, answer(RESULT)), Ok)


@pytest.mark.parametrize("text", ['"text"', "1", "null", "", " ", "<html>", "[]", "[1]", "{}"])
def test_junk_as_a_whole_body_is_malformed(text: str) -> None:
    error = assert_error(outcome_of("json", text), "malformed", http_status=200, content_type="application/json")
    assert error.data["excerpt"] == text.strip()


# -- what errors say


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (answer(RESULT + "," + ERROR), "malformed"),
        (answer('"result":[]'), "malformed"),
        (answer('"result":{"value":NaN}'), "malformed"),
        (answer('"result":{"resultType":"odd"}'), "unknown_result_type"),
        (answer('"result":{"resultType":"input_required"}'), "invalid_result"),
        (with_id("999"), "unexpected_id"),
    ],
)
def test_errors_name_the_server(kind: str, text: str, reason: str) -> None:
    if kind in ("direct", "sse") and "NaN" in text:
        pytest.skip("covered by its own test")
    with serving(kind) as server, server.connect() as client:
        error = assert_error(client.call_tool("fault", {"send": [text]}), reason)
        assert server.name in error.message


# -- late


@pytest.mark.parametrize(
    "fault",
    [
        {"send": [answer(RESULT)]},
        {"send": [answer('"result":{"value":NaN}')]},
        {"send": [answer('"result":{"text":"$FILL"}')], "fill": 2 * 4096},
        {"send": [answer('"result":[]'), answer(RESULT + "," + ERROR), '{"jsonrpc":"2.0","id":$ID}']},
        {"send": ["junk", "[]", '"text"']},
    ],
    ids=["right", "no json", "too long", "no response", "junk"],
)
def test_a_late_answer_to_a_call_that_is_over_harms_not_the_next(fault: dict[str, Any]) -> None:
    with serving("stdio") as server, server.connect(max_line_bytes=4096) as client:
        outcome = client.call_tool("fault", {**fault, "wait": 0.2}, timeout=0.05)
        assert_error(outcome, "timeout", code=-32001)
        assert_serves(client)  # sent before the late answer comes
        assert_serves(client)
        assert server.calls() == 1
