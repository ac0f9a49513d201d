"""Sessions of the older revisions that are lost: under load, again at once, in the middle of an answer, and found anew
as something else. A tool call reaches a server once whatever happens.
"""

from __future__ import annotations

import itertools
import logging
from threading import Event
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from snodo_client.testing.demo import demo_server
from support.faulty import AT_ONCE, assert_error
from support.http_calls import Took
from support.older import (
    KINDS,
    REOPENING,
    VERSION,
    Line,
    Message,
    assert_all_say,
    assert_says,
    initialized,
    lost,
    older,
    says,
)
from support.waiting import together, until

THREADS = 16


@pytest.fixture(params=REOPENING)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def lose(line: Line, client: Client) -> None:
    """The server is done with this session: over HTTP it answers 404 from now on, elsewhere the connection ends, and
    the client has found out.
    """
    line.gone.set()
    if line.server.kind != "http":
        line.end()
        until(lambda: lost(client))


def run_once(runs: list[str]) -> None:
    assert len(runs) == len(set(runs)), sorted(runs)


# -- while nothing runs


def test_threads_that_find_the_session_gone_begin_one_other(kind: str) -> None:
    with older(kind) as server, server.connect() as client:
        assert_says(client, "before")
        lose(server.line, client)
        with Took() as took:
            assert_all_say(client, [f"text {n}" for n in range(THREADS)])
        assert took.seconds < AT_ONCE + 1
        assert len(server.received("initialize")) == 2
        assert len(server.received("notifications/initialized")) == 2
        assert sorted(server.runs()) == sorted(["before", *(f"text {n}" for n in range(THREADS))])
        assert client.protocol_info["status"] == "ready"


def test_it_may_be_lost_again_and_again(kind: str) -> None:
    with older(kind) as server, server.connect() as client:
        for number in range(5):
            line = server.line
            lose(line, client)
            assert_all_say(client, [f"text {number}.{n}" for n in range(4)])
        assert len(server.received("initialize")) == 6
        run_once(server.runs())
        assert len(server.runs()) == 20


def test_ids_are_not_used_again(kind: str) -> None:
    with older(kind) as server, server.connect() as client:
        assert_says(client)
        lose(server.line, client)
        assert_says(client)
        ids = [message["id"] for line in server.lines for message in line.received if "id" in message]
        assert len(ids) == len(set(ids)) == 4


# -- while calls run


@pytest.mark.parametrize("kind", KINDS)
def test_calls_under_way_fail_at_once_and_are_not_sent_again(kind: str) -> None:
    def call(line: Line, message: Message) -> None:
        if line.number > 1:
            line.answer(message)

    with older(kind, {"tools/call": call}) as server, server.connect() as client:
        outcomes: list[Any] = []
        jobs = [lambda n=n: outcomes.append(says(client, f"text {n}")) for n in range(THREADS)]

        def lose_it() -> None:
            until(lambda: len(server.runs()) == THREADS)
            if kind == "http":
                for post in server.line._posts.values():
                    post._peer.sock.shutdown(2)
                server.line.end()  # the stream beside them
            lose(server.line, client)

        with Took() as took:
            together([*jobs, lose_it])
        assert took.seconds < AT_ONCE + 1
        assert {outcome.reason for outcome in outcomes} == {"exited" if kind == "stdio" else "closed"}
        assert len(server.runs()) == THREADS
        if kind == "stdio":
            return
        assert_all_say(client, [f"next {n}" for n in range(THREADS)])
        assert len(server.received("initialize")) == 2
        run_once(server.runs())


def test_an_answer_that_has_begun_is_read_to_its_end_though_the_session_is_gone() -> None:
    begun, go_on = Event(), Event()

    def call(line: Line, message: Message) -> None:
        if message["params"]["arguments"]["text"] != "long":
            return line.answer(message)
        token = message["params"]["_meta"]["progressToken"]
        progress = {"progressToken": token, "progress": 1}
        line.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}, within=message)
        begun.set()
        assert go_on.wait(10)
        line.ask("ping", "late", within=message)
        return line.answer(message)

    with older("http", {"tools/call": call}) as server, server.connect() as client:
        before = server.line

        def other() -> None:
            assert begun.wait(10)
            before.gone.set()
            assert_says(client, "other")
            assert len(server.lines) == 2
            go_on.set()

        together([lambda: assert_says(client, "long", progress=lambda _: None), other])
        assert len(server.received("initialize")) == 2
        assert before.answers() == []
        assert_says(client, "after")
        assert sorted(server.runs()) == ["after", "long", "other"]


# -- again at once


def test_a_server_that_knows_no_session_is_told_of_when_connecting() -> None:
    def initialize(line: Line, message: Message) -> None:
        line.gone.set()
        initialized(line, message)

    with older("http", {"initialize": initialize}) as server:
        with Took() as took, pytest.raises(McpError) as raised:
            server.connect(timeout=5.0)
        assert took.seconds < AT_ONCE
        assert_error(raised.value.copy(), "session_lost", http_status=404)
        assert len(server.received("initialize")) == 1


def test_a_server_that_forgets_at_once_costs_each_call_one_handshake_at_most() -> None:
    with older("http", {"notifications/initialized": lambda line, _: line.gone.set()}) as server:
        client = server.connect(timeout=5.0)
        begun = len(server.received("initialize"))
        with Took() as took:
            outcome = says(client)
        error = assert_error(outcome, "session_lost", http_status=404)
        assert "secret-session" not in f"{error} {error.data}"
        assert took.seconds < AT_ONCE
        assert len(server.received("initialize")) == begun + 1
        outcomes: list[Any] = []
        with Took() as took:
            together([lambda: outcomes.append(says(client)) for _ in range(THREADS)])
        assert took.seconds < AT_ONCE + 2
        assert {outcome.reason for outcome in outcomes} == {"session_lost"}
        assert len(server.received("initialize")) <= begun + 1 + THREADS
        server.on.clear()
        assert_says(client)


def test_a_connection_that_is_lost_during_the_handshake_is_made_by_the_next_call(kind: str) -> None:
    failing = iter([False, True, True])

    def initialize(line: Line, message: Message) -> None:
        if not next(failing, False):
            initialized(line, message)
        elif line.server.kind == "http":
            line._posts[message["id"]]._peer.sock.shutdown(2)
        else:
            line.end()

    with older(kind, {"initialize": initialize}) as server, server.connect() as client:
        lose(server.line, client)
        for _ in range(2):
            with Took() as took:
                outcome = says(client)
            assert outcome.reason == "closed", outcome
            assert took.seconds < AT_ONCE
        assert_says(client)
        assert len(server.received("initialize")) == 4
        assert server.runs() == ["hello"]


def test_a_server_that_is_silent_at_the_second_handshake_costs_the_limit_of_the_call(kind: str) -> None:
    quiet = iter([False, True])

    def initialize(line: Line, message: Message) -> None:
        if not next(quiet, False):
            initialized(line, message)

    with older(kind, {"initialize": initialize}) as server, server.connect() as client:
        lose(server.line, client)
        with Took() as took:
            outcome = says(client, timeout=0.5)
        assert took.on_time(0.5)
        assert outcome.reason == "timeout"
        assert_says(client)
        assert server.runs() == ["hello"]


# -- another than before


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26", "2024-11-05"])
def test_the_server_speaks_another_version_when_it_is_found_again(kind: str, version: str) -> None:
    with older(kind) as server, server.connect(protocol=[VERSION, version]) as client:
        assert_says(client)
        lose(server.line, client)
        server.version = version
        assert_says(client)
        assert client.protocol_info["version"] == version
        headers = {
            request.header("mcp-protocol-version")
            for request in server.requests
            if request.body and b"tools/call" in request.body
        }
        if kind == "http":  # of the first call, of the one that found out, and of the next
            assert headers == {VERSION, version if version >= "2025-06-18" else None}


def test_a_pinned_version_holds_when_the_server_is_found_again(kind: str) -> None:
    with older(kind) as server, server.connect() as client:
        lose(server.line, client)
        server.version = "2025-06-18"
        with Took() as took:
            outcome = says(client)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "incompatible_versions"
        assert took.seconds < AT_ONCE
        assert server.runs() == []
        server.version = VERSION
        assert_says(client)


def test_a_session_id_that_is_none_when_the_server_is_found_again() -> None:
    bad = iter(["with space"])

    def initialize(line: Line, message: Message) -> None:
        if line.number > 1:
            for each in bad:
                line._posts[message["id"]].headers[:] = [f"Mcp-Session-Id: {each}"]
        initialized(line, message)

    with older("http", {"initialize": initialize}) as server, server.connect() as client:
        server.line.gone.set()
        outcome = says(client)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "malformed"
        assert "with space" not in str(outcome)
        assert_says(client)


def test_the_session_of_a_redirected_or_echoing_server_is_masked_in_every_error() -> None:
    secret = "secret-session-1"

    def call(line: Line, message: Message) -> None:
        peer = line._posts.pop(message["id"])._peer
        text = f"no {secret} here, nor {secret.upper()}".encode()
        peer.respond("500 Internal Server Error", text, f"X-Echo: {secret}", kind="text/plain")
        peer.sock.shutdown(2)

    with older("http", {"tools/call": call}) as server, server.connect() as client:
        outcome = assert_error(says(client), "http_status", http_status=500)
        assert secret not in f"{outcome} {outcome.data} {outcome!r}".lower()
        assert "***" in outcome.data["excerpt"]
        assert secret not in f"{client!r} {client._session.connection.link!r} {client.protocol_info}"


def test_notifications_and_lists_are_sent_on_the_new_session_too() -> None:
    with older("http") as server, server.connect() as client:
        server.line.gone.set()
        assert isinstance(client.list_tools(), Ok)
        server.line.gone.set()
        assert isinstance(client.notify("notifications/roots/list_changed"), Ok)
        assert_says(client)
        counts = [len(line.received) for line in server.lines]
        assert [sum(method != "answer" for method in line.methods()) for line in server.lines] == counts
        assert len(server.received("notifications/roots/list_changed")) == 1
        assert len(server.lines) == 3


def test_pages_of_one_list_survive_a_lost_session() -> None:
    numbers = itertools.count()

    def page(line: Line, message: Message) -> None:
        number = next(numbers)
        more = {"nextCursor": str(number)} if number < 3 else {}
        line.answer(message, tools=[{"name": f"t{number}", "inputSchema": {"type": "object"}}], **more)
        if number == 1:
            line.gone.set()

    with older("http", {"tools/list": page}) as server, server.connect() as client:
        assert [tool["name"] for tool in client.list_tools().unwrap()] == ["t0", "t1", "t2", "t3"]
        assert len(server.lines) == 2


def test_what_was_set_on_a_lost_session_is_told_to_be_gone(caplog: pytest.LogCaptureFixture) -> None:
    with demo_server().serve_http() as serving, Client.connect(serving.url, protocol="2025-11-25") as client:
        assert client.set_log_level("info").ok
        assert client.subscribe_resource("demo://notes/1").ok
        serving.expire_sessions()
        with caplog.at_level(logging.WARNING, "snodo_client.session"):
            assert client.ping().ok
        (record,) = [record for record in caplog.records if "is gone" in record.getMessage()]
        assert "logging/setLevel, resources/subscribe" in record.getMessage()
        caplog.clear()
        serving.expire_sessions()
        assert client.ping().ok
        assert [record for record in caplog.records if "is gone" in record.getMessage()] == []
