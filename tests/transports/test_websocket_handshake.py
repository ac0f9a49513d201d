"""How a WebSocket connection comes about, or does not: options, refusals, redirects, deadlines, TLS, secrets."""

from __future__ import annotations

import logging
import pickle
import socket
import ssl
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError
from snodo_client.transports.websocket import WebSocketTransport
from support.duplex import Duplex, open_error
from support.http_calls import Took
from support.leaks import repeat
from support.scripted_http import Peer
from support.scripted_websocket import close_frame, echoes, read_message, serving, upgrade
from support.stdio_peer import Inbox
from support.waiting import until

URL = "ws://127.0.0.1:9/mcp"


def refused(respond: Callable[[Peer], None], timeout: float = 10.0, **options: Any) -> McpError:
    """The error of a connection whose handshake is answered that way."""

    def script(peer: Peer) -> None:
        peer.request()
        respond(peer)

    with serving(script) as server:
        return open_error(WebSocketTransport(server.url, **options), timeout)


# -- options


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/mcp",
        "https://127.0.0.1/mcp",
        "127.0.0.1/mcp",
        "ws:/127.0.0.1",
        "ws://",
        "wss:///mcp",
        "ws://user:SEKRET@127.0.0.1/",
        "ws://127.0.0.1/#SEKRET",
        "ws://127.0.0.1/a b",
        "ws://127.0.0.1:0/",
        "ws://127.0.0.1:99999/",
        "ws://a_\u2028/",
    ],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="URL") as raised:
        WebSocketTransport(url)
    assert "SEKRET" not in str(raised.value)


def test_an_http_url_is_told_what_is_expected() -> None:
    with pytest.raises(ValueError, match=r"ws://host/path or wss://host/path"):
        WebSocketTransport("http://127.0.0.1/mcp")


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"auth": lambda request: request}, TypeError),
        ({"auth": "two words"}, ValueError),
        ({"headers": {"Sec-WebSocket-Protocol": "x"}}, ValueError),
        ({"headers": {"Upgrade": "x"}}, ValueError),
        ({"headers": {"X": "a\r\nb"}}, ValueError),
        ({"headers": ["X"]}, TypeError),
        ({"headers": {"Authorization": "x"}, "auth": "token"}, ValueError),
        ({"verify": "/no/such/file"}, ValueError),
        ({"connect_timeout": 0}, ValueError),
        ({"max_response_bytes": 0}, ValueError),
        ({"session": None}, TypeError),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        WebSocketTransport(URL, **options)


def test_a_url_is_a_string() -> None:
    with pytest.raises(TypeError):
        WebSocketTransport(b"ws://127.0.0.1/")  # type: ignore[arg-type]


# -- what is sent


def test_the_request() -> None:
    with (
        serving(echoes, path="/a/ü?key=1&b=%2F") as server,
        Duplex(WebSocketTransport(server.url, headers={"X-Key": "kæy", "user-agent": "mine"}, auth="token")) as duplex,
    ):
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        [request] = server.requests
        assert request.line == "GET /a/%C3%BC?key=1&b=%2F HTTP/1.1"
        assert request.header("host") == f"127.0.0.1:{server.port}"
        assert request.header("sec-websocket-protocol") == "mcp"
        assert request.header("sec-websocket-version") == "13"
        assert request.header("x-key") == "kæy"
        assert request.header("user-agent") == "mine"
        assert request.header("authorization") == "Bearer token"
        assert request.header("sec-websocket-extensions") is None


def test_our_own_user_agent() -> None:
    with serving(echoes) as server, Duplex(WebSocketTransport(server.url)):
        assert (server.requests[0].header("user-agent") or "").startswith("snodo_client/")


def test_headers_from_a_callable_are_fresh_for_each_connection() -> None:
    numbers = iter(range(10))
    with (
        serving(echoes) as server,
        Duplex(WebSocketTransport(server.url, headers=lambda: {"X-N": str(next(numbers))})) as duplex,
    ):
        duplex.reopen()
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        assert [request.header("x-n") for request in server.requests] == ["0", "1"]


@pytest.mark.parametrize(
    "make", [lambda: 1 / 0, lambda: ["SEKRET"], lambda: {"X": "a\nSEKRET"}, lambda: {"sec-websocket-key": "SEKRET"}]
)
def test_a_callable_that_gives_no_headers(make: Callable[[], Any]) -> None:
    with serving(echoes) as server:
        error = open_error(WebSocketTransport(server.url, headers=make))
        assert server.connections == 0
    assert error.reason == "transport_failure"
    assert "headers=" in error.message
    assert "SEKRET" not in "".join(traceback.format_exception(error))


# -- refusals


def test_refused_credentials() -> None:
    def respond(peer: Peer) -> None:
        peer.respond("401 Unauthorized", b"who are you", 'WWW-Authenticate: Bearer realm="x"', kind="text/plain; a=b")

    error = refused(respond)
    assert (error.reason, error.kind) == ("unauthorized", "authorization")
    assert error.data == {
        "http_status": 401,
        "content_type": "text/plain",
        "excerpt": "who are you",
        "challenge": 'Bearer realm="x"',
    }
    assert "401 Unauthorized" in error.message


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "404 Not Found", "426 Upgrade Required", "503 No"])
def test_other_answers(status: str) -> None:
    error = refused(lambda peer: peer.respond(status, "<p>ü</p>".encode(), "Retry-After: 7", kind="text/html"))
    assert error.reason == "http_status"
    assert error.data == {
        "http_status": int(status[:3]),
        "content_type": "text/html",
        "excerpt": "<p>ü</p>",
        "retry_after": 7.0,
    }
    assert status in error.message


def test_a_forbidden_one_without_a_body() -> None:
    error = refused(lambda peer: peer.send(b"HTTP/1.1 403\r\n\r\n"))
    assert error.reason == "unauthorized"
    assert error.data == {"http_status": 403, "content_type": None, "excerpt": ""}


def test_a_chunked_refusal_is_put_together() -> None:
    def respond(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n")
        peer.chunk(b"first ")
        peer.chunk(b"second")
        peer.end()
        peer.silence()

    with Took() as took:
        assert refused(respond).data["excerpt"] == "first second"
    assert took.seconds < 1


@pytest.mark.parametrize("endless", [False, True])
def test_the_text_of_a_refusal_is_waited_for_a_second(endless: bool) -> None:
    def respond(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 500 Oops\r\nContent-Length: 100000000\r\n\r\nbegun")
        while endless:
            peer.send(b"x" * 1000)
        peer.silence()

    with Took() as took:
        error = refused(respond)
    assert error.reason == "http_status"
    assert error.data["excerpt"].startswith("begun")
    assert took.seconds < 3


@pytest.mark.parametrize(
    ("agree", "says"),
    [
        (lambda peer: upgrade(peer, protocol=None), "did not agree to the WebSocket subprotocol 'mcp'"),
        (lambda peer: upgrade(peer, protocol="other"), "subprotocol"),
        (lambda peer: upgrade(peer, accept="x"), "Sec-WebSocket-Accept"),
        (lambda peer: upgrade(peer, "Sec-WebSocket-Extensions: permessage-deflate"), "extension"),
        (lambda peer: peer.send(b"HTTP/1.1 101 Fine\r\n\r\n"), "Connection"),
        (lambda peer: peer.send(b"HTTP/1.1 101 Fine\r\n: : :\r\n\r\n"), "HTTP"),
        (lambda peer: peer.send(b"SSH-2.0-OpenSSH\r\n"), "not HTTP"),
        (lambda peer: peer.send(b"HTTP/1.1 no\r\n\r\n"), "not HTTP"),
        (lambda peer: peer.send(b"HTTP/1.1 200 OK\r\nx: " + b"x" * 100_000), "not HTTP"),
    ],
)
def test_handshakes_that_are_none(agree: Callable[[Peer], None], says: str) -> None:
    def script(peer: Peer) -> None:
        agree(peer)
        peer.silence()

    with serving(script) as server:
        error = open_error(WebSocketTransport(server.url))
    assert error.reason == "malformed"
    assert says.lower() in error.message.lower()


def test_a_server_that_hangs_up() -> None:
    assert refused(lambda peer: None).reason == "closed"
    assert refused(lambda peer: peer.send(b"HTTP/1.1 101 Swit")).reason == "closed"


def test_a_close_frame_with_the_handshake_is_a_loss_of_the_link() -> None:
    def script(peer: Peer) -> None:
        sent, peer.send = peer.send, lambda data: sent(data + close_frame(1013, "busy"))  # type: ignore[method-assign]
        upgrade(peer)

    with serving(script) as server, Duplex(WebSocketTransport(server.url)) as duplex:
        error = duplex.call()
        assert error.reason == "closed"
        assert "1013 (busy)" in error.message


# -- redirects


@pytest.mark.parametrize(
    ("location", "reason", "shown"),
    [
        ("/other?SEKRET=SEKRET", "invalid_redirect", "{origin}/other"),
        ("ws://elsewhere.test:81/x?SEKRET", "cross_origin_redirect", "ws://elsewhere.test:81"),
        ("wss://127.0.0.1/x", "cross_origin_redirect", "wss://127.0.0.1"),
        ("http://elsewhere.test/x", "cross_origin_redirect", "ws://elsewhere.test"),
        ("//elsewhere.test/x", "cross_origin_redirect", "ws://elsewhere.test"),
        ("ftp://elsewhere.test/x", "invalid_redirect", None),
        (None, "invalid_redirect", None),
    ],
)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(location: str | None, reason: str, shown: str | None, status: int) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.respond(f"{status} Moved", b"", *([f"Location: {location}"] if location else []))
        peer.silence()

    with serving(script) as server:
        error = open_error(WebSocketTransport(server.url))
        assert len(server.requests) == 1
        origin = f"ws://127.0.0.1:{server.port}"
    assert error.reason == reason
    assert error.data.get("location") == (shown.format(origin=origin) if shown else None)
    assert error.data["http_status"] == status
    assert "SEKRET" not in str(error) + repr(error.data)


# -- no connection, and deadlines


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = open_error(WebSocketTransport(f"ws://127.0.0.1:{port}/"))
    assert error.reason == "unreachable"
    assert error.data["tried"]


def test_no_such_name() -> None:
    assert open_error(WebSocketTransport("ws://no-such-name.invalid/")).reason == "unreachable"


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade:"])
def test_a_silent_server_costs_no_more_than_the_limit(beginning: bytes) -> None:
    def respond(peer: Peer) -> None:
        peer.send(beginning)
        peer.silence()

    with Took() as took:
        error = refused(respond, 0.4)
    assert took.on_time(0.4)
    assert error.reason == "timeout"


def test_a_server_that_drips_costs_no_more_than_the_limit() -> None:
    with Took() as took:
        assert refused(lambda peer: peer.drip(b"HTTP/1.1 101 " + b"x" * 1000, 0.05), 0.4).reason == "timeout"
    assert took.on_time(0.4)


@pytest.mark.parametrize(("options", "reason"), [({}, "timeout"), ({"connect_timeout": 0.4}, "unreachable")])
def test_a_server_that_never_shakes_hands(options: dict[str, Any], reason: str) -> None:
    def script(peer: Peer) -> None:
        peer.silence()

    with serving(script) as server:
        url = server.url.replace("ws://", "wss://")
        with Took() as took:
            error = open_error(WebSocketTransport(url, **options), 10 if options else 0.4)
    assert took.on_time(0.4)
    assert error.reason == reason


def test_no_time_left_no_connection() -> None:
    with serving(echoes) as server:
        transport = WebSocketTransport(server.url)
        with pytest.raises(McpError) as raised:
            transport.open(Inbox(), Deadline(0))
        assert raised.value.reason == "timeout"
        assert server.connections == 0


def test_closing_ends_an_attempt_from_another_thread() -> None:
    def script(peer: Peer) -> None:
        peer.silence()

    with serving(script) as server:
        transport = WebSocketTransport(server.url)
        errors: list[McpError] = []

        def attempt() -> None:
            with pytest.raises(McpError) as raised:
                transport.open(Inbox(), Deadline(30))
            errors.append(raised.value)

        thread = threading.Thread(target=attempt)
        thread.start()
        until(lambda: server.connections)
        with Took() as took:
            transport.close(Deadline(10))
            thread.join(10)
        assert took.seconds < 2
        assert errors[0].reason == "closed"


def test_failed_attempts_leave_nothing_behind() -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.respond("404 Not Found", b"no")

    with serving(script) as server:

        def once() -> None:
            open_error(WebSocketTransport(server.url))
            until(lambda: not server._sockets)

        repeat(10, once)


# -- TLS


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def bundle(ca: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture(autouse=True)
def no_bundles_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def secured(ca: trustme.CA, script: Any = echoes, name: str = "localhost") -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name).configure_cert(context)
    server = serving(script, context=context, name="localhost")
    assert server.url.startswith("wss://localhost:")
    return server


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_bundle_is_trusted(ca: trustme.CA, bundle: str, size: int) -> None:
    with secured(ca) as server, Duplex(WebSocketTransport(server.url, verify=bundle)) as duplex:
        assert duplex.call("echo", {"text": "x" * size}) == {"text": "x" * size}
        assert duplex.call("echo", {"a": 1}) == {"a": 1}


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_bundle_of_the_environment(ca: trustme.CA, bundle: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, bundle)
    with secured(ca) as server, Duplex(WebSocketTransport(server.url)) as duplex:
        assert duplex.call("echo", {"a": 1}) == {"a": 1}


def test_an_unknown_authority_is_refused(ca: trustme.CA) -> None:
    with secured(ca) as server:
        error = open_error(WebSocketTransport(server.url))
        assert server.requests == []
    assert error.reason == "tls"
    assert "certificate" in error.message or "issuer" in error.message


def test_a_certificate_of_somebody_else_is_refused(ca: trustme.CA, bundle: str) -> None:
    with secured(ca, name="other.test") as server:
        assert open_error(WebSocketTransport(server.url, verify=bundle)).reason == "tls"


def test_nobody_in_particular(ca: trustme.CA, caplog: pytest.LogCaptureFixture) -> None:
    with secured(ca) as server, Duplex(WebSocketTransport(server.url, verify=False)) as duplex:
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        assert ["not verified" in record.getMessage() for record in caplog.records] == [True]


def test_a_client_certificate(ca: trustme.CA, bundle: str, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(context)
    ca.issue_cert("localhost").configure_cert(context)
    pem = tmp_path / "client.pem"
    ca.issue_cert("client.test").private_key_and_cert_chain_pem.write_to_path(str(pem))
    with serving(echoes, context=context, name="localhost") as server:
        with Duplex(WebSocketTransport(server.url, verify=bundle, cert=str(pem))) as duplex:
            assert duplex.call("echo", {"a": 1}) == {"a": 1}
        assert open_error(WebSocketTransport(server.url, verify=bundle)).reason in ("tls", "closed")


def test_tls_to_a_plain_server() -> None:
    with serving(lambda peer: peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        assert open_error(WebSocketTransport(server.url.replace("ws://", "wss://"))).reason == "tls"


def test_a_tls_server_that_goes_away(ca: trustme.CA, bundle: str) -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        read_message(peer)

    with secured(ca, script) as server, Duplex(WebSocketTransport(server.url, verify=bundle)) as duplex:
        assert duplex.call().reason == "closed"


# -- secrets


def tell(peer: Peer) -> bytes:
    request = peer.request()
    return "\n".join([request.target, *(f"{name}: {value}" for name, value in request.headers)]).encode("latin-1")


def refuses(peer: Peer) -> None:
    told = tell(peer)
    shown = told.split(b"authorization: ")[-1].split(b"\n")[0].decode()
    peer.respond(f"401 {shown}", told, f"WWW-Authenticate: x {shown}", f"Location: /?x={shown}", kind=f"text/{shown}")


def fails(peer: Peer) -> None:
    peer.respond("500 No", tell(peer), kind="text/plain")


def garbles(peer: Peer) -> None:
    peer.send(tell(peer))


def redirects(peer: Peer) -> None:
    tell(peer)
    peer.respond("302 Found", b"", "Location: ws://127.0.0.1:1/SEKRET-token?SEKRET-query")


def breaks(peer: Peer) -> None:
    sent: list[bytes] = []
    real, peer.send = peer.send, sent.append  # type: ignore[method-assign, assignment]
    request = upgrade(peer)
    told = request.header("authorization") or request.header("x-api-key") or ""
    real(sent[0].replace(b"Sec-WebSocket-Protocol: mcp", f"Sec-WebSocket-Protocol: {told.replace(' ', '')}".encode()))


def leaves(peer: Peer) -> None:
    request = upgrade(peer)
    told = request.header("authorization") or request.header("x-api-key") or ""
    read_message(peer)
    peer.send(close_frame(4000, told[:100]))


@pytest.mark.parametrize("script", [refuses, fails, garbles, redirects, breaks, leaves])
@pytest.mark.parametrize(
    "options",
    [
        {"auth": "SEKRET-token"},
        {"headers": {"Authorization": "Basic U0VLUkVULXVzZXI6U0VLUkVULXBhc3M=", "Cookie": "a=SEKRET-cookie"}},
        {"headers": lambda: {"X-Api-Key": "SEKRET-header"}},
    ],
)
def test_no_secret_gets_out(
    script: Callable[[Peer], None], options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(script, path="/mcp?key=SEKRET-query") as server:
        transport = WebSocketTransport(server.url, **options)
        error: Any = None
        try:
            with Duplex(transport) as duplex:
                error = duplex.call()
        except McpError as raised:
            error = raised
    assert isinstance(error, McpError)
    shown = [repr(transport), str(error), repr(error), repr(error.data), repr(pickle.dumps(error)), caplog.text]
    shown += ["".join(traceback.format_exception(error)), *(repr(vars(record)) for record in caplog.records)]
    for text in shown:
        assert "SEKRET" not in text
        assert "U0VLUkVU" not in text
