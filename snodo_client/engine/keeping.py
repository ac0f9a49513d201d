"""When the answer to a call is looked up in the cache, and when it is kept there.

What may be kept, for how long and for whom, is `cache`'s to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import Ok
from ..protocol import caching

if TYPE_CHECKING:
    from typing import Any, Literal

    from ..cache import Cache, Ticket
    from ..outcome import Outcome
    from ..transports.base import Link
    from .call import Call
    from .connection import Connection


class Keeping:
    def __init__(self, cache: Cache, connection: Connection) -> None:
        self.cache = cache
        self._connection = connection

    def begin(self, call: Call, link: Link, mode: Literal["use", "refresh", "bypass"]) -> Ok[Any] | Ticket | None:
        """To be asked before the call is sent: an answer that saves it, a ticket to keep its answer by, or neither."""
        request, identity = call.request, getattr(self._connection.transport, "identity", None)
        if call.listens and identity is not None:  # it may hear of a change before anything else was asked for
            self.cache.endpoint = identity(link)[0]
        if mode == "bypass" or not caching.cacheable(request.method, request.params, request.version):
            return None
        self.cache.endpoint, call.credential = (None, b"") if identity is None else identity(link)
        ticket = self.cache.begin(request.method, request.params, request.version, request.meta)
        if ticket is None:
            return None
        if mode == "refresh":
            self.cache.forget(ticket, call.credential)
            return ticket
        found = self.cache.lookup(ticket, call.credential)
        return ticket if found is None else Ok(found)

    def keep(self, ticket: Ticket, call: Call, outcome: Outcome) -> None:
        """Keep the answer for whoever asked, by what the call was really sent with. One that took input rounds is not
        an answer to what was looked up.
        """
        request = call.request
        if isinstance(outcome, Ok) and caching.cacheable(request.method, request.params, request.version):
            self.cache.keep(ticket, outcome.value, call.credential)
