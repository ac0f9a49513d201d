"""Files and folders that are for one user's eyes: made so, and looked at before they are trusted.

Everything is checked on the open descriptor, never by name, so nobody can swap a file after it was looked at. Only the
last part of a path is held against links: folders may be links, as many homes have them.
"""

from __future__ import annotations

import os
import stat

from ..log import logger
from .faults import failed

_SAFE = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a pipe in place of the file is no reason to wait
    | getattr(os, "O_BINARY", 0)
)


def opened(path: str, flags: int) -> int:
    """The descriptor of a file of this user's alone; with O_CREAT it is made when it is missing.

    Others' permissions are taken from it, with a warning. McpError when it is a link, no file, or of another user;
    OSError from the system.
    """
    try:
        descriptor = os.open(path, flags | _SAFE, 0o600)
    except OSError:
        if os.path.islink(path):
            raise _refused(path, "is a symbolic link") from None
        raise
    try:
        _look(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _look(path: str, descriptor: int) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise _refused(path, "is no regular file")
    if not hasattr(os, "geteuid"):
        return  # where permissions are inherited from the folder, which is the user's own
    if found.st_uid != os.geteuid():
        raise _refused(path, f"is a file of another user (uid {found.st_uid}, this program is uid {os.geteuid()})")
    if found.st_mode & 0o077:
        os.fchmod(descriptor, found.st_mode & 0o700)
        logger("auth").warning(
            "%s could be opened by other users (mode %03o), which was changed: if they may have read it, sign in anew",
            path,
            found.st_mode & 0o777,
        )


def _refused(path: str, why: str) -> Exception:
    return failed("store", f"{path} {why}, so it is not used: give the token store another path")


def replace(path: str, data: bytes) -> None:
    """Give the file a new content, whole or not at all, at whatever moment the process ends. For one writer at a time.

    The new content is under another name (".new") until it is on the disk. OSError from the system.
    """
    new = path + ".new"
    remove(new)  # of a writer that was killed
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path)
    except BaseException:
        remove(new)
        raise


def remove(path: str) -> None:
    """Remove the file, if there is one."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def make_folder(path: str) -> None:
    """Make the folder, and those above it, for this user alone. One that is there already stays as it is."""
    if os.path.isdir(path):
        return
    make_folder(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:  # made at the same time by another
        return
