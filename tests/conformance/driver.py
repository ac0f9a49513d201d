"""The client under test of the official conformance suite: ``python driver.py URL``.

It goes one way for every scenario: connect, sign in where the server wants it, list, call every tool, read every
resource, get every prompt, answer what the server asks back, close. The scenario's name chooses inputs only, never
behaviour, and nothing but the public API is used. Anything but a good answer ends the program with exit code 1, a
refused server too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import requests

from snodo_client import Client, InputRequired, McpError, Ok
from snodo_client.auth import EnterpriseManaged, MemoryTokenStore, OAuth, WorkloadIdentity

MODERN = "2026-07-28"
INPUT_ROUNDS = 5
SECONDS = 30  # a set run starts every scenario at once

# What the suite wants to see wherever clients may name themselves by a document. It fetches nothing there.
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"
CALLBACK = "http://localhost:3000/callback"


def main(url: str) -> None:
    """Drive the server at `url` through everything it offers."""
    version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", MODERN)
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    client = Client.connect(
        ("http", url),
        auth=oauth(context),
        protocol="auto" if version == MODERN else version,
        client_capabilities=["elicitation", "roots", "sampling"],
        handlers={"form": lambda request: consent(request.schema or {})},
        timeout=SECONDS,
    )
    with client:
        tools = good(client.list_tools())
        for name, arguments in tool_calls(tools, context):
            call(client.call_tool, name, arguments)
        offered = client.server_capabilities or {}
        if "resources" in offered:
            for resource in good(client.list_resources()):
                call(client.read_resource, resource["uri"])
        if "prompts" in offered:
            for prompt in good(client.list_prompts()):
                arguments = {argument["name"]: "text" for argument in prompt.get("arguments", ())}
                call(client.get_prompt, prompt["name"], arguments)


def oauth(context: dict[str, Any]) -> OAuth:
    """Who we are, out of what the suite hands us: nothing in most scenarios."""
    return OAuth(
        client_id=context.get("client_id"),
        client_secret=context.get("client_secret"),
        private_key=context.get("private_key_pem"),
        signing_algorithm=context.get("signing_algorithm"),
        issuer=context.get("issuer"),
        client_metadata_url=CLIENT_DOCUMENT,
        store=MemoryTokenStore(),
        **granted(context),
    )


def granted(context: dict[str, Any]) -> dict[str, Any]:
    """What a token is given for. A client registered for people comes with the issuer that knows it."""
    if "idp_id_token" in context:
        idp = {name: context[name] for name in ("idp_token_endpoint", "idp_client_id")}
        return {"grant": EnterpriseManaged(id_token=context["idp_id_token"], **idp)}
    if "valid_jwt" in context:
        return {"grant": WorkloadIdentity(assertion=lambda audience: context["valid_jwt"])}
    if "client_id" in context and "issuer" not in context:
        return {"grant": "client_credentials"}
    return {"sign_in": consenting, "redirect_uri": CALLBACK}


def consenting(url: str) -> str:
    """A person who agrees at once: the suite redirects without a page, to where nobody listens."""
    return requests.get(url, allow_redirects=False, timeout=SECONDS).headers["Location"]


def tool_calls(tools: list[dict[str, Any]], context: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The calls to make: those the suite hands us, those its description prescribes, else every tool with samples."""
    schemas = {tool["name"]: tool["inputSchema"] for tool in tools}
    if "toolCalls" in context:
        yield from ((wanted["name"], wanted["arguments"]) for wanted in context["toolCalls"])
        return
    match os.environ.get("MCP_CONFORMANCE_SCENARIO"):
        case "json-schema-ref-no-deref":
            return
        case "json-schema-2020-12-preservation":
            yield "json_schema_echo", {"schema": schemas["json_schema_2020_12_tool"]}
        case _:
            yield from ((name, sample(schema)) for name, schema in schemas.items())


def call(method: Callable[..., Ok[Any] | InputRequired | McpError], *arguments: Any) -> None:
    """Make one call and answer the server's questions until it is complete."""
    outcome = method(*arguments)
    for _ in range(INPUT_ROUNDS):
        if not isinstance(outcome, InputRequired):
            break
        responses = {key: answer(request) for key, request in (outcome.requests or {}).items()}
        outcome = method(*arguments, input_responses=responses, request_state=outcome.request_state)
    good(outcome)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """A person's consent to whatever the server wants to know."""
    if request["method"] != "elicitation/create":
        raise ValueError(f"no answer for {request['method']}")
    return {"action": "accept", "content": sample(request["params"]["requestedSchema"])}


def consent(schema: dict[str, Any]) -> dict[str, Any]:
    """The same of a person who fills in only what has no default: the library knows the rest."""
    fields = schema.get("properties", {}).items()
    return {"action": "accept", "content": {name: sample(part) for name, part in fields if "default" not in part}}


def sample(schema: dict[str, Any]) -> Any:
    """A value that fits the schema."""
    if "default" in schema:
        return schema["default"]
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: sample(part) for name, part in schema.get("properties", {}).items()}
        case "array":
            return []
        case "boolean":
            return True
        case "integer" | "number":
            return 2
        case "null":
            return None
        case _:
            return "text"


def good(outcome: Ok[Any] | InputRequired | McpError) -> Any:
    """The value of a complete answer that reports no error."""
    value = outcome.unwrap()
    if isinstance(outcome, Ok) and outcome.is_error:
        raise ValueError(f"the tool failed: {value}")
    return value


if __name__ == "__main__":
    main(sys.argv[-1])
