"""One file of tokens under the hands of many: threads, processes, and the end of a process at any moment."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest

from snodo_client.auth import file_store
from snodo_client.auth.file_lock import FileLock, for_at_most
from snodo_client.auth.file_store import FileTokenStore
from snodo_client.outcome import McpError
from support.forking import in_a_child
from support.waiting import together

COUNT = """
import os, sys
from snodo_client.auth.file_lock import for_at_most
from snodo_client.auth.file_store import FileTokenStore
store, name = FileTokenStore(sys.argv[1]), str(os.getpid())
for number in range(25):
    with store.lock("counter", for_at_most(60)):
        store.set("counter", str(int(store.get("counter") or 0) + 1))
    store.set(name, str(number))
    assert store.get(name) == str(number)
    store.delete(name)
"""

HOLD = """
import sys
from snodo_client.auth.file_store import FileTokenStore
with FileTokenStore(sys.argv[1]).lock("a", lambda: 20.0):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path: Path) -> FileTokenStore:
    return FileTokenStore(tmp_path / "tokens.json")


def program(text: str, store: FileTokenStore) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text, store.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@contextmanager
def held_elsewhere(store: FileTokenStore) -> Iterator[subprocess.Popen[str]]:
    """Another process is inside of the lock of "a"."""
    with program(HOLD, store) as holder:
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline() == "held\n"
            yield holder
        finally:
            holder.kill()


def is_free(store: FileTokenStore, key: str = "a") -> bool:
    try:
        with store.lock(key, lambda: 0.0):
            return True
    except TimeoutError:
        return False


# --- many at once -----------------------------------------------------------------------------------------------------


def test_eight_processes_lose_nothing(store: FileTokenStore) -> None:
    programs = [program(COUNT, store) for _ in range(8)]
    assert [each.communicate(timeout=60) and each.returncode for each in programs] == [0] * 8
    with open(store.path) as file:
        assert json.load(file) == {"counter": "200"}


def test_thirty_two_threads_with_a_store_each_lose_nothing(store: FileTokenStore) -> None:
    def count() -> None:
        own = FileTokenStore(store.path)
        for _ in range(5):
            with own.lock("counter", for_at_most(60)):
                own.set("counter", str(int(own.get("counter") or 0) + 1))

    together([count] * 32)
    assert store.get("counter") == "160"


# --- the end of a process ---------------------------------------------------------------------------------------------


def killed_in_between(work: Callable[[Callable[[int], object]], None], after: float) -> int:
    """Run `work` in a child of a fork and kill it `after` seconds from its first report; gives its last report."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            work(lambda number: os.write(write, number.to_bytes(4, "big")))
        finally:
            os._exit(1)
    os.close(write)
    with open(read, "rb", buffering=0) as reports:
        said = reports.read(4)
        end = monotonic() + after
        while (left := end - monotonic()) > 0 and select.select([reports], [], [], left)[0]:
            said += reports.read(4096)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        said += reports.read()
    assert os.WIFSIGNALED(status)
    return int.from_bytes(said[-4:], "big")


def test_a_kill_at_any_moment_leaves_the_old_content_or_the_new(store: FileTokenStore) -> None:
    number, seen = 0, set()

    def write(report: Callable[[int], object]) -> None:
        following = number
        while True:
            report(following)
            following += 1
            store.set("a", f"{following} " + "x" * 20_000)

    store.set("a", "0 ")
    for _ in range(250):
        reported = killed_in_between(write, random.uniform(0, 0.004))
        value = store.get("a")
        assert value is not None
        number = int(value.partition(" ")[0])
        assert number - reported in (0, 1)
        seen.add((number - reported, os.path.exists(store.path + ".new")))
    assert len(seen) > 1  # it was killed at moments that differ
    store.set("a", "free")
    assert sorted(os.listdir(os.path.dirname(store.path))) == ["tokens.json", "tokens.json.lock"]


def test_the_lock_of_a_process_that_is_killed_is_free(store: FileTokenStore) -> None:
    with held_elsewhere(store) as holder:
        assert not is_free(store)
        assert is_free(store, "b")
        holder.kill()
        with store.lock("a", for_at_most(20)):
            assert not is_free(store)
    assert is_free(store)


# --- who waits --------------------------------------------------------------------------------------------------------


class Enough(Exception):
    """Somebody does not want to wait any more."""


def test_who_waits_is_asked_again_and_again(store: FileTokenStore) -> None:
    asked = 0

    def wait() -> float:
        nonlocal asked
        asked += 1
        if asked == 8:
            raise Enough
        return 100.0

    for inside in (held_elsewhere(store), store.lock("a", for_at_most(1))):
        asked = 0
        with inside:
            began = monotonic()
            with pytest.raises(Enough), store.lock("a", wait):
                pytest.fail("two are inside")
            assert monotonic() - began < 2
    assert is_free(store)


def test_a_wait_ends_in_time(store: FileTokenStore) -> None:
    with held_elsewhere(store):
        began = monotonic()
        with pytest.raises(TimeoutError), store.lock("a", for_at_most(0.2)):
            pytest.fail("two are inside")
        assert 0.2 <= monotonic() - began < 2.2


def test_writing_needs_no_lock_of_a_key(store: FileTokenStore) -> None:
    with held_elsewhere(store):
        store.set("a", "1")
        assert store.get("a") == "1"


def test_a_writer_that_hangs_is_not_waited_for_for_ever(store: FileTokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_store, "WRITING_SECONDS", 0.2)
    store.set("a", "1")
    with FileLock(store.path + ".lock", for_at_most(1)):
        with pytest.raises(McpError, match=r"cannot be written: its lock was held by others for 0\.2 s"):
            store.set("a", "2")
        assert store.get("a") == "1"


def test_what_is_raised_inside_frees_the_lock(store: FileTokenStore) -> None:
    with pytest.raises(Enough), store.lock("a", for_at_most(1)):
        raise Enough
    assert is_free(store)


# --- forks ------------------------------------------------------------------------------------------------------------


def test_a_child_of_a_fork_neither_keeps_the_lock_nor_frees_it(store: FileTokenStore) -> None:
    (go, gone), (ready, said) = os.pipe(), os.pipe()
    lock = store.lock("a", for_at_most(1))
    with lock:
        pid = os.fork()
        if pid == 0:
            try:
                lock.__exit__(None, None, None)
                os.write(said, b"free" if is_free(store) else b"held")
                os.read(go, 1)
            finally:
                os._exit(0)
        try:
            assert os.read(ready, 4) == b"held"
            assert not is_free(store)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
    assert is_free(store)  # while the child lives
    os.write(gone, b"x")
    os.waitpid(pid, 0)
    for descriptor in (go, gone, ready, said):
        os.close(descriptor)


def test_the_lock_of_a_parent_that_is_killed_is_not_kept_by_its_child(store: FileTokenStore) -> None:
    """A holder forks, says the number of its child, and is killed while the child lives on."""
    text = HOLD.replace('print("held"', "import os; pid = os.fork(); pid and print(pid")
    with program(text, store) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        assert not is_free(store)
        holder.kill()
        holder.wait(20)
        with store.lock("a", for_at_most(20)):
            os.kill(child, 0)  # it lives
        holder.stdin.close()  # which ends it


def test_threads_of_the_parent_do_not_lock_the_child_out(store: FileTokenStore) -> None:
    with store.lock("a", for_at_most(1)):

        def child() -> bool:
            store.set("a", "of the child")
            with store.lock("b", for_at_most(1)):
                return True

        assert in_a_child(child)
    assert store.get("a") == "of the child"
