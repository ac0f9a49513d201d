"""What clients of the older revisions leave behind: no thread, no file descriptor, no process."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from snodo_client import Client, McpError
from support.leaks import repeat
from support.older import KINDS, REOPENING, Line, Message, assert_says, older, says
from support.waiting import until

CYCLES = 50
FEW = 12  # of what takes its time

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files where Linux lists them")

FORM = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("version", ["2025-11-25", "2025-03-26", "2024-11-05"])
def test_connecting_calling_and_closing(kind: str, version: str) -> None:
    with older(kind, version=version) as server:

        def once() -> None:
            with Client.connect(server.target, protocol=version) as client:
                assert_says(client)

        repeat(CYCLES, once)


def test_being_asked(kind: str) -> None:
    def call(line: Line, message: Message) -> None:
        line.ask("elicitation/create", 1, FORM, within=message)
        line.answer(message)

    with older(kind, {"tools/call": call}) as server:

        def once() -> None:
            with Client.connect(
                server.target, protocol=server.version, handlers={"form": lambda _: {"action": "cancel"}}
            ) as client:
                assert_says(client)
                server.line.answered(1)

        repeat(FEW, once)


def test_connections_that_are_lost(kind: str) -> None:
    with older(kind, {"tools/call": lambda line, _: line.end()}) as server:

        def once() -> None:
            with Client.connect(server.target, protocol=server.version, timeout=5.0) as client:
                server.line.gone.set()
                outcome = says(client, timeout=0.3)
                assert isinstance(outcome, McpError)

        repeat(FEW, once)


@pytest.mark.parametrize("kind", REOPENING)
def test_one_client_whose_connection_is_lost_again_and_again(kind: str) -> None:
    with older(kind) as server, server.connect() as client:

        def once() -> None:
            line = server.line
            line.gone.set()
            line.end()
            link: Any = client._session.connection.link
            until(lambda: kind == "http" or link.lost is not None)
            assert_says(client)

        repeat(FEW, once)
        assert len(server.lines) == FEW + 2


def called(server: Any) -> set[int]:
    return {message["id"] for message in server.received("tools/call")}


def cancelled(server: Any) -> set[int]:
    return {message["params"]["requestId"] for message in server.received("notifications/cancelled")}


def test_calls_that_run_out_of_time(kind: str) -> None:
    options = {"pool_size": 1} if kind in ("http", "sse") else {}  # how many are idle is a matter of luck
    with older(kind, {"tools/call": lambda *_: None}) as server, server.connect(**options) as client:

        def once() -> None:
            assert says(client, timeout=0.01).reason == "timeout"
            assert client.ping().ok  # over HTTP a connection is kept after it
            until(lambda: "snodo-http-post" not in {thread.name for thread in threading.enumerate()})

        repeat(CYCLES, once)
        until(lambda: called(server) <= cancelled(server))  # on a busy machine some were never sent
        assert called(server)
        server.on.clear()
        assert_says(client)


def test_handshakes_that_are_not_answered(kind: str) -> None:
    with older(kind, {"initialize": lambda *_: None}) as server:

        def once() -> None:
            with pytest.raises(McpError) as raised:
                Client.connect(server.target, protocol=server.version, timeout=0.15)
            assert raised.value.reason == "timeout"

        repeat(FEW, once)


def test_clients_that_are_dropped(kind: str) -> None:
    with older(kind) as server:

        def once() -> None:
            client = Client.connect(server.target, protocol=server.version)
            assert_says(client)
            line = server.line
            del client
            gc.collect()
            until(lambda: line.gone.is_set() or server.verbs[-1:] == ["DELETE"])

        repeat(FEW, once)
