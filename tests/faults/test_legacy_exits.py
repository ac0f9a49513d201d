"""The interpreter exits whatever a client of an older revision is doing: soon, quietly, with the right code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest

from support.http_calls import Took
from support.older import KINDS

PROGRAM = dedent(
    """
    import sys, threading
    from snodo_client import Client
    from support.older import older, says
    from support.scripted_http import Gone

    FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    kind = sys.argv[1]
    running, never = threading.Event(), threading.Event()

    def forever(*_):
        running.set()
        never.wait()

    def silent(line, message):
        running.set()

    def start(target, *arguments):
        threading.Thread(target=target, args=arguments, daemon=True).start()

    on, options = {}, {}
    """
)

STATES = {
    "idle": """
        client = server.connect()
        assert says(client).ok
    """,
    "calls that are not answered": """
        server.on["tools/call"] = silent
        client = server.connect()
        for _ in range(8):
            start(says, client)
        assert running.wait(10)
    """,
    "a call without a limit": """
        server.on["tools/call"] = silent
        client = server.connect()
        start(lambda: says(client, timeout=float("inf")))
        assert running.wait(10)
    """,
    "a handshake that is not answered": """
        server.on["initialize"] = silent
        client = server.connect(wait=False)
        start(says, client)
        assert running.wait(10)
    """,
    "handlers that never return": """
        client = server.connect(handlers={"form": forever})
        for number in range(40):
            server.line.ask("elicitation/create", number, FORM)
        assert running.wait(10)
    """,
    "a callback that never returns": """
        client = server.connect(on_notification=forever)
        server.line.say({"jsonrpc": "2.0", "method": "notifications/x"})
        assert running.wait(10)
    """,
    "a server that does not read": """
        server.on["notifications/stop"] = forever
        client = server.connect()
        start(client.notify, "notifications/stop")
        assert running.wait(10)
        for _ in range(8):
            start(says, client, "x" * 2_000_000)
    """,
    "a flood from the server": """
        client = server.connect(handlers={"form": lambda _: {"action": "cancel"}})
        line = server.line
        def flood():
            try:
                for number in range(1_000_000 if kind in ("stdio", "websocket") else 2000):
                    line.ask("ping", number) if number % 2 else line.ask("elicitation/create", number, FORM)
            except Gone:
                pass
        start(flood)
        assert says(client).ok
    """,
    "a lost connection": """
        client = server.connect()
        server.line.gone.set()
        server.line.end()
    """,
    "a client that was closed": """
        client = server.connect()
        client.close()
    """,
    "a client that was dropped": """
        client = server.connect()
        server.clients.clear()
        del client
    """,
    "an exit from a handler": """
        client = server.connect(handlers={"form": lambda _: sys.exit(3)})
        server.line.ask("elicitation/create", 1, FORM)
        server.line.answered(1)
    """,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", STATES)
def test_the_interpreter_exits_soon(kind: str, state: str) -> None:
    ending = "    sys.stdout.write('here')\n    sys.stdout.flush()\n    sys.exit(7)\n"
    body = f"server = older(kind)\nserver.__enter__()\nif True:\n{indent(dedent(STATES[state]), '    ')}{ending}"
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
    command = [sys.executable, "-c", PROGRAM + body, kind]
    with (
        Took() as took,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        here = process.stdout.read(4)
        with Took() as ending_took:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        errors = process.stderr.read()
    assert here == "here", errors
    assert ending_took.seconds < 3.0 + 1.0  # it is a busy machine
    assert process.returncode == 7, errors
    logged = {"an exit from a handler": "SystemExit", "a flood from the server": "too much is waiting"}
    assert errors == "" or logged.get(state, "nothing") in errors
    assert "Exception in thread" not in errors
    assert took.seconds < 20
