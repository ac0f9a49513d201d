"""From a host name to a connected TCP socket, within a limit and open to interruption.

The system's resolver cannot be interrupted, so it runs on a thread that may be left behind; threads left behind are
shared by all who ask for the same name. The addresses are tried in the order the system gives them, each one given a
short head start over the next, so that a black hole costs little and `localhost` works with one family listening.
Nothing of HTTP, TLS or proxies is known here.
"""

from __future__ import annotations

import errno
import os
import socket
from selectors import EVENT_WRITE, DefaultSelector
from threading import Event, RLock
from time import monotonic
from typing import TYPE_CHECKING

from ..engine import threads
from ..outcome import local_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..engine.deadline import Deadline
    from ..outcome import McpError

    Address = tuple[Any, ...]  # as of getaddrinfo: family, type, protocol, canonical name, socket address

SLICE = 0.025  # seconds between two looks at whether the caller still wants the connection
HEAD_START = 0.25  # seconds that an address has before the next one is tried as well (RFC 8305)
MAX_ADDRESSES = 16

_UNDER_WAY = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN)


def dial(
    host: str,
    port: int,
    what: str,
    limit: Deadline,
    check: Callable[[], None],
    forbidden: Callable[[str], str | None] | None = None,
) -> socket.socket:
    """A socket connected to *host*. *what* is the name errors have for it. *forbidden* is asked for every address why
    it is not to be connected to; None: it may.

    Raises McpError "unreachable", with `data["tried"]`, when no address answers within *limit*, and whatever *check*
    raises; it is called several times a second.
    """
    addresses = _resolve(host, port, what, limit, check)
    return _connect(addresses[:MAX_ADDRESSES], what, limit, check, forbidden)


class _Lookup:
    __slots__ = ("addresses", "done", "problem")

    def __init__(self) -> None:
        self.done = Event()
        self.addresses: list[Address] = []
        self.problem = "no address"


class _Lookups:
    """The lookups under way in this process, by name and port."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._running: dict[tuple[str, int], _Lookup] = {}

    def get(self, host: str, port: int) -> _Lookup:
        with self._lock:
            lookup = self._running.get((host, port))
            if lookup is not None:
                return lookup
            lookup = self._running[host, port] = _Lookup()
        try:
            threads.start("snodo-resolver", self._run, host, port, lookup)
        except BaseException:
            self._running.pop((host, port), None)
            raise
        return lookup

    def _run(self, host: str, port: int, lookup: _Lookup) -> None:
        try:
            lookup.addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            lookup.problem = getattr(error, "strerror", None) or "not a host name"
        finally:
            self._running.pop((host, port), None)
            lookup.done.set()

    def forked(self) -> None:
        """In the child of a fork: the threads stayed with the parent."""
        self.__init__()  # type: ignore[misc]


_lookups = _Lookups()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_lookups.forked)


def _resolve(host: str, port: int, what: str, limit: Deadline, check: Callable[[], None]) -> list[Address]:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):  # a name
        lookup = _lookups.get(host, port)
    while not lookup.done.wait(min(SLICE, limit.left())):
        over = limit.over  # looked at first: the call's own time may be over in between, and says more
        check()
        if over:
            raise _unreachable(what, [f"{host}: its address was not found within {limit.seconds:g} s"])
    if not lookup.addresses:
        raise _unreachable(what, [f"{host}: {lookup.problem}"])
    return lookup.addresses


def _connect(
    addresses: list[Address],
    what: str,
    limit: Deadline,
    check: Callable[[], None],
    forbidden: Callable[[str], str | None] | None = None,
) -> socket.socket:
    waiting = list(reversed(addresses))
    pending: dict[socket.socket, str] = {}
    tried: list[str] = []
    next_at = 0.0
    try:
        with DefaultSelector() as selector:
            while waiting or pending:
                over = limit.over
                check()
                if over:
                    tried += [f"{shown}: no answer within {limit.seconds:g} s" for shown in pending.values()]
                    break
                if waiting and (not pending or monotonic() >= next_at):
                    shown, outcome = _start(waiting.pop(), forbidden)
                    next_at = monotonic() + HEAD_START
                    if isinstance(outcome, str):
                        tried.append(f"{shown}: {outcome}")
                        continue
                    pending[outcome] = shown
                    selector.register(outcome, EVENT_WRITE)
                for key, _ in selector.select(min(SLICE, limit.left())):
                    sock: socket.socket = key.fileobj  # type: ignore[assignment]
                    selector.unregister(sock)
                    shown = pending.pop(sock)
                    fault = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if fault == 0:
                        return sock
                    sock.close()
                    tried.append(f"{shown}: {os.strerror(fault)}")
                    next_at = 0.0
    finally:
        for sock in pending:
            sock.close()
    raise _unreachable(what, tried)


def _start(address: Address, forbidden: Callable[[str], str | None] | None) -> tuple[str, socket.socket | str]:
    """A socket that is connecting, or why there is none."""
    family, kind, protocol, _, where = address
    shown = f"[{where[0]}]:{where[1]}" if ":" in where[0] else f"{where[0]}:{where[1]}"
    why = forbidden(where[0]) if forbidden is not None else None
    if why is not None:
        return shown, why
    sock = None
    try:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        fault = sock.connect_ex(where)
    except OSError as error:  # no socket of this family, or none left
        fault = error.errno or errno.EIO
    if sock is not None and (fault == 0 or fault in _UNDER_WAY):
        return shown, sock
    if sock is not None:
        sock.close()
    return shown, os.strerror(fault)


def _unreachable(what: str, tried: list[str]) -> McpError:
    return local_error("unreachable", f"no connection to {what}: {'; '.join(tried)}", data={"tried": tried})
