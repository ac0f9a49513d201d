"""Tools that ask their client, written with the official Python SDK in the two ways it has: what a tool depends on, and
what a tool returns. The same tools as in ``rounds_ts_server.mjs``.

``python rounds_mcp_server.py stdio`` or ``python rounds_mcp_server.py http PORT`` (prints its URL). Runs in the
environment of the ``modern`` peers. Before 2026-07-28 the tools with dependencies ask by requests, the others fail.
"""

from __future__ import annotations

import sys
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.elicitation import AcceptedElicitation, CancelledElicitation, DeclinedElicitation
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Name(BaseModel):
    """What a person is asked for."""

    name: str


def name_form() -> Elicit[Name]:
    """Ask for a name."""
    return Elicit("Your name?", Name)


def word() -> Sample:
    """Ask a model for a word."""
    return Sample([SamplingMessage(role="user", content=TextContent(text="Say a word."))], max_tokens=5)


def shared() -> ListRoots:
    """Ask for the folders."""
    return ListRoots()


def form(message: str) -> InputRequest:
    """A question for a name."""
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=NAME))


def required(state: str | None = None, **questions: InputRequest) -> InputRequiredResult:
    return InputRequiredResult(input_requests=questions or None, request_state=state)


def told(answer: object) -> str:
    """An answer in a word."""
    if isinstance(answer, ElicitResult):
        return str((answer.content or {}).get("name", answer.action)) if answer.action == "accept" else answer.action
    if isinstance(answer, CreateMessageResult):
        return str(answer.content.text) if isinstance(answer.content, TextContent) else "no text"
    if isinstance(answer, ListRootsResult):
        return " ".join(str(root.uri) for root in answer.roots)
    return "nothing"


def make_server() -> MCPServer:
    """A fresh server object with every tool of this file."""
    server = MCPServer("rounds-peer", version="1.0.0", log_level="CRITICAL")

    @server.tool(structured_output=False)
    def ask_name(
        answer: Annotated[AcceptedElicitation[Name] | DeclinedElicitation | CancelledElicitation, Resolve(name_form)],
    ) -> str:
        """Ask for a name in a form."""
        return answer.data.name if isinstance(answer, AcceptedElicitation) else answer.action

    @server.tool(structured_output=False)
    def ask_word(answer: Annotated[CreateMessageResult, Resolve(word)]) -> str:
        """Ask a model for a word."""
        return told(answer)

    @server.tool(structured_output=False)
    def ask_roots(answer: Annotated[ListRootsResult, Resolve(shared)]) -> str:
        """Ask for the folders that are shared."""
        return told(answer)

    @server.tool(structured_output=False)
    async def ask_page(ctx: Context) -> str | InputRequiredResult:
        """Have a page opened."""
        answers = ctx.input_responses or {}
        if "page" not in answers:
            page = ElicitRequestURLParams(message="Sign in", url="https://peer.test/sign-in")
            return required(page=ElicitRequest(params=page))
        return told(answers["page"])

    @server.tool(structured_output=False)
    async def wait_twice(ctx: Context) -> str | InputRequiredResult:
        """Have the call made again twice, with nothing but a state."""
        turn = int(ctx.request_state or "0")
        return required(str(turn + 1)) if turn < 2 else f"after {turn}"

    @server.tool(structured_output=False)
    async def ask_all(ctx: Context) -> str | InputRequiredResult:
        """Ask for everything at once, without a state."""
        answers = ctx.input_responses or {}
        if not answers:
            sampling = CreateMessageRequestParams(
                messages=[SamplingMessage(role="user", content=TextContent(text="Say a word."))], max_tokens=5
            )
            return required(
                name=form("Your name?"), word=CreateMessageRequest(params=sampling), roots=ListRootsRequest()
            )
        return ", ".join(f"{key} {told(answers[key])}" for key in sorted(answers))

    @server.tool(structured_output=False)
    async def ask_thrice(ctx: Context) -> str | InputRequiredResult:
        """Ask three times, keeping the answers in the state."""
        answers = ctx.input_responses or {}
        known = (ctx.request_state or "").split("|") if ctx.request_state else []
        known += [told(answers[key]) for key in sorted(answers)]
        if len(known) < 3:
            return required("|".join(known) or None, **{f"name{len(known)}": form(f"Name {len(known)}?")})
        return f"{' '.join(known)}; last with {' '.join(sorted(answers))}"

    @server.tool(structured_output=False)
    async def ask_forever(ctx: Context) -> str | InputRequiredResult:
        """Ask again and again."""
        return required(f"{ctx.request_state or ''}+", name=form("Your name?"))

    return server


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["stdio"]:
            make_server().run("stdio")
        case ["http", port]:
            from loopback import serve

            serve(make_server().streamable_http_app(), int(port))
        case _:
            sys.exit("usage: rounds_mcp_server.py stdio | http PORT")
