"""From names to sockets: both families of localhost, refusals that say what was tried, and black holes beside."""

from __future__ import annotations

import socket

import pytest

from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError
from snodo_client.transports import http_dial
from support.http_calls import Took, call_tool, error_of, text_of
from support.scripted_http import ScriptedServer, each_request

ANSWERS = each_request(lambda peer, request: peer.answer(request))


def never() -> None:
    """Nobody cancels."""


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize(
    "host", ["127.0.0.1", pytest.param("::1", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here"))]
)
def test_localhost_is_found_in_either_family(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def both(name: str, port: int, *args: int, **options: int) -> list[object]:
        if name != "localhost" or options.get("flags"):
            return real(name, port, *args, **options)  # type: ignore[return-value]
        return [*real("::1", port, *args, **options), *real("127.0.0.1", port, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with ScriptedServer(ANSWERS, host=host, name="localhost") as server, Took() as took:
        assert text_of(call_tool(server.url)) == "ok"
    assert took.seconds < 2.0


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_an_ipv6_address_in_the_url() -> None:
    with ScriptedServer(ANSWERS, host="::1") as server:
        assert text_of(call_tool(server.url)) == "ok"
        assert server.requests[0].header("host") == f"[::1]:{server.port}"


def test_a_refusal_says_what_was_tried() -> None:
    port = free_port()
    error = error_of(f"http://127.0.0.1:{port}/mcp?key=SEKRET")
    assert (error.reason, error.kind) == ("unreachable", "transport")
    assert error.data == {"tried": [f"127.0.0.1:{port}: Connection refused"]}
    assert f"no connection to http://127.0.0.1:{port}/mcp: 127.0.0.1:{port}" in error.message
    assert "SEKRET" not in str(error)


def test_a_name_that_does_not_exist() -> None:
    error = error_of("http://no-such-host.invalid/mcp")
    assert error.reason == "unreachable"
    assert error.data["tried"][0].startswith("no-such-host.invalid: ")


def test_every_address_has_its_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that refuse, one that is no address, and one that works."""
    refused = [free_port(), free_port()]
    with ScriptedServer(ANSWERS) as server:
        stream = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        addresses = [
            (*stream, ("127.0.0.1", refused[0])),
            (12345, socket.SOCK_STREAM, 6, "", ("nowhere", 1)),
            (*stream, ("127.0.0.1", server.port)),
            (*stream, ("127.0.0.1", refused[1])),
        ]
        with http_dial._connect(addresses, "x", Deadline(5), never) as sock:
            assert sock.getpeername() == ("127.0.0.1", server.port)
        del addresses[2]
        with pytest.raises(McpError) as caught:
            http_dial._connect(addresses, "x", Deadline(5), never)
        assert len(caught.value.data["tried"]) == 3


def test_a_black_hole_costs_a_head_start() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = [socket.socket() for _ in range(8)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
    with ScriptedServer(ANSWERS) as server, Took() as took:
        stream = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        addresses = [(*stream, listener.getsockname()), (*stream, ("127.0.0.1", server.port))]
        with http_dial._connect(addresses, "x", Deadline(10), never) as sock:
            assert sock.getpeername()[1] == server.port
    for sock in [listener, *fillers]:
        sock.close()
    assert took.seconds < 2.0


def test_no_address_at_all() -> None:
    with pytest.raises(McpError, match="no connection to x"):
        http_dial._connect([], "x", Deadline(1), never)
