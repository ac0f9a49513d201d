"""Event streams in every dialect, cut anywhere, through a whole client."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from snodo_client import Client, Ok
from support.faulty import AT_ONCE, assert_error, assert_serves, http_server
from support.http_calls import Took
from support.scripted_http import Peer, Request, in_pieces, result

Document = Callable[[Request], bytes]
TEXT = "日本 é 🙂 \u2028"


def outcome_of(document: Document, size: int = 2**20) -> Any:
    """The outcome of a call answered by a stream of these bytes, in chunks of that size, which ends."""

    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.send(b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in in_pieces(document(request), size)))
        peer.end()

    with http_server(reply) as server, Client.connect(server.url) as client:
        with Took() as took:
            outcome = client.call_tool("fault")
        assert took.seconds < AT_ONCE
        assert_serves(client)
        assert sum(request.message["method"] == "tools/call" for request in server.requests) == 2
    return outcome


def lines_of(request: Request, text: str = TEXT) -> list[bytes]:
    """The answer over many data lines, as UTF-8 and not as escapes."""
    return json.dumps(result(request, text), ensure_ascii=False, indent=1).encode().split(b"\n")


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
@pytest.mark.parametrize(
    "ends", [[b"\n"], [b"\r"], [b"\r\n"], [b"\n", b"\r", b"\r\n"], [b"\r", b"\r\n", b"\n"]], ids=repr
)
@pytest.mark.parametrize("size", [1, 3, 2**20])
def test_every_line_end_split_anywhere(bom: bytes, ends: list[bytes], size: int) -> None:
    def document(request: Request) -> bytes:
        note = b'data: {"jsonrpc":"2.0","method":"notifications/com.example/x"}'
        lines = [b": hello", note, b"", b"event: message", b"id: 7", b"retry: 10"]
        lines += [b"data: " + line for line in lines_of(request)]
        ended = [line + ends[number % len(ends)] for number, line in enumerate([*lines, b"", b""])]
        return bom + b"".join(ended)

    outcome = outcome_of(document, size)
    assert isinstance(outcome, Ok), outcome
    assert outcome.value["content"][0]["text"] == TEXT


@pytest.mark.parametrize(
    "before",
    [
        b"data\n\n",
        b"data:\n\n",
        b"data: \n\n",
        b"id\n\n",
        b"retry: x\n\n",
        b":\n\n:\r\n\r\n: ping\r\r",
        b": " + b"x" * 100_000 + b"\n\n",
        b": ping\n\n" * 20_000,
        b"\n" * 1000,
        b"event: ping\ndata: {}\n\n",
        b"unknown: field\nno colon\n\n",
        b'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/x"}\n\n',
        b"id: a\0b\ndata:\n\n",
    ],
    ids=lambda data: repr(data[:20]),
)
def test_what_may_come_before_the_answer(before: bytes) -> None:
    outcome = outcome_of(lambda request: before + b"data: " + json.dumps(result(request, TEXT)).encode() + b"\n\n")
    assert isinstance(outcome, Ok), outcome
    assert outcome.value["content"][0]["text"] == TEXT


@pytest.mark.parametrize(
    "tail",
    [b"", b": only comments\n\n" * 50, b"data\n\n", b"data:\n\n" * 3, b"data: @", b"data: @\n", b"data: @\r",
     b"event: other\ndata: @\n\n", b"data: {\n\ndata: }\n\n", b"id: 1\n\n", b"\xef\xbb\xbf\xef\xbb\xbfdata: @\n\n",
     b" data: @\n\n", b"DATA: @\n\n"],
)  # fmt: skip
def test_a_stream_that_ends_without_the_answer_is_an_error_at_once(tail: bytes) -> None:
    def document(request: Request) -> bytes:
        return tail.replace(b"@", json.dumps(result(request)).encode())

    error = assert_error(outcome_of(document), "closed", http_status=200, content_type="text/event-stream")
    assert error.message.startswith("http://127.0.0.1:")
    assert "ended before the answer" in error.message


@pytest.mark.parametrize("size", [1, 2, 2**20])
def test_broken_utf_8_is_replaced(size: int) -> None:
    def document(request: Request) -> bytes:
        return b"data: " + json.dumps(result(request, "@")).encode().replace(b"@", b"\xff\xe2\x82\xc3 ok") + b"\n\n"

    outcome = outcome_of(document, size)
    assert isinstance(outcome, Ok), outcome
    assert outcome.value["content"][0]["text"] == "\ufffd\ufffd\ufffd ok"


def test_what_follows_the_answer_does_not_count() -> None:
    def document(request: Request) -> bytes:
        good = json.dumps(result(request, "first")).encode()
        return b"data: " + good + b"\n\ndata: " + json.dumps(result(request, "second")).encode() + b"\n\ndata: {\xff"

    assert outcome_of(document).unwrap()["content"][0]["text"] == "first"


def test_an_event_over_the_limit_in_many_lines() -> None:
    def document(request: Request) -> bytes:
        return b"data: \n" * 5000 + b"data: " + json.dumps(result(request)).encode() + b"\n\n"

    error = assert_error(outcome_of(document), "too_large")
    assert "limit" in error.data
