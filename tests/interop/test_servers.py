"""Our client with the servers of other people: every scenario, over every connection that they have."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from interop import launch
from interop.quirks import IN_PROCESS, WIRE
from interop.scenarios import CALL_SECONDS, SCENARIOS, Bench, sent_error, text_of

from snodo_client import Client, McpError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from interop.quirks import Peer

    from peers import Peers

    Report = dict[str, str | None]

ROOT = Path(__file__).parents[2]


class Wire(Bench):
    """A peer in a process of its own. url: where it listens, None for stdio."""

    def __init__(self, peers: Peers, peer: Peer, stack: ExitStack) -> None:
        self.url: str | None = None
        target: Any = ("stdio", *split(launch.command(peers, peer, "stdio")))
        if peer.connection != "stdio":
            target = self.url = stack.enter_context(launch.serving(peers, peer))
        super().__init__(peer, lambda **options: Client.connect(target, **options))
        stack.callback(self.close)


def split(command: list[str]) -> tuple[str, list[str]]:
    return command[0], command[1:]


@pytest.fixture(scope="module")
def wire(peers: Peers) -> Iterator[Callable[[Peer], Wire]]:
    """Each peer's server, started when it is first asked for, once for all tests of this module."""
    benches: dict[str, Wire] = {}
    with ExitStack() as stack:

        def bench(peer: Peer) -> Wire:
            if peer.name not in benches:
                benches[peer.name] = Wire(peers, peer, stack)
            return benches[peer.name]

        yield bench


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("peer", WIRE, ids=lambda peer: peer.name)
def test_over_a_wire(wire: Callable[[Peer], Wire], peer: Peer, scenario: str) -> None:
    SCENARIOS[scenario](wire(peer))


@pytest.mark.parametrize("peer", [peer for peer in WIRE if peer.connection != "stdio"], ids=lambda peer: peer.name)
def test_http_connections_are_used_again(wire: Callable[[Peer], Wire], peer: Peer) -> None:
    """Whatever the answer was: JSON, an event stream, an error status. Only a call that is cut short costs one."""
    url = wire(peer).url
    assert url is not None
    with launch.Relay(url) as relay, Client.connect(relay.url) as client:
        for _ in range(2):
            assert client.call_tool("add", {"a": 1, "b": 2}).unwrap()["structuredContent"] == {"total": 3}
            assert text_of(client.call_tool("progress", {"steps": 3}, progress=lambda step: None)) == "3 steps"
            sent_error(client.read_resource("peer://nowhere"), -32602)
            sent_error(client.request("com.example/nothing"), -32601)
        assert relay.connections == 1
        outcome = client.call_tool("wait", {"key": "reuse"}, timeout=CALL_SECONDS)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "timeout"
        for _ in range(3):
            assert text_of(client.call_tool("progress", {"steps": 1})) == "1 steps"
        assert relay.connections == 2


@pytest.fixture(scope="module")
def report(peers: Peers) -> Callable[[Peer], Report]:
    """What became of every scenario with a server in the same process: None, or how it failed."""
    reports: dict[str, Report] = {}

    def run(peer: Peer) -> Report:
        if peer.name not in reports:
            done = subprocess.run(
                [peers.modern, "-m", "interop.direct_peers", peer.server],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
                capture_output=True,
                text=True,
                check=False,
            )
            missing = dict.fromkeys(SCENARIOS, f"exit code {done.returncode}, stderr:\n{done.stderr[-5000:]}")
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            reports[peer.name] = {**missing, **{line["name"]: line["failure"] for line in lines}}
        return reports[peer.name]

    return run


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("peer", IN_PROCESS, ids=lambda peer: peer.name)
def test_in_process(report: Callable[[Peer], Report], peer: Peer, scenario: str) -> None:
    failure = report(peer)[scenario]
    assert failure is None, failure
