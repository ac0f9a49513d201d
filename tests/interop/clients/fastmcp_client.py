"""The client of FastMCP: ``python fastmcp_client.py URL`` or ``python fastmcp_client.py COMMAND ARGUMENT...``.

Calls the demo server and prints what it saw. Runs in the environment of the ``modern`` peers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp import MCPError
from mcp_types import PromptReference
from report import CONCURRENT, LARGE, Facts, target


async def main() -> None:
    server: Any = target()
    if isinstance(server, list):
        server = StdioTransport(server[0], server[1:], keep_alive=False)
    fact = Facts()
    asked: list[str] = []

    async def agree(message: str, response_type: Any, params: Any, context: Any) -> dict[str, Any]:
        asked.append(message)
        return {"confirm": True}

    async with Client(server, elicitation_handler=agree) as client:

        async def call(name: str, **arguments: Any) -> Any:
            return await client.call_tool(name, arguments, raise_on_error=False)

        async def text(name: str, **arguments: Any) -> str:
            return (await call(name, **arguments)).content[0].text

        @fact
        async def agreement() -> Any:
            info = client.server_info
            return [client.protocol_version, info.name, info.version, client.instructions]

        @fact
        async def tools() -> Any:
            return [tool.name for tool in await client.list_tools()]

        @fact
        async def resources() -> Any:
            return [str(resource.uri) for resource in await client.list_resources()]

        @fact
        async def templates() -> Any:
            return [template.uri_template for template in await client.list_resource_templates()]

        @fact
        async def prompts() -> Any:
            return [prompt.name for prompt in await client.list_prompts()]

        @fact
        async def structured() -> Any:
            result = await call("add", a=1, b=2)
            return [result.structured_content, result.content[0].text]

        @fact
        async def mirrored() -> Any:
            return (await call("weather", region="日本")).structured_content

        @fact
        async def progress() -> Any:
            seen: list[Any] = []

            async def note(*step: Any) -> None:
                seen.append(list(step))

            await client.call_tool("count", {"steps": 3}, progress_handler=note)
            return seen

        @fact
        async def null() -> Any:
            result = await client.call_tool_mcp("nothing", {})
            return ["structured_content" in result.model_fields_set, result.structured_content]

        @fact
        async def tool_error() -> Any:
            result = await call("fail", reason="on purpose")
            return [result.is_error, result.content[0].text]

        @fact
        async def input_round() -> Any:
            return [await text("deploy"), asked]

        @fact
        async def resource() -> Any:
            return (await client.read_resource("demo://readme"))[0].text

        @fact
        async def blob() -> Any:
            content = (await client.read_resource("demo://pixel.png"))[0]
            return [content.mime_type, content.blob[:8]]

        @fact
        async def template() -> Any:
            return (await client.read_resource("demo://items/7"))[0].text

        @fact
        async def prompt() -> Any:
            return (await client.get_prompt("greet", {"name": "Ærø", "style": "pirate"})).messages[0].content.text

        @fact
        async def completion() -> Any:
            found = await client.complete(PromptReference(name="greet"), {"name": "style", "value": "f"})
            return found.values

        async def code(awaitable: Any) -> Any:
            try:
                return str(await awaitable)
            except MCPError as error:
                return error.code

        @fact
        async def unknown_tool() -> Any:
            return await code(call("no_such_tool"))

        @fact
        async def unknown_resource() -> Any:
            return await code(client.read_resource("demo://nowhere"))

        @fact
        async def unknown_prompt() -> Any:
            return await code(client.get_prompt("no_such_prompt"))

        @fact
        async def timeout() -> Any:
            timed_out = await code(client.call_tool("sleep", {"seconds": 20}, timeout=0.3))
            return [timed_out, await text("echo", message="next")]

        @fact
        async def large() -> Any:
            return await text("echo", message=LARGE) == LARGE

        @fact
        async def concurrent() -> Any:
            return await asyncio.gather(*(text("echo", message=str(number)) for number in range(CONCURRENT)))

        await fact.report()


if __name__ == "__main__":
    asyncio.run(main())
