"""What `on_event` is told: which names, with exactly which fields, in which order, and that nobody waits for it."""

from __future__ import annotations

import logging
import sys
import threading
from threading import Event
from typing import Any

import pytest

from snodo_client import Client, Link, McpError, Ok
from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.events import Events
from snodo_client.engine.session import MAX_WAITING_CALLBACKS
from snodo_client.engine.worker import Worker
from snodo_client.outcome import local_error
from snodo_client.protocol.requests import Request
from support.forking import in_a_child
from support.questions import FORM, MODERN, answering, asks, turns
from support.scripted_transport import NOTIFY, ScriptedTransport, error, result, silent
from support.waiting import together, until

Told = list[tuple[str, dict[str, Any]]]
SERVER = "the scripted server"


def told_of(*steps: Any, **options: Any) -> tuple[ScriptedTransport, Client, Told]:
    """A client of a scripted server, and what its callback is told."""
    told: Told = []
    options.setdefault("on_event", lambda name, fields: told.append((name, fields)))
    transport = ScriptedTransport(turns(*steps), options.pop("traits", NOTIFY))
    return transport, Client.connect(transport, **{"protocol": MODERN, **options}), told


def of_call(id: int, wire_id: int | None, method: str = "tools/call", **more: Any) -> dict[str, Any]:
    about = {"server": SERVER, "id": id, "wire_id": wire_id, "method": method, "version": MODERN}
    return {**about, **({"tool": "t"} if method == "tools/call" else {}), **more}


def received(outcome: str, code: int | None = None, reason: str | None = None) -> dict[str, Any]:
    return {"outcome": outcome, "code": code, "reason": reason}


def without_seconds(told: Told) -> Told:
    """The same once the seconds have been seen to be some."""
    bare: Told = []
    for name, fields in told:
        fields = dict(fields)
        if name == "received":
            assert 0 <= fields.pop("seconds") < 60
        bare.append((name, fields))
    return bare


def test_a_call_from_its_request_to_its_answer() -> None:
    _, client, told = told_of(lambda call: [result(call)])
    with client:
        assert isinstance(client.call_tool("t", {"a": 1}), Ok)
        assert isinstance(client.get_prompt("p"), Ok)
    assert without_seconds(told)[:5] == [
        (
            "negotiated",
            {"server": SERVER, "era": "modern", "version": MODERN, "probed": None, "why": told[0][1]["why"]},
        ),
        ("sent", of_call(1, 1)),
        ("received", of_call(1, 1, **received("ok"))),
        ("sent", of_call(2, 2, "prompts/get")),
        ("received", of_call(2, 2, "prompts/get", **received("ok"))),
    ]


def test_errors_of_the_server_and_of_the_connection() -> None:
    def breaks(call: Call) -> Any:
        raise local_error("unreachable")
        yield

    _, client, told = told_of(lambda call: [error(call, -32602, "secret text", data="secret data")], breaks)
    with client:
        for _ in range(2):
            assert isinstance(client.call_tool("t"), McpError)
    assert without_seconds(told)[1:5] == [
        ("sent", of_call(1, 1)),
        ("received", of_call(1, 1, **received("error", -32602))),
        ("sent", of_call(2, 2)),
        ("received", of_call(2, 2, **received("error", local_error("unreachable").code, "unreachable"))),
    ]


def test_input_rounds_and_corrections_are_told_under_the_id_of_their_call() -> None:
    _, client, told = told_of(
        lambda call: [asks(call, {"a": FORM}, "s")],
        lambda call: [error(call, -32022, data={"supported": [MODERN]})],
        lambda call: [result(call)],
        handlers=answering(),
    )
    with client:
        assert isinstance(client.call_tool("t"), Ok)
    assert without_seconds(told)[1:9] == [
        ("sent", of_call(1, 1)),
        ("received", of_call(1, 1, **received("input_required"))),
        ("retried", of_call(1, None, why="input")),
        ("sent", of_call(1, 2)),
        ("received", of_call(1, 2, **received("error", -32022))),
        ("retried", of_call(1, None, why="version")),
        ("sent", of_call(1, 3)),
        ("received", of_call(1, 3, **received("ok"))),
    ]


def test_a_timeout_is_a_cancellation() -> None:
    _, client, told = told_of(silent)
    with client:
        assert isinstance(client.call_tool("t", timeout=0.05), McpError)
    assert without_seconds(told)[2:4] == [
        ("received", of_call(1, 1, **received("error", local_error("timeout").code, "timeout"))),
        ("cancelled", of_call(1, 1, request_delivery="accepted")),
    ]


def test_a_cancellation_is_told_once() -> None:
    _, client, told = told_of(silent)
    with client:
        handle = client.start_tool_call("t")
        until(lambda: handle._call.delivery == "accepted")
        assert handle.cancel().local == "cancelled"
        assert handle.cancel().local == "finished"
        until(lambda: len(told) >= 4)
    by_name = dict(told)
    assert [name for name, _ in told[:2]] == ["negotiated", "sent"]
    assert by_name["cancelled"] == of_call(1, 1, request_delivery="accepted")
    assert by_name["received"]["reason"] == "cancelled"
    assert [name for name, _ in told].count("cancelled") == 1


def test_what_was_cancelled_before_it_was_sent() -> None:
    class Unopened(ScriptedTransport):
        def open(self, inbound: Any, deadline: Deadline) -> Link:
            started.set()
            opening.wait(20)
            return super().open(inbound, deadline)

    started, opening, told = Event(), Event(), Told()
    transport = Unopened(lambda call: [result(call)])
    options: Any = {"on_event": lambda name, fields: told.append((name, fields))}
    with Client.connect(transport, protocol=MODERN, wait=False, **options) as client:
        assert started.wait(20)
        handle = client.start_tool_call("t")
        assert handle.cancel().request_delivery == "not_sent"
        opening.set()
        until(lambda: not client._session._live)
    cancelled = next(fields for name, fields in told if name == "cancelled")
    assert cancelled == of_call(1, None, request_delivery="not_sent") | {"server": None, "version": ""}
    assert transport.requests == []


def test_whoever_wants_no_events_pays_for_none() -> None:
    worker = Worker("unused", 10)
    events = Events(None, worker)
    assert not events.wanted
    call = Call(1, Request("tools/call", {"name": "t"}), Deadline(1))
    events.tell("negotiated", server="s")
    events.of_call("sent", call)
    events.received(call, Ok({}), 0.0)
    assert len(worker._jobs) == 0
    assert worker._running == 0


def test_fields_are_the_callbacks_own() -> None:
    def spoil(name: str, fields: dict[str, Any]) -> None:
        names.append((name, fields.get("method")))
        fields.clear()

    names: list[Any] = []
    _, client, _ = told_of(lambda call: [result(call)], on_event=spoil)
    with client:
        assert isinstance(client.call_tool("t"), Ok)
    assert names[:3] == [("negotiated", None), ("sent", "tools/call"), ("received", "tools/call")]


# -- the end of a connection


def test_closing_the_client_is_told_once_and_last() -> None:
    _, client, told = told_of(lambda call: [result(call)])
    client.call_tool("t")
    together([client.close] * 4)
    client.close()
    assert [fields for name, fields in told if name == "closed"] == [{"server": SERVER, "reason": "closed"}]
    assert told[-1][0] == "closed"


def test_a_lost_connection_is_told_with_its_reason_and_once() -> None:
    def dies(call: Call) -> Any:
        transport.inbound.lost(local_error("exited", "secret words of the server"), transport.link)
        transport.inbound.lost(local_error("closed"), transport.link)
        yield from call.messages()

    transport, client, told = told_of(dies)
    with client:
        assert isinstance(client.call_tool("t"), McpError)
    closed = {"server": SERVER, "reason": "exited"}
    assert [fields for name, fields in told if name == "closed"] == [closed]
    assert told.index(("closed", closed)) < [name for name, _ in told].index("received")


def test_a_connection_nobody_agreed_on_is_not_told_of() -> None:
    told: Told = []
    options: Any = {"on_event": lambda name, fields: told.append((name, fields))}
    refusing: Any = ScriptedTransport(lambda call: [error(call, -32603)])
    leaving: Any = ("stdio", sys.executable, ["-I", "-S", "-c", "input()"])
    for target in (refusing, leaving):
        with pytest.raises(McpError):
            Client.connect(target, **options)
    assert told == []


def test_a_child_of_a_fork_hears_nothing_and_has_no_thread_for_it() -> None:
    def look() -> tuple[Told, int]:
        return told, threading.active_count()

    told: Told = []
    target: Any = ("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"])
    with Client.connect(target, on_event=lambda name, fields: told.append((name, fields))):
        until(lambda: told)
        told.clear()
        assert in_a_child(look) == ([], 1)
    assert [(name, fields["reason"]) for name, fields in told] == [("closed", "closed")]


# -- whoever listens holds nobody up


def test_a_callback_that_raises_costs_that_event_only(caplog: pytest.LogCaptureFixture) -> None:
    def fail(name: str, fields: dict[str, Any]) -> None:
        names.append(name)
        raise SystemExit(name)

    names: list[str] = []
    _, client, _ = told_of(lambda call: [result(call)], on_event=fail)
    with caplog.at_level(logging.ERROR, "snodo_client.callbacks"), client:
        assert isinstance(client.call_tool("t"), Ok)
        assert isinstance(client.call_tool("t"), Ok)
    assert names[:5] == ["negotiated", "sent", "received", "sent", "received"]
    assert [record.getMessage() for record in caplog.records[:5]] == ["snodo-callbacks: a callback raised"] * 5


def test_a_slow_callback_delays_no_call_and_misses_nothing() -> None:
    def wait(name: str, fields: dict[str, Any]) -> None:
        assert go_on.wait(30)
        threads.add(threading.current_thread())
        told.append((name, fields.get("id")))

    go_on, told, threads = Event(), [], set()  # type: ignore[var-annotated]
    _, client, _ = told_of(lambda call: [result(call)], on_event=wait)
    with client:
        for _ in range(100):
            assert isinstance(client.call_tool("t", timeout=10), Ok)
        assert told == []
        go_on.set()
    assert told[1:201] == [(name, id) for id in range(1, 101) for name in ("sent", "received")]
    (thread,) = threads
    assert thread.daemon
    assert thread is not threading.current_thread()


def test_what_a_slow_callback_cannot_keep_up_with_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    def wait(name: str, fields: dict[str, Any]) -> None:
        entered.set()
        assert go_on.wait(30)
        told.append((name, fields.get("id")))

    entered, go_on, told = Event(), Event(), []  # type: ignore[var-annotated]
    _, client, _ = told_of(lambda call: [result(call)], on_event=wait)
    calls = MAX_WAITING_CALLBACKS
    with caplog.at_level(logging.WARNING, "snodo_client.callbacks"), client:
        assert entered.wait(20)  # with "negotiated"
        for _ in range(calls):
            assert isinstance(client.call_tool("t"), Ok)
        assert client._session._callbacks.dropped == 2 * calls - MAX_WAITING_CALLBACKS
        go_on.set()
        until(lambda: len(told) == 1 + MAX_WAITING_CALLBACKS)
        assert told[1:] == [(name, id) for id in range(calls // 2 + 1, calls + 1) for name in ("sent", "received")]
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        told.clear()
        assert isinstance(client.call_tool("t"), Ok)
        until(lambda: len(told) == 2)


def test_a_callback_may_use_the_client_and_close_it() -> None:
    def act(name: str, fields: dict[str, Any]) -> None:
        told.append(name)
        if len(told) == 3:
            outcomes.append(client.call_tool("t"))
            client.close()
            closed.set()

    told: list[str] = []
    outcomes: list[Any] = []
    closed = Event()
    _, client, _ = told_of(lambda call: [result(call)], on_event=act)
    client.call_tool("t")
    assert closed.wait(20)
    assert outcomes == [Ok({"resultType": "complete"})]


def test_the_events_of_each_call_stay_in_order_over_many_threads() -> None:
    def script(call: Call) -> Any:
        return [result(call)] if "inputResponses" in call.message["params"] else [asks(call, {"a": FORM})]

    def work() -> None:
        for _ in range(10):
            assert isinstance(client.call_tool("t"), Ok)

    _, client, told = told_of(script, handlers=answering())
    with client:
        together([work] * 16)
        until(lambda: len(told) >= 1 + 160 * 5)
    by_call: dict[int, list[str]] = {}
    for name, fields in told:
        if "id" in fields:
            by_call.setdefault(fields["id"], []).append(name)
    assert len(by_call) == 160
    for names in by_call.values():
        assert names == ["sent", "received", "retried", "sent", "received"]
