"""A scriptable MCP server of every revision, for tests and demonstrations: in process, over stdio, over HTTP.

    from snodo_client.testing import Call, Server

    server = Server("demo")

    @server.tool
    def add(a: int, b: int) -> int:
        "Add two integers."
        return a + b

`Client.direct(server)` calls it in process; `server.serve_http()` is a context manager with a `url`; a script that ends
in `server.serve_stdio()` is a stdio server. `python -m snodo_client.testing stdio` serves the demo.

For code that has more than one thing going on: `Call.ask` and `inputs` for questions to the client, `Gate` for calls
that are to take as long as the test says, `Server.emit` and `Subscription` for changes, `Server.cache` and
`Server.seen` for caches.
"""

from snodo_client.testing import inputs
from snodo_client.testing.call import Call, Context
from snodo_client.testing.content import Block, Structured, audio, embedded, image, link, text
from snodo_client.testing.errors import ClientError, NeedInput, RpcError, ToolError
from snodo_client.testing.faults import Fault
from snodo_client.testing.gate import Gate
from snodo_client.testing.received import Received
from snodo_client.testing.replies import Raw
from snodo_client.testing.server import Server
from snodo_client.testing.session import Session
from snodo_client.testing.subscriptions import Subscription

__all__ = [
    "Block",
    "Call",
    "ClientError",
    "Context",
    "Fault",
    "Gate",
    "NeedInput",
    "Raw",
    "Received",
    "RpcError",
    "Server",
    "Session",
    "Structured",
    "Subscription",
    "ToolError",
    "audio",
    "embedded",
    "image",
    "inputs",
    "link",
    "text",
]
