"""How `auth=` gets into requests, whatever it is, and what follows a refusal: at most the same request again."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import requests.auth

from snodo_client import Client, McpError
from snodo_client.auth import Challenge, MemoryTokenStore, OAuth
from snodo_client.testing import Call, Gate, inputs
from support.oauth_issuer import Granted
from support.oauth_server import Fault, OAuthWorld, Seen
from support.waiting import together, until

MODERN, LEGACY = VERSIONS = ("2026-07-28", "2025-11-25")
CROWD = 32


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        yield world


@pytest.fixture
def runs(world: OAuthWorld) -> list[int]:
    """Each run of the tool "count"."""
    found: list[int] = []

    @world.server.tool(name="count")
    def count() -> str:
        """Have a side effect."""
        found.append(1)
        return "counted"

    return found


def signed_in(world: OAuthWorld, **options: Any) -> OAuth:
    """Somebody who has a token already, and cannot sign in again."""
    oauth = OAuth(sign_in=world.authorize, store=MemoryTokenStore(), **options)
    assert oauth.login(world.resource_url).ok
    oauth.sign_in = "never"
    return oauth


def failed(outcome: object) -> McpError:
    assert isinstance(outcome, McpError), outcome
    return outcome


def sent(world: OAuthWorld, method: str) -> list[Seen]:
    """The requests of a JSON-RPC method, or those by GET or DELETE."""
    return [seen for seen in world.seen("mcp") if (_method(seen) if seen.method == "POST" else seen.method) == method]


def _method(seen: Seen) -> str:
    message = json.loads(seen.body)
    return str(message.get("method", "answer"))


def statuses(world: OAuthWorld, method: str) -> list[int]:
    return [seen.status for seen in sent(world, method)]


def tokens(world: OAuthWorld, method: str) -> list[str]:
    return [seen.headers.get("authorization", "") for seen in sent(world, method)]


# --- what was refused is sent again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_call_that_was_refused_is_sent_once_more_and_runs_once(
    world: OAuthWorld, runs: list[int], version: str
) -> None:
    with Client.connect(world.resource_url, auth=signed_in(world), protocol=version) as client:
        world.revoke_all()
        assert client.call_tool("count").ok
    first, second = sent(world, "tools/call")
    assert (first.status, second.status) == (401, 200)
    assert first.body == second.body
    assert first.headers["authorization"] != second.headers["authorization"]
    assert {name: value for name, value in first.headers.items() if name != "authorization"} == {
        name: value for name, value in second.headers.items() if name != "authorization"
    }
    assert runs == [1]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_call_whose_new_tokens_are_refused_is_given_up(world: OAuthWorld, runs: list[int], version: str) -> None:
    oauth = signed_in(world)
    with Client.connect(world.resource_url, auth=oauth, protocol=version) as client:
        oauth.sign_in = world.authorize
        world.token_extra = {"access_token": "worthless"}
        world.revoke_all()
        assert failed(client.call_tool("count")).reason == "unauthorized"
    assert statuses(world, "tools/call") == [401] * 3  # after a refresh, and after a sign-in
    assert world.count("authorize") == 2
    assert runs == []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_message_survives_the_end_of_its_token(world: OAuthWorld, runs: list[int], version: str) -> None:
    client = Client.connect(world.resource_url, auth=signed_in(world), protocol=version)
    works: tuple[Callable[[], Any], ...] = (
        lambda: client.list_tools(),
        lambda: client.start_tool_call("count").result(timeout=20),
        lambda: client.notify("notifications/example"),
        lambda: client.request("example/unknown"),
    )
    for work in works:
        world.revoke_all()
        outcome = work()
        assert outcome.ok or outcome.reason is None, outcome
    world.revoke_all()
    client.close()
    assert statuses(world, "tools/list") == [401, 200]
    assert statuses(world, "tools/call") == [401, 200]
    assert statuses(world, "notifications/example")[0] == 401
    assert len(statuses(world, "notifications/example")) == 2
    assert len(statuses(world, "example/unknown")) == 2
    assert statuses(world, "DELETE") == ([401, 200] if version == LEGACY else [])
    assert world.count("authorize") == 1
    assert runs == [1]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_rounds_of_a_question_survive_the_end_of_a_token(world: OAuthWorld, version: str) -> None:
    finished: list[str] = []

    @world.server.tool(name="ask")
    def ask(call: Call) -> str:
        """Ask for a name."""
        # Without a state: those of the kit are good for one credential.
        answer = call.ask("name", inputs.form("Your name?", {"name": {"type": "string"}}), state=False)
        finished.append(answer["content"]["name"])
        return str(answer["content"]["name"])

    def answer(request: Any) -> dict[str, Any]:
        world.revoke_all()
        return {"action": "accept", "content": {"name": "Ada"}}

    with Client.connect(
        world.resource_url, auth=signed_in(world), protocol=version, handlers={"form": answer}
    ) as client:
        assert client.call_tool("ask").unwrap()["content"][0]["text"] == "Ada"
    assert finished == ["Ada"]
    again = statuses(world, "answer") if version == LEGACY else statuses(world, "tools/call")[1:]
    assert again[0] == 401
    assert len(again) == 2


def test_a_subscription_survives_the_end_of_its_token(world: OAuthWorld) -> None:
    with Client.connect(world.resource_url, auth=signed_in(world), protocol=MODERN) as client:
        world.revoke_all()
        subscription = client.listen(["notifications/tools/list_changed"])
        assert not isinstance(subscription, McpError)
        with subscription:
            world.revoke_all()
            assert client.call_tool("test-tool").ok
            world.server.emit("notifications/tools/list_changed")
            assert subscription.next(timeout=20) is not None
    assert statuses(world, "subscriptions/listen") == [401, 200]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_sent_again_is_reported_to_a_cancellation(world: OAuthWorld, version: str, tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")

    @world.server.tool(name="wait")
    def wait(call: Call) -> bool:
        """Wait for the gate."""
        return gate.hold(call)

    with Client.connect(world.resource_url, auth=signed_in(world), protocol=version) as client:
        world.revoke_all()
        world.faults["token"] = Fault(wait=threading.Event(), times=1)
        held = client.start_tool_call("wait")
        until(lambda: world.count("token", grant_type="refresh_token") == 1)
        assert held.cancel().request_delivery == "not_sent"
        assert failed(held.result(timeout=5)).reason == "cancelled"
        world.faults.clear()
        until(lambda: client.list_tools().ok)  # it has a token now
        world.revoke_all()
        running = client.start_tool_call("wait")
        gate.wait(started=1)
        assert running.cancel().request_delivery != "not_sent"
        assert failed(running.result(timeout=5)).reason == "cancelled"
        gate.wait(cancelled=1)
    assert statuses(world, "tools/call")[:2] == [401, 401]


def test_a_redirect_within_the_origin_is_signed_anew(world: OAuthWorld, runs: list[int]) -> None:
    """A proof is good once."""
    world.dpop = True
    with Client.connect(world.resource_url, auth=signed_in(world, dpop=True), protocol=MODERN) as client:
        world.faults["mcp"] = Fault(redirect=world.resource_url, times=1)
        assert client.call_tool("count").ok
    first, second = sent(world, "tools/call")
    assert (first.status, second.status) == (307, 200)
    assert first.headers["authorization"] == second.headers["authorization"]
    assert first.headers["dpop"] != second.headers["dpop"]
    assert runs == [1]


@pytest.mark.parametrize("status", [302, 307, 308])
def test_a_redirect_to_another_origin_gets_no_token(world: OAuthWorld, status: int) -> None:
    with Client.connect(world.resource_url, auth=signed_in(world), protocol=MODERN) as client:
        world.faults["mcp"] = Fault(status, redirect=f"{world.issuer}/mcp")
        assert not client.call_tool("test-tool").ok
    assert not [seen for seen in world.log if seen.server == world.issuer and seen.path == "/mcp"]


@pytest.mark.parametrize("version", VERSIONS)
def test_through_a_session_of_the_caller(world: OAuthWorld, runs: list[int], version: str) -> None:
    with requests.Session() as session:
        session.headers["X-Own"] = "1"
        session.auth = ("somebody", "else")
        with Client.connect(world.resource_url, auth=signed_in(world), protocol=version, session=session) as client:
            world.revoke_all()
            assert client.call_tool("count").ok
    assert statuses(world, "tools/call") == [401, 200]
    assert [seen.headers["x-own"] for seen in sent(world, "tools/call")] == ["1", "1"]
    assert all(token.startswith("Bearer ") for token in tokens(world, "tools/call"))
    assert runs == [1]


# --- what auth= may be ------------------------------------------------------------------------------------------------


def accept(world: OAuthWorld, *good: str) -> None:
    """These tokens are good, and no others."""
    world.authorization_server.access.clear()
    for token in good:
        world.authorization_server.access[token] = Granted("somebody", "", None)


class Bearer(requests.auth.AuthBase):
    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = "Bearer good"
        request.headers["X-Signed"] = "yes"
        return request


def signed(request: requests.PreparedRequest) -> requests.PreparedRequest:
    request.headers["Authorization"] = "Bearer good"
    return request


def in_place(request: requests.PreparedRequest) -> None:
    request.headers["Authorization"] = "Bearer good"


def of(token: str) -> str:
    return token


def for_tenant(tenant: str, request: requests.PreparedRequest) -> requests.PreparedRequest:
    request.headers["Authorization"] = f"Bearer {tenant}"
    return request


class Signer:
    def sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return signed(request)

    def give(self) -> str:
        return "good"

    def with_default(self, scope: str = "all") -> str:
        return "good"


class Fixed:
    """A provider of one token."""

    def token(self) -> str:
        return "good"

    def refresh(self, challenge: Challenge | None) -> None:
        raise AssertionError("nothing was refused")


FORMS: dict[str, Any] = {
    "a token": "good",
    "an authenticator": Bearer(),
    "a function of the request": signed,
    "a function that changes the request": in_place,
    "a method of the request": Signer().sign,
    "a partial of the request": functools.partial(for_tenant, "good"),
    "a lambda": lambda: "good",
    "a partial": functools.partial(of, "good"),
    "a partial with a keyword": functools.partial(of, token="good"),
    "a method": Signer().give,
    "a function with a default": Signer().with_default,
    "a provider": Fixed(),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_signs_every_request(world: OAuthWorld, version: str, form: str) -> None:
    accept(world, "good")
    with Client.connect(world.resource_url, auth=FORMS[form], protocol=version) as client:
        assert client.call_tool("test-tool").ok
        assert client.notify("notifications/example").ok
    assert {seen.headers.get("authorization") for seen in world.seen("mcp")} == {"Bearer good"}
    assert (form == "an authenticator") == all("x-signed" in seen.headers for seen in world.seen("mcp"))


@pytest.mark.parametrize("wrong", [Bearer, Fixed, OAuth, 7, b"token", ["token"], ("user", "password"), object()])
def test_what_signs_nothing_is_refused_before_anything_is_sent(world: OAuthWorld, wrong: Any) -> None:
    with pytest.raises(TypeError, match="auth"):
        Client.connect(world.resource_url, auth=wrong)
    assert world.log == []


@pytest.mark.parametrize(
    ("form", "asked"),
    [("a token", 1), ("an authenticator", 1), ("a function of the request", 1), ("a lambda", 1)],
)
def test_a_refusal_of_what_cannot_be_another_is_final(world: OAuthWorld, form: str, asked: int) -> None:
    accept(world)
    with Client.connect(world.resource_url, auth=FORMS[form], protocol=MODERN) as client:
        error = failed(client.call_tool("test-tool"))
    assert error.reason == "unauthorized"
    assert len(sent(world, "tools/call")) == asked
    assert world.count("token") == 0
    assert "good" not in f"{error!r} {error.data}"


def test_a_callable_is_asked_again_when_its_token_was_refused(world: OAuthWorld, runs: list[int]) -> None:
    accept(world, "new")
    given = iter(["old", "new"])
    with Client.connect(world.resource_url, auth=lambda: next(given), protocol=MODERN) as client:
        assert client.call_tool("count").ok
    assert tokens(world, "tools/call") == ["Bearer old", "Bearer new"]
    assert runs == [1]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("netrc")
def test_netrc_is_not_read(world: OAuthWorld, version: str) -> None:
    with pytest.raises(McpError), Client.connect(world.resource_url, auth=lambda: None, protocol=version) as client:
        client.call_tool("test-tool").unwrap()
    accept(world, "good")
    with Client.connect(world.resource_url, auth=signed, protocol=version) as client:
        assert client.call_tool("test-tool").ok
    oauth = OAuth(sign_in=world.authorize, store=MemoryTokenStore())
    with Client.connect(world.resource_url, auth=oauth, protocol=version) as client:
        assert client.call_tool("test-tool").ok
    assert not [seen for seen in world.log if seen.headers.get("authorization", "").startswith("Basic")]


@pytest.fixture
def netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / ".netrc"
    file.write_text("machine localhost login somebody password else\nmachine 127.0.0.1 login somebody password else\n")
    file.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(file))


# --- providers --------------------------------------------------------------------------------------------------------


class Provider:
    """Gives a token, and another one when it is asked to."""

    def __init__(self, token: Any, *others: Any) -> None:
        self.current = token
        self.others = list(others)
        self.challenges: list[Challenge | None] = []
        self.lock = threading.Lock()

    def token(self) -> Any:
        return self.current

    def refresh(self, challenge: Challenge | None) -> Any:
        assert self.lock.acquire(blocking=False), "two at a time"
        try:
            self.challenges.append(challenge)
            new = self.others.pop(0)
            if isinstance(new, BaseException):
                raise new
            self.current = new
            return new
        finally:
            self.lock.release()


def crowd(client: Client) -> list[Any]:
    """The outcomes of as many calls, made at the same moment."""
    gate, outcomes = threading.Barrier(CROWD), []

    def one() -> None:
        gate.wait(20)
        outcomes.append(client.call_tool("test-tool"))

    together([one] * CROWD)
    return outcomes


@pytest.mark.parametrize("version", VERSIONS)
def test_a_provider_is_asked_once_for_all_threads(world: OAuthWorld, version: str) -> None:
    accept(world, "old", "new")
    provider = Provider("old", "new")
    with Client.connect(world.resource_url, auth=provider, protocol=version, pool_size=CROWD) as client:
        assert client.call_tool("test-tool").ok
        accept(world, "new")
        assert [outcome.ok for outcome in crowd(client)] == [True] * CROWD
    (challenge,) = provider.challenges
    assert challenge is not None
    assert challenge.error == "invalid_token"


@pytest.mark.parametrize("version", VERSIONS)
def test_each_thread_asks_a_callable_for_itself(world: OAuthWorld, version: str) -> None:
    accept(world, "old", "new")
    asked: list[None] = []

    def token() -> str:
        asked.append(None)
        return "old" if len(asked) <= CROWD else "new"

    with Client.connect(world.resource_url, auth=token, protocol=version, pool_size=CROWD) as client:
        accept(world, "new")
        asked.clear()
        outcomes = crowd(client)
        assert CROWD < len(asked) <= 2 * CROWD
    assert any(outcome.ok for outcome in outcomes)
    assert {failed(outcome).reason for outcome in outcomes if not outcome.ok} <= {"unauthorized"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_token_that_is_no_good_is_sent_once_by_each_thread(world: OAuthWorld, version: str) -> None:
    accept(world, "good")
    with Client.connect(world.resource_url, auth="good", protocol=version, pool_size=CROWD) as client:
        accept(world)
        assert {failed(outcome).reason for outcome in crowd(client)} == {"unauthorized"}
    assert statuses(world, "tools/call") == [401] * CROWD


def test_a_provider_is_tried_twice_at_most(world: OAuthWorld) -> None:
    provider = Provider("old", "older", "oldest")
    with Client.connect(world.resource_url, auth=provider, protocol=MODERN) as client:
        assert failed(client.call_tool("test-tool")).reason == "unauthorized"
    assert tokens(world, "tools/call") == ["Bearer old", "Bearer older"]


@pytest.mark.parametrize("given", ["old", None])
def test_a_provider_without_another_token_is_not_tried_again(world: OAuthWorld, given: str | None) -> None:
    with Client.connect(world.resource_url, auth=Provider("old", given), protocol=MODERN) as client:
        assert failed(client.call_tool("test-tool")).reason == "unauthorized"
    assert tokens(world, "tools/call") == ["Bearer old"]


def test_a_provider_may_begin_without_a_token(world: OAuthWorld) -> None:
    accept(world, "new")
    provider = Provider(None, "new")
    with Client.connect(world.resource_url, auth=provider, protocol=MODERN) as client:
        assert client.call_tool("test-tool").ok
    assert tokens(world, "tools/call") == ["", "Bearer new"]


def test_a_provider_is_asked_for_a_token_with_another_scope(world: OAuthWorld) -> None:
    world.authorization_server.access["low"] = Granted("somebody", "", None)
    world.authorization_server.access["high"] = Granted("somebody", "admin", None)
    provider = Provider("low", "high")
    with Client.connect(world.resource_url, auth=provider, protocol=MODERN) as client:
        assert client.call_tool("admin-tool").ok
    assert tokens(world, "tools/call") == ["Bearer low", "Bearer high"]
    (challenge,) = provider.challenges
    assert challenge is not None
    assert (challenge.error, challenge.scope) == ("insufficient_scope", ("admin",))


def test_a_callable_is_not_asked_again_for_another_scope(world: OAuthWorld) -> None:
    accept(world, "low")
    with Client.connect(world.resource_url, auth=lambda: "low", protocol=MODERN) as client:
        assert failed(client.call_tool("admin-tool")).data["http_status"] == 403
    assert len(sent(world, "tools/call")) == 1


JUNK = [7, b"bytes", "", "two words", "line\nfeed", "ünicode", object(), ["list"]]


@pytest.mark.parametrize("junk", JUNK, ids=[f"{number}" for number in range(len(JUNK))])
def test_what_is_no_token_is_not_sent(world: OAuthWorld, junk: Any) -> None:
    with Client.connect(world.resource_url, auth=Provider("old", junk), protocol=MODERN) as client:
        refreshed = failed(client.call_tool("test-tool"))
    with Client.connect(world.resource_url, auth=lambda: junk, protocol=MODERN) as client:
        given = failed(client.call_tool("test-tool"))
    assert (refreshed.reason, given.reason) == ("transport_failure", "transport_failure")
    assert tokens(world, "tools/call") == ["Bearer old"]


@pytest.mark.parametrize("where", ["token", "refresh", "callable", "authenticator"])
def test_what_it_raises_is_told_by_name_alone(world: OAuthWorld, where: str) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("a-secret")

    provider = Provider("old", KeyError("a-secret"))
    if where == "token":
        provider.token = fail  # type: ignore[method-assign]
    auth: Any = {"callable": lambda: fail(), "authenticator": lambda request: fail(request)}.get(where, provider)
    with Client.connect(world.resource_url, auth=auth, protocol=MODERN) as client:
        error = failed(client.call_tool("test-tool"))
    assert error.reason == "transport_failure"
    assert "KeyError" in error.message
    assert "a-secret" not in f"{error!r} {error.message} {error.data} {error.__cause__!r} {error.__context__!r}"


@pytest.mark.parametrize("method", ["token", "refresh"])
def test_an_interrupt_in_a_provider_gets_out(world: OAuthWorld, method: str) -> None:
    provider = Provider("old", KeyboardInterrupt())
    with Client.connect(world.resource_url, auth=provider, protocol=MODERN) as client:
        if method == "token":
            provider.token = raising(KeyboardInterrupt)  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("test-tool")


def raising(kind: type[BaseException]) -> Callable[[], Any]:
    def token() -> Any:
        raise kind

    return token


def test_who_waits_for_a_provider_waits_no_longer_than_its_call(world: OAuthWorld) -> None:
    begun, release = threading.Event(), threading.Event()

    class Slow(Provider):
        def refresh(self, challenge: Challenge | None) -> Any:
            begun.set()
            assert release.wait(20)
            return super().refresh(challenge)

    accept(world, "new")
    with Client.connect(world.resource_url, auth=Slow("old", "new"), protocol=MODERN) as client:
        leader = client.start_tool_call("test-tool")
        assert begun.wait(20)
        assert failed(client.call_tool("test-tool", timeout=0.3)).reason == "timeout"
        cancelled = client.start_tool_call("test-tool")
        until(lambda: len(sent(world, "tools/call")) == 3 and cancelled._call.delivery == "not_sent")
        assert cancelled.cancel().request_delivery == "not_sent"
        assert failed(cancelled.result(timeout=2)).reason == "cancelled"
        release.set()
        assert leader.result(timeout=20).ok


def test_an_authenticator_changes_nothing_but_headers(world: OAuthWorld) -> None:
    def rewrite(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.url, request.method, request.body = "http://127.0.0.1:9/elsewhere", "DELETE", b"{}"
        return signed(request)

    accept(world, "good")
    with Client.connect(world.resource_url, auth=rewrite, protocol=MODERN) as client:
        assert client.call_tool("test-tool").ok
    assert len(sent(world, "tools/call")) == 1
