"""A request of the legacy era over HTTP: its POST has a thread of its own, and its owner waits for the answer wherever
it arrives.

Answers, progress and what the server asks may come on any stream of the link, so the thread that owns the call reads
its mailbox and the thread of the POST only feeds it. What that thread is working on is an attempt at the call: once the
owner lets go of it, nothing of it reaches the call any more, and so not the next attempt either.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING

from ..engine import threads
from ..engine.call import Call
from ..outcome import McpError, local_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..engine.call import Delivery
    from .http_link import HttpLink

    Message = dict[str, Any]


class Attempt(Call):
    """In the place of the call on the thread of its POST, for connections and answers: same request, body and deadline.
    `elsewhere` is True once the server has only accepted the request, and will answer on another stream.
    """

    __slots__ = ("_of", "_over", "_owns", "elsewhere")

    def __init__(self, call: Call, link: HttpLink) -> None:
        self._of = call
        self._over = False
        self._owns = RLock()  # guards that nothing reaches the call once the attempt is over
        super().__init__(call.id, call.request, call.deadline)
        self.wire_id, self.body, self.link = call.wire_id, call.body, link
        self.elsewhere = False
        link.on_its_own(self)

    @property
    def delivery(self) -> Delivery:
        return self._of.delivery

    @delivery.setter
    def delivery(self, value: Delivery) -> None:
        with self._owns:
            if not self._over:
                self._of.delivery = value

    @property
    def status(self) -> int | None:
        return self._of.status

    @status.setter
    def status(self, value: int | None) -> None:
        with self._owns:
            if not self._over:
                self._of.status = value

    def answer(self, answer: Message | bytes | McpError) -> None:
        with self._owns:
            if not self._over:
                self._of.answer(answer)

    def run(self, work: Callable[[Attempt], None]) -> None:
        """On the thread of the POST."""
        try:
            work(self)
        except McpError as error:
            self.answer(error.with_traceback(None))
        except BaseException:
            self.answer(local_error("transport_failure", "the thread of the request failed"))
            raise

    def let_go(self) -> None:
        """For the owner: whatever the thread is doing, it is to stop, and is not heard any more."""
        if not self.finish(local_error("cancelled")):
            self.wake()
        with self._owns:  # only now: until its connection is cut, what it sends is told
            self._over = True

    def unlock(self) -> None:
        """In the child of a fork: a thread that is not there may hold the lock."""
        self._owns = RLock()


def posted(call: Call, attempt: Attempt, work: Callable[[Attempt], None]) -> Iterator[Message]:
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
