"""The stdio transport against real server processes: what it delivers, how it fails, how it ends."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError
from snodo_client.transports.stdio import StdioTransport
from support.stdio_peer import Inbox, Peer, eventually, reaped, running

BIG = 4 * 1024 * 1024


def within(start: float, seconds: float) -> bool:
    return seconds <= time.monotonic() - start < seconds + 2


# -- answers


def test_answers_carry_what_was_asked() -> None:
    with Peer("scripted.py") as peer:
        text = "\n\r\u2028\u2029\x85\x0b ü 🦊 \\n"
        call = peer.prepare("echo", {"text": text})
        assert peer.perform(call) == {"text": text}
        assert call.delivery == "accepted"


def test_forty_threads_get_their_own_answers_in_reverse_order() -> None:
    with Peer("scripted.py") as peer:
        results: dict[int, Any] = {}

        def ask(number: int) -> None:
            results[number] = peer.call("reverse", {"of": 40, "number": number})

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert results == {number: {"of": 40, "number": number} for number in range(40)}


def test_a_notification_needs_no_answer() -> None:
    with Peer("scripted.py") as peer:
        peer.transport.send({"jsonrpc": "2.0", "method": "notifications/anything"}, peer.link, Deadline(10))
        assert peer.call("echo", {"after": 1}) == {"after": 1}


@pytest.mark.parametrize("piece", [1, 7, 499, 65_536])
def test_a_line_of_just_the_allowed_length_is_a_message(piece: int) -> None:
    with Peer("scripted.py", max_line_bytes=500) as peer:
        for size in (499, 500):
            assert set(peer.call("line_of", {"size": size, "piece": piece})) == {"text"}
        error = peer.call("line_of", {"size": 501, "piece": piece})
        assert error.reason == "too_large"
        assert error.data == {"limit": 500}
        assert "max_line_bytes" in error.message
        assert peer.call("echo", {"next": 1}) == {"next": 1}


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 1_048_576, 10_485_760])
def test_long_answers(size: int) -> None:
    with Peer("scripted.py") as peer:
        assert len(peer.call("line_of", {"size": size, "piece": 1 << 20})["text"]) > size - 100
        assert peer.call("echo", {"next": 1}) == {"next": 1}


def test_the_call_of_an_overlong_line_is_told_by_its_id() -> None:
    with Peer("scripted.py", max_line_bytes=500) as peer:
        other = peer.prepare("silence")
        outcome: list[Any] = []
        waiting = threading.Thread(target=lambda: outcome.append(peer.perform(other)))
        waiting.start()
        assert peer.call("line_of", {"size": 100_000, "piece": 50_000}).reason == "too_large"
        assert peer.inbox.rejected[0][1] == other.wire_id + 1  # type: ignore[operator]
        assert peer.call("echo", {"next": 1}) == {"next": 1}
        peer.transport.close(Deadline(10))
        waiting.join(10)
        assert outcome[0].reason == "closed"


# -- junk


def test_junk_on_stdout_is_skipped_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    junk = 'Server 1.0 token=hunter2\n\n\x1b[32mready\x1b[0m\n   \nnull\n123\n"text"\ntrue\n\xff\xfe\n\r\n'
    with Peer("scripted.py") as peer:
        for _ in range(2):
            assert peer.call("raw", {"text": junk}) == {}
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.name for record in said] == ["snodo_client.stdio"]
    assert "hunter2" not in caplog.text


def test_values_that_are_no_answer_are_passed_on() -> None:
    with Peer("scripted.py") as peer:
        assert peer.call("raw", {"text": '{}\r\n[]\n{"method":"ping","id":"s1"}\n\xef\xbb\xbf{"bom":1}\n'}) == {}
        assert peer.inbox.messages == [{}, [], {"method": "ping", "id": "s1"}, {"bom": 1}]


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":$ID,"result":{"text":"\xff"}}\n',
        '{"jsonrpc":"2.0","id":$ID,"result":{"x":NaN}}\n',
        '{"jsonrpc":"2.0","id":$ID,"result":{"x":1}\n',
        '{"jsonrpc":"2.0","id":$ID,"result":' + "[" * 10_000 + "\n",
        '{"jsonrpc":"2.0","id":$ID,"result":{"x":' + "9" * 5_000 + "}}\n",
    ],
    ids=["bad UTF-8", "NaN", "unfinished", "deep", "digits"],
)
def test_an_unreadable_answer_fails_its_call_at_once_and_no_other(line: str) -> None:
    with Peer("scripted.py") as peer:
        error = peer.call("raw_only", {"text": line})
        assert error.reason == "malformed"
        assert peer.call("echo", {"next": 1}) == {"next": 1}


# -- silence and slowness


def test_silence_ends_with_the_deadline() -> None:
    with Peer("scripted.py") as peer:
        start = time.monotonic()
        call = peer.prepare("silence", timeout=0.3)
        error = peer.perform(call)
        assert within(start, 0.3)
        assert error.reason == "timeout"
        assert call.delivery == "accepted"
        assert peer.call("echo", {"next": 1}) == {"next": 1}


def test_a_dripping_answer_does_not_move_the_deadline() -> None:
    with Peer("scripted.py") as peer:
        start = time.monotonic()
        assert peer.call("drip", {"pause": 0.2}, timeout=0.5).reason == "timeout"
        assert within(start, 0.5)
    with Peer("scripted.py") as peer:
        assert peer.call("drip", {"pause": 0.005}) == {}


def test_a_server_that_stops_reading(tmp_path: Path) -> None:
    resume = tmp_path / "resume"
    with Peer("scripted.py") as peer:
        assert peer.call("stop_reading", {"until": str(resume)}) == {}

        start = time.monotonic()
        cut = peer.prepare("length", {"text": "x" * BIG}, timeout=0.4)
        assert peer.perform(cut).reason == "timeout"
        assert within(start, 0.4)
        assert cut.delivery == "unknown"  # part of it is on the pipe

        start = time.monotonic()
        withdrawn = peer.prepare("length", {"text": "y"}, timeout=0.2)
        assert peer.perform(withdrawn).reason == "timeout"
        assert within(start, 0.2)
        assert withdrawn.delivery == "not_sent"
        with pytest.raises(McpError) as raised:
            peer.transport.send({"jsonrpc": "2.0", "method": "notifications/anything"}, peer.link, Deadline(0.1))
        assert raised.value.reason == "timeout"

        resume.touch()
        # The cut one is finished first, so that the server reads this one; its late answer finds no call.
        assert peer.call("echo", {"next": 1}) == {"next": 1}
        assert [message["id"] for message in peer.inbox.messages] == [cut.wire_id]  # type: ignore[index]
        assert peer.inbox.messages[0]["result"]["length"] == len(cut.body) + 1  # type: ignore[index]


def test_a_call_settled_by_somebody_else_lets_go_of_a_full_pipe(tmp_path: Path) -> None:
    with Peer("scripted.py", shutdown_timeout=0.2) as peer:
        peer.call("stop_reading", {"until": str(tmp_path / "never")})
        call = peer.prepare("length", {"text": "x" * BIG}, timeout=60)
        outcome: list[Any] = []
        thread = threading.Thread(target=lambda: outcome.append(peer.perform(call)))
        thread.start()
        assert eventually(lambda: call.delivery == "unknown")
        cancelled = McpError(-32000, "stop")
        assert call.finish(cancelled)
        thread.join(10)
        assert outcome == [cancelled]


def test_closing_wakes_a_writer_that_waits_for_room(tmp_path: Path) -> None:
    with Peer("scripted.py", shutdown_timeout=0.2) as peer:
        peer.call("stop_reading", {"until": str(tmp_path / "never")})
        call = peer.prepare("length", {"text": "x" * BIG}, timeout=60)
        outcome: list[Any] = []
        thread = threading.Thread(target=lambda: outcome.append(peer.perform(call)))
        thread.start()
        assert eventually(lambda: call.delivery == "unknown")
        peer.transport.close(Deadline(10))
        thread.join(10)
        assert outcome[0].reason == "closed"


# -- the end of a server


def test_an_exit_in_mid_call_names_the_code_and_the_last_words() -> None:
    with Peer("scripted.py") as peer:
        error = peer.call("exit", {"code": 7, "stderr": "ModuleNotFoundError: no module named 'x'\n"})
        assert error.reason == "exited"
        assert "exited with code 7" in error.message
        assert "no module named 'x'" in error.message
        assert error.data["exit_code"] == 7
        assert error.data["signal"] is None
        assert error.data["command"] == sys.executable
        assert "no module named 'x'" in error.data["stderr"]
        again = peer.call("echo")
        assert again.reason == "exited"
        assert len(peer.inbox.losses) == 1


def test_the_error_of_an_exit_waits_for_the_last_words() -> None:
    lines: list[str] = []

    def slow(line: str) -> None:
        if not lines:
            time.sleep(0.1)
        lines.append(line)

    with Peer("scripted.py", stderr=slow) as peer:
        words = ("x" * 99 + "\n") * 1000 + "last words\n"  # more than one read
        error = peer.call("exit", {"code": 7, "stderr": words})
        assert error.data["stderr"].endswith("last words")


def test_an_exit_ends_every_call_that_waits() -> None:
    with Peer("scripted.py") as peer:
        outcomes: list[Any] = []
        threads = [threading.Thread(target=lambda: outcomes.append(peer.call("silence"))) for _ in range(5)]
        for thread in threads:
            thread.start()
        assert eventually(lambda: len(peer.inbox.pending) == 5)
        peer.call("kill", {"signal": int(signal.SIGKILL)})
        for thread in threads:
            thread.join(10)
        assert [outcome.reason for outcome in outcomes] == ["exited"] * 5
        assert {outcome.data["signal"] for outcome in outcomes} == {"SIGKILL"}
        assert "SIGKILL" in outcomes[0].message


def test_an_answer_written_just_before_the_exit_is_delivered() -> None:
    for _ in range(10):
        with Peer("scripted.py") as peer:
            assert peer.call("exit", {"code": 1, "reply": True}) == {"last": True}
            assert peer.inbox.lost_one.wait(10)
            assert peer.inbox.losses[0].data["exit_code"] == 1


def test_an_answer_without_line_end_is_delivered_at_the_end_of_stdout() -> None:
    with Peer("scripted.py") as peer:
        params = {"text": '{"id":$ID,"result":{"unfinished":1}}', "exit": 0}
        assert peer.call("raw_only", params) == {"unfinished": 1}


def test_an_exit_is_noticed_when_another_process_holds_stdout_open() -> None:
    with Peer("stubborn.py", "child", "holds-stdout") as peer:
        child = peer.call("pids")["other"]
        call = peer.prepare("leave")
        exchange = peer.transport.exchange(call)
        assert next(exchange)["result"]["other"] == child
        with pytest.raises(McpError) as raised:
            next(exchange)
        assert raised.value.data["exit_code"] == 3
        assert eventually(lambda: not running(child))


def test_a_server_that_closes_stdout_is_lost_and_ended() -> None:
    with Peer("scripted.py", shutdown_timeout=0.4) as peer:
        error = peer.call("close_stdout")
        assert error.reason == "closed"
        assert "closed its stdout" in error.message
        assert eventually(lambda: reaped(peer.pid))


def test_a_server_that_closes_stdin_is_lost_and_ended() -> None:
    with Peer("scripted.py", shutdown_timeout=0.4) as peer:
        assert peer.call("close_stdin") == {}
        call = peer.prepare("echo")
        error = peer.perform(call)
        assert error.reason == "closed"
        assert "closed its stdin" in error.message
        assert call.delivery == "not_sent"
        with pytest.raises(McpError, match="closed its stdin"):
            peer.transport.send({}, peer.link, Deadline(10))
        assert eventually(lambda: reaped(peer.pid))


def test_writing_to_a_server_that_has_just_died_names_its_end() -> None:
    with Peer("scripted.py") as peer:
        os.kill(peer.pid, signal.SIGKILL)
        error = peer.call("echo", {"text": "x" * BIG})
        assert error.reason == "exited"
        assert error.data["signal"] == "SIGKILL"


def test_a_new_process_after_a_loss() -> None:
    with Peer("scripted.py") as peer:
        first, link = peer.pid, peer.link
        assert peer.call("exit", {"code": 1}).reason == "exited"
        peer.reopen()
        assert reaped(first)
        assert peer.pid != first
        assert peer.link is not link
        assert peer.call("echo", {"next": 1}) == {"next": 1}


# -- stderr


def test_a_flood_on_stderr_without_line_end_blocks_nothing() -> None:
    lines: list[str] = []
    with Peer("scripted.py", stderr=lines.append) as peer:
        assert peer.call("stderr_flood", {"size": 1 << 20}) == {}
        assert peer.call("stderr", {"text": "\nnext\n"}) == {}
        assert eventually(lambda: "next" in lines)
        assert len(lines[0]) == 65_536
        error = peer.call("exit", {"code": 1})
        assert len(error.data["stderr"]) <= 2048


def test_lines_of_stderr_go_to_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "snodo_client.stdio")
    with Peer("scripted.py", env={"API_KEY": "hunter2-hunter2"}) as peer:
        peer.call("stderr", {"text": "starting with hunter2-hunter2\n"})
        assert eventually(lambda: "starting with ***" in caplog.text)
    assert "hunter2" not in caplog.text


def test_a_raising_callback_does_not_stop_the_draining(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def refuse(line: str) -> None:
        seen.append(line)
        raise RuntimeError("no")

    with Peer("scripted.py", stderr=refuse) as peer:
        assert peer.call("stderr", {"text": "one\ntwo\n"}) == {}
        assert peer.call("stderr_flood", {"size": 1 << 20}) == {}
        assert eventually(lambda: len(seen) >= 3)
    assert seen[:2] == ["one", "two"]
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1


def test_secrets_of_the_environment_are_not_in_the_error() -> None:
    env = {"DB_PASSWORD": "open-sesame", "PLAIN": "nothing-to-hide", "SHORT_KEY": "abc"}
    words = "open-sesame nothing-to-hide abc https://me:pw@host/ \x1b[31mred\n"
    with Peer("scripted.py", env=env) as peer:
        error = peer.call("exit", {"code": 1, "stderr": words})
    for text in (error.message, error.data["stderr"]):
        assert "*** nothing-to-hide abc https://***@host/ [31mred" in text


# -- closing


@pytest.mark.parametrize(
    "flags",
    [
        ("no-eof",),
        ("no-eof", "no-term"),
        ("child",),
        ("child", "holds-stdout"),
        ("child-no-term",),
        ("child-no-term", "holds-stdout", "no-eof"),
        ("no-eof", "no-term", "child"),
    ],
    ids=" ".join,
)
def test_closing_ends_the_whole_group_in_its_time(flags: tuple[str, ...]) -> None:
    with Peer("stubborn.py", *flags, shutdown_timeout=0.6) as peer:
        pids = peer.call("pids")
        start = time.monotonic()
        peer.transport.close(Deadline(30))
        assert time.monotonic() - start < 0.6 + 2
        assert reaped(pids["server"])
        assert eventually(lambda: not any(running(pid) for pid in pids.values()))
        assert not any(thread.is_alive() for thread in peer.link.threads)


@pytest.mark.parametrize("holds", [(), ("holds-stdout",)], ids=["free", "holds-stdout"])
def test_a_process_in_a_session_of_its_own_delays_nothing(holds: tuple[str, ...]) -> None:
    with Peer("stubborn.py", "daemon", *holds) as peer:
        pids = peer.call("pids")
        try:
            peer.transport.close(Deadline(30))
            assert reaped(pids["server"])
            assert running(pids["other"])
            if sys.platform == "linux":
                assert eventually(lambda: not any(thread.is_alive() for thread in peer.link.threads))
                assert peer.link.process.stdout.closed
                assert peer.link.process.stderr.closed
        finally:
            os.kill(pids["other"], signal.SIGKILL)


def test_a_server_that_leaves_at_the_end_of_its_input_is_not_killed(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with Peer("stubborn.py", f"marker={marker}") as peer:
        pid = peer.call("pids")["server"]
    assert marker.exists()
    assert reaped(pid)


def test_closing_ends_the_calls_that_wait_and_refuses_the_next() -> None:
    with Peer("scripted.py") as peer:
        outcome: list[Any] = []
        call = peer.prepare("silence")
        thread = threading.Thread(target=lambda: outcome.append(peer.perform(call)))
        thread.start()
        assert eventually(lambda: call.delivery == "accepted")
        peer.transport.close(Deadline(10))
        thread.join(10)
        assert outcome[0].reason == "closed"
        assert peer.call("echo").reason == "closed"
        with pytest.raises(McpError, match="closed"):
            peer.reopen()
        assert [error.reason for error in peer.inbox.losses] == ["closed"]


def test_closing_from_many_threads_at_once() -> None:
    with Peer("stubborn.py", "no-eof", "child", shutdown_timeout=0.4) as peer:
        pids = peer.call("pids")
        threads = [threading.Thread(target=peer.transport.close, args=(Deadline(30),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)
        assert reaped(pids["server"])
        assert eventually(lambda: not running(pids["other"]))
        assert len(peer.inbox.losses) == 1


def test_a_shorter_deadline_cuts_the_ladder_short() -> None:
    with Peer("stubborn.py", "no-eof", "no-term", shutdown_timeout=60) as peer:
        peer.call("pids")
        slow = threading.Thread(target=peer.transport.close, args=(Deadline(60),))
        slow.start()
        assert peer.inbox.lost_one.wait(10)
        start = time.monotonic()
        peer.transport.close(Deadline(0.2))
        assert time.monotonic() - start < 2
        slow.join(10)
        assert not slow.is_alive()
        assert reaped(peer.pid)


def test_a_callback_of_ours_may_close() -> None:
    closed = threading.Event()

    def close(line: str) -> None:
        peer.transport.close(Deadline(10))
        closed.set()

    with Peer("scripted.py", stderr=close) as peer:
        peer.call("stderr", {"text": "go\n"})
        assert closed.wait(10)
        assert eventually(lambda: reaped(peer.pid))


def test_nothing_is_left_after_a_hundred_cycles() -> None:
    def counts() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/dev/fd"))

    def cycle() -> None:
        with Peer("scripted.py") as peer:
            assert peer.call("echo", {"a": 1}) == {"a": 1}

    cycle()
    before = counts()
    for _ in range(100):
        cycle()
    assert eventually(lambda: all(now <= then for now, then in zip(counts(), before, strict=True)))


# -- wrong arguments


@pytest.mark.parametrize(
    ("changed", "error", "match"),
    [
        ({"command": 1}, TypeError, "command"),
        ({"command": ""}, ValueError, "empty"),
        ({"command": "a\0b"}, ValueError, "NUL"),
        ({"command": "\ud800"}, ValueError, "operating system"),
        ({"args": "server.py"}, TypeError, "sequence"),
        ({"args": ["a", 1]}, TypeError, "args"),
        ({"args": ["a\0"]}, ValueError, "args"),
        ({"env": ["A=1"]}, TypeError, "env must be a mapping, not list"),
        ({"env": {"A": 1}}, TypeError, r"env\['A'\]"),
        ({"env": {"A": "x\0"}}, ValueError, r"env\['A'\]"),
        ({"env": {1: "x"}}, TypeError, "env"),
        ({"env": {"": "x"}}, ValueError, "env"),
        ({"env": {"A=B": "x"}}, ValueError, "env"),
        ({"cwd": b"/"}, TypeError, "cwd"),
        ({"cwd": 3}, TypeError, "PathLike"),
        ({"stderr": "file"}, TypeError, "stderr"),
        ({"max_line_bytes": 0}, ValueError, "max_line_bytes"),
        ({"max_line_bytes": True}, TypeError, "max_line_bytes"),
        ({"max_line_bytes": 1.5}, TypeError, "max_line_bytes"),
        ({"shutdown_timeout": -1}, ValueError, "shutdown_timeout"),
        ({"shutdown_timeout": float("nan")}, ValueError, "shutdown_timeout"),
        ({"shutdown_timeout": float("inf")}, ValueError, "shutdown_timeout"),
        ({"shutdown_timeout": "2"}, TypeError, "shutdown_timeout"),
    ],
    ids=str,
)
def test_wrong_arguments_raise_before_anything_is_started(changed: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        StdioTransport(**{"command": "python", "args": [], **changed})


def test_a_value_of_the_environment_is_in_no_message() -> None:
    with pytest.raises(ValueError, match="API_KEY") as raised:
        StdioTransport("python", env={"API_KEY": "hunter2\0"})
    assert "hunter2" not in str(raised.value)


def test_no_time_left_to_start() -> None:
    with pytest.raises(McpError) as raised:
        StdioTransport(sys.executable, ["-c", ""]).open(Inbox(), Deadline(0))
    assert raised.value.reason == "timeout"
