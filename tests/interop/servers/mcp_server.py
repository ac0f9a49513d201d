"""A small server written with the official Python SDK, so that our client meets bytes it did not write itself.

``python mcp_server.py stdio``, or ``http`` or ``sse`` with a PORT (prints its URL). ``make_server()`` is for callers
in the same process. Runs in the environment of the ``modern`` peers.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Any

from mcp.server import MCPServer, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import Completion, PromptReference
from pydantic import BaseModel


class Sum(BaseModel):
    """What `add` answers."""

    total: int


class Confirmation(BaseModel):
    """What `ask` wants to know."""

    confirm: bool


def confirmation() -> Elicit[Confirmation]:
    """Ask the caller before `ask` runs."""
    return Elicit("Go on?", Confirmation)


async def explicit_null(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Put the null on the wire that the SDK's own models leave out."""
    result = await call_next(ctx)
    if ctx.method == "tools/call" and (ctx.params or {}).get("name") == "null":
        result["structuredContent"] = None
    return result


def make_server() -> MCPServer:
    """A fresh server object with every tool, resource and prompt of this file."""
    server = MCPServer(
        "mcp-peer",
        version="1.0.0",
        instructions="A peer for tests.",
        log_level="CRITICAL",
        middleware=[explicit_null],
    )

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
    def ask(answer: Annotated[Confirmation, Resolve(confirmation)]) -> str:
        """Ask back before answering."""
        return "confirmed" if answer.confirm else "refused"

    @server.tool()
    def fail() -> str:
        """Fail as a tool."""
        raise ToolError("this tool always fails")

    @server.tool(structured_output=False)
    def null() -> str:
        """Answer with a structured null."""
        return "null"

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
    async def names(ref: object, argument: Any, context: object) -> Completion | None:
        """Complete the name in `greet`."""
        if not isinstance(ref, PromptReference):
            return None
        return Completion(values=[name for name in ("Ada", "Alan", "Grace") if name.startswith(argument.value)])

    return server


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stdio"]:
            make_server().run("stdio")
        case ["http", port]:
            from loopback import serve

            serve(make_server().streamable_http_app(), int(port))
        case ["sse", port]:
            from loopback import serve

            serve(make_server().sse_app(), int(port), "http", "/sse")
        case _:
            sys.exit("usage: mcp_server.py stdio | http PORT | sse PORT")
