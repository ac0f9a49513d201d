"""Which era a stdio server is of, found out with real processes: what was sent to how many of them, and the verdict."""

from __future__ import annotations

import sys
from typing import Any

import jsonschema
import pytest

from snodo_client import Client, McpError, Ok
from support.eras import (
    CALL,
    HANDSHAKE,
    INITIALIZE,
    INITIALIZED,
    PROBE,
    SILENCE,
    answers,
    asks,
    assert_refused_pin,
    assert_speaks,
    discovered,
    handshake,
    judge,
    plan,
    playing,
    refuses,
    say,
    tells,
)
from support.faulty import AT_ONCE, assert_error
from support.http_calls import Took
from support.stdio_servers.eras import NEW, OLD
from support.waiting import until

LATER, OLDEST = OLD[0], OLD[-1]
PROBED = [PROBE, *HANDSHAKE, CALL]
BRIEF = 0.7  # seconds of the probe, where it has to run out; a process starts in twice that under any load


# -- every era of server with every wish


@pytest.mark.parametrize(
    ("era", "protocol", "version", "methods"),
    [
        ("modern", "auto", NEW, [PROBE, CALL]),
        ("legacy", "auto", LATER, PROBED),
        ("dual", "auto", NEW, [PROBE, CALL]),
        ("modern", NEW, NEW, [CALL]),
        ("dual", [NEW], NEW, [CALL]),
        ("modern", [NEW, LATER], NEW, [PROBE, CALL]),
        ("legacy", [OLDEST, NEW], OLDEST, PROBED),
        ("dual", OLD, LATER, [*HANDSHAKE, CALL]),
        ("dual", ["2025-03-26", "2025-06-18"], "2025-06-18", [*HANDSHAKE, CALL]),
        *[("legacy", version, version, [*HANDSHAKE, CALL]) for version in OLD],
        *[("dual", version, version, [*HANDSHAKE, CALL]) for version in OLD],
    ],
    ids=str,
)
def test_what_is_agreed_on(era: str, protocol: Any, version: str, methods: list[str]) -> None:
    with playing("stdio", {"era": era}) as stage, stage.connect(protocol=protocol) as client:
        info = assert_speaks(client, version)
        assert (stage.methods, stage.processes) == (methods, 1)
        asked = methods[0] if methods[0] != CALL else None
        pinned = isinstance(protocol, str) and protocol != "auto"
        assert (info["probed"], info["pinned"]) == (asked, pinned or protocol == [NEW])
        assert len(info["steps"]) == sum(method in (PROBE, INITIALIZE) for method in methods)
        assert info["preference"] == (protocol if isinstance(protocol, str) else list(protocol))
        assert info["why"]
        assert client.server_info == (None if asked is None else {"name": "eras", "version": "1"})


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("protocol", ["auto", OLD])
def test_a_server_that_is_older_than_what_was_proposed(version: str, protocol: Any) -> None:
    with playing("stdio", {"era": "legacy", "version": version}) as stage, stage.connect(protocol=protocol) as client:
        assert_speaks(client, version)
        proposed = next(entry for entry in stage.messages if entry["method"] == INITIALIZE)
        assert proposed["params"]["protocolVersion"] == LATER
        assert stage.processes == 1


@pytest.mark.parametrize("era", ["legacy", "dual"])
def test_a_pin_is_enforced_against_the_answer(era: str) -> None:
    with playing("stdio", {"era": era, "version": "2024-11-05"}) as stage:
        error = assert_error(
            stage.failed(protocol="2025-06-18"), "incompatible_versions", code=-32602, kind="protocol",
            requested=["2025-06-18"], supported=["2024-11-05"],
        )  # fmt: skip
        assert "2025-06-18" in error.message
        assert "2024-11-05" in error.message
        assert (stage.methods, stage.processes) == ([INITIALIZE], 1)


def test_a_pin_never_crosses_eras() -> None:
    with playing("stdio", {"era": "legacy"}) as stage, stage.connect(protocol=NEW) as client:
        assert stage.methods == []
        outcome = client.call_tool("ok")
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.reason) == (-32000, None)
        assert (stage.methods, stage.processes) == ([CALL], 1)
    with playing("stdio", {"era": "modern"}) as stage:
        assert_refused_pin(stage.failed(protocol=LATER), LATER, NEW)
        assert (stage.methods, stage.processes) == ([INITIALIZE], 1)


# -- signals


@pytest.mark.parametrize(
    "answer",
    [
        *[refuses(code) for code in (-32601, -32602, -32600, -32603, -32700, -32000, -32001, -32002, -32042, 0, 1)],
        refuses(-32602, data=""),
        refuses(-32600, id="server-error"),
        refuses(-32000, id=None),
        answers({**discovered(LATER, OLDEST), "resultType": "complete"}),
        refuses(-32022, {"supported": [LATER], "requested": NEW}),
    ],
    ids=str,
)
def test_a_legacy_signal(answer: Any) -> None:
    with playing("stdio", plan("legacy", discover=say(answer))) as stage:
        if answer["id"] == "server-error":
            # on a channel of many calls a foreign id says nothing
            assert_error(stage.failed(), "unexpected_id")
            return
        with stage.connect() as client:
            info = assert_speaks(client, LATER)
            assert (stage.methods, stage.processes) == (PROBED, 1)
            assert [step["sent"] for step in info["steps"]] == [f"{PROBE} ({NEW})", f"{INITIALIZE} ({LATER})"]
            code = answer.get("error", {}).get("code")
            assert (f"error {code}" if code is not None else LATER) in info["steps"][0]["received"]


def test_the_versions_of_a_server_decide_which_is_proposed() -> None:
    for answer in (answers(discovered("2025-06-18")), refuses(-32022, {"supported": ["2025-06-18"]})):
        with playing("stdio", plan("legacy", discover=say(answer))) as stage, stage.connect() as client:
            assert_speaks(client, "2025-06-18")
            assert stage.messages[1]["params"]["protocolVersion"] == "2025-06-18"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (answers({}), "invalid_result"),
        (answers(discovered(NEW, resultType="odd")), "unknown_result_type"),
        (answers([]), "malformed"),
        ({"jsonrpc": "2.0", "id": "$ID"}, "malformed"),
        ({"jsonrpc": "2.0", "id": "$ID", "error": []}, "malformed"),
        ({"jsonrpc": "2.0", "id": "$ID", "error": {"code": "x", "message": "y"}}, "malformed"),
        ({"id": "$ID", "error": {"code": -32601, "message": "no jsonrpc"}}, "malformed"),
        (answers(discovered("2099-01-01")), "incompatible_versions"),
        (refuses(-32022, {"supported": ["2099-01-01"]}), "incompatible_versions"),
        (refuses(-32022, "broken"), "incompatible_versions"),
        (refuses(-32022), "incompatible_versions"),
        (refuses(-32020), None),
        (refuses(-32021, {"requiredCapabilities": {}}), None),
    ],
    ids=str,
)
def test_what_is_no_legacy_signal(answer: Any, reason: str | None) -> None:
    with playing("stdio", plan("dual", discover=say(answer))) as stage, Took() as took:
        error = stage.failed()
        assert (error.reason, error.code) == (reason, error.code if reason else answer["error"]["code"])
        assert (stage.methods, stage.processes) == ([PROBE], 1)
    assert took.seconds < AT_ONCE


def test_a_version_that_is_refused_and_named_is_offered_once_more() -> None:
    refusal = say(refuses(-32022, {"supported": [NEW, LATER], "requested": NEW}))
    with playing("stdio", plan("dual", discover=[refusal, {}])) as stage, stage.connect() as client:
        assert_speaks(client, NEW)
        assert stage.methods == [PROBE, PROBE, CALL]
    with playing("stdio", plan("dual", discover=refusal)) as stage:
        assert_error(stage.failed(), "incompatible_versions", code=-32602, kind="protocol", supported=[NEW, LATER])
        assert stage.methods == [PROBE, PROBE]


# -- silence


def test_silence_is_of_an_older_server() -> None:
    with playing("stdio", plan("legacy", discover=SILENCE)) as stage:
        with Took() as took, stage.connect(probe_timeout=BRIEF) as client:
            info = assert_speaks(client, LATER)
        assert BRIEF <= took.seconds < BRIEF + 2
        assert (stage.methods, stage.processes) == (PROBED, 1)
        assert info["steps"][0]["received"] == "timeout"


@pytest.mark.parametrize("extra", [[], [answers(handshake(), id="$initialize")]], ids=["alone", "and both"])
def test_a_late_discovery_makes_it_modern(extra: list[Any]) -> None:
    late = say(answers(discovered(NEW), id=f"${PROBE}"), *extra)
    with (
        playing("stdio", plan("modern", discover=SILENCE, initialize=late), strict=not extra) as stage,
        stage.connect(probe_timeout=BRIEF) as client,
    ):
        if not extra:
            assert_speaks(client, NEW)
        assert client.protocol_info["version"] == NEW
        assert (stage.methods[:2], stage.processes) == ([PROBE, INITIALIZE], 1)
        assert INITIALIZED not in stage.methods


def test_a_refused_handshake_and_then_a_late_discovery() -> None:
    late = say(refuses(-32601), answers(discovered(NEW), id=f"${PROBE}"))
    with (
        playing("stdio", plan("modern", discover=SILENCE, initialize=late)) as stage,
        stage.connect(probe_timeout=BRIEF) as client,
    ):
        assert_speaks(client, NEW)
        assert (stage.methods, stage.processes) == ([PROBE, INITIALIZE, CALL], 1)


@pytest.mark.parametrize("error", [refuses(-32601, id=f"${PROBE}"), refuses(-32602, id=f"${PROBE}")], ids=str)
@pytest.mark.parametrize("handshake_first", [True, False])
def test_a_late_refusal_of_the_probe(error: Any, handshake_first: bool) -> None:
    both = [answers(handshake()), error] if handshake_first else [error, answers(handshake())]
    with (
        playing("stdio", plan("legacy", discover=SILENCE, initialize=say(*both))) as stage,
        stage.connect(probe_timeout=BRIEF) as client,
    ):
        assert_speaks(client, LATER)
        assert (stage.methods, stage.processes) == (PROBED, 1)


def test_a_late_refusal_of_the_version_that_names_older_ones() -> None:
    refusal = refuses(-32022, {"supported": [LATER]}, id=f"${PROBE}")
    late = say(refusal, answers(handshake()))
    with (
        playing("stdio", plan("legacy", discover=SILENCE, initialize=late)) as stage,
        stage.connect(probe_timeout=BRIEF) as client,
    ):
        assert_speaks(client, LATER)
        assert (stage.methods, stage.processes) == (PROBED, 1), "one handshake is enough"


def test_a_late_refusal_of_the_version_that_names_it() -> None:
    late = say(refuses(-32022, {"supported": [NEW]}, id=f"${PROBE}"))
    with (
        playing("stdio", plan("modern", discover=[SILENCE, {}], initialize=late)) as stage,
        stage.connect(probe_timeout=BRIEF) as client,
    ):
        assert_speaks(client, NEW)
        assert (stage.methods, stage.processes) == ([PROBE, INITIALIZE, PROBE, CALL], 1)


@pytest.mark.parametrize("code", [-32020, -32021])
def test_another_late_modern_error_is_the_servers(code: int) -> None:
    late = say(refuses(code, id=f"${PROBE}"))
    with playing("stdio", plan("modern", discover=SILENCE, initialize=late)) as stage:
        error = stage.failed(probe_timeout=BRIEF)
        assert (error.code, error.reason) == (code, None)
        assert (stage.methods, stage.processes) == ([PROBE, INITIALIZE], 1)


def test_after_silence_too_another_version_is_tried_when_the_handshake_names_it() -> None:
    refusal = say(refuses(-32602, {"supported": [OLDEST]}), refuses(-32601, id=f"${PROBE}"))
    with (
        playing("stdio", plan("legacy", discover=SILENCE, initialize=[refusal, {}]) | {"version": OLDEST}) as stage,
        stage.connect(probe_timeout=BRIEF) as client,
    ):
        assert_speaks(client, OLDEST)
        assert stage.methods == [PROBE, INITIALIZE, *HANDSHAKE, CALL]


def test_two_silences() -> None:
    with playing("stdio", plan("legacy", discover=SILENCE, initialize=SILENCE)) as stage:
        with Took() as took:
            error = stage.failed(probe_timeout=BRIEF)
        assert 2 * BRIEF <= took.seconds < 2 * BRIEF + 2
        assert_error(error, "timeout", code=-32001, timeout=BRIEF)
        assert (stage.methods, stage.processes) == ([PROBE, INITIALIZE], 1)


def test_a_silence_longer_than_the_callers_time_leaves_half_of_it() -> None:
    with playing("stdio", plan("legacy", discover=SILENCE)) as stage:
        with Took() as took, stage.connect(timeout=4, probe_timeout=10) as client:
            assert_speaks(client, LATER)
        assert 2 <= took.seconds < 4
        assert (stage.methods[:2], stage.processes) == ([PROBE, INITIALIZE], 1)


@pytest.mark.parametrize("probe_timeout", [0.3, 10])
def test_the_callers_time_is_over_before_the_probes(probe_timeout: float) -> None:
    """One limit over all of it: it is told what ran out, and nothing is said of the server."""
    with playing("stdio", plan("legacy", discover=SILENCE, initialize=SILENCE)) as stage:
        with Took() as took:
            error = stage.failed(timeout=0.5, probe_timeout=probe_timeout)
        assert 0.5 <= took.seconds < 2.5
        assert_error(error, "timeout", code=-32001, timeout=0.5)
        assert stage.processes == 1


@pytest.mark.parametrize(("era", "version"), [("modern", NEW), ("legacy", LATER), ("dual", NEW)])
def test_a_slow_start(era: str, version: str) -> None:
    """It reads both questions at once, and answers both, in order."""
    with playing("stdio", {"era": era, "behind": 2}) as stage, stage.connect(probe_timeout=BRIEF) as client:
        assert_speaks(client, version)
        initialized = [INITIALIZED] if era == "legacy" else []
        assert (stage.methods, stage.processes) == ([PROBE, INITIALIZE, *initialized, CALL], 1)


# -- ends


def test_a_server_that_ends_at_the_probe() -> None:
    dying = plan("legacy", discover=say(exit=1, stderr="Traceback: server/discover\n"))
    with playing("stdio", dying, {"era": "legacy"}) as stage, stage.connect() as client:
        info = assert_speaks(client, LATER)
        assert (stage.methods, stage.processes) == ([PROBE, *HANDSHAKE, CALL], 2)
        assert [entry["life"] for entry in stage.record] == [0, 1, 1, 1]
        assert info["steps"] == [
            {"sent": f"{PROBE} ({NEW})", "received": "exited"},
            {"sent": f"{INITIALIZE} ({LATER}) on a new link", "received": LATER},
        ]
        assert client.protocol_info["why"].startswith("it ended at server/discover")


@pytest.mark.parametrize("first", [SILENCE, say(refuses(-32602))], ids=["silent", "refused"])
def test_a_server_that_ends_at_the_next_message(first: Any) -> None:
    dying = plan("legacy", discover=first, initialize=say(exit=1))
    with playing("stdio", dying, {"era": "legacy"}) as stage, stage.connect(probe_timeout=BRIEF) as client:
        assert_speaks(client, LATER)
        assert (stage.methods, stage.processes) == ([PROBE, INITIALIZE, *HANDSHAKE, CALL], 2)
        assert [entry["life"] for entry in stage.record] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("first", [say(exit=1), SILENCE, say(refuses(-32602))], ids=["at once", "silent", "refused"])
def test_a_server_that_ends_twice(first: Any) -> None:
    dying = plan("legacy", discover=first, initialize=say(exit=1))
    again = plan("legacy", initialize=say(exit=3, stderr="no key given\n"))
    with playing("stdio", dying, again) as stage:
        with Took() as took:
            error = stage.failed(probe_timeout=BRIEF)
        assert_error(error, "exited", exit_code=3, stderr="no key given", signal=None)
        assert "exited twice" in error.message
        assert "code 3" in error.message
        assert "no key given" in error.message
        assert stage.methods.count(INITIALIZE) == (1 if "exit" in first else 2)
        assert (stage.methods.count(PROBE), stage.processes) == (1, 2)
        assert took.seconds < AT_ONCE + BRIEF


def test_a_second_process_that_says_nothing_has_the_time_that_is_left() -> None:
    dying = plan("legacy", discover=say(exit=1))
    with playing("stdio", dying, plan("legacy", initialize=SILENCE)) as stage:
        with Took() as took:
            error = stage.failed(timeout=1.0)
        assert 1.0 <= took.seconds < 3.0
        assert_error(error, "timeout", code=-32001, timeout=1.0)
        assert (stage.methods, stage.processes) == ([PROBE, INITIALIZE], 2)


def test_a_second_process_may_be_refused_too() -> None:
    dying = plan("legacy", discover=say(exit=1))
    with playing("stdio", dying, plan("legacy", initialize=say(refuses(-32603, message="broken")))) as stage:
        error = assert_error(stage.failed(), "incompatible_versions", code=-32602, kind="protocol")
        assert "broken" in error.message
        assert (stage.methods, stage.processes) == ([PROBE, INITIALIZE], 2)


@pytest.mark.parametrize("protocol", OLD)
def test_a_pinned_server_that_ends_is_not_started_again(protocol: str) -> None:
    with playing("stdio", plan("legacy", initialize=say(exit=4, stderr="bye\n"))) as stage:
        assert_error(stage.failed(protocol=protocol), "exited", exit_code=4, stderr="bye")
        assert (stage.methods, stage.processes) == ([INITIALIZE], 1)


def test_a_server_that_ends_before_it_reads() -> None:
    """Whether the probe was written by then is a race; that it is started more than twice is not."""
    with playing("stdio", {"exit": 5, "stderr": "no such file\n"}) as stage, Took() as took:
        assert_error(stage.failed(), "exited", exit_code=5, stderr="no such file")
        assert stage.processes <= 2
        assert stage.methods == []
    assert took.seconds < AT_ONCE


def test_a_server_that_cannot_be_started(tmp_path: Any) -> None:
    folder = tmp_path / "no-server"
    folder.mkdir()
    for command in (str(folder), str(tmp_path / "none"), "no-such-command-here"):
        with Took() as took, pytest.raises(McpError) as raised:
            Client.connect(("stdio", command))
        assert_error(raised.value.copy(), "exited", exit_code=None)
        assert took.seconds < AT_ONCE


def test_a_second_process_that_cannot_be_started(tmp_path: Any) -> None:
    program = tmp_path / "once"
    program.write_text(
        f"#!{sys.executable} -IS\nimport os, sys\nsys.stdin.readline()\nos.remove(sys.argv[0])\nsys.exit(2)\n"
    )
    program.chmod(0o700)
    with Took() as took, pytest.raises(McpError) as raised:
        Client.connect(("stdio", str(program)))
    error = assert_error(raised.value.copy(), "exited")
    assert "once" in error.message
    assert took.seconds < AT_ONCE


# -- the handshake


def test_a_refused_handshake_that_names_a_version_is_tried_again_with_it_once() -> None:
    refusal = say(refuses(-32602, {"supported": ["2025-06-18", "2024-11-05"], "requested": LATER}))
    with playing("stdio", plan("legacy", initialize=[refusal, {}]) | {"version": "2025-06-18"}) as stage:
        with stage.connect() as client:
            assert_speaks(client, "2025-06-18")
        assert stage.methods == [PROBE, INITIALIZE, *HANDSHAKE, CALL]
        assert stage.messages[2]["params"]["protocolVersion"] == "2025-06-18"
    with playing("stdio", plan("legacy", initialize=refusal)) as stage:
        error = stage.failed()
        assert_error(error, "incompatible_versions", code=-32602, kind="protocol")
        assert (stage.methods, stage.processes) == ([PROBE, INITIALIZE, INITIALIZE], 1)


def test_a_pinned_version_is_not_given_up_for_one_that_a_refusal_names() -> None:
    refusal = say(refuses(-32602, {"supported": ["2024-11-05"]}))
    with playing("stdio", plan("legacy", initialize=refusal)) as stage:
        assert_refused_pin(stage.failed(protocol=LATER), LATER, "2024-11-05")
        assert stage.methods == [INITIALIZE]


@pytest.mark.parametrize("probe", [{}, SILENCE], ids=["refused", "silent"])
def test_a_refused_handshake_that_names_versions_of_nobody_names_both_sides(probe: Any) -> None:
    refusal = say(refuses(-32602, {"supported": ["2027-01-01"]}, message="use 2027"), refuses(-32601, id=f"${PROBE}"))
    with playing("stdio", plan("legacy", discover=probe, initialize=refusal)) as stage:
        error = stage.failed(probe_timeout=BRIEF)
        assert_error(
            error,
            "incompatible_versions",
            code=-32602,
            kind="protocol",
            requested=[NEW, *OLD],
            supported=["2027-01-01"],
        )
        for text in ("use 2027", NEW, OLDEST, "-32602"):
            assert text in error.message
        assert (stage.methods, stage.processes) == ([PROBE, INITIALIZE], 1)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({}, "invalid_result"),
        ({"protocolVersion": LATER}, "invalid_result"),
        ({"capabilities": {}}, "invalid_result"),
        (handshake(LATER, capabilities=[]), "invalid_result"),
        (handshake(LATER, capabilities=None), "invalid_result"),
        (handshake(7), "invalid_result"),  # type: ignore[arg-type]
        (handshake(""), "incompatible_versions"),
        (handshake("2099-01-01"), "incompatible_versions"),
        (handshake(NEW), "incompatible_versions"),
        (handshake("x" * 5000), "incompatible_versions"),
    ],
    ids=lambda value: str(value)[:60],
)
@pytest.mark.parametrize("probe", [{}, SILENCE], ids=["refused", "silent"])
def test_a_handshake_that_cannot_be_used(probe: Any, result: Any, reason: str) -> None:
    with playing("stdio", plan("legacy", discover=probe, initialize=say(answers(result)))) as stage:
        error = stage.failed(probe_timeout=BRIEF)
        assert (error.reason, len(error.message) < 1000) == (reason, True)
        assert (stage.methods, stage.processes) == ([PROBE, INITIALIZE], 1)


@pytest.mark.parametrize("info", [None, [], "x", {"name": 5}])
def test_odd_server_info_does_not_matter(info: Any) -> None:
    odd = handshake(LATER, serverInfo=info, instructions=["no text"])
    with playing("stdio", plan("legacy", initialize=say(answers(odd)))) as stage, stage.connect() as client:
        assert_speaks(client, LATER)
        assert client.instructions is None
        assert client.server_info == (info if isinstance(info, dict) else None)


def test_a_handshake_that_is_not_answered_is_not_cancelled() -> None:
    with playing("stdio", plan("legacy", initialize=SILENCE)) as stage:
        with Took() as took:
            error = stage.failed(timeout=0.6)
        assert 0.6 <= took.seconds < 2.6
        assert_error(error, "timeout", code=-32001, timeout=0.6)
        assert stage.methods == [PROBE, INITIALIZE]


# -- what the server wants before it answers


EARLY = [
    asks("ping", 1),
    asks("roots/list", 0),
    asks("sampling/createMessage", "s", messages=[], maxTokens=5),
    tells("notifications/message", level="info", data="starting"),
    tells("notifications/tools/list_changed"),
    {"jsonrpc": "2.0", "method": "notifications/unheard-of"},
]


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("protocol", ["auto", LATER])
def test_a_server_may_ask_before_it_answers_the_handshake(declared: bool, protocol: str) -> None:
    """It gives no answer before it has its own: nobody may wait for the other."""
    step = {"initialize": say(*EARLY), "answer": [SILENCE, SILENCE, say(answers(handshake(), id="$initialize"))]}
    logged: list[Any] = []
    options: dict[str, Any] = {"handlers": {"roots": lambda params: {"roots": []}}} if declared else {}
    with playing("stdio", plan("legacy", **step)) as stage:
        with stage.connect(protocol=protocol, on_log=lambda *told: logged.append(told), **options) as client:
            assert_speaks(client, LATER)
            until(lambda: logged)
            replies = {message["id"]: message for message in stage.messages if "method" not in message}
        assert logged == [("info", "starting", None)]
        assert replies[1]["result"] == {}
        assert replies["s"]["error"]["code"] == -32601
        assert replies[0]["result"] == {"roots": []} if declared else replies[0]["error"]["code"] == -32601
        opening = [PROBE] if protocol == "auto" else []
        assert stage.methods == [*opening, INITIALIZE, "answer", "answer", "answer", INITIALIZED, CALL]


def test_chatter_before_the_probe_is_answered() -> None:
    chatter = [asks("ping", 0), tells("notifications/message", level="info", data="hi"), refuses(-32601)]
    with playing("stdio", plan("legacy", discover=say("Starting server...", "", *chatter))) as stage:
        with stage.connect() as client:
            assert_speaks(client, LATER)
        assert sorted(stage.methods) == sorted([*PROBED, "answer"])


def test_chatter_is_no_answer() -> None:
    """A server that only talks is silent all the same."""
    with (
        playing(
            "stdio", plan("legacy", discover=say(tells("notifications/message", level="info", data="hi")))
        ) as stage,
        stage.connect(probe_timeout=BRIEF) as client,
    ):
        assert isinstance(client.call_tool("ok"), Ok)
        assert (stage.methods, stage.processes) == (PROBED, 1)


# -- the judge of all the above


MODERN_META = {
    "_meta": {"io.modelcontextprotocol/protocolVersion": NEW, "io.modelcontextprotocol/clientCapabilities": {}}
}
GREETING = {"protocolVersion": LATER, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


@pytest.mark.parametrize(
    "said",
    [
        [(asks("ping", 1), ""), (asks("ping", 1), "")],
        [(asks("ping", "1"), "")],
        [(asks("ping", 1), LATER)],
        [(tells(INITIALIZED), "")],
        [(asks(INITIALIZE, 1, **GREETING), ""), (tells(INITIALIZED), LATER), (tells(INITIALIZED), LATER)],
        [(asks(INITIALIZE, 1, **GREETING), ""), (tells("notifications/cancelled", requestId=1), LATER)],
        [(asks(PROBE, 1, **MODERN_META), ""), (tells("notifications/cancelled", requestId=1), "")],
        [(asks(INITIALIZE, 1, **{**GREETING, "clientInfo": None}), "")],
        [(asks("tools/list", 1, **MODERN_META), LATER)],
        [(asks(INITIALIZE, 1, **GREETING, **MODERN_META), "")],
        [(asks(INITIALIZE, 1, **GREETING), ""), (tells(INITIALIZED), LATER), (asks("tools/call", 2), LATER)],
    ],
    ids=lambda said: f"{len(said)} {said[-1][0]['method']}",
)
def test_the_judge_sees_what_is_wrong(said: list[Any]) -> None:
    record = [{"message": message, "agreed": agreed, "ran": False} for message, agreed in said]
    with pytest.raises((AssertionError, jsonschema.ValidationError)):
        judge(record)
