"""What arrives on a shared channel: late, foreign, odd and malformed messages, each given to the right place."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client import Link
from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.events import Events
from snodo_client.engine.inbound import MAX_WAITING_PROGRESS, Router
from snodo_client.engine.pending import Pending
from snodo_client.engine.worker import Worker
from snodo_client.outcome import McpError, local_error
from snodo_client.protocol.requests import Request
from support.waiting import until

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PARAMS = st.fixed_dictionaries({}, optional={"progressToken": JSON, "level": JSON, "logger": JSON, "data": JSON}) | JSON
METHODS = (
    st.sampled_from(["notifications/progress", "notifications/message", "notifications/tools/list_changed"]) | JSON
)
MESSAGES = JSON | st.fixed_dictionaries(
    {}, optional={"jsonrpc": JSON, "id": JSON, "method": METHODS, "params": PARAMS, "result": JSON, "error": JSON}
)


class Room:
    """A router with its table, and a link."""

    def __init__(self) -> None:
        self.logs: list[Any] = []
        self.notices: list[Any] = []
        self.pending, self.worker = Pending(), Worker("room", 1000)
        self.router = Router(
            self.pending,
            self.worker,
            Events(None, self.worker),
            lambda *log: self.logs.append(log),
            lambda *notice: self.notices.append(notice),
        )
        self.link = Link("the server")

    def call(self, *, progress: bool = False) -> Call:
        call = Call(1, Request("tools/call"), Deadline(20), wants_progress=progress)
        self.pending.attempt(call, self.link)
        return call

    def deliver(self, message: object) -> None:
        self.router.deliver(message, self.link)


@pytest.fixture
def room() -> Iterator[Room]:
    made = Room()
    yield made
    made.worker.close(Deadline(5))


def answer(got: object, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": got, **(members or {"result": {}})}


# -- responses


def test_answers_find_their_calls_in_any_order(room: Room) -> None:
    calls = [room.call() for _ in range(40)]
    for call in reversed(calls):
        room.deliver(answer(call.wire_id))
    assert [next(call.messages())["id"] for call in calls] == [call.wire_id for call in calls]


@pytest.mark.parametrize("spell", [str, float])
def test_our_id_as_text_or_float_is_ours_and_said_once(
    room: Room, spell: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = room.call(), room.call()
    with caplog.at_level(logging.WARNING, "snodo_client.session"):
        for call in (first, second):
            room.deliver(answer(spell(call.wire_id)))
            room.router.tolerate(next(call.messages()), room.link)
    assert len(caplog.records) == 1
    assert "ignored" not in caplog.text


@pytest.mark.parametrize(
    "got", [99, 0, -1, "99", 99.0, 1.5, "", "1.0", " 1", "\u0661", True, False, None, [], {}, [1], "9" * 100_000]
)
@pytest.mark.parametrize("waiting", [0, 1, 2])
def test_a_foreign_id_reaches_the_call_only_when_one_waits(
    room: Room, got: object, waiting: int, caplog: pytest.LogCaptureFixture
) -> None:
    calls = [room.call() for _ in range(waiting)]
    with caplog.at_level(logging.WARNING, "snodo_client.session"):
        for _ in range(3):
            room.deliver(answer(got))
    assert [call.backlog for call in calls] == ([1] if waiting == 1 else [0] * waiting)
    assert len(caplog.records) <= 2
    assert caplog.records or waiting == 1
    assert len(caplog.text) < 1000


def test_late_and_repeated_answers_are_dropped_quietly(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    gone, waiting = room.call(), room.call()
    late = gone.wire_id
    room.pending.forget(gone)
    with caplog.at_level(logging.WARNING, "snodo_client.session"):
        for got in (late, late):
            room.deliver(answer(got))
    assert (gone.backlog, waiting.backlog, len(caplog.records)) == (0, 0, 0)
    room.deliver(answer(str(late)))
    assert waiting.backlog == 0


def test_answers_for_the_last_attempt_do_not_reach_the_next(room: Room) -> None:
    call = room.call()
    last = call.wire_id
    room.pending.attempt(call, room.link)
    room.deliver(answer(last))
    assert call.backlog == 0


def test_a_stale_link_is_not_heard(room: Room) -> None:
    call, stale = room.call(), Link("stale")
    room.router.deliver(answer(call.wire_id), stale)
    room.router.lost(local_error("exited"), stale)
    assert call.backlog == 0
    room.router.lost(local_error("exited", "first"), room.link)
    room.router.lost(local_error("closed", "second"), room.link)
    room.deliver(answer(call.wire_id))
    assert call.backlog == 1
    assert room.link.lost is not None
    assert room.link.lost.reason == "exited"


@pytest.mark.parametrize("members", [{"result": {}, "error": {}}, {"result": None}, {"error": 5}])
def test_malformed_answers_are_the_calls_to_judge(room: Room, members: dict[str, Any]) -> None:
    call = room.call()
    room.deliver(answer(call.wire_id, **members))
    assert call.backlog == 1


@pytest.mark.parametrize("message", [None, 5, "x", [], [{"id": 9, "result": {}}], {}, {"id": 9}, {"jsonrpc": "2.0"}])
def test_what_is_no_message_is_said_once_and_costs_nothing(
    room: Room, message: object, caplog: pytest.LogCaptureFixture
) -> None:
    call = room.call()
    with caplog.at_level(logging.WARNING, "snodo_client.session"):
        for _ in range(5):
            room.deliver(message)
    assert call.backlog == 0
    assert len(caplog.records) == 1


@pytest.mark.parametrize("message", [[{"id": 1, "result": {}}], {"id": 1}, {"id": 1, "method": 5}, [5, {"id": 1}]])
def test_what_is_no_message_fails_the_call_it_names(room: Room, message: object) -> None:
    call, other = room.call(), room.call()
    for _ in range(3):
        room.deliver(message)
    assert (call.backlog, other.backlog) == (1, 0)
    with pytest.raises(McpError) as caught:
        next(call.messages())
    assert caught.value.reason == "malformed"


def test_rejecting_fails_the_call_that_can_be_told(room: Room) -> None:
    first, error = room.call(), local_error("too_large")
    room.router.reject(error, room.link, None)
    assert first.backlog == 1
    second = room.call()
    room.router.reject(error, room.link, None)
    room.router.reject(error, room.link, second.wire_id)
    room.router.reject(error, room.link, 99)
    room.router.reject(error, Link("stale"), second.wire_id)
    assert (first.backlog, second.backlog) == (1, 1)


@given(st.lists(MESSAGES, max_size=5), st.integers(0, 2))
def test_anything_may_arrive(messages: list[object], waiting: int) -> None:
    room = Room()
    calls = [room.call(progress=True) for _ in range(waiting)]
    for message in messages:
        room.deliver(message)
    fresh = room.call()
    room.deliver(answer(fresh.wire_id))
    assert fresh.backlog == 1
    assert all(call.backlog <= len(messages) for call in calls)
    room.worker.close(Deadline(5))


# -- notifications


def progress(token: object, **members: Any) -> dict[str, Any]:
    params = {"progressToken": token, "progress": 1, **members}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def test_progress_reaches_the_call_that_wants_it(room: Room) -> None:
    wanting, other = room.call(progress=True), room.call()
    room.deliver(progress(wanting.wire_id))
    room.deliver(progress(other.wire_id))
    assert (wanting.backlog, other.backlog) == (1, 0)


@pytest.mark.parametrize("spell", [str, float, lambda token: None, lambda token: [token], lambda token: True])
def test_progress_tokens_are_matched_exactly(room: Room, spell: Any) -> None:
    call = room.call(progress=True)
    room.deliver(progress(spell(call.wire_id)))
    assert call.backlog == 0
    until(lambda: len(room.notices) == 1)


def test_late_progress_is_dropped(room: Room) -> None:
    gone, call = room.call(progress=True), room.call(progress=True)
    room.pending.forget(gone)
    room.deliver(progress(gone.wire_id))
    assert (gone.backlog, call.backlog) == (0, 0)


def test_waiting_progress_has_a_bound_and_the_answer_gets_through(room: Room) -> None:
    call = room.call(progress=True)
    for _ in range(MAX_WAITING_PROGRESS * 2):
        room.deliver(progress(call.wire_id))
    room.deliver(answer(call.wire_id))
    assert call.backlog == MAX_WAITING_PROGRESS + 1


def test_what_is_kept_of_a_list_is_forgotten_before_the_callback_runs(room: Room) -> None:
    told: list[Any] = []
    room.router.on_stale.append(lambda method, params: told.append((method, len(room.notices))))
    room.deliver({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    assert told == [("notifications/tools/list_changed", 0)]
    until(lambda: room.notices == [("notifications/tools/list_changed", {})])


@pytest.mark.parametrize("params", [[], "x", 5, True])
def test_malformed_notifications_are_left_out(room: Room, params: object, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "snodo_client.session"):
        room.deliver({"jsonrpc": "2.0", "method": "notifications/x", "params": params})
        room.deliver({"jsonrpc": "2.0", "method": 5})
    assert len(caplog.records) == 2
    assert room.notices == []


def test_requests_of_a_server_are_left_out(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    call = room.call()
    with caplog.at_level(logging.WARNING, "snodo_client.session"):
        for got in (1, "p-1", None):
            room.deliver({"jsonrpc": "2.0", "id": got, "method": "ping"})
    assert call.backlog == 0
    assert room.notices == []
    assert len(caplog.records) == 1


def test_faults_with_ever_new_names_do_not_flood_the_log(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "snodo_client.session"):
        for number in range(1000):
            room.deliver({"jsonrpc": "2.0", "id": number, "method": f"{number}" * 1000})
    assert len(caplog.records) <= 64
    assert max(len(record.getMessage()) for record in caplog.records) < 300


def test_log_messages_go_to_the_callback_in_order(room: Room) -> None:
    for number in range(50):
        room.deliver({"method": "notifications/message", "params": {"level": "info", "data": number, "logger": "db"}})
    room.deliver({"method": "notifications/message", "params": {"level": "alert", "logger": 5}})
    until(lambda: len(room.logs) == 51)
    assert room.logs[:50] == [("info", number, "db") for number in range(50)]
    assert room.logs[50] == ("alert", None, None)


@pytest.mark.parametrize("params", [{}, {"level": "loud"}, {"level": 5}, {"level": []}, None])
def test_log_messages_without_a_level_are_left_out(room: Room, params: object) -> None:
    room.deliver({"method": "notifications/message", "params": params})
    done = Event()
    room.worker.submit(done.set)
    assert done.wait(20)
    assert room.logs == []


def quiet() -> Router:
    worker = Worker("quiet", 10)
    return Router(Pending(), worker, Events(None, worker), None, None)


def test_log_messages_go_to_the_log_without_a_callback(caplog: pytest.LogCaptureFixture) -> None:
    router, link = quiet(), Link("the server")
    with caplog.at_level(logging.DEBUG, "snodo_client.server"):
        router.deliver({"method": "notifications/message", "params": {"level": "critical", "data": "disk"}}, link)
        until(lambda: caplog.records)
    assert caplog.records[0].levelno == logging.CRITICAL
    assert "the server" in caplog.text
    assert "disk" in caplog.text


def test_a_log_message_cannot_forge_lines_or_fill_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    router, link = quiet(), Link("the server")
    for data in ("a\nCRITICAL forged\x1b[2J", "x" * 1_000_000, ["y" * 1_000_000]):
        with caplog.at_level(logging.DEBUG, "snodo_client.server"):
            router.deliver({"method": "notifications/message", "params": {"level": "error", "data": data}}, link)
    until(lambda: len(caplog.records) == 3)
    for record in caplog.records:
        text = record.getMessage()
        assert "\n" not in text
        assert "\x1b" not in text
        assert len(text) < 100_000
