"""`python -m snodo_client.testing stdio`, `http`, `sse` or `websocket`: serve the demo server.

All but stdio take `--port N` and print their URL as the first line on standard output. `--versions` limits the
revisions that are spoken, as in `--versions 2025-11-25,2025-06-18`.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING

from snodo_client.testing.demo import demo_server

if TYPE_CHECKING:
    from snodo_client.testing.httpd import HttpServing
    from snodo_client.testing.sse import SseServing
    from snodo_client.testing.websocket import WebSocketServing


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m snodo_client.testing", description="Serve the demo MCP server.")
    modes = parser.add_subparsers(dest="mode", required=True)
    for name, what in {
        "stdio": "serve the standard streams",
        "http": "serve Streamable HTTP on the loopback interface",
        "sse": "serve HTTP+SSE, the transport of 2024-11-05, on the loopback interface",
        "websocket": "serve WebSocket on the loopback interface (needs the extra snodo_client[websocket])",
    }.items():
        mode = modes.add_parser(name, help=what)
        mode.add_argument("--versions", type=_names, help="the revisions to speak, separated by commas (default: all)")
        if name != "stdio":
            mode.add_argument("--port", type=int, default=0, help="the port to listen on (default: any free one)")
        if name == "http":
            mode.add_argument("--sse", action="store_true", help="answer every request with an event stream")
    options = parser.parse_args()
    server = demo_server()
    if options.versions is not None:
        server.versions = options.versions
    if options.mode == "stdio":
        server.serve_stdio()
        return
    serving: HttpServing | SseServing | WebSocketServing
    if options.mode == "http":
        serving = server.serve_http(port=options.port, sse=True if options.sse else "auto")
    elif options.mode == "sse":
        serving = server.serve_sse(port=options.port)
    else:
        serving = server.serve_websocket(port=options.port)
    with serving:
        print(serving.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            serving.wait()


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    main()
