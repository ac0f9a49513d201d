"""The end of the interpreter: whatever is open is closed within three seconds, once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

TESTS = Path(__file__).parents[1]

PROGRAM = r"""
import sys
sys.path[:0] = [{root!r}, {tests!r}]
import os, threading
from snodo_client import Client
from support.scripted_transport import ScriptedTransport, result

class Closing(ScriptedTransport):
    def close(self, deadline):
        os.write(1, b"closed %r\n" % (0 < deadline.left() <= 10))
        {close}

def connect():
    return Client.connect(Closing(lambda call: iter([result(call, tools=[])])), protocol="2026-07-28")

{body}
"""


def run(body: str, close: str = "pass") -> tuple[list[str], str, float]:
    program = PROGRAM.format(root=str(TESTS.parent), tests=str(TESTS), body=body, close=close)
    start = monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    return done.stdout.split("\n")[:-1], done.stderr, monotonic() - start


@pytest.mark.parametrize("count", [1, 5])
def test_open_clients_are_closed_at_exit(count: int) -> None:
    printed, errors, _ = run(f"clients = [connect() for _ in range({count})]")
    assert printed == ["closed True"] * count
    assert errors == ""


def test_closed_clients_are_not_closed_again() -> None:
    printed, errors, _ = run("with connect() as client: client.list_tools()")
    assert (printed, errors) == (["closed True"], "")


@pytest.mark.parametrize("count", [1, 3])
def test_closing_that_never_ends_does_not_hold_the_exit(count: int) -> None:
    printed, errors, took = run(f"clients = [connect() for _ in range({count})]", "threading.Event().wait(30)")
    assert printed == ["closed True"] * count
    assert took < 2.5 + 3
    assert errors == ""


def test_clients_are_closed_where_no_thread_can_start_any_more() -> None:
    """As in Python 3.12 and later, where exit handlers may not start threads."""
    printed, errors, _ = run("clients = [connect() for _ in range(3)]; threading.stack_size(1 << 46)")
    assert printed == ["closed True"] * 3
    assert errors == ""


def test_one_that_fails_does_not_keep_the_others_open() -> None:
    printed, _, _ = run("clients = [connect() for _ in range(3)]", "raise OSError('broken')")
    assert printed == ["closed True"] * 3


def test_a_child_process_closes_nothing_of_its_parents() -> None:
    body = """
client = connect()
pid = os.fork()
if pid == 0:
    sys.exit(0)
os.waitpid(pid, 0)
print("parent", flush=True)
"""
    printed, errors, _ = run(body)
    assert (printed, errors) == (["parent", "closed True"], "")


def test_an_interrupted_main_thread_closes_too() -> None:
    printed, errors, _ = run("client = connect(); import signal; signal.raise_signal(signal.SIGINT)")
    assert printed == ["closed True"]
    assert "KeyboardInterrupt" in errors
