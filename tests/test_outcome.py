"""Outcomes as values: matching, unwrapping, copying, pickling, raising, and what they must not show."""

from __future__ import annotations

import contextlib
import copy
import pickle
import traceback
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from snodo_client import InputRequired, InputRequiredError, McpError, Ok, Page, Progress
from snodo_client.outcome import local_error

ASKED = {
    "resultType": "input_required",
    "inputRequests": {"b": {"method": "roots/list"}, "a": {"method": "elicitation/create", "params": {}}},
    "requestState": "s3cret-state",
}


def outcomes() -> list[Any]:
    return [Ok({"content": []}), InputRequired(ASKED), McpError(-32602, "no such tool", data={"name": "x"})]


def test_match_statements_tell_outcomes_apart() -> None:
    seen = []
    for outcome in outcomes():
        match outcome:
            case Ok(value):
                seen.append(("ok", value))
            case InputRequired(value):
                seen.append(("input", value))
            case McpError(code, message):
                seen.append((code, message))
    assert seen == [("ok", {"content": []}), ("input", ASKED), (-32602, "no such tool")]


def test_match_statements_see_fields_by_keyword() -> None:
    match local_error("timeout", "slow", data={"timeout": 1.0}):
        case McpError(reason=None):
            pytest.fail("not the server's")
        case McpError(kind="transport", reason="timeout", data={"timeout": seconds}):
            assert seconds == 1.0
        case _:
            pytest.fail("no match")


def test_ok_says_which_outcome_is_a_success() -> None:
    assert [outcome.ok for outcome in outcomes()] == [True, False, False]


def test_unwrap_gives_the_value_or_raises() -> None:
    ok, asks, failed = outcomes()
    assert ok.unwrap() == {"content": []}
    with pytest.raises(InputRequiredError) as asked:
        asks.unwrap()
    assert asked.value.outcome is asks
    with pytest.raises(McpError) as raised:
        failed.unwrap()
    assert raised.value is not failed
    assert (raised.value.code, raised.value.data) == (-32602, {"name": "x"})
    assert failed.__traceback__ is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [({"isError": True}, True), ({"isError": False}, False), ({"isError": 1}, False), ({}, False), ([], False)],
)
def test_is_error_is_what_the_tool_said(value: object, expected: bool) -> None:
    assert Ok(value).is_error is expected


def test_input_required_reads_its_result() -> None:
    assert InputRequired(ASKED).requests == ASKED["inputRequests"]
    assert InputRequired(ASKED).request_state == "s3cret-state"
    only_state = InputRequired({"requestState": ""})
    assert (only_state.requests, only_state.request_state) == ({}, "")
    assert InputRequired({"inputRequests": None}).requests == {}


def test_values_compare_by_value_and_are_not_hashable() -> None:
    assert Ok({"a": 1}) == Ok({"a": 1}) != Ok({"a": 2})
    assert InputRequired(ASKED) == InputRequired(dict(ASKED))
    assert Ok(ASKED) != InputRequired(ASKED)
    for value in (Ok(1), InputRequired(ASKED)):
        with pytest.raises(TypeError):
            hash(value)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(-32700, "json_rpc"), (-32600, "json_rpc"), (-32603, "execution"), (-32601, "protocol"), (-32001, "protocol"),
     (7, "protocol"), (0, "protocol")],
)  # fmt: skip
def test_the_kind_of_a_servers_error_follows_its_code(code: int, kind: str) -> None:
    error = McpError(code, "x")
    assert (error.kind, error.reason) == (kind, None)


def rich() -> McpError:
    return McpError(
        -32000, "gone", kind="transport", reason="closed", data={"excerpt": "x", "n": [1, None]},
        cause=("http_status", 502)
    )  # fmt: skip


def fields(error: McpError) -> tuple[Any, ...]:
    return (error.code, error.message, error.kind, error.reason, error.data, error.cause)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_errors_survive_pickling(protocol: int) -> None:
    again = pickle.loads(pickle.dumps(rich(), protocol))
    assert type(again) is McpError
    assert fields(again) == fields(rich())
    assert str(again) == str(rich())


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, McpError.copy])
def test_copies_have_the_fields_and_none_of_the_history(duplicate: Any) -> None:
    try:
        raise rich() from ValueError("before")
    except McpError as raised:
        again = duplicate(raised)
    assert fields(again) == fields(rich())
    assert (again.__traceback__, again.__cause__, again.__context__) == (None, None, None)


def test_the_other_values_survive_pickling_and_copying() -> None:
    for duplicate in (copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
        assert duplicate(Ok([1])) == Ok([1])
        assert duplicate(InputRequired(ASKED)) == InputRequired(ASKED)
        assert duplicate(InputRequiredError(InputRequired(ASKED))).outcome == InputRequired(ASKED)
        page = duplicate(Page([{"name": "a"}], "", {"tools": []}))
        assert (page.items, page.next_cursor, page.result) == ([{"name": "a"}], "", {"tools": []})


def test_an_error_passes_through_a_context_manager() -> None:
    @contextlib.contextmanager
    def manager() -> Iterator[None]:
        try:
            yield
        finally:
            seen.append("left")

    seen: list[str] = []
    with pytest.raises(McpError) as raised, manager():
        rich().unwrap()
    assert fields(raised.value) == fields(rich())
    assert seen == ["left"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(McpError))
        rich().unwrap()


def test_one_error_unwrapped_in_many_threads_keeps_no_trace_of_them() -> None:
    error, lengths = rich(), []

    def unwrap() -> None:
        for _ in range(200):
            try:
                error.unwrap()
            except McpError as raised:
                lengths.append(len(traceback.extract_tb(raised.__traceback__)))

    threads = [Thread(target=unwrap) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(lengths) == 1600
    assert set(lengths) == {2}
    assert error.__traceback__ is None


def test_texts_say_what_matters() -> None:
    assert str(McpError(-32601, "no such method")) == "no such method [sent by the server, code -32601]"
    assert "closed" in str(rich())
    assert repr(rich()) == "McpError(code=-32000, message='gone', kind='transport', reason='closed')"
    assert str(InputRequiredError(InputRequired(ASKED))) == "the server asks for input: a, b"
    assert "request_state" in str(InputRequiredError(InputRequired({"requestState": "s3cret-state"})))
    assert repr(Ok(1)) == "Ok(1)"
    assert repr(Page([{}, {}], "c", {})) == "Page(2 items, next_cursor='c')"


def test_request_state_shows_nowhere() -> None:
    outcome = InputRequired(ASKED)
    error = InputRequiredError(outcome)
    shown = [repr(outcome), str(outcome), repr(error), str(error), repr([outcome])]
    shown += traceback.format_exception(error)
    assert [text for text in shown if "s3cret" in text] == []
    assert "request_state=None" in repr(InputRequired({"inputRequests": {}}))


def test_progress_reads_its_params() -> None:
    full = Progress({"progressToken": 1, "progress": 0.5, "total": 2, "message": "half", "extra": []})
    assert (full.progress, full.total, full.message) == (0.5, 2, "half")
    assert full.params["extra"] == []
    bare = Progress({"progress": 3})
    assert (bare.progress, bare.total, bare.message) == (3, None, None)
    assert repr(bare) == "Progress(3, total=None, message=None)"
