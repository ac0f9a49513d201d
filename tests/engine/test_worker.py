"""The worker thread: order, bounds, what a raising job costs, and how the thread comes and goes."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from snodo_client.engine import worker as module
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.worker import Worker
from support.waiting import together, until


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(f"worker-{id(object())}", 1000)
    yield made
    made.close(Deadline(5))


def threads(worker: Worker) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == worker._name]


def test_jobs_run_in_order_on_one_daemon_thread(worker: Worker) -> None:
    seen: list[Any] = []
    for number in range(200):
        worker.submit(lambda number=number: seen.append((number, threading.current_thread())))
    until(lambda: len(seen) == 200)
    assert [number for number, _ in seen] == list(range(200))
    assert len({thread for _, thread in seen}) == 1
    assert seen[0][1].daemon


def test_no_thread_before_the_first_job(worker: Worker) -> None:
    assert threads(worker) == []


def test_one_thread_however_many_submit(worker: Worker) -> None:
    seen: list[threading.Thread] = []
    together([lambda: [worker.submit(lambda: seen.append(threading.current_thread())) for _ in range(50)]] * 8)
    until(lambda: len(seen) == 400)
    assert len(set(seen)) == 1


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(1), KeyboardInterrupt()], ids=repr)
def test_a_job_that_raises_costs_itself_only(
    worker: Worker, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    done = Event()

    def fail() -> None:
        raise error

    with caplog.at_level(logging.ERROR, "snodo_client.callbacks"):
        worker.submit(fail)
        worker.submit(done.set)
        assert done.wait(5), "the worker is gone"
    assert worker._name in caplog.text


def test_a_full_queue_drops_the_oldest_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    worker, go, busy, seen = Worker("worker-full", 10), Event(), Event(), []

    def block() -> None:
        busy.set()
        go.wait(20)

    worker.submit(block)
    assert busy.wait(20)
    with caplog.at_level(logging.WARNING, "snodo_client.callbacks"):
        for number in range(30):
            worker.submit(lambda number=number: seen.append(number))
    assert worker.dropped == 20
    assert len([record for record in caplog.records if "dropped" in record.message]) == 1
    go.set()
    until(lambda: len(seen) == 10)
    assert seen == list(range(20, 30))
    worker.close(Deadline(5))


def test_the_thread_ends_when_idle_and_comes_back(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.02)
    for _ in range(3):
        done = Event()
        worker.submit(done.set)
        assert done.wait(20)
        until(lambda: threads(worker) == [])


def test_no_job_is_lost_between_idle_and_restart(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0005)
    seen: list[int] = []
    for number in range(300):
        worker.submit(lambda number=number: seen.append(number))
        Event().wait(0.0005 if number % 3 else 0.001)
    until(lambda: len(seen) == 300)
    assert seen == list(range(300))


def test_closing_runs_what_waits_and_takes_no_more(worker: Worker) -> None:
    go, seen = Event(), []
    worker.submit(lambda: go.wait(20))
    worker.submit(lambda: seen.append(1))
    worker.close(Deadline(0.1))
    worker.close(Deadline(0.1))
    worker.submit(lambda: seen.append(2))
    go.set()
    until(lambda: threads(worker) == [])
    assert seen == [1]


def test_a_job_may_close_its_worker_and_submit_to_it(worker: Worker) -> None:
    seen: list[int] = []

    def job() -> None:
        worker.submit(lambda: seen.append(1))
        worker.close(Deadline(5))

    worker.submit(job)
    until(lambda: seen == [1])
    until(lambda: threads(worker) == [])


def test_a_job_done_is_not_kept_alive(worker: Worker) -> None:
    import weakref

    class Thing:
        pass

    thing, done = Thing(), Event()
    gone = weakref.ref(thing)
    worker.submit(lambda thing=thing: done.set())
    del thing
    assert done.wait(20)
    until(lambda: gone() is None)


def test_the_log_is_not_written_under_the_lock() -> None:
    """A handler of the application's may well end in another submit; with the lock held that would be the end."""
    program = """
import logging, os, threading
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.worker import Worker
worker, go, busy, over = Worker("w", 1), threading.Event(), threading.Event(), threading.Event()
class Handler(logging.Handler):
    def emit(self, record):
        worker.submit(lambda: None)
def flood():
    for _ in range(5):
        worker.submit(lambda: None)
    over.set()
worker.submit(lambda: (busy.set(), go.wait(20)))
busy.wait(20)
logging.getLogger("snodo_client.callbacks").addHandler(Handler())
threading.Thread(target=flood, daemon=True).start()
print("free" if over.wait(5) else "deadlock", flush=True)
os._exit(0)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "free", run.stderr


def test_a_thread_that_cannot_start_is_no_exception_and_not_the_end() -> None:
    program = """
import threading
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.worker import Worker
worker, done = Worker("w", 10), threading.Event()
threading.stack_size(1 << 46)  # no system has room for that: start() raises
worker.submit(lambda: print("first"))
threading.stack_size(0)
worker.submit(done.set)
print("served" if done.wait(5) else "stuck")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.stdout.split() == ["first", "served"], run.stderr
