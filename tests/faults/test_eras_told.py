"""What a program is told of the version it got, and why: the same in `protocol_info` and in one line of the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from snodo_client import Client, Ok
from support.eras import (
    INITIALIZE,
    KINDS,
    PROBE,
    SILENCE,
    Plan,
    assert_speaks,
    discovered,
    handshake,
    plan,
    playing,
    refuses,
    say,
)
from support.stdio_servers.eras import NEW, OLD

LATER, OLDEST = OLD[0], OLD[-1]
LEGACY: Plan = {"era": "legacy"}
MODERN: Plan = {"era": "modern"}


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "snodo_client")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says at INFO of the versions that were agreed on."""
    return [
        record.getMessage()
        for record in caplog.records
        if (record.name, record.levelno) == ("snodo_client.session", logging.INFO)
    ]


def assert_tells(line: str, client: Client, sent: list[str]) -> None:
    """The line has all that `protocol_info` has: what was sent, what came back, the version and why."""
    info = client.protocol_info
    assert [step["sent"] for step in info["steps"]] == sent
    for step in info["steps"]:
        assert f"{step['sent']}: {step['received']}" in line
    assert f" {info['version']} " in line
    assert info["why"] in line
    assert client._session.name in line
    assert "\n" not in line


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("script", "options", "version", "sent"),
    [
        (MODERN, {}, NEW, [f"{PROBE} ({NEW})"]),
        (MODERN, {"protocol": NEW}, NEW, []),
        (LEGACY, {}, LATER, [f"{PROBE} ({NEW})", f"{INITIALIZE} ({LATER})"]),
        (LEGACY, {"protocol": OLDEST}, OLDEST, [f"{INITIALIZE} ({OLDEST})"]),
        (LEGACY, {"remembered": {"version": LATER}}, LATER, [f"{INITIALIZE} ({LATER})"]),
        (MODERN, {"remembered": {"version": NEW}}, NEW, []),
        (
            plan("legacy", initialize=[say(refuses(-32602, {"supported": [OLDEST]})), {}]) | {"version": OLDEST},
            {},
            OLDEST,
            [f"{PROBE} ({NEW})", f"{INITIALIZE} ({LATER})", f"{INITIALIZE} ({OLDEST})"],
        ),
    ],
    ids=["modern", "modern pin", "legacy", "legacy pin", "remembered legacy", "remembered modern", "proposed again"],
)
@pytest.mark.parametrize("wait", [True, False])
def test_one_line_tells_what_was_agreed_on(
    kind: str,
    script: Plan,
    options: dict[str, Any],
    version: str,
    sent: list[str],
    wait: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with playing(kind, script) as stage, stage.connect(wait=wait, **options) as client:
        assert isinstance(client.await_ready(), Ok)
        (line,) = lines(caplog)
        assert_tells(line, client, sent)
        assert_speaks(client, version)
        assert lines(caplog) == [line]


def test_a_silent_probe_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    with playing("stdio", plan("legacy", discover=SILENCE)) as stage, stage.connect(probe_timeout=0.3) as client:
        (line,) = lines(caplog)
        assert_tells(line, client, [f"{PROBE} ({NEW})", f"{INITIALIZE} ({LATER})"])
        assert f"{PROBE} ({NEW}): timeout" in line


def test_another_process_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with playing("stdio", plan("legacy", discover=say(exit=3)), LEGACY) as stage, stage.connect() as client:
        assert stage.processes == 2
        (line,) = lines(caplog)
        assert_tells(line, client, [f"{PROBE} ({NEW})", f"{INITIALIZE} ({LATER}) on a new link"])
        assert f"{PROBE} ({NEW}): exited" in line


@pytest.mark.parametrize("kind", KINDS)
def test_a_memory_that_was_wrong_is_told_as_another_agreement(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    with playing(kind, LEGACY, strict=False) as stage, stage.connect(remembered={"version": NEW}) as client:
        assert_speaks(client, LATER)
        first, second = lines(caplog)
        assert "remembered" in first
        assert_tells(second, client, [f"{PROBE} ({NEW})", f"{INITIALIZE} ({LATER})"])


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_server_says_of_itself_is_not_in_the_line(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    lie = {"name": "a\nline of its own", "version": "1"}
    text = say({"jsonrpc": "2.0", "id": "$ID", "result": handshake(serverInfo=lie, instructions="do\nas I say")})
    probe = say(refuses(-32601, message="no\nnever"))
    with playing(kind, plan("legacy", discover=probe, initialize=text)) as stage, stage.connect():
        (line,) = lines(caplog)
        for said in ("line of its own", "as I say", "never", "\n"):
            assert said not in line
    odd = say({"jsonrpc": "2.0", "id": "$ID", "result": discovered("x" * 1000, NEW)})
    with playing(kind, plan("modern", discover=odd)) as stage, stage.connect():
        assert len(lines(caplog)[-1]) < 500
