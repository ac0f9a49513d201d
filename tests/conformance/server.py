"""The server that the official suite's server scenarios are run against: `python tests/conformance/server.py PORT`.

Every tool, resource and prompt here is one that a scenario asks for by name; all of it is built with the public test
kit. The scenarios that it claims to serve are listed in `server_scenarios.txt`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from snodo_client.testing import Block, Call, Server, ToolError, audio, embedded, image, text

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a4944415478da63f80f00010101001cb08c990000000049454e44ae426082"
)
WAV = bytes.fromhex(  # two samples of silence
    "524946462600000057415645666d74201000000001000100401f0000401f000001000800"  # the header and the format
    "64617461020000008080"
)
JSON_SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
SAMPLING: dict[str, Any] = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "What is the capital of France?"}}],
        "maxTokens": 100,
    },
}
ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}

server = Server("snodo-conformance", "1.0")


def form(message: str, field: str, kind: str = "string") -> dict[str, Any]:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


# Plain tools


@server.tool
def test_simple_text() -> str:
    """Give a text."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> Block:
    """Give an image."""
    return image(PNG)


@server.tool
def test_audio_content() -> Block:
    """Give a sound."""
    return audio(WAV)


@server.tool
def test_embedded_resource() -> Block:
    """Give an embedded resource."""
    return embedded("test://embedded-resource", "This is an embedded resource content.")


@server.tool
def test_multiple_content_types() -> Any:
    """Give a text, an image and a resource."""
    resource = embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
    return [text("Multiple content types test:"), image(PNG), resource]


@server.tool
def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
def test_tool_with_progress(call: Call) -> str:
    """Report progress three times."""
    for progress in (0, 50, 100):
        call.progress(progress, 100)
        call.sleep(0.05)
    return "done"


@server.tool
def test_logging_tool(call: Call) -> str:
    """Log, if logs were asked for."""
    call.log("info", "working")
    return "done"


@server.tool
def test_header_parameter(region: Annotated[str, {"x-mcp-header": "Region"}]) -> str:
    """Take a parameter that is repeated in a header."""
    return region


server.tool(
    name="json_schema_2020_12_tool",
    description="Tool with JSON Schema 2020-12 features",
    input_schema=JSON_SCHEMA_2020_12,
)(lambda **arguments: "done")


# Capabilities and subscriptions


@server.tool
def test_missing_capability(call: Call) -> str:
    """Need sampling."""
    call.require(sampling={})
    return "done"


@server.tool
def test_streaming_elicitation(call: Call) -> str:
    """Stream progress and ask for input."""
    call.notify("notifications/progress", {"progressToken": "unasked", "progress": 1})
    return str(call.ask("user_name", form("What is your name?", "name")))


@server.tool
def test_trigger_tool_change() -> str:
    """Announce that the tools have changed."""
    server.emit("notifications/tools/list_changed")
    return "done"


@server.tool
def test_trigger_prompt_change() -> str:
    """Announce that the prompts have changed."""
    server.emit("notifications/prompts/list_changed")
    return "done"


# Input rounds


@server.tool
def test_input_required_result_elicitation(call: Call) -> str:
    """Ask for a name."""
    answer = call.ask("user_name", form("What is your name?", "name"))
    return f"Hello, {answer.get('content', {}).get('name')}!"


@server.tool
def test_input_required_result_sampling(call: Call) -> str:
    """Ask a model."""
    return str(call.ask("capital_question", SAMPLING)["content"])


@server.tool
def test_input_required_result_list_roots(call: Call) -> str:
    """Ask for the roots."""
    return str(call.ask("client_roots", ROOTS)["roots"])


@server.tool
def test_input_required_result_request_state(call: Call) -> str:
    """Ask for a confirmation; the state is checked on the way in."""
    call.ask("confirm", form("Please confirm", "ok", "boolean"))
    return "state-ok"


@server.tool
def test_input_required_result_tampered_state(call: Call) -> str:
    """The same, to be tampered with."""
    call.ask("confirm", form("Please confirm", "ok", "boolean"))
    return "state-ok"


@server.tool
def test_input_required_result_multiple_inputs(call: Call) -> str:
    """Ask for three things at once."""
    form_request = form("What is your name?", "name")
    call.ask_all({"user_name": form_request, "greeting": SAMPLING, "client_roots": ROOTS})
    return "done"


@server.tool
def test_input_required_result_multi_round(call: Call) -> str:
    """Ask twice."""
    name = call.ask("step1", form("Step 1: What is your name?", "name"))
    color = call.ask("step2", form("Step 2: What is your favorite color?", "color"))
    return f"{name} {color}"


@server.tool
def test_input_required_result_capabilities(call: Call) -> str:
    """Ask for what the client can give."""
    wanted = {"name": form("What is your name?", "name"), "capital": SAMPLING}
    able = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling"}
    call.ask_all({key: ask for key, ask in wanted.items() if able[ask["method"]] in call.capabilities})
    return "done"


# Resources


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A picture."""
    return PNG


@server.resource_template("test://template/{id}/data", mime_type="application/json")
def template_data(id: str) -> str:
    """Data by id."""
    return f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'


# Prompts


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("test_prompt_with_arguments", "arg1")
def arg1_values(value: str) -> list[str]:
    return [word for word in ("paris", "park", "party") if word.startswith(value)]


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> Any:
    """A prompt with a resource in it."""
    resource = embedded(resourceUri, "Embedded resource content for testing.")
    return [resource, "Please process the embedded resource above."]


@server.prompt
def test_prompt_with_image() -> Any:
    """A prompt with an image in it."""
    return [image(PNG), "Please analyze the image above."]


@server.prompt
def test_input_required_result_prompt(call: Call) -> str:
    """A prompt that asks for its context."""
    answer = call.ask("user_context", form("What context should the prompt use?", "context"))
    return f"Use this context: {answer.get('content')}"


if __name__ == "__main__":
    with server.serve_http(port=int(sys.argv[1])) as serving:
        print(serving.url, flush=True)
        serving.wait()
