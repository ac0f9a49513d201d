"""Input rounds answered by handlers, over a scripted transport: what is looked at, what runs, what goes back, in whose
time, and what the caller is left with when it goes wrong.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Any

import pytest

from snodo_client import Client, InputRequest, InputRequired, McpError, Ok
from snodo_client.engine.rounds import PAUSE_SECONDS
from snodo_client.outcome import local_error
from support.questions import (
    FILLED,
    FORM,
    MODERN,
    NAMED,
    PLACES,
    ROOTS,
    SAMPLING,
    URL,
    WORD,
    answering,
    asks,
    noting,
    turns,
)
from support.scripted_transport import NOTIFY, ScriptedTransport, error, progress, result
from support.waiting import together, until

Connect = Callable[..., tuple[ScriptedTransport, Client]]
SECRET = "st4te-\u2028-\\\"'\t\U0001f511"


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Connect:
    """A client of a scripted server; its handlers give the right answers unless others are given."""

    def make(*steps: Any, **options: Any) -> tuple[ScriptedTransport, Client]:
        transport = ScriptedTransport(turns(*steps), options.pop("traits", NOTIFY))
        client = Client.connect(transport, **{"protocol": MODERN, "handlers": answering(), **options})
        request.addfinalizer(client.close)
        return transport, client

    return make


def asking(requests: Any = None, state: Any = None) -> Any:
    return lambda call: [asks(call, requests, state)]


def done(call: Any) -> list[Any]:
    return [result(call, content=[])]


DONE = Ok({"resultType": "complete", "content": []})


def must_not_run(request: InputRequest) -> Any:
    raise AssertionError("a handler ran")


def failed(outcome: Any, reason: str, cause: Any = ...) -> McpError:
    """The error with this reason, and as its cause what was asked with these requests."""
    assert isinstance(outcome, McpError), outcome
    assert outcome.reason == reason, outcome
    assert isinstance(outcome.cause, InputRequired)
    if cause is not ...:
        assert outcome.cause.requests == cause
    return outcome


def nothing_is_left(transport: ScriptedTransport, client: Client) -> None:
    """The client keeps nothing of the call, has cancelled nothing, and is of use."""
    assert client._session.pending.calls() == []
    assert client._session._live == {}
    transport.script = done
    assert client.call_tool("after") == DONE
    assert transport.sent.empty()


# -- what goes back


def test_every_key_is_answered_and_the_call_is_made_again(connect: Connect) -> None:
    everything = {"n": FORM, "u": URL, "s": SAMPLING, "r": ROOTS}
    transport, client = connect(asking(everything, SECRET), done)
    assert client.call_tool("t", {"a": [1, None]}, meta={"com.example/m": 1}) == DONE
    first, second = transport.requests
    assert second["params"].pop("inputResponses") == {"n": FILLED, "u": {"action": "accept"}, "s": WORD, "r": PLACES}
    assert second["params"].pop("requestState") == SECRET
    assert second.pop("id") != first.pop("id")
    assert first == second  # the metadata, too
    nothing_is_left(transport, client)


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("tools/call", lambda client: client.call_tool("x")),
        ("tools/call", lambda client: client.start_tool_call("x").result()),
        ("prompts/get", lambda client: client.get_prompt("x", {"a": "b"})),
        ("resources/read", lambda client: client.read_resource("a:b")),
        ("prompts/get", lambda client: client.request("prompts/get", {"name": "x"})),
    ],
)
def test_the_three_methods_that_may_ask(connect: Connect, method: str, call: Any) -> None:
    transport, client = connect(asking({"n": FORM}, "s"), done)
    assert call(client) == DONE
    assert [request["method"] for request in transport.requests] == [method] * 2
    assert transport.requests[1]["params"]["inputResponses"] == {"n": FILLED}


def test_each_round_has_its_own_responses_and_state_only(connect: Connect) -> None:
    transport, client = connect(
        asking({"a": FORM}, "1"), asking({"b": ROOTS}), asking(None, "3"), asking({"a": ROOTS}, ""), done
    )
    assert client.call_tool("t") == DONE
    own = [
        {name: value for name, value in request["params"].items() if name in ("inputResponses", "requestState")}
        for request in transport.requests
    ]
    assert own == [
        {},
        {"inputResponses": {"a": FILLED}, "requestState": "1"},
        {"inputResponses": {"b": PLACES}},
        {"requestState": "3"},
        {"inputResponses": {"a": PLACES}, "requestState": ""},
    ]
    ids = [request["id"] for request in transport.requests]
    assert sorted(set(ids)) == ids


def test_what_the_caller_brought_by_hand_is_of_the_first_round_only(connect: Connect) -> None:
    transport, client = connect(asking({"b": FORM}), done)
    stale = {"old": {"action": "accept"}}
    assert client.call_tool("t", input_responses=stale, request_state="old") == DONE
    first, second = (request["params"] for request in transport.requests)
    assert (first["inputResponses"], first["requestState"]) == (stale, "old")
    assert second["inputResponses"] == {"b": FILLED}
    assert "requestState" not in second


@pytest.mark.parametrize("requests", [None, {}])
def test_a_round_that_asks_nothing_is_made_again_after_a_pause_and_counts(connect: Connect, requests: Any) -> None:
    transport, client = connect(asking(requests, "s"), max_input_rounds=2)
    start = monotonic()
    over = failed(client.call_tool("t"), "input_rounds", {})
    assert 2 * PAUSE_SECONDS <= monotonic() - start < 2 * PAUSE_SECONDS + 2
    assert over.data == {"max_input_rounds": 2}
    assert [set(request["params"]) & {"inputResponses", "requestState"} for request in transport.requests] == [
        set(),
        {"requestState"},
        {"requestState"},
    ]


def test_a_round_that_asks_something_is_answered_at_once(connect: Connect) -> None:
    _, client = connect(*[asking({"n": FORM})] * 100, done, max_input_rounds=100)
    start = monotonic()
    assert client.call_tool("t") == DONE
    assert monotonic() - start < 100 * PAUSE_SECONDS / 2


def test_rounds_have_a_limit(connect: Connect) -> None:
    ran: list[InputRequest] = []
    transport, client = connect(asking({"n": FORM}, "s"), handlers=answering(form=noting(ran, NAMED)))
    over = failed(client.call_tool("t"), "input_rounds", {"n": FORM})
    assert (over.code, over.kind, over.data) == (-32000, "transport", {"max_input_rounds": 10})
    assert (len(ran), len(transport.requests)) == (10, 11)
    nothing_is_left(transport, client)


def test_the_last_round_allowed_may_succeed(connect: Connect) -> None:
    transport, client = connect(asking({"n": FORM}), asking({"n": FORM}), done, max_input_rounds=2)
    assert client.call_tool("t") == DONE
    assert len(transport.requests) == 3


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2", None])
def test_the_limit_is_a_count(connect: Connect, wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="max_input_rounds"):
        connect(done, max_input_rounds=wrong)


# -- what is looked at before anything runs


def test_entries_are_answered_in_the_string_order_of_their_ids(connect: Connect) -> None:
    ran: list[InputRequest] = []
    _, client = connect(
        asking({key: {**URL, "params": {**URL["params"], "message": key}} for key in ("2", "b", "10", "", "B")}),
        done,
        handlers=answering(url=noting(ran, {"action": "accept"})),
    )
    assert client.call_tool("t") == DONE
    assert [request.message for request in ran] == ["", "10", "2", "B", "b"]


def form(schema: Any) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": schema}}


TOOLS = {"method": "sampling/createMessage", "params": {**SAMPLING["params"], "tools": []}}
MALFORMED: dict[str, Any] = {
    "an unknown method": {"method": "tools/list"},
    "an empty method": {"method": ""},
    "a method of later": {"method": "elicitation/Create", "params": FORM["params"]},
    "a form without a schema": {"method": "elicitation/create", "params": {"message": "m"}},
    "a form that is none": form({"type": "object", "properties": {"a": {"type": "object"}}}),
    "a form without a message": {"method": "elicitation/create", "params": {"requestedSchema": {"type": "object"}}},
    "a URL of a file": {**URL, "params": {**URL["params"], "url": "file:///etc/passwd"}},
    "a mode of nobody": {**URL, "params": {**URL["params"], "mode": "telepathy"}},
    "tools that were not declared": TOOLS,
    "sampling without a limit": {"method": "sampling/createMessage", "params": {"messages": []}},
}


@pytest.mark.parametrize("entry", MALFORMED)
@pytest.mark.parametrize("key", ["a", "z"])
def test_one_entry_that_may_not_be_is_the_end_and_no_handler_runs(connect: Connect, key: str, entry: str) -> None:
    requests = {"m": FORM, key: MALFORMED[entry]}
    transport, client = connect(asking(requests, SECRET), handlers=answering(must_not_run))
    invalid = failed(client.call_tool("t"), "invalid_result", requests)
    assert invalid.cause.request_state == SECRET
    assert SECRET not in str(invalid)
    assert len(transport.requests) == 1
    nothing_is_left(transport, client)


@pytest.mark.parametrize("kind", ["form", "url", "sampling", "roots"])
def test_what_was_not_declared_may_not_be_asked(connect: Connect, kind: str) -> None:
    entry = {"form": FORM, "url": URL, "sampling": SAMPLING, "roots": ROOTS}[kind]
    others = {name: handler for name, handler in answering(must_not_run).items() if name != kind}
    transport, client = connect(asking({"a": entry}), handlers=others)
    failed(client.call_tool("t"), "invalid_result", {"a": entry})
    assert len(transport.requests) == 1


@pytest.mark.parametrize(("key", "state"), [("\ud800", None), ("n", "\udfff"), ("a\ud83d", "s")])
def test_what_no_message_can_carry_back_is_invalid_and_no_exception(connect: Connect, key: str, state: Any) -> None:
    transport, client = connect(asking({key: FORM}, state), handlers=answering(must_not_run))
    assert "half a character" in str(failed(client.call_tool("t"), "invalid_result"))
    nothing_is_left(transport, client)


def test_a_default_with_half_a_character_is_no_exception(connect: Connect) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "default": "\ud800"}}}
    transport, client = connect(asking({"n": form(schema)}), handlers=answering(form=lambda _: {"action": "accept"}))
    assert "is no JSON" in str(failed(client.call_tool("t"), "input_handler"))
    nothing_is_left(transport, client)


@pytest.mark.parametrize("entry", [None, [], {}, {"method": 1}, {"method": "roots/list", "params": []}])
def test_entries_that_are_no_requests_are_invalid_whoever_answers(connect: Connect, entry: Any) -> None:
    for handlers in (answering(must_not_run), None):
        transport, client = connect(asking({"n": FORM, "x": entry}), handlers=handlers)
        outcome = client.call_tool("t")
        assert isinstance(outcome, McpError)
        assert outcome.reason == "invalid_result"
        assert len(transport.requests) == 1


def test_one_entry_without_a_handler_leaves_all_of_them_to_the_caller(connect: Connect) -> None:
    requests = {"a": FORM, "z": SAMPLING}
    transport, client = connect(
        asking(requests, "s"),
        done,
        handlers={"form": must_not_run},
        client_capabilities=["sampling", "elicitation"],
    )
    outcome = client.call_tool("t")
    assert isinstance(outcome, InputRequired)
    assert (outcome.requests, outcome.request_state) == (requests, "s")
    finished = client.call_tool("t", input_responses={"a": NAMED, "z": WORD}, request_state=outcome.request_state)
    assert finished == DONE
    nothing_is_left(transport, client)


def test_the_caller_is_given_a_later_round_that_has_no_handler(connect: Connect) -> None:
    transport, client = connect(
        asking({"a": FORM}, "1"),
        asking({"b": SAMPLING}, "2"),
        handlers={"form": lambda request: NAMED},
        client_capabilities=["sampling"],
    )
    outcome = client.call_tool("t")
    assert isinstance(outcome, InputRequired)
    assert (outcome.requests, outcome.request_state, len(transport.requests)) == ({"b": SAMPLING}, "2", 2)


def test_without_any_handler_the_caller_is_asked(connect: Connect) -> None:
    for requests, state in (({"a": FORM}, None), (None, "s"), ({"a": {"method": "no/such"}}, None)):
        transport, client = connect(asking(requests, state), handlers=None)
        assert isinstance(client.call_tool("t"), InputRequired)
        assert len(transport.requests) == 1


# -- whose choice it is


@pytest.mark.parametrize(
    ("handlers", "answer_input", "goes_on"),
    [(True, None, True), (True, True, True), (True, False, False), (False, None, False), (False, True, True)],
)
def test_whether_a_call_goes_on_by_itself(
    connect: Connect, handlers: bool, answer_input: bool | None, goes_on: bool
) -> None:
    transport, client = connect(asking(None, "s"), done, handlers=answering() if handlers else None)
    outcome = client.call_tool("t", answer_input=answer_input)
    assert outcome == DONE if goes_on else isinstance(outcome, InputRequired)
    assert len(transport.requests) == 1 + goes_on


def test_false_leaves_answers_to_the_caller_although_there_are_handlers(connect: Connect) -> None:
    _, client = connect(asking({"a": FORM}, "s"), handlers=answering(must_not_run))
    for outcome in (
        client.call_tool("t", answer_input=False),
        client.start_tool_call("t", answer_input=False).result(),
        client.get_prompt("t", answer_input=False),
        client.read_resource("a:b", answer_input=False),
    ):
        assert isinstance(outcome, InputRequired)


def test_true_invents_no_answers(connect: Connect) -> None:
    transport, client = connect(asking({"a": FORM}), handlers=None, client_capabilities=["elicitation"])
    assert isinstance(client.call_tool("t", answer_input=True), InputRequired)
    assert len(transport.requests) == 1


@pytest.mark.parametrize("wrong", [0, 1, "yes"])
def test_whose_choice_it_is_is_said_by_a_flag(connect: Connect, wrong: Any) -> None:
    transport, client = connect(done)
    with pytest.raises(TypeError, match="answer_input must be True or False"):
        client.call_tool("t", answer_input=wrong)
    with pytest.raises(TypeError, match="answer_input= is no keyword"):
        client.list_tools(answer_input=True)  # type: ignore[call-arg]
    assert transport.requests == []


def test_roots_that_were_added_are_answered_without_a_handler(connect: Connect) -> None:
    steps = (asking({"r": ROOTS}), done)
    transport, client = connect(*steps, handlers=None, client_capabilities=["roots"])
    client.add_root("file:///srv", "Srv")
    assert client.call_tool("t") == DONE
    assert transport.requests[1]["params"]["inputResponses"] == {
        "r": {"roots": [{"uri": "file:///srv", "name": "Srv"}]}
    }
    _, client = connect(*steps, handlers=None, client_capabilities=["roots"])
    assert isinstance(client.call_tool("t"), InputRequired)  # nobody has said what there is
    assert client.clear_roots() == Ok({})
    assert isinstance(client.call_tool("t"), Ok)


# -- what handlers give and raise


@pytest.mark.parametrize("raised", [KeyError("k"), SystemExit(3), KeyboardInterrupt(), local_error("exited")], ids=repr)
def test_what_a_handler_raises_reaches_the_caller_and_harms_nothing(
    connect: Connect, raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: InputRequest) -> Any:
        raise raised

    handlers = {"form": fail, "roots": must_not_run}
    transport, client = connect(asking({"a": FORM, "b": ROOTS}, SECRET), handlers=handlers)
    with caplog.at_level(logging.DEBUG), pytest.raises(type(raised)) as caught:
        client.call_tool("t")
    assert caught.value is raised
    handle = client.start_tool_call("t")
    for wait in (handle.result, handle.result, handle.future.result):
        with pytest.raises(type(raised)) as caught:
            wait()
        assert caught.value is raised
    assert caplog.records == []
    transport.requests.clear()
    nothing_is_left(transport, client)
    assert len(transport.requests) == 1


WRONG: dict[str, Any] = {
    "nothing": None,
    "a text": "accept",
    "an outcome": Ok({"action": "accept"}),
    "the fault of a call of its own": local_error("timeout"),
    "no action": {},
    "an unknown action": {"action": "yes"},
    "content that does not fit": {"action": "accept", "content": {"name": 1}},
    "content that was not asked for": {"action": "accept", "content": {"other": "x"}},
    "what JSON cannot carry": {"action": "accept", "content": {"name": "\ud800"}},
    "a refusal": McpError(-1, "User rejected"),
}


@pytest.mark.parametrize("given", WRONG)
def test_a_wrong_answer_ends_the_call_and_the_caller_can_finish_by_hand(connect: Connect, given: str) -> None:
    requests = {"a": FORM, "b": URL}
    handlers = answering(form=lambda request: WRONG[given], url=must_not_run)
    transport, client = connect(asking({"z": ROOTS}, "old"), asking(requests, SECRET), done, handlers=handlers)
    wrong = failed(client.call_tool("t", {"x": 1}), "input_handler", requests)
    assert (wrong.code, wrong.kind, wrong.data) == (-32603, "execution", {"method": "elicitation/create"})
    assert wrong.cause.request_state == SECRET
    assert len(transport.requests) == 2
    answers = {"a": NAMED, "b": {"action": "decline"}}
    finished = client.call_tool("t", {"x": 1}, input_responses=answers, request_state=wrong.cause.request_state)
    assert finished == DONE
    assert transport.requests[2]["params"]["inputResponses"] == answers
    assert transport.requests[2]["params"]["requestState"] == SECRET
    nothing_is_left(transport, client)


def test_a_refusal_may_be_raised_and_is_told_to_nobody_but_the_caller(connect: Connect) -> None:
    def refuse(request: InputRequest) -> Any:
        raise McpError(-1, "User rejected sampling request", data={"why": "private"})

    transport, client = connect(asking({"s": SAMPLING}), handlers=answering(sampling=refuse))
    outcome = failed(client.call_tool("t"), "input_handler", {"s": SAMPLING})
    assert "the handler refused: User rejected sampling request" in outcome.message
    assert len(transport.requests) == 1
    nothing_is_left(transport, client)


def test_a_wrong_answer_is_not_quoted(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    private = {"action": "accept", "content": {"name": ["private-answer"]}}
    _, client = connect(asking({"a": FORM}, SECRET), handlers=answering(form=lambda request: private))
    with caplog.at_level(logging.DEBUG):
        outcome = failed(client.call_tool("t"), "input_handler")
    for text in (str(outcome), repr(outcome), repr(outcome.cause), caplog.text):
        assert "private-answer" not in text
        assert "st4te" not in text


def test_declining_is_an_answer_like_any_other(connect: Connect) -> None:
    handlers = answering(form=lambda request: {"action": "decline"}, url=lambda request: {"action": "cancel"})
    transport, client = connect(asking({"a": FORM, "b": URL}), done, handlers=handlers)
    assert client.call_tool("t") == DONE
    answers = {"a": {"action": "decline"}, "b": {"action": "cancel"}}
    assert transport.requests[1]["params"]["inputResponses"] == answers


# -- in whose time, and for how long


def test_one_deadline_is_over_all_rounds(connect: Connect) -> None:
    def linger(request: InputRequest) -> Any:
        ran.append(request)
        until(lambda: request.cancelled or monotonic() > start + 0.2 * len(ran))
        return NAMED

    ran: list[InputRequest] = []
    transport, client = connect(asking({"a": FORM}, "s"), handlers=answering(form=linger), max_input_rounds=1000)
    start = monotonic()
    over = failed(client.call_tool("t", timeout=0.5), "timeout", {"a": FORM})
    assert 0.5 <= monotonic() - start < 2.5
    assert over.data == {"timeout": 0.5}
    assert len(transport.requests) > 1
    nothing_is_left(transport, client)


def test_the_time_of_a_handler_counts_and_none_runs_when_it_is_over(connect: Connect) -> None:
    seen: list[tuple[bool, bool]] = []

    def late(request: InputRequest) -> Any:
        before = request.cancelled
        until(lambda: request.cancelled)
        seen.append((before, request.cancelled))
        return NAMED

    requests = {"a": FORM, "b": ROOTS}
    transport, client = connect(asking(requests, SECRET), handlers=answering(must_not_run) | {"form": late})
    start = monotonic()
    over = failed(client.call_tool("t", timeout=0.2), "timeout", requests)
    assert 0.2 <= monotonic() - start < 2.2
    assert seen == [(False, True)]
    assert over.cause.request_state == SECRET
    assert len(transport.requests) == 1
    nothing_is_left(transport, client)


def test_no_handler_runs_for_what_arrives_after_the_deadline(connect: Connect) -> None:
    def late(call: Any) -> Any:
        until(lambda: call.deadline.over)
        yield asks(call, {"a": FORM})

    transport, client = connect(late, handlers=answering(must_not_run))
    failed(client.call_tool("t", timeout=0.1), "timeout", {"a": FORM})
    nothing_is_left(transport, client)


def test_a_pause_ends_with_the_deadline(connect: Connect) -> None:
    transport, client = connect(asking(None, SECRET))
    start = monotonic()
    over = failed(client.call_tool("t", timeout=0.1), "timeout", {})
    assert 0.1 <= monotonic() - start < 2.1
    assert over.cause.request_state == SECRET
    assert len(transport.requests) == 1


def test_progress_gives_every_round_its_own_token_and_late_progress_is_nobodys(connect: Connect) -> None:
    def second(call: Any) -> Any:
        yield progress(call, 99) | {"params": {"progressToken": transport.requests[0]["id"], "progress": 99}}
        yield from (progress(call, 3), result(call, content=[]))

    got: list[float] = []
    transport, client = connect(lambda call: [progress(call, 1), progress(call, 2), asks(call, {"a": FORM})], second)
    assert client.call_tool("t", progress=lambda each: got.append(each.progress)) == DONE
    assert got == [1, 2, 3]
    tokens = [request["params"]["_meta"]["progressToken"] for request in transport.requests]
    assert tokens == [request["id"] for request in transport.requests]


def test_progress_of_any_round_extends_the_one_deadline(connect: Connect) -> None:
    def end_of(call: Any) -> float:
        return monotonic() + call.deadline.left()  # type: ignore[no-any-return]

    def slow(call: Any) -> Any:
        before, began = end_of(call), monotonic()
        until(lambda: monotonic() > began + 0.1)
        yield progress(call, 1)
        extended.append(end_of(call) - before)
        yield asks(call, {"a": FORM}) if len(extended) < 3 else result(call, content=[])

    extended: list[float] = []
    _, client = connect(slow)
    assert client.call_tool("t", timeout=20, reset_timeout_on_progress=True) == DONE
    assert len(extended) == 3
    assert min(extended) >= 0.09


def test_progress_keeps_no_round_alive_past_the_total(connect: Connect) -> None:
    def wait(request: InputRequest) -> Any:
        until(lambda: request.cancelled)
        return NAMED

    _, client = connect(lambda call: [progress(call, 1), asks(call, {"a": FORM})], handlers=answering(form=wait))
    start = monotonic()
    outcome = client.call_tool("t", timeout=20, reset_timeout_on_progress=True, max_total_timeout=0.3)
    assert 0.3 <= monotonic() - start < 2.3
    assert failed(outcome, "max_total_timeout", {"a": FORM}).data == {"max_total_timeout": 0.3}


def test_an_exception_of_progress_in_a_later_round_reaches_the_caller(connect: Connect) -> None:
    transport, client = connect(asking({"a": FORM}), lambda call: [progress(call, 1), result(call)])
    with pytest.raises(ZeroDivisionError):
        client.call_tool("t", progress=lambda each: 1 / 0)
    cancelled = transport.sent.get(timeout=10)
    assert cancelled["params"]["requestId"] == transport.requests[1]["id"]
    assert len(transport.requests) == 2
    nothing_is_left(transport, client)


# -- ends from outside


@pytest.mark.parametrize("how", ["cancel", "cancel_all", "close"])
def test_a_call_that_ends_while_its_handler_runs_is_over_at_once_and_tells_the_handler(
    connect: Connect, how: str
) -> None:
    running, seen, left = Event(), Event(), Event()

    def wait(request: InputRequest) -> Any:
        assert not request.cancelled
        running.set()
        until(lambda: request.cancelled)
        seen.set()
        left.wait(20)
        return NAMED

    requests = {"a": FORM, "b": ROOTS}
    transport, client = connect(asking(requests, "s"), handlers={"form": wait, "roots": must_not_run})
    handle = client.start_tool_call("t")
    assert running.wait(20)
    if how == "close":
        client.close()
    else:
        (report,) = [handle.cancel()] if how == "cancel" else client.cancel_all()
        assert (report.local, report.notification_delivery) == ("cancelled", "not_needed")
    outcome = handle.result(timeout=20)  # although the handler still runs
    assert isinstance(outcome, McpError)
    assert outcome.reason == ("closed" if how == "close" else "cancelled")
    assert seen.wait(20)
    left.set()
    until(lambda: not client._session._live)
    assert handle.result() is outcome
    assert outcome.cause == InputRequired(asks(handle._call, requests, "s")["result"])
    assert (len(transport.requests), transport.sent.empty()) == (1, True)


def test_a_call_cancelled_during_a_pause_ends_at_once(connect: Connect) -> None:
    transport, client = connect(asking(None, "s"))
    handle = client.start_tool_call("t")
    until(lambda: transport.requests and handle._call.wire_id is None)
    start = monotonic()
    assert handle.cancel().notification_delivery == "not_needed"
    outcome = handle.result(timeout=20)
    until(lambda: not client._session._live)
    assert monotonic() - start < PAUSE_SECONDS + 2
    assert isinstance(outcome, McpError)
    assert outcome.reason == "cancelled"
    nothing_is_left(transport, client)


def test_no_handler_runs_for_a_call_that_was_cancelled_before_it_was_asked(connect: Connect) -> None:
    def cancelled_meanwhile(call: Any) -> Any:
        client.cancel_all()
        yield asks(call, {"a": FORM})

    _, client = connect(cancelled_meanwhile, handlers=answering(must_not_run))
    outcome = client.call_tool("t")
    assert isinstance(outcome, McpError)
    assert outcome.reason == "cancelled"
    assert client._session._live == {}


def test_a_handler_may_cancel_the_call_it_answers(connect: Connect) -> None:
    def give_up(request: InputRequest) -> Any:
        (report,) = client.cancel_all("enough")
        assert (report.local, report.request_delivery) == ("cancelled", "accepted")
        assert request.cancelled
        return NAMED

    transport, client = connect(asking({"a": FORM}), handlers=answering(form=give_up))
    outcome = failed(client.call_tool("t"), "cancelled", {"a": FORM})
    assert "enough" in outcome.message
    nothing_is_left(transport, client)


# -- errors of later rounds


def test_an_error_of_the_server_in_a_later_round_is_given_as_sent(connect: Connect) -> None:
    transport, client = connect(asking({"a": FORM}), lambda call: [error(call, -32602, "expired", data={"x": 1})])
    outcome = client.call_tool("t")
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.message, outcome.data, outcome.reason) == (-32602, "expired", {"x": 1}, None)
    nothing_is_left(transport, client)


def test_a_later_round_may_be_of_another_kind_than_was_expected(connect: Connect) -> None:
    transport, client = connect(asking({"a": FORM}), lambda call: [result(call) | {"result": {"resultType": "task"}}])
    outcome = client.call_tool("t")
    assert isinstance(outcome, McpError)
    assert outcome.reason == "unknown_result_type"
    nothing_is_left(transport, client)


def test_the_version_may_be_refused_in_the_middle_of_the_rounds(connect: Connect) -> None:
    refusal = {"supported": [MODERN], "requested": MODERN}
    transport, client = connect(
        asking({"a": FORM}, SECRET), lambda call: [error(call, -32022, data=refusal)], asking({"b": URL}, "2"), done
    )
    assert client.call_tool("t", {"x": 1}) == DONE
    _, refused, again, last = transport.requests
    assert refused["id"] != again["id"]
    assert refused["params"] == again["params"]
    assert again["params"]["requestState"] == SECRET
    assert last["params"]["inputResponses"] == {"b": {"action": "accept"}}
    nothing_is_left(transport, client)


# -- threads


def test_handlers_run_in_the_thread_of_the_call(connect: Connect) -> None:
    ran: list[str] = []

    def note(request: InputRequest) -> Any:
        ran.append(threading.current_thread().name)
        return NAMED

    _, client = connect(asking({"a": FORM}), done, asking({"a": FORM}), done, handlers=answering(form=note))
    assert client.call_tool("t") == DONE
    assert client.start_tool_call("t").result() == DONE
    assert ran == [threading.current_thread().name, "snodo-call"]


def test_a_handler_may_call_the_same_client_whose_handlers_answer_again(connect: Connect) -> None:
    def nested(request: InputRequest) -> Any:
        depth.append(len(depth))
        if len(depth) < 4:
            assert client.call_tool("inner") == DONE
        return NAMED

    def script(call: Any) -> Any:
        return done(call) if "inputResponses" in call.message["params"] else [asks(call, {"a": FORM}, "s")]

    depth: list[int] = []
    transport, client = connect(script, handlers=answering(form=nested))
    assert client.call_tool("outer") == DONE
    assert len(transport.requests) == 8
    nothing_is_left(transport, client)


def test_sixteen_threads_with_rounds_and_calls_without_keep_apart(connect: Connect) -> None:
    """Each call has its own key, state and answer; whatever strays into another is an error."""

    def script(call: Any) -> Any:
        params = call.message["params"]
        name, own = params["name"], set(params) & {"inputResponses", "requestState"}
        if name == "plain":
            return [result(call) if not own else error(call, -32602, f"leaked: {own}")]
        if not own:
            return [asks(call, {f"key-{name}": FORM}, f"state-{name}")]
        content = {"action": "accept", "content": {"name": f"for {name}", "age": 7}}
        right = (params["requestState"], params["inputResponses"]) == (f"state-{name}", {f"key-{name}": content})
        return [result(call, content=[]) if right else error(call, -32602, f"mixed up: {params}")]

    def fill_in(request: InputRequest) -> Any:
        assert client.call_tool("plain") == Ok({"resultType": "complete"})
        return {"action": "accept", "content": {"name": f"for {mine.name}"}}

    def work(number: int) -> None:
        for turn in range(5):
            mine.name = f"t{number}-{turn}"
            assert client.call_tool(mine.name) == DONE
            assert client.call_tool("plain") == Ok({"resultType": "complete"})

    mine = threading.local()
    transport, client = connect(script, handlers=answering(form=fill_in))
    together([lambda number=number: work(number) for number in range(16)])  # type: ignore[misc]
    assert len({request["id"] for request in transport.requests}) == 16 * 5 * 4
    nothing_is_left(transport, client)


# -- what a handler is told


def test_a_handler_is_told_who_asks_and_gets_a_copy(connect: Connect) -> None:
    def careless(request: InputRequest) -> Any:
        assert (request.server, request.method, request.mode) == ("the scripted server", "elicitation/create", "form")
        assert request.schema is not None
        request.schema.clear()
        request.params.clear()
        return NAMED

    transport, client = connect(asking({"a": FORM}), done, handlers=answering(form=careless))
    assert client.call_tool("t") == DONE
    assert transport.requests[1]["params"]["inputResponses"] == {"a": FILLED}


def test_the_state_stands_in_no_log_and_no_repr(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    transport, client = connect(
        asking({"a": FORM}, SECRET),
        asking(None, SECRET),
        asking({"a": ROOTS}, SECRET),
        handlers=answering(form=noting(told, NAMED), roots=lambda request: None),
        on_event=lambda name, fields: told.append(fields),
    )
    with caplog.at_level(logging.DEBUG):
        handle = client.start_tool_call("t", {"a": "argument"})
        outcome = failed(handle.result(), "input_handler")
        client.close()
    told += [handle, client, outcome, outcome.cause, handle._call.request, InputRequired.unwrap, str(outcome)]
    with pytest.raises(Exception, match="the server asks for input") as raised:
        outcome.cause.unwrap()
    told += [raised.value, str(raised.value), caplog.text]
    assert [each for each in map(repr, told) if "st4te" in each] == []
    assert len(transport.requests) == 3
