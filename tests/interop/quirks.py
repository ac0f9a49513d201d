"""The servers of other people that the scenarios run against, and what each does in its own way.

A default is what most of them do. Where a peer differs, its row says how, and the scenario holds it to that: a new
version that behaves otherwise is noticed. No pytest here: the rows are also used in the peers' own environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Peer:
    """One server over one connection.

    server, connection: which file of `servers/` it is, and how it is reached.
    ask_key: the id under which its `ask` tool asks.
    asks: False where a question cannot get through, whatever the client declares.
    asks_anyway: it asks even a client that did not declare elicitation, instead of refusing the call with -32021.
    unknown_tool: the code of the error for a tool it does not have; None where it answers an `isError` result.
    bad_prompt: the code of the error for a prompt that is unknown or lacks an argument.
    null: what the result of its `null` tool holds as structured content, or the code of the error there is instead.
    loses_progress: notifications that come right before the result may be missing.
    names_method: the error for an unknown method has its name as data.
    """

    server: str
    connection: str
    ask_key: str = "confirm"
    asks: bool = True
    asks_anyway: bool = False
    unknown_tool: int | None = -32602
    bad_prompt: int = -32602
    null: Any = None
    loses_progress: bool = False
    names_method: bool = False

    @property
    def name(self) -> str:
        return f"{self.server}-{self.connection}"


MCP: dict[str, Any] = {"server": "mcp", "unknown_tool": None, "bad_prompt": -32603, "names_method": True}
FASTMCP: dict[str, Any] = {
    "server": "fastmcp",
    "asks_anyway": True,
    "unknown_tool": None,
    "null": {"result": None},
    "names_method": True,
}
TYPESCRIPT: dict[str, Any] = {"server": "ts"}

WIRE = [
    Peer(**MCP, connection="stdio", ask_key="__main__:confirmation"),
    Peer(**MCP, connection="http", ask_key="__main__:confirmation"),
    Peer(**FASTMCP, connection="stdio"),
    Peer(**FASTMCP, connection="http"),
    Peer(**TYPESCRIPT, connection="stdio"),
    Peer(**TYPESCRIPT, connection="http"),
    Peer(
        # The stdio server of `mcp` again: what differs is the doing of mcp-proxy.
        "mcp",
        connection="proxy",
        asks=False,
        unknown_tool=None,
        bad_prompt=0,
        null=-32603,
        loses_progress=True,
    ),
]
IN_PROCESS = [
    Peer(**MCP, connection="direct", ask_key="mcp_server:confirmation"),
    Peer(**FASTMCP, connection="direct"),
]
