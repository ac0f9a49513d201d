"""A small server written with the last official Python SDK that spoke only the revisions with a handshake.

``python legacy_server.py stdio``, or ``http``, ``stateless``, ``sse`` or ``websocket`` with a PORT (prints its URL).
``make_server()`` is for callers in the same process. Runs in the environment of the ``legacy`` peers.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from typing import Any, Literal
from weakref import WeakKeyDictionary, WeakSet

from mcp import types
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.session import ServerSession
from pydantic import AnyUrl, BaseModel

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Sum(BaseModel):
    """What `add` answers."""

    total: int


class Confirmation(BaseModel):
    """What `ask` wants to know."""

    confirm: bool


def make_server(*, stateless: bool = False) -> FastMCP:
    """A fresh server object with every tool, resource and prompt of this file."""
    server: FastMCP = FastMCP(
        "legacy-peer", instructions="A peer for tests.", log_level="CRITICAL", stateless_http=stateless
    )
    lowlevel = server._mcp_server
    lowlevel.version = "1.0.0"
    levels: WeakKeyDictionary[ServerSession, str] = WeakKeyDictionary()
    subscribers: dict[str, WeakSet[ServerSession]] = {}
    own_capabilities = lowlevel.get_capabilities

    def capabilities(*arguments: Any) -> types.ServerCapabilities:
        """The SDK never says that resources can be subscribed to."""
        found = own_capabilities(*arguments)
        assert found.resources is not None
        found.resources.subscribe = True
        return found

    lowlevel.get_capabilities = capabilities  # type: ignore[method-assign]

    @server.tool()
    def add(a: int, b: int) -> Sum:
        """Add two integers."""
        return Sum(total=a + b)

    @server.tool()
    async def progress(steps: int, ctx: Context) -> str:
        """Report progress once per step."""
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps, f"step {step}")
        return f"{steps} steps"

    @server.tool()
    async def ask(ctx: Context) -> str:
        """Ask back before answering."""
        answer = await ctx.elicit("Go on?", Confirmation)
        if answer.action != "accept":
            return answer.action
        return "confirmed" if answer.data.confirm else "refused"

    @server.tool()
    async def open_page(url: str, ctx: Context) -> str:
        """Ask the user to open a page."""
        return (await ctx.elicit_url("Sign in, please.", url, "page-1")).action

    @server.tool()
    async def sample(question: str, ctx: Context) -> str:
        """Ask the client's model."""
        message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=question))
        answer = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
        assert isinstance(answer.content, types.TextContent)
        return f"{answer.model}: {answer.content.text}"

    @server.tool()
    async def roots(ctx: Context) -> str:
        """The client's roots, asked for anew."""
        return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)

    @server.tool()
    async def ping(ctx: Context, times: int = 1) -> str:
        """Ask the client whether it is there."""
        for _ in range(times):
            await ctx.session.send_ping()
        return "pong"

    @server.tool()
    async def log(level: Literal["debug", "info", "warning", "error"], text: str, ctx: Context) -> str:
        """Log the text, unless the client has set a higher level."""
        if LEVELS.index(level) >= LEVELS.index(levels.get(ctx.session, "debug")):
            await ctx.log(level, text, logger_name="peer")
        return "logged"

    @server.tool()
    async def touch(uri: str) -> str:
        """Tell the subscribers of a resource that it has changed."""
        for session in subscribers.get(uri, ()):
            await session.send_resource_updated(AnyUrl(uri))
        return "touched"

    @server.tool()
    def fail() -> str:
        """Fail as a tool."""
        raise ToolError("this tool always fails")

    @server.tool()
    def big(n: int) -> str:
        """Answer with n letters."""
        return "x" * n

    cancelled_waits: list[str] = []

    @server.tool()
    async def wait(key: str, ctx: Context) -> str:
        """Report progress once, then wait to be cancelled, and remember that."""
        await ctx.report_progress(1)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled_waits.append(key)
            raise
        return "waited"

    @server.tool()
    def cancelled() -> str:
        """The keys of the waits that were cancelled."""
        return " ".join(cancelled_waits)

    @server.resource("peer://greeting", name="greeting", mime_type="text/plain")
    def greeting() -> str:
        """A text resource."""
        return "hello"

    @server.resource("peer://items/{item}", name="item", mime_type="text/plain")
    def item(item: str) -> str:
        """A templated resource."""
        return f"item {item}"

    @server.prompt()
    def greet(name: str) -> str:
        """Greet someone."""
        return f"Say hello to {name}."

    @server.completion()
    async def names(ref: object, argument: Any, context: object) -> types.Completion | None:
        """Complete the name in `greet`."""
        if not isinstance(ref, types.PromptReference):
            return None
        return types.Completion(values=[name for name in ("Ada", "Alan", "Grace") if name.startswith(argument.value)])

    @lowlevel.set_logging_level()
    async def set_level(level: str) -> None:
        levels[lowlevel.request_context.session] = level

    @lowlevel.subscribe_resource()
    async def subscribe(uri: AnyUrl) -> None:
        subscribers.setdefault(str(uri), WeakSet()).add(lowlevel.request_context.session)

    @lowlevel.unsubscribe_resource()
    async def unsubscribe(uri: AnyUrl) -> None:
        subscribers.get(str(uri), WeakSet()).discard(lowlevel.request_context.session)

    return server


def websocket_app(server: FastMCP) -> Any:
    """An ASGI application that serves over WebSocket connections."""
    from mcp.server.websocket import websocket_server

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "websocket":  # the start and end of the application
            return
        lowlevel = server._mcp_server
        async with websocket_server(scope, receive, send) as (incoming, outgoing):
            await lowlevel.run(incoming, outgoing, lowlevel.create_initialization_options())

    return app


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # much of what is used here is deprecated: that is what it is here for
    match sys.argv[1:]:
        case ["stdio"]:
            make_server().run("stdio")
        case [mode, port]:
            from loopback import serve

            match mode:
                case "http":
                    serve(make_server().streamable_http_app(), int(port))
                case "stateless":
                    serve(make_server(stateless=True).streamable_http_app(), int(port))
                case "sse":
                    serve(make_server().sse_app(), int(port), "http", "/sse")
                case "websocket":
                    serve(websocket_app(make_server()), int(port), "ws", "/ws")
                case _:
                    sys.exit(f"unknown: {mode}")
        case _:
            sys.exit("usage: legacy_server.py stdio | http PORT | stateless PORT | sse PORT | websocket PORT")
