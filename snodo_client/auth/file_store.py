"""Tokens in a file of the user, which processes and threads share.

The file is a JSON object of text. It is replaced whole, so readers take no lock, and a process that is killed leaves
the old content or the new one. Nothing here is encrypted: whoever can read the user's files can read the tokens, as
with keys of ssh. `keyring_store.py` leaves that to the system. (platformdirs was weighed for one folder, and does more
than is needed here; what was weighed for the lock is in `file_lock.py`.)
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..fingerprint import fingerprint
from ..log import logger
from ..protocol import jsonrpc
from .faults import failed
from .file_lock import FileLock, for_at_most
from .private_files import opened, replace
from .stores import checked

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from ..outcome import McpError

LARGEST = 4 * 1024 * 1024  # bytes of the file
WRITING_SECONDS = 10.0  # to wait for other writers, which need milliseconds each


class FileTokenStore:
    """Tokens in the file at `path`, by default `tokens.json` in the folder of this library among the user's data:
    `$XDG_DATA_HOME/snodo_client` or `~/.local/share/snodo_client`, on macOS `~/Library/Application
    Support/snodo_client`, on Windows `%LOCALAPPDATA%\\snodo_client`.

    The file is readable by this user alone (mode 0600), and folders that have to be made are too (0700). A file that
    others could open is taken from them, with a warning. A link, or a file of another user, is refused. A file that is
    no store is moved aside to `tokens.json.broken`, with a warning.

    Files of locks, which are empty, stand beside it. A pickle holds the path. McpError ("authorization_failed") for
    what the system refuses.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else _absolute(path)

    @property
    def path(self) -> str:
        """The file. McpError when the default is wanted and this user has no home folder."""
        if self._path is None:
            self._path = os.path.join(default_folder(), "tokens.json")
        return self._path

    def get(self, key: str, /) -> str | None:
        try:
            values = self._read()
            if values is None:
                with self._writing():
                    values = self._repaired()
        except OSError as error:
            raise _refused(self.path, "read", error) from None
        return values.get(key)

    def set(self, key: str, value: str, /) -> None:
        key, value = checked(key, "key"), checked(value, "value")
        self._change(lambda values: {**values, key: value})

    def delete(self, key: str, /) -> None:
        if self.get(key) is not None:  # else a folder that cannot be written to is no obstacle
            self._change(lambda values: {name: values[name] for name in values if name != key})

    def lock(self, key: str, wait: Callable[[], float], /) -> AbstractContextManager[None]:
        """What one holder at a time, of all processes of this machine, is inside of. `get` and the rest do not need it.

        `wait()` gives the seconds that are left, at 0 comes a TimeoutError; it may raise to end the wait. Not
        reentrant.
        """
        return KeyLock(self.path, key, wait)

    def _change(self, changed: Callable[[dict[str, str]], dict[str, str]]) -> None:
        try:
            with self._writing():
                data = jsonrpc.encode(changed(self._repaired()))
                if len(data) > LARGEST:
                    raise failed("store", f"{self.path} would be larger than {LARGEST} bytes: remove it")
                replace(self.path, data)
        except OSError as error:
            raise _refused(self.path, "written", error) from None

    def _writing(self) -> FileLock:
        return FileLock(self.path + ".lock", for_at_most(WRITING_SECONDS))

    def _read(self) -> dict[str, str] | None:
        """What is in the file, None when that is nothing of ours."""
        try:
            descriptor = opened(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return {}
        with open(descriptor, "rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            return None
        try:
            values = jsonrpc.decode(data)
            if not isinstance(values, dict):
                return None
            return {checked(key, "key"): checked(value, "value") for key, value in values.items()}
        except (TypeError, ValueError):
            return None

    def _repaired(self) -> dict[str, str]:
        """What is in the file; what is nothing of ours is moved aside. For who holds the lock of writers."""
        values = self._read()
        if values is not None:
            return values
        broken = self.path + ".broken"
        os.replace(self.path, broken)
        logger("auth").warning("%s was no token store: it is %s now, and the store begins empty", self.path, broken)
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return FileTokenStore, (self._path,)

    def __repr__(self) -> str:
        return f"FileTokenStore({self._path!r})" if self._path else "FileTokenStore()"


class KeyLock:
    """The lock of one key of the store at `path`, with what the system refuses as McpError."""

    __slots__ = ("_lock", "_path")

    def __init__(self, path: str, key: str, wait: Callable[[], float]) -> None:
        self._path = f"{path}.{fingerprint(key).hex()[:16]}.lock"
        self._lock = FileLock(self._path, wait)

    def __enter__(self) -> None:
        try:
            self._lock.__enter__()
        except TimeoutError:
            raise
        except OSError as error:
            raise _refused(self._path, "locked", error) from None

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()


def default_folder() -> str:
    """Where this library keeps data of the user, which may not exist yet. McpError for a user without a home."""
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        folder = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    elif sys.platform == "darwin":
        folder = os.path.join(home, "Library", "Application Support")
    else:
        folder = os.environ.get("XDG_DATA_HOME", "")
        if not os.path.isabs(folder):  # which is to be ignored, says its specification
            folder = os.path.join(home, ".local", "share")
    if not os.path.isabs(folder):
        raise failed("store", "this user has no home folder: give the token store a path, FileTokenStore(path)")
    return os.path.join(folder, "snodo_client")


def _absolute(path: object) -> str:
    """The path whatever folder the program goes to later."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path must be a path, not {type(path).__name__}")
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError("path must be text, not bytes")
    if not os.path.basename(text) or "\0" in text:
        raise ValueError(f"path={text!r:.200} is no path of a file")
    return os.path.abspath(os.path.expanduser(text))


def _refused(path: str, done: str, error: OSError) -> McpError:
    why = error.strerror  # none for our own TimeoutError
    if isinstance(error, TimeoutError) and not why:
        why = f"its lock was held by others for {WRITING_SECONDS:g} s"
    return failed("store", f"{path} cannot be {done}: {why or type(error).__name__}")
