"""What the servers of other people answer when they are asked which era they are of, byte for byte.

No part of our client is used. What `protocol="auto"` concludes from these answers is the matter of `test_eras`; this is
the evidence for its rules, and a new version of a peer that answers otherwise is noticed here.
"""

from __future__ import annotations

import json
import subprocess
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from interop import launch
from interop.quirks import Peer
from websockets.sync.client import connect

from support.mcp_requests import VERSION, request

if TYPE_CHECKING:
    from peers import Peers

SECONDS = 30
DISCOVER = request("server/discover")
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": VERSION,
    "Mcp-Method": "server/discover",
}
MODERN = ["2026-07-28"]  # what a server that understood says it supports
OURS = DISCOVER["id"]

# The id and the code of the error, or else the id and the supported versions.
ON_A_CHANNEL = {
    ("mcp", "stdio"): (OURS, MODERN),
    ("fastmcp", "stdio"): (OURS, MODERN),
    ("ts", "stdio"): (OURS, MODERN),
    ("legacy", "stdio"): (OURS, -32602),
    ("legacy", "websocket"): (OURS, -32602),
    ("legacy", "gateway-websocket"): (OURS, -32602),
    ("everything", "stdio"): (OURS, -32601),
    ("everything", "gateway-websocket"): (OURS, -32601),
    ("time", "stdio"): (OURS, -32601),
}
# Before that the status, and after it a word that the message has. Without JSON: the status and the type of the body.
OVER_HTTP: dict[tuple[str, str], tuple[Any, ...]] = {
    ("mcp", "http"): (200, OURS, MODERN),
    ("mcp", "proxy"): (200, OURS, MODERN),
    ("mcp", "gateway-http"): (200, OURS, MODERN),
    ("fastmcp", "http"): (200, OURS, MODERN),
    ("ts", "http"): (200, OURS, MODERN),
    ("legacy", "http"): (400, "server-error", -32600, "Missing session ID"),
    ("legacy", "stateless"): (400, "server-error", -32600, "Unsupported protocol version"),
    ("legacy", "sse"): (405, "text/plain"),
    ("legacy", "gateway-http"): (200, OURS, -32602, "Invalid request parameters"),
    ("legacy", "gateway-stateless"): (200, OURS, -32602, "Invalid request parameters"),
    ("legacy", "gateway-sse"): (404, "text/html"),
    ("everything", "http"): (400, None, -32000, "Server not initialized"),
    ("everything", "sse"): (404, "text/html"),
    ("everything", "gateway-stateless"): (404, OURS, -32601, "Method not found"),
}


def name(peer: tuple[str, str]) -> str:
    return "-".join(peer)


@pytest.mark.parametrize("row", ON_A_CHANNEL, ids=name)
def test_on_a_channel(row: tuple[str, str], peers: Peers) -> None:
    peer = Peer(*row)
    if peer.server == "time" and peers.mcp_time is None:
        pytest.skip("there is no binary of mcp-time for this machine")
    if peer.connection == "stdio":
        answer = over_stdio(launch.command(peers, peer, "stdio"))
    else:
        with launch.target(peers, peer) as (_, url), connect(url, subprotocols=["mcp"], proxy=None) as socket:  # type: ignore[list-item]
            assert socket.subprotocol == "mcp"
            socket.send(json.dumps(DISCOVER))
            answer = json.loads(socket.recv(SECONDS))
    assert (answer["id"], verdict(answer)) == ON_A_CHANNEL[row], answer


def over_stdio(command: list[str]) -> dict[str, Any]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None
        server.stdin.write(json.dumps(DISCOVER).encode() + b"\n")
        server.stdin.flush()
        try:
            line = launch.first_line(server)
        finally:
            server.kill()
    answer: dict[str, Any] = json.loads(line)
    return answer


@pytest.mark.parametrize("row", OVER_HTTP, ids=name)
def test_over_http(row: tuple[str, str], peers: Peers) -> None:
    with launch.target(peers, Peer(*row)) as (_, url):
        where = urlsplit(url)
        connection = HTTPConnection(where.netloc, timeout=SECONDS)
        connection.request("POST", where.path, json.dumps(DISCOVER), HEADERS)
        with connection.getresponse() as response:
            status, kind, body = response.status, response.headers.get_content_type(), response.read()
        connection.close()
    expected = OVER_HTTP[row]
    if kind == "application/json":
        answer = json.loads(body)
        assert (status, answer["id"], verdict(answer)) == expected[:3], answer
        if expected[3:]:
            assert expected[3] in answer["error"]["message"]
    else:
        assert (status, kind) == expected, body


def verdict(answer: dict[str, Any]) -> Any:
    return answer["error"]["code"] if "error" in answer else answer["result"]["supportedVersions"]
