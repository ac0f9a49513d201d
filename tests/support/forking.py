"""Work in a forked child of the test, and what came of it."""

from __future__ import annotations

import os
import pickle
import select
import signal
from collections.abc import Callable
from typing import Any


def in_a_child(work: Callable[[], Any], seconds: float = 20.0) -> Any:
    """What `work` returns in a forked child. An AssertionError when it does not return in time, or raises."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, pickle.dumps(work()))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as result:
        ready, _, _ = select.select([result], [], [], seconds)
        if not ready:
            os.kill(pid, signal.SIGKILL)
        data = result.read()
    os.waitpid(pid, 0)
    assert ready, "the child hangs"
    assert data, "the child raised"
    return pickle.loads(data)
