"""Deadlines: one end for all a call does, and how far progress may move it."""

from __future__ import annotations

import math

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
