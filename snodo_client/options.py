"""The options of `Client.connect` and `Client.direct`, and of each call: which there are, where they belong, and what
they may be.

Everything is checked before any I/O. What a transport takes is checked by its constructor. What each option means is
told in `option_types`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from . import checks
from .engine.handlers import Handlers
from .engine.roots import Roots
from .protocol import agreement, versions
from .protocol.requests import Identity
from .version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .cache import Store
    from .engine.checking import Validate
    from .engine.events import OnEvent
    from .engine.handlers import Handler
    from .engine.inbound import OnListChanged, OnLog, OnNotification


_SOCKETS = ("http", "sse", "websocket")
OWNERS = {
    **dict.fromkeys(("env", "inherit_env", "cwd", "stderr", "max_line_bytes", "shutdown_timeout"), ("stdio",)),
    **dict.fromkeys(("headers", "verify", "cert", "connect_timeout", "max_response_bytes"), _SOCKETS),
    **dict.fromkeys(("proxies", "allowed_origin", "pool_size", "session"), ("http", "sse")),
    "restart": ("stdio",),
    "auth": (*_SOCKETS, "direct"),
    "inline": ("direct",),
}
COMMON = (
    "protocol",
    "client_info",
    "client_capabilities",
    "timeout",
    "probe_timeout",
    "max_pages",
    "remembered",
    "handlers",
    "wait",
    "on_log",
    "on_notification",
    "on_event",
    "on_list_changed",
    "max_input_rounds",
    "cache",
    "validate",
)


def split(options: Mapping[str, Any], connection: str) -> tuple[Options, dict[str, Any]]:
    """The common options, checked, and those of the connection: "stdio", "http", "sse", "websocket", "direct" or
    "custom". Raises TypeError for a misplaced one.
    """
    own = {}
    for name, value in options.items():
        if name in COMMON:
            continue
        if name not in OWNERS:
            raise TypeError(f"{name}= is no option of a client{_did_you_mean(name, [*COMMON, *OWNERS])}")
        if connection not in OWNERS[name]:
            raise TypeError(f"{name}= belongs to {', '.join(OWNERS[name])} connections, this one is {connection}")
        own[name] = value
    common = {name: options[name] for name in COMMON if name in options}
    extension = getattr(own.get("auth"), "extension", None)
    if isinstance(extension, str) and connection in _SOCKETS:  # it gets the credential, and is declared
        capabilities = _capabilities(common.get("client_capabilities", ()))
        declared = {extension: {}, **capabilities.get("extensions", {})}
        common["client_capabilities"] = {**capabilities, "extensions": declared}
    return Options(**common), own


def check_eras(options: Options, eras: Sequence[str], connection: str) -> None:
    """Raises ValueError when protocol= allows only what this connection never carries."""
    if not any(versions.era(version) in eras for version in options.allowed):
        raise ValueError(f"protocol={options.preference!r} cannot be spoken over a {connection} connection")


LIBRARY = {"name": "snodo_client", "version": __version__}


class Options:
    """The common options, checked."""

    __slots__ = (
        "allowed",
        "cache",
        "handlers",
        "identity",
        "max_input_rounds",
        "max_pages",
        "on_event",
        "on_list_changed",
        "on_log",
        "on_notification",
        "preference",
        "probe_timeout",
        "remembered",
        "roots",
        "timeout",
        "validate",
        "wait",
    )

    def __init__(
        self,
        protocol: str | Sequence[str] = "auto",
        client_info: Mapping[str, Any] | None = LIBRARY,
        client_capabilities: Mapping[str, Any] | Sequence[str] = (),
        timeout: float = 30.0,
        probe_timeout: float = 10.0,
        max_pages: int = 1000,
        remembered: Mapping[str, Any] | None = None,
        handlers: Mapping[str, Handler] | None = None,
        wait: bool = True,
        on_log: OnLog | None = None,
        on_notification: OnNotification | None = None,
        on_event: OnEvent | None = None,
        on_list_changed: OnListChanged | None = None,
        max_input_rounds: int = 10,
        cache: Store | bool | None = None,
        validate: Validate = "structured",
    ) -> None:
        self.preference = _protocol(protocol)
        self.allowed = versions.allowed(self.preference)
        self.roots = Roots()
        self.handlers = Handlers(handlers or {}, _capabilities(client_capabilities), self.roots)
        info = _client_info(client_info)
        self.identity = Identity(info, self.handlers.declared("modern"), self.handlers.declared("legacy"))
        self.remembered = agreement.remembered(remembered)
        self.wait = _flag(wait, "wait")
        self.timeout = checks.seconds(timeout, "timeout")
        self.probe_timeout = checks.seconds(probe_timeout, "probe_timeout")
        self.max_pages = checks.count(max_pages, "max_pages")
        self.on_log = checks.callback(on_log, "on_log")
        self.on_notification = checks.callback(on_notification, "on_notification")
        self.on_event = checks.callback(on_event, "on_event")
        self.on_list_changed = checks.callback(on_list_changed, "on_list_changed")
        self.max_input_rounds = checks.count(max_input_rounds, "max_input_rounds")
        self.cache = _store(cache)
        self.validate = checks.choice(validate, "validate", VALIDATE)
        self.identity.meta(versions.MODERN[0])  # what cannot be encoded is refused here, not in the first call
        self.identity.initialize(versions.LEGACY[0])


VALIDATE = ("structured", "off", "all")
CACHE = ("use", "refresh", "bypass")

_PLAIN = frozenset(
    ("timeout", "reset_timeout_on_progress", "max_total_timeout", "meta", "progress", "log_level", "cache")
)
_INPUTS = _PLAIN | {"input_responses", "request_state", "answer_input"}
_TOOLS = _INPUTS | {"task"}


def call_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keywords of a call, once they are known to be ones it has. Raises TypeError."""
    return _known(options, _PLAIN)


def input_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same for a call that may answer the server's request for input."""
    return _known(options, _INPUTS)


def tool_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same for a tool call."""
    return _known(options, _TOOLS)


def _known(options: Mapping[str, Any], names: frozenset[str]) -> Mapping[str, Any]:
    if not options.keys() <= names:
        name = min(options.keys() - names)
        raise TypeError(f"{name}= is no keyword of this call{_did_you_mean(name, names)}")
    if "cache" in options:
        checks.choice(options["cache"], "cache", CACHE)
    if options.get("answer_input") is not None:
        _flag(options["answer_input"], "answer_input")
    return options


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, names, 1)
    return f": did you mean {close[0]}=?" if close else ""


def _protocol(protocol: object) -> str | list[str]:
    if isinstance(protocol, str):
        return protocol
    if not isinstance(protocol, Iterable):
        raise TypeError(f"protocol must be a version or a list of versions, not {type(protocol).__name__}")
    return list(protocol)


def _store(cache: Store | bool | None) -> Store | None:
    """The store of cache=: one of its own for True."""
    if cache is None or cache is False:
        return None
    if cache is True:
        from .cache import MemoryStore

        return MemoryStore()
    if isinstance(cache, type) or not all(callable(getattr(cache, name, None)) for name in ("get", "set", "delete")):
        raise TypeError("cache must be True, or a store with the methods get, set and delete")
    return cache


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {type(value).__name__}")
    return value


def _client_info(info: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if info is None:
        return None
    info = dict(info) if isinstance(info, Mapping) else {}
    if not isinstance(info.get("name"), str) or not info["name"] or not isinstance(info.get("version"), str):
        raise ValueError('client_info must be a mapping with a "name" and a "version", both strings')
    return info


def _capabilities(capabilities: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    if isinstance(capabilities, str) or not isinstance(capabilities, Iterable):
        found = type(capabilities).__name__
        raise TypeError(f"client_capabilities must be a mapping, or a list of names such as ['roots'], not {found}")
    if not isinstance(capabilities, Mapping):
        capabilities = {_capability(name): {} for name in capabilities}
    for name, value in capabilities.items():
        if not isinstance(value, dict):
            found = type(value).__name__
            raise TypeError(f"client_capabilities[{_capability(name)!r}] must be a dict such as {{}}, not {found}")
    if "tasks" in capabilities:
        raise ValueError("client_capabilities: a server cannot begin tasks of this client, so they are not declared")
    for name, settings in capabilities.get("extensions", {}).items():
        if "/" not in _capability(name) or not isinstance(settings, dict):
            raise ValueError(f"the extension {name!r} must be a prefixed name such as 'com.example/x' with a dict")
    return dict(capabilities)


def _capability(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError("the name of a capability in client_capabilities is a non-empty string")
    return name
