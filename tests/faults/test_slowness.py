"""Servers that are slow on purpose: the call ends with its limit, not later, and the client goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from snodo_client import Client, Ok
from support.faulty import (
    ALL,
    AT_ONCE,
    assert_error,
    assert_serves,
    assert_timeout,
    failed_connect,
    http_server,
    serving,
    until_cancelled,
)
from support.http_calls import VERSION, Took
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event, result
from support.waiting import together

LIMIT = 0.3
DRIP = 0.2
ANSWER = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}'


def silent(peer: Peer, _: Request) -> None:
    peer.silence()


def dripping_head(peer: Peer, _: Request) -> None:
    peer.drip(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n", DRIP)


def dripping_header_lines(peer: Peer, _: Request) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        peer.send(b"X-More: yes\r\n")
        peer.pause(DRIP)


def silent_body(peer: Peer, _: Request) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{")
    peer.silence()


def dripping_body(peer: Peer, request: Request) -> None:
    body = json.dumps(result(request)).encode()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
    peer.drip(body, DRIP)


def dripping_chunks(peer: Peer, request: Request) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
    for byte in json.dumps(result(request)).encode():
        peer.chunk(bytes([byte]))
        peer.pause(DRIP)


def dripping_refusal(peer: Peer, _: Request) -> None:
    peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n")
    peer.drip(b"{" + b" " * 400, DRIP)


def silent_stream(peer: Peer, _: Request) -> None:
    peer.start_sse()
    peer.silence()


def dripping_stream(peer: Peer, request: Request) -> None:
    peer.start_sse()
    for byte in event(result(request)):
        peer.chunk(bytes([byte]))
        peer.pause(DRIP)


def heartbeats(peer: Peer, _: Request) -> None:
    peer.start_sse()
    while True:
        peer.chunk(b": alive\n\n")
        peer.pause(0.05)


def notifications(peer: Peer, _: Request) -> None:
    peer.start_sse()
    while True:
        peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/com.example/alive"}))
        peer.pause(0.05)


SLOW_HTTP = [
    silent,
    dripping_head,
    dripping_header_lines,
    silent_body,
    dripping_body,
    dripping_chunks,
    dripping_refusal,
    silent_stream,
    dripping_stream,
    heartbeats,
    notifications,
]


@pytest.mark.parametrize("slow", SLOW_HTTP)
def test_a_slow_answer_over_http_costs_the_limit(slow: Callable[[Peer, Request], None]) -> None:
    with http_server(slow) as server, Client.connect(server.url) as client:
        with Took() as took:
            outcome = client.call_tool("fault", timeout=LIMIT)
        assert server.url in assert_timeout(outcome, LIMIT, took).message
        assert_serves(client)


@pytest.mark.parametrize("slow", [dripping_head, dripping_body, dripping_refusal, dripping_stream, heartbeats])
def test_a_slow_discovery_over_http_costs_the_limit(slow: Callable[[Peer, Request], None]) -> None:
    with ScriptedServer(each_request(slow)) as server:
        with Took() as took:
            error = failed_connect(lambda **options: Client.connect(server.url, **options), timeout=LIMIT)
        assert took.on_time(LIMIT)
        assert server.url in assert_error(error, "timeout", code=-32001).message


def test_a_slow_discovery_over_http_costs_the_limit_of_the_probe_and_is_no_older_server() -> None:
    with ScriptedServer(each_request(silent)) as server:
        with Took() as took:
            error = failed_connect(lambda **options: Client.connect(server.url, **options), probe_timeout=LIMIT)
        assert_timeout(error, LIMIT, took)


@pytest.mark.parametrize("kind", ALL)
def test_silence_costs_the_limit(kind: str) -> None:
    with serving(kind) as server, server.connect() as client:
        with Took() as took:
            outcome = client.call_tool("fault", {"send": []}, timeout=LIMIT)
        assert server.name in assert_timeout(outcome, LIMIT, took).message
        assert_serves(client)


@pytest.mark.parametrize("kind", ALL)
def test_silence_on_discovery_costs_the_limit(kind: str) -> None:
    with serving(kind, {"server/discover": [{"send": []}]}) as server:
        with Took() as took:
            error = failed_connect(server.connect, timeout=LIMIT)
        assert took.on_time(LIMIT)
        assert server.name in assert_error(error, "timeout", code=-32001).message


def test_the_limit_of_connecting_is_told_as_it_was_given() -> None:
    with serving("direct", {"server/discover": [{"send": []}]}) as server:
        error = failed_connect(server.connect, timeout=LIMIT)
    assert "within timeout=0.3 s" in error.message
    assert error.data == {"timeout": LIMIT}


def test_silence_on_discovery_over_stdio_may_be_an_older_server() -> None:
    with serving("stdio", {"server/discover": [{"send": []}]}) as server:
        with Took() as took:
            error = failed_connect(server.connect, probe_timeout=LIMIT, timeout=10)
        assert LIMIT <= took.seconds < LIMIT + 2.0
        assert_error(error, "incompatible_versions", code=-32602, kind="protocol", supported=None)


@pytest.mark.parametrize("piece", [1, 7])
def test_a_drip_on_stdout_costs_the_limit(piece: int) -> None:
    with serving("stdio") as server, server.connect() as client:
        with Took() as took:
            fault = {"send": [ANSWER], "piece": piece, "pause": 0.03}
            outcome = client.call_tool("fault", fault, timeout=LIMIT if piece == 1 else 0.15)
        assert_timeout(outcome, LIMIT if piece == 1 else 0.15, took)
        assert_serves(client)  # whose answer comes after the rest of the drip


def test_one_byte_each_fifth_of_a_second_on_stdout() -> None:
    with serving("stdio") as server, server.connect() as client:
        with Took() as took:
            fault = {"send": ["junk"], "piece": 1, "pause": DRIP}
            outcome = client.call_tool("fault", fault, timeout=LIMIT)
        assert_timeout(outcome, LIMIT, took)
        assert_serves(client)


@pytest.mark.parametrize("kind", ALL)
def test_threads_that_wait_for_silence_all_end_in_time(kind: str) -> None:
    with serving(kind) as server, server.connect() as client:
        outcomes: list[tuple[Any, Took]] = []

        def call() -> None:
            with Took() as took:
                outcome = client.call_tool("fault", {"send": []}, timeout=LIMIT)
            outcomes.append((outcome, took))

        together([call] * 8)
        for outcome, took in outcomes:
            assert_timeout(outcome, LIMIT, took)
        assert_serves(client)


# -- servers that stop reading


def test_a_server_on_stdio_that_stops_reading(tmp_path: Path) -> None:
    awake = tmp_path / "awake"
    with serving("stdio") as server, server.connect() as client:
        client.call_tool("fault", {"send": [ANSWER], "deaf_until": str(awake)}).unwrap()
        with Took() as took:
            outcome = client.call_tool("ok", {"text": "x" * 4 * 2**20}, timeout=LIMIT)
        assert_timeout(outcome, LIMIT, took)
        with Took() as took:
            outcome = client.call_tool("ok", {}, timeout=LIMIT)
        assert_timeout(outcome, LIMIT, took)
        awake.touch()
        assert_serves(client)


def test_a_server_on_stdio_that_stops_reading_is_closed_in_time(tmp_path: Path) -> None:
    with serving("stdio") as server:
        client = server.connect(shutdown_timeout=0.5)
        client.call_tool("fault", {"send": [ANSWER], "deaf_until": str(tmp_path / "never")}).unwrap()
        client.call_tool("ok", {"text": "x" * 4 * 2**20}, timeout=0.2)
        with Took() as took:
            client.close()
        assert took.seconds < 0.7 + 1.0


def test_a_server_over_http_that_stops_reading() -> None:
    def script(peer: Peer) -> None:
        head = peer.until(b"\r\n\r\n")
        if b"mcp-name: fault" in head.lower():
            peer.server.closing.wait(20)
            return
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(peer._data) < size:
            peer._data += peer.receive()
        request = Request(head.decode(), [], peer._data[:size])
        peer.answer(request, "next")

    with ScriptedServer(script) as server, Client.connect(server.url, protocol=VERSION) as client:
        with Took() as took:
            outcome = client.call_tool("fault", {"text": "x" * 4 * 2**20}, timeout=LIMIT)
        assert_timeout(outcome, LIMIT, took)
        assert_serves(client)


# -- limits that progress moves


def test_progress_moves_the_limit_only_up_to_the_total() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        for number in range(1000):
            params = {"progressToken": request.id, "progress": number}
            peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
            peer.pause(0.05)

    with http_server(reply) as server, Client.connect(server.url) as client:
        with Took() as took:
            outcome = client.call_tool("fault", timeout=0.4, reset_timeout_on_progress=True, max_total_timeout=1.0)
        assert took.on_time(1.0)
        assert_error(outcome, "max_total_timeout", code=-32001, max_total_timeout=1.0)
        assert_serves(client)


def test_a_handler_in_process_that_hangs_holds_nobody_up() -> None:
    told = Event()

    def handle(message: Any, context: Any) -> Any:
        if message["params"]["name"] == "ok":
            content = [{"type": "text", "text": message["params"]["arguments"]["text"]}]
            return {"jsonrpc": "2.0", "id": message["id"], "result": {"content": content}}
        until_cancelled(context)
        told.set()
        return None

    with Client.direct(handle, protocol=VERSION) as client:
        with Took() as took:
            outcome = client.call_tool("hang", timeout=LIMIT)
        assert_timeout(outcome, LIMIT, took)
        assert told.wait(5)
        assert_serves(client)


def test_a_stream_that_stays_open_after_the_answer_costs_nothing() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(event(result(request)))
        peer.silence()

    with http_server(reply) as server, Client.connect(server.url) as client:
        with Took() as took:
            assert isinstance(client.call_tool("fault"), Ok)
        assert took.seconds < AT_ONCE
        assert_serves(client)
