"""Frames on a pipe: whole, in one piece and in time, whatever interrupts the writer."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError
from snodo_client.transports.frames import Frames


class Pipe:
    """A pipe, what has come out of it, and `Frames` to write to it."""

    def __init__(self) -> None:
        self.out, self.into = os.pipe()
        os.set_blocking(self.into, False)
        self.frames = Frames(self.into, self.wait)
        self.arrived = b""
        self._reader: threading.Thread | None = None

    def wait(self, seconds: float) -> None:
        poller = select.poll()
        poller.register(self.into, select.POLLOUT)
        poller.poll(seconds * 1000)

    def read(self, size: int) -> None:
        self.arrived += os.read(self.out, size)

    def read_in_background(self) -> None:
        self._reader = threading.Thread(target=self._drain)
        self._reader.start()

    def _drain(self) -> None:
        while chunk := os.read(self.out, 65_536):
            self.arrived += chunk

    def finish(self) -> bytes:
        """Close the writing end; all that has arrived."""
        self.frames.close(lambda: os.close(self.into))
        if self._reader is not None:
            self._reader.join(10)
        return self.arrived


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.finish()
    os.close(pipe.out)


def write(pipe: Pipe, body: bytes, seconds: float = 10) -> None:
    pipe.frames.write(body, Deadline(seconds))


def write_often(pipe: Pipe, body: bytes) -> None:
    for _ in range(1000):
        write(pipe, body)


def test_a_frame_and_its_line_end(pipe: Pipe) -> None:
    write(pipe, b"one")
    write(pipe, b"two")
    pipe.read(100)
    assert pipe.arrived == b"one\ntwo\n"


def test_a_frame_cut_by_its_deadline_is_finished_before_the_next(pipe: Pipe) -> None:
    with pytest.raises(McpError) as raised:
        write(pipe, b"a" * 200_000, 0.05)
    assert raised.value.reason == "timeout"
    pipe.read_in_background()
    write(pipe, b"next")
    assert pipe.finish() == b"a" * 200_000 + b"\nnext\n"


def test_a_frame_that_never_began_is_withdrawn(pipe: Pipe) -> None:
    with pytest.raises(McpError):
        write(pipe, b"a" * 200_000, 0.05)
    with pytest.raises(McpError):
        write(pipe, b"withdrawn", 0.05)
    pipe.read_in_background()
    write(pipe, b"last")
    assert pipe.finish().split(b"\n")[1:] == [b"last", b""]


def test_frames_of_many_threads_do_not_mix(pipe: Pipe) -> None:
    pipe.read_in_background()
    bodies = [bytes([65 + number]) * size for number in range(16) for size in (10, 5_000, 150_000)]
    threads = [threading.Thread(target=write, args=(pipe, body)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(pipe.finish().split(b"\n")[:-1]) == sorted(bodies)


def test_nobody_reads_any_more() -> None:
    out, into = os.pipe()
    os.set_blocking(into, False)
    frames = Frames(into, lambda seconds: None)
    os.close(out)
    with pytest.raises(BrokenPipeError):
        frames.write(b"x", Deadline(1))
    frames.close(lambda: os.close(into))
    frames.close(lambda: os.close(into))  # closes nothing twice
    with pytest.raises(BrokenPipeError):
        frames.write(b"x", Deadline(1))


class Interrupted(BaseException):
    pass


def test_an_interruption_at_any_point_leaves_the_framing_intact(pipe: Pipe) -> None:
    """What a signal handler raises may strike between a write and the note of how much it wrote."""

    armed = False

    def interrupt(signum: int, frame: object) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Interrupted

    pipe.read_in_background()
    written: list[bytes] = []
    bodies = set()
    interrupted = 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        end = time.monotonic() + 20
        number = 0
        while interrupted < 150 and time.monotonic() < end:
            number += 1
            body = b"%d:" % number + b"x" * (150_000 if number % 3 else 100)
            bodies.add(body)
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, (number % 40 + 1) * 5e-6)
                write(pipe, body)
                armed = False
                written.append(body)
            except Interrupted:
                interrupted += 1
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 20
    write(pipe, b"last")
    lines = pipe.finish().split(b"\n")
    assert lines[-2:] == [b"last", b""]
    whole = [line for line in lines[:-2] if line in bodies]
    assert [line for line in whole if line in set(written)] == written  # each that returned arrived once, in order
    assert len(whole) == len(set(whole))
    for torn in set(lines[:-2]) - bodies:
        assert any(body.startswith(torn) for body in bodies)


def test_a_signal_handler_may_write_while_its_thread_writes(pipe: Pipe) -> None:
    """Never a deadlock: it gets its message out, or an error when it struck in the middle of a write."""
    refused = 0
    sent = 0

    def on_signal(signum: int, frame: object) -> None:
        nonlocal refused, sent
        try:
            write(pipe, b"from the handler")
            sent += 1
        except McpError as error:
            refused += error.reason == "transport_failure"

    pipe.read_in_background()
    before = signal.signal(signal.SIGALRM, on_signal)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
        count = 0
        end = time.monotonic() + 20
        while sent + refused < 200 and time.monotonic() < end:
            write(pipe, b"y" * 100_000)
            count += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sent + refused >= 200
    lines = pipe.finish().split(b"\n")[:-1]
    assert lines.count(b"y" * 100_000) == count
    assert lines.count(b"from the handler") == sent
    assert len(lines) == count + sent


def test_a_signal_handler_may_close_while_its_thread_writes(tmp_path: Path) -> None:
    """Nothing is written to whatever gets the number of the file descriptor next."""
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    for round_ in range(200):
        pipe = Pipe()
        closed: list[int] = []

        def on_signal(signum: int, frame: object, pipe: Pipe = pipe, closed: list[int] = closed) -> None:
            pipe.frames.close(lambda: os.dup2(other, pipe.into))
            closed.append(signum)

        pipe.read_in_background()
        before = signal.signal(signal.SIGALRM, on_signal)
        try:
            signal.setitimer(signal.ITIMER_REAL, (round_ % 20 + 1) * 1e-5)
            with pytest.raises(BrokenPipeError):
                write_often(pipe, b"z" * 100_000)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert closed
        with pytest.raises(BrokenPipeError):
            write(pipe, b"z")
        pipe.finish()
        os.close(pipe.into)
        os.close(pipe.out)
    assert os.fstat(other).st_size == 0
    os.close(other)
