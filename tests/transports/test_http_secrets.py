"""No secret gets out: not into a representation, an error, a traceback or a log, whatever goes wrong.

Every fault below happens with secrets in the headers, the credentials, the query, the proxy's URL and a cookie, with
all logs at DEBUG, on a server that sends back in its text all it was sent.
"""

from __future__ import annotations

import json
import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import requests
from requests.auth import HTTPBasicAuth

from snodo_client.outcome import McpError
from support.http_calls import connect, make_call, opened
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event

SECRET = "SEKRET"
OPTIONS: dict[str, dict[str, Any]] = {
    "headers": {"headers": {"X-Api-Key": "SEKRET-header", "Cookie": "sid=SEKRET-cookie"}},
    "callable": {"headers": lambda: {"Authorization": "Basic SEKRET-callable"}},
    "token": {"auth": "SEKRET-token"},
    "authenticator": {"auth": HTTPBasicAuth("SEKRET-user", "SEKRET-pass")},
}


def echo(request: Request) -> bytes:
    """All headers and the query, as a debugging server would show them. Credentials also decoded to their parts."""
    shown = [f"{name}: {value}" for name, value in request.headers if name not in ("mcp-name",)]
    return "\n".join([request.target, *shown]).encode("latin-1")


def cut(peer: Peer, _: Request) -> None:
    peer.sock.close()


def garbage(peer: Peer, request: Request) -> None:
    peer.send(echo(request) + b"\r\n\r\n")


def bad_header(peer: Peer, request: Request) -> None:
    line = request.header("authorization") or request.header("x-api-key") or ""
    peer.respond("500 " + line, b"x", f"no colon here {line}", kind=f"text/{line}")


def refusal(peer: Peer, request: Request) -> None:
    authorization = request.header("authorization")
    peer.respond(
        "401 " + (authorization or "No"), echo(request), f"WWW-Authenticate: x {authorization}", kind="text/html"
    )


def page(peer: Peer, request: Request) -> None:
    peer.respond("200 OK", echo(request), kind="text/html")


def not_json(peer: Peer, request: Request) -> None:
    peer.respond("200 OK", echo(request), kind="application/json")


def refused_json(peer: Peer, request: Request) -> None:
    peer.respond("500 Oops", json.dumps({"sent": echo(request).decode("latin-1")}).encode(), kind="application/json")


def bad_stream(peer: Peer, request: Request) -> None:
    peer.start_sse()
    peer.chunk(b"data: " + echo(request).replace(b"\n", b"\ndata: ") + b"\n\n")
    peer.chunk(event({"echo": echo(request).decode("latin-1")}))
    peer.end()


def short_body(peer: Peer, request: Request) -> None:
    body = echo(request)
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n" + body)
    peer.sock.close()


def unknown_encoding(peer: Peer, request: Request) -> None:
    peer.respond("200 OK", echo(request), f"Content-Encoding: {request.target[5:30]}", kind="application/json")


def elsewhere(peer: Peer, request: Request) -> None:
    query = request.target.partition("?")[2]
    peer.respond("307 Elsewhere", echo(request), f"Location: https://other.example/{query}?{query}")


def round_and_round(peer: Peer, request: Request) -> None:
    peer.respond("307 Again", echo(request), f"Location: {request.target}")


def moved(peer: Peer, request: Request) -> None:
    peer.respond("302 Found", echo(request), f"Location: {request.target}")


def silence(peer: Peer, _: Request) -> None:
    peer.silence()


FAULTS = [
    cut, garbage, bad_header, refusal, page, not_json, refused_json, bad_stream, short_body, unknown_encoding,
    elsewhere, round_and_round, moved, silence,
]  # fmt: skip


def everything_shown(error: BaseException) -> str:
    """All a person or a log aggregator could get to see of an error."""
    shown = [str(error), repr(error), "".join(traceback.format_exception(error)), repr(pickle.dumps(error))]
    captured = traceback.TracebackException.from_exception(error, capture_locals=False)
    shown.append("".join(captured.format()))
    if isinstance(error, McpError):
        shown += [repr(error.data), repr(error.cause)]
    for inner in (error.__cause__, error.__context__):
        if inner is not None:
            shown.append(everything_shown(inner))
    return "\n".join(shown)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("options", OPTIONS)
def test_no_fault_shows_a_secret(
    fault: Callable[[Peer, Request], None], options: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with ScriptedServer(each_request(fault)) as server:
        url = server.url + "?key=SEKRET-query&SEKRET-bare"
        with connect(url, **OPTIONS[options]) as client:
            outcome = client.call_tool("test", timeout=0.3 if fault is silence else 10.0)
            notified = client.notify("notifications/x", timeout=0.3 if fault is silence else 10.0)
            connection = client._session.connection
            shown = [repr(client), repr(connection.transport), repr(connection.link), caplog.text]
    assert isinstance(outcome, McpError), outcome
    shown.append(everything_shown(outcome))
    if isinstance(notified, McpError):
        shown.append(everything_shown(notified))
    with pytest.raises(McpError) as caught:
        outcome.unwrap()
    shown.append(everything_shown(caught.value))
    assert any(request.header("authorization") or request.header("x-api-key") for request in server.requests)
    assert [text for text in shown if SECRET in text] == []


@pytest.mark.parametrize("where", ["refused", "no TLS", "proxy", "proxy tunnel", "proxy kind"])
def test_no_failed_connection_shows_a_secret(where: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with ScriptedServer(lambda peer: peer.respond("500 Oops")) as server:
        proxy = server.origin.replace("//", "//SEKRET-user:SEKRET-pass@")
        port = server.port
        url = {
            "refused": "http://127.0.0.1:9/mcp",
            "no TLS": server.url.replace("http:", "https:"),
            "proxy": "http://server.invalid/mcp",
            "proxy tunnel": "https://server.invalid/mcp",
            "proxy kind": "https://server.invalid/mcp",
        }[where]
        proxies = {"all": proxy} if where.startswith("proxy") else {}
        if where == "proxy":
            proxies = {"all": proxy.replace(str(port), "9")}
        if where == "proxy kind":
            proxies = {"all": proxy.replace("http:", "socks5:")}
        url, token = url + "?key=SEKRET-query", "SEKRET-token"
        try:
            with opened(url, auth=token, proxies=proxies, verify=False) as transport:
                call = make_call()
                call.link = transport._link
                list(transport.exchange(call))
        except McpError as error:
            shown = [everything_shown(error), caplog.text]
        else:
            raise AssertionError("it worked")
    assert [text for text in shown if SECRET in text] == []


@pytest.mark.parametrize("fault", [refusal, page, cut, refused_json, elsewhere])
def test_errors_through_a_session_show_no_secret_either(fault: Callable[[Peer, Request], None]) -> None:
    session = requests.Session()
    session.headers["X-Api-Key"] = "SEKRET-session"
    session.auth = ("SEKRET-user", "SEKRET-pass")
    with (
        ScriptedServer(each_request(fault)) as server,
        connect(server.url + "?key=SEKRET-query", session=session) as client,
    ):
        outcome = client.call_tool("test")
    assert isinstance(outcome, McpError)
    assert SECRET not in everything_shown(outcome)
    session.close()


def test_wrong_options_are_refused_without_their_values() -> None:
    from snodo_client.transports.http import HttpTransport

    url = "https://example.com/mcp?key=SEKRET"
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("https://SEKRET:SEKRET@example.com/", {}),
        ("https://example.com/SEKRET#x", {}),
        (url, {"headers": {"X": "SEKRET\n"}}),
        (url, {"headers": {"X: SEKRET": "y"}}),
        (url, {"auth": "Bearer SEKRET"}),
        (url, {"auth": ("user", "SEKRET")}),
        (url, {"proxies": "http://SEKRET@proxy"}),
        (url, {"allowed_origin": "https://other.example/?SEKRET"}),
    ]
    for target, options in wrong:
        with pytest.raises((ValueError, TypeError)) as caught:
            HttpTransport(target, **options)
        assert SECRET not in everything_shown(caught.value).replace(repr(target), "")
    assert SECRET not in repr(HttpTransport(url, auth="SEKRET", headers={"X": "SEKRET"}))
