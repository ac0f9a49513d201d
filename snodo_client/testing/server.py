"""`Server`: a scriptable MCP server of the 2026-07-28 revision, for tests and demonstrations.

The path of one message through it lives here: envelope, faults, override or built-in method, reply. What is offered is
in `registry.py`, the methods themselves are in `methods.py`; the wires are in `stdio.py` and `httpd.py` and are
imported when they are used.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

from snodo_client.testing.call import LOG_LEVELS, META, Call
from snodo_client.testing.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    NeedInput,
    RpcError,
)
from snodo_client.testing.headers import HeaderProblem
from snodo_client.testing.headers import check as check_headers
from snodo_client.testing.methods import METHODS, served
from snodo_client.testing.registry import Function, Registry
from snodo_client.testing.replies import Raw, Reply, error_response
from snodo_client.testing.state import Sealer
from snodo_client.testing.subscriptions import Listeners

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

    from snodo_client.testing.call import Context
    from snodo_client.testing.faults import Fault
    from snodo_client.testing.httpd import HttpServing

VERSION = "2026-07-28"
_REMEMBERED = 10_000  # messages kept in `calls`


class Received:
    """One message that reached the server. `headers` (HTTP only) maps lower-case names to values."""

    __slots__ = ("headers", "message")

    def __init__(self, message: dict[str, Any], headers: Mapping[str, Sequence[str]]) -> None:
        self.message = message
        self.headers = {name: ", ".join(values) for name, values in headers.items()}

    @property
    def id(self) -> Any:
        return self.message.get("id")

    @property
    def method(self) -> Any:
        return self.message.get("method")

    @property
    def params(self) -> Any:
        return self.message.get("params", {})

    def __repr__(self) -> str:
        return f"<Received {self.method} id={self.id!r}>"


class Server(Registry):
    """A scriptable MCP server. Give it to `Client.direct`, or serve it with `serve_stdio` or `serve_http`.

    `page_size` is the number of entries in a page of every list; `capabilities` replaces what is otherwise told from
    what is registered; `ttl_ms` and `cache_scope` are the caching hints of every cacheable result. `tools`,
    `resources`, `templates` and `prompts` are the registered entries by name or URI and may be edited at any time.
    """

    def __init__(
        self,
        name: str = "test-server",
        version: str = "1.0",
        *,
        instructions: str | None = None,
        page_size: int = 50,
        capabilities: dict[str, Any] | None = None,
        versions: Sequence[str] = (VERSION,),
        ttl_ms: int = 0,
        cache_scope: str = "private",
    ) -> None:
        super().__init__(capabilities)
        if page_size < 1:
            raise ValueError("page_size must be at least 1")
        self.info = {"name": name, "version": version}
        self.instructions = instructions
        self.page_size = page_size
        self.versions = list(versions)
        self.caching = {"ttlMs": ttl_ms, "cacheScope": cache_scope}
        self.listeners = Listeners()
        self._overrides: dict[str, tuple[Callable[[dict[str, Any], Context], Any], bool]] = {}
        self._faults: dict[str, list[_Scripted]] = {}
        self._lock = threading.Lock()
        self._calls: deque[Received] = deque(maxlen=_REMEMBERED)
        self._sealer = Sealer()

    # Scripting

    def on(self, method: str, *, check: bool = True) -> Callable[[Function], Function]:
        """Answer a method with `function(message, context)` instead of the built-in handler.

        It gives a result, sent exactly as it is; a whole response (a dictionary with `jsonrpc`); or `Raw` bytes. With
        `check=False` it also sees requests that the server would refuse: other versions, no `_meta`, wrong headers.
        """

        def register(function: Function) -> Function:
            self._overrides[method] = function, check
            return function

        return register

    def fault(self, method: str, *faults: Fault, times: int | None = None) -> None:
        """Spoil the next `times` replies to `method` (`None`: all) with these faults together, in this order."""
        with self._lock:
            self._faults.setdefault(method, []).append(_Scripted(faults, times))

    def heal(self) -> None:
        """Forget every fault."""
        with self._lock:
            self._faults.clear()

    def emit(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a change notification to the subscriptions that asked for it; gives their number."""
        return self.listeners.emit(method, params or {})

    @property
    def calls(self) -> list[Received]:
        """What was received, oldest first; the last 10,000 messages."""
        return list(self._calls)

    # Serving

    def serve_stdio(self) -> None:
        """Serve the standard streams until standard input ends. Handlers that print, print to standard error."""
        from snodo_client.testing.stdio import serve

        serve(self)

    def serve_http(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        path: str = "/mcp",
        *,
        sse: bool | Literal["auto"] = "auto",
        ssl_context: ssl.SSLContext | None = None,
        max_body_bytes: int = 64 * 1024 * 1024,
    ) -> HttpServing:
        """Serve Streamable HTTP in the background, at the `url` of the result, until that is closed or its `with` ends.

        `sse="auto"` answers with an event stream when a handler sends notifications and with JSON otherwise; `True`
        always with a stream; `False` with JSON, notifications being lost (subscriptions stream all the same).
        """
        from snodo_client.testing.httpd import HttpServing

        return HttpServing(self, host, port, path, sse=sse, ssl_context=ssl_context, max_body_bytes=max_body_bytes)

    def __call__(self, message: dict[str, Any], context: Context) -> Any:
        """The response to a request, or None for a notification: the contract of `Client.direct`."""
        reply = self.answer(message, context)
        if reply.dropped or reply.crash is not None:
            return None
        return reply.message if reply.raw is None else reply.raw.body

    def answer(self, message: Any, context: Context, headers: Mapping[str, Sequence[str]] | None = None) -> Reply:
        """What to reply to one decoded message; `headers` when it came over HTTP. Never raises."""
        if isinstance(message, dict):
            self._calls.append(Received(message, headers or {}))
        try:
            _check_envelope(message)
        except RpcError as error:
            readable = isinstance(message, dict) and "method" in message and _is_id(message.get("id"))
            return Reply(error_response(message if readable else {}, error), error.status)
        if "id" not in message:
            return Reply(None, 202)
        faults = self._take_faults(message["method"])
        if any(fault.skips_handler for fault in faults):
            reply = Reply({"id": message["id"]})
        else:
            reply = self._run(message, context, headers)
        for fault in faults:
            fault.apply(reply, context)
        return reply

    def _run(self, message: dict[str, Any], context: Context, headers: Mapping[str, Sequence[str]] | None) -> Reply:
        override, check = self._overrides.get(message["method"], (None, True))
        try:
            if check:
                self._check(message, headers)
            if override is not None:
                return _scripted_reply(message, override(message, context))
            return Reply({"jsonrpc": "2.0", "id": message["id"], "result": self._result(message, context)})
        except RpcError as error:
            return Reply(error_response(message, error), error.status)
        except Exception as bug:
            from snodo_client.log import logger

            logger("testing").exception("the handler of %s failed", message["method"])
            failure = RpcError(INTERNAL_ERROR, f"{type(bug).__name__}: {bug}")
            return Reply(error_response(message, failure), failure.status)

    def _check(self, message: dict[str, Any], headers: Mapping[str, Sequence[str]] | None) -> None:
        params = message.get("params", {})
        meta = params.get("_meta", {})
        version = meta.get(f"{META}protocolVersion")
        if headers is not None:
            tool = self.tools.get(params["name"]) if isinstance(params.get("name"), str) else None
            try:
                check_headers(message, headers, tool.definition["inputSchema"] if tool else None)
            except HeaderProblem as problem:
                raise RpcError(HEADER_MISMATCH, f"Header mismatch: {problem}") from None
        if not isinstance(version, str):
            raise RpcError(INVALID_PARAMS, f"_meta must have {META}protocolVersion", status=400)
        if version not in self.versions:
            data = {"supported": self.versions, "requested": version}
            raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
        capabilities = meta.get(f"{META}clientCapabilities")
        if not isinstance(capabilities, dict) or not all(isinstance(value, dict) for value in capabilities.values()):
            raise RpcError(
                INVALID_PARAMS, f"_meta must have {META}clientCapabilities, an object of objects", status=400
            )
        if meta.get(f"{META}logLevel", LOG_LEVELS[0]) not in LOG_LEVELS:
            raise RpcError(INVALID_PARAMS, "Invalid log level")

    def _result(self, message: dict[str, Any], context: Context) -> dict[str, Any]:
        method = message["method"]
        handler = METHODS.get(method)
        if handler is None or not served(method, self.capabilities):
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
        call = Call(message, context, self._sealer)
        try:
            result = handler(self, call)
        except NeedInput as need:
            result = call.input_required(need.requests)
        meta = {f"{META}serverInfo": self.info, **result.get("_meta", {})}
        return {"resultType": "complete", **result, "_meta": meta}

    def _take_faults(self, method: str) -> list[Fault]:
        if not self._faults:
            return []
        with self._lock:
            waiting = self._faults.get(method, [])
            taken = [fault for scripted in waiting for fault in scripted.faults]
            for scripted in waiting:
                scripted.left = None if scripted.left is None else scripted.left - 1
            self._faults[method] = [scripted for scripted in waiting if scripted.left is None or scripted.left > 0]
        return taken


class _Scripted:
    """Faults that belong together, and how many replies they still spoil."""

    __slots__ = ("faults", "left")

    def __init__(self, faults: Sequence[Fault], left: int | None) -> None:
        self.faults = faults
        self.left = left


def _scripted_reply(message: dict[str, Any], value: Any) -> Reply:
    if isinstance(value, Raw):
        return Reply({"id": message["id"]}, raw=value)
    if isinstance(value, dict) and "jsonrpc" in value:
        error = value.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        return Reply(value, RpcError(code, "").status if isinstance(code, int) else 200)
    return Reply({"jsonrpc": "2.0", "id": message["id"], "result": value})


def _check_envelope(message: Any) -> None:
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not isinstance(message.get("method"), str):
        raise RpcError(INVALID_REQUEST, "Not a JSON-RPC request or notification")
    if "id" in message and not _is_id(message["id"]):
        raise RpcError(INVALID_REQUEST, "A request id must be a string or an integer")
    params = message.get("params", {})
    if not isinstance(params, dict) or not isinstance(params.get("_meta", {}), dict):
        raise RpcError(INVALID_PARAMS, "params and params._meta must be objects", status=400)


def _is_id(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
