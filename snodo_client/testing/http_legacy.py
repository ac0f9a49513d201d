"""The legacy eras of Streamable HTTP: sessions, a stream for each request and those opened by GET, resuming, batches.

Spec: basic/transports of 2025-03-26, 2025-06-18 and 2025-11-25. The sessions and streams themselves are in
`http_sessions.py`, the serving object and the modern era in `httpd.py`.
"""

from __future__ import annotations

from http import HTTPStatus
from secrets import token_hex
from typing import TYPE_CHECKING, Any, cast

from snodo_client.testing.errors import RpcError
from snodo_client.testing.http_handler import LAST_CHUNK, HttpHandler, accepts, chunk, foreign
from snodo_client.testing.http_sessions import HttpSession
from snodo_client.testing.wire import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from snodo_client.testing.http_sessions import Stream
    from snodo_client.testing.httpd import HttpServing
    from snodo_client.testing.replies import Reply

_BAD_SESSION = -32000  # as servers in the field say it; the specification names the HTTP status alone
_NO_SESSION = -32001
_ASSUMED = "2025-03-26"  # the version of a client that names none


class LegacyHandler(HttpHandler):
    """The legacy requests of one connection."""

    @property
    def serving(self) -> HttpServing:
        return cast("HttpServing", self.server.serving)

    @property
    def allowed(self) -> tuple[str, ...]:
        return self.serving.allowed

    def do_GET(self) -> None:
        """Open a stream for what belongs to no request, or resume any stream after `Last-Event-ID`."""
        client = self._begin("GET", "text/event-stream")
        if client is None:
            return
        last = self.headers.get("last-event-id")
        if last is None:
            stream = client.open()
            follower, after, priming = client.listen(stream), 0, self._priming(client, stream)
        else:
            resumed = client.resume(last.strip(" \t"))
            if resumed is None:
                self.refuse_with(RpcError(_BAD_SESSION, "Bad Request: unknown event id", status=400))
                return
            (stream, follower, after), priming = resumed, b""
        with self.server.busy():
            self.carry(self.stream_head(), priming, stream, follower, after)

    def do_DELETE(self) -> None:
        """End the session."""
        client = self._begin("DELETE")
        if client is not None:
            self.serving.forget(client)
            client.end()
            self.send(200)

    def answer_legacy(self, message: Any, fields: Mapping[str, list[str]]) -> None:
        """Answer a POST of a legacy client."""
        opening = isinstance(message, dict) and message.get("method") == "initialize" and "id" in message
        if opening:
            self.serving.count("initialize")
        if not self.serving.sessions:
            self._answer_stateless(message, fields, opening=opening)
        elif opening and "mcp-session-id" not in fields:
            client = HttpSession(self.serving.server, token_hex(16), listening="GET" in self.allowed)
            self.serving.remember(client)
            self._answer(client, message, fields)
            if client.session.version is None:
                self.serving.forget(client)
                client.end()
        elif "mcp-session-id" not in fields and self._scripted(message):
            self._answer(HttpSession(self.serving.server, version=_ASSUMED), message, fields)
        else:
            known = self._client(fields)
            if known is not None:
                self._answer(known, message, fields)

    def _scripted(self, message: Any) -> bool:
        return isinstance(message, dict) and "id" in message and self.serving.server.unchecked(message.get("method"))

    def _answer_stateless(self, message: Any, fields: Mapping[str, list[str]], *, opening: bool) -> None:
        version = fields.get("mcp-protocol-version", [_ASSUMED])[0]
        if not opening and version not in self.serving.server.versions:
            self.refuse_with(RpcError(_BAD_SESSION, f"Bad Request: unsupported protocol version {version}", status=400))
            return
        client = HttpSession(self.serving.server, version=None if opening else version)
        try:
            self._answer(client, message, fields)
        finally:
            client.end()

    def _answer(self, client: HttpSession, message: Any, fields: Mapping[str, list[str]]) -> None:
        stream = client.open()
        exchange = _Exchange(self, client, stream, fields)
        accepted = client.session.accept(message, exchange, fields)
        headers = {"Mcp-Session-Id": client.id} if client.id else {}
        if not accepted.slow:
            accepted.deliver(self.plain)
            return
        priming = self._priming(client, stream)
        polled = bool(priming) and self.serving.polling is not None
        exchange.committed = polled
        follower = stream.attach()
        self.server.start(lambda: accepted.deliver(exchange.finish))
        if polled:
            stream.release()
            self.write(self.stream_head(headers), chunk(priming) + LAST_CHUNK)
        elif stream.wait(self.gone):
            self.carry(self.stream_head(headers), priming, stream, follower, 0)
        else:
            stream.release()
            self._plain(exchange.reply, headers if client.session.version else {})

    def _plain(self, reply: Reply | None, headers: Mapping[str, str]) -> None:
        """A response that is no stream, or for None the end of the connection."""
        if reply is None:
            self.close_connection = True
        else:
            self.plain(reply, headers)

    def _priming(self, client: HttpSession, stream: Stream) -> bytes:
        """The event without data that gives the client an id to resume from, where clients know it (2025-11-25)."""
        if not client.id or client.session.version != "2025-11-25":
            return b""
        wait = self.serving.polling
        retry = b"" if wait is None else b"retry: %d\n" % round(wait * 1000)
        return b"id: " + stream.event_id(0) + b"\n" + retry + b"data: \n\n"

    def _begin(self, method: str, accepted: str | None = None) -> HttpSession | None:
        """The session of a request that is no POST; None when it was refused."""
        self.serving.count(method)
        if self.headers.get("content-length", "0") != "0":
            self.close_connection = True  # nobody reads the body
        fields = self.fields
        if method not in self.allowed:
            self.other()
        elif foreign(fields.get("origin", ())):
            self.refuse(HTTPStatus.FORBIDDEN, "Origin not allowed")
        elif self.path.partition("?")[0] != self.serving.path:
            self.refuse(HTTPStatus.NOT_FOUND, "No MCP endpoint here")
        elif accepted is not None and not accepts(fields.get("accept", ()), accepted):
            self.refuse(HTTPStatus.NOT_ACCEPTABLE, f"Accept must list {accepted}")
        else:
            return self._client(fields)
        return None

    def _client(self, fields: Mapping[str, list[str]]) -> HttpSession | None:
        """The session that the headers name; None when the request was refused."""
        named = fields.get("mcp-session-id")
        if named is None:
            self.refuse_with(RpcError(_BAD_SESSION, "Bad Request: Mcp-Session-Id header is required", status=400))
            return None
        client = self.serving.find(named[0])
        if client is None:
            self.refuse_with(RpcError(_NO_SESSION, "Session not found", status=404))
            return None
        version = client.session.version or ""
        if version >= "2025-06-18" and fields.get("mcp-protocol-version") != [version]:
            problem = f"Bad Request: MCP-Protocol-Version header must be {version}"
            self.refuse_with(RpcError(_BAD_SESSION, problem, status=400))
            return None
        return client


class _Exchange:
    """The context of one legacy request or batch. A lost connection does not cancel it: its stream can be resumed."""

    def __init__(
        self, handler: LegacyHandler, client: HttpSession, stream: Stream, fields: Mapping[str, list[str]]
    ) -> None:
        self.auth = fields.get("authorization", [None])[0]
        self.reply: Reply | None = None
        self.committed = False  # to a stream: the client has been given its head
        self._streams = handler.serving.sse is True
        self._lost = handler.serving.sse is False
        self._listener = handler.server
        self._client = client
        self._stream = stream

    @property
    def cancelled(self) -> bool:
        """The server is being closed; what the client cancels is known to the session."""
        return self._listener.aborted

    def send(self, message: dict[str, Any]) -> None:
        """Send in the request's own stream. On a server without them, only requests find another way."""
        if not self._lost:
            self._stream.put(encode(message))
        elif "id" in message:
            self._client.send(message)

    def finish(self, reply: Reply) -> None:
        """Put the reply into the stream, or keep it for a plain response, and end the stream."""
        dropped = reply.dropped or reply.crash is not None
        streams = self._streams or (not self._lost and reply.copies > 1)
        if dropped:
            self._stream.end(broken=True)
            return
        if not (self.committed or self._stream.begun or (streams and reply.raw is None and reply.status == 200)):
            self.reply = reply
        elif reply.raw is not None:
            self._stream.put(reply.payload(), reply.drip, bare=True)
        elif reply.message is not None:
            for _ in range(reply.copies):
                self._stream.put(reply.payload(), reply.drip)
        self._stream.end()
