"""Streamable HTTP: every message is a POST of its own, answered by JSON or by an event stream (spec:
basic/transports/streamable-http).

An exchange runs in the thread of its caller, on a connection that it has to itself. This module is cheap to import;
what needs requests and urllib3 is imported when a link is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..engine.call import Call
from ..outcome import local_error
from ..protocol.requests import Notification
from .base import Traits
from .http_options import HttpOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engine.deadline import Deadline
    from .base import Inbound, Link
    from .http_link import HttpLink

    Message = dict[str, Any]


class HttpTransport:
    """A Streamable HTTP endpoint. Its options are those of `HttpOptions`, which raises ValueError or TypeError for
    wrong ones; nothing is read or sent before `open`.
    """

    traits = Traits(eras=("modern",), cancel="drop", mirrors_headers=True)

    def __init__(self, url: str, **options: Any) -> None:
        self._options = HttpOptions(url, **options)
        self._link: HttpLink | None = None

    def open(self, inbound: Inbound, deadline: Deadline) -> Link:
        """Read the environment and the certificates. No connection is made: the first request does that."""
        problem = None
        try:
            from .http_link import HttpLink
        except (ImportError, OSError) as error:  # no file descriptor left, for one
            problem = str(error)
        if problem is not None:
            raise local_error("transport_failure", f"a module HTTP needs could not be loaded: {problem}")
        self._close_link()
        self._link = link = HttpLink(self._options)
        return link

    def exchange(self, call: Call) -> Iterator[Message]:
        link: HttpLink = call.link  # type: ignore[assignment]
        return link.exchange(call)

    def send(self, message: Message, link: Link, deadline: Deadline) -> None:
        notification = Notification(message, link.version)  # type: ignore[attr-defined]
        call = Call(0, notification, deadline)  # type: ignore[arg-type]
        call.body, call.link = notification.encode(), link
        list(self.exchange(call))  # nothing comes of it, unless it fails

    def close(self, deadline: Deadline) -> None:
        self._close_link()

    def _close_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.slots.close()

    def __repr__(self) -> str:
        options = getattr(self, "_options", None)  # a traceback may show a transport whose options were refused
        return f"<HttpTransport {options.endpoint.name if options else ''}>"
