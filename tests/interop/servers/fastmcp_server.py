"""A small server written with FastMCP, a second Python SDK with habits of its own.

``python fastmcp_server.py stdio`` or ``python fastmcp_server.py http PORT`` (prints its URL). ``make_server()`` is for
callers in the same process. Runs in the environment of the ``modern`` peers.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import ToolResult
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult, PromptReference
from pydantic import BaseModel


class Sum(BaseModel):
    """What `add` answers."""

    total: int


def make_server() -> FastMCP:
    """A fresh server object with every tool, resource and prompt of this file."""
    server: FastMCP = FastMCP("fastmcp-peer", version="1.0.0", instructions="A peer for tests.")

    @server.tool
    def add(a: int, b: int) -> Sum:
        """Add two integers."""
        return Sum(total=a + b)

    @server.tool
    async def progress(steps: int, ctx: Context) -> str:
        """Report progress once per step."""
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps, f"step {step}")
        return f"{steps} steps"

    @server.tool
    def ask(ctx: Context) -> str | InputRequiredResult:
        """Ask back before answering."""
        answer = (ctx.input_responses or {}).get("confirm")
        if isinstance(answer, ElicitResult):
            return "confirmed" if (answer.content or {}).get("confirm") else "refused"
        question = ElicitRequestFormParams(
            message="Go on?",
            requested_schema={
                "type": "object",
                "properties": {"confirm": {"type": "boolean"}},
                "required": ["confirm"],
            },
        )
        return InputRequiredResult(input_requests={"confirm": ElicitRequest(params=question)}, request_state="asked")

    @server.tool
    def fail() -> str:
        """Fail as a tool."""
        raise ToolError("this tool always fails")

    @server.tool
    def null() -> None:
        """Answer with nothing at all."""

    @server.tool
    def big(n: int) -> ToolResult:
        """Answer with n letters."""
        return ToolResult(content="x" * n)

    cancelled_waits: list[str] = []

    @server.tool
    async def wait(key: str, ctx: Context) -> str:
        """Report progress once, then wait to be cancelled, and remember that."""
        await ctx.report_progress(1)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled_waits.append(key)
            raise
        return "waited"

    @server.tool
    def cancelled() -> str:
        """The keys of the waits that were cancelled."""
        return " ".join(cancelled_waits)

    @server.resource("peer://greeting", mime_type="text/plain")
    def greeting() -> str:
        """A text resource."""
        return "hello"

    @server.resource("peer://items/{item}", mime_type="text/plain")
    def item(item: str) -> str:
        """A templated resource."""
        return f"item {item}"

    @server.prompt
    def greet(name: str) -> str:
        """Greet someone."""
        return f"Say hello to {name}."

    @server.completion
    def names(ref: object, argument: Any, context: object) -> list[str] | None:
        """Complete the name in `greet`."""
        if not isinstance(ref, PromptReference):
            return None
        return [name for name in ("Ada", "Alan", "Grace") if name.startswith(argument.value)]

    return server


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stdio"]:
            make_server().run("stdio", show_banner=False)
        case ["http", port]:
            from loopback import serve

            serve(make_server().http_app(), int(port))
        case _:
            sys.exit("usage: fastmcp_server.py stdio | http PORT")
