"""Starting a thread when there may be none left to start."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

from ..outcome import local_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def start(name: str, target: Callable[..., object], *arguments: Any) -> Thread:
    """Start a daemon thread. Raises McpError ("transport_failure") at the limit on threads, or late in the exit."""
    thread = Thread(target=target, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as refused:
        why = str(refused)
    else:
        return thread
    raise local_error("transport_failure", f"the thread {name} could not be started: {why}")
