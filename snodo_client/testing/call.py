"""`Call`: what a handler may know of, and do to, the request it serves.

One object per attempt, of a kind that `modern.py` or `legacy.py` makes. It reaches the caller only through the context
of the connection (`Context`), which is also what `Client.direct` gives to any callable.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from snodo_client.testing import inputs
from snodo_client.testing.errors import MISSING_CAPABILITY, NeedInput, RpcError

if TYPE_CHECKING:
    from collections.abc import Mapping

META = "io.modelcontextprotocol/"
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_TICK = 0.02  # seconds between looks at `cancelled`


class Context(Protocol):
    """The connection's side of one request. One with a `keep_alive()` has it called while a handler waits."""

    @property
    def auth(self) -> Any:
        """Who is calling, as the connection knows it, or None."""

    @property
    def cancelled(self) -> bool:
        """True once the caller has given up."""

    def send(self, message: dict[str, Any], /) -> object:
        """Send a notification to the caller while the request runs, or to one of an older revision a request."""


def pause(context: Context, seconds: float) -> bool:
    """Sleep, but not longer than the caller waits; False when it gave up."""
    end = time.monotonic() + seconds
    while not context.cancelled:
        left = end - time.monotonic()
        if left <= 0:
            return True
        keep_alive(context)
        time.sleep(min(left, _TICK))
    return False


def keep_alive(context: Context) -> None:
    """Give the connection an occasion to say that it is still there."""
    say = getattr(context, "keep_alive", None)
    if say is not None:
        say()


class Call:
    """The request being served. Annotate a parameter of a handler with this class to receive it.

    `params` are the request's own; `answers` maps input keys to what the caller answered in this and earlier attempts;
    `attempt` counts from 1. `auth` is who calls: the principal given to `Client.direct`, or over HTTP the value of the
    `Authorization` header.
    """

    _undeclared = MISSING_CAPABILITY  # the code that `require` refuses with

    def __init__(self, message: dict[str, Any], context: Context) -> None:
        self.id: int | str = message["id"]
        self.method: str = message["method"]
        self.params: dict[str, Any] = message.get("params", {})
        self.meta: dict[str, Any] = self.params.get("_meta", {})
        self.auth = context.auth
        self.answers: dict[str, Any] = {}
        self.attempt = 1
        self.caching: tuple[Any, Any] | None = None
        self.context = context

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities the client declared, with this request or when it connected."""
        declared: dict[str, Any] = self.meta.get(f"{META}clientCapabilities", {})
        return declared

    @property
    def cancelled(self) -> bool:
        """True once the caller has given up: a handler should stop."""
        return self.context.cancelled

    def sleep(self, seconds: float) -> bool:
        """Sleep until the time is over (True) or the caller gives up (False)."""
        return pause(self.context, seconds)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send any notification to the caller."""
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self.context.send(message)

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the request carried a progress token (spec: basic/patterns/progress)."""
        if "progressToken" not in self.meta:
            return
        params: dict[str, Any] = {"progressToken": self.meta["progressToken"], "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        self.notify("notifications/progress", params)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send a log message, if the client wants this level (spec: server/utilities/logging).

        It says so with each request, and before 2026-07-28 with `logging/setLevel`; until then it gets all of them.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"no such log level: {level}")
        wanted = self._level()
        if wanted is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(wanted):
            return
        params = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        self.notify("notifications/message", params)

    def ask(self, key: str, request: dict[str, Any], *, state: bool | str = True) -> dict[str, Any]:
        """The caller's answer to `request`, which `inputs` makes, or the end of this attempt.

        Spec: basic/patterns/mrtr. The handler runs again from its start when the client retries; answers of earlier
        attempts are still there, unless `state=False` (see `NeedInput`). A client of an older revision is sent the
        request and the handler waits: for at most 60 seconds (TimeoutError), and `ClientError` is raised when it
        answers with an error.
        """
        return self.ask_all({key: request}, state=state)[key]

    def ask_all(self, requests: Mapping[str, dict[str, Any]], *, state: bool | str = True) -> dict[str, dict[str, Any]]:
        """The answers to several requests, asked for together."""
        missing = {key: request for key, request in requests.items() if key not in self.answers}
        if missing:
            raise NeedInput(missing, state=state)
        return {key: self.answers[key] for key in requests}

    def visit(self, key: str, message: str, address: str) -> dict[str, Any]:
        """Have a person open a page before the request can be served; the answer, as to `ask`.

        A client of 2025-11-25 is refused with -32042 and told of the page; one that sends the same request again has
        been there. Those of still older revisions cannot be asked (spec: 2025-11-25, client/elicitation).
        """
        return self.ask(key, inputs.url(message, address))

    def cache(self, ttl_ms: Any, cache_scope: Any = "private") -> None:
        """The caching hints of this result, where it is one that can be cached; see `Server.cache`."""
        self.caching = ttl_ms, cache_scope

    def require(self, **capabilities: dict[str, Any]) -> None:
        """Refuse the request unless the client declared these, e.g. `require(elicitation={"url": {}})`.

        With -32021, and before 2026-07-28 with -32602.
        """
        missing = {name: parts for name, parts in capabilities.items() if not self._declared(name, parts)}
        if missing:
            text = f"This needs a client with: {', '.join(missing)}"
            raise RpcError(self._undeclared, text, {"requiredCapabilities": missing})

    def _level(self) -> str | None:
        """The lowest level that the client wants to hear, if any."""
        level: str | None = self.meta.get(f"{META}logLevel")
        return level

    def _declared(self, name: str, parts: dict[str, Any]) -> bool:
        declared = self.capabilities.get(name)
        if not isinstance(declared, dict):
            return False
        if name == "elicitation" and not declared:
            declared = {"form": {}}  # an empty object means forms alone (spec: client/elicitation)
        return all(part in declared for part in parts)


def needed_for(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The client capability, and the parts of it, that an input request needs."""
    method, params = request.get("method"), request.get("params", {})
    if method == "elicitation/create":
        return "elicitation", {params.get("mode", "form"): {}}
    if method == "sampling/createMessage":
        return "sampling", {"tools": {}} if "tools" in params else {}
    if method == "roots/list":
        return "roots", {}
    raise ValueError(f"not an input request: {method!r}")
