"""What a call gives back: `Ok`, `InputRequired` or `McpError`, and the small values around them.

Outcomes are plain values to match on. `McpError` is also an exception, so that `unwrap()` can raise it; it is never
raised by a call itself. Nothing here does I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .reasons import REASONS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import ClassVar, Literal, NoReturn

    from .reasons import Kind

T = TypeVar("T")


class Ok(Generic[T]):
    """Success. `value` is the result object as the server sent it (string keys); for `list_*` a list, for `list_page` a
    `Page`.

    A tool that reports its own failure (`"isError": true`) is an `Ok` too: see `is_error`.
    """

    __slots__ = ("value",)
    __match_args__ = ("value",)
    ok: ClassVar[Literal[True]] = True

    def __init__(self, value: T) -> None:
        self.value = value

    @property
    def is_error(self) -> bool:
        """True when a tool ran and reported a failure in its result."""
        return isinstance(self.value, dict) and self.value.get("isError") is True

    def unwrap(self) -> T:
        """The value."""
        return self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ok) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ok({self.value!r})"


class InputRequired:
    """The server needs more before it can finish: call again with `input_responses=` and `request_state=` (spec:
    basic/patterns/mrtr).

    `value` is the result as sent. `requests` maps an id to a request object (`method`, `params`); the answers go under
    the same ids. `request_state` is opaque and secret: hand it back unchanged, or leave it out when it is None.
    """

    __slots__ = ("value",)
    __match_args__ = ("value",)
    ok: ClassVar[Literal[False]] = False
    is_error: ClassVar[Literal[False]] = False

    def __init__(self, value: dict[str, Any]) -> None:
        self.value = value

    @property
    def requests(self) -> dict[str, Any]:
        """What is asked, by id: objects with a `method` such as "elicitation/create" and `params`."""
        requests = self.value.get("inputRequests")
        return requests if isinstance(requests, dict) else {}

    @property
    def request_state(self) -> str | None:
        """The server's state, to hand back unchanged; None when it keeps none."""
        return self.value.get("requestState")

    def unwrap(self) -> NoReturn:
        """Raises `InputRequiredError`, which carries this outcome."""
        raise InputRequiredError(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputRequired) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        state = "<secret>" if self.request_state is not None else None
        return f"InputRequired(requests={self.requests!r}, request_state={state})"


class InputRequiredError(Exception):
    """Raised by `InputRequired.unwrap()`; `outcome` is the `InputRequired`."""

    def __init__(self, outcome: InputRequired) -> None:
        super().__init__(outcome)
        self.outcome = outcome

    def __str__(self) -> str:
        asked = ", ".join(sorted(self.outcome.requests))
        return f"the server asks for input: {asked or 'call again with its request_state'}"


class McpError(Exception):
    """A failed call: an error the server sent (`reason is None`), or a local fault (`reason` names a row of the table
    of reasons).

    `code` and `message` are those of JSON-RPC. `data` is the server's `data` as sent, or a dict of details for a local
    fault. `kind` is one of json_rpc, protocol, execution, transport, authorization, validation. `cause` is short text,
    a tuple or an outcome, never a foreign exception.
    """

    __match_args__ = ("code", "message")
    ok: ClassVar[Literal[False]] = False
    is_error: ClassVar[Literal[False]] = False  # of tools that ran and say they failed, see `Ok.is_error`

    def __init__(
        self,
        code: int,
        message: str,
        *,
        kind: Kind | None = None,
        reason: str | None = None,
        data: Any = None,
        cause: Any = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.kind: Kind = kind or _kind_of(code)
        self.reason = reason
        self.data = data
        self.cause = cause

    def copy(self) -> McpError:
        """The same error without traceback, context or notes of where it was raised before."""
        return McpError(self.code, self.message, kind=self.kind, reason=self.reason, data=self.data, cause=self.cause)

    def unwrap(self) -> NoReturn:
        """Raises a copy of this error, so that one outcome can be raised in many threads."""
        raise self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.code, self.message, self.kind, self.reason, self.data, self.cause)

    def __str__(self) -> str:
        return f"{self.message} [{self.reason or 'sent by the server'}, code {self.code}]"

    def __repr__(self) -> str:
        return f"McpError(code={self.code}, message={self.message!r}, kind={self.kind!r}, reason={self.reason!r})"


def _rebuild(code: int, message: str, kind: Kind, reason: str | None, data: Any, cause: Any) -> McpError:
    return McpError(code, message, kind=kind, reason=reason, data=data, cause=cause)


def _kind_of(code: int) -> Kind:
    if code in (-32700, -32600):
        return "json_rpc"
    return "execution" if code == -32603 else "protocol"


def local_error(
    reason: str,
    message: str | None = None,
    *,
    details: str = "",
    data: Mapping[str, Any] | None = None,
    cause: Any = None,
) -> McpError:
    """An error made on this side, by a reason of the table (`docs/errors.md`). `message` says what happened and to
    whom; the advice of the table is added to it, and then `details`.
    """
    row = REASONS[reason]
    return McpError(
        row.code,
        f"{message or row.meaning} ({row.advice}){details}",
        kind=row.kind,
        reason=reason,
        data=dict(data) if data else {},
        cause=cause,
    )


class Page:
    """One page of a list: `items` (raw objects), `next_cursor` (None at the end; `""` is a cursor), `result` (the whole
    result object).
    """

    __slots__ = ("items", "next_cursor", "result")

    def __init__(self, items: list[dict[str, Any]], next_cursor: str | None, result: dict[str, Any]) -> None:
        self.items = items
        self.next_cursor = next_cursor
        self.result = result

    def __repr__(self) -> str:
        return f"Page({len(self.items)} items, next_cursor={self.next_cursor!r})"


class Progress:
    """A progress notification: `progress` and `total` are numbers (total may be None), `message` text or None, `params`
    as sent.
    """

    __slots__ = ("message", "params", "progress", "total")

    def __init__(self, params: dict[str, Any]) -> None:
        total, message = params.get("total"), params.get("message")
        self.params = params
        self.progress: float = params["progress"]
        self.total: float | None = total if type(total) in (int, float) else None
        self.message: str | None = message if isinstance(message, str) else None

    def __repr__(self) -> str:
        return f"Progress({self.progress!r}, total={self.total!r}, message={self.message!r})"


Outcome = Ok[Any] | InputRequired | McpError
