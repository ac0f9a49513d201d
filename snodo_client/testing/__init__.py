"""A scriptable MCP server of every revision, for tests and demonstrations: in process, over stdio, over HTTP.

    from snodo_client.testing import Call, Server

    server = Server("demo")

    @server.tool
    def add(a: int, b: int) -> int:
        "Add two integers."
        return a + b

`Client.direct(server)` calls it in process; `server.serve_http()` is a context manager with a `url`; a script that ends
in `server.serve_stdio()` is a stdio server. `python -m snodo_client.testing stdio` serves the demo.
"""

from snodo_client.testing.call import Call, Context
from snodo_client.testing.content import Block, Structured, audio, embedded, image, link, text
from snodo_client.testing.errors import ClientError, NeedInput, RpcError, ToolError
from snodo_client.testing.faults import Fault
from snodo_client.testing.replies import Raw
from snodo_client.testing.server import Received, Server
from snodo_client.testing.session import Session

__all__ = [
    "Block",
    "Call",
    "ClientError",
    "Context",
    "Fault",
    "NeedInput",
    "Raw",
    "Received",
    "RpcError",
    "Server",
    "Session",
    "Structured",
    "ToolError",
    "audio",
    "embedded",
    "image",
    "link",
    "text",
]
