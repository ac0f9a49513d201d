"""Many servers under one roof: `Clients` knows each by a name, connects to it when it is first used, and asks all of
them at once.

Each server has a `Client` of its own, and what becomes of one says nothing about the others. Files are read by
`config`; the names of tools are made in `tool_names`.
"""

from __future__ import annotations

import os
from collections import deque
from math import inf
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, overload
from weakref import WeakSet

from . import checks, tool_names
from .engine import threads
from .engine.deadline import Deadline, timed_out
from .engine.mailbox import Empty, Mailbox
from .engine.session import CLOSE_SECONDS
from .outcome import McpError, local_error
from .spec import ConnectSpec, Shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self, TypeVar, Unpack

    from .client import Client, Object
    from .config import Source
    from .option_types import AnyOptions, CommonOptions, HttpOptions, StdioOptions, ToolCallOptions, WebSocketOptions
    from .outcome import Outcome
    from .targets import AnyTarget, HttpTarget, SseTarget, StdioTarget, WebSocketTarget
    from .transports.base import Transport

    T = TypeVar("T")

# How many servers are asked at the same time.
AT_ONCE = 16
# How much longer than their time those who are asked are waited for: each ends by itself.
_GRACE = 0.5


class Gathered:
    """What many servers gave: `tools` of those that answered, and `errors` by the name of each that did not."""

    __slots__ = ("errors", "tools")

    def __init__(self, tools: list[dict[str, Any]], errors: dict[str, McpError]) -> None:
        self.tools = tools
        self.errors = errors

    @property
    def ok(self) -> bool:
        """True when every server answered."""
        return not self.errors

    def __repr__(self) -> str:
        return f"Gathered({len(self.tools)} tools, errors={self.errors!r})"


class Clients:
    """Named servers, each connected when it is first used.

    `clients["weather"]` is a `Client` that connects in the background: its calls wait for that inside their own time,
    and give back an McpError when it fails. When its server is lost, the next `clients["weather"]` is another client,
    one a second at most, so that a server that dies whenever it is started is not started all the time; until then the
    calls give the error at once. So ask for the client where it is used. It raises KeyError for a name there is not.

    Any thread may use it, and in the child of a fork all is connected anew. Close it, or use it in a `with` statement.
    """

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}
        self._lock = RLock()  # guards the table; nothing waits while it is held
        _all.add(self)

    @classmethod
    def from_config(cls, source: Source, *, env: Mapping[str, str] | None = None, **options: Any) -> Self:
        """The servers of an `mcpServers` JSON file as desktop hosts and editors have it, or of its content. Nothing is
        connected yet. What a file may hold, what `env` and `options` are, and what is raised for a file that is wrong,
        is told at `config.load`.
        """
        from . import config

        clients = cls()
        for name, spec in config.load(source, env=env, **options).items():
            try:
                clients.start(name, spec)
            except ValueError as wrong:
                raise ValueError(f"{config.place(source)}: {wrong}") from None
        return clients

    @overload
    def start(self, name: str, target: ConnectSpec) -> None: ...
    @overload
    def start(self, name: str, target: StdioTarget, **options: Unpack[StdioOptions]) -> None: ...
    @overload
    def start(self, name: str, target: HttpTarget, **options: Unpack[HttpOptions]) -> None: ...
    @overload
    def start(self, name: str, target: SseTarget, **options: Unpack[HttpOptions]) -> None: ...
    @overload
    def start(self, name: str, target: WebSocketTarget, **options: Unpack[WebSocketOptions]) -> None: ...
    @overload
    def start(self, name: str, target: Callable[[], Transport], **options: Unpack[CommonOptions]) -> None: ...
    @overload
    def start(self, name: str, target: AnyTarget, **options: Unpack[AnyOptions]) -> None: ...
    def start(self, name: str, target: Any, **options: Any) -> None:
        """Take in a server; it is connected when it is used. `target` and `options` are those of `Client.connect`
        (`wait` has no say), or one `ConnectSpec`. Raises ValueError or TypeError for wrong ones, and ValueError for a
        name that is taken, or could not be told from another in front of a tool.
        """
        if not isinstance(name, str):
            raise TypeError(f"the name of a server is a string, not {type(name).__name__}")
        if not name:
            raise ValueError("the name of a server is empty")
        if not isinstance(target, ConnectSpec):
            target = ConnectSpec(target, **options)
        elif options:
            raise TypeError(f"a ConnectSpec has its options already: {', '.join(options)}")
        server = _Server(name, target)
        with self._lock:
            for other in self._servers.values():
                if other.prefix == server.prefix:
                    raise ValueError(f"{name!r} is taken" + (f" by {other.name!r}" if other.name != name else ""))
            self._servers[name] = server

    def stop(self, name: str) -> None:
        """Close one server's connection and forget it. Raises KeyError for a name there is not."""
        with self._lock:
            server = self._server(name)
            del self._servers[name]
        server.stop(Deadline(CLOSE_SECONDS))

    def close(self) -> None:
        """Stop all servers, at the same time, within ten seconds. Idempotent, from any thread."""
        with self._lock:
            servers, self._servers = list(self._servers.values()), {}
        deadline = Deadline(CLOSE_SECONDS)
        # All at once: none may be left because others took the time.
        for server, late in _each(
            servers, lambda server, _: server.stop(deadline), deadline, at_once=len(servers)
        ).items():
            if late is not None:  # where threads ran out, or nothing was done in the time
                server.stop(deadline)

    def names(self) -> list[str]:
        """The servers, in the order they were started."""
        with self._lock:
            return list(self._servers)

    def __getitem__(self, name: str) -> Client:
        with self._lock:
            server = self._server(name)
        return server.client()

    def __contains__(self, name: object) -> bool:
        return name in self._servers

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Clients: {', '.join(self.names()) or 'none'}>"

    # -- all servers at once

    def list_tools(self, timeout: float | None = None) -> Gathered:
        """The tools of all servers, asked at the same time (16 of them, those that are connected first); a server that
        fails or does not answer within `timeout` seconds (default: each client's own) is among the errors.

        The `name` of each definition is `server__tool`, for `call_tool`: at most 64 of `A-Z a-z 0-9 _ -`, a letter
        first, as the APIs of models want it. Other characters become an underscore; a tool's name that is changed or
        cut so ends in a checksum.
        """
        deadline = Deadline(inf if timeout is None else checks.seconds(timeout, "timeout"))
        answers = _each(self._ready_first(), lambda server, left: server.list_tools(left), deadline)
        tools, errors = [], {}
        for server in self._in_order(answers):
            answer = answers[server]
            if isinstance(answer, McpError):
                errors[server.name] = answer
            else:
                tools += answer
        return Gathered(tools, errors)

    def call_tool(
        self, tool: str | Object, arguments: Object | None = None, **options: Unpack[ToolCallOptions]
    ) -> Outcome:
        """Call a tool by its name in `list_tools`, or by its definition from there; keywords and outcome are those of
        `Client.call_tool`. A name of no server is an "invalid_arguments" error: such names come from models.
        """
        name = tool if isinstance(tool, str) else tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str):
            raise TypeError("a tool is the name or the definition that list_tools gave")
        prefix, rest = tool_names.split(name)
        with self._lock:
            server = next((server for server in self._servers.values() if server.prefix == prefix), None)
            if server is None or not rest:
                begins = ", ".join(f"{server.prefix}{tool_names.SEPARATOR}" for server in self._servers.values())
                text = f"no server has the tool {name!r}: there are names that begin with {begins or 'nothing'}"
                return local_error("invalid_arguments", text, data={"method": "tools/call"})
        timeout = options.get("timeout")
        deadline = Deadline(inf if timeout is None else checks.seconds(timeout, "timeout"))
        own = server.own_name(rest, timeout)
        if isinstance(own, McpError):
            return own
        if timeout is not None:
            options["timeout"] = _left(deadline)
        return server.client().call_tool(own if isinstance(tool, str) else {**tool, "name": own}, arguments, **options)

    def health(self, timeout: float = 5.0) -> dict[str, dict[str, Any]]:
        """How each server is, asked at the same time, as values that JSON can carry:

        status: "ready" (it answered), "connecting", "failed", "closed" (its process or session ended; the next use
            makes another), or "unused" (nothing was asked of it yet, and nothing is started to find out).
        version: the protocol's, None when not known.
        error: text, or None.
        latency: seconds that the answer to a `ping` or `server/discover` took, or None.
        """
        deadline = Deadline(checks.seconds(timeout, "timeout"))
        answers = _each(self._ready_first(), lambda server, left: server.health(left), deadline)
        return {
            server.name: _health("failed", error=found) if isinstance(found := answers[server], McpError) else found
            for server in self._in_order(answers)
        }

    # -- inside

    def _server(self, name: str) -> _Server:
        try:
            return self._servers[name]
        except KeyError:
            known = ", ".join(map(repr, self._servers)) or "none"
            raise KeyError(f"there is no server {name!r}; there are: {known}") from None

    def _ready_first(self) -> list[_Server]:
        """All servers; those that were not reached yet may take all the time there is."""
        with self._lock:
            return sorted(self._servers.values(), key=lambda server: not server.is_ready)

    def _in_order(self, servers: Iterable[_Server]) -> list[_Server]:
        with self._lock:
            place = {name: number for number, name in enumerate(self._servers)}
        return sorted(servers, key=lambda server: place.get(server.name, len(place)))

    def _forked(self) -> None:
        self._lock = RLock()
        for server in self._servers.values():
            server.forked()


class _Server:
    """A name, how to connect, and the client of this process."""

    __slots__ = ("_shared", "_stopped", "_tools", "name", "prefix", "spec")

    def __init__(self, name: str, spec: ConnectSpec) -> None:
        self.name = name
        self.prefix = tool_names.prefix(name)
        self.spec = spec
        self._shared = Shared()
        self._stopped = False
        self._tools: dict[str, str] = {}  # the part after the prefix -> the tool's own name, where it cannot be told

    def client(self) -> Client:
        client = self._shared.client(self.spec)
        if self._stopped:  # meanwhile; whoever stopped it may not have seen this client
            client.close()
        return client

    @property
    def is_ready(self) -> bool:
        client = self._shared.made
        return client is not None and client.protocol_info["status"] == "ready"

    def stop(self, deadline: Deadline) -> None:
        self._stopped = True
        client = self._shared.made
        if client is not None:
            client._session.close(deadline)

    def forked(self) -> None:
        self._shared = Shared()

    def list_tools(self, timeout: float | None) -> list[dict[str, Any]] | McpError:
        listed = self.client().list_tools(timeout=timeout)
        if isinstance(listed, McpError):
            return listed
        tools, names = [], {}
        for tool in listed.value:
            if not isinstance(tool.get("name"), str):
                continue  # it could not be called
            joined = tool_names.joined(self.prefix, tool["name"])
            tools.append({**tool, "name": joined})
            rest = tool_names.split(joined)[1]
            if tool_names.is_marked(rest):
                names[rest] = tool["name"]
        self._tools = names
        return tools

    def own_name(self, rest: str, timeout: float | None) -> str | McpError:
        """The tool's own name. It is asked for where it may have been changed and the tools were not listed here: what
        a model calls may have been listed in another process.
        """
        if tool_names.is_marked(rest) and rest not in self._tools:
            listed = self.list_tools(timeout)
            if isinstance(listed, McpError):
                return listed
        return self._tools.get(rest, rest)

    def health(self, timeout: float | None) -> dict[str, Any]:
        client = self._shared.made
        if client is None:
            return _health("unused")
        deadline = Deadline(inf if timeout is None else timeout)
        ready = client.await_ready(timeout=timeout)
        begun = monotonic()
        if isinstance(ready, McpError):
            answer: Outcome = ready
        elif ready.value["era"] == "legacy":
            answer = client.ping(timeout=_left(deadline))
        else:
            answer = client.discover(timeout=_left(deadline), cache="bypass")
        latency, info = monotonic() - begun, client.protocol_info
        if not isinstance(answer, McpError) or answer.reason is None:  # an error of the server's own is an answer
            return _health("ready", info["version"], latency=latency)
        return _health("failed" if info["status"] == "ready" else info["status"], info["version"], error=answer)


def _health(
    status: str, version: str | None = None, *, error: McpError | None = None, latency: float | None = None
) -> dict[str, Any]:
    return {"status": status, "version": version, "error": None if error is None else str(error), "latency": latency}


def _each(
    servers: Sequence[_Server],
    ask: Callable[[_Server, float | None], T],
    deadline: Deadline,
    *,
    at_once: int = AT_ONCE,
) -> dict[_Server, T | McpError]:
    """What each server gives, asked on up to `at_once` daemon threads with the seconds that are left (None: no limit
    but its own). Those that have given nothing when the time is over get a timeout, and end by themselves.
    """
    patience = Deadline(deadline.seconds + _GRACE)
    waiting, given = deque(servers), Mailbox[tuple[_Server, "T | McpError"]]()

    def run() -> None:
        while True:
            try:
                server = waiting.popleft()
            except IndexError:
                return
            given.put((server, _asked(server, ask, deadline)))

    for _ in range(min(len(servers), at_once)):
        try:
            threads.start("snodo-clients", run)
        except McpError:  # no more threads, or none any more at this point of the exit
            run()
    answers: dict[_Server, T | McpError] = {}
    while len(answers) < len(servers):
        try:
            server, answer = given.get(patience)
        except Empty:
            late = [server for server in servers if server not in answers]
            return answers | {server: timed_out(f"{server.name} did not answer", deadline) for server in late}
        answers[server] = answer
    return answers


def _asked(server: _Server, ask: Callable[[_Server, float | None], T], deadline: Deadline) -> T | McpError:
    if deadline.over:
        return timed_out(f"{server.name} was not asked: others took the time", deadline)
    try:
        return ask(server, None if deadline.seconds == inf else _left(deadline))
    except McpError as error:
        return error
    except (Exception, SystemExit) as raised:  # the caller's own function that makes a transport
        return local_error("transport_failure", f"connecting {server.name} raised {type(raised).__name__}")


def _left(deadline: Deadline) -> float:
    """Rounded, for it is told in errors; never zero, which is no timeout."""
    return max(round(deadline.left(), 2), 0.01)


_all: WeakSet[Clients] = WeakSet()


def _forked() -> None:
    """In the child of a fork: the connections are the parent's, and a thread that is not here may hold a lock."""
    for clients in list(_all):
        clients._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
