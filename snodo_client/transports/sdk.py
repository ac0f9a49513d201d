"""Server objects of the Python SDKs in this process: `mcp` (both its lines) and FastMCP, without a socket or a pipe.

The server runs as one task on the loop of `loop.py`, its lifespan open in it, between the memory streams of its SDK:
`Server.run()` serves either protocol era there, as it does over stdio. Messages pass as JSON, so that nothing but JSON
gets through. The SDKs are imported only for an object that is theirs.
"""

from __future__ import annotations

from os import getpid
from threading import Event
from typing import TYPE_CHECKING

from ..engine.deadline import timed_out
from ..log import logger
from ..outcome import local_error
from ..protocol import jsonrpc
from . import loop
from .base import Link, Traits

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from .base import Inbound, Message

# What a server may take to end by itself when its input ends; then it is cancelled.
GRACE_SECONDS = 2.0


def is_server(obj: object) -> bool:
    """True for a server object of `mcp` or `fastmcp`: a lowlevel `Server`, `MCPServer`, `FastMCP`. Imports neither."""
    return _lowlevel(obj) is not None


def _lowlevel(obj: object) -> Any:
    """The server that has `run(read_stream, write_stream, options)`, or None."""
    if not any(cls.__module__.partition(".")[0] in ("mcp", "fastmcp") for cls in type(obj).__mro__):
        return None
    server = getattr(obj, "_lowlevel_server", None) or getattr(obj, "_mcp_server", None) or obj
    return server if hasattr(server, "create_initialization_options") else None


class SdkLink(Link):
    """One run of the server."""

    __slots__ = ("closing", "hosted", "inbound", "outgoing", "ready", "sdk")

    hosted: loop.Hosted

    def __init__(self, name: str, inbound: Inbound, sdk: _Sdk) -> None:
        super().__init__(name)
        self.inbound = inbound
        self.sdk = sdk
        self.closing = False
        self.ready = Event()
        self.outgoing: Any = None  # the sending end of the server's input

    def shut(self) -> None:
        """On the loop: end the server's input."""
        if self.outgoing is not None:
            self.outgoing.close()


class SdkTransport:
    """Runs `server`, an object for which `is_server` is true.

    auth and inline are refused with ValueError: such a server takes the principal from the HTTP request it serves, and
    runs on an event loop, never in the calling thread. A call made on the loop's own thread (by a tool that is `async`,
    or that its SDK does not move to a thread) raises RuntimeError: it would wait for itself.
    """

    traits = Traits(eras=("modern", "legacy"), cancel="notify")

    def __init__(self, server: object, *, auth: object = None, inline: bool = False) -> None:
        self._server = _lowlevel(server)
        if self._server is None:
            raise TypeError(f"{type(server).__name__} is no server object of mcp or fastmcp")
        if auth is not None:
            raise ValueError("auth= reaches plain callables only: this server takes the principal from HTTP requests")
        if inline:
            raise ValueError("inline= is for plain callables: this server runs on an event loop")
        name = getattr(server, "name", None)
        self._name = f"the in-process server {name!r}" if isinstance(name, str) else "the in-process server"
        self._links: list[SdkLink] = []

    def open(self, inbound: Inbound, deadline: Deadline) -> Link:
        """Starts the server. What goes wrong after that, in its lifespan for a start, is told by `inbound.lost`."""
        _refuse_inside()
        link = SdkLink(self._name, inbound, _Sdk())
        try:
            link.hosted = loop.start(lambda: self._serve(link))
        except RuntimeError:
            raise local_error("transport_failure", f"no thread could be started for {self._name}") from None
        self._links = [*(old for old in self._links if not old.hosted.ended.is_set()), link]
        if not link.ready.wait(deadline.left()):
            link.hosted.cancel()
            raise timed_out(f"the event loop is busy: {self._name} was not started", deadline)
        return link

    def exchange(self, call: Call) -> Iterator[Message]:
        def accepted() -> None:
            call.delivery = "accepted"

        link = _usable(call.link)
        call.sending()
        write = _Write(link, call.body, accepted)
        try:
            for message in call.messages():
                yield message
                if "method" not in message:
                    return
        finally:
            if write.withdraw():
                call.delivery = "not_sent"

    def send(self, message: Message, link: Link, deadline: Deadline) -> None:
        """Returns when the server has taken the message; a "timeout" error when it has not by the deadline."""
        taken = Event()
        write = _Write(_usable(link), jsonrpc.encode(message), taken.set)
        if not taken.wait(deadline.left()):
            write.withdraw()
            raise timed_out(f"{link.name} did not take a notification", deadline)

    def close(self, deadline: Deadline) -> None:
        """Ends the calls that run, then the server: its input ends, so that it leaves its lifespan. If it stays, it is
        cancelled.
        """
        links = [link for link in self._links if link.hosted.pid == getpid()]
        for link in links:
            link.closing = True
            link.inbound.lost(local_error("closed", f"the connection to {link.name} was closed"), link)
            link.hosted.call(link.shut)
        if loop.inside():
            return  # a tool closes the client of its own server: waiting would hold up what it waits for
        for link in links:
            if link.hosted.wait(deadline.sub(min(GRACE_SECONDS, deadline.left() / 2))):
                continue
            link.hosted.cancel()
            if not link.hosted.wait(deadline):
                logger("direct").warning("%s has not ended in time after it was closed", link.name)

    async def _serve(self, link: SdkLink) -> None:
        import asyncio

        server, end = self._server, f"{link.name} ended"
        try:
            async with link.sdk.streams() as ((incoming, link.outgoing), (reads, writes)):
                link.ready.set()
                reader = asyncio.create_task(_read(link, incoming))
                try:
                    await server.run(reads, writes, server.create_initialization_options())
                finally:
                    await writes.aclose()
                    await reader  # what was answered before the end still arrives
        except BaseException as error:  # SystemExit too: it must not end the loop under everybody else's servers
            if not link.closing:
                end = f"{link.name} raised {_leaf(error)} and is gone, see the log of snodo_client.direct"
                logger("direct").error("%s", end, exc_info=error)
        finally:
            link.ready.set()
        if not link.closing:
            link.inbound.lost(local_error("closed", end), link)


async def _read(link: SdkLink, incoming: Any) -> None:
    async for item in incoming:
        message = getattr(item.message, "root", item.message)
        try:
            decoded = jsonrpc.decode(link.sdk.dump(message))
        except ValueError:
            own = getattr(message, "id", None) if not hasattr(message, "method") else None
            fault = local_error("malformed", f"{link.name} sent a message that is no JSON")
            link.inbound.reject(fault, link, own if type(own) is int else None)
        else:
            link.inbound.deliver(decoded, link)


class _Write:
    """A message on its way into the server's input. `accepted` is called, on the loop, when it is there.

    The message travels in the context of the thread that makes it, where its SDK lets handlers inherit that.
    """

    __slots__ = ("_accepted", "_begun", "_link", "_message", "_over", "_task")

    def __init__(self, link: SdkLink, body: bytes, accepted: Callable[[], None]) -> None:
        self._link = link
        self._message = link.sdk.parse(body)
        self._accepted = accepted
        self._begun: dict[None, bool] = {}  # an atomic setdefault decides between the loop and `withdraw`
        self._over = False
        self._task: asyncio.Task[None] | None = None
        link.hosted.call(self._begin)

    def withdraw(self) -> bool:
        """Nobody waits any more. True when nothing of the message has reached the server."""
        if not self._begun.setdefault(None, False):
            return True
        if not self._over:
            self._link.hosted.call(self._cancel)
        return False

    def _begin(self) -> None:
        import asyncio

        if self._begun.setdefault(None, True):
            self._task = asyncio.get_running_loop().create_task(self._send())

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _send(self) -> None:
        try:
            await self._link.outgoing.send(self._message)
        except self._link.sdk.gone:
            return  # the server reads no more: its end is about to be told by the task it runs in
        finally:
            self._over = True
        self._accepted()


class _Sdk:
    """What this module needs of the installed `mcp`, whose lines 1.x and 2.x call it differently."""

    def __init__(self) -> None:
        from importlib import import_module

        anyio, types = import_module("anyio"), import_module("mcp.types")
        self.streams = import_module("mcp.shared.memory").create_client_server_memory_streams
        self.gone = (anyio.BrokenResourceError, anyio.ClosedResourceError)
        self._wrap = import_module("mcp.shared.message").SessionMessage
        adapter = getattr(types, "jsonrpc_message_adapter", None)
        self._validate = types.JSONRPCMessage.model_validate_json if adapter is None else adapter.validate_json
        # Each line's own way onto a wire: 1.x writes its optional fields as None, 2.x does not set them.
        self._left_out = {"exclude_none": True} if adapter is None else {"exclude_unset": True}

    def parse(self, body: bytes) -> Any:
        """What the server's input takes."""
        try:
            return self._wrap(self._validate(body))
        except ValueError:  # its text would quote the message
            fault = local_error("transport_failure", "the SDK of the in-process server refuses the message")
        raise fault

    def dump(self, message: Any) -> bytes:
        """A message of the server as JSON. ValueError when it holds what JSON cannot carry."""
        return message.model_dump_json(by_alias=True, **self._left_out).encode()  # type: ignore[no-any-return]


def _usable(link: Link | None) -> SdkLink:
    _refuse_inside()
    assert isinstance(link, SdkLink)
    if link.hosted.pid != getpid():
        raise local_error("forked")
    if link.lost is not None:
        raise link.lost.copy()
    return link


def _refuse_inside() -> None:
    if loop.inside():
        raise RuntimeError(
            "a blocking call on the event loop thread of the in-process servers would wait for itself: "
            "make it from a thread (asyncio.to_thread), or in a tool that is no coroutine"
        )


def _leaf(error: BaseException) -> str:
    """The name of the exception, out of the groups that task groups wrap around one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return type(error).__name__
