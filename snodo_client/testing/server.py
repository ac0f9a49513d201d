"""`Server`: a scriptable MCP server of every revision, for tests and demonstrations.

The path of one message through it lives here: envelope, faults, override or built-in method, reply. What is offered is
in `registry.py`; `modern.py` serves requests of the 2026-07-28 revision, and `session.py` clients of the older ones,
both with `methods.py`. The wires are modules of their own, imported when they are used.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Literal, Protocol

from snodo_client.testing.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, NoReply, RpcError
from snodo_client.testing.modern import Modern
from snodo_client.testing.received import Received
from snodo_client.testing.registry import Function, Registry
from snodo_client.testing.replies import Raw, Reply, error_response
from snodo_client.testing.revisions import LEGACY, MODERN, is_modern
from snodo_client.testing.rounds import Rounds
from snodo_client.testing.session import Session
from snodo_client.testing.subscriptions import Subscription, Subscriptions

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Collection, Mapping, Sequence

    from snodo_client.testing.call import Call, Context
    from snodo_client.testing.faults import Fault
    from snodo_client.testing.httpd import HttpServing
    from snodo_client.testing.sse import SseServing
    from snodo_client.testing.websocket import WebSocketServing

VERSIONS = (MODERN, *LEGACY)
_REMEMBERED = 10_000  # messages kept in `calls`


class Era(Protocol):
    """How requests of one kind of client are served."""

    @property
    def maps_codes(self) -> bool:
        """Whether the HTTP status of an error follows from its code."""

    def check(self, message: dict[str, Any]) -> None:
        """Refuse a request whose envelope is in order."""

    def result(self, message: dict[str, Any], context: Context) -> dict[str, Any]:
        """The result of a request that passed the check."""


class Server(Registry):
    """A scriptable MCP server. Give it to `Client.direct`, or serve it with one of the `serve_` methods.

    `versions` are the revisions it speaks, all of them by default. A client that sends `initialize` gets a `Session` of
    the newest older revision that both know; without any of those it is refused, and without 2026-07-28 the server
    knows no `server/discover`. In process the clients that initialize share one session, that of the last one.

    `page_size` is the number of entries in a page of every list; `capabilities` replaces what is otherwise told from
    what is registered; `ttl_ms` and `cache_scope` are the caching hints of every cacheable result. `tools`,
    `resources`, `templates` and `prompts` are the registered entries by name or URI and may be edited at any time.

    With `strict=True` input rounds have to be answered to the letter: -32602 where `inputResponses` has other keys than
    were asked for, which the specification would have a server put up with.

    `subscriptions` are the open `subscriptions/listen` requests (see `Subscription`), `sessions` the clients of older
    revisions; `calls` is what was received, and `seen` counts it by method. `visits` has the ids of the pages that
    clients of 2025-11-25 were told to open, by request (see `Call.visit`).
    """

    def __init__(
        self,
        name: str = "test-server",
        version: str = "1.0",
        *,
        instructions: str | None = None,
        page_size: int = 50,
        capabilities: dict[str, Any] | None = None,
        versions: Sequence[str] = VERSIONS,
        ttl_ms: int = 0,
        cache_scope: str = "private",
        strict: bool = False,
    ) -> None:
        super().__init__(capabilities)
        if page_size < 1:
            raise ValueError("page_size must be at least 1")
        self.info = {"name": name, "version": version}
        self.instructions = instructions
        self.page_size = page_size
        self.versions = list(versions)
        self.strict = strict
        self.subscriptions = Subscriptions()
        self.seen: Counter[str] = Counter()
        self.visits: dict[str, str] = {}
        self._caching: dict[str | None, tuple[Any, Any]] = {None: (ttl_ms, cache_scope)}
        self._overrides: dict[str, tuple[Callable[[dict[str, Any], Context], Any], bool]] = {}
        self._faults: dict[str, list[_Scripted]] = {}
        self._lock = threading.Lock()
        self._calls: deque[Received] = deque(maxlen=_REMEMBERED)
        self._rounds = Rounds()
        self._sessions: list[Session] = []
        self._direct: Session | None = None

    @property
    def modern_versions(self) -> list[str]:
        """The revisions that need no handshake, as `server/discover` lists them."""
        return [version for version in self.versions if version not in LEGACY]

    @property
    def sessions(self) -> list[Session]:
        """The clients of older revisions that are connected now, oldest first."""
        with self._lock:
            return list(self._sessions)

    # Scripting

    def on(self, method: str, *, check: bool = True) -> Callable[[Function], Function]:
        """Answer a method with `function(message, context)` instead of the built-in handler.

        It gives a result, sent exactly as it is; a whole response (a dictionary with `jsonrpc`); or `Raw` bytes. With
        `check=False` it also sees requests that the server would refuse: other versions, no `_meta`, wrong headers, no
        handshake.
        """

        def register(function: Function) -> Function:
            self._overrides[method] = function, check
            return function

        return register

    def fault(self, method: str, *faults: Fault, times: int | None = None) -> None:
        """Spoil the next `times` replies to `method` (`None`: all) with these faults together, in this order."""
        with self._lock:
            self._faults.setdefault(method, []).append(_Scripted(faults, times))

    def unchecked(self, method: Any) -> bool:
        """Whether a function that was given `check=False` answers the method."""
        return isinstance(method, str) and not self._overrides.get(method, (None, True))[1]

    def heal(self) -> None:
        """Forget every fault."""
        with self._lock:
            self._faults.clear()

    def cache(self, method: str, ttl_ms: Any, cache_scope: Any = "private") -> None:
        """The caching hints of one method's results; a hint that is None is left out.

        Spec: server/utilities/caching. For a single result there is `Call.cache`. Nothing is checked, so that a test
        can send anything.
        """
        self._caching[method] = ttl_ms, cache_scope

    def caching(self, call: Call) -> dict[str, Any]:
        """The caching hints of the result of a call, as members of it."""
        hints = call.caching or self._caching.get(call.method) or self._caching[None]
        return {name: hint for name, hint in zip(("ttlMs", "cacheScope"), hints, strict=True) if hint is not None}

    def on_subscribe(self, function: Callable[[Subscription], object]) -> Callable[[Subscription], object]:
        """Have a function open every subscription, in place of `subscription.acknowledge()`.

            @server.on_subscribe
            def open(subscription: Subscription) -> None:
                subscription.notify("notifications/tools/list_changed")  # too early
                subscription.acknowledge({"toolsListChanged": True})     # whatever was asked for

        One that does not acknowledge leaves it waiting; one that raises `RpcError` refuses it.
        """
        self.subscriptions.opening = function
        return function

    def emit(
        self, method: str, params: dict[str, Any] | None = None, *, times: int = 1, rate: float | None = None
    ) -> int:
        """Send a change notification to the subscriptions and sessions that want it; gives how many were sent.

        `times` of them one after the other, or `rate` a second. A client that does not keep up loses some, which are
        not counted then.
        """
        told, begun = 0, time.monotonic()
        for number in range(times):
            if rate is not None:
                time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            told += self.subscriptions.emit(method, params or {})
            told += sum(session.changed(method, params or {}) for session in self.sessions)
        return told

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
        sessions: bool = True,
        offers: Collection[str] = ("GET", "DELETE"),
        polling: float | None = None,
        keep_alive: float | None = None,
    ) -> HttpServing:
        """Serve Streamable HTTP in the background, at the `url` of the result, until that is closed or its `with` ends.

        `sse="auto"` answers with an event stream when a handler sends notifications and with JSON otherwise; `True`
        always with a stream; `False` with JSON, notifications being lost (subscriptions stream all the same). In the
        2026-07-28 revision, `keep_alive` is the number of seconds after which a stream that has nothing to say carries
        a comment: that of a subscription, and of a handler in `Call.sleep` or `Gate.hold`.

        For clients of older revisions: `sessions=False` keeps nothing between their requests; `offers` are the methods
        taken beside POST, GET for streams of what belongs to no request and DELETE to end a session; with `polling`
        those of 2025-11-25 get a stream for each request that is closed at once, and come back for the answer after so
        many seconds.
        """
        from snodo_client.testing.httpd import HttpServing

        return HttpServing(
            self,
            host,
            port,
            path,
            sse=sse,
            ssl_context=ssl_context,
            max_body_bytes=max_body_bytes,
            sessions=sessions,
            offers=offers,
            polling=polling,
            keep_alive=keep_alive,
        )

    def serve_sse(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        path: str = "/sse",
        message_path: str = "/messages",
        *,
        ssl_context: ssl.SSLContext | None = None,
        max_body_bytes: int = 64 * 1024 * 1024,
    ) -> SseServing:
        """Serve HTTP+SSE, older revisions only, in the background, as `serve_http` does.

        `message_path` is told to clients as it is, with the session in the query: it may be a whole URL, or relative.
        """
        from snodo_client.testing.sse import SseServing

        return SseServing(
            self,
            host,
            port,
            path,
            message_path=message_path,
            ssl_context=ssl_context,
            max_body_bytes=max_body_bytes,
        )

    def serve_websocket(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        path: str = "/",
        *,
        ssl_context: ssl.SSLContext | None = None,
        max_message_bytes: int = 64 * 1024 * 1024,
    ) -> WebSocketServing:
        """Serve WebSocket, older revisions only, in the background, as `serve_http` does.

        ImportError without the extra `websocket`.
        """
        from snodo_client.testing.websocket import WebSocketServing

        return WebSocketServing(self, host, port, path, ssl_context=ssl_context, max_message_bytes=max_message_bytes)

    def __call__(self, message: dict[str, Any], context: Context) -> Any:
        """The response to a request, or None for a notification: the contract of `Client.direct`."""
        session = self._direct_session(message)
        reply = self.answer(message, context) if session is None else session.answer(message, context)
        if reply.dropped or reply.crash is not None:
            return None
        return reply.message if reply.raw is None else reply.raw.body

    def answer(self, message: Any, context: Context, headers: Mapping[str, Sequence[str]] | None = None) -> Reply:
        """What to reply to one decoded message that belongs to no session; `headers` when it came over HTTP."""
        return self.serve(message, context, Modern(self, self._rounds, headers), headers)

    def serve(
        self, message: Any, context: Context, era: Era, headers: Mapping[str, Sequence[str]] | None = None
    ) -> Reply:
        """What to reply to one decoded message of this era. Never raises."""
        if isinstance(message, dict):
            self.record(message, headers)
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
            reply = self._run(message, context, era)
        reply.maps_codes = era.maps_codes
        for fault in faults:
            fault.apply(reply, context)
        return reply

    def record(self, message: dict[str, Any], headers: Mapping[str, Sequence[str]] | None) -> None:
        """Keep a message for `calls`, and count it."""
        received = Received(message, headers or {})
        self._calls.append(received)
        if isinstance(received.method, str):
            with self._lock:
                self.seen[received.method] += 1

    def opened(self, session: Session) -> None:
        """A client has initialized its session."""
        with self._lock:
            self._sessions.append(session)

    def closed(self, session: Session) -> None:
        """The connection of a session has gone, if it ever was one."""
        with self._lock:
            if session in self._sessions:
                self._sessions.remove(session)

    def _direct_session(self, message: Any) -> Session | None:
        """The session that a message in process belongs to, if any."""
        opens = isinstance(message, dict) and message.get("method") == "initialize" and not is_modern(message)
        with self._lock:
            former = self._direct
            if self.modern_versions and not opens and (former is None or is_modern(message)):
                return None
            session = Session(self, None) if former is None or opens else former
            self._direct = session
        if former is not None and session is not former:
            former.end()
        return session

    def _run(self, message: dict[str, Any], context: Context, era: Era) -> Reply:
        override, check = self._overrides.get(message["method"], (None, True))
        try:
            if check:
                era.check(message)
            if override is not None:
                return _scripted_reply(message, override(message, context), era)
            return Reply({"jsonrpc": "2.0", "id": message["id"], "result": era.result(message, context)})
        except RpcError as error:
            return Reply.refusal(message, error, maps_codes=era.maps_codes)
        except NoReply as silence:
            return Reply.none(broken=silence.broken)
        except Exception as bug:
            from snodo_client.log import logger

            logger("testing").exception("the handler of %s failed", message["method"])
            return Reply(error_response(message, RpcError(INTERNAL_ERROR, f"{type(bug).__name__}: {bug}")))

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


def _scripted_reply(message: dict[str, Any], value: Any, era: Era) -> Reply:
    if isinstance(value, Raw):
        return Reply({"id": message["id"]}, raw=value)
    if isinstance(value, dict) and "jsonrpc" in value:
        error = value.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        return Reply(value, RpcError(code, "").status if era.maps_codes and isinstance(code, int) else 200)
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
