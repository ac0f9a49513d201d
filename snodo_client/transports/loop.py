"""One event loop for the asynchronous code of other people: servers that live in this process and need one to run on.

The loop has a daemon thread of its own, which starts with the first task and ends with the last. A process has at most
one; a forked child starts its own. Nothing of ours waits on it.
"""

from __future__ import annotations

from contextvars import Context
from os import getpid
from threading import Event, Lock, Thread, get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine
    from typing import Any

    from ..engine.deadline import Deadline

    Work = Callable[[], Coroutine[Any, Any, None]]

# What tasks that outlive every server may take to end after they are cancelled.
LEFTOVER_SECONDS = 1.0


def start(work: Work) -> Hosted:
    """Run `work()` as a task of this process's loop, in an empty context. It reports its failures itself: what it
    raises is dropped. RuntimeError when no thread can be started.
    """
    return _host().start(work)


def inside() -> bool:
    """True on the loop's own thread, where waiting for the loop would never end."""
    return _host().inside()


class Hosted:
    """A task on the loop, for use from other threads."""

    __slots__ = ("_loop", "_task", "_thread", "ended", "last", "pid")

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: Thread) -> None:
        self.ended = Event()
        self.last = False  # the thread ends with this task
        self.pid = getpid()
        self._loop = loop
        self._thread = thread
        self._task: asyncio.Task[None] | None = None

    def call(self, function: Callable[[], object], context: Context | None = None) -> None:
        """Run `function` on the loop soon, in a copy of the calling context if not told otherwise. Nothing happens when
        the loop is gone.
        """
        try:
            self._loop.call_soon_threadsafe(function, context=context)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def cancel(self) -> None:
        self.call(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def wait(self, deadline: Deadline) -> bool:
        """True when the task has ended by the deadline. With the last one the thread ends too, if there is time."""
        if not self.ended.wait(deadline.left()):
            return False
        if self.last:
            self._thread.join(deadline.left())
        return True


class _Host:
    """The loop of one process, and what runs on it."""

    def __init__(self) -> None:
        self._lock = Lock()  # guards the fields; held for moments, never by a task while it waits
        self._running = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._stop: asyncio.Event | None = None

    def start(self, work: Work) -> Hosted:
        with self._lock:
            if self._loop is None or self._thread is None:
                self._begin()
            assert self._loop is not None
            assert self._thread is not None
            hosted = Hosted(self._loop, self._thread)
            self._running += 1
            hosted.call(lambda: self._enter(hosted, work), Context())
        return hosted

    def inside(self) -> bool:
        thread = self._thread
        return thread is not None and thread.ident == get_ident()

    def _begin(self) -> None:
        import asyncio

        loop, stop = asyncio.new_event_loop(), asyncio.Event()
        thread = Thread(target=_run, args=(loop, stop), name="snodo-loop", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            loop.close()
            raise
        self._loop, self._thread, self._stop = loop, thread, stop

    def _enter(self, hosted: Hosted, work: Work) -> None:
        hosted._task = hosted._loop.create_task(work())
        hosted._task.add_done_callback(lambda task: self._left(hosted, task))

    def _left(self, hosted: Hosted, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # or asyncio complains that nobody has looked
        with self._lock:
            self._running -= 1
            if self._running == 0:
                hosted.last = True
                assert self._stop is not None
                self._stop.set()
                self._loop = self._thread = self._stop = None
        hosted.ended.set()


def _run(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    import asyncio

    main = loop.create_task(_until(stop))
    while not main.done():
        try:
            loop.run_until_complete(main)
        except (SystemExit, KeyboardInterrupt):
            # Raised in some task, whose end its owner sees; asyncio also stops the loop, under everybody else's tasks.
            continue
    leftover = asyncio.all_tasks(loop)
    for task in leftover:
        task.cancel()
    if leftover:
        loop.run_until_complete(asyncio.wait(leftover, timeout=LEFTOVER_SECONDS))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()


# By process: after a fork the parent's loop, and a lock somebody may have held, are out of sight.
_hosts: dict[int, _Host] = {}


def _host() -> _Host:
    pid = getpid()
    return _hosts.get(pid) or _hosts.setdefault(pid, _Host())
