"""Starting server processes: what they are given, how a failure is told, and how they end with us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError
from snodo_client.transports.process import Process, environment
from snodo_client.transports.stdio import StdioTransport
from support.stdio_peer import SERVERS, Inbox, Peer, eventually, reaped, running

SUPPORT = SERVERS.parent


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def not_started(*args: Any, **options: Any) -> McpError:
    with pytest.raises(McpError) as raised:
        StdioTransport(*args, **options).open(Inbox(), Deadline(10))
    assert raised.value.reason == "exited"
    assert raised.value.__context__ is None or raised.value.__suppress_context__
    return raised.value


# -- the environment


def test_a_server_gets_a_safe_base_and_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_X", "ours")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    with Peer("scripted.py", env={"LOG_LEVEL": "warn", "EMPTY": ""}) as peer:
        seen = peer.call("surroundings")["env"]
    assert "SECRET_X" not in seen
    assert seen["PATH"] == os.environ["PATH"]
    assert (seen["LC_TIME"], seen["HTTPS_PROXY"]) == ("C", "http://proxy:3128")
    assert (seen["LOG_LEVEL"], seen["EMPTY"]) == ("warn", "")


def test_all_of_our_environment_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_X", "ours")
    monkeypatch.setenv("OTHER", "ours")
    with Peer("scripted.py", env={"OTHER": "theirs"}, inherit_env=True) as peer:
        seen = peer.call("surroundings")["env"]
    assert (seen["SECRET_X"], seen["OTHER"]) == ("ours", "theirs")


def test_an_empty_env_keeps_the_base_and_a_value_overrides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/ours")
    assert environment({}, False)["HOME"] == "/ours"
    assert environment({"HOME": "/theirs"}, False)["HOME"] == "/theirs"


# -- the command


def test_a_command_is_looked_up_along_the_path_of_the_server(tmp_path: Path) -> None:
    script(tmp_path / "only-there", f"#!/bin/sh\nexec {sys.executable} -I -S {SERVERS / 'scripted.py'}\n")
    assert "only-there" in not_started("only-there").message
    transport = StdioTransport("only-there", env={"PATH": f"{tmp_path}:/bin:/usr/bin"})
    link = transport.open(Inbox(), Deadline(10))
    assert link.name.startswith("only-there (pid ")
    transport.close(Deadline(10))


def test_a_relative_command_is_relative_to_cwd(tmp_path: Path) -> None:
    script(tmp_path / "here", "#!/bin/sh\npwd >&2\ncat >/dev/null\n")
    lines: list[str] = []
    transport = StdioTransport("./here", cwd=tmp_path, stderr=lines.append)
    transport.open(Inbox(), Deadline(10))
    assert eventually(lambda: lines == [str(tmp_path)])
    transport.close(Deadline(10))


def test_no_shell_sees_command_or_arguments(tmp_path: Path) -> None:
    lines: list[str] = []
    transport = StdioTransport("sh", ["-c", 'echo "$1" >&2', "-", f"$(touch {tmp_path}/x); *"], stderr=lines.append)
    transport.open(Inbox(), Deadline(10))
    assert eventually(lambda: bool(lines))
    assert lines == [f"$(touch {tmp_path}/x); *"]
    transport.close(Deadline(10))
    not_started(f"touch {tmp_path}/x; true")
    assert not (tmp_path / "x").exists()


def test_a_missing_command() -> None:
    error = not_started("no-such-command-anywhere")
    assert "no such command in the PATH" in error.message
    assert error.data == {"command": "no-such-command-anywhere"}


def test_what_cannot_be_executed(tmp_path: Path) -> None:
    assert "ermission" in not_started(str(script(tmp_path / "plain", "", 0o644))).message
    assert "format" in not_started(str(script(tmp_path / "rubbish", "\x01\x02\x03"))).message
    assert "interpreter" in not_started(str(script(tmp_path / "orphan", "#!/no/such/interpreter\n"))).message
    assert not_started(str(tmp_path)).reason == "exited"
    assert "long" in not_started("true", ["x" * 4_000_000]).message


def test_a_missing_cwd(tmp_path: Path) -> None:
    error = not_started("cat", cwd=tmp_path / "gone")
    assert f"no such directory to start it in: {tmp_path / 'gone'}" in error.message


def test_a_failed_start_leaves_nothing_open() -> None:
    before = os.listdir("/dev/fd")
    for _ in range(20):
        not_started("no-such-command-anywhere")
    assert os.listdir("/dev/fd") == before


def test_a_server_leads_a_session_of_its_own() -> None:
    with Peer("scripted.py") as peer:
        seen = peer.call("surroundings")
        assert seen["sid"] == seen["pid"] == peer.pid


# -- watching and ending, with what each system offers


@pytest.fixture(params=["all", "no pidfd", "no pidfd, no waitid"])
def facilities(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux, an old kernel or sandbox, and macOS before Python 3.13."""
    if request.param != "all":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    if "waitid" in request.param:
        monkeypatch.delattr(os, "waitid", raising=False)


def started(*command: str) -> Process:
    return Process(command[0], command[1:], environment({}, False), None)


def closed(process: Process) -> None:
    for file in (process.stdin, process.stdout, process.stderr):
        file.close()


@pytest.mark.usefixtures("facilities")
@pytest.mark.parametrize(
    ("flags", "gone_by"), [((), "itself"), (("no-eof",), "SIGTERM"), (("no-eof", "no-term"), "SIGKILL")]
)
def test_the_ladder(flags: tuple[str, ...], gone_by: str) -> None:
    process = started(sys.executable, "-I", "-S", str(SERVERS / "stubborn.py"), "child", *flags)
    os.write(process.stdin.fileno(), b'{"id":1,"method":"pids"}\n')
    answer = os.read(process.stdout.fileno(), 4096)
    other = int(answer.rpartition(b":")[2].strip(b" }\n"))
    assert not process.wait(0.05)
    process.stdin.close()
    start = time.monotonic()
    process.stop(0.6)
    assert time.monotonic() - start < 2.6
    assert (process.signal or "itself") == gone_by
    assert process.exit_code == (0 if gone_by == "itself" else None)
    assert reaped(process.pid)
    assert eventually(lambda: not running(other))
    process.stop(0.6)
    closed(process)


@pytest.mark.usefixtures("facilities")
def test_stderr_is_read_to_the_end_though_another_process_holds_it() -> None:
    process = started("sh", "-c", "echo one >&2; sleep 60 & echo two >&2; exit 5")
    start = time.monotonic()
    assert b"".join(process.stderr_chunks()) == b"one\ntwo\n"
    assert time.monotonic() - start < 5
    assert process.wait(5)
    assert process.end() == "exited with code 5"
    process.stop(0.2)
    closed(process)


def test_an_exit_status_that_somebody_else_took() -> None:
    process = started("sh", "-c", "exit 5")
    os.waitpid(process.pid, 0)
    assert process.wait(5)
    assert (process.exit_code, process.signal, process.end()) == (None, None, "exited")
    process.stop(0.2)
    closed(process)


def test_no_signal_to_a_group_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def killpg(group: int, signum: int) -> None:
        sent.append(signum)
        raise ProcessLookupError

    process = started("cat")
    process.stdin.close()
    assert process.wait(10)
    monkeypatch.setattr(os, "killpg", killpg)
    process.stop(1)
    process.stop(1)
    assert sent == [0]  # only looked
    closed(process)


# -- the end of our own process


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_servers_see_the_end_of_their_input_when_their_parent_is_gone(end: str, tmp_path: Path) -> None:
    markers = [tmp_path / "one", tmp_path / "two"]
    command = [sys.executable, str(SUPPORT / "stdio_parent.py"), *map(str, markers)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT.parent), str(SUPPORT.parent.parent)])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        if end == "kill":
            parent.send_signal(signal.SIGKILL)
        else:
            parent.stdin.close()  # then it ends without closing anything
        assert eventually(lambda: all(marker.exists() for marker in markers))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_holds_no_server(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT.parent), str(SUPPORT.parent.parent)])}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SUPPORT / "stdio_forking.py"), str(marker)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["child:forked", "parent:still-served", "server:ended-by-itself"], done.stderr
