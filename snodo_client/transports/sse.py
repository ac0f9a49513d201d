"""HTTP+SSE, the HTTP of the oldest revision: one event stream brings everything the server says, and each message to it
is a POST to the address that the stream named first (2024-11-05: basic/transports).

The stream is the session: when it ends, what waits fails, and a new one begins from the start. Servers that came later
speak later revisions over it as well. This module is cheap to import: what needs requests is imported when a link is
opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..outcome import local_error
from .base import Traits
from .http_options import HttpOptions
from .loading import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from ..outcome import McpError
    from .base import Inbound, Link, Message
    from .http_session import SessionSlots
    from .http_slots import Slots
    from .sse_link import SseLink


class SseTransport:
    """The event stream at a URL, and the address it names. Its options are those of `HttpOptions`, which raises
    ValueError or TypeError for wrong ones; nothing is read or sent before `open`.
    """

    traits = Traits(eras=("legacy",), cancel="notify", reopens=True)

    def __init__(self, url: str, **options: Any) -> None:
        self._options = HttpOptions(url, **options)
        self._slots: Slots | SessionSlots | None = None
        self._link: SseLink | None = None
        self._closed = False

    def __repr__(self) -> str:
        options = getattr(self, "_options", None)  # a traceback may show a transport whose options were refused
        return f"<SseTransport {options.endpoint.name if options else ''}>"

    def open(self, inbound: Inbound, deadline: Deadline) -> Link:
        """Ask for the stream, and wait for it to name the address. After a loss: end the old stream first.

        Raises `McpError`: what a POST may raise too, "cross_origin_endpoint" or "malformed" for an address that nothing
        is sent to, "timeout", or "closed" after `close()`.
        """
        if self._closed:
            raise self._closed_error()
        sse_link, http_link = load("sse_link"), load("http_link")
        if self._link is not None:
            self._link.shut(self._closed_error())
        if self._slots is None:
            self._slots = http_link.make_slots(self._options)
        link: SseLink = sse_link.SseLink(self._options, self._slots, inbound)
        self._link = link
        try:
            if self._closed:  # since: then nobody has shut this link
                raise self._closed_error()
            link.begin(deadline)
        except BaseException:
            link.shut(self._closed_error())
            raise
        return link

    def exchange(self, call: Call) -> Iterator[Message]:
        link: SseLink = call.link  # type: ignore[assignment]
        return link.exchange(call)

    def send(self, message: Message, link: Link, deadline: Deadline) -> None:
        link.send(message, deadline)  # type: ignore[attr-defined]

    def close(self, deadline: Deadline) -> None:
        self._closed = True
        link, self._link = self._link, None
        slots, self._slots = self._slots, None
        if link is not None:
            link.shut(self._closed_error())
        if slots is not None:
            slots.close()

    def forked(self) -> None:
        """To be called in the child of a fork: the stream stays the parent's. A new one may be opened here."""
        self._link = None  # its connections are let go of by the slots

    def _closed_error(self) -> McpError:
        return local_error("closed", f"the connection to {self._options.endpoint.name} was closed on this side")
