"""The last official client that knows only the revisions with a handshake, with the server of `snodo_client.testing`.

Over every network connection that the server has for the older revisions.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from snodo_client.testing.demo import demo_server

if TYPE_CHECKING:
    from peers import Peers

CLIENT = Path(__file__).parent / "clients" / "legacy_client.py"
STEPS = [[1.0, 3.0, "step 1"], [2.0, 3.0, "step 2"], [3.0, 3.0, "step 3"]]
EXPECTED = {
    "agreement": ["2025-11-25", "snodo-demo", "Try add, count and deploy."],
    "tools": ["add", "echo", "weather"],
    "progress": STEPS,
    "input_round": ["deployed", ["Deploy to production?"]],
    "unrelated": True,
    "concurrent": [str(number) for number in range(20)],
}
SERVINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "http": ("http", {}),
    "streams": ("http", {"sse": True}),
    "polling": ("http", {"polling": 0.05}),
    "sse": ("sse", {}),
    "websocket": ("websocket", {}),
}


@pytest.mark.parametrize("name", SERVINGS)
def test_what_it_sees(peers: Peers, name: str) -> None:
    connection, options = SERVINGS[name]
    server = demo_server()
    with getattr(server, f"serve_{connection}")(**options) as serving:
        command = [str(peers.legacy), str(CLIENT), connection, serving.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                seen: dict[str, Any] = {}
                for line in process.stdout:
                    fact = json.loads(line)
                    seen[fact["name"]] = fact.get("value", fact.get("failure"))
                    if fact["name"] == "ready":
                        assert server.emit("notifications/tools/list_changed") == 1
                del seen["ready"]
                assert seen == EXPECTED
            finally:
                process.kill()
    assert server.sessions == []
