"""What is tested of servers made with the Python SDKs, in the process of the client.

``python -m support.direct_sdk mcp`` (or ``fastmcp``) runs every scenario in an environment that has these SDKs and
prints a line of JSON for each: its name, and the traceback when it failed. `SCENARIOS` is what there is.
"""

from __future__ import annotations

import asyncio
import contextvars
import faulthandler
import json
import logging
import os
import sys
import threading
import time
import traceback
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from snodo_client.outcome import McpError
from snodo_client.transports import sdk
from snodo_client.transports.sdk import SdkTransport
from support.direct_harness import Harness, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    E = TypeVar("E", bound=Exception)
    Scenario = Callable[["Lab"], None]

SECONDS = 90  # for all scenarios of one SDK together

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


class Lab:
    """Makes servers and links of one SDK, and keeps what happens in them."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.events: list[object] = []
        self.started = threading.Event()
        self.go = threading.Event()
        self.nested: Harness | None = None
        self._open: list[Harness] = []
        self._log = logging.getLogger("snodo_client.direct")
        self._log.propagate = False
        self._log.handlers = [_Kept(self.events)]

    def server(self, *, on_start: BaseException | None = None, slow_end: bool = False) -> Any:
        if self.kind == "mcp":
            from mcp.server import MCPServer as Server
        else:
            from fastmcp import FastMCP as Server

        @asynccontextmanager
        async def lifespan(_: object) -> AsyncIterator[dict[str, object]]:
            if on_start is not None:
                raise on_start
            task = asyncio.current_task()
            self.events.append("started")
            yield {}
            self.events.append("ended in the same task" if asyncio.current_task() is task else "ended elsewhere")
            if slow_end:
                await asyncio.sleep(60)

        server = Server(self.kind, lifespan=lifespan)

        @server.tool()
        def echo(text: str) -> str:
            return text

        @server.tool()
        async def context() -> str:
            return variable.get()

        @server.tool()
        async def wait() -> str:
            self.started.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.events.append("cancelled")
                raise
            return "waited"

        @server.tool()
        async def hold_the_loop() -> str:
            self.started.set()
            assert self.go.wait(10)
            return "held"

        @server.tool()
        async def leave() -> str:
            sys.exit(3)

        @server.tool()
        async def nested_on_the_loop() -> str:
            return self._nested()

        @server.tool()
        def nested_on_a_thread() -> str:
            return self._nested()

        @server.tool()
        async def close() -> str:
            assert self.nested is not None
            self.nested.close()
            return "closed"

        return server

    def _nested(self) -> str:
        assert self.nested is not None
        try:
            return self.nested.text("echo", text="from inside")
        except RuntimeError as error:
            return f"RuntimeError: {error}"

    def open(self, server: Any = None, timeout: float = 10) -> Harness:
        harness = Harness(SdkTransport(server or self.server()), timeout)
        self._open.append(harness)
        return harness

    def end(self) -> None:
        self.go.set()
        for harness in self._open:
            harness.close()


class _Kept(logging.Handler):
    def __init__(self, events: list[object]) -> None:
        super().__init__()
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        assert record.exc_info is not None
        self._events.append(f"{record.levelname}: {record.getMessage()}")


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "snodo-loop"]


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def raised(kind: type[E], function: Callable[[], object]) -> E:
    """What the function raises: this environment has no pytest."""
    try:
        function()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


# --- scenarios --------------------------------------------------------------------------------------------------


def modern_requests_are_answered(lab: Lab) -> None:
    harness = lab.open()
    discovered = harness.result("server/discover")
    assert "2026-07-28" in discovered["supportedVersions"]
    assert "echo" in [tool["name"] for tool in harness.result("tools/list")["tools"]]
    assert harness.text("echo", text="ß \U0001f600") == "ß \U0001f600"


def a_servers_error_is_its_answer(lab: Lab) -> None:
    harness = lab.open()
    (response,) = harness.exchange(harness.call("no/such/method"))
    assert response["error"]["code"] == -32601


def delivery_is_true(lab: Lab) -> None:
    harness = lab.open()
    call = harness.call(name="echo", arguments={"text": "x"})
    assert call.delivery == "not_sent"
    harness.exchange(call)
    assert call.delivery == "accepted"


def the_lifespan_is_open_in_one_task_until_close(lab: Lab) -> None:
    harness = lab.open()
    for n in range(5):
        assert harness.text("echo", text=str(n)) == str(n)
    assert lab.events == ["started"]
    harness.close()
    assert lab.events == ["started", "ended in the same task"]
    assert [error.reason for error in harness.losses] == ["closed"]
    assert loop_threads() == []


def close_may_be_repeated_and_refuses_what_comes_after(lab: Lab) -> None:
    harness = lab.open()
    threads = [in_thread(harness.close) for _ in range(4)]
    harness.close()
    for thread in threads:
        thread.join()
    call = harness.call(name="echo", arguments={"text": "x"})
    assert harness.failure(call).reason == "closed"
    assert call.delivery == "not_sent"
    assert raised(McpError, lambda: harness.notify("notifications/initialized")).reason == "closed"


def close_ends_calls_that_wait(lab: Lab) -> None:
    harness = lab.open()
    call = harness.call(name="wait", arguments={})
    closing = in_thread(lambda: (lab.started.wait(10), harness.close()))
    start = time.monotonic()
    assert harness.failure(call).reason == "closed"
    assert time.monotonic() - start < 5
    closing.join(10)
    assert "cancelled" in lab.events
    assert "ended in the same task" in lab.events


def close_is_bounded_when_the_lifespan_does_not_end(lab: Lab) -> None:
    harness = lab.open(lab.server(slow_end=True))
    harness.text("echo", text="x")
    start = time.monotonic()
    harness.close(timeout=0.4)
    assert time.monotonic() - start < 2.4
    until(lambda: not loop_threads())


def threads_do_not_mix_answers(lab: Lab) -> None:
    harness = lab.open()
    wrong: list[object] = []

    def work(name: int) -> None:
        for n in range(10):
            if harness.text("echo", text=f"{name}-{n}") != f"{name}-{n}":
                wrong.append((name, n))

    threads = [in_thread(lambda name=name: work(name)) for name in range(16)]  # type: ignore[misc]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert wrong == []


def the_deadline_holds_and_cancelling_reaches_the_tool(lab: Lab) -> None:
    harness = lab.open()
    call = harness.call(name="wait", arguments={}, timeout=0.3)
    start = time.monotonic()
    error = harness.failure(call)
    assert 0.3 <= time.monotonic() - start < 2.3
    assert error.reason == "timeout"
    assert f"the in-process server {lab.kind!r}" in error.message
    assert call.delivery == "accepted"
    harness.notify("notifications/cancelled", requestId=call.wire_id)
    until(lambda: "cancelled" in lab.events)
    assert harness.text("echo", text="next") == "next"


def a_busy_loop_holds_nobody_beyond_the_deadline(lab: Lab) -> None:
    harness = lab.open()
    busy = in_thread(lambda: harness.text("hold_the_loop"))
    assert lab.started.wait(10)
    call = harness.call(name="echo", arguments={"text": "withdrawn"}, timeout=0.2)
    start = time.monotonic()
    assert harness.failure(call).reason == "timeout"
    assert call.delivery == "not_sent"
    notified = raised(McpError, lambda: harness.notify("notifications/initialized", timeout=0.2))
    opened = raised(McpError, lambda: lab.open(timeout=0.2))
    assert (notified.reason, opened.reason) == ("timeout", "timeout")
    assert 0.6 <= time.monotonic() - start < 2.6
    lab.go.set()
    busy.join(10)
    assert harness.text("echo", text="next") == "next"


def a_call_on_the_loops_own_thread_is_refused(lab: Lab) -> None:
    lab.nested = harness = lab.open()
    assert harness.text("nested_on_the_loop").startswith("RuntimeError: a blocking call on the event loop thread")
    assert harness.text("nested_on_a_thread") == "from inside"


def a_tool_may_close_its_own_client(lab: Lab) -> None:
    lab.nested = harness = lab.open()
    start = time.monotonic()
    assert harness.failure(harness.call(name="close", arguments={})).reason == "closed"
    assert time.monotonic() - start < 5
    until(lambda: not loop_threads())


def calls_work_from_a_thread_with_a_running_loop(lab: Lab) -> None:
    harness = lab.open()

    async def main() -> tuple[str, str]:
        return harness.text("echo", text="blocking"), await asyncio.to_thread(harness.text, "echo", text="in a thread")

    assert asyncio.run(main()) == ("blocking", "in a thread")


def handlers_see_the_callers_context(lab: Lab) -> None:
    harness = lab.open()
    for value in ("first", "second"):
        token = variable.set(value)
        assert harness.text("context") == value
        variable.reset(token)
    assert harness.text("context") == "unset"


def a_server_that_cannot_start_is_lost_with_the_reason(lab: Lab) -> None:
    harness = lab.open(lab.server(on_start=LookupError("secret-in-the-exception")))
    error = harness.failure(harness.call(name="echo", arguments={"text": "x"}))
    assert error.reason == "closed"
    assert "raised LookupError" in error.message
    assert "secret" not in str(error)
    assert lab.events == [f"ERROR: {error.message.partition(' (')[0]}"]
    assert len(harness.losses) == 1


def a_server_that_exits_ends_itself_only(lab: Lab) -> None:
    other, harness = lab.open(lab.server()), lab.open(lab.server())
    other.text("echo", text="x")
    error = harness.failure(harness.call(name="leave", arguments={}))
    assert error.reason == "closed"
    assert "raised SystemExit" in error.message
    assert harness.failure(harness.call(name="echo", arguments={"text": "x"})).reason == "closed"
    assert other.text("echo", text="still here") == "still here"


def a_transport_can_be_opened_again(lab: Lab) -> None:
    first = lab.open()
    first.failure(first.call(name="leave", arguments={}))
    again = Harness(first.transport)
    assert again.text("echo", text="again") == "again"
    again.close()


def links_of_one_server_are_independent(lab: Lab) -> None:
    server = lab.server()
    first, second = lab.open(server), lab.open(server)
    assert first.text("echo", text="1") == "1"
    assert second.text("echo", text="2") == "2"
    assert len(loop_threads()) == 1
    first.close()
    assert second.text("echo", text="still here") == "still here"
    second.close()
    assert loop_threads() == []


def nothing_is_left_after_many_links(lab: Lab) -> None:
    server = lab.server()

    def cycle() -> None:
        harness = lab.open(server)
        harness.text("echo", text="x")
        harness.close()

    def descriptors() -> int:
        return len(os.listdir("/dev/fd"))

    cycle()
    threads, before = THREADS_AT_START, descriptors()
    for _ in range(30):
        cycle()
    until(lambda: threading.active_count() == threads)
    assert descriptors() == before


def a_forked_child_has_a_loop_of_its_own(lab: Lab) -> None:
    server = lab.server()
    harness = lab.open(server)
    assert harness.text("echo", text="parent") == "parent"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            forked = harness.failure(harness.call(name="echo", arguments={"text": "x"}, timeout=5))
            own = lab.open(server)
            good = own.text("echo", text="child", timeout=5) == "child" and forked.reason == "forked"
            own.close()
            harness.close()
            code = 0 if good and not loop_threads() else 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert harness.text("echo", text="parent again") == "parent again"


def what_is_no_json_fails_its_call_only(lab: Lab) -> None:
    harness = lab.open(_lowlevel_with("a lone \ud800 surrogate"))
    error = harness.failure(harness.call(name="any", arguments={}))
    assert error.reason == "malformed"
    assert harness.result("server/discover")["supportedVersions"]


def _lowlevel_with(text: str) -> Any:
    """A lowlevel server whose only tool answers with the text."""
    import mcp_types
    from mcp.server.lowlevel import Server

    async def call_tool(context: object, params: object) -> Any:
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=text)])

    return Server("lowlevel", on_call_tool=call_tool)


def server_objects_are_recognized(lab: Lab) -> None:
    server = lab.server()
    lowlevel = _lowlevel_with("x")
    assert sdk.is_server(server)
    assert sdk.is_server(lowlevel)
    assert sdk.is_server(type("Derived", (type(server),), {})("derived"))
    for other in (type(server), server.run, lab, None, "mcp", sdk):
        assert not sdk.is_server(other)


def options_of_callables_are_refused(lab: Lab) -> None:
    server = lab.server()
    error = raised(ValueError, lambda: SdkTransport(server, auth="secret-token"))
    assert "auth=" in str(error)
    assert "secret-token" not in str(error)
    assert "inline=" in str(raised(ValueError, lambda: SdkTransport(server, inline=True)))


SCENARIOS: dict[str, Scenario] = {
    name: value
    for name, value in list(globals().items())
    if callable(value)
    and getattr(value, "__module__", "") == __name__
    and getattr(value, "__annotations__", {}).get("lab")
}

THREADS_AT_START = threading.active_count()


def main(kind: str) -> None:
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    logging.disable(logging.INFO)
    for name, scenario in SCENARIOS.items():
        lab = Lab(kind)
        try:
            try:
                scenario(lab)
            finally:
                lab.end()
                until(lambda: not loop_threads())
            failure = None
        except Exception:
            failure = traceback.format_exc()
        print(json.dumps({"name": name, "failure": failure}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
