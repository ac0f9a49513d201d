"""A call's mailbox and end: the first terminal event wins, and the owner always wakes."""

from __future__ import annotations

import itertools
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from snodo_client import Link, McpError, Ok
from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import local_error
from snodo_client.protocol.requests import Request
from support.waiting import together, until


def make(seconds: float = 20.0, total: float | None = None) -> Call:
    return Call(1, Request("tools/call"), Deadline(seconds, total))


def raised(call: Call) -> McpError:
    with pytest.raises(McpError) as caught:
        next(call.messages())
    return caught.value


def test_messages_come_in_order() -> None:
    call = make()
    for number in range(5):
        call.put({"n": number})
    assert call.backlog == 5
    assert [message["n"] for message in itertools.islice(call.messages(), 5)] == list(range(5))


def test_an_error_ends_the_attempt_after_what_came_before() -> None:
    call = make()
    call.put({"n": 1})
    call.put(local_error("exited"))
    messages = call.messages()
    assert next(messages) == {"n": 1}
    with pytest.raises(McpError) as caught:
        next(messages)
    assert caught.value.reason == "exited"


def test_time_runs_out_in_the_mailbox() -> None:
    call, start = make(0.2), monotonic()
    call.link = Link("the server")
    error = raised(call)
    assert 0.2 <= monotonic() - start < 2.2
    assert (error.reason, error.code, error.data) == ("timeout", -32001, {"timeout": 0.2})
    assert "tools/call was not answered by the server within timeout=0.2 s" in error.message


def test_the_total_limit_has_a_name_of_its_own() -> None:
    call = make(10.0, 0.1)
    error = raised(call)
    assert (error.reason, error.data) == ("max_total_timeout", {"max_total_timeout": 0.1})


def test_an_extended_deadline_is_noticed_by_the_one_who_waits() -> None:
    call, got = make(0.3, 20.0), []
    thread = Thread(target=lambda: got.append(next(call.messages())), daemon=True)
    thread.start()
    end = monotonic() + 0.8
    until(lambda: call.deadline.extend() or monotonic() > end)
    call.put({"late": True})
    thread.join(20)
    assert got == [{"late": True}]


def test_the_owner_wakes_when_somebody_settles_the_call() -> None:
    call, errors, woken = make(), [], []
    call.wake = lambda: woken.append(True)
    thread = Thread(target=lambda: errors.append(raised(call)), daemon=True)
    thread.start()
    assert call.finish(local_error("closed", "now"))
    thread.join(20)
    assert [error.reason for error in errors] == ["closed"]
    assert woken == [True]


def test_settled_before_the_owner_looks() -> None:
    call = make()
    call.finish(local_error("closed"))
    assert raised(call).reason == "closed"
    with pytest.raises(McpError):
        call.check()
    assert isinstance(call.outcome, McpError)


def test_the_first_end_wins() -> None:
    call = make()
    first, second = local_error("closed"), Ok(1)
    assert call.finish(first)
    assert not call.finish(second)
    assert call.outcome is first
    assert call.settle(second) is first
    done = make()
    assert done.settle(second) is second
    assert not done.finish(first)
    with pytest.raises(McpError) as caught:
        done.check()
    assert caught.value.reason == "closed"


def test_one_winner_in_every_race() -> None:
    for _ in range(100):
        call, wins, wakes = make(), [], []
        call.wake = lambda wakes=wakes: wakes.append(1)  # type: ignore[misc]
        outcomes: list[Any] = [Ok(number) for number in range(8)]
        together([lambda o=o, call=call, wins=wins: wins.append(o) if call.finish(o) else None for o in outcomes])
        assert len(wins) == 1
        assert call.outcome is wins[0]
        assert len(wakes) == 1


def test_a_restart_forgets_the_last_attempt_and_not_the_end() -> None:
    call = make()
    call.put({"stale": True})
    call.put(local_error("exited"))
    call.delivery, call.status, call.wake = "accepted", 400, lambda: pytest.fail("stale")
    call.restart(call.request)
    assert (call.backlog, call.delivery, call.status) == (0, "not_sent", None)
    call.finish(local_error("closed"))
    call.restart(call.request)
    with pytest.raises(McpError):
        call.check()


def test_the_message_is_a_fresh_copy_of_the_body() -> None:
    call = make()
    call.body = b'{"id":1,"params":{}}'
    call.message["params"]["x"] = 1
    assert call.message == {"id": 1, "params": {}}
