"""What `Client.connect` takes for a server, and what makes the transport to it. Nothing is opened here; the module of a
transport is imported when it is wanted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .transports import loading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Literal

    from .transports.base import Transport

    StdioTarget = tuple[Literal["stdio"], str] | tuple[Literal["stdio"], str, Sequence[str]]
    HttpTarget = str | tuple[Literal["http"], str]
    SseTarget = tuple[Literal["sse"], str]
    WebSocketTarget = tuple[Literal["websocket"], str]
    CustomTarget = Transport | Callable[[], Transport]
    # One whose kind a type checker cannot see, such as a variable.
    AnyTarget = tuple[str, str] | tuple[str, str, Sequence[str]]

_TARGETS = (
    'a target is ("stdio", command, [arguments]), ("http", url), a URL, ("sse", url), ("websocket", url), or a '
    "transport or what makes one; a server in this process is for Client.direct()"
)


def maker(target: Any) -> tuple[str, Callable[[Mapping[str, Any]], Transport]]:
    """The kind of connection a target asks for, and what makes its transport from that connection's options."""
    if isinstance(target, str):
        if not target.lower().startswith(("http://", "https://")):
            raise ValueError(f"a text that is no http(s) URL is no target: {_TARGETS}")
        target = ("http", target)
    if isinstance(target, tuple):
        match target:
            case ("stdio", command):
                return "stdio", lambda own: _loaded("stdio", "StdioTransport")(command, (), **own)
            case ("stdio", command, arguments):
                return "stdio", lambda own: _loaded("stdio", "StdioTransport")(command, arguments, **own)
            case ("http", url):
                return "http", lambda own: _loaded("http", "HttpTransport")(url, **own)
            case ("sse", url):
                return "sse", lambda own: _loaded("sse", "SseTransport")(url, **own)
            case ("websocket", url):
                return "websocket", lambda own: _loaded("websocket", "WebSocketTransport")(url, **own)
        raise ValueError(_TARGETS)
    if hasattr(target, "exchange") and not isinstance(target, type):
        return "custom", lambda _: target
    if callable(target):
        return "custom", lambda _: _checked(target())
    raise TypeError(f"a {type(target).__name__} is no target: {_TARGETS}")


def _loaded(module: str, name: str) -> Any:
    """A transport class; each is imported when it is wanted."""
    return getattr(loading.load(module), name)


def _checked(transport: Any) -> Transport:
    if not hasattr(transport, "exchange"):
        raise TypeError(f"the callable made a {type(transport).__name__}, which is no transport")
    return transport  # type: ignore[no-any-return]
