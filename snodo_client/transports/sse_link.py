"""One HTTP+SSE session: the stream, the address it names, and the POSTs to that address.

Answers come on the stream alone, perhaps before the POST is answered, so a request waits for its mailbox while the POST
runs on a thread of its own. What the answer to a POST has in its body means nothing.
"""

from __future__ import annotations

from threading import Event as Flag
from typing import TYPE_CHECKING

from ..engine.deadline import Following, timed_out
from ..engine.flight import SLICE
from ..outcome import local_error
from ..protocol.origins import Refusal, announced
from .http_legacy import version_header
from .http_link import HttpLink
from .http_posting import Attempt, Posts, posted
from .http_stream import EventSource, messages_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from ..outcome import McpError
    from ..protocol.origins import Endpoint
    from .base import Inbound, Message
    from .events import Event
    from .http_answer import Answer
    from .http_options import HttpOptions
    from .http_session import SessionSlots
    from .http_slots import Slots


PATIENCE = 5.0  # seconds a server may take to accept a message


class SseLink(HttpLink):
    """`name` is the URL of the stream, without its query."""

    __slots__ = ("_address", "_fault", "_known", "_posts", "_stream")

    def __init__(self, options: HttpOptions, slots: Slots | SessionSlots, inbound: Inbound) -> None:
        super().__init__(options, slots, inbound)
        self._address: Endpoint | None = None
        self._fault: McpError | None = None  # why there is no address
        self._known = Flag()  # that there is one, or will be none
        self._posts = Posts(PATIENCE)
        self._stream = EventSource(self, self._heard, self._ended, headers=dict, opens=True)

    def begin(self, deadline: Deadline) -> None:
        """Ask for the stream and wait until it names the address. Raises McpError."""
        self._stream.start()
        following = Following(deadline, self._stream.deadline)
        try:
            while not self._known.wait(min(deadline.left(), SLICE)) and not deadline.over:
                following.look()
        finally:
            following.end()
        if self._fault is not None:
            raise self._fault.copy()
        if self._address is None:
            raise timed_out(f"{self.name} named no address to send messages to", deadline)

    def exchange(self, call: Call) -> Iterator[Message]:
        """Send the call's POST, and yield what comes for it on the stream."""
        if self.lost is not None:
            raise self.lost.copy()
        if call.wire_id is None:
            self._posts.let_pass(call.deadline)
            yield from self.in_owner(call, self._post(call))
            return
        attempt = Attempt(call, self, self._posts)
        for message in posted(call, attempt, lambda attempt: list(self._post(attempt))):
            if "method" not in message:  # to keep its connection, the POST gets a moment to be answered as well
                self.note_end(attempt.ended.wait(min(self.drain_seconds, call.deadline.left())))
            yield message

    def shut(self, error: McpError) -> None:
        """End the session, from this side. What waits fails with *error*. Any thread, more than once."""
        self._stream.cut()
        self._lose(error)

    def _post(self, call: Call) -> Iterator[Message]:
        return self.converse(call, _acknowledged, headers=version_header(self), endpoint=self._address)

    # -- the stream, on its thread

    def _heard(self, event: Event) -> None:
        if event.name == "endpoint":
            self._named(event.data or "")
        for message in messages_in(event, self):
            self.inbound.deliver(message, self)

    def _named(self, reference: str) -> None:
        address = announced(self.endpoint, reference)
        if not isinstance(address, Refusal):
            self._address = address
            self._known.set()
        elif self._address is not None:
            self.once("another endpoint event, with an address that nothing is sent to")
        else:
            data = None if address.location is None else {"endpoint": address.location}
            text = f"{self.name} sent an endpoint event that is of no use: {address.why}"
            self.shut(local_error(address.reason, text, data=data))

    def _ended(self, error: McpError) -> None:
        if self._address is None and error.reason == "closed":
            error = local_error("closed", f"{self.name} ended the event stream before it named an address for messages")
        self._lose(error)

    def _lose(self, error: McpError) -> None:
        if self._address is None:
            self._fault = self._fault or error
            self._known.set()
        elif self.lost is None:
            self.inbound.lost(error, self)


def _acknowledged(answer: Answer) -> Iterator[Message]:
    return answer.acknowledged()
