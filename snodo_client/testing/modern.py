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
    from snodo_client.testing.rounds import Rounds
    from snodo_client.testing.server import Server


class ModernCall(Call):
    """One attempt at a request, with what the earlier attempts have brought."""

    def input_required(self, need: NeedInput, rounds: Rounds) -> dict[str, Any]:
        """The result that ends this attempt; checks that the client declared what the requests need."""
        needed: dict[str, dict[str, Any]] = {}
        for request in need.requests.values():
            name, parts = needed_for(request)
            needed.setdefault(name, {}).update(parts)
        self.require(**needed)
        return rounds.required(self, need)


class Modern:
    """How a server serves a request of this revision: see `Server.serve`. `headers` when it came over HTTP."""

    __slots__ = ("_headers", "_rounds", "_server")

    maps_codes = True

    def __init__(self, server: Server, rounds: Rounds, headers: Mapping[str, Sequence[str]] | None) -> None:
        self._server = server
        self._rounds = rounds
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
        call = ModernCall(message, context)
        self._rounds.begin(call, strict=server.strict)
        try:
            result = handler(server, call)
        except NeedInput as need:
            result = call.input_required(need, self._rounds)
        meta = {f"{META}serverInfo": server.info, **result.get("_meta", {})}
        return {"resultType": "complete", **result, "_meta": meta}
