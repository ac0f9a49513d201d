"""Subscriptions on a channel they share with everything else: whose message it is, and what it costs the others."""

from __future__ import annotations

import json
import sys
import threading
from time import monotonic
from typing import Any

from snodo_client import Client, Ok
from snodo_client.changes import Dropped, Notification
from support.changing import changing, subscribed, use
from support.faulty import SCRIPT, assert_error
from support.waiting import until

TOOLS = "notifications/tools/list_changed"
STAMP = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED = json.dumps(
    {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": {"toolsListChanged": True}, "_meta": {STAMP: "$ID"}},
    }
).replace('"$ID"', "$ID")
ANSWER = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}'


def connect(**options: Any) -> Client:
    """A client of a server that acknowledges every subscription, and says what it is told to on stdout."""
    plan = json.dumps({"subscriptions/listen": [{"send": [ACKNOWLEDGED]}]})
    return Client.connect(("stdio", sys.executable, ["-I", "-S", SCRIPT, plan]), protocol="2026-07-28", **options)


def say(client: Client, *lines: str) -> None:
    """Have the server write lines before it answers."""
    outcome = client.call_tool("fault", {"send": [*lines, ANSWER]}, timeout=20)
    assert isinstance(outcome, Ok), outcome


def changed(stamp: Any, number: int) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": TOOLS, "params": {"n": number, "_meta": {STAMP: stamp}}})


def test_messages_of_nobody_end_no_subscription() -> None:
    """What cannot be read is for the only call that waits; one that listens waits for nothing."""
    with connect(max_line_bytes=5000) as client:
        subscription = subscribed(client, [TOOLS])
        foreign = [
            '{"jsonrpc":"2.0","id":99,"result":{}}',
            '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}',
        ]
        for number, junk in enumerate(["{", "x" * 6000, "[]", "5", *foreign]):
            fault = {"send": [ANSWER, junk, changed(subscription.id, number)]}
            assert isinstance(client.call_tool("fault", fault, timeout=20), Ok)
            event = subscription.next(20)
            assert isinstance(event, Notification), event
            assert event.params["n"] == number


def test_an_open_subscription_hides_no_fault_of_an_answer() -> None:
    """A call that waits alone is told at once that its answer went astray, also while somebody listens."""
    with connect() as client:
        subscription = subscribed(client, [TOOLS])
        begun = monotonic()
        outcome = client.call_tool("fault", {"send": ['{"jsonrpc":"2.0","id":4711,"result":{}}']}, timeout=20)
        assert_error(outcome, "unexpected_id")
        assert monotonic() - begun < 10
        assert subscription.next(0) is None


def test_what_comes_after_the_end_is_for_nobody() -> None:
    unasked: list[Any] = []
    with connect(on_notification=lambda method, params: unasked.append(params)) as client:
        first, second = subscribed(client, [TOOLS]), subscribed(client, [TOOLS])
        first.close()
        say(client, changed(first.id, 1), changed(second.id, 2), changed(None, 3))
        event = second.next(20)
        assert isinstance(event, Notification)
        assert event.params["n"] == 2
        until(lambda: unasked)
        assert [params["n"] for params in unasked] == [3]


def test_a_reader_never_waits_for_who_listens() -> None:
    """Nobody reads, and the channel is as fast as ever."""
    with changing("stdio") as client:
        subscriptions = [subscribed(client, [TOOLS], buffer=10) for _ in range(3)]
        for _ in range(10):
            assert use(client, "emit", method=TOOLS, times=100) == 300
        before = threading.active_count()
        assert use(client, "opened") == 3
        for subscription in subscriptions:
            read = dropped = 0
            while read + dropped < 1000:
                match subscription.next(20):
                    case Dropped(count):
                        dropped += count
                    case event:
                        assert isinstance(event, Notification)
                        read += 1
            assert subscription.next(0) is None
        assert threading.active_count() <= before
