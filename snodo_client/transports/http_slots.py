"""Connections and who has them: slots of one connection each, leased to one exchange at a time.

Cutting a connection is the only thing another thread may do to it. It goes through the lease, under the slot's lock,
and does nothing once the lease is over: a late cancellation can never hit the exchange that has the connection next.
A slot whose exchange did not end cleanly is discarded. Nothing of HTTP is known here; what a slot's `sender` is, and
how it speaks, is `http_adapter`'s to know.
"""

from __future__ import annotations

import os
import socket
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..engine.deadline import LONGEST_WAIT
from ..outcome import local_error
from .http_dial import dial
from .http_faults import FAULTS, causes, error_of
from .http_reaper import reaper

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from ..outcome import McpError


class Slot:
    """One connection, or the place for one. `switch` is a second descriptor of its socket: shutting that down works
    before, during and after a TLS handshake, whatever has become of the first.
    """

    __slots__ = ("connection", "lease", "lock", "query", "sender", "switch")

    def __init__(self, make_sender: Callable[[Slot], Any]) -> None:
        self.lock = RLock()  # guards lease and switch; re-entered by a signal handler that cancels a call
        self.lease: Lease | None = None
        self.switch: socket.socket | None = None
        self.connection: Any = None  # set by the connection itself
        self.query = ""  # of the URL asked for
        self.sender = make_sender(self)

    @property
    def alive(self) -> bool:
        return self.connection is not None and not self.connection.is_closed

    def dial(self, host: str, port: int, proxied: bool) -> socket.socket:
        """A connected socket for the exchange that has this slot."""
        lease = self.lease
        if lease is None:
            raise local_error("closed", "the exchange is over")
        self._let_go(cut=False)
        return lease.dial(host, port, proxied)

    def discard(self) -> None:
        """Cut and close the connection."""
        self._let_go(cut=True)
        self._close()

    def abandon(self, *, idle: bool) -> None:
        """In the child of a fork: close what can be closed, and leave the connection to the parent. Unless *idle*, a
        thread that is gone may hold locks inside it, and whoever closed it would wait for ever.
        """
        self.lock = RLock()
        self._let_go(cut=False)
        connection, self.connection, self.sender = self.connection, None, None
        if idle and connection is not None:
            connection.close()
        elif connection is not None and connection.sock is not None:
            os.close(connection.sock.detach())

    def _let_go(self, *, cut: bool) -> None:
        with self.lock:
            switch, self.switch = self.switch, None
        if switch is not None:
            if cut:
                _cut(switch)
            switch.close()

    def _close(self) -> None:
        connection, sender, self.connection, self.sender = self.connection, self.sender, None, None
        if connection is not None:
            connection.close()
        if sender is not None:
            sender.close()


class Lease:
    """One exchange's time with a slot. `limit` is when the reaper cuts the connection: the call's deadline, or less
    while something shorter is done.
    """

    __slots__ = (
        "_outgoing",
        "_raw",
        "call",
        "forked",
        "killed",
        "limit",
        "owner",
        "resent",
        "reused",
        "slot",
        "slots",
        "up",
    )

    def __init__(self, call: Call, slot: Slot, slots: Slots, resent: bool) -> None:
        self.call = call
        self.slot = slot
        self.slots = slots
        self.limit: Deadline = call.deadline
        self.killed = False
        self.forked = False  # into a child of the process that made the exchange
        self.resent = resent  # bytes of this call may have left in an earlier exchange
        self.reused = self.up = slot.alive
        self.owner = get_ident()
        self._raw: Any = None
        self._outgoing: Any = None

    def kill(self) -> None:
        """Cut the connection, if it is still this lease's. Any thread, any time."""
        slot = self.slot
        with slot.lock:
            if slot.lease is self:
                self.killed = True
                if slot.switch is not None:
                    _cut(slot.switch)

    # -- for the owner of the exchange

    def begin(self) -> None:
        """From here on the exchange can be ended. Raises what ended it already."""
        self.call.wake = self.kill
        self._limit_to(self.call.deadline)
        self.check()

    def send(self, outgoing: Any, *, may_repeat: bool) -> Any:
        """The head of the answer to a request, as urllib3's response. With *may_repeat*, None when a kept connection
        turned out to be closed by the server before a byte of an answer came.
        """
        call, self._outgoing = self.call, outgoing
        if self.up or self.resent:
            call.delivery = "unknown"
        try:
            self._raw = self.slot.sender.send(outgoing, stream=True, timeout=self.io_timeout())
        except FAULTS as fault:
            stale = may_repeat and self.reused and _is_stale(fault)
            error = None if stale else error_of(fault, self.slots.what, self.up, outgoing.masking())
        except ValueError:  # only what auth= adds is not checked before
            error = local_error("transport_failure", "a header that auth= sets cannot be sent")
        else:
            self.check()  # a connection cut inside the head looks like a whole one
            call.delivery = "accepted"
            return self._raw
        self.check()
        if error is not None:
            raise error
        return None

    def fault(self, fault: BaseException) -> McpError:
        """The error of a read that failed. Raises what ended the call, if that was it."""
        self.check()
        return error_of(fault, self.slots.what, True, self._outgoing.masking())

    def check(self) -> None:
        """Raise what ended the exchange, if anything has."""
        late = not self.up and self.limit.over  # looked at first: the call's own time may be over in between
        self._check_call()
        if late:
            raise local_error(
                "unreachable",
                f"no connection to {self.slots.what} within {self.limit.seconds:g} s (connect_timeout)",
                data={"tried": []},
            )

    def _check_call(self) -> None:
        self.call.check()
        if self.forked:
            raise local_error("forked")
        if self.slots.closed:
            raise local_error("closed", f"the connection to {self.slots.what} was closed on this side")

    def hurry(self, limit: Deadline) -> None:
        """Bound what is read from now on."""
        self._limit_to(limit)
        if self.slot.alive:
            self.slot.connection.sock.settimeout(max(limit.left(), 0.001))

    def _limit_to(self, limit: Deadline) -> None:
        """The reaper is for what has an end: a stream that may last for ever would keep it awake for nothing."""
        self.limit = limit
        if limit.left() < LONGEST_WAIT:
            reaper.watch(self)
        else:
            reaper.forget(self)

    @property
    def reusable(self) -> bool:
        return self.slot.alive

    def release(self, clean: bool) -> None:
        """Give the slot back; the last thing to do with a lease. `clean`: the answer was read to its end."""
        reaper.forget(self)
        slot = self.slot
        with slot.lock:
            slot.lease = None
        if not clean and self._raw is not None:
            self._raw.close()
        self.slots.give_back(self, clean and not self.killed and slot.alive)

    # -- for the connection

    def dial(self, host: str, port: int, proxied: bool) -> socket.socket:
        self.reused = self.up = False
        if not self.resent:
            self.call.delivery = "not_sent"
        connect_timeout = self.slots.connect_timeout
        if connect_timeout is not None:
            self._limit_to(self.call.deadline.sub(connect_timeout))
        what = f"the proxy {host}:{port}" if proxied else self.slots.what
        sock = dial(host, port, what, self.limit, self._check_call, self.slots.forbidden)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(max(self.limit.left(), 0.001))
            switch = sock.dup()
            with self.slot.lock:
                self.slot.switch = switch
            if self.killed:
                _cut(switch)
        except BaseException:
            sock.close()
            raise
        return sock

    def connected(self) -> None:
        """TCP, a proxy's consent and TLS are there: the request goes out."""
        self.up = True
        self._limit_to(self.call.deadline)
        self.call.delivery = "unknown"
        self.slot.connection.sock.settimeout(self.io_timeout())

    def io_timeout(self) -> float:
        """A timeout for single reads and writes. Never shorter than what is left: the deadline may be extended."""
        deadline = self.call.deadline
        return max(deadline.left() if deadline.max_total is None else min(deadline.max_total, LONGEST_WAIT), 0.001)


class Slots:
    """The slots of one endpoint. `what` is the name errors have for it. Leases are without limit, idle slots are kept
    up to *size*, the most recently used first.
    """

    def __init__(self, what: str, make_sender: Callable[[Slot], Any], size: int, connect_timeout: float | None) -> None:
        self.what = what
        self.connect_timeout = connect_timeout
        self.closed = False
        self.proxy = ""
        self.forbidden: Callable[[str], str | None] | None = None  # why an address is not to be dialled
        self.cookies: Any = ()  # the jar of the endpoint
        self._make_sender = make_sender
        self._size = size
        self._lock = RLock()
        self._idle: list[Slot] = []
        self._leases: set[Lease] = set()
        _all.add(self)

    def lease(self, call: Call, *, resent: bool = False, fresh: bool = False) -> Lease:
        """A slot for one exchange of the call; `fresh` ones have no connection yet. Release it, whatever happens."""
        with self._lock:
            slot = self._idle.pop() if self._idle and not fresh else None
        if slot is None:
            slot = Slot(self._make_sender)
        lease = slot.lease = Lease(call, slot, self, resent)
        with self._lock:
            self._leases.add(lease)
        return lease

    def give_back(self, lease: Lease, keep: bool) -> None:
        surplus: Slot | None = lease.slot
        with self._lock:
            self._leases.discard(lease)
            if keep and not self.closed:
                self._idle.append(lease.slot)
                surplus = self._idle.pop(0) if len(self._idle) > self._size else None
        if surplus is not None:
            surplus.discard()

    def close(self) -> None:
        """End every exchange, and close every connection. Any thread, more than once."""
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, []
            leases = list(self._leases)
        for lease in leases:
            lease.kill()
            reaper.forget(lease)  # an interruption may have kept its owner from releasing it
        for slot in idle:
            slot.discard()

    def forked(self) -> None:
        """In the child of a fork: start empty. The connections are the parent's."""
        self._lock = RLock()
        for slot in self._idle:
            slot.abandon(idle=True)
        for lease in self._leases:
            lease.forked = True
            lease.slot.abandon(idle=lease.owner == get_ident())
        self._idle, self._leases = [], set()


_all: WeakSet[Slots] = WeakSet()


def _forked() -> None:
    for slots in _all:
        slots.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _cut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:  # the other side was first
        return


def _is_stale(fault: BaseException) -> bool:
    """Whether a kept connection was found closed by the server before the first byte of an answer."""
    return any(isinstance(cause, (ConnectionResetError, BrokenPipeError)) for cause in causes(fault))
