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
    protocol: what our client asks for.
    unknown_tool: the code of the error for a tool it does not have; None where it answers an `isError` result.
    unknown_method, unknown_resource: the code of the error for one.
    bad_prompt: the code of the error for a prompt that is unknown or lacks an argument.
    null: what the result of its `null` tool holds as structured content, or the code of the error there is instead.
    loses_progress: notifications that come right before the result may be missing.
    names_method: the error for an unknown method has its name as data.
    names_resource: the error for an unknown resource has its URI as data.
    without: scenarios that it has nothing for.
    """

    server: str
    connection: str
    ask_key: str = "confirm"
    asks: bool = True
    asks_anyway: bool = False
    protocol: str = "auto"
    unknown_tool: int | None = -32602
    unknown_method: int = -32601
    unknown_resource: int = -32602
    bad_prompt: int = -32602
    null: Any = None
    loses_progress: bool = False
    names_method: bool = False
    names_resource: bool = True
    without: frozenset[str] = frozenset()

    @property
    def legacy(self) -> bool:
        """Whether what they agree on is a revision with a handshake."""
        return self.server == "legacy" or self.protocol != "auto"

    @property
    def name(self) -> str:
        asked = "" if self.protocol == "auto" else f"-{self.protocol}"
        return f"{self.server}-{self.connection}{asked}"


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

V1: dict[str, Any] = {
    "server": "legacy",
    "unknown_tool": None,
    "unknown_method": -32602,
    "unknown_resource": 0,
    "bad_prompt": 0,
    "names_resource": False,
}
ASKING = {"a_form", "a_page_to_open", "sampling", "roots", "pings", "many_questions_at_once"}
ASKING |= {"a_client_that_answers_nothing", "questions_whose_ids_are_those_of_our_calls"}
CANCELLING = {"a_timeout_reaches_the_server", "a_raising_callback_cancels"}
REMEMBERING = {"logs_of_a_level", "a_subscription"}
SPECIAL = (ASKING | REMEMBERING | {"lists"}) - {"a_form"}  # these use tools that only `legacy` has
ONE_BEFORE: dict[str, Any] = {"protocol": "2025-11-25"}
STATELESS = frozenset(ASKING | CANCELLING | REMEMBERING)

WIRE += [
    *(Peer(**V1, connection=connection) for connection in ("stdio", "http", "sse", "websocket")),
    # Every request is served by itself: nobody is there to take an answer, and nothing is remembered.
    Peer(**V1, connection="stateless", without=STATELESS),
    Peer(**V1, connection="gateway-http"),
    Peer(**V1, connection="gateway-stateless", without=STATELESS | {"many_threads"}),  # a process for each request
    # What the server asks one client, it passes on to all.
    Peer(**V1, connection="gateway-sse", without=frozenset({"a_client_that_answers_nothing"})),
    # It puts ids of its own into requests, but not into what refers to them, nor back into answers.
    Peer(**V1, connection="gateway-websocket", without=frozenset(ASKING | CANCELLING)),
    # Servers that know the newest revision as well, asked for the one before.
    *(
        Peer(**{**MCP, "bad_prompt": 0}, connection=connection, **ONE_BEFORE, without=frozenset(SPECIAL))
        for connection in ("stdio", "http", "sse")
    ),
    *(
        Peer(**FASTMCP, connection=connection, **ONE_BEFORE, without=frozenset(SPECIAL | {"a_form"}))
        for connection in ("stdio", "http")
    ),
    Peer(**TYPESCRIPT, connection="stdio", **ONE_BEFORE, without=frozenset(SPECIAL)),
    # Over HTTP it serves every older request by itself.
    Peer(**TYPESCRIPT, connection="http", **ONE_BEFORE, without=frozenset(SPECIAL | {"a_form"})),
]

IN_PROCESS = [
    Peer(**MCP, connection="direct", ask_key="mcp_server:confirmation"),
    Peer(**FASTMCP, connection="direct"),
    Peer(**V1, connection="direct"),
    Peer(**{**MCP, "bad_prompt": 0}, connection="direct", **ONE_BEFORE, without=frozenset(SPECIAL)),
    Peer(**FASTMCP, connection="direct", **ONE_BEFORE, without=frozenset(SPECIAL | {"a_form"})),
]
