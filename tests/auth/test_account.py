"""Credentials over time, with real servers: they end, are refused, are not enough, and come from somewhere else."""

from __future__ import annotations

import json
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from snodo_client import Client, McpError
from snodo_client.auth import EnterpriseManaged, KeyringTokenStore, MemoryTokenStore, OAuth, WorkloadIdentity
from snodo_client.auth.records import Credential
from support.oauth_issuer import Registered
from support.oauth_server import Fault, OAuthWorld

VERSIONS = ["2026-07-28", "2025-11-25"]
CANARY = "canary-77ab"


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        yield world


def person(world: OAuthWorld, **options: Any) -> OAuth:
    return OAuth(**{"sign_in": world.authorize, "store": MemoryTokenStore(), **options})


@contextmanager
def client(world: OAuthWorld, oauth: OAuth, **options: Any) -> Iterator[Client]:
    with Client.connect(world.resource_url, auth=oauth, **{"timeout": 10, **options}) as client:
        yield client


def call(world: OAuthWorld, oauth: OAuth, tool: str = "test-tool", **options: Any) -> Any:
    with client(world, oauth, **options) as connected:
        return connected.call_tool(tool)


def error_of(world: OAuthWorld, oauth: OAuth, **options: Any) -> McpError:
    """The error of a call, or of the connection before it."""
    try:
        outcome = call(world, oauth, **options)
    except McpError as error:
        return error
    assert isinstance(outcome, McpError)
    return outcome


def refused(world: OAuthWorld, oauth: OAuth, step: str, **options: Any) -> McpError:
    error = error_of(world, oauth, **options)
    assert (error.reason, error.data["step"]) == ("authorization_failed", step)
    assert CANARY not in f"{error} {error.data}"
    return error


def age(store: Any, seconds: float) -> Credential:
    """The credential that is kept, with so many seconds less to live. Who has it in memory does not know."""
    key = next(key for key in store._values if key.startswith("token "))
    credential = Credential.of(store.get(key))
    assert credential is not None
    assert credential.expires_at is not None
    assert credential.renew_at is not None
    credential.expires_at -= seconds
    credential.renew_at -= seconds
    store.set(key, credential.text())
    return credential


# --- another authorization server -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", VERSIONS)
def test_a_client_registers_anew_where_the_server_moves_to(world: OAuthWorld, protocol: str) -> None:
    oauth = person(world)
    with client(world, oauth, protocol=protocol) as connected:
        assert connected.call_tool("test-tool").ok
        old = world.issuer
        new = world.migrate()
        assert connected.call_tool("test-tool").ok
    assert [seen.server for seen in world.seen("register")] == [old, new]
    assert [seen.server for seen in world.seen("token")] == [old, new]
    status: Any = oauth.status(world.resource_url)
    assert status["issuer"] == new
    assert world.count("token", grant_type="refresh_token") == 0


def test_a_document_is_known_everywhere(world: OAuthWorld) -> None:
    url = "https://app.example/client.json"
    world.client_documents[url] = {"redirect_uris": ["http://localhost/callback"]}
    oauth = person(world, client_metadata_url=url)
    assert call(world, oauth).ok
    world.revoke_all()
    assert call(world, oauth).ok
    world.migrate()
    assert call(world, oauth).ok
    assert world.count("register") == 0
    assert {seen.form["client_id"] for seen in world.seen("token")} == {url}
    assert world.count("token", grant_type="refresh_token") == 1


def test_a_client_that_was_given_goes_to_no_other(world: OAuthWorld) -> None:
    world.add_client("me", CANARY)
    oauth = person(world, client_id="me", client_secret=CANARY)
    assert call(world, oauth).ok
    world.migrate()
    world.add_client("me", CANARY)
    error = refused(world, oauth, "server_metadata")
    assert "issuer=" in error.message
    assert world.count("authorize") == 1


def test_a_client_that_was_given_goes_to_those_that_know_it(world: OAuthWorld) -> None:
    world.add_client("me", "secret")
    issuers = [world.issuer]
    store = MemoryTokenStore()
    assert call(world, person(world, client_id="me", client_secret="secret", store=store, issuer=issuers)).ok
    issuers.append(world.migrate())
    world.add_client("me", "secret")
    assert call(world, person(world, client_id="me", client_secret="secret", store=store, issuer=issuers)).ok
    assert world.count("register") == 0
    assert [seen.server for seen in world.seen("token")] == issuers


def test_where_tokens_come_from_is_asked_at_each_refusal(world: OAuthWorld) -> None:
    with client(world, person(world)) as connected:
        for times in (1, 2, 3):
            assert connected.call_tool("test-tool").ok
            assert (world.count("resource_metadata"), world.count("server_metadata")) == (times, times)
            world.revoke_all()


# --- more ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", VERSIONS)
def test_more_is_asked_for_beside_what_there_was(world: OAuthWorld, protocol: str) -> None:
    world.challenge_scope = "read"
    world.tool_scopes["test-tool"] = "write"
    with client(world, person(world, scope="own"), protocol=protocol) as connected:
        assert connected.call_tool("test-tool").ok
        assert connected.call_tool("admin-tool").ok
        assert connected.call_tool("test-tool").ok
    asked = [seen.query["scope"].split() for seen in world.seen("authorize")]
    assert asked == [["read", "own"], ["read", "own", "write"], ["read", "own", "write", "admin"]]


def test_what_was_asked_for_is_not_asked_for_again(world: OAuthWorld) -> None:
    world.granted_scope = "little"
    with client(world, person(world)) as connected:
        for _ in range(3):
            outcome: Any = connected.call_tool("admin-tool")
            assert (outcome.reason, outcome.data["http_status"]) == ("unauthorized", 403)
        assert connected.call_tool("test-tool").ok
    assert world.count("authorize") == 2


def test_a_server_that_always_wants_more_gets_three_sign_ins(world: OAuthWorld) -> None:
    sign_ins: list[str] = []
    world.open_methods = {"server/discover"}

    def sign_in(url: str) -> str:
        sign_ins.append(url)
        world.tool_scopes["admin-tool"] = f"more-{len(sign_ins)}"
        return world.authorize(url)

    world.granted_scope = ""
    with client(world, person(world, sign_in=sign_in)) as connected:
        outcome: Any = connected.call_tool("admin-tool")
    assert (outcome.reason, outcome.data["http_status"]) == ("unauthorized", 403)
    assert len(sign_ins) == 3


def test_a_machine_asks_for_more_too(world: OAuthWorld) -> None:
    world.add_client("machine", "secret")
    oauth = OAuth(grant="client_credentials", client_id="machine", client_secret="secret", scope="own")
    assert call(world, oauth, "admin-tool").ok
    asked = [seen.form["scope"] for seen in world.seen("token", grant_type="client_credentials")]
    assert asked == ["own", "own admin"]


# --- renewing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", VERSIONS)
def test_a_refresh_that_is_refused_asks_a_person(world: OAuthWorld, protocol: str) -> None:
    with client(world, person(world), protocol=protocol) as connected:
        assert connected.call_tool("test-tool").ok
        world.revoke_all()
        world.revoke_refresh()
        assert connected.call_tool("test-tool").ok
        assert (world.count("token", grant_type="refresh_token"), world.count("authorize")) == (1, 2)
        world.revoke_all()
        assert connected.call_tool("test-tool").ok
        assert (world.count("token", grant_type="refresh_token"), world.count("authorize")) == (2, 2)


def test_a_refresh_token_that_was_refused_is_not_shown_again(world: OAuthWorld) -> None:
    oauth = person(world)
    assert oauth.login(world.resource_url).ok
    world.revoke_all()
    world.revoke_refresh()
    oauth.sign_in = "never"
    for _ in range(3):
        assert error_of(world, oauth).reason == "sign_in_required"
    assert world.count("token", grant_type="refresh_token") == 1


def test_one_that_another_program_had_refused_is_not_shown_either(world: OAuthWorld) -> None:
    store = MemoryTokenStore()
    assert person(world, store=store).login(world.resource_url).ok
    age(store, 3590.0)  # a little is left of it
    world.faults["token"] = Fault(503)
    with client(world, person(world, store=store)) as connected:
        assert connected.call_tool("test-tool").ok
        del world.faults["token"]
        world.revoke_refresh()
        before = world.count("token")
        assert call(world, person(world, store=store)).ok
        assert connected.call_tool("test-tool").ok
    assert [seen.status for seen in world.seen("token")[before:]] == [400]


FAULTS = [Fault(500), Fault(503, b"{}"), Fault(429), Fault(close=True), Fault(200, b"<html>"), Fault(redirect="/x")]


@pytest.mark.parametrize("fault", range(len(FAULTS)))
def test_a_refresh_in_trouble_spoils_no_token_that_is_good(world: OAuthWorld, fault: int) -> None:
    first = person(world)
    assert first.login(world.resource_url).ok
    known = age(first.store, 3590.0)
    oauth = person(world, store=first.store)
    world.faults["token"] = FAULTS[fault]
    with client(world, oauth) as connected:
        assert connected.call_tool("test-tool").ok
        assert world.count("token", grant_type="refresh_token") >= 1
        assert world.count("authorize") == 1
        del world.faults["token"]
        tried = world.count("token")
        assert connected.call_tool("test-tool").ok
        assert world.count("token") == tried  # not again at once: it may be what takes the time of every call
    assert call(world, person(world, store=first.store)).ok
    assert world.seen("token")[-1].form["refresh_token"] == known.refresh_token
    assert world.seen("token")[-1].status == 200
    assert known.access_token not in world.seen("mcp")[-1].headers["authorization"]


@pytest.mark.parametrize("protocol", VERSIONS)
def test_a_refresh_in_trouble_is_an_error_when_the_token_is_over(world: OAuthWorld, protocol: str) -> None:
    first = person(world)
    assert first.login(world.resource_url).ok
    age(first.store, 3600.0)
    oauth = person(world, store=first.store)
    world.faults["token"] = Fault(503)
    error = refused(world, oauth, "token", protocol=protocol)
    assert error.data["http_status"] == 503
    assert world.count("authorize") == 1
    del world.faults["token"]
    assert call(world, oauth, protocol=protocol).ok
    assert world.count("authorize") == 1


def test_a_refresh_keeps_what_it_says_nothing_of(world: OAuthWorld) -> None:
    world.rotate = False
    world.token_extra = {"scope": None}
    oauth = person(world, scope="a b")
    assert oauth.login(world.resource_url).ok
    for _ in range(2):
        world.revoke_all()
        assert call(world, oauth).ok
    assert len({seen.form["refresh_token"] for seen in world.seen("token", grant_type="refresh_token")}) == 1
    status: Any = oauth.status(world.resource_url)
    assert (status["scope"], status["refreshes"]) == (["a", "b"], True)


def test_a_token_that_ends_without_a_refresh_token_is_not_sent(world: OAuthWorld) -> None:
    world.refresh = False
    first = person(world)
    assert first.login(world.resource_url).ok
    age(first.store, 3600.0)
    oauth = person(world, store=first.store)
    assert call(world, oauth).ok
    assert (world.count("token", grant_type="refresh_token"), world.count("authorize")) == (0, 2)
    assert "authorization" not in world.seen("mcp")[1].headers  # the first was for the challenge


# --- registrations ----------------------------------------------------------------------------------------------------


def test_a_client_that_is_not_known_any_more_registers_again(world: OAuthWorld) -> None:
    oauth = person(world)
    assert call(world, oauth).ok
    world.revoke_all()
    world.forget_clients()
    assert call(world, oauth).ok
    assert (world.count("register"), world.count("authorize")) == (2, 2)


def test_a_code_that_an_unknown_client_brings_is_lost_once(world: OAuthWorld) -> None:
    def sign_in(url: str) -> str:
        callback_url = world.authorize(url)
        world.forget_clients()
        return callback_url

    oauth = person(world, sign_in=sign_in)
    assert refused(world, oauth, "token").data["error"] == "invalid_client"
    oauth.sign_in = world.authorize
    assert call(world, oauth).ok
    assert world.count("register") == 2


def test_a_secret_that_is_past_its_time_is_not_used(world: OAuthWorld) -> None:
    world.token_methods = ["client_secret_post"]
    oauth = person(world)
    assert oauth.login(world.resource_url).ok
    key = f"client {world.issuer}"
    stored = json.loads(oauth.store.get(key) or "")
    assert stored["client_secret"]
    oauth.store.set(key, json.dumps({**stored, "secret_expires_at": 1000.0}))
    assert oauth.login(world.resource_url).ok
    assert world.count("register") == 2
    assert oauth.login(world.resource_url).ok
    assert world.count("register") == 2


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that signs in and follows redirects, as a command."""
    script = tmp_path / "browser.py"
    script.write_text(
        "import sys, urllib.request\n"
        "opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))\n"
        "opener.open(sys.argv[1], timeout=10).read()\n"
    )
    monkeypatch.setenv("BROWSER", f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} %s")
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setattr("webbrowser._browsers", {})


def test_a_registration_is_used_again_at_its_port(world: OAuthWorld, browser: None) -> None:
    oauth = person(world, sign_in="browser")
    for _ in range(2):
        assert oauth.login(world.resource_url).ok
    assert world.count("register") == 1
    assert len({seen.query["redirect_uri"] for seen in world.seen("authorize")}) == 1


def test_a_registration_whose_port_is_taken_is_made_again(world: OAuthWorld, browser: None) -> None:
    oauth = person(world, sign_in="browser")
    assert oauth.login(world.resource_url).ok
    port = int(world.seen("authorize")[0].query["redirect_uri"].rpartition(":")[2].partition("/")[0])
    with socket.create_server(("127.0.0.1", port)):
        assert oauth.login(world.resource_url).ok
    assert world.count("register") == 2
    assert len({seen.query["redirect_uri"] for seen in world.seen("authorize")}) == 2


def test_a_person_may_take_all_the_time_that_is_allowed(world: OAuthWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def sign_in(url: str) -> str:
        later = time.time() + 1000.0
        for name, module in list(sys.modules.items()):
            if name.startswith("snodo_client.auth.") and hasattr(module, "time"):
                monkeypatch.setattr(module, "time", lambda: later)
        return world.authorize(url)

    assert person(world, sign_in=sign_in, sign_in_timeout=1200.0).login(world.resource_url).ok


# --- servers of 2025-03-26 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [["oauth"], []], ids=["metadata", "nothing"])
@pytest.mark.parametrize("protocol", ["auto", "2025-03-26"])
def test_a_server_of_2025_03_26(kinds: list[str], protocol: str) -> None:
    with OAuthWorld(same_origin=True) as world:
        world.prm_paths, world.metadata_kinds, world.resource = [], kinds, None
        if not kinds:
            world.redirect_iss = None
        oauth = person(world)
        with client(world, oauth, protocol=protocol) as connected:
            assert connected.call_tool("test-tool").ok
            world.revoke_all()
            assert connected.call_tool("test-tool").ok
        assert (world.count("authorize"), world.count("token", grant_type="refresh_token")) == (1, 1)
        assert "resource" not in world.seen("authorize")[0].query
        assert not [seen for seen in world.seen("token") if "resource" in seen.form]


@pytest.mark.parametrize("kinds", [["oauth"], []], ids=["metadata", "nothing"])
def test_a_token_of_2025_03_26_is_renewed_in_time_and_in_two_steps(kinds: list[str]) -> None:
    with OAuthWorld(same_origin=True) as world:
        world.prm_paths, world.metadata_kinds, world.resource = [], kinds, None
        if not kinds:
            world.redirect_iss = None
        web = person(world, sign_in="never", redirect_uri="https://app.example/callback")
        begun: Any = web.begin(world.resource_url)
        assert web.finish(world.authorize(begun.url), begun.state).ok
        age(web.store, 3600.0)
        assert call(world, person(world, sign_in="never", store=web.store)).ok
        assert world.count("token", grant_type="refresh_token") == 1


# --- machines -----------------------------------------------------------------------------------------------------


def keys() -> tuple[str, str]:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private.decode(), key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.mark.parametrize("protocol", VERSIONS)
def test_a_client_with_a_key_shows_another_assertion_each_time(world: OAuthWorld, protocol: str) -> None:
    private, public = keys()
    world.add_client("machine", key=public, method="private_key_jwt")
    oauth = OAuth(grant="client_credentials", client_id="machine", private_key=private)
    with client(world, oauth, protocol=protocol) as connected:
        assert connected.call_tool("test-tool").ok
        world.revoke_all()
        assert connected.call_tool("test-tool").ok
    assertions = [seen.form["client_assertion"] for seen in world.seen("token")]
    assert len(set(assertions)) == len(assertions) == 2


def test_a_person_may_use_a_client_with_a_key(world: OAuthWorld) -> None:
    private, public = keys()
    world.add_client("me", key=public, method="private_key_jwt")
    oauth = person(world, client_id="me", private_key=private)
    assert call(world, oauth).ok
    world.revoke_all()
    assert call(world, oauth).ok
    assert world.count("token", grant_type="refresh_token") == 1
    assert private not in str(oauth.store._values)  # type: ignore[attr-defined]


def test_an_enterprise_vouches_each_time(world: OAuthWorld) -> None:
    provider = world.add_authorization_server()
    provider.clients["idp"] = Registered("idp", "idp-secret")
    world.add_client("me", "secret")
    tokens = iter(["id-1", "id-2"])
    world.subject_tokens = {"id-1", "id-2"}
    grant = EnterpriseManaged(
        idp_token_endpoint=f"{provider.issuer}/token",
        id_token=lambda: next(tokens),
        idp_client_id="idp",
        idp_client_secret="idp-secret",
    )
    oauth = OAuth(grant=grant, client_id="me", client_secret="secret")
    assert call(world, oauth).ok
    world.revoke_all()
    assert call(world, oauth).ok
    exchanged = [seen for seen in world.seen("token") if seen.server == provider.origin]
    assert [seen.form["subject_token"] for seen in exchanged] == ["id-1", "id-2"]
    assert {seen.form["audience"] for seen in exchanged} == {world.issuer}
    world.revoke_all()
    refused(world, oauth, "token")  # the callable raised StopIteration


def test_a_workload_shows_a_fresh_assertion_each_time(world: OAuthWorld) -> None:
    audiences: list[str] = []

    def assertion(audience: str) -> str:
        audiences.append(audience)
        return f"jwt-{len(audiences)}"

    world.workload_assertions = {"jwt-1", "jwt-2"}
    oauth = OAuth(grant=WorkloadIdentity(assertion=assertion))
    assert call(world, oauth).ok
    world.revoke_all()
    assert call(world, oauth).ok
    assert audiences == [f"{world.issuer}/token"] * 2
    world.revoke_all()
    assert refused(world, oauth, "token").data["error"]


# --- proofs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dpop", "required", "kind"),
    [
        (None, False, "Bearer"),
        (None, True, "DPoP"),
        (True, False, "DPoP"),
        (True, True, "DPoP"),
        (False, False, "Bearer"),
    ],
)
@pytest.mark.parametrize("protocol", VERSIONS)
def test_tokens_are_bound_where_that_is_wanted(
    world: OAuthWorld, dpop: bool | None, required: bool, kind: str, protocol: str
) -> None:
    world.dpop_required = required
    oauth = person(world, dpop=dpop)
    assert call(world, oauth, protocol=protocol).ok
    world.revoke_all()
    assert call(world, oauth, protocol=protocol).ok
    sent = {seen.headers["authorization"].split()[0] for seen in world.seen("mcp") if "authorization" in seen.headers}
    assert sent == {kind}
    assert world.count("token", grant_type="refresh_token") == 1
    assert world.count("authorize") == 1


def test_a_token_is_not_bound_where_that_is_not_wanted(world: OAuthWorld) -> None:
    world.dpop_required = True
    assert refused(world, person(world, dpop=False), "token").data["error"] == "invalid_dpop_proof"


def test_a_bearer_token_is_refused_where_a_bound_one_is_wanted(world: OAuthWorld) -> None:
    world.token_extra = {"token_type": "Bearer"}
    assert "dpop=True" in refused(world, person(world, dpop=True), "token").message


def test_the_key_is_kept_with_the_token(world: OAuthWorld) -> None:
    store = MemoryTokenStore()
    assert call(world, person(world, dpop=True, store=store)).ok
    assert call(world, OAuth(sign_in="never", store=store)).ok
    assert world.count("token") == 1


# --- stores -------------------------------------------------------------------------------------------------------


class Broken(MemoryTokenStore):
    """Raises what says too much, in one of its methods."""

    __slots__ = ("raises", "where")

    def __init__(self, where: str, raises: type[Exception] = OSError) -> None:
        super().__init__()
        self.where = where
        self.raises = raises

    def _fail(self, where: str) -> None:
        if where == self.where:
            raise self.raises(CANARY)

    def get(self, key: str, /) -> str | None:
        self._fail("get")
        return super().get(key)

    def set(self, key: str, value: str, /) -> None:
        self._fail("set")
        super().set(key, value)

    def delete(self, key: str, /) -> None:
        self._fail("delete")
        super().delete(key)

    def lock(self, key: str, wait: Any) -> AbstractContextManager[Any]:
        self._fail("lock")
        return _BrokenLock(self)


class _BrokenLock(nullcontext[None]):
    def __init__(self, store: Broken) -> None:
        self._store = store

    def __enter__(self) -> None:
        self._store._fail("enter")

    def __exit__(self, *_: object) -> None:
        self._store._fail("exit")


@pytest.mark.parametrize("where", ["get", "set", "lock", "enter"])
@pytest.mark.parametrize("raises", [OSError, KeyError, TimeoutError])
def test_a_store_that_fails_is_an_error(world: OAuthWorld, where: str, raises: type[Exception]) -> None:
    if (where, raises) == ("enter", TimeoutError):  # a promise of stores: the time to wait for the lock was over
        assert error_of(world, person(world, store=Broken(where, raises))).reason == "timeout"
        return
    error = refused(world, person(world, store=Broken(where, raises)), "store")
    assert raises.__name__ in error.message
    assert "Broken" in error.message


def test_a_lock_that_cannot_be_left_spoils_nothing(world: OAuthWorld) -> None:
    assert call(world, person(world, store=Broken("exit"))).ok


def test_a_store_that_fails_is_an_error_of_every_method(world: OAuthWorld) -> None:
    url = world.resource_url
    for where, method in (("get", "status"), ("delete", "forget"), ("get", "login"), ("set", "login")):
        outcome: Any = getattr(person(world, store=Broken(where)), method)(url)
        assert (outcome.reason, outcome.data["step"]) == ("authorization_failed", "store")
        assert CANARY not in f"{outcome} {outcome.data}"


class Odd(MemoryTokenStore):
    """Has always something else."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def get(self, key: str, /) -> Any:
        return self._values.get(key, self.value)


@pytest.mark.parametrize("value", [b"bytes", 5, ["x"]])
def test_a_store_that_gives_no_text_is_an_error(world: OAuthWorld, value: Any) -> None:
    error = refused(world, person(world, store=Odd(value)), "store")
    assert type(value).__name__ in error.message
    outcome: Any = person(world, store=Odd(value)).status(world.resource_url)
    assert outcome.data["step"] == "store"


GOOD = {"access_token": "x", "issuer": "https://as.example", "requested": []}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text",
        "[]",
        "\ud800",
        json.dumps({**GOOD, "issuer": 5}),
        json.dumps({**GOOD, "expires_at": 10**400, "refresh_token": "x"}),
        json.dumps({**GOOD, "access_token": "\ud800"}),
        json.dumps(GOOD),
        json.dumps({**GOOD, "refresh_token": "x"}),
    ],
)
def test_what_is_none_of_ours_is_replaced(world: OAuthWorld, text: str) -> None:
    oauth = person(world, store=Odd(text))
    assert call(world, oauth).ok
    assert world.count("authorize") == 1


@pytest.mark.parametrize("key", ["x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"])
def test_a_damaged_key_is_an_error_until_the_next_sign_in(world: OAuthWorld, key: str) -> None:
    oauth = person(world, store=Odd(json.dumps({**GOOD, "dpop_key": key})))
    assert "sign in again" in refused(world, oauth, "store").message
    assert oauth.login(world.resource_url).ok
    assert call(world, oauth).ok


def test_the_keyring_of_the_system(world: OAuthWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = pytest.importorskip("keyring")
    backend = pytest.importorskip("keyring.backend")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    values: dict[tuple[str, str], str] = {}

    class Ring(backend.KeyringBackend):  # type: ignore[misc, name-defined]
        priority = 0

        def get_password(self, service: str, username: str) -> str | None:
            return values.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            values[service, username] = password

        def delete_password(self, service: str, username: str) -> None:
            del values[service, username]

    before = keyring.get_keyring()
    keyring.set_keyring(Ring())
    try:
        assert call(world, person(world, store=KeyringTokenStore())).ok
        oauth = OAuth(sign_in="never", store=KeyringTokenStore())
        world.revoke_all()
        assert call(world, oauth).ok
        assert len(values) == 2
        assert oauth.forget(world.resource_url).ok
        assert len(values) == 1
    finally:
        keyring.set_keyring(before)
    assert world.count("authorize") == 1
