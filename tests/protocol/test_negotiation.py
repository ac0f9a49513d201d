"""Negotiation, branch by branch, as a generator fed with answers: what is asked, and which verdict follows."""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client import InputRequired, McpError, Ok
from snodo_client.outcome import local_error
from snodo_client.protocol import negotiation, versions
from snodo_client.protocol.negotiation import Agreement
from snodo_client.protocol.requests import Request

NEW, OLD = "2026-07-28", "2025-11-25"


def negotiate(*answers: Any, allowed: Any = versions.KNOWN, silent: bool = True) -> tuple[Any, list[Request]]:
    """The verdict after these answers, and what was asked."""
    steps, asked, rest = negotiation.negotiate(allowed, ("modern",), "x", silence_is_legacy=silent), [], iter(answers)
    try:
        request = next(steps)
        while True:
            asked.append(request)
            request = steps.send(next(rest))
    except StopIteration as end:
        assert list(rest) == []
        return end.value, asked


def discovered(*supported: Any, **members: Any) -> Ok[dict[str, Any]]:
    return Ok({"supportedVersions": list(supported), **members})


def refusal(*supported: Any) -> McpError:
    return McpError(-32022, "unsupported", data={"supported": list(supported), "requested": NEW})


def test_a_modern_pin_asks_nothing() -> None:
    for allowed in ((NEW,), versions.allowed([NEW])):
        agreement, asked = negotiate(allowed=allowed)
        assert asked == []
        assert isinstance(agreement, Agreement)
        assert (agreement.version, agreement.era, agreement.pinned, agreement.probed) == (NEW, "modern", True, None)
        assert (agreement.server_info, agreement.capabilities, agreement.instructions) == (None, None, None)


@pytest.mark.parametrize("allowed", [(OLD,), versions.LEGACY])
def test_legacy_versions_alone_are_refused_without_asking(allowed: tuple[str, ...]) -> None:
    error, asked = negotiate(allowed=allowed)
    assert asked == []
    assert (error.reason, error.code, error.data["requested"]) == ("incompatible_versions", -32602, list(allowed))


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
    assert [(request.method, request.version, request.params) for request in asked] == [("server/discover", NEW, {})]
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


@pytest.mark.parametrize("supported", [[], ["2099-01-01"], ["x" * 1000] * 1000, [OLD]])
def test_a_discovery_without_a_version_of_ours_is_incompatible(supported: list[str]) -> None:
    error, _ = negotiate(discovered(*supported))
    assert error.reason == "incompatible_versions"
    assert error.data["requested"] == list(versions.MODERN)
    assert error.data["supported"] == [version[:32] for version in supported][:16]
    assert len(error.message) < 2000


def test_being_asked_for_input_is_an_error() -> None:
    error, _ = negotiate(InputRequired({"requestState": "s3cret"}))
    assert error.reason == "invalid_result"
    assert "s3cret" not in f"{error}{error.data}"


# -- refused versions


def test_a_refused_version_that_is_listed_is_tried_once_more() -> None:
    agreement, asked = negotiate(refusal(NEW), discovered(NEW))
    assert isinstance(agreement, Agreement)
    assert [request.version for request in asked] == [NEW, NEW]


def test_a_server_that_always_refuses_is_asked_twice() -> None:
    error, asked = negotiate(refusal(NEW, OLD), refusal(NEW, OLD))
    assert [request.version for request in asked] == [NEW, NEW]
    assert (error.reason, error.data["supported"]) == ("incompatible_versions", [NEW, OLD])


@pytest.mark.parametrize(
    ("data", "supported"),
    [
        ({"supported": ["2099-01-01"]}, ["2099-01-01"]),
        ({"supported": [OLD]}, [OLD]),
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
    error, asked = negotiate(McpError(code, "what?" * 1000))
    assert (error.reason, len(asked)) == ("incompatible_versions", 1)
    assert str(code) in error.message
    assert len(error.message) < 1000


def http(status: int) -> McpError:
    return local_error("http_status", f"x answered {status}", data={"http_status": status, "excerpt": ""})


@pytest.mark.parametrize("status", [400, 404, 405, 406, 415, 422])
def test_a_refusal_over_http_speaks_for_an_older_server(status: int) -> None:
    error, _ = negotiate(http(status), silent=False)
    assert error.reason == "incompatible_versions"
    assert str(status) in error.message


@pytest.mark.parametrize("status", [429, 500, 502, 503, 302, 204])
def test_trouble_over_http_does_not(status: int) -> None:
    answer = http(status)
    assert negotiate(answer, silent=False)[0] is answer


def test_silence_speaks_for_an_older_server_where_it_may() -> None:
    silence = local_error("timeout", data={"timeout": 10.0})
    assert negotiate(silence, silent=True)[0].reason == "incompatible_versions"
    assert negotiate(silence, silent=False)[0] is silence


@pytest.mark.parametrize(
    "reason",
    ["closed", "exited", "unreachable", "tls", "malformed", "too_large", "unexpected_id", "unauthorized",
     "unknown_result_type", "invalid_result", "cross_origin_redirect", "transport_failure",
     "handler_failure"],
)  # fmt: skip
def test_failures_never_downgrade(reason: str) -> None:
    answer = local_error(reason)
    assert negotiate(answer)[0] is answer


@pytest.mark.parametrize("reason", ["http_status", "timeout"])
@pytest.mark.parametrize("data", [None, {}])
def test_details_a_transport_left_out_are_no_crash(reason: str, data: Any) -> None:
    answer = McpError(-32000, "x", reason=reason, data=data)
    assert isinstance(negotiate(answer)[0], McpError)
