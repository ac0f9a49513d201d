"""Servers that are plain callables in this process: `handler(message, context)` gets a request, returns the response.

Messages make the round trip through JSON that they would make on a wire, so that what works here works there. A handler
runs on a thread of its own: nothing else lets a deadline hold against one that hangs. What ids and results mean is not
known here.
"""

from __future__ import annotations

from contextvars import copy_context
from functools import partial
from os import getpid
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from ..engine import threads
from ..log import logger
from ..outcome import McpError, local_error
from ..protocol import jsonrpc
from .base import Link, Traits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from .base import Inbound, Message

    Handler = Callable[[Message, "Context"], Message | None]

IDLE_SECONDS = 5.0
MAX_IDLE = 8


class Context:
    """What a handler is given besides the message. `auth` is the principal the client was made with, unchanged."""

    __slots__ = ("_ask", "_deliver", "_lock", "_over", "auth")

    def __init__(self, auth: Any, deliver: Callable[[Any], None], ask: Callable[[Message], None]) -> None:
        self.auth = auth
        self._deliver = deliver
        self._ask = ask
        self._over = False
        self._lock = Lock()  # what is delivered after the end would reach the next attempt of the same call

    @property
    def cancelled(self) -> bool:
        """True when nobody waits for the answer any more. A handler that takes long looks here, and returns."""
        return self._over

    def send(self, message: Message) -> None:
        """Send a notification to the client while the request runs, or before 2026-07-28 a request, whose answer the
        handler is called with like with any message. Dropped when nobody waits any more.

        Raises ValueError for what is neither, or cannot be sent as JSON.
        """
        copy = jsonrpc.decode(jsonrpc.encode(message))
        kind = jsonrpc.kind_of(copy)
        if kind == "notification":
            self._give(copy)
        elif kind != "request":
            raise ValueError("only notifications and requests can be sent: jsonrpc, method, maybe params and an id")
        elif not self._over:
            self._ask(copy)  # type: ignore[arg-type]  # not by way of the call, whose thread may be the handler's

    def _give(self, message: object) -> None:
        with self._lock:
            if not self._over:
                self._deliver(message)

    def _stop(self) -> None:
        """Tell the handler, from a signal handler too, that nobody waits any more."""
        self._over = True

    def _end(self) -> None:
        with self._lock:
            self._over = True


class DirectTransport:
    """Calls `handler(message, context)`, which returns the response as a dict, and None for a notification.

    auth: what the handler finds as `context.auth`.
    inline: run the handler in the calling thread, inside its transactions and thread-locals. It cannot be interrupted
        then: the deadline is judged when it returns.

    A handler that raises makes the error "handler_failure"; the traceback goes to the logger `snodo_client.direct`.
    """

    traits = Traits(eras=("modern", "legacy"), cancel="drop")

    def __init__(self, handler: Handler, *, auth: Any = None, inline: bool = False) -> None:
        if not callable(handler):
            raise TypeError(f"an in-process server is a callable or a server object, not {type(handler).__name__}")
        if _is_async(handler):
            raise TypeError("an in-process server must be a plain function: an async one has no event loop to run in")
        self._handler = handler
        self._auth = auth
        self._inline = inline
        self._threads = _Threads()
        self._inbound: Inbound | None = None
        self._link: Link | None = None

    def open(self, inbound: Inbound, deadline: Deadline) -> Link:
        self._inbound = inbound
        self._link = Link("the in-process server")
        return self._link

    def exchange(self, call: Call) -> Iterator[Message]:
        link, message = call.link, call.message
        assert link is not None
        if link.lost is not None:
            raise link.lost.copy()
        context = Context(self._auth, call.put, partial(self._deliver, link=link))
        call.sending()
        call.delivery = "accepted"
        try:
            if self._inline:
                call.wake = context._stop
                self._answer(message, context, link)
            else:
                self._start(partial(self._answer, message, context, link), call)
            for answer in call.messages():
                if "method" in answer:
                    yield answer
                    continue
                if self._inline:
                    call.check()
                yield answer
                return
        finally:
            context._end()

    def send(self, message: Message, link: Link, deadline: Deadline) -> None:
        """Returns when the handler has, so that it sees messages in order, or at the deadline."""
        copy = jsonrpc.decode(jsonrpc.encode(message))
        assert isinstance(copy, dict)
        if link.lost is not None:
            raise link.lost.copy()
        deliver = partial(self._deliver, link=link)
        context = Context(self._auth, deliver, deliver)
        handled = Event()

        def handle() -> None:
            try:
                self._call(copy, context, link)
            except McpError:
                pass  # logged, and nobody waits for it
            finally:
                handled.set()

        try:
            if self._inline:
                handle()
            else:
                self._start(handle)
                handled.wait(deadline.left())
        finally:
            context._end()

    def close(self, deadline: Deadline) -> None:
        """Ends the calls that run. Their handlers are told by `context.cancelled`, and not waited for."""
        if self._inbound is not None and self._link is not None:
            self._inbound.lost(local_error("closed", f"the connection to {self._link.name} was closed"), self._link)
        self._threads.close()

    def _deliver(self, message: Message, link: Link) -> None:
        assert self._inbound is not None
        self._inbound.deliver(message, link)

    def _start(self, job: Callable[[], object], call: Call | None = None) -> None:
        try:
            self._threads.run(partial(copy_context().run, job))
        except RuntimeError:  # the limit on threads, or the interpreter is on its way out
            if call is not None:
                call.delivery = "not_sent"
            raise local_error("transport_failure", "no thread could be started for the in-process server") from None

    def _answer(self, message: Message, context: Context, link: Link) -> None:
        try:
            answer: object = self._response(self._call(message, context, link), message["method"], link)
        except McpError as error:
            answer = error.with_traceback(None)
        context._give(answer)

    def _response(self, reply: object, method: str, link: Link) -> object:
        """The handler's reply as it would come out of a wire."""
        if not isinstance(reply, dict):
            raise local_error("malformed", f"{link.name} answered {method} with {type(reply).__name__}, not a response")
        if "method" in reply or not ("result" in reply or "error" in reply):
            raise local_error("malformed", f"{link.name} answered {method} with a dict that is no response")
        try:
            return jsonrpc.decode(jsonrpc.encode(reply))
        except ValueError as error:
            fault = local_error("malformed", f"{link.name} answered {method} with what is no JSON: {error}")
        raise fault

    def _call(self, message: Message, context: Context, link: Link) -> object:
        try:
            return self._handler(message, context)
        except BaseException as error:
            if self._inline and not isinstance(error, Exception):
                raise  # an interruption of the calling thread; on a thread of ours it has nowhere to go
            what = f"{link.name} raised {type(error).__name__} in {message.get('method', 'taking an answer')}"
            logger("direct").error("%s", what, exc_info=True)
        raise local_error("handler_failure", what)


def _is_async(handler: object) -> bool:
    from inspect import iscoroutinefunction

    return iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)


class _Threads:
    """Daemon threads that wait for the next job for a while. Never a limit: a job that finds none waiting starts one,
    so that a handler may call the server it is part of.

    No lock: each step on the list is atomic, and a fork or a signal cannot come while one is held.
    """

    def __init__(self) -> None:
        self._pid = getpid()
        self._idle: list[SimpleQueue[Callable[[], object] | None]] = []
        self._closed = False

    def run(self, job: Callable[[], object]) -> None:
        """Start the job now. RuntimeError when no thread can be started."""
        if self._pid != getpid():  # a fork: the threads stayed behind
            self._pid, self._idle = getpid(), []
        try:
            jobs = self._idle.pop()
        except IndexError:
            why = threads.refusal(Thread(target=self._work, args=(job,), name="snodo-direct", daemon=True))
            if why is not None:
                raise RuntimeError(why) from None
        else:
            jobs.put(job)

    def close(self) -> None:
        """Let the threads go that wait now, the others as soon as they are done."""
        self._closed = True
        while self._idle:
            try:
                self._idle.pop().put(None)
            except IndexError:
                return

    def _work(self, job: Callable[[], object] | None) -> None:
        jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        while job is not None:
            job()
            job = None  # not kept alive while waiting for the next
            if self._closed or len(self._idle) >= MAX_IDLE:
                return
            self._idle.append(jobs)
            if self._closed:
                self.close()
            job = _next(jobs)
            if job is None and not self._closed:
                try:
                    self._idle.remove(jobs)
                except ValueError:  # somebody has just taken it to hand over a job, unless interrupted before that
                    job = _next(jobs)


def _next(jobs: SimpleQueue[Callable[[], object] | None]) -> Callable[[], object] | None:
    try:
        return jobs.get(timeout=IDLE_SECONDS)
    except Empty:
        return None
