"""The event loop thread for other people's asynchronous code: there with the first task, gone with the last."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from typing import TYPE_CHECKING, NoReturn

import pytest

from snodo_client.engine.deadline import Deadline
from snodo_client.transports import loop
from support.direct_harness import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "snodo-loop"]


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    until(lambda: not loop_threads())


class Waiting:
    """A task that waits until it is let go or cancelled."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.thread: threading.Thread | None = None
        self.end = "unknown"
        self._go = asyncio.Event()
        self.hosted = loop.start(self._run)
        assert self.started.wait(10)

    async def _run(self) -> None:
        self.thread = threading.current_thread()
        self.started.set()
        try:
            await self._go.wait()
            self.end = "let go"
        except asyncio.CancelledError:
            self.end = "cancelled"
            raise

    def let_go(self) -> None:
        self.hosted.call(self._go.set)
        assert self.hosted.wait(Deadline(10))


def test_tasks_share_one_daemon_thread_which_ends_with_the_last() -> None:
    first, second = Waiting(), Waiting()
    assert first.thread is second.thread
    assert loop_threads() == [first.thread]
    assert first.thread is not None
    assert first.thread.daemon
    first.let_go()
    assert first.thread.is_alive()
    assert not second.hosted.ended.is_set()
    second.let_go()
    assert not first.thread.is_alive()
    assert (first.end, second.end) == ("let go", "let go")


def test_a_task_that_starts_later_gets_a_new_thread() -> None:
    first = Waiting()
    first.let_go()
    second = Waiting()
    assert second.thread is not first.thread
    second.let_go()


def test_waiting_is_bounded_and_cancelling_ends_the_task() -> None:
    task = Waiting()
    start = time.monotonic()
    assert not task.hosted.wait(Deadline(0.1))
    assert 0.1 <= time.monotonic() - start < 2.1
    task.hosted.cancel()
    assert task.hosted.wait(Deadline(10))
    assert task.end == "cancelled"


def test_calls_after_the_end_do_nothing() -> None:
    task = Waiting()
    task.let_go()
    called: list[object] = []
    task.hosted.call(lambda: called.append(1))
    task.hosted.cancel()
    assert task.hosted.wait(Deadline(1))
    assert called == []


@pytest.mark.parametrize("exception", [SystemExit, KeyboardInterrupt])
def test_what_stops_a_loop_ends_only_the_task_that_raised_it(exception: type[BaseException]) -> None:
    async def stop() -> NoReturn:
        raise exception

    other = Waiting()
    hosted = loop.start(stop)
    assert hosted.wait(Deadline(10))
    assert not other.hosted.ended.is_set()
    other.let_go()
    assert other.end == "let go"


def test_leftover_tasks_and_generators_are_ended_with_the_loop() -> None:
    ends: list[str] = []
    kept: list[object] = []

    async def leftover() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("task")

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            ends.append("generator")

    async def run() -> None:
        kept.append(asyncio.create_task(leftover()))
        iterator = numbers()
        kept.append(iterator)
        await anext(iterator)
        await asyncio.sleep(0)

    assert loop.start(run).wait(Deadline(10))
    until(lambda: not loop_threads())
    assert ends == ["task", "generator"]


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="empty")


def test_a_task_starts_in_an_empty_context_and_calls_run_in_the_callers() -> None:
    seen: list[str] = []

    async def run() -> None:
        seen.append(variable.get())

    token = variable.set("mine")
    task = Waiting()
    assert loop.start(run).wait(Deadline(10))
    task.hosted.call(lambda: seen.append(variable.get()))
    variable.reset(token)
    until(lambda: len(seen) == 2)
    assert seen == ["empty", "mine"]
    task.let_go()


def test_inside_is_the_loops_own_thread_only() -> None:
    seen: list[bool] = []

    async def run() -> None:
        seen.append(loop.inside())

    assert not loop.inside()
    assert loop.start(run).wait(Deadline(10))
    assert seen == [True]
    assert not loop.inside()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_starts_its_own() -> None:
    task = Waiting()
    pid = os.fork()
    if pid == 0:
        try:
            inherited = loop.inside()
            own = Waiting()
            own.let_go()
            os._exit(0 if own.end == "let go" and not inherited and task.end == "unknown" else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    task.let_go()
    assert task.end == "let go"


def test_many_threads_may_start_tasks_at_once() -> None:
    ran: list[int] = []

    def one(n: int) -> None:
        async def run() -> None:
            ran.append(n)

        for _ in range(20):
            assert loop.start(run).wait(Deadline(10))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ran) == 160
