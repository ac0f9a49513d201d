"""`remembered=`: a server whose era is known is not asked, and one that has changed is found out by its first refusal,
without anything running twice.
"""

from __future__ import annotations

import json
from threading import Lock
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from support.eras import (
    CALL,
    HANDSHAKE,
    INITIALIZE,
    KINDS,
    PROBE,
    SILENCE,
    answers,
    assert_refused_pin,
    assert_speaks,
    discovered,
    handshake,
    plan,
    playing,
    refuses,
    say,
)
from support.faulty import AT_ONCE, assert_error
from support.http_calls import Took
from support.stdio_servers.eras import NEW, OLD
from support.waiting import together

LATER, OLDEST = OLD[0], OLD[-1]
MODERN = {"version": NEW, "server_info": {"name": "eras", "version": "1"}, "server_capabilities": {"tools": {}}}
LEGACY = {"version": LATER}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def told(kind: str, era: str) -> Any:
    """What a first client learnt, after a time in a file."""
    with playing(kind, {"era": era}) as stage, stage.connect() as client:
        info = client.protocol_info
        written = json.dumps(info)
        assert json.loads(written) == info
        return json.loads(written)


# -- a memory that is right


@pytest.mark.parametrize("era", ["modern", "dual"])
def test_a_modern_server_costs_one_round_trip_in_all(kind: str, era: str) -> None:
    memory = told(kind, era)
    with playing(kind, {"era": era}) as stage, stage.connect(remembered=memory) as client:
        assert stage.methods == []
        assert client.protocol_info["status"] == "ready"
        assert client.server_info == {"name": "eras", "version": "1"}
        assert client.server_capabilities == memory["server_capabilities"]
        info = assert_speaks(client, NEW)
        assert stage.methods == [CALL]
        assert (info["why"], info["probed"], info["steps"], info["pinned"]) == ("remembered", None, [], False)
        assert client.protocol_info["server_versions"] == memory["server_versions"]
        if kind == "stdio":
            assert stage.processes == 1


def test_an_older_server_is_not_probed(kind: str) -> None:
    memory = told(kind, "legacy")
    with playing(kind, {"era": "legacy"}) as stage, stage.connect(remembered=memory) as client:
        info = assert_speaks(client, LATER)
        assert stage.methods == [*HANDSHAKE, CALL]
        assert info["why"].startswith("remembered")


def test_what_is_told_of_a_remembered_client_can_be_remembered_again(kind: str) -> None:
    memory = told(kind, "modern")
    for _ in range(2):
        with playing(kind, {"era": "modern"}) as stage, stage.connect(remembered=memory) as client:
            memory = json.loads(json.dumps(client.protocol_info))
            assert client.call_tool("ok").ok
            assert stage.methods == [CALL]


def test_another_older_version_than_remembered_is_no_trouble(kind: str) -> None:
    with playing(kind, {"era": "legacy", "version": OLDEST}) as stage, stage.connect(remembered=LEGACY) as client:
        assert_speaks(client, OLDEST)
        assert stage.methods == [*HANDSHAKE, CALL]


@pytest.mark.parametrize("code", [-32602, -32603, -32000, 7])
def test_once_it_was_right_an_error_is_only_an_error(kind: str, code: int) -> None:
    with (
        playing(kind, plan("modern", call=[{}, say(refuses(code))])) as stage,
        stage.connect(remembered=MODERN) as client,
    ):
        assert_speaks(client, NEW)
        outcome = client.call_tool("ok")
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.reason) == (code, None)
        assert stage.methods == [CALL, CALL]


# -- a memory that is wrong


def test_a_server_that_has_become_older(kind: str) -> None:
    with playing(kind, {"era": "legacy"}) as stage, stage.connect(remembered=MODERN) as client:
        info = assert_speaks(client, LATER)
        assert stage.methods == [CALL, PROBE, *HANDSHAKE, CALL]
        assert stage.runs == 1
        assert info["probed"] == PROBE
        if kind == "stdio":
            assert stage.processes == 1


@pytest.mark.parametrize(
    "refusal",
    [refuses(-32601), refuses(-32022, {"supported": [NEW]}), refuses(-32602), refuses(-32020), refuses(-32600)],
    ids=str,
)
@pytest.mark.parametrize("status", [200, 400])
def test_a_server_that_has_become_modern(kind: str, refusal: Any, status: int) -> None:
    refusing = plan("modern", initialize={"send": [refusal], "status": status})
    with playing(kind, refusing) as stage, stage.connect(remembered=LEGACY) as client:
        assert_speaks(client, NEW)
        assert stage.methods == [INITIALIZE, PROBE, CALL]
        assert stage.runs == 1
        if kind == "stdio":
            assert stage.processes == 1


@pytest.mark.parametrize("status", [400, 404, 405, 406])
def test_a_server_that_has_become_modern_and_refuses_by_status_alone(status: int) -> None:
    refusing = plan("modern", initialize={"status": status, "body": "no", "send": []})
    with playing("http", refusing) as stage, stage.connect(remembered=LEGACY) as client:
        assert_speaks(client, NEW)
        assert stage.methods == [INITIALIZE, PROBE, CALL]


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
@pytest.mark.parametrize("memory", [LEGACY, MODERN], ids=["legacy", "modern"])
def test_trouble_is_no_reason_to_ask_again(status: int, memory: Any) -> None:
    trouble = {"status": status, "body": "busy", "send": []}
    with playing("http", plan("dual", initialize=trouble, call=[trouble, {}])) as stage:
        if memory is LEGACY:
            assert stage.failed(remembered=memory).data["http_status"] == status
            assert stage.methods == [INITIALIZE]
            return
        with stage.connect(remembered=memory) as client:
            outcome = client.call_tool("ok")
            assert isinstance(outcome, McpError)
            assert outcome.data["http_status"] == status
            assert stage.methods == [CALL]
            assert_speaks(client, NEW)
            assert stage.methods == [CALL, CALL]


@pytest.mark.parametrize("code", [-32602, -32603, -32601, 7])
def test_an_error_of_a_modern_server_is_looked_into_once(kind: str, code: int) -> None:
    with (
        playing(kind, plan("modern", call=[say(refuses(code)), say(refuses(code)), {}])) as stage,
        stage.connect(remembered=MODERN) as client,
    ):
        for _ in range(2):
            outcome = client.call_tool("ok")
            assert isinstance(outcome, McpError)
            assert (outcome.code, outcome.reason) == (code, None)
        assert_speaks(client, NEW)
        assert stage.methods == [CALL, PROBE, CALL, CALL]


@pytest.mark.parametrize("status", [200, 400])
def test_a_version_that_is_refused_and_named_is_offered_once_more(kind: str, status: int) -> None:
    refusal = {"send": [refuses(-32022, {"supported": [NEW]})], "status": status}
    with playing(kind, plan("modern", call=[refusal, {}])) as stage, stage.connect(remembered=MODERN) as client:
        assert_speaks(client, NEW)
        assert stage.methods == [CALL, PROBE, CALL]


@pytest.mark.parametrize("status", [200, 400])
def test_a_version_that_is_refused_for_older_ones(kind: str, status: int) -> None:
    refusal = {"send": [refuses(-32022, {"supported": [LATER]})], "status": status}
    with (
        playing(kind, plan("legacy", call=[refusal, {}], discover=refusal)) as stage,
        stage.connect(remembered=MODERN) as client,
    ):
        assert_speaks(client, LATER)
        assert stage.methods == [CALL, PROBE, *HANDSHAKE, CALL]
        assert stage.runs == 1


def test_headers_that_are_missing_are_added_in_the_first_call_too() -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}
    listed = say(answers({"resultType": "complete", "tools": [{"name": "ok", "inputSchema": schema}]}))
    mismatch = {"send": [refuses(-32020)], "status": 400}
    steps = plan("modern", call=[mismatch, {}])
    steps["steps"]["tools/list"] = [listed]
    with playing("http", steps) as stage, stage.connect(remembered=MODERN) as client:
        assert_speaks(client, NEW)
        assert stage.methods == [CALL, "tools/list", CALL]


@pytest.mark.parametrize("code", [-32603, -32001, -32002, 7])
def test_what_may_have_run_is_not_sent_again(kind: str, code: int) -> None:
    """An error that may be of the tool: the caller gets it, and the next call knows the era."""
    with playing(kind, plan("legacy", call=[say(refuses(code)), {}])) as stage:
        with stage.connect(remembered=MODERN) as client:
            outcome = client.call_tool("ok")
            assert isinstance(outcome, McpError)
            assert (outcome.code, outcome.reason) == (code, None)
            assert stage.methods.count(CALL) == 1
            assert_speaks(client, LATER)
        assert [method for method in stage.methods if method != CALL] == [PROBE, *HANDSHAKE]
        assert stage.runs == 1


@pytest.mark.parametrize("memory", [MODERN, LEGACY], ids=["modern", "legacy"])
def test_many_threads_find_out_together(kind: str, memory: Any) -> None:
    """Every call runs once, and one of them negotiates."""
    era, version = ("legacy", LATER) if memory is MODERN else ("modern", NEW)
    outcomes: list[Any] = []
    lock = Lock()

    def connected() -> Client:
        with lock:
            if not stage.clients:
                stage.connect(remembered=memory, wait=False)
            return stage.clients[0]  # type: ignore[no-any-return]

    def call(number: int) -> None:
        outcomes.append((str(number), connected().call_tool("ok", {"text": str(number)})))

    with playing(kind, {"era": era}, strict=False) as stage:
        together([lambda number=number: call(number) for number in range(16)])  # type: ignore[misc]
        for text, outcome in outcomes:
            assert isinstance(outcome, Ok), outcome
            assert outcome.value["content"][0]["text"] == text
        assert stage.clients[0].protocol_info["version"] == version
        assert (len(outcomes), stage.runs) == (16, 16)
        assert stage.methods.count(PROBE) == 1
        assert stage.methods.count(INITIALIZE) == 1
        assert stage.methods.count(CALL) <= 32
        if kind == "stdio":
            assert stage.processes == 1


def test_a_memory_and_a_slow_answer_over_stdio() -> None:
    """It may be the silence of an older server: this call fails, the next one asks."""
    for era, version, rest in (("legacy", LATER, [PROBE, *HANDSHAKE, CALL]), ("dual", NEW, [PROBE, CALL])):
        with playing("stdio", plan(era, call=[SILENCE, {}])) as stage, stage.connect(remembered=MODERN) as client:
            with Took() as took:
                outcome = client.call_tool("ok", timeout=0.4)
            assert 0.4 <= took.seconds < 2.4
            assert_error(outcome, "timeout", code=-32001, timeout=0.4)
            assert_speaks(client, version)
            assert [method for method in stage.methods if method != "notifications/cancelled"] == [CALL, *rest]
            assert stage.processes == 1


def test_a_memory_and_a_server_that_ends_at_the_first_message() -> None:
    dying = plan("legacy", call=say(exit=3, stderr="what is this?\n"))
    with playing("stdio", dying, {"era": "legacy"}) as stage, stage.connect(remembered=MODERN) as client:
        with Took() as took:
            assert_error(client.call_tool("ok"), "exited", exit_code=3, stderr="what is this?")
        assert took.seconds < AT_ONCE
        assert stage.processes == 1
        assert_speaks(client, LATER)
        assert stage.methods == [CALL, PROBE, *HANDSHAKE, CALL]
        assert stage.processes == 2
    with playing("stdio", plan("legacy", initialize=say(exit=3))) as stage:
        assert_error(stage.failed(remembered=LEGACY), "exited", exit_code=3)
        assert stage.processes == 1


# -- what is no memory


@pytest.mark.parametrize(
    "memory",
    [
        None,
        {},
        {"version": None},
        {"version": "2099-01-01"},
        {"version": 5},
        {"version": [NEW]},
        {"era": "modern"},
        {"status": "failed", "version": None, "error": "it was down"},
        {1: 2, "steps": "none"},
    ],
    ids=str,
)
def test_garbage_is_no_memory(kind: str, memory: Any) -> None:
    with playing(kind, {"era": "modern"}) as stage, stage.connect(remembered=memory) as client:
        assert_speaks(client, NEW)
        assert stage.methods == [PROBE, CALL]


@pytest.mark.parametrize("odd", [5, "x", [], {"a": [1]}, None])
def test_garbage_beside_a_version_is_left_out(kind: str, odd: Any) -> None:
    names = ("server_info", "server_capabilities", "instructions", "server_versions", "steps", "why", "era", "pinned")
    with (
        playing(kind, {"era": "modern"}) as stage,
        stage.connect(remembered={"version": NEW, **dict.fromkeys(names, odd)}) as client,
    ):
        assert_speaks(client, NEW)
        json.dumps(client.protocol_info)
        assert stage.methods == [CALL]


@pytest.mark.parametrize("memory", [NEW, [NEW], 5, True, b"{}"])
def test_what_is_no_mapping_is_a_mistake(kind: str, memory: Any) -> None:
    with playing(kind, {"era": "modern"}) as stage:
        with pytest.raises(TypeError, match="remembered"):
            stage.connect(remembered=memory)
        assert stage.methods == []


@pytest.mark.parametrize(
    ("memory", "protocol", "era", "version", "methods"),
    [
        (MODERN, LATER, "dual", LATER, [*HANDSHAKE, CALL]),
        (MODERN, OLD, "legacy", LATER, [*HANDSHAKE, CALL]),
        (LEGACY, NEW, "dual", NEW, [CALL]),
        (LEGACY, [NEW, OLDEST], "dual", NEW, [PROBE, CALL]),
    ],
)
def test_a_memory_that_the_protocol_option_rules_out(
    kind: str, memory: Any, protocol: Any, era: str, version: str, methods: list[str]
) -> None:
    with playing(kind, {"era": era}) as stage, stage.connect(remembered=memory, protocol=protocol) as client:
        assert_speaks(client, version)
        assert stage.methods == methods


def test_a_pin_never_crosses_eras_for_a_memory_either(kind: str) -> None:
    with playing(kind, {"era": "legacy"}) as stage:
        with stage.connect(remembered=MODERN, protocol=NEW) as client:
            outcome = client.call_tool("ok")
            assert isinstance(outcome, McpError)
            assert (outcome.code, outcome.reason) == (-32000, None)
        assert stage.methods == [CALL]
    with playing(kind, {"era": "modern"}) as stage:
        assert_refused_pin(stage.failed(remembered=LEGACY, protocol=LATER), LATER, NEW)
        assert stage.methods == [INITIALIZE]


def test_a_session_that_is_lost_is_begun_again_without_a_probe() -> None:
    lost = {"status": 404, "body": "", "send": []}
    with playing("http", plan("legacy", call=[{}, lost, {}])) as stage, stage.connect() as client:
        assert_speaks(client, LATER)
        assert_speaks(client, LATER, "again")
        assert stage.methods == [PROBE, *HANDSHAKE, CALL, CALL, *HANDSHAKE, CALL]
        assert stage.runs == 2


def test_the_answers_of_both_kinds_of_helper_are_what_a_memory_is_made_of() -> None:
    """A plan that answers by hand is remembered like any other."""
    by_hand = plan("dual", discover=say(answers(discovered(NEW, instructions="be kind"))))
    with playing("stdio", by_hand) as stage, stage.connect() as client:
        memory = client.protocol_info
    with playing("stdio", {"era": "dual"}) as stage, stage.connect(remembered=memory) as client:
        assert client.instructions == "be kind"
    by_hand = plan("legacy", initialize=say(answers(handshake(instructions="be kinder"))))
    with playing("stdio", by_hand) as stage, stage.connect(remembered=LEGACY) as client:
        assert client.instructions == "be kinder"
