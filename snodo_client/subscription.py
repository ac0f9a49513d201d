"""`Subscription`: the changes a server tells of, as they come, and how it ends. It is what `Client.listen` gives.

The reading side only; how events arrive is in `engine.listening`.
"""

from __future__ import annotations

import _thread
from math import inf
from typing import TYPE_CHECKING
from weakref import finalize

from . import checks
from .changes import Closed
from .engine import threads
from .engine.deadline import Deadline
from .log import logger
from .outcome import McpError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Any, ClassVar, Literal, Self

    from .changes import Event
    from .engine.listening import Listening


class Subscription:
    """An acknowledged subscription: iterate over it, or ask for the `next` event. The last one is `Closed`.

    `id` is the subscription's id on the wire; `requested` the filter as sent, `accepted` the part of it the server
    honours. At most as many events as `listen` was told to `buffer`, and 16 MiB of them, wait to be read; then the
    oldest are dropped, and `Dropped` says how many. It is never opened again by itself: between its end and the next
    `listen` changes may have been missed.

    Any thread may read and close it, and each event goes to one reader; with a `callback` that is the one. Without one
    it is closed when nobody refers to it any more. In the child of a fork it is lost.
    """

    ok: ClassVar[Literal[True]] = True

    def __init__(self, listening: Listening) -> None:
        self._listening = listening
        self._orphaned = finalize(self, _let_go, listening)
        self._orphaned.atexit = False

    @property
    def id(self) -> int:
        return self._listening.subscription_id

    @property
    def requested(self) -> dict[str, Any]:
        return dict(self._listening.wanted)

    @property
    def accepted(self) -> dict[str, Any]:
        return dict(self._listening.accepted)

    def unwrap(self) -> Self:
        """Itself: what `listen` gives instead when it fails raises here."""
        return self

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event, waited for `timeout` seconds (None: as long as it takes); None when none came. After the end
        it is always the same `Closed`.
        """
        return self._listening.next(Deadline(inf if timeout is None else checks.patience(timeout, "timeout")))

    def __iter__(self) -> Iterator[Event]:
        while True:
            event = self._listening.next(Deadline(inf))
            if event is not None:
                yield event
                if isinstance(event, Closed):
                    return

    def close(self) -> None:
        """End it: at once on this side, where what was not read yet is dropped. The server is told, and not waited for.
        Idempotent, from any thread.
        """
        self._listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = self._listening.closed
        return f"<Subscription {self.id}, {closed.reason if closed else 'open'}>"


def subscription(listening: Listening, callback: Callable[[Event], object] | None) -> Subscription | McpError:
    """The subscription of an acknowledged call. With a callback, its events are told on a daemon thread of its own."""
    made = Subscription(listening)
    if callback is not None:
        try:
            threads.start("snodo-subscription", _tell, made, callback)
        except McpError as error:
            made.close()
            return error.with_traceback(None)
    return made


def _tell(subscription: Subscription, callback: Callable[[Event], object]) -> None:
    for event in subscription:
        try:
            callback(event)
        except BaseException:  # SystemExit too: it would end this thread and nobody would know
            logger("callbacks").exception("the callback of subscription %d raised", subscription.id)


def _let_go(listening: Listening) -> None:
    """Runs inside the garbage collector, at any point of any code: it may neither wait nor take a lock."""
    if listening.closed is None:
        try:
            _thread.start_new_thread(listening.close, ())
        except RuntimeError:  # no more threads: it ends with its client
            return
