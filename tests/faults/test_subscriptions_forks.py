"""Subscriptions that are open when the process forks: lost in the child, untouched in the parent."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from snodo_client import Client
from snodo_client.changes import Closed, Notification
from support.changing import CONNECTIONS, changing, subscribed, use
from support.forking import in_a_child
from support.waiting import until

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),  # Python 3.12 warns where threads run
]
TOOLS = "notifications/tools/list_changed"


def ends(subscription: Any) -> list[Any]:
    """What the subscription tells in this process, as far as a pipe can carry it."""
    events = [subscription.next(5), subscription.next(5), *subscription]
    subscription.close()
    return [
        (event.reason, event.error.reason if event.error else None) if isinstance(event, Closed) else repr(event)
        for event in events
    ]


def hears(client: Client, subscription: Any) -> None:
    use(client, "emit", method=TOOLS)
    assert isinstance(subscription.next(20), Notification)


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_it_is_lost_in_the_child_alone(connection: str) -> None:
    with changing(connection) as client:
        subscription = subscribed(client, [TOOLS])
        hears(client, subscription)
        assert in_a_child(lambda: ends(subscription)) == [("lost", "forked")] * 3
        hears(client, subscription)
        subscription.close()
        assert in_a_child(lambda: ends(subscription)) == [("closed", None)] * 3


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_what_was_not_read_is_read_once(connection: str) -> None:
    with changing(connection) as client:
        subscription = subscribed(client, [TOOLS])
        use(client, "emit", method=TOOLS, times=3)
        assert isinstance(subscription.next(20), Notification)
        assert in_a_child(lambda: ends(subscription)) == [("lost", "forked")] * 3
        assert [type(subscription.next(20)) for _ in range(2)] == [Notification] * 2


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_closing_the_client_in_the_child_is_not_felt(connection: str) -> None:
    with changing(connection) as client:
        subscription = subscribed(client, [TOOLS])

        def child() -> list[Any]:
            client.close()
            return ends(subscription)

        assert in_a_child(child) == [("lost", "forked")] * 3
        hears(client, subscription)


@pytest.mark.parametrize("connection", ["direct", "http"])
def test_the_child_may_listen_for_itself(connection: str) -> None:
    with changing(connection) as client:
        subscription = subscribed(client, [TOOLS])

        def child() -> bool:
            own = subscribed(client, [TOOLS])
            hears(client, own)
            own.close()
            return isinstance(own.next(5), Closed)

        assert in_a_child(child)
        hears(client, subscription)


def test_a_callback_is_not_called_in_the_child() -> None:
    with changing("direct") as client:
        seen: list[Any] = []
        subscription = subscribed(client, [TOOLS], callback=seen.append)

        def child() -> tuple[int, list[Any]]:
            return len(seen), ends(subscription)

        assert in_a_child(child) == (0, [("lost", "forked")] * 3)
        use(client, "emit", method=TOOLS)
        until(lambda: seen)


def test_forks_while_events_arrive() -> None:
    """No child may find a lock that a thread of the parent held."""
    with changing("direct") as client:
        subscription = subscribed(client, [TOOLS], buffer=10)
        stop = threading.Event()

        def emit() -> None:
            while not stop.is_set():
                use(client, "emit", method=TOOLS, times=20)

        def read() -> None:
            while not stop.is_set():
                subscription.next(0.01)

        threads = [threading.Thread(target=job, daemon=True) for job in (emit, read)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(40):
                assert in_a_child(lambda: ends(subscription)) == [("lost", "forked")] * 3
        finally:
            stop.set()
            for thread in threads:
                thread.join(20)
        while subscription.next(0.5) is not None:  # the server still tells of some
            pass
        hears(client, subscription)
