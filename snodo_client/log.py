"""The library's loggers, `snodo_client.<name>`. `logging` costs 10 ms to import, so it is imported when there is
something to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def logger(name: str) -> logging.Logger:
    """The standard logger `snodo_client.<name>`; silent unless the application configures logging (warnings go to
    stderr by default).
    """
    import logging

    return logging.getLogger(f"snodo_client.{name}")
