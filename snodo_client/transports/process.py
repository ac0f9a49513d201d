"""One server process and everything under it: how it is started, watched and ended.

The process leads a session and group of its own, so that ending it ends what it started, and no Ctrl-C of the terminal
reaches it first. Platform differences live here and nowhere else. Linux is the reference; macOS has no pidfd and is
watched in small steps; the Windows branches (no groups, blocking writes) are a best effort that no test runs.
Protocol and framing are not known here.
"""

from __future__ import annotations

import os
import select
import sys
from threading import Lock, RLock
from time import monotonic, sleep
from typing import TYPE_CHECKING

from ..outcome import local_error
from . import forks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import IO

    from ..outcome import McpError

# All a server gets of our environment unless told otherwise, and every LC_*: where programs, homes and temporary files
# are, the language, and how to reach the network. Names that hold credentials of other programs are what is left out.
# fmt: off
BASE_ENVIRONMENT = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "USERPROFILE", "USERNAME",
    "HOMEDRIVE", "HOMEPATH", "PROGRAMDATA", "PROGRAMFILES", "PROCESSOR_ARCHITECTURE",
))
# fmt: on

CHUNK = 65_536
# After SIGKILL: how long its end and the end of its group are waited for. Together they stay below the 0.2 s that
# closing may take beyond its time.
_REAP_SECONDS = 0.1
_SWEEP_SECONDS = 0.05
_GROUP_GRACE = 0.5  # between SIGTERM and SIGKILL for what a server left behind when it ended
_FOREVER = 1_000_000.0


def environment(env: Mapping[str, str], inherit: bool) -> dict[str, str]:
    """The environment of a server: ours or the safe base of it, and on top what was asked for."""
    base = {
        name: value
        for name, value in os.environ.items()
        if inherit or name in BASE_ENVIRONMENT or name.startswith("LC_")
    }
    return {**base, **env}


class Process:
    """A started server. `stdout` and `stderr` are raw files, each closed by the thread that reads it.

    `exit_code` and `signal` (a name) are known once `wait()` has returned True; both None when something else in this
    program took the exit status.
    """

    __slots__ = (
        "__weakref__", "_exited", "_finished", "_lock", "_popen", "_reaped", "_status", "_stopping",
        "command", "pid", "stderr", "stdin", "stdout", "stopping",
    )  # fmt: skip

    def __init__(self, command: str, args: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        """Start it, without a shell. Raises `McpError` ("exited") when that fails."""
        with forks.kept_out():
            self._start(command, args, env, cwd)
            forks.add(self)

    def _start(self, command: str, args: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        import subprocess

        program, flags = command, 0
        if sys.platform == "win32":
            import shutil  # for PATHEXT: npx is npx.cmd there

            program = shutil.which(command, path=env.get("PATH")) or command
            flags = subprocess.CREATE_NEW_PROCESS_GROUP
        try:
            # POSIX looks the command up along the PATH of `env`, or from `cwd` when it has a slash.
            self._popen = subprocess.Popen(
                [program, *args],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                cwd=cwd,
                start_new_session=True,
                creationflags=flags,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise _not_started(command, cwd, error) from None
        self.command = command
        self.pid = self._popen.pid
        self.stdin = _pipe(self._popen.stdin)
        self.stdout = _pipe(self._popen.stdout)
        self.stderr = _pipe(self._popen.stderr)
        if sys.platform != "win32":
            os.set_blocking(self.stdin.fileno(), False)
        self._lock = RLock()  # guards the fields below, and the file descriptor of stdout against reuse
        self._exited = False
        self._status: int | None = None  # as `Popen.returncode`
        self._reaped = False
        self._stopping = Lock()  # held by the thread that runs the ladder
        self._finished = False
        self.stopping = False  # its end was begun

    # -- watching

    def exited(self) -> bool:
        """Whether it has ended. Where the system allows it stays unreaped, so that its id cannot become another's."""
        with self._lock:
            if not self._exited:
                self._look()
            return self._exited

    def _look(self) -> None:
        if sys.platform == "win32" or not hasattr(os, "waitid"):  # macOS before Python 3.13
            self._status = self._popen.poll()
            self._exited = self._reaped = self._status is not None
            return
        try:
            how = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # SIGCHLD is ignored in this program, or somebody waits for every child
            self._exited = self._reaped = True
            return
        if how is not None:
            self._exited = True
            self._status = how.si_status if how.si_code == os.CLD_EXITED else -how.si_status

    def wait(self, seconds: float = _FOREVER) -> bool:
        """Wait for its end. True when it has ended."""
        if self.exited() or seconds <= 0:
            return self.exited()
        pidfd = self._open_pidfd()
        if pidfd is None:
            return _poll(self.exited, seconds)
        try:
            poller = select.poll()
            poller.register(pidfd, select.POLLIN)
            poller.poll(seconds * 1000)
        finally:
            os.close(pidfd)
        return self.exited()

    def _open_pidfd(self) -> int | None:
        with self._lock:
            if self._reaped or not hasattr(os, "pidfd_open"):
                return None
            try:
                return os.pidfd_open(self.pid)
            except OSError:  # an old kernel, a sandbox, or no file descriptor left
                return None

    @property
    def exit_code(self) -> int | None:
        return self._status if self._status is not None and self._status >= 0 else None

    @property
    def signal(self) -> str | None:
        if self._status is None or self._status >= 0:
            return None
        import signal

        try:
            return signal.Signals(-self._status).name
        except ValueError:  # a real-time signal
            return f"signal {-self._status}"

    def end(self) -> str:
        """How it ended, in words."""
        if self.signal is not None:
            return f"was killed by {self.signal}"
        return "exited" if self.exit_code is None else f"exited with code {self.exit_code}"

    # -- its streams

    def await_writable(self, seconds: float) -> None:
        """Wait until stdin may take a byte, or its reader is gone."""
        if sys.platform == "win32":  # writes block there
            return
        poller = select.poll()
        try:
            poller.register(self.stdin, select.POLLOUT)
        except ValueError:  # closed meanwhile
            return
        poller.poll(seconds * 1000)

    def stderr_chunks(self) -> Iterator[bytes]:
        """What it writes to stderr, until that ends, or it has exited and all it wrote was read.

        A process it leaves behind may hold the pipe open and go on writing: that is read for a moment only.
        """
        fd = self.stderr.fileno()
        if sys.platform == "win32":
            while chunk := os.read(fd, CHUNK):
                yield chunk
            return
        pidfd = self._open_pidfd()
        try:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            if pidfd is not None:
                poller.register(pidfd, select.POLLIN)
            until = None
            while until is None or monotonic() < until:
                ready = dict(poller.poll(None if pidfd is not None else 1000))
                if until is None and (pidfd in ready if pidfd is not None else self.exited()):
                    until = monotonic() + _REAP_SECONDS
                if fd in ready:
                    chunk = os.read(fd, CHUNK)
                    if not chunk:
                        return
                    yield chunk
                elif until is not None:
                    return
        finally:
            if pidfd is not None:
                os.close(pidfd)

    def stdout_waits(self) -> bool:
        """Whether its stdout holds something its reader has not read yet, be it the end."""
        if sys.platform == "win32":
            return False
        poller = select.poll()
        with self._lock:
            if self.stdout.closed:
                return True
            poller.register(self.stdout, select.POLLIN)
            return bool(poller.poll(0))

    def close_stdin(self) -> None:
        with forks.kept_out():
            self.stdin.close()

    def close_stdout(self) -> None:
        with self._lock:
            self.stdout.close()

    def wake_reader(self) -> None:
        """Wake the reader of a stdout that a process outside the group still holds open.

        Linux can open a pipe a second time, and so write to our own end. Elsewhere that reader and its file descriptor
        stay until the other process ends.
        """
        with self._lock:  # the descriptor must still be the pipe's
            if self.stdout.closed or sys.platform != "linux":
                return
            try:
                fd = os.open(f"/proc/self/fd/{self.stdout.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                return
            try:
                os.write(fd, b"\n")
            except OSError:  # full: then the reader is not waiting
                pass
            finally:
                os.close(fd)

    # -- ending

    def stop(self, grace: float) -> None:
        """The end of the process and its group, after its stdin was closed: wait, SIGTERM, wait, SIGKILL, reap.

        Takes `grace` seconds and 0.15 more at most, and only as long as it needs. From any thread; a caller with less
        patience than the one at work cuts that one short.
        """
        self.stopping = True
        end = monotonic() + grace
        if not self._stopping.acquire(timeout=grace):
            self._signal_unreaped(_SIGKILL)
            if not self._stopping.acquire(timeout=_REAP_SECONDS):
                return
        try:
            if not self._finished:
                self._finished = self._descend(end, grace / 2)
        except BaseException:  # an interruption: it may be that nobody tries again
            self.kill()
            raise
        finally:
            self._stopping.release()

    def kill(self) -> None:
        """End the process and its group at once, unless that was done."""
        self._signal_unreaped(_SIGKILL)

    def _descend(self, end: float, patience: float) -> bool:
        """The ladder. False when even SIGKILL has not ended it (a system call that cannot be interrupted)."""
        killed = False
        if not self.wait(patience):
            self._signal_unreaped(_SIGTERM)
            if not self.wait(end - monotonic()):
                self._signal_unreaped(_SIGKILL)
                killed = True
                if not self.wait(_REAP_SECONDS):
                    return False
        with self._lock:
            self._popen.wait()
            self._reaped = True
        if sys.platform != "win32":
            self._sweep(end, killed)
        return True

    def _signal_unreaped(self, signum: int) -> None:
        """Signal the whole group while its leader, dead or alive, still holds the id."""
        with self._lock:
            if self._reaped:
                return
            if sys.platform == "win32":
                self._popen.kill()
            else:
                _signal_group(self.pid, signum)

    def _sweep(self, end: float, killed: bool) -> None:
        """End what the process left behind in its group.

        Its id is free again once the group is empty, but not sooner, and each signal follows a look at the group: for
        that to hit a stranger, all process ids would have to be used up between two looks, a hundredth of a second.
        """

        def gone() -> bool:
            return not _signal_group(self.pid, 0)

        if gone():
            return
        if not killed:
            _signal_group(self.pid, _SIGTERM)
            if _poll(gone, min(end - monotonic(), _GROUP_GRACE)):
                return
        _signal_group(self.pid, _SIGKILL)
        _poll(gone, _SWEEP_SECONDS)

    def pipes(self) -> list[int]:
        """The descriptors of those that are not closed."""
        return [file.fileno() for file in (self.stdin, self.stdout, self.stderr) if not file.closed]

    def abandon(self, null: int) -> None:
        """In the child of a fork: let go of the pipes; what still reads or writes them finds the null device, which is
        open as `null`.
        """
        for pipe in self.pipes():
            if pipe != null:
                os.dup2(null, pipe, inheritable=False)
        self._exited = self._reaped = self._finished = True
        self._popen.returncode = 0  # or its destructor complains of a process that still runs


if sys.platform == "win32":
    _SIGTERM = _SIGKILL = 0
else:
    _SIGTERM, _SIGKILL = 15, 9  # everywhere, and `signal` need not be imported for it


def _signal_group(group: int, signum: int) -> bool:
    """False when there is no such group, or nobody in it whom we may signal."""
    try:
        os.killpg(group, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _poll(condition: Callable[[], bool], seconds: float) -> bool:
    """Ask until true, in steps from 1 to 10 ms."""
    end = monotonic() + seconds
    step = 0.001
    while not condition():
        left = end - monotonic()
        if left <= 0:
            return False
        sleep(min(step, left))
        step = min(step * 2, 0.01)
    return True


def _pipe(file: IO[bytes] | None) -> IO[bytes]:
    assert file is not None
    return file


def _not_started(command: str, cwd: str | None, error: Exception) -> McpError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)) and cwd is not None and error.filename == cwd:
        why = f"no such directory to start it in: {cwd}"
    elif isinstance(error, FileNotFoundError):
        where = "" if os.path.dirname(command) else " in the PATH of its environment"
        why = f"no such command{where} (or its interpreter is missing)"
        if " " in command.strip():
            why += '; arguments go in a list of their own: ("stdio", command, [arguments])'
    else:
        why = f"it could not be started: {getattr(error, 'strerror', None) or type(error).__name__}"
    return local_error("exited", f"{command}: {why}", data={"command": command})
