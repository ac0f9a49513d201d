"""Streamable HTTP before revision 2026-07-28: messages of a session, wherever their answers arrive."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

import pytest
import requests

from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError, Ok, local_error
from snodo_client.protocol import jsonrpc
from snodo_client.transports.http import HttpTransport
from snodo_client.transports.http_posting import Attempt, Posts
from support import http_calls
from support.http_calls import Took, text_of
from support.legacy_http import SESSION_ID, Listening, came, connect, initialized, legacy, make_call, refuse, renumber
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event, result
from support.waiting import together, until

WITH_VERSION_HEADER = {"2025-11-25": True, "2025-06-18": True, "2025-03-26": False, "2024-11-05": False}


def silent_stream(peer: Peer, _: Request) -> None:
    peer.start_sse()
    peer.silence()


class Stream:
    """The script of a standalone stream that says what the test tells it to."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self._peer: Peer | None = None

    def __call__(self, peer: Peer, _: Request) -> None:
        peer.start_sse()
        self._peer = peer
        self.open.set()
        peer.silence()

    def say(self, value: object) -> None:
        assert self.open.wait(5)
        assert self._peer is not None
        self._peer.chunk(event(value))


# -- headers


@pytest.mark.parametrize(("version", "named"), WITH_VERSION_HEADER.items())
def test_every_message_after_the_handshake_bears_version_and_session(version: str, named: bool) -> None:
    with ScriptedServer(legacy(version=version, get=silent_stream)) as server:
        with connect(server.url, version, headers={"X-Key": "k"}, auth="t0k3n") as client:
            assert isinstance(client.call_tool("test", {"a": 1}), Ok)
            assert isinstance(client.notify("notifications/test"), Ok)
        first, *later = server.requests
    assert first.message["method"] == "initialize"
    assert (first.header("mcp-session-id"), first.header("mcp-protocol-version")) == (None, None)
    assert [request.line.split(" ")[0] for request in later] == ["POST", "GET", "POST", "POST", "DELETE"]
    for request in later:
        assert request.header("mcp-session-id") == SESSION_ID
        assert request.header("mcp-protocol-version") == (version if named else None)
    for request in server.requests:
        assert not [name for name, _ in request.headers if name.startswith(("mcp-method", "mcp-name", "mcp-param"))]
        assert (request.header("x-key"), request.header("authorization")) == ("k", "Bearer t0k3n")
    get, delete = came(server, "GET")[0], came(server, "DELETE")[0]
    assert get.header("accept") == "text/event-stream"
    for bare in (get, delete):
        assert (bare.body, bare.header("content-type"), bare.header("content-length")) == (b"", None, None)


def test_a_session_id_comes_with_the_answer_to_initialize_only() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.json(result(request), "200 OK", "Mcp-Session-Id: later")

    with ScriptedServer(legacy(reply, session_id=None)) as server:
        with connect(server.url) as client:
            client.call_tool("test")
            client.call_tool("test")
        assert [request.header("mcp-session-id") for request in server.requests] == [None] * len(server.requests)
        assert came(server, "DELETE") == []


def test_a_session_id_may_come_with_a_stream_and_is_in_force_at_once() -> None:
    """A server may ask before it has answered `initialize`."""
    answered = threading.Event()

    def serve(peer: Peer, request: Request) -> None:
        if request.line.startswith("POST") and request.message.get("method") == "initialize":
            peer.start_sse(f"Mcp-Session-Id: {SESSION_ID}")
            peer.chunk(event(jsonrpc.request(0, "ping")))
            assert answered.wait(5)
            peer.chunk(event(initialized(request)))
            return peer.end()
        if b'"result"' in request.body:
            answered.set()
        return peer.respond("202 Accepted")

    with ScriptedServer(each_request(serve)) as server, connect(server.url):
        pong = server.requests[1]
        assert pong.message == {"jsonrpc": "2.0", "id": 0, "result": {}}
        assert pong.header("mcp-session-id") == SESSION_ID
        assert pong.header("mcp-protocol-version") is None


@pytest.mark.parametrize("bad", ["two words", "caf\xe9", "x" * 8193, "tab\there", "\x01"])
def test_a_bad_session_id_is_refused(bad: str) -> None:
    def serve(peer: Peer, request: Request) -> None:
        body = json.dumps(initialized(request)).encode()
        head = f"HTTP/1.1 200 OK\r\nMcp-Session-Id: {bad}\r\nContent-Type: application/json\r\n"
        peer.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body)

    with ScriptedServer(each_request(serve)) as server:
        with pytest.raises(McpError) as caught:
            connect(server.url)
        assert caught.value.reason == "malformed"
        assert bad not in str(caught.value)
        assert len(server.requests) == 1


def test_an_empty_session_id_is_none() -> None:
    with ScriptedServer(legacy(session_id="")) as server:
        with connect(server.url) as client:
            assert isinstance(client.call_tool("test"), Ok)
        assert [request.header("mcp-session-id") for request in server.requests] == [None] * len(server.requests)
        assert came(server, "DELETE") == []


def test_the_session_id_is_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with (
        ScriptedServer(legacy(lambda peer, _: peer.respond("500 Oops", f"no: {SESSION_ID}".encode()))) as server,
        connect(server.url) as client,
    ):
        outcome = client.call_tool("test")
        assert isinstance(outcome, McpError)
        assert outcome.data["excerpt"] == "no: ***"
        link = client._session.connection.link
        transport = client._session.connection.transport
        shown = [str(outcome), repr(outcome), repr(outcome.data), repr(link), repr(transport), caplog.text]
        assert not [text for text in shown if SESSION_ID in text]


def test_the_id_is_masked_in_the_very_answer_that_brings_it() -> None:
    def serve(peer: Peer, request: Request) -> None:
        body = f"your id is {SESSION_ID}".encode()
        peer.respond("200 OK", body, f"Mcp-Session-Id: {SESSION_ID}", kind="application/json")

    with ScriptedServer(each_request(serve)) as server, pytest.raises(McpError) as caught:
        connect(server.url)
    assert caught.value.data["excerpt"] == "your id is ***"


# -- answers


def in_json(peer: Peer, value: object) -> None:
    peer.json(value)


def in_a_stream(peer: Peer, value: object) -> None:
    peer.start_sse()
    peer.chunk(event(value))
    peer.end()


@pytest.mark.parametrize("send", [in_json, in_a_stream])
def test_answers_come_as_json_or_in_a_stream_on_one_connection(send: Any) -> None:
    with (
        ScriptedServer(legacy(lambda peer, request: send(peer, result(request)))) as server,
        connect(server.url) as client,
    ):
        for _ in range(5):
            assert text_of(client.call_tool("test")) == "ok"
        assert server.connections == 1


@pytest.mark.parametrize("send", [in_json, in_a_stream])
@pytest.mark.parametrize("version", WITH_VERSION_HEADER)
def test_a_batch_is_read_in_the_one_revision_that_has_them(send: Any, version: str) -> None:
    seen: list[Any] = []

    def reply(peer: Peer, request: Request) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": 1}}
        foreign = {"jsonrpc": "2.0", "id": 1, "result": {}}
        send(peer, [foreign, note, result(request)])

    with (
        ScriptedServer(legacy(reply, version=version)) as server,
        connect(server.url, version, on_notification=lambda *got: seen.append(got)) as client,
    ):
        outcome = client.call_tool("test")
        if version == "2025-03-26":
            assert text_of(outcome) == "ok"
            until(lambda: seen == [("notifications/x", {"a": 1})])
        else:
            assert isinstance(outcome, McpError)
            assert outcome.reason == "malformed"
            assert seen == []


@pytest.mark.parametrize(
    "body", [[], [[]], [{}], [jsonrpc.notification("notifications/x")], [1], [{"jsonrpc": "2.0", "id": 7}]]
)
def test_a_batch_without_an_answer_is_malformed(body: Any) -> None:
    with (
        ScriptedServer(legacy(lambda peer, _: peer.json(body), version="2025-03-26")) as server,
        connect(server.url, "2025-03-26") as client,
    ):
        outcome = client.call_tool("test")
        assert isinstance(outcome, McpError)
        assert outcome.reason == "malformed"


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "404 Not Found"])
def test_an_error_without_an_id_is_the_answer(status: str) -> None:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "no"}}

    def reply(peer: Peer, request: Request) -> None:
        peer.json(error, status)

    with ScriptedServer(legacy(reply, session_id=None)) as server, connect(server.url) as client:
        outcome = client.call_tool("test")
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.reason) == (-32602, None)


def test_an_answer_that_cannot_be_read_fails_its_call_at_once() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(b"data: banner\n\n")
        peer.chunk(b'data: {"jsonrpc":"2.0","id":%d,"result":{"a":NaN}}\n\n' % request.id)
        peer.silence()

    with ScriptedServer(legacy(reply)) as server, connect(server.url) as client, Took() as took:
        outcome = client.call_tool("test", timeout=10)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "malformed"
    assert took.seconds < 5


def test_the_bound_on_answers_holds() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        while True:
            peer.chunk(b"data: " + b"x" * 5000)

    with ScriptedServer(legacy(reply)) as server, connect(server.url, max_response_bytes=20_000) as client:
        outcome = client.call_tool("test")
        assert isinstance(outcome, McpError)
        assert outcome.reason == "too_large"


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
def test_refused_credentials_are_told_as_ever(status: str) -> None:
    with (
        ScriptedServer(legacy(lambda peer, _: peer.respond(status, b"", "WWW-Authenticate: Bearer"))) as server,
        connect(server.url) as client,
    ):
        outcome = client.call_tool("test")
        assert isinstance(outcome, McpError)
        assert (outcome.reason, outcome.data["challenge"]) == ("unauthorized", "Bearer")


def test_redirects_keep_the_session_within_the_origin() -> None:
    def reply(peer: Peer, request: Request) -> None:
        if request.target == "/new":
            return peer.json(result(request))
        elsewhere = request.message["params"]["arguments"].get("elsewhere")
        location = "http://other.example/" if elsewhere else "/new"
        return peer.respond("307 On", b"", f"Location: {location}")

    with ScriptedServer(legacy(reply)) as server, connect(server.url) as client:
        assert isinstance(client.call_tool("test"), Ok)
        assert server.requests[-1].header("mcp-session-id") == SESSION_ID
        outcome = client.call_tool("test", {"elsewhere": True})
        assert isinstance(outcome, McpError)
        assert outcome.reason == "cross_origin_redirect"


def test_what_was_sent_on_a_connection_closed_meanwhile_is_sent_again_for_reads_only() -> None:
    """The server closes each connection after its answer, without saying so; only the handshake has one to its end."""

    def script(peer: Peer) -> None:
        request = peer.request()
        if request.line.startswith(("GET", "DELETE")):
            return peer.respond("405 Method Not Allowed")
        if request.message.get("method") == "initialize":
            peer.json(initialized(request))
            request = peer.request()
        if "id" not in request.message:
            return peer.respond("202 Accepted")
        return peer.json({**result(request), "result": {"tools": []}})

    with ScriptedServer(script) as server, connect(server.url) as client:
        gone = client._session.connection.link.slots._idle  # type: ignore[union-attr]
        until(lambda: all(slot.connection.is_connected is False for slot in gone))
        assert client.list_tools().unwrap() == []


# -- answers that come on other streams


def test_accepted_without_a_stream_to_answer_on_is_malformed_at_once() -> None:
    with ScriptedServer(legacy(refuse("202 Accepted"))) as server, connect(server.url) as client:
        with Took() as took:
            outcome = client.call_tool("test", timeout=30)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "malformed"
        assert took.seconds < 5


@pytest.mark.parametrize("status", ["202 Accepted", "204 No Content"])
def test_an_accepted_request_is_answered_on_the_other_stream(status: str) -> None:
    stream = Stream()

    def reply(peer: Peer, request: Request) -> None:
        peer.send(f"HTTP/1.1 {status}\r\n{'' if '204' in status else 'Content-Length: 0'}\r\n".encode())
        peer.send(b"\r\n" if "202" in status else b"")
        stream.say(result(request, "there"))

    with ScriptedServer(legacy(reply, get=stream)) as server, connect(server.url) as client:
        assert stream.open.wait(5)
        assert text_of(client.call_tool("test", timeout=10)) == "there"


def test_accepted_requests_fail_when_that_stream_is_over_for_good() -> None:
    accepted, opened = threading.Event(), threading.Event()

    def reply(peer: Peer, _: Request) -> None:
        peer.respond("202 Accepted")
        accepted.set()

    def get(peer: Peer, _: Request) -> None:
        if opened.is_set():
            return peer.respond("404 Not Found")
        peer.start_sse()
        peer.chunk(b"retry: 1\n\n")
        opened.set()
        assert accepted.wait(5)
        return peer.end()

    with ScriptedServer(legacy(reply, get=get)) as server, connect(server.url) as client, Took() as took:
        assert opened.wait(5)
        outcome = client.call_tool("test", timeout=30)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "http_status"
    assert took.seconds < 10


def test_progress_and_answers_reach_their_call_from_any_stream() -> None:
    """The answer of one call comes in the stream of another, its progress on the stream of the session."""
    stream, waiting = Stream(), threading.Event()
    first: list[Request] = []

    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        if not first:
            first.append(request)
            waiting.set()
            peer.silence()
        token = first[0].message["params"]["_meta"]["progressToken"]
        for number in (1, 2):
            stream.say(jsonrpc.notification("notifications/progress", {"progressToken": token, "progress": number}))
        until(lambda: progress == [1, 2])
        peer.chunk(event(result(first[0], "first")))
        peer.chunk(event(result(request, "second")))
        peer.end()

    progress: list[Any] = []
    with ScriptedServer(legacy(reply, get=stream)) as server, connect(server.url) as client:

        def call_first() -> None:
            outcome = client.call_tool("test", progress=lambda got: progress.append(got.progress))
            assert text_of(outcome) == "first"

        def call_second() -> None:
            assert waiting.wait(5)
            assert text_of(client.call_tool("test")) == "second"

        together([call_first, call_second])


def test_a_server_may_ask_during_a_call_and_is_answered_beside_it() -> None:
    answers: list[Any] = []
    answered = threading.Event()

    def said(peer: Peer, request: Request) -> None:
        peer.respond("202 Accepted")
        if "result" in request.message:
            answers.append((request.message, request.header("mcp-session-id")))
            answered.set()

    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(event(jsonrpc.request(request.id, "roots/list")))  # its own numbers, which are ours too
        assert answered.wait(5)
        peer.chunk(event(result(request)))
        peer.end()

    with (
        ScriptedServer(legacy(reply, said=said)) as server,
        connect(server.url, handlers={"roots": lambda _: {"roots": []}}) as client,
    ):
        assert isinstance(client.call_tool("test"), Ok)
        assert answers == [({"jsonrpc": "2.0", "id": 2, "result": {"roots": []}}, SESSION_ID)]


# -- ending a call


def test_a_call_that_times_out_is_cancelled_by_a_notification_and_its_post_is_dropped() -> None:
    gone = threading.Event()

    def reply(peer: Peer, request: Request) -> None:
        try:
            peer.start_sse()
            peer.silence()
        finally:
            gone.set()

    with ScriptedServer(legacy(reply)) as server, connect(server.url) as client:
        with Took() as took:
            outcome = client.call_tool("test", timeout=0.3)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "timeout"
        assert took.on_time(0.3)
        assert gone.wait(5)
        until(lambda: came(server, "notifications/cancelled"))
        cancelled = came(server, "notifications/cancelled")[0]
        assert cancelled.message["params"]["requestId"] == came(server, "tools/call")[0].id
        assert cancelled.header("mcp-session-id") == SESSION_ID


def test_closing_the_client_ends_its_calls() -> None:
    arrived = threading.Event()

    def reply(peer: Peer, _: Request) -> None:
        arrived.set()
        peer.silence()

    with ScriptedServer(legacy(reply)) as server:
        client = connect(server.url)

        def call() -> None:
            outcome = client.call_tool("test", timeout=30)
            assert isinstance(outcome, McpError)
            assert outcome.reason == "closed"

        def close() -> None:
            assert arrived.wait(5)
            client.close()

        with Took() as took:
            together([call, close])
        assert took.seconds < 5
        until(lambda: not [thread for thread in threading.enumerate() if thread.name == "snodo-http-post"])


def test_an_attempt_that_is_over_tells_its_call_nothing() -> None:
    transport = HttpTransport("http://127.0.0.1:1/")
    call = make_call(transport.open(Listening(), Deadline(10)))
    attempt = Attempt(call, call.link, Posts(1.0))  # type: ignore[arg-type]
    attempt.delivery, attempt.status = "unknown", 200
    assert (call.delivery, call.status) == ("unknown", 200)
    attempt.let_go()
    attempt.answer({"late": True})
    attempt.delivery = "accepted"
    with pytest.raises(McpError):
        attempt.status = 500
    assert (call.delivery, call.status, call.backlog) == ("unknown", 200, 0)
    with pytest.raises(McpError):
        attempt.check()
    transport.close(Deadline(5))


def test_nothing_late_reaches_the_next_attempt_of_a_call() -> None:
    """The first attempt is let go of while it is connecting, waiting or answered; the same call goes out again."""

    def reply(peer: Peer, request: Request) -> None:
        if request.id % 2 == 0:
            return peer.json(result(request))
        peer.start_sse()
        peer.chunk(event(result(request, "late")))
        return peer.end()

    rng, pause = random.Random(7), threading.Event()
    with ScriptedServer(each_request(reply)) as server:
        transport = HttpTransport(server.url)
        link = transport.open(Listening(), Deadline(10))
        for number in range(1, 200, 2):
            call = make_call(link, wire_id=number)
            exchange = transport.exchange(call)
            call.put(jsonrpc.notification("notifications/x"))
            next(exchange)
            pause.wait(rng.random() * 0.003)
            exchange.close()  # type: ignore[attr-defined]
            call.restart(call.request)
            renumber(call, number + 1)
            assert [message["id"] for message in transport.exchange(call)] == [number + 1]
            assert (call.delivery, call.status) == ("accepted", 200)
        transport.close(Deadline(5))


def test_delivery_is_told_truly() -> None:
    with ScriptedServer(lambda peer: peer.silence()) as server:
        transport = HttpTransport(server.url)
        link = transport.open(Listening(), Deadline(10))
        call = make_call(link, timeout=0.2)
        with pytest.raises(McpError):
            list(transport.exchange(call))
        assert call.delivery == "accepted"
        url = server.url
        transport.close(Deadline(5))
    transport = HttpTransport(url)
    call = make_call(transport.open(Listening(), Deadline(10)))
    with pytest.raises(McpError) as caught:
        list(transport.exchange(call))
    assert (caught.value.reason, call.delivery) == ("unreachable", "not_sent")
    transport.close(Deadline(5))


def test_requests_of_this_revision_stay_in_the_thread_of_their_owner() -> None:
    """Only those of older ones need a thread of their own."""
    threads: list[str] = []

    def headers() -> dict[str, str]:
        threads.append(threading.current_thread().name)
        return {}

    me = threading.current_thread().name
    with ScriptedServer(each_request(lambda peer, request: peer.answer(request))) as server:
        with http_calls.connect(server.url, headers=headers) as client:
            client.call_tool("test")
        assert threads == [me]
    with ScriptedServer(legacy()) as server, connect(server.url, headers=headers) as client:
        threads.clear()
        client.call_tool("test")
        assert threads == ["snodo-http-post"]


# -- the loss of a session


def test_a_lost_session_is_begun_again_once_for_all_and_running_calls_go_on() -> None:
    lost, release = threading.Event(), threading.Event()
    numbers = iter(range(1, 100))
    streams: list[str | None] = []

    def get(peer: Peer, request: Request) -> None:
        peer.start_sse()
        try:
            peer.silence()
        finally:
            streams.append(request.header("mcp-session-id"))

    def serve(peer: Peer, request: Request) -> None:
        verb = request.line.split(" ")[0]
        session = request.header("mcp-session-id")
        if verb == "GET":
            return get(peer, request)
        if verb == "DELETE":
            return peer.respond("200 OK")
        if request.message.get("method") == "initialize":
            return peer.json(initialized(request), "200 OK", f"Mcp-Session-Id: session-{next(numbers)}")
        if lost.is_set() and session == "session-1":
            return peer.json({"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "?"}}, "404 Not Found")
        if "id" not in request.message:
            return peer.respond("202 Accepted")
        if request.message["params"]["arguments"]:
            running.set()
            assert release.wait(10)
        return peer.json(result(request, session or ""))

    running = threading.Event()
    with ScriptedServer(each_request(serve)) as server:
        with connect(server.url) as client:

            def old() -> None:
                assert text_of(client.call_tool("test", {"slow": True})) == "session-1"

            def new() -> None:
                assert running.wait(5)
                lost.set()
                together([lambda: _is("session-2", client.call_tool("test"))] * 8)
                until(lambda: "session-1" in streams)
                release.set()

            together([old, new])
            assert len(came(server, "initialize")) == 2
            assert [request.header("mcp-session-id") for request in came(server, "initialize")] == [None, None]
        assert [request.header("mcp-session-id") for request in came(server, "DELETE")] == ["session-2"]


def _is(expected: str, outcome: Any) -> None:
    assert text_of(outcome) == expected


def test_a_session_lost_again_at_once_is_an_error() -> None:
    with ScriptedServer(legacy(refuse("404 Not Found"))) as server, connect(server.url) as client:
        outcome = client.call_tool("test")
        assert isinstance(outcome, McpError)
        assert outcome.reason == "session_lost"
        assert outcome.data == {"http_status": 404}
        assert len(came(server, "tools/call")) == 2
        assert len(came(server, "initialize")) == 2


def test_a_method_the_session_does_not_have_is_no_lost_session() -> None:
    def unknown(peer: Peer, request: Request) -> None:
        error = {"code": -32601, "message": "no such method"}
        peer.json({"jsonrpc": "2.0", "id": request.id, "error": error}, "404 Not Found")

    with ScriptedServer(legacy(unknown)) as server, connect(server.url) as client:
        outcome = client.call_tool("test")
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.reason) == (-32601, None)
        assert len(came(server, "initialize")) == 1


def test_without_a_session_404_is_a_status_like_any_other() -> None:
    with (
        ScriptedServer(legacy(refuse("404 Not Found"), session_id=None)) as server,
        connect(server.url) as client,
    ):
        outcome = client.call_tool("test")
        assert isinstance(outcome, McpError)
        assert (outcome.reason, outcome.data["http_status"]) == ("http_status", 404)
        assert len(came(server, "initialize")) == 1


def test_opening_again_keeps_the_connections_and_not_the_session() -> None:
    with ScriptedServer(legacy()) as server:
        transport = HttpTransport(server.url)
        for _ in range(3):
            link = transport.open(Listening(), Deadline(10))
            list(transport.exchange(make_call(link, "initialize")))
        transport.close(Deadline(5))
        assert [request.header("mcp-session-id") for request in server.requests] == [None, None, None, SESSION_ID]
        assert server.connections == 1


# -- through a session of the caller


def test_a_prepared_session_carries_it_all() -> None:
    stream = Stream()

    def reply(peer: Peer, request: Request) -> None:
        if request.message["params"]["arguments"]:
            peer.silence()
        stream.say(jsonrpc.notification("notifications/x"))
        in_a_stream(peer, result(request))

    seen: list[str] = []
    with requests.Session() as session, ScriptedServer(legacy(reply, get=stream)) as server:
        session.headers["X-Session"] = "s"
        with connect(server.url, session=session, on_notification=lambda method, _: seen.append(method)) as client:
            assert text_of(client.call_tool("test")) == "ok"
            until(lambda: seen == ["notifications/x"])
            with Took() as took:
                outcome = client.call_tool("test", {"slow": True}, timeout=0.3)
            assert isinstance(outcome, McpError)
            assert outcome.reason == "timeout"
            assert took.on_time(0.3)
        assert [request.header("x-session") for request in server.requests] == ["s"] * len(server.requests)
        assert [request.header("mcp-session-id") for request in came(server, "DELETE")] == [SESSION_ID]


def test_a_call_over_a_prepared_session_can_be_cancelled() -> None:
    with requests.Session() as session, ScriptedServer(lambda peer: peer.silence()) as server:
        transport = HttpTransport(server.url, session=session)
        call = make_call(transport.open(Listening(), Deadline(10)), timeout=30)
        threading.Timer(0.1, lambda: call.finish(local_error("cancelled"))).start()
        with Took() as took, pytest.raises(McpError) as caught:
            list(transport.exchange(call))
        assert caught.value.reason == "cancelled"
        assert took.seconds < 2.0
        transport.close(Deadline(5))


def test_the_transport_before_this_one_has_the_same_options() -> None:
    older = HttpTransport("https://mcp.example/x?a=1", headers={"X-Key": "k"}, connect_timeout=3).older()
    assert older._options.endpoint.url == "https://mcp.example/x?a=1"
    assert older._options.headers == {"X-Key": "k"}
    assert older._options.connect_timeout == 3
