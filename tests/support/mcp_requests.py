"""Requests of the 2026-07-28 revision as plain dictionaries, and a caller that speaks to a server in process."""

from __future__ import annotations

import itertools
from typing import Any

from support.mcp_schema import check_from_server

META = "io.modelcontextprotocol/"
VERSION = "2026-07-28"
_ids = itertools.count(1)


def meta(capabilities: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """The `_meta` every request needs; `members` are added as they are."""
    return {
        f"{META}protocolVersion": VERSION,
        f"{META}clientCapabilities": capabilities or {},
        f"{META}clientInfo": {"name": "tests", "version": "1"},
        **members,
    }


def request(method: str, params: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """A request with its own id; `members` go to `_meta`, `capabilities` among them."""
    body = {"_meta": meta(**members), **(params or {})}
    return {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": body}


def tool_call(name: str, arguments: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    return request("tools/call", {"name": name, "arguments": arguments or {}}, **members)


class Caller:
    """The context of in-process requests: collects notifications, may give up, holds every message to the schema."""

    auth: Any = None

    def __init__(self) -> None:
        self.cancelled = False
        self.received: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.received.append(check_from_server(message, ""))

    def call(self, server: Any, message: dict[str, Any]) -> Any:
        """The whole response."""
        return check_from_server(server(message, self), message["method"])

    def result(self, server: Any, message: dict[str, Any]) -> Any:
        response = self.call(server, message)
        assert response["id"] == message["id"]
        return response["result"]

    def error(self, server: Any, message: dict[str, Any]) -> Any:
        return self.call(server, message)["error"]
