"""Servers that ask before they answer: scripted ones, and one of the test kit over every connection.

Scripted, with `ScriptedTransport`: `turns(step, ...)` answers the first request with the first step and so on, the last
one again and again; `asks(call, requests, state)` is the result that asks.

    with questioning("stdio", "2025-11-25") as connect:
        client = connect(handlers=HANDLERS)
        client.call_tool("everything")      # asks for all there is, in rounds or while the call runs
    received(client)                        # every message of the client so far, see support.asking

`python -m support.questions` serves stdio; its argument is the one revision it speaks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from snodo_client import Client, InputRequest
from snodo_client.engine.call import Call as EngineCall
from snodo_client.testing import Call, Server, inputs
from support.asking import asking_server
from support.scripted_transport import Message

TESTS = Path(__file__).parents[1]
MODERN, LEGACY = "2026-07-28", "2025-11-25"
# Every kind of connection, in the era or the eras it carries.
CELLS = [
    ("direct", MODERN),
    ("stdio", MODERN),
    ("http", MODERN),
    ("http-stream", MODERN),
    ("direct", LEGACY),
    ("stdio", LEGACY),
    ("http", LEGACY),
    ("sse", LEGACY),
    ("websocket", LEGACY),
]

FORM = inputs.form("Your name?", {"name": {"type": "string"}, "age": {"type": "integer", "default": 7}}, required=[])
URL = inputs.url("Sign in", "https://example.test/sign?in=1")
SAMPLING = inputs.sampling("Say a word", max_tokens=5)
ROOTS = inputs.roots()
NAMED = {"action": "accept", "content": {"name": "Ada"}}
FILLED = {"action": "accept", "content": {"name": "Ada", "age": 7}}
WORD = {"role": "assistant", "content": {"type": "text", "text": "word"}, "model": "m"}
PLACES = {"roots": [{"uri": "file:///srv"}]}

Handler = Callable[[InputRequest], Any]
Step = Callable[[EngineCall], Iterable[Message]]


def answering(handler: Handler | None = None, **handlers: Handler) -> dict[str, Handler]:
    """Handlers that give the right answers, but for those given; `handler` is for all four."""
    right: dict[str, Handler] = {
        "form": lambda request: NAMED,
        "url": lambda request: {"action": "accept"},
        "sampling": lambda request: WORD,
        "roots": lambda request: PLACES,
    }
    return dict.fromkeys(right, handler) if handler is not None else {**right, **handlers}


def noting(into: list[InputRequest], answer: Any) -> Handler:
    """A handler that keeps every request it is given."""

    def handle(request: InputRequest) -> Any:
        into.append(request)
        return answer

    return handle


# -- scripted


def asks(call: EngineCall, requests: Any = None, state: Any = None) -> Message:
    """The result that asks, to the current attempt of the call."""
    result: dict[str, Any] = {"resultType": "input_required"}
    if requests is not None:
        result["inputRequests"] = requests
    if state is not None:
        result["requestState"] = state
    return {"jsonrpc": "2.0", "id": call.wire_id, "result": result}


def turns(*steps: Step) -> Step:
    numbers = count()

    def script(call: EngineCall) -> Iterable[Message]:
        return steps[min(next(numbers), len(steps) - 1)](call)

    return script


# -- of the test kit


def questions_server(version: str) -> Server:
    """The server of `support.asking`, strict, with tools that ask."""
    server = asking_server(version)
    server.strict = True

    @server.tool
    def everything(call: Call) -> str:
        """Ask for a form, then for a page and words at once, then for the roots."""
        name = call.ask("name", FORM)["content"]["name"]
        both = call.ask_all({"page": URL, "words": SAMPLING})
        roots = call.ask("roots", ROOTS)["roots"]
        return f"{name} {both['page']['action']} {both['words']['content']['text']} {roots[0]['uri']}"

    @server.tool
    def greet(who: str, call: Call) -> str:
        """Ask for a name, and greet in the name of it."""
        name = call.ask(f"name-{who}", inputs.form(f"Who greets {who}?", {"name": {"type": "string"}}))
        return f"{name['content']['name']} greets {who}"

    @server.tool
    def counting(call: Call) -> str:
        """Report progress, ask, and report more."""
        call.progress(call.attempt, 2)
        call.ask("name", FORM)
        call.progress(call.attempt + 1, 3)
        return "counted"

    @server.tool
    def insatiable(call: Call) -> str:
        """Ask, and ask again."""
        return str(call.ask(f"again-{call.attempt}", inputs.form("Again?", {}, required=[])))

    @server.tool
    def sign_in(call: Call) -> str:
        """Have a page visited."""
        return str(call.visit("page", "Sign in", "https://example.test/sign?in=1")["action"])

    @server.tool
    def both(call: Call) -> str:
        """Ask for a form and for a page at once."""
        answers = call.ask_all({"1": FORM, "2": URL})
        return " ".join(answers[key]["action"] for key in ("1", "2"))

    @server.tool
    def open(address: str, call: Call) -> str:
        """Have a page opened."""
        return str(call.ask("page", inputs.url("Open this", address))["action"])

    @server.tool
    def private(prompt: str, call: Call) -> str:
        """Ask for words."""
        return str(call.ask("words", inputs.sampling(prompt))["model"])

    @server.tool
    def where(call: Call) -> str:
        """Ask for the roots."""
        return f"{len(call.ask('roots', ROOTS)['roots'])} roots"

    @server.prompt
    def asked(call: Call) -> str:
        """A prompt that asks first."""
        return str(call.ask("name", FORM)["content"]["name"])

    @server.resource("asked://name")
    def name(call: Call) -> str:
        """A resource that asks first."""
        return str(call.ask("name", FORM)["content"]["name"])

    return server


@contextmanager
def questioning(kind: str, version: str) -> Iterator[Callable[..., Client]]:
    """What connects to such a server."""
    clients: list[Client] = []

    def made(client: Client) -> Client:
        clients.append(client)
        return client

    def close() -> None:
        while clients:
            clients.pop().close()

    server = questions_server(version)
    try:
        if kind == "direct":
            yield lambda **options: made(Client.direct(server, **options))
        elif kind == "stdio":
            target: Any = ("stdio", sys.executable, ["-m", "support.questions", version])
            yield lambda **options: made(Client.connect(target, cwd=TESTS, **options))
        else:
            serving: Any
            if kind in ("http", "http-stream"):
                serving = server.serve_http(sse=True if kind == "http-stream" else "auto")
            else:
                serving = server.serve_sse() if kind == "sse" else server.serve_websocket()
            with serving:
                target = serving.url if kind.startswith("http") else (kind, serving.url)
                yield lambda **options: made(Client.connect(target, **options))
                close()
    finally:
        close()


if __name__ == "__main__":
    questions_server(sys.argv[1]).serve_stdio()
