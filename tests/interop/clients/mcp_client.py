"""The client of the official Python SDK: ``python mcp_client.py URL`` or ``python mcp_client.py COMMAND ARGUMENT...``.

Calls the demo server and prints what it saw. Runs in the environment of the ``modern`` peers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp_types import ElicitResult, PromptReference
from report import CONCURRENT, LARGE, Facts, target


async def main() -> None:
    server = target()
    if isinstance(server, list):
        server = StdioServerParameters(command=server[0], args=server[1:])
    fact = Facts()
    asked: list[str] = []

    async def agree(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"confirm": True})

    async with Client(server, elicitation_callback=agree) as client:

        async def call(name: str, **arguments: Any) -> Any:
            return await client.call_tool(name, arguments)

        async def text(name: str, **arguments: Any) -> str:
            return (await call(name, **arguments)).content[0].text

        @fact
        async def agreement() -> Any:
            info = client.server_info
            return [client.protocol_version, info.name, info.version, client.instructions]

        async def every(method: Any, key: str) -> Any:
            found, cursor = [], None
            while True:
                page = await method(cursor=cursor)
                found += getattr(page, key)
                cursor = page.next_cursor
                if cursor is None:
                    return found

        @fact
        async def tools() -> Any:
            return [tool.name for tool in await every(client.list_tools, "tools")]

        @fact
        async def resources() -> Any:
            return [str(resource.uri) for resource in await every(client.list_resources, "resources")]

        @fact
        async def templates() -> Any:
            found = await every(client.list_resource_templates, "resource_templates")
            return [template.uri_template for template in found]

        @fact
        async def prompts() -> Any:
            return [prompt.name for prompt in await every(client.list_prompts, "prompts")]

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

            await client.call_tool("count", {"steps": 3}, progress_callback=note)
            return seen

        @fact
        async def null() -> Any:
            result = await call("nothing")
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
            return (await client.read_resource("demo://readme")).contents[0].text

        @fact
        async def blob() -> Any:
            content = (await client.read_resource("demo://pixel.png")).contents[0]
            return [content.mime_type, content.blob[:8]]

        @fact
        async def template() -> Any:
            return (await client.read_resource("demo://items/7")).contents[0].text

        @fact
        async def prompt() -> Any:
            return (await client.get_prompt("greet", {"name": "Ærø", "style": "pirate"})).messages[0].content.text

        @fact
        async def completion() -> Any:
            found = await client.complete(PromptReference(name="greet"), {"name": "style", "value": "f"})
            return found.completion.values

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
            timed_out = await code(client.call_tool("sleep", {"seconds": 20}, read_timeout_seconds=0.3))
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
