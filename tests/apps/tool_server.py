"""The MCP server behind the applications here. Over stdio it writes its process id into the file `STARTS`."""

from __future__ import annotations

import os
from typing import Any

from snodo_client.testing import Call, Server

server = Server("tools", "1.0")


@server.tool
def echo(text: str) -> dict[str, Any]:
    """Give the text back, and who served it."""
    return {"text": text, "server": os.getpid()}


@server.tool
def wait(seconds: float, call: Call) -> str:
    """Take so long, unless cancelled."""
    return "waited" if call.sleep(seconds) else "cancelled"


@server.tool
def count(steps: int, call: Call) -> int:
    """Count to `steps`, reporting progress."""
    for step in range(1, steps + 1):
        call.progress(step, steps)
    return steps


@server.tool
def crash() -> str:
    """End the server."""
    os._exit(7)


if __name__ == "__main__":
    with open(os.environ["STARTS"], "a") as starts:
        starts.write(f"{os.getpid()}\n")
    server.serve_stdio()
