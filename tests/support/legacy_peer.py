"""A client of the revisions before 2026-07-28 that speaks to a `Session` of the test kit, without a wire.

Every message of the server is held to the official schema of the version agreed on.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from threading import Thread
from typing import Any

import jsonschema

from snodo_client.testing import Server, Session
from support.mcp_schema import NOTIFICATIONS, RESULTS, SCHEMA
from support.waiting import until

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_RESULTS = {
    **RESULTS,
    "initialize": "InitializeResult",
    "tasks/get": "GetTaskResult",
    "tasks/cancel": "CancelTaskResult",
    "tasks/list": "ListTasksResult",
    "tasks/result": "CallToolResult",
}
_NOTIFICATIONS = {
    **NOTIFICATIONS,
    "notifications/cancelled": "CancelledNotification",
    "notifications/tasks/status": "TaskStatusNotification",
    "notifications/elicitation/complete": "ElicitationCompleteNotification",
}
_REQUESTS = {
    "ping": "PingRequest",
    "roots/list": "ListRootsRequest",
    "sampling/createMessage": "CreateMessageRequest",
    "elicitation/create": "ElicitRequest",
}


@functools.cache
def _validator(version: str, definition: str) -> Any:
    schema = json.loads((SCHEMA.parent / f"{version}.json").read_text())
    where = "$defs" if "$defs" in schema else "definitions"
    kind = jsonschema.validators.validator_for(schema)
    return kind({where: schema[where], "$ref": f"#/{where}/{definition}"})


def check_from_server(message: Any, version: str, method: str = "") -> Any:
    """Fail unless a server may send this to a client of the version, in answer to `method` if it is one."""
    if isinstance(message, list):
        assert version == "2025-03-26"
        for item in message:
            check_from_server(item, version, method)
    elif "method" in message:
        definition = (_REQUESTS if "id" in message else _NOTIFICATIONS)[message["method"]]
        _validator(version, "JSONRPCRequest" if "id" in message else "JSONRPCNotification").validate(message)
        _validator(version, definition).validate(message)
    elif "error" in message:
        # Before 2025-11-25 the schemas want an id in every error, which a message without a readable id cannot have.
        definition = "JSONRPCErrorResponse" if version == "2025-11-25" else "JSONRPCError"
        _validator(version, definition).validate({"id": 0, **message})
    else:
        definition = "JSONRPCResultResponse" if version == "2025-11-25" else "JSONRPCResponse"
        _validator(version, definition).validate(message)
        created = method == "tools/call" and "task" in message["result"]
        wanted = "CreateTaskResult" if created else _RESULTS.get(method, "EmptyResult")
        _validator(version, wanted).validate(message["result"])
        assert message["result"].keys().isdisjoint({"resultType", "ttlMs", "cacheScope"})
    return message


class LegacyPeer:
    """One client. `handlers` answer requests of the server: functions of the params that give a result, or an Exception
    with `(code, message)`; without a handler a request is left open, in `asked`. `received` are the notifications.
    """

    auth: Any = None
    cancelled = False

    def __init__(
        self,
        server: Server,
        version: str = "2025-11-25",
        capabilities: dict[str, Any] | None = None,
        *,
        handshake: bool = True,
        **handlers: Callable[[dict[str, Any]], Any],
    ) -> None:
        self.version = version
        self.capabilities = capabilities or {}
        self.handlers = {name.replace("_", "/"): handler for name, handler in handlers.items()}
        self.received: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.session = Session(server, self.send, modern=True)
        self._ids = itertools.count(1)
        if handshake:
            self.told = self.initialize()
            self.notify("notifications/initialized")

    def send(self, message: dict[str, Any]) -> bool:
        """What the server calls, with what belongs to a request and with what does not."""
        check_from_server(message, self.session.version or self.version)
        if "id" not in message:
            self.received.append(message)
            return True
        self.asked.append(message)
        handler = self.handlers.get(message["method"])
        if handler is not None:
            self.reply(message, handler(message.get("params", {})))
        return True

    def reply(self, request: dict[str, Any], value: Any) -> None:
        """Answer a request of the server with a result, or with an error for an exception `(code, message)`."""
        member = (
            {"error": {"code": value.args[0], "message": value.args[1]}}
            if isinstance(value, Exception)
            else {"result": value}
        )
        self.session.answer({"jsonrpc": "2.0", "id": request["id"], **member}, self)

    def message(self, method: str, params: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        """A request with its own id; `meta` are members of its `_meta`."""
        body = {**(params or {}), **({"_meta": meta} if meta else {})}
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": body}

    def exchange(self, message: Any) -> Any:
        """The response to a whole message, None when there is none."""
        response = self.session.answer(message, self).message
        method = message.get("method", "") if isinstance(message, dict) else ""
        return None if response is None else check_from_server(response, self.session.version or self.version, method)

    def result(self, method: str, params: dict[str, Any] | None = None, **meta: Any) -> Any:
        message = self.message(method, params, **meta)
        response = self.exchange(message)
        assert response["id"] == message["id"]
        assert "result" in response, response
        return response["result"]

    def error(self, method: str, params: dict[str, Any] | None = None) -> Any:
        return self.exchange(self.message(method, params))["error"]

    def call(self, tool: str, arguments: dict[str, Any] | None = None, **members: Any) -> Any:
        return self.result("tools/call", {"name": tool, "arguments": arguments or {}, **members})

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        assert self.exchange({"jsonrpc": "2.0", "method": method, "params": params or {}}) is None

    def initialize(self) -> Any:
        info = {"name": "tests", "version": "1"}
        params = {"protocolVersion": self.version, "capabilities": self.capabilities, "clientInfo": info}
        return self.result("initialize", params)

    def start(self, message: dict[str, Any]) -> Started:
        """Send a request that may take long."""
        return Started(self, message)

    def heard(self, method: str) -> list[dict[str, Any]]:
        """The params of the notifications of this method."""
        return [message.get("params", {}) for message in list(self.received) if message["method"] == method]


class Started:
    """A request that runs on a thread of its own."""

    def __init__(self, peer: LegacyPeer, message: dict[str, Any]) -> None:
        self.message = message
        self._responses: list[Any] = []
        accepted = peer.session.accept(message, peer)
        finish = lambda reply: self._responses.append(reply.message)  # noqa: E731
        self._thread = Thread(target=accepted.deliver, args=(finish,), daemon=True)
        self._thread.start()
        self._peer = peer

    @property
    def running(self) -> bool:
        return not self._responses

    def response(self) -> Any:
        """The response, None when it was never sent."""
        until(lambda: self._responses)
        response = self._responses[0]
        if response is not None:
            check_from_server(response, self._peer.session.version or "", self.message["method"])
        return response
