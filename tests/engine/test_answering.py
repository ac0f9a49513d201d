"""What a server asks while it serves us: answered once, by whom, how many at a time, and not when nobody waits."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from threading import Event
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client import Link, McpError, local_error
from snodo_client.engine import answering as module
from snodo_client.engine.answering import MAX_RUNNING, MAX_WAITING, Answering
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.handlers import Handlers, InputRequest
from snodo_client.engine.worker import Worker
from support.waiting import PATIENCE, together, until

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
ASK = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 10}
ANSWER = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m"}
ACCEPTED = {"action": "accept", "content": {"name": "Ann"}}
SECRET = "5ecret5ecret"


class Room:
    """An `Answering` with its control worker, a link, and what was sent."""

    def __init__(self, handlers: Handlers) -> None:
        self.sent: list[tuple[dict[str, Any], Link]] = []
        self.failing: McpError | None = None
        self.control = Worker("room-control", 1000)
        self.link = Link("the server")
        self.answering = Answering(handlers, self._send, self.control, lambda: {"name": "s", "version": "1"})

    def _send(self, message: dict[str, Any], link: Link) -> McpError | None:
        self.sent.append((message, link))
        return self.failing

    def take(self, method: str, params: Any = None, id: Any = 1, link: Link | None = None) -> None:
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        self.answering.take(message if params is None else {**message, "params": params}, link or self.link)

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [message for message, _ in self.sent]

    def answer(self) -> dict[str, Any]:
        """The one answer there is, or will be."""
        until(lambda: self.sent)
        assert len(self.sent) == 1
        return self.sent[0][0]

    def settle(self) -> None:
        """Wait until the control worker and the handlers have done all there was to do."""
        until(lambda: not self.answering._asked and self.answering._busy == 0)
        done = Event()
        self.control.submit(done.set)
        assert done.wait(PATIENCE)


class Gate:
    """A handler that waits until it may go on; the names it was asked by are kept."""

    def __init__(self, result: dict[str, Any] | None = None) -> None:
        self.go = Event()
        self.requests: list[InputRequest] = []
        self.threads: list[threading.Thread] = []
        self.result = result or ACCEPTED

    def __call__(self, request: InputRequest) -> dict[str, Any]:
        self.threads.append(threading.current_thread())
        self.requests.append(request)
        assert self.go.wait(PATIENCE)
        return self.result


Make = Callable[..., Room]


@pytest.fixture
def room() -> Iterator[Make]:
    made: list[Room] = []
    gates: list[Gate] = []

    def make(capabilities: dict[str, Any] | None = None, **handlers: Any) -> Room:
        gates.extend(handler for handler in handlers.values() if isinstance(handler, Gate))
        made.append(Room(Handlers(handlers, capabilities)))
        return made[-1]

    yield make
    for gate in gates:
        gate.go.set()
    for one in made:
        one.answering.close(Deadline(PATIENCE))
        one.control.close(Deadline(PATIENCE))
        assert one.answering._threads == 0


def result(id: Any, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def error(id: Any, code: int, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}


# -- answers


@pytest.mark.parametrize("id", [0, 1, -1, 2**70, "", "1", "ä"])
def test_a_ping_is_answered_with_its_own_id(room: Make, id: Any) -> None:
    here = room()
    here.take("ping", id=id)
    answer = here.answer()
    assert answer == result(id, {})
    assert type(answer["id"]) is type(id)
    assert here.sent[0][1] is here.link


def test_a_form_is_answered_by_its_handler_on_a_daemon_thread(room: Make) -> None:
    gate = Gate()
    gate.go.set()
    here = room(form=gate)
    here.take("elicitation/create", FORM, id=0)
    assert here.answer() == result(0, ACCEPTED)
    request = gate.requests[0]
    assert (request.message, request.server, request.server_info) == (
        "Who?",
        "the server",
        {"name": "s", "version": "1"},
    )
    assert gate.threads[0].daemon
    assert gate.threads[0] is not threading.current_thread()


def test_sampling_and_roots_are_answered(room: Make) -> None:
    here = room({"roots": {}}, sampling=lambda request: ANSWER)
    here.answering._handlers.roots.add("file:///srv")
    here.take("sampling/createMessage", {**ASK, "task": {"ttl": 1}}, id="a")
    here.take("roots/list", id="b")
    here.take("roots/list", {}, id="c")
    until(lambda: len(here.sent) == 3)
    roots = {"roots": [{"uri": "file:///srv"}]}
    assert sorted(here.answers, key=lambda answer: answer["id"]) == [
        result("a", ANSWER), result("b", roots), result("c", roots),
    ]  # fmt: skip


def test_the_task_a_request_belongs_to_is_named_in_the_answer(room: Make) -> None:
    here = room(sampling=lambda request: {**ANSWER, "_meta": {"mine": 1}})
    task = {"io.modelcontextprotocol/related-task": {"taskId": "t1"}}
    here.take("sampling/createMessage", {**ASK, "_meta": {**task, "progressToken": 1}})
    assert here.answer()["result"]["_meta"] == {"mine": 1, **task}


@pytest.mark.parametrize("meta", [None, [], "x", {"progressToken": 1}])
def test_without_a_task_the_answer_has_no_meta(room: Make, meta: Any) -> None:
    here = room(sampling=lambda request: ANSWER)
    here.take("sampling/createMessage", {**ASK, "_meta": meta})
    assert here.answer() == result(1, ANSWER)


# -- refusals


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tasks/get", {}, -32601),
        ("sampling/createMessage", ASK, -32601),  # not declared
        ("roots/list", None, -32601),
        ("elicitation/create", {**FORM, "mode": "url", "url": "https://a/"}, -32602),
        ("elicitation/create", {"message": "x"}, -32602),
        ("elicitation/create", [], -32602),
    ],
)
def test_what_may_not_be_asked_is_refused(room: Make, method: str, params: Any, code: int) -> None:
    here = room(form=Gate())
    here.take(method, params)
    assert here.answer()["error"]["code"] == code
    assert here.answering._threads == 0


def test_what_was_declared_without_a_handler_is_refused(room: Make) -> None:
    here = room({"elicitation": {}})
    here.take("elicitation/create", FORM)
    assert here.answer() == error(1, -32601, "this client has no handler for this kind of elicitation/create")


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "method": "ping"},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": 1},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "result": {}},
    ],
)
def test_what_is_no_json_rpc_request_is_refused(room: Make, message: dict[str, Any]) -> None:
    here = room()
    here.answering.take(message, here.link)
    assert here.answer() == error(1, -32600, "this is no JSON-RPC request")


@pytest.mark.parametrize("id", [None, True, 1.0, [], {}, "\ud800"])
def test_an_id_that_cannot_be_sent_back_is_ignored(room: Make, id: Any) -> None:
    here = room(form=Gate())
    here.take("ping", id=id)
    here.take("elicitation/create", FORM, id=id)
    here.settle()
    assert here.sent == []


def test_an_id_in_flight_is_refused_once_more_and_free_afterwards(room: Make) -> None:
    gate = Gate()
    here = room(form=gate)
    here.take("elicitation/create", FORM, id=1)
    here.take("elicitation/create", FORM, id=1)
    here.take("elicitation/create", FORM, id="1")  # another id
    assert here.answer() == error(1, -32600, "another request with this id is not answered yet")
    gate.go.set()
    until(lambda: len(here.sent) == 3)
    here.settle()
    assert sorted(repr(answer["id"]) for answer in here.answers[1:]) == ["'1'", "1"]
    here.take("elicitation/create", FORM, id=1)
    until(lambda: len(here.sent) == 4)
    assert here.answers[3] == result(1, ACCEPTED)


def test_two_links_number_their_requests_apart(room: Make) -> None:
    gate, other = Gate(), Link("another server")
    here = room(form=gate)
    here.take("elicitation/create", FORM)
    here.take("elicitation/create", FORM, link=other)
    gate.go.set()
    until(lambda: len(here.sent) == 2)
    assert {link for _, link in here.sent} == {here.link, other}
    assert {request.server for request in gate.requests} == {"the server", "another server"}


# -- handlers that fail


@pytest.mark.parametrize("failure", [ValueError(SECRET), SystemExit(SECRET), KeyboardInterrupt(SECRET)], ids=type)
def test_a_handler_that_raises_is_logged_here_and_not_told(
    room: Make, failure: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: InputRequest) -> dict[str, Any]:
        raise failure

    here = room(form=fail, sampling=lambda request: ANSWER)
    with caplog.at_level(logging.ERROR, "snodo_client.handlers"):
        here.take("elicitation/create", {**FORM, "message": "the params"})
        assert here.answer() == error(1, -32603, "the handler of this client failed")
    record = caplog.records[0]
    assert (record.name, record.levelname) == ("snodo_client.handlers", "ERROR")
    assert record.getMessage() == "the server asked for elicitation/create, and the handler raised"
    assert record.exc_info is not None
    assert record.exc_info[1] is failure
    assert "the params" not in caplog.text
    here.take("sampling/createMessage", ASK, id=2)
    until(lambda: len(here.sent) == 2)
    assert here.answers[1] == result(2, ANSWER)


def test_a_wrong_answer_is_logged_without_its_content(room: Make, caplog: pytest.LogCaptureFixture) -> None:
    here = room(form=lambda request: {"action": "accept", "content": {"name": [SECRET]}})
    with caplog.at_level(logging.ERROR, "snodo_client.handlers"):
        here.take("elicitation/create", FORM)
        assert here.answer() == error(1, -32603, "the handler of this client failed")
    assert "content/name breaks the rule type: string" in caplog.text
    assert SECRET not in caplog.text


def test_a_refusal_of_the_handler_is_told_as_it_is(room: Make, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(request: InputRequest) -> dict[str, Any]:
        raise McpError(-1, "User rejected sampling request", data={"why": SECRET})

    here = room(sampling=refuse)
    with caplog.at_level(logging.INFO, "snodo_client.handlers"):
        here.take("sampling/createMessage", ASK)
        assert here.answer() == error(1, -1, "User rejected sampling request")
    assert caplog.records == []


def test_a_refusal_that_no_message_can_carry_is_replaced(room: Make) -> None:
    def refuse(request: InputRequest) -> dict[str, Any]:
        raise McpError(-1, "\ud800")

    here = room(sampling=refuse)
    here.take("sampling/createMessage", ASK)
    assert here.answer() == error(1, -32603, "the handler of this client failed")


def test_a_fault_of_another_connection_is_not_told(room: Make, caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: InputRequest) -> dict[str, Any]:
        raise local_error("exited", f"the server {SECRET} exited")

    here = room(sampling=fail)
    with caplog.at_level(logging.ERROR, "snodo_client.handlers"):
        here.take("sampling/createMessage", ASK)
        assert here.answer() == error(1, -32603, "the handler of this client failed")
    assert len(caplog.records) == 1


def test_an_answer_that_cannot_be_sent_is_told_at_info(room: Make, caplog: pytest.LogCaptureFixture) -> None:
    here = room(form=lambda request: ACCEPTED)
    here.failing = local_error("closed")
    with caplog.at_level(logging.INFO, "snodo_client.handlers"):
        here.take("elicitation/create", FORM)
        until(lambda: caplog.records)
    assert "the answer to elicitation/create did not get to the server" in caplog.text
    assert "Ann" not in caplog.text


def test_a_transport_that_raises_costs_one_answer_only(room: Make, caplog: pytest.LogCaptureFixture) -> None:
    here = room(form=lambda request: ACCEPTED)
    send, here.answering._send = here.answering._send, lambda message, link: 1 / 0  # type: ignore[assignment]
    with caplog.at_level(logging.ERROR, "snodo_client.handlers"):
        here.take("elicitation/create", FORM)
        here.settle()
    assert caplog.records[0].getMessage() == "the server: sending the answer to elicitation/create failed"
    here.answering._send = send
    here.take("elicitation/create", FORM, id=2)
    assert here.answer() == result(2, ACCEPTED)


# -- how many


def test_nothing_runs_before_the_first_request(room: Make) -> None:
    before = set(threading.enumerate())
    here = room(form=Gate(), sampling=Gate(), url=Gate())
    assert here.answering._threads == 0
    assert set(threading.enumerate()) <= before


def test_handlers_run_at_the_same_time_up_to_a_limit_and_pings_are_answered_beside_them(room: Make) -> None:
    gate = Gate()
    here = room(form=gate)
    for id in range(MAX_RUNNING + MAX_WAITING):
        here.take("elicitation/create", FORM, id=id)
    until(lambda: len(gate.requests) == MAX_RUNNING)
    assert here.sent == []
    here.take("elicitation/create", FORM, id="one more")
    here.take("ping", id="p")
    until(lambda: len(here.sent) == 2)
    assert here.answers == [
        error("one more", -32603, "this client is busy with other requests: ask again later"),
        result("p", {}),
    ]
    gate.go.set()
    until(lambda: len(here.sent) == 2 + MAX_RUNNING + MAX_WAITING)
    assert {answer["id"] for answer in here.answers} == {"one more", "p", *range(MAX_RUNNING + MAX_WAITING)}
    assert all(answer == result(answer["id"], ACCEPTED) for answer in here.answers[2:])
    assert len(set(gate.threads)) == MAX_RUNNING


def test_what_waits_is_bounded_in_bytes_too(room: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_WEIGHT", 100_000)
    gate = Gate()
    here = room(form=gate)
    for id in range(MAX_RUNNING):
        here.take("elicitation/create", FORM, id=id)
    until(lambda: len(gate.requests) == MAX_RUNNING)
    large = {**FORM, "message": "x" * 90_000}
    here.take("elicitation/create", large, id="a")
    here.take("elicitation/create", large, id="b")
    assert here.answer()["id"] == "b"
    gate.go.set()
    here.settle()
    here.take("elicitation/create", {**FORM, "message": "x" * 200_000}, id="alone")
    until(lambda: here.answers[-1]["id"] == "alone")
    assert here.answers[-1] == result("alone", ACCEPTED)
    here.settle()
    assert here.answering._weight == 0


def test_idle_threads_leave_and_come_back(room: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.02)
    here = room(form=lambda request: ACCEPTED)
    for id in range(3):
        here.take("elicitation/create", FORM, id=id)
        until(lambda id=id: len(here.sent) == id + 1)
        until(lambda: here.answering._threads == 0)
    assert here.answering._busy == 0
    assert here.answering._idents == set()


def test_no_request_is_lost_between_idle_and_restart(room: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0005)
    here = room(form=lambda request: ACCEPTED)
    for id in range(300):
        here.take("elicitation/create", FORM, id=id)
        Event().wait(0.0005 if id % 3 else 0.001)
    until(lambda: len(here.sent) == 300)
    assert {answer["id"] for answer in here.answers} == set(range(300))


def test_taking_never_waits_for_a_send_or_a_handler(room: Make) -> None:
    gate, block = Gate(), Event()
    here = room(form=gate)
    here.answering._send = lambda message, link: block.wait(PATIENCE) and None  # type: ignore[assignment]
    start = monotonic()
    for id in range(500):
        here.take("elicitation/create", FORM, id=id)
        here.take("ping", id=id)
        here.take("unknown", id=id)
    assert monotonic() - start < 2
    block.set()


def test_a_thread_that_cannot_start_is_a_refusal_and_not_the_end() -> None:
    program = """
import threading
from snodo_client import Link
from snodo_client.engine.answering import Answering
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.worker import Worker
from snodo_client.engine.handlers import Handlers
sent, done = [], threading.Event()
control = Worker("c", 10)
control.submit(lambda: None)  # its thread runs
def send(message, link):
    sent.append(message)
    done.set()
answering = Answering(Handlers({"roots": lambda request: {"roots": []}}), send, control, lambda: None)
link = Link("s")
for id in 1, 2:
    threading.stack_size(0 if id == 2 else 1 << 46)  # no system has room for that: start() raises
    answering.take({"jsonrpc": "2.0", "id": id, "method": "roots/list"}, link)
    print(done.wait(20), sent[-1].get("error", {}).get("code"), sent[-1].get("result"))
    done.clear()
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.stdout.splitlines() == ["True -32603 None", "True None {'roots': []}"], run.stderr


# -- nobody waits any more


def test_a_cancelled_request_is_told_to_its_handler_and_not_answered(
    room: Make, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    here = room(form=gate)
    here.take("elicitation/create", FORM)
    until(lambda: gate.requests)
    assert not gate.requests[0].cancelled
    with caplog.at_level(logging.INFO, "snodo_client.handlers"):
        here.answering.cancel({"requestId": 1, "reason": "too\nlate" + "x" * 1000}, here.link)
    assert gate.requests[0].cancelled
    assert "the server no longer waits for elicitation/create: 'too\\nlate" in caplog.text
    assert len(caplog.records[0].getMessage()) < 300
    gate.go.set()
    here.settle()
    assert here.sent == []


def test_a_request_cancelled_before_its_turn_does_not_run(room: Make) -> None:
    gate = Gate()
    here = room(form=gate)
    for id in range(MAX_RUNNING + 1):
        here.take("elicitation/create", FORM, id=id)
    until(lambda: len(gate.requests) == MAX_RUNNING)
    here.answering.cancel({"requestId": MAX_RUNNING}, here.link)
    gate.go.set()
    until(lambda: len(here.sent) == MAX_RUNNING)
    here.settle()
    assert len(gate.requests) == MAX_RUNNING
    assert here.answering._weight == 0


@pytest.mark.parametrize("params", [{}, {"requestId": 2}, {"requestId": "1"}, {"requestId": 1.0}, {"requestId": True},
                                    {"requestId": None}, {"requestId": [1]}])  # fmt: skip
def test_a_cancellation_of_anything_else_is_ignored(room: Make, params: dict[str, Any]) -> None:
    gate, other = Gate(), Link("another")
    here = room(form=gate)
    here.take("elicitation/create", FORM)
    here.answering.cancel(params, here.link)
    here.answering.cancel({"requestId": 1}, other)
    gate.go.set()
    assert here.answer() == result(1, ACCEPTED)
    here.answering.cancel({"requestId": 1}, here.link)  # it is answered


def test_cancelled_and_asked_again_with_the_same_id(room: Make) -> None:
    gate = Gate()
    here = room(form=gate)
    here.take("elicitation/create", FORM)
    until(lambda: len(gate.requests) == 1)
    here.answering.cancel({"requestId": 1}, here.link)
    here.take("elicitation/create", FORM)
    until(lambda: len(gate.requests) == 2)
    gate.go.set()
    assert here.answer() == result(1, ACCEPTED)
    here.settle()
    assert len(here.sent) == 1


def test_cancelling_races_answering_and_there_is_at_most_one_answer(room: Make) -> None:
    here = room(form=lambda request: ACCEPTED)
    ids = range(400)
    together([
        lambda: [here.take("elicitation/create", FORM, id=id) for id in ids],
        lambda: [here.answering.cancel({"requestId": id}, here.link) for id in ids for _ in range(3)],
    ])  # fmt: skip
    here.settle()
    told = [answer["id"] for answer in here.answers]
    assert len(told) == len(set(told))
    assert here.answering._weight == 0


def test_a_lost_link_cancels_its_requests_and_no_others(room: Make) -> None:
    gate, other = Gate(), Link("another")
    here = room(form=gate)
    here.take("elicitation/create", FORM)
    here.take("elicitation/create", FORM, link=other)
    until(lambda: len(gate.requests) == 2)
    here.link.lost = local_error("closed")
    here.answering.link_lost(here.link)
    assert {request.server: request.cancelled for request in gate.requests} == {"the server": True, "another": False}
    here.take("ping", id=2)
    here.take("unknown", id=3)
    here.take("elicitation/create", FORM, id=4)
    gate.go.set()
    here.settle()
    assert here.sent == [(result(1, ACCEPTED), other)]


# -- the end


def test_closing_cancels_what_runs_and_waits_for_it_within_its_time(room: Make) -> None:
    gate = Gate()
    here = room(form=gate)
    here.take("elicitation/create", FORM)
    until(lambda: gate.requests)
    start = monotonic()
    here.answering.close(Deadline(0.2))
    assert 0.2 <= monotonic() - start < 2.2
    assert gate.requests[0].cancelled
    here.take("elicitation/create", FORM, id=2)
    gate.go.set()
    here.answering.close(Deadline(PATIENCE))
    assert here.answering._threads == 0
    here.settle()
    assert here.sent == []
    assert len(gate.requests) == 1


def test_closing_without_anything_running_takes_no_time(room: Make) -> None:
    here = room(form=lambda request: ACCEPTED)
    here.take("elicitation/create", FORM)
    here.answer()
    start = monotonic()
    here.answering.close(Deadline(PATIENCE))
    here.answering.close(Deadline(PATIENCE))
    assert monotonic() - start < 2


def test_a_handler_may_close(room: Make) -> None:
    closed = Event()

    def handler(request: InputRequest) -> dict[str, Any]:
        here.answering.close(Deadline(PATIENCE))
        closed.set()
        return ACCEPTED

    here = room(form=handler)
    here.take("elicitation/create", FORM)
    assert closed.wait(2), "it waited for itself"
    here.answering.close(Deadline(PATIENCE))
    assert here.sent == []


def test_a_request_that_is_over_is_not_kept_alive(room: Make) -> None:
    import weakref

    here = room(form=lambda request: ACCEPTED)
    link = Link("gone soon")
    gone = weakref.ref(link)
    here.take("elicitation/create", FORM, link=link)
    here.answer()
    here.sent.clear()
    del link
    until(lambda: gone() is None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_fork_has_none_of_its_parents_requests(room: Make) -> None:
    """The lock is held, and a handler runs, while the child is made; the child answers its own requests."""
    program = """
import os, threading, time
from snodo_client import Link
from snodo_client.engine.answering import Answering
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.worker import Worker
from snodo_client.engine.handlers import Handlers
go, sent = threading.Event(), []
def handler(request):
    go.wait(20)
    return {"roots": []}
control = Worker("c", 10)
answering = Answering(Handlers({"roots": handler}), lambda m, l: sent.append(m), control, lambda: None)
link, ask = Link("s"), {"jsonrpc": "2.0", "id": 1, "method": "roots/list"}
answering.take(ask, link)
held, release = threading.Event(), threading.Event()
def hold():
    with answering._changed:
        held.set()
        release.wait(20)
threading.Thread(target=hold, daemon=True).start()
held.wait(20)
pid = os.fork()
if pid == 0:
    control.forked()
    answering.forked()
    go.set()
    answering.take(ask, Link("t"))
    end = time.monotonic() + 20
    while not sent and time.monotonic() < end:
        time.sleep(0.005)
    answering.close(Deadline(20))
    os._exit(0 if [m.get("result") for m in sent] == [{"roots": []}] and answering._threads == 0 else 1)
release.set()
go.set()
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "0", run.stderr


# -- whatever arrives

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
METHODS = st.sampled_from(["ping", "roots/list", "elicitation/create", "sampling/createMessage"]) | JSON
PARAMS = JSON | st.sampled_from([FORM, ASK])
MESSAGES = st.fixed_dictionaries(
    {}, optional={"jsonrpc": st.just("2.0") | JSON, "id": JSON, "method": METHODS, "params": PARAMS}
)


@given(st.lists(MESSAGES, max_size=5), st.dictionaries(st.sampled_from(["requestId", "reason"]), JSON))
def test_whatever_arrives_raises_nothing_and_is_answered_at_most_once(
    messages: list[dict[str, Any]], cancellation: dict[str, Any]
) -> None:
    here = Room(Handlers({"form": lambda request: ACCEPTED, "sampling": lambda request: ANSWER}, {"roots": {}}))
    try:
        for message in messages:
            here.answering.take(message, here.link)
            here.answering.cancel(cancellation, here.link)
        here.settle()
        assert len(here.sent) <= len(messages)
        ids = [message.get("id") for message in messages]
        assert all(answer["id"] in ids for answer in here.answers)
    finally:
        here.answering.close(Deadline(PATIENCE))
        here.control.close(Deadline(PATIENCE))
