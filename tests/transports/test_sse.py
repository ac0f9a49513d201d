"""HTTP+SSE: the stream and the address it names, answers on the one and refusals at the other, and every end."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError
from snodo_client.transports.http import HttpTransport
from snodo_client.transports.sse import SseTransport
from support.duplex import Duplex, open_error
from support.http_calls import Took
from support.leaks import repeat
from support.scripted_http import Peer, Request, ScriptedServer, in_pieces, result
from support.scripted_sse import Reply, SseServer, accept
from support.waiting import together, until

NOTE = {"jsonrpc": "2.0", "method": "notifications/anything"}
QUESTION = {"jsonrpc": "2.0", "id": 0, "method": "roots/list"}


@contextmanager
def connected(reply: Reply = accept, /, transport: Any = None, **options: Any) -> Iterator[tuple[SseServer, Duplex]]:
    with SseServer(reply, **options) as server, Duplex(SseTransport(server.url, **transport or {})) as duplex:
        yield server, duplex


def answer_of(request: Request) -> bytes:
    return b'data: {"jsonrpc":"2.0","id":%d,"result":{"late":false}}\n\n' % request.id


# -- what is sent


def test_a_get_and_posts_with_the_headers_of_every_request() -> None:
    with connected(transport={"headers": {"X-Key": "k"}, "auth": "token"}, path="/a/sse?q=1") as (server, duplex):
        call = duplex.prepare("echo", {"text": "ü"})
        assert duplex.perform(call) == {"text": "ü"}
        assert call.delivery == "accepted"
        duplex.send("notifications/anything")
        [get], posts = server.gets, server.posts
        assert get.line == "GET /a/sse?q=1 HTTP/1.1"
        assert get.header("accept") == "text/event-stream"
        assert get.header("content-type") is None
        assert get.header("content-length") is None
        assert [post.line for post in posts] == ["POST /messages?sid=1 HTTP/1.1"] * 2
        assert posts[0].header("content-type") == "application/json"
        assert posts[1].message == NOTE
        for request in (get, *posts):
            assert request.header("x-key") == "k"
            assert request.header("authorization") == "Bearer token"
            assert not [name for name, _ in request.headers if name.startswith("mcp-")]


@pytest.mark.parametrize(
    ("version", "sent"),
    [("", None), ("2024-11-05", None), ("2025-03-26", None), ("2025-06-18",) * 2, ("2025-11-25",) * 2],
)
def test_the_version_agreed_on_goes_with_every_post(version: str, sent: str | None) -> None:
    with connected() as (server, duplex):
        duplex.link.version = version
        duplex.call()
        duplex.send("notifications/anything")
        assert [post.header("mcp-protocol-version") for post in server.posts] == [sent, sent]


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("/m?sid=1", "/m?sid=1"),
        ("m", "/a/m"),
        ("?sid=2", "/a/sse?sid=2"),
        ("../m/%C3%BC", "/m/%C3%BC"),
        ("/m#part", "/m"),
        ("  /m  ", "/m"),
        ("{origin}/whole?x", "/whole?x"),
    ],
)
def test_where_messages_go(address: str, target: str) -> None:
    server = SseServer(path="/a/sse?q=1")
    server.address = address.format(origin=server.origin)
    with server, Duplex(SseTransport(server.url)) as duplex:
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        assert server.posts[0].target == target


# -- the stream


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_streams_in_every_shape(end: bytes, size: int) -> None:
    lines = b"\xef\xbb\xbf: hello\n\nevent: other\ndata: x\n\nid: 7\nretry: 5\n\nevent: endpoint\ndata: /messages\n\n"
    lines += (
        b': ping\n\ndata: {"jsonrpc":"2.0",\ndata: "method":"notifications/anything"}\n\nevent: message\ndata:{}\n\n'
    )
    lines += b"event: message\n\ndata\n\n"

    def stream(server: SseServer, peer: Peer) -> None:
        peer.start_sse()
        for piece in in_pieces(lines.replace(b"\n", end), size):
            peer.chunk(piece)
        server.relay(peer)

    with connected(stream=stream) as (_, duplex):
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        assert duplex.inbox.messages == [NOTE, {}]


def test_what_the_server_says_by_itself_is_delivered_even_before_the_address() -> None:
    def stream(server: SseServer, peer: Peer) -> None:
        peer.start_sse()
        server.say(NOTE, QUESTION)
        server.say_raw(b"event: endpoint\ndata: /messages\n\n")
        server.relay(peer)

    with connected(stream=stream) as (server, duplex):
        assert duplex.inbox.messages == [NOTE, QUESTION]
        server.say(QUESTION)
        until(lambda: len(duplex.inbox.messages) == 3)
        duplex.transport.send({"jsonrpc": "2.0", "id": 0, "result": {}}, duplex.link, Deadline(10))
        assert server.posts[0].message == {"jsonrpc": "2.0", "id": 0, "result": {}}


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18"])
def test_a_batch_is_one_in_the_revision_that_has_them(version: str) -> None:
    with connected() as (server, duplex):
        duplex.link.version = version
        server.say([NOTE, QUESTION])
        batch = version == "2025-03-26"
        until(lambda: len(duplex.inbox.messages) == (2 if batch else 1))
        assert duplex.inbox.messages == ([NOTE, QUESTION] if batch else [[NOTE, QUESTION]])


def test_what_cannot_be_read_fails_its_call_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        if request.message["method"] == "echo":
            return accept(server, peer, request)
        server.say_raw(b'data: heartbeat\n\ndata: {"jsonrpc":"2.0","id":%d,"result":NaN}\n\n' % request.id)
        return peer.respond("202 Accepted")

    with connected(reply) as (_, duplex):
        error = duplex.call("other")
        assert error.reason == "malformed"
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        assert len(caplog.records) == 1
        assert duplex.inbox.losses == []


def test_another_address_replaces_the_first_within_the_origin(caplog: pytest.LogCaptureFixture) -> None:
    with connected() as (server, duplex):
        duplex.call()
        server.say_raw(b"event: endpoint\ndata: /second\n\n")
        server.say(NOTE)
        until(lambda: duplex.inbox.messages)
        duplex.call()
        assert caplog.records == []
        for address in (b"http://elsewhere.test/", b"ftp:x", b""):
            server.say_raw(b"event: endpoint\ndata: %b\n\n" % address)
        server.say(NOTE)
        until(lambda: len(duplex.inbox.messages) == 2)
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        assert [post.target for post in server.posts] == ["/messages?sid=1", "/second", "/second"]
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert duplex.inbox.losses == []


# -- the answers to POSTs


def test_an_answer_may_come_before_the_post_is_answered() -> None:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        server.echo(request)
        until(lambda: server.outbox.empty())
        peer.respond("202 Accepted")

    with connected(reply) as (server, duplex):
        for number in range(20):
            assert duplex.call("echo", {"n": number}) == {"n": number}
        assert server.connections <= 4  # the stream, one for the POSTs, and what a slow machine costs


def test_a_post_that_is_never_answered_costs_nothing_once_the_answer_is_there() -> None:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        server.echo(request)
        peer.silence()

    with connected(reply) as (_, duplex), Took() as took:
        for number in range(5):
            assert duplex.call("echo", {"n": number}) == {"n": number}
    assert took.seconds < 2


@pytest.mark.parametrize(
    "respond",
    [
        lambda peer, request: peer.respond("200 OK", b"ok", kind="text/plain"),
        lambda peer, request: peer.json(result(request)),
        lambda peer, request: peer.respond("200 OK", b"{broken", kind="application/json"),
        lambda peer, request: peer.respond("204 No Content"),
        lambda peer, request: (peer.start_sse(), peer.chunk(answer_of(request)), peer.end()),
    ],
)  # fmt: skip
def test_the_body_of_an_accepted_post_means_nothing(respond: Callable[[Peer, Request], None]) -> None:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        respond(peer, request)
        server.echo(request)

    with connected(reply) as (_, duplex):
        assert duplex.call("echo", {"a": "stream"}) == {"a": "stream"}
        assert duplex.call("echo", {"a": "again"}) == {"a": "again"}


@pytest.mark.parametrize(
    ("status", "reason"),
    [("400 Bad Request", "http_status"), ("404 Not Found", "http_status"), ("500 Oops", "http_status"),
     ("401 Who", "unauthorized"), ("403 No", "unauthorized"), ("302 Found", "invalid_redirect")],
)  # fmt: skip
def test_a_refused_post_fails_its_call_alone(status: str, reason: str) -> None:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        if request.message["method"] == "echo":
            return accept(server, peer, request)
        return peer.respond(status, b"because", "WWW-Authenticate: Bearer", "Location: /x", kind="text/plain")

    with connected(reply) as (_, duplex):
        waiting = duplex.prepare("echo", {"a": 1})
        error = duplex.call("refused")
        assert error.reason == reason
        assert error.data["http_status"] == int(status[:3])
        if reason != "invalid_redirect":
            assert error.data["excerpt"] == "because"
        with pytest.raises(McpError) as raised:
            duplex.send("notifications/anything")
        assert raised.value.reason == reason
        assert duplex.perform(waiting) == {"a": 1}
        assert duplex.inbox.losses == []


def test_a_post_whose_connection_breaks_fails_its_call_alone() -> None:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        if request.message["method"] == "echo":
            return accept(server, peer, request)
        return peer.sock.shutdown(2)

    with connected(reply) as (_, duplex):
        assert duplex.call("broken").reason == "closed"
        assert duplex.call("echo", {"a": 1}) == {"a": 1}


def test_a_post_is_redirected_within_the_origin_only() -> None:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        where = request.message["method"]
        if request.target == "/final":
            return accept(server, peer, request)
        return peer.respond("307 Moved", b"", f"Location: {where}")

    with connected(reply) as (server, duplex):
        assert duplex.call("/final", {"a": 1}) == {"a": 1}
        assert duplex.call("http://elsewhere.test/").reason == "cross_origin_redirect"
        assert [post.target for post in server.posts] == ["/messages?sid=1", "/final", "/messages?sid=1"]


def test_deadlines_hold_whatever_the_server_does() -> None:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        if request.message["method"] == "silent":
            return peer.silence()
        if request.message["method"] == "drip":
            return peer.drip(b"HTTP/1.1 202 " + b"x" * 100, 0.05)
        return peer.respond("202 Accepted")

    with connected(reply) as (_, duplex):
        for method in ("silent", "drip", "accepted"):
            with Took() as took:
                assert duplex.call(method, timeout=0.4).reason == "timeout"
            assert took.on_time(0.4)
        with Took() as took, pytest.raises(McpError) as raised:
            duplex.send("silent", 0.4)
        assert took.on_time(0.4)
        assert raised.value.reason == "timeout"


def test_many_threads_get_their_own_answers() -> None:
    with connected() as (_, duplex):

        def ask(number: int) -> None:
            for turn in range(5):
                assert duplex.call("echo", {"number": number, "turn": turn}) == {"number": number, "turn": turn}

        together([lambda number=number: ask(number) for number in range(16)])  # type: ignore[misc]


# -- no session


def test_an_address_elsewhere_is_refused_before_anything_is_posted() -> None:
    with ScriptedServer(lambda peer: peer.silence()) as other:
        for address in (other.origin + "/SEKRET?SEKRET", "//elsewhere.test/SEKRET", "https://127.0.0.1/SEKRET"):
            with SseServer(address=address) as server:
                error = open_error(SseTransport(server.url, auth="token"))
                assert server.posts == []
            assert error.reason == "cross_origin_endpoint"
            origin = address.replace("//elsewhere", "http://elsewhere") if address.startswith("//") else address
            assert error.data == {"endpoint": origin.partition("/SEKRET")[0]}
            assert "SEKRET" not in str(error) + repr(error.data)
        assert other.connections == 0


@pytest.mark.parametrize("address", ["", "   ", "http://user@127.0.0.1/x", "ftp://127.0.0.1/", "http://[/", "/a b"])
def test_an_address_that_is_none(address: str) -> None:
    with SseServer(address=address) as server:
        error = open_error(SseTransport(server.url))
        assert server.posts == []
    assert error.reason == "malformed"


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        ("200 OK", "text/html", "malformed"),
        ("202 Accepted", "text/event-stream", "malformed"),
        ("404 Not Found", "text/plain", "http_status"),
        ("405 Method Not Allowed", "text/plain", "http_status"),
        ("503 Busy", "text/event-stream", "http_status"),
        ("401 Unauthorized", "text/plain", "unauthorized"),
        ("302 Found", "text/plain", "invalid_redirect"),
    ],
)
def test_answers_that_are_no_stream(status: str, kind: str, reason: str) -> None:
    def stream(server: SseServer, peer: Peer) -> None:
        peer.respond(status, b"because", "Location: /login", kind=kind)

    with SseServer(stream=stream) as server:
        error = open_error(SseTransport(server.url))
        assert len(server.requests) == 1
    assert error.reason == reason
    assert error.data["http_status"] == int(status[:3])


def test_a_stream_is_redirected_within_the_origin_only() -> None:
    def stream(server: SseServer, peer: Peer) -> None:
        if len(server.gets) == 1:
            return peer.respond("307 Moved", b"", f"Location: {server.moved}")  # type: ignore[attr-defined]
        return server.told(peer)

    for moved, reason in (("/moved/", ""), ("http://elsewhere.test/", "cross_origin_redirect")):
        server = SseServer(stream=stream)
        server.moved = moved  # type: ignore[attr-defined]
        with server:
            if reason:
                assert open_error(SseTransport(server.url)).reason == reason
                continue
            with Duplex(SseTransport(server.url)) as duplex:
                assert duplex.call("echo", {"a": 1}) == {"a": 1}
            assert server.gets[1].target == "/moved/"


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n"])
def test_a_stream_without_an_address_costs_no_more_than_the_limit(beginning: bytes) -> None:
    def stream(server: SseServer, peer: Peer) -> None:
        peer.send(beginning)
        peer.silence()

    with SseServer(stream=stream) as server:
        with Took() as took:
            error = open_error(SseTransport(server.url), 0.4)
        assert took.on_time(0.4)
        assert error.reason == "timeout"


def test_a_stream_that_ends_before_it_named_an_address() -> None:
    def stream(server: SseServer, peer: Peer) -> None:
        peer.start_sse()
        peer.end()

    with SseServer(stream=stream) as server:
        assert open_error(SseTransport(server.url)).reason == "closed"
        assert len(server.gets) == 1


def test_nobody_listens() -> None:
    with SseServer() as server:
        url = server.url
    assert open_error(SseTransport(url)).reason == "unreachable"


# -- the end


@pytest.mark.parametrize("clean", [True, False])
def test_the_end_of_the_stream_fails_what_waits_at_once(clean: bool) -> None:
    answered = itertools.count(1)

    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        peer.respond("202 Accepted")
        if next(answered) == 3:
            if not clean:
                server.say_raw(b"data: " + b"x" * 2000 + b"\n\n")
            server.end_stream()

    with connected(reply, transport={"max_response_bytes": 1000}) as (server, duplex):
        errors: list[McpError] = []
        with Took() as took:
            together([lambda: errors.append(duplex.call())] * 3)
        assert took.seconds < 5
        reason = "closed" if clean else "too_large"
        assert [error.reason for error in errors] == [reason] * 3
        assert [error.reason for error in duplex.inbox.losses] == [reason]
        call = duplex.prepare()
        assert duplex.perform(call).reason == reason
        assert call.delivery == "not_sent"
        assert len(server.gets) == 1  # nothing is resumed

        server.reply = accept
        old = duplex.link
        duplex.reopen()
        assert duplex.link is not old
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        assert len(server.gets) == 2
        assert server.gets[1].header("last-event-id") is None


def test_closing_ends_everything_at_once() -> None:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        peer.respond("202 Accepted")

    with SseServer(reply) as server:
        duplex = Duplex(SseTransport(server.url))
        outcomes: list[Any] = []
        call = duplex.prepare()
        thread = threading.Thread(target=lambda: outcomes.append(duplex.perform(call)))
        thread.start()
        until(lambda: call.delivery == "accepted")
        with Took() as took:
            duplex.transport.close(Deadline(10))
            duplex.transport.close(Deadline(10))
            thread.join(10)
        assert took.seconds < 1
        assert outcomes[0].reason == "closed"
        with pytest.raises(McpError, match="closed on this side"):
            duplex.reopen()


def test_closing_ends_an_attempt_from_another_thread() -> None:
    def stream(server: SseServer, peer: Peer) -> None:
        peer.start_sse()
        peer.silence()

    with SseServer(stream=stream) as server:
        transport = SseTransport(server.url)
        errors: list[McpError] = []
        thread = threading.Thread(target=lambda: errors.append(open_error(transport, 30)))
        thread.start()
        until(lambda: server.gets)
        with Took() as took:
            transport.close(Deadline(10))
            thread.join(10)
        assert took.seconds < 2
        assert errors[0].reason == "closed"


def test_nothing_is_left_behind() -> None:
    with SseServer() as server:

        def once() -> None:
            with Duplex(SseTransport(server.url)) as duplex:
                assert duplex.call("echo", {"a": 1}) == {"a": 1}
            server.end_stream()
            until(lambda: not server._sockets)
            while not server.outbox.empty():
                server.outbox.get()

        repeat(10, once)


def test_a_forked_child_lets_go_without_a_word() -> None:
    def stream(server: SseServer, peer: Peer) -> None:
        if len(server.gets) > 1:  # the child's
            peer.start_sse()
            peer.chunk(b"event: endpoint\ndata: /childs\n\n")
            return peer.silence()
        return server.told(peer)

    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        if request.target != "/childs":
            return accept(server, peer, request)
        return peer.respond("418 Teapot")

    with connected(reply, stream=stream) as (server, duplex):
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                duplex.transport.forked()
                status = 0 if Duplex(duplex.transport).call().data["http_status"] == 418 else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert duplex.call("echo", {"c": 3}) == {"c": 3}
        assert len(server.gets) == 2


# -- options, and whom it comes from


def test_a_session_of_the_caller() -> None:
    with requests.Session() as session:
        session.headers["X-Mine"] = "yes"
        with connected(transport={"session": session}) as (server, duplex):
            assert duplex.call("echo", {"a": 1}) == {"a": 1}
            duplex.send("notifications/anything")
            assert [request.header("x-mine") for request in server.requests] == ["yes"] * 3


@pytest.mark.parametrize(
    "options", [{"auth": "two words"}, {"max_response_bytes": 0}, {"allowed_origin": "http://a.test"}]
)
def test_options_are_those_of_http(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        SseTransport("http://127.0.0.1/sse", **options)


def test_the_transport_says_what_it_is() -> None:
    traits = SseTransport.traits
    assert (traits.eras, traits.cancel, traits.reopens) == (("legacy",), "notify", True)
    assert not hasattr(SseTransport, "older")


def test_the_older_one_of_http_has_its_url_and_options() -> None:
    with SseServer() as server, Duplex(HttpTransport(server.url, auth="token").older()) as duplex:
        assert isinstance(duplex.transport, SseTransport)
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        assert server.posts[0].header("authorization") == "Bearer token"


# -- secrets


def tell(request: Request) -> bytes:
    return "\n".join([request.target, *(f"{name}: {value}" for name, value in request.headers)]).encode("latin-1")


@pytest.mark.parametrize("where", ["GET", "POST", "stream"])
@pytest.mark.parametrize("options", [{"auth": "SEKRET-token"}, {"headers": lambda: {"X-Api-Key": "SEKRET-header"}}])
def test_no_secret_gets_out(where: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    def stream(server: SseServer, peer: Peer) -> None:
        if where == "GET":
            peer.respond("500 No", tell(server.gets[0]), kind="text/plain")
        else:
            server.told(peer)

    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        if where == "POST":
            return peer.respond("500 No", tell(request), f"Retry-After: {tell(request)!r}", kind="text/plain")
        server.say_raw(b"event: endpoint\ndata: ftp://x/" + tell(request).replace(b"\n", b"") + b"\n\n")
        server.say_raw(b"data: " + tell(request).replace(b"\n", b"") + b"\n\n")
        return server.end_stream()

    address = "/messages?session_id=SEKRET-session"
    with SseServer(reply, stream=stream, address=address, path="/sse?key=SEKRET-query") as server:
        transport = SseTransport(server.url, **options)
        error: Any = None
        try:
            with Duplex(transport) as duplex:
                error = duplex.call()
        except McpError as raised:
            error = raised
        finally:
            transport.close(Deadline(5))  # nobody does where it was not even opened
    assert isinstance(error, McpError)
    shown = [repr(transport), str(error), repr(error), repr(error.data), repr(pickle.dumps(error)), caplog.text]
    shown += ["".join(traceback.format_exception(error)), *(repr(vars(record)) for record in caplog.records)]
    for text in shown:
        assert "SEKRET" not in text
