"""`Received`: a message as it reached the server, for a test to look at in `Server.calls`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Received:
    """One message that reached the server. `headers` (HTTP only) maps lower-case names to values."""

    __slots__ = ("headers", "message")

    def __init__(self, message: dict[str, Any], headers: Mapping[str, Sequence[str]]) -> None:
        self.message = message
        self.headers = {name: ", ".join(values) for name, values in headers.items()}

    @property
    def id(self) -> Any:
        return self.message.get("id")

    @property
    def method(self) -> Any:
        return self.message.get("method")

    @property
    def params(self) -> Any:
        return self.message.get("params", {})

    def __repr__(self) -> str:
        return f"<Received {self.method} id={self.id!r}>"
