"""Serving over the standard streams: one JSON text a line, each request on its own daemon thread.

Spec: basic/transports/stdio.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from snodo_client.testing.errors import INVALID_REQUEST, PARSE_ERROR, RpcError
from snodo_client.testing.replies import Reply, error_response
from snodo_client.testing.wire import decode, encode

if TYPE_CHECKING:
    from snodo_client.testing.server import Server

_MAX_LINE = 64 * 1024 * 1024  # bytes
_GRACE = 1.0  # seconds that running requests have to finish after the input has ended


def serve(server: Server) -> None:
    """Serve until standard input ends; see `Server.serve_stdio`."""
    source, printed = sys.stdin.buffer, sys.stdout
    loop = _Loop(server, _Output(printed.fileno()))
    sys.stdout = sys.stderr  # a handler that prints must not write into the protocol
    try:
        while line := source.readline(_MAX_LINE):
            if line.endswith(b"\n") or len(line) < _MAX_LINE:
                loop.take(line)
                continue
            while line and not line.endswith(b"\n"):
                line = source.readline(_MAX_LINE)
            loop.refuse(RpcError(INVALID_REQUEST, f"A message may have {_MAX_LINE} bytes"))
    except KeyboardInterrupt:
        pass
    finally:
        loop.end()
        sys.stdout = printed


class _Output:
    """Where messages are written. Unbuffered: a buffered stream's lock can stop the interpreter from exiting."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, data: bytes, pause: float = 0.0) -> None:
        """Write whole lines, `pause` seconds after each byte if asked to; a client that has gone is not an error."""
        pieces = [data[i : i + 1] for i in range(len(data))] if pause else [data]
        with self._lock:
            try:
                for piece in pieces:
                    while piece:
                        piece = piece[os.write(self._descriptor, piece) :]
                    time.sleep(pause)
            except OSError:
                return


class _Exchange:
    """The context of one request."""

    auth = None

    def __init__(self, output: _Output) -> None:
        self.cancelled = False
        self._output = output

    def send(self, message: dict[str, Any]) -> None:
        if not self.cancelled:
            self._output.write(encode(message) + b"\n")

    def finish(self, reply: Reply) -> None:
        if reply.crash is not None:
            os._exit(reply.crash)
        silent = reply.message is None and reply.raw is None
        if not (silent or reply.dropped or self.cancelled):
            self._output.write((reply.payload() + b"\n") * reply.copies, reply.drip)


class _Loop:
    """The requests that are running, by type and value of their id."""

    def __init__(self, server: Server, output: _Output) -> None:
        self._server = server
        self._output = output
        self._running: dict[tuple[type, Any], _Exchange] = {}
        self._idle = threading.Condition()

    def take(self, line: bytes) -> None:
        """Start what a line asks for."""
        try:
            message = decode(line)
        except ValueError as problem:
            self.refuse(RpcError(PARSE_ERROR, f"Not JSON: {problem}"))
            return
        exchange = _Exchange(self._output)
        if not isinstance(message, dict) or "id" not in message or "method" not in message:
            exchange.finish(self._server.answer(message, exchange))
            self._cancel(message)
            return
        key = (type(message["id"]), repr(message["id"]))
        with self._idle:
            if key in self._running:
                self.refuse(RpcError(INVALID_REQUEST, "A request with this id is running"))
                return
            self._running[key] = exchange
        threading.Thread(target=self._run, args=(key, message, exchange), daemon=True).start()

    def refuse(self, error: RpcError) -> None:
        """Report what cannot be told to belong to a request."""
        self._output.write(encode(error_response({}, error)) + b"\n")

    def end(self) -> None:
        """Give running requests a moment, unless the client has cancelled them; then cancel them all."""
        self._server.listeners.end()
        with self._idle:
            self._idle.wait_for(lambda: all(each.cancelled for each in self._running.values()), _GRACE)
            for exchange in self._running.values():
                exchange.cancelled = True

    def _run(self, key: tuple[type, Any], message: dict[str, Any], exchange: _Exchange) -> None:
        try:
            exchange.finish(self._server.answer(message, exchange))
        finally:
            with self._idle:
                del self._running[key]
                self._idle.notify_all()

    def _cancel(self, message: Any) -> None:
        if not isinstance(message, dict) or message.get("method") != "notifications/cancelled":
            return
        params = message.get("params")
        wanted = params.get("requestId") if isinstance(params, dict) else None
        with self._idle:
            exchange = self._running.get((type(wanted), repr(wanted)))
        if exchange is not None:
            exchange.cancelled = True
