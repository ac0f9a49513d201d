"""Subscriptions over a scripted transport: the acknowledgement, the buffer, and every way to end, in every order.

On a "channel" messages are delivered by a reader, as over stdio; on a "stream" the exchange yields them, as over HTTP.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snodo_client import Client, McpError, Ok, Traits
from snodo_client.changes import Closed, Dropped, Notification
from snodo_client.engine import listening
from snodo_client.engine.call import Call
from snodo_client.outcome import local_error
from snodo_client.subscription import Subscription
from support.scripted_transport import NOTIFY, Message, ScriptedTransport, error, result
from support.waiting import together, until

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
UPDATED = "notifications/resources/updated"
FILTER = {"toolsListChanged": True, "resourceSubscriptions": ["a"]}
STAMP = "io.modelcontextprotocol/subscriptionId"
LATE = 2.0  # seconds that something may come after its time


# -- what the server says


def notification(method: str, call: Call, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": {STAMP: call.wire_id}}}


def acknowledged(call: Call, filter: Any = None) -> Message:
    told = call.request.params["notifications"] if filter is None else filter
    return notification("notifications/subscriptions/acknowledged", call, notifications=told)


def changed(call: Call, number: int = 0, **params: Any) -> Message:
    return notification(UPDATED, call, uri=f"a/{number}", **params)


def cancelled(call: Call) -> Message:
    params = {"requestId": call.wire_id, "reason": "enough"}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


def unmarked(method: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def gone(call: Call) -> McpError:
    return local_error("closed", "the server is gone")


class Served:
    """A client whose subscriptions the test serves: what `opening(call)` gives comes first, then what it has `say`."""

    def __init__(self, kind: str, opening: Callable[[Call], Iterable[Any]] | None = None, **options: Any) -> None:
        self.kind = kind
        self.opening = opening or (lambda call: [acknowledged(call)])
        self.calls: list[Call] = []
        self.over = threading.Event()  # the last exchange was let go of
        self.transport = ScriptedTransport(self._script, NOTIFY if kind == "channel" else Traits())
        self.client = Client.connect(self.transport, protocol="2026-07-28", **options)

    @property
    def call(self) -> Call:
        return self.calls[-1]

    def listen(self, filter: Any = None, **options: Any) -> Any:
        return self.client.listen(FILTER if filter is None else filter, **{"timeout": 20, **options})

    def subscribed(self, filter: Any = None, **options: Any) -> Subscription:
        subscription = self.listen(filter, **options)
        assert isinstance(subscription, Subscription), subscription
        return subscription

    def say(self, *messages: Any) -> None:
        """Send messages; an error is the loss of the connection."""
        for message in messages:
            if self.kind == "stream":
                self._queue.put(message)
            elif isinstance(message, McpError):
                self.transport.inbound.lost(message, self.transport.link)
            else:
                self.transport.inbound.deliver(message, self.transport.link)

    def told(self) -> list[Message]:
        """What the server was told besides requests, once it has heard that the subscription is over."""
        assert self.over.wait(20)
        if self.kind == "channel":
            until(lambda: not self.transport.sent.empty())
        return [self.transport.sent.get() for _ in range(self.transport.sent.qsize())]

    def check_told(self, reason: str) -> None:
        """The server knows that this side has ended the last subscription."""
        over = unmarked("notifications/cancelled", requestId=self.transport.requests[-1]["id"], reason=reason)
        assert self.told() == ([over] if self.kind == "channel" else [])

    def _script(self, call: Call) -> Iterator[Message]:
        if call.request.method != "subscriptions/listen":
            yield result(call)
            return
        self.calls.append(call)
        self.over.clear()
        if self.kind == "stream":
            self._queue: SimpleQueue[Any] = SimpleQueue()
            call.wake = partial(self._queue.put, None)
        self.say(*self.opening(call))
        try:
            yield from call.messages() if self.kind == "channel" else self._messages(call)
        finally:
            self.over.set()

    def _messages(self, call: Call) -> Iterator[Message]:
        while True:
            try:
                message = self._queue.get(timeout=call.deadline.left())
            except Empty:
                message = None
            call.check()
            if isinstance(message, McpError):
                raise message
            if message is not None:
                yield message


@pytest.fixture(params=["channel", "stream"])
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def make(opening: Callable[[Call], Iterable[Any]] | None = None, **options: Any) -> Served:
        made.append(Served(request.param, opening, **options))
        return made[-1]

    yield make
    for served in made:
        served.client.close()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "snodo-listen"])


Serve = Callable[..., Served]


def numbers(events: Iterable[Any]) -> list[Any]:
    """Updates by their number, the rest as it is."""
    return [int(event.params["uri"][2:]) if isinstance(event, Notification) else event for event in events]


def all_of(subscription: Subscription) -> tuple[list[Any], Closed]:
    """What is left of it, and its end, which comes once."""
    *events, closed = list(subscription)
    assert isinstance(closed, Closed)
    assert not any(isinstance(event, Closed) for event in events)
    assert subscription.next(0) is closed
    assert list(subscription) == [closed]
    return events, closed


# -- the acknowledgement


def test_events_come_as_they_were_sent(serve: Serve) -> None:
    served = serve()
    subscription = served.subscribed()
    assert (subscription.requested, subscription.accepted) == (FILTER, FILTER)
    assert subscription.id == served.transport.requests[-1]["id"]
    assert served.transport.requests[-1]["params"]["notifications"] == FILTER
    served.say(changed(served.call, 1, n=[None]), notification(TOOLS, served.call))
    meta = {STAMP: subscription.id}
    assert subscription.next(20) == Notification(UPDATED, {"uri": "a/1", "n": [None], "_meta": meta})
    assert subscription.next(20) == Notification(TOOLS, {"_meta": meta})
    assert subscription.next(0) is None
    assert served.client.call_tool("x") == Ok({"resultType": "complete"})


def test_the_server_may_grant_a_part(serve: Serve) -> None:
    served = serve(lambda call: [acknowledged(call, {"toolsListChanged": True})])
    subscription = served.subscribed({**FILTER, "promptsListChanged": True})
    assert subscription.accepted == {"toolsListChanged": True}
    served.say(*(notification(method, served.call, uri="a") for method in (PROMPTS, UPDATED, TOOLS)))
    event = subscription.next(20)
    assert isinstance(event, Notification)
    assert event.method == TOOLS


def test_more_than_was_asked_for_is_not_accepted(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    served = serve(lambda call: [acknowledged(call, {"toolsListChanged": True, "promptsListChanged": True})])
    subscription = served.subscribed({"toolsListChanged": True})
    assert subscription.accepted == {"toolsListChanged": True}
    served.say(notification(PROMPTS, served.call), notification(TOOLS, served.call))
    event = subscription.next(20)
    assert isinstance(event, Notification)
    assert event.method == TOOLS
    assert "promptsListChanged" in caplog.text


def test_what_comes_too_early_is_kept_in_order(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    def opening(call: Call) -> list[Message]:
        early = [changed(call, 1), notification(PROMPTS, call), changed(call, 2)]
        return [*early, acknowledged(call), changed(call, 3)]

    subscription = serve(opening).subscribed()
    assert numbers(subscription.next(20) for _ in range(3)) == [1, 2, 3]
    assert caplog.text.count("before the acknowledgement") == 1


def test_what_comes_too_early_is_bounded(serve: Serve) -> None:
    subscription = serve(lambda call: [*(changed(call, n) for n in range(10)), acknowledged(call)]).subscribed(buffer=3)
    assert numbers(subscription.next(20) for _ in range(4)) == [Dropped(7), 7, 8, 9]


@pytest.mark.parametrize("filter", [[], None, "all"])
def test_an_acknowledgement_that_grants_nothing_readable(serve: Serve, filter: Any) -> None:
    served = serve(lambda call: [notification("notifications/subscriptions/acknowledged", call, notifications=filter)])
    refused = served.listen()
    assert isinstance(refused, McpError)
    assert refused.reason == "invalid_result"
    served.check_told("The acknowledgement is invalid")


def test_a_second_acknowledgement_changes_nothing(serve: Serve) -> None:
    served = serve(lambda call: [acknowledged(call, {"toolsListChanged": True}), acknowledged(call), changed(call)])
    subscription = served.subscribed()
    served.say(notification(TOOLS, served.call))
    event = subscription.next(20)
    assert isinstance(event, Notification)
    assert (event.method, subscription.accepted) == (TOOLS, {"toolsListChanged": True})


def test_no_acknowledgement(serve: Serve) -> None:
    served = serve(lambda call: [changed(call)])
    begun = monotonic()
    refused = served.listen(timeout=0.3)
    assert 0.3 <= monotonic() - begun < 0.3 + LATE
    assert isinstance(refused, McpError)
    assert (refused.reason, refused.code, refused.data) == ("timeout", -32001, {"timeout": 0.3})
    assert "acknowledged" in refused.message
    served.check_told("The client's time for this request is over")
    assert served.client.call_tool("x") == Ok({"resultType": "complete"})


def test_a_flood_in_place_of_the_acknowledgement() -> None:
    """The exchange never waits for anything, so that only the clock ends it."""

    def flood(call: Call) -> Iterator[Message]:
        while True:
            yield changed(call)

    transport = ScriptedTransport(flood)
    with Client.connect(transport, protocol="2026-07-28") as client:
        begun = monotonic()
        refused = client.listen(FILTER, timeout=0.3)
        assert isinstance(refused, McpError)
        assert refused.reason == "timeout"
        assert 0.3 <= monotonic() - begun < 0.3 + LATE


def test_an_exchange_that_keeps_no_time() -> None:
    let_go = threading.Event()

    def hang(call: Call) -> Iterator[Message]:
        let_go.wait(20)
        yield acknowledged(call)

    transport = ScriptedTransport(hang, NOTIFY)
    with Client.connect(transport, protocol="2026-07-28") as client:
        begun = monotonic()
        refused = client.listen(FILTER, timeout=0.3)
        assert isinstance(refused, McpError)
        assert refused.reason == "timeout"
        assert 0.3 <= monotonic() - begun < 0.3 + LATE
        assert transport.sent.get(timeout=20)["method"] == "notifications/cancelled"
        let_go.set()


@pytest.mark.parametrize("code", [-32601, -32021, -32603])
def test_the_server_refuses(serve: Serve, code: int) -> None:
    served = serve(lambda call: [error(call, code, "no", data=[1])])
    refused = served.listen()
    assert isinstance(refused, McpError)
    assert (refused.code, refused.message, refused.data, refused.reason) == (code, "no", [1], None)
    assert served.over.wait(20)
    assert served.transport.sent.empty()


@pytest.mark.parametrize("ending", [result, cancelled])
def test_an_end_before_the_acknowledgement(serve: Serve, ending: Callable[[Call], Message]) -> None:
    refused = serve(lambda call: [changed(call), ending(call)]).listen()
    assert isinstance(refused, McpError)
    assert (refused.reason, refused.code, refused.kind) == ("not_acknowledged", -32000, "protocol")


def test_a_loss_before_the_acknowledgement(serve: Serve) -> None:
    refused = serve(lambda call: [gone(call)]).listen()
    assert isinstance(refused, McpError)
    assert refused.reason == "closed"
    assert "the server is gone" in refused.message


def test_a_refused_version_is_corrected_once(serve: Serve) -> None:
    def opening(call: Call) -> list[Message]:
        refused = error(call, -32022, data={"supported": ["2026-07-28"], "requested": "2026-07-28"})
        return [changed(call, 1), refused] if len(served.calls) == 1 else [acknowledged(call), changed(call, 2)]

    served = serve(opening)
    first, second = served.subscribed(), served.transport.requests
    assert [message["method"] for message in second] == ["subscriptions/listen"] * 2
    assert first.id == second[1]["id"] != second[0]["id"]
    assert numbers([first.next(20)]) == [2]


def test_a_refusal_after_the_acknowledgement_is_the_end(serve: Serve) -> None:
    served = serve()
    subscription = served.subscribed()
    served.say(error(served.call, -32022, data={"supported": ["2026-07-28"], "requested": "2026-07-28"}))
    events, closed = all_of(subscription)
    assert (events, closed.reason, closed.error and closed.error.code) == ([], "error", -32022)
    assert len(served.transport.requests) == 1


# -- what belongs to it


def test_what_never_comes_on_a_subscription_is_dropped(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    served = serve()
    subscription = served.subscribed({**FILTER, "taskIds": []})
    call = served.call
    served.say(
        notification("notifications/progress", call, progressToken="x", progress=1),
        notification("notifications/message", call, level="info", data="x"),
        notification(UPDATED, call),  # without a URI
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {STAMP: call.wire_id}}},
        notification("notifications/tasks", call, taskId="t"),
        *[notification(PROMPTS, call)] * 50,
        changed(call, 7),
    )
    event = subscription.next(20)
    assert isinstance(event, Notification)
    assert event.method == "notifications/tasks"
    assert numbers([subscription.next(20)]) == [7]
    assert caplog.text.count(PROMPTS) == 1


def test_params_that_are_no_object(serve: Serve) -> None:
    served = serve()
    subscription = served.subscribed()
    served.say({"jsonrpc": "2.0", "method": TOOLS, "params": [1]}, {"jsonrpc": "2.0", "method": 5})
    served.say(changed(served.call, 1))
    assert numbers([subscription.next(20)]) == [1]


def test_a_stream_is_trusted_more_than_the_id_in_it(caplog: pytest.LogCaptureFixture) -> None:
    served = Served("stream")
    with served.client:
        subscription = served.subscribed()
        for marks in ({}, {"_meta": {STAMP: 99}}, {"_meta": {STAMP: None}}, {"_meta": 5}):
            served.say(unmarked(UPDATED, uri="a/1", **marks))
        assert numbers(subscription.next(20) for _ in range(4)) == [1] * 4
        assert caplog.text.count("the id of another subscription") == 1


def test_on_a_channel_only_the_exact_id_counts() -> None:
    unasked: list[str] = []
    served = Served("channel", on_notification=lambda method, params: unasked.append(method))
    with served.client:
        subscription, wire_id = served.subscribed(), served.call.wire_id
        marks: list[Any] = [str(wire_id), float(wire_id or 0), True, None, [wire_id], {}]
        for mark in marks:
            served.say(unmarked(UPDATED, uri="a/1", _meta={STAMP: mark}))
        served.say(unmarked(TOOLS), unmarked(TOOLS, _meta=None), changed(served.call, 2))
        assert numbers([subscription.next(20)]) == [2]
        until(lambda: TOOLS in unasked)


def test_each_of_many_subscriptions_hears_its_own() -> None:
    served = Served("channel")
    with served.client:
        subscriptions = [served.subscribed() for _ in range(5)]
        for number, call in enumerate(served.calls * 3):
            served.say(changed(call, number))
        for index, subscription in enumerate(subscriptions):
            assert numbers(subscription.next(20) for _ in range(3)) == [index, index + 5, index + 10]
        subscriptions[2].close()
        served.say(*(changed(call, 100) for call in served.calls))
        assert numbers(each.next(20) for each in subscriptions if each is not subscriptions[2]) == [100] * 4
        assert all_of(subscriptions[2])[0] == []


# -- the end

ENDINGS: dict[str, Callable[[Call], Any]] = {"complete": result, "cancelled": cancelled, "lost": gone}
ENDINGS["error"] = lambda call: error(call, -32603)


@pytest.mark.parametrize("how", ENDINGS)
def test_the_server_ends_it(serve: Serve, how: str) -> None:
    served = serve()
    subscription = served.subscribed()
    served.say(changed(served.call, 1), changed(served.call, 2), ENDINGS[how](served.call))
    events, closed = all_of(subscription)
    assert (numbers(events), closed.reason) == ([1, 2], how)
    assert (closed.error is not None) == (how in ("lost", "error"))
    assert served.over.wait(20)
    subscription.close()
    assert subscription.next(0) is closed
    assert served.transport.sent.empty()
    if how != "lost" or served.kind == "stream":
        assert served.client.call_tool("x") == Ok({"resultType": "complete"})


@pytest.mark.parametrize("first", ENDINGS)
@pytest.mark.parametrize("second", ENDINGS)
def test_the_first_end_counts(serve: Serve, first: str, second: str) -> None:
    served = serve()
    subscription = served.subscribed()
    served.say(ENDINGS[first](served.call), ENDINGS[second](served.call), changed(served.call, 3))
    events, closed = all_of(subscription)
    assert closed.reason == first
    assert numbers(events) in ([], [3])


@pytest.mark.parametrize("how", ENDINGS)
def test_an_end_after_our_own(serve: Serve, how: str) -> None:
    served = serve()
    subscription = served.subscribed()
    subscription.close()
    served.say(ENDINGS[how](served.call), changed(served.call))
    events, closed = all_of(subscription)
    assert (events, closed.reason, closed.error) == ([], "closed", None)


def test_an_answer_that_cannot_be_read_is_an_end(serve: Serve) -> None:
    served = serve()
    subscription = served.subscribed()
    served.say({"jsonrpc": "2.0", "id": served.call.wire_id, "result": 5})
    closed = all_of(subscription)[1]
    assert (closed.reason, closed.error and closed.error.reason) == ("lost", "malformed")


def test_closing_drops_what_was_not_read(serve: Serve) -> None:
    served = serve()
    subscription = served.subscribed(buffer=2)
    served.say(*(changed(served.call, n) for n in range(5)))
    assert numbers([subscription.next(20), subscription.next(20)]) == [Dropped(3), 3]
    subscription.close()
    assert all_of(subscription)[0] == []
    served.check_told("Closed by the client")


def test_closing_the_client_closes_all(serve: Serve) -> None:
    served = serve()
    subscriptions = [served.subscribed() for _ in range(3)]
    served.client.close()
    assert [all_of(each)[1].reason for each in subscriptions] == ["closed"] * 3
    refused = served.listen()
    assert isinstance(refused, McpError)
    assert refused.reason == "closed"


def test_whoever_waits_wakes_up_when_it_is_closed(serve: Serve) -> None:
    served = serve()
    subscription, seen = served.subscribed(), list[Any]()
    readers = [threading.Thread(target=lambda: seen.append(subscription.next()), daemon=True) for _ in range(4)]
    for reader in readers:
        reader.start()
    together([subscription.close] * 8)
    for reader in readers:
        reader.join(20)
    assert [event.reason for event in seen] == ["closed"] * 4
    served.check_told("Closed by the client")


def test_a_signal_handler_may_close_it(serve: Serve) -> None:
    served = serve()
    subscription = served.subscribed()
    before = signal.signal(signal.SIGALRM, lambda *_: subscription.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        event = subscription.next(20)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert isinstance(event, Closed)
    served.check_told("Closed by the client")


def test_an_interrupted_listen_ends_it(serve: Serve) -> None:
    def interrupt(*_: object) -> None:
        raise InterruptedError

    served = serve(lambda call: [])
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(InterruptedError):
            served.listen()
    finally:
        signal.signal(signal.SIGALRM, before)
    served.check_told("Closed by the client")


def test_cancelling_calls_ends_no_subscription(serve: Serve) -> None:
    served = serve()
    subscription = served.subscribed()
    assert served.client.cancel_all(reason="enough") == []
    served.say(changed(served.call, 1))
    assert numbers([subscription.next(20)]) == [1]


def test_a_bug_in_a_transport_is_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)

    def fail(call: Call) -> Iterator[Message]:
        yield acknowledged(call)
        raise LookupError("a bug")

    with Client.connect(ScriptedTransport(fail), protocol="2026-07-28") as client:
        subscription = client.listen(FILTER, timeout=20)
        assert isinstance(subscription, Subscription)
        assert all_of(subscription)[1].reason == "lost"
        until(lambda: raised)
    assert raised[0].exc_type is LookupError


# -- time


def test_it_outlives_its_timeout(serve: Serve) -> None:
    served = serve(timeout=0.3)
    subscription = served.subscribed(timeout=0.3)
    assert subscription.next(0.8) is None
    served.say(changed(served.call, 1))
    assert numbers([subscription.next(20)]) == [1]


def test_silence_ends_it_when_that_is_asked_for(serve: Serve) -> None:
    served = serve()
    begun = monotonic()
    subscription = served.subscribed(idle_timeout=0.4)
    served.say(changed(served.call, 1))
    events, closed = all_of(subscription)
    assert 0.4 <= monotonic() - begun < 0.4 + LATE
    assert (numbers(events), closed.reason) == ([1], "idle")
    served.check_told("The client's time for this request is over")


def test_signs_of_life_keep_it(serve: Serve) -> None:
    served = serve()
    subscription, begun = served.subscribed(idle_timeout=0.5), monotonic()
    while monotonic() - begun < 1.5:
        served.call.alive()
        assert subscription.next(0.1) is None
    closed = all_of(subscription)[1]
    assert closed.reason == "idle"
    assert monotonic() - begun < 2.1 + LATE


# -- the buffer

STEPS = st.lists(st.one_of(st.integers(1, 12).map(lambda n: ("say", n)), st.integers(1, 8).map(lambda n: ("read", n))))


@settings(max_examples=60, deadline=None)
@given(buffer=st.integers(1, 6), steps=STEPS)
def test_what_was_sent_is_read_or_counted(buffer: int, steps: list[tuple[str, int]]) -> None:
    """Against a plain model: the last `buffer` of what is unread, and the number of what came before."""
    served = Served("channel")
    with served.client:
        subscription = served.subscribed(buffer=buffer)
        waiting: list[int] = []
        sent = dropped = 0
        for step, count in steps:
            for _ in range(count):
                if step == "say":
                    served.say(changed(served.call, sent))
                    waiting.append(sent)
                    sent += 1
                    dropped += len(waiting) - len(waiting[-buffer:])
                    waiting = waiting[-buffer:]
                elif dropped:
                    assert subscription.next(0) == Dropped(dropped)
                    dropped = 0
                else:
                    assert numbers([subscription.next(0)]) == [waiting.pop(0) if waiting else None]
        served.say(result(served.call))
        rest, closed = all_of(subscription)
        assert numbers(rest) == ([Dropped(dropped)] if dropped else []) + waiting
        assert closed.reason == "complete"


def test_the_buffer_is_bounded_by_weight_as_well() -> None:
    served = Served("channel")
    with served.client:
        subscription = served.subscribed()
        half = "x" * (listening.MAX_WEIGHT // 2)
        served.say(*(changed(served.call, n, text=half) for n in range(4)))
        served.say(changed(served.call, 4))
        assert numbers(subscription.next(0) for _ in range(3)) == [Dropped(3), 3, 4]
        served.say(changed(served.call, 5, text=half * 3), changed(served.call, 6))
        assert numbers(subscription.next(0) for _ in range(2)) == [Dropped(1), 6]
        served.say(changed(served.call, 7, text=half * 3))
        assert numbers([subscription.next(0)]) == [7]


def test_readers_and_the_server_at_once(serve: Serve) -> None:
    served = serve()
    subscription = served.subscribed(buffer=50)
    seen: SimpleQueue[Any] = SimpleQueue()
    total = 2000

    def read() -> None:
        for event in subscription:
            seen.put(event)

    def say() -> None:
        for number in range(total):
            served.say(changed(served.call, number))
        served.say(result(served.call))

    together([say, read, read, read])
    events = [seen.get() for _ in range(seen.qsize())]
    read_ones = sorted(int(event.params["uri"][2:]) for event in events if isinstance(event, Notification))
    dropped = sum(event.count for event in events if isinstance(event, Dropped))
    assert len(set(read_ones)) == len(read_ones)
    assert len(read_ones) + dropped == total
    assert [event.reason for event in events if isinstance(event, Closed)] == ["complete"] * 3


# -- where it runs

PLACE: ContextVar[str] = ContextVar("place")


def test_it_is_sent_in_the_context_of_the_caller(serve: Serve) -> None:
    places: list[str | None] = []

    def opening(call: Call) -> list[Message]:
        places.append(PLACE.get(None))
        return [acknowledged(call)]

    served = serve(opening)
    token = PLACE.set("here")
    try:
        served.subscribed()
    finally:
        PLACE.reset(token)
    assert places == ["here"]


def test_no_thread_is_no_subscription(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        refused = served.listen()
    assert isinstance(refused, McpError)
    assert refused.reason == "transport_failure"
    served.subscribed()
