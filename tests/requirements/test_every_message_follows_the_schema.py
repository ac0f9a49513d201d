"""What a whole session writes, cancellations among it, against the official schema of the protocol."""

from __future__ import annotations

import sys
from typing import Any

from snodo_client import Client, McpError
from support.mcp_schema import check
from support.waiting import until

# Answers every request, but the tool "silence", with all it has received so far.
SERVER = """
import json, sys
received = []
for line in sys.stdin.buffer:
    message = json.loads(line)
    received.append(message)
    if "id" in message and message["params"].get("name") != "silence":
        lists = dict.fromkeys(("tools", "resources", "resourceTemplates", "prompts"), [])
        known = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "received": received}
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": {**lists, **known}}
        sys.stdout.write(json.dumps(answer) + "\\n")
        sys.stdout.flush()
"""


def session() -> list[dict[str, Any]]:
    target = ("stdio", sys.executable, ["-I", "-S", "-c", SERVER])
    with Client.connect(target, client_capabilities=["elicitation", "roots"]) as client:  # type: ignore[arg-type]
        ref = {"type": "ref/resource", "uri": "a:{b}"}
        answers = {"a": {"action": "accept", "content": {"b": 1}}}
        for outcome in (
            client.discover(),
            client.list_tools(),
            client.list_resources(),
            client.list_resource_templates(),
            client.list_prompts(),
            client.list_page("tools", ""),
            client.call_tool(
                "t", {"a": [None, "\u2028"]}, progress=print, log_level="debug", meta={"com.example/a": 1}
            ),
            client.call_tool("t", input_responses=answers, request_state=""),
            client.read_resource("a:b"),
            client.get_prompt("p", {"a": "b"}),
            client.complete(ref, {"name": "b", "value": ""}, {"arguments": {"c": "d"}}),
            client.notify("notifications/cancelled", {"requestId": 1}),
        ):
            assert not isinstance(outcome, McpError), outcome
        lost = client.call_tool("silence", timeout=0.2)
        assert isinstance(lost, McpError)
        assert lost.reason == "timeout"
        received: list[dict[str, Any]] = []

        def both_cancellations_arrived() -> bool:
            received[:] = client.discover(timeout=10).unwrap()["received"]
            return [message["method"] for message in received].count("notifications/cancelled") == 2

        until(both_cancellations_arrived)
        return received


def test_every_message_of_a_session_follows_the_schema() -> None:
    requests: list[Any] = []
    for message in session():
        if "id" in message:
            check(message, "JSONRPCRequest")
            check(message, "ClientRequest")
            requests.append(message["id"])
        else:
            check(message, "JSONRPCNotification")
            check(message, "CancelledNotification")
    assert requests == sorted(set(requests))
    assert {type(each) for each in requests} == {int}
