"""Requests of the 2026-07-28 revision: each carries its version and capabilities, and a round of input ends it.

Spec: basic/index (`_meta`), basic/patterns/mrtr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from snodo_client.testing.call import LOG_LEVELS, META, Call, needed_for
from snodo_client.testing.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    NeedInput,
    RpcError,
)
from snodo_client.testing.headers import HeaderProblem
from snodo_client.testing.headers import check as check_headers
from snodo_client.testing.methods import METHODS, served

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from snodo_client.testing.call import Context
    from snodo_client.testing.server import Server
    from snodo_client.testing.state import Sealer

INPUT_METHODS = ("tools/call", "prompts/get", "resources/read")


class ModernCall(Call):
    """One attempt at a request, with what the earlier attempts have brought."""

    def __init__(self, message: dict[str, Any], context: Context, sealer: Sealer) -> None:
        super().__init__(message, context)
        self._sealer = sealer
        if self.method in INPUT_METHODS:
            self._open_state()

    def input_required(self, requests: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """The result that ends this attempt; checks that the client declared what the requests need."""
        if self.method not in INPUT_METHODS:
            raise TypeError(f"{self.method} cannot ask for input")
        needed: dict[str, dict[str, Any]] = {}
        for request in requests.values():
            name, parts = needed_for(request)
            needed.setdefault(name, {}).update(parts)
        self.require(**needed)
        result: dict[str, Any] = {"resultType": "input_required"}
        if requests:
            result["inputRequests"] = dict(requests)
        result["requestState"] = self._sealer.seal(self.answers, self.attempt, self._subject())
        return result

    def _open_state(self) -> None:
        state, responses = self.params.get("requestState"), self.params.get("inputResponses", {})
        if state is not None:
            try:
                self.answers, attempts = self._sealer.open(state, self._subject())
            except (ValueError, AttributeError) as problem:
                raise RpcError(INVALID_PARAMS, f"Invalid requestState: {problem}") from None
            self.attempt = attempts + 1
        if not isinstance(responses, dict) or not all(isinstance(answer, dict) for answer in responses.values()):
            raise RpcError(INVALID_PARAMS, "inputResponses must map keys to objects")
        self.answers.update(responses)

    def _subject(self) -> list[Any]:
        params = {
            name: value
            for name, value in self.params.items()
            if name not in ("_meta", "requestState", "inputResponses")
        }
        return [self.method, params, None if self.auth is None else repr(self.auth)]


class Modern:
    """How a server serves a request of this revision: see `Server.serve`. `headers` when it came over HTTP."""

    __slots__ = ("_headers", "_sealer", "_server")

    maps_codes = True

    def __init__(self, server: Server, sealer: Sealer, headers: Mapping[str, Sequence[str]] | None) -> None:
        self._server = server
        self._sealer = sealer
        self._headers = headers

    def check(self, message: dict[str, Any]) -> None:
        """Refuse a request whose headers or metadata are not in order."""
        server = self._server
        if not server.modern_versions:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {message['method']}")
        params = message.get("params", {})
        meta = params.get("_meta", {})
        version = meta.get(f"{META}protocolVersion")
        if self._headers is not None:
            tool = server.tools.get(params["name"]) if isinstance(params.get("name"), str) else None
            try:
                check_headers(message, self._headers, tool.definition["inputSchema"] if tool else None)
            except HeaderProblem as problem:
                raise RpcError(HEADER_MISMATCH, f"Header mismatch: {problem}") from None
        if not isinstance(version, str):
            raise RpcError(INVALID_PARAMS, f"_meta must have {META}protocolVersion", status=400)
        if version not in server.modern_versions:
            data = {"supported": server.modern_versions, "requested": version}
            raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        capabilities = meta.get(f"{META}clientCapabilities")
        if not isinstance(capabilities, dict) or not all(isinstance(value, dict) for value in capabilities.values()):
            raise RpcError(
                INVALID_PARAMS, f"_meta must have {META}clientCapabilities, an object of objects", status=400
            )
        if meta.get(f"{META}logLevel", LOG_LEVELS[0]) not in LOG_LEVELS:
            raise RpcError(INVALID_PARAMS, "Invalid log level")

    def result(self, message: dict[str, Any], context: Context) -> dict[str, Any]:
        """The result of a request that passed the check."""
        method, server = message["method"], self._server
        handler = METHODS.get(method)
        if handler is None or not served(method, server.capabilities):
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
        call = ModernCall(message, context, self._sealer)
        try:
            result = handler(server, call)
        except NeedInput as need:
            result = call.input_required(need.requests)
        meta = {f"{META}serverInfo": server.info, **result.get("_meta", {})}
        return {"resultType": "complete", **result, "_meta": meta}
