"""Serving over the standard streams: one JSON text a line, each request on its own daemon thread.

The process has one client. It speaks the 2026-07-28 revision, or an older one once it has sent `initialize`. Spec:
basic/transports/stdio.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from snodo_client.testing.errors import INVALID_REQUEST, PARSE_ERROR, RpcError
from snodo_client.testing.replies import Reply, error_response
from snodo_client.testing.session import Session
from snodo_client.testing.wire import decode, encode

if TYPE_CHECKING:
    from snodo_client.testing.server import Server

_MAX_LINE = 64 * 1024 * 1024  # bytes
_GRACE = 1.0  # seconds that running requests have to finish after the input has ended


def serve(server: Server) -> None:
    """Serve until standard input ends; see `Server.serve_stdio`."""
    source, printed = sys.stdin.buffer, sys.stdout
    output = _Output(printed.fileno())
    session = Session(server, output.send, modern=True)
    sys.stdout = sys.stderr  # a handler that prints must not write into the protocol
    try:
        while line := source.readline(_MAX_LINE):
            if line.endswith(b"\n") or len(line) < _MAX_LINE:
                _take(line, session, output)
                continue
            while line and not line.endswith(b"\n"):
                line = source.readline(_MAX_LINE)
            output.refuse(RpcError(INVALID_REQUEST, f"A message may have {_MAX_LINE} bytes"))
    except KeyboardInterrupt:
        pass
    finally:
        server.subscriptions.end()
        session.end(_GRACE)
        sys.stdout = printed


def _take(line: bytes, session: Session, output: _Output) -> None:
    """Start what a line asks for."""
    try:
        message = decode(line)
    except ValueError as problem:
        output.refuse(RpcError(PARSE_ERROR, f"Not JSON: {problem}"))
        return
    accepted = session.accept(message, output)
    if accepted.slow:
        threading.Thread(target=accepted.deliver, args=(output.finish,), daemon=True).start()
    else:
        accepted.deliver(output.finish)


class _Output:
    """Where messages are written, and what requests have for a context. Unbuffered: a buffered stream's lock can stop
    the interpreter from exiting.
    """

    auth = None
    cancelled = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> bool:
        """Write one message; True, since the client is always there."""
        self._write(encode(message) + b"\n")
        return True

    def refuse(self, error: RpcError) -> None:
        """Report what cannot be told to belong to a request."""
        self.send(error_response({}, error))

    def finish(self, reply: Reply) -> None:
        """Carry out a reply."""
        if reply.crash is not None:
            os._exit(reply.crash)
        silent = reply.message is None and reply.raw is None
        if not (silent or reply.dropped):
            self._write((reply.payload() + b"\n") * reply.copies, reply.drip)

    def _write(self, data: bytes, pause: float = 0.0) -> None:
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
