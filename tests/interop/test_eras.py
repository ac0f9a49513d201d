"""What our client concludes about servers of every era, when it is told nothing about them, and when it is.

`test_signals` has the answers that it concludes from; that it works with these servers then is in `test_servers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from interop import launch
from interop.quirks import Peer

from snodo_client import Client, McpError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peers import Peers

NEWEST, HANDSHAKE, OLD = "2026-07-28", "2025-11-25", "2025-03-26"
LISTED = "server/discover, asked with 2026-07-28, lists it"
UNASKED = "this connection carries nothing newer; initialize agreed on it"


def probed(answer: str) -> str:
    return f"server/discover was answered by {answer}; initialize agreed on it"


# Which version, and why.
CONCLUSIONS = {
    ("mcp", "stdio"): (NEWEST, LISTED),
    ("mcp", "http"): (NEWEST, LISTED),
    ("mcp", "proxy"): (NEWEST, LISTED),
    ("mcp", "sse"): (HANDSHAKE, UNASKED),
    ("mcp", "gateway-http"): (NEWEST, LISTED),
    ("fastmcp", "stdio"): (NEWEST, LISTED),
    ("fastmcp", "http"): (NEWEST, LISTED),
    ("ts", "stdio"): (NEWEST, LISTED),
    ("ts", "http"): (NEWEST, LISTED),
    ("legacy", "stdio"): (HANDSHAKE, probed("error -32602")),
    ("legacy", "http"): (HANDSHAKE, probed("error -32600 (HTTP 400)")),
    ("legacy", "stateless"): (HANDSHAKE, probed("error -32600 (HTTP 400)")),
    ("legacy", "sse"): (HANDSHAKE, UNASKED),
    ("legacy", "websocket"): (HANDSHAKE, UNASKED),
    ("legacy", "gateway-http"): (HANDSHAKE, probed("error -32602")),
    ("legacy", "gateway-stateless"): (HANDSHAKE, probed("error -32602")),
    ("legacy", "gateway-sse"): (HANDSHAKE, UNASKED),
    ("legacy", "gateway-websocket"): (HANDSHAKE, UNASKED),
    ("everything", "stdio"): (HANDSHAKE, probed("error -32601")),
    ("everything", "http"): (HANDSHAKE, probed("error -32000 (HTTP 400)")),
    ("everything", "sse"): (HANDSHAKE, UNASKED),
    ("time", "stdio"): (OLD, probed("error -32601")),
    ("time", "gateway-http"): (OLD, probed("error -32601 (HTTP 404)")),
    ("time", "gateway-stateless"): (OLD, probed("error -32601 (HTTP 404)")),
}


def name(peer: tuple[str, str]) -> str:
    return "-".join(peer)


@pytest.fixture
def target(request: pytest.FixtureRequest, peers: Peers) -> Iterator[object]:
    """What to connect to for the peer that the test is about."""
    peer = Peer(*request.param)
    if peer.server == "time" and peers.mcp_time is None:
        pytest.skip("there is no binary of mcp-time for this machine")
    with launch.target(peers, peer) as target:
        yield target


@pytest.mark.parametrize(("target", "conclusion"), CONCLUSIONS.items(), ids=map(name, CONCLUSIONS), indirect=["target"])
def test_what_is_concluded(target: object, conclusion: tuple[str, str]) -> None:
    with Client.connect(target) as client:  # type: ignore[call-overload]
        info = client.protocol_info
        era = "modern" if conclusion[0] == NEWEST else "legacy"
        assert (info["status"], info["preference"], info["pinned"]) == ("ready", "auto", False)
        assert (info["era"], info["version"], info["why"]) == (era, *conclusion), info
        assert client.server_info is not None
        assert client.server_capabilities
        tools = client.list_tools().unwrap()
        assert tools
        assert client.protocol_info == info


@pytest.mark.parametrize(
    "target", [("legacy", "sse"), ("everything", "sse"), ("legacy", "gateway-sse")], ids=name, indirect=True
)
def test_an_http_url_may_turn_out_to_be_one_of_the_first_transport(target: tuple[str, str]) -> None:
    with Client.connect(("http", target[1])) as client:
        info = client.protocol_info
        assert (info["era"], info["version"]) == ("legacy", HANDSHAKE)
        assert "HTTP+SSE is served" in info["why"]
        assert [step["sent"].partition(" ")[0] for step in info["steps"]] == [
            "server/discover",
            "initialize",
            "initialize",
        ]
        assert client.list_tools().unwrap()


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
@pytest.mark.parametrize(
    "target",
    [("legacy", "stdio"), ("legacy", "http"), ("mcp", "stdio"), ("fastmcp", "http"), ("ts", "stdio")],
    ids=name,
    indirect=True,
)
def test_a_pinned_version(target: object, version: str) -> None:
    with Client.connect(target, protocol=version) as client:  # type: ignore[call-overload]
        info = client.protocol_info
        assert (info["era"], info["version"], info["preference"]) == ("legacy", version, version)
        assert [step["sent"].partition(" ")[0] for step in info["steps"]] == ["initialize"]
        content = client.call_tool("add", {"a": 1, "b": 2}).unwrap()["content"]
        assert "3" in content[0]["text"]


@pytest.mark.parametrize("target", [("time", "stdio")], ids=name, indirect=True)
@pytest.mark.parametrize("versions", [[HANDSHAKE], [NEWEST, HANDSHAKE, "2025-06-18"]], ids=len)
def test_versions_that_the_server_has_not(target: object, versions: list[str]) -> None:
    with pytest.raises(McpError) as raised:
        Client.connect(target, protocol=versions)  # type: ignore[call-overload]
    assert raised.value.reason == "incompatible_versions"
    assert raised.value.data == {"requested": versions, "supported": [OLD]}
