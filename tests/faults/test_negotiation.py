"""Servers that answer `server/discover` wrongly, and servers that refuse every version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from snodo_client import McpError, Ok
from support.faulty import ALL, AT_ONCE, WIRES, assert_error, assert_serves, failed_connect, serving
from support.http_calls import VERSION, Took


def answer(result: Any) -> str:
    return '{"jsonrpc":"2.0","id":$ID,"result":' + json.dumps(result) + "}"


def refusal(code: int, data: Any = None) -> str:
    error = {"code": code, "message": "no"} | ({} if data is None else {"data": data})
    return '{"jsonrpc":"2.0","id":$ID,"error":' + json.dumps(error) + "}"


@pytest.fixture(params=ALL)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def connect_error(kind: str, *texts: str, **options: Any) -> McpError:
    """What connecting raises, at once, when discovery is answered by one text after the other."""
    with serving(kind, {"server/discover": [{"send": [text]} for text in texts]}) as server:
        with Took() as took:
            error = failed_connect(server.connect, **options)
        assert took.seconds < AT_ONCE
    return error


@pytest.mark.parametrize(
    "result",
    [{}, {"supportedVersions": None}, {"supportedVersions": VERSION}, {"supportedVersions": {VERSION: 1}},
     {"supportedVersions": [1]}, {"supportedVersions": [VERSION, None]}, {"supportedVersions": [[VERSION]]}],
    ids=str,
)  # fmt: skip
def test_a_discovery_without_versions(kind: str, result: Any) -> None:
    assert_error(connect_error(kind, answer(result)), "invalid_result")


@pytest.mark.parametrize("versions", [[], ["2099-01-01"], ["2025-11-25"], [""], ["x" * 500] * 200], ids=len)
def test_a_discovery_without_a_version_of_ours(kind: str, versions: list[str]) -> None:
    error = connect_error(kind, answer({"supportedVersions": versions}))
    error = assert_error(error, "incompatible_versions", code=-32602, kind="protocol")
    assert VERSION in error.data["requested"]
    assert len(error.message) < 2000


@pytest.mark.parametrize(
    "members",
    ['"result":null', '"result":[]', '"result":{},"error":{"code":1,"message":"x"}', '"error":{}', '"error":"x"'],
)
def test_a_discovery_that_is_no_response(kind: str, members: str) -> None:
    assert_error(connect_error(kind, '{"jsonrpc":"2.0","id":$ID,' + members + "}"), "malformed")


@pytest.mark.parametrize("id_", ["true", "999", "null", '"x"'])
def test_a_discovery_for_somebody_else(kind: str, id_: str) -> None:
    text = '{"jsonrpc":"2.0","id":' + id_ + ',"result":' + json.dumps({"supportedVersions": [VERSION]}) + "}"
    assert_error(connect_error(kind, text), "unexpected_id", expected=1)


@pytest.mark.parametrize("text", ["NaN", "[" * 10_000, "9" * 5000], ids=len)
@pytest.mark.parametrize("wire", ["stdio", "json"])
def test_a_discovery_that_is_no_json(wire: str, text: str) -> None:
    found = '{"jsonrpc":"2.0","id":$ID,"result":{"supportedVersions":["' + VERSION + '"],"x":' + text + "}}"
    assert_error(connect_error(wire, found), "malformed")


@pytest.mark.parametrize(
    ("result", "reason"),
    [({"resultType": "odd"}, "unknown_result_type"), ({"resultType": None}, "unknown_result_type"),
     ({"resultType": "input_required", "requestState": "x"}, "invalid_result")],
    ids=str,
)  # fmt: skip
def test_a_discovery_of_another_type(kind: str, result: Any, reason: str) -> None:
    assert_error(connect_error(kind, answer({"supportedVersions": [VERSION], **result})), reason)


@pytest.mark.parametrize("capabilities", [None, [], "tools", 1])
def test_odd_capabilities_do_not_matter(kind: str, capabilities: Any) -> None:
    result = {
        "supportedVersions": ["2099-01-01", VERSION],
        "capabilities": capabilities,
        "instructions": 5,
        "_meta": [],
    }
    with serving(kind, {"server/discover": [{"send": [answer(result)]}]}) as server, server.connect() as client:
        assert (client.server_capabilities, client.server_info, client.instructions) == (None, None, None)
        assert_serves(client)


@pytest.mark.parametrize("code", [-32020, -32021])
def test_a_modern_refusal_of_discovery_is_the_servers_error(kind: str, code: int) -> None:
    error = connect_error(kind, refusal(code, {"x": 1}))
    assert (error.code, error.message, error.data, error.reason) == (code, "no", {"x": 1}, None)


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32603, -32000, -32001, 0, 404])
def test_another_refusal_of_discovery_is_of_an_older_server(kind: str, code: int) -> None:
    error = connect_error(kind, refusal(code))
    error = assert_error(error, "incompatible_versions", code=-32602, kind="protocol")
    assert f"error {code} (no)" in error.message, "what was said of the probe, beside what was said of the handshake"


@pytest.mark.parametrize(
    ("supported", "asked"),
    [([VERSION], 2), ([VERSION, "2099-01-01"], 2), (["2025-11-25"], 1), (["2099-01-01"], 1), ([], 1), (VERSION, 1),
     (None, 1), ({VERSION: 1}, 1), ([1, None], 1), (True, 1), ([[VERSION]], 1)],
    ids=str,
)  # fmt: skip
def test_every_version_is_refused(kind: str, supported: Any, asked: int) -> None:
    text = refusal(-32022, {"supported": supported, "requested": VERSION})
    with serving(kind, {"server/discover": [{"send": [text]}]}) as server:
        with Took() as took:
            error = failed_connect(server.connect)
        assert took.seconds < AT_ONCE
        assert_error(error, "incompatible_versions", code=-32602, kind="protocol")
        if kind != "stdio":
            assert server.count("server/discover") == asked
            handshakes = int(supported == ["2025-11-25"])
            assert server.count("initialize") == handshakes
            assert len(server.received()) == asked + handshakes


@pytest.mark.parametrize("data", [None, [], "x", {"supported": VERSION}], ids=str)
def test_a_refusal_of_the_version_without_a_list(kind: str, data: Any) -> None:
    error = connect_error(kind, refusal(-32022, data))
    assert_error(error, "incompatible_versions", code=-32602, kind="protocol", supported=None)


def test_the_same_version_is_offered_once_more(kind: str) -> None:
    faults = {"server/discover": [{"send": [refusal(-32022, {"supported": [VERSION]})]}, {}]}
    with serving(kind, faults) as server, server.connect() as client:
        assert client.protocol_info["version"] == VERSION
        assert_serves(client)
        assert server.count("server/discover") == 2


@pytest.mark.parametrize(
    ("supported", "times"), [([VERSION], 2), (["2099-01-01"], 1), ("2026-07-28", 1), (None, 1), ([1], 1)], ids=str
)
def test_a_call_whose_version_is_refused_is_sent_once_more_at_most(kind: str, supported: Any, times: int) -> None:
    text = refusal(-32022, {"supported": supported})
    with serving(kind) as server, server.connect() as client:
        with Took() as took:
            outcome = client.call_tool("fault", {"send": [text]})
        assert took.seconds < AT_ONCE
        assert_error(outcome, "incompatible_versions", code=-32602, kind="protocol")
        assert_serves(client)
        assert server.calls() == times


@pytest.mark.parametrize("wire", WIRES)
def test_a_pinned_client_asks_nothing_and_fails_with_its_call(wire: str) -> None:
    with serving(wire, {"server/discover": [{"send": []}]}) as server, server.connect(protocol=VERSION) as client:
        assert isinstance(client.call_tool("ok"), Ok)
        assert server.count("server/discover") == 0
