"""Servers of the older revisions that ask their client what, when and as often as they should not."""

from __future__ import annotations

import logging
from threading import Event
from typing import Any

import pytest

from support.http_calls import MemoryPeak, Took
from support.older import KINDS, REOPENING, Line, Message, assert_all_say, assert_says, initialized, older, says
from support.waiting import until

SHARED = ("stdio", "sse", "websocket")  # connections on which a server may speak first
FORM = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
NO_ROOTS: dict[str, Any] = {"roots": lambda _: {"roots": []}}
SECRET = "correct-horse-battery"
BUSY = "this client is busy with other requests: ask again later"
FAILED = {"code": -32603, "message": "the handler of this client failed"}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def accepted(request: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": "Ada"}}


def asking(*requests: tuple[str, Any, Message | None]) -> dict[str, Any]:
    """A server that asks all of it in the stream of each call before it answers."""

    def call(line: Line, message: Message) -> None:
        for method, id_, params in requests:
            line.ask(method, id_, params, within=message)
        line.answer(message)

    return {"tools/call": call}


# -- when


@pytest.mark.parametrize("kind", SHARED)
def test_a_server_may_ask_before_anything_else(kind: str) -> None:
    def first(line: Line) -> None:
        line.ask("roots/list", 0)
        line.ask("ping", "early")
        line.ask("sampling/createMessage", 1, {"messages": [], "maxTokens": 1})

    handlers = {"roots": lambda _: {"roots": [{"uri": "file:///home"}]}}
    with older(kind, opened=first) as server, server.connect(handlers=handlers) as client:
        assert server.line.answered(0)["result"] == {"roots": [{"uri": "file:///home"}]}
        assert server.line.answered("early")["result"] == {}
        assert server.line.answered(1)["error"]["code"] == -32601
        assert_says(client)


def test_a_server_may_wait_for_an_answer_before_it_answers_initialize(kind: str) -> None:
    asked = Event()

    def initialize(line: Line, message: Message) -> None:
        line.ask("roots/list", "first", within=message)
        asked.message = message  # type: ignore[attr-defined]

    def answer(line: Line, message: Message) -> None:
        initialized(line, asked.message)  # type: ignore[attr-defined]

    on = {"initialize": initialize, "answer": answer}
    with older(kind, on) as server, server.connect(handlers=NO_ROOTS) as client:
        assert server.line.answered("first")["result"] == {"roots": []}
        assert_says(client)


# -- handlers that misbehave


def test_a_handler_that_never_returns_holds_up_nothing(kind: str) -> None:
    running, never = Event(), Event()

    def form(_: Any) -> dict[str, Any]:
        running.set()
        never.wait(60)
        return {"action": "cancel"}

    with older(kind) as server:
        client = (
            server.connect(handlers={"form": form}, shutdown_timeout=0.5)
            if kind == "stdio"
            else server.connect(handlers={"form": form})
        )
        server.line.ask("elicitation/create", 7, FORM)
        assert running.wait(10)
        for number in range(20):
            assert_says(client, f"text {number}")
        server.line.ask("ping", 8)
        assert server.line.answered(8)["result"] == {}
        with Took() as took:
            client.close()
        assert took.seconds < 2.0
        assert server.line.answers(7) == []
        assert says(client).reason == "closed"
        never.set()


def test_what_a_handler_raises_stays_here(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def form(_: Any) -> dict[str, Any]:
        raise RuntimeError(f"the password is {SECRET}")

    with older(kind) as server, server.connect(handlers={"form": form}) as client:
        with caplog.at_level(logging.INFO, "snodo_client"):
            server.line.ask("elicitation/create", 7, FORM)
            assert server.line.answered(7)["error"] == FAILED
        assert_says(client)
        assert SECRET not in str(server.line.received)
        (record,) = [each for each in caplog.records if each.exc_info]
        assert record.name == "snodo_client.handlers"
        assert SECRET in str(record.exc_info[1])  # type: ignore[index]


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError])
def test_whatever_a_handler_raises_the_next_is_served(raised: type[BaseException]) -> None:
    def form(_: Any) -> dict[str, Any]:
        raise raised

    with older("stdio") as server, server.connect(handlers={"form": form}) as client:
        for number in range(40):  # more than there are threads
            server.line.ask("elicitation/create", number, FORM)
        for number in range(40):
            assert server.line.answered(number)["error"] == FAILED
        assert_says(client)


def test_handlers_may_call_the_same_client(kind: str) -> None:
    made: dict[str, Any] = {}

    def form(request: Any) -> dict[str, Any]:
        assert_says(made["client"], request.message)
        return accepted(request)

    with older(kind) as server, server.connect(handlers={"form": form}) as client:
        made["client"] = client
        for number in range(16):
            server.line.ask("elicitation/create", number, {**FORM, "message": f"from {number}"})
        assert_all_say(client, [f"own {n}" for n in range(4)])
        for number in range(16):
            assert server.line.answered(number)["result"] == accepted(None)
        assert sorted(server.runs()) == sorted([*(f"from {n}" for n in range(16)), *(f"own {n}" for n in range(4))])


def test_a_handler_may_close_its_client(kind: str) -> None:
    made: dict[str, Any] = {}
    closed = Event()

    def form(request: Any) -> dict[str, Any]:
        made["client"].close()
        closed.set()
        return accepted(request)

    def call(line: Line, message: Message) -> None:
        line.ask("elicitation/create", 7, FORM, within=message)

    with older(kind, {"tools/call": call}) as server, server.connect(handlers={"form": form}) as client:
        made["client"] = client
        with Took() as took:
            outcome = says(client)
        assert (outcome.reason, took.seconds < 3.0) == ("closed", True)
        assert closed.wait(5)
        assert server.line.answers() == []


# -- many


def test_more_requests_than_threads_wait_and_more_than_that_are_refused(kind: str) -> None:
    release = Event()

    def form(request: Any) -> dict[str, Any]:
        assert release.wait(30)
        return accepted(request)

    with older(kind) as server, server.connect(handlers={"form": form}) as client:
        line = server.line
        for number in range(200):
            line.ask("elicitation/create", number, FORM)
        until(lambda: len(line.answers()) == 84)  # 16 run and 100 wait
        assert {answer["error"]["message"] for answer in line.answers()} == {BUSY}
        line.ask("ping", "in between")
        assert line.answered("in between")["result"] == {}
        assert_says(client)
        release.set()
        until(lambda: len(line.answers()) == 201)
        assert sorted(answer["id"] for answer in line.answers() if "error" in answer) == list(range(116, 200))
        assert sum("result" in answer for answer in line.answers()) == 117


def test_a_flood_of_requests_and_pings_costs_little_and_the_client_stays_of_use(kind: str) -> None:
    with older(kind) as server, server.connect(handlers={"form": accepted}) as client:
        line = server.line
        with MemoryPeak() as peak:
            for number in range(0, 10_000, 2):
                line.ask("ping", number)
                line.ask("elicitation/create", number + 1, FORM)
            for number in range(20):
                assert_says(client, str(number))
            line.ask("ping", "last")
            assert line.answered("last")["result"] == {}
            assert_says(client)
        assert peak.mib < 64
        ids = [answer["id"] for answer in line.answers()]
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize("kind", ["stdio", "websocket"])
@pytest.mark.parametrize("what", ["ids", "methods"])
def test_what_waits_for_a_server_that_does_not_read_is_bounded(kind: str, what: str) -> None:
    """Answers pile up here, each with the id that the server chose."""
    size, many = 1_000_000, 150
    reading = Event()
    with older(kind, {"notifications/stop": lambda line, _: reading.wait(60)}) as server:
        client = server.connect(handlers={"form": accepted})
        client.notify("notifications/stop")
        line = server.line
        until(lambda: "notifications/stop" in line.methods())
        with MemoryPeak() as peak:
            for number in range(many):
                filler = str(number) + "x" * size
                line.ask("ping", filler) if what == "ids" else line.ask(filler, number)
        reading.set()
        assert_says(client)
        assert peak.mib < 80, peak.mib


def test_what_waits_for_handlers_is_bounded_however_it_is_made() -> None:
    """Where the bulk of a request stands must not hide it."""
    release = Event()
    heavy = {**FORM, "_meta": {"few": [0] * 2000, "many": [[{}] * 100_000]}}  # some 0.5 MB of text

    def form(request: Any) -> dict[str, Any]:
        assert release.wait(30)
        return accepted(request)

    with older("stdio") as server, server.connect(handlers={"form": form}) as client:
        line = server.line
        with MemoryPeak() as peak:
            for number in range(116):
                line.ask("elicitation/create", number, heavy)
            line.ask("ping", "last")
            line.answered("last")
        release.set()
        assert_says(client)
        assert peak.mib < 300, peak.mib


# -- ids


@pytest.mark.parametrize("id_", [0, -1, 1, 2, 3, "1", "2", "", "a b", "\u2028", 2**53, 10**300])
def test_ids_of_the_server_are_its_own(kind: str, id_: Any) -> None:
    """Also where they equal ours, which are 1 and 2 by then."""
    params = {"messages": [], "maxTokens": 1}
    on = asking(("ping", id_, None), ("roots/list", f"roots{id_}", None), ("sampling/createMessage", [id_], params))
    with older(kind, on) as server, server.connect(handlers=NO_ROOTS) as client:
        assert_says(client)
        assert server.line.answered(id_)["result"] == {}
        assert server.line.answered(f"roots{id_}")["result"] == {"roots": []}
        assert len(server.line.answers()) == 2


@pytest.mark.parametrize("id_", [None, True, False, 1.0, 1.5, [], {}, ["a"]], ids=str)
def test_ids_that_are_none_are_not_answered(kind: str, id_: Any) -> None:
    on = asking(("roots/list", id_, None), ("ping", id_, None), ("ping", "after", None))
    with older(kind, on) as server, server.connect(handlers=NO_ROOTS) as client:
        assert_says(client)
        assert server.line.answered("after")["result"] == {}
        assert_says(client)
        assert {answer["id"] for answer in server.line.answers()} == {"after"}


def test_an_id_in_flight_comes_again(kind: str) -> None:
    release, runs = Event(), []

    def form(request: Any) -> dict[str, Any]:
        runs.append(request)
        assert release.wait(30)
        return accepted(request)

    with older(kind) as server, server.connect(handlers={"form": form}) as client:
        line = server.line
        for _ in range(3):
            line.ask("elicitation/create", 5, FORM)
        line.ask("elicitation/create", "5", FORM)
        until(lambda: len(line.answers(5)) == 2)
        assert {answer["error"]["code"] for answer in line.answers(5)} == {-32600}
        release.set()
        assert line.answered("5")["result"] == accepted(None)
        until(lambda: len(line.answers(5)) == 3)
        assert len(runs) == 2
        line.ask("elicitation/create", 5, FORM)
        until(lambda: len(line.answers(5)) == 4)
        assert_says(client)


# -- taken back


def test_cancelled_before_while_and_after_a_handler_runs(kind: str) -> None:
    release, running, seen = Event(), Event(), []

    def form(request: Any) -> dict[str, Any]:
        running.set()
        assert release.wait(30)
        seen.append((request.message, request.cancelled))
        return accepted(request)

    def cancel(line: Line, id_: Any) -> None:
        line.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}})

    with older(kind) as server, server.connect(handlers={"form": form}) as client:
        line = server.line
        cancel(line, 1)  # nobody's yet, and ours by its number
        for number in range(17):
            line.ask("elicitation/create", number, {**FORM, "message": str(number)})
        assert running.wait(10)
        cancel(line, 16)  # waits
        cancel(line, 3)  # runs
        cancel(line, "4")  # is none
        line.ask("ping", "seen")
        line.answered("seen")
        release.set()
        for number in sorted(set(range(16)) - {3}):
            assert line.answered(number)["result"] == accepted(None)
        cancel(line, 5)  # is over
        assert_says(client)
        line.ask("elicitation/create", 16, {**FORM, "message": "again"})  # its id is free again
        line.answered(16)
        assert line.answers(3) == []
        assert sorted(message for message, cancelled in seen if cancelled) == ["3"]
        assert sorted(seen) == sorted([(str(n), n == 3) for n in range(16)] + [("again", False)])


@pytest.mark.parametrize("kind", REOPENING)
def test_nothing_is_answered_on_another_link_than_it_was_asked_on(kind: str) -> None:
    release, running, cancelled = Event(), [], []

    def form(request: Any) -> dict[str, Any]:
        running.append(request)
        assert release.wait(30)
        until(lambda: request.cancelled)
        cancelled.append(True)
        return accepted(request)

    with older(kind) as server, server.connect(handlers={"form": form}) as client:
        before = server.line
        before.ask("elicitation/create", 5, FORM)
        before.ask("elicitation/create", 6, FORM)
        until(lambda: len(running) == 2)
        before.gone.set() if kind == "http" else before.end()
        if kind != "http":
            assert before.gone.wait(10)
        until(lambda: getattr(says(client), "ok", False))
        assert server.line is not before
        release.set()
        until(lambda: len(cancelled) == 2)
        server.line.ask("elicitation/create", 5, FORM)  # nothing is left of the number
        assert_says(client)
        release.clear()
        assert [line.answers() for line in server.lines[:-1]] == [[]] * (len(server.lines) - 1)
        release.set()
        client.close()
