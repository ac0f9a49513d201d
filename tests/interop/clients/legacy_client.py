"""The client of the last official Python SDK with a handshake only: ``python legacy_client.py CONNECTION URL``.

Calls the demo server over "http", "sse" or "websocket" and prints what it saw. Runs in the environment of the
``legacy`` peers.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from datetime import timedelta
from typing import Any

from mcp import ClientSession, types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.client.websocket import websocket_client
from report import Facts

CLIENTS: dict[str, Any] = {"http": streamablehttp_client, "sse": sse_client, "websocket": websocket_client}


async def main() -> None:
    fact = Facts()
    asked: list[str] = []
    told = asyncio.Event()

    async def agree(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"confirm": True})

    async def hear(message: Any) -> None:
        if isinstance(getattr(message, "root", None), types.ToolListChangedNotification):
            told.set()

    connection, url = sys.argv[1:]
    async with (
        CLIENTS[connection](url) as streams,
        ClientSession(
            streams[0],
            streams[1],
            elicitation_callback=agree,
            message_handler=hear,
            read_timeout_seconds=timedelta(seconds=20),
        ) as session,
    ):

        async def text(name: str, **arguments: Any) -> str:
            content = (await session.call_tool(name, arguments)).content[0]
            assert isinstance(content, types.TextContent)
            return content.text

        @fact
        async def agreement() -> Any:
            result = await session.initialize()
            return [result.protocolVersion, result.serverInfo.name, result.instructions]

        @fact
        async def tools() -> Any:
            return [tool.name for tool in (await session.list_tools()).tools][:3]

        @fact
        async def progress() -> Any:
            seen: list[Any] = []

            async def note(*step: Any) -> None:
                seen.append(list(step))

            await session.call_tool("count", {"steps": 3}, progress_callback=note)
            return seen

        @fact
        async def input_round() -> Any:
            return [await text("deploy"), asked]

        @fact
        async def unrelated() -> Any:
            """A change of a list that somebody else brings about."""
            print('{"name": "ready"}', flush=True)
            await asyncio.wait_for(told.wait(), 20)
            return True

        @fact
        async def concurrent() -> Any:
            return await asyncio.gather(*(text("echo", message=str(number)) for number in range(20)))

        await fact.report()


warnings.simplefilter("ignore", DeprecationWarning)
asyncio.run(main())
