"""The mailbox: order, many writers, and a deadline that holds under signal handlers."""

from __future__ import annotations

import signal
import time
from threading import Thread
from typing import Any

import pytest

from snodo_client.engine.deadline import Deadline
from snodo_client.engine.mailbox import Empty, Mailbox


def test_items_come_in_order_and_then_time_runs_out() -> None:
    box: Mailbox[int] = Mailbox()
    for item in range(3):
        box.put(item)
    assert len(box) == 3
    assert [box.get(Deadline(1)) for _ in range(3)] == [0, 1, 2]
    begun = time.monotonic()
    with pytest.raises(Empty):
        box.get(Deadline(0.1))
    assert 0.1 <= time.monotonic() - begun < 2.1


def test_a_reader_is_woken_by_whoever_puts() -> None:
    box: Mailbox[int] = Mailbox()
    writers = [Thread(target=lambda: [box.put(1) for _ in range(500)]) for _ in range(8)]
    for writer in writers:
        writer.start()
    assert sum(box.get(Deadline(10)) for _ in range(4000)) == 4000
    for writer in writers:
        writer.join()
    assert len(box) == 0


def test_what_is_cleared_is_gone() -> None:
    box: Mailbox[int] = Mailbox()
    box.put(1)
    box.clear()
    with pytest.raises(Empty):
        box.get(Deadline(0.01))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
def test_a_signal_handler_that_outlasts_the_deadline_does_not_make_it_wait_for_ever() -> None:
    def slow(*_: Any) -> None:
        time.sleep(0.5)

    before = signal.signal(signal.SIGALRM, slow)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        begun = time.monotonic()
        with pytest.raises(Empty):
            Mailbox[int]().get(Deadline(0.2))
        assert time.monotonic() - begun < 2.2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
