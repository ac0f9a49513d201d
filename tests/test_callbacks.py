"""The callbacks of a client over every connection: `on_event`, `on_log`, `on_notification`, `on_list_changed`; on one
thread, in order, without secrets, and without anybody waiting for them.
"""

from __future__ import annotations

import logging
import threading
from threading import Event
from typing import Any

import pytest

from snodo_client import Client, InputRequired, McpError, Ok, Traits
from snodo_client.engine.session import MAX_WAITING_CALLBACKS
from support.asking import say
from support.older import older
from support.questions import CELLS, FORM, MODERN, answering, asks, noting, questioning, turns
from support.scripted_transport import ScriptedTransport, result, silent
from support.waiting import together, until

each_cell = pytest.mark.parametrize(("kind", "version"), CELLS)
Told = list[tuple[str, dict[str, Any]]]
SECRET = "s3cr3t-of-the-caller"

CALL = {"server", "id", "wire_id", "method", "version"}
ANSWER = {"outcome", "code", "reason", "seconds"}
FIELDS = {
    "negotiated": {"server", "era", "version", "probed", "why"},
    "sent": CALL,
    "received": CALL | ANSWER,
    "retried": CALL | {"why"},
    "cancelled": CALL | {"request_delivery"},
    "closed": {"server", "reason"},
}


def noted() -> tuple[Told, Any]:
    told: Told = []
    return told, lambda name, fields: told.append((name, fields))


def changed(kind: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"}


# -- on_event


@each_cell
def test_each_event_has_its_fields_on_every_connection(kind: str, version: str) -> None:
    told, on_event = noted()
    with questioning(kind, version) as connect:
        client = connect(handlers=answering(), on_event=on_event)
        assert isinstance(client.call_tool("sign_in"), Ok)
        assert isinstance(client.get_prompt("asked"), Ok)
        assert isinstance(client.call_tool("no such tool"), McpError)
        assert isinstance(client.call_tool("sleep", {"seconds": 30}, timeout=0.1), McpError)
        handle = client.start_tool_call("sleep", {"seconds": 30})
        until(lambda: handle._call.delivery == "accepted")
        handle.cancel()
        until(lambda: not client._session._live)
        client.close()
    for name, fields in told:
        tool = {"tool"} if fields.get("method") == "tools/call" else set()
        assert fields.keys() == FIELDS[name] | tool, name
        assert all(type(value) in (str, int, float, type(None)) for value in fields.values()), fields
        assert fields["server"] == client._session.name
        assert name in ("negotiated", "closed") or fields["version"] == version
    names = [name for name, _ in told]
    assert set(names) == set(FIELDS)
    assert (names[0], names[-1]) == ("negotiated", "closed")
    assert told[0][1]["era"] == ("modern" if version == MODERN else "legacy")
    assert told[-1][1]["reason"] == "closed"
    outcomes = [fields["outcome"] for name, fields in told if name == "received" and fields["id"] == 1]
    assert outcomes == ["input_required", "ok"]
    assert [fields["request_delivery"] for name, fields in told if name == "cancelled"] == ["accepted"] * 2
    sent = [fields["wire_id"] for name, fields in told if name == "sent"]
    assert sent == sorted(set(sent))


@each_cell
def test_no_secret_reaches_an_event_a_log_or_a_repr(kind: str, version: str, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []
    options: dict[str, Any] = {"headers": {"Authorization": f"Bearer {SECRET}", "X-Api-Key": SECRET}}
    if kind in ("direct", "stdio"):
        options = {"auth": SECRET} if kind == "direct" else {"env": {"API_TOKEN": SECRET}}
    with caplog.at_level(logging.DEBUG), questioning(kind, version) as connect:
        handlers = answering(form=noting(told, {"action": "accept", "content": {"name": SECRET}}))
        client = connect(handlers=handlers, on_event=lambda name, fields: told.append(fields), **options)
        given: dict[str, Any] = {"meta": {"com.example/secret": SECRET}}
        assert isinstance(client.call_tool("echo", {"message": SECRET}, **given), Ok)
        assert isinstance(client.get_prompt("asked", **given), Ok)
        assert isinstance(client.call_tool("greet", {"who": SECRET}, **given), Ok)
        told.append(client.call_tool("sleep", {"seconds": 30}, timeout=0.1, **given))
        handle = client.start_tool_call("echo", {"message": SECRET}, **given)
        assert isinstance(handle.result(), Ok)
        states = []
        if version == MODERN:
            left = client.call_tool("counting", answer_input=False, **given)
            assert isinstance(left, InputRequired)
            states.append(left.request_state)
            told.append(left)
        told += [client, handle, handle._call.request, client.protocol_info]
        client.close()
    told += [record.getMessage() for record in caplog.records if not record.name.startswith("websockets.server")]
    told += [record.exc_text for record in caplog.records]
    for secret in (SECRET, *states):
        assert [each for each in map(repr, told) if str(secret) in each] == []


def test_the_session_of_an_older_server_is_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    told, on_event = noted()
    with caplog.at_level(logging.DEBUG), older("http") as server:
        client = server.connect(on_event=on_event)
        assert isinstance(client.call_tool("ok", {"text": "hello"}), Ok)
        server.line.gone.set()  # the server forgets the session
        assert isinstance(client.call_tool("ok", {"text": "hello"}), Ok)
        client.close()
    names = [name for name, _ in told]
    assert names[:8] == ["negotiated", "sent", "received", "sent", "received", "negotiated", "retried", "sent"]
    assert told[6][1]["why"] == "session"
    assert "secret-session" not in repr(told) + repr(client) + caplog.text
    assert "session-2" in server.requests[-1].header("mcp-session-id")  # type: ignore[operator]


@each_cell
def test_neither_a_slow_nor_a_raising_callback_touches_a_call(
    kind: str, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    def slow(*told: Any) -> None:
        assert go_on.wait(30)
        seen.append(told)
        raise SystemExit("of the callback")

    go_on, seen = Event(), []  # type: ignore[var-annotated]
    callbacks: dict[str, Any] = dict.fromkeys(("on_event", "on_log", "on_notification", "on_list_changed"), slow)
    with caplog.at_level(logging.CRITICAL), questioning(kind, version) as connect:
        client = connect(handlers=answering(), **callbacks)
        assert isinstance(say(client, changed("tools"), log("a"), notice("b")), Ok)
        together([lambda: client.call_tool("echo", {"message": "m"}, timeout=20).unwrap()] * 8)
        assert isinstance(client.call_tool("everything"), Ok)
        assert seen == []
        go_on.set()
        until(lambda: {len(told) for told in seen} == {1, 2, 3})
        client.close()


# -- the order


def log(data: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": data}}


def notice(data: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/com.example", "params": {"data": data}}


@each_cell
def test_all_callbacks_run_on_one_thread_in_the_order_of_arrival(kind: str, version: str) -> None:
    def note(what: Any) -> None:
        told.append(what)
        threads.add(threading.current_thread())

    told: list[Any] = []
    threads: set[threading.Thread] = set()
    messages = [message for number in range(20) for message in (log(number), notice(number))]
    with questioning(kind, version) as connect:
        client = connect(
            on_log=lambda level, data, logger: note(("log", data)),
            on_notification=lambda method, params: note((method.rpartition("/")[2], params.get("data"))),
            on_list_changed=lambda kind: note(("changed", kind)),
            on_event=lambda name, fields: note((name, fields.get("method"))),
        )
        assert isinstance(say(client, *messages, changed("prompts"), log_level="debug"), Ok)
        until(lambda: ("received", "tools/call") in told)
        client.close()
    between = told[told.index(("sent", "tools/call")) + 1 : told.index(("received", "tools/call"))]
    said = [each for number in range(20) for each in (("log", number), ("com.example", number))]
    assert between == [*said, ("changed", "prompts"), ("list_changed", None)]
    assert {thread.name for thread in threads} == {"snodo-callbacks"}
    assert all(thread.daemon for thread in threads)


# -- on_list_changed


@each_cell
def test_many_changes_in_a_row_are_told_once_and_the_list_may_be_fetched_at_once(kind: str, version: str) -> None:
    def refetch(which: str) -> None:
        kinds.append(which)
        if which == "tools":
            lists.append(client.list_tools())

    def hold(name: str, params: dict[str, Any]) -> None:
        if name == "notifications/com.example":
            held.set()
            assert go_on.wait(30)

    kinds: list[str] = []
    lists: list[Any] = []
    held, go_on = Event(), Event()
    with questioning(kind, version) as connect:
        client = connect(on_list_changed=refetch, on_notification=hold)
        assert isinstance(say(client, notice("hold")), Ok)
        assert held.wait(20)
        many = [changed(which) for _ in range(30) for which in ("tools", "prompts", "resources")]
        assert isinstance(say(client, *many), Ok)
        assert kinds == []
        go_on.set()
        until(lambda: len(kinds) == 3 and lists)
        assert kinds == ["tools", "prompts", "resources"]
        assert isinstance(say(client, changed("tools")), Ok)
        until(lambda: len(lists) == 2)
        assert kinds == ["tools", "prompts", "resources", "tools"]
        assert all(isinstance(each, Ok) and len(each.value) > 10 for each in lists)
        assert isinstance(say(client, {"jsonrpc": "2.0", "method": "notifications/resources/updated"}), Ok)
        client.close()
    assert len(kinds) == 4


def test_a_change_during_the_callback_is_told_again() -> None:
    def refetch(which: str) -> None:
        kinds.append(which)
        if len(kinds) == 1:
            transport.inbound.deliver(changed("tools"), transport.link)

    kinds: list[str] = []
    transport = ScriptedTransport(lambda call: [result(call)])
    with Client.connect(transport, protocol=MODERN, on_list_changed=refetch) as client:
        client.call_tool("t")
        transport.inbound.deliver(changed("tools"), transport.link)
        until(lambda: len(kinds) == 2)
    assert kinds == ["tools", "tools"]


def test_a_change_that_the_full_queue_dropped_does_not_silence_those_after_it() -> None:
    def hold(level: str, data: Any, logger: str | None) -> None:
        held.set()
        assert go_on.wait(30)

    kinds: list[str] = []
    held, go_on = Event(), Event()
    transport = ScriptedTransport(lambda call: [result(call)])
    with Client.connect(transport, protocol=MODERN, on_log=hold, on_list_changed=kinds.append) as client:
        client.call_tool("t")
        transport.inbound.deliver(log("hold"), transport.link)
        assert held.wait(20)
        transport.inbound.deliver(changed("tools"), transport.link)
        for number in range(MAX_WAITING_CALLBACKS):  # the change is the oldest, and goes first
            transport.inbound.deliver(log(number), transport.link)
        transport.inbound.deliver(changed("tools"), transport.link)
        go_on.set()
        until(lambda: kinds)
        transport.inbound.deliver(changed("tools"), transport.link)
        until(lambda: len(kinds) == 2)
    assert kinds == ["tools", "tools"]


def test_a_callback_that_raises_is_told_of_the_next_change() -> None:
    def fail(which: str) -> None:
        kinds.append(which)
        raise LookupError(which)

    kinds: list[str] = []
    transport = ScriptedTransport(lambda call: [result(call)])
    with Client.connect(transport, protocol=MODERN, on_list_changed=fail) as client:
        client.call_tool("t")
        for number in range(1, 4):
            transport.inbound.deliver(changed("tools"), transport.link)
            until(lambda number=number: len(kinds) == number)  # type: ignore[misc]


def test_what_is_known_of_the_tools_is_dropped_before_the_callback_runs() -> None:
    def look(which: str) -> None:
        known.append(client._session.catalog.annotations("t"))

    def script(call: Any) -> Any:
        schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
        return [result(call, tools=[{"name": "t", "inputSchema": schema}])]

    known: list[Any] = []
    transport = ScriptedTransport(script, Traits(mirrors_headers=True))
    with Client.connect(transport, protocol=MODERN, on_list_changed=look) as client:
        assert isinstance(client.list_tools(), Ok)
        assert client._session.catalog.annotations("t")
        transport.inbound.deliver(changed("tools"), transport.link)
        until(lambda: known)
    assert not known[0]


# -- progress


def test_progress_for_another_call_in_the_stream_of_this_one_reaches_nobody() -> None:
    def astray(call: Any) -> Any:
        params = {"progressToken": transport.requests[0]["id"], "progress": 1}
        return [{"jsonrpc": "2.0", "method": "notifications/progress", "params": params}, result(call)]

    got: list[Any] = []
    transport = ScriptedTransport(turns(silent, astray))
    options: dict[str, Any] = {"on_notification": lambda *told: got.append(told)}
    with Client.connect(transport, protocol=MODERN, **options) as client:
        handle = client.start_tool_call("a", progress=got.append)
        until(lambda: transport.requests)
        assert isinstance(client.call_tool("b", progress=got.append), Ok)
        transport.inbound.deliver({"jsonrpc": "2.0", "id": transport.requests[0]["id"], "result": {}}, transport.link)
        assert isinstance(handle.result(), Ok)
    assert got == []


# -- the queue


@pytest.mark.parametrize("callback", ["on_log", "on_notification"])
def test_a_flood_is_dropped_from_the_old_end_and_counted(callback: str, caplog: pytest.LogCaptureFixture) -> None:
    def hold(*told: Any) -> None:
        seen.append(told[1]["data"] if callback == "on_notification" else told[1])
        held.set()
        assert go_on.wait(30)

    held, go_on, seen = Event(), Event(), []  # type: ignore[var-annotated]
    transport = ScriptedTransport(lambda call: [result(call)])
    make = notice if callback == "on_notification" else log
    options: dict[str, Any] = {callback: hold}
    with (
        caplog.at_level(logging.WARNING, "snodo_client.callbacks"),
        Client.connect(transport, protocol=MODERN, **options) as client,
    ):
        client.call_tool("t")
        transport.inbound.deliver(make("first"), transport.link)
        assert held.wait(20)
        for number in range(3 * MAX_WAITING_CALLBACKS):
            transport.inbound.deliver(make(number), transport.link)
        assert client._session._callbacks.dropped == 2 * MAX_WAITING_CALLBACKS
        assert isinstance(client.call_tool("t"), Ok)
        go_on.set()
        until(lambda: len(seen) == 1 + MAX_WAITING_CALLBACKS)
    assert seen == ["first", *range(2 * MAX_WAITING_CALLBACKS, 3 * MAX_WAITING_CALLBACKS)]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_what_waits_is_bounded_in_bytes_too() -> None:
    def hold(method: str, params: dict[str, Any]) -> None:
        seen.append(params["data"][:1])
        held.set()
        assert go_on.wait(30)

    held, go_on, seen = Event(), Event(), []  # type: ignore[var-annotated]
    transport = ScriptedTransport(lambda call: [result(call)])
    with Client.connect(transport, protocol=MODERN, on_notification=hold) as client:
        client.call_tool("t")
        transport.inbound.deliver(notice("first"), transport.link)
        assert held.wait(20)
        for number in range(6):
            transport.inbound.deliver(notice(f"{number}" * 5_000_000), transport.link)
        assert client._session._callbacks.dropped == 3
        go_on.set()
    assert seen == ["f", "3", "4", "5"]


@pytest.mark.parametrize("callback", ["on_event", "on_log", "on_notification", "on_list_changed"])
@pytest.mark.parametrize("wrong", [1, "print", []])
def test_what_cannot_be_called_is_refused_before_anything_is_opened(callback: str, wrong: Any) -> None:
    def make() -> Any:
        raise AssertionError("it was opened")

    options: dict[str, Any] = {callback: wrong}
    with pytest.raises(TypeError, match=callback):
        Client.connect(make, **options)


def test_closing_from_a_callback_and_while_one_hangs_is_bounded() -> None:
    def close(name: str, fields: dict[str, Any]) -> None:
        client.close()
        closed.set()
        never.wait(20)

    closed, never = Event(), Event()
    transport = ScriptedTransport(turns(lambda call: [asks(call, {"a": FORM})], silent))
    client = Client.connect(transport, protocol=MODERN, wait=False, on_event=close, handlers=answering())
    outcome = client.call_tool("t", timeout=20)
    assert isinstance(outcome, McpError)
    assert outcome.reason == "closed"
    assert closed.wait(20)
    client.close()
    never.set()
