"""A `requests.Session` of the caller's, with connections that are open when the process forks."""

from __future__ import annotations

import os
from threading import Event, Thread

import pytest
import requests

from snodo_client import Client, Ok
from snodo_client.testing.demo import demo_server
from support.forking import in_a_child
from support.http_calls import VERSION
from support.scripted_http import Peer, Request, ScriptedServer, each_request

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),  # Python 3.12 warns where threads run
]


def test_a_child_uses_none_of_the_parents_connections() -> None:
    used: list[tuple[str, object]] = []

    def answer(peer: Peer, request: Request) -> None:
        text = request.message["params"]["arguments"]["text"]
        used.append((text, peer.sock.getpeername()))
        peer.answer(request)

    with (
        ScriptedServer(each_request(answer)) as server,
        requests.Session() as session,
        Client.connect(server.url, session=session, protocol=VERSION) as client,
    ):

        def say(text: str) -> bool:
            return isinstance(client.call_tool("x", {"text": text}, timeout=10.0), Ok)

        assert say("parent")
        assert in_a_child(lambda: [say("child"), say("child")]) == [True, True]
        assert say("parent")
    of_parent = {address for text, address in used if text == "parent"}
    assert len(of_parent) == 1
    assert of_parent.isdisjoint(address for text, address in used if text == "child")


def test_a_fork_in_the_middle_of_a_call() -> None:
    with (
        demo_server().serve_http(sse=True) as serving,
        requests.Session() as session,
        Client.connect(serving.url, session=session, protocol=VERSION) as client,
    ):
        parent, pids = os.getpid(), []
        read, write = os.pipe()

        def fork_now(step: object) -> None:
            if not pids:
                pids.append(os.fork())

        try:
            outcome = client.call_tool("count", {"steps": 3}, progress=fork_now, timeout=10.0)
        finally:
            if os.getpid() != parent:
                own = client.call_tool("add", {"a": 1, "b": 2}, timeout=10.0)
                os.write(write, f"{getattr(outcome, 'reason', 'answered')} {own.ok}".encode())
                os._exit(0)
        assert isinstance(outcome, Ok)
        assert os.waitpid(pids[0], 0)[1] == 0
        assert os.read(read, 100) == b"forked True"
        os.close(read)
        os.close(write)
        assert client.call_tool("add", {"a": 1, "b": 2}, timeout=10.0).ok


def test_forks_while_threads_send() -> None:
    stop, wrong = Event(), []
    with (
        ScriptedServer(each_request(lambda peer, request: peer.answer(request))) as server,
        requests.Session() as session,
        Client.connect(server.url, session=session, protocol=VERSION) as client,
    ):

        def go_on() -> None:
            while not stop.is_set():
                outcome = client.call_tool("x", {"text": "parent"}, timeout=10.0)
                if not isinstance(outcome, Ok):
                    wrong.append(outcome)

        threads = [Thread(target=go_on) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(15):
                assert in_a_child(lambda: client.call_tool("x", {"text": "child"}, timeout=10.0).ok)
        finally:
            stop.set()
            for thread in threads:
                thread.join(20)
    assert wrong == []
