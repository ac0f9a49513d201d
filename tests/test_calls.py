"""`ToolCall`: its outcome and the ways to ask for it, its future, what its callbacks raise, and where it runs."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, as_completed, wait
from contextvars import ContextVar
from threading import Event, Thread, current_thread
from time import monotonic
from typing import Any

import pytest

from snodo_client import Client, InputRequired, McpError, Ok, Progress
from snodo_client import calls as calls_module
from snodo_client.calls import ToolCall
from support.interleaving import KINDS, TALKING, halt, staged
from support.waiting import together, until

SCHEMA = {"type": "object", "properties": {}}
FORM = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": SCHEMA}}


def text_of(outcome: Any) -> str:
    text: str = outcome.unwrap()["content"][0]["text"]
    return text


def reason_of(outcome: Any) -> str | None:
    assert isinstance(outcome, McpError), outcome
    return outcome.reason


# -- the outcome


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_runs_while_its_caller_does_something_else(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client:
        handle = client.start_tool_call("t", {"a": 1})
        arrived = stage.arrived()
        assert (arrived.params["name"], arrived.params["arguments"]) == ("t", {"a": 1})
        assert not handle.done()
        assert repr(handle) == f"<ToolCall {handle.id} of 't', running>"
        arrived.answer("done")
        assert text_of(handle.result()) == "done"
        assert handle.done()
        assert repr(handle) == f"<ToolCall {handle.id} of 't', Ok>"
        assert handle.result() is handle.result(0)


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_a_wait_that_runs_out_cancels_nothing(timeout: float) -> None:
    with staged("stdio") as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        arrived = stage.arrived()
        before = monotonic()
        waited = handle.result(timeout)
        assert timeout <= monotonic() - before < timeout + 2
        assert isinstance(waited, McpError)
        assert (waited.reason, waited.data) == ("wait_timeout", {"timeout": timeout})
        assert not handle.done()
        arrived.answer()
        assert handle.result(10).ok
        stage.flush(client)
        assert arrived.cancellations == []


def test_done_tells_a_wait_that_ran_out_from_a_call_that_did() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        handle = client.start_tool_call("t", timeout=0.1)
        stage.arrived()
        assert reason_of(handle.result()) == "timeout"
        assert handle.done()


@pytest.mark.parametrize("kind", ["direct", "stdio", "http-json"])
def test_any_number_of_threads_may_wait_and_all_get_the_same(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        arrived = stage.arrived()
        got: list[Any] = []
        waiting = [Thread(target=lambda: got.append(handle.result(20)), daemon=True) for _ in range(16)]
        for thread in waiting:
            thread.start()
        until(lambda: len(handle._waiting._flags) == 16)
        arrived.answer()
        for thread in waiting:
            thread.join(10)
        assert len(got) == 16
        assert {id(each) for each in got} == {id(handle.result())}


def test_an_error_of_the_server_is_the_outcome() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        arrived = stage.arrived()
        arrived.say({"id": arrived.id, "error": {"code": -32602, "message": "no such tool"}})
        outcome = handle.result(10)
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.reason) == (-32602, None)


def test_what_needs_input_is_the_outcome_where_nobody_answers() -> None:
    with staged("stdio") as stage, stage.connect(client_capabilities=["elicitation"]) as client:
        handle = client.start_tool_call("t")
        stage.arrived().ask(q=FORM)
        outcome = handle.result(10)
        assert isinstance(outcome, InputRequired)
        again = client.start_tool_call(
            "t", input_responses={"q": {"action": "accept", "content": {}}}, request_state=outcome.request_state
        )
        assert stage.arrived(2).params["inputResponses"] == {"q": {"action": "accept", "content": {}}}
        stage.arrived(2).answer()
        assert again.result(10).ok


def test_the_timeout_counts_from_the_start() -> None:
    with staged("stdio") as stage:
        stage.gate.clear()
        client = stage.connect(wait=False, protocol="auto")
        before = monotonic()
        handle = client.start_tool_call("t", timeout=0.3)
        assert reason_of(handle.result(10)) == "timeout"
        assert 0.3 <= monotonic() - before < 2.3
        stage.gate.set()
        client.await_ready(10)
        assert stage.calls == []


@pytest.mark.parametrize("kind", ["direct", "stdio", "http-stream", "websocket-legacy"])
def test_dropping_the_handle_does_not_end_the_call(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client:
        ended = Event()

        def progress(_: Progress) -> None:
            raise AssertionError

        client.start_tool_call("t", progress=progress).future.add_done_callback(lambda _: ended.set())
        kept = weakref.ref(progress)
        del progress
        arrived = stage.arrived()
        gc.collect()
        assert kept() is not None
        arrived.answer()
        assert ended.wait(10)
        until(lambda: gc.collect() >= 0 and kept() is None)  # nothing keeps what it had
        assert stage.cancellations == []


def test_a_client_lives_as_long_as_its_calls() -> None:
    with staged("stdio") as stage:
        handle = stage.connect().start_tool_call("t")
        arrived = stage.arrived()
        stage.clients.clear()
        gc.collect()
        arrived.answer("still here")
        assert text_of(handle.result(10)) == "still here"
        del handle
        gc.collect()


def test_a_closed_client_gives_a_handle_with_its_error() -> None:
    with staged("stdio") as stage:
        client = stage.connect()
        client.close()
        handle = client.start_tool_call("t")
        assert reason_of(handle.result(10)) == "closed"
        assert handle.cancel().local == "finished"


# -- wrong arguments


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": 0}, ValueError),
        ({"timeout": math.nan}, ValueError),
        ({"timeout": True}, TypeError),
        ({"timeout": "1"}, TypeError),
        ({"progress": 3}, TypeError),
        ({"meta": []}, TypeError),
        ({"meta": {"progressToken": 1}, "progress": print}, ValueError),
        ({"nonsense": 1}, TypeError),
        ({"arguments": {"a": math.nan}}, ValueError),
        ({"arguments": {"a": b"bytes"}}, ValueError),
        ({"arguments": []}, TypeError),
        ({"cache": "perhaps"}, ValueError),
        ({"answer_input": 1}, TypeError),
        ({"max_total_timeout": -1}, ValueError),
        ({"tool": 5}, TypeError),
        ({"tool": {"description": "no name"}}, TypeError),
    ],
    ids=str,
)
def test_wrong_arguments_are_raised_where_the_call_is_started(options: dict[str, Any], error: type[Exception]) -> None:
    with staged("direct") as stage, stage.connect() as client:
        with pytest.raises(error):
            client.start_tool_call(**{"tool": "t", **options})
        assert client.cancel_all() == []
        assert stage.calls == []


@pytest.mark.parametrize(
    ("wrong", "error"),
    [(-1, ValueError), (math.nan, ValueError), (True, TypeError), ("1", TypeError), (None, TypeError)],
)
def test_wrong_times_to_wait(wrong: Any, error: type[Exception]) -> None:
    with staged("stdio") as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        arrived = stage.arrived()
        if wrong is not None:  # which is for ever
            with pytest.raises(error):
                handle.result(wrong)
        with pytest.raises(error):
            handle.cancel(notification_timeout=wrong)
        with pytest.raises(error):
            client.cancel_all(notification_timeout=wrong)
        for reason in (None, 1, b"x"):
            with pytest.raises(TypeError):
                handle.cancel(reason)  # type: ignore[arg-type]
        for cancel in (handle.cancel, client.cancel_all):
            with pytest.raises(ValueError, match="surrogate"):
                cancel("\ud800")
        assert not handle.done()
        arrived.answer()
        assert handle.result(10).ok
        assert stage.cancellations == []


def test_no_time_to_wait_for_the_notification_and_all_the_time_there_is() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        one, other = client.start_tool_call("one"), client.start_tool_call("other")
        stage.arrived(2)
        assert one.cancel(notification_timeout=math.inf).notification_delivery == "accepted"
        before = monotonic()
        assert other.cancel(notification_timeout=0).local == "cancelled"
        assert monotonic() - before < 2


# -- what callbacks raise


class Oops(Exception):
    pass


@pytest.mark.parametrize("kind", TALKING)
def test_what_progress_raises_reaches_whoever_asks(kind: str) -> None:
    def fail(_: Progress) -> None:
        raise Oops(current_thread().name)

    with staged(kind) as stage, stage.connect() as client:
        handle = client.start_tool_call("t", progress=fail)
        future = handle.future
        arrived = stage.arrived()
        arrived.progress()
        for _ in range(2):
            with pytest.raises(Oops, match="snodo-call"):
                handle.result(10)
        with pytest.raises(Oops):
            future.result(10)
        assert isinstance(future.exception(), Oops)
        assert handle.done()
        assert handle.cancel().local == "finished"
        if stage.modern and kind != "stdio":
            assert arrived.dropped.wait(10)
        else:
            until(lambda: arrived.cancellations)
        after = client.start_tool_call("after")
        stage.arrived(2).answer()
        assert after.result(10).ok


def test_what_a_handler_raises_reaches_whoever_asks() -> None:
    def fail(_: Any) -> dict[str, Any]:
        raise Oops

    with staged("stdio") as stage, stage.connect(handlers={"form": fail}) as client:
        handle = client.start_tool_call("t")
        stage.arrived().ask(q=FORM)
        with pytest.raises(Oops):
            handle.result(10)
        with pytest.raises(Oops):
            handle.future.result(10)
        stage.flush(client)
        assert stage.arrived().cancellations == []  # it was answered


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_whatever_it_is_that_is_raised(raised: type[BaseException]) -> None:
    def fail(_: Progress) -> None:
        raise raised

    with staged("stdio") as stage, stage.connect() as client:
        handle = client.start_tool_call("t", progress=fail)
        stage.arrived().progress()
        with pytest.raises(raised):
            handle.result(10)
        assert type(handle.future.exception(10)) is raised


def test_a_callback_that_raises_after_the_call_is_cancelled_is_not_heard() -> None:
    held, go_on = Event(), Event()

    def fail(_: Progress) -> None:
        held.set()
        go_on.wait(20)
        raise Oops

    with staged("stdio") as stage, stage.connect() as client:
        handle = client.start_tool_call("t", progress=fail)
        stage.arrived().progress()
        assert held.wait(10)
        handle.cancel()
        assert reason_of(handle.result(0)) == "cancelled"
        go_on.set()
        until(lambda: not client._session._live)
        assert reason_of(handle.result(0)) == reason_of(handle.future.result(10)) == "cancelled"


def test_a_callback_may_cancel_its_own_call() -> None:
    handles: list[ToolCall] = []
    with staged("stdio") as stage, stage.connect() as client:
        ready = Event()

        def cancel(_: Progress) -> None:
            ready.wait(10)
            handles[0].cancel()

        handles.append(client.start_tool_call("t", progress=cancel))
        ready.set()
        arrived = stage.arrived()
        arrived.progress()
        assert reason_of(handles[0].result(10)) == "cancelled"
        until(lambda: arrived.cancellations)


# -- futures


def test_a_future_is_the_same_every_time_and_done_when_the_call_is() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        future = handle.future
        assert isinstance(future, Future)
        assert handle.future is future
        assert (future.running(), future.done(), future.cancelled()) == (True, False, False)
        stage.arrived().answer()
        assert future.result(10) is handle.result(10)
        late = client.start_tool_call("late")
        stage.arrived(2).answer()
        late.result(10)
        threads = threading.active_count()
        assert late.future.done()  # asked for only now
        assert late.future.result(0) is late.result()
        assert threading.active_count() <= threads


def test_cancelling_the_future_cancels_the_call_and_says_whether() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        arrived = stage.arrived()
        assert handle.future.cancel() is True
        assert handle.future.cancel() is False
        assert reason_of(handle.future.result(10)) == "cancelled"
        assert handle.result(0) is handle.future.result()
        assert handle.future.cancelled() is False  # there is a result
        until(lambda: arrived.cancellations)
        done = client.start_tool_call("done")
        stage.arrived(2).answer()
        done.result(10)
        assert done.future.cancel() is False
        assert done.future.result(0).ok


def test_as_completed_gives_calls_in_the_order_of_their_ends() -> None:
    with staged("http-json") as stage, stage.connect() as client:
        handles = {client.start_tool_call(f"t{n}").future: n for n in range(3)}
        stage.arrived(3)
        by_name = {each.params["name"]: each for each in stage.calls}
        ended = as_completed(handles, timeout=10)
        for number in (2, 0, 1):
            by_name[f"t{number}"].answer(str(number))
            assert text_of(next(ended).result()) == str(number)


@pytest.mark.parametrize("when", [FIRST_COMPLETED, FIRST_EXCEPTION])
def test_wait_for_the_first(when: str) -> None:
    with staged("stdio") as stage, stage.connect() as client:
        one, other = client.start_tool_call("one", progress=_raise), client.start_tool_call("other")
        stage.arrived(2)
        first = next(each for each in stage.calls if each.params["name"] == "one")
        first.progress()
        done, rest = wait([one.future, other.future], timeout=10, return_when=when)
        assert (done, rest) == ({one.future}, {other.future})
        assert wait([other.future], timeout=0.05).not_done == {other.future}


def _raise(_: Progress) -> None:
    raise Oops


def test_done_callbacks_run_when_the_call_ends_whoever_ends_it() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        for number, end in enumerate(("answer", "cancel", "close"), 1):
            handle = client.start_tool_call("t")
            arrived = stage.arrived(number)
            heard: list[Any] = []
            handle.future.add_done_callback(lambda future, heard=heard: heard.append(future.result()))  # type: ignore[misc]
            ends: dict[str, Callable[[], Any]] = {
                "answer": arrived.answer,
                "cancel": handle.cancel,
                "close": client.close,
            }
            ends[end]()
            until(lambda heard=heard: heard)  # type: ignore[misc]
            assert heard == [handle.result(0)]
            late: list[Any] = []
            handle.future.add_done_callback(late.append)
            assert late == [handle.future]


def test_an_event_loop_can_await_a_call() -> None:
    with staged("stdio") as stage, stage.connect() as client:

        async def main() -> None:
            handle = client.start_tool_call("t")
            waiting = asyncio.wrap_future(handle.future)
            loop = asyncio.get_running_loop()
            loop.call_later(0.01, lambda: stage.arrived().answer("awaited"))
            assert text_of(await asyncio.wait_for(waiting, 10)) == "awaited"

        asyncio.run(main())


@pytest.mark.parametrize("kind", ["stdio", "http-json", "http-legacy"])
def test_cancelling_the_task_that_awaits_a_call_cancels_the_call(kind: str) -> None:
    with staged(kind) as stage, stage.connect() as client:

        async def main() -> ToolCall:
            handle = client.start_tool_call("t")

            async def ask() -> Any:
                return await asyncio.wrap_future(handle.future)

            task = asyncio.create_task(ask())
            await asyncio.sleep(0)  # it awaits from here on
            await asyncio.to_thread(stage.arrived)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return handle

        handle = asyncio.run(main())
        assert reason_of(handle.result(10)) == "cancelled"
        arrived = stage.arrived()
        until(lambda: arrived.dropped.is_set() if kind == "http-json" else arrived.cancellations)


def test_an_event_loop_is_not_held_up_by_a_server_that_does_not_read() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        go_on = halt(client)
        try:
            handle = client.start_tool_call("t", {"data": "x" * 1_000_000})
            until(lambda: handle._call.delivery == "unknown")
            before = monotonic()
            assert handle.future.cancel() is True
            assert monotonic() - before < 0.5
        finally:
            go_on()


def test_handles_as_a_pool_of_work() -> None:
    def add(message: Any, _: Any) -> Any:
        total = sum(message["params"]["arguments"].values())
        content = {"content": [], "structuredContent": total, "resultType": "complete"}
        return {"jsonrpc": "2.0", "id": message["id"], "result": content}

    with Client.direct(add, protocol="2026-07-28") as client:
        futures = [client.start_tool_call("add", {"a": n, "b": 1}).future for n in range(100)]
        totals = [future.result().unwrap()["structuredContent"] for future in as_completed(futures, timeout=30)]
        assert sorted(totals) == list(range(1, 101))


# -- cancelling all


def test_cancel_all_ends_every_call_of_the_client_and_of_no_other() -> None:
    with staged("stdio") as stage, stage.connect() as client, stage.connect() as bystander:
        innocent = bystander.start_tool_call("innocent")
        stage.arrived()
        handles = [client.start_tool_call(f"h{n}") for n in range(3)]
        outcomes: list[Any] = []
        jobs: list[Callable[[], Any]] = [
            lambda: client.call_tool("b"),
            lambda: client.request("tools/call", {"name": "r"}),
        ]
        blocking = [Thread(target=lambda job=job: outcomes.append(job()), daemon=True) for job in jobs]
        for thread in blocking:
            thread.start()
        stage.arrived(6)
        reports = client.cancel_all("enough")
        assert [(each.local, each.notification_delivery) for each in reports] == [("cancelled", "accepted")] * 5
        for thread in blocking:
            thread.join(10)
        for outcome in [*outcomes, *(handle.result(0) for handle in handles)]:
            assert reason_of(outcome) == "cancelled"
            assert "enough" in outcome.message
        assert len(outcomes) == 2
        until(lambda: len(stage.cancellations) == 5)
        assert not innocent.done()
        stage.arrived(1).answer()
        assert innocent.result(10).ok
        assert client.cancel_all() == []


def test_cancel_all_ends_calls_that_wait_for_the_negotiation() -> None:
    with staged("stdio") as stage:
        stage.gate.clear()
        client = stage.connect(wait=False, protocol="auto")
        until(lambda: stage.asked)
        handle = client.start_tool_call("t")
        reports = client.cancel_all()
        assert [(each.request_delivery, each.notification_delivery) for each in reports] == [("not_sent", "not_needed")]
        assert reason_of(handle.result(0)) == "cancelled"
        stage.gate.set()
        client.await_ready(10).unwrap()
        after = client.start_tool_call("after")
        stage.arrived().answer()
        assert after.result(10).ok
        assert [each.params["name"] for each in stage.calls] == ["after"]


@pytest.mark.parametrize("cache", [None, True])
def test_a_blocking_call_that_waits_for_the_negotiation_returns_at_once(cache: bool | None) -> None:
    with staged("stdio") as stage:
        stage.gate.clear()
        client = stage.connect(wait=False, protocol="auto", cache=cache)
        until(lambda: stage.asked)
        outcomes: list[Any] = []
        caller = Thread(target=lambda: outcomes.append(client.call_tool("t")), daemon=True)
        caller.start()
        until(lambda: client._session._live)
        before = monotonic()
        assert [each.local for each in client.cancel_all()] == ["cancelled"]
        caller.join(10)
        assert monotonic() - before < 2
        assert [reason_of(outcome) for outcome in outcomes] == ["cancelled"]
        stage.gate.set()
        client.await_ready(10).unwrap()
        assert stage.calls == []


# -- where it runs

LANGUAGE: ContextVar[str] = ContextVar("language", default="none")


@pytest.mark.parametrize("kind", ["direct", "stdio", "http-stream"])
def test_callbacks_see_the_context_of_the_start(kind: str) -> None:
    seen: list[tuple[str, str]] = []

    def look(_: Any) -> dict[str, Any]:
        seen.append((LANGUAGE.get(), current_thread().name))
        LANGUAGE.set("changed there")
        return {"action": "decline"}

    with staged(kind) as stage, stage.connect(handlers={"form": look}) as client:
        token = LANGUAGE.set("at the start")
        try:
            handle = client.start_tool_call("t", progress=look)
            LANGUAGE.set("later")
            stage.arrived().progress()
            stage.arrived().ask(q=FORM)
            stage.arrived(2).answer()
            handle.result(10).unwrap()
            assert seen == [("at the start", "snodo-call"), ("changed there", "snodo-call")]
            assert LANGUAGE.get() == "later"
        finally:
            LANGUAGE.reset(token)


def test_calls_run_on_daemon_threads_that_end_with_them() -> None:
    with staged("stdio") as stage, stage.connect() as client:
        handles = [client.start_tool_call("t") for _ in range(5)]
        stage.arrived(5)
        ours = [thread for thread in threading.enumerate() if thread.name == "snodo-call"]
        assert len(ours) >= 5
        assert all(thread.daemon for thread in ours)
        client.cancel_all()
        assert all(handle.done() for handle in handles)
        until(lambda: not any(thread.is_alive() for thread in ours))


def test_no_thread_left_is_the_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    with staged("stdio") as stage, stage.connect() as client:
        with monkeypatch.context() as limit:

            def refuse(*_: Any, **__: Any) -> None:
                raise RuntimeError("can't start new thread")

            limit.setattr(Thread, "start", refuse)
            handle = client.start_tool_call("t")
            assert handle.done()
            outcome = handle.result(0)
            assert isinstance(outcome, McpError)
            assert (outcome.reason, "can't start new thread" in outcome.message) == ("transport_failure", True)
            assert handle.future.result(0) is outcome
            assert handle.cancel().local == "finished"
            assert client.cancel_all() == []
        assert stage.calls == []
        after = client.start_tool_call("after")
        stage.arrived().answer()
        assert after.result(10).ok


def test_no_thread_left_to_tell_a_future(monkeypatch: pytest.MonkeyPatch) -> None:
    with staged("stdio") as stage, stage.connect() as client:
        handle = client.start_tool_call("t")
        future = handle.future
        stage.arrived()

        def refuse(*_: Any, **__: Any) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as limit:
            limit.setattr(calls_module, "start_new_thread", refuse)
            limit.setattr(Thread, "start", refuse)  # there is none to send the notification either
            report = handle.cancel(notification_timeout=0.1)
            assert report.local == "cancelled"
            assert report.notification_delivery in ("failed", "timeout")
            assert reason_of(future.result(0)) == "cancelled"


def test_many_handles_at_once() -> None:
    with staged("stdio") as stage, stage.connect() as client:

        def answer() -> None:
            for number in range(1, 201):
                arrived = stage.arrived(number)
                arrived.answer(arrived.params["arguments"]["own"])

        answering = Thread(target=answer, daemon=True)
        answering.start()

        def work(first: int) -> None:
            handles = [client.start_tool_call("t", {"own": str(n)}) for n in range(first, first + 25)]
            for number, handle in enumerate(handles, first):
                assert text_of(handle.result(30)) == str(number)

        together([lambda first=first: work(first) for first in range(0, 200, 25)])  # type: ignore[misc]
        answering.join(10)
        assert len({each.id for each in stage.calls}) == 200


def test_ids_are_never_used_twice() -> None:
    def answer(message: Any, _: Any) -> Any:
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", "content": []}}

    with Client.direct(answer, protocol="2026-07-28") as client:
        ids = [client.start_tool_call("t").id for _ in range(20)]
        assert len(set(ids)) == 20
        assert isinstance(client.start_tool_call("t").result(10), Ok)
