"""Our client with the servers of other people: every scenario, over every connection that they have."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from interop import launch
from interop.legacy_scenarios import scenarios_of
from interop.quirks import IN_PROCESS, WIRE
from interop.scenarios import CALL_SECONDS, sent_error, text_of

from snodo_client import Client, McpError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from interop.quirks import Peer
    from interop.scenarios import Bench

    from peers import Peers

    Report = dict[str, str | None]

ROOT = Path(__file__).parents[2]


def each(peers: list[Peer]) -> pytest.MarkDecorator:
    """Every one of these peers with every scenario there is for it."""
    return pytest.mark.parametrize(
        ("peer", "scenario"),
        [
            pytest.param(peer, scenario, id=f"{peer.name}-{scenario}")
            for peer in peers
            for scenario in scenarios_of(peer)
        ],
    )


@pytest.fixture(scope="module")
def wire(peers: Peers) -> Iterator[Callable[[Peer], Bench]]:
    """Each peer's server, started when it is first asked for, once for all tests of this module."""
    benches: dict[str, Bench] = {}
    with ExitStack() as stack:

        def bench(peer: Peer) -> Bench:
            if peer.name not in benches:
                benches[peer.name] = launch.bench(peers, peer, stack)
            return benches[peer.name]

        yield bench


@each(WIRE)
def test_over_a_wire(wire: Callable[[Peer], Bench], peer: Peer, scenario: str) -> None:
    scenarios_of(peer)[scenario](wire(peer))


OVER_HTTP = [peer for peer in WIRE if peer.connection in ("http", "stateless", "proxy", "gateway-http", "sse")]


@pytest.mark.parametrize("peer", OVER_HTTP, ids=lambda peer: peer.name)
def test_http_connections_are_used_again(wire: Callable[[Peer], Bench], peer: Peer) -> None:
    """Whatever the answer was: JSON, an event stream, an error status. Only a call that is cut short costs one."""
    kind, url = wire(peer).target
    kept = 2 if peer.legacy else 1  # with the stream for what belongs to no call
    with launch.Relay(url) as relay, Client.connect((kind, relay.url), protocol=peer.protocol) as client:
        for _ in range(2):
            assert client.call_tool("add", {"a": 1, "b": 2}).unwrap()["structuredContent"] == {"total": 3}
            assert text_of(client.call_tool("progress", {"steps": 3}, progress=lambda step: None)) == "3 steps"
            sent_error(client.read_resource("peer://nowhere"), peer.unknown_resource)
            sent_error(client.request("com.example/nothing"), peer.unknown_method)
        assert relay.connections <= kept
        outcome = client.call_tool("wait", {"key": "reuse"}, timeout=CALL_SECONDS)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "timeout"
        for _ in range(3):
            assert text_of(client.call_tool("progress", {"steps": 1})) == "1 steps"
        assert relay.connections <= 2 * kept


@pytest.mark.parametrize(
    "peer", [peer for peer in WIRE if peer.legacy and peer.connection == "http"], ids=lambda peer: peer.name
)
def test_a_server_that_was_started_again(peers: Peers, peer: Peer) -> None:
    """It does not know the session any more: the next call gets another one."""
    with launch.running(launch.command(peers, peer, "http", "0")) as first:
        url = launch.first_line(first)
        client = Client.connect(url, protocol=peer.protocol)
        assert client.call_tool("add", {"a": 1, "b": 2}).unwrap()["structuredContent"] == {"total": 3}
    with client, launch.running(launch.command(peers, peer, "http", str(urlsplit(url).port))) as second:
        assert launch.first_line(second) == url
        assert {"add", "progress"} <= {tool["name"] for tool in client.list_tools().unwrap()}
        assert client.call_tool("add", {"a": 3, "b": 4}).unwrap()["structuredContent"] == {"total": 7}
        assert client.protocol_info["version"] == "2025-11-25"


@pytest.fixture(scope="module")
def report(peers: Peers) -> Callable[[Peer], Report]:
    """What became of every scenario with a server in the same process: None, or how it failed."""
    reports: dict[str, Report] = {}

    def run(peer: Peer) -> Report:
        if peer.name not in reports:
            python = peers.legacy if peer.server == "legacy" else peers.modern
            done = subprocess.run(
                [python, "-m", "interop.direct_peers", peer.name],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
                capture_output=True,
                text=True,
                check=False,
            )
            missing = dict.fromkeys(scenarios_of(peer), f"exit code {done.returncode}, stderr:\n{done.stderr[-5000:]}")
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            reports[peer.name] = {**missing, **{line["name"]: line["failure"] for line in lines}}
        return reports[peer.name]

    return run


@each(IN_PROCESS)
def test_in_process(report: Callable[[Peer], Report], peer: Peer, scenario: str) -> None:
    failure = report(peer)[scenario]
    assert failure is None, failure
