"""The interpreter exits whatever a client of the current revision is doing: soon, quietly, with the right code, and
without leaving a server behind. Those of older revisions have `test_legacy_exits`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

from support.alive import named
from support.http_calls import Took
from support.waiting import until

TESTS = Path(__file__).parents[1]
KINDS = ("direct", "stdio", "http")
EXIT_SECONDS = 3.0
BUSY = 1.0  # the machine

PROGRAM = dedent(
    """
    import os, socket, sys, threading
    from pathlib import Path
    from snodo_client import Client, ConnectSpec
    from snodo_client.testing.demo import demo_server

    kind = sys.argv[1]
    stubborn = [str(Path({tests!r}, "support", "stdio_servers", "stubborn.py")), "no-eof", "no-term", "child-no-term"]
    stubborn.append(f"of={{os.getpid()}}")
    server = demo_server()
    running, never = threading.Event(), threading.Event()

    def connect(**options):
        options.setdefault("protocol", "2026-07-28")
        if kind == "direct":
            return Client.direct(server, **options)
        if kind == "http":
            return Client.connect(server.serve_http().url, **options)
        return Client.connect(("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"]), **options)

    def start(target, *arguments, **keywords):
        threading.Thread(target=target, args=arguments, kwargs=keywords, daemon=True).start()

    def told(step):
        running.set()

    def count(client):  # a call that runs once `running` is set
        client.call_tool("count", {{"steps": 10_000_000}}, progress=told, timeout=float("inf"))

    def leave():
        sys.stdout.write("here")
        sys.stdout.flush()
        sys.exit(7)
    """
)

STATES = {
    "idle": """
        client = connect()
        assert client.call_tool("add", {"a": 1, "b": 1}).ok
    """,
    "a call in a daemon thread": """
        client = connect()
        start(count, client)
        assert running.wait(10)
    """,
    "calls that wait": """
        client = connect()
        start(count, client)
        for _ in range(8):
            start(client.call_tool, "sleep", {"seconds": 60}, timeout=float("inf"))
        assert running.wait(10)
    """,
    "calls with handles": """
        client = connect()
        calls = [client.start_tool_call("sleep", {"seconds": 60}, timeout=float("inf")) for _ in range(8)]
        calls.append(client.start_tool_call("count", {"steps": 10_000_000}, progress=told))
        assert running.wait(10)
    """,
    "a handle that is waited for": """
        client = connect()
        call = client.start_tool_call("count", {"steps": 10_000_000}, progress=told)
        start(call.result)
        start(call.future.result)
        assert running.wait(10)
    """,
    "a cancelled handle": """
        client = connect()
        call = client.start_tool_call("count", {"steps": 10_000_000}, progress=told)
        assert running.wait(10)
        call.cancel("enough")
    """,
    "a progress callback that never returns": """
        client = connect()
        start(client.call_tool, "count", {"steps": 3}, progress=lambda step: (running.set(), never.wait()))
        assert running.wait(10)
    """,
    "a client that was closed": """
        client = connect()
        client.close()
    """,
    "a client that was dropped": """
        connect().call_tool("add", {"a": 1, "b": 1}).unwrap()
    """,
    "while it connects": """
        client = connect(wait=False, protocol="auto")
    """,
    "an exit in the middle of a call": """
        client = connect()
        client.call_tool("count", {"steps": 3}, progress=lambda step: leave())
    """,
}
SUBSCRIBED = {
    "a subscription": """
        client = connect()
        subscription = client.listen(["notifications/tools/list_changed"])
        assert subscription.accepted
    """,
    "a subscription that is waited for": """
        client = connect()
        subscription = client.listen(["notifications/tools/list_changed"])
        start(subscription.next)
        start(list, subscription)
    """,
    "a subscription with a callback": """
        client = connect()
        client.listen(["notifications/tools/list_changed"], callback=print)
    """,
}
STDIO = {
    "a server that ignores every wish to end": """
        client = Client.connect(("stdio", sys.executable, stubborn), protocol="2026-07-28")
        assert client.request("tools/list").ok
    """,
    "three of them": """
        clients = [Client.connect(("stdio", sys.executable, stubborn), protocol="2026-07-28") for _ in range(3)]
        assert all(client.request("tools/list").ok for client in clients)
    """,
    "one that was just started": """
        client = ConnectSpec(("stdio", sys.executable, stubborn), protocol="2026-07-28").client()
    """,
    "one that is started again": """
        spec = ConnectSpec(("stdio", sys.executable, stubborn), protocol="2026-07-28", restart="on_call")
        assert spec.client().request("leave").ok
        start(spec.client().request, "tools/list")
        start(spec.client().request, "tools/list")
    """,
    "one that says nothing": """
        program = "import os, sys, time; print('started', file=sys.stderr, flush=True); time.sleep(60)"
        target = ("stdio", sys.executable, ["-I", "-S", "-c", program])
        client = Client.connect(target, wait=False, stderr=told)
        start(client.list_tools)
        assert running.wait(10)
    """,
    "a child that has forked and uses its own": """
        spec = ConnectSpec(("stdio", sys.executable, stubborn), protocol="2026-07-28", shutdown_timeout=0.5)
        spec.client().request("tools/list").unwrap()
        pid = os.fork()
        if pid == 0:
            assert spec.client().request("tools/list").ok
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """,
    "a child that uses nothing": """
        client = Client.connect(("stdio", sys.executable, stubborn), protocol="2026-07-28")
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert client.request("tools/list").ok
    """,
}
HTTP = {
    "while it connects to a host that does not answer": """
        listener = socket.create_server(("127.0.0.1", 0))
        client = Client.connect("http://127.0.0.1:%d/mcp" % listener.getsockname()[1], wait=False)
        start(client.list_tools)
        listener.accept()
    """,
    "a child of a fork that calls": """
        client = connect()
        pid = os.fork()
        if pid == 0:
            assert client.call_tool("add", {"a": 1, "b": 1}).ok
            start(client.call_tool, "sleep", {"seconds": 60})
            sys.exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    """,
}
CASES = [
    *[(kind, state, body) for kind in KINDS for state, body in {**STATES, **SUBSCRIBED}.items()],
    *[("stdio", state, body) for state, body in STDIO.items()],
    *[("http", state, body) for state, body in HTTP.items()],
]


@pytest.mark.parametrize(("kind", "state", "body"), CASES, ids=[f"{kind}-{state}" for kind, state, _ in CASES])
def test_the_interpreter_exits_soon(kind: str, state: str, body: str) -> None:
    program = PROGRAM.format(tests=str(TESTS)) + f"if True:\n{indent(dedent(body), '    ')}    leave()\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    environment |= {"PYTHONWARNINGS": "ignore::DeprecationWarning"}  # of forks where threads run
    with subprocess.Popen(
        [sys.executable, "-c", program, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            printed = process.stdout.read(4)
            with Took() as took:
                process.wait(20)
        finally:
            process.kill()
        errors = process.stderr.read()
    assert printed == "here", errors
    assert took.seconds < EXIT_SECONDS + BUSY
    assert process.returncode == 7, errors
    assert errors == ""
    until(lambda: not named(f"of={process.pid}"), 2)
