"""The library's loggers, `snodo_client.<name>`.

`logging` costs a short script a third of its start: it is imported when there is a warning, and what is less than that
is said only in programs that have imported it themselves.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


_loggers: dict[str, logging.Logger] = {}


def logger(name: str) -> logging.Logger:
    """The standard logger `snodo_client.<name>`."""
    found = _loggers.get(name)
    if found is None:
        import logging

        # Once for each: getLogger holds a lock of the whole program, which an interruption just then leaves locked.
        found = _loggers[name] = logging.getLogger(f"snodo_client.{name}")
    return found


def says_info(name: str) -> bool:
    """Whether this program logs at all, and this logger at INFO: for text that costs something to make."""
    return "logging" in sys.modules and logger(name).isEnabledFor(20)


def debug(name: str, text: str, *arguments: object) -> None:
    """Log at DEBUG, when this program logs at all."""
    if "logging" in sys.modules:
        logger(name).debug(text, *arguments)


def info(name: str, text: str, *arguments: object) -> None:
    """Log at INFO, when this program logs at all."""
    if "logging" in sys.modules:
        logger(name).info(text, *arguments)
