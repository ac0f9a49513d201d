"""Streamable HTTP before revision 2026-07-28: streams that are resumed, the stream of a session, and its end."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError, Ok, local_error
from snodo_client.protocol import jsonrpc
from snodo_client.transports import http_legacy, http_stream
from snodo_client.transports.http import HttpTransport
from support.http_calls import Took, text_of
from support.legacy_http import SESSION_ID, Listening, Reply, came, connect, legacy, make_call, refuse
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event, result
from support.waiting import until

STREAM_THREADS = ("snodo-http-post", "snodo-http-stream")


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name in STREAM_THREADS]


def primes(*blocks: bytes, broken: bool = False) -> Reply:
    """A stream of these blocks that ends without the answer."""

    def reply(peer: Peer, _: Request) -> None:
        peer.start_sse()
        for block in blocks:
            peer.chunk(block)
        if not broken:
            peer.end()
        else:
            peer.sock.close()

    return reply


class Resumed:
    """The script of the GETs that ask for the rest of a stream, one step after the other; others get 405."""

    def __init__(self, *steps: Any) -> None:
        self.asked: list[tuple[str, float]] = []  # the id, and when
        self._steps = list(steps)

    def __call__(self, peer: Peer, request: Request) -> None:
        last_id = request.header("last-event-id")
        if last_id is None:
            return peer.respond("405 Method Not Allowed")
        self.asked.append((last_id, time.monotonic()))
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        return step(peer, request)  # type: ignore[no-any-return]


def answers(wire_id: int = 2, text: str = "rest") -> Reply:
    def reply(peer: Peer, request: Request) -> None:
        value = {"content": [{"type": "text", "text": text}]}
        peer.start_sse()
        peer.chunk(event({"jsonrpc": "2.0", "id": wire_id, "result": value}))
        peer.end()

    return reply


# -- the rest of an answer


@pytest.mark.parametrize("broken", [False, True])
def test_the_rest_of_a_stream_is_asked_for_after_the_time_the_server_named(broken: bool) -> None:
    get, ended = Resumed(answers()), []

    def reply(peer: Peer, request: Request) -> None:
        note = jsonrpc.notification("notifications/x", {"a": 1})
        primes(b"id: one\ndata:\n\n", b"retry: 300\n\n", b"id: two\n" + event(note), b"id: three\n\n")(peer, request)
        ended.append(time.monotonic())
        if broken:
            peer.sock.close()

    with ScriptedServer(legacy(reply, get=get)) as server, connect(server.url) as client:
        assert text_of(client.call_tool("test")) == "rest"
        [(last_id, when)] = get.asked
        assert last_id == "three"
        assert 0.29 <= when - ended[0] < 2.3
        asked = came(server, "GET")[-1]
        assert asked.header("mcp-session-id") == SESSION_ID
        assert asked.header("mcp-protocol-version") == "2025-11-25"
        assert len(came(server, "tools/call")) == 1
    assert own_threads() == []


def test_a_stream_cut_in_the_middle_of_an_event_goes_on_after_a_second() -> None:
    get, ended = Resumed(answers()), []

    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(b"id: one\ndata:\n\n")
        peer.chunk(b'id: two\ndata: {"jsonrpc"')
        ended.append(time.monotonic())
        peer.sock.shutdown(2)

    with ScriptedServer(legacy(reply, get=get)) as server, connect(server.url) as client:
        assert text_of(client.call_tool("test")) == "rest"
        [(last_id, when)] = get.asked
        assert last_id == "one"
        assert 0.99 <= when - ended[0] < 3.0


def test_a_stream_may_break_off_again_and_again() -> None:
    get = Resumed(primes(b"id: two\ndata:\n\n"), primes(b"id: three\nretry: 150\ndata:\n\n", broken=True), answers())
    with (
        ScriptedServer(legacy(primes(b"id: one\nretry: 100\ndata:\n\n"), get=get)) as server,
        connect(server.url) as client,
    ):
        assert text_of(client.call_tool("test")) == "rest"
        assert [last_id for last_id, _ in get.asked] == ["one", "two", "three"]


@pytest.mark.parametrize("status", ["500 Oops", "503 Busy", "429 Slow Down", None])
def test_what_may_pass_is_tried_again(status: str | None) -> None:
    vain: Reply = refuse(status) if status else lambda peer, _: peer.sock.close()
    get = Resumed(vain, answers())
    with (
        ScriptedServer(legacy(primes(b"id: one\nretry: 100\ndata:\n\n"), get=get)) as server,
        connect(server.url) as client,
    ):
        assert text_of(client.call_tool("test")) == "rest"
        assert [last_id for last_id, _ in get.asked] == ["one", "one"]


@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed", "400 Bad Request", "200 OK"])
def test_a_server_that_does_not_go_on_is_told_of(status: str) -> None:
    get = Resumed(refuse(status))
    with (
        ScriptedServer(legacy(primes(b"id: one\nretry: 100\ndata:\n\n"), get=get)) as server,
        connect(server.url) as client,
    ):
        outcome = client.call_tool("test")
        assert isinstance(outcome, McpError)
        assert outcome.reason == "closed"
        assert outcome.data == {"http_status": int(status[:3])}
        assert "broke off" in outcome.message
        assert len(get.asked) == 1
        assert (len(came(server, "initialize")), len(came(server, "tools/call"))) == (1, 1)


def test_refused_credentials_are_told_as_such() -> None:
    get = Resumed(refuse("401 Unauthorized"))
    with (
        ScriptedServer(legacy(primes(b"id: one\nretry: 100\ndata:\n\n"), get=get)) as server,
        connect(server.url) as client,
    ):
        outcome = client.call_tool("test")
        assert isinstance(outcome, McpError)
        assert outcome.reason == "unauthorized"


def test_tries_that_bring_nothing_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_legacy, "MAX_VAIN", 3)
    monkeypatch.setattr(http_stream, "FIRST_PAUSE", 0.05)
    get = Resumed(primes(b"retry: 20\n\n"))
    with (
        ScriptedServer(legacy(primes(b"id: one\ndata:\n\n"), get=get)) as server,
        connect(server.url) as client,
    ):
        outcome = client.call_tool("test")
        assert isinstance(outcome, McpError)
        assert outcome.reason == "closed"
        assert len(get.asked) == 3


@pytest.mark.parametrize(
    "blocks", [(), (b"retry: 10\n\n",), (b"id: one\ndata:\n\n", b"id\n\n"), (b"id: " + b"x" * 4097 + b"\n\n",)]
)
@pytest.mark.parametrize("broken", [False, True])
def test_without_an_event_id_the_call_fails_at_once(blocks: tuple[bytes, ...], broken: bool) -> None:
    get = Resumed(answers())
    with (
        ScriptedServer(legacy(primes(*blocks, broken=broken), get=get)) as server,
        connect(server.url) as client,
        Took() as took,
    ):
        outcome = client.call_tool("test", timeout=30)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "closed"
        assert broken or "no event of it had an id" in outcome.message
        assert get.asked == []
    assert took.seconds < 5


def test_an_event_id_goes_back_as_it_came() -> None:
    get = Resumed(answers())
    with (
        ScriptedServer(legacy(primes("id: é/☃ 1\nretry: 10\ndata:\n\n".encode()), get=get)) as server,
        connect(server.url) as client,
    ):
        assert text_of(client.call_tool("test")) == "rest"
        assert get.asked[0][0].encode("latin-1").decode() == "é/☃ 1"


def test_the_wait_ends_with_the_deadline_of_the_call() -> None:
    get = Resumed(answers())
    with (
        ScriptedServer(legacy(primes(b"id: one\nretry: 999999999999\ndata:\n\n"), get=get)) as server,
        connect(server.url) as client,
    ):
        with Took() as took:
            outcome = client.call_tool("test", timeout=0.4)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "timeout"
        assert took.on_time(0.4)
        assert get.asked == []
        until(lambda: own_threads() == [], 2.0)


def test_the_deadline_counts_while_the_rest_is_read() -> None:
    def drips(peer: Peer, _: Request) -> None:
        peer.start_sse()
        peer.drip(b":" * 100, 0.05)

    with (
        ScriptedServer(legacy(primes(b"id: one\nretry: 10\ndata:\n\n"), get=Resumed(drips))) as server,
        connect(server.url) as client,
    ):
        with Took() as took:
            outcome = client.call_tool("test", timeout=0.6)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "timeout"
        assert took.on_time(0.6)
        until(lambda: own_threads() == [], 2.0)


@pytest.mark.parametrize("stage", ["pause", "stream"])
def test_cancelling_ends_the_wait_and_its_thread(stage: str) -> None:
    reached = threading.Event()

    def hangs(peer: Peer, request: Request) -> None:
        if request.line.startswith("POST"):
            retry = b"60000" if stage == "pause" else b"10"
            primes(b"id: one\nretry: " + retry + b"\ndata:\n\n")(peer, request)
            if stage == "pause":
                reached.set()
            return
        peer.start_sse()
        reached.set()
        peer.silence()

    with ScriptedServer(each_request(hangs)) as server:
        transport = HttpTransport(server.url)
        call = make_call(transport.open(Listening(), Deadline(10)), timeout=30)

        def cancel() -> None:
            assert reached.wait(5)
            call.finish(local_error("cancelled"))

        threading.Thread(target=cancel).start()
        with Took() as took, pytest.raises(McpError) as caught:
            list(transport.exchange(call))
        assert caught.value.reason == "cancelled"
        assert took.seconds < 5
        until(lambda: own_threads() == [], 2.0)
        transport.close(Deadline(5))


def test_closing_the_transport_ends_a_wait_for_the_rest() -> None:
    reached = threading.Event()

    def reply(peer: Peer, request: Request) -> None:
        primes(b"id: one\nretry: 60000\ndata:\n\n")(peer, request)
        reached.set()

    with ScriptedServer(each_request(reply)) as server:
        transport = HttpTransport(server.url)
        call = make_call(transport.open(Listening(), Deadline(10)), timeout=30)

        def close() -> None:
            assert reached.wait(5)
            transport.close(Deadline(5))

        threading.Thread(target=close).start()
        with Took() as took, pytest.raises(McpError) as caught:
            list(transport.exchange(call))
        assert caught.value.reason == "closed"
        assert took.seconds < 5
        until(lambda: own_threads() == [], 2.0)


def test_the_rest_may_also_come_through_a_prepared_session() -> None:
    get = Resumed(answers())
    with (
        requests.Session() as session,
        ScriptedServer(legacy(primes(b"id: one\nretry: 100\ndata:\n\n"), get=get)) as server,
        connect(server.url, session=session) as client,
    ):
        assert text_of(client.call_tool("test")) == "rest"
        assert [last_id for last_id, _ in get.asked] == ["one"]


# -- the stream of the session


def test_the_stream_is_there_before_the_first_call() -> None:
    seen: list[Any] = []
    streams: list[Peer] = []

    def get(peer: Peer, _: Request) -> None:
        peer.pause(0.2)
        peer.start_sse()
        streams.append(peer)
        peer.silence()

    def reply(peer: Peer, request: Request) -> None:
        streams[0].chunk(event(jsonrpc.notification("notifications/x", {"a": 1})))
        peer.json(result(request))

    with (
        ScriptedServer(legacy(reply, get=get)) as server,
        connect(server.url, on_notification=lambda *got: seen.append(got)) as client,
    ):
        assert isinstance(client.call_tool("test"), Ok)
        until(lambda: seen == [("notifications/x", {"a": 1})])


REFUSALS: dict[str, Reply] = {
    "405": refuse("405 Method Not Allowed"),
    "404": refuse("404 Not Found"),
    "400": refuse("400 Bad Request"),
    "401": refuse("401 Unauthorized"),
    "406": refuse("406 Not Acceptable"),
    "500": refuse("500 Oops"),
    "202": refuse("202 Accepted"),
    "json": lambda peer, _: peer.json({"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no"}}),
    "text": lambda peer, _: peer.respond("200 OK", b"hello", kind="text/plain"),
    "redirect": lambda peer, _: peer.respond("302 Found", b"", "Location: http://other.example/"),
    "garbage": lambda peer, _: peer.send(b"what?\r\n\r\n"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_server_without_that_stream_is_asked_once(refusal: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "snodo_client.http")
    with ScriptedServer(legacy(get=REFUSALS[refusal])) as server, connect(server.url) as client:
        for _ in range(3):
            assert isinstance(client.call_tool("test"), Ok)
        until(lambda: own_threads() == [])
        assert len(came(server, "GET")) == 1
    assert [record.levelname for record in caplog.records if "no request" in record.getMessage()] == ["DEBUG"]


def test_a_head_that_does_not_come_is_not_waited_for_long() -> None:
    go, seen = threading.Event(), []

    def get(peer: Peer, _: Request) -> None:
        assert go.wait(5)
        peer.start_sse()
        peer.chunk(event(jsonrpc.notification("notifications/x")))
        peer.silence()

    with ScriptedServer(legacy(get=get)) as server:
        with Took() as took:
            client = connect(server.url, timeout=2, on_notification=lambda *got: seen.append(got))
        assert 0.15 < took.seconds < 1.5
        assert isinstance(client.call_tool("test"), Ok)
        go.set()
        until(lambda: seen)
        client.close()


@pytest.mark.parametrize("retry", [b"", b"retry: 0\n\n", b"retry: abc\n\n"])
def test_a_stream_that_ends_at_once_is_no_reason_to_hurry(retry: bytes) -> None:
    with ScriptedServer(legacy(get=primes(retry or b":\n\n"))) as server, connect(server.url):
        threading.Event().wait(2.5)  # nothing else can show that nothing happens
        assert 2 <= len(came(server, "GET")) <= 4


def test_a_stream_goes_on_where_it_ended() -> None:
    seen: list[Any] = []

    def get(peer: Peer, request: Request) -> None:
        peer.start_sse()
        if request.header("last-event-id") is None:
            peer.chunk(b"retry: 100\nid: e-1\n" + event(jsonrpc.notification("notifications/one")))
            return peer.end()
        peer.chunk(event(jsonrpc.notification("notifications/two")))
        return peer.silence()

    with (
        ScriptedServer(legacy(get=get)) as server,
        connect(server.url, on_notification=lambda method, _: seen.append(method)),
    ):
        until(lambda: seen == ["notifications/one", "notifications/two"])
        assert [request.header("last-event-id") for request in came(server, "GET")] == [None, "e-1"]
        assert came(server, "GET")[1].header("mcp-session-id") == SESSION_ID


@pytest.mark.parametrize(("status", "times"), [("404 Not Found", 2), ("503 Busy", 3)])
def test_a_stream_that_is_refused_later(status: str, times: int) -> None:
    """What may pass is asked again, the rest is not."""
    asked = iter(range(100))

    def get(peer: Peer, request: Request) -> None:
        number = next(asked)
        if number == 1:
            return peer.respond(status)
        peer.start_sse()
        if number == 0:
            peer.chunk(b"retry: 100\n\n")
            return peer.end()
        return peer.silence()

    with ScriptedServer(legacy(get=get)) as server, connect(server.url) as client:
        if times == 2:
            until(lambda: own_threads() == [])
        until(lambda: len(came(server, "GET")) == times)
        assert isinstance(client.call_tool("test"), Ok)


def test_an_event_over_the_bound_ends_the_stream() -> None:
    def get(peer: Peer, _: Request) -> None:
        peer.start_sse()
        while True:
            peer.chunk(b"data: " + b"x" * 5000)

    with ScriptedServer(legacy(get=get)) as server, connect(server.url, max_response_bytes=10_000) as client:
        until(lambda: own_threads() == [])
        assert isinstance(client.call_tool("test"), Ok)
        assert len(came(server, "GET")) == 1


def test_a_garbled_stream_disturbs_nothing() -> None:
    seen: list[Any] = []

    def get(peer: Peer, _: Request) -> None:
        peer.start_sse()
        for block in (
            b"data: nothing\n\n",
            b"event: ping\ndata: {}\n\n",
            b"data: []\n\n",
            b"data: {}\n\n",
            b"data: 1\n\n",
        ):
            peer.chunk(block)
        peer.chunk(event({"jsonrpc": "2.0", "id": 999, "result": {}}))
        peer.chunk(event(jsonrpc.notification("notifications/x")))
        peer.silence()

    with (
        ScriptedServer(legacy(get=get)) as server,
        connect(server.url, on_notification=lambda method, _: seen.append(method)) as client,
    ):
        until(lambda: seen == ["notifications/x"])
        assert isinstance(client.call_tool("test"), Ok)


def silent(peer: Peer, _: Request) -> None:
    peer.start_sse()
    peer.silence()


def test_a_silent_stream_keeps_nothing_awake() -> None:
    with ScriptedServer(legacy(get=silent)) as server, connect(server.url):
        until(lambda: "snodo-http-stream" in own_threads())
        until(lambda: "snodo-http-deadlines" not in [thread.name for thread in threading.enumerate()], 5)


# -- the end


@pytest.mark.parametrize(
    "delete",
    [
        *map(refuse, ("200 OK", "204 No Content", "404 Not Found", "405 Method Not Allowed", "500 Oops")),
        lambda peer, _: peer.sock.close(),
        lambda peer, _: peer.send(b"what?\r\n\r\n"),
    ],
)
def test_the_server_is_told_once_and_may_say_anything(delete: Reply) -> None:
    with ScriptedServer(legacy(get=silent, delete=delete)) as server:
        client = connect(server.url)
        with Took() as took:
            client.close()
            client.close()
        assert took.seconds < 3
        assert [request.header("mcp-session-id") for request in came(server, "DELETE")] == [SESSION_ID]
        until(lambda: own_threads() == [], 2.0)


def test_a_server_that_does_not_answer_is_left_in_time() -> None:
    with ScriptedServer(legacy(delete=lambda peer, _: peer.silence())) as server:
        transport = HttpTransport(server.url)
        link = transport.open(Listening(), Deadline(10))
        list(transport.exchange(make_call(link, "initialize")))
        with Took() as took:
            transport.close(Deadline(0.3))
        assert took.on_time(0.3)
        assert len(came(server, "DELETE")) == 1


def test_no_stream_is_opened_after_the_end() -> None:
    with ScriptedServer(legacy(get=silent)) as server:
        transport = HttpTransport(server.url)
        link = transport.open(Listening(), Deadline(10))
        transport.close(Deadline(5))
        transport.attend(link, Deadline(5))
        until(lambda: own_threads() == [])
        link = transport.open(Listening(), Deadline(10))
        list(transport.exchange(make_call(link, "initialize")))
        transport.close(Deadline(5))
        transport.attend(link, Deadline(5))
        until(lambda: own_threads() == [])
        assert came(server, "GET") == []


def test_a_client_that_is_dropped_ends_its_session() -> None:
    with ScriptedServer(legacy(get=silent)) as server:
        client = connect(server.url)
        client.call_tool("test")
        del client
        gc.collect()
        until(lambda: came(server, "DELETE"))
        until(lambda: own_threads() == [])


def test_a_program_that_ends_without_closing_is_not_held_up() -> None:
    program = (
        "import sys; from snodo_client import Client\n"
        "client = Client.connect(sys.argv[1], protocol='2025-11-25')\n"
        "print(client.call_tool('test').ok)\n"
    )
    with ScriptedServer(legacy(get=silent)) as server:
        with Took() as took:
            ran = subprocess.run(
                [sys.executable, "-c", program, server.url],
                cwd=Path(__file__).parents[2],
                capture_output=True,
                text=True,
                timeout=60,
            )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True\n", "")
        assert took.seconds < 10
        assert len(came(server, "DELETE")) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_begins_a_session_of_its_own() -> None:
    with (
        ScriptedServer(legacy(get=silent, session_id=iter(["parent", "child"]))) as server,
        connect(server.url) as client,
    ):
        assert isinstance(client.call_tool("test"), Ok)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if client.call_tool("test").ok else 2
                client.close()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [request.header("mcp-session-id") for request in came(server, "DELETE")] == ["child"]
        assert isinstance(client.call_tool("test"), Ok)
        sessions = [request.header("mcp-session-id") for request in came(server, "tools/call")]
        assert sessions == ["parent", "child", "parent"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_ends_like_any_program() -> None:
    """Nobody may wait there for the lock of a stream whose thread is the parent's."""
    program = (
        "import gc, os, sys, warnings; from snodo_client import Client\n"
        "warnings.simplefilter('ignore')\n"
        "client = Client.connect(sys.argv[1], protocol='2025-11-25')\n"
        "client.call_tool('test')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    gc.collect()\n"
        "    sys.exit(0 if client.call_tool('test').ok else 2)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), client.call_tool('test').ok)\n"
    )
    with ScriptedServer(legacy(get=silent, session_id=iter(["parent", "child"]))) as server:
        ran = subprocess.run(
            [sys.executable, "-c", program, server.url],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0 True\n", "")
        assert came(server, "DELETE")[-1].header("mcp-session-id") == "parent"
