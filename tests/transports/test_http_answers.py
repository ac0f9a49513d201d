"""What answers over HTTP amount to: every status, content type, event stream and size a server may come up with."""

from __future__ import annotations

import gzip
import json
import logging
import threading
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from snodo_client.masking import Masking
from snodo_client.outcome import McpError, Ok
from snodo_client.transports.http_faults import plain, retry_after
from support.http_calls import MemoryPeak, Took, call_tool, connect, error_of, exchange, make_call, opened, text_of
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event, in_pieces, result

Reply = Callable[[Peer, Request], None]
NOTE = {"jsonrpc": "2.0", "method": "notifications/x", "params": {}}
BEFORE_2_SECONDS = 2.0


def outcome_of(reply: Reply, timeout: float = 10.0, **options: Any) -> Any:
    with ScriptedServer(each_request(reply)) as server, Took() as took:
        outcome = call_tool(server.url, timeout, **options)
        assert took.seconds < timeout
    return outcome


def refusal(reply: Reply, **options: Any) -> McpError:
    outcome = outcome_of(reply, **options)
    assert isinstance(outcome, McpError), outcome
    assert outcome.__cause__ is None
    assert outcome.__context__ is None
    return outcome


# -- JSON


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "Application/JSON; Charset=UTF-8",
        "application/json;charset=iso-8859-1",
        "application/problem+json",
        "text/json",
        None,
    ],
)
@pytest.mark.parametrize("status", ["200 OK", "201 Created", "400 Bad Request", "500 Oops"])
def test_a_message_is_the_answer_whatever_status_and_kind_of_json(kind: str | None, status: str) -> None:
    text = "日本 é 🙂"

    def reply(peer: Peer, request: Request) -> None:
        peer.respond(status, json.dumps(result(request, text), ensure_ascii=False).encode(), kind=kind)

    assert text_of(outcome_of(reply)) == text


@pytest.mark.parametrize("id_", ["ours", None, "missing", "foreign", 999])
@pytest.mark.parametrize(
    "status", ["400 Bad Request", "404 Not Found", "401 Unauthorized", "403 Forbidden", "500 Oops"]
)
def test_the_error_of_a_refused_post_belongs_to_it(id_: Any, status: str) -> None:
    error = {"code": -32602, "message": "no", "data": {"deep": [1, {"x": None}]}}

    def reply(peer: Peer, request: Request) -> None:
        message = {"jsonrpc": "2.0", "error": error}
        if id_ != "missing":
            message["id"] = request.id if id_ == "ours" else id_
        peer.json(message, status, kind="application/problem+json")

    outcome = refusal(reply)
    assert (outcome.code, outcome.message, outcome.data, outcome.reason) == (-32602, "no", error["data"], None)
    assert outcome.cause == ("http_status", int(status[:3]))


@pytest.mark.parametrize("id_", [7, "7", "x", True, 1.5, None])
@pytest.mark.parametrize("sse", [False, True])
def test_an_answer_to_somebody_else_is_an_error_at_once(id_: Any, sse: bool) -> None:
    def reply(peer: Peer, request: Request) -> None:
        message = {**result(request), "id": id_}
        if not sse:
            return peer.json(message)
        peer.start_sse()
        peer.chunk(event(message))
        peer.silence()
        return None

    assert refusal(reply).reason == "unexpected_id"


@pytest.mark.parametrize("loose", [str, float])
def test_an_id_in_another_dress_is_accepted_with_one_warning(
    loose: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    reply = each_request(lambda peer, request: peer.json({**result(request), "id": loose(request.id)}))
    with ScriptedServer(reply) as server, connect(server.url) as client:
        assert all(isinstance(client.call_tool("test"), Ok) for _ in range(3))
    assert [record.name for record in caplog.records if record.levelno >= logging.WARNING] == ["snodo_client.session"]


@pytest.mark.parametrize(
    "body",
    [b"", b"  ", b"{", b"[]", b"[1]", b'"text"', b"null", b"{}", b'{"jsonrpc":"2.0","id":1}', b"\xff", b"<html>",
     b'{"jsonrpc":"2.0","method":"notifications/x"}', b'{"id":1,"result":{}}', b'{"a":NaN}', b"[" * 10_000,
     b'{"jsonrpc":"2.0","id":1,"result":{"n":' + b"9" * 5000 + b"}}"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["application/json", None])
def test_a_success_without_an_answer_in_it_is_malformed(body: bytes, kind: str | None) -> None:
    error = refusal(lambda peer, _: peer.respond("200 OK", body, kind=kind))
    assert (error.reason, error.kind) == ("malformed", "transport")
    assert error.data["http_status"] == 200
    assert error.data["content_type"] == kind
    assert len(error.data["excerpt"]) <= 300


@pytest.mark.parametrize(
    "reply",
    [
        lambda peer, _: peer.respond("202 Accepted"),
        lambda peer, _: peer.send(b"HTTP/1.1 204 No Content\r\n\r\n"),
        lambda peer, _: peer.respond("200 OK", b"<html>Hello</html>", kind="text/html"),
        lambda peer, request: peer.json(result(request), kind="text/plain"),
        lambda peer, request: peer.json([result(request)]),
    ],
)
def test_a_success_that_is_no_answer_is_malformed_at_once(reply: Reply) -> None:
    assert refusal(reply).reason == "malformed"


def test_an_accepted_request_whose_stream_stays_open_is_malformed_at_once() -> None:
    def reply(peer: Peer, _: Request) -> None:
        peer.send(b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n")
        peer.silence()

    with ScriptedServer(each_request(reply)) as server, Took() as took:
        assert error_of(server.url).reason == "malformed"
    assert took.seconds < BEFORE_2_SECONDS


# -- refusals


@pytest.mark.parametrize("status", [304, 400, 403, 404, 405, 406, 410, 415, 418, 429, 500, 502, 503, 504, 599])
def test_a_refusal_keeps_status_type_and_the_start_of_the_text(status: int) -> None:
    body = b"" if status == 304 else b"<html>\n\t<h1>Sorry\x00\x1b[31m</h1>" + b"x" * 5000
    error = refusal(lambda peer, _: peer.respond(f"{status} Some Reason", body, kind="text/html; charset=x"))
    assert error.reason == ("unauthorized" if status == 403 else "http_status")
    assert error.kind == ("authorization" if status == 403 else "transport")
    assert (error.data["http_status"], error.data["content_type"]) == (status, "text/html")
    assert f"answered {status} Some Reason (text/html)" in error.message
    excerpt = error.data["excerpt"]
    assert len(excerpt) <= 300
    assert excerpt.isprintable()
    if status != 304:
        assert excerpt.startswith(r"<html> <h1>Sorry\x00\x1b[31m</h1>xxx")


@pytest.mark.parametrize(
    "body",
    [b'{"error":"invalid_token"}', b'{"error":{"code":404,"message":"x"}}', b'{"detail":"Not Found"}', b"{", b""],
)
def test_json_that_is_no_message_is_a_refusal_like_any_other(body: bytes) -> None:
    error = refusal(lambda peer, _: peer.respond("404 Not Found", body, kind="application/json"))
    assert (error.reason, error.data["excerpt"]) == ("http_status", body.decode())


def test_a_refusal_whose_text_does_not_end_is_told_soon() -> None:
    def reply(peer: Peer, _: Request) -> None:
        peer.send(b"HTTP/1.1 503 Busy\r\nContent-Type: text/html\r\nContent-Length: 1000\r\n\r\nhold on")
        peer.silence()

    with ScriptedServer(each_request(reply)) as server, Took() as took:
        error = error_of(server.url)
        assert (error.reason, error.data["excerpt"]) == ("http_status", "hold on")
    assert took.seconds < 3.0


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    "challenge",
    [None, 'Bearer resource_metadata="https://as.example/x", scope="a,b"', "Basic realm=x\r\nWWW-Authenticate: Bearer"],
)
def test_a_challenge_comes_with_the_refusal(status: int, challenge: str | None) -> None:
    headers = [] if challenge is None else [f"WWW-Authenticate: {challenge}"]
    error = refusal(lambda peer, _: peer.respond(f"{status} No", b"", *headers))
    assert (error.reason, error.kind) == ("unauthorized", "authorization")
    expected = challenge and challenge.replace("\r\nWWW-Authenticate:", ",")
    assert error.data.get("challenge") == expected


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("120", 120.0), (" 0 ", 0.0), ("-1", None), ("1.5", None), ("soon", None), ("9" * 40, None), ("", None),
     ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("Wed, 99 Oct 2015 07:28:00 GMT", None), ("Fri, 1 Dec 99999 0:0:0", None)],
)  # fmt: skip
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after(value) == seconds


def test_retry_after_counts_from_now() -> None:
    then = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 90 < (retry_after(then) or 0) <= 100
    error = refusal(lambda peer, _: peer.respond("503 Busy", b"", f"Retry-After: {then}"))
    assert 80 < error.data["retry_after"] <= 100
    assert "retry_after" not in refusal(lambda peer, _: peer.respond("503 Busy", b"", "Retry-After: rubbish")).data


def test_interim_answers_do_not_confuse_the_next_call() -> None:
    def early(peer: Peer, request: Request) -> None:
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        peer.answer(request)

    assert text_of(outcome_of(early)) == "ok"

    def hints(peer: Peer) -> None:
        request = peer.request()
        peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        peer.answer(request, "first")
        peer.answer(peer.request(), "second")

    with ScriptedServer(hints) as server, connect(server.url) as client:
        client.call_tool("test")
        for _ in range(3):  # each a connection of its own, with an answer of its own
            outcome = client.call_tool("test")
            assert isinstance(outcome, McpError)
            assert outcome.data["http_status"] == 103


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "closed"),
        (b"HTT", "malformed"),
        (b"SSH-2.0-OpenSSH\r\n", "malformed"),
        (b"HTTP/1.1 abc\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: applic", "closed"),
        (b"HTTP/1.1 404 Not", "closed"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}", "closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n64\r\n{}", "closed"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
            "closed",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}", "closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{", "malformed"),
    ],
)
def test_an_answer_cut_short_or_garbled(sent: bytes, reason: str) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(sent)

    with ScriptedServer(script) as server, Took() as took:
        error = error_of(server.url)
        assert error.reason == reason, error
    assert took.seconds < BEFORE_2_SECONDS


# -- event streams


def stream_of(*parts: bytes, status: str = "200 OK") -> Reply:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse(status=status)
        for part in parts:
            peer.chunk(part.replace(b"@", json.dumps(result(request)).encode()))
        peer.end()

    return reply


@pytest.mark.parametrize(
    "parts",
    [
        (b"data: @\n\n",),
        (b"data:@\n\n",),
        (b"event: message\r\ndata: @\r\n\r\n",),
        (b"event:message\rdata:@\r\r",),
        (b"\xef\xbb\xbfdata: @\n\n",),
        (b"data: @\r\n\n",),
        (b": ping\n\n:\r\n\r\ndata: @\n\n",),
        (b"id: 1\ndata:\n\n", b"retry: 5\n\n", b"data\n\n", b"data: @\n\n"),
        (b"event: ping\ndata: {}\n\nevent: endpoint\ndata: @\n\ndata: @\n\n",),
        (b'data: not json\n\ndata: {"type":"heartbeat"}\n\ndata: [1]\n\ndata: 1\n\ndata: @\n\n',),
        (b"data: \xff\xfe\n\ndata: @\n\n",),
        (b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\ndata: @\n\n',),
        (b'data: {"jsonrpc":"2.0","id":"s1","method":"ping"}\n\ndata: @\n\n',),
        (b"data: @\n\ndata: @\n\n",),
    ],
)
def test_streams_of_every_dialect(parts: tuple[bytes, ...]) -> None:
    assert text_of(outcome_of(stream_of(*parts))) == "ok"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_streams_split_anywhere(size: int, end: bytes) -> None:
    def reply(peer: Peer, request: Request) -> None:
        lines = [b"data: " + line.encode() for line in json.dumps(result(request, "日本"), indent=1).split("\n")]
        document = b"\xef\xbb\xbf: hi" + end + end.join([*event(NOTE).splitlines(), *lines, b"", b""])
        peer.start_sse()
        for piece in in_pieces(document, size):
            peer.chunk(piece)
        peer.end()

    assert text_of(outcome_of(reply)) == "日本"


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (b": ping\n\n",),
        (event(NOTE),),
        (b"data: @\n",),
        (b"data: @",),
        (b"id: 1\ndata: {",),
    ],
)
def test_a_stream_that_ends_without_the_answer_is_an_error_at_once(parts: tuple[bytes, ...]) -> None:
    error = refusal(stream_of(*parts))
    assert error.reason == "closed"
    assert "ended before the answer" in error.message


def test_a_refusal_may_come_as_a_stream() -> None:
    error = b'data: {"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"no"}}\n\n'
    outcome = refusal(stream_of(error, status="400 Bad Request"))
    assert (outcome.code, outcome.reason) == (-32001, None)
    assert refusal(stream_of(b": hm\n\n", status="500 Oops")).reason == "http_status"


def test_notifications_come_in_order_before_the_answer() -> None:
    notes = [{**NOTE, "params": {"n": number}} for number in range(50)]

    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(b"".join(map(event, notes)) + event(result(request)))
        peer.end()

    with ScriptedServer(each_request(reply)) as server, opened(server.url) as transport:
        messages = exchange(transport, make_call())
    assert messages[:-1] == notes
    assert messages[-1]["id"] == 1


@pytest.mark.parametrize("how", ["chunked", "close-delimited", "gzip"])
def test_events_arrive_when_they_are_sent(how: str) -> None:
    seen = threading.Event()

    def reply(peer: Peer, request: Request) -> None:
        packer = zlib.compressobj(wbits=31)

        def send(data: bytes) -> None:
            if how == "gzip":
                data = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
            peer.send(data) if how == "close-delimited" else peer.chunk(data)

        if how == "close-delimited":
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        else:
            peer.start_sse(*(["Content-Encoding: gzip"] if how == "gzip" else []))
        send(event(NOTE))
        assert seen.wait(5)
        send(event(result(request)))
        peer.silence()

    with ScriptedServer(each_request(reply)) as server, opened(server.url) as transport:
        call = make_call()
        call.link = transport._link
        messages = iter(transport.exchange(call))
        assert next(messages) == NOTE
        seen.set()
        assert next(messages)["id"] == 1


# -- connections after streams


@pytest.mark.parametrize("late", [0.0, 0.003])
def test_streams_that_end_keep_the_connection(late: float) -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(event(result(request)))
        peer.pause(late)
        peer.end()

    with ScriptedServer(each_request(reply)) as server, connect(server.url) as client:
        assert all(isinstance(client.call_tool("test"), Ok) for _ in range(100))
        assert server.connections <= (1 if late == 0.0 else 5)  # where the machine is busy, late is later


def test_streams_that_stay_open_cost_a_connection_and_no_wait() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(event(result(request)))
        peer.silence()

    with ScriptedServer(each_request(reply)) as server, connect(server.url) as client, Took() as took:
        assert all(isinstance(client.call_tool("test"), Ok) for _ in range(20))
        assert server.connections == 20
    assert took.seconds < 1.0


def test_refusals_keep_the_connection() -> None:
    with ScriptedServer(each_request(lambda peer, _: peer.respond("503 Busy", b"no", kind="text/html"))) as server:
        with connect(server.url) as client:
            for _ in range(10):
                client.call_tool("test")
        assert server.connections == 1


# -- bounds and encodings


def head(kind: str, *headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Type: {kind}", *headers, "", ""]).encode()


def flood(peer: Peer, size: int = 256 * 1024 * 1024) -> None:
    piece = b" " * 65536
    for _ in range(size // len(piece)):
        peer.send(piece)


@pytest.mark.parametrize("status", ["200 OK", "500 Oops"])
@pytest.mark.parametrize("framing", ["Content-Length: 268435456", "Connection: close"])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_a_body_of_256_mib_ends_early(status: str, framing: str, kind: str) -> None:
    def reply(peer: Peer, _: Request) -> None:
        peer.send(head(kind, framing, status=status) + b"data: ")
        flood(peer)

    with MemoryPeak() as peak:
        error = refusal(reply)
    assert (error.reason, error.data) == ("too_large", {"limit": 16 * 1024 * 1024})
    assert "max_response_bytes" in error.message
    assert peak.mib < 100


def test_a_page_of_256_mib_ends_early() -> None:
    def reply(peer: Peer, _: Request) -> None:
        peer.send(head("text/html", status="500 Oops"))
        flood(peer)

    assert refusal(reply).reason == "http_status"


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "gzip, gzip"])
def test_a_bomb_ends_early_and_takes_little_memory(kind: str, encoding: str) -> None:
    packer = zlib.compressobj(9, wbits=15 if encoding == "deflate" else 31)
    bomb = b"".join([packer.compress(b"data: "), *(packer.compress(b" " * 2**20) for _ in range(200)), packer.flush()])
    if encoding == "gzip, gzip":
        bomb = gzip.compress(bomb)

    def reply(peer: Peer, _: Request) -> None:
        peer.respond("200 OK", bomb, f"Content-Encoding: {encoding}", kind=kind)

    with MemoryPeak() as peak:
        assert refusal(reply).reason == "too_large"
    assert peak.mib < 100


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("compressed", [False, True])
def test_the_limit_is_exact(chunked: bool, compressed: bool) -> None:
    def reply(peer: Peer, request: Request) -> None:
        text = json.dumps(result(request)).encode()
        body = text + b" " * (1000 + request.message["params"]["arguments"]["over"] - len(text))
        headers = ["Content-Encoding: gzip"] if compressed else []
        body = gzip.compress(body) if compressed else body
        if not chunked:
            return peer.respond("200 OK", body, *headers, kind="application/json")
        peer.send(head("application/json", "Transfer-Encoding: chunked", *headers))
        peer.chunk(body)
        return peer.end()

    with ScriptedServer(each_request(reply)) as server, connect(server.url, max_response_bytes=1000) as client:
        assert isinstance(client.call_tool("test", {"over": 0}), Ok)
        over = client.call_tool("test", {"over": 1})
        assert isinstance(over, McpError)
        assert over.reason == "too_large"
        assert isinstance(client.call_tool("test", {"over": 0}), Ok)


def test_events_are_bounded_one_by_one_and_a_stream_is_not() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        for _ in range(50):
            peer.chunk(event({**NOTE, "params": {"x": "y" * 500}}))
        if request.message["params"]["arguments"]:
            peer.chunk(event({**NOTE, "params": {"x": "y" * 1000}}))
        peer.chunk(event(result(request)))
        peer.end()

    with ScriptedServer(each_request(reply)) as server, connect(server.url, max_response_bytes=1000) as client:
        assert isinstance(client.call_tool("test"), Ok)
        over = client.call_tool("test", {"large": True})
        assert isinstance(over, McpError)
        assert over.reason == "too_large"


def test_an_answer_before_an_event_that_is_too_large_counts() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(event(result(request)) + b"data: " + b"x" * 2000)
        peer.end()

    assert text_of(outcome_of(reply, max_response_bytes=1000)) == "ok"


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "identity", "GZip"])
def test_bodies_in_the_encodings_we_offer(encoding: str) -> None:
    def reply(peer: Peer, request: Request) -> None:
        pack = {"deflate": zlib.compress, "identity": bytes}.get(encoding, gzip.compress)
        body = pack(json.dumps(result(request)).encode())
        peer.respond("200 OK", body, f"Content-Encoding: {encoding}", kind="application/json")

    assert text_of(outcome_of(reply)) == "ok"


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, br", "rot13\x1b"])
@pytest.mark.parametrize("status", ["200 OK", "500 Oops"])
def test_an_encoding_nobody_asked_for(encoding: str, status: str) -> None:
    error = refusal(
        lambda peer, _: peer.respond(status, b"\x1b\x00", f"Content-Encoding: {encoding}", kind="application/json")
    )
    assert error.reason == ("malformed" if status == "200 OK" else "http_status")
    assert "\x1b" not in error.message


def test_a_body_that_does_not_decompress() -> None:
    error = refusal(lambda peer, _: peer.respond("200 OK", b"{}", "Content-Encoding: gzip", kind="application/json"))
    assert error.reason == "malformed"
    assert "decompress" in error.message


# -- text of servers


def test_text_is_masked_bounded_and_printable() -> None:
    assert plain("a\r\n\t b\x07\u2028c", Masking([])) == r"a b\x07 c"
    assert plain("key=SEKRET1 and SEKRET", Masking(["SEKRET", "SEKRET1"])) == "key=*** and ***"
    assert plain("x" * 1000, Masking([])) == "x" * 297 + "..."
