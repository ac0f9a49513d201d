"""Plain callables as servers: JSON both ways, deadlines that hold, threads that are used again and go away."""

from __future__ import annotations

import contextvars
import functools
import logging
import os
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from snodo_client import Client
from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError, local_error
from snodo_client.transports import direct
from snodo_client.transports.direct import Context, DirectTransport
from support.direct_harness import Harness, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Message = dict[str, Any]

both = pytest.mark.parametrize("inline", [False, True], ids=["threaded", "inline"])


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    until(lambda: not workers())


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "snodo-direct"]


def deep(levels: int) -> object:
    value: object = None
    for _ in range(levels):
        value = {"x": value}
    return value


def answer(message: Message, value: object = None) -> Message:
    return {"jsonrpc": "2.0", "id": message["id"], "result": {"value": value}}


def opened(handler: Callable[[Message, Context], Any], **options: Any) -> Harness:
    return Harness(DirectTransport(handler, **options))


class Gate:
    """A handler that stays inside until it is let go, or nobody waits any more."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go = threading.Event()
        self.contexts: list[Context] = []

    def __call__(self, message: Message, context: Context) -> Message:
        self.contexts.append(context)
        self.inside.set()
        assert self.go.wait(10)
        return answer(message, "late")


# --- messages ---------------------------------------------------------------------------------------------------


@both
def test_a_request_and_its_response_make_the_round_trip_of_a_wire(inline: bool) -> None:
    seen: list[Message] = []
    kept: Message = {}

    def handler(message: Message, context: Context) -> Message:
        seen.append(message)
        kept.update(answer(message, ("a", "tuple", {"é": 1.5})))
        return kept

    harness = opened(handler, inline=inline)
    arguments = {"text": "ß \U0001f600", "deep": [{"n": None}]}
    call = harness.call(name="t", arguments=arguments)
    (response,) = harness.exchange(call)
    assert response == answer(call.message, ["a", "tuple", {"é": 1.5}])
    assert response is not kept
    assert seen[0] == call.message
    assert seen[0]["params"]["arguments"] == arguments
    assert seen[0]["params"]["arguments"] is not arguments
    assert call.delivery == "accepted"
    harness.close()


@both
@pytest.mark.parametrize(
    "reply",
    [
        {"result": {"x": float("nan")}},
        {"result": {"x": float("inf")}},
        {"result": {"x": {1, 2}}},
        {"result": {"x": b"bytes"}},
        {"result": {1: "a key that is no string"}},
        {"result": {"x": "\ud800"}},
        {"result": {"x": 10**5000}},
        {"result": deep(10_000)},
        {},
        {"method": "notifications/progress"},
        {"method": "tools/call", "result": {}},
        "text",
        None,
        [],
        McpError(1, "returned, not raised"),
    ],
    ids=lambda reply: str(type(reply).__name__ if not isinstance(reply, dict) else list(reply)),
)
def test_what_is_no_response_in_json_is_malformed(reply: object, inline: bool) -> None:
    def handler(message: Message, context: Context) -> Any:
        return {"jsonrpc": "2.0", "id": message["id"], **reply} if isinstance(reply, dict) else reply

    harness = opened(handler, inline=inline)
    error = harness.failure(harness.call())
    assert error.reason == "malformed"
    assert "tools/call" in error.message
    harness.close()


@both
def test_a_response_is_handed_on_as_it_is_for_the_session_to_judge(inline: bool) -> None:
    replies: list[Message] = [
        {"jsonrpc": "2.0", "id": 999, "result": {}},
        {"jsonrpc": "2.0", "id": "1", "result": {"resultType": "unheard of"}},
        {"id": None, "error": {"code": -32700, "message": "what?"}},
    ]
    harness = opened(lambda message, context: reply, inline=inline)
    for reply in replies:
        assert harness.exchange(harness.call()) == [reply]
    harness.close()


@both
def test_the_principal_reaches_the_handler_as_it_is(inline: bool) -> None:
    principal = object()
    seen: list[object] = []

    def handler(message: Message, context: Context) -> Message:
        seen.append(context.auth)
        return answer(message)

    harness = opened(handler, auth=principal, inline=inline)
    harness.result()
    assert seen == [principal]
    harness.close()


@both
def test_notifications_come_before_the_response_in_order(inline: bool) -> None:
    sent = [{"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": n}} for n in range(5)]

    def handler(message: Message, context: Context) -> Message:
        for notification in sent:
            context.send(notification)
        return answer(message)

    harness = opened(handler, inline=inline)
    *notifications, response = harness.exchange(harness.call())
    assert notifications == sent
    assert all(a is not b for a, b in zip(notifications, sent, strict=True))
    assert "result" in response
    harness.close()


def test_a_notification_arrives_while_the_handler_runs() -> None:
    gate = threading.Event()

    def handler(message: Message, context: Context) -> Message:
        context.send({"jsonrpc": "2.0", "method": "notifications/message"})
        assert gate.wait(10)
        return answer(message)

    harness = opened(handler)
    exchange = harness.transport.exchange(harness.call())
    assert next(exchange)["method"] == "notifications/message"
    gate.set()
    assert "result" in next(exchange)
    harness.close()


@both
@pytest.mark.parametrize(
    "wrong",
    [
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"method": "notifications/message"},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": float("nan")}},
        "text",
    ],
)
def test_only_notifications_and_requests_can_be_sent_from_a_handler(wrong: Any, inline: bool) -> None:
    raised: list[ValueError] = []

    def handler(message: Message, context: Context) -> Message:
        try:
            context.send(wrong)
        except ValueError as error:
            raised.append(error)
        return answer(message)

    harness = opened(handler, inline=inline)
    assert len(harness.exchange(harness.call())) == 1
    assert len(raised) == 1
    harness.close()


@pytest.mark.parametrize("inline", [False, True])
def test_a_handler_asks_its_client_and_is_called_with_the_answer(inline: bool) -> None:
    answers: SimpleQueue[Message] = SimpleQueue()

    def handler(message: Message, context: Context) -> Message | None:
        if message.get("id") == "q":
            answers.put(message)
            return None
        if message["method"] == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {}}
            return {"jsonrpc": "2.0", "id": message["id"], "result": result}
        if message["method"] == "tools/call":
            context.send({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
            return answer(message, answers.get(timeout=10)["result"]["roots"])
        return None

    with Client.direct(
        handler, protocol="2025-06-18", inline=inline, client_capabilities=["roots"], timeout=10
    ) as client:
        client.add_root("file:///srv", "srv")
        assert client.call_tool("x").unwrap() == {"value": [{"uri": "file:///srv", "name": "srv"}]}


# --- a client's notifications -----------------------------------------------------------------------------------


@both
def test_a_notification_is_handled_before_send_returns(inline: bool) -> None:
    seen: list[Message] = []
    contexts: list[Context] = []

    def handler(message: Message, context: Context) -> None:
        seen.append(message)
        contexts.append(context)
        context.send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    harness = opened(handler, auth="me", inline=inline)
    harness.notify("notifications/initialized")
    assert seen == [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
    assert contexts[0].auth == "me"
    assert contexts[0].cancelled
    assert harness.delivered == [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
    harness.close()


def test_a_notification_nobody_finishes_handling_holds_up_its_sender_until_the_deadline() -> None:
    gate = Gate()
    harness = opened(gate)
    start = time.monotonic()
    harness.notify("notifications/initialized", timeout=0.2)
    assert 0.2 <= time.monotonic() - start < 2.2
    assert gate.contexts[0].cancelled
    gate.go.set()
    harness.close()


@both
def test_a_notification_whose_handler_raises_or_answers_is_over(inline: bool, caplog: pytest.LogCaptureFixture) -> None:
    def handler(message: Message, context: Context) -> Any:
        if message["method"] == "notifications/raise":
            raise LookupError("told to the log only")
        return {"unasked": "for"}

    harness = opened(handler, inline=inline)
    harness.notify("notifications/raise")
    harness.notify("notifications/answer")
    assert [record.message for record in caplog.records] == [
        "the in-process server raised LookupError in notifications/raise"
    ]
    harness.close()


# --- failures ---------------------------------------------------------------------------------------------------


@both
def test_a_handler_that_raises_is_an_error_without_its_text(inline: bool, caplog: pytest.LogCaptureFixture) -> None:
    def handler(message: Message, context: Context) -> Message:
        raise ValueError("secret-in-the-exception")

    harness = opened(handler, inline=inline)
    error = harness.failure(harness.call())
    assert (error.reason, error.kind, error.code) == ("handler_failure", "execution", -32603)
    assert "the in-process server raised ValueError in tools/call" in error.message
    assert "secret" not in f"{error}{error!r}{error.data}{error.cause}{error.__cause__}{error.__context__}"
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("snodo_client.direct", logging.ERROR)
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError
    harness.close()


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_would_end_a_thread_is_a_failure_too(exception: type[BaseException]) -> None:
    def handler(message: Message, context: Context) -> Message:
        raise exception

    harness = opened(handler)
    assert harness.failure(harness.call()).reason == "handler_failure"
    harness.close()


@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit])
def test_an_interruption_of_an_inline_handler_reaches_the_caller(exception: type[BaseException]) -> None:
    contexts: list[Context] = []

    def handler(message: Message, context: Context) -> Message:
        contexts.append(context)
        raise exception

    harness = opened(handler, inline=True)
    with pytest.raises(exception):
        harness.exchange(harness.call())
    assert contexts[0].cancelled
    harness.close()


def test_a_raising_handler_leaves_the_next_call_alone() -> None:
    def handler(message: Message, context: Context) -> Message:
        if message["params"]["n"] % 2:
            raise ValueError
        return answer(message, message["params"]["n"])

    harness = opened(handler)
    for n in range(6):
        if n % 2:
            assert harness.failure(harness.call(n=n)).reason == "handler_failure"
        else:
            assert harness.result(n=n) == {"value": n}
    harness.close()


# --- deadlines and cancelling -----------------------------------------------------------------------------------


def test_the_deadline_holds_against_a_handler_that_hangs() -> None:
    gate = Gate()
    harness = opened(gate)
    call = harness.call(timeout=0.2)
    start = time.monotonic()
    error = harness.failure(call)
    assert 0.2 <= time.monotonic() - start < 2.2
    assert error.reason == "timeout"
    assert "the in-process server" in error.message
    assert gate.contexts[0].cancelled
    gate.go.set()
    until(lambda: idle(harness))
    assert call.backlog == 0  # the late answer went nowhere
    harness.close()


def idle(harness: Harness) -> int:
    assert isinstance(harness.transport, DirectTransport)
    return len(harness.transport._threads._idle)


def test_what_a_handler_sends_after_the_end_is_dropped() -> None:
    gate = Gate()
    harness = opened(gate)
    call = harness.call(timeout=0.05)
    harness.failure(call)
    gate.contexts[0].send({"jsonrpc": "2.0", "method": "notifications/message"})
    assert call.backlog == 0
    gate.go.set()
    harness.close()


def test_an_inline_handler_is_judged_after_it_returned() -> None:
    def handler(message: Message, context: Context) -> Message:
        context.send({"jsonrpc": "2.0", "method": "notifications/message"})
        time.sleep(0.06)
        return answer(message)

    harness = opened(handler, inline=True)
    exchange = harness.transport.exchange(harness.call(timeout=0.05))
    assert next(exchange)["method"] == "notifications/message"
    with pytest.raises(McpError) as caught:
        next(exchange)
    assert caught.value.reason == "timeout"
    harness.close()


def test_progress_can_keep_a_slow_inline_handler_alive() -> None:
    def handler(message: Message, context: Context) -> Message:
        time.sleep(0.06)
        context.send({"jsonrpc": "2.0", "method": "notifications/progress"})
        return answer(message)

    harness = opened(handler, inline=True)
    call = harness.call()
    call.deadline = Deadline(0.05, max_total=60)
    exchange = harness.transport.exchange(call)
    next(exchange)
    call.deadline.extend()
    assert "result" in next(exchange)
    harness.close()


def test_a_call_settled_by_another_thread_ends_at_once() -> None:
    gate = Gate()
    harness = opened(gate)
    call = harness.call()

    def settle() -> None:
        assert gate.inside.wait(10)
        call.finish(local_error("cancelled"))

    thread = threading.Thread(target=settle)
    thread.start()
    assert harness.failure(call).reason == "cancelled"
    assert gate.contexts[0].cancelled
    thread.join()
    gate.go.set()
    harness.close()


def test_letting_go_of_an_exchange_tells_the_handler() -> None:
    seen: list[bool] = []

    def handler(message: Message, context: Context) -> Message:
        context.send({"jsonrpc": "2.0", "method": "notifications/message"})
        until(lambda: context.cancelled)
        seen.append(context.cancelled)
        return answer(message)

    harness = opened(handler)
    exchange = harness.transport.exchange(harness.call())
    next(exchange)
    exchange.close()  # type: ignore[attr-defined]
    until(lambda: seen)
    harness.close()


def test_close_ends_the_calls_that_run_and_refuses_new_ones() -> None:
    gate = Gate()
    harness = opened(gate)
    call = harness.call()

    def close() -> None:
        assert gate.inside.wait(10)
        start = time.monotonic()
        harness.close()
        assert time.monotonic() - start < 2

    thread = threading.Thread(target=close)
    thread.start()
    assert harness.failure(call).reason == "closed"
    thread.join()
    assert gate.contexts[0].cancelled
    after = harness.call()
    assert harness.failure(after).reason == "closed"
    assert after.delivery == "not_sent"
    with pytest.raises(McpError) as caught:
        harness.notify("notifications/initialized")
    assert caught.value.reason == "closed"
    harness.close()
    gate.go.set()


# --- threads ----------------------------------------------------------------------------------------------------


def test_calls_in_a_row_share_one_thread() -> None:
    used: set[int] = set()

    def handler(message: Message, context: Context) -> Message:
        used.add(threading.get_ident())
        return answer(message)

    harness = opened(handler)
    for _ in range(20):
        harness.result()
        until(lambda: idle(harness))
    assert len(used) == 1
    assert threading.get_ident() not in used
    harness.close()


def test_there_is_no_limit_on_calls_at_once_and_few_threads_stay() -> None:
    together = threading.Barrier(40)

    def handler(message: Message, context: Context) -> Message:
        together.wait(10)
        return answer(message, message["params"]["n"])

    harness = opened(handler)
    results: dict[int, object] = {}

    def one(n: int) -> None:
        results[n] = harness.result(n=n)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: {"value": n} for n in range(40)}
    until(lambda: len(workers()) <= direct.MAX_IDLE + 2)
    harness.close()


@both
def test_a_handler_may_call_its_own_server(inline: bool) -> None:
    def handler(message: Message, context: Context) -> Message:
        depth = message["params"]["depth"]
        return answer(message, harness.result(depth=depth - 1)["value"] + 1 if depth else 0)

    harness = opened(handler, inline=inline)
    assert harness.result(depth=15) == {"value": 15}
    harness.close()


def test_idle_threads_go_away_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "IDLE_SECONDS", 0.01)
    harness = opened(lambda message, context: answer(message))
    for _ in range(50):
        harness.result()
    until(lambda: not workers())
    assert harness.result() == {"value": None}
    harness.close()


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def test_a_handler_runs_in_a_copy_of_the_callers_context() -> None:
    def handler(message: Message, context: Context) -> Message:
        seen = variable.get()
        variable.set("changed by the handler")
        return answer(message, seen)

    harness = opened(handler)
    for value in ("first", "second"):
        token = variable.set(value)
        assert harness.result() == {"value": value}
        assert variable.get() == value
        variable.reset(token)
    harness.close()


def test_an_inline_handler_runs_in_the_calling_thread_and_context() -> None:
    def handler(message: Message, context: Context) -> Message:
        variable.set("changed by the handler")
        return answer(message, threading.get_ident())

    harness = opened(handler, inline=True)
    token = variable.set("mine")
    assert harness.result() == {"value": threading.get_ident()}
    assert variable.get() == "changed by the handler"
    variable.reset(token)
    assert not workers()
    harness.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_threads_it_does_not_have() -> None:
    harness = opened(lambda message, context: answer(message, os.getpid()))
    harness.result()
    until(lambda: idle(harness))
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if harness.result(timeout=5) == {"value": os.getpid()} else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert harness.result() == {"value": os.getpid()}
    harness.close()


# --- arguments --------------------------------------------------------------------------------------------------


async def an_async_handler(message: Message, context: Context) -> Message:
    return answer(message)


class AsyncHandler:
    async def __call__(self, message: Message, context: Context) -> Message:
        return answer(message)


@pytest.mark.parametrize(
    "wrong",
    [None, "handler", {"tools": []}, object(), an_async_handler, functools.partial(an_async_handler), AsyncHandler()],
)
def test_a_handler_that_cannot_be_called_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="in-process server"):
        DirectTransport(wrong)


def test_what_the_session_must_know() -> None:
    traits = DirectTransport(lambda message, context: None).traits
    assert traits.eras == ("modern", "legacy")
    assert traits.cancel == "drop"
    assert not traits.mirrors_headers


def test_secrets_stay_out_of_representations() -> None:
    seen: list[str] = []

    def handler(message: Message, context: Context) -> Message:
        seen.append(repr(context))
        return answer(message)

    harness = opened(handler, auth="secret-token")
    harness.result()
    assert "secret-token" not in f"{seen}{harness.transport!r}{harness.link!r}"
    harness.close()
