"""Processes that write too much to stderr, die, or are no servers at all."""

from __future__ import annotations

import signal
import sys
from typing import Any

import pytest

from snodo_client import Client, Ok
from support.faulty import AT_ONCE, assert_error, assert_serves, failed_connect, serving
from support.http_calls import VERSION, Took
from support.waiting import together, until

ANSWER = '{"jsonrpc":"2.0","id":$ID,"result":{"last":true}}'
MIB = 2**20


@pytest.mark.parametrize("text", ["", "a line\n", "no line end", "\x1b[31mred\x00\n"])
def test_a_mebibyte_of_stderr_without_a_line_end_blocks_nothing(text: str) -> None:
    with serving("stdio") as server, server.connect() as client:
        for _ in range(3):
            with Took() as took:
                outcome = client.call_tool("fault", {"stderr": text, "stderr_bytes": MIB, "send": [ANSWER]})
            assert isinstance(outcome, Ok), outcome
            assert took.seconds < AT_ONCE
        assert_serves(client)


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize(
    "sent",
    [[], ["junk"], ['{"jsonrpc":"2.0","id":$ID,"res'], ['{"jsonrpc":"2.0","id":$ID,"result":{"a":"hal']],
    ids=["none", "junk", "half a line", "half a result"],
)
@pytest.mark.parametrize("protocol", ["auto", VERSION])
def test_an_exit_in_mid_call(code: int, sent: list[str], protocol: str) -> None:
    with serving("stdio") as server, server.connect(protocol=protocol) as client:
        fault = {"stderr": "first\nTraceback: boom\n", "send": sent, "end": "", "exit": code}
        with Took() as took:
            outcome = client.call_tool("fault", fault)
        assert took.seconds < AT_ONCE
        error = assert_error(outcome, "exited", exit_code=code, signal=None, stderr="first\nTraceback: boom")
        assert error.message.startswith("python (pid ")
        assert f"code {code}" in error.message
        assert "Traceback: boom" in error.message
        assert error.data["command"] == sys.executable
        with Took() as took:
            again = client.call_tool("ok")
        assert took.seconds < AT_ONCE
        assert_error(again, "exited", exit_code=code)
        assert client.protocol_info["status"] == "closed"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_signal_in_mid_call(number: signal.Signals) -> None:
    with serving("stdio") as server, server.connect() as client:
        outcome = client.call_tool("fault", {"send": [], "signal": int(number)})
        error = assert_error(outcome, "exited", exit_code=None)
        assert error.data["signal"] in (int(number), number.name)
        assert number.name in error.message


def test_the_end_of_much_stderr_is_what_the_error_has() -> None:
    with serving("stdio") as server, server.connect() as client:
        fault = {"stderr": "early\n", "stderr_bytes": MIB, "send": [], "exit": 1}
        error = assert_error(client.call_tool("fault", fault), "exited", exit_code=1)
    assert "early" not in error.data["stderr"]
    assert error.data["stderr"].endswith("eeee")
    assert len(error.message) < 5000


def test_an_answer_and_then_an_exit() -> None:
    with serving("stdio") as server, server.connect() as client:
        fault = {"stderr": "bye\n", "send": [ANSWER], "exit": 5}
        assert client.call_tool("fault", fault) == Ok({"last": True})
        until(lambda: client.protocol_info["status"] == "closed")
        assert_error(client.call_tool("ok"), "exited", exit_code=5, stderr="bye")


def test_an_answer_without_a_line_end_and_then_an_exit() -> None:
    with serving("stdio") as server, server.connect() as client:
        assert client.call_tool("fault", {"send": [ANSWER], "end": "", "exit": 0}) == Ok({"last": True})


def test_an_exit_ends_every_call_that_waits() -> None:
    with serving("stdio") as server, server.connect() as client:
        outcomes: list[Any] = []

        def call(number: int) -> None:
            fault = {"send": [], "reverse": 8, "exit": 7}
            outcomes.append(client.call_tool("fault", fault, timeout=10))

        with Took() as took:
            together([lambda number=number: call(number) for number in range(8)])  # type: ignore[misc]
        assert took.seconds < AT_ONCE
        for outcome in outcomes:
            assert_error(outcome, "exited", exit_code=7)


# -- connecting


@pytest.mark.parametrize("protocol", ["auto", VERSION])
def test_no_such_command(protocol: str) -> None:
    target = ("stdio", "no-such-command-here", ["x"])
    with Took() as took:
        error = assert_error(failed_connect(lambda: Client.connect(target, protocol=protocol)), "exited")
    assert took.seconds < AT_ONCE
    assert "no-such-command-here" in error.message


@pytest.mark.parametrize("program", ["raise SystemExit('no key given')", "import sys; sys.exit('no key given')"])
def test_a_command_that_exits_at_once(program: str) -> None:
    target = ("stdio", sys.executable, ["-I", "-S", "-c", program])
    with Took() as took:
        error = assert_error(failed_connect(lambda: Client.connect(target)), "exited", exit_code=1)
    assert took.seconds < AT_ONCE
    assert "no key given" in error.message
    assert error.data["stderr"] == "no key given"


def test_a_pinned_client_of_a_command_that_exits_at_once() -> None:
    target = ("stdio", sys.executable, ["-I", "-S", "-c", "raise SystemExit('no key given')"])
    with Client.connect(target, protocol=VERSION) as client, Took() as took:
        error = assert_error(client.call_tool("ok"), "exited", exit_code=1)
    assert took.seconds < AT_ONCE
    assert "no key given" in error.message


@pytest.mark.parametrize("text", ["", "usage: prog [options]\n" * 5])
def test_a_program_that_prints_and_ends(text: str) -> None:
    target = ("stdio", sys.executable, ["-I", "-S", "-c", f"print({text!r})"])
    with Took() as took:
        assert_error(failed_connect(lambda: Client.connect(target)), "exited", exit_code=0)
    assert took.seconds < AT_ONCE


def test_an_exit_after_discovery_was_read_and_again() -> None:
    end = {"send": [], "stderr": "old server\n", "exit": 2}
    with serving("stdio", {"server/discover": [end], "initialize": [end]}) as server:
        with Took() as took:
            error = assert_error(failed_connect(server.connect), "exited", exit_code=2, stderr="old server")
        assert took.seconds < AT_ONCE
        assert "exited twice" in error.message
        assert "old server" in error.message
