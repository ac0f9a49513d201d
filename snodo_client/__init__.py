"""Blocking Python calls to MCP servers: plain methods that return values, over subprocesses, HTTP, and in process.

import sys
from snodo_client import Client, McpError, Ok

with Client.connect(("stdio", sys.executable, ["server.py"])) as client:
    match client.call_tool("search", {"query": "json"}):
        case Ok(result):
            print(result["content"])
        case McpError(code=code, message=text):
            print(code, text)
"""

from __future__ import annotations

from .calls import ToolCall
from .changes import Closed, Dropped, Notification
from .client import Client
from .clients import Clients, Gathered
from .engine.call import Call
from .engine.cancelling import CancelReport
from .engine.deadline import Deadline
from .engine.handlers import InputRequest
from .outcome import InputRequired, InputRequiredError, McpError, Ok, Outcome, Page, Progress, local_error
from .spec import ConnectSpec
from .subscription import Subscription
from .transports.base import Inbound, Link, Traits, Transport
from .version import __version__

__all__ = [
    "Call",
    "CancelReport",
    "Client",
    "Clients",
    "Closed",
    "ConnectSpec",
    "Deadline",
    "Dropped",
    "Gathered",
    "Inbound",
    "InputRequest",
    "InputRequired",
    "InputRequiredError",
    "Link",
    "McpError",
    "Notification",
    "Ok",
    "Outcome",
    "Page",
    "Progress",
    "Subscription",
    "ToolCall",
    "Traits",
    "Transport",
    "__version__",
    "local_error",
]
