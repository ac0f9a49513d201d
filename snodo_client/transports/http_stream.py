"""Event streams that a GET asks for: read on a thread, resumed where they broke off, cut from any thread.

The stream for what belongs to no request, the rest of an answer whose stream the server closed, and all that an
HTTP+SSE server says come this way. A stream is on a link like any POST: same connections, headers, redirect rules,
masking and bounds. What its events mean, and whether to ask again after its end, is for who opened it to say.

    source = EventSource(link, on_event, on_end, headers=...)
    source.start()                       # a daemon thread; McpError "transport_failure" when there is none
    if not source.opened(deadline):      # raises what the server answered instead of a stream
        source.cut()

Connections have no deadline of their own unless one is given: a stream may be silent for ever.
"""

from __future__ import annotations

from math import inf
from threading import Event as Flag
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..engine import threads
from ..engine.call import Call
from ..engine.deadline import LONGEST_WAIT, Deadline
from ..outcome import McpError, local_error
from ..protocol import jsonrpc
from ..protocol.versions import BATCHING, LEGACY
from .lines import request_id_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .events import Event
    from .http_answer import Answer
    from .http_link import HttpLink

MAX_EVENT_ID = 4096  # characters; a longer one is not sent back

# Seconds before another GET. The server's `retry` goes first, but not below the least.
FIRST_PAUSE = 1.0
LEAST_PAUSE = 0.1
LONGEST_PAUSE = 30.0


class Fetch:
    """In the place of a request: a GET or a DELETE. `opens`: somebody waits for it, to have a link."""

    __slots__ = ("method", "opens")
    idempotent = True
    version = LEGACY[0]

    def __init__(self, method: str, *, opens: bool = False) -> None:
        self.method = method
        self.opens = opens

    def headers(self) -> dict[str, str]:
        return {}


class EventSource:
    """One stream, over as many connections as it takes.

    `on_event(event)` is called with each event, also those without data that only set an id or a retry time.
    `on_end(error)` is called when a connection ended, and gives the seconds to wait before the next, or None for the
    end: "closed" when the stream broke off or just ended, else what came instead of a stream or what is wrong with it.
    Both run on the reading thread and must not raise; neither is called any more once that thread sees that the stream
    was cut. `headers()` gives the headers of each GET beside the usual ones; Last-Event-ID is added here.

    `opens`: somebody waits for the stream, to have a link. `last_id` is the id in force, empty when there is none;
    `retry` the seconds the server asked for, None when it has not. Of the last connection, `lasted` are the seconds its
    stream was open, and `advanced` says whether an event of it set an id.
    """

    def __init__(
        self,
        link: HttpLink,
        on_event: Callable[[Event], object],
        on_end: Callable[[McpError], float | None],
        *,
        headers: Callable[[], dict[str, str]],
        deadline: Deadline | None = None,
        last_id: str = "",
        retry: float | None = None,
        opens: bool = False,
    ) -> None:
        self.last_id = last_id
        self.retry = retry
        self.lasted = 0.0
        self.advanced = False
        self.was_open = False  # at least once
        self._link = link
        self._on_event = on_event
        self._on_end = on_end
        self._headers = headers
        self._since: float | None = None  # when the stream of this connection began
        self._refusal: McpError | None = None
        self._known = Flag()  # the first head was judged, or there will be none
        self._stop = Flag()
        self.deadline = deadline or Deadline(inf)
        self._call = Call(0, Fetch("GET", opens=opens), self.deadline)  # type: ignore[arg-type]
        self._call.link = link
        link.on_its_own(self._call)

    def start(self) -> None:
        """Read on a daemon thread."""
        threads.start("snodo-http-stream", self.run)

    def run(self, pause: float = 0.0) -> None:
        """Read on this thread, after a pause, until `on_end` gives None or the stream is cut."""
        try:
            while not self._stop.wait(min(pause, LONGEST_WAIT)):
                error = self._read()
                if self._stop.is_set():
                    return
                if not self.was_open:
                    self._refusal = error
                again = self._on_end(error)
                self._known.set()
                if again is None or self._link.slots.closed:
                    return
                pause = again
        finally:
            self._known.set()

    def opened(self, deadline: Deadline) -> bool:
        """Wait for the head of the first answer: True for an event stream, False when the time is over or the stream
        was cut. Raises what the server answered instead.
        """
        self._known.wait(deadline.left())
        if self._refusal is not None and not self.was_open:
            raise self._refusal.copy()
        return self.was_open and not self._stop.is_set()

    def cut(self) -> None:
        """End the stream and its thread. Any thread, more than once."""
        self._stop.set()
        self._known.set()
        if not self._call.finish(local_error("closed", f"the stream of {self._link.name} was closed on this side")):
            self._call.wake()

    def _read(self) -> McpError:
        """One connection, to its end."""
        self.lasted, self.advanced, self._since = 0.0, False, None
        headers = self._headers()
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id.encode().decode("latin-1")  # on the wire it is UTF-8
        ended: McpError | None = None
        try:
            for event in self._link.converse(self._call, self._events, method="GET", headers=headers):
                self._note(event)
                self._on_event(event)
                self._call.check()  # a flood of events must not hide that the stream was cut
        except McpError as error:
            ended = error.with_traceback(None)
        if self._since is not None:
            self.lasted = monotonic() - self._since
        return ended or local_error("closed", f"{self._link.name} ended the event stream")

    def _events(self, answer: Answer) -> Iterator[Event]:
        if answer.status != 200 or not answer.is_stream():
            raise answer.no_stream()
        self._since, self.was_open = monotonic(), True
        self._known.set()
        yield from answer.events()

    def _note(self, event: Event) -> None:
        if event.id is not None:
            self.last_id, self.advanced = resumable(event.id), True
        if event.retry is not None:
            self.retry = event.retry / 1000


class Pauses:
    """How long to wait before the next GET of a stream: what its server asked for, and from the second vain try on at
    least one more second, doubled each time.
    """

    __slots__ = ("vain",)

    def __init__(self) -> None:
        self.vain = 0

    def after(self, source: EventSource, *, vain: bool) -> float:
        """Seconds from the end of a connection. `vain`: it was of no use."""
        self.vain = self.vain + 1 if vain else 0
        asked = FIRST_PAUSE if source.retry is None else max(source.retry, LEAST_PAUSE)
        if self.vain < 2:
            return asked
        return max(asked, min(FIRST_PAUSE * 2.0 ** min(self.vain - 2, 10), LONGEST_PAUSE))


def resumable(event_id: str) -> str:
    """The id a stream can be resumed with; empty when there is none."""
    return event_id if len(event_id) <= MAX_EVENT_ID else ""


def messages_in(event: Event, link: HttpLink) -> list[Any]:
    """The JSON values an event is a message of, or in revision 2025-03-26 a batch of messages: for `inbound.deliver`.

    What cannot be read fails the call it answers, or is logged once.
    """
    if event.name != "message" or not event.data:
        return []
    data = event.data.encode()
    try:
        value = jsonrpc.decode(data)
    except jsonrpc.Malformed as malformed:
        problem = str(malformed)
    else:
        return jsonrpc.batched(value) if isinstance(value, list) and value and link.version == BATCHING else [value]
    wire_id = request_id_in(data)
    if wire_id is None:
        link.once("an event whose data is not JSON")
    else:
        error = local_error("malformed", f"{link.name} sent an answer that cannot be read: {problem}")
        link.inbound.reject(error, link, wire_id)
    return []
