"""Proxies: of the option and of the environment, plain and by tunnel, and the ways they fail."""

from __future__ import annotations

import base64
import select
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
import trustme

from snodo_client.outcome import McpError, local_error
from support.http_calls import Took, call_tool, connect, error_of, failed, make_call, opened, text_of
from support.scripted_http import Gone, Peer, Request, ScriptedServer, each_request

ANSWERS = each_request(lambda peer, request: peer.answer(request, request.line))


@pytest.fixture(autouse=True)
def no_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def tunnel(peer: Peer) -> None:
    """An HTTP proxy that connects to whatever it is asked to."""
    request = peer.request()
    method, target, _ = request.line.split(" ")
    if method != "CONNECT":
        return peer.answer(request, request.line)
    host, _, port = target.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as upstream:
        peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        while True:
            for readable in select.select([peer.sock, upstream], [], [], 10)[0]:
                data = readable.recv(65536)
                if not data:
                    raise Gone
                (upstream if readable is peer.sock else peer.sock).sendall(data)


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def bundle(ca: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return str(path)


def context_of(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    return context


def test_a_plain_request_goes_through_the_proxy_with_its_whole_url() -> None:
    with ScriptedServer(ANSWERS) as proxy:
        with connect("http://server.invalid/mcp?k=v", proxies={"http": proxy.origin}) as client:
            for _ in range(3):
                assert text_of(client.call_tool("test")) == "POST http://server.invalid/mcp?k=v HTTP/1.1"
        assert proxy.connections == 1
        assert proxy.requests[0].header("host") == "server.invalid"


def test_the_environment_names_a_proxy_and_its_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(ANSWERS) as proxy, ScriptedServer(ANSWERS) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.origin)
        monkeypatch.setenv("http_proxy", proxy.origin)
        assert "http://127.0.0.1" in text_of(call_tool(server.url))
        assert text_of(call_tool(server.url, proxies={})) == "POST /mcp HTTP/1.1"
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,other.example")
        assert text_of(call_tool(server.url)) == "POST /mcp HTTP/1.1"
        assert (len(proxy.requests), len(server.requests)) == (1, 2)


def test_the_environment_is_read_once_for_each_link(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(ANSWERS) as proxy, ScriptedServer(ANSWERS) as server, connect(server.url) as client:
        client.call_tool("test")
        monkeypatch.setenv("http_proxy", proxy.origin)
        client.call_tool("test")
        assert (len(proxy.requests), len(server.requests)) == (0, 2)


def test_credentials_of_the_proxy_go_to_the_proxy() -> None:
    with ScriptedServer(ANSWERS) as proxy:
        url = proxy.origin.replace("//", "//user:s3kret@")
        with connect("http://server.invalid/mcp", proxies={"http": url}) as client:
            assert [text_of(client.call_tool("test")) for _ in range(3)]
        expected = "Basic " + base64.b64encode(b"user:s3kret").decode()
        assert [request.header("proxy-authorization") for request in proxy.requests] == [expected] * 3
        assert proxy.connections == 1


@pytest.mark.parametrize("tls_proxy", [False, True])
def test_tls_goes_through_a_tunnel(ca: trustme.CA, bundle: str, tls_proxy: bool) -> None:
    with ScriptedServer(
        tunnel_over_tls if tls_proxy else tunnel, context=context_of(ca) if tls_proxy else None
    ) as proxy:
        with ScriptedServer(ANSWERS, context=context_of(ca), name="localhost") as server:
            with connect(server.url, verify=bundle, proxies={"https": proxy.origin}) as client:
                for _ in range(3):
                    assert text_of(client.call_tool("test")) == "POST /mcp HTTP/1.1"
            assert server.connections == 1
        assert proxy.requests[0].line.startswith("CONNECT localhost:")
        assert proxy.requests[0].header("mcp-method") is None


def tunnel_over_tls(peer: Peer) -> None:
    """As above for a TLS connection, whose decrypted bytes `select` cannot see."""
    request = peer.request()
    host, _, port = request.target.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as upstream:
        peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        peer.sock.settimeout(0.01)
        while True:
            try:
                data = peer.sock.recv(65536)
                if not data:
                    raise Gone
                upstream.sendall(data)
            except TimeoutError:
                peer.pause(0)
            while select.select([upstream], [], [], 0.01)[0]:
                data = upstream.recv(65536)
                if not data:
                    raise Gone
                peer.sock.sendall(data)


def test_plain_http_through_a_tls_proxy(ca: trustme.CA, bundle: str) -> None:
    with ScriptedServer(ANSWERS, context=context_of(ca)) as proxy:
        outcome = call_tool("http://server.invalid/mcp?k=v", verify=bundle, proxies={"http": proxy.origin})
        assert text_of(outcome) == "POST http://server.invalid/mcp?k=v HTTP/1.1"


@pytest.mark.parametrize("answer", ["407 Proxy Authentication Required", "403 Forbidden", "502 Bad Gateway"])
def test_a_proxy_that_refuses_the_tunnel(answer: str) -> None:
    with (
        ScriptedServer(each_request(lambda peer, _: peer.respond(answer, b"no"))) as proxy,
        opened("https://server.invalid/mcp", proxies={"https": proxy.origin}) as transport,
    ):
        call = make_call()
        error = failed(transport, call)
    assert error.reason == "unreachable"
    assert answer in error.message
    assert call.delivery == "not_sent"


def test_a_proxy_that_is_not_there() -> None:
    with ScriptedServer(ANSWERS) as proxy:
        port, url = proxy.port, proxy.origin.replace("//", "//user:s3kret@")
    error = error_of("http://server.invalid/mcp", proxies={"http": url})
    assert error.reason == "unreachable"
    assert f"the proxy 127.0.0.1:{port}" in error.message
    assert "s3kret" not in str(error)


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_proxy_that_hangs_can_be_left(cancelled: bool) -> None:
    with (
        ScriptedServer(lambda peer: peer.silence()) as proxy,
        opened("https://server.invalid/mcp", proxies={"https": proxy.origin}) as transport,
    ):
        call = make_call(timeout=30 if cancelled else 0.4)
        if cancelled:
            threading.Timer(0.1, lambda: call.finish(local_error("cancelled"))).start()
        with Took() as took:
            assert failed(transport, call).reason == ("cancelled" if cancelled else "timeout")
        assert took.seconds < 2.4


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1080", "socks5h://u:s3kret@127.0.0.1", "gopher://x"])
def test_another_kind_of_proxy_is_refused_with_advice(proxy: str) -> None:
    with pytest.raises(McpError) as caught:
        call_tool("http://server.invalid/mcp", proxies={"all": proxy})
    assert caught.value.reason == "unreachable"
    assert "session=" in caught.value.message
    assert "s3kret" not in str(caught.value)


def test_an_answer_of_the_proxy_itself_is_an_answer() -> None:
    def reply(peer: Peer, request: Request) -> Any:
        peer.respond("502 Bad Gateway", b"<html>no such server</html>", kind="text/html")

    with ScriptedServer(each_request(reply)) as proxy:
        error = error_of("http://server.invalid/mcp", proxies={"http": proxy.origin})
        assert (error.reason, error.data["excerpt"]) == ("http_status", "<html>no such server</html>")
