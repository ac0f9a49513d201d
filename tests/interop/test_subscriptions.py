"""Subscriptions to the servers of other people, and to the kit's, over every connection that they have."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from interop import launch
from interop.subscription_scenarios import SCENARIOS, TIMEOUT, closed, hear, listen, use

from snodo_client import Client

if TYPE_CHECKING:
    from peers import Peers

SERVERS = Path(__file__).parent / "servers"
ROOT = Path(__file__).parents[2]


@contextmanager
def serving(peers: Peers, peer: str) -> Iterator[Any]:
    """What to connect to for a fresh server of "mcp" or "ts", over "stdio" or "http"."""
    server, connection = peer.split("-")
    if server == "mcp":
        command = [str(peers.modern), str(SERVERS / "changes_mcp_server.py")]
    else:
        command = [str(peers.node), str(SERVERS / "changes_ts_server.mjs"), str(peers.packages)]
    if connection == "stdio":
        yield "stdio", command[0], [*command[1:], "stdio"]
    else:
        with launch.running([*command, "http", "0"]) as process:
            yield launch.first_line(process)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("peer", ["mcp-stdio", "mcp-http", "ts-stdio", "ts-http"])
def test_on_the_wire(peers: Peers, peer: str, scenario: str) -> None:
    with serving(peers, peer) as target, Client.connect(target, timeout=TIMEOUT) as client:
        assert client.protocol_info["version"] == "2026-07-28"
        SCENARIOS[scenario](client)


@pytest.fixture(scope="module")
def in_process(peers: Peers) -> dict[str, str | None]:
    """What became of every scenario with a server object in the same process: None, or how it failed."""
    done = subprocess.run(
        [peers.modern, "-m", "interop.subscription_scenarios"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
        capture_output=True,
        text=True,
        check=False,
    )
    missing = dict.fromkeys(SCENARIOS, f"exit code {done.returncode}, stderr:\n{done.stderr[-5000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {**missing, **{line["name"]: line["failure"] for line in lines}}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_in_process(in_process: dict[str, str | None], scenario: str) -> None:
    assert in_process[scenario] is None, in_process[scenario]


def test_keep_alives_of_another_server(peers: Peers) -> None:
    with serving(peers, "ts-http") as url, Client.connect(url) as client:
        subscription = listen(client, {"toolsListChanged": True}, idle_timeout=1.5)
        assert subscription.next(4.0) is None
        use(client, "change", what="tools")
        hear(subscription, "tools")


@pytest.mark.parametrize("peer", ["mcp-stdio", "ts-stdio"])
def test_a_server_that_is_killed(peers: Peers, peer: str) -> None:
    with serving(peers, peer) as target, Client.connect(target) as client:
        subscription = listen(client, {"toolsListChanged": True})
        pid = int(repr(client).partition("(pid ")[2].partition(")")[0])
        os.kill(pid, 9)
        end = closed(subscription)
        assert (end.reason, end.error and end.error.reason) == ("lost", "exited")


@pytest.mark.parametrize("peer", ["mcp-http", "ts-http"])
def test_a_server_over_http_that_is_killed(peers: Peers, peer: str) -> None:
    with serving(peers, peer) as url, Client.connect(url) as client:
        subscription = listen(client, {"toolsListChanged": True})
        hear_one(client, subscription)
    assert closed(subscription).reason == "closed"
    with serving(peers, peer) as url:
        client = Client.connect(url)
        subscription = listen(client, {"toolsListChanged": True})
        hear_one(client, subscription)
    assert closed(subscription).reason in ("lost", "complete")
    client.close()


def hear_one(client: Client, subscription: Any) -> None:
    use(client, "change", what="tools")
    hear(subscription, "tools")
