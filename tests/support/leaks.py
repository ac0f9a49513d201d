"""Counts what is left behind: threads, file descriptors, and processes. Needs Linux's /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.waiting import until


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def children() -> int:
    """Processes of ours, also those that have ended and were not waited for."""
    found = 0
    for task in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError):  # the thread has just ended
            found += len(Path(f"/proc/self/task/{task}/children").read_text().split())
    return found


def counts() -> tuple[int, int, int]:
    return threading.active_count(), descriptors(), children()


def repeat(times: int, once: Callable[[], Any]) -> None:
    """Do it so many times; an AssertionError when something is left. The first time does not count: it may start what
    is kept for the life of the process.
    """
    once()
    before = counts()
    for _ in range(times):
        once()
    with suppress(AssertionError):  # what is still there is told below
        until(lambda: all(now <= then for now, then in zip(counts(), before, strict=True)), 10)
    after = counts()
    names = [thread.name for thread in threading.enumerate()]
    assert all(now <= then for now, then in zip(after, before, strict=True)), (before, after, names)
