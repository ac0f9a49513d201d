"""Deadlines: one end for all a call does, and how far progress may move it."""

from __future__ import annotations

import math
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.engine.deadline import LONGEST_WAIT, Deadline
from support.waiting import until

SECONDS = st.floats(0.001, 1e9) | st.just(math.inf)


def test_time_runs_out() -> None:
    deadline = Deadline(0.02)
    assert 0 < deadline.left() <= 0.02
    assert not deadline.over
    until(lambda: deadline.over)
    assert deadline.left() == 0.0
    assert not deadline.capped


@given(SECONDS, SECONDS | st.none())
def test_one_wait_is_never_longer_than_the_system_allows(seconds: float, total: float | None) -> None:
    deadline = Deadline(seconds, total)
    assert 0.0 <= deadline.left() <= min(LONGEST_WAIT, seconds, total or math.inf)


def test_for_ever_never_ends() -> None:
    deadline = Deadline(math.inf)
    assert deadline.left() == LONGEST_WAIT
    assert not deadline.over
    both = Deadline(math.inf, math.inf)
    both.extend()
    assert not both.over
    assert not both.capped


def test_progress_moves_nothing_without_a_total() -> None:
    deadline = Deadline(0.05)
    until(lambda: deadline.left() < 0.03)
    deadline.extend()
    assert deadline.left() < 0.03


def test_progress_gives_the_full_time_again() -> None:
    deadline = Deadline(10, 60)
    until(lambda: deadline.left() < 9.95)
    deadline.extend()
    assert 9.9 < deadline.left() <= 10
    assert not deadline.capped


def test_progress_never_moves_past_the_total() -> None:
    deadline = Deadline(0.1, 0.15)
    until(lambda: deadline.left() < 0.05)
    for _ in range(3):
        deadline.extend()
        assert deadline.left() <= 0.1
    assert deadline.capped
    until(lambda: deadline.over)
    deadline.extend()
    assert deadline.over


def test_the_total_holds_from_the_start() -> None:
    deadline = Deadline(100, 1)
    assert deadline.left() <= 1
    assert deadline.capped


@given(SECONDS, SECONDS)
def test_progress_never_takes_time_away(seconds: float, total: float) -> None:
    deadline = Deadline(seconds, total)
    before = deadline.left()
    deadline.extend()
    assert deadline.left() >= min(before, LONGEST_WAIT) - 0.5


def test_a_part_ends_with_the_whole() -> None:
    assert Deadline(0.5).sub(100).left() <= 0.5
    assert Deadline(100).sub(0.5).left() <= 0.5
    assert Deadline(math.inf).sub(math.inf).left() == LONGEST_WAIT
    over = Deadline(0.001)
    until(lambda: over.over)
    assert over.sub(10).over


@pytest.mark.parametrize("total", [None, 5.0])
def test_what_was_asked_for_is_kept_for_messages(total: float | None) -> None:
    deadline = Deadline(2.0, total)
    assert (deadline.seconds, deadline.max_total) == (2.0, total)


# --- the time of a person


@given(st.floats(1, 1e6), SECONDS | st.none(), SECONDS)
def test_a_pause_that_takes_no_time_changes_nothing(seconds: float, total: float | None, person: float) -> None:
    deadline = Deadline(seconds, total)
    before = deadline.left()
    with deadline.pause(person):
        assert deadline.paused
        assert deadline.left() >= min(before, LONGEST_WAIT) - 0.5
    assert not deadline.paused
    assert before - 0.5 <= deadline.left() <= before


def test_the_time_of_a_person_does_not_count() -> None:
    deadline = Deadline(0.3)
    end = monotonic() + 0.5
    with deadline.pause(20):
        until(lambda: monotonic() > end)
        assert 19 < deadline.left() < 20
    assert 0.2 < deadline.left() <= 0.3


def test_a_person_who_takes_longer_is_charged_for_the_rest() -> None:
    deadline = Deadline(20)
    end = monotonic() + 0.5
    with deadline.pause(0.1):
        until(lambda: monotonic() > end)
    assert 19 < deadline.left() <= 19.61


def test_a_pause_holds_for_all_that_it_is_inside_of() -> None:
    whole = Deadline(0.3)
    part = whole.sub(0.2, "a part")
    inner = part.sub(0.1)
    end = monotonic() + 0.5
    with inner.pause(20):
        assert (whole.paused, part.paused, inner.paused) == (True, True, True)
        until(lambda: monotonic() > end)
    assert (whole.paused, part.paused, inner.paused) == (False, False, False)
    assert 0.2 < whole.left() <= 0.3
    assert 0.1 < part.left() <= 0.2
    assert 0.0 < inner.left() <= 0.1


def test_a_pause_of_the_whole_leaves_a_part_as_it_is() -> None:
    """The part is somebody else's, who is waiting for something else."""
    whole = Deadline(20)
    part = whole.sub(10)
    with whole.pause(100):
        assert part.left() <= 10
        assert not part.paused


def test_pauses_inside_of_pauses_count_once_each() -> None:
    deadline = Deadline(10)
    with deadline.pause(20):
        with deadline.pause(30):
            assert 59 < deadline.left() <= 60
        assert deadline.paused
        assert 29 < deadline.left() <= 30
    assert 9 < deadline.left() <= 10


def test_a_pause_ends_with_what_it_is_for() -> None:
    deadline = Deadline(10)
    with pytest.raises(KeyError), deadline.pause(20):
        raise KeyError
    assert not deadline.paused
    assert deadline.left() <= 10


def test_a_pause_moves_the_total_as_well() -> None:
    deadline = Deadline(0.2, 0.3)
    end = monotonic() + 0.5
    with deadline.pause(20):
        until(lambda: monotonic() > end)
    assert not deadline.over
    deadline.extend()
    assert 0.1 < deadline.left() <= 0.3


def test_a_deadline_that_is_moved_is_moved_with_its_total() -> None:
    deadline = Deadline(1, 2)
    deadline.move(10)
    assert 10.5 < deadline.left() <= 11
    deadline.move(-10)
    assert 0.5 < deadline.left() <= 1
    for_ever = Deadline(math.inf)
    for_ever.move(10)
    assert for_ever.left() == LONGEST_WAIT
