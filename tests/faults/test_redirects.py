"""Redirects of every code and place: followed within the origin where nothing of the request changes, else an error."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from snodo_client import Client, Ok
from support.faulty import AT_ONCE, assert_error, assert_serves, failed_connect, http_server
from support.http_calls import VERSION, Took
from support.scripted_http import Peer, Request, ScriptedServer, each_request, result

CODES = [301, 302, 303, 307, 308]
SECRET = {"Authorization": "Bearer do-not-tell"}


@pytest.fixture
def elsewhere() -> Iterator[ScriptedServer]:
    """A server of another origin, which nothing must reach."""
    with ScriptedServer(each_request(lambda peer, request: peer.answer(request))) as server:
        yield server
        assert server.connections == 0


def to(code: int, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {code} Over There", "Content-Length: 0", *headers, "", ""]).encode()


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("absolute", [False, True])
def test_within_the_origin(code: int, absolute: bool) -> None:
    def reply(peer: Peer, request: Request) -> None:
        if request.target == "/there?x=1":
            return peer.json(result(request, "moved"))
        place = f"http://{request.header('host')}/there?x=1" if absolute else "/there?x=1"
        return peer.send(to(code, f"Location: {place}"))

    with http_server(reply, once=False) as server, Client.connect(server.url, headers=SECRET) as client:
        with Took() as took:
            outcome = client.call_tool("fault", {"a": 1})
        assert took.seconds < AT_ONCE
        calls = [request for request in server.requests if b'"fault"' in request.body]
        if code in (307, 308):
            assert isinstance(outcome, Ok), outcome
            assert outcome.value["content"][0]["text"] == "moved"
            assert len(calls) == 2
            assert calls[0].body == calls[1].body
            assert calls[0].headers == calls[1].headers
            assert all(call.line.startswith("POST ") for call in calls)
        else:
            error = assert_error(outcome, "invalid_redirect", http_status=code)
            assert server.url in error.message
            assert len(calls) == 1
        assert_serves(client)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(
    "place", ["{url}", "{bare}", "https:{bare}", "http://localhost:{port}/mcp", "http://user@{at}/"]
)
def test_to_another_origin(code: int, place: str, elsewhere: ScriptedServer) -> None:
    def reply(peer: Peer, request: Request) -> None:
        host = f"127.0.0.1:{elsewhere.port}"
        location = place.format(url=elsewhere.url, bare=f"//{host}/mcp", port=peer.server.port, at=host)
        peer.send(to(code, f"Location: {location}"))

    with http_server(reply) as server, Client.connect(server.url, headers=SECRET) as client:
        with Took() as took:
            outcome = client.call_tool("fault")
        assert took.seconds < AT_ONCE
        reason = "invalid_redirect" if "user" in place else "cross_origin_redirect"
        error = assert_error(outcome, reason, http_status=code)
        assert server.url in error.message
        assert "do-not-tell" not in repr(error) + str(error.data)
        assert_serves(client)


@pytest.mark.parametrize("code", [302, 307])
def test_on_discovery(code: int, elsewhere: ScriptedServer) -> None:
    with ScriptedServer(each_request(lambda peer, _: peer.send(to(code, f"Location: {elsewhere.url}")))) as server:
        error = failed_connect(lambda: Client.connect(server.url))
        assert_error(error, "cross_origin_redirect", http_status=code, location=elsewhere.origin)
        assert len(server.requests) == 1


def test_from_https_to_http(tmp_path: Path, elsewhere: ScriptedServer) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))

    def reply(peer: Peer, _: Request) -> None:
        peer.send(to(307, f"Location: http://127.0.0.1:{peer.server.port}/mcp"))

    with http_server(reply, context=context) as server, Client.connect(server.url, verify=str(bundle)) as client:
        error = assert_error(client.call_tool("fault"), "cross_origin_redirect", http_status=307)
        assert error.data["location"] == f"http://127.0.0.1:{server.port}"
        assert_serves(client)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(
    "header", ["X: none", "Location:", "Location: http://[", "Location: ftp://127.0.0.1/", "Location: javascript:x",
               "Location: /" + "x" * 9000]
)  # fmt: skip
def test_without_a_place_to_go(code: int, header: str) -> None:
    with http_server(lambda peer, _: peer.send(to(code, header))) as server, Client.connect(server.url) as client:
        assert_error(client.call_tool("fault"), "invalid_redirect", http_status=code)
        assert_serves(client)


@pytest.mark.parametrize("code", [307, 308])
@pytest.mark.parametrize("places", [["/mcp"], ["/a", "/mcp"]])
def test_a_loop_ends_after_five(code: int, places: list[str]) -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.send(to(code, f"Location: {places[places.index(request.target) - 1 if request.target in places else 0]}"))

    with http_server(reply, once=False) as server, Client.connect(server.url) as client:
        with Took() as took:
            outcome = client.call_tool("fault")
        assert took.seconds < AT_ONCE
        assert_error(outcome, "invalid_redirect", http_status=code)
        calls = [request.body for request in server.requests if b'"fault"' in request.body]
        assert len(calls) == 6
        assert len(set(calls)) == 1
        assert_serves(client)


def test_the_limit_holds_over_slow_redirects() -> None:
    def reply(peer: Peer, _: Request) -> None:
        peer.pause(0.2)
        peer.send(to(307, "Location: /mcp"))

    with http_server(reply, once=False) as server, Client.connect(server.url, protocol=VERSION) as client:
        with Took() as took:
            outcome = client.call_tool("fault", timeout=0.5)
        assert took.on_time(0.5)
        assert_error(outcome, "timeout", code=-32001, timeout=0.5)
        assert_serves(client)
