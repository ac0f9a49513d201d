"""A scripted Streamable HTTP server of the revisions before 2026-07-28: the handshake is done for the test, which says
what comes of all else.

    with ScriptedServer(legacy(reply, get=stream)) as server, connect(server.url) as client: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from snodo_client import Client, McpError
from snodo_client.engine.call import Call
from snodo_client.protocol.requests import Identity
from support import http_calls
from support.scripted_http import Peer, Request, ScriptedServer, each_request, result

Reply = Callable[[Peer, Request], None]

SESSION_ID = "s3ss10n-Id_1"
VERSION = "2025-11-25"
IDENTITY = Identity({"name": "test", "version": "1"}, {})


def connect(url: str, protocol: str = VERSION, **options: Any) -> Client:
    return Client.connect(url, protocol=protocol, **options)


def answer(peer: Peer, request: Request) -> None:
    peer.json(result(request))


def refuse(status: str) -> Reply:
    return lambda peer, _: peer.respond(status)


METHOD_NOT_ALLOWED, OK, ACCEPTED = map(refuse, ("405 Method Not Allowed", "200 OK", "202 Accepted"))


def initialized(request: Request, version: str = VERSION) -> dict[str, Any]:
    """The answer to an `initialize`."""
    info = {"name": "legacy", "version": "1"}
    value = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    return {"jsonrpc": "2.0", "id": request.id, "result": value}


def legacy(
    reply: Reply = answer,
    *,
    get: Reply = METHOD_NOT_ALLOWED,
    delete: Reply = OK,
    said: Reply = ACCEPTED,
    session_id: str | Iterator[str] | None = SESSION_ID,
    version: str = VERSION,
) -> Callable[[Peer], None]:
    """A script: `reply` is for requests after the handshake, `said` for notifications and answers. All sessions have
    the same id, or each the next.
    """

    def serve(peer: Peer, request: Request) -> None:
        verb = request.line.split(" ")[0]
        if verb == "GET":
            get(peer, request)
        elif verb == "DELETE":
            delete(peer, request)
        elif "method" not in request.message or "id" not in request.message:
            said(peer, request)
        elif request.message["method"] == "initialize":
            given = session_id if isinstance(session_id, str | None) else next(session_id)
            headers = [] if given is None else [f"Mcp-Session-Id: {given}"]
            peer.json(initialized(request, version), "200 OK", *headers)
        else:
            reply(peer, request)

    return each_request(serve)


class Listening:
    """An `Inbound` for a transport alone."""

    def __init__(self) -> None:
        self.delivered: list[Any] = []
        self.gone: list[McpError] = []

    def deliver(self, message: Any, link: Any) -> None:
        self.delivered.append(message)

    def answer(self, *_: Any) -> bool:
        return False

    def reject(self, error: McpError, link: Any, wire_id: int | None) -> None:
        self.delivered.append(error)

    def lost(self, error: McpError, link: Any) -> None:
        self.gone.append(error)


def make_call(link: Any, method: str = "tools/call", timeout: float = 10.0, wire_id: int = 1) -> Call:
    call = http_calls.make_call(method, timeout, wire_id)
    call.link = link
    renumber(call, wire_id)
    return call


def renumber(call: Call, wire_id: int) -> None:
    """What the session does for each attempt."""
    call.request = call.request.copy(version=VERSION)
    call.wire_id, call.body = wire_id, call.request.encode(wire_id, IDENTITY)


def came(server: ScriptedServer, what: str) -> list[Request]:
    """The requests by this verb, or with this method in their message."""
    if what in ("GET", "DELETE"):
        return [request for request in list(server.requests) if request.line.startswith(what)]
    return [request for request in list(server.requests) if request.body and request.message.get("method") == what]
