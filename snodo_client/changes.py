"""What a subscription tells: `Notification`, `Dropped` and, last, `Closed`. Plain values to match on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Literal

    from .outcome import McpError

    Reason = Literal["complete", "cancelled", "lost", "error", "idle", "closed"]


class Notification:
    """A change: `method` such as "notifications/tools/list_changed", and its `params` as sent."""

    __slots__ = ("method", "params")
    __match_args__ = ("method", "params")

    def __init__(self, method: str, params: dict[str, Any]) -> None:
        self.method = method
        self.params = params

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Notification) and (self.method, self.params) == (other.method, other.params)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Notification({self.method!r}, {self.params!r})"


class Dropped:
    """`count` notifications came faster than they were read, and the oldest were dropped. It stands where they stood:
    right before the next one.
    """

    __slots__ = ("count",)
    __match_args__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dropped) and self.count == other.count

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Dropped({self.count})"


class Closed:
    """The end. `reason` is one of

    - "complete": the server ended it, with a result
    - "cancelled": the server ended it, with `notifications/cancelled`
    - "error": the server ended it, with the JSON-RPC error in `error`
    - "lost": the connection is gone, or the process was forked; `error` tells more
    - "idle": nothing came for `idle_timeout`
    - "closed": the subscription or its client was closed on this side
    """

    __slots__ = ("error", "reason")
    __match_args__ = ("reason", "error")

    def __init__(self, reason: Reason, error: McpError | None = None) -> None:
        self.reason: Reason = reason
        self.error = error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Closed) and self.reason == other.reason and self.error is other.error

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Closed({self.reason!r}{f', {self.error!r}' if self.error is not None else ''})"


Event = Notification | Dropped | Closed
