"""The methods of the revisions before 2026-07-28: what `METHODS` has, fitted to the revision, and what only they have.

Functions of the session and the call that give a result. Refusals are raised as `RpcError`.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from snodo_client.testing.call import LOG_LEVELS, Call, needed_for, pause
from snodo_client.testing.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    URL_NEEDED,
    NeedInput,
    ResourceNotFound,
    RpcError,
)
from snodo_client.testing.methods import METHODS, find_resource, served
from snodo_client.testing.revisions import LEGACY, asked, capabilities, declarable, is_modern, result
from snodo_client.testing.rounds import subject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from snodo_client.testing.call import Context
    from snodo_client.testing.session import Session

_MODERN_ONLY = ("server/discover", "subscriptions/listen")
_PAUSE = 0.02  # seconds before a handler that asked for nothing runs again


class LegacyCall(Call):
    """A request of an older revision: what was declared once holds for all, and the client is asked while it waits."""

    _undeclared = INVALID_PARAMS

    def __init__(self, message: dict[str, Any], context: Context, session: Session) -> None:
        super().__init__(message, context)
        self.session = session

    @property
    def capabilities(self) -> dict[str, Any]:
        return self.session.client_capabilities

    @property
    def version(self) -> str:
        return self.session.version or ""

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        super().progress(progress, total, message if self.version >= "2025-03-26" else None)

    def ask_all(self, requests: Mapping[str, dict[str, Any]], *, state: bool | str = True) -> dict[str, dict[str, Any]]:
        """The answers to several requests, which are asked one after the other."""
        for key, request in requests.items():
            if key not in self.answers:
                self.answers[key] = self.ask_client(request)
        return {key: self.answers[key] for key in requests}

    def visit(self, key: str, message: str, address: str) -> dict[str, Any]:
        self.require(elicitation={"url": {}})
        visits = self.session.server.visits
        request = json.dumps([key, *subject(self)], sort_keys=True)
        if request not in visits:
            visits[request] = os.urandom(8).hex()
            page = {"mode": "url", "elicitationId": visits[request], "url": address, "message": message}
            raise RpcError(URL_NEEDED, "A page has to be opened first", {"elicitations": [page]})
        return {"action": "accept"}

    def ask_client(self, request: dict[str, Any]) -> dict[str, Any]:
        """The client's answer to a request, which must be one that it can be asked."""
        name, parts = needed_for(request)
        self.require(**{name: parts})
        if not self.session.can_ask:
            raise RpcError(INTERNAL_ERROR, "The client cannot be asked on this connection")
        params = asked(request, self.version, os.urandom(8).hex())
        return self.session.request(request["method"], params, context=self.context)

    def _level(self) -> str | None:
        return self.session.log_level or LOG_LEVELS[0]

    def _declared(self, name: str, parts: dict[str, Any]) -> bool:
        return declarable(self.version, name, parts) and super()._declared(name, parts)


def check(session: Session, message: dict[str, Any]) -> None:
    """Refuse a request that may not be sent at this moment of the session."""
    method = message["method"]
    if method in ("initialize", "ping"):
        return
    if method in _MODERN_ONLY:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
    if session.version is None:
        raise RpcError(INVALID_REQUEST, "Server not initialized", status=400)
    if is_modern(message):
        raise RpcError(INVALID_REQUEST, f"This connection speaks {session.version}", status=400)
    if not session.initialized:
        raise RpcError(INVALID_REQUEST, "notifications/initialized was not received", status=400)


def result_of(session: Session, call: LegacyCall) -> dict[str, Any]:
    """The result of a request that passed the check; its handler runs again while it asks for input."""
    method, server = call.method, session.server
    handler = _METHODS.get(method)
    offered = session.tasks.served if method.startswith("tasks/") else served(method, server.capabilities)
    if not offered or not (handler or method in METHODS):
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
    if handler is not None:
        return handler(session, call)
    if method == "tools/call" and session.tasks.augments(call):
        return session.tasks.create(call)
    return completed(session, call)


def completed(session: Session, call: LegacyCall) -> dict[str, Any]:
    """The result of a method that the revisions share."""
    while True:
        try:
            found = result(METHODS[call.method](session.server, call), call.version)
            return session.tasks.marked(found) if call.method == "tools/list" else found
        except NeedInput as need:
            if not need.requests and not pause(call.context, _PAUSE):
                raise RpcError(INTERNAL_ERROR, "The request was cancelled") from None
            call.ask_all(need.requests)
            call.attempt += 1
        except ResourceNotFound as missing:
            raise RpcError(RESOURCE_NOT_FOUND, missing.message, missing.data) from None


def _initialize(session: Session, call: LegacyCall) -> dict[str, Any]:
    server, params = session.server, call.params
    wanted, declared, info = (params.get(name) for name in ("protocolVersion", "capabilities", "clientInfo"))
    if not isinstance(wanted, str) or not isinstance(declared, dict) or not isinstance(info, dict):
        raise RpcError(INVALID_PARAMS, "initialize needs protocolVersion, capabilities and clientInfo")
    if not all(isinstance(value, dict) for value in declared.values()):
        raise RpcError(INVALID_PARAMS, "Capabilities are objects")
    if not (isinstance(info.get("name"), str) and isinstance(info.get("version"), str)):
        raise RpcError(INVALID_PARAMS, "clientInfo needs a name and a version")
    offered = [version for version in LEGACY if version in server.versions]
    if not offered:
        data = {"supported": server.versions, "requested": wanted}
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    if session.version is not None:
        raise RpcError(INVALID_REQUEST, "Already initialized")
    version = wanted if wanted in offered else offered[0]
    session.open(version, declared, info)
    told: dict[str, Any] = {
        "protocolVersion": version,
        "capabilities": capabilities(server.capabilities, version, tasks=session.tasks.served),
        "serverInfo": server.info,
    }
    return told if server.instructions is None else {**told, "instructions": server.instructions}


def _set_level(session: Session, call: LegacyCall) -> dict[str, Any]:
    level = call.params.get("level")
    if level not in LOG_LEVELS:
        raise RpcError(INVALID_PARAMS, "Invalid log level")
    session.log_level = level
    return {}


def _subscribe(session: Session, call: LegacyCall) -> dict[str, Any]:
    uri = _subscribable(session, call)
    try:
        find_resource(session.server, uri)
    except ResourceNotFound as missing:
        raise RpcError(RESOURCE_NOT_FOUND, missing.message, missing.data) from None
    session.subscribed.add(uri)
    return {}


def _unsubscribe(session: Session, call: LegacyCall) -> dict[str, Any]:
    session.subscribed.discard(_subscribable(session, call))
    return {}


def _subscribable(session: Session, call: LegacyCall) -> str:
    if not session.server.capabilities["resources"].get("subscribe"):
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {call.method}")
    uri = call.params.get("uri")
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "params.uri must be a string")
    return uri


_METHODS: dict[str, Callable[[Session, LegacyCall], dict[str, Any]]] = {
    "initialize": _initialize,
    "ping": lambda session, call: {},
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "tasks/get": lambda session, call: session.tasks.get(call).told(),
    "tasks/result": lambda session, call: session.tasks.wait(call),
    "tasks/list": lambda session, call: session.tasks.list(call),
    "tasks/cancel": lambda session, call: session.tasks.cancel(call),
}
