"""A Django project under gunicorn, which forks its workers: with and without --preload, over stdio and HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from subprocess import Popen
from threading import Event
from typing import Any

import pytest
from apps.tool_server import server

from peers import Peers
from support.applications import Surroundings
from support.http_calls import Took
from support.waiting import together, until

WORKERS = 2
WAYS = [("spec", "stdio"), ("spec", "http"), ("client", "stdio"), ("client", "http")]
_texts = count()


class Site:
    def __init__(self, address: tuple[str, int], master: Popen[str], around: Surroundings) -> None:
        self.address = address
        self.master = master
        self.around = around

    def ask(self, way: str = "spec", kind: str = "stdio") -> dict[str, Any]:
        """What a view tells, once it is known that the answer was meant for this very request."""
        text = f"token-{next(_texts)}"
        connection = HTTPConnection(*self.address, timeout=20)
        try:
            connection.request("GET", f"/{way}/{kind}?text={text}", headers={"Connection": "close"})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        assert response.status == 200, body
        told: dict[str, Any] = json.loads(body)
        assert told.get("text", text) == text, "an answer to somebody else"
        return told

    def many(self, threads: int, each: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        together([lambda: found.extend(each() for _ in range(12))] * threads)
        return found

    def workers(self) -> set[int]:
        """Those that answer now, asked until there are as many as there should be."""
        found: set[int] = set()
        until(lambda: found.add(self.ask()["worker"]) or len(found) >= WORKERS)  # type: ignore[func-returns-value]
        return found


@pytest.fixture(params=[False, True], ids=["", "preload"])
def preload(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def start(peers: Peers, tmp_path: Path, preload: bool) -> Callable[..., Any]:
    @contextmanager
    def starting(*options: str) -> Iterator[Site]:
        with server.serve_http() as tools, socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
            around = Surroundings(tmp_path, tools.url)
            command = [str(peers.apps), "-m", "gunicorn", "shop.wsgi", "--bind", f"fd://{listener.fileno()}"]
            command += ["--workers", str(WORKERS), "--threads", "4", "--log-level", "warning", "--no-control-socket"]
            command += ["--preload"] * preload
            address = listener.getsockname()
            with around.program([*command, *options], pass_fds=[listener.fileno()]) as master:
                listener.close()  # or what nobody accepts any more would wait here
                yield Site(address, master, around)
                master.terminate()
                with Took() as took:
                    master.wait(20)
                assert took.seconds < 5

    return starting


def test_every_request_gets_its_own_answer(start: Callable[..., Any], preload: bool) -> None:
    with start() as site:
        site.workers()
        for way, kind in WAYS:
            told = site.many(6, lambda way=way, kind=kind: site.ask(way, kind))
            assert len({each["worker"] for each in told}) == WORKERS
            if preload and (way, kind) == ("client", "stdio"):
                assert {each.get("reason") for each in told} == {"forked"}
                continue
            assert {each.get("reason") for each in told} == {None}
            served = {(each["worker"], each["server"]) for each in told}
            assert len(served) == WORKERS, "each worker has one server, and keeps it"
            assert len({by for _, by in served}) == (1 if kind == "http" else WORKERS), "and shares it with nobody"
        early = 1 if preload else WORKERS
        assert len(site.around.running()) == len(site.around.servers()) == early + WORKERS


def test_workers_that_are_replaced_take_their_servers_along(start: Callable[..., Any], preload: bool) -> None:
    with start() as site:
        before, servers = site.workers(), set(site.around.running())
        stop, told = Event(), []

        def go_on() -> None:
            while not stop.is_set():
                told.append(site.ask())

        def replace() -> None:
            try:
                os.kill(site.master.pid, signal.SIGHUP)
                until(lambda: {each["worker"] for each in told[-20:]}.isdisjoint(before))
                site.workers()
                kept = 1 if preload else 0  # that of the client made before the fork
                until(lambda: len(servers & set(site.around.running())) == kept)
            finally:
                stop.set()

        together([go_on, go_on, go_on, replace])
        assert {each.get("reason") for each in told} == {None}
        early = 1 if preload else WORKERS
        until(lambda: site.ask() and len(site.around.running()) == early + WORKERS)


def test_workers_that_end_after_some_requests(start: Callable[..., Any], preload: bool) -> None:
    with start("--max-requests", "30") as site:
        told = site.many(6, site.ask) + site.many(6, lambda: site.ask("spec", "http"))
        assert {each.get("reason") for each in told} == {None}
        assert len({each["worker"] for each in told}) > WORKERS


def test_the_end_while_requests_run(start: Callable[..., Any], preload: bool) -> None:
    with start() as site:
        site.workers()
        ended = Event()

        def go_on() -> None:
            while not ended.is_set():
                try:
                    site.ask()
                except (OSError, ConnectionError):
                    return

        def end() -> None:
            site.master.terminate()
            site.master.wait(20)
            ended.set()

        together([go_on, go_on, end])
        assert site.master.returncode == 0
