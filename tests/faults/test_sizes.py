"""Answers that are too large, over every connection: little of them is read, and the client goes on."""

from __future__ import annotations

import json
import zlib
from threading import Thread
from typing import Any

import pytest

from snodo_client import Client, Ok
from support.faulty import AT_ONCE, assert_error, assert_serves, failed_connect, http_server, serving
from support.http_calls import MemoryPeak, Took
from support.scripted_http import Gone, Peer, Request, ScriptedServer, each_request, result
from support.waiting import until

MIB = 2**20
CAP = 2048
HEAD = '{"jsonrpc":"2.0","id":$ID,"result":{"text":"$FILL"}}'
TAIL = '{"result":{"text":"$FILL"},"jsonrpc":"2.0","id":$ID}'


class Flood:
    """Sends 256 MiB, if they are taken, and counts."""

    def __init__(self, *head: str, start: bytes = b"", chunked: bool = False) -> None:
        self.head = "\r\n".join(["HTTP/1.1 " + head[0], *head[1:], "", ""]).encode()
        self.start = start
        self.chunked = chunked
        self.sent = 0

    def __call__(self, peer: Peer, _: Request) -> None:
        peer.send(self.head)
        piece = b" " * 65536
        if self.start:
            (peer.chunk if self.chunked else peer.send)(self.start)
        while self.sent < 256 * MIB:
            try:
                (peer.chunk if self.chunked else peer.send)(piece)
            except Gone:
                return
            self.sent += len(piece)


@pytest.mark.parametrize("status", ["200 OK", "500 Oops"])
@pytest.mark.parametrize(
    ("kind", "framing", "mib"),
    [
        ("application/json", "Content-Length: 268435456", 16),  # refused by its length; the rest is in buffers
        ("application/json", "Transfer-Encoding: chunked", 40),
        ("application/json", "Connection: close", 40),
        ("text/event-stream", "Transfer-Encoding: chunked", 40),
        ("text/event-stream", "Content-Length: 268435456", 40),
    ],
)
def test_a_body_of_256_mib(status: str, kind: str, framing: str, mib: int) -> None:
    flood = Flood(status, f"Content-Type: {kind}", framing, start=b"data: ", chunked="chunked" in framing)
    with http_server(flood) as server, Client.connect(server.url) as client:
        with MemoryPeak() as peak, Took() as took:
            outcome = client.call_tool("fault")
        error = assert_error(outcome, "too_large", limit=16 * MIB)
        assert server.url in error.message
        assert "max_response_bytes" in error.message
        assert took.seconds < AT_ONCE
        assert_serves(client)
    assert flood.sent < mib * MIB
    assert peak.mib < 100


@pytest.mark.parametrize("status", ["200 OK", "500 Oops"])
def test_a_page_of_256_mib(status: str) -> None:
    flood = Flood(status, "Content-Type: text/html", "Content-Length: 268435456")
    with http_server(flood) as server, Client.connect(server.url) as client:
        with MemoryPeak() as peak, Took() as took:
            outcome = client.call_tool("fault")
        assert_error(outcome, "malformed" if status == "200 OK" else "http_status", http_status=int(status[:3]))
        assert took.seconds < AT_ONCE
        assert_serves(client)
    assert flood.sent < 16 * MIB
    assert peak.mib < 100


def test_a_discovery_of_256_mib() -> None:
    flood = Flood("200 OK", "Content-Type: application/json", "Transfer-Encoding: chunked", chunked=True)
    with ScriptedServer(each_request(flood)) as server, Took() as took:
        error = failed_connect(lambda: Client.connect(server.url))
    assert_error(error, "too_large", limit=16 * MIB)
    assert took.seconds < AT_ONCE
    assert flood.sent < 40 * MIB


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A small body that decompresses to 256 MiB."""
    packer = zlib.compressobj(1, wbits=31)
    return b"".join([packer.compress(b"data: "), *(packer.compress(b" " * MIB) for _ in range(256)), packer.flush()])


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/html"])
@pytest.mark.parametrize("status", ["200 OK", "500 Oops"])
def test_a_bomb(bomb: bytes, kind: str, status: str) -> None:
    def reply(peer: Peer, _: Request) -> None:
        peer.respond(status, bomb, "Content-Encoding: gzip", kind=kind)

    with http_server(reply) as server, Client.connect(server.url) as client:
        with MemoryPeak() as peak, Took() as took:
            outcome = client.call_tool("fault")
        if kind == "text/html":
            assert_error(outcome, "malformed" if status == "200 OK" else "http_status", http_status=int(status[:3]))
        else:
            assert_error(outcome, "too_large", limit=16 * MIB)
        assert took.seconds < AT_ONCE
        assert_serves(client)
    assert peak.mib < 100


@pytest.mark.parametrize("over", [-1, 0, 1])
@pytest.mark.parametrize("sse", [False, True])
def test_the_limit_of_a_body_is_exact(over: int, sse: bool) -> None:
    def reply(peer: Peer, request: Request) -> None:
        body = json.dumps(result(request, "x" * 100)).encode()
        body = body.replace(b"x" * 100, b"x" * (100 + CAP + over - len(body) - (6 if sse else 0)))
        if not sse:
            return peer.respond("200 OK", body, kind="application/json")
        peer.start_sse()
        peer.chunk(b"data: " + body + b"\n\n")
        return peer.end()

    with http_server(reply) as server, Client.connect(server.url, max_response_bytes=CAP) as client:
        for _ in range(2):
            outcome = client.call_tool("fault")
            if over > 0:
                assert_error(outcome, "too_large", limit=CAP)
            else:
                assert isinstance(outcome, Ok), outcome
        assert_serves(client)


# -- lines


def line_outcome(size: int, piece: int, text: str, end: str = "\n", **options: Any) -> Any:
    with serving("stdio") as server, server.connect(**options) as client:
        with Took() as took:
            outcome = client.call_tool("fault", {"send": [text], "fill": size, "piece": piece, "end": end})
        assert took.seconds < AT_ONCE
        for _ in range(2):
            assert_serves(client)
    return outcome


@pytest.mark.parametrize("over", [-1, 0, 1])
@pytest.mark.parametrize("piece", [1, 7, CAP - 1, CAP, CAP + 1, CAP + 2, 100_000])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_the_limit_of_a_line_is_exact_wherever_it_is_cut(over: int, piece: int, end: str) -> None:
    outcome = line_outcome(CAP + over, piece, HEAD, end, max_line_bytes=CAP)
    if over > 0:
        error = assert_error(outcome, "too_large", limit=CAP)
        assert "max_line_bytes" in error.message
        assert error.message.startswith("python")
    else:
        assert isinstance(outcome, Ok), outcome


@pytest.mark.parametrize("text", [HEAD, TAIL])
def test_a_line_far_over_the_limit(text: str) -> None:
    with MemoryPeak() as peak:
        outcome = line_outcome(40 * MIB, 100_000, text)
    assert_error(outcome, "too_large", limit=16 * MIB)
    assert peak.mib < 100


@pytest.mark.parametrize("over", [0, 1])
def test_the_default_limit_of_a_line(over: int) -> None:
    outcome = line_outcome(16 * MIB + over, 65_536, HEAD)
    if over:
        assert_error(outcome, "too_large", limit=16 * MIB)
    else:
        assert len(outcome.unwrap()["text"]) == 16 * MIB - len('{"jsonrpc":"2.0","id":2,"result":{"text":""}}')


def test_a_line_over_the_limit_fails_its_own_call_and_no_other() -> None:
    with serving("stdio") as server, server.connect(max_line_bytes=CAP) as client:
        outcomes: list[Any] = []
        waits = {"send": ['{"jsonrpc":"2.0","id":$ID,"result":{"waited":1}}'], "reverse": 2}
        thread = Thread(target=lambda: outcomes.append(client.call_tool("fault", waits, timeout=10)))
        thread.start()
        until(lambda: server.calls() == 1)
        too_long = client.call_tool("fault", {"send": [HEAD], "fill": CAP + 1, "reverse": 2})
        thread.join(10)
        assert_error(too_long, "too_large", limit=CAP)
        assert outcomes == [Ok({"waited": 1})]
        assert_serves(client)
