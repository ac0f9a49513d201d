"""One name for a tool of one of many servers, such as `weather__get_forecast`, which every model's API takes.

Those want at most 64 of `A-Z a-z 0-9 _ -`, and a letter first; servers and tools have names of any kind. Pure functions
over strings: which servers there are, and which tools, others know.
"""

from __future__ import annotations

import re

SEPARATOR = "__"
LONGEST = 64

# So that half of the name is left for the tool.
LONGEST_PREFIX = 30

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NOT_IN_A_PREFIX = re.compile(r"[^A-Za-z0-9-]+")
_MARKED = re.compile(r"-[0-9a-f]{8}\Z")


def prefix(server: str) -> str:
    """What the tools of a server begin with: its name where that will do. Other characters become an underscore, never
    two in a row, none at the ends. A name that is cut, loses letters, or has no letter first is told from others by a
    checksum.
    """
    clean = _NOT_IN_A_PREFIX.sub("_", server).strip("_")
    lost = any(letter.isalnum() for letter in server if not letter.isascii())
    if clean[:1].isalpha() and not lost and len(clean) <= LONGEST_PREFIX:
        return clean
    if not clean[:1].isalpha():
        clean = f"server-{clean}".rstrip("_-")
    return _marked(clean, server, LONGEST_PREFIX)


def joined(prefix: str, tool: str) -> str:
    """The one name of a tool. A tool's name that is too long, or has other characters, ends in a checksum then: which
    tool it was is known to those who list them.
    """
    name = f"{prefix}{SEPARATOR}{tool}"
    if tool and len(name) <= LONGEST and not _NOT_IN_A_NAME.search(tool):
        return name
    return prefix + SEPARATOR + _marked(_NOT_IN_A_NAME.sub("_", tool), tool, LONGEST - len(prefix) - len(SEPARATOR))


def split(name: str) -> tuple[str, str]:
    """The prefix and the rest. A prefix has no separator in it and does not end in half of one, so the first is it."""
    before, _, after = name.partition(SEPARATOR)
    return before, after


def is_marked(tool: str) -> bool:
    """Whether the part after the prefix may stand for another name."""
    return _MARKED.search(tool) is not None


def _marked(text: str, whole: str, longest: int) -> str:
    from zlib import crc32

    mark = f"-{crc32(whole.encode('utf-8', 'surrogatepass')):08x}"
    return text[: longest - len(mark)] + mark
