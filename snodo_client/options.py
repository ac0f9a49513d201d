"""The options of `Client.connect` and `Client.direct`, and of each call: which there are, where they belong, and what
they may be.

Everything is checked before any I/O. What a transport takes is checked by its constructor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict

from . import checks
from .protocol import versions
from .protocol.requests import Identity
from .version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike
    from typing import Any

    import requests
    from requests.auth import AuthBase

    from .engine.inbound import OnLog, OnNotification
    from .outcome import Progress


class CommonOptions(TypedDict, total=False):
    """Options of every connection.

    protocol: "auto" (default), a version, or a list of versions that may be spoken.
    client_info: who asks, `{"name": ..., "version": ...}`; default this library, None to tell nothing.
    client_capabilities: what the server may ask for: a mapping, or names such as `["elicitation"]`.
    timeout: seconds for a call, and for connecting and negotiating together (30).
    probe_timeout: seconds an unknown server has to answer the first question (10).
    max_pages: how many pages `list_*` follows (1000).
    on_log: called with (level, data, logger name or None) for each log message of the server.
    on_notification: called with (method, params) for every other notification that belongs to no call.
    """

    protocol: str | Sequence[str]
    client_info: Mapping[str, Any] | None
    client_capabilities: Mapping[str, Any] | Sequence[str]
    timeout: float
    probe_timeout: float
    max_pages: int
    on_log: OnLog
    on_notification: OnNotification


class StdioOptions(CommonOptions, total=False):
    """Options of a subprocess.

    env: variables added to a safe base (PATH, HOME, LANG, ...); inherit_env=True: to all of this process's.
    cwd: working directory. stderr: called with each line the server writes there; default the logger
        `snodo_client.stdio`.
    max_line_bytes: the longest message accepted (16 MiB). shutdown_timeout: seconds the server has to end by itself
        (2).
    """

    env: Mapping[str, str]
    inherit_env: bool
    cwd: str | PathLike[str]
    stderr: Callable[[str], object]
    max_line_bytes: int
    shutdown_timeout: float


class HttpOptions(CommonOptions, total=False):
    """Options of a Streamable HTTP endpoint.

    headers: sent with every request: a mapping, or a callable evaluated for each request.
    auth: a bearer token, or a requests `AuthBase`.
    verify, cert, proxies: as in requests; `verify` defaults to the trust store of the system.
    connect_timeout: seconds for the connection alone, within the call's timeout.
    max_response_bytes: the longest body, or event of a stream, accepted after decompression (16 MiB).
    allowed_origin: the only origin requests may go to; must be that of the URL, which is also the default.
    pool_size: idle connections kept (10); never a limit on calls.
    session: a prepared `requests.Session` to send through.
    """

    headers: Mapping[str, str] | Callable[[], Mapping[str, str]]
    auth: str | AuthBase | Callable[[requests.PreparedRequest], requests.PreparedRequest]
    verify: bool | str | PathLike[str]
    cert: str | PathLike[str] | tuple[str | PathLike[str], str | PathLike[str]]
    proxies: Mapping[str, str]
    connect_timeout: float
    max_response_bytes: int
    allowed_origin: str
    pool_size: int
    session: requests.Session


class DirectOptions(CommonOptions, total=False):
    """Options of a server in this process.

    auth: what a callable finds as `context.auth`. inline=True: run a callable in the calling thread, its deadline
        judged afterwards.
    """

    auth: Any
    inline: bool


class CallOptions(TypedDict, total=False):
    """Keywords of every call.

    timeout: seconds for all the call does; None is the client's, `math.inf` for ever.
    reset_timeout_on_progress: progress gives the call its full time again; max_total_timeout (600) is the limit
        then.
    meta: additions to the request's `_meta`. progress: called in this thread with each `Progress`; raising cancels
        the call.
    log_level: the least severe log messages wanted for this call; none come without it.
    """

    timeout: float | None
    reset_timeout_on_progress: bool
    max_total_timeout: float | None
    meta: Mapping[str, Any]
    progress: Callable[[Progress], object]
    log_level: str


class InputCallOptions(CallOptions, total=False):
    """Keywords of the calls a server may answer with `InputRequired`: hand the answers and its request_state back
    with them.
    """

    input_responses: Mapping[str, Any] | None
    request_state: str | None


OWNERS = {
    **dict.fromkeys(("env", "inherit_env", "cwd", "stderr", "max_line_bytes", "shutdown_timeout"), ("stdio",)),
    **dict.fromkeys(
        (
            "headers",
            "verify",
            "cert",
            "proxies",
            "connect_timeout",
            "max_response_bytes",
            "allowed_origin",
            "pool_size",
            "session",
        ),
        ("http",),
    ),
    "auth": ("http", "direct"),
    "inline": ("direct",),
}
COMMON = (
    "protocol",
    "client_info",
    "client_capabilities",
    "timeout",
    "probe_timeout",
    "max_pages",
    "on_log",
    "on_notification",
)


def split(options: Mapping[str, Any], connection: str) -> tuple[Options, dict[str, Any]]:
    """The common options, checked, and those of the connection ("stdio", "http", "direct", "custom"). Raises TypeError
    for a misplaced one.
    """
    own = {}
    for name, value in options.items():
        if name in COMMON:
            continue
        if name not in OWNERS:
            raise TypeError(f"{name}= is no option of a client{_did_you_mean(name, [*COMMON, *OWNERS])}")
        if connection not in OWNERS[name]:
            raise TypeError(f"{name}= belongs to {' and '.join(OWNERS[name])} connections, this one is {connection}")
        own[name] = value
    return Options(**{name: options[name] for name in COMMON if name in options}), own


LIBRARY = {"name": "snodo_client", "version": __version__}


class Options:
    """The common options, checked."""

    __slots__ = (
        "allowed",
        "identity",
        "max_pages",
        "on_log",
        "on_notification",
        "preference",
        "probe_timeout",
        "timeout",
    )

    def __init__(
        self,
        protocol: str | Sequence[str] = "auto",
        client_info: Mapping[str, Any] | None = LIBRARY,
        client_capabilities: Mapping[str, Any] | Sequence[str] = (),
        timeout: float = 30.0,
        probe_timeout: float = 10.0,
        max_pages: int = 1000,
        on_log: OnLog | None = None,
        on_notification: OnNotification | None = None,
    ) -> None:
        self.preference = _protocol(protocol)
        self.allowed = versions.allowed(self.preference)
        self.identity = Identity(_client_info(client_info), _capabilities(client_capabilities))
        self.timeout = checks.seconds(timeout, "timeout")
        self.probe_timeout = checks.seconds(probe_timeout, "probe_timeout")
        self.max_pages = checks.count(max_pages, "max_pages")
        self.on_log = checks.callback(on_log, "on_log")
        self.on_notification = checks.callback(on_notification, "on_notification")
        self.identity.meta(versions.MODERN[0])  # what cannot be encoded is refused here, not in the first call


_PLAIN = frozenset(("timeout", "reset_timeout_on_progress", "max_total_timeout", "meta", "progress", "log_level"))
_INPUTS = _PLAIN | {"input_responses", "request_state"}


def call_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keywords of a call, once they are known to be ones it has. Raises TypeError."""
    return _known(options, _PLAIN)


def input_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same for a call that may answer the server's request for input."""
    return _known(options, _INPUTS)


def _known(options: Mapping[str, Any], names: frozenset[str]) -> Mapping[str, Any]:
    if not options.keys() <= names:
        name = min(options.keys() - names)
        raise TypeError(f"{name}= is no keyword of this call{_did_you_mean(name, names)}")
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
        return {_capability(name): {} for name in capabilities}
    for name, value in capabilities.items():
        if not isinstance(value, dict):
            found = type(value).__name__
            raise TypeError(f"client_capabilities[{_capability(name)!r}] must be a dict such as {{}}, not {found}")
    for name, settings in capabilities.get("extensions", {}).items():
        if "/" not in _capability(name) or not isinstance(settings, dict):
            raise ValueError(f"the extension {name!r} must be a prefixed name such as 'com.example/x' with a dict")
    return dict(capabilities)


def _capability(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError("the name of a capability in client_capabilities is a non-empty string")
    return name
