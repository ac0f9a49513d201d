"""A server that changes when it is told to, written with the official Python SDK.

``python changes_mcp_server.py stdio`` or ``python changes_mcp_server.py http PORT`` (prints its URL). ``make_server()``
is for callers in the same process.
"""

from __future__ import annotations

import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp_types import SubscriptionsListenRequestParams


def make_server() -> MCPServer:
    """A fresh server object. Its subscriptions are served by a handler of our own making, so that it can end them."""
    bus = InMemorySubscriptionBus()
    handler = ListenHandler(bus)
    server = MCPServer("changes-peer", version="1.0.0", log_level="CRITICAL", subscriptions=bus)
    server._lowlevel_server.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, handler)

    @server.tool()
    async def change(what: str, ctx: Context) -> str:
        """Tell that a list, or the resource of a URI, has changed."""
        match what:
            case "tools":
                await ctx.notify_tools_changed()
            case "prompts":
                await ctx.notify_prompts_changed()
            case "resources":
                await ctx.notify_resources_changed()
            case uri:
                await ctx.notify_resource_updated(uri)
        return what

    @server.tool()
    def end() -> str:
        """End every subscription."""
        handler.close()
        return "ended"

    @server.tool()
    def opened() -> int:
        """How many subscriptions are open."""
        return len(handler._streams)

    @server.resource("peer://greeting", name="greeting", mime_type="text/plain")
    def greeting() -> str:
        """A text resource."""
        return "hello"

    @server.prompt()
    def greet(name: str) -> str:
        """Greet someone."""
        return f"Say hello to {name}."

    return server


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stdio"]:
            make_server().run("stdio")
        case ["http", port]:
            from loopback import serve

            serve(make_server().streamable_http_app(), int(port))
        case _:
            sys.exit("usage: changes_mcp_server.py stdio | http PORT")
