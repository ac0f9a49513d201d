"""Importing what a connection needs when it is opened, where a failure is an error of the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import local_error

if TYPE_CHECKING:
    from typing import Any


def load(name: str, extra: str = "") -> Any:
    """The module of this package called *name*. Raises McpError ("transport_failure") when it cannot be imported, which
    may be for want of the package *extra*, an extra of ours by a similar name.
    """
    from importlib import import_module

    missing: str | None = None
    try:
        return import_module(f"{__package__}.{name}")
    except (ImportError, OSError) as error:  # no file descriptor left, for one
        missing, problem = getattr(error, "name", None), str(error)
    if extra and (missing or "").partition(".")[0] == extra:
        problem = f'the package {extra} is missing: pip install "snodo_client[{extra.removesuffix("s")}]"'
    raise local_error("transport_failure", f"a module this connection needs could not be loaded: {problem}")
