"""Subscriptions over real connections: what they carry, every way they end, and what the server knows of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from snodo_client import Client, McpError
from snodo_client.changes import Closed, Notification
from snodo_client.subscription import Subscription
from snodo_client.testing import Server
from support.changing import CONNECTIONS, changing, changing_server, subscribed, use
from support.waiting import until

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
LISTS = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
EVERYTHING = {**LISTS, "resourceSubscriptions": ["test://a"]}
LATE = 2.0
# Nobody can look at the time while a handler runs in the thread that would.
TIMED = pytest.mark.parametrize("connection", ["direct", "stdio", "http"], indirect=True)


@pytest.fixture(params=CONNECTIONS)
def connection(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(connection: str) -> Iterator[Client]:
    with changing(connection) as client:
        yield client


def methods(subscription: Subscription, count: int) -> list[str]:
    events = [subscription.next(20) for _ in range(count)]
    assert all(isinstance(event, Notification) for event in events), events
    return [event.method for event in events]  # type: ignore[union-attr]


def closed(subscription: Subscription) -> Closed:
    *events, end = list(subscription)
    assert events == []
    assert isinstance(end, Closed)
    assert subscription.next(0) is end
    return end


# -- what they carry


def test_every_kind_of_change(client: Client) -> None:
    subscription = subscribed(client, EVERYTHING)
    assert subscription.accepted == EVERYTHING
    for method in (TOOLS, PROMPTS, RESOURCES):
        assert use(client, "emit", method=method) == 1
    assert use(client, "emit", method=UPDATED, uri="test://a") == 1
    assert use(client, "emit", method=UPDATED, uri="test://b") == 0
    use(client, "act", ["notify", UPDATED, {"uri": "test://a/inside"}])
    assert methods(subscription, 5) == [TOOLS, PROMPTS, RESOURCES, UPDATED, UPDATED]
    assert subscription.next(0) is None


def test_several_at_once(client: Client) -> None:
    of_tools = subscribed(client, [TOOLS])
    of_prompts = subscribed(client, {"promptsListChanged": True})
    of_both = subscribed(client, [PROMPTS, TOOLS])
    assert len({of_tools.id, of_prompts.id, of_both.id}) == 3
    use(client, "emit", method=TOOLS)
    use(client, "emit", method=PROMPTS)
    assert methods(of_tools, 1) == [TOOLS]
    assert methods(of_prompts, 1) == [PROMPTS]
    assert methods(of_both, 2) == [TOOLS, PROMPTS]
    of_both.close()
    until(lambda: use(client, "opened") == 2)
    use(client, "emit", method=TOOLS)
    assert methods(of_tools, 1) == [TOOLS]
    assert [each.next(0) for each in (of_tools, of_prompts)] == [None, None]


def test_what_is_not_granted_does_not_arrive(client: Client) -> None:
    use(client, "plan", ["acknowledge", {"promptsListChanged": True}])
    subscription = subscribed(client, LISTS)
    assert subscription.accepted == {"promptsListChanged": True}
    use(client, "act", ["notify", TOOLS], ["notify", "notifications/message", {"level": "info"}], ["notify", PROMPTS])
    assert methods(subscription, 1) == [PROMPTS]


def test_what_comes_too_early_is_kept(client: Client) -> None:
    use(client, "plan", ["notify", TOOLS], ["notify", PROMPTS], ["acknowledge"])
    subscription = subscribed(client, LISTS)
    assert methods(subscription, 2) == [TOOLS, PROMPTS]


def test_the_request_is_what_was_asked_for(client: Client) -> None:
    subscribed(client, {**LISTS, "com.example/x": [1]}, meta={"com.example/trace": "t"})
    (request,) = use(client, "told", method="subscriptions/listen")
    assert request["params"]["notifications"] == {**LISTS, "com.example/x": [1]}
    assert request["params"]["_meta"]["com.example/trace"] == "t"
    assert request["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"


# -- how they end


@pytest.mark.parametrize("how", ["end", "cancel"])
def test_the_server_ends_one(client: Client, how: str) -> None:
    other, subscription = subscribed(client, [TOOLS]), subscribed(client, [TOOLS])
    use(client, "act", ["notify", TOOLS], [how])
    assert methods(subscription, 1) == [TOOLS]
    assert closed(subscription).reason == {"end": "complete", "cancel": "cancelled"}[how]
    until(lambda: use(client, "opened") == 1)
    use(client, "emit", method=TOOLS)
    assert methods(other, 1) == [TOOLS]
    assert use(client, "told", method="notifications/cancelled") == []


@pytest.mark.parametrize("steps", [["end", "cancel"], ["cancel", "end"], ["end", "end"]])
def test_an_end_that_is_told_twice(client: Client, steps: list[str]) -> None:
    subscription = subscribed(client, [TOOLS])
    use(client, "act", *([step] for step in steps))
    assert closed(subscription).reason in ("complete", "cancelled")
    use(client, "emit", method=TOOLS)


def test_we_end_one(connection: str, client: Client) -> None:
    other, subscription = subscribed(client, [TOOLS]), subscribed(client, [TOOLS])
    subscription.close()
    subscription.close()
    assert closed(subscription).reason == "closed"
    until(lambda: use(client, "opened") == 1)
    over = [{"requestId": subscription.id, "reason": "Closed by the client"}] if connection == "stdio" else []
    told = use(client, "told", method="notifications/cancelled")
    assert [message["params"] for message in told] == over
    use(client, "emit", method=TOOLS)
    assert methods(other, 1) == [TOOLS]


def test_closing_the_client(client: Client) -> None:
    subscriptions = [subscribed(client, [TOOLS]) for _ in range(3)]
    begun = monotonic()
    client.close()
    assert [closed(each).reason for each in subscriptions] == ["closed"] * 3
    assert monotonic() - begun < LATE
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "snodo-listen"])


def test_the_connection_is_lost() -> None:
    with changing("stdio") as client:
        subscription, other = subscribed(client, [TOOLS]), subscribed(client, [PROMPTS])
        use(client, "emit", method=TOOLS)
        assert methods(subscription, 1) == [TOOLS]
        client.call_tool("act", {"steps": [["drop"]]}, timeout=20)  # its answer may be lost as well
        for each in (subscription, other):
            end = closed(each)
            assert (end.reason, end.error and end.error.reason) == ("lost", "exited")


def test_a_stream_is_lost() -> None:
    with changing("http") as client:
        subscription, other = subscribed(client, [TOOLS]), subscribed(client, [PROMPTS])
        use(client, "act", ["notify", TOOLS], ["drop"], index=0)
        assert methods(subscription, 1) == [TOOLS]
        end = closed(subscription)
        assert (end.reason, end.error and end.error.reason) == ("lost", "closed")
        use(client, "emit", method=PROMPTS)
        assert methods(other, 1) == [PROMPTS]
        assert len(use(client, "told", method="subscriptions/listen")) == 2, "it was opened again"


def test_a_server_that_shuts_down_says_so() -> None:
    server = changing_server()
    with server.serve_http() as http:
        client = Client.connect(http.url)
        subscription = subscribed(client, [TOOLS])
    assert closed(subscription).reason in ("complete", "lost")
    client.close()


# -- before the acknowledgement


@pytest.mark.parametrize(("steps", "reason"), [([["end"]], "not_acknowledged"), ([["cancel"]], "not_acknowledged")])
def test_an_end_in_place_of_an_acknowledgement(client: Client, steps: Any, reason: str) -> None:
    use(client, "plan", *steps)
    refused = client.listen([TOOLS], timeout=20)
    assert isinstance(refused, McpError)
    assert refused.reason == reason
    assert subscribed(client, [TOOLS]).accepted == {"toolsListChanged": True}


def test_a_refusal(client: Client) -> None:
    use(client, "plan", ["refuse", -32603, "not today"])
    refused = client.listen([TOOLS], timeout=20)
    assert isinstance(refused, McpError)
    assert (refused.code, refused.message, refused.reason) == (-32603, "not today", None)


def test_no_acknowledgement(connection: str, client: Client) -> None:
    use(client, "plan", ["notify", TOOLS])
    begun = monotonic()
    refused = client.listen([TOOLS], timeout=0.4)
    assert 0.4 <= monotonic() - begun < 0.4 + LATE
    assert isinstance(refused, McpError)
    assert refused.reason == "timeout"
    until(lambda: use(client, "opened") == 0)
    told = use(client, "told", method="notifications/cancelled")
    assert len(told) == (connection == "stdio")


@pytest.mark.parametrize("filter", [{"notifications": []}, {}, {"notifications": "all"}])
def test_an_acknowledgement_nobody_can_read(client: Client, filter: Any) -> None:
    use(client, "plan", ["notify", "notifications/subscriptions/acknowledged", filter])
    refused = client.listen([TOOLS], timeout=20)
    assert isinstance(refused, McpError)
    assert refused.reason == "invalid_result"
    until(lambda: use(client, "opened") == 0)


def test_a_server_that_has_no_subscriptions() -> None:
    with Client.direct(Server("older", versions=["2025-11-25"])) as client:
        refused = client.listen([TOOLS])
        assert isinstance(refused, McpError)
        assert refused.reason == "unsupported_operation"
        assert "on_notification" in refused.message


# -- time


def test_it_outlives_every_timeout(connection: str) -> None:
    with changing(connection, timeout=0.5) as client:
        subscription = subscribed(client, [TOOLS], timeout=0.5)
        assert subscription.next(1.5) is None
        use(client, "emit", method=TOOLS)
        assert methods(subscription, 1) == [TOOLS]


@TIMED
def test_silence(client: Client) -> None:
    subscription, begun = subscribed(client, [TOOLS], idle_timeout=0.4), monotonic()
    assert closed(subscription).reason == "idle"
    assert 0.3 <= monotonic() - begun < 0.4 + LATE
    until(lambda: use(client, "opened") == 0)


@TIMED
def test_events_are_signs_of_life(client: Client) -> None:
    subscription, begun = subscribed(client, [TOOLS], idle_timeout=1.0), monotonic()
    while monotonic() - begun < 2.0:
        use(client, "emit", method=TOOLS)
        assert methods(subscription, 1) == [TOOLS]
        assert subscription.next(0.3) is None
    assert closed(subscription).reason == "idle"


def test_comments_are_signs_of_life() -> None:
    with changing("http", keep_alive=0.1) as client:
        subscription = subscribed(client, [TOOLS], idle_timeout=0.8)
        assert subscription.next(2.0) is None
        use(client, "emit", method=TOOLS)
        assert methods(subscription, 1) == [TOOLS]
        subscription.close()
