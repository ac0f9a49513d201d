"""Many servers at once: what becomes of one says nothing about the others."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from snodo_client.clients import Clients
from snodo_client.spec import ConnectSpec
from snodo_client.testing import Server
from snodo_client.testing.httpd import HttpServing
from snodo_client.transports.direct import DirectTransport
from support.forking import in_a_child
from support.leaks import repeat
from support.waiting import together, until

DEMO = ("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"])
STUBBORN = str(Path(__file__).parent / "support" / "stdio_servers" / "stubborn.py")
MODERN = "2026-07-28"


@pytest.fixture
def clients() -> Iterator[Clients]:
    with Clients() as clients:
        yield clients


def named(name: str) -> Server:
    """A server with one tool, which says whose it is."""
    server = Server(name)
    server.tool(name="who")(lambda: name)
    return server


@pytest.fixture
def serve() -> Iterator[Callable[[Server], str]]:
    """Serves over HTTP until the end of the test; gives the URL."""
    running: list[HttpServing] = []

    def start(server: Server) -> str:
        running.append(server.serve_http())
        return running[-1].url

    yield start
    for serving in running:
        serving.close()


@pytest.fixture
def hanging() -> Iterator[str]:
    """The URL of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"


@pytest.fixture
def dead() -> Iterator[str]:
    """A URL where nobody listens."""
    with socket.socket() as bound:  # and nobody can while it is bound
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/mcp"


def crashing(folder: Path) -> tuple[str, str, list[str]]:
    """A command that ends at once, and writes down each start."""
    program = f"open({str(folder / 'starts')!r}, 'a').write('x'); raise SystemExit(3)"
    return ("stdio", sys.executable, ["-c", program])


def text(outcome: Any) -> Any:
    return outcome.value["content"][0]["text"] if isinstance(outcome, Ok) else outcome


def names(tools: list[dict[str, Any]]) -> list[str]:
    return [tool["name"] for tool in tools]


# -- the table


def test_nothing_is_connected_before_it_is_used(clients: Clients, serve: Callable[[Server], str]) -> None:
    server = named("web")
    clients.start("web", serve(server))
    clients.start("local", ("stdio", "no-such-command-anywhere"))
    before = threading.active_count()
    assert clients.names() == list(clients) == ["web", "local"]
    assert len(clients) == 2
    assert "web" in clients
    assert "other" not in clients
    assert repr(clients) == "<Clients: web, local>"
    assert server.calls == []
    assert threading.active_count() == before
    assert text(clients["web"].call_tool("who")) == "web"


@pytest.mark.parametrize(
    ("name", "target", "options", "error"),
    [
        ("x", "not a URL", {}, ValueError),
        ("x", ("stdio",), {}, ValueError),
        ("x", ("stdio", "serve"), {"headers": {}}, TypeError),
        ("x", "https://a.example/", {"timeuot": 3}, TypeError),
        ("x", "https://a.example/", {"timeout": -1}, ValueError),
        ("", "https://a.example/", {}, ValueError),
        (7, "https://a.example/", {}, TypeError),
        ("x", ConnectSpec("https://a.example/"), {"timeout": 3}, TypeError),
    ],
)
def test_what_is_wrong_is_refused_at_once(
    clients: Clients, name: Any, target: Any, options: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        clients.start(name, target, **options)
    assert len(clients) == 0


def test_a_name_is_taken_once(clients: Clients, dead: str) -> None:
    clients.start("my server", dead)
    with pytest.raises(ValueError, match="'my server' is taken"):
        clients.start("my server", dead)
    with pytest.raises(ValueError, match="'my_server' is taken by 'my server'"):
        clients.start("my_server", dead)
    clients.stop("my server")
    clients.start("my_server", dead)


def test_an_unknown_name_is_told_with_the_known_ones(clients: Clients, dead: str) -> None:
    with pytest.raises(KeyError, match="no server 'x'; there are: none"):
        clients["x"]
    clients.start("weather", dead)
    with pytest.raises(KeyError, match="no server 'x'; there are: 'weather'"):
        clients["x"]
    with pytest.raises(KeyError, match="no server 'x'"):
        clients.stop("x")


# -- one client for each


def test_many_threads_get_one_client_of_each_server(clients: Clients) -> None:
    made: list[str] = []

    def make(name: str) -> Callable[[], DirectTransport]:
        def transport() -> DirectTransport:
            made.append(name)
            return DirectTransport(named(name))

        return transport

    for name in "abc":
        clients.start(name, make(name))
    seen: set[tuple[str, int]] = set()

    def use(name: str) -> None:
        client = clients[name]
        seen.add((name, id(client)))
        assert text(client.call_tool("who")) == name

    together([lambda name=name: use(name) for name in "abc" * 8])  # type: ignore[misc]
    assert sorted(made) == ["a", "b", "c"]
    assert len(seen) == 3


def test_a_server_that_hangs_holds_up_nobody_else(
    clients: Clients, serve: Callable[[Server], str], hanging: str
) -> None:
    clients.start("hangs", hanging)
    clients.start("web", serve(named("web")))
    begun = time.monotonic()
    stuck = clients["hangs"]
    assert text(clients["web"].call_tool("who")) == "web"
    assert time.monotonic() - begun < 2
    begun = time.monotonic()
    outcome = stuck.call_tool("who", timeout=0.5)
    assert isinstance(outcome, McpError)
    assert outcome.reason == "timeout"
    assert 0.5 <= time.monotonic() - begun < 2.5


def test_an_unreachable_server_gives_values_and_is_tried_again(clients: Clients, dead: str) -> None:
    clients.start("dead", dead)
    for _ in range(2):
        outcome = clients["dead"].call_tool("who")
        assert isinstance(outcome, McpError)
        assert outcome.reason == "unreachable"


def test_a_server_comes_back_where_it_was(clients: Clients) -> None:
    server = named("web")
    with server.serve_http() as serving:
        port, url = serving.port, serving.url
    clients.start("web", url)
    assert isinstance(clients["web"].call_tool("who"), McpError)
    with server.serve_http(port=port):
        assert text(clients["web"].call_tool("who")) == "web"


def test_a_lost_process_is_replaced_at_the_next_use(clients: Clients) -> None:
    clients.start("local", ("stdio", sys.executable, [STUBBORN]), protocol=MODERN)
    first = clients["local"]
    pids = first.request("pids").unwrap()
    first.request("leave")
    until(lambda: first.protocol_info["status"] == "closed")
    assert isinstance(first.request("pids"), McpError), "a client that is held stays lost"
    until(lambda: clients["local"] is not first)  # a second after the first was made
    second = clients["local"]
    assert second.request("pids").unwrap() != pids
    assert clients["local"] is second


def test_a_closed_client_is_replaced_at_the_next_use(clients: Clients, serve: Callable[[Server], str]) -> None:
    clients.start("web", serve(named("web")))
    first = clients["web"]
    first.close()
    assert clients["web"] is not first
    assert text(clients["web"].call_tool("who")) == "web"


def test_a_command_that_crashes_is_not_started_all_the_time(clients: Clients, tmp_path: Path) -> None:
    clients.start("crashes", crashing(tmp_path))
    begun, calls = time.monotonic(), 0
    while time.monotonic() - begun < 0.7:
        outcome = clients["crashes"].call_tool("who")
        assert isinstance(outcome, McpError)
        assert outcome.reason == "exited"
        calls += 1
    assert calls > 2
    starts = len((tmp_path / "starts").read_text())
    assert starts <= 2 * (1 + int(time.monotonic() - begun)), "one client a second, and each starts it twice"
    until(
        lambda: isinstance(clients["crashes"].call_tool("who"), McpError) and (tmp_path / "starts").stat().st_size > 2
    )


def test_what_the_callers_own_function_raises_reaches_the_caller(
    clients: Clients, serve: Callable[[Server], str]
) -> None:
    def broken() -> DirectTransport:
        raise LookupError("no transport today")

    clients.start("broken", broken)
    clients.start("web", serve(named("web")))
    with pytest.raises(LookupError, match="today"):
        clients["broken"]
    gathered = clients.list_tools(timeout=10)
    assert names(gathered.tools) == ["web__who"]
    assert gathered.errors["broken"].reason == "transport_failure"
    assert "LookupError" in str(gathered.errors["broken"])
    assert "today" not in str(gathered.errors["broken"])


# -- all at once


def test_tools_of_all_servers_and_the_errors_of_the_others(
    clients: Clients, serve: Callable[[Server], str], hanging: str, dead: str, tmp_path: Path
) -> None:
    clients.start("hangs", hanging)
    clients.start("web", serve(named("web")))
    clients.start("dead", dead)
    clients.start("crashes", crashing(tmp_path))
    clients.start("missing", ("stdio", "no-such-command-anywhere"))
    clients.start("local", DEMO)
    assert isinstance(clients["local"].await_ready(20), Ok)
    begun = time.monotonic()
    gathered = clients.list_tools(timeout=2)
    assert 2 <= time.monotonic() - begun < 4
    assert not gathered.ok
    assert {name: error.reason for name, error in gathered.errors.items()} == {
        "hangs": "timeout",
        "dead": "unreachable",
        "crashes": "exited",
        "missing": "exited",
    }
    assert list(gathered.errors) == ["hangs", "dead", "crashes", "missing"]
    listed = names(gathered.tools)
    assert listed[:2] == ["web__who", "local__add"], "in the order the servers were started"
    assert all(re.fullmatch("(web|local)__[a-z_]+", name) for name in listed)
    assert text(clients.call_tool("local__add", {"a": 19, "b": 23}, timeout=10)) == "42"
    assert text(clients.call_tool("web__who")) == "web"


def test_without_a_timeout_each_client_has_its_own(clients: Clients, hanging: str) -> None:
    clients.start("hangs", hanging, timeout=0.5)
    begun = time.monotonic()
    gathered = clients.list_tools()
    assert 0.5 <= time.monotonic() - begun < 2.5
    assert gathered.errors["hangs"].reason == "timeout"


def test_no_servers_have_no_tools(clients: Clients) -> None:
    gathered = clients.list_tools()
    assert gathered.ok
    assert gathered.tools == []
    assert clients.health() == {}


def test_more_that_hang_than_are_asked_at_once_do_not_hide_one_that_is_ready(
    clients: Clients, serve: Callable[[Server], str], hanging: str
) -> None:
    for number in range(20):
        clients.start(f"hangs-{number}", hanging)
    clients.start("web", serve(named("web")))
    clients["web"].await_ready().unwrap()
    begun = time.monotonic()
    gathered = clients.list_tools(timeout=2)
    assert 2 <= time.monotonic() - begun < 4
    assert names(gathered.tools) == ["web__who"]
    assert len(gathered.errors) == 20
    assert {error.reason for error in gathered.errors.values()} == {"timeout"}


def test_two_servers_with_the_same_tools(clients: Clients, serve: Callable[[Server], str]) -> None:
    for name in ("eu", "us"):
        clients.start(name, serve(named(name)))
    gathered = clients.list_tools()
    assert gathered.ok
    assert names(gathered.tools) == ["eu__who", "us__who"]
    assert [text(clients.call_tool(name)) for name in names(gathered.tools)] == ["eu", "us"]
    assert [text(clients.call_tool(tool)) for tool in gathered.tools] == ["eu", "us"], "by definition"


def test_names_that_models_would_not_take(clients: Clients, serve: Callable[[Server], str]) -> None:
    server = Server("odd")
    own = ["files.read", "files/read", "x" * 90, "plain-0123abcd", "__"]
    for name in own:
        server.tool(name=name)(lambda name=name: name)
    url = serve(server)
    clients.start("天气 forecast", url)
    listed = names(clients.list_tools().tools)
    assert len(set(listed)) == len(own)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", name) for name in listed)
    assert [text(clients.call_tool(name)) for name in listed] == own
    with Clients() as elsewhere:  # another process, where they were not listed
        elsewhere.start("天气 forecast", url)
        assert [text(elsewhere.call_tool(name, timeout=10)) for name in listed] == own


def test_a_tool_of_no_server(clients: Clients, dead: str) -> None:
    clients.start("weather", dead)
    for name in ("wether__get", "weather", "weather__", "get", ""):
        outcome = clients.call_tool(name)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "invalid_arguments"
        assert "names that begin with weather__" in outcome.message
    with pytest.raises(TypeError, match="list_tools"):
        clients.call_tool(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout"):
        clients.call_tool("weather__get", timeout=-1)
    with pytest.raises(TypeError, match="did you mean timeout="):
        clients.call_tool("weather__get", timeuot=1)  # type: ignore[call-arg]


def test_a_server_without_the_time_to_list_costs_a_call_its_own_time(clients: Clients, hanging: str) -> None:
    clients.start("hangs", hanging)
    begun = time.monotonic()
    outcome = clients.call_tool("hangs__files_read-0123abcd", timeout=0.5)
    assert isinstance(outcome, McpError)
    assert outcome.reason == "timeout"
    assert 0.5 <= time.monotonic() - begun < 2.5


def test_health(clients: Clients, serve: Callable[[Server], str], dead: str) -> None:
    clients.start("modern", serve(named("modern")))
    clients.start("legacy", DEMO, protocol="2025-11-25")
    clients.start("unused", ("stdio", "no-such-command-anywhere"))
    clients.start("dead", dead)
    clients.start("lost", ("stdio", sys.executable, [STUBBORN]), protocol=MODERN)
    for name in ("modern", "legacy", "dead"):
        clients[name].await_ready(20)
    lost = clients["lost"]
    lost.request("leave")
    until(lambda: lost.protocol_info["status"] == "closed")
    begun = time.monotonic()
    health = clients.health(timeout=1)
    assert time.monotonic() - begun < 3
    assert json.loads(json.dumps(health)) == health
    assert list(health) == clients.names()
    assert {name: found["status"] for name, found in health.items()} == {
        "modern": "ready",
        "legacy": "ready",
        "unused": "unused",
        "dead": "failed",
        "lost": "closed",
    }
    assert "exited with code 3" in health["lost"]["error"]
    assert health["modern"]["version"] == MODERN
    assert health["legacy"]["version"] == "2025-11-25"
    for name in ("modern", "legacy"):
        assert health[name]["error"] is None
        assert 0 < health[name]["latency"] < 1
    assert health["unused"] == {"status": "unused", "version": None, "error": None, "latency": None}
    assert "Connection refused" in health["dead"]["error"]
    assert health["dead"]["latency"] is None


def test_the_health_of_one_that_hangs_comes_in_time(clients: Clients, hanging: str) -> None:
    clients.start("hangs", hanging)
    assert clients["hangs"].protocol_info["status"] == "connecting"
    begun = time.monotonic()
    health = clients.health(timeout=0.5)
    assert 0.5 <= time.monotonic() - begun < 2.5
    assert health["hangs"]["status"] == "connecting"
    assert "within timeout=0." in health["hangs"]["error"]


def test_a_server_that_answers_with_an_error_is_there(clients: Clients, serve: Callable[[Server], str]) -> None:
    server = named("web")
    clients.start("web", serve(server))
    clients["web"].await_ready().unwrap()

    @server.on("server/discover")
    def broken(message: Any, context: Any) -> Any:
        raise LookupError("not today")

    assert clients.health()["web"]["status"] == "ready"


# -- the end


def test_stop_ends_one_server_alone(clients: Clients, serve: Callable[[Server], str]) -> None:
    clients.start("eu", serve(named("eu")))
    clients.start("us", serve(named("us")))
    held = clients["eu"]
    held.await_ready().unwrap()
    clients.stop("eu")
    assert held.protocol_info["status"] == "closed"
    assert clients.names() == ["us"]
    with pytest.raises(KeyError, match="'eu'"):
        clients["eu"]
    assert text(clients["us"].call_tool("who")) == "us"


def test_a_client_made_while_its_server_is_stopped_is_closed(clients: Clients) -> None:
    inside, leave, got = threading.Event(), threading.Event(), []

    def slow() -> DirectTransport:
        inside.set()
        leave.wait(20)
        return DirectTransport(named("slow"))

    clients.start("slow", slow)
    thread = threading.Thread(target=lambda: got.append(clients["slow"]), daemon=True)
    thread.start()
    assert inside.wait(20)
    clients.stop("slow")
    leave.set()
    thread.join(20)
    assert got[0].protocol_info["status"] == "closed"
    outcome = got[0].call_tool("who")
    assert isinstance(outcome, McpError)
    assert outcome.reason == "closed"


def test_close_is_idempotent_and_ends_calls(clients: Clients, hanging: str) -> None:
    clients.start("hangs", hanging)
    outcomes: list[Any] = []
    client = clients["hangs"]
    caller = threading.Thread(target=lambda: outcomes.append(client.call_tool("who")), daemon=True)
    caller.start()
    lister = threading.Thread(target=lambda: outcomes.append(clients.list_tools()), daemon=True)
    lister.start()
    until(lambda: any(thread.name == "snodo-clients" for thread in threading.enumerate()))
    clients.close()
    clients.close()
    caller.join(5)
    lister.join(5)
    assert len(outcomes) == 2
    assert len(clients) == 0


def test_servers_that_will_not_go_are_ended_side_by_side(clients: Clients) -> None:
    target = ("stdio", sys.executable, [STUBBORN, "no-eof", "no-term"])
    for number in range(4):
        clients.start(f"stubborn-{number}", target, protocol=MODERN, shutdown_timeout=1)
    pids = [clients[name].request("pids").unwrap()["server"] for name in clients]
    begun = time.monotonic()
    clients.close()
    assert time.monotonic() - begun < 3, "one after the other they take more than four"
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files where Linux lists them")
def test_nothing_is_left(dead: str, hanging: str, tmp_path: Path) -> None:
    with named("web").serve_http() as serving:

        def once() -> None:
            with Clients() as clients:
                clients.start("web", serving.url)
                clients.start("dead", dead)
                clients.start("hangs", hanging)
                clients.start("crashes", crashing(tmp_path))
                clients.start("local", ("stdio", sys.executable, [STUBBORN]), protocol=MODERN)
                clients["local"].request("pids").unwrap()
                assert {"dead", "hangs", "local"} <= clients.list_tools(timeout=0.7).errors.keys()
                assert text(clients.call_tool("web__who")) == "web"

        repeat(4, once)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 warns where threads run
def test_a_child_connects_anew(clients: Clients, serve: Callable[[Server], str]) -> None:
    clients.start("local", ("stdio", sys.executable, [STUBBORN]), protocol=MODERN)
    clients.start("web", serve(named("web")))
    parents = clients["local"].request("pids").unwrap()
    assert text(clients["web"].call_tool("who")) == "web"

    def child() -> Any:
        pids = clients["local"].request("pids", timeout=10).unwrap()
        found = [pids, text(clients.call_tool("web__who", timeout=10)), names(clients.list_tools(timeout=20).tools)]
        clients.close()
        return found

    pids, answer, listed = in_a_child(child)
    assert pids != parents
    assert answer == "web"
    assert listed == ["web__who"]
    assert clients["local"].request("pids").unwrap() == parents
    assert text(clients.call_tool("web__who")) == "web"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 warns where threads run
def test_a_fork_while_another_thread_is_inside(clients: Clients, serve: Callable[[Server], str]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def slow() -> DirectTransport:
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            leave.wait(20)
        return DirectTransport(named("slow"))

    clients.start("slow", slow)
    clients.start("web", serve(named("web")))
    thread = threading.Thread(target=lambda: clients["slow"], daemon=True)
    thread.start()
    assert inside.wait(20)
    assert in_a_child(lambda: text(clients["slow"].call_tool("who", timeout=10))) == "slow"
    assert text(clients["web"].call_tool("who")) == "web"
    leave.set()
    thread.join(20)
    assert text(clients["slow"].call_tool("who")) == "slow"


# -- from a file


def test_from_a_file(tmp_path: Path, serve: Callable[[Server], str], monkeypatch: pytest.MonkeyPatch) -> None:
    server = named("web")
    file = tmp_path / ".vscode" / "mcp.json"
    file.parent.mkdir()
    (tmp_path / "server.py").write_text(
        "from snodo_client.testing import Server\n"
        "import os\n"
        "server = Server('local')\n"
        "server.tool(lambda: [os.environ['KEY'], os.getcwd()], name='told')\n"
        "server.serve_stdio()\n"
    )
    file.write_text(
        json.dumps(
            {
                "servers": {
                    "local": {
                        "command": sys.executable,
                        "args": ["server.py"],
                        "env": {"KEY": "${env:SECRET}", "PYTHONPATH": str(Path(__file__).parents[1])},
                    },
                    "web": {"type": "http", "url": serve(server), "headers": {"X-Key": "${SECRET}"}},
                    "off": {"command": "${NOPE}", "disabled": True},
                }
            }
        )
        + " // the end"
    )
    monkeypatch.setenv("SECRET", "t0p-s3cret")
    with Clients.from_config(file, timeout=20) as clients:
        assert clients.names() == ["local", "web"]
        assert server.calls == []
        gathered = clients.list_tools()
        assert gathered.ok
        assert names(gathered.tools) == ["local__told", "web__who"]
        told = clients.call_tool("local__told").unwrap()
        assert "t0p-s3cret" in json.dumps(told)
        assert str(tmp_path) in json.dumps(told), "it runs in the project's folder"
        assert text(clients.call_tool("web__who")) == "web"
        assert {received.headers["x-key"] for received in server.calls} == {"t0p-s3cret"}
        assert "s3cret" not in repr(clients)


def test_a_file_that_is_wrong_starts_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": "serve"}, "b": {"command": "${NOPE}"}}}')
    with pytest.raises(ValueError, match=r"mcp\.json: server 'b', key 'command': \$\{NOPE\} is not defined"):
        Clients.from_config(file, env={})


def test_names_in_a_file_that_cannot_be_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"a b": {"command": "serve"}, "a_b": {"command": "serve"}}}')
    with pytest.raises(ValueError, match=r"mcp\.json: 'a_b' is taken by 'a b'"):
        Clients.from_config(file)


def test_a_client_of_clients_is_a_client(clients: Clients, dead: str) -> None:
    clients.start("dead", dead)
    assert type(clients["dead"]) is Client
