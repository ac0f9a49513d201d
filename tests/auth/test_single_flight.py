"""One token for all who need one: threads of any number of clients, and processes that share a store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from snodo_client import Client, McpError
from snodo_client.auth import FileTokenStore, MemoryTokenStore, OAuth, account
from snodo_client.engine.flight import Flight
from support.forking import in_a_child
from support.oauth_server import Fault, OAuthWorld
from support.stores import Clock
from support.waiting import together, until

VERSIONS = ("auto", "2025-11-25")
CROWD = 32
SHORT = 20.0  # seconds a token lives, less than others are renewed before their end
LATE = 3590.0  # seconds after which a token that lives for an hour is still good, and is to be renewed

CALL = """
import sys
from snodo_client import Client
from snodo_client.auth import FileTokenStore, OAuth
oauth = OAuth(sign_in="never", store=FileTokenStore(sys.argv[2]))
with Client.connect(sys.argv[1], auth=oauth) as client:
    print("ready", flush=True)
    sys.stdin.readline()
    print(client.call_tool("test-tool").ok, flush=True)
"""

SIGN_IN = """
import sys
from snodo_client import Client
from snodo_client.auth import FileTokenStore, OAuth

def person(url):
    print(url, flush=True)
    return sys.stdin.readline().strip()

oauth = OAuth(sign_in=person, store=FileTokenStore(sys.argv[2]))
with Client.connect(sys.argv[1], auth=oauth) as client:
    print(client.call_tool("test-tool").ok, flush=True)
"""

SIGN_IN_FOR_MORE = SIGN_IN.replace("test-tool", "admin-tool")


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        yield world


@contextmanager
def program(text: str, world: OAuthWorld, store: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", text, world.resource_url, str(store)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], line: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def signed_in(world: OAuthWorld, **options: Any) -> OAuth:
    """Somebody who has a token already, and cannot sign in again."""
    oauth = OAuth(sign_in=world.authorize, **{"store": MemoryTokenStore(), **options})
    assert oauth.login(world.resource_url).ok
    oauth.sign_in = "never"
    return oauth


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """By which this process tells whether a token is to be renewed."""
    clock = Clock(time.time())
    monkeypatch.setattr(account, "time", clock)
    return clock


def failed(outcome: object) -> McpError:
    assert isinstance(outcome, McpError), outcome
    return outcome


def waiting() -> int:
    """How many threads wait for the work of another."""
    return sum(_waits(frame) for frame in sys._current_frames().values())


def _waits(frame: FrameType | None) -> bool:
    while frame is not None:
        caller = frame.f_back
        if frame.f_code is threading.Event.wait.__code__ and caller and caller.f_code is Flight.run.__code__:
            return True
        frame = caller
    return False


def crowd(client: Client, size: int = CROWD, **call: Any) -> list[Any]:
    """The outcomes of as many calls, made at the same moment."""
    gate, outcomes = threading.Barrier(size), []

    def one() -> None:
        gate.wait(20)
        outcomes.append(client.call_tool(call.get("tool", "test-tool")))

    together([one] * size)
    return outcomes


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_threads_whose_token_was_revoked_refresh_it_once(world: OAuthWorld, version: str) -> None:
    with Client.connect(world.resource_url, auth=signed_in(world), protocol=version, pool_size=CROWD) as client:
        world.revoke_all()
        assert all(outcome.ok for outcome in crowd(client))
    assert world.count("token", grant_type="refresh_token") == 1
    assert world.count("token") == 2
    assert world.reused_refresh == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("after", [0.85, 1.1])
def test_threads_whose_token_ends_refresh_it_once(world: OAuthWorld, version: str, after: float) -> None:
    """Shortly before its end, and after it."""
    oauth = signed_in(world)
    with Client.connect(world.resource_url, auth=oauth, protocol=version, pool_size=CROWD) as client:
        world.token_lifetime = 1.0
        world.revoke_all()
        issued = time.monotonic()
        assert client.call_tool("test-tool").ok
        world.token_lifetime = 3600.0
        refused, before = len(refusals(world)), world.count("token")
        until(lambda: time.monotonic() - issued > after)
        assert all(outcome.ok for outcome in crowd(client))
        assert world.count("token", grant_type="refresh_token") == before
        assert len(refusals(world)) == refused  # nobody waited for the server to say so


def refusals(world: OAuthWorld) -> list[int]:
    return [seen.status for seen in world.seen("mcp") if seen.status in (401, 403)]


def test_a_token_that_never_lives_long_is_not_refreshed_for_each_call(world: OAuthWorld) -> None:
    world.token_lifetime = SHORT
    with Client.connect(world.resource_url, auth=signed_in(world)) as client:
        assert all(client.call_tool("test-tool").ok for _ in range(10))
    assert world.count("token", grant_type="refresh_token") <= 1


def test_threads_without_a_token_ask_a_person_once(world: OAuthWorld) -> None:
    oauth = OAuth(sign_in=world.authorize, store=MemoryTokenStore())
    world.open_methods = {"server/discover"}
    with Client.connect(world.resource_url, auth=oauth, pool_size=CROWD) as client:
        assert all(outcome.ok for outcome in crowd(client))
    assert (world.count("authorize"), world.count("token"), world.count("register")) == (1, 1, 1)


def test_threads_that_need_another_scope_ask_a_person_once(world: OAuthWorld) -> None:
    oauth = OAuth(sign_in=world.authorize, store=MemoryTokenStore())
    with Client.connect(world.resource_url, auth=oauth, pool_size=CROWD) as client:
        assert all(outcome.ok for outcome in crowd(client, tool="admin-tool"))
    assert world.count("authorize") == 2


def test_threads_of_several_clients_share_the_refresh(world: OAuthWorld) -> None:
    oauth = signed_in(world)
    with ExitStack() as stack:
        clients = [stack.enter_context(Client.connect(world.resource_url, auth=oauth)) for _ in range(4)]
        world.revoke_all()
        outcomes: list[Any] = []
        together([partial(lambda client: outcomes.extend(crowd(client, 4)), client) for client in clients])
        assert len(outcomes) == 16
        assert all(outcome.ok for outcome in outcomes)
    assert world.count("token", grant_type="refresh_token") == 1


def test_threads_of_a_machine_ask_for_one_token(world: OAuthWorld) -> None:
    world.add_client("machine", "secret")
    oauth = OAuth(grant="client_credentials", client_id="machine", client_secret="secret")
    with Client.connect(world.resource_url, auth=oauth, pool_size=CROWD) as client:
        world.revoke_all()
        assert all(outcome.ok for outcome in crowd(client))
    assert world.count("token", grant_type="client_credentials") == 2


def test_a_sign_in_that_fails_fails_for_all_who_waited_for_it(world: OAuthWorld) -> None:
    asked, answer = threading.Event(), threading.Event()
    times: list[str] = []

    def person(url: str) -> str:
        times.append(url)
        asked.set()
        assert answer.wait(20)
        raise RuntimeError("no")

    world.open_methods = {"server/discover"}
    with Client.connect(world.resource_url, auth=OAuth(sign_in=person, store=MemoryTokenStore())) as client:
        outcomes: list[Any] = []

        def one() -> None:
            outcomes.append(client.call_tool("test-tool"))

        threads = [threading.Thread(target=one, daemon=True) for _ in range(4)]
        threads[0].start()
        assert asked.wait(20)
        for thread in threads[1:]:
            thread.start()
        until(lambda: waiting() == 3)
        answer.set()
        for thread in threads:
            thread.join(20)
    assert [outcome.reason for outcome in outcomes] == ["authorization_failed"] * 4
    assert len({id(outcome) for outcome in outcomes}) == 4
    assert len(times) == 1


def test_another_thread_goes_on_when_the_one_that_refreshes_is_cancelled(world: OAuthWorld) -> None:
    with Client.connect(world.resource_url, auth=signed_in(world)) as client:
        world.revoke_all()
        world.faults["token"] = Fault(wait=threading.Event(), times=1)
        first = client.start_tool_call("test-tool")
        until(lambda: world.count("token", grant_type="refresh_token") == 1)
        second = client.start_tool_call("test-tool")
        until(lambda: refusals(world).count(401) >= 3)  # one before the sign-in
        assert first.cancel().request_delivery == "not_sent"
        assert failed(first.result(timeout=5)).reason == "cancelled"
        assert second.result(timeout=5).ok


def test_another_client_goes_on_when_the_one_whose_call_signs_in_is_closed(world: OAuthWorld) -> None:
    asked, answer = threading.Event(), threading.Event()
    times: list[str] = []

    def person(url: str) -> str:
        times.append(url)
        if len(times) == 1:
            asked.set()
            assert answer.wait(20)
        return world.authorize(url)

    world.open_methods = {"server/discover"}
    oauth = OAuth(sign_in=person, store=MemoryTokenStore())
    first, second = (Client.connect(world.resource_url, auth=oauth) for _ in range(2))
    outcomes: dict[Client, Any] = {}

    def one(client: Client) -> None:
        outcomes[client] = client.call_tool("test-tool")

    with second:
        threads = [threading.Thread(target=one, args=(client,), daemon=True) for client in (first, second)]
        threads[0].start()
        assert asked.wait(20)
        threads[1].start()
        until(lambda: waiting() == 1)
        first.close()
        answer.set()
        for thread in threads:
            thread.join(20)
    assert outcomes[first].reason == "closed"
    assert outcomes[second].ok
    assert len(times) == 2


def test_that_there_is_no_more_for_one_thread_is_not_said_to_another(world: OAuthWorld) -> None:
    """A refusal that names no scope leads nowhere; the one that waits behind it names one."""
    found = threading.Event()
    oauth = OAuth(sign_in=world.authorize, store=MemoryTokenStore())
    with Client.connect(world.resource_url, auth=oauth) as client:
        world.faults["mcp"] = Fault(403, headers={"WWW-Authenticate": 'Bearer error="insufficient_scope"'}, times=1)
        world.faults["resource_metadata"] = Fault(wait=found, times=1)
        before = world.count("resource_metadata")
        first = client.start_tool_call("test-tool")
        until(lambda: world.count("resource_metadata") > before)
        second = client.start_tool_call("admin-tool")
        until(lambda: waiting() == 1)
        found.set()
        assert failed(first.result(timeout=20)).data["http_status"] == 403
        assert second.result(timeout=20).ok
    assert world.count("authorize") == 2


@pytest.mark.parametrize("message", ["the end of a session", "a notification"])
def test_a_call_behind_a_message_that_nobody_waits_for_asks_a_person(world: OAuthWorld, message: str) -> None:
    found = threading.Event()
    world.refresh = False
    oauth = OAuth(sign_in=world.authorize, store=MemoryTokenStore())
    with ExitStack() as stack:
        connected = (Client.connect(world.resource_url, auth=oauth, protocol="2025-11-25") for _ in range(2))
        other, client = map(stack.enter_context, connected)
        send = other.close if message == "the end of a session" else partial(other.notify, "notifications/x")
        world.revoke_all()
        world.faults["resource_metadata"] = Fault(wait=found, times=1)
        before = world.count("resource_metadata")
        first = threading.Thread(target=send, daemon=True)
        first.start()
        until(lambda: world.count("resource_metadata") > before)
        call = client.start_tool_call("test-tool")
        until(lambda: waiting() == 1)
        assert world.count("authorize") == 1
        found.set()
        assert call.result(timeout=20).ok
        first.join(20)
    assert world.count("authorize") == 2


# --- what is still good -----------------------------------------------------------------------------------------------


def test_a_token_that_is_still_good_is_used_while_a_person_signs_in_for_more(world: OAuthWorld, clock: Clock) -> None:
    asked, answer = threading.Event(), threading.Event()

    def person(url: str) -> str:
        asked.set()
        assert answer.wait(20)
        return world.authorize(url)

    oauth = signed_in(world)
    oauth.sign_in = person
    with Client.connect(world.resource_url, auth=oauth) as client:
        more = client.start_tool_call("admin-tool")
        assert asked.wait(20)
        clock.now += LATE
        try:
            assert client.start_tool_call("test-tool").result(timeout=5).ok
        finally:
            clock.now -= LATE
            answer.set()
        assert more.result(timeout=20).ok
    assert world.count("token", grant_type="refresh_token") == 0


def test_a_token_that_is_still_good_is_used_while_another_process_signs_in(
    world: OAuthWorld, clock: Clock, tmp_path: Path
) -> None:
    store = tmp_path / "tokens.json"
    oauth = signed_in(world, store=FileTokenStore(store))
    with Client.connect(world.resource_url, auth=oauth) as client, program(SIGN_IN_FOR_MORE, world, store) as other:
        page = said(other)
        clock.now += LATE
        assert client.call_tool("test-tool", timeout=5).ok
        assert world.count("token", grant_type="refresh_token") == 0
        tell(other, world.authorize(page))
        assert said(other) == "True"


def test_a_token_that_could_not_be_renewed_in_time_is_not_renewed_for_each_call(
    world: OAuthWorld, clock: Clock
) -> None:
    with Client.connect(world.resource_url, auth=signed_in(world)) as client:
        world.faults["token"] = Fault(503)
        clock.now += LATE - 15.0
        tries = []
        for passed in (0.0, 0.0, 9.0, 2.0, 9.0):
            clock.now += passed
            assert client.call_tool("test-tool").ok
            tries.append(world.count("token", grant_type="refresh_token"))
    assert tries == [1, 1, 1, 2, 2]


# --- a fork ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_child_of_a_fork_does_not_wait_for_a_thread_of_its_parent(world: OAuthWorld, version: str) -> None:
    oauth = signed_in(world)
    with Client.connect(world.resource_url, auth=oauth, protocol=version) as client:
        world.revoke_all()
        release = threading.Event()
        world.faults["token"] = Fault(wait=release, times=1)
        call = client.start_tool_call("test-tool")
        until(lambda: world.count("token", grant_type="refresh_token") == 1)

        def in_the_child() -> tuple[bool, bool]:
            with Client.connect(world.resource_url, auth=oauth, protocol=version) as other:
                return bool(other.call_tool("test-tool").ok), bool(client.call_tool("test-tool").ok)

        assert in_a_child(in_the_child) == (True, True)
        oauth.sign_in = world.authorize  # the child has used up the refresh token
        release.set()
        assert call.result(timeout=20).ok


def test_a_fork_may_happen_when_a_server_is_met_for_the_first_time(world: OAuthWorld) -> None:
    oauth = OAuth(sign_in="never", store=MemoryTokenStore())
    inside, go = threading.Event(), threading.Event()

    def stop(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is account.Account.__init__.__code__:
            inside.set()
            go.wait(20)

    def meet() -> None:
        sys.setprofile(stop)
        oauth.status(world.resource_url)

    thread = threading.Thread(target=meet, daemon=True)
    thread.start()
    assert inside.wait(20)
    try:
        assert in_a_child(lambda: oauth.status(world.resource_url), 2.0) is None
    finally:
        go.set()
        thread.join(20)


def test_a_child_of_a_fork_signs_in_by_itself(world: OAuthWorld, tmp_path: Path) -> None:
    """It waits for the lock of its parent, and not for a flight that nobody flies there."""
    asked, answer = threading.Event(), threading.Event()

    def person(url: str) -> str:
        asked.set()
        assert answer.wait(20)
        return world.authorize(url)

    def answer_when_both_wait() -> None:
        until(lambda: len(refusals(world)) == 2)
        answer.set()

    world.open_methods = {"server/discover"}
    oauth = OAuth(sign_in=person, store=FileTokenStore(tmp_path / "tokens.json"))
    with Client.connect(world.resource_url, auth=oauth) as client:
        call = client.start_tool_call("test-tool")
        assert asked.wait(20)
        threading.Thread(target=answer_when_both_wait, daemon=True).start()
        assert in_a_child(lambda: bool(client.call_tool("test-tool").ok))
        assert call.result(timeout=20).ok
    assert (world.count("authorize"), world.count("token")) == (1, 1)


# --- processes --------------------------------------------------------------------------------------------------------


def test_two_processes_refresh_a_shared_token_once(world: OAuthWorld, tmp_path: Path) -> None:
    store = tmp_path / "tokens.json"
    signed_in(world, store=FileTokenStore(store))
    with ExitStack() as stack:
        programs = [stack.enter_context(program(CALL, world, store)) for _ in range(2)]
        assert [said(each) for each in programs] == ["ready"] * 2
        world.revoke_all()
        for each in programs:
            tell(each)
        assert [said(each) for each in programs] == ["True"] * 2
    assert world.count("token", grant_type="refresh_token") == 1
    assert world.reused_refresh == 0


def test_of_two_processes_that_want_to_sign_in_one_asks(world: OAuthWorld, tmp_path: Path) -> None:
    store = tmp_path / "tokens.json"
    with program(SIGN_IN, world, store) as first, program(SIGN_IN, world, store) as second:
        lines: dict[str, str] = {}

        def read(name: str, process: subprocess.Popen[str]) -> Callable[[], None]:
            def job() -> None:
                lines[name] = said(process)

            return job

        for name, process in (("first", first), ("second", second)):
            threading.Thread(target=read(name, process), daemon=True).start()
        until(lambda: len(lines) == 1 and refusals(world).count(401) == 2)
        asked = first if "first" in lines else second
        other = second if asked is first else first
        tell(asked, world.authorize(next(iter(lines.values()))))
        assert said(asked) == "True"
        until(lambda: len(lines) == 2)
        assert lines["second" if other is second else "first"] == "True"
    assert (world.count("authorize"), world.count("token")) == (1, 1)


def test_a_process_goes_on_when_the_one_that_signs_in_is_killed(world: OAuthWorld, tmp_path: Path) -> None:
    store = tmp_path / "tokens.json"
    with program(SIGN_IN, world, store) as first:
        assert said(first).startswith("http")
        with program(SIGN_IN, world, store) as second:
            until(lambda: refusals(world).count(401) == 2)
            os.kill(first.pid, signal.SIGKILL)
            tell(second, world.authorize(said(second)))
            assert said(second) == "True"
    assert world.count("authorize") == 1


def test_a_process_that_waits_for_another_waits_no_longer_than_its_call(world: OAuthWorld, tmp_path: Path) -> None:
    store = tmp_path / "tokens.json"
    with program(SIGN_IN, world, store) as first:
        assert said(first).startswith("http")
        begun = time.monotonic()
        with pytest.raises(McpError) as raised:
            Client.connect(world.resource_url, timeout=0.5, auth=OAuth(sign_in="never", store=FileTokenStore(store)))
        assert 0.5 <= time.monotonic() - begun < 2.5
    assert raised.value.reason == "timeout"
    assert "another process" in raised.value.message
