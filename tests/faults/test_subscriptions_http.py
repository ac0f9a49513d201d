"""Subscriptions over raw HTTP: what comes in place of a stream, streams that break, and who sees that it is over."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest
import requests

from snodo_client import Client, McpError, Ok
from snodo_client.changes import Closed, Notification
from snodo_client.subscription import Subscription
from support.http_calls import connect
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event, in_pieces, result
from support.waiting import until

TOOLS = "notifications/tools/list_changed"
FILTER = {"toolsListChanged": True}
LATE = 2.0


def changed(number: int) -> bytes:
    return event({"jsonrpc": "2.0", "method": TOOLS, "params": {"n": number}})


def acknowledgement(request: Request) -> bytes:
    params = {"notifications": request.message["params"]["notifications"]}
    return event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})


def begin(peer: Peer, request: Request) -> None:
    peer.start_sse()
    peer.chunk(acknowledgement(request))


class Serving:
    """A server that leaves subscriptions to `reply`, and answers calls. `gone` is set when a subscriber has left."""

    def __init__(self, reply: Callable[[Peer, Request], object]) -> None:
        self.reply = reply
        self.gone = threading.Event()
        self.server = ScriptedServer(each_request(self._serve))

    def _serve(self, peer: Peer, request: Request) -> None:
        if request.message["method"] != "subscriptions/listen":
            peer.answer(request)
            return
        try:
            self.reply(peer, request)
        finally:
            self.gone.set()


@pytest.fixture
def serve() -> Iterator[Callable[..., Client]]:
    """A client of a server that answers `subscriptions/listen` with `reply(peer, request)`."""
    servers: list[ScriptedServer] = []
    clients: list[Client] = []

    def make(reply: Callable[[Peer, Request], object], **options: Any) -> Client:
        serving = Serving(reply)
        servers.append(serving.server.__enter__())
        clients.append(connect(serving.server.url, **options))
        clients[-1].serving = serving  # type: ignore[attr-defined]
        return clients[-1]

    yield make
    for client in clients:
        client.close()
    for server in servers:
        server.__exit__(None, None, None)


Serve = Callable[..., Client]


def listen(client: Client, **options: Any) -> Subscription:
    subscription = client.listen(FILTER, **{"timeout": 10, **options})
    assert isinstance(subscription, Subscription), subscription
    return subscription


def refused(client: Client, **options: Any) -> McpError:
    error = client.listen(FILTER, **{"timeout": 10, **options})
    assert isinstance(error, McpError), error
    return error


def told(subscription: Subscription) -> tuple[list[int], Closed]:
    *events, closed = list(subscription)
    assert isinstance(closed, Closed)
    return [each.params["n"] for each in events if isinstance(each, Notification)], closed


def left(client: Client) -> bool:
    serving: Serving = client.serving  # type: ignore[attr-defined]
    return serving.gone.wait(10)


# -- in place of a stream


def test_an_error_in_a_body(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        error = {"code": -32601, "message": "no subscriptions here"}
        peer.json({"jsonrpc": "2.0", "id": request.id, "error": error}, "404 Not Found")

    error = refused(serve(reply))
    assert (error.code, error.message, error.reason) == (-32601, "no subscriptions here", None)


def test_a_result_in_a_body(serve: Serve) -> None:
    assert refused(serve(lambda peer, request: peer.json(result(request)))).reason == "not_acknowledged"


@pytest.mark.parametrize(
    ("status", "reason"),
    [("503 Busy", "http_status"), ("401 No", "unauthorized"), ("202 Accepted", "malformed"), ("200 OK", "malformed")],
)
def test_a_page(serve: Serve, status: str, reason: str) -> None:
    client = serve(lambda peer, request: peer.respond(status, b"<p>no</p>", kind="text/html"))
    assert refused(client).reason == reason
    assert isinstance(client.call_tool("x"), Ok)


def test_a_stream_that_only_answers(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(event(result(request)))
        peer.end()

    assert refused(serve(reply)).reason == "not_acknowledged"


@pytest.mark.parametrize("data", [b"", b": hello\n\n", b"data: {\n\n", changed(1)])
def test_a_stream_that_ends_before_it_begins(serve: Serve, data: bytes) -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        if data:
            peer.chunk(data)
        peer.end()

    assert refused(serve(reply)).reason == "closed"


def test_comments_do_not_replace_the_acknowledgement(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        while True:
            peer.chunk(b": patience\n\n")
            peer.pause(0.05)

    client, begun = serve(reply), monotonic()
    assert refused(client, timeout=0.5).reason == "timeout"
    assert 0.5 <= monotonic() - begun < 0.5 + LATE
    assert left(client)


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX: " + b"y" * 1000])
def test_a_head_that_does_not_come(serve: Serve, data: bytes) -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.drip(data, 0.05)
        peer.silence()

    client, begun = serve(reply), monotonic()
    assert refused(client, timeout=0.5).reason == "timeout"
    assert 0.5 <= monotonic() - begun < 0.5 + LATE
    assert left(client)


# -- the stream


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_framing_of_events(serve: Serve, newline: bytes, size: int) -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        answer = event({"jsonrpc": "2.0", "id": request.id, "result": {"resultType": "complete"}})
        parts = [b": hello\n\n", acknowledgement(request), changed(1), b"event: ping\ndata: {}\n\n", changed(2), answer]
        for piece in in_pieces(b"".join(parts).replace(b"\n", newline), size):
            peer.chunk(piece)
        peer.end()

    numbers, closed = told(listen(serve(reply)))
    assert (numbers, closed.reason) == ([1, 2], "complete")


def test_what_cannot_be_read_costs_itself_only(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        begin(peer, request)
        foreign = json.dumps({"jsonrpc": "2.0", "id": 99, "method": "ping"}).encode()
        for data in (
            b"{",
            b"[]",
            b"5",
            b"\xff",
            b'{"method": 5}',
            b'{"jsonrpc":"2.0","method":"x","params":[]}',
            foreign,
        ):
            peer.chunk(b"data: " + data + b"\n\n")
        peer.chunk(changed(1))
        peer.silence()

    subscription = listen(serve(reply))
    event = subscription.next(10)
    assert isinstance(event, Notification)
    assert event.params == {"n": 1}


@pytest.mark.parametrize("ending", ["end", "cut"])
def test_a_stream_that_breaks_off(serve: Serve, ending: str) -> None:
    def reply(peer: Peer, request: Request) -> None:
        begin(peer, request)
        peer.chunk(changed(1))
        if ending == "end":
            peer.end()
        else:
            peer.sock.close()

    client = serve(reply)
    numbers, closed = told(listen(client))
    assert (numbers, closed.reason) == ([1], "lost")
    assert closed.error is not None
    assert closed.error.reason == "closed"
    assert isinstance(client.call_tool("x"), Ok)


def test_an_event_that_is_too_large(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        begin(peer, request)
        peer.chunk(changed(1) + event({"x": "y" * 3000}))
        peer.silence()

    client = serve(reply, max_response_bytes=2000)
    numbers, closed = told(listen(client))
    assert (numbers, closed.reason) == ([1], "lost")
    assert closed.error is not None
    assert closed.error.reason == "too_large"
    assert left(client)


def test_many_large_events_are_no_large_event(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        begin(peer, request)
        for number in range(20):
            peer.chunk(event({"jsonrpc": "2.0", "method": TOOLS, "params": {"n": number, "x": "y" * 1500}}))
        peer.silence()

    subscription = listen(serve(reply, max_response_bytes=2000))
    for number in range(20):
        event_ = subscription.next(10)
        assert isinstance(event_, Notification)
        assert event_.params["n"] == number


def test_an_event_that_never_ends_is_no_sign_of_life(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        begin(peer, request)
        while True:
            peer.chunk(b"x")
            peer.pause(0.05)

    client, begun = serve(reply), monotonic()
    assert told(listen(client, idle_timeout=0.5))[1].reason == "idle"
    assert 0.5 <= monotonic() - begun < 0.5 + LATE
    assert left(client)


def test_comments_are_signs_of_life(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        begin(peer, request)
        for _ in range(20):
            peer.chunk(b":\n")
            peer.pause(0.1)
        peer.chunk(changed(1))
        peer.silence()

    client, begun = serve(reply), monotonic()
    numbers, closed = told(listen(client, idle_timeout=1.0))
    assert (numbers, closed.reason) == ([1], "idle")
    assert monotonic() - begun >= 3.0


# -- who has which connection


def test_it_has_a_connection_of_its_own(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        begin(peer, request)
        peer.silence()

    client = serve(reply)
    subscriptions = [listen(client) for _ in range(3)]
    assert all(isinstance(client.call_tool("x"), Ok) for _ in range(5))
    server: ScriptedServer = client.serving.server  # type: ignore[attr-defined]
    assert server.connections == 4
    for subscription in subscriptions:
        subscription.close()
    assert all(isinstance(client.call_tool("x"), Ok) for _ in range(5))
    assert server.connections == 4


def test_a_kept_connection_that_the_server_has_closed(serve: Serve) -> None:
    """Nothing is changed by asking once more."""

    def reply(peer: Peer, request: Request) -> None:
        if peer.number > 1:
            begin(peer, request)
            peer.silence()
        peer.sock.close()

    client = serve(reply)
    assert isinstance(client.call_tool("x"), Ok)
    assert listen(client).next(0) is None
    server: ScriptedServer = client.serving.server  # type: ignore[attr-defined]
    assert [request.message["method"] for request in server.requests[1:]] == ["subscriptions/listen"] * 2


def test_the_server_sees_that_it_is_closed(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        begin(peer, request)
        peer.silence()

    client = serve(reply)
    listen(client).close()
    assert left(client)
    server: ScriptedServer = client.serving.server  # type: ignore[attr-defined]
    assert [request.message["method"] for request in server.requests] == ["subscriptions/listen"]


def test_no_thread_keeps_watch_over_a_stream_that_may_last(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        begin(peer, request)
        peer.silence()

    subscription = listen(serve(reply))
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "snodo-http-deadlines"])
    assert subscription.next(0) is None


# -- a session of the caller's


def test_a_session_of_the_callers(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        begin(peer, request)
        peer.pause(1.0)
        peer.chunk(changed(1))
        peer.silence()

    with requests.Session() as session:
        client = serve(reply, session=session, timeout=0.5)
        subscription = listen(client, timeout=0.5)
        event = subscription.next(10)
        assert isinstance(event, Notification)
        subscription.close()
        assert isinstance(subscription.next(10), Closed)
        assert left(client)


def test_silence_in_a_session_of_the_callers(serve: Serve) -> None:
    def reply(peer: Peer, request: Request) -> None:
        begin(peer, request)
        for _ in range(10):
            peer.chunk(b":\n")
            peer.pause(0.1)
        peer.silence()

    with requests.Session() as session:
        client, begun = serve(reply, session=session), monotonic()
        assert told(listen(client, idle_timeout=0.5))[1].reason == "idle"
        assert monotonic() - begun >= 1.4
        assert left(client)
