"""A request of the legacy era over HTTP: its POST has a thread of its own, and its owner waits for the answer wherever
it arrives.

Answers, progress and what the server asks may come on any stream of the link, so the thread that owns the call reads
its mailbox and the thread of the POST only feeds it. What that thread is working on is an attempt at the call: once the
owner lets go of it, nothing of it reaches the call any more, and so not the next attempt either.

A request is cancelled by a message of its own, which has another connection and must not overtake it. So a POST that is
let go of is not cut before the server has begun to answer it, within reason.
"""

from __future__ import annotations

from threading import Event as Flag
from threading import RLock
from typing import TYPE_CHECKING

from ..engine import threads
from ..engine.call import Call
from ..engine.deadline import Deadline
from ..outcome import McpError, local_error
from .http_reaper import reaper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..engine.call import Delivery
    from .http_link import HttpLink

    Message = dict[str, Any]


class Posts:
    """The POSTs of a link that are under way. `patience`: how many seconds after a request is sent its server may still
    be taking it in.
    """

    __slots__ = ("patience", "under_way")

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.under_way: set[Attempt] = set()

    def let_pass(self, deadline: Deadline) -> None:
        """Before a message that may be about one of those that were let go of: wait until they are answered or cut,
        for half of the time at most, and cut what is left.
        """
        before = [attempt for attempt in list(self.under_way) if attempt.over]
        limit = deadline.sub(deadline.left() / 2)
        for attempt in before:
            attempt.ended.wait(limit.left())
            attempt.cut()


class _Longer(Deadline):
    """That of a call, and some seconds more, wherever it is moved to."""

    __slots__ = ("_more",)

    def __init__(self, of: Deadline, more: float) -> None:
        self._of, self._more, self._latest, self._pauses = of, more, None, 0
        self.seconds, self.name = of.seconds + more, of.name
        self.max_total = None if of.max_total is None else of.max_total + more

    @property
    def _at(self) -> float:  # type: ignore[override]
        assert self._of is not None
        return self._of._at + self._more

    def move(self, seconds: float) -> None:
        """Nothing: it moves with that of the call."""


class Attempt(Call):
    """In the place of the call on the thread of its POST, for connections and answers: same request and body.
    `elsewhere` is True once the server has only accepted the request, and will answer on another stream. `over` is True
    once the owner has let go of it; `limit` is then when its POST is cut. `ended` is set when its thread is done.
    """

    __slots__ = ("_of", "_owns", "_posts", "_sent", "elsewhere", "ended", "limit", "over")

    def __init__(self, call: Call, link: HttpLink, posts: Posts) -> None:
        self._of = call
        self._posts = posts
        self._owns = RLock()  # guards that nothing reaches the call once the attempt is over
        self.over = False
        self._sent = False  # when it was over: may have been, and the server had not begun to answer
        super().__init__(call.id, call.request, _Longer(call.deadline, posts.patience))
        self.wire_id, self.body, self.link = call.wire_id, call.body, link
        self.elsewhere = False
        self.ended = Flag()
        self.limit = self.deadline
        link.on_its_own(self)

    @property
    def delivery(self) -> Delivery:
        return self._of.delivery

    @delivery.setter
    def delivery(self, value: Delivery) -> None:
        with self._owns:
            if not self.over:
                self._of.delivery = value
                if value == "unknown":
                    self.limit = Deadline(self._posts.patience)
            elif value == "unknown" and not self._sent:  # right before the first byte of what nobody wants any more
                self.check()

    @property
    def status(self) -> int | None:
        return self._of.status

    @status.setter
    def status(self, value: int | None) -> None:
        with self._owns:
            if value is not None:
                self.check()
            if not self.over:
                self._of.status = value

    def check(self) -> None:
        if self.over:
            raise local_error("cancelled")
        super().check()

    def answer(self, answer: Message | bytes | McpError) -> None:
        with self._owns:
            if not self.over:
                self._of.answer(answer)

    def run(self, work: Callable[[Attempt], object]) -> None:
        """On the thread of the POST."""
        self._posts.under_way.add(self)
        try:
            work(self)
        except McpError as error:
            self.answer(error.with_traceback(None))
        except BaseException:
            self.answer(local_error("transport_failure", "the thread of the request failed"))
            raise
        finally:
            self._posts.under_way.discard(self)
            self.ended.set()
            reaper.forget(self)

    def let_go(self) -> None:
        """For the owner: the thread is not heard any more, and is to stop, at once unless the server may only just be
        taking the request in.
        """
        call, link = self._of, self.link
        with self._owns:
            if not self.over:
                self._sent = call.delivery != "not_sent" and call.status is None and not call._answered
                self.over = True
        if not self._sent or self.ended.is_set() or self.limit.over or (link is not None and link.lost):
            self.cut()
            return
        try:
            reaper.watch(self)
        except McpError:  # there is no thread left for it
            self.cut()
        if self.ended.is_set():
            reaper.forget(self)

    def cut(self) -> None:
        """End the POST, if it still runs. Any thread, more than once."""
        if not self.finish(local_error("cancelled")):
            self.wake()

    kill = cut  # for the reaper

    def unlock(self) -> None:
        """In the child of a fork: a thread that is not there may hold the lock."""
        self._owns = RLock()


def posted(call: Call, attempt: Attempt, work: Callable[[Attempt], object]) -> Iterator[Message]:
    """Run `work(attempt)` on a thread, and yield what arrives for the call, up to and including the response."""
    try:
        call.wake = attempt.let_go  # so that what is known of its delivery does not change any more
        call.check()
        threads.start("snodo-http-post", attempt.run, work)
        for message in call.messages():
            yield message
            if "method" not in message:
                return
    finally:
        try:
            attempt.let_go()
        except BaseException:  # interrupted in the middle of it
            attempt.let_go()
            raise
