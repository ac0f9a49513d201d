"""`Subscription` as its users see it: reading, the callback, closing, and letting go of it."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Iterator
from queue import SimpleQueue
from time import monotonic
from typing import Any

import pytest

from snodo_client import Client, McpError
from snodo_client.changes import Closed, Dropped, Event, Notification
from snodo_client.subscription import Subscription
from snodo_client.testing import Server
from support.changing import changing_server
from support.waiting import until

TOOLS = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"


@pytest.fixture
def server() -> Server:
    return changing_server()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.direct(server) as client:
        yield client


def listen(client: Client, **options: Any) -> Subscription:
    subscription = client.listen([TOOLS], timeout=20, **options)
    assert isinstance(subscription, Subscription), subscription
    return subscription


# -- arguments


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"filter": "tools"}, TypeError),
        ({"filter": ["tools/list_changed"]}, ValueError),
        ({"filter": {"toolsListChanged": 1}}, TypeError),
        ({"filter": {"com.example/x": {1, 2}}}, ValueError),
        ({"timeout": 0}, ValueError),
        ({"timeout": "1"}, TypeError),
        ({"idle_timeout": -1}, ValueError),
        ({"idle_timeout": True}, TypeError),
        ({"buffer": 0}, ValueError),
        ({"buffer": 1.5}, TypeError),
        ({"callback": "print"}, TypeError),
        ({"meta": {"io.modelcontextprotocol/x": 1}}, ValueError),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(
    server: Server, client: Client, options: dict[str, Any], error: type[Exception]
) -> None:
    sent = len(server.calls)
    with pytest.raises(error):
        client.listen(**{"filter": [TOOLS], **options})
    assert len(server.calls) == sent


@pytest.mark.parametrize(("timeout", "error"), [(-1, ValueError), (float("nan"), ValueError), (True, TypeError)])
def test_wrong_waits_are_refused(client: Client, timeout: Any, error: type[Exception]) -> None:
    subscription = listen(client)
    with pytest.raises(error):
        subscription.next(timeout)
    with pytest.raises(TypeError):
        subscription.next("1")  # type: ignore[arg-type]


def test_listening_is_no_plain_request(client: Client) -> None:
    with pytest.raises(ValueError, match="listen"):
        client.request("subscriptions/listen", {"notifications": {}})


# -- reading


def test_reading(server: Server, client: Client) -> None:
    with listen(client) as subscription:
        assert subscription.next(0) is None
        begun = monotonic()
        assert subscription.next(0.2) is None
        assert 0.2 <= monotonic() - begun < 2.2
        server.emit(TOOLS)
        match subscription.next():
            case Notification(method, params):
                assert (method, params["_meta"]) == (TOOLS, {"io.modelcontextprotocol/subscriptionId": subscription.id})
            case event:
                raise AssertionError(event)
        assert repr(subscription) == f"<Subscription {subscription.id}, open>"
    assert isinstance(subscription.next(), Closed)
    assert repr(subscription) == f"<Subscription {subscription.id}, closed>"


def test_iterating_stops_at_the_end_and_may_be_begun_again(server: Server, client: Client) -> None:
    subscription = listen(client)
    server.emit(TOOLS, times=3)
    seen = []
    for event in subscription:
        seen.append(event)
        if len(seen) == 2:
            break
    server.subscriptions.end()
    *rest, closed = list(subscription)
    assert [type(event) for event in seen + rest] == [Notification] * 3
    assert isinstance(closed, Closed)
    assert (closed.reason, closed.error) == ("complete", None)
    assert list(subscription) == [closed]


def test_it_may_be_closed_while_it_is_iterated_over(server: Server, client: Client) -> None:
    subscription = listen(client)
    server.emit(TOOLS, times=5)
    events = []
    for event in subscription:
        events.append(event)
        subscription.close()
    assert [type(event) for event in events] == [Notification, Closed]


def test_the_filters_it_shows_are_copies(client: Client) -> None:
    subscription = listen(client)
    subscription.accepted.clear()
    subscription.requested.clear()
    assert subscription.accepted == subscription.requested == {"toolsListChanged": True}


def test_dropped_stands_where_they_stood(server: Server, client: Client) -> None:
    subscription = listen(client, buffer=2)
    until(lambda: server.emit(TOOLS, times=10) == 10)
    server.subscriptions.end()
    until(lambda: len(server.subscriptions) == 0)
    events = [event for event in subscription if not isinstance(event, Closed)]
    assert [type(event) for event in events] == [Dropped, Notification, Notification]
    assert events[0] == Dropped(8)


def test_values() -> None:
    assert Notification("a", {"b": 1}) == Notification("a", {"b": 1}) != Notification("a", {})
    assert Dropped(1) == Dropped(1) != Dropped(2)
    assert [repr(value) for value in (Notification("a", {}), Dropped(2), Closed("idle"))] == [
        "Notification('a', {})",
        "Dropped(2)",
        "Closed('idle')",
    ]
    error = McpError(-32603, "no")
    assert repr(Closed("error", error)) == f"Closed('error', {error!r})"


# -- the callback


def test_a_callback_is_told_everything_in_order(server: Server, client: Client) -> None:
    seen: SimpleQueue[tuple[str, Event]] = SimpleQueue()
    go = threading.Event()

    def callback(event: Event) -> None:
        go.wait(20)
        seen.put((threading.current_thread().name, event))

    listen(client, callback=callback, buffer=2)
    until(lambda: server.emit(TOOLS, times=10) == 10)
    server.subscriptions.end()
    until(lambda: len(server.subscriptions) == 0)
    go.set()
    events = [seen.get(timeout=20)]
    while not isinstance(events[-1][1], Closed):
        events.append(seen.get(timeout=20))
    assert {name for name, _ in events} == {"snodo-subscription"}
    kinds = [type(event) for _, event in events]
    assert kinds in (
        [Dropped, Notification, Notification, Closed],
        [Notification, Dropped, Notification, Notification, Closed],  # it had taken the first before the others came
    )
    dropped = sum(event.count for _, event in events if isinstance(event, Dropped))
    assert dropped + kinds.count(Notification) == 10


def test_a_callback_that_raises_is_logged_and_called_again(
    server: Server, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    seen: SimpleQueue[Event] = SimpleQueue()

    def callback(event: Event) -> None:
        seen.put(event)
        raise SystemExit("a bug")

    listen(client, callback=callback)
    with caplog.at_level(logging.ERROR, "snodo_client.callbacks"):
        for _ in range(3):
            server.emit(TOOLS)
            assert isinstance(seen.get(timeout=20), Notification)
        server.subscriptions.end()
        assert isinstance(seen.get(timeout=20), Closed)
        until(lambda: len(caplog.records) == 4)
    assert {record.name for record in caplog.records} == {"snodo_client.callbacks"}


def test_a_callback_may_close_its_subscription_and_its_client(server: Server, client: Client) -> None:
    seen: SimpleQueue[Event] = SimpleQueue()

    def close(event: Event) -> None:
        seen.put(event)
        subscription.close()

    def close_all(event: Event) -> None:
        seen.put(event)
        client.close()

    subscription = listen(client, callback=close)
    server.emit(TOOLS, times=3)
    assert isinstance(seen.get(timeout=20), Notification)
    assert isinstance(seen.get(timeout=20), Closed)
    listen(client, callback=close_all)
    server.emit(TOOLS)
    assert isinstance(seen.get(timeout=20), Notification)
    assert isinstance(seen.get(timeout=20), Closed)
    assert seen.empty()


def test_a_slow_callback_delays_nothing_else(server: Server, client: Client) -> None:
    go = threading.Event()
    listen(client, callback=lambda event: go.wait(20))
    other = listen(client)
    server.emit(TOOLS, times=3)
    assert isinstance(other.next(20), Notification)
    begun = monotonic()
    client.call_tool("opened", timeout=20).unwrap()
    client.close()
    assert monotonic() - begun < 5
    go.set()


def test_no_thread_for_the_callback_is_no_subscription(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "snodo-subscription":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    refused = client.listen([TOOLS], callback=print)
    assert isinstance(refused, McpError)
    assert refused.reason == "transport_failure"
    until(lambda: len(server.subscriptions) == 0)


# -- letting go


def test_one_that_nobody_refers_to_is_closed(server: Server, client: Client) -> None:
    subscription = listen(client)
    assert len(server.subscriptions) == 1
    del subscription
    gc.collect()
    until(lambda: len(server.subscriptions) == 0)
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "snodo-listen"])


def test_one_in_a_circle_is_closed_by_the_collector(server: Server, client: Client) -> None:
    circle: list[Any] = [listen(client)]
    circle.append(circle)
    del circle
    gc.collect()
    until(lambda: len(server.subscriptions) == 0)


def test_one_that_is_iterated_over_is_referred_to(server: Server, client: Client) -> None:
    events = iter(listen(client))
    gc.collect()
    server.emit(TOOLS)
    assert isinstance(next(events), Notification)
    del events
    gc.collect()
    until(lambda: len(server.subscriptions) == 0)


def test_a_callback_keeps_one(server: Server, client: Client) -> None:
    seen: SimpleQueue[Event] = SimpleQueue()
    listen(client, callback=seen.put)
    gc.collect()
    server.emit(TOOLS)
    assert isinstance(seen.get(timeout=20), Notification)


def test_a_subscription_keeps_its_client(server: Server) -> None:
    subscription = listen(Client.direct(server))
    gc.collect()
    server.emit(TOOLS)
    assert isinstance(subscription.next(20), Notification)
    del subscription
    gc.collect()
    until(lambda: len(server.subscriptions) == 0)


def test_what_is_over_does_not_wait_for_the_collector(server: Server, client: Client) -> None:
    subscription = listen(client)
    server.subscriptions.end()
    assert isinstance(subscription.next(20), Closed)
    inside = weakref.ref(subscription._listening)
    gc.collect()
    gc.disable()
    try:
        del subscription
        until(lambda: inside() is None)
    finally:
        gc.enable()


# -- what it means for other calls


def test_what_was_cached_is_dropped_before_the_change_is_told(server: Server) -> None:
    server.cache("tools/list", 60_000)

    def asked() -> int:
        return sum(call.method == "tools/list" for call in server.calls)

    with Client.direct(server, cache=True) as client:
        subscription = listen(client)
        for expected in (1, 1):
            client.list_tools().unwrap()
            assert asked() == expected
        server.emit(TOOLS)
        assert isinstance(subscription.next(20), Notification)
        client.list_tools().unwrap()
        assert asked() == 2
        server.subscriptions.end()
        assert isinstance(subscription.next(20), Closed)
        client.list_tools().unwrap()
        assert asked() == 3, "the next change would have gone unnoticed"
        client.list_tools().unwrap()
        assert asked() == 3


def test_a_change_is_also_told_to_the_client(server: Server) -> None:
    kinds: SimpleQueue[str] = SimpleQueue()
    with Client.direct(server, on_list_changed=kinds.put) as client:
        subscription = listen(client)
        server.emit(TOOLS)
        assert kinds.get(timeout=20) == "tools"
        subscription.close()
