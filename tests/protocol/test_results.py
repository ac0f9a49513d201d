"""Responses into outcomes: every shape a server can send, malformed or not, is an outcome."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client import InputRequired, McpError, Ok
from snodo_client.protocol import results

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
RESULT = st.fixed_dictionaries({}, optional={"resultType": JSON, "inputRequests": JSON, "requestState": JSON}) | JSON
ERROR = st.fixed_dictionaries({}, optional={"code": JSON, "message": JSON, "data": JSON}) | JSON
MESSAGES = st.fixed_dictionaries({}, optional={"jsonrpc": JSON, "id": JSON, "result": RESULT, "error": ERROR})


def decode(method: str = "tools/call", /, status: int | None = None, **members: Any) -> Any:
    return results.decode({"jsonrpc": "2.0", "id": 1, **members}, method, "x", status)


def reason(outcome: Any) -> str | None:
    assert isinstance(outcome, McpError), outcome
    return outcome.reason


# -- results


@pytest.mark.parametrize(
    "result", [{}, {"resultType": "complete"}, {"isError": True}, {"resultType": "complete", "x": 1}]
)
def test_a_result_is_given_as_sent(result: dict[str, Any]) -> None:
    outcome = decode(result=result)
    assert isinstance(outcome, Ok)
    assert outcome.value is result


@pytest.mark.parametrize("result", [None, [], "x", 5, True, 1.5])
def test_a_result_that_is_no_object_is_malformed(result: object) -> None:
    assert reason(decode(result=result)) == "malformed"


def test_neither_and_both_are_malformed() -> None:
    assert reason(decode()) == "malformed"
    assert reason(decode(result={}, error={"code": 1, "message": "x"})) == "malformed"
    assert reason(decode(result={}, error=None)) == "malformed"


@pytest.mark.parametrize("version", ["1.0", 2.0, None, ""])
def test_another_jsonrpc_version_is_malformed(version: object) -> None:
    assert reason(results.decode({"jsonrpc": version, "id": 1, "result": {}}, "tools/call", "x")) == "malformed"


@pytest.mark.parametrize("kind", ["task", "banana", "", "Complete", 5, None, True, [], {}, ["complete"], "x" * 10_000])
def test_an_unknown_result_type_is_never_a_success(kind: object) -> None:
    outcome = decode(result={"resultType": kind, "content": []})
    assert reason(outcome) == "unknown_result_type"
    assert len(outcome.message) < 500
    assert len(outcome.data["result_type"]) <= 64


# -- input rounds

ASK = {"method": "elicitation/create", "params": {"message": "?"}}


@pytest.mark.parametrize(
    "members",
    [
        {"inputRequests": {"a": ASK}},
        {"inputRequests": {"a": ASK, "b": {"method": "roots/list"}}, "requestState": "s"},
        {"requestState": ""},
        {"requestState": "s", "inputRequests": {}},
        {"requestState": "s", "inputRequests": None},
        {"requestState": None, "inputRequests": {"": ASK}},
    ],
)
@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_three_methods_may_ask_for_input(method: str, members: dict[str, Any]) -> None:
    result = {"resultType": "input_required", **members}
    outcome = decode(method, result=result)
    assert isinstance(outcome, InputRequired)
    assert outcome.value is result
    assert outcome.request_state == members.get("requestState")


@pytest.mark.parametrize("method", ["tools/list", "server/discover", "completion/complete", "com.example/x", ""])
def test_no_other_method_may(method: str) -> None:
    outcome = decode(method, result={"resultType": "input_required", "requestState": "s"})
    assert reason(outcome) == "invalid_result"
    assert method in outcome.message


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"inputRequests": {}},
        {"inputRequests": None, "requestState": None},
        {"requestState": 5},
        {"requestState": {"a": 1}, "inputRequests": {"a": ASK}},
        {"inputRequests": []},
        {"inputRequests": "x"},
        {"inputRequests": {"a": None}},
        {"inputRequests": {"a": "roots/list"}},
        {"inputRequests": {"a": {}}},
        {"inputRequests": {"a": {"method": 5}}},
        {"inputRequests": {"a": {"method": "roots/list", "params": []}}},
        {"inputRequests": {"a": {"method": "roots/list", "params": None}}},
        {"inputRequests": {"a": ASK, "b": []}, "requestState": "s"},
    ],
)
def test_malformed_questions_are_invalid(members: dict[str, Any]) -> None:
    outcome = decode(result={"resultType": "input_required", **members})
    assert reason(outcome) == "invalid_result"


def test_the_state_of_a_malformed_question_is_not_shown() -> None:
    outcome = decode(result={"resultType": "input_required", "requestState": "s3cret", "inputRequests": 5})
    assert "s3cret" not in f"{outcome!r} {outcome} {outcome.data} {outcome.cause}"


# -- errors


def test_a_servers_error_is_given_as_sent() -> None:
    data = {"deep": [None, {"x": 1.5}]}
    outcome = decode(error={"code": -32001, "message": "slow", "data": data, "extra": 1})
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.message, outcome.kind, outcome.reason) == (-32001, "slow", "protocol", None)
    assert outcome.data is data
    assert outcome.cause is None


@pytest.mark.parametrize("code", [-32000, -32001, -32601, 0, 1, 10**30, -1])
def test_any_integer_is_a_code(code: int) -> None:
    outcome = decode(error={"code": code, "message": ""})
    assert (outcome.code, outcome.reason, outcome.data) == (code, None, None)


@pytest.mark.parametrize(
    ("status", "cause"), [(None, None), (200, None), (400, ("http_status", 400)), (503, ("http_status", 503))]
)
def test_the_status_of_a_refused_request_is_the_cause(status: int | None, cause: object) -> None:
    assert decode(status=status, error={"code": 1, "message": "x"}).cause == cause


@pytest.mark.parametrize(
    "error",
    [
        None, [], "x", 5, True, {}, {"code": 1}, {"message": "x"}, {"code": True, "message": "x"},
        {"code": 1.0, "message": "x"}, {"code": "1", "message": "x"}, {"code": None, "message": "x"},
        {"code": 1, "message": None}, {"code": 1, "message": 5}, {"code": 1, "message": ["x"]},
    ],
)  # fmt: skip
def test_a_malformed_error_is_malformed(error: object) -> None:
    assert reason(decode(error=error)) == "malformed"


# -- ids


@pytest.mark.parametrize("got", [7, "7", 7.0])
def test_our_id_in_any_spelling_is_ours(got: object) -> None:
    assert results.misdirected({"id": got, "result": {}}, 7, "x", None) is None


@pytest.mark.parametrize("got", [8, 0, -7, "8", "07", " 7", "7.0", "", 7.5, True, False, [], {}, [7], {"id": 7}])
def test_any_other_id_is_unexpected(got: object) -> None:
    for member in ({"result": {}}, {"error": {"code": 1, "message": "x"}}):
        error = results.misdirected({"id": got, **member}, 7, "x", None)
        assert reason(error) == "unexpected_id"
        assert isinstance(error, McpError)
        assert error.data["expected"] == 7


@pytest.mark.parametrize("wire_id", [0, 1])
def test_a_boolean_is_no_id(wire_id: int) -> None:
    assert reason(results.misdirected({"id": bool(wire_id), "result": {}}, wire_id, "x", None)) == "unexpected_id"


@pytest.mark.parametrize("message", [{"result": {}}, {"id": None, "result": {}}, {}, {"id": None}])
def test_a_result_needs_an_id(message: dict[str, Any]) -> None:
    assert reason(results.misdirected(message, 7, "x", None)) == "unexpected_id"


@pytest.mark.parametrize("status", [None, 200, 400])
def test_an_error_may_lack_its_id(status: int | None) -> None:
    for message in ({"error": {}}, {"id": None, "error": {}}):
        assert results.misdirected(message, 7, "x", status) is None


@pytest.mark.parametrize(("status", "allowed"), [(None, False), (200, False), (399, False), (400, True), (500, True)])
def test_the_error_of_a_refused_request_may_have_a_foreign_id(status: int | None, allowed: bool) -> None:
    assert (results.misdirected({"id": "server-error", "error": {}}, 7, "x", status) is None) is allowed


def test_a_foreign_id_is_shown_in_few_characters() -> None:
    for got in ("x" * 100_000, 10**4000, [1] * 100_000, {"a": "b" * 100_000}):
        error = results.misdirected({"id": got, "result": {}}, 7, "x", None)
        assert isinstance(error, McpError)
        assert len(error.message) < 500


@given(MESSAGES, st.sampled_from(["tools/call", "tools/list"]), st.sampled_from([None, 200, 400]))
def test_any_message_has_an_outcome(message: dict[str, Any], method: str, status: int | None) -> None:
    outcome: Any = results.misdirected(message, 7, "x", status) or results.decode(message, method, "x", status)
    assert isinstance(outcome, (Ok, InputRequired, McpError))
    if isinstance(outcome, Ok):
        assert isinstance(outcome.value, dict)
    if isinstance(outcome, McpError):
        assert (outcome.reason is None) == (
            "error" in message
            and "result" not in message
            and isinstance(message["error"], dict)
            and type(message["error"].get("code")) is int
            and isinstance(message["error"].get("message"), str)
            and results.misdirected(message, 7, "x", status) is None
        )
    repr(outcome)
    str(outcome)


# -- the older revisions


@pytest.mark.parametrize("kind", ["input_required", "task", "banana", 5, None])
def test_a_result_type_means_nothing_in_an_older_revision(kind: object) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "result": {"resultType": kind, "content": []}}
    outcome = results.decode(message, "tools/call", "x", version="2025-11-25")
    assert outcome == Ok({"resultType": kind, "content": []})


def elicitations(data: object, method: str = "tools/call", version: str = "2025-11-25", code: int = -32042) -> object:
    error = {"code": code, "message": "visit these first", "data": data}
    return results.decode({"jsonrpc": "2.0", "id": 1, "error": error}, method, "x", version=version)


def test_urls_to_visit_first_are_input_that_is_asked_for() -> None:
    asked = {"mode": "url", "elicitationId": "e1", "url": "https://example.test/x", "message": "Sign in"}
    outcome = elicitations({"elicitations": [asked]})
    assert isinstance(outcome, InputRequired)
    assert outcome.requests == {"e1": {"method": "elicitation/create", "params": asked}}
    assert outcome.request_state is None


@pytest.mark.parametrize(
    "data",
    [None, {}, [], "x", {"elicitations": []}, {"elicitations": {}}, {"elicitations": [5]}, {"elicitations": [{}]},
     {"elicitations": [{"elicitationId": 5}]}],
)  # fmt: skip
def test_urls_that_are_not_told_stay_an_error(data: object) -> None:
    outcome = elicitations(data)
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.reason, outcome.data) == (-32042, None, data)


def test_elsewhere_that_error_has_no_meaning() -> None:
    data = {"elicitations": [{"elicitationId": "e1", "url": "https://example.test/x"}]}
    for outcome in (
        elicitations(data, version="2026-07-28"),
        elicitations(data, method="tools/list"),
        elicitations(data, code=-32041),
    ):
        assert isinstance(outcome, McpError)
        assert outcome.reason is None
