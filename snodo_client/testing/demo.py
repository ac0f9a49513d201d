"""The demo server: every feature of the core protocol once, with answers that never change.

It serves every revision: what it asks for input ends an attempt for clients of 2026-07-28, and is a request to others.
"""

from __future__ import annotations

from typing import Annotated, Any

from snodo_client.testing import inputs
from snodo_client.testing.call import LOG_LEVELS, Call
from snodo_client.testing.content import Structured
from snodo_client.testing.errors import ToolError
from snodo_client.testing.server import Server

_STYLES = ["formal", "friendly", "pirate", "plain"]
_PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a4944415478da63f80f00010101001cb08c990000000049454e44ae426082"
)
_WEATHER = {
    "type": "object",
    "properties": {"region": {"type": "string"}, "celsius": {"type": "number"}, "sky": {"type": "string"}},
    "required": ["region", "celsius", "sky"],
}
_CONFIRM = inputs.form(
    "Deploy to production?",
    {"confirm": {"type": "boolean", "title": "Yes, deploy"}, "note": {"type": "string"}},
    required=["confirm"],
)
_SIGN_UP = inputs.form(
    "Sign up for the newsletter",
    {
        "email": {"type": "string", "title": "Address", "format": "email"},
        "name": {"type": "string", "default": "Anonymous"},
        "issues": {"type": "integer", "minimum": 1, "maximum": 12, "default": 4},
        "html": {"type": "boolean", "default": True},
        "topic": {"type": "string", "enum": ["news", "science", "sport"], "default": "science"},
    },
    required=["email"],
)
_QUESTIONS = ["What is your name?", "What is your quest?", "What is your favourite colour?"]


def demo_server() -> Server:
    """A new demo server. Its lists have several pages."""
    server = Server("snodo-demo", "1.0", instructions="Try add, count and deploy.", page_size=5)
    _add_tools(server)
    _add_tools_that_ask(server)
    _add_resources(server)
    _add_prompts(server)
    return server


def _add_tools(server: Server) -> None:
    @server.tool(title="Add", annotations={"readOnlyHint": True})
    def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    @server.tool
    def echo(message: str) -> str:
        """Give the message back."""
        return message

    @server.tool(output_schema=_WEATHER)
    def weather(region: Annotated[str, {"x-mcp-header": "Region"}]) -> dict[str, Any]:
        """Tell the weather of a region."""
        return {"region": region, "celsius": 21.5, "sky": "clear"}

    @server.tool
    def count(steps: int, call: Call) -> str:
        """Count to `steps`, reporting progress."""
        for step in range(1, steps + 1):
            if call.cancelled:
                break
            call.progress(step, steps, f"step {step}")
            call.log("info", f"counted {step}", logger="count")
        return f"counted to {steps}"

    @server.tool(annotations={"destructiveHint": True})
    def deploy(call: Call) -> str:
        """Deploy, once a person has confirmed it."""
        answer = call.ask("confirm", _CONFIRM)
        confirmed = answer.get("action") == "accept" and answer.get("content", {}).get("confirm") is True
        return "deployed" if confirmed else "not deployed"

    @server.tool
    def fail(reason: str = "this tool always fails") -> str:
        """Fail."""
        raise ToolError(reason)

    @server.tool
    def sleep(seconds: float, call: Call) -> str:
        """Sleep, and stop when cancelled."""
        return "slept" if call.sleep(seconds) else "cancelled"

    @server.tool(output_schema={"type": "null"})
    def nothing() -> Structured:
        """Give an explicit null."""
        return Structured(None)

    @server.tool
    def announce(message: str, call: Call) -> str:
        """Log a message at every level."""
        for level in LOG_LEVELS:
            call.log(level, message, logger="announce")
        return f"announced {message}"

    @server.tool
    def install(name: str) -> str:
        """Add a tool of this name, which says hello, and tell those who want to hear of new tools."""
        if name in server.tools:
            raise ToolError(f"there is a tool {name}")
        server.tool(name=name, description="Say hello.")(lambda: f"hello from {name}")
        server.emit("notifications/tools/list_changed")
        return "installed"

    @server.tool(task_support="optional")
    def research(topic: str, call: Call, seconds: float = 0.1, confirm: bool = False) -> str:
        """Look into a topic in three steps, which may take long. Asks first if it is to."""
        if confirm and call.ask("confirm", _CONFIRM).get("action") != "accept":
            return "not researched"
        for step in range(1, 4):
            call.progress(step, 3, f"step {step}")
            if not call.sleep(seconds / 3):
                return "cancelled"
        return f"researched {topic}"


def _add_tools_that_ask(server: Server) -> None:
    @server.tool
    def sign_up(call: Call) -> dict[str, Any]:
        """Ask for an address in a form that has defaults, and give what was filled in."""
        answer = call.ask("form", _SIGN_UP)
        return {"action": answer.get("action"), **answer.get("content", {})}

    @server.tool
    def interview(call: Call) -> list[str]:
        """Ask three questions, one after the other, and give what was answered."""
        answers: list[str] = []
        for number, question in enumerate(_QUESTIONS, 1):
            answer = call.ask(f"question-{number}", inputs.form(question, {"answer": {"type": "string"}}))
            if answer.get("action") != "accept":
                break
            answers.append(str(answer.get("content", {}).get("answer")))
        return answers

    @server.tool
    def roots(call: Call) -> list[str]:
        """List the directories that the client shares."""
        return [root["uri"] for root in call.ask("roots", inputs.roots())["roots"]]

    @server.tool
    def poem(topic: str, call: Call) -> str:
        """Have the client's model write a poem."""
        answer = call.ask("poem", inputs.sampling(f"A poem on {topic}"))
        return f"{answer['model']}: {answer['content']['text']}"


def _add_resources(server: Server) -> None:
    @server.resource("demo://readme", mime_type="text/plain")
    def readme() -> str:
        """What this server is."""
        return "A demo server of snodo_client."

    @server.resource("demo://pixel.png", mime_type="image/png")
    def pixel() -> bytes:
        """The smallest picture."""
        return _PIXEL

    notes = {number: f"Note {number}." for number in range(1, 6)}
    for number in notes:
        server.resource(f"demo://notes/{number}", name=f"note-{number}", mime_type="text/plain")(_note(notes, number))

    @server.tool
    def write_note(number: int, text: str) -> str:
        """Change one of the notes 1 to 5, and tell those who subscribed to it."""
        if number not in notes:
            raise ToolError(f"there is no note {number}")
        notes[number] = text
        server.emit("notifications/resources/updated", {"uri": f"demo://notes/{number}"})
        return "written"

    @server.resource_template("demo://items/{id}", mime_type="text/plain")
    def item(id: str) -> str:
        """An item by its id."""
        return f"This is item {id}."


def _note(notes: dict[int, str], number: int) -> Any:
    def note() -> str:
        return notes[number]

    return note


def _add_prompts(server: Server) -> None:
    @server.prompt
    def greet(name: str, style: str = "plain") -> str:
        """Ask for a greeting."""
        return f"Greet {name} in a {style} style."

    @server.prompt
    def review(code: str) -> list[Any]:
        """Ask for a code review."""
        return [
            f"Review this code:\n{code}",
            {"role": "assistant", "content": {"type": "text", "text": "I will look at it."}},
        ]

    @server.completion("greet", "style")
    def styles(value: str) -> list[str]:
        return [style for style in _STYLES if style.startswith(value)]

    @server.completion("demo://items/{id}", "id")
    def ids(value: str) -> list[str]:
        return [str(number) for number in range(1, 151) if str(number).startswith(value)]
