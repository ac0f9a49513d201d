"""What can go wrong on purpose: `Fault`s that spoil a finished reply.

Small and composable: `Server.fault("tools/call", Fault.delay(1), Fault.wrong_id())`. Faults below HTTP (cut heads,
stalled sockets) are not here: they need a server that is no MCP server at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from snodo_client.testing.call import pause
from snodo_client.testing.errors import RpcError
from snodo_client.testing.replies import Raw, Reply, error_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from snodo_client.testing.call import Context


class Fault:
    """One thing that goes wrong with the reply to a request. Give several to `Server.fault` to combine them."""

    __slots__ = ("apply", "name", "skips_handler")

    def __init__(self, name: str, apply: Callable[[Reply, Context], None], *, skips_handler: bool = False) -> None:
        self.name = name
        self.apply = apply
        self.skips_handler = skips_handler

    def __repr__(self) -> str:
        return f"Fault.{self.name}"

    @staticmethod
    def drop() -> Fault:
        """Never answer. Over HTTP the connection ends without a reply; in process the callable returns None."""

        def apply(reply: Reply, context: Context) -> None:
            reply.dropped = True

        return Fault("drop()", apply)

    @staticmethod
    def delay(seconds: float) -> Fault:
        """Answer late."""

        def apply(reply: Reply, context: Context) -> None:
            pause(context, seconds)

        return Fault(f"delay({seconds})", apply)

    @staticmethod
    def drip(seconds: float) -> Fault:
        """Send the answer one byte at a time, with this pause after each byte. No effect in process."""

        def apply(reply: Reply, context: Context) -> None:
            reply.drip = seconds

        return Fault(f"drip({seconds})", apply)

    @staticmethod
    def garbage(body: bytes = b"\x00 not JSON", *, status: int = 200, content_type: str = "application/json") -> Fault:
        """Send these bytes instead of an answer."""

        def apply(reply: Reply, context: Context) -> None:
            reply.raw = Raw(body, status=status, content_type=content_type)

        return Fault("garbage()", apply)

    @staticmethod
    def crash(code: int = 1) -> Fault:
        """End the process with this exit code instead of answering.

        Only over stdio, where the process is the server's own; elsewhere the same as `drop`.
        """

        def apply(reply: Reply, context: Context) -> None:
            reply.crash = code

        return Fault(f"crash({code})", apply)

    @staticmethod
    def wrong_id(wrong: Any = -1) -> Fault:
        """Answer with this id."""

        def apply(reply: Reply, context: Context) -> None:
            if isinstance(reply.message, dict):
                reply.message = {**reply.message, "id": wrong}

        return Fault(f"wrong_id({wrong!r})", apply)

    @staticmethod
    def duplicate(copies: int = 2) -> Fault:
        """Answer more than once; over HTTP as events of one stream. No effect in process."""

        def apply(reply: Reply, context: Context) -> None:
            reply.copies = copies

        return Fault(f"duplicate({copies})", apply)

    @staticmethod
    def error(code: int, message: str = "Scripted error", data: Any = None, *, status: int | None = None) -> Fault:
        """Answer with this JSON-RPC error, without running the handler."""
        failure = RpcError(code, message, data, status=status)

        def apply(reply: Reply, context: Context) -> None:
            refused = reply.message if isinstance(reply.message, dict) else {}
            reply.message = error_response(refused, failure)
            reply.status = failure.status if reply.maps_codes else failure.legacy_status

        return Fault(f"error({code})", apply, skips_handler=True)
