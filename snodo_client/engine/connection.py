"""A transport and the link of it that is in use: opened and agreed on once, by one thread for all, and replaced when it
is lost or turns out to be of another era than was remembered.

How it comes about is in `opening`; what becomes of a call is the session's to say.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING

from ..outcome import McpError, local_error
from . import threads
from .exchange import fault
from .flight import Flight
from .opening import Opening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..protocol.agreement import Agreement
    from ..protocol.requests import Identity
    from ..transports.base import Link, Transport
    from .call import Call, Message
    from .deadline import Deadline
    from .events import Events
    from .inbound import Router
    from .pending import Pending


class Connection:
    """`transport` changes once at most, to the one it falls back on. `link` is the one in use, None until it was agreed
    on; `error` is why there is none. `name` is what errors call the server. Nobody tries again where that would take
    another process.
    """

    def __init__(
        self,
        transport: Transport,
        router: Router,
        pending: Pending,
        identity: Identity,
        allowed: Sequence[str],
        probe_timeout: float,
        remembered: Agreement | None,
        events: Events,
    ) -> None:
        self.transport = transport
        self.name = "a server"
        self.link: Link | None = None
        self.error: McpError | None = None
        self.closed = False
        self.router = router
        self.pending = pending
        self.identity = identity
        self.allowed = allowed
        self.probe_timeout = probe_timeout
        self.memory = remembered
        self._events = events
        self.opened: Link | None = None  # the last one, agreed on or not
        # Methods by which something was set on the server, for as long as the link lasts.
        self.settings: set[str] = set()
        self._lock = RLock()  # guards which link is in use
        self._flight: Flight[Link] = Flight("negotiating the protocol version")

    @property
    def agreement(self) -> Agreement | None:
        """What was agreed on for the link in use."""
        link = self.link
        return link.agreement if link is not None else None

    @property
    def mirrors(self) -> bool:
        """Whether arguments of tools are mirrored in headers, as far as is known by now."""
        link = self.link
        return self.transport.traits.mirrors_headers and not (link is not None and link.legacy)

    @property
    def lost(self) -> bool:
        """Whether every further call will fail."""
        link = self.link or (self.opened if self.error is not None else None)
        return link is not None and link.lost is not None and not self.transport.traits.reopens

    def ready(self, deadline: Deadline, wanted: Callable[[], bool] | None = None) -> Link | McpError:
        """The link to use, after opening it and negotiating if nobody has yet. A lost one only where there will be no
        other.
        """
        return self._usable() or self._flight.run(self._negotiate, deadline, wanted)

    def begin(self, deadline: Deadline) -> None:
        """Negotiate on a thread of its own, so that nobody in a hurry begins it instead."""
        under_way = Event()

        def lead(deadline: Deadline) -> Link | McpError:
            under_way.set()
            return self._negotiate(deadline)

        thread = Thread(target=self._flight.run, args=(lead, deadline), name="snodo-connecting", daemon=True)
        if threads.refusal(thread) is None:  # else the first call does it
            under_way.wait(deadline.left())

    def renew(self, link: Link, deadline: Deadline) -> Link | McpError:
        """Another link in place of this one, whose session the server has forgotten; one for all who ask."""
        with self._lock:
            if self.link is link:
                self.link = self.opened = None
                self.router.forgotten(link)
        return self.ready(deadline)

    def doubt(self, link: Link, agreement: Agreement) -> None:
        """What was remembered of the era of this link seems to be wrong: the next call negotiates from the start,
        unless somebody has by now.
        """
        with self._lock:
            if self.link is link and link.agreement is agreement:
                self.link = self.memory = None

    def forked(self) -> None:
        """In the child of a fork: a session with the server is the parent's alone, and so is a process."""
        self._flight, self._lock = Flight(self._flight.name), RLock()
        forked, link = getattr(self.transport, "forked", None), self.link
        if forked is not None:
            forked()
        if forked is not None and self.opened is not None:
            error = local_error("forked", f"the client of {self.name} was made in another process")
            self.router.lost(error, self.opened)
        if link is not None and self.transport.traits.reopens and link.legacy:
            self.link = self.opened = None

    def exchange(self, call: Call, link: Link) -> Iterator[Message] | McpError:
        """Put a call on the wire: what the transport will yield for it, or why it was not sent."""
        wire_id = self.pending.attempt(call, link)
        # Only now: whoever closes or loses the link from here on finds the call in the table.
        if self.closed:
            return self.closed_error()
        if link.lost is not None:
            return link.lost.copy()
        call.body = call.request.encode(wire_id, self.identity, progress=call.wants_progress)
        try:
            return self.transport.exchange(call)
        except McpError as error:  # a transport that is no generator
            return fault(error)

    def send(self, message: Message, link: Link, deadline: Deadline) -> McpError | None:
        """Send a message nobody waits for."""
        try:
            self.transport.send(message, link, deadline)
        except McpError as error:
            return fault(error)
        return None

    def close(self, deadline: Deadline) -> None:
        self.closed = True
        with suppress(McpError):
            self.transport.close(deadline)

    def closed_error(self) -> McpError:
        return local_error("closed", f"the client of {self.name} is closed: nothing was sent")

    # -- inside

    def _usable(self) -> Link | None:
        link = self.link
        return link if link is not None and (link.lost is None or not self.transport.traits.reopens) else None

    def _negotiate(self, deadline: Deadline) -> Link | McpError:
        link = self._usable()
        if link is not None:  # since it was asked for
            return link
        if self.closed:
            return self.closed_error()
        if self.lost and self.error is not None:
            return self.error.copy()
        agreed = Opening(self, deadline).run()
        if isinstance(agreed, McpError):
            if not _personal(agreed, deadline):
                self.error = agreed.copy()
            return agreed
        with self._lock:
            self.link, self.error = agreed, None
        if self._events.wanted and agreed.agreement is not None:
            told = agreed.agreement.told()
            self._events.tell(
                "negotiated", server=agreed.name, **{name: told[name] for name in ("era", "version", "probed", "why")}
            )
        return agreed


def _personal(error: McpError, deadline: Deadline) -> bool:
    """Whether it was the time of the one who tried that was over: somebody else may have more."""
    return error.reason in ("timeout", "max_total_timeout") and deadline.over
