"""URLs that must be visited before a call is served (-32042 of revision 2025-11-25), over every older connection: the
handler for URLs answers them as it answers an input round, and the call is made again.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from snodo_client import Client, InputRequest, InputRequired, McpError, Ok
from snodo_client.engine import session
from snodo_client.engine.rounds import PAUSE_SECONDS
from support.older import KINDS, Line, Message, Older, older
from support.questions import noting
from support.waiting import until

each_kind = pytest.mark.parametrize("kind", KINDS)
PAGES = [
    {"mode": "url", "elicitationId": id, "url": f"https://example.test/{id}", "message": f"Visit {id}"}
    for id in ("b", "10", "2")
]
ACCEPT = {"action": "accept"}


def refused(*pages: Message, times: int = 1) -> Any:
    """What refuses the first calls with these pages, and serves the others."""
    count = [times]

    def act(line: Line, message: Message) -> None:
        count[0] -= 1
        if count[0] < 0:
            return line.answer(message)
        error = {"code": -32042, "message": "Visit these first", "data": {"elicitations": list(pages)}}
        return line.reply({"jsonrpc": "2.0", "id": message["id"], "error": error}, message)

    return {"tools/call": act}


def calls(server: Older) -> list[Message]:
    return server.received("tools/call")


def call(client: Client, **options: Any) -> Any:
    return client.call_tool("ok", {"text": "hello"}, **options)


@each_kind
def test_pages_are_visited_in_the_order_of_their_ids_and_the_call_made_again(kind: str) -> None:
    visited: list[InputRequest] = []
    with older(kind, on=refused(*PAGES)) as server:
        client = server.connect(handlers={"url": noting(visited, ACCEPT)})
        assert call(client) == Ok({"content": [{"type": "text", "text": "hello"}]})
        first, second = calls(server)
        assert first.pop("id") != second.pop("id")
        assert first == second
        assert first["params"] == {"name": "ok", "arguments": {"text": "hello"}}
        assert [(request.mode, request.url) for request in visited] == [
            ("url", f"https://example.test/{id}") for id in ("10", "2", "b")
        ]
        assert visited[0].message == "Visit 10"
        assert visited[0].params["elicitationId"] == "10"
        assert visited[0].server_info == {"name": "older", "version": "1"}
        assert server.line.answers() == []
        assert client._session.pending.calls() == []


@each_kind
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_page_that_was_not_accepted_is_the_end_and_the_caller_may_go_on_by_hand(kind: str, action: str) -> None:
    with older(kind, on=refused(PAGES[0])) as server:
        client = server.connect(handlers={"url": lambda request: {"action": action}})
        outcome = call(client)
        assert isinstance(outcome, McpError)
        assert (outcome.reason, outcome.data) == ("input_handler", {"method": "elicitation/create"})
        assert isinstance(outcome.cause, InputRequired)
        assert outcome.cause.requests == {"b": {"method": "elicitation/create", "params": PAGES[0]}}
        assert len(calls(server)) == 1
        assert isinstance(call(client), Ok)


def test_every_page_counts_and_those_after_a_refusal_are_still_shown_or_not_at_all() -> None:
    def some(request: InputRequest) -> Any:
        return {"action": "decline" if request.params["elicitationId"] == "10" else "accept"}

    with older("stdio", on=refused(*PAGES)) as server:
        outcome = call(server.connect(handlers={"url": some}))
        assert isinstance(outcome, McpError)
        assert outcome.reason == "input_handler"
        assert len(calls(server)) == 1


@each_kind
def test_a_server_that_asks_again_is_asked_again_after_a_pause_and_not_for_ever(kind: str) -> None:
    visited: list[InputRequest] = []
    with older(kind, on=refused(PAGES[0], times=100)) as server:
        client = server.connect(handlers={"url": noting(visited, ACCEPT)}, max_input_rounds=2)
        start = monotonic()
        outcome = call(client)
        assert PAUSE_SECONDS <= monotonic() - start < PAUSE_SECONDS + 2
        assert isinstance(outcome, McpError)
        assert (outcome.reason, outcome.data) == ("input_rounds", {"max_input_rounds": 2})
        assert isinstance(outcome.cause, InputRequired)
        assert (len(visited), len(calls(server))) == (2, 3)


@each_kind
def test_the_first_time_there_is_no_pause(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PAUSE_SECONDS", 60.0)
    handlers = {"url": lambda request: ACCEPT}
    with older(kind, on=refused(PAGES[0])) as server:
        assert isinstance(call(server.connect(handlers=handlers)), Ok)
    with older(kind, on=refused(PAGES[0], times=2)) as server:
        outcome = call(server.connect(handlers=handlers), timeout=0.3)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "timeout"
        assert isinstance(outcome.cause, InputRequired)


def test_the_original_deadline_is_over_all_of_it() -> None:
    def late(request: InputRequest) -> Any:
        until(lambda: request.cancelled)
        return ACCEPT

    with older("stdio", on=refused(PAGES[0])) as server:
        client = server.connect(handlers={"url": late})
        start = monotonic()
        outcome = call(client, timeout=0.2)
        assert 0.2 <= monotonic() - start < 2.2
        assert isinstance(outcome, McpError)
        assert outcome.reason == "timeout"
        assert isinstance(outcome.cause, InputRequired)
        assert isinstance(call(client), Ok)
        assert server.received("notifications/cancelled") == []  # the call had been answered


@each_kind
def test_without_a_handler_for_urls_the_caller_is_asked(kind: str) -> None:
    with older(kind, on=refused(PAGES[0], times=3)) as server:
        declared: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
        for options in ({}, {"client_capabilities": declared, "handlers": {"form": lambda request: ACCEPT}}):
            assert isinstance(call(server.connect(**options)), InputRequired)
        client = server.connect(handlers={"url": lambda request: ACCEPT})
        assert isinstance(call(client, answer_input=False), InputRequired)
        assert isinstance(call(client), Ok)


@pytest.mark.parametrize(
    "page",
    [
        {**PAGES[0], "url": "javascript:alert(1)"},
        {**PAGES[0], "url": "file:///etc/passwd"},
        {name: value for name, value in PAGES[0].items() if name != "message"},
        {**PAGES[0], "mode": "form"},
    ],
)
def test_pages_that_may_not_be_shown_reach_no_handler(page: Message) -> None:
    visited: list[InputRequest] = []
    with older("stdio", on=refused(page, PAGES[1])) as server:
        outcome = call(server.connect(handlers={"url": noting(visited, ACCEPT)}))
        assert isinstance(outcome, McpError)
        assert outcome.reason == "invalid_result"
        assert isinstance(outcome.cause, InputRequired)
        assert visited == []
        assert len(calls(server)) == 1


def test_the_session_may_be_lost_while_a_page_is_visited() -> None:
    def visit(request: InputRequest) -> Any:
        server.line.gone.set()  # the server forgets the session
        return ACCEPT

    with older("http", on=refused(PAGES[0])) as server:
        assert isinstance(call(server.connect(handlers={"url": visit})), Ok)
        assert len(server.lines) == 2
        assert [len(line.received) for line in server.lines] == [3, 3]


def test_a_process_may_be_replaced_while_a_page_is_visited() -> None:
    def visit(request: InputRequest) -> Any:
        server.line.end()
        until(lambda: client._session.connection.link.lost is not None)  # type: ignore[union-attr]
        return ACCEPT

    with older("stdio", on=refused(PAGES[0])) as server:
        client = server.connect(handlers={"url": visit}, restart="on_call")
        assert isinstance(call(client), Ok)
        assert len(server.lines) == 2
