"""Whether a process, known by its id alone, is still there."""

from __future__ import annotations

import os
from pathlib import Path


def alive(pid: int) -> bool:
    """False also for one that has ended and waits for somebody to ask how."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:  # it has just gone, or there is no /proc here
        return not Path("/proc/self").exists()


def named(argument: str) -> list[int]:
    """The processes that were started with this argument. Needs Linux's /proc."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has just gone
            continue
        if argument.encode() in arguments:
            found.append(int(folder.name))
    return found
