"""A logical call: its mailbox, its deadline, its outcome. They span input rounds and retries; the wire id names the
current attempt.

The thread that makes the call owns it: only the owner reads the mailbox. Any thread, or a signal handler, may deliver
to it or settle it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import McpError, local_error
from ..protocol import jsonrpc
from .deadline import timed_out
from .mailbox import Empty, Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Literal

    from ..outcome import Outcome
    from ..protocol.requests import Request
    from ..transports.base import Link
    from .deadline import Deadline

    Message = dict[str, Any]
    Delivery = Literal["not_sent", "unknown", "accepted"]


def _nothing() -> None:
    pass


class Call:
    """One logical call.

    `delivery` says what is known of the request on the wire: "not_sent" (no byte of it left this process), "accepted"
    (the local transport took all of it) or "unknown". `status` is the HTTP status of the current answer, None
    elsewhere. `credential` is a fingerprint of what it was sent with, for a cache; None without one, or when that
    cannot be told. `wake` is set by a transport whose owner may be blocked outside the mailbox; it must be safe from
    any thread and after the exchange is over. `told` is called once, by whoever settles the call; in a signal handler,
    too.
    """

    __slots__ = (
        "_answered",
        "_mailbox",
        "_settled",
        "body",
        "credential",
        "deadline",
        "delivery",
        "id",
        "link",
        "raised",
        "request",
        "status",
        "told",
        "wake",
        "wants_progress",
        "wire_id",
    )

    listens = False  # whether it is a subscription: notifications are its answer

    def __init__(self, id: int, request: Request, deadline: Deadline, *, wants_progress: bool = False) -> None:
        self.id = id
        self.request = request
        self.deadline = deadline
        self.wants_progress = wants_progress
        self.wire_id: int | None = None
        self.body = b""
        self._answered = False
        self.link: Link | None = None
        self.delivery: Delivery = "not_sent"
        self.status: int | None = None
        self.credential: bytes | None = None
        self.wake: Callable[[], None] = _nothing
        # Where it is kept what the owner's callbacks raised, beside the outcome of that; None where it is just raised.
        self.raised: list[tuple[Outcome, BaseException]] | None = None
        self.told: Callable[[], None] = _nothing
        self._mailbox: Mailbox[Message | bytes | McpError | None] = Mailbox()
        # An atomic setdefault decides who is first; unlike a lock it is safe in a signal handler.
        self._settled: dict[None, Outcome] = {}

    @property
    def begun(self) -> bool:
        """Whether a subscription was acknowledged: nothing of it is sent again."""
        return False

    @property
    def message(self) -> Message:
        """The JSON-RPC request of the current attempt, as a fresh dict; `body` is the same as bytes."""
        return jsonrpc.decode(self.body)  # type: ignore[return-value]

    def share(self, other: Call) -> None:
        """Read the mailbox of another call of the same owner as well as its own: what arrives for either is met by
        `messages()` of this one.
        """
        self._mailbox = other._mailbox

    def answer(self, answer: Message | bytes | McpError) -> None:
        """Deliver the response of the current attempt, decoded or not, or the error in its place. Only the first
        counts: what a server repeats is not even kept.
        """
        if not self._answered:
            self._answered = True
            self._mailbox.put(answer)

    def put(self, message: Message | McpError) -> None:
        """Deliver a message of the current attempt, or the error that ends it. Never blocks."""
        self._mailbox.put(message)

    @property
    def backlog(self) -> int:
        """How many messages wait to be read."""
        return len(self._mailbox)

    def sending(self) -> None:
        """For transports, right before a byte of the request may leave this process: its delivery is "unknown" from
        here on. Raises the outcome of a call that was settled before; nothing of it may be sent then.
        """
        self.delivery = "unknown"
        if self._settled:  # asked only now: who settles the call from here on finds it possibly sent
            self.delivery = "not_sent"
            self.check()

    def alive(self) -> None:
        """For transports: a sign of life that is no message, such as a comment in an event stream."""

    def messages(self) -> Iterator[Message]:
        """For the owner: what arrives for this call, in order. Raises `McpError` when the link is lost, the call
        settled, or time is over.
        """
        mailbox, deadline = self._mailbox, self.deadline
        while True:
            try:
                message = mailbox.get(deadline)
            except Empty:
                self.check()
                continue
            if message is None:
                self.check()
            elif type(message) is bytes:
                yield self._decoded(message)
            elif isinstance(message, McpError):
                raise message
            else:
                yield message  # type: ignore[misc]

    def _decoded(self, body: bytes) -> Message:
        try:
            message = jsonrpc.decode(body)
        except jsonrpc.Malformed as error:
            fault = str(error)
        else:
            if isinstance(message, dict):
                return message
            fault = "not an object"
        server = self.link.name if self.link is not None else "the server"
        raise local_error("malformed", f"{server} answered {self.request.method} with what cannot be read: {fault}")

    def check(self) -> None:
        """Raise the outcome somebody else settled this call with, or the timeout when the deadline is over."""
        if self._settled:
            outcome = self._settled[None]
            raise outcome if isinstance(outcome, McpError) else local_error("closed", "the call is already settled")
        if self.deadline.over:
            raise timeout_error(self)

    def settle(self, outcome: Outcome) -> Outcome:
        """For the owner: the outcome of the call, which is this one unless somebody was first."""
        if self._settled:
            return self._settled[None]
        settled = self._settled.setdefault(None, outcome)
        if settled is outcome:
            self.told()
        return settled

    def finish(self, outcome: Outcome) -> bool:
        """For everybody else: settle the call. True when this was the first terminal event; the owner is woken then."""
        try:
            return self._settled.setdefault(None, outcome) is outcome
        finally:  # also when a signal handler raises right after that: others wait
            if self._settled.get(None) is outcome:
                try:
                    self._tell()
                except BaseException:  # or in the middle of it
                    self._tell()
                    raise

    def _tell(self) -> None:
        self._mailbox.put(None)
        self.wake()
        self.told()

    def forked(self, error: McpError) -> None:
        """In the child of a fork: settle the call there, and leave what carries it to the parent."""
        self.wake = _nothing
        self.finish(error)

    def unsettled(self) -> bool:
        """Whether anybody still waits for the outcome."""
        return not self._settled

    @property
    def outcome(self) -> Outcome | None:
        return self._settled.get(None)

    def pause(self, seconds: float) -> None:
        """For the owner, between two attempts: wait. Raises the outcome somebody else settled the call with, or the
        timeout.
        """
        limit = self.deadline.sub(seconds)
        while not limit.over:
            try:
                self._mailbox.get(limit)  # whatever it is, it is for an attempt that is over
            except Empty:
                break
            if self._settled:
                break
        self.check()

    def restart(self, request: Request) -> None:
        """For the owner, before another attempt: forget what was left over from the last one."""
        self.request = request
        self.delivery, self.status, self.wake = "not_sent", None, _nothing
        self._answered = False
        self._mailbox.clear()
        if self._settled:
            self._mailbox.put(None)  # the wake-up may have been among it


def timeout_error(call: Call) -> McpError:
    """The error of a call whose deadline is over."""
    by = f" by {call.link.name}" if call.link is not None else ""
    return timed_out(f"{call.request.method} was not answered{by}", call.deadline)
