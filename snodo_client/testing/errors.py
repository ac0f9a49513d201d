"""What a handler of the scriptable server raises: a protocol error, a failed tool, or a request for the caller's input.

Only exceptions live here; how they become messages is decided in `server.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
URL_NEEDED = -32042  # of 2025-11-25
RESOURCE_NOT_FOUND = -32002  # of the revisions before 2026-07-28

_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
}


class RpcError(Exception):
    """Answer the request with this JSON-RPC error.

    `status` is the HTTP status it travels with; by default the one the specification names for the code, else 200. To
    clients of older revisions it is 200 unless it was given. Spec: basic/index (error codes),
    basic/transports/streamable-http.
    """

    def __init__(self, code: int, message: str, data: Any = None, *, status: int | None = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data
        self.status = _STATUS.get(code, 200) if status is None else status
        self.legacy_status = 200 if status is None else status

    def body(self) -> dict[str, Any]:
        """The `error` member of the response."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return error


class ToolError(Exception):
    """The tool failed: its result has `isError: true` and this text, or these content blocks (spec: server/tools)."""

    def __init__(self, *content: str | dict[str, Any]) -> None:
        super().__init__(*content)
        self.content = content


class ResourceNotFound(RpcError):
    """There is no such resource: -32602, and -32002 before 2026-07-28 (spec: server/resources)."""

    def __init__(self, uri: str) -> None:
        super().__init__(INVALID_PARAMS, "Resource not found", {"uri": uri})


class ClientError(ToolError):
    """The client answered a request of the server with an error; a tool that does not catch it has failed."""

    def __init__(self, error: Any) -> None:
        error = error if isinstance(error, dict) else {}
        self.code, self.message, self.data = error.get("code"), error.get("message"), error.get("data")
        super().__init__(f"The client refused: {self.code} {self.message}")


class NeedInput(Exception):
    """End this attempt with `input_required`; `Call.ask` raises it for you in the 2026-07-28 revision.

    A client of an older revision is asked at once instead, and then the handler runs again.

    `requests` maps keys of your choice to `{"method": ..., "params": ...}`, as `inputs` makes them. An empty mapping
    sends a `requestState` alone, which tells the client to try again. `state=True` keeps the answers so far in a sealed
    state; a string is sent as it is, and must come back so; with `state=False` there is none, and the next attempt has
    no answers but its own. Spec: basic/patterns/mrtr.
    """

    def __init__(self, requests: Mapping[str, dict[str, Any]], *, state: bool | str = True) -> None:
        if state is False and not requests:
            raise ValueError("an input round has requests, a state, or both")
        super().__init__(*requests)
        self.requests = dict(requests)
        self.state = state


class NoReply(Exception):
    """Never answer the request; `broken` ends its connection, over stdio the process, without a word."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        self.broken = broken
