"""The stdio transport: a server as a child process, one JSON message a line (spec: basic/transports/stdio).

Two daemon threads serve each process. The reader delivers what arrives on stdout; the watcher drains stderr, notices
the exit and ends what is left. Callers write for themselves (`frames`). Starting and ending a process is `process`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from threading import Event, RLock, Thread, get_ident
from time import monotonic
from typing import TYPE_CHECKING

from .. import log
from ..engine import threads
from ..engine.deadline import timed_out
from ..engine.mailbox import Empty, Mailbox
from ..outcome import McpError, local_error
from ..protocol import jsonrpc
from .base import Link, Traits
from .frames import Frames
from .lines import Lines, request_id_in, response_id
from .process import CHUNK, Process, environment
from .stderr import Stderr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Literal

    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from .base import Inbound, Message
    from .lines import TooLong

# The end of a process comes in parts: EOF, exit code, the rest of stderr. This long for all of it to arrive.
_SETTLING = 0.25
# What closing may take beyond the shutdown timeout, to reap and to see the threads end.
_CLOSING = 0.2
_LONGEST = 1_000_000.0
# How often a server may be started again: a burst of so many, and in the long run one in a second.
STARTS = 10
STARTS_SECONDS = 10.0


class StdioLink(Link):
    """One server process and what serves it."""

    __slots__ = (
        "drained",
        "ended",
        "environment",
        "fault",
        "frames",
        "identity",
        "inbound",
        "junk",
        "process",
        "read",
        "stderr",
        "threads",
    )

    def __init__(self, name: str, process: Process, stderr: Stderr, inbound: Inbound) -> None:
        super().__init__(name)
        self.process = process
        self.stderr = stderr
        self.inbound = inbound
        self.frames = Frames(process.stdin.fileno(), process.await_writable)
        # Why the link is gone, set before the inbound side hears of it; `dict.setdefault` decides who is first.
        self.fault: dict[None, McpError] = {}
        self.drained = Event()  # the process has exited and its stderr was read
        self.read = Event()  # the reader is done with stdout
        self.ended = False  # the ladder is over: a reader that still reads may stop
        self.junk = 0
        self.threads: tuple[Thread, ...] = ()
        self.environment: Mapping[str, str] = {}  # what it was started with
        self.identity = b""

    def lose(self, error: McpError) -> None:
        """Report the end of the link, once; the first reason stays."""
        if self.fault.setdefault(None, error) is error:
            self.inbound.lost(error.copy(), self)

    def exit_error(self) -> McpError:
        """How the process ended and what it last said. For after `drained`."""
        process, tail = self.process, self.stderr.tail()
        message = f"{self.name} {process.end()}"
        details = f"; its last words on stderr:\n{tail}" if tail else ""
        data = {"command": process.command, "exit_code": process.exit_code, "signal": process.signal, "stderr": tail}
        return local_error("exited", message, details=details, data=data)

    def shut(self, grace: float) -> None:
        """End of input for the server, then the ladder of `Process.stop`."""
        self.frames.close(self.process.close_stdin)
        self.process.stop(grace)
        self.ended = True


def _traits(*, reopens: bool) -> Traits:
    return Traits(eras=("modern", "legacy"), cancel="notify", silence_is_legacy=True, reopens=reopens)


class StdioTransport:
    """Starts `command` with `args`, without a shell, and speaks over its stdin and stdout.

    `command` is looked up along the PATH of the server's own environment; with a slash in it, it is a path, relative
    to `cwd`. The environment is a safe base of ours (`process.BASE_ENVIRONMENT`) and `env` on top; `inherit_env=True`
    takes all of ours as the base. Lines of stderr go to `stderr(line)`, on a thread of this transport, or to the logger
    `snodo_client.stdio` at INFO. A message of more than `max_line_bytes` bytes fails its call ("too_large"). Closing
    takes `shutdown_timeout` seconds and 0.2 more at most: half for the server to leave after the end of its input, half
    after SIGTERM to its process group, then SIGKILL.

    `restart="on_call"` starts the server again for the next call after it was lost, or after a fork, in the child: what
    was under way has failed, and is not sent again. A server that keeps dying is started 10 times in 10 seconds at
    most; calls in between fail at once ("exited"). Without it a lost server stays lost, and a client is of no use in a
    forked child.

    A process that left the group (a daemon) is not ended. It may hold the server's stdout or stderr open: both are let
    go of all the same, but outside Linux a thread and a file descriptor then stay for as long as it lives.
    """

    traits = _traits(reopens=False)

    def __init__(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
        cwd: str | os.PathLike[str] | None = None,
        stderr: Callable[[str], object] | None = None,
        max_line_bytes: int = 16 * 1024 * 1024,
        shutdown_timeout: float = 2.0,
        restart: Literal["on_call"] | None = None,
    ) -> None:
        if isinstance(args, (str, bytes)):
            raise TypeError("args must be a sequence of strings, not one string")
        self._command = _text("command", command)
        if not command:
            raise ValueError("command is empty")
        self._args = [_text("args", os.fspath(arg) if isinstance(arg, os.PathLike) else arg) for arg in args]
        if env is not None and not isinstance(env, Mapping):
            raise TypeError(f"env must be a mapping, not {type(env).__name__}")
        self._env = {_name(name): _text(f"env[{name!r}]", value) for name, value in (env or {}).items()}
        self._inherit_env = inherit_env
        self._cwd = None if cwd is None else _text("cwd", os.fspath(cwd))
        if stderr is not None and not callable(stderr):
            raise TypeError("stderr must be a callable that takes a line, or None")
        self._stderr = stderr
        if type(max_line_bytes) is not int:
            raise TypeError("max_line_bytes must be an integer")
        if max_line_bytes < 1:
            raise ValueError("max_line_bytes must be positive")
        self._max_line_bytes = max_line_bytes
        if type(shutdown_timeout) not in (int, float):
            raise TypeError("shutdown_timeout must be a number of seconds")
        if not 0 <= shutdown_timeout <= _LONGEST:
            raise ValueError(f"shutdown_timeout must be between 0 and {_LONGEST:g} seconds")
        self._shutdown_timeout = float(shutdown_timeout)
        if restart not in (None, "on_call"):
            raise ValueError('restart must be "on_call" or None')
        self._restarts = restart is not None
        self.traits = _traits(reopens=self._restarts)
        self._pid = os.getpid()
        self._lock = RLock()  # guards the fields below; reentrant, for signal handlers
        self._link: StdioLink | None = None
        self._closed = False
        self._launches: set[Event] = set()  # of processes about to be started; each is set when that is over
        self._starts: deque[float] = deque(maxlen=STARTS)  # when the last ones were

    def __repr__(self) -> str:
        return f"<StdioTransport {getattr(self, '_command', '')}>"

    # -- the transport protocol

    def open(self, inbound: Inbound, deadline: Deadline) -> StdioLink:
        """Start the server. After a loss: end the old one first, then start another.

        Raises `McpError`: "exited" when it cannot be started, or was too often; "timeout"; "closed" after `close()`;
        "forked" in a child process.
        """
        if self._pid != os.getpid() and not self._restarts:
            raise local_error("forked", f"the client of {self._command} was made in another process")
        old = self._link
        if old is not None:
            self._retire(old, deadline)
        if deadline.over:
            raise timed_out(f"{self._command} was not started", deadline)
        self._pace(old)
        # On a thread of its own, which no Ctrl-C can interrupt half-way, and for which a slow disk is not our deadline.
        started: Mailbox[StdioLink | McpError] = Mailbox()
        launch = Event()
        self._launches.add(launch)
        try:
            if self._closed:  # asked only now: who closes it from here on waits for this start
                raise self._closed_error()
            threads.start("snodo-stdio-launcher", self._launch, inbound, deadline, started.put, launch)
        except BaseException:
            self._launches.discard(launch)
            raise
        try:
            link = started.get(deadline)
        except Empty:
            raise timed_out(f"{self._command} was not started", deadline) from None
        if isinstance(link, McpError):
            raise link
        return link

    def _pace(self, old: StdioLink | None) -> None:
        """Raises "exited" when the server was started too often of late."""
        now = monotonic()
        if self._restarts and len(self._starts) == STARTS and now - self._starts[0] < STARTS_SECONDS:
            last = old.fault.get(None) if old is not None else None
            raise local_error(
                "exited",
                f"{self._command} was started {STARTS} times within {STARTS_SECONDS:g} s: it is not started just now",
                details=f"; the last time: {last.message}" if last is not None else "",
                data=last.data if last is not None and last.reason == "exited" else {"command": self._command},
            )
        self._starts.append(now)

    def _launch(
        self,
        inbound: Inbound,
        deadline: Deadline,
        started: Callable[[StdioLink | McpError], None],
        launch: Event,
    ) -> None:
        try:
            started(self._launched(inbound, deadline))
        except BaseException:
            started(local_error("transport_failure", f"starting {self._command} failed"))
            raise
        finally:
            self._launches.discard(launch)
            launch.set()

    def _launched(self, inbound: Inbound, deadline: Deadline) -> StdioLink | McpError:
        try:
            env = environment(self._env, self._inherit_env)
            process = Process(self._command, self._args, env, self._cwd)
            name = f"{os.path.basename(self._command)} (pid {process.pid})"
            link = StdioLink(name, process, Stderr(env, self._stderr, name), inbound)
            link.environment = env
            self._start(link)
        except McpError as error:
            return error.with_traceback(None)
        with self._lock:
            welcome = not self._closed and not deadline.over
            if welcome:
                self._link = link
        if welcome:
            return link
        self._retire(link, deadline.sub(self._shutdown_timeout))
        return self._closed_error()

    def exchange(self, call: Call) -> Iterator[Message]:
        link = call.link
        assert isinstance(link, StdioLink)
        self._write(link, call.body, call.deadline, call)
        yield from call.messages()

    def send(self, message: Message, link: Link, deadline: Deadline) -> None:
        assert isinstance(link, StdioLink)
        self._write(link, jsonrpc.encode(message), deadline, None)

    def identity(self, link: Link) -> tuple[bytes, bytes | None]:
        """The command with its arguments, folder and whole environment on this machine, as a fingerprint. That it was
        started with all this is also what it knows of who asks.
        """
        assert isinstance(link, StdioLink)
        if not link.identity:
            from ..fingerprint import fingerprint, machine

            try:
                folder = os.path.abspath(self._cwd or "")
            except OSError:  # it is gone
                folder = os.urandom(16).hex()
            environment = (part for variable in sorted(link.environment.items()) for part in variable)
            args = self._args
            link.identity = fingerprint("stdio", machine(), folder, self._command, str(len(args)), *args, *environment)
        return link.identity, b""

    def close(self, deadline: Deadline) -> None:
        with self._lock:
            self._closed = True
            link = self._link
        until = monotonic() + min(self._shutdown_timeout, deadline.left()) + _CLOSING
        if link is not None:
            self._retire(link, deadline)
        for launch in list(self._launches):  # ends what it has started
            launch.wait(max(0.0, until - monotonic()))

    def forked(self) -> None:
        """To be called in the child of a fork, before anything else there: the server stays the parent's alone. Its
        pipes are no longer open here.
        """
        self._lock = RLock()  # a thread that is not here may hold the old one
        self._launches.clear()
        self._starts.clear()  # those were the parent's
        link, self._link = self._link, None
        if link is not None:
            link.fault.setdefault(None, local_error("forked"))

    # -- writing

    def _write(self, link: StdioLink, body: bytes, deadline: Deadline, call: Call | None) -> None:
        if link.fault:
            raise link.fault[None].copy()
        try:
            link.frames.write(body, deadline, call)
        except BrokenPipeError:
            pass
        else:
            return
        # Either it is gone, and the reader is about to find out how it ended, or it has only closed its stdin.
        link.read.wait(min(_SETTLING, deadline.left()))
        if not link.fault:
            link.lose(local_error("closed", f"{link.name} has closed its stdin"))
            threads.start("snodo-stdio-closer", link.shut, self._shutdown_timeout)
        raise link.fault[None].copy()

    # -- the threads

    def _start(self, link: StdioLink) -> None:
        watcher = Thread(target=self._watch, args=(link,), name="snodo-stdio-watcher", daemon=True)
        reader = Thread(target=self._read, args=(link,), name="snodo-stdio-reader", daemon=True)
        link.threads = (watcher, reader)
        try:
            watcher.start()
            reader.start()
        except RuntimeError:  # no more threads
            link.lose(local_error("transport_failure", f"no thread could be started to read from {link.name}"))
            link.process.close_stdout()
            link.shut(0)
            raise link.fault[None].copy() from None

    def _read(self, link: StdioLink) -> None:
        fd, lines = link.process.stdout.fileno(), Lines(self._max_line_bytes)
        try:
            while (chunk := os.read(fd, CHUNK)) and not link.ended:
                for line in lines.feed(chunk):
                    self._deliver(line, link)
            for line in lines.finish():
                if _is_whole(line):  # else it died in the middle: how it ended says more
                    self._deliver(line, link)
        finally:
            self._stdout_ended(link)
            link.process.close_stdout()
            link.read.set()

    def _stdout_ended(self, link: StdioLink) -> None:
        if link.junk > 1:
            log.info("stdio", "%s: %d lines of stdout were no JSON-RPC messages", link.name, link.junk)
        if link.fault:
            return
        until = monotonic() + _SETTLING
        if link.process.wait(_SETTLING):
            link.drained.wait(max(0.0, until - monotonic()))
            link.lose(link.exit_error())
        else:
            link.lose(local_error("closed", f"{link.name} has closed its stdout"))
            link.shut(self._shutdown_timeout)

    def _deliver(self, line: bytes | TooLong, link: StdioLink) -> None:
        if not isinstance(line, bytes):
            limit = self._max_line_bytes
            text = f"{link.name} sent a message longer than max_line_bytes ({limit})"
            link.inbound.reject(local_error("too_large", text, data={"limit": limit}), link, request_id_in(line.prefix))
            return
        wire_id = response_id(line)
        if wire_id is not None and link.inbound.answer(line, wire_id, link):
            return
        try:
            message = jsonrpc.decode(line)
        except jsonrpc.Malformed as error:
            if line.lstrip(b"\xef\xbb\xbf \t\r").startswith(b"{"):
                text = f"{link.name} sent a message that cannot be read: {error}"
                link.inbound.reject(local_error("malformed", text), link, request_id_in(line))
                return
            message = None
        if isinstance(message, (dict, list)):  # a list may be a batch of revision 2025-03-26
            link.inbound.deliver(message, link)
            return
        link.junk += 1
        if link.junk == 1:
            log.logger("stdio").warning(
                "%s writes to stdout what is no JSON-RPC message; it is skipped, and this is said once", link.name
            )

    def _watch(self, link: StdioLink) -> None:
        process = link.process
        try:
            for chunk in process.stderr_chunks():
                link.stderr.feed(chunk)
            process.wait()
            link.stderr.finish()
        finally:
            process.stderr.close()
            link.drained.set()
        # A process it left behind may hold stdout open, so that its end never comes. Unread lines come first.
        for _ in range(10):
            if link.fault or link.read.wait(_SETTLING) or not process.stdout_waits():
                break
        if not link.fault:
            link.lose(link.exit_error())
        link.shut(self._shutdown_timeout)
        if not link.read.wait(_CLOSING / 4):
            process.wake_reader()

    def _retire(self, link: StdioLink, deadline: Deadline) -> None:
        """End a link for good, in the time of its ladder or what is left of the deadline."""
        grace = min(self._shutdown_timeout, deadline.left())
        until = monotonic() + grace + _CLOSING
        link.lose(self._closed_error())
        link.shut(grace)
        for thread in link.threads:
            if thread.ident != get_ident():  # a callback of ours may close
                thread.join(max(0.0, until - monotonic()))

    def _closed_error(self) -> McpError:
        return local_error("closed", f"the connection to {self._command} was closed")


def _text(what: str, value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError(f"{what} has a NUL character in it")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise ValueError(f"{what} has a character the operating system cannot be given") from None
    return value


def _name(name: str) -> str:
    if not _text("the name of a variable in env", name) or "=" in name:
        raise ValueError(f"env cannot have a variable named {name!r}")
    return name


def _is_whole(line: bytes | TooLong) -> bool:
    try:
        return not isinstance(line, bytes) or isinstance(jsonrpc.decode(line), (dict, list))
    except jsonrpc.Malformed:
        return False
