"""Streamable HTTP: every message is a POST of its own, answered by JSON or by an event stream (spec:
basic/transports/streamable-http). What the revisions before 2026-07-28 have beside that is in `http_legacy`.

An exchange runs in the thread of its caller, on a connection that it has to itself. This module is cheap to import;
what needs requests and urllib3 is imported when a link is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import Traits
from .http_options import HttpOptions
from .loading import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from .base import Inbound, Link
    from .http_link import HttpLink
    from .http_session import SessionSlots
    from .http_slots import Slots
    from .sse import SseTransport

    Message = dict[str, Any]


class HttpTransport:
    """A Streamable HTTP endpoint. Its options are those of `HttpOptions`, which raises ValueError or TypeError for
    wrong ones; nothing is read or sent before `open`.
    """

    traits = Traits(eras=("modern", "legacy"), cancel="drop", mirrors_headers=True, reopens=True)

    def __init__(self, url: str, **options: Any) -> None:
        self._options = HttpOptions(url, **options)
        self._given = (url, options)
        self._slots: Slots | SessionSlots | None = None
        self._link: HttpLink | None = None

    def open(self, inbound: Inbound, deadline: Deadline) -> Link:
        """Read the environment and the certificates, the first time. No connection is made: the first request does
        that. A link in the place of another begins without a session; calls that run on the other are not disturbed.
        """
        module = load("http_link")
        before = self._link
        if self._slots is None:
            self._slots = module.make_slots(self._options)
        link: HttpLink = module.HttpLink(self._options, self._slots, inbound)
        self._link = link
        if before is not None:
            before.end_session(None)
        return link

    def exchange(self, call: Call) -> Iterator[Message]:
        link: HttpLink = call.link  # type: ignore[assignment]
        return link.exchange(call)

    def send(self, message: Message, link: Link, deadline: Deadline) -> None:
        link.send(message, deadline)  # type: ignore[attr-defined]

    def attend(self, link: Link, deadline: Deadline) -> None:
        """Ask for the stream of what belongs to no request, and give it a moment to begin."""
        link.session().attend(deadline)  # type: ignore[attr-defined]

    def identity(self, link: Link) -> tuple[bytes, bytes | None]:
        """The URL of the server, and the credential a request would be sent with now, both as fingerprints. The
        caller's headers, `auth`, cookies and client certificate make it up: `headers` and `auth` that are callables
        are evaluated. None with a session of the caller's.
        """
        return link.identity()  # type: ignore[attr-defined, no-any-return]

    def older(self) -> SseTransport:
        """The transport that came before this one (2024-11-05: basic/transports), for the same URL."""
        from .sse import SseTransport

        url, options = self._given
        return SseTransport(url, **options)

    def close(self, deadline: Deadline) -> None:
        """End the session with the server, if there is one, and then everything."""
        link, self._link = self._link, None
        slots, self._slots = self._slots, None
        if link is not None:
            link.end_session(deadline)
        if slots is not None:
            slots.close()

    def __repr__(self) -> str:
        options = getattr(self, "_options", None)  # a traceback may show a transport whose options were refused
        return f"<HttpTransport {options.endpoint.name if options else ''}>"
