"""The loopback receiver: waits at a redirect URI of this machine for the browser that comes back from a sign-in.

One thread, that of the caller, with a selector: nothing runs when nobody waits. Every local program and every web page
in the browser can send requests here, so all that is not the answer is told so and the wait goes on: other methods,
paths, hosts (a page of another site whose name was pointed at 127.0.0.1) and states. Connections are handled side by
side, bounded in number, size and time, so that none holds up another. Spec: RFC 8252, sections 7.3 and 8.3.
(`http.server` was weighed: it needs threads to be ended, and has no bounds.)
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from typing import TYPE_CHECKING

from ..protocol import origins
from .faults import failed
from .redirects import fault, is_refusal, port_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..outcome import McpError

MAX_HEAD = 16 * 1024  # bytes of a request
MAX_AFTER = 64 * 1024  # bytes that are read, and thrown away, after the answer
MAX_CONNECTIONS = 16
CONNECTION_SECONDS = 5.0
GOODBYE_SECONDS = 0.2  # for the browser to close its side once it has the page
TURN_SECONDS = 0.2

_BLANK = b"\r\n\r\n"
_TRIES = 8  # for a random port that is free in both families
_NO_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})


class Receiver:
    """Listens at `uri`: http of a loopback host, with a port, `localhost` in both families. Without `uri` at
    `http://localhost:PORT/callback` with a random port; `uri` then says which. Raises OSError, and ValueError for a
    `uri` nothing can listen at.
    """

    __slots__ = ("_host", "_listeners", "_path", "_selector", "_visits", "uri")

    def __init__(self, uri: str | None = None) -> None:
        if uri is None:
            self._listeners = _listen_anywhere()
            uri = f"http://localhost:{self._listeners[0].getsockname()[1]}/callback"
        else:
            port = port_of(uri)
            if port is None:
                raise ValueError("nothing can listen there")
            self._listeners = _listen(origins.endpoint(uri).host, port)
        endpoint = origins.endpoint(uri)
        self.uri = uri
        self._host = endpoint.origin.partition("://")[2]
        self._path = endpoint.path
        self._visits: list[_Visit] = []  # the oldest first
        self._selector = selectors.PollSelector()
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ, listener)

    def receive(self, state: str | None, wait: Callable[[], float]) -> str:
        """The whole URL of the first GET that answers the sign-in with this state. `wait()` gives the seconds left; it
        is called several times a second, and what it raises gets out. McpError when there is no time left.
        """
        while True:
            left = wait()
            if left <= 0.0:
                raise out_of_time()
            for key, _ in self._selector.select(min(left, TURN_SECONDS)):
                if isinstance(key.data, socket.socket):
                    self._admit(key.data)
                elif key.data in self._visits:  # not one that has just made room for another
                    callback = self._serve(key.data, state)
                    if callback is not None:
                        key.data.see_out()
                        return callback
            now = time.monotonic()
            for visit in [visit for visit in self._visits if visit.end <= now]:
                self._drop(visit)

    def close(self) -> None:
        """Listen no more, and end every connection. A second time does nothing."""
        for visit in self._visits:
            visit.socket.close()
        self._visits.clear()
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._selector.close()

    def _admit(self, listener: socket.socket) -> None:
        if len(self._visits) == MAX_CONNECTIONS:
            self._drop(self._visits[0])
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # no descriptor left: as long as that lasts, the listener stays readable
            if self._visits:
                self._drop(self._visits[0])
            else:
                time.sleep(TURN_SECONDS)
            return
        accepted.setblocking(False)
        visit = _Visit(accepted)
        self._visits.append(visit)
        self._selector.register(accepted, selectors.EVENT_READ, visit)

    def _drop(self, visit: _Visit) -> None:
        self._visits.remove(visit)
        self._selector.unregister(visit.socket)
        visit.socket.close()

    def _serve(self, visit: _Visit, state: str | None) -> str | None:
        """Read what has come, and answer once the head is whole. The callback URL, when this was it."""
        try:
            data = visit.socket.recv(MAX_HEAD)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self._drop(visit)
            return None
        if visit.answered:
            visit.after += len(data)
            if visit.after > MAX_AFTER:
                self._drop(visit)
            return None
        visit.head += data
        head, end, _ = bytes(visit.head).partition(_BLANK)
        if len(head) > MAX_HEAD:
            visit.answer(_page("431 Request Header Fields Too Large", "This request is too large."))
            return None
        if not end:
            return None
        page, callback = self._answer(head.decode("latin-1"), state)
        visit.answer(page)
        return callback

    def _answer(self, head: str, state: str | None) -> tuple[bytes, str | None]:
        """The page for a request, and the callback URL when it is the answer to the sign-in."""
        first, *lines = head.split("\r\n")
        method, _, rest = first.partition(" ")
        target, _, protocol = rest.partition(" ")
        hosts = [value.strip().lower() for name, _, value in (line.partition(":") for line in lines) if _is_host(name)]
        path, _, query = target.partition("?")
        if not protocol.startswith("HTTP/1.") or not target.isascii() or not target.isprintable():
            return _page("400 Bad Request", "This is no request of a browser."), None
        if [host.removesuffix(":80") for host in hosts] != [self._host]:
            return _page("400 Bad Request", "This request is for another host."), None
        if method != "GET":
            page = _page("405 Method Not Allowed", "Only GET is answered here.", "Allow: GET")
            return page.partition(_BLANK)[0] + _BLANK if method == "HEAD" else page, None
        if path != self._path:
            return _page("404 Not Found", "There is nothing here."), None
        why = fault(query, state)
        if why is not None:
            return _page("400 Bad Request", f"This is not the answer the program waits for: {why}."), None
        callback = self.uri.partition("?")[0] + "?" + query
        if is_refusal(query):
            return _page("200 OK", "You were not signed in. The program that asked for it says more."), callback
        return _page("200 OK", "Signed in: you can close this window."), callback


class _Visit:
    """One connection, `end` the time it is over at, whatever has come."""

    __slots__ = ("after", "answered", "end", "head", "socket")

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.end = time.monotonic() + CONNECTION_SECONDS
        self.head = bytearray()
        self.answered = False
        self.after = 0

    def answer(self, page: bytes) -> None:
        """Send the page and the end. Closing at once might take the page back: a browser that is still sending would
        be reset, and forget what it has not read.
        """
        self.answered = True
        try:
            self.socket.send(page)  # an empty send buffer always takes this much
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def see_out(self) -> None:
        """Wait a moment for the other side to close."""
        self.socket.settimeout(GOODBYE_SECONDS)
        try:
            self.socket.recv(MAX_HEAD)
        except OSError:
            return


def out_of_time() -> McpError:
    return failed("sign_in", "nobody has signed in in time: raise sign_in_timeout=, or sign in again")


def _is_host(name: str) -> bool:
    return name.lower() == "host"


def _page(status: str, text: str, *fields: str) -> bytes:
    """A response with a small page of our own words: no scripts, and nothing of what was asked."""
    html = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Sign in</title>'
        f"<body><h1>{text}</h1></body></html>\n"
    ).encode()
    head = [
        f"HTTP/1.1 {status}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(html)}",
        "Connection: close",
        "Cache-Control: no-store",
        "Referrer-Policy: no-referrer",
        "Content-Security-Policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options: nosniff",
        *fields,
    ]
    return "\r\n".join(head).encode() + _BLANK + html


def _listen_anywhere() -> list[socket.socket]:
    for _ in range(_TRIES - 1):
        try:
            return _listen("localhost", 0)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:  # else it was free in the first family only
                raise
    return _listen("localhost", 0)


def _listen(host: str, port: int) -> list[socket.socket]:
    """Listeners on a loopback host, for `localhost` in both families: a browser may try either first, and whoever
    listened in the other would be sent the code. Port 0 is any port, the same for both. Raises OSError.
    """
    listeners: list[socket.socket] = []
    try:
        for family, address in _addresses(host):
            try:
                listeners.append(_listener(family, address, port))
            except OSError as error:
                if error.errno not in _NO_FAMILY:
                    raise
            else:
                port = listeners[0].getsockname()[1]
        if not listeners:
            raise OSError(errno.EADDRNOTAVAIL, "this machine has no such loopback address")
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _listener(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else not within a minute of the last sign-in
        listener.bind((address, port))
        listener.listen(128)  # more than are served at once: a full queue makes a browser wait for seconds
    except BaseException:
        listener.close()
        raise
    return listener


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    if ":" in host:
        return [(socket.AF_INET6, host)]
    if host.replace(".", "").isdigit():
        return [(socket.AF_INET, host)]
    return [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
