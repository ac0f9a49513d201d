"""One request of a flow: what is sent and what is not, that it ends on time, and where it may go."""

from __future__ import annotations

import gzip
import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from snodo_client.auth import fetching
from snodo_client.auth.fetching import MAX_REPLY_BYTES, Fetcher, not_public
from snodo_client.auth.steps import Fetch, Reply
from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError, local_error
from snodo_client.protocol import origins
from support import leaks
from support.http_calls import Took, make_call
from support.scripted_http import Gone, Peer, ScriptedServer, each_request, replies
from support.waiting import together, until

CANARY = "canary-9f3c1d77"
WHAT = "the metadata of the authorization server"


@pytest.fixture(autouse=True)
def no_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def wanted() -> None:
    """Nobody cancels."""


def get(url: str) -> Fetch:
    return Fetch("GET", origins.endpoint(url), WHAT)


def post(url: str) -> Fetch:
    form = {"grant_type": "refresh_token", "refresh_token": CANARY}
    return Fetch("POST", origins.endpoint(url), "the token endpoint", form=form, secrets=[CANARY])


def fetched(fetch: Fetch, seconds: float = 10.0, owner: Any = wanted, **options: Any) -> Reply:
    return Fetcher(**options).fetch(fetch, Deadline(seconds), owner)


def failed(fetch: Fetch, seconds: float = 10.0, owner: Any = wanted, **options: Any) -> McpError:
    with pytest.raises(McpError) as caught:
        fetched(fetch, seconds, owner, **options)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return caught.value


def served(reply: Callable[[Peer], None], **options: Any) -> ScriptedServer:
    """A server that answers every request in this way."""
    return ScriptedServer(each_request(lambda peer, _: reply(peer)), **options)


# -- what is sent, and what comes back


def test_a_get_and_its_answer() -> None:
    with served(lambda peer: peer.json({"issuer": "x"}, "200 OK", "X-Two: a", "X-Two: b")) as server:
        reply = fetched(get(server.origin + "/.well-known/oauth-authorization-server?a=b"))
        assert (reply.status, reply.json(), reply.headers["x-two"]) == (200, {"issuer": "x"}, "a, b")
        request = server.requests[0]
    assert request.line == "GET /.well-known/oauth-authorization-server?a=b HTTP/1.1"
    assert {name for name, _ in request.headers} == {"host", "user-agent", "accept", "accept-encoding"}
    assert request.header("accept") == "application/json"


def test_a_form_is_posted() -> None:
    with served(lambda peer: peer.json({})) as server:
        fetched(post(server.origin + "/token"))
        request = server.requests[0]
    assert request.line == "POST /token HTTP/1.1"
    assert request.header("content-type") == "application/x-www-form-urlencoded"
    assert request.body == f"grant_type=refresh_token&refresh_token={CANARY}".encode()


@pytest.mark.parametrize("status", [204, 302, 307, 400, 404, 418, 503])
def test_any_status_is_an_answer_and_redirects_are_not_followed(status: int) -> None:
    with served(lambda peer: peer.respond(f"{status} So", b"", "Location: /elsewhere")) as server:
        reply = fetched(get(server.origin))
        assert (reply.status, reply.body, reply.headers["location"]) == (status, b"", "/elsewhere")
        assert len(server.requests) == 1


@pytest.mark.parametrize("encoding", ["gzip", "X-GZIP"])
def test_a_compressed_body(encoding: str) -> None:
    body = gzip.compress(b'{"a": 1}')
    with served(lambda peer: peer.respond("200 OK", body, f"Content-Encoding: {encoding}")) as server:
        assert fetched(get(server.origin)).json() == {"a": 1}


def test_a_content_encoding_that_was_not_asked_for() -> None:
    with served(lambda peer: peer.respond("200 OK", b"{}", "Content-Encoding: br")) as server:
        assert failed(get(server.origin)).reason == "malformed"


def test_no_cookie_and_no_netrc_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"default login me password {CANARY}\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    fetcher = Fetcher()
    with served(lambda peer: peer.json({}, "200 OK", f"Set-Cookie: a={CANARY}; Path=/")) as server:
        for _ in range(2):
            fetcher.fetch(get(server.origin), Deadline(10), wanted)
        assert server.connections == 2
        for request in server.requests:
            assert request.header("cookie") is None
            assert request.header("authorization") is None


# -- bounds


def endless(peer: Peer) -> None:
    peer.start_sse()
    while True:
        peer.chunk(b" " * 65536)


def bomb(peer: Peer) -> None:
    body = gzip.compress(bytes(50 * 1024 * 1024))
    peer.respond("200 OK", body, "Content-Encoding: gzip")


def announced(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n")
    peer.silence()


@pytest.mark.parametrize("reply", [endless, bomb, announced])
def test_a_body_without_bounds(reply: Callable[[Peer], None]) -> None:
    with served(reply) as server, Took() as took:
        error = failed(get(server.origin))
    assert (error.reason, error.data) == ("too_large", {"limit": MAX_REPLY_BYTES})
    assert WHAT in error.message
    assert server.origin in error.message
    assert took.seconds < 5


def test_the_longest_body() -> None:
    with served(lambda peer: peer.respond("200 OK", b"x" * MAX_REPLY_BYTES)) as server:
        assert len(fetched(get(server.origin)).body) == MAX_REPLY_BYTES
    with served(lambda peer: peer.respond("200 OK", b"x" * (MAX_REPLY_BYTES + 1))) as server:
        assert failed(get(server.origin)).reason == "too_large"


def test_a_head_without_bounds() -> None:
    def reply(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            peer.send(b"X: " + b"x" * 1000 + b"\r\n")

    with served(reply) as server:
        assert failed(get(server.origin)).reason == "malformed"


# -- time


def slow_body(peer: Peer) -> None:
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    peer.drip(b" " * 1000, 0.05)


def slow_head(peer: Peer) -> None:
    peer.drip(b"HTTP/1.1 200 OK\r\n" + b"X-Long: x\r\n" * 99, 0.05)


SLOW = [pytest.param(reply, id=reply.__name__) for reply in (slow_body, slow_head, Peer.silence)]


@pytest.mark.parametrize("reply", SLOW)
def test_the_deadline_of_the_call_ends_it(reply: Callable[[Peer], None]) -> None:
    with served(reply) as server, Took() as took:
        error = failed(get(f"{server.origin}/x?{CANARY}"), 0.5)
    assert took.on_time(0.5)
    assert (error.reason, error.data) == ("timeout", {"timeout": 0.5})
    assert error.message.startswith(f"{WHAT} did not come from {server.origin}/x within timeout=0.5 s (")


@pytest.mark.parametrize("reply", SLOW)
def test_each_request_has_a_limit_of_its_own(reply: Callable[[Peer], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FETCH_SECONDS", 0.5)
    with served(reply) as server, Took() as took:
        error = failed(get(server.origin + "/x"), 60.0)
    assert took.on_time(0.5)
    assert (error.reason, error.data) == ("timeout", {"timeout": 0.5})
    expected = f"{WHAT} did not come from {server.origin}/x within 0.5 s, the time that one request has"
    assert error.message.startswith(expected)


def test_a_call_whose_time_is_over_says_who_was_slow() -> None:
    call = make_call(timeout=0.5)
    with served(Peer.silence) as server, pytest.raises(McpError) as caught:
        Fetcher().fetch(get(server.origin + "/x"), call.deadline, call)
    assert caught.value.reason == "timeout"
    assert WHAT in caught.value.message


def test_nothing_is_sent_when_time_is_over() -> None:
    with served(lambda peer: peer.json({})) as server:
        assert failed(get(server.origin), 0.0).reason == "timeout"
        assert server.requests == []


# -- the end of the owner


@pytest.mark.parametrize("reply", SLOW)
def test_a_call_that_is_cancelled_cuts_the_connection(reply: Callable[[Peer], None]) -> None:
    gone = threading.Event()

    def script(peer: Peer) -> None:
        peer.request()
        asked.set()
        try:
            reply(peer)
        except Gone:
            gone.set()

    asked, call, woken = threading.Event(), make_call(), []
    before = call.wake = lambda: woken.append(True)

    def cancel() -> None:
        asked.wait(10)
        assert call.finish(local_error("cancelled"))

    with ScriptedServer(script) as server:
        thread = threading.Thread(target=cancel)
        thread.start()
        with Took() as took:
            error = failed(get(server.origin), owner=call)
        thread.join()
        until(gone.is_set)
    assert error.reason == "cancelled"
    assert took.seconds < 5
    assert call.wake is before
    assert woken == []
    assert call.delivery == "not_sent"


def test_a_call_is_left_as_it_was() -> None:
    call = make_call()
    before = call.wake
    with served(lambda peer: peer.json({}, "404 Not Found")) as server:
        assert fetched(post(server.origin), owner=call).status == 404
    assert (call.wake, call.delivery, call.status, call.outcome) == (before, "not_sent", None, None)


def test_a_call_that_was_cancelled_before_sends_nothing() -> None:
    call = make_call()
    call.finish(local_error("cancelled"))
    with served(lambda peer: peer.json({})) as server:
        assert failed(get(server.origin), owner=call).reason == "cancelled"
        assert server.requests == []


def test_a_function_ends_it_between_two_reads() -> None:
    def check() -> None:
        if server.requests:
            raise local_error("cancelled")

    with served(slow_body) as server, Took() as took:
        assert failed(get(server.origin), owner=check).reason == "cancelled"
    assert took.seconds < 5


# -- what goes wrong


def test_a_request_is_sent_once() -> None:
    def close(peer: Peer) -> None:
        peer.request()

    with ScriptedServer(close) as server:
        error = failed(post(server.origin + "/token"))
        assert (len(server.requests), server.connections) == (1, 1)
    assert error.reason == "closed"
    assert f"{server.origin}/token (the token endpoint)" in error.message


def test_an_answer_that_is_cut_off() -> None:
    def cut(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}")

    with ScriptedServer(cut) as server:
        assert failed(get(server.origin)).reason == "closed"


def test_nobody_listens() -> None:
    with served(Peer.silence) as server:
        pass
    error = failed(get(server.origin + "/x"))
    assert error.reason == "unreachable"
    assert f"{server.origin}/x ({WHAT})" in error.message


def no_http(peer: Peer) -> None:
    peer.send(f"{CANARY} and more\r\n\r\n".encode())


def bad_header(peer: Peer) -> None:
    peer.send(f"HTTP/1.1 200 OK\r\n{CANARY}\r\nContent-Length: 99\r\n\r\n".encode())


@pytest.mark.parametrize("reply", [no_http, bad_header, endless, Peer.silence])
def test_no_secret_is_shown(reply: Callable[[Peer], None], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), served(reply) as server:
        fetch = post(f"{server.origin}/token?key={CANARY}")
        fetch.headers["Authorization"] = f"Basic {CANARY}"
        error = failed(fetch, 0.5)
    assert CANARY not in f"{error!r} {error} {error.data} {fetch!r} {caplog.text}"


# -- trust and proxies


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_server(ca: trustme.CA) -> Iterator[ScriptedServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)
    with served(lambda peer: peer.json({}), context=context, name="localhost") as server:
        yield server


def test_certificates_are_verified(ca: trustme.CA, tls_server: ScriptedServer, tmp_path: Path) -> None:
    error = failed(get(tls_server.origin + "/x"))
    assert error.reason == "tls"
    assert f"{tls_server.origin}/x ({WHAT})" in error.message
    assert tls_server.requests == []
    bundle = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(bundle))
    assert fetched(get(tls_server.origin), verify=str(bundle)).status == 200
    assert fetched(get(tls_server.origin), verify=False).status == 200


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_proxy(by_environment: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(lambda peer: peer.json({})) as proxy:
        options: dict[str, Any] = {} if by_environment else {"proxies": {"http": proxy.origin}}
        if by_environment:
            monkeypatch.setenv("http_proxy", proxy.origin)
        assert fetched(get("http://as.invalid/x?a=b"), **options).status == 200
        assert proxy.requests[0].line == "GET http://as.invalid/x?a=b HTTP/1.1"


# -- public addresses only

PRIVATE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:a9fe:a9fe",
    "64:ff9b::10.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "::127.0.0.1",
    "64:ff9b:1::1",
]
PUBLIC = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not_public(address) is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_that_are_public(address: str) -> None:
    assert not_public(address) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]"])
def test_no_connection_is_made_to_what_is_not_public(host: str) -> None:
    with served(lambda peer: peer.json({})) as server:
        error = failed(get(f"http://{host}:{server.port}/x"), public_only=True)
        assert server.connections == 0
    assert error.reason == "unreachable"
    assert error.data is not None
    assert all("not a public address" in tried for tried in error.data["tried"])
    assert error.data["tried"]


def test_each_address_of_a_name_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    real = socket.getaddrinfo
    with served(lambda peer: peer.json({})) as server:

        def both(name: str, port: int, *args: Any, **options: Any) -> Any:
            if name != "both.example" or options.get("flags"):
                return real(name, port, *args, **options)
            return [*real("127.0.0.1", port, *args, **options), *real("192.168.0.1", port, *args, **options)]

        monkeypatch.setattr(socket, "getaddrinfo", both)
        error = failed(get(f"http://both.example:{server.port}/x"), public_only=True)
        assert server.connections == 0
        assert error.data is not None
        assert len(error.data["tried"]) == 2
        assert fetched(get(f"http://both.example:{server.port}/x")).status == 200


def test_a_proxy_hides_what_is_public() -> None:
    with served(lambda peer: peer.json({})) as proxy:
        error = failed(get("http://as.invalid/x"), public_only=True, proxies={"http": proxy.origin})
        assert proxy.connections == 0
    assert error.reason == "unreachable"
    assert "public_only=True" in error.message


# -- many


def test_threads_share_a_fetcher() -> None:
    fetcher = Fetcher()
    bodies: list[tuple[str, str]] = []

    def once(number: int) -> None:
        reply = fetcher.fetch(get(f"{server.origin}/{number}"), Deadline(20), wanted)
        bodies.append((f"/{number}", reply.body.decode()))

    with ScriptedServer(each_request(lambda peer, request: peer.respond("200 OK", request.target.encode()))) as server:
        together([lambda number=number: once(number) for number in range(16)])  # type: ignore[misc]
    assert len(bodies) == 16
    assert all(asked == answered for asked, answered in bodies)


def test_nothing_is_left_behind() -> None:
    def cut_off(peer: Peer, _: Any) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}")
        raise Gone

    steps = [lambda peer, _: peer.json({}), lambda peer, _: endless(peer), cut_off]

    def once() -> None:
        with ScriptedServer(replies(*steps)) as server:
            assert fetched(get(server.origin)).status == 200
            assert failed(get(server.origin)).reason == "too_large"
            assert failed(get(server.origin)).reason == "closed"

    leaks.repeat(5, once)
