"""Serving TCP on a thread per connection: the listening socket, and the threads and sockets that have to be let go of.

What is said on a connection is not here but in its handler: `httpd.py`, `sse.py`, `websocket.py`. Built on
`socketserver`, which is imported only by a program that serves. `close` leaves no thread and no socket behind.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from socketserver import BaseRequestHandler, TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from snodo_client.testing.server import Server

GRACE = 1.0  # seconds that running requests have to finish when the server closes
_PATIENCE = 5.0  # seconds `close` waits for handlers that ignore their cancellation
_HANDSHAKE = 10.0  # seconds


class Serving:
    """A server that is being served at `url` until it is closed."""

    def __init__(
        self,
        server: Server,
        handler: type[BaseRequestHandler],
        scheme: str,
        host: str,
        port: int,
        path: str,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self.server = server
        self.path = path
        self._listener = Listener((host, port), handler, self, ssl_context)
        self.port: int = self._listener.server_address[1]
        secure = "s" if ssl_context else ""
        self.url = f"{scheme}{secure}://{f'[{host}]' if ':' in host else host}:{self.port}{path}"
        self._thread = threading.Thread(target=self._listener.run, name=f"snodo-testing-{scheme}", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Block until the server is closed."""
        self._thread.join()

    def close(self) -> None:
        """Stop: streams end, running requests have a second, then every connection is cut. Idempotent."""
        if self._listener.closing.is_set():
            return
        self._listener.closing.set()
        self.end()
        self._listener.wake()
        self._thread.join()
        self._listener.server_close()
        self._listener.cut(idle=True)
        self._listener.join(GRACE)
        self._listener.aborted = True
        self._listener.cut()
        self._listener.join(_PATIENCE)

    def end(self) -> None:
        """Begin to end what ends in its own way, without waiting for it."""
        self.server.subscriptions.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Listener(ThreadingMixIn, TCPServer):
    """The listening socket, and the threads and sockets of its connections.

    `closing` is set when no new work is to begin, `aborted` when running work has to stop.
    """

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseRequestHandler],
        serving: Serving,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.serving = serving
        self.closing = threading.Event()
        self.aborted = False
        self._ssl_context = ssl_context
        self._live: dict[threading.Thread, socket.socket] = {}
        self._busy: set[threading.Thread] = set()
        self._workers: set[threading.Thread] = set()
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def run(self) -> None:
        while not self.closing.is_set():
            self.handle_request()

    def wake(self) -> None:
        """Make `run` look at `closing`: it waits for a connection, so it gets one."""
        host, port = self.server_address[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(cast(str, host), cast(str, host))
        try:
            socket.create_connection((host, port), timeout=_PATIENCE).close()
        except OSError:
            return

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Meanwhile the connection of this thread is not idle."""
        thread = threading.current_thread()
        with self._lock:
            self._busy.add(thread)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(thread)

    def start(self, work: Callable[[], object]) -> None:
        """Do work on a thread that `close` waits for, as it does for those of the connections."""

        def run() -> None:
            try:
                work()
            finally:
                with self._lock:
                    self._workers.discard(thread)

        thread = threading.Thread(target=run, daemon=True)
        with self._lock:
            self._workers.add(thread)
        thread.start()

    def cut(self, *, idle: bool = False) -> None:
        """Shut down every connection, or every idle one, without touching what its own thread may be using."""
        with self._lock:
            connections = [sock for thread, sock in self._live.items() if not (idle and thread in self._busy)]
        for connection in connections:
            try:
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError:
                continue

    def join(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self._lock:
            threads = [thread for thread in (*self._live, *self._workers) if thread is not threading.current_thread()]
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self._ssl_context is not None:
            try:
                connection = self._ssl_context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            except OSError:
                connection.close()
                raise
        return connection, address

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return not self.closing.is_set()

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        with self._lock:
            self._live[thread] = request
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                del self._live[threading.current_thread()]

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._ssl_context is not None:
            request.settimeout(_HANDSHAKE)
            request.do_handshake()
            request.settimeout(None)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks, or that never was TLS, concerns its client alone."""
        from snodo_client.log import logger

        logger("testing").debug("connection lost", exc_info=True)
