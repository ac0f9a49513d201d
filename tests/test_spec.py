"""`ConnectSpec`: checked at once, carried anywhere, connected where it is used; and the clients a process shares."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from requests.auth import HTTPBasicAuth

from snodo_client import Client, ConnectSpec, McpError, Ok
from snodo_client import spec as spec_module
from snodo_client.testing.demo import demo_server
from support.alive import alive
from support.forking import in_a_child
from support.scripted_transport import ScriptedTransport, result
from support.waiting import together, until

STDIO = ("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"])
SECRET = "hunter2-hunter2"
VERSION = "2026-07-28"

made: list[ScriptedTransport] = []


def make_transport() -> ScriptedTransport:
    made.append(ScriptedTransport(lambda call: iter([result(call, content=[])])))
    return made[-1]


def answer_form(request: Any) -> dict[str, Any]:
    return {"action": "decline"}


class Token:
    """An authenticator that does not say when it equals another."""

    def __init__(self, token: str) -> None:
        self.token = token

    def __call__(self, request: Any) -> Any:
        request.headers["Authorization"] = f"Bearer {self.token}"
        return request


def scripted(**options: Any) -> ConnectSpec:
    return ConnectSpec(make_transport, protocol=VERSION, **options)


def adds(client: Client) -> bool:
    outcome = client.call_tool("add", {"a": 19, "b": 23})
    return isinstance(outcome, Ok) and outcome.value["structuredContent"] == 42


def carried(spec: ConnectSpec, protocol: int = pickle.HIGHEST_PROTOCOL) -> ConnectSpec:
    restored = pickle.loads(pickle.dumps(spec, protocol))
    assert isinstance(restored, ConnectSpec)
    return restored


# -- checked at once


@pytest.mark.parametrize(
    ("target", "options", "error", "text"),
    [
        ("server.py", {}, ValueError, "no http"),
        (("stdio",), {}, ValueError, "a target is"),
        (7, {}, TypeError, "is no target"),
        (("stdio", ""), {}, ValueError, "command is empty"),
        (("stdio", "python", "server.py"), {}, TypeError, "not one string"),
        (("http", "http://"), {}, ValueError, "URL"),
        (("stdio", "python"), {"headers": {}}, TypeError, "headers= belongs to"),
        (("stdio", "python"), {"time_out": 3}, TypeError, "did you mean timeout="),
        (("stdio", "python"), {"env": {"A": 1}}, TypeError, "must be a string"),
        ("http://127.0.0.1:9/mcp", {"timeout": 0}, ValueError, "more than 0"),
        ("http://127.0.0.1:9/mcp", {"protocol": "1999-01-01"}, ValueError, "1999-01-01"),
        (("sse", "http://127.0.0.1:9/sse"), {"protocol": VERSION}, ValueError, "cannot be spoken"),
        (make_transport, {"headers": {}}, TypeError, "headers= belongs to"),
        (make_transport(), {}, TypeError, "callable that makes one"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_given(
    target: Any, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ConnectSpec(target, **options)


def test_nothing_is_opened_or_made() -> None:
    made.clear()
    ConnectSpec(("stdio", "no-such-command-here"), cwd="/no/such/folder")
    ConnectSpec("http://127.0.0.1:9/mcp")
    scripted()
    assert made == []


def test_later_changes_of_what_was_given_do_not_reach_it() -> None:
    arguments, env, info = ["-c", "raise SystemExit(3)"], {"A": "1"}, {"name": "x", "version": "1"}
    spec = ConnectSpec(("stdio", sys.executable, arguments), env=env, client_info=info)
    same = ConnectSpec(("stdio", sys.executable, list(arguments)), env=dict(env), client_info=dict(info))
    arguments.append("more")
    env["A"] = "2"
    info["name"] = ""
    assert spec == same
    with pytest.raises(McpError, match="code 3"):
        spec.connect()


def test_it_cannot_be_changed() -> None:
    spec = scripted()
    for name in ("timeout", "target", "options"):
        with pytest.raises(AttributeError):
            setattr(spec, name, 1)
    assert copy.copy(spec) is spec
    assert copy.deepcopy(spec) is spec


@pytest.mark.parametrize(
    "spec",
    [
        ConnectSpec(("stdio", "python", ["--key", SECRET]), env={"TOKEN": SECRET}),
        ConnectSpec(f"https://example.test/mcp?key={SECRET}", headers={"X": SECRET}, auth=SECRET),
        ConnectSpec(("sse", f"https://example.test/sse?key={SECRET}"), headers={"X-Key": SECRET}),
        ConnectSpec(("websocket", f"wss://example.test/ws?key={SECRET}"), headers={"X-Key": SECRET}),
        ConnectSpec(partial(make_transport, *[SECRET]), client_info={"name": SECRET, "version": "1"}),
    ],
    ids=["stdio", "http", "sse", "websocket", "custom"],
)
def test_its_repr_tells_what_it_is_and_no_secret(spec: ConnectSpec) -> None:
    assert SECRET not in repr(spec)
    assert "=..." in repr(spec)
    assert any(what in repr(spec) for what in ("python", "example.test", "partial"))


def test_equal_arguments_make_equal_specs() -> None:
    spec = ConnectSpec(STDIO, timeout=5.0)
    assert spec == ConnectSpec(("stdio", STDIO[1], list(STDIO[2])), timeout=5.0)
    assert hash(spec) == hash(ConnectSpec(STDIO, timeout=5.0))
    assert spec != ConnectSpec(STDIO)
    assert spec != ConnectSpec(("stdio", STDIO[1], []), timeout=5.0)
    assert spec != "spec"
    assert ConnectSpec("http://a.test/") != ConnectSpec(("sse", "http://a.test/"))


# -- carried


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_kind_can_be_pickled(protocol: int) -> None:
    for spec in (
        ConnectSpec(STDIO, env={"TOKEN": SECRET}, handlers={"form": answer_form}, timeout=20.0),
        ConnectSpec("https://example.test/mcp", headers={"X-Key": SECRET}, auth=HTTPBasicAuth("user", SECRET)),
        ConnectSpec(("sse", "https://example.test/sse"), protocol=["2024-11-05", "2025-03-26"]),
        ConnectSpec(("websocket", "wss://example.test/ws"), auth=SECRET),
        scripted(client_capabilities={"elicitation": {}}),
    ):
        assert carried(spec, protocol) == spec
        assert repr(carried(spec, protocol)) == repr(spec)


def test_a_copy_connects_like_the_original() -> None:
    with carried(ConnectSpec(STDIO, client_info={"name": "carried", "version": "1"})).connect() as client:
        assert adds(client)


def test_a_copy_equals_the_original_also_where_an_option_cannot_be_compared() -> None:
    spec = ConnectSpec("https://example.test/mcp", auth=Token(SECRET))
    assert carried(carried(spec)) == spec
    assert spec != ConnectSpec("https://example.test/mcp", auth=Token(SECRET))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: ConnectSpec(STDIO, handlers={"url": answer_form, "form": lambda _: {}}), r"handlers\['form'\]"),
        (lambda: ConnectSpec(STDIO, stderr=lambda line: None), "stderr="),
        (lambda: ConnectSpec("http://a.test/", headers=lambda: {"X-Key": SECRET}), "headers="),
        (lambda: ConnectSpec("http://a.test/", auth=_with_a_lock()), "auth="),
        (lambda: ConnectSpec(lambda: make_transport()), "the target"),
    ],
)
def test_what_cannot_be_pickled_is_named(make: Callable[[], ConnectSpec], named: str) -> None:
    with pytest.raises(TypeError, match=f"^{named} of a ConnectSpec cannot be pickled") as raised:
        pickle.dumps(make())
    assert SECRET not in str(raised.value)
    assert raised.value.__suppress_context__


def _with_a_lock() -> Token:
    token = Token(SECRET)
    token.lock = threading.Lock()  # type: ignore[attr-defined]
    return token


def test_a_pickler_that_can_do_more_is_let(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pickler(pickle.Pickler):
        def reducer_override(self, value: Any) -> Any:
            return (eval, ("lambda line: None",)) if getattr(value, "__name__", "") == "<lambda>" else NotImplemented

    spec = ConnectSpec(STDIO, stderr=lambda line: None)
    monkeypatch.setitem(sys.modules, "somebodys.cloudpickle", sys)
    Pickler(file := io.BytesIO()).dump(spec)
    assert pickle.loads(file.getvalue()) == spec


# -- connected


def test_connect_makes_a_client_each_time_and_takes_other_options() -> None:
    made.clear()
    spec = scripted(timeout=3.0)
    with spec.connect() as one, spec.connect(protocol=["2026-07-28"]) as two:
        assert one is not two
        assert (one.protocol_info["preference"], two.protocol_info["preference"]) == (VERSION, [VERSION])
        assert len(made) == 2
    with pytest.raises(TypeError, match="headers= belongs to"):
        spec.connect(headers={})


def test_connect_raises_as_client_connect_does() -> None:
    with pytest.raises(McpError) as raised:
        ConnectSpec(("stdio", "no-such-command-here")).connect()
    assert raised.value.reason == "exited"


# -- shared


def test_all_threads_get_the_same_client_and_only_calls_can_fail() -> None:
    spec = ConnectSpec(("stdio", "no-such-command-here"), timeout=5.0)
    found: list[Client] = []
    together([lambda: found.append(spec.client())] * 16)
    assert len(set(map(id, found))) == 1
    outcome = spec.client().call_tool("add")
    assert isinstance(outcome, McpError)
    assert outcome.reason == "exited"
    spec.client().close()


def test_equal_specs_and_copies_share_it() -> None:
    made.clear()
    spec = scripted(timeout=7.0)
    with spec.client() as client:
        assert carried(spec).client() is client
        assert scripted(timeout=7.0).client() is client
        assert scripted(timeout=8.0).client() is not client
        assert client.call_tool("x").ok
    assert len(made) == 2
    scripted(timeout=8.0).client().close()


def test_a_closed_one_is_replaced_at_once() -> None:
    spec = scripted(timeout=9.0)
    for _ in range(3):
        client = spec.client()
        assert client.call_tool("x").ok
        client.close()
        assert spec.client() is not client
    spec.client().close()


def test_a_lost_one_is_replaced_but_not_in_a_storm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec_module, "AGAIN_SECONDS", 0.3)
    starts = tmp_path / "starts"
    program = f"open({str(starts)!r}, 'a').write('x'); raise SystemExit(3)"
    spec = ConnectSpec(("stdio", sys.executable, ["-I", "-S", "-c", program]))
    begun = time.monotonic()
    clients: dict[int, Client] = {}
    calls = 0
    while len(clients) < 4:
        assert time.monotonic() < begun + 20
        client = spec.client()
        clients[id(client)] = client
        outcome = client.call_tool("x", timeout=10.0)
        assert isinstance(outcome, McpError)
        assert (outcome.reason, outcome.data["exit_code"]) == ("exited", 3)
        calls += 1
    assert time.monotonic() - begun >= 3 * 0.3
    assert calls > len(clients)
    assert len(starts.read_text()) <= 2 * len(clients)


def test_it_is_made_anew_after_the_server_was_killed() -> None:
    spec = ConnectSpec(STDIO)
    first = spec.client()
    assert adds(first)
    pid = first._session.connection.link.process.pid  # type: ignore[union-attr]
    os.kill(pid, 9)
    until(lambda: adds(spec.client()))
    assert spec.client() is not first
    spec.client().close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_gets_another() -> None:
    spec = ConnectSpec(STDIO)
    with spec.client() as client:
        assert adds(client)

        def child() -> Any:
            own = spec.client()
            works = [adds(own) for _ in range(2)]
            pid = own._session.connection.link.process.pid  # type: ignore[union-attr]
            return own is client, spec.client() is own, works, pid

        same, kept, works, pid = in_a_child(child)
        assert (same, kept, works) == (False, True, [True, True])
        until(lambda: not alive(pid))
        assert spec.client() is client
        assert adds(client)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forks_while_threads_ask_for_it() -> None:
    stop = threading.Event()

    def ask(number: int) -> None:
        while not stop.is_set():
            scripted(timeout=100.0 + number).client().close()

    threads = [threading.Thread(target=ask, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert in_a_child(
                lambda: [scripted(timeout=100.0 + number).client().call_tool("x").ok for number in (0, 1)]
            )
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)


def test_over_http() -> None:
    with demo_server().serve_http() as serving:
        spec = ConnectSpec(serving.url)
        with carried(spec).client() as client:
            assert adds(client)
            assert spec.client() is client


def test_it_is_closed_when_the_interpreter_exits(tmp_path: Path) -> None:
    marker = tmp_path / "ended"
    server = Path(__file__).parent / "support" / "stdio_servers" / "stubborn.py"
    program = f"""
import sys
from snodo_client import ConnectSpec
target = ("stdio", sys.executable, [{str(server)!r}, {f"marker={marker}"!r}])
print(ConnectSpec(target, protocol="2026-07-28").client().request("tools/list"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert "server" in done.stdout, done
    assert done.stderr == ""
    until(marker.exists)


def test_importing_it_starts_no_thread() -> None:
    program = "import snodo_client, threading; print(threading.active_count())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "1\n"
