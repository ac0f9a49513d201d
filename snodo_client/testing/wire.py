"""JSON texts as bytes: what the serving loops read and write.

The server's own, so that a mistake in the client's codec cannot hide in both.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn


def encode(value: Any) -> bytes:
    """One JSON text without line breaks."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def decode(data: bytes) -> Any:
    """The value of a JSON text in UTF-8; ValueError for anything else, NaN and Infinity included."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
