"""What outlives a connection in the legacy eras of Streamable HTTP: sessions, and streams that can be resumed.

Spec (2025-11-25): basic/transports, "Session Management" and "Resumability and Redelivery". No sockets here: a stream
is a bounded log of events, and the thread of a connection follows it (`http_legacy.py`, `sse.py`).
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from snodo_client.testing.http_handler import event
from snodo_client.testing.session import Session
from snodo_client.testing.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from snodo_client.testing.server import Server

_TICK = 0.02  # seconds between looks at whether the client has gone
_EVENTS = 1000  # kept for each stream
_STREAMS = 100  # kept for each session
_ROOM = 1.0  # seconds that a sender waits for a client that is 1,000 events behind; then the client loses events
_BACKLOG = 1000  # messages kept for a stream that is not open


class Logged(NamedTuple):
    """One event of a stream: its number from 1, its bytes, and the pause in seconds after each byte sent."""

    number: int
    data: bytes
    pause: float


class Stream:
    """The last 1,000 events of one stream. One connection at a time carries it; a later one takes over.

    `number` becomes part of the ids of its events; without it they have none. `broken` when it ended without its
    answer, as if the connection had been lost.
    """

    def __init__(self, number: int | None = None) -> None:
        self.number = number
        self.broken = False
        self._events: deque[Logged] = deque(maxlen=_EVENTS)
        self._count = 0
        self._ended = False
        self._follower: object = None
        self._sent = 0
        self._released = 0  # the last event that a released follower still sends
        self._changed = threading.Condition()

    @property
    def attached(self) -> bool:
        """Whether a connection carries it."""
        return self._follower is not None

    @property
    def begun(self) -> bool:
        """Whether it has had an event."""
        return self._count > 0

    def event_id(self, number: int) -> bytes:
        """The id of an event; number 0 stands before all of them."""
        return b"" if self.number is None else b"%d-%d" % (self.number, number)

    def put(self, data: bytes, pause: float = 0.0, *, bare: bool = False) -> None:
        """Add a message, or with `bare=True` bytes that go into the stream as they are."""
        with self._changed:
            self._changed.wait_for(lambda: self._count - self._sent < _EVENTS or self._follower is None, _ROOM)
            self._count += 1
            framed = data if bare else event(data, id=self.event_id(self._count))
            self._events.append(Logged(self._count, framed, pause))
            self._changed.notify_all()

    def end(self, *, broken: bool = False) -> None:
        """Nothing will follow: connections end once they have sent what there is."""
        with self._changed:
            self.broken = broken
            self._ended = True
            self._changed.notify_all()

    def attach(self) -> object:
        """Take the stream over from whatever connection carries it; gives the token to follow it with."""
        with self._changed:
            follower = self._follower = object()
            self._sent = self._count
            self._changed.notify_all()
            return follower

    def release(self) -> None:
        """End the connection that carries it, once it has sent what there is. The stream goes on."""
        with self._changed:
            self._follower, self._released = None, self._count
            self._changed.notify_all()

    def wait(self, gone: Callable[[], bool]) -> bool:
        """Wait for the first event (True), or for an end without one or a client that has `gone` (False)."""
        with self._changed:
            while not self._changed.wait_for(lambda: self.begun or self._ended, _TICK):
                if gone():
                    return False
            return self.begun

    def follow(self, follower: object, after: int, gone: Callable[[], bool]) -> Iterator[Logged]:
        """The events after this number, as they happen: to the end, or until the follower is released or replaced."""
        try:
            self._note(follower, after)
            while not gone():
                with self._changed:
                    if not (self._ended or self._follower is not follower or self._count > after):
                        self._changed.wait(_TICK)
                    if self._follower not in (follower, None):
                        return
                    last = self._ended or self._follower is None
                    end = self._count if self._follower is follower else self._released
                    waiting = [each for each in self._events if after < each.number <= end]
                for each in waiting:
                    yield each
                    after = each.number
                    self._note(follower, after)
                if last:
                    return
        finally:
            with self._changed:
                if self._follower is follower:
                    self._follower = None
                    self._changed.notify_all()

    def _note(self, follower: object, number: int) -> None:
        """The follower has sent everything up to this event."""
        with self._changed:
            if self._follower is follower:
                self._sent = number
                self._changed.notify_all()


class HttpSession:
    """One legacy client, known by its `id`, and its streams.

    `listening` tells whether it may open streams for what belongs to no request. Without an id it serves a single
    request, which has no way to be asked for anything; with a `version` it does so without a handshake.
    """

    def __init__(
        self, server: Server, session_id: str = "", *, listening: bool = False, version: str | None = None
    ) -> None:
        self.id = session_id
        self.session = Session(server, self.send if session_id else None, version=version)
        self._offered = listening
        self._numbers = itertools.count(1)
        self._streams: dict[int, Stream] = {}
        self._listening: list[Stream] = []
        self._backlog: deque[bytes] = deque(maxlen=_BACKLOG)
        self._lock = threading.Lock()

    def open(self) -> Stream:
        """A new stream. When there are too many, the oldest that no connection carries is forgotten."""
        if not self.id:
            return Stream()
        number = next(self._numbers)
        stream = Stream(number)
        with self._lock:
            if len(self._streams) >= _STREAMS:
                idle = [each for each, other in self._streams.items() if not other.attached]
                for each in idle[:1]:
                    del self._streams[each]
                self._listening = [each for each in self._listening if each.number in self._streams]
            self._streams[number] = stream
        return stream

    def listen(self, stream: Stream) -> object:
        """Attach to a stream for what belongs to no request; it gets what has been waiting for one."""
        with self._lock:
            follower = stream.attach()
            if stream not in self._listening:
                self._listening.append(stream)
            while self._backlog:
                stream.put(self._backlog.popleft())
        return follower

    def resume(self, event_id: str) -> tuple[Stream, object, int] | None:
        """Attach to the stream of an event: the stream, the token, the number of the event; None when unknown."""
        parts = event_id.split("-")
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
            return None
        with self._lock:
            stream = self._streams.get(int(parts[0]))
            listening = stream in self._listening
        if stream is None:
            return None
        return stream, self.listen(stream) if listening else stream.attach(), int(parts[1])

    def send(self, message: dict[str, Any]) -> bool:
        """Send what belongs to no request, on one stream only: the newest that is open, else the next to open."""
        if not self._offered:
            return False
        data = encode(message)
        with self._lock:
            for stream in reversed(self._listening):
                if stream.attached:
                    stream.put(data)
                    return True
            self._backlog.append(data)
        return True

    def release(self) -> None:
        """End every connection that carries a stream; the streams go on."""
        with self._lock:
            streams = list(self._streams.values())
        for stream in streams:
            stream.release()

    def end(self, grace: float = 0.0) -> None:
        """Running requests have `grace` seconds; then they and every stream end."""
        self.session.end(grace)
        with self._lock:
            streams = list(self._streams.values())
        for stream in streams:
            stream.end()
