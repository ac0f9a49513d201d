"""Negotiation, branch by branch, as a generator fed with answers: what is asked, and which verdict follows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client import InputRequired, McpError, Ok
from snodo_client.outcome import local_error
from snodo_client.protocol import agreement, versions
from snodo_client.protocol.agreement import Agreement
from snodo_client.protocol.negotiation import Answer, Negotiation, Step
from snodo_client.protocol.requests import Identity

NEW, OLD, OLDEST = "2026-07-28", "2025-11-25", "2024-11-05"
IDENTITY = Identity({"name": "test", "version": "1"}, {"roots": {}}, {"roots": {"listChanged": True}})
SILENCE = local_error("timeout", data={"timeout": 10.0})
REFUSED = McpError(-32601, "no such method")


class Ended:
    """The link is gone after the request was sent."""

    def __init__(self, reason: str = "exited") -> None:
        self.outcome = local_error(reason, "it is gone", data={"exit_code": 3, "stderr": "dying"})


class To:
    """An answer to the earlier of two open questions."""

    def __init__(self, method: str, outcome: Any) -> None:
        self.method = method
        self.outcome = outcome


def negotiate(
    *answers: Any,
    allowed: Any = versions.KNOWN,
    eras: Any = ("modern", "legacy"),
    silent: bool = True,
    before: bool = False,
    remembered: Any = None,
) -> tuple[Any, list[str]]:
    """The verdict after these answers, and what was asked: method, version, and where if not on the link there is."""
    talk = Negotiation(allowed, eras, IDENTITY, "x", silence_is_legacy=silent, has_before=before, remembered=remembered)
    steps, asked, rest, method = talk.run(), list[str](), iter(answers), ""
    try:
        step: Step = next(steps)
        while True:
            if step.request is None:
                asked.append("wait")
            else:
                method = step.request.method
                version = step.request.params.get("protocolVersion", step.request.version)
                where = step.where if step.where != "same" else "beside" if step.beside else ""
                asked.append(f"{method} {version} {where}".strip())
                assert step.brief == (method == "server/discover" or step.beside)
            answer = next(rest)
            if isinstance(answer, Ended):
                step = steps.send(Answer(method, answer.outcome, ended=True))
            elif isinstance(answer, To):
                step = steps.send(Answer(answer.method, answer.outcome))
            else:
                step = steps.send(Answer(method, answer))
    except StopIteration as end:
        assert list(rest) == []
        return end.value, asked


def discovered(*supported: Any, **members: Any) -> Ok[dict[str, Any]]:
    return Ok({"supportedVersions": list(supported), **members})


def initialized(version: Any = OLD, **members: Any) -> Ok[dict[str, Any]]:
    info = {"name": "old", "version": "0.1"}
    return Ok({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info, **members})


def refusal(*supported: Any) -> McpError:
    return McpError(-32022, "unsupported", data={"supported": list(supported), "requested": NEW})


def http(status: int) -> McpError:
    return local_error("http_status", f"x answered {status}", data={"http_status": status, "excerpt": ""})


def refused_over_http(status: int, code: int = -32000) -> McpError:
    return McpError(code, "Bad Request", cause=("http_status", status))


def legacy(verdict: Any, version: str = OLD) -> Agreement:
    assert isinstance(verdict, Agreement), verdict
    assert (verdict.era, verdict.version) == ("legacy", version)
    assert verdict.server_info == {"name": "old", "version": "0.1"}
    assert verdict.capabilities == {"tools": {}}
    return verdict


DISCOVER, INITIALIZE = f"server/discover {NEW}", f"initialize {OLD}"


# -- pins


def test_a_modern_pin_asks_nothing() -> None:
    for allowed in ((NEW,), versions.allowed([NEW])):
        agreement, asked = negotiate(allowed=allowed)
        assert asked == []
        assert isinstance(agreement, Agreement)
        assert (agreement.version, agreement.era, agreement.pinned, agreement.probed) == (NEW, "modern", True, None)
        assert (agreement.server_info, agreement.capabilities, agreement.instructions) == (None, None, None)


@pytest.mark.parametrize("allowed", [(OLD,), versions.LEGACY])
def test_what_no_era_of_the_transport_has_is_refused_without_asking(allowed: tuple[str, ...]) -> None:
    error, asked = negotiate(allowed=allowed, eras=("modern",))
    assert asked == []
    assert (error.reason, error.code, error.data["requested"]) == ("incompatible_versions", -32602, list(allowed))


@pytest.mark.parametrize("version", versions.LEGACY)
def test_a_legacy_pin_never_probes_and_is_enforced(version: str) -> None:
    agreement, asked = negotiate(initialized(version), allowed=(version,))
    assert legacy(agreement, version).probed == "initialize"
    assert agreement.pinned
    assert asked == [f"initialize {version}"]
    for other in (*set(versions.KNOWN) - {version}, "2099-01-01"):
        error, asked = negotiate(initialized(other), allowed=(version,))
        assert (error.reason, len(asked)) == ("incompatible_versions", 1)
        assert (error.data["requested"], error.data["supported"]) == ([version], [other])
        assert other in error.message


def test_a_modern_pin_never_falls_back() -> None:
    assert negotiate(allowed=(NEW,), silent=True)[1] == []


def test_some_older_versions_may_be_allowed() -> None:
    agreement, asked = negotiate(initialized("2025-03-26"), allowed=("2025-06-18", "2025-03-26"))
    assert legacy(agreement, "2025-03-26")
    assert asked == ["initialize 2025-06-18"]
    error, _ = negotiate(initialized(OLD), allowed=("2025-06-18", "2025-03-26"))
    assert error.reason == "incompatible_versions"


def test_a_legacy_transport_is_never_probed() -> None:
    agreement, asked = negotiate(initialized(OLDEST), eras=("legacy",))
    assert legacy(agreement, OLDEST).why.startswith("this connection carries nothing newer")
    assert (agreement.pinned, asked) == (False, [INITIALIZE])


@pytest.mark.parametrize("version", versions.LEGACY)
def test_any_older_version_is_taken(version: str) -> None:
    agreement, asked = negotiate(REFUSED, initialized(version))
    assert legacy(agreement, version).why.startswith("server/discover was answered by error -32601")
    assert asked == [DISCOVER, INITIALIZE]
    assert agreement.steps == [
        {"sent": f"server/discover ({NEW})", "received": "error -32601"},
        {"sent": f"initialize ({OLD})", "received": version},
    ]


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"protocolVersion": OLD},
        {"protocolVersion": 5, "capabilities": {}},
        {"protocolVersion": OLD, "capabilities": []},
    ],
)
def test_a_malformed_handshake_is_an_error(result: Any) -> None:
    error, asked = negotiate(REFUSED, Ok(result))
    assert (error.reason, len(asked)) == ("invalid_result", 2)
    assert negotiate(REFUSED, InputRequired({}))[0].reason == "invalid_result"


@pytest.mark.parametrize("version", [NEW, "2099-01-01", "", "x" * 1000])
def test_a_handshake_for_a_version_of_nobody_names_both_sides(version: str) -> None:
    error, _ = negotiate(REFUSED, initialized(version))
    assert error.reason == "incompatible_versions"
    assert error.data["requested"] == list(versions.KNOWN)
    assert error.data["supported"] == [version[:32]]


def test_a_version_named_in_the_refusal_of_the_handshake_is_tried() -> None:
    named = McpError(-32602, "Unsupported protocol version", data={"supported": ["2024-11-05"], "requested": OLD})
    agreement, asked = negotiate(REFUSED, named, initialized(OLDEST))
    assert legacy(agreement, OLDEST)
    assert asked == [DISCOVER, INITIALIZE, f"initialize {OLDEST}"]
    error, asked = negotiate(REFUSED, named, named)
    assert (error.reason, len(asked)) == ("incompatible_versions", 3)
    assert error.data["supported"] == ["2024-11-05"]


def test_a_refused_handshake_keeps_what_the_server_said() -> None:
    error, _ = negotiate(REFUSED, McpError(-32001, "only 2027 here", data={"supported": ["2027-01-01"]}))
    assert error.reason == "incompatible_versions"
    assert "only 2027 here" in error.message
    assert error.data["supported"] == ["2027-01-01"]
    assert error.cause.code == -32001


def test_a_network_failure_in_the_handshake_is_that() -> None:
    for reason in ("unreachable", "tls", "malformed", "timeout", "unauthorized"):
        assert negotiate(REFUSED, local_error(reason))[0].reason == reason
    assert negotiate(REFUSED, http(503))[0].reason in ("incompatible_versions", "http_status")


# -- discovery


def test_discovery_decides() -> None:
    agreement, asked = negotiate(
        discovered(
            OLD,
            NEW,
            capabilities={"tools": {}},
            instructions="be kind",
            _meta={"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}},
        )
    )
    assert asked == [DISCOVER]
    assert agreement.server_versions == [OLD, NEW]
    assert (agreement.version, agreement.pinned, agreement.probed) == (NEW, False, "server/discover")
    assert agreement.server_info == {"name": "s", "version": "1"}
    assert agreement.capabilities == {"tools": {}}
    assert agreement.instructions == "be kind"
    assert "server/discover" in agreement.why


@pytest.mark.parametrize(
    "members",
    [
        {"capabilities": [], "instructions": 5, "_meta": {"io.modelcontextprotocol/serverInfo": "x"}},
        {"capabilities": None, "instructions": None, "_meta": 5},
        {"serverInfo": []},
    ],
)
def test_malformed_extras_are_left_out(members: dict[str, Any]) -> None:
    agreement, _ = negotiate(discovered(NEW, **members))
    assert isinstance(agreement, Agreement)
    assert (agreement.server_info, agreement.capabilities, agreement.instructions) == (None, None, None)


@pytest.mark.parametrize("supported", [None, "2026-07-28", {}, 5, [NEW, 5], [None], [[NEW]], [True]])
def test_a_discovery_without_a_list_of_versions_is_an_error(supported: object) -> None:
    error, asked = negotiate(Ok({"supportedVersions": supported}))
    assert (error.reason, len(asked)) == ("invalid_result", 1)
    assert negotiate(Ok({}))[0].reason == "invalid_result"


@pytest.mark.parametrize("supported", [[], ["2099-01-01"], ["x" * 1000] * 1000])
def test_a_discovery_without_a_version_of_ours_is_incompatible(supported: list[str]) -> None:
    error, _ = negotiate(discovered(*supported))
    assert error.reason == "incompatible_versions"
    assert error.data["requested"] == list(versions.KNOWN)
    assert error.data["supported"] == [version[:32] for version in supported][:16]
    assert len(error.message) < 2000


def test_a_discovery_of_older_versions_only_leads_to_the_handshake() -> None:
    agreement, asked = negotiate(discovered("2025-06-18", OLDEST), initialized("2025-06-18"))
    assert legacy(agreement, "2025-06-18")
    assert asked == [DISCOVER, "initialize 2025-06-18"]


def test_being_asked_for_input_is_an_error() -> None:
    error, _ = negotiate(InputRequired({"requestState": "s3cret"}))
    assert error.reason == "invalid_result"
    assert "s3cret" not in f"{error}{error.data}"


# -- refused versions


def test_a_refused_version_that_is_listed_is_tried_once_more() -> None:
    agreement, asked = negotiate(refusal(NEW), discovered(NEW))
    assert isinstance(agreement, Agreement)
    assert asked == [DISCOVER, DISCOVER]


def test_a_server_that_always_refuses_is_asked_twice() -> None:
    error, asked = negotiate(refusal(NEW, OLD), refusal(NEW, OLD))
    assert asked == [DISCOVER, DISCOVER]
    assert (error.reason, error.data["supported"]) == ("incompatible_versions", [NEW, OLD])


@pytest.mark.parametrize(
    ("data", "supported"),
    [
        ({"supported": ["2099-01-01"]}, ["2099-01-01"]),
        ({"supported": []}, []),
        ({"supported": [5, None]}, []),
        ({"supported": NEW}, None),
        ({}, None),
        (None, None),
        ([NEW], None),
        ("x", None),
    ],
)
def test_a_refusal_without_a_version_of_ours_is_incompatible(data: object, supported: object) -> None:
    error, asked = negotiate(McpError(-32022, "no", data=data))
    assert (error.reason, len(asked)) == ("incompatible_versions", 1)
    assert error.data["supported"] == supported


# -- errors


@pytest.mark.parametrize("code", [-32020, -32021])
def test_the_other_modern_errors_are_kept(code: int) -> None:
    answer = McpError(code, "x", data={"requiredCapabilities": {}})
    verdict, asked = negotiate(answer)
    assert verdict is answer
    assert len(asked) == 1


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32603, -32700, -32000, -32001, -32002, -32023, 0, 1])
def test_any_other_error_speaks_for_an_older_server(code: int) -> None:
    answer = McpError(code, "what?" * 1000)
    agreement, asked = negotiate(answer, initialized())
    assert legacy(agreement)
    assert asked == [DISCOVER, INITIALIZE]
    error, _ = negotiate(answer, answer)
    assert error.reason == "incompatible_versions"
    assert str(code) in error.message
    assert len(error.message) < 1000


def test_a_transport_of_the_modern_era_alone_cannot_fall_back() -> None:
    error, asked = negotiate(REFUSED, eras=("modern",))
    assert (error.reason, asked) == ("incompatible_versions", [DISCOVER])
    error, asked = negotiate(SILENCE, eras=("modern",))
    assert (error.reason, asked) == ("timeout", [DISCOVER])


def test_older_versions_named_in_a_refusal_lead_to_the_handshake() -> None:
    agreement, asked = negotiate(refusal(OLDEST, "2025-03-26"), initialized("2025-03-26"))
    assert legacy(agreement, "2025-03-26")
    assert asked == [DISCOVER, "initialize 2025-03-26"]


@pytest.mark.parametrize("status", [400, 404, 405, 406, 415, 422])
def test_a_refusal_over_http_speaks_for_an_older_server(status: int) -> None:
    for answer in (http(status), refused_over_http(status), refused_over_http(status, -32601)):
        agreement, asked = negotiate(answer, initialized(), silent=False)
        assert legacy(agreement)
        assert asked == [DISCOVER, INITIALIZE]
        error, _ = negotiate(answer, answer, silent=False)
        assert error.reason == "incompatible_versions"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 302, 204])
def test_trouble_over_http_does_not(status: int) -> None:
    answer = http(status)
    assert negotiate(answer, silent=False)[0] is answer


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_an_error_of_the_server_with_such_a_status_does_not(status: int) -> None:
    answer = refused_over_http(status)
    assert negotiate(answer, silent=False)[0] is answer


@pytest.mark.parametrize(
    "reason",
    ["closed", "exited", "unreachable", "tls", "malformed", "too_large", "unexpected_id", "unauthorized",
     "unknown_result_type", "invalid_result", "cross_origin_redirect", "transport_failure",
     "handler_failure"],
)  # fmt: skip
def test_failures_never_downgrade(reason: str) -> None:
    answer = local_error(reason)
    assert negotiate(answer) == (answer, [DISCOVER])


@pytest.mark.parametrize("reason", ["http_status", "timeout"])
@pytest.mark.parametrize("data", [None, {}])
def test_details_a_transport_left_out_are_no_crash(reason: str, data: Any) -> None:
    answer = McpError(-32000, "x", reason=reason, data=data)
    assert isinstance(negotiate(answer, answer)[0] if reason == "timeout" else negotiate(answer)[0], McpError)


def unauthorized(**data: Any) -> McpError:
    return local_error("unauthorized", data={"http_status": 401, **data})


def test_where_a_credential_was_sent_the_handshake_decides() -> None:
    agreement, asked = negotiate(unauthorized(credential=True), initialized(), silent=False)
    assert legacy(agreement)
    assert asked == [DISCOVER, INITIALIZE]
    again = unauthorized(credential=True)
    assert negotiate(unauthorized(credential=True), again, silent=False)[0] is again
    for answer in (unauthorized(), unauthorized(credential=True, challenge='Bearer error="insufficient_scope"')):
        assert negotiate(answer, silent=False) == (answer, [DISCOVER])


# -- silence


def test_silence_opens_the_second_question_where_it_may() -> None:
    assert negotiate(SILENCE, silent=False) == (SILENCE, [DISCOVER])
    agreement, asked = negotiate(SILENCE, initialized())
    assert legacy(agreement).why.startswith("server/discover was not answered")
    assert asked == [DISCOVER, INITIALIZE + " beside"]


def test_two_silences_are_a_timeout() -> None:
    error, asked = negotiate(SILENCE, SILENCE)
    assert (error.reason, asked) == ("timeout", [DISCOVER, INITIALIZE + " beside"])
    assert "server/discover was not answered, and" in error.message


@pytest.mark.parametrize("code", [-32022, -32602])
def test_a_pin_that_is_refused_with_other_versions_names_both_sides(code: int) -> None:
    answer = McpError(code, "not that one", data={"supported": [NEW, OLDEST], "requested": OLD})
    error, asked = negotiate(answer, allowed=(OLD,))
    assert (error.reason, asked) == ("incompatible_versions", [INITIALIZE])
    assert (error.data["requested"], error.data["supported"]) == ([OLD], [NEW, OLDEST])
    assert all(text in error.message for text in (OLD, NEW, OLDEST, "not that one"))
    assert error.cause is answer
    bare = McpError(-32600, "no")
    assert negotiate(bare, allowed=(OLD,))[0] is bare


def test_a_late_discovery_counts() -> None:
    agreement, asked = negotiate(SILENCE, To("server/discover", discovered(NEW)))
    assert (agreement.version, agreement.era) == (NEW, "modern")
    assert agreement.steps[0]["received"] == NEW
    assert asked == [DISCOVER, INITIALIZE + " beside"]
    agreement, asked = negotiate(SILENCE, McpError(-32601, "no"), To("server/discover", discovered(NEW)))
    assert agreement.version == NEW
    assert asked[2:] == ["wait"]


def test_a_late_refusal_lets_the_handshake_decide() -> None:
    agreement, asked = negotiate(SILENCE, To("server/discover", REFUSED), initialized())
    assert legacy(agreement)
    assert asked == [DISCOVER, INITIALIZE + " beside", "wait"]
    error, _ = negotiate(SILENCE, To("server/discover", REFUSED), McpError(-32600, "nor that"))
    assert error.reason == "incompatible_versions"
    assert "nor that" in error.message


def test_late_modern_errors_decide() -> None:
    error, _ = negotiate(SILENCE, To("server/discover", refusal("2099-01-01")))
    assert error.reason == "incompatible_versions"
    verdict, _ = negotiate(SILENCE, To("server/discover", refusal(OLDEST)), initialized(OLDEST))
    assert legacy(verdict, OLDEST)
    missing = McpError(-32021, "x")
    assert negotiate(SILENCE, To("server/discover", missing))[0] is missing
    broken = local_error("malformed")
    assert negotiate(SILENCE, broken)[0] is broken


def test_a_handshake_refused_before_two_silences_is_told() -> None:
    error, asked = negotiate(SILENCE, McpError(-32600, "not this"), SILENCE)
    assert error.reason == "incompatible_versions"
    assert "not this" in error.message
    assert len(asked) == 3


# -- servers that end


def test_a_server_that_ends_at_the_probe_is_started_once_more() -> None:
    agreement, asked = negotiate(Ended(), initialized())
    assert legacy(agreement).why.startswith("it ended at server/discover")
    assert asked == [DISCOVER, INITIALIZE + " fresh"]
    assert agreement.steps[0]["received"] == "exited"


@pytest.mark.parametrize("first", [(SILENCE,), (REFUSED,)])
def test_a_server_that_ends_at_the_next_message_is_started_once_more(first: Any) -> None:
    agreement, asked = negotiate(*first, Ended(), initialized())
    assert legacy(agreement)
    assert asked[-1] == INITIALIZE + " fresh"


@pytest.mark.parametrize("first", [(), (SILENCE,), (REFUSED,)])
def test_a_server_that_ends_twice_is_not_started_again(first: Any) -> None:
    error, asked = negotiate(*first, Ended(), Ended())
    assert (error.reason, error.data["exit_code"], error.data["stderr"]) == ("exited", 3, "dying")
    assert "exited twice" in error.message
    assert sum("fresh" in step for step in asked) == 1


def test_a_pinned_server_that_ends_is_not_started_again() -> None:
    error, asked = negotiate(Ended(), allowed=(OLD,))
    assert (error.reason, asked) == ("exited", [INITIALIZE])


def test_an_end_says_nothing_where_silence_does_not() -> None:
    end = Ended("closed")
    assert negotiate(end, silent=False) == (end.outcome, [DISCOVER])


# -- the older transport


@pytest.mark.parametrize("status", [400, 404, 405])
def test_http_falls_back_on_the_older_transport_last(status: int) -> None:
    for second in (http(status), refused_over_http(status)):
        agreement, asked = negotiate(http(404), second, initialized(OLDEST), silent=False, before=True)
        assert legacy(agreement, OLDEST)
        assert "HTTP+SSE" in agreement.why
        assert asked == [DISCOVER, INITIALIZE, INITIALIZE + " before"]


@pytest.mark.parametrize(
    "second",
    [http(403), http(406), http(500), http(429), refused_over_http(404, -32022), refused_over_http(400, -32020),
     local_error("malformed"), local_error("unreachable"), local_error("timeout"), McpError(-32600, "with 200")],
    ids=str,
)  # fmt: skip
def test_only_such_a_refusal_does(second: McpError) -> None:
    _, asked = negotiate(http(404), second, silent=False, before=True)
    assert asked == [DISCOVER, INITIALIZE]


def test_a_pin_never_falls_back_on_it() -> None:
    error, asked = negotiate(http(405), allowed=(OLD,), silent=False, before=True)
    assert (error.reason, asked) == ("http_status", [INITIALIZE])


def test_when_that_fails_too_both_are_told() -> None:
    error, _ = negotiate(http(404), http(405), http(404), silent=False, before=True)
    assert error.reason == "incompatible_versions"
    assert "405" in error.message
    assert "HTTP+SSE" in error.message


# -- memory


def remembered(version: str) -> Agreement:
    told = agreement.remembered(
        {"version": version, "server_info": {"name": "s"}, "server_capabilities": {"tools": {}}}
    )
    assert told is not None
    return told


def test_a_remembered_modern_server_is_not_asked() -> None:
    verdict, asked = negotiate(remembered=remembered(NEW))
    assert asked == []
    assert (verdict.version, verdict.remembered, verdict.pinned, verdict.why) == (NEW, True, False, "remembered")
    assert (verdict.server_info, verdict.capabilities) == ({"name": "s"}, {"tools": {}})


def test_a_remembered_legacy_server_is_initialized_at_once() -> None:
    verdict, asked = negotiate(initialized(OLDEST), remembered=remembered(OLD))
    assert legacy(verdict, OLDEST)
    assert asked == [INITIALIZE]


@pytest.mark.parametrize("answer", [REFUSED, http(400), refused_over_http(400)])
def test_a_server_that_has_become_modern_is_found_out(answer: McpError) -> None:
    verdict, asked = negotiate(answer, discovered(NEW), remembered=remembered(OLD), silent=False)
    assert verdict.version == NEW
    assert asked == [INITIALIZE, DISCOVER]


def test_trouble_is_no_reason_to_ask_again() -> None:
    trouble = local_error("unreachable")
    assert negotiate(trouble, remembered=remembered(OLD)) == (trouble, [INITIALIZE])


def test_a_memory_that_protocol_rules_out_is_no_memory() -> None:
    assert negotiate(initialized(), allowed=(OLD,), remembered=remembered(NEW))[1] == [INITIALIZE]
    assert negotiate(initialized(), eras=("legacy",), remembered=remembered(NEW))[1] == [INITIALIZE]


def test_what_is_told_can_be_remembered() -> None:
    first, _ = negotiate(discovered(NEW, OLD, capabilities={"tools": {}}, instructions="be kind"))
    again = agreement.remembered(first.told())
    assert again is not None
    assert (again.version, again.capabilities, again.instructions) == (NEW, {"tools": {}}, "be kind")
    assert again.server_versions == [NEW, OLD]


@pytest.mark.parametrize("told", [None, {}, {"version": "2099-01-01"}, {"version": None}, {"version": [NEW]}])
def test_what_cannot_be_remembered_is_forgotten(told: Any) -> None:
    assert agreement.remembered(told) is None


@pytest.mark.parametrize("told", ["2026-07-28", 5, [NEW]])
def test_a_memory_is_a_mapping(told: Any) -> None:
    with pytest.raises(TypeError, match="remembered"):
        agreement.remembered(told)


# -- everything at once

OUTCOMES = st.sampled_from(
    [discovered(NEW), discovered(OLD), discovered(), initialized(), initialized("x"), Ok({}), REFUSED, refusal(NEW),
     refusal(OLD), refusal(), http(404), http(500), refused_over_http(400), SILENCE, local_error("malformed"),
     InputRequired({}), McpError(-32021, "x"), unauthorized(credential=True)]
)  # fmt: skip


ANSWERS = st.lists(st.tuples(OUTCOMES, st.booleans(), st.booleans()), min_size=12, max_size=12)


@given(ANSWERS, st.booleans(), st.booleans())
def test_whatever_comes_there_is_a_verdict_within_few_questions(
    answers: list[tuple[Any, bool, bool]], silent: bool, before: bool
) -> None:
    eras = ("modern", "legacy")
    talk = Negotiation(versions.KNOWN, eras, IDENTITY, "x", silence_is_legacy=silent, has_before=before)
    steps, fresh, open_questions = talk.run(), 0, list[str]()
    step, verdict = next(steps), None
    for outcome, ended, other in answers:
        fresh += step.where == "fresh"
        if step.request is not None:
            open_questions = [*(open_questions if step.beside else []), step.request.method]
        ended = ended and isinstance(outcome, McpError) and outcome.reason is not None
        try:
            step = steps.send(Answer(open_questions[0 if other else -1], outcome, ended=ended))
        except StopIteration as end:
            verdict = end.value
            break
    assert isinstance(verdict, (Agreement, McpError))
    assert fresh <= 1
