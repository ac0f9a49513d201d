"""What worker processes do: call a tool, and tell which process called and which server answered."""

import os
import sys
from pathlib import Path
from typing import Any

from snodo_client import ConnectSpec, McpError

SERVER = str(Path(__file__).parents[1] / "tool_server.py")
TOOLS = ConnectSpec(
    ("stdio", sys.executable, [SERVER]),
    env={"STARTS": os.environ["STARTS"], "PYTHONPATH": os.environ["PYTHONPATH"]},
    timeout=15.0,
)
CLIENT = TOOLS.connect()  # a forked worker has a copy that is of no use, a spawned one imports this and has its own


def told(outcome: Any, text: str) -> dict[str, Any]:
    if isinstance(outcome, McpError):
        return {"worker": os.getpid(), "text": text, "server": None, "reason": outcome.reason}
    return {"worker": os.getpid(), **outcome.unwrap()["structuredContent"], "reason": None}


def with_argument(spec: ConnectSpec, text: str) -> dict[str, Any]:
    return told(spec.client().call_tool("echo", {"text": text}), text)


def with_the_modules_spec(text: str) -> dict[str, Any]:
    return told(TOOLS.client().call_tool("echo", {"text": text}), text)


def with_the_modules_client(text: str) -> dict[str, Any]:
    return told(CLIENT.call_tool("echo", {"text": text}), text)


def both(spec: ConnectSpec, text: str) -> bool:
    """Whether a spec that was sent shares its client with the one of the module."""
    return spec.client() is TOOLS.client()
