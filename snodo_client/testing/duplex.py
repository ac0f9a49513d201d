"""A legacy client on a wire that carries whole messages both ways: what `sse.py` and `websocket.py` have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from snodo_client.testing.session import Session
from snodo_client.testing.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from snodo_client.testing.listener import Listener
    from snodo_client.testing.replies import Reply
    from snodo_client.testing.server import Server


class Duplex:
    """The session of one connection, and the context of its requests.

    `write(data, pause)` sends one message, with a pause in seconds after each byte where the wire can; False when the
    client has gone.
    """

    def __init__(
        self,
        server: Server,
        listener: Listener,
        headers: Mapping[str, list[str]],
        write: Callable[[bytes, float], bool],
    ) -> None:
        self.auth = headers.get("authorization", [None])[0]
        self.session = Session(server, self.push)
        self._listener = listener
        self._headers = headers
        self._write = write

    @property
    def cancelled(self) -> bool:
        """The server is being closed; what the client cancels is known to the session."""
        return self._listener.aborted

    def send(self, message: dict[str, Any]) -> None:
        """Send while a request runs."""
        self.push(message)

    def push(self, message: dict[str, Any]) -> bool:
        """Send what belongs to no request."""
        return self._write(encode(message), 0.0)

    def take(self, message: Any) -> None:
        """Serve a decoded message; a request on a thread of its own."""
        accepted = self.session.accept(message, self, self._headers)
        if accepted.slow:
            self._listener.start(lambda: accepted.deliver(self._finish))
        else:
            accepted.deliver(self._finish)

    def _finish(self, reply: Reply) -> None:
        silent = reply.message is None and reply.raw is None
        if not (silent or reply.dropped or reply.crash is not None):
            for _ in range(reply.copies):
                self._write(reply.payload(), reply.drip)
