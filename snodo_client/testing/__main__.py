"""`python -m snodo_client.testing stdio` or `http [--port N] [--sse]`: serve the demo server.

In http mode the first line on standard output is the URL.
"""

from __future__ import annotations

import argparse
import contextlib

from snodo_client.testing.demo import demo_server


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m snodo_client.testing", description="Serve the demo MCP server.")
    modes = parser.add_subparsers(dest="mode", required=True)
    modes.add_parser("stdio", help="serve the standard streams")
    http = modes.add_parser("http", help="serve Streamable HTTP on the loopback interface")
    http.add_argument("--port", type=int, default=0, help="the port to listen on (default: any free one)")
    http.add_argument("--sse", action="store_true", help="answer every request with an event stream")
    options = parser.parse_args()
    server = demo_server()
    if options.mode == "stdio":
        server.serve_stdio()
        return
    with server.serve_http(port=options.port, sse=True if options.sse else "auto") as serving:
        print(serving.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            serving.wait()


if __name__ == "__main__":
    main()
