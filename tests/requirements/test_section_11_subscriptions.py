"""Subscriptions (spec: basic/patterns/subscriptions) over every connection that has them; `section_11.md` has the whole
table, with the tests of other files.
"""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client import McpError
from snodo_client.changes import Closed, Notification
from support import mcp_schema
from support.changing import CONNECTIONS, changing, subscribed, use
from support.waiting import until

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
UPDATED = "notifications/resources/updated"
VERSION = "2026-07-28"

each_connection = pytest.mark.parametrize("connection", CONNECTIONS)


@each_connection
@pytest.mark.parametrize(
    "filter",
    [
        {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True},
        {"resourceSubscriptions": ["test://a", "test://a/b?c=%20"], "toolsListChanged": False},
        {"taskIds": ["1"], "com.example/x": {"a": None}},
        {},
    ],
)
def test_l01_every_message_of_it_follows_the_schema(connection: str, filter: dict[str, Any]) -> None:
    with changing(connection) as client:
        subscription = subscribed(client, filter, meta={"com.example/a": [None]})
        subscription.close()
        until(lambda: use(client, "opened") == 0)
        (request,) = use(client, "told", method="subscriptions/listen")
        over = use(client, "told", method="notifications/cancelled")
    assert request["params"]["notifications"] == filter
    assert type(request["id"]) is int
    for message in (request, *over):
        mcp_schema.check_from_client(message, VERSION)
    mcp_schema.check(request, "SubscriptionsListenRequest")


@each_connection
def test_l03_what_was_asked_for_and_what_was_granted_can_be_compared(connection: str) -> None:
    asked = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["test://a", "test://b"]}
    granted = {"promptsListChanged": True, "resourceSubscriptions": ["test://b"]}
    with changing(connection) as client:
        use(client, "plan", ["acknowledge", granted])
        subscription = subscribed(client, asked)
        assert (subscription.requested, subscription.accepted) == (asked, granted)
        use(client, "plan", ["acknowledge", {}])
        assert subscribed(client, asked).accepted == {}


@each_connection
def test_l06_each_end_is_told_for_what_it_is(connection: str) -> None:
    ends = {"end": "complete", "cancel": "cancelled"}
    with changing(connection) as client:
        for how, reason in ends.items():
            subscription = subscribed(client, [TOOLS])
            use(client, "act", [how])
            end = subscription.next(20)
            assert isinstance(end, Closed)
            assert (end.reason, end.error) == (reason, None)
        use(client, "plan", ["refuse", -32601, "no subscriptions here"])
        refused = client.listen([TOOLS], timeout=20)
        assert isinstance(refused, McpError)
        assert (refused.code, refused.reason) == (-32601, None)
        subscription = subscribed(client, [TOOLS])
    end = subscription.next(0)
    assert isinstance(end, Closed)
    assert end.reason == "closed"


@pytest.mark.parametrize("connection", ["stdio", "http"])
def test_l07_after_a_loss_it_is_asked_for_anew_by_whoever_still_wants_it(connection: str) -> None:
    options: dict[str, Any] = {"restart": "on_call"} if connection == "stdio" else {}
    filter = {"toolsListChanged": True, "resourceSubscriptions": ["test://a"]}
    with changing(connection, **options) as client:
        first = subscribed(client, filter)
        client.call_tool("act", {"steps": [["drop"]]}, timeout=20)  # its answer may be lost as well
        end = first.next(20)
        assert isinstance(end, Closed)
        assert end.reason == "lost"
        again = subscribed(client, filter)
        assert again.id != first.id
        asked = use(client, "told", method="subscriptions/listen")
        assert asked[-1]["params"]["notifications"] == filter
        assert len(asked) == (1 if connection == "stdio" else 2), "another process remembers nothing"
        assert use(client, "emit", method=TOOLS) == 1
        event = again.next(20)
        assert isinstance(event, Notification)
        assert event.method == TOOLS
        assert first.next(0) is end


@each_connection
def test_l08_an_update_may_be_of_something_inside_what_was_subscribed_to(connection: str) -> None:
    with changing(connection) as client:
        subscription = subscribed(client, {"resourceSubscriptions": ["test://a"]})
        use(client, "act", ["notify", UPDATED, {"uri": "test://a/b/c#d", "com.example/x": 1}])
        event = subscription.next(20)
        assert isinstance(event, Notification)
        assert (event.params["uri"], event.params["com.example/x"]) == ("test://a/b/c#d", 1)


@each_connection
def test_l09_what_was_not_granted_and_what_never_belongs_there_is_dropped(connection: str) -> None:
    with changing(connection) as client:
        use(client, "plan", ["acknowledge", {"toolsListChanged": True}])
        subscription = subscribed(client, [TOOLS, PROMPTS])
        strays = [
            ["notify", PROMPTS],
            ["notify", UPDATED, {"uri": "test://a"}],
            ["notify", "notifications/message", {"level": "info", "data": 1}],
            ["notify", "notifications/progress", {"progressToken": 1, "progress": 1}],
        ]
        use(client, "act", *strays, ["notify", TOOLS])
        event = subscription.next(20)
        assert isinstance(event, Notification)
        assert event.method == TOOLS
        assert subscription.next(0) is None
