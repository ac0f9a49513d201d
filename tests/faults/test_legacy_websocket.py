"""WebSocket peers that misbehave under a whole client: what each call comes to, in which time, and that the next is
served.
"""

from __future__ import annotations

import json
from threading import Event
from typing import Any

import pytest

from snodo_client import Client, McpError
from support import scripted_websocket as ws
from support.faulty import AT_ONCE, assert_error
from support.http_calls import MemoryPeak, Took
from support.older import VERSION, Line, Message, assert_says, older, says
from support.scripted_http import Peer
from support.waiting import together, until


def badly(do: Any) -> dict[str, Any]:
    """The first call meets `do(line, message)`; the others are answered."""
    first = iter([do])

    def call(line: Line, message: Message) -> None:
        next(first, Line.answer)(line, message)

    return {"tools/call": call}


def answer_of(message: Message, text: str = "hello") -> Message:
    return {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}]}}


def in_fragments(line: Line, message: Message) -> None:
    data = json.dumps(answer_of(message, "h\u00e9llo"), ensure_ascii=False).encode()
    line.raw(ws.frame(data[:1], ws.TEXT, fin=False))
    for at in range(1, len(data)):  # also in the middle of a character
        line.raw(ws.frame(b"", ws.PING) + ws.frame(data[at : at + 1], ws.CONT, fin=False))
    line.raw(ws.frame(b"", ws.CONT))


def test_an_answer_in_fragments_of_a_byte() -> None:
    with older("websocket", badly(in_fragments)) as server, server.connect() as client:
        assert_says(client, "h\u00e9llo")
        assert_says(client)


LOSSES: list[tuple[str, str, Any]] = [
    ("close with a code", "closed", lambda line, _: line.raw(ws.close_frame(1011, "out of order"))),
    ("close without one", "closed", lambda line, _: line.raw(ws.frame(b"", ws.CLOSE))),
    ("close with half a code", "closed", lambda line, _: line.raw(ws.frame(b"\x03", ws.CLOSE))),
    ("close with a wrong code", "closed", lambda line, _: line.raw(ws.close_frame(1005))),
    ("the end of TCP", "closed", lambda line, _: line.end()),
    ("a masked frame", "closed", lambda line, _: line.raw(b"\x81\x80\0\0\0\0")),
    ("a reserved bit", "closed", lambda line, _: line.raw(b"\xc1\x00")),
    ("an unknown opcode", "closed", lambda line, _: line.raw(b"\x83\x00")),
    ("a continuation of nothing", "closed", lambda line, _: line.raw(ws.frame(b"x", ws.CONT))),
    ("a text inside a text", "closed", lambda line, _: line.raw(ws.frame(b"x", fin=False) + ws.frame(b"y"))),
    ("a long ping", "closed", lambda line, _: line.raw(ws.frame(b"x" * 126, ws.PING))),
    ("a ping in fragments", "closed", lambda line, _: line.raw(ws.frame(b"x", ws.PING, fin=False))),
    ("an impossible length", "too_large", lambda line, _: line.raw(b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff")),
    ("a frame over the bound", "too_large", lambda line, _: line.raw(ws.frame(b"x" * 200_000))),
    ("fragments over the bound", "too_large", lambda line, _: line.raw(
        ws.frame(b"x" * 60_000, fin=False) + ws.frame(b"x" * 60_000, ws.CONT)
    )),
    ("an announced terabyte", "too_large", lambda line, _: line.raw(b"\x81\x7f" + (2**40).to_bytes(8, "big"))),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "do"), [case[1:] for case in LOSSES], ids=[case[0] for case in LOSSES])
def test_what_ends_the_connection_fails_the_call_at_once_and_the_next_makes_another(reason: str, do: Any) -> None:
    with older("websocket", badly(do)) as server, server.connect(max_response_bytes=100_000) as client:
        with Took() as took:
            outcome = says(client)
        assert_error(outcome, reason)
        assert took.seconds < AT_ONCE
        assert_says(client, "next")
        assert server.runs() == ["hello", "next"]
        assert len(server.lines) == 2


@pytest.mark.parametrize(
    "data",
    [
        ws.frame(b"\x00\x01", ws.BINARY),
        ws.frame(b"{", ws.BINARY, fin=False) + ws.frame(b"}", ws.CONT),
        ws.frame(b"", ws.PING) * 10_000,
        ws.frame(b"x", ws.PONG) * 1000,
        ws.frame(b"[]") + ws.frame(b"null") + ws.frame(b"0"),
    ],
    ids=["binary", "binary in fragments", "pings", "pongs", "no messages"],
)
def test_what_is_passed_over(data: bytes) -> None:
    def call(line: Line, message: Message) -> None:
        line.raw(data)
        line.answer(message)

    with older("websocket", {"tools/call": call}) as server, server.connect() as client:
        for number in range(3):
            assert_says(client, str(number))
        assert len(server.lines) == 1


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"id":NaN}'], ids=str)
def test_what_is_no_json_fails_the_only_call_at_once(data: bytes) -> None:
    with older("websocket", badly(lambda line, _: line.raw(ws.frame(data)))) as server, server.connect() as client:
        with Took() as took:
            assert_error(says(client), "malformed")
        assert took.seconds < AT_ONCE
        assert_says(client)
        assert len(server.lines) == 1


def test_a_flood_of_pings_that_never_ends_costs_the_limit() -> None:
    over = Event()

    def flood(line: Line, message: Message) -> None:
        while not over.is_set():
            line.raw(ws.frame(b"x" * 100, ws.PING) * 100)

    with older("websocket", badly(flood)) as server:
        client = server.connect()
        with MemoryPeak() as peak, Took() as took:
            outcome = says(client, timeout=0.5)
        assert outcome.reason == "timeout"
        assert took.on_time(0.5)
        assert peak.mib < 32
        with Took() as took:
            client.close()
        assert took.seconds < 2.0
        over.set()


def test_a_peer_that_stops_reading_costs_eight_large_calls_their_limit_each() -> None:
    reading = Event()
    with older("websocket", {"notifications/stop": lambda line, _: reading.wait(30)}) as server:
        with server.connect() as client:
            client.notify("notifications/stop")
            text = "x" * 2_000_000  # eight are more than sockets hold
            took: list[Took] = []
            outcomes: list[McpError] = []

            def call() -> None:
                with Took() as mine:
                    outcomes.append(says(client, text, timeout=1.0))
                took.append(mine)

            together([call] * 8)
            assert {outcome.reason for outcome in outcomes} == {"timeout"}
            assert all(each.on_time(1.0) for each in took), [each.seconds for each in took]
            reading.set()
            assert_says(client)
            # What had begun was finished, and is cancelled; the rest was never sent.
            begun = len(server.runs()) - 1
            assert 0 < begun < 8
            until(lambda: server.line.methods().count("notifications/cancelled") == begun)
        assert len(server.lines) == 1


def test_a_server_that_never_says_goodbye_is_left_in_time() -> None:
    with older("websocket") as server:
        client = server.connect()
        assert_says(client)
        server.line.peer.send = lambda _: None  # type: ignore[method-assign, union-attr]
        with Took() as took:
            client.close()
        assert took.seconds < 1.0 + 1.0


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "401 Unauthorized", "503 Service Unavailable"])
def test_an_answer_of_http_instead_is_told_at_once_and_is_not_for_ever(status: str) -> None:
    refusing = iter([True])

    def script(peer: Peer) -> None:
        if next(refusing, False):
            peer.request()
            peer.respond(status, b"no WebSocket here", kind="text/plain")
            return
        ws.echoes(peer)

    with ws.serving(script) as server:
        with Took() as took, pytest.raises(McpError) as raised:
            Client.connect(("websocket", server.url), protocol=VERSION, timeout=5.0)
        assert took.seconds < AT_ONCE
        assert raised.value.reason == ("unauthorized" if "401" in status else "http_status")
        assert "no WebSocket here" in str(raised.value)


@pytest.mark.parametrize("protocol", ["graphql-ws", "mcp2", "MCP, other"])
def test_another_subprotocol_is_refused_before_anything_is_said(protocol: str) -> None:
    said: list[Any] = []

    def script(peer: Peer) -> None:
        ws.upgrade(peer, protocol=protocol)
        said.append(ws.read_frame(peer))

    with ws.serving(script) as server:
        with Took() as took, pytest.raises(McpError) as raised:
            Client.connect(("websocket", server.url), protocol=VERSION, timeout=5.0)
        assert took.seconds < AT_ONCE
        assert raised.value.reason == "malformed"
    assert [opcode for opcode, _ in said if opcode != ws.CLOSE] == []
