"""The one blocking path over a scripted transport: outcomes, one deadline, cancellation, retries, ends."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Iterator
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client import InputRequired, Link, McpError, Ok, Progress, Traits, Transport
from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.session import Session
from snodo_client.outcome import local_error
from snodo_client.protocol import agreement, versions
from snodo_client.protocol.requests import Identity, Request
from support.scripted_transport import (
    NOTIFY,
    SUPPORTED,
    Message,
    ScriptedTransport,
    busy,
    error,
    progress,
    result,
    silent,
)
from support.waiting import together, until

IDENTITY = Identity({"name": "test", "version": "1"}, {})
MODERN = ("2026-07-28",)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def session(transport: Transport, allowed: Any = MODERN, probe_timeout: float = 10.0, **options: Any) -> Session:
    return Session(transport, IDENTITY, allowed, probe_timeout=probe_timeout, max_pages=1000, **options)


def scripted(script: Any, traits: Traits | None = None, **options: Any) -> tuple[ScriptedTransport, Session]:
    transport = ScriptedTransport(script, traits)
    return transport, session(transport, **options)


def ask(opened: Session, seconds: float = 20.0, method: str = "tools/call", **options: Any) -> Any:
    return opened.call(Request(method, {"name": "x"}), Deadline(seconds), **options)


def reason(outcome: Any) -> str | None:
    assert isinstance(outcome, McpError), outcome
    return outcome.reason


# -- outcomes


def test_a_transport_of_a_user_is_a_transport() -> None:
    transport: Transport = ScriptedTransport(lambda call: [result(call)])
    with pytest.raises(AttributeError):
        transport.link  # type: ignore[attr-defined]  # noqa: B018  # nothing is opened before it is needed
    assert ask(session(transport)) == Ok({"resultType": "complete"})


def test_the_three_outcomes() -> None:
    assert isinstance(ask(scripted(lambda call: [result(call, content=[])])[1]), Ok)
    asking = scripted(lambda call: [result(call, resultType="input_required", requestState="s")])[1]
    assert isinstance(ask(asking), InputRequired)
    failed = ask(scripted(lambda call: [error(call, -32602, data=[1])])[1])
    assert (failed.code, failed.reason, failed.data) == (-32602, None, [1])


@given(st.lists(JSON, max_size=3))
def test_whatever_an_exchange_yields_there_is_an_outcome(messages: list[Any]) -> None:
    assert isinstance(ask(scripted(lambda call: iter(messages))[1]), (Ok, InputRequired, McpError))


@pytest.mark.parametrize("message", [None, 5, [], "method", [{"id": 1, "result": {}}]])
def test_what_is_no_message_is_malformed(message: Any) -> None:
    assert reason(ask(scripted(lambda call: [message])[1])) == "malformed"


def test_an_exchange_without_an_answer_is_closed() -> None:
    outcome = ask(scripted(lambda call: [])[1])
    assert reason(outcome) == "closed"
    assert "tools/call" in outcome.message


def test_a_transports_faults_are_values() -> None:
    def fail(call: Call) -> Iterator[Message]:
        yield progress(call, 1)
        raise local_error("too_large", data={"limit": 5})

    outcome = ask(scripted(fail)[1])
    assert (reason(outcome), outcome.data) == ("too_large", {"limit": 5})


class Eager(ScriptedTransport):
    """Not a generator: it answers in full, or raises at once."""

    def exchange(self, call: Call) -> Iterator[Message]:
        return iter(self.script(call))


def test_an_exchange_may_be_a_plain_function() -> None:
    assert isinstance(ask(session(Eager(lambda call: [result(call)]))), Ok)

    def fail(call: Call) -> list[Message]:
        raise local_error("unreachable")

    assert reason(ask(session(Eager(fail)))) == "unreachable"


def test_an_error_while_the_exchange_is_let_go_is_no_exception() -> None:
    def untidy(call: Call) -> Iterator[Message]:
        try:
            yield result(call)
        finally:
            raise local_error("transport_failure")

    assert isinstance(ask(scripted(untidy)[1]), (Ok, McpError))


def test_an_error_of_a_transport_is_never_taken_for_the_servers() -> None:
    def fail(call: Call) -> Iterator[Message]:
        raise McpError(-32000, "the serial line is gone")
        yield

    assert reason(ask(scripted(fail)[1])) == "transport_failure"
    probed = session(ScriptedTransport(fail), versions.KNOWN).ready(Deadline(20))
    assert reason(probed) == "transport_failure"


def test_a_fault_in_opening_is_a_value() -> None:
    class Closed(ScriptedTransport):
        def open(self, inbound: Any, deadline: Deadline) -> Link:
            raise local_error("unreachable", data={"tried": 1})

    assert reason(ask(session(Closed(lambda call: [])))) == "unreachable"


def test_outcomes_keep_no_frames_alive() -> None:
    class Secret:
        pass

    gone: list[weakref.ref[Secret]] = []

    def fail(call: Call) -> Iterator[Message]:
        secret = Secret()
        gone.append(weakref.ref(secret))
        try:
            raise ValueError("inside")
        except ValueError as cause:
            raise local_error("transport_failure") from cause
        yield

    gc.collect()
    outcome = ask(scripted(fail)[1])
    assert (outcome.__traceback__, outcome.__context__, outcome.__cause__) == (None, None, None)
    until(lambda: gc.collect() is not None and gone[0]() is None)
    late = ask(scripted(silent)[1], 0.05)
    assert late.__traceback__ is None


# -- ids


def test_ids_are_never_used_again_over_many_threads() -> None:
    transport, opened = scripted(lambda call: [result(call)])
    together([lambda: [ask(opened) for _ in range(125)]] * 8)
    ids = [request["id"] for request in transport.requests]
    assert sorted(ids) == list(range(1, 1001))
    assert len(opened.pending) == 0


def test_forty_threads_answered_in_reverse_get_their_own() -> None:
    transport, opened = scripted(silent, NOTIFY)
    outcomes: dict[str, Any] = {}

    def call(name: str) -> None:
        outcomes[name] = opened.call(Request("tools/call", {"name": name}), Deadline(20))

    def answer() -> None:
        until(lambda: len(transport.requests) == 40)
        for request in reversed(transport.requests):
            message = {"jsonrpc": "2.0", "id": request["id"], "result": {"name": request["params"]["name"]}}
            transport.inbound.deliver(message, transport.link)

    together([answer, *(lambda name=str(number): call(name) for number in range(40))])
    assert {name: outcome.value["name"] for name, outcome in outcomes.items()} == {str(n): str(n) for n in range(40)}
    assert len(opened.pending) == 0


def served(transport: ScriptedTransport, make: Any) -> None:
    """Answer the next request, from another thread, with what `make(id)` gives."""

    def answer() -> None:
        until(lambda: transport.requests)
        for message in make(transport.requests[-1]["id"]):
            transport.inbound.deliver(message, transport.link)

    Thread(target=answer, daemon=True).start()


@pytest.mark.parametrize("got", [99, "99", 99.5, True, False, "x", [], {}])
def test_a_wrong_id_on_a_shared_channel_is_an_error_at_once(got: object) -> None:
    transport, opened = scripted(silent, NOTIFY)
    served(transport, lambda id: [{"jsonrpc": "2.0", "id": got, "result": {}}])
    assert reason(ask(opened)) == "unexpected_id"
    transport.script = lambda call: [result(call)]
    assert isinstance(ask(opened), Ok)


@pytest.mark.parametrize("spell", [str, float, int])
def test_our_id_in_another_spelling_is_an_answer(spell: Any) -> None:
    transport, opened = scripted(silent, NOTIFY)
    served(transport, lambda id: [{"jsonrpc": "2.0", "id": spell(id), "result": {"a": 1}}])
    assert ask(opened) == Ok({"a": 1})


@pytest.mark.parametrize("members", [{"id": None}, {}])
def test_an_error_without_an_id_is_for_the_only_call(members: dict[str, Any]) -> None:
    transport, opened = scripted(silent, NOTIFY)
    served(transport, lambda id: [{"jsonrpc": "2.0", **members, "error": {"code": -32700, "message": "what?"}}])
    outcome = ask(opened)
    assert (outcome.code, outcome.reason, outcome.kind) == (-32700, None, "json_rpc")


def test_the_first_of_two_answers_counts_and_late_ones_harm_nobody() -> None:
    transport, opened = scripted(silent, NOTIFY)
    served(transport, lambda id: [{"id": id, "jsonrpc": "2.0", "result": {"n": n}} for n in (1, 2)])
    assert ask(opened) == Ok({"n": 1})
    assert reason(ask(opened, 0.05)) == "timeout"
    late = transport.requests[-1]["id"]
    transport.requests.clear()
    served(transport, lambda id: [{"id": n, "jsonrpc": "2.0", "result": {"n": n}} for n in (1, late, id)])
    assert ask(opened) == Ok({"n": late + 1})


def test_the_table_is_empty_after_500_calls_that_timed_out() -> None:
    _, opened = scripted(silent)
    together([lambda: [ask(opened, 0.002) for _ in range(125)]] * 4)
    assert len(opened.pending) == 0


# -- deadlines


def test_silence_ends_at_the_deadline() -> None:
    _, opened = scripted(silent)
    start = monotonic()
    outcome = ask(opened, 0.3)
    assert 0.3 <= monotonic() - start < 2.3
    assert (outcome.code, outcome.reason, outcome.data) == (-32001, "timeout", {"timeout": 0.3})
    assert "the scripted server" in outcome.message


def test_a_flood_of_notifications_does_not_outlast_the_deadline() -> None:
    def flood(call: Call) -> Iterator[Message]:
        end = monotonic() + 3
        while monotonic() < end:
            yield progress(call, 1)

    for options in ({}, {"on_progress": lambda progress: None}):
        start = monotonic()
        outcome = ask(scripted(flood)[1], 0.3, **options)
        assert monotonic() - start < 2.3
        assert reason(outcome) == "timeout"


def test_no_attempt_begins_after_the_deadline() -> None:
    def late(call: Call) -> list[Message]:
        Event().wait(0.3)
        return [error(call, -32022, data={"supported": ["2026-07-28"]})]

    transport, opened = scripted(late)
    assert isinstance(ask(opened, 0.1), McpError)
    assert len(transport.requests) == 1


def ticking(times: int, every: float) -> Any:
    def script(call: Call) -> Iterator[Message]:
        for number in range(times):
            busy(call, every)
            yield progress(call, number)
        yield result(call)

    return script


def test_progress_keeps_a_call_alive_when_asked_to() -> None:
    _, opened = scripted(ticking(6, 0.2))
    assert isinstance(opened.call(Request("x"), Deadline(0.6, 20)), Ok)
    assert reason(opened.call(Request("x"), Deadline(0.6))) == "timeout"


def test_progress_keeps_no_call_alive_past_the_total() -> None:
    _, opened = scripted(ticking(1000, 0.05))
    start = monotonic()
    outcome = opened.call(Request("x"), Deadline(0.4, 0.6))
    assert 0.6 <= monotonic() - start < 2.6
    assert (reason(outcome), outcome.data) == ("max_total_timeout", {"max_total_timeout": 0.6})


def test_negotiation_is_inside_the_deadline_of_the_first_call() -> None:
    def slow(call: Call) -> Iterator[Message]:
        busy(call, 0.2)
        yield result(call, **SUPPORTED)

    transport, opened = scripted(slow, allowed=versions.KNOWN)
    assert reason(ask(opened, 0.3)) == "timeout"
    assert [request["method"] for request in transport.requests] == ["server/discover", "tools/call"]


# -- negotiation


def test_a_pin_sends_nothing_and_auto_asks_once() -> None:
    transport, opened = scripted(lambda call: [result(call, **SUPPORTED)])
    assert not isinstance(opened.ready(Deadline(5)), McpError)
    assert transport.requests == []
    transport, opened = scripted(lambda call: [result(call, **SUPPORTED)], allowed=versions.KNOWN)
    together([lambda: ask(opened)] * 8)
    methods = [request["method"] for request in transport.requests]
    assert methods.count("server/discover") == 1
    assert methods[0] == "server/discover"


def test_a_silent_probe_is_not_cancelled_and_its_id_stays_reserved() -> None:
    transport, opened = scripted(
        silent, Traits(cancel="notify", silence_is_legacy=True), allowed=versions.KNOWN, probe_timeout=0.1
    )
    assert reason(opened.ready(Deadline(5))) == "timeout"
    assert transport.sent.empty()
    assert len(opened.pending) == 0
    transport.script = lambda call: [result(call, **SUPPORTED)]
    assert isinstance(ask(opened), Ok)
    assert [request["id"] for request in transport.requests] == [1, 2, 3]


def test_a_caller_in_a_hurry_learns_nothing_of_the_server() -> None:
    """Its own time ran out, not the probe's: that is a timeout, and no sign of an older server."""
    _, opened = scripted(silent, Traits(silence_is_legacy=True), allowed=versions.KNOWN, probe_timeout=10.0)
    assert reason(opened.ready(Deadline(0.1))) == "timeout"


def test_connecting_imports_no_logging() -> None:
    import subprocess
    import sys
    from pathlib import Path

    tests = Path(__file__).parents[1]
    program = f"""
import sys
sys.path[:0] = [{str(tests.parent)!r}, {str(tests)!r}]
from snodo_client import Client
from support.scripted_transport import ScriptedTransport, result
Client.connect(ScriptedTransport(lambda call: iter([result(call)])), protocol="2026-07-28").close()
print("logging" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_refused_version_is_tried_once_more_per_call() -> None:
    def refuse(call: Call) -> list[Message]:
        return [error(call, -32022, data={"supported": ["2026-07-28"], "requested": "2026-07-28"})]

    transport, opened = scripted(refuse)
    outcome = ask(opened)
    assert reason(outcome) == "incompatible_versions"
    assert [request["id"] for request in transport.requests] == [1, 2]
    transport.script = lambda call: refuse(call) if call.wire_id == 3 else [result(call)]
    assert isinstance(ask(opened), Ok)
    assert [request["id"] for request in transport.requests] == [1, 2, 3, 4]


@pytest.mark.parametrize("data", [None, {}, {"supported": ["2025-11-25"]}, {"supported": "2026-07-28"}, []])
def test_a_refusal_without_a_version_of_ours_names_both_sides(data: Any) -> None:
    transport, opened = scripted(lambda call: [error(call, -32022, data=data)])
    outcome = ask(opened)
    assert (reason(outcome), len(transport.requests)) == ("incompatible_versions", 1)
    assert outcome.data["requested"] == ["2026-07-28"]
    assert "2026-07-28" in outcome.message


# -- relisting

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
MIRRORS = Traits(mirrors_headers=True)


def picky(tool: str = "x") -> Any:
    """A server whose tool wants its argument mirrored, and which lists it under this name."""

    def script(call: Call) -> list[Message]:
        if call.request.method == "tools/list":
            Event().wait(0.1)
            return [result(call, tools=[{"name": tool, "inputSchema": SCHEMA}])]
        return [result(call)] if "Mcp-Param-A" in call.request.headers() else [error(call, -32020)]

    return script


def mirrored(opened: Session, a: Any = "b", **known: Any) -> Any:
    return opened.call(Request("tools/call", {"name": "x", "arguments": {"a": a}}).copy(**known), Deadline(20))


def methods(transport: ScriptedTransport) -> list[str]:
    return [request["method"] for request in transport.requests]


@pytest.mark.parametrize("known", [{}, {"annotations": []}], ids=["by name", "by an old definition"])
def test_a_header_mismatch_lists_once_and_tries_once_more(known: Any) -> None:
    transport, opened = scripted(picky(), MIRRORS)
    assert isinstance(mirrored(opened, **known), Ok)
    assert methods(transport) == ["tools/call", "tools/list", "tools/call"]
    assert [request["id"] for request in transport.requests] == [1, 2, 3]


def test_what_was_learnt_is_used_at_once() -> None:
    transport, opened = scripted(picky(), MIRRORS)
    assert isinstance(mirrored(opened), Ok)
    assert isinstance(mirrored(opened), Ok)
    assert methods(transport) == ["tools/call", "tools/list", "tools/call", "tools/call"]


def test_a_mismatch_that_stays_is_given_as_sent() -> None:
    def refuse(call: Call) -> list[Message]:
        return picky()(call) if call.request.method == "tools/list" else [error(call, -32020)]

    transport, opened = scripted(refuse, MIRRORS)
    assert mirrored(opened).code == -32020
    assert methods(transport) == ["tools/call", "tools/list", "tools/call"]


def test_many_mismatches_at_once_share_a_list() -> None:
    transport, opened = scripted(picky(), MIRRORS)
    outcomes: list[Any] = []
    together([lambda: outcomes.append(mirrored(opened))] * 8)
    assert all(isinstance(outcome, Ok) for outcome in outcomes)
    assert methods(transport).count("tools/list") < 4


def test_a_mismatch_is_not_repeated_without_a_reason() -> None:
    transport, opened = scripted(picky("other"), MIRRORS)
    assert mirrored(opened).code == -32020
    assert methods(transport) == ["tools/call", "tools/list"]


def test_an_argument_no_header_can_carry_is_a_value_when_it_is_found_late_and_raises_when_it_is_known() -> None:
    _, opened = scripted(picky(), MIRRORS)
    outcome = mirrored(opened, a=5)
    assert (reason(outcome), outcome.kind) == ("invalid_arguments", "validation")
    assert "'a'" in outcome.message
    with pytest.raises(ValueError, match="'a'"):
        mirrored(opened, a=5)


# -- cancellation


def cancelled(transport: ScriptedTransport) -> Message:
    until(lambda: not transport.sent.empty())
    return transport.sent.get_nowait()


def test_a_timeout_is_told_to_the_server() -> None:
    transport, opened = scripted(silent, NOTIFY)
    assert reason(ask(opened, 0.05)) == "timeout"
    sent = cancelled(transport)
    assert (sent["method"], sent["params"]["requestId"]) == ("notifications/cancelled", 1)
    assert set(sent) == {"jsonrpc", "method", "params"}
    assert "timeout=" not in sent["params"]["reason"], "advice for the caller is not for the server"


def test_a_name_that_is_no_unicode_does_not_break_a_timeout() -> None:
    class Odd(ScriptedTransport):
        def open(self, inbound: Any, deadline: Deadline) -> Link:
            super().open(inbound, deadline)
            self.link = Link("the server caf\udce9")
            return self.link

    transport = Odd(silent, NOTIFY)
    assert reason(ask(session(transport), 0.05)) == "timeout"
    assert cancelled(transport)["params"]["requestId"] == 1


@pytest.mark.parametrize(
    "raised", [ValueError("mine"), KeyboardInterrupt(), SystemExit(2), StopIteration(), local_error("closed")]
)
def test_what_a_progress_callback_raises_comes_out_and_the_server_is_told(raised: BaseException) -> None:
    transport, opened = scripted(ticking(5, 0.0), NOTIFY)

    def fail(progress: Progress) -> None:
        raise raised

    with pytest.raises(type(raised)) as caught:
        ask(opened, on_progress=fail)
    assert caught.value is raised
    assert cancelled(transport)["params"]["requestId"] == 1
    assert len(opened.pending) == 0
    assert isinstance(ask(opened), Ok)


@pytest.mark.parametrize(
    "script",
    [
        lambda call: [result(call)],
        lambda call: [error(call, -32602)],
        lambda call: [],
        lambda call: [result(call, resultType="input_required", requestState="s")],
    ],
)
def test_what_is_over_is_not_cancelled(script: Any) -> None:
    transport, opened = scripted(script, NOTIFY)
    ask(opened)
    opened.notify("notifications/marker", {}, Deadline(5))
    assert cancelled(transport)["method"] == "notifications/marker"
    assert transport.sent.empty()


def test_what_was_never_sent_is_not_cancelled() -> None:
    def unsent(call: Call) -> Iterator[Message]:
        call.delivery = "not_sent"
        yield from call.messages()

    transport, opened = scripted(unsent, NOTIFY)
    assert reason(ask(opened, 0.05)) == "timeout"
    done = Event()
    opened._control.submit(done.set)
    assert done.wait(20)
    assert transport.sent.empty()


def test_dropping_the_exchange_is_enough_where_it_tells_the_server() -> None:
    dropped = Event()

    def script(call: Call) -> Iterator[Message]:
        try:
            yield from call.messages()
        finally:
            dropped.set()

    transport, opened = scripted(script)
    assert reason(ask(opened, 0.05)) == "timeout"
    assert dropped.is_set()
    done = Event()
    opened._control.submit(done.set)
    assert done.wait(20)
    assert transport.sent.empty()


def test_a_server_that_does_not_read_holds_nobody_up() -> None:
    class Stuck(ScriptedTransport):
        def send(self, body: bytes, link: Link, deadline: Deadline) -> None:
            Event().wait(deadline.left())
            raise local_error("timeout")

    opened, start = session(Stuck(silent, NOTIFY)), monotonic()
    for _ in range(5):
        assert reason(ask(opened, 0.05)) == "timeout"
    assert monotonic() - start < 2.5


# -- progress


def test_progress_comes_in_order_in_the_callers_thread() -> None:
    import threading

    seen: list[Any] = []
    _, opened = scripted(ticking(20, 0.0))
    outcome = ask(opened, on_progress=lambda got: seen.append((got.progress, threading.current_thread())))
    assert isinstance(outcome, Ok)
    assert seen == [(number, threading.current_thread()) for number in range(20)]


def test_a_token_is_sent_only_when_progress_is_wanted() -> None:
    transport, opened = scripted(lambda call: [result(call)])
    ask(opened)
    ask(opened, on_progress=print)
    opened.call(Request("x"), Deadline(5, 10))
    tokens = [request["params"]["_meta"].get("progressToken") for request in transport.requests]
    assert tokens == [None, 2, 3]


@pytest.mark.parametrize("value", ["half", None, True, [], {}])
def test_progress_that_is_no_number_does_not_reach_the_callback(value: object) -> None:
    seen: list[Any] = []
    _, opened = scripted(lambda call: [progress(call, value), result(call)])
    assert isinstance(ask(opened, on_progress=seen.append), Ok)
    assert seen == []


def test_a_callback_may_call_the_same_server() -> None:
    inner: list[Any] = []
    _, opened = scripted(lambda call: [progress(call, 1), result(call)])
    assert isinstance(ask(opened, on_progress=lambda got: inner.append(ask(opened))), Ok)
    assert isinstance(inner[0], Ok)


# -- the end


def test_closing_ends_every_call_at_once() -> None:
    transport, opened = scripted(silent, NOTIFY)
    outcomes: list[Any] = []

    def close() -> None:
        until(lambda: len(transport.requests) == 8)
        opened.close(Deadline(5))

    start = monotonic()
    together([close, *[lambda: outcomes.append(ask(opened))] * 8])
    assert [outcome.reason for outcome in outcomes] == ["closed"] * 8
    assert len({id(outcome) for outcome in outcomes}) == 8
    assert monotonic() - start < 5
    assert transport.closed.is_set()
    assert transport.sent.empty()
    assert reason(ask(opened)) == "closed"
    assert reason(opened.notify("notifications/x", {}, Deadline(5))) == "closed"
    opened.close(Deadline(5))


def test_closing_while_progress_floods_in_ends_the_call() -> None:
    begun = Event()

    def flood(call: Call) -> Iterator[Message]:
        end = monotonic() + 5
        while monotonic() < end:
            begun.set()
            yield progress(call, 1)

    _, opened = scripted(flood)
    outcomes: list[Any] = []
    thread = Thread(target=lambda: outcomes.append(ask(opened, 10.0)), daemon=True)
    thread.start()
    assert begun.wait(20)
    opened.close(Deadline(5))
    thread.join(2)
    assert [outcome.reason for outcome in outcomes] == ["closed"]


def test_a_transport_that_fails_to_close_is_no_exception() -> None:
    class Broken(ScriptedTransport):
        def close(self, deadline: Deadline) -> None:
            raise local_error("transport_failure")

    opened = session(Broken(lambda call: [result(call)]))
    ask(opened)
    opened.close(Deadline(5))
    assert opened.closed


class Racing(Link):
    """A link on which something happens in another thread between two steps of a call."""

    __slots__ = ("_gone", "between")

    def __init__(self, name: str) -> None:
        self.between: Any = lambda: None
        super().__init__(name)

    @property  # type: ignore[override]
    def lost(self) -> McpError | None:
        gone = self._gone
        between, self.between = self.between, lambda: None
        between()
        return gone

    @lost.setter
    def lost(self, error: McpError | None) -> None:
        self._gone: McpError | None = error


@pytest.mark.parametrize("happens", ["lost", "closed"])
def test_a_link_lost_just_before_a_call_enters_the_table_is_noticed(happens: str) -> None:
    class Open(ScriptedTransport):
        def open(self, inbound: Any, deadline: Deadline) -> Link:
            self.inbound = inbound
            return link

    link, transport = Racing("racing"), Open(silent, NOTIFY)
    opened = session(transport)
    assert not isinstance(opened.ready(Deadline(5)), McpError)
    if happens == "lost":
        link.between = lambda: transport.inbound.lost(local_error("exited"), link)
    else:
        link.between = lambda: opened.close(Deadline(5))
    assert reason(ask(opened, 1.0)) == ("exited" if happens == "lost" else "closed")


def test_a_lost_link_ends_calls_after_what_it_still_said() -> None:
    transport, opened = scripted(silent, NOTIFY)

    def die() -> None:
        until(lambda: len(transport.requests) == 2)
        last = transport.requests[0]["id"]
        transport.inbound.deliver({"jsonrpc": "2.0", "id": last, "result": {}}, transport.link)
        transport.inbound.lost(local_error("exited", data={"exit_code": 3}), transport.link)

    outcomes: list[Any] = []
    together([die, *[lambda: outcomes.append(ask(opened))] * 2])
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["McpError", "Ok"]
    assert [outcome.data for outcome in outcomes if not outcome.ok] == [{"exit_code": 3}]
    again = ask(opened)
    assert (again.reason, again.data) == ("exited", {"exit_code": 3})
    assert opened.closed


def test_logs_and_notices_run_on_one_thread_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    import threading

    seen: list[Any] = []
    messages = [{"jsonrpc": "2.0", "method": "notifications/x", "params": {"n": n}} for n in range(20)]
    _, opened = scripted(
        lambda call: [*messages, result(call)],
        on_notification=lambda method, params: seen.append((params["n"], threading.current_thread())),
    )
    with caplog.at_level(logging.WARNING, "snodo_client"):
        assert isinstance(ask(opened), Ok)
    until(lambda: len(seen) == 20)
    assert [number for number, _ in seen] == list(range(20))
    assert {thread for _, thread in seen} != {threading.current_thread()}
    opened.close(Deadline(5))


@pytest.mark.parametrize("trouble", ["closed", "malformed", "too_large"])
def test_a_call_that_may_have_run_is_not_sent_again_when_somebody_else_finds_the_era_out(trouble: str) -> None:
    def script(call: Call) -> Iterator[Message]:
        link = opened.connection.link
        assert link is not None
        assert link.agreement is not None
        link.version, link.agreement.remembered = "2025-11-25", False  # as another thread does meanwhile
        raise local_error(trouble)
        yield

    transport = ScriptedTransport(script, Traits(eras=("modern", "legacy"), reopens=True))
    known = agreement.remembered({"version": "2026-07-28"})
    opened = session(transport, allowed=versions.KNOWN, remembered=known)
    assert reason(ask(opened)) == trouble
    assert [request["method"] for request in transport.requests] == ["tools/call"]
