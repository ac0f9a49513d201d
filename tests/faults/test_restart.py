"""`restart="on_call"`: a server that was lost is started again for the next call, and for that alone."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from snodo_client.changes import Closed
from snodo_client.subscription import Subscription
from snodo_client.transports import stdio
from support.alive import alive
from support.eras import CALL, HANDSHAKE, PROBE, SILENCE, Stage, answers, assert_speaks, plan, playing, say, tells
from support.faulty import AT_ONCE, assert_error
from support.forking import in_a_child
from support.http_calls import Took
from support.leaks import children
from support.stdio_servers.eras import META, NEW, OLD
from support.waiting import together, until

DIES = say(exit=7, stderr="boom\n")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
forks_with_threads = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 warns


def connected(stage: Stage, **options: Any) -> Client:
    return stage.connect(restart="on_call", **options)


def call(client: Client, text: str = "hello", **options: Any) -> Any:
    outcome = client.call_tool("ok", {"text": text}, **options)
    return outcome.value["content"][0]["text"] if isinstance(outcome, Ok) else outcome


def started(stage: Stage) -> list[int]:
    return [entry["started"] for entry in stage._record() if "started" in entry]


# -- one death


@pytest.mark.parametrize(
    ("era", "again"),
    [("modern", [CALL]), ("dual", [CALL]), ("legacy", [*HANDSHAKE, CALL])],
)
def test_the_next_call_starts_it_again_without_asking_what_is_known(era: str, again: list[str]) -> None:
    with playing("stdio", plan(era, call=DIES), plan(era)) as stage, connected(stage) as client:
        error = assert_error(client.call_tool("ok"), "exited", exit_code=7)
        assert "boom" in error.message
        before = stage.methods
        assert stage.processes == 1, "it was started before it was wanted"
        assert_speaks(client, OLD[0] if era == "legacy" else NEW)
        assert stage.methods == [*before, *again]
        assert (stage.processes, stage.runs) == (2, 1)
        assert_speaks(client, OLD[0] if era == "legacy" else NEW)
        assert stage.processes == 2


def test_it_is_not_started_again_unless_asked_for() -> None:
    with playing("stdio", plan(call=DIES), plan()) as stage, stage.connect() as client:
        for _ in range(3):
            assert_error(client.call_tool("ok"), "exited", exit_code=7)
        assert stage.processes == 1


def test_a_death_between_calls() -> None:
    with playing("stdio", plan()) as stage, connected(stage) as client:
        assert call(client, "before") == "before"
        os.kill(started(stage)[0], 9)
        # The first call may come before the death is noticed: then it fails, since it may have run.
        outcomes = (call(client, "after") for _ in range(2))
        for outcome in outcomes:
            if not isinstance(outcome, McpError):
                break
            assert_error(outcome, "exited", signal="SIGKILL")
        assert outcome == "after"
        assert stage.processes == 2


def test_it_dies_again_and_again() -> None:
    with playing("stdio", plan(call=[{}, DIES])) as stage, connected(stage) as client:
        for life in range(4):
            assert call(client, "ran") == "ran"
            assert_error(client.call_tool("ok"), "exited", exit_code=7)
            assert stage.processes == life + 1
        assert stage.runs == 4
        assert stage.methods.count(CALL) == 8


def test_another_version_of_the_server_is_found_out() -> None:
    with playing("stdio", plan("modern", call=DIES), plan("legacy"), strict=False) as stage:
        client = connected(stage)
        assert_error(client.call_tool("ok"), "exited", exit_code=7)
        until(lambda: isinstance(client.call_tool("ok"), Ok))
        assert_speaks(client, OLD[0])


def test_many_calls_in_flight_fail_and_none_is_sent_again() -> None:
    with playing("stdio", plan(call=[SILENCE] * 19 + [DIES]), plan()) as stage, connected(stage) as client:
        outcomes: list[Any] = []
        together([lambda: outcomes.append(call(client, "lost"))] * 20)
        for outcome in outcomes:
            assert_error(outcome, "exited", exit_code=7)
        assert (stage.processes, stage.methods.count(CALL), stage.runs) == (1, 20, 0)
        assert call(client, "next") == "next"
        assert (stage.processes, stage.methods.count(CALL)) == (2, 21)


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_many_threads_start_it_once(era: str) -> None:
    with playing("stdio", plan(era, call=DIES), plan(era)) as stage, connected(stage) as client:
        assert_error(client.call_tool("ok"), "exited", exit_code=7)
        right: list[bool] = []
        together([lambda text=str(number): right.append(call(client, text) == text) for number in range(32)])
        assert right == [True] * 32
        assert (stage.processes, stage.runs) == (2, 32)
        assert stage.methods.count("initialize") == (2 if era == "legacy" else 0)
        assert stage.methods.count(PROBE) == 1


def test_what_was_set_on_the_lost_server_is_told_to_be_gone(caplog: pytest.LogCaptureFixture) -> None:
    first = plan("legacy", call=DIES, **{"logging/setLevel": say(answers({}))})
    with playing("stdio", first, plan("legacy")) as stage, connected(stage) as client:
        assert client.set_log_level("info").ok
        assert_error(client.call_tool("ok"), "exited", exit_code=7)
        assert call(client, "next") == "next"
    assert "what was set on the last one is gone: logging/setLevel" in caplog.text


def test_handles_end_with_the_server_and_are_not_made_again() -> None:
    with playing("stdio", plan(call=[SILENCE, SILENCE, DIES]), plan()) as stage, connected(stage) as client:
        calls = [client.start_tool_call("ok") for _ in range(2)]
        until(lambda: stage.methods.count(CALL) == 2)
        assert_error(client.call_tool("ok"), "exited", exit_code=7)
        for handle in calls:
            assert_error(handle.result(10), "exited", exit_code=7)
        assert call(client, "next") == "next"
        for handle in calls:
            assert_error(handle.result(10), "exited", exit_code=7)
        assert (stage.processes, stage.runs, stage.methods.count(CALL)) == (2, 1, 4)
        assert client.start_tool_call("ok").result(10).ok


def test_a_subscription_ends_with_the_server_and_is_not_made_again() -> None:
    granted = {"_meta": {META + "subscriptionId": "$ID"}, "notifications": {"toolsListChanged": True}}
    listens = {"subscriptions/listen": say(tells("notifications/subscriptions/acknowledged", **granted))}
    with playing("stdio", plan(call=DIES, **listens), plan()) as stage, connected(stage) as client:
        subscription = client.listen({"toolsListChanged": True})
        assert isinstance(subscription, Subscription), subscription
        assert_error(client.call_tool("ok"), "exited", exit_code=7)
        (closed,) = subscription
        assert isinstance(closed, Closed)
        assert closed.reason == "lost"
        assert_error(closed.error, "exited", exit_code=7)
        assert call(client, "next") == "next"
        assert stage.methods.count("subscriptions/listen") == 1
        assert subscription.next() == closed


# -- a server that cannot live


def test_a_server_that_dies_whenever_it_is_started_makes_no_storm() -> None:
    crippled = {"exit": 3, "stderr": "no licence\n"}
    with playing("stdio", plan(call=DIES), crippled) as stage, connected(stage) as client:
        assert_error(client.call_tool("ok"), "exited", exit_code=7)
        begun, errors = time.monotonic(), []
        together([lambda: errors.extend(client.call_tool("ok") for _ in range(10))] * 8)
        elapsed = time.monotonic() - begun
        for error in errors:
            assert_error(error, "exited", exit_code=3)
            assert "no licence" in error.message
        windows = 1 + int(elapsed / stdio.STARTS_SECONDS)
        assert stage.processes <= stdio.STARTS * windows
        assert "started 10 times within 10 s: it is not started just now" in errors[-1].message
        with Took() as took:
            assert_error(client.call_tool("ok"), "exited")
        assert took.seconds < AT_ONCE


def test_it_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "STARTS_SECONDS", 1.0)
    crippled = [{"exit": 3}] * (stdio.STARTS - 1)
    with playing("stdio", plan(call=DIES), *crippled, plan()) as stage, connected(stage) as client:
        until(lambda: call(client, "well again") == "well again")
        assert stage.processes == stdio.STARTS + 1


def test_a_command_that_is_gone_by_then(tmp_path: Any) -> None:
    command = tmp_path / "server"
    command.symlink_to(sys.executable)
    with Client.connect(("stdio", str(command), ["-m", "snodo_client.testing", "stdio"]), restart="on_call") as client:
        assert client.call_tool("echo", {"message": "x"}).ok
        command.unlink()
        os.kill(client._session.connection.link.process.pid, 9)  # type: ignore[union-attr]
        until(lambda: "no such command" in getattr(client.call_tool("echo", {"message": "x"}), "message", ""))
        command.symlink_to(sys.executable)
        until(lambda: client.call_tool("echo", {"message": "x"}).ok)


@pytest.mark.parametrize("wrong", ["always", True, 1, ""])
def test_other_wishes_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="restart must be"):
        Client.connect(("stdio", "no-such-command"), restart=wrong)


# -- closing meanwhile


def test_closing_while_it_is_negotiated_with_again() -> None:
    silent = plan("legacy", initialize=SILENCE)
    with playing("stdio", plan("legacy", call=DIES), silent) as stage:
        client = connected(stage)
        assert_error(client.call_tool("ok"), "exited", exit_code=7)
        outcomes: list[Any] = []

        def close() -> None:
            until(lambda: stage.methods.count("initialize") == 2)
            with Took() as took:
                client.close()
            assert took.seconds < 2.0 + AT_ONCE

        together([lambda: outcomes.append(client.call_tool("ok")), close])
        assert_error(outcomes[0], "closed")
        assert not any(alive(pid) for pid in started(stage))
        assert_error(client.call_tool("ok"), "closed")
        assert stage.processes == 2


def test_closing_at_any_moment_leaves_no_process() -> None:
    before = children()
    for moment in range(30):
        with playing("stdio", plan("modern", call=DIES), plan("modern")) as stage:
            client = connected(stage, protocol=NEW)
            assert_error(client.call_tool("ok"), "exited", exit_code=7)
            outcomes: list[Any] = []

            def close(client: Client = client, moment: int = moment) -> None:
                for _ in range(moment * 300):  # a little later each time
                    pass
                client.close()
                assert children() == before

            together([lambda c=client, o=outcomes: o.append(call(c)), close])
            assert outcomes[0] == "hello" or outcomes[0].reason == "closed", outcomes


# -- forks


@pytest.fixture
def forking() -> Iterator[tuple[Stage, Client]]:
    with playing("stdio", plan("modern")) as stage, connected(stage) as client:
        stage.clients *= 3  # its copies in children count as clients of their own: the same ids come again
        assert call(client, "before") == "before"
        yield stage, client


@needs_fork
@forks_with_threads
def test_a_child_starts_a_server_of_its_own(forking: tuple[Stage, Client]) -> None:
    stage, client = forking

    def child() -> Any:
        return [call(client, text) for text in ("one", "two")], started(stage)[-1]

    texts, pid = in_a_child(child)
    assert texts == ["one", "two"]
    assert stage.processes == 2
    assert call(client, "parent") == "parent"
    until(lambda: not alive(pid))
    assert alive(started(stage)[0])
    assert stage.processes == 2


@needs_fork
@forks_with_threads
def test_how_often_the_parent_started_it_does_not_count_in_the_child(forking: tuple[Stage, Client]) -> None:
    _, client = forking
    transport = client._session.connection.transport
    assert isinstance(transport, stdio.StdioTransport)
    transport._starts.extend([time.monotonic()] * stdio.STARTS)
    assert in_a_child(lambda: call(client, "child")) == "child"


@needs_fork
@forks_with_threads
def test_what_was_under_way_is_over_in_the_child_and_the_next_call_is_not() -> None:
    target = ("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"])
    with Client.connect(target, restart="on_call") as client:
        read, write = os.pipe()
        parent, pids = os.getpid(), []

        def fork_now(step: Any) -> None:
            if not pids and os.getpid() == parent:
                pids.append(os.fork())

        try:
            outcome = client.call_tool("count", {"steps": 3}, progress=fork_now, timeout=10.0)
        finally:
            if os.getpid() != parent:
                after = client.call_tool("add", {"a": 1, "b": 2})
                client.close()
                reason = outcome.reason if isinstance(outcome, McpError) else "answered"
                os.write(write, f"{reason} {after.ok}".encode())
                os._exit(0)
        assert isinstance(outcome, Ok)
        assert os.read(read, 100) == b"forked True"
        os.waitpid(pids[0], 0)
        os.close(read)
        os.close(write)
        assert client.call_tool("add", {"a": 1, "b": 2}).ok


@needs_fork
@forks_with_threads
def test_a_child_of_a_child(forking: tuple[Stage, Client]) -> None:
    stage, client = forking
    assert in_a_child(lambda: (call(client, "child"), in_a_child(lambda: call(client, "grandchild")))) == (
        "child",
        "grandchild",
    )
    assert call(client, "parent") == "parent"
    assert stage.processes == 3
