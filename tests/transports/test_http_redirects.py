"""Redirects over HTTP: the one kind that is followed, and what becomes of the others."""

from __future__ import annotations

import pytest

from snodo_client.outcome import Ok
from support.http_calls import call_tool, connect, error_of, text_of
from support.scripted_http import Peer, Request, ScriptedServer, each_request

ANSWERS = each_request(lambda peer, request: peer.answer(request, request.target))


def to(status: int, location: str | None, start: str = "/mcp") -> object:
    """A script that redirects from one place and answers everywhere else."""

    def reply(peer: Peer, request: Request) -> None:
        if request.target.partition("?")[0] != start:
            return peer.answer(request, request.target)
        headers = [] if location is None else [f"Location: {location}"]
        return peer.respond(f"{status} Go away", b"<html>moved</html>", *headers, kind="text/html")

    return each_request(reply)


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("location", ["/mcp/", "mcp/", "{origin}/mcp/"])
def test_the_whole_request_goes_on_within_the_origin(status: int, location: str) -> None:
    with ScriptedServer(ANSWERS) as server:
        server.script = to(status, location.format(origin=server.origin))  # type: ignore[assignment]
        with connect(server.url, headers={"X-Key": "k"}, auth="t") as client:
            outcomes = [client.call_tool("tööl", {"a": 1}) for _ in range(3)]
        assert [text_of(outcome) for outcome in outcomes] == ["/mcp/"] * 3
        assert [request.target for request in server.requests] == ["/mcp", "/mcp/"] * 3  # nothing is remembered
        assert server.connections == 1
        first, second = server.requests[:2]
        assert (first.body, first.headers) == (second.body, second.headers)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["http://127.0.0.1:1/mcp", "https://{host}/mcp", "http://localhost:{port}/mcp"])
def test_nothing_goes_to_another_origin(status: int, where: str) -> None:
    with ScriptedServer(ANSWERS) as other, ScriptedServer(ANSWERS) as server:
        location = where.format(host=server.origin.partition("//")[2], port=other.port)
        server.script = to(status, location + "?code=SEKRET")  # type: ignore[assignment]
        error = error_of(server.url, auth="token")
        assert error.reason == "cross_origin_redirect"
        assert error.data == {"http_status": status, "location": location.removesuffix("/mcp")}
        assert "SEKRET" not in str(error)
        assert (len(server.requests), len(other.requests)) == (1, 0)


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_post_does_not_become_a_get(status: int) -> None:
    with ScriptedServer(to(status, "/mcp/")) as server:  # type: ignore[arg-type]
        error = error_of(server.url)
        there = server.url.rstrip("/") + "/"
        assert (error.reason, error.data) == ("invalid_redirect", {"http_status": status, "location": there})
        assert there in error.message
        assert len(server.requests) == 1


@pytest.mark.parametrize("location", [None, "", "http://[", "/a b", "mailto:x@y", "http://u:p@127.0.0.1/"])
def test_a_location_that_is_none(location: str | None) -> None:
    with ScriptedServer(to(307, location)) as server:  # type: ignore[arg-type]
        error = error_of(server.url)
        assert (error.reason, error.data) == ("invalid_redirect", {"http_status": 307})


def test_five_in_a_row_and_no_more() -> None:
    def reply(peer: Peer, request: Request) -> None:
        hop = int(request.target.rpartition("/")[2])
        if hop == 0:
            return peer.answer(request)
        return peer.respond("308 On", b"", f"Location: /hop/{hop - 1}")

    with ScriptedServer(each_request(reply)) as server:
        assert isinstance(call_tool(server.origin + "/hop/5"), Ok)
        error = error_of(server.origin + "/hop/6")
        assert error.reason == "invalid_redirect"
        assert len(server.requests) == 12


def test_a_loop_ends() -> None:
    with ScriptedServer(each_request(lambda peer, _: peer.respond("307 On", b"", "Location: /mcp"))) as server:
        assert error_of(server.url).reason == "invalid_redirect"
        assert len(server.requests) == 6


def test_a_redirect_whose_body_does_not_end_is_followed_all_the_same() -> None:
    def script(peer: Peer) -> None:
        request = peer.request()
        if request.target == "/mcp":
            peer.send(b"HTTP/1.1 307 On\r\nLocation: /new\r\nContent-Length: 1000\r\n\r\nmo")
            peer.silence()
        peer.answer(request)

    with ScriptedServer(script) as server:
        assert isinstance(call_tool(server.url), Ok)


def test_a_redirect_with_a_huge_body_is_followed_all_the_same() -> None:
    def script(peer: Peer) -> None:
        request = peer.request()
        if request.target == "/mcp":
            peer.send(b"HTTP/1.1 307 On\r\nLocation: /new\r\n\r\n")
            while True:
                peer.send(b" " * 65536)
        peer.answer(request)

    with ScriptedServer(script) as server:
        assert isinstance(call_tool(server.url), Ok)


def test_the_deadline_holds_over_redirects() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.pause(0.2)
        peer.respond("307 On", b"", "Location: /mcp")

    with ScriptedServer(each_request(reply)) as server:
        assert error_of(server.url, 0.5).reason == "timeout"
        assert len(server.requests) <= 3
