"""What each public method of a client sends, in every revision and over every connection: exactly these messages, each
as the official schema of the revision has it, or nothing where the revision has no such operation.
"""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client import Client, McpError, Ok, Subscription
from snodo_client.tasks import Tasks
from support import mcp_schema
from support.asking import CELLS, asking, received
from support.waiting import until

MODERN, TASKS = "2026-07-28", "2025-11-25"
URI = "demo://notes/1"
REF = {"type": "ref/prompt", "name": "greet"}
CONTEXT = {"arguments": {"name": "Ada"}}

# They send nothing, or what is no call: the handshake and cancellations are the matter of other tests.
SILENT = {
    "cancel_all", "connect", "direct", "close", "await_ready", "list_roots", "tasks",
    "server_info", "server_capabilities", "instructions", "protocol_info",
}  # fmt: skip

# Each public method, with what it sends in the revisions that have it.
SENDS: dict[str, tuple[Any, list[str]]] = {
    "list_tools": (lambda c: c.list_tools(), ["tools/list"] * 4),
    "list_resources": (lambda c: c.list_resources(progress=print), ["resources/list"] * 2),
    "list_resource_templates": (
        lambda c: c.list_resource_templates(meta={"com.example/a": 1}),
        ["resources/templates/list"],
    ),
    "list_prompts": (lambda c: c.list_prompts(log_level="debug"), ["prompts/list"]),
    "list_page": (lambda c: c.list_page("tools", None), ["tools/list"]),
    "call_tool": (lambda c: c.call_tool("echo", {"message": "x"}, meta={"progressToken": "mine"}), ["tools/call"]),
    "start_tool_call": (lambda c: c.start_tool_call("echo", {"message": "x"}).result(), ["tools/call"]),
    "listen": (lambda c: listening(c), ["subscriptions/listen"]),
    "read_resource": (lambda c: c.read_resource(URI), ["resources/read"]),
    "get_prompt": (lambda c: c.get_prompt("greet", {"name": "Ada"}), ["prompts/get"]),
    "complete": (lambda c: c.complete(REF, {"name": "style", "value": "f"}, CONTEXT), ["completion/complete"]),
    "request": (
        lambda c: c.request("tools/call", {"name": "echo", "arguments": {"message": "x"}}, progress=print),
        ["tools/call"],
    ),
    "notify": (
        lambda c: c.notify("notifications/cancelled", {"requestId": 1, "reason": "no"}),
        ["notifications/cancelled"],
    ),
    "discover": (lambda c: c.discover(), ["server/discover"]),
    "ping": (lambda c: c.ping(), ["ping"]),
    "set_log_level": (lambda c: c.set_log_level("warning"), ["logging/setLevel"]),
    "subscribe_resource": (lambda c: c.subscribe_resource(URI), ["resources/subscribe"]),
    "unsubscribe_resource": (lambda c: c.unsubscribe_resource(URI), ["resources/unsubscribe"]),
    "add_root": (lambda c: c.add_root("file:///srv/b"), ["notifications/roots/list_changed"]),
    "remove_root": (lambda c: c.remove_root("file:///srv/a"), ["notifications/roots/list_changed"]),
    "clear_roots": (lambda c: c.clear_roots(), ["notifications/roots/list_changed"]),
    "tasks.get": (lambda c: c.tasks.get("no such task"), ["tasks/get"]),
    "tasks.result": (lambda c: c.tasks.result("no such task"), ["tasks/result"]),
    "tasks.list": (lambda c: c.tasks.list(), ["tasks/list"]),
    "tasks.cancel": (lambda c: c.tasks.cancel("no such task"), ["tasks/cancel"]),
}
LEGACY_ONLY = {"ping", "set_log_level", "subscribe_resource", "unsubscribe_resource"}
ROOTS = {"add_root", "remove_root", "clear_roots"}


OPEN: list[Subscription] = []


def listening(client: Client) -> Any:
    opened = client.listen(["notifications/tools/list_changed"])
    if isinstance(opened, McpError):
        return opened
    OPEN.append(opened)  # it ends with its client
    return Ok(opened.accepted)


def test_no_public_method_is_left_out() -> None:
    public = {name for name in dir(Client) if not name.startswith("_")}
    asking_for_tasks = {f"tasks.{name}" for name in dir(Tasks) if not name.startswith("_")}
    assert SENDS.keys() | SILENT == public | asking_for_tasks
    assert not SENDS.keys() & SILENT


def is_there(name: str, version: str) -> bool:
    """Whether the revision has such an operation."""
    if name.startswith("tasks."):
        return version == TASKS
    if name in ("discover", "listen"):
        return version == MODERN
    return version != MODERN or name not in LEGACY_ONLY


def is_asking(message: dict[str, Any]) -> bool:
    return (message.get("params") or {}).get("name") == "received"


@pytest.mark.parametrize(("kind", "version"), CELLS)
def test_what_each_method_sends(kind: str, version: str) -> None:
    with asking(kind, version) as connect:
        client = connect(client_capabilities=["roots"])
        client.list_tools().unwrap()  # some of them mirror arguments over HTTP
        client.add_root("file:///srv/a")
        until(lambda: version == MODERN or received(client)[-2].get("method") == "notifications/roots/list_changed")
        for name, (use, methods) in SENDS.items():
            before = len(received(client))
            outcome = use(client)
            after = sent_since(client, before, methods if is_there(name, version) else [], name, version)
            for message in after:
                mcp_schema.check_from_client(message, version)
            if not is_there(name, version):
                assert isinstance(outcome, McpError), name
                assert outcome.reason == "unsupported_operation", name
            elif name.startswith("tasks.") and name != "tasks.list":
                assert (outcome.code, outcome.reason) == (-32602, None)
            else:
                assert isinstance(outcome, Ok), (name, outcome)
            if name == "complete":
                (message,) = after
                given = {key: value for key, value in message["params"].items() if key != "_meta"}
                assert given == {"ref": REF, "argument": {"name": "style", "value": "f"}, "context": CONTEXT}


def sent_since(client: Client, before: int, methods: list[str], name: str, version: str) -> list[dict[str, Any]]:
    """The messages since then, which are those of these methods and no others."""
    wanted = [] if name in ROOTS and version == MODERN else methods
    new: list[dict[str, Any]] = []

    def arrived() -> bool:
        new[:] = [message for message in received(client)[before:] if not is_asking(message)]
        return len(new) >= len(wanted)

    until(arrived)
    assert [message.get("method") for message in new] == wanted, name
    return new
