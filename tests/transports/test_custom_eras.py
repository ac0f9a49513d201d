"""Transports of other people: each says which eras it carries, and nothing of another era is said over it."""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from snodo_client.transports.base import Traits
from support.scripted_transport import ScriptedTransport

NEW = "2026-07-28"
OLD = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PROBE, INITIALIZE = "server/discover", "initialize"


def transport(*eras: Any, speaks: tuple[str, ...] = (NEW, *OLD)) -> ScriptedTransport:
    """One that declares these eras, to a server of these revisions."""

    def script(call: Any) -> Any:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": call.wire_id}
        method = call.message["method"]
        if method == PROBE and NEW in speaks:
            yield {**message, "result": {"supportedVersions": list(speaks), "capabilities": {}}}
        elif method == INITIALIZE and speaks[-1] in OLD:
            wanted = call.message["params"]["protocolVersion"]
            agreed = wanted if wanted in speaks else next(version for version in speaks if version in OLD)
            yield {**message, "result": {"protocolVersion": agreed, "capabilities": {}, "serverInfo": {}}}
        elif method == "tools/list":
            yield {**message, "result": {"tools": []}}
        else:
            yield {**message, "error": {"code": -32601, "message": "no"}}

    return ScriptedTransport(script, Traits(eras=eras) if eras else Traits())


def methods(custom: ScriptedTransport) -> list[str]:
    return [request["method"] for request in custom.requests]


@pytest.mark.parametrize("eras", [("legacy",), ("modern",), ("modern", "legacy"), ()])
@pytest.mark.parametrize("speaks", [(NEW,), (NEW, *OLD), OLD, OLD[2:]], ids=str)
def test_only_what_is_carried_is_asked_and_agreed_on(eras: tuple[str, ...], speaks: tuple[str, ...]) -> None:
    custom = transport(*eras, speaks=speaks)
    carried = eras or ("modern",)
    common = [version for version in speaks if ("modern" if version == NEW else "legacy") in carried]
    asked = [PROBE] if "modern" in carried else []
    if "legacy" in carried and common[:1] != [NEW]:
        asked.append(INITIALIZE)
    if not common:
        with pytest.raises(McpError) as raised:
            Client.connect(custom)
        assert INITIALIZE in asked or raised.value.reason == "incompatible_versions"
        assert methods(custom) == asked
        return
    with Client.connect(custom) as client:
        assert methods(custom) == asked
        assert client.protocol_info["version"] == common[0]
        assert client.list_tools() == Ok([])


@pytest.mark.parametrize(
    ("eras", "protocol"), [(("modern",), version) for version in OLD] + [(("legacy",), NEW), ((), OLD[0])]
)
def test_a_pin_that_it_does_not_carry_is_a_mistake(eras: tuple[str, ...], protocol: str) -> None:
    custom = transport(*eras)
    with pytest.raises(ValueError, match=f"protocol='{protocol}' cannot be spoken over a custom connection"):
        Client.connect(custom, protocol=protocol)
    assert custom.requests == []
    assert not hasattr(custom, "link")  # nor was it opened


@pytest.mark.parametrize("kind", ["sse", "websocket"])
@pytest.mark.parametrize("protocol", [NEW, [NEW]])
def test_a_pin_of_this_revision_is_a_mistake_over_connections_that_never_carry_it(kind: Any, protocol: Any) -> None:
    scheme = "ws" if kind == "websocket" else "http"
    with pytest.raises(ValueError, match=f"cannot be spoken over a {kind} connection"):
        Client.connect((kind, f"{scheme}://127.0.0.1:9/mcp"), protocol=protocol)
