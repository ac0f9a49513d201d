"""The clients of other people with the server of `snodo_client.testing`: what they see is what it serves.

So that one misreading of the specification cannot pass unnoticed because it is on both sides. The clients are the
programs in `clients/`; each prints what it saw, and every one must see the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from snodo_client.testing.demo import demo_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from peers import Peers

    Seen = dict[str, dict[str, Any]]

ROOT = Path(__file__).parents[2]
CLIENTS = Path(__file__).parent / "clients"
SECONDS = 60  # for all that one client does over one connection

EXPECTED: dict[str, Any] = {
    "agreement": ["2026-07-28", "snodo-demo", "1.0", "Try add, count and deploy."],
    "tools": [
        *("add", "echo", "weather", "count", "deploy", "fail", "sleep", "nothing"),
        *("announce", "install", "research", "sign_up", "interview", "roots", "poem", "write_note"),
    ],
    "resources": ["demo://readme", "demo://pixel.png", *(f"demo://notes/{number}" for number in range(1, 6))],
    "templates": ["demo://items/{id}"],
    "prompts": ["greet", "review"],
    "structured": [3, "3"],
    "mirrored": {"region": "日本", "celsius": 21.5, "sky": "clear"},
    "progress": [[1, 3, "step 1"], [2, 3, "step 2"], [3, 3, "step 3"]],
    "null": [True, None],
    "tool_error": [True, "on purpose"],
    "input_round": ["deployed", ["Deploy to production?"]],
    "resource": "A demo server of snodo_client.",
    "blob": ["image/png", "iVBORw0K"],
    "template": "This is item 7.",
    "prompt": "Greet Ærø in a pirate style.",
    "completion": ["formal", "friendly"],
    "unknown_tool": -32602,
    "unknown_resource": -32602,
    "unknown_prompt": -32602,
    "timeout": [-32001, "next"],
    "large": True,
    "concurrent": [str(number) for number in range(20)],
}
QUIRKS: dict[tuple[str, str], Any] = {
    ("ts", "timeout"): ["REQUEST_TIMEOUT", "next"],  # its local errors have names
}
LOST = {("ts", "progress")}  # it forgets the callback when it reads the result, before it has handled what came with it


@pytest.fixture(scope="module")
def seen(peers: Peers) -> Callable[[str, str], Seen]:
    """What a client saw over a connection, by the name of the fact."""
    reports: dict[tuple[str, str], Seen] = {}

    def run(client: str, connection: str) -> Seen:
        if (client, connection) not in reports:
            if client == "ts":
                command = [str(peers.node), str(CLIENTS / "ts_client.mjs"), str(peers.packages)]
            else:
                command = [str(peers.modern), str(CLIENTS / f"{client}_client.py")]
            if connection == "stdio":
                reports[client, connection] = ask(*command, sys.executable, "-m", "snodo_client.testing", "stdio")
            else:
                with demo_server().serve_http() as serving:
                    reports[client, connection] = ask(*command, serving.url)
        return reports[client, connection]

    return run


def ask(*command: str) -> Seen:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    missing = {"failure": f"exit code {done.returncode}, stderr:\n{done.stderr[-5000:]}"}
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {**dict.fromkeys(EXPECTED, missing), **{line["name"]: line for line in lines}}


@pytest.mark.parametrize("fact", EXPECTED)
@pytest.mark.parametrize("connection", ["stdio", "http"])
@pytest.mark.parametrize("client", ["mcp", "fastmcp", "ts"])
def test_what_they_see(seen: Callable[[str, str], Seen], client: str, connection: str, fact: str) -> None:
    saw = seen(client, connection)[fact]
    assert "failure" not in saw, saw["failure"]
    expected = QUIRKS.get((client, fact), EXPECTED[fact])
    if (client, fact) in LOST:
        expected = expected[: len(saw["value"])]
    assert saw["value"] == expected
