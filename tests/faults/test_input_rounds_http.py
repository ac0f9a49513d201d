"""Input rounds over HTTP: other connections, corrections and redirects in the middle, and nothing of them elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client import Client, InputRequired, McpError, Ok
from support.questions import FILLED, FORM, MODERN, answering
from support.scripted_http import Peer, Request, ScriptedServer, event, replies, result

STATE = 'state-\u2028\u00e9\U0001f511"\\/\t'
CALL = {"name": "t", "arguments": {"region": "eu"}}


def asks(peer: Peer, request: Request, *headers: str) -> None:
    value = {"resultType": "input_required", "inputRequests": {"a": FORM}, "requestState": STATE}
    peer.json({"jsonrpc": "2.0", "id": request.id, "result": value}, "200 OK", *headers)


def refuses(code: int, data: Any = None) -> Any:
    def reply(peer: Peer, request: Request) -> None:
        error = {"code": code, "message": "no", "data": data}
        peer.json({"jsonrpc": "2.0", "id": request.id, "error": error}, "400 Bad Request")

    return reply


def lists(peer: Peer, request: Request) -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    value = {"resultType": "complete", "tools": [{"name": "t", "inputSchema": schema}], "ttlMs": 0}
    peer.json({"jsonrpc": "2.0", "id": request.id, "result": {**value, "cacheScope": "private"}})


def answers(peer: Peer, request: Request) -> None:
    peer.answer(request)


def ends(step: Any) -> Any:
    """The same, and then the connection is closed without a word in the head."""

    def reply(peer: Peer, request: Request) -> None:
        step(peer, request)
        peer.sock.shutdown(2)

    return reply


def connect(server: ScriptedServer, **options: Any) -> Client:
    return Client.connect(server.url, **{"protocol": MODERN, "handlers": answering(), "timeout": 20, **options})


def succeeds(client: Client) -> None:
    outcome = client.call_tool(CALL["name"], CALL["arguments"])  # type: ignore[arg-type]
    assert isinstance(outcome, Ok), outcome
    assert outcome.value["content"][0]["text"] == "ok"
    assert client._session.pending.calls() == []


def is_second_round(request: Request) -> None:
    """All of a second round is in its body, and nothing of it in the head."""
    params = request.message["params"]
    assert params["inputResponses"] == {"a": FILLED}
    assert params["requestState"] == STATE
    assert {name: params[name] for name in CALL} == CALL
    head = request.line + repr(request.headers)
    assert "state-" not in head
    assert "Ada" not in head


def test_a_round_is_answered_on_another_connection() -> None:
    def closes(peer: Peer, request: Request) -> None:
        asks(peer, request, "Connection: close")

    with ScriptedServer(replies(closes, answers)) as server, connect(server) as client:
        succeeds(client)
        assert server.connections == 2
        one, two = server.requests
        is_second_round(two)
        assert one.id != two.id
        different = [name for name, value in one.headers if two.header(name) != value]
        assert different == ["content-length"]


def test_a_round_of_a_read_outlives_a_connection_that_is_closed_without_a_word() -> None:
    with ScriptedServer(replies(ends(asks), answers)) as server, connect(server) as client:
        assert isinstance(client.read_resource("a:b"), Ok)
        assert server.connections == 2
        params = server.requests[-1].message["params"]
        assert (params["inputResponses"], params["requestState"]) == ({"a": FILLED}, STATE)


def test_a_refused_header_in_the_middle_is_corrected_with_the_answers_kept() -> None:
    steps = (asks, refuses(-32020), lists, answers)
    with ScriptedServer(replies(*steps)) as server, connect(server) as client:
        succeeds(client)
        first, refused, listed, again = server.requests
        assert listed.message["method"] == "tools/list"
        for request in (refused, again):
            is_second_round(request)
        assert [request.header("mcp-param-region") for request in (first, refused, again)] == [None, None, "eu"]
        assert len({request.id for request in server.requests}) == 4


def test_each_round_may_be_corrected_once() -> None:
    steps = (refuses(-32020), lists, asks, refuses(-32020), lists, refuses(-32020))
    with ScriptedServer(replies(*steps)) as server, connect(server) as client:
        outcome = client.call_tool(CALL["name"], CALL["arguments"])  # type: ignore[arg-type]
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.reason) == (-32020, None)
        assert len(server.requests) == 6


def test_a_refused_version_in_the_middle_is_corrected_with_the_answers_kept() -> None:
    steps = (asks, refuses(-32022, {"supported": [MODERN], "requested": MODERN}), answers)
    with ScriptedServer(replies(*steps)) as server, connect(server) as client:
        succeeds(client)
        _, refused, again = server.requests
        for request in (refused, again):
            is_second_round(request)
        assert refused.id != again.id


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "308 Permanent Redirect"])
def test_a_round_may_be_redirected_within_the_origin(status: str) -> None:
    def moved(peer: Peer, request: Request) -> None:
        peer.respond(status, b"", "Location: /other")

    with ScriptedServer(replies(asks, moved, answers)) as server, connect(server) as client:
        succeeds(client)
        for request in server.requests[1:]:
            is_second_round(request)
        assert server.requests[-1].target == "/other"


def test_answers_and_state_go_to_no_other_origin() -> None:
    with ScriptedServer(replies(answers)) as other:

        def moved(peer: Peer, request: Request) -> None:
            peer.respond("307 Temporary Redirect", b"", f"Location: {other.url}")

        with ScriptedServer(replies(asks, moved)) as server, connect(server) as client:
            outcome = client.call_tool("t")
            assert isinstance(outcome, McpError)
            assert outcome.reason == "cross_origin_redirect"
            assert "state-" not in str(outcome) + repr(outcome) + repr(outcome.data)
        assert other.requests == []


def test_rounds_in_event_streams_with_progress_of_their_own() -> None:
    def streams(last: Any) -> Any:
        def reply(peer: Peer, request: Request) -> None:
            token = request.message["params"]["_meta"]["progressToken"]
            assert token == request.id
            peer.start_sse()
            for number in (1, 2):
                params = {"progressToken": token, "progress": number}
                peer.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
            peer.chunk(event({"jsonrpc": "2.0", "id": request.id, "result": last}))
            peer.end()

        return reply

    asked = {"resultType": "input_required", "inputRequests": {"a": FORM}}
    got: list[float] = []
    with ScriptedServer(replies(streams(asked), streams({"resultType": "complete"}))) as server:
        with connect(server) as client:
            outcome = client.call_tool("t", progress=lambda each: got.append(each.progress))
            assert outcome == Ok({"resultType": "complete"})
        assert server.connections == 1
    assert got == [1, 2, 1, 2]


@pytest.mark.parametrize("status", ["503 Service Unavailable", "500 Internal Server Error", "429 Too Many Requests"])
def test_a_round_that_is_refused_is_not_sent_again_and_leaves_what_was_asked(status: str) -> None:
    def refused(peer: Peer, request: Request) -> None:
        peer.respond(status, b"later")

    with ScriptedServer(replies(asks, refused, answers)) as server, connect(server) as client:
        outcome = client.call_tool(CALL["name"], CALL["arguments"])  # type: ignore[arg-type]
        assert isinstance(outcome, McpError)
        assert outcome.reason == "http_status"
        assert isinstance(outcome.cause, InputRequired)
        assert len(server.requests) == 2
        by_hand = client.call_tool(
            CALL["name"],  # type: ignore[arg-type]
            CALL["arguments"],  # type: ignore[arg-type]
            input_responses={"a": FILLED},
            request_state=outcome.cause.request_state,
        )
        assert isinstance(by_hand, Ok)
        is_second_round(server.requests[-1])


def test_a_state_of_a_megabyte_comes_back_whole() -> None:
    state = "\u00e9" * 1_000_000

    def big(peer: Peer, request: Request) -> None:
        value = {"resultType": "input_required", "requestState": state}
        peer.json({"jsonrpc": "2.0", "id": request.id, "result": value})

    with ScriptedServer(replies(big, lambda peer, request: peer.json(result(request)))) as server:
        with connect(server) as client:
            succeeds(client)
        assert server.requests[1].message["params"]["requestState"] == state
