"""The options of `Client.connect` and `Client.direct`, and the keywords of calls, for readers and type checkers.

Nothing imports this at run time: making the classes would cost a tenth of the package's import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from typing import Any, Literal

    import requests

    from .cache import Store
    from .engine.checking import Validate
    from .engine.events import OnEvent
    from .engine.handlers import Handler
    from .engine.inbound import OnListChanged, OnLog, OnNotification
    from .outcome import Progress
    from .transports.http_options import Auth


class CommonOptions(TypedDict, total=False):
    """Options of every connection.

    protocol: "auto" (default), a version, or a list of versions that may be spoken. A single version is a pin: no
        other era is tried, and the server's answer must be that version.
    remembered: the `protocol_info` of an earlier client of this server: nothing is asked that is known from it. Where
        it is wrong by now, that is found out with the first answer.
    wait: False to connect in the background: calls wait until it is done, and give back why it failed.
    client_info: who asks, `{"name": ..., "version": ...}`; default this library, None to tell nothing.
    client_capabilities: what the server may ask for: a mapping, or names such as `["elicitation"]`; what `handlers`
        need is declared without being named here.
    handlers: functions that answer what a server asks during a call, by kind: "form", "url", "sampling", "roots"; each
        is called with an `InputRequest` and gives the protocol's result object, such as `{"action": "accept",
        "content": {...}}`: in the thread of the call, before 2026-07-28 on a thread of their own. Without them the
        call gives `InputRequired`.
    max_input_rounds: how often handlers answer in one call (10).
    timeout: seconds for a call, and for connecting and negotiating together (30).
    probe_timeout: seconds an unknown server has to answer the first question (10).
    max_pages: how many pages `list_*` follows (1000).
    on_log: called with (level, data, logger name or None) for each log message of the server.
    on_notification: called with (method, params) for every other notification that belongs to no call.
    on_list_changed: called with "tools", "prompts" or "resources" when such a list changed; of many changes in a row
        it hears once. It may list again.
    on_event: called with (name, fields) for what happens on the connection, for logs, metrics and traces: "negotiated",
        "sent", "received", "retried", "cancelled", "closed"; nothing secret is in the fields.
    cache: True to keep the lists and resources a server of 2026-07-28 allows to be kept, for as long as it says; or the
        store to keep them in, shared as you like: `snodo_client.cache.MemoryStore`, a Django cache, a Redis client.
        Lists of several pages are not kept.
    validate: "structured" (default) checks the structured results of tools that were listed against their schema; "all"
        also arguments, and that there is such a result; "off" nothing.

    All callbacks but handlers and progress run in order on one thread; what they raise is logged.
    """

    protocol: str | Sequence[str]
    remembered: Mapping[str, Any] | None
    wait: bool
    handlers: Mapping[str, Handler] | None
    client_info: Mapping[str, Any] | None
    client_capabilities: Mapping[str, Any] | Sequence[str]
    timeout: float
    probe_timeout: float
    max_pages: int
    on_log: OnLog | None
    on_notification: OnNotification | None
    on_list_changed: OnListChanged | None
    on_event: OnEvent | None
    max_input_rounds: int
    cache: Store | bool | None
    validate: Validate


class StdioOptions(CommonOptions, total=False):
    """Options of a subprocess.

    env: variables added to a safe base (PATH, HOME, LANG, ...); inherit_env=True: to all of this process's.
    cwd: working directory. stderr: called with each line the server writes there; default the logger
        `snodo_client.stdio`.
    max_line_bytes: the longest message accepted (16 MiB). shutdown_timeout: seconds the server has to end by itself
        (2).
    restart: "on_call" to start the server again with the next call after it ended, and in the child of a fork; 10 times
        in 10 seconds at most. A call that may have run is never sent again.
    """

    env: Mapping[str, str] | None
    inherit_env: bool
    cwd: str | PathLike[str] | None
    stderr: Callable[[str], object] | None
    max_line_bytes: int
    shutdown_timeout: float
    restart: Literal["on_call"] | None


class HttpOptions(CommonOptions, total=False):
    """Options of a Streamable HTTP endpoint, and of the older HTTP+SSE.

    headers: sent with every request: a mapping, or a callable evaluated for each request.
    auth: a bearer token; a callable without arguments that gives one for each request; a `TokenProvider`, which is also
        asked for another one when the server refuses it; a requests `AuthBase`; or `snodo_client.auth.OAuth`.
    verify, cert, proxies: as in requests; `verify` defaults to the trust store of the system.
    connect_timeout: seconds for the connection alone, within the call's timeout.
    max_response_bytes: the longest body, or event of a stream, accepted after decompression (16 MiB).
    allowed_origin: the only origin requests may go to; must be that of the URL, which is also the default.
    pool_size: idle connections kept (10); never a limit on calls.
    session: a prepared `requests.Session` to send through.
    """

    headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None
    auth: Auth | None
    verify: bool | str | PathLike[str]
    cert: str | PathLike[str] | tuple[str | PathLike[str], str | PathLike[str]] | None
    proxies: Mapping[str, str] | None
    connect_timeout: float | None
    max_response_bytes: int
    allowed_origin: str | None
    pool_size: int
    session: requests.Session | None


class WebSocketOptions(CommonOptions, total=False):
    """Options of a WebSocket server (revisions before 2026-07-28; the extra "websocket").

    headers: sent with the handshake: a mapping, or a callable evaluated for each connection. auth: a bearer token.
    verify, cert: as in requests; `verify` defaults to the trust store of the system.
    connect_timeout: seconds for the connection alone, within the call's timeout.
    max_response_bytes: the longest message accepted (16 MiB).
    """

    headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None
    auth: str | None
    verify: bool | str | PathLike[str]
    cert: str | PathLike[str] | tuple[str | PathLike[str], str | PathLike[str]] | None
    connect_timeout: float | None
    max_response_bytes: int


class AnyOptions(StdioOptions, HttpOptions, total=False):
    """For a target whose kind a type checker cannot see; those that do not belong to it are refused."""


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
    log_level: the least severe log messages wanted for this call; none come without it. Before 2026-07-28 it counts
        for nothing: see `Client.set_log_level`.
    cache: "use" (default), "refresh" to ask the server and keep the answer, "bypass" to do neither. It counts for
        lists, `read_resource` and `discover`, with the client's `cache=`.
    """

    timeout: float | None
    reset_timeout_on_progress: bool
    max_total_timeout: float | None
    meta: Mapping[str, Any]
    progress: Callable[[Progress], object]
    log_level: str
    cache: Literal["use", "refresh", "bypass"]


class InputCallOptions(CallOptions, total=False):
    """Keywords of the calls a server may answer with `InputRequired`: hand the answers and its request_state back
    with them. answer_input: False to leave that to the caller although there are handlers; True to go on by itself
    also when the server only wants to be asked again.
    """

    answer_input: bool | None
    input_responses: Mapping[str, Any] | None
    request_state: str | None


class ToolCallOptions(InputCallOptions, total=False):
    """Keywords of `call_tool`.

    task: True, or `{"ttl": milliseconds}`, to have the tool run as a task of revision 2025-11-25: the result is
        `{"task": {"taskId": ...}}`, for `client.tasks`.
    """

    task: bool | Mapping[str, Any] | None
