"""Starting a thread when there may be none left to start, and when a signal handler raises while it is started."""

from __future__ import annotations

import sys
from threading import Thread
from typing import TYPE_CHECKING

from ..outcome import local_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def refusal(thread: Thread) -> str | None:
    """Start the thread. None, or why it could not be: at the limit on threads, or late in the exit.

    What a signal handler raises meanwhile gets out of here; then the thread may run or not.
    """
    before = sys.exception()
    try:
        thread.start()
    except RuntimeError as refused:
        interruption = refused.__context__
        if interruption is None or interruption is before:
            return str(refused)
        # Python's wait for the thread, interrupted at its end, puts an error of its own over the interruption.
        raise interruption from None
    return None


def start(name: str, target: Callable[..., object], *arguments: Any) -> Thread:
    """Start a daemon thread. Raises McpError ("transport_failure") when there is none."""
    thread = Thread(target=target, args=arguments, name=name, daemon=True)
    why = refusal(thread)
    if why is not None:
        raise local_error("transport_failure", f"the thread {name} could not be started: {why}")
    return thread
