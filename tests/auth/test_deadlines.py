"""How long authorization takes: a person's time counts for nobody, everything else for the call, and all of it ends at
once when nobody wants it any more.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from snodo_client import Client, McpError
from snodo_client.auth import MemoryTokenStore, OAuth
from snodo_client.transports.http_legacy import DELETE_SECONDS
from support.leaks import repeat
from support.oauth_server import Fault, OAuthWorld
from support.waiting import until

VERSIONS = ("auto", "2025-11-25")
BRIEF = 1.5  # seconds a call has
SLOW = 3.0  # seconds a person takes

# The browser is no process of its own: CPython may lose a signal that arrives while another thread forks.
INTERRUPTED = """
import sys, webbrowser
from snodo_client import Client
from snodo_client.auth import MemoryTokenStore, OAuth

class Browser(webbrowser.BaseBrowser):
    def open(self, url, new=0, autoraise=True):
        print("opened", flush=True)
        return True

webbrowser.register("ours", None, Browser(), preferred=True)
try:
    client = Client.connect(sys.argv[1], auth=OAuth(store=MemoryTokenStore()), protocol=sys.argv[2])
    print("connected", flush=True)
    client.call_tool("test-tool")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        yield world


@pytest.fixture
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that shows nothing, for a person who never comes."""
    monkeypatch.setenv("BROWSER", "true")


def oauth(sign_in: Any, **options: Any) -> OAuth:
    return OAuth(sign_in=sign_in, store=MemoryTokenStore(), **options)


def failed(outcome: object) -> McpError:
    assert isinstance(outcome, McpError), outcome
    return outcome


class Person:
    """Takes some time to sign in."""

    def __init__(self, world: OAuthWorld, seconds: float = SLOW) -> None:
        self.asked = threading.Event()
        self.times = 0
        self._world = world
        self._seconds = seconds

    def __call__(self, url: str) -> str:
        self.times += 1
        self.asked.set()
        threading.Event().wait(self._seconds)
        return self._world.authorize(url)


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A thread that does it, and where its result, or what it raised, will be."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as raised:
            results.append(raised)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def refusals(world: OAuthWorld) -> int:
    return sum(seen.status == 401 for seen in world.seen("mcp"))


# --- the time of a person ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("through", ["connect", "wait=False", "call"])
def test_a_person_has_time_of_their_own(world: OAuthWorld, version: str, through: str) -> None:
    person = Person(world)
    if through == "call":
        world.open_methods = {"server/discover", "initialize", "notifications/initialized"}
    client = Client.connect(
        world.resource_url, auth=oauth(person), protocol=version, timeout=BRIEF, wait=through != "wait=False"
    )
    with client:
        begun = time.monotonic()
        assert client.call_tool("test-tool").ok
        assert through == "connect" or time.monotonic() - begun >= SLOW - 0.1
    assert person.times == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_person_has_time_of_their_own_through_a_session(world: OAuthWorld, version: str) -> None:
    with (
        requests.Session() as session,
        Client.connect(
            world.resource_url, auth=oauth(Person(world)), protocol=version, timeout=BRIEF, session=session
        ) as client,
    ):
        assert client.call_tool("test-tool").ok


@pytest.mark.parametrize("version", VERSIONS)
def test_who_waits_for_the_sign_in_of_another_thread_is_not_charged_for_it(world: OAuthWorld, version: str) -> None:
    person = Person(world)
    world.open_methods = {"server/discover", "initialize", "notifications/initialized"}
    with Client.connect(world.resource_url, auth=oauth(person), protocol=version, timeout=BRIEF) as client:
        first, led = in_thread(lambda: client.call_tool("test-tool"))
        assert person.asked.wait(20)
        second, waited = in_thread(lambda: client.call_tool("test-tool"))
        first.join(20)
        second.join(20)
        assert [outcome.ok for outcome in (*led, *waited)] == [True] * 2
    assert person.times == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_who_waits_for_a_negotiation_that_waits_for_the_sign_in_is_not_charged_either(
    world: OAuthWorld, version: str
) -> None:
    person = Person(world)
    auth = oauth(person)
    first, led = in_thread(lambda: Client.connect(world.resource_url, auth=auth, protocol=version, timeout=BRIEF))
    assert person.asked.wait(20)
    with Client.connect(world.resource_url, auth=auth, protocol=version, timeout=BRIEF, wait=False) as client:
        assert client.call_tool("test-tool").unwrap()
    first.join(20)
    led[0].close()
    assert person.times == 1


def test_after_the_person_the_call_has_the_time_it_had_before(world: OAuthWorld) -> None:
    world.open_methods = {"server/discover"}
    world.faults["token"] = Fault(wait=threading.Event())
    with Client.connect(world.resource_url, auth=oauth(Person(world, 1.5)), timeout=BRIEF) as client:
        begun = time.monotonic()
        error = failed(client.call_tool("test-tool"))
        assert error.reason == "timeout"
        assert 1.5 + BRIEF - 0.2 <= time.monotonic() - begun < 1.5 + BRIEF + 2.0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("no_browser")
def test_a_person_who_does_not_come_is_not_waited_for(world: OAuthWorld, version: str) -> None:
    begun = time.monotonic()
    with pytest.raises(McpError) as raised:
        Client.connect(world.resource_url, auth=oauth("browser", sign_in_timeout=0.3), protocol=version)
    assert 0.3 <= time.monotonic() - begun < 2.3
    assert raised.value.reason == "authorization_failed"
    assert "sign_in_timeout=0.3" in raised.value.message


# --- servers that say nothing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("route", ["resource_metadata", "server_metadata", "register", "token"])
def test_a_server_that_says_nothing_ends_the_call_at_its_deadline(world: OAuthWorld, version: str, route: str) -> None:
    world.faults[route] = Fault(wait=threading.Event())
    begun = time.monotonic()
    with pytest.raises(McpError) as raised:
        Client.connect(world.resource_url, auth=oauth(world.authorize), protocol=version, timeout=BRIEF)
    assert BRIEF <= time.monotonic() - begun < BRIEF + 2.0
    assert raised.value.reason == "timeout"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refresh_that_is_not_answered_ends_the_call_at_its_deadline(world: OAuthWorld, version: str) -> None:
    with Client.connect(world.resource_url, auth=oauth(world.authorize), protocol=version) as client:
        world.revoke_all()
        world.faults["token"] = Fault(wait=threading.Event())
        begun = time.monotonic()
        assert failed(client.call_tool("test-tool", timeout=BRIEF)).reason == "timeout"
        assert BRIEF <= time.monotonic() - begun < BRIEF + 2.0
        del world.faults["token"]
        assert client.call_tool("test-tool").ok


def test_closing_does_not_wait_long_for_a_refresh(world: OAuthWorld) -> None:
    client = Client.connect(world.resource_url, auth=oauth(world.authorize), protocol="2025-11-25")
    world.revoke_all()
    world.faults["token"] = Fault(wait=threading.Event())
    begun = time.monotonic()
    client.close()
    assert DELETE_SECONDS - 0.1 <= time.monotonic() - begun < DELETE_SECONDS + 2.0


def test_closing_asks_no_person(world: OAuthWorld) -> None:
    person = Person(world, 0.0)
    client = Client.connect(world.resource_url, auth=oauth(person), protocol="2025-11-25")
    world.revoke_all()
    world.revoke_refresh()
    client.close()
    assert person.times == 1


# --- nobody wants it any more -----------------------------------------------------------------------------------------


def port_shown(capsys: pytest.CaptureFixture[str]) -> int:
    """The port that the browser is sent back to, once the page is shown."""
    shown = ""

    def page() -> re.Match[str] | None:
        nonlocal shown
        shown += capsys.readouterr().err
        return re.search(r"Sign in at (\S+)\n", shown)

    until(page)
    found = page()
    assert found is not None
    (back,) = parse_qs(urlsplit(found[1]).query)["redirect_uri"]
    port = urlsplit(back).port
    assert port is not None
    return port


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def threads_of_ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("snodo-")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("how", ["cancel", "cancel_all", "close"])
@pytest.mark.usefixtures("no_browser")
def test_a_sign_in_ends_with_the_call(
    world: OAuthWorld, version: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.open_methods = {"server/discover", "initialize", "notifications/initialized"}
    with Client.connect(world.resource_url, auth=oauth("browser"), protocol=version) as client:
        call = client.start_tool_call("test-tool")
        port = port_shown(capsys)
        assert listens(port)
        begun = time.monotonic()
        if how == "close":
            client.close()
        else:
            (report,) = [call.cancel()] if how == "cancel" else client.cancel_all()
            assert (report.local, report.request_delivery) == ("cancelled", "not_sent")
            assert report.notification_delivery == "not_needed"
        outcome = failed(call.result(timeout=5))
        assert outcome.reason == ("closed" if how == "close" else "cancelled")
        until(lambda: not listens(port), 2)
        assert time.monotonic() - begun < 2
    until(lambda: "snodo-call" not in threads_of_ours() and "snodo-http-post" not in threads_of_ours(), 2)
    assert world.count("token") == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("no_browser")
def test_a_sign_in_of_a_connection_in_the_background_ends_with_the_client(
    world: OAuthWorld, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client.connect(world.resource_url, auth=oauth("browser"), protocol=version, wait=False)
    port = port_shown(capsys)
    begun = time.monotonic()
    client.close()
    until(lambda: not listens(port) and "snodo-connecting" not in threads_of_ours(), 3)
    assert time.monotonic() - begun < 2


@pytest.mark.usefixtures("no_browser")
def test_nothing_is_left_of_sign_ins_that_ended(world: OAuthWorld, capsys: pytest.CaptureFixture[str]) -> None:
    world.open_methods = {"server/discover"}

    def once() -> None:
        with Client.connect(world.resource_url, auth=oauth("browser")) as client:
            call = client.start_tool_call("test-tool")
            until(lambda: "Sign in at" in capsys.readouterr().err)
            call.cancel()
            assert failed(call.result(timeout=5)).reason == "cancelled"

    repeat(3, once)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("through", ["connect", "call"])
def test_an_interrupt_ends_a_sign_in(world: OAuthWorld, version: str, through: str) -> None:
    if through == "call":
        world.open_methods = {"server/discover", "initialize", "notifications/initialized"}
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, world.resource_url, version],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            before = ["connected\n"] if through == "call" else []
            assert [process.stdout.readline() for _ in range(len(before) + 1)] == [*before, "opened\n"]
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
            assert time.monotonic() - begun < 2
        finally:
            process.kill()
    assert out == "interrupted\n"
    assert "Traceback" not in err
    assert process.returncode == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_person_did_for_a_call_that_was_cancelled_is_not_used(world: OAuthWorld, version: str) -> None:
    """A function cannot be interrupted: it is heard to its end, and the call is over long before."""
    person = Person(world, 1.0)
    world.open_methods = {"server/discover", "initialize", "notifications/initialized"}
    with Client.connect(world.resource_url, auth=oauth(person), protocol=version) as client:
        call = client.start_tool_call("test-tool")
        assert person.asked.wait(20)
        assert call.cancel().request_delivery == "not_sent"
        begun = time.monotonic()
        assert failed(call.result(timeout=5)).reason == "cancelled"
        assert time.monotonic() - begun < 0.9
    until(lambda: world.count("authorize") == 1)
    until(lambda: "snodo-call" not in threads_of_ours() and "snodo-http-post" not in threads_of_ours(), 5)
    assert world.count("token") == 0
