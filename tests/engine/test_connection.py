"""A connection over a scripted transport: how the steps of a negotiation are taken, and what happens to links and
transports on the way. What to ask is tested with `protocol.negotiation`; real servers are in `faults`.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest

from snodo_client import Link, McpError, Ok, Traits
from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.engine.session import Session
from snodo_client.outcome import local_error
from snodo_client.protocol import agreement, versions
from snodo_client.protocol.requests import Identity, Request
from support.scripted_transport import SUPPORTED, Message, ScriptedTransport, error, result, silent
from support.waiting import together, until

NEW, OLD, OLDEST = "2026-07-28", "2025-11-25", "2024-11-05"
PROBE, INITIALIZE, INITIALIZED = "server/discover", "initialize", "notifications/initialized"
IDENTITY = Identity({"name": "test", "version": "1"}, {"roots": {}}, {"roots": {"listChanged": True}})
HANDSHAKE = {"protocolVersion": OLD, "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
BOTH = ("modern", "legacy")
HTTP = Traits(eras=BOTH, reopens=True)  # type: ignore[arg-type]
STDIO = Traits(eras=BOTH, cancel="notify", silence_is_legacy=True)  # type: ignore[arg-type]


class Recording(ScriptedTransport):
    """Says in `events`, in order, what was done with it: the method and the link's version of each message, too."""

    def __init__(self, script: Any, traits: Traits) -> None:
        super().__init__(script, traits)
        self.events: list[str] = []
        self.links: list[Link] = []
        self.inbound: Any = None

    def open(self, inbound: Any, deadline: Deadline) -> Link:
        self.inbound, self.link = inbound, Link(f"server {len(self.links) + 1}")
        self.links.append(self.link)
        self.events.append("open")
        return self.link

    def exchange(self, call: Call) -> Iterator[Message]:
        assert call.link is self.link, "on the link opened last"
        self.events.append(f"{call.request.method} {call.request.version}")
        return super().exchange(call)

    def send(self, message: Message, link: Link, deadline: Deadline) -> None:
        self.events.append(f"{message.get('method', 'answer')} on {link.version or 'no version'}")
        super().send(message, link, deadline)

    def close(self, deadline: Deadline) -> None:
        self.events.append("close")
        super().close(deadline)


class Attending(Recording):
    def attend(self, link: Link, deadline: Deadline) -> None:
        self.events.append(f"attend on {link.version}")


def session(transport: Any, probe_timeout: float = 10.0, allowed: Any = versions.KNOWN, **options: Any) -> Session:
    return Session(transport, IDENTITY, allowed, probe_timeout=probe_timeout, max_pages=10, **options)


def legacy(call: Call) -> list[Message]:
    """A server of the older revisions."""
    if call.request.method == PROBE:
        return [error(call, -32601)]
    if call.request.method == INITIALIZE:
        return [answer(call.wire_id, HANDSHAKE)]
    return [answer(call.wire_id, {"content": []})]


def answer(wire_id: Any, value: Any) -> Message:
    return {"jsonrpc": "2.0", "id": wire_id, "result": value}


def ask(opened: Session, seconds: float = 20.0) -> Any:
    return opened.call(Request("tools/call", {"name": "x"}), Deadline(seconds))


def reason(outcome: Any) -> str | None:
    assert isinstance(outcome, McpError), outcome
    return outcome.reason


OPENED = ["open", f"{PROBE} {NEW}", f"{INITIALIZE} {OLD}", f"{INITIALIZED} on {OLD}"]
REOPENED = ["open", f"{INITIALIZE} {OLD}", f"{INITIALIZED} on {OLD}"]
CALLED = f"tools/call {OLD}"


# -- the order of things


@pytest.mark.parametrize("traits", [HTTP, STDIO])
def test_the_link_has_its_version_before_initialized_is_sent_and_is_attended_to_after(traits: Traits) -> None:
    transport = Attending(legacy, traits)
    opened = session(transport)
    assert isinstance(ask(opened), Ok)
    assert transport.events == [*OPENED, f"attend on {OLD}", CALLED]
    assert (transport.link.version, transport.link.legacy) == (OLD, True)
    assert transport.link.agreement is opened.agreement


def test_nothing_is_attended_to_in_the_modern_era() -> None:
    transport = Attending(lambda call: [result(call, **SUPPORTED)], HTTP)
    assert isinstance(ask(session(transport)), Ok)
    assert transport.events == ["open", f"{PROBE} {NEW}", f"tools/call {NEW}"]
    assert transport.sent.empty()


def test_attending_is_not_asked_of_every_transport() -> None:
    assert isinstance(ask(session(Recording(legacy, HTTP))), Ok)


def test_a_server_that_refuses_initialized_is_not_connected_to() -> None:
    class Refusing(Recording):
        def send(self, message: Message, link: Link, deadline: Deadline) -> None:
            raise local_error("http_status", data={"http_status": 400})

    transport = Refusing(legacy, HTTP)
    opened = session(transport)
    assert reason(opened.ready(Deadline(5))) == "http_status"
    assert opened.connection.link is None
    assert reason(ask(opened)) == "http_status"


def test_ids_go_on_from_the_negotiation_and_the_table_is_empty_after_it() -> None:
    transport = Recording(legacy, STDIO)
    opened = session(transport)
    ask(opened)
    assert [request["id"] for request in transport.requests] == [1, 2, 3]
    assert len(opened.pending) == 0


# -- two questions at once


def deliver(transport: Recording, *messages: Any) -> None:
    for message in messages:
        transport.inbound.deliver(message, transport.link)


def ids(transport: Recording) -> dict[str, int]:
    return {request["method"]: request["id"] for request in transport.requests}


def talking(transport: Recording, *say: Any) -> Thread:
    """Deliver messages once both questions are open; those that are functions take the ids of these."""

    def talk() -> None:
        until(lambda: len(transport.requests) == 2)
        deliver(transport, *(message(ids(transport)) if callable(message) else message for message in say))

    thread = Thread(target=talk, daemon=True)
    thread.start()
    return thread


def late(value: Any) -> Any:
    return lambda ids: answer(ids[PROBE], value)


def agreed(value: Any) -> Any:
    return lambda ids: answer(ids[INITIALIZE], value)


NOISE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}


@pytest.mark.parametrize(
    ("say", "version"),
    [
        ([agreed(HANDSHAKE)], OLD),
        ([late(SUPPORTED)], NEW),
        ([NOISE, NOISE, late(SUPPORTED)], NEW),
        ([late(SUPPORTED), agreed(HANDSHAKE)], NEW),
        ([agreed(HANDSHAKE), late(SUPPORTED)], OLD),
        ([lambda ids: {"jsonrpc": "2.0", "id": ids[INITIALIZE], "error": {"code": -32601, "message": "no"}},
          late(SUPPORTED)], NEW),
        ([lambda ids: {"jsonrpc": "2.0", "id": ids[PROBE], "error": {"code": -32601, "message": "no"}},
          agreed(HANDSHAKE)], OLD),
        ([lambda ids: answer(str(ids[PROBE]), SUPPORTED)], NEW),
    ],
)  # fmt: skip
def test_whichever_answer_tells_first_decides(say: list[Any], version: str) -> None:
    transport = Recording(silent, STDIO)
    opened = session(transport, probe_timeout=0.2)
    thread = talking(transport, *say)
    link = opened.ready(Deadline(10))
    thread.join(10)
    assert isinstance(link, Link), link
    assert link.version == version
    assert transport.events[:3] == ["open", f"{PROBE} {NEW}", f"{INITIALIZE} {OLD}"]
    assert transport.events[3:] == ([f"{INITIALIZED} on {OLD}"] if version == OLD else [])
    assert len(opened.pending) == 0


def test_what_comes_after_the_verdict_is_late_and_harms_nobody() -> None:
    transport = Recording(silent, STDIO)
    opened = session(transport, probe_timeout=0.1)
    talking(transport, agreed(HANDSHAKE))
    assert isinstance(opened.ready(Deadline(10)), Link)
    deliver(transport, late(SUPPORTED)(ids(transport)), agreed({"protocolVersion": OLDEST})(ids(transport)))
    transport.script = lambda call: [answer(call.wire_id, {"content": []})]
    assert isinstance(ask(opened), Ok)
    assert opened.agreement is not None
    assert opened.agreement.version == OLD


def test_neither_question_is_cancelled() -> None:
    transport = Recording(silent, STDIO)
    start = monotonic()
    failed = session(transport, probe_timeout=0.2).ready(Deadline(10))
    assert 0.4 <= monotonic() - start < 2.4
    assert (reason(failed), failed.data) == ("timeout", {"timeout": 0.2})  # type: ignore[union-attr]
    assert transport.sent.empty()


def test_what_the_server_asks_meanwhile_is_answered_by_send() -> None:
    transport = Recording(silent, STDIO)
    opened = session(transport, probe_timeout=0.2)

    def talk() -> None:
        until(lambda: len(transport.requests) == 2)
        deliver(transport, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        until(lambda: not transport.sent.empty())  # without an answer to its own question it gives none
        deliver(transport, answer(ids(transport)[INITIALIZE], HANDSHAKE))

    Thread(target=talk, daemon=True).start()
    assert isinstance(opened.ready(Deadline(10)), Link)
    assert transport.sent.get(timeout=10) == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_what_the_server_asks_in_the_stream_of_the_handshake_is_answered_too() -> None:
    def script(call: Call) -> Iterator[Message]:
        if call.request.method != INITIALIZE:
            yield from legacy(call)
            return
        yield {"jsonrpc": "2.0", "id": 0, "method": "ping"}
        until(lambda: not transport.sent.empty())
        yield from legacy(call)

    transport = Recording(script, HTTP)
    assert isinstance(ask(session(transport)), Ok)
    assert transport.sent.get(timeout=10) == {"jsonrpc": "2.0", "id": 0, "result": {}}


# -- links


def dying(*methods: str) -> Any:
    """The first link is lost at these methods, after the server read them."""

    def script(call: Call) -> Iterator[Message]:
        if call.request.method in methods and call.link is transport().links[0]:
            transport().inbound.lost(local_error("exited", data={"exit_code": 2}), call.link)
        yield from call.messages() if call.link.lost else legacy(call)  # type: ignore[union-attr]

    made: list[Recording] = []

    def transport() -> Recording:
        return made[0]

    made.append(Recording(script, STDIO))
    return made[0]


@pytest.mark.parametrize("method", [PROBE, INITIALIZE])
def test_a_link_lost_in_the_negotiation_is_replaced_once(method: str) -> None:
    transport = dying(method)
    opened = session(transport)
    assert isinstance(ask(opened), Ok)
    asked = [f"{PROBE} {NEW}"] if method == PROBE else [f"{PROBE} {NEW}", f"{INITIALIZE} {OLD}"]
    assert transport.events == ["open", *asked, *REOPENED, CALLED]
    assert opened.connection.link is transport.links[1]
    assert opened.name == "server 2"


def test_a_link_lost_before_anything_was_sent_is_not() -> None:
    class Stillborn(Recording):
        def open(self, inbound: Any, deadline: Deadline) -> Link:
            link = super().open(inbound, deadline)
            inbound.lost(local_error("exited", data={"exit_code": 2}), link)
            return link

    transport = Stillborn(legacy, STDIO)
    assert reason(ask(session(transport))) == "exited"
    assert transport.events == ["open"]


def test_a_lost_link_is_replaced_where_the_transport_reopens() -> None:
    transport = Attending(legacy, HTTP)
    opened = session(transport)
    ask(opened)
    transport.inbound.lost(local_error("closed"), transport.link)
    transport.events.clear()
    outcomes: list[Any] = []
    together([lambda: outcomes.append(ask(opened))] * 8)
    assert all(isinstance(outcome, Ok) for outcome in outcomes)
    assert transport.events == [*REOPENED, f"attend on {OLD}", *[CALLED] * 8]


def test_a_lost_link_is_the_end_where_it_does_not() -> None:
    transport = Recording(legacy, STDIO)
    opened = session(transport)
    ask(opened)
    transport.inbound.lost(local_error("exited", data={"exit_code": 2}), transport.link)
    assert (reason(ask(opened)), len(transport.links)) == ("exited", 1)
    assert opened.closed


def test_a_lost_session_is_begun_again_once_for_all_and_once_per_call() -> None:
    forgotten: set[Link] = set()

    def script(call: Call) -> Iterator[Message]:
        if call.request.method == "tools/call" and call.link in forgotten:
            raise local_error("session_lost", data={"http_status": 404})
        yield from legacy(call)

    transport = Recording(script, HTTP)
    opened = session(transport)
    assert isinstance(ask(opened), Ok)
    forgotten.add(transport.link)
    outcomes: list[Any] = []
    together([lambda: outcomes.append(ask(opened))] * 8)
    assert all(isinstance(outcome, Ok) for outcome in outcomes), outcomes
    assert len(transport.links) == 2
    assert transport.events.count(f"{PROBE} {NEW}") == 1

    class Everything(set[Link]):
        def __contains__(self, link: object) -> bool:
            return True

    forgotten = Everything()
    before = len(transport.links)
    assert reason(ask(opened)) == "session_lost"
    assert len(transport.links) == before + 1


@pytest.mark.parametrize("made", [None, "link", object()])
def test_what_is_no_link_is_a_bug_of_the_transport_and_comes_out(made: Any) -> None:
    class Wrong(Recording):
        def open(self, inbound: Any, deadline: Deadline) -> Any:
            return made

    with pytest.raises(TypeError, match=r"Wrong\.open\(\) must return a Link"):
        session(Wrong(legacy, HTTP)).ready(Deadline(5))


# -- the transport that came before


class Newer(Recording):
    """Refuses the handshake, and knows an older transport."""

    def __init__(self, older: Recording) -> None:
        super().__init__(self.refuse, HTTP)
        self._older = older

    def refuse(self, call: Call) -> Iterator[Message]:
        raise local_error("http_status", "answered 405", data={"http_status": 405})
        yield

    def older(self) -> Recording:
        return self._older


SSE = Traits(eras=("legacy",), cancel="notify", reopens=True)


def test_the_older_transport_takes_the_place_of_the_newer_which_is_let_go_of() -> None:
    older = Recording(legacy, SSE)
    newer = Newer(older)
    opened = session(newer)
    assert isinstance(ask(opened), Ok)
    assert newer.events == ["open", f"{PROBE} {NEW}", f"{INITIALIZE} {OLD}", "close"]
    assert older.events == [*REOPENED, CALLED]
    assert opened.connection.transport is older
    assert [request["id"] for request in [*newer.requests, *older.requests]] == [1, 2, 3, 4]
    older.inbound.lost(local_error("closed"), older.link)
    assert isinstance(ask(opened), Ok)
    assert older.events[4:] == [*REOPENED, CALLED]
    opened.close(Deadline(5))
    assert older.closed.is_set()


def test_where_that_fails_too_the_newer_stays_and_the_older_is_let_go_of() -> None:
    class Absent(Recording):
        def open(self, inbound: Any, deadline: Deadline) -> Link:
            self.events.append("open")
            raise local_error("http_status", "answered 404", data={"http_status": 404})

    older = Absent(legacy, SSE)
    newer = Newer(older)
    opened = session(newer)
    failed = opened.ready(Deadline(5))
    assert reason(failed) == "incompatible_versions"
    assert opened.connection.transport is newer
    assert older.events == ["open", "close"]
    newer.script = legacy
    assert isinstance(ask(opened), Ok), "the next call asks anew"
    assert newer.events[-3:] == [f"{INITIALIZE} {OLD}", f"{INITIALIZED} on {OLD}", CALLED]
    assert "close" not in newer.events


# -- time, and the end


def test_one_limit_over_opening_asking_and_opening_again() -> None:
    class Slow(Recording):
        def open(self, inbound: Any, deadline: Deadline) -> Link:
            Event().wait(min(0.25, deadline.left()))
            return super().open(inbound, deadline)

    def script(call: Call) -> Iterator[Message]:
        if len(transport.links) == 1:
            transport.inbound.lost(local_error("exited"), call.link)
        yield from call.messages()

    transport = Slow(script, STDIO)
    start = monotonic()
    failed = session(transport).ready(Deadline(0.8))
    assert 0.8 <= monotonic() - start < 2.8
    assert (reason(failed), failed.data) == ("timeout", {"timeout": 0.8})  # type: ignore[union-attr]
    assert transport.events == ["open", f"{PROBE} {NEW}", "open", f"{INITIALIZE} {OLD}"]


def test_a_failure_is_kept_and_the_time_of_a_caller_in_a_hurry_is_not() -> None:
    transport = Recording(silent, HTTP)
    opened = session(transport)
    assert reason(ask(opened, 0.1)) == "timeout"
    assert opened.connection.error is None
    transport.script = lambda call: [error(call, -32021)]
    assert ask(opened).code == -32021
    assert opened.connection.error is not None
    transport.script = lambda call: [result(call, **SUPPORTED)]
    assert isinstance(ask(opened), Ok)
    assert opened.connection.error is None
    assert transport.events.count("open") == 1


def test_a_waiter_takes_over_from_one_whose_time_is_over() -> None:
    def script(call: Call) -> Iterator[Message]:
        if len(transport.requests) == 1:
            yield from call.messages()
        yield from legacy(call)

    transport = Recording(script, HTTP)
    opened = session(transport)
    outcomes: dict[str, Any] = {}

    def hurried() -> None:
        outcomes["hurried"] = ask(opened, 0.3)

    def patient() -> None:
        until(lambda: transport.requests)
        outcomes["patient"] = ask(opened)

    together([hurried, patient])
    assert reason(outcomes["hurried"]) == "timeout"
    assert isinstance(outcomes["patient"], Ok)
    assert len(transport.links) == 1


@pytest.mark.parametrize("where", ["open", PROBE, INITIALIZE])
def test_closing_in_the_middle_ends_it_and_closes_what_was_opened(where: str) -> None:
    reached, go_on = Event(), Event()

    class Held(Recording):
        def open(self, inbound: Any, deadline: Deadline) -> Link:
            if where == "open":
                reached.set()
                assert go_on.wait(10)
            return super().open(inbound, deadline)

    def script(call: Call) -> Iterator[Message]:
        if call.request.method == where:
            reached.set()
            yield from call.messages()
        yield from legacy(call)

    transport = Held(script, HTTP)
    opened = session(transport)
    outcomes: list[Any] = []

    def close() -> None:
        assert reached.wait(10)
        opened.close(Deadline(5))
        go_on.set()

    start = monotonic()
    together([close, *[lambda: outcomes.append(ask(opened))] * 3])
    assert monotonic() - start < 2
    assert [outcome.reason for outcome in outcomes] == ["closed"] * 3
    assert transport.events[-1] == "close"
    assert CALLED not in transport.events
    assert f"{INITIALIZED} on {OLD}" not in transport.events


def test_beginning_in_the_background_is_the_same_negotiation() -> None:
    go_on = Event()

    def script(call: Call) -> Iterator[Message]:
        assert go_on.wait(10)
        yield from legacy(call)

    transport = Recording(script, HTTP)
    opened = session(transport)
    start = monotonic()
    opened.begin(Deadline(10))
    assert monotonic() - start < 1
    outcomes: list[Any] = []

    def release() -> None:
        until(lambda: transport.requests)
        go_on.set()

    together([release, *[lambda: outcomes.append(ask(opened))] * 4])
    assert all(isinstance(outcome, Ok) for outcome in outcomes)
    assert transport.events == [*OPENED, *[CALLED] * 4]


# -- doubts


def remembered(version: str) -> agreement.Agreement:
    told = agreement.remembered({"version": version})
    assert told is not None
    return told


def test_a_doubt_counts_once() -> None:
    """Who doubts what somebody else has found out by now does not make everybody negotiate again."""
    transport = Recording(legacy, STDIO)
    opened = session(transport, remembered=remembered(NEW))
    link = opened.ready(Deadline(5))
    assert isinstance(link, Link)
    first = link.agreement
    assert first is not None
    assert first.remembered
    opened.connection.doubt(link, first)
    assert opened.connection.link is None
    assert opened.ready(Deadline(5)) is link
    assert link.agreement is not first
    opened.connection.doubt(link, first)
    assert opened.connection.link is link
    assert transport.events == OPENED


def test_the_first_answer_proves_a_memory() -> None:
    transport = Recording(lambda call: [result(call)], HTTP)
    opened = session(transport, remembered=remembered(NEW))
    assert isinstance(ask(opened), Ok)
    transport.script = lambda call: [error(call, -32601)]
    assert ask(opened).code == -32601
    assert transport.events == ["open", f"tools/call {NEW}", f"tools/call {NEW}"]
