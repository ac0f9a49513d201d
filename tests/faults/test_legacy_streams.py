"""Event streams of the older revisions that a whole client lives on, and servers that handle them badly: those of
Streamable HTTP that are cut and resumed, the one beside them, and the only one of HTTP+SSE.
"""

from __future__ import annotations

import json
import ssl
from threading import Event
from typing import Any

import pytest
import trustme

from snodo_client import Client, McpError
from support.faulty import AT_ONCE, assert_error
from support.http_calls import Took
from support.legacy_http import came, connect, initialized, legacy, refuse
from support.older import assert_all_say, assert_says, lost, older, says
from support.scripted_http import Gone, Peer, Request, ScriptedServer, event, result
from support.scripted_sse import SseServer
from support.waiting import until

SECRET = "s3cret-t0ken-value"


def text_event(request: Request, number: str = "") -> bytes:
    """The right answer to a call of the tool "ok", as an event."""
    text = request.message["params"]["arguments"]["text"]
    return (f"id: {number}\n".encode() if number else b"") + event(result(request, text))


# -- the stream of a request


def test_a_server_that_closes_the_stream_after_each_event() -> None:
    asked: list[Request] = []
    seen: list[float] = []

    def reply(peer: Peer, request: Request) -> None:
        asked.append(request)
        peer.start_sse()
        peer.chunk(b"id: 0\nretry: 1\ndata:\n\n")
        peer.end()

    def resume(peer: Peer, request: Request) -> None:
        last = request.header("last-event-id")
        if last is None:
            return peer.respond("405 Method Not Allowed")
        number = int(last) + 1
        peer.start_sse()
        if number <= 5:
            progress = {"progressToken": asked[0].id, "progress": number}
            note = event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
            peer.chunk(f"id: {number}\n".encode() + note)
        else:
            peer.chunk(text_event(asked[0], str(number)))
        return peer.end()

    with ScriptedServer(legacy(reply, get=resume)) as server, connect(server.url) as client:
        assert_says(client, progress=lambda step: seen.append(step.progress))
        assert seen == [1, 2, 3, 4, 5]
        assert len(came(server, "tools/call")) == 1
        assert [each.header("last-event-id") for each in came(server, "GET")][1:] == [str(n) for n in range(6)]


def test_a_replay_of_what_was_seen_already_is_seen_once_more_and_the_call_is_answered_once() -> None:
    """The same answer twice, and then the answer to the next call: each call has its own."""
    asked: list[Request] = []

    def reply(peer: Peer, request: Request) -> None:
        asked.append(request)
        peer.start_sse()
        if len(asked) > 1:
            peer.chunk(text_event(asked[0]) + text_event(request))
            return peer.end()
        peer.chunk(b"id: a\nretry: 1\ndata:\n\n")
        return peer.end()

    def resume(peer: Peer, request: Request) -> None:
        if request.header("last-event-id") is None:
            return peer.respond("405 Method Not Allowed")
        peer.start_sse()
        peer.chunk(b"id: a\ndata:\n\n" + text_event(asked[0]) * 3)
        return peer.end()

    with ScriptedServer(legacy(reply, get=resume)) as server, connect(server.url) as client:
        assert_says(client, "first")
        assert_says(client, "second")
        assert len(came(server, "tools/call")) == 2


@pytest.mark.parametrize("retry", ["99999999999999999999", "3600000", "-5", "1e3", "abc", "", "0"])
def test_whatever_time_the_server_names_the_call_keeps_its_own(retry: str) -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(f"id: a\nretry: {retry}\ndata:\n\n".encode())
        peer.end()

    def resume(peer: Peer, request: Request) -> None:
        if request.header("last-event-id") is None:
            return peer.respond("405 Method Not Allowed")
        return peer.silence()

    with ScriptedServer(legacy(reply, get=resume)) as server, connect(server.url) as client:
        with Took() as took:
            outcome = says(client, timeout=0.6)
        assert outcome.reason == "timeout", outcome
        assert took.on_time(0.6)
        until(lambda: came(server, "notifications/cancelled"))
        assert len(came(server, "GET")) <= 1 + 6  # not below a tenth of a second


@pytest.mark.parametrize("status", ["404 Not Found", "400 Bad Request", "405 Method Not Allowed", "501 No"])
def test_a_server_that_refuses_to_go_on_fails_the_call_and_serves_the_next(status: str) -> None:
    first = iter([True])

    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        if next(first, False):
            peer.chunk(b"id: a\nretry: 1\ndata:\n\n")
        else:
            peer.chunk(text_event(request))
        peer.end()

    get = refuse(status)
    with ScriptedServer(legacy(reply, get=get)) as server, connect(server.url) as client:
        with Took() as took:
            outcome = says(client, timeout=3.0)
        if status.startswith("5"):  # which may pass
            assert outcome.reason == "timeout"
        else:
            assert_error(outcome, "closed", http_status=int(status[:3]))
            assert took.seconds < AT_ONCE
        assert_says(client)
        assert len(came(server, "tools/call")) == 2
        assert len(came(server, "initialize")) == 1


# -- the stream beside them


def hang_up(peer: Peer, _: Request) -> None:
    raise Gone


def streams(*chunks: bytes, end: bool = True) -> Any:
    def get(peer: Peer, _: Request) -> None:
        peer.start_sse()
        for chunk in chunks:
            peer.chunk(chunk)
        peer.end() if end else peer.silence()

    return get


@pytest.mark.parametrize(
    ("get", "most"),
    [
        (streams(), 6),
        (streams(b"retry: 0\n\n"), 8),
        (streams(b"id: 1\nretry: 0\ndata:\n\n"), 8),
        (streams(b"retry: -1\n\n", b"data: x\n\n"), 6),
        (hang_up, 6),
        (lambda peer, _: peer.respond("503 Busy"), 6),
        (lambda peer, _: peer.respond("200 OK", b"<html>", kind="text/html"), 1),
        (lambda peer, _: peer.respond("401 Unauthorized"), 1),
    ],
    ids=["ends", "retry 0", "id and retry 0", "garbage", "hangs up", "503", "a page", "401"],
)
def test_a_stream_that_is_of_no_use_is_not_asked_for_in_a_hurry(get: Any, most: int) -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.json(result(request, request.message["params"]["arguments"]["text"]))

    pause = Event()
    with ScriptedServer(legacy(reply, get=get)) as server, connect(server.url) as client:
        assert_says(client)
        pause.wait(2.5)
        assert_says(client)
        assert 1 <= len(came(server, "GET")) <= most
        with Took() as took:
            client.close()
        assert took.seconds < 1.0


@pytest.mark.parametrize(
    "chunk",
    [b"\xff\xfe\xfd" * 1000, b"data: [[[[\n\n", b":" * 70_000, b"data: " + b"x" * 200_000 + b"\n\n", b"\0" * 100],
    ids=["no text", "half", "comment", "huge", "zeros"],
)
def test_garbage_on_the_stream_beside_harms_no_call(chunk: bytes) -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.json(result(request, request.message["params"]["arguments"]["text"]))

    get = streams(*[chunk] * 20, end=False)
    with ScriptedServer(legacy(reply, get=get)) as server, connect(server.url, max_response_bytes=100_000) as client:
        assert_all_say(client, [str(n) for n in range(8)])


def test_answers_to_nobody_on_the_stream_beside_harm_no_call() -> None:
    both, said = Event(), Event()
    waiting: list[Request] = []

    def get(peer: Peer, _: Request) -> None:
        peer.start_sse()
        assert both.wait(10)
        ids: list[Any] = [4711, "x", None, 1.5, True, [], -1]
        for id_ in ids:
            peer.chunk(event({"jsonrpc": "2.0", "id": id_, "result": {"content": []}}))
        peer.chunk(event({"jsonrpc": "2.0", "id": "all read", "method": "ping"}))
        peer.silence()

    def told(peer: Peer, request: Request) -> None:
        if request.message.get("id") == "all read":
            said.set()
        peer.respond("202 Accepted")

    def reply(peer: Peer, request: Request) -> None:
        waiting.append(request)
        if len(waiting) == 2:
            both.set()
        assert said.wait(10)
        peer.json(result(request, request.message["params"]["arguments"]["text"]))

    with ScriptedServer(legacy(reply, get=get, said=told)) as server, connect(server.url) as client:
        assert_all_say(client, [str(n) for n in range(2)])
        assert_says(client)


def test_a_head_that_never_comes_is_waited_for_a_tenth_of_the_time() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.json(result(request, request.message["params"]["arguments"]["text"]))

    with ScriptedServer(legacy(reply, get=lambda peer, _: peer.silence())) as server:
        with Took() as took:
            client = connect(server.url, timeout=3.0)
        assert 0.3 - 0.01 <= took.seconds < 0.3 + 1.0
        with client:
            assert_says(client)
            with Took() as took:
                client.close()
        assert took.seconds < 1.0


# -- HTTP+SSE


def handshake(server: SseServer, peer: Peer, request: Request) -> None:
    """Answer like a server of one tool: on the stream, after the POST."""
    peer.respond("202 Accepted")
    message = json.loads(request.body)
    if "id" not in message or "method" not in message:
        return
    if message["method"] == "initialize":
        server.say(initialized(request, "2024-11-05"))
    else:
        server.say(result(request, message["params"]["arguments"]["text"]))


def sse(url: str, **options: Any) -> Client:
    return Client.connect(("sse", url), **{"protocol": "2024-11-05", "timeout": 3.0, **options})


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:9/messages", "https://127.0.0.1/m", "//localhost/m", "ftp://127.0.0.1/"]
)
def test_an_address_elsewhere_gets_nothing(address: str) -> None:
    with SseServer(handshake, address=address) as server:
        with Took() as took, pytest.raises(McpError) as raised:
            sse(server.url, headers={"X-Token": SECRET})
        assert took.seconds < AT_ONCE
        assert raised.value.reason == ("malformed" if address.startswith("ftp") else "cross_origin_endpoint")
        assert SECRET not in f"{raised.value} {raised.value.data}"
        assert server.posts == []


@pytest.mark.parametrize("address", ["messages", "/messages?a=1&b=%20", "?sid=2", "http:messages", "../up/m"])
def test_an_address_may_be_written_in_many_ways(address: str) -> None:
    with SseServer(handshake, address=address) as server, sse(server.url) as client:
        assert_says(client)


def test_an_absolute_address_of_the_same_origin() -> None:
    with SseServer(handshake) as server:
        server.address = f"{server.origin}/messages?sid=7"
        with sse(server.url, headers={"X-Token": SECRET}) as client:
            assert_says(client)
        assert {each.target for each in server.posts} == {"/messages?sid=7"}
        assert {each.header("x-token") for each in server.posts} == {SECRET}


def test_no_address_at_all_costs_the_limit() -> None:
    def nothing(server: SseServer, peer: Peer) -> None:
        peer.start_sse()
        server.relay(peer)

    with SseServer(handshake, stream=nothing) as server:
        with Took() as took, pytest.raises(McpError) as raised:
            sse(server.url, timeout=0.5)
        assert took.on_time(0.5)
        assert raised.value.reason == "timeout"
        assert server.posts == []


def test_an_address_that_comes_late_and_then_again() -> None:
    def late(server: SseServer, peer: Peer) -> None:
        peer.start_sse()
        peer.chunk(b": wait\n\nevent: ping\ndata: x\n\n")
        peer.pause(0.3)
        peer.chunk(b"event: endpoint\ndata: /one\n\n")
        server.relay(peer)

    with SseServer(handshake, stream=late) as server, sse(server.url) as client:
        assert_says(client)
        server.say_raw(b"event: endpoint\ndata: http://127.0.0.1:9/evil\n\nevent: endpoint\ndata: /two\n\n")
        until(lambda: says(client).ok and server.posts[-1].target == "/two")
        assert {each.target for each in server.posts} == {"/one", "/two"}


@pytest.mark.parametrize("status", ["400 Bad", "404 Not Found", "413 Too Large", "500 Oops", "503 Busy", "302 Found"])
def test_a_post_that_is_refused_fails_its_call_and_no_other(status: str) -> None:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        if b'"refused"' not in request.body:
            return handshake(server, peer, request)
        location = ["Location: /elsewhere"] if status.startswith("3") else []
        return peer.respond(status, b"because", *location, kind="text/plain")

    with SseServer(reply) as server, sse(server.url, headers={"X-Token": SECRET}) as client:
        with Took() as took:
            outcome = says(client, "refused")
        assert took.seconds < AT_ONCE
        reason = "invalid_redirect" if status.startswith("3") else "http_status"
        assert_error(outcome, reason, http_status=int(status[:3]))
        assert_says(client)
        assert len(server.gets) == 1


def test_an_answer_before_the_post_is_answered_and_one_whose_post_never_is() -> None:
    def reply(server: SseServer, peer: Peer, request: Request) -> None:
        message = json.loads(request.body)
        if message.get("method") != "tools/call":
            return handshake(server, peer, request)
        server.say(result(request, message["params"]["arguments"]["text"]))
        if message["params"]["arguments"]["text"] == "never":
            return peer.silence()
        peer.pause(0.1)
        return peer.respond("202 Accepted")

    with SseServer(reply) as server, sse(server.url) as client:
        for text in ("before", "never", "before", "never"):
            with Took() as took:
                assert_says(client, text)
            assert took.seconds < 1.0


def test_over_tls() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with authority.cert_pem.tempfile() as bundle, older("sse", context=context) as server:
        with pytest.raises(McpError) as raised:
            server.connect()
        assert raised.value.reason == "tls"
        with server.connect(verify=bundle) as client:
            assert_all_say(client, [str(n) for n in range(8)])
            server.line.end()
            until(lambda: lost(client))
            assert_all_say(client, [str(n) for n in range(8)])
            assert len(server.received("initialize")) == 2
