"""The token store in Redis of docs/authorization.md, shared by processes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from peers import Peers
from support.applications import APPS, Surroundings
from support.oauth_server import Fault, OAuthWorld
from support.waiting import until

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        yield world


@pytest.fixture
def start(peers: Peers, world: OAuthWorld, tmp_path: Path) -> Iterator[Start]:
    """Starts programs that share a Redis server."""
    environment = Surroundings(tmp_path).environment
    running: list[subprocess.Popen[str]] = []

    def starting(*arguments: str) -> subprocess.Popen[str]:
        command = [str(peers.apps), "-W", "error", "-m", *arguments]
        process = subprocess.Popen(command, cwd=APPS, env=environment, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    try:
        redis = starting("cached", "serve")
        assert redis.stdout is not None
        port = redis.stdout.readline().strip()
        yield lambda user, *options: starting("redis_tokens", port, user, world.resource_url, *options)
    finally:
        for process in running:
            process.kill()
            process.communicate()


def ended(process: subprocess.Popen[str]) -> str:
    printed, _ = process.communicate(timeout=60)
    return printed.strip()


def test_each_user_has_tokens(start: Start, world: OAuthWorld) -> None:
    for user in ("ada", "bob"):
        assert ended(start(user)) == "True"
        assert ended(start(user, "never")) == "True"
    assert world.count("authorize") == 2


def test_processes_renew_one_token_once(start: Start, world: OAuthWorld) -> None:
    assert ended(start("ada")) == "True"
    world.revoke_all()
    gate = Event()
    world.faults["token"] = Fault(wait=gate)
    refused = world.count("mcp")
    programs = [start("ada", "never") for _ in range(3)]
    until(lambda: world.count("mcp") == refused + 3 and world.count("token", grant_type="refresh_token"))
    gate.set()
    assert [ended(each) for each in programs] == ["True"] * 3
    assert world.count("token", grant_type="refresh_token") == 1
    assert world.reused_refresh == 0
