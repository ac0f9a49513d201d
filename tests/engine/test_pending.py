"""The table of requests in flight: ids are never used again, and every call leaves it."""

from __future__ import annotations

from snodo_client import Link
from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.pending import Pending
from snodo_client.outcome import local_error
from snodo_client.protocol.requests import Request
from support.waiting import together


def make() -> Call:
    return Call(1, Request("x"), Deadline(5))


def test_ids_start_at_one_and_are_never_used_again() -> None:
    table, link, call = Pending(), Link("s"), make()
    assert [table.attempt(call, link) for _ in range(3)] == [1, 2, 3]
    assert len(table) == 1
    assert table.find(1) is None
    assert table.find(3) is call
    table.forget(call)
    table.forget(call)
    assert len(table) == 0
    assert table.attempt(make(), link) == 4


def test_ids_of_a_thousand_calls_from_many_threads_are_unique() -> None:
    table, link, ids = Pending(), Link("s"), []

    def work() -> None:
        for _ in range(125):
            call = make()
            ids.append(table.attempt(call, link))
            ids.append(table.attempt(call, link))
            assert table.find(ids[-1]) is not None or call.wire_id is not None
            table.forget(call)

    together([work] * 8)
    assert sorted(ids) == list(range(1, 2001))
    assert len(table) == 0


def test_issued_ids() -> None:
    table = Pending()
    assert not table.issued(1)
    table.attempt(make(), Link("s"))
    assert [number for number in (-1, 0, 1, 2, 10**30) if table.issued(number)] == [1]


def test_only_is_the_one_call_on_that_link() -> None:
    table, here, there = Pending(), Link("a"), Link("b")
    first, second, other = make(), make(), make()
    assert table.only(here) is None
    table.attempt(first, here)
    table.attempt(other, there)
    assert table.only(here) is first
    table.attempt(second, here)
    assert table.only(here) is None
    table.forget(first)
    assert table.only(here) is second


def test_a_lost_link_fails_its_calls_and_no_others() -> None:
    table, here, there = Pending(), Link("a"), Link("b")
    mine, woken, other = [make(), make()], [], make()
    for call in mine:
        table.attempt(call, here)
        call.wake = lambda call=call: woken.append(call)  # type: ignore[misc]
    table.attempt(other, there)
    error = local_error("exited")
    table.fail_all(here, error)
    assert [call.backlog for call in (*mine, other)] == [1, 1, 0]
    assert woken == mine
    assert set(table.calls()) == {*mine, other}
