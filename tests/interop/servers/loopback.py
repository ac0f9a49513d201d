"""Serve an ASGI application on a loopback port and say where, for the servers in this folder.

The socket listens before its address is printed: whoever read the line can connect at once, and port 0 is race-free.
"""

from __future__ import annotations

import socket
from typing import Any

import uvicorn


def serve(app: Any, port: int, scheme: str = "http", path: str = "/mcp") -> None:
    """Print ``http://127.0.0.1:PORT/mcp`` as the only line on stdout, then serve until the process is told to stop."""
    listener = socket.create_server(("127.0.0.1", port))
    # asyncio sets this only on sockets it made itself; without it, every small answer waits 40 ms for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
