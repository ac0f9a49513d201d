"""What a transport gives and raises while it carries a request, as values: the same for calls and for the negotiation
that comes before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import McpError, local_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..transports.base import Link
    from .call import Message


def received(exchange: Iterator[Message], link: Link, method: str) -> Message | McpError:
    """What comes next for a request of this method: a message, or why there will be none."""
    try:
        message = next(exchange)
    except StopIteration:
        return local_error("closed", f"{link.name} ended the exchange before {method} was answered")
    except McpError as error:
        return fault(error)
    if not isinstance(message, dict):
        return local_error("malformed", f"{link.name}: the transport gave a {type(message).__name__} for {method}")
    return message


def let_go(exchange: Iterator[Message]) -> None:
    """End the exchange, whether it has come to its end or not."""
    close = getattr(exchange, "close", None)  # generators have it; an iterator of somebody's transport need not
    if close is not None:
        try:
            close()
        except McpError:
            return


def fault(error: McpError) -> McpError:
    """What a transport raised, as a value: without the frames it came through, which hold requests and headers, and
    never to be taken for an error the server sent.
    """
    if error.reason is None:
        return local_error("transport_failure", error.message)
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error
