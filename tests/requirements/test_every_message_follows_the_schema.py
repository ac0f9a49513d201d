"""Everything a client says in a whole session, in every revision and over every connection, against the official
schemas: requests of all public methods, notifications, cancellations, and answers to what the server asks.
"""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from support import mcp_schema
from support.asking import CELLS, ask, asking, received
from support.waiting import until

URI = "demo://notes/1"
REF = {"type": "ref/resource", "uri": "demo://items/{id}"}
FORM = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 7}}}
TALK = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 9}
TOOLS = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
URL = {"mode": "url", "message": "m", "url": "https://example.test/a", "elicitationId": "e1"}
REPLY = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m", "stopReason": "endTurn"}
USES_TOOL = {"role": "assistant", "content": [{"type": "tool_use", "id": "u", "name": "t", "input": {}}], "model": "m"}

# What a server asks, and the definition of the right answer or the code of the right refusal.
SINCE_2024_11_05: list[tuple[str, Any, str | int]] = [
    ("ping", None, "EmptyResult"),
    ("roots/list", None, "ListRootsResult"),
    ("sampling/createMessage", TALK, "CreateMessageResult"),
    ("sampling/createMessage", {**TALK, "systemPrompt": "refuse"}, -1),
    ("sampling/createMessage", {**TALK, "systemPrompt": "raise"}, -32603),
    ("sampling/createMessage", {**TALK, "maxTokens": "many"}, -32602),
    ("tools/list", None, -32601),
    ("tasks/get", {"taskId": "x"}, -32601),
]
SINCE_2025_06_18: list[tuple[str, Any, str | int]] = [
    ("elicitation/create", {"message": "m", "requestedSchema": FORM}, "ElicitResult"),
    ("elicitation/create", {"message": "decline", "requestedSchema": FORM}, "ElicitResult"),
    ("elicitation/create", {"message": "m", "requestedSchema": {"type": "array"}}, -32602),
]
SINCE_2025_11_25: list[tuple[str, Any, str | int]] = [
    ("elicitation/create", {**URL}, "ElicitResult"),
    ("sampling/createMessage", {**TALK, **TOOLS}, "CreateMessageResult"),
]


def questions(version: str) -> list[tuple[str, Any, str | int]]:
    return [
        *(SINCE_2024_11_05 if version < "2026" else []),
        *(SINCE_2025_06_18 if "2025-06-18" <= version < "2026" else []),
        *(SINCE_2025_11_25 if version == "2025-11-25" else []),
    ]


def sample(request: Any) -> dict[str, Any]:
    wish = request.params.get("systemPrompt")
    if wish == "refuse":
        raise McpError(-1, "User rejected sampling request")
    if wish == "raise":
        raise LookupError("of the handler")
    return USES_TOOL if "tools" in request.params else REPLY


def fill_in(request: Any) -> dict[str, Any]:
    return {"action": "decline"} if request.message == "decline" else {"action": "accept", "content": {"name": "Ada"}}


HANDLERS = {"form": fill_in, "url": lambda request: {"action": "accept"}, "sampling": sample}
CAPABILITIES: dict[str, Any] = {"roots": {}, "sampling": {"tools": {}}, "experimental": {"com.example": {}}}


def talk(client: Client, kind: str, version: str) -> list[dict[str, Any]]:
    """Use every method there is, and give all that was received for it."""
    outcomes: list[Any] = [
        client.list_tools(progress=print),
        client.list_resources(),
        client.list_resource_templates(),
        client.list_prompts(meta={"com.example/a": 1}),
        client.list_page("tools"),
        client.call_tool("count", {"steps": 2}, progress=print, log_level="debug", meta={"com.example/a": [None]}),
        client.call_tool("echo", {"message": "\u2028 \U0001f600"}, meta={"progressToken": "mine"}),
        client.read_resource(URI),
        client.get_prompt("greet", {"name": "Ada"}),
        client.complete("greet", {"name": "style", "value": ""}, {"arguments": {"name": "Ada"}}),
        client.complete(REF, {"name": "id", "value": "1"}),
        client.add_root("file:///srv/data", "data"),
        client.add_root("file:///srv/more"),
        client.remove_root("file:///srv/more"),
        client.notify("notifications/cancelled", {"requestId": 1, "reason": "none"}),
    ]
    if version == "2026-07-28":
        yes = {"confirm": {"action": "accept", "content": {"confirm": True}}}
        state = client.call_tool("deploy", answer_input=False).request_state  # type: ignore[union-attr]
        kinds = ["notifications/tools/list_changed", "notifications/resources/list_changed"]
        with client.listen(kinds, meta={"com.example/a": 1}).unwrap() as subscription:  # type: ignore[union-attr]
            outcomes.append(Ok(subscription.accepted))
        outcomes += [client.discover(), client.call_tool("deploy", input_responses=yes, request_state=state)]
    else:
        outcomes += [
            client.ping(),
            client.set_log_level("warning"),
            client.subscribe_resource(URI),
            client.unsubscribe_resource(URI),
        ]
    for method, params, _ in questions(version):
        ask(client, method, params)
    if version == "2025-11-25":
        outcomes += use_tasks(client)
    assert [outcome for outcome in outcomes if not isinstance(outcome, Ok)] == []
    lost = client.call_tool("sleep", {"seconds": 30}, timeout=0.1)
    assert isinstance(lost, McpError)
    assert lost.reason == "timeout"
    return everything(client, kind, version)


def use_tasks(client: Client) -> list[Any]:
    params = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": FORM}}
    begun = client.call_tool("ask", params, task={"ttl": 60_000}, progress=print)
    task_id = begun.unwrap()["task"]["taskId"]
    done = [client.tasks.result(task_id), client.tasks.get(task_id), client.tasks.list()]
    long = client.call_tool("research", {"topic": "owls", "seconds": 60.0}, task=True)
    return [begun, *done, client.list_page("tasks"), long, client.tasks.cancel(long.unwrap()["task"]["taskId"])]


def everything(client: Client, kind: str, version: str) -> list[dict[str, Any]]:
    """All messages, once those have arrived that nobody waits for: cancellations and changes of the roots."""
    messages: list[dict[str, Any]] = []
    legacy = version != "2026-07-28"
    expected = {"notifications/cancelled": 1 + (legacy or 2 * (kind == "stdio"))}
    expected |= {"notifications/roots/list_changed": 3} if legacy else {}

    def arrived() -> bool:
        messages[:] = received(client)
        methods = [message.get("method") for message in messages]
        return all(methods.count(method) == count for method, count in expected.items())

    until(arrived)
    return messages


@pytest.mark.parametrize(("kind", "version"), CELLS)
def test_every_message_of_a_session_follows_the_schema(kind: str, version: str) -> None:
    with asking(kind, version) as connect:
        messages = talk(connect(client_capabilities=CAPABILITIES, handlers=HANDLERS), kind, version)
    answers = [message for message in messages if "method" not in message]
    probe = [message for message in messages if message.get("method") == "server/discover"]
    for message in messages:
        mcp_schema.check_from_client(message, "2026-07-28" if message in probe else version)
    ids = [message["id"] for message in messages if "method" in message and "id" in message]
    assert ids == sorted(set(ids))
    assert {type(each) for each in ids} == {int}
    if version != "2026-07-28":
        judge_answers(answers, version)


def judge_answers(answers: list[dict[str, Any]], version: str) -> None:
    """Each is of the one definition that its question wants, or the one refusal; the last is of a task."""
    asked = questions(version)
    for answer, (method, _, wanted) in zip(answers, asked, strict=False):
        if isinstance(wanted, int):
            assert answer["error"]["code"] == wanted, method
        else:
            mcp_schema.check(answer["result"], wanted, version)
    assert len({answer["id"] for answer in answers}) == len(answers)
    assert len(answers) == len(asked) + (version == "2025-11-25")
    if version == "2025-11-25":
        mcp_schema.check(answers[-1]["result"], "ElicitResult", version)
        assert answers[-1]["result"]["_meta"]["io.modelcontextprotocol/related-task"].keys() == {"taskId"}


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
@pytest.mark.parametrize("info", [None, {"name": "n", "version": "1", "title": "t", "websiteUrl": "https://a.test"}])
def test_the_handshake_follows_the_schema_whoever_asks(version: str, info: Any) -> None:
    with asking("sse", version) as connect:
        first, second, *_ = received(connect(client_info=info, protocol=version))
    mcp_schema.check_from_client(first, version)
    assert (first["method"], first["params"]["protocolVersion"]) == ("initialize", version)
    mcp_schema.check_from_client(second, version)
    assert second == {"jsonrpc": "2.0", "method": "notifications/initialized"}
