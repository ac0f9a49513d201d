"""Servers that say what nobody asked for, and servers that answer in an order of their own."""

from __future__ import annotations

import json
from threading import Barrier, Event
from typing import Any

import pytest

from snodo_client import Client, Ok
from support.faulty import AT_ONCE, assert_error, assert_serves, assert_timeout, check_received, http_server, serving
from support.http_calls import VERSION, Took
from support.scripted_http import Peer, Request, event, result
from support.waiting import together, until

ANSWER = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}'


@pytest.fixture(params=["stdio", "sse"])
def stream(request: pytest.FixtureRequest) -> str:
    """The connections on which a server can speak before it answers."""
    return str(request.param)


def request(method: str, id_: Any = 77, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})


def notification(method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params})


# -- requests of the server: none may come, none is answered


@pytest.mark.parametrize("method", ["ping", "roots/list", "sampling/createMessage", "elicitation/create", "no/such"])
@pytest.mark.parametrize("id_", [77, "a", 2, None])
def test_a_request_of_the_server_is_never_answered(stream: str, method: str, id_: Any) -> None:
    with serving(stream) as server, server.connect(client_capabilities=["roots", "elicitation"]) as client:
        outcome = client.call_tool("fault", {"send": [request(method, id_), ANSWER]})
        assert isinstance(outcome, Ok), outcome
        assert_serves(client)
        check_received(server.received())
        assert {message["method"] for message in server.received()} <= {"server/discover", "tools/call"}


def test_requests_between_calls_are_never_answered() -> None:
    with serving("stdio") as server, server.connect() as client:
        for id_ in range(1, 6):
            fault = {"send": [ANSWER, request("ping", id_), request("ping", id_ + 1)]}
            assert isinstance(client.call_tool("fault", fault), Ok)
        assert_serves(client)
        check_received(server.received())


def test_a_flood_of_requests_is_never_answered(stream: str) -> None:
    with serving(stream) as server, server.connect() as client:
        outcome = client.call_tool("fault", {"send": [*[request("ping", n) for n in range(3000)], ANSWER]})
        assert isinstance(outcome, Ok), outcome
        assert_serves(client)
        check_received(server.received())


def test_a_request_instead_of_an_answer_in_a_body() -> None:
    with serving("json") as server, server.connect() as client:
        outcome = client.call_tool("fault", {"send": [request("ping")]})
        assert_error(outcome, "malformed")
        assert_serves(client)


# -- notifications


def test_a_flood_of_notifications_before_the_answer(stream: str) -> None:
    seen: list[Any] = []
    flood = [notification("notifications/com.example/x", n=n) for n in range(500)]
    options = {"on_notification": lambda method, params: seen.append(params["n"])}
    with serving(stream) as server, server.connect(**options) as client:
        outcome = client.call_tool("fault", {"send": [*flood * 4, ANSWER]})
        assert isinstance(outcome, Ok), outcome
        assert_serves(client)
        until(lambda: len(seen) > 100)
    assert all(isinstance(number, int) for number in seen)


def test_an_endless_flood_on_stdout_costs_the_limit() -> None:
    with serving("stdio") as server, server.connect() as client:
        note = notification("notifications/com.example/x", text="x" * 100)
        with Took() as took:
            fault = {"send": [], "flood": note, "flood_seconds": 1.0}
            outcome = client.call_tool("fault", fault, timeout=0.4)
        assert_timeout(outcome, 0.4, took)
        assert_serves(client)


@pytest.mark.parametrize(
    "data", [event({"jsonrpc": "2.0", "method": "notifications/x"}), b": x\n\n", b"data: junk\n\n"]
)
def test_an_endless_flood_of_events_costs_the_limit(data: bytes) -> None:
    def reply(peer: Peer, _: Request) -> None:
        peer.start_sse()
        while True:
            peer.chunk(data * 100)

    with http_server(reply) as server, Client.connect(server.url) as client:
        with Took() as took:
            outcome = client.call_tool("fault", timeout=0.4)
        assert_timeout(outcome, 0.4, took)
        assert_serves(client)


def test_a_callback_that_hangs_or_raises_holds_no_call_up(stream: str) -> None:
    release = Event()

    def hang(method: str, params: Any) -> None:
        release.wait(10)
        raise LookupError("not our business")

    with serving(stream) as server, server.connect(on_notification=hang) as client:
        flood = [notification("notifications/com.example/x")] * 2000
        with Took() as took:
            assert isinstance(client.call_tool("fault", {"send": [*flood, ANSWER]}), Ok)
            assert_serves(client)
        assert took.seconds < AT_ONCE
        release.set()


@pytest.mark.parametrize(
    "text",
    [
        '{"jsonrpc":"2.0","method":5}',
        '{"jsonrpc":"2.0","method":"notifications/x","params":[]}',
        '{"jsonrpc":"2.0","method":"notifications/x","params":"x"}',
        '{"jsonrpc":"2.0","method":"notifications/message","params":{}}',
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":[],"data":1}}',
        '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"loud","data":1}}',
        '{"jsonrpc":"2.0","method":"notifications/progress"}',
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$ID}}',
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$ID,"progress":"1"}}',
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$ID,"progress":true}}',
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[],"progress":1}}',
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":$ID}}',
        '{"jsonrpc":"2.0","method":"notifications/' + "x" * 100_000 + '"}',
    ],
    ids=lambda text: text[17:90],
)
def test_malformed_notifications_harm_nobody(stream: str, text: str) -> None:
    progress: list[Any] = []
    with serving(stream) as server, server.connect() as client:
        outcome = client.call_tool("fault", {"send": [text, ANSWER]}, progress=progress.append)
        assert isinstance(outcome, Ok), outcome
        assert_serves(client)
    assert progress == []


def test_progress_for_others_is_not_ours(stream: str) -> None:
    seen: list[float] = []
    template = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%s}}'
    tokens = ["$PREV", "999", "0", "-1", "null", "true", '"x"', "$ID.5"]
    texts = [template % (token, 100) for token in tokens] + [template % ("$ID", 1), template % ("$ID", 2), ANSWER]
    with serving(stream) as server, server.connect() as client:
        outcome = client.call_tool("fault", {"send": texts}, progress=lambda step: seen.append(step.progress))
        assert isinstance(outcome, Ok), outcome
        assert_serves(client)
    assert seen == [1, 2]


def test_progress_for_others_does_not_keep_a_call_alive() -> None:
    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        while True:
            params = {"progressToken": request.id + 1, "progress": 1}
            peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
            peer.pause(0.05)

    with http_server(reply) as server, Client.connect(server.url) as client:
        with Took() as took:
            outcome = client.call_tool("fault", timeout=0.4, reset_timeout_on_progress=True, max_total_timeout=30)
        assert_timeout(outcome, 0.4, took)
        assert_serves(client)


# -- order


@pytest.mark.parametrize("protocol", ["auto", VERSION])
def test_forty_threads_answered_in_reverse_order_on_stdio(protocol: str) -> None:
    with serving("stdio") as server, server.connect(protocol=protocol) as client:
        outcomes: dict[int, Any] = {}

        def call(number: int) -> None:
            text = '{"jsonrpc":"2.0","id":$ID,"result":' + json.dumps({"number": number}) + "}"
            outcomes[number] = client.call_tool("fault", {"send": [text], "reverse": 40}, timeout=15)

        together([lambda number=number: call(number) for number in range(40)])  # type: ignore[misc]
        assert outcomes == {number: Ok({"number": number}) for number in range(40)}
        assert_serves(client)


@pytest.mark.parametrize("sse", [False, True])
def test_forty_threads_answered_in_reverse_order_over_http(sse: bool) -> None:
    everybody = Barrier(40)
    turns = [Event() for _ in range(41)]
    turns[40].set()

    def reply(peer: Peer, request: Request) -> None:
        number = request.message["params"]["arguments"]["n"]
        everybody.wait(15)
        assert turns[number + 1].wait(15)
        if sse:
            peer.start_sse()
            peer.chunk(event(result(request, str(number))))
            peer.end()
        else:
            peer.answer(request, str(number))
        turns[number].set()

    with http_server(reply) as server, Client.connect(server.url) as client:
        outcomes: dict[int, str] = {}

        def call(number: int) -> None:
            outcomes[number] = client.call_tool("fault", {"n": number}, timeout=15).unwrap()["content"][0]["text"]

        together([lambda number=number: call(number) for number in range(40)])  # type: ignore[misc]
        assert outcomes == {number: str(number) for number in range(40)}
        assert_serves(client)


@pytest.mark.parametrize("kind", ["direct", "stdio", "json", "sse"])
def test_hundreds_of_calls_among_faults_never_mix(kind: str) -> None:
    faults = [
        [],  # in time: an error, or silence until the limit
        ['{"jsonrpc":"2.0","id":$ID,"result":[]}'],
        ['{"jsonrpc":"2.0","id":$ID,"error":{"code":1,"message":"no"}}'],
    ]

    with serving(kind) as server, server.connect() as client:

        def work(number: int) -> None:
            for turn in range(8):
                if (number + turn) % 3 == 0:
                    client.call_tool("fault", {"send": faults[turn % 3]}, timeout=0.1)
                assert_serves(client, f"{number}:{turn}")

        together([lambda number=number: work(number) for number in range(12)])  # type: ignore[misc]
        check_received(server.received())
