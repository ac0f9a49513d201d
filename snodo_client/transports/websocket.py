"""MCP over a WebSocket: one text message for each JSON-RPC message, in both directions.

No revision of the protocol specifies this connection; servers that have it speak the older revisions on it, and ask for
the subprotocol `mcp`. This module is cheap to import: what needs the `websockets` package is imported when a link is
opened. How a connection comes about is `websocket_handshake`'s to know, how it is served `websocket_link`'s.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING

from ..engine.deadline import timed_out
from ..engine.mailbox import Empty, Mailbox
from ..outcome import local_error
from ..protocol import jsonrpc
from .base import Traits
from .http_options import MAX_RESPONSE_BYTES, HttpOptions
from .loading import load

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from typing import Literal

    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from ..outcome import McpError
    from .base import Inbound, Link, Message
    from .http_options import Headers
    from .websocket_link import WebSocketLink

CLOSE_SECONDS = 1.0  # how long a server has to answer our close frame


class Letter:
    """A message to write, for the `call` it belongs to."""

    __slots__ = ("_claimed", "_done", "body", "call")

    def __init__(self, body: bytes, call: Call | None = None) -> None:
        self.body = body
        self.call = call
        self._claimed: dict[None, str] = {}
        self._done: Mailbox[McpError | None] = Mailbox()

    def claim(self, to: Literal["write", "withdraw"]) -> bool:
        """Only one of the two can happen to it: True for the first who asks."""
        return self._claimed.setdefault(None, to) == to  # atomic, and unlike a lock safe in a signal handler

    def taken(self, deadline: Deadline) -> bool:
        """Wait until it is written; False when it was not by the deadline. Raises McpError when the link is lost."""
        try:
            error = self._done.get(deadline)
        except Empty:
            return False
        if error is not None:
            raise error
        return True

    def settle(self, error: McpError | None) -> None:
        self._done.put(error)


class WebSocketTransport:
    """A server at a `ws://` or `wss://` URL.

    headers: sent with the handshake: a mapping, or a callable evaluated for each connection. Values are Latin-1.
    auth: a bearer token.
    verify, cert: whom a `wss://` connection trusts and the client certificate, as over HTTP.
    connect_timeout: seconds for TCP and TLS alone, within the limit of connecting.
    max_response_bytes: the longest message; a longer one ends the connection ("too_large").

    No redirect is followed, no proxy is used, and nothing is compressed. A connection without traffic is kept open by
    pings. Raises ValueError or TypeError for wrong options; nothing is read or sent before `open`.
    """

    traits = Traits(eras=("legacy",), cancel="notify", reopens=True)

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        auth: str | None = None,
        verify: bool | str | os.PathLike[str] = True,
        cert: str | tuple[str, str] | None = None,
        connect_timeout: float | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        if auth is not None and not isinstance(auth, str):
            raise TypeError(f"auth must be a bearer token, not {type(auth).__name__}")
        self._options = HttpOptions(
            _as_http(url),
            headers=headers,
            auth=auth,
            verify=verify,
            cert=cert,
            connect_timeout=connect_timeout,
            max_response_bytes=max_response_bytes,
        )
        self._name = f"ws{self._options.endpoint.name.removeprefix('http')}"
        self._lock = RLock()  # guards the two fields below; reentrant, for signal handlers
        self._link: WebSocketLink | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<WebSocketTransport {getattr(self, '_name', '')}>"

    def open(self, inbound: Inbound, deadline: Deadline) -> WebSocketLink:
        """Connect, in the calling thread. After a loss: let go of the old connection, then make another.

        Raises `McpError`: "unreachable", "tls", "unauthorized", "http_status" or "malformed" by what the server does,
        "timeout", or "closed" after `close()`.
        """
        self._check(deadline)
        module = load("websocket_link", extra="websockets")
        with self._lock:
            old, self._link = self._link, None
        if old is not None:
            old.shut(0.0)
        link: WebSocketLink = module.open_link(self._name, self._options, inbound, lambda: self._check(deadline))
        try:
            with self._lock:
                self._check(deadline)
                self._link = link
        except BaseException:
            link.shut(0.0)
            raise
        return link

    def exchange(self, call: Call) -> Iterator[Message]:
        link: WebSocketLink = call.link  # type: ignore[assignment]
        letter = Letter(call.body, call)
        try:
            link.post(letter)
            yield from call.messages()
        finally:
            link.withdraw(letter)

    def send(self, message: Message, link: Link, deadline: Deadline) -> None:
        ours: WebSocketLink = link  # type: ignore[assignment]
        letter = Letter(jsonrpc.encode(message))
        try:
            ours.post(letter)
            taken = letter.taken(deadline)
        finally:
            ours.withdraw(letter)
        if not taken:
            raise timed_out(f"{link.name} did not take the message", deadline)

    def close(self, deadline: Deadline) -> None:
        with self._lock:
            self._closed = True
            link, self._link = self._link, None
        if link is not None:
            link.shut(min(CLOSE_SECONDS, deadline.left()))

    def forked(self) -> None:
        """To be called in the child of a fork: the connection stays the parent's alone, without a word to the server.
        A new one may be opened here.
        """
        self._lock = RLock()  # a thread that is not here may hold the old one
        link, self._link = self._link, None
        if link is not None:
            link.abandon()

    def _check(self, deadline: Deadline) -> None:
        if self._closed:
            raise self._closed_error()
        if deadline.over:
            raise timed_out(f"{self._name} was not connected to", deadline)

    def _closed_error(self) -> McpError:
        return local_error("closed", f"the connection to {self._name} was closed on this side")


def _as_http(url: str) -> str:
    """The URL of the handshake. What makes a URL fit is the same for both spellings."""
    if not isinstance(url, str):
        raise TypeError(f"a URL is a string, not {type(url).__name__}")
    if not url.lower().startswith(("ws://", "wss://")):
        raise ValueError("the URL of a WebSocket is ws://host/path or wss://host/path")
    return f"http{url[2:]}"
