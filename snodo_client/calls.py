"""Tool calls that run while their caller does something else: `ToolCall`, what `Client.start_tool_call` gives."""

from __future__ import annotations

from _thread import start_new_thread
from contextlib import suppress
from contextvars import copy_context
from threading import Thread, get_ident
from typing import TYPE_CHECKING

from . import checks
from .engine import threads
from .engine.deadline import Deadline
from .engine.waiters import Waiters
from .log import logger
from .outcome import local_error
from .protocol import jsonrpc

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from .engine.call import Call
    from .engine.cancelling import CancelReport
    from .engine.session import Session
    from .outcome import Outcome

CANCEL_REASON = "cancelled by the caller"


def cancel_arguments(reason: str, notification_timeout: float) -> tuple[str, float]:
    """The arguments of a cancellation, checked."""
    if not isinstance(reason, str):
        raise TypeError(f"reason must be a string, not {type(reason).__name__}")
    jsonrpc.encode(reason)
    return reason, checks.patience(notification_timeout, "notification_timeout")


class ToolCall:
    """A tool call on a thread of its own, which counts as its calling thread: progress and handlers run there, in the
    context it was started in.

    It belongs to its client and process, and may be used from any thread. Dropping it does not end it. `id` stays the
    same while the call is sent more than once, for input or after a correction.
    """

    __slots__ = ("_call", "_session", "_thread", "_views", "_waiting")

    def __init__(self, session: Session, call: Call) -> None:
        self._session = session
        self._call = call
        self._waiting = Waiters()
        self._thread = 0
        self._views: dict[None, Future[Outcome]] = {}  # one at most; setdefault is atomic
        call.raised = []
        call.told = self._settled

    def start(self, run: Callable[[], Outcome]) -> None:
        """Run the call on a daemon thread. Where none can be started, that is its outcome."""
        thread = Thread(target=copy_context().run, args=(self._run, run), name="snodo-call", daemon=True)
        why: str | None = "the thread that starts it was interrupted"
        try:
            why = threads.refusal(thread)
        finally:
            if why is not None:
                error = local_error("transport_failure", f"the call could not be started: {why}")
                self._session.abandon(self._call, error)

    @property
    def id(self) -> int:
        return self._call.id

    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._call.outcome is not None

    def result(self, timeout: float | None = None) -> Outcome:
        """Wait for the outcome. It is remembered: ask as often as you like.

        A wait that runs out after `timeout` seconds (None: as long as the call takes) gives the error "wait_timeout"
        and cancels nothing. What `progress=` or a handler raised is raised here.
        """
        deadline = Deadline(float("inf") if timeout is None else checks.patience(timeout, "timeout"))
        if self._waiting.until(lambda: self._call.outcome, deadline) is None:
            text = f"{self!r} has no outcome after a wait of {deadline.seconds:g} s"
            return local_error("wait_timeout", text, data={"timeout": deadline.seconds})
        return self._outcome()

    def cancel(self, reason: str = CANCEL_REASON, notification_timeout: float = 1.0) -> CancelReport:
        """End the call: on this side at once, then the server is told, which takes `notification_timeout` seconds at
        most. What the server has done by then it has done. Any thread may do it, and signal handlers.
        """
        return self._session.cancel(self._call, *cancel_arguments(reason, notification_timeout))

    @property
    def future(self) -> Future[Outcome]:
        """The call as a `concurrent.futures.Future` of its outcome, for `as_completed`, `wait` and `wrap_future`. Its
        `cancel()` cancels the call without waiting for anything; the result is the "cancelled" error then.
        """
        view = self._views.get(None)
        if view is None:
            view = self._viewed()
            if self.done():
                self._finish(view)  # at once: nobody else has it
            view = self._views.setdefault(None, view)
        if self.done() and not view.done():
            self._tell_view()
        return view

    def __repr__(self) -> str:
        state = "running" if not self.done() else type(self._call.outcome).__name__
        return f"<ToolCall {self.id} of {self._call.request.params.get('name')!r}, {state}>"

    # -- inside

    def _run(self, run: Callable[[], Outcome]) -> None:
        self._thread = get_ident()
        try:
            run()
        except BaseException as error:
            if not self._call.raised:
                logger("session").error("%r failed", self, exc_info=error)

    def _settled(self) -> None:
        """Whoever settles the call calls this: its own thread, another one, or a signal handler."""
        self._waiting.wake()
        if self._views:
            self._tell_view()

    def _outcome(self) -> Outcome:
        outcome = self._call.outcome
        assert outcome is not None
        for settled, raised in self._call.raised or ():
            if settled is outcome:
                raise raised
        return outcome

    def _viewed(self) -> Future[Outcome]:
        from concurrent.futures import Future

        view: Future[Outcome] = Future()
        view.cancel = self._drop  # type: ignore[method-assign]
        view.set_running_or_notify_cancel()
        return view

    def _drop(self) -> bool:
        error = local_error("cancelled", "the call was cancelled on this side: by way of its future")
        return self._session.let_go(self._call, error, CANCEL_REASON)

    def _tell_view(self) -> None:
        """On the call's own thread, or a fresh one: whoever waits for futures holds locks that a signal handler of its
        thread must not ask for.
        """
        view = self._views[None]
        if get_ident() != self._thread:
            with suppress(RuntimeError):  # no more threads
                start_new_thread(self._finish, (view,))
                return
        self._finish(view)

    def _finish(self, view: Future[Outcome]) -> None:
        from concurrent.futures import InvalidStateError

        with suppress(InvalidStateError):  # somebody was first
            try:
                outcome = self._outcome()
            except BaseException as raised:
                view.set_exception(raised)
            else:
                view.set_result(outcome)
