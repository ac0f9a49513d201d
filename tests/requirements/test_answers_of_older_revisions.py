"""What handlers give is sent, and what servers ask is answered, only where the revision spoken has it."""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client import InputRequest
from support import mcp_schema
from support.asking import LEGACY, ask, asking, received

TALK: dict[str, Any] = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 9}
FORM: dict[str, Any] = {"type": "object", "properties": {"c": {"type": "string"}}}
URL = {"mode": "url", "message": "m", "url": "https://example.test/a", "elicitationId": "e1"}
CONTENT: dict[str, Any] = {
    "list": [{"type": "text", "text": "a"}],
    "audio": {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
}


def sample(request: InputRequest) -> dict[str, Any]:
    return {"role": "assistant", "content": CONTENT[request.params["systemPrompt"]], "model": "m"}


HANDLERS: dict[str, Any] = {
    "form": lambda r: {"action": "accept", "content": {"c": "a"}},
    "url": lambda r: {"action": "accept"},
    "sampling": sample,
}


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("what", CONTENT)
def test_sampled_content_is_of_the_revision(version: str, what: str) -> None:
    with asking("stdio", version) as connect:
        answer = ask(connect(handlers=HANDLERS), "sampling/createMessage", {**TALK, "systemPrompt": what})
        if "result" in answer:
            mcp_schema.check(answer["result"], "CreateMessageResult", version)


@pytest.mark.parametrize("version", LEGACY)
def test_capabilities_are_negotiated_down(version: str) -> None:
    with asking("stdio", version) as connect:
        client = connect(handlers=HANDLERS, client_capabilities={"sampling": {"tools": {}}})
        form = ask(client, "elicitation/create", {"message": "m", "requestedSchema": FORM})
        url = ask(client, "elicitation/create", URL)
        wanted = {**TALK, "systemPrompt": "list", "tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
        tools = ask(client, "sampling/createMessage", wanted)
        assert ("result" in form) == (version >= "2025-06-18")
        assert ("result" in url) == (version >= "2025-11-25")
        assert ("result" in tools) == (version >= "2025-11-25")


@pytest.mark.parametrize("version", LEGACY)
def test_a_pin_declares_what_its_revision_has(version: str) -> None:
    with asking("stdio", version) as connect:
        handlers = {"url": lambda r: {"action": "accept"}}
        client = connect(handlers=handlers, client_capabilities={"sampling": {"tools": {}}}, protocol=version)
        capabilities = received(client)[0]["params"]["capabilities"]
        assert ("elicitation" in capabilities) == (version == "2025-11-25")
        assert capabilities["sampling"] == ({"tools": {}} if version == "2025-11-25" else {})


LISTS = {"type": "object", "properties": {"c": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}}}


@pytest.mark.parametrize("version", LEGACY)
def test_lists_are_filled_in_where_a_form_may_have_them(version: str) -> None:
    with asking("stdio", version) as connect:
        client = connect(handlers={"form": lambda r: {"action": "accept", "content": {"c": ["a"]}}})
        answer = ask(client, "elicitation/create", {"message": "m", "requestedSchema": LISTS})
        assert ("result" in answer) == (version >= "2025-11-25")
