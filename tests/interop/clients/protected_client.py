"""A program of a user that calls a tool behind a token: once, and prints what came of it as JSON.

``python protected_client.py URL OPTIONS``, where OPTIONS are those of `OAuth` as a JSON object. A `private_key` is the
name of the file that holds it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from snodo_client import Client, McpError
from snodo_client.auth import OAuth


def main(url: str, options: str) -> None:
    chosen = json.loads(options)
    if "private_key" in chosen:
        chosen["private_key"] = Path(chosen["private_key"]).read_text()
    try:
        with Client.connect(url, auth=OAuth(**chosen), timeout=20) as client:
            print(json.dumps({"caller": client.call_tool("caller").unwrap()["structuredContent"]}))
    except McpError as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
