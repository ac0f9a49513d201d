"""Sending through a prepared `requests.Session`: all that it was prepared with takes part, and waits stay bounded."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter

from snodo_client.outcome import McpError, Ok, local_error
from support.http_calls import Took, call_tool, connect, error_of, exchange, failed, make_call, opened, text_of
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event, result

ANSWERS = each_request(lambda peer, request: peer.answer(request))


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as prepared:
        yield prepared


def test_headers_cookies_hooks_and_adapters_take_part(session: requests.Session) -> None:
    seen: list[Any] = []

    class Adapter(HTTPAdapter):
        def send(self, request: Any, *args: Any, **options: Any) -> Any:
            seen.append("adapter")
            return super().send(request, *args, **options)

    def hook(response: requests.Response, *args: Any, **options: Any) -> None:
        seen.append(("hook", response.status_code))

    session.mount("http://", Adapter())
    session.headers["X-Session"] = "s"
    session.cookies.set("sid", "1")
    session.auth = ("user", "pass")
    session.hooks["response"].append(hook)

    def reply(peer: Peer, request: Request) -> None:
        peer.json(result(request), "200 OK", "Set-Cookie: more=2; Path=/")

    with ScriptedServer(each_request(reply)) as server, connect(server.url, session=session) as client:
        for _ in range(2):
            assert isinstance(client.call_tool("test"), Ok)
        assert server.connections == 1
        first, second = server.requests
    assert seen == ["adapter", ("hook", 200)] * 2
    assert first.header("x-session") == "s"
    assert first.header("authorization") == "Basic dXNlcjpwYXNz"
    assert first.header("accept") == "application/json, text/event-stream"
    assert first.header("mcp-method") == "tools/call"
    assert first.header("cookie") == "sid=1"
    assert sorted((second.header("cookie") or "").split("; ")) == ["more=2", "sid=1"]
    assert session.cookies["more"] == "2"


def test_what_is_passed_beside_the_session_goes_first(session: requests.Session) -> None:
    session.headers["X-Key"] = "session"
    session.auth = ("user", "pass")
    with ScriptedServer(ANSWERS) as server:
        call_tool(server.url, session=session, auth="t0k3n", headers={"X-Key": "option"})
        assert server.requests[0].header("authorization") == "Bearer t0k3n"
        assert server.requests[0].header("x-key") == "option"


def test_streams_arrive_as_they_are_sent(session: requests.Session) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/x"}
    seen = threading.Event()

    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(event(note))
        assert seen.wait(5)
        peer.chunk(event(result(request)))
        peer.end()

    with ScriptedServer(each_request(reply)) as server, opened(server.url, session=session) as transport:
        call = make_call()
        call.link = transport._link
        messages = iter(transport.exchange(call))
        assert next(messages) == note
        seen.set()
        assert next(messages)["id"] == 1
        assert list(messages) == []
        assert (call.delivery, call.status) == ("accepted", 200)


@pytest.mark.parametrize("stage", ["connect", "head", "body", "stream"])
def test_waits_end_by_the_deadline_and_can_be_cancelled(session: requests.Session, stage: str) -> None:
    def script(peer: Peer) -> None:
        if peer.number <= 2:
            request = peer.request()
            if stage == "head":
                peer.drip(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100, 0.05)
            elif stage == "body":
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n")
                peer.drip(b" " * 100, 0.05)
            elif stage == "stream":
                peer.start_sse()
                peer.silence()
            peer.silence()
        while True:
            request = peer.request()
            peer.answer(request)

    with ScriptedServer(script) as server, opened(server.url, session=session) as transport:
        with Took() as took:
            assert failed(transport, make_call(timeout=0.3)).reason == "timeout"
        assert took.on_time(0.3)
        call = make_call(timeout=30)
        threading.Timer(0.1, lambda: call.finish(local_error("cancelled"))).start()
        with Took() as took:
            assert failed(transport, call).reason == "cancelled"
        assert took.seconds < 2.0
        assert exchange(transport, make_call(wire_id=3))[0]["id"] == 3


def test_close_ends_waits_and_leaves_the_session_open(session: requests.Session) -> None:
    with ScriptedServer(lambda peer: peer.silence() if peer.number == 1 else peer.answer(peer.request())) as server:
        client = connect(server.url, session=session)
        threading.Timer(0.1, client.close).start()
        with Took() as took:
            outcome = client.call_tool("test", timeout=30)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "closed"
        assert took.seconds < 2.0
        assert text_of(call_tool(server.url, session=session)) == "ok"


def test_redirects_follow_our_rules(session: requests.Session) -> None:
    def reply(peer: Peer, request: Request) -> None:
        if request.target == "/new":
            return peer.answer(request)
        location = "/new" if request.target == "/mcp" else "http://other.example/"
        return peer.respond("307 On", b"x" * 100_000, f"Location: {location}")

    with ScriptedServer(each_request(reply)) as server:
        assert isinstance(call_tool(server.url, session=session), Ok)
        assert [request.target for request in server.requests] == ["/mcp", "/new"]
        assert error_of(server.origin + "/else", session=session).reason == "cross_origin_redirect"


def test_a_redirect_with_an_endless_body_is_not_read(session: requests.Session) -> None:
    def script(peer: Peer) -> None:
        request = peer.request()
        if request.target == "/new":
            return peer.answer(request)
        peer.send(b"HTTP/1.1 307 On\r\nLocation: /new\r\n\r\n")
        while True:
            peer.send(b" " * 65536)

    with ScriptedServer(script) as server:
        assert isinstance(call_tool(server.url, session=session), Ok)


def test_a_hook_that_raises_for_the_status_does_not_hide_the_answer(session: requests.Session) -> None:
    session.hooks["response"].append(lambda response, **_: response.raise_for_status())
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32602, "message": "no"}}
    with ScriptedServer(each_request(lambda peer, _: peer.json(error, "400 Bad Request"))) as server:
        outcome = error_of(server.url, session=session)
        assert (outcome.code, outcome.reason) == (-32602, None)


def test_faults_are_errors_like_any_other(session: requests.Session) -> None:
    with ScriptedServer(lambda peer: None) as server:
        url = server.url
        assert error_of(url, session=session).reason == "closed"
        assert error_of(url.replace("http:", "https:"), session=session).reason in ("tls", "closed", "unreachable")
    with opened(url, session=session) as transport:
        call = make_call()
        error = failed(transport, call)
        assert (error.reason, call.delivery) == ("unreachable", "not_sent")
        assert (error.__cause__, error.__context__) == (None, None)
    with ScriptedServer(each_request(lambda peer, _: peer.respond("503 Busy", b"later"))) as server:
        assert error_of(server.url, session=session).data["http_status"] == 503


def test_a_limit_counts_there_too(session: requests.Session) -> None:
    def reply(peer: Peer, _: Request) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while True:
            peer.send(b" " * 65536)

    with ScriptedServer(each_request(reply)) as server:
        assert error_of(server.url, session=session, max_response_bytes=1000).reason == "too_large"
