"""The caches of Django and a Redis client as stores, unchanged: in one process, between processes, and with clients."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peers import Peers
from snodo_client.testing import Server
from support.applications import Surroundings

SHARED = ["django-files", "redis"]
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def redis_port(peers: Peers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that speaks the protocol of Redis over a real socket."""
    environment = Surroundings(tmp_path_factory.mktemp("redis")).environment
    command = [str(peers.apps), "-m", "cached", "serve"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.fixture(params=["django-memory", *SHARED])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(store: str, peers: Peers, tmp_path: Path, request: pytest.FixtureRequest) -> Run:
    """Do one thing with the store, in a process of its own, and give what came of it."""
    where = {"django-files": str(tmp_path / "files")}.get(store, "")
    name = f"redis:{request.getfixturevalue('redis_port')}" if store == "redis" else f"{store}:{where}"

    def running(what: str, url: str = "") -> Any:
        command = [str(peers.apps), "-W", "error", "-m", "cached", name, what, url]
        done = subprocess.run(
            command, env=Surroundings(tmp_path).environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return running


def test_answers_are_kept_and_ended(run: Run) -> None:
    seen = run("alone")
    assert len(seen) == 9
    assert [what for what, right in seen.items() if not right] == []


@pytest.mark.parametrize("store", SHARED, indirect=True)
def test_processes_share_answers_and_changes(run: Run) -> None:
    run("keep")
    assert run("look") is True
    run("change")
    assert run("look") is False


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_the_store_keeps_an_answer_about_as_long_as_it_is_fresh(run: Run) -> None:
    assert 2 in run("lifetimes")


@pytest.mark.parametrize("scope", ["public", "private"])
def test_clients_ask_once_for_each_who_may_share_the_answer(run: Run, scope: str) -> None:
    server = Server(ttl_ms=3_600_000, cache_scope=scope)
    server.tool(name="x")(lambda: "")
    server.resource("memo://1")(lambda: "text")
    with server.serve_http() as http:
        answers = run("client", http.url)
    assert len(answers) == 12
    assert all(answer[0]["name"] == "x" for answer in answers[::2])
    assert all(answer["contents"][0]["text"] == "text" for answer in answers[1::2])
    times = 1 if scope == "public" else 2
    assert Counter(call.method for call in server.calls) == {"tools/list": times, "resources/read": times}
