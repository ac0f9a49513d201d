"""The HTTP transport at work: what it sends, what is known of the delivery, options, cookies, notifications."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from requests.auth import AuthBase, HTTPBasicAuth, HTTPDigestAuth

from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError, Ok
from snodo_client.protocol import jsonrpc
from snodo_client.transports.http import HttpTransport
from support.http_calls import VERSION, call_tool, connect, error_of, exchange, failed, make_call, opened, text_of
from support.scripted_http import Peer, Request, ScriptedServer, each_request, replies, result
from support.waiting import until

ANSWERS = each_request(lambda peer, request: peer.answer(request))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(ANSWERS) as running:
        yield running


# -- what is sent


def test_a_request_is_one_post_with_the_headers_of_the_protocol(server: ScriptedServer) -> None:
    with connect(server.url + "?a=1&b=%2F") as client:
        outcome = client.call_tool("名前", {"x": 1})
    assert isinstance(outcome, Ok)
    [request] = server.requests
    assert request.line == "POST /mcp?a=1&b=%2F HTTP/1.1"
    assert request.message["params"]["name"] == "名前"
    expected = {
        "host": f"127.0.0.1:{server.port}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "gzip, deflate",
        "content-length": str(len(request.body)),
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "=?base64?5ZCN5YmN?=",
    }
    assert {name: request.header(name) for name in expected} == expected
    assert (request.header("user-agent") or "").startswith("snodo_client/")
    assert {name for name, _ in request.headers} == {*expected, "user-agent"}


def test_a_large_argument_arrives_whole(server: ScriptedServer) -> None:
    text = "x" * 3_000_000
    assert text_of(call_tool(server.url, arguments={"text": text})) == "ok"
    assert server.requests[0].message["params"]["arguments"]["text"] == text


def test_headers_of_the_user_are_sent_and_replace_ours(server: ScriptedServer) -> None:
    call_tool(server.url, headers={"X-Key": "kæy", "user-agent": "mine", "cookie": "a=b"})
    [request] = server.requests
    assert request.header("x-key") == "kæy"
    assert request.header("user-agent") == "mine"
    assert request.header("cookie") == "a=b"


def test_headers_from_a_callable_are_fresh_for_each_request(server: ScriptedServer) -> None:
    counter = iter(range(100))
    with connect(server.url, headers=lambda: {"X-N": str(next(counter))}) as client:
        for _ in range(3):
            client.call_tool("test")
    assert [request.header("x-n") for request in server.requests] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("made", "words"),
    [({"X": "SEKRET\r\n"}, "control"), ({"Mcp-Name": "SEKRET"}, "set by this library"), (None, "mapping")],
)
def test_a_callable_that_gives_what_cannot_be_sent_fails_the_call(
    server: ScriptedServer, made: Any, words: str
) -> None:
    error = error_of(server.url, headers=lambda: made)
    assert error.reason == "transport_failure"
    assert words in error.message
    assert "SEKRET" not in str(error)
    assert server.requests == []


def test_a_callable_that_raises_fails_the_call_without_its_text(server: ScriptedServer) -> None:
    def broken() -> dict[str, str]:
        raise KeyError("SEKRET")

    error = error_of(server.url, headers=broken)
    assert (error.reason, error.__cause__, error.__context__) == ("transport_failure", None, None)
    assert "KeyError" in error.message
    assert "SEKRET" not in str(error)


# -- credentials


def test_a_token_is_sent_as_bearer_whatever_netrc_says(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    call_tool(server.url, auth="t0k3n")
    call_tool(server.url)
    call_tool(server.url, session=requests.Session())
    call_tool(server.url, session=requests.Session(), auth="t0k3n")
    sent = [request.header("authorization") for request in server.requests]
    assert sent == ["Bearer t0k3n", None, None, "Bearer t0k3n"]


def test_an_authenticator_adds_headers_and_does_nothing_else(server: ScriptedServer) -> None:
    class Meddler(AuthBase):
        def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
            assert request.url == server.url + "?q=1"
            assert isinstance(request.body, bytes)
            request.headers["authorization"] = "Signed abc"
            request.url = "http://127.0.0.1:1/elsewhere"
            request.body = b"something else"
            return request

    assert text_of(call_tool(server.url + "?q=1", auth=Meddler())) == "ok"
    call_tool(server.url, auth=HTTPBasicAuth("user", "pass"))
    assert [request.header("authorization") for request in server.requests] == ["Signed abc", "Basic dXNlcjpwYXNz"]


def test_an_authenticator_sends_nothing_again_by_itself() -> None:
    challenge = 'WWW-Authenticate: Digest realm="r", nonce="n", qop="auth", algorithm=MD5'
    with ScriptedServer(each_request(lambda peer, _: peer.respond("401 Unauthorized", b"no", challenge))) as server:
        error = error_of(server.url, auth=HTTPDigestAuth("user", "pass"))
        assert error.reason == "unauthorized"
        assert len(server.requests) == 1


@pytest.mark.parametrize("value", [77777, "ünï\u2028", "a\r\nX: y"])
def test_an_authenticator_that_sets_what_cannot_be_sent_fails_the_call(server: ScriptedServer, value: Any) -> None:
    def auth(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = value
        return request

    error = error_of(server.url, auth=auth)
    assert (error.reason, error.__cause__, error.__context__) == ("transport_failure", None, None)
    assert str(value) not in str(error)


# -- options


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"headers": {"Content-Length": "1"}}, ValueError),
        ({"headers": {"X": "a\nb"}}, ValueError),
        ({"headers": {"X": 1}}, TypeError),
        ({"headers": 5}, TypeError),
        ({"auth": ""}, ValueError),
        ({"auth": "Bearer x"}, ValueError),
        ({"auth": "x\r\ny"}, ValueError),
        ({"auth": ("user", "pass")}, TypeError),
        ({"auth": "x", "headers": {"authorization": "y"}}, ValueError),
        ({"verify": None}, TypeError),
        ({"verify": "/nowhere/ca.pem"}, ValueError),
        ({"cert": "/nowhere/cert.pem"}, ValueError),
        ({"cert": ("one",)}, ValueError),
        ({"cert": 7}, TypeError),
        ({"proxies": "http://proxy"}, TypeError),
        ({"proxies": {"http": None}}, TypeError),
        ({"connect_timeout": 0}, ValueError),
        ({"connect_timeout": float("nan")}, ValueError),
        ({"connect_timeout": "1"}, TypeError),
        ({"max_response_bytes": 0}, ValueError),
        ({"max_response_bytes": 1.5}, TypeError),
        ({"pool_size": -1}, ValueError),
        ({"pool_size": True}, TypeError),
        ({"allowed_origin": "https://example.com"}, ValueError),
        ({"allowed_origin": "http://example.com/mcp"}, ValueError),
        ({"session": object()}, TypeError),
        ({"session": requests.Session(), "verify": False}, ValueError),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        HttpTransport("http://example.com/mcp", **options)


def test_the_allowed_origin_is_that_of_the_url(server: ScriptedServer) -> None:
    assert text_of(call_tool(server.url, allowed_origin=server.origin)) == "ok"


def test_making_a_transport_imports_neither_requests_nor_urllib3() -> None:
    program = (
        "import sys\nfrom snodo_client.transports.http import HttpTransport\n"
        "HttpTransport('https://example.com/mcp', headers={'X': 'y'}, auth='t')\n"
        "assert not {'requests', 'urllib3', 'ssl'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# -- cookies


def test_cookies_come_back_and_stay_with_the_link() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.json(result(request), "200 OK", "Set-Cookie: sticky=node1; Path=/", "Set-Cookie: other=2; Path=/else")

    with ScriptedServer(each_request(reply)) as server:
        with connect(server.url) as client:
            for _ in range(2):
                client.call_tool("test")
        call_tool(server.url)
        assert [request.header("cookie") for request in server.requests] == [None, "sticky=node1", None]


# -- delivery and status


def test_delivery_is_accepted_once_there_is_an_answer(server: ScriptedServer) -> None:
    with opened(server.url) as transport:
        call = make_call()
        assert call.delivery == "not_sent"
        [message] = exchange(transport, call)
        assert (call.delivery, call.status, message["id"]) == ("accepted", 200, 1)


def test_delivery_is_not_sent_without_a_connection() -> None:
    with ScriptedServer(ANSWERS) as server:
        url = server.url
    with opened(url) as transport:
        call = make_call()
        assert failed(transport, call).reason == "unreachable"
        assert call.delivery == "not_sent"


def test_delivery_is_accepted_once_all_of_the_request_is_written() -> None:
    with ScriptedServer(lambda peer: peer.silence()) as server, opened(server.url) as transport:
        call = make_call(timeout=0.2)
        assert failed(transport, call).reason == "timeout"
        assert call.delivery == "accepted"


def test_delivery_is_unknown_once_bytes_may_have_left() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as unread,
        opened(f"http://127.0.0.1:{unread.getsockname()[1]}/mcp") as transport,
    ):
        call = make_call(timeout=0.5)
        call.body = b" " * 32 * 1024 * 1024 + call.body
        assert failed(transport, call).reason == "timeout"
        assert call.delivery == "unknown"


def test_delivery_is_not_sent_when_tls_fails() -> None:
    with (
        ScriptedServer(lambda peer: peer.send(b"no TLS here\n")) as server,
        opened(server.url.replace("http:", "https:"), verify=False) as transport,
    ):
        call = make_call()
        assert failed(transport, call).reason == "tls"
        assert call.delivery == "not_sent"


# -- notifications


@pytest.mark.parametrize(
    "send",
    [
        lambda peer: peer.respond("202 Accepted"),
        lambda peer: peer.respond("200 OK"),
        lambda peer: peer.respond("200 OK", b"ok", kind="text/plain"),
        lambda peer: peer.json({"anything": 1}, "202 Accepted"),
        lambda peer: peer.send(b"HTTP/1.1 204 No Content\r\n\r\n"),
        lambda peer: peer.send(b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ],
)
def test_a_notification_is_fine_with_any_success(send: Any) -> None:
    with ScriptedServer(each_request(lambda peer, _: send(peer))) as server, opened(server.url) as transport:
        transport._link.version = VERSION  # type: ignore[union-attr]
        message = jsonrpc.notification("notifications/test", {"x": 1})
        for _ in range(3):
            transport.send(message, transport._link, Deadline(5))  # type: ignore[arg-type]
        assert [request.body for request in server.requests] == [jsonrpc.encode(message)] * 3
        assert server.requests[0].header("mcp-method") == "notifications/test"
        assert server.requests[0].header("mcp-protocol-version") == "2026-07-28"
        assert server.connections == 1


def test_a_refused_notification_is_an_error() -> None:
    def reply(peer: Peer, request: Request) -> None:
        error = {"jsonrpc": "2.0", "error": {"code": -32601, "message": "unknown"}}
        peer.json(error, "404 Not Found") if "rpc" in request.target else peer.respond("503 Busy", b"later")

    with ScriptedServer(each_request(reply)) as server:
        for path, excerpt in (("?rpc", '"code": -32601'), ("", "later")):
            with connect(server.url + path) as client:
                outcome = client.notify("notifications/test")
            assert isinstance(outcome, McpError)
            assert outcome.reason == "http_status"
            assert excerpt in outcome.data["excerpt"]


# -- the end


def test_close_ends_running_exchanges_at_once() -> None:
    def stuck(peer: Peer) -> None:
        request = peer.request()
        if request.message["params"]["arguments"]["where"] == "body":
            peer.start_sse()
        peer.silence()

    with ScriptedServer(stuck) as server:
        client = connect(server.url)
        outcomes: list[Any] = []

        def call(where: str) -> None:
            outcomes.append(client.call_tool("test", {"where": where}, timeout=30))

        threads = [threading.Thread(target=call, args=(where,)) for where in ("head", "body", "head", "body")]
        for thread in threads:
            thread.start()
        until(lambda: len(server.requests) == 4)
        client.close()
        for thread in threads:
            thread.join(2)
        assert [outcome.reason for outcome in outcomes] == ["closed"] * 4
        client.close()


def test_the_transport_alone_says_closed_too(server: ScriptedServer) -> None:
    with opened(server.url) as transport:
        call = make_call()
        exchange(transport, call)
        link = transport._link
        transport.close(Deadline(1))
        call.link = link
        with pytest.raises(McpError) as caught:
            list(transport.exchange(call))
        assert caught.value.reason == "closed"


def test_opening_again_gives_a_link_that_works(server: ScriptedServer) -> None:
    from support.http_calls import Deaf

    with opened(server.url) as transport:
        exchange(transport, make_call())
        transport.close(Deadline(1))
        transport.open(Deaf(), Deadline(1))
        assert exchange(transport, make_call(wire_id=2))[0]["id"] == 2


def test_leaving_an_exchange_early_drops_its_connection() -> None:
    def stream(peer: Peer) -> None:
        peer.request()
        peer.start_sse()
        peer.chunk(b'data: {"jsonrpc":"2.0","method":"notifications/x"}\n\n')
        peer.silence()

    gone = threading.Event()

    def script(peer: Peer) -> None:
        try:
            stream(peer)
        finally:
            gone.set()

    with ScriptedServer(script) as server, opened(server.url) as transport:
        call = make_call()
        call.link = transport._link
        messages = transport.exchange(call)
        assert next(messages)["method"] == "notifications/x"
        messages.close()  # type: ignore[attr-defined]
        assert gone.wait(1)


def test_a_list_is_sent_again_when_its_kept_connection_was_closed() -> None:
    """Closed in the very moment of sending: the server reads the request and hangs up without a byte."""

    def script(peer: Peer) -> None:
        peer.answer(peer.request())
        peer.request()

    with ScriptedServer(script) as server, opened(server.url) as transport:
        exchange(transport, make_call("tools/list"))
        assert exchange(transport, make_call("tools/list", wire_id=2))[0]["id"] == 2
        assert (server.connections, len(server.requests)) == (2, 3)
        call = make_call("tools/call", wire_id=3)
        assert failed(transport, call).reason == "closed"
        assert call.delivery == "accepted"
        assert len(server.requests) == 4


def test_a_list_is_sent_again_only_once_and_only_from_a_kept_connection() -> None:
    def script(peer: Peer) -> None:
        if peer.number == 1:
            peer.answer(peer.request())
        peer.request()

    with ScriptedServer(script) as server, opened(server.url) as transport:
        exchange(transport, make_call("tools/list"))
        assert failed(transport, make_call("tools/list", wire_id=2)).reason == "closed"
        assert len(server.requests) == 3
        assert failed(transport, make_call("tools/list", wire_id=3)).reason == "closed"
        assert len(server.requests) == 4


def test_a_connection_closed_while_idle_is_not_used_for_a_call() -> None:
    closed = threading.Event()

    def script(peer: Peer) -> None:
        peer.answer(peer.request())
        if peer.number == 1:
            peer.sock.close()
            closed.set()
            return
        peer.silence()

    with ScriptedServer(script) as server, opened(server.url) as transport:
        exchange(transport, make_call())
        assert closed.wait(5)
        assert exchange(transport, make_call(wire_id=2))[0]["id"] == 2
        assert server.connections == 2


def test_answers_in_turn_from_one_script_keep_one_connection() -> None:
    steps = [lambda peer, request, text=text: peer.answer(request, text) for text in "abc"]
    with ScriptedServer(replies(*steps)) as server, connect(server.url) as client:
        assert [text_of(client.call_tool("test")) for _ in range(4)] == ["a", "b", "c", "c"]
        assert server.connections == 1


@pytest.mark.parametrize("kept", [False, True])
def test_an_answer_given_before_the_request_was_read_counts(kept: bool) -> None:
    def script(peer: Peer) -> None:
        if kept:
            peer.answer(peer.request())
        peer.until(b"\r\n\r\n")
        peer.respond("413 Too Large", b"no more than 1 MiB", "Connection: close", kind="text/plain")
        peer.pause(0.2)  # a reset would take the answer with it

    with ScriptedServer(script) as server, connect(server.url) as client:
        if kept:
            client.call_tool("test")
        outcome = client.call_tool("test", {"text": "x" * 200_000})
        assert isinstance(outcome, McpError)
        assert (outcome.reason, outcome.data["excerpt"]) == ("http_status", "no more than 1 MiB")
