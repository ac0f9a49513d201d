"""A `Reply` is an answer on its way out: a JSON-RPC response or `Raw` bytes, and how the serving loop is to deliver it.

Made by `server.py`, spoilt by `faults.py`, carried out by `stdio.py` and `httpd.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from snodo_client.testing.errors import INTERNAL_ERROR, RpcError
from snodo_client.testing.wire import encode

if TYPE_CHECKING:
    from collections.abc import Mapping


class Raw:
    """Bytes to send as they are: a line over stdio, an HTTP body with this status and type, the bytes in process."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        body: bytes,
        *,
        status: int = 200,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.content_type = content_type
        self.headers = dict(headers or {})


class Reply:
    """One answer: a response `message` (None when there is nothing to say) or `raw` bytes, and how to deliver it.

    `message` is a list for a batch. `status` is the HTTP status of a message; `dropped` sends nothing (HTTP: the
    connection ends); `copies` repeats it; `drip` is the pause in seconds after each byte; `crash` is the exit code of
    the process. `maps_codes` says that the status of an error follows from its code: so it does from 2026-07-28 on.
    """

    __slots__ = ("copies", "crash", "drip", "dropped", "maps_codes", "message", "raw", "status")

    def __init__(self, message: dict[str, Any] | list[Any] | None, status: int = 200, raw: Raw | None = None) -> None:
        self.message = message
        self.status = status
        self.raw = raw
        self.dropped = False
        self.copies = 1
        self.drip = 0.0
        self.crash: int | None = None
        self.maps_codes = True

    @classmethod
    def none(cls, *, broken: bool) -> Reply:
        """No answer at all, to a request that would have one; `broken` ends the connection."""
        reply = cls(None, 202)
        reply.copies = 0
        reply.crash = 1 if broken else None
        return reply

    @classmethod
    def refusal(cls, message: Mapping[str, Any], error: RpcError, *, maps_codes: bool) -> Reply:
        """The error response to a message."""
        return cls(error_response(message, error), error.status if maps_codes else error.legacy_status)

    def payload(self) -> bytes:
        """The bytes to send; a result that is not JSON becomes an internal error."""
        if self.raw is not None:
            return self.raw.body
        try:
            return encode(self.message)
        except (TypeError, ValueError, RecursionError) as problem:
            error = RpcError(INTERNAL_ERROR, f"The result is not JSON: {problem}")
            return encode(error_response(self.message if isinstance(self.message, dict) else {}, error))


def error_response(request: Mapping[str, Any], error: RpcError) -> dict[str, Any]:
    """The error response to a request or in place of a response; without an `id` where there is none to repeat."""
    head = {"jsonrpc": "2.0", "id": request["id"]} if "id" in request else {"jsonrpc": "2.0"}
    return {**head, "error": error.body()}
