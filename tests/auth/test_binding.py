"""Who a secret is shown to, which stored credential is of use, and when nobody is asked again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from snodo_client import Client, McpError
from snodo_client.auth import MemoryTokenStore, OAuth, WorkloadIdentity
from support.oauth_server import Fault, OAuthWorld

SECRET = "s3cret-of-the-job"


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        yield world


def job(**options: object) -> OAuth:
    return OAuth(grant="client_credentials", client_id="job", client_secret=SECRET, **options)  # type: ignore[arg-type]


def error_at(world: OAuthWorld, oauth: OAuth) -> McpError:
    with pytest.raises(McpError) as caught:
        Client.connect(world.resource_url, auth=oauth)
    return caught.value


def works_at(world: OAuthWorld, oauth: OAuth) -> None:
    with Client.connect(world.resource_url, auth=oauth) as client:
        assert client.call_tool("test-tool").ok


# --- a secret and its authorization server ----------------------------------------------------------------------------


def test_a_secret_is_not_shown_to_the_authorization_server_of_another_server(world: OAuthWorld) -> None:
    store = MemoryTokenStore()
    with OAuthWorld() as other:
        for each in (world, other):
            each.add_client("job", SECRET)
        oauth = job(store=store)
        works_at(world, oauth)
        for later in (oauth, job(store=store)):  # also in another program with the same store
            error = error_at(other, later)
            assert error.data["step"] == "server_metadata"
            assert f"client_id= was used at {world.issuer}" in error.message
        assert other.count("token") == 0
        works_at(other, job(store=store, issuer=[world.issuer, other.issuer]))


def test_nor_to_the_new_one_of_the_same_server_whatever_is_called(world: OAuthWorld) -> None:
    world.add_client("job", SECRET)
    oauth = job()
    works_at(world, oauth)
    oauth.forget(world.resource_url)
    world.migrate()
    before = world.count("token")
    outcome = oauth.login(world.resource_url)
    assert isinstance(outcome, McpError)
    assert outcome.data["step"] == "server_metadata"
    person = OAuth(
        client_id="app", client_secret=SECRET, redirect_uri="https://app.example/cb", store=MemoryTokenStore()
    )
    person.first_issuer["app"] = "https://as.example"
    begun = person.begin(world.resource_url)
    assert isinstance(begun, McpError)
    assert begun.data["step"] == "server_metadata"
    assert world.count("token") == before


def test_a_program_by_itself_is_never_the_client_a_person_registered(world: OAuthWorld) -> None:
    store = MemoryTokenStore()
    world.workload_assertions = {"jwt-of-the-platform"}
    works_at(world, OAuth(sign_in=world.authorize, store=store))
    registered = world.seen("authorize")[-1].query["client_id"]
    grant = WorkloadIdentity(assertion=lambda audience: "jwt-of-the-platform")
    works_at(world, OAuth(grant=grant, store=store))
    assert world.seen("token")[-1].form.get("client_id") != registered


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_with_dpop_a_stored_token_without_a_key_is_not_used(world: OAuthWorld) -> None:
    store = MemoryTokenStore()
    works_at(world, OAuth(sign_in=world.authorize, store=store))
    world.dpop_required = True
    works_at(world, OAuth(sign_in=world.authorize, store=store, dpop=True))
    assert world.count("authorize") == 2
    assert world.count("token", grant_type="refresh_token") == 0
    assert not [seen for seen in world.seen("mcp")[-2:] if seen.headers["authorization"].startswith("Bearer")]


def test_a_store_that_takes_nothing_loses_no_refresh_token(world: OAuthWorld) -> None:
    class Full(MemoryTokenStore):
        __slots__ = ("full",)

        def set(self, key: str, value: str, /) -> None:
            if getattr(self, "full", False):
                raise OSError("no space left")
            super().set(key, value)

    store = Full()
    oauth = OAuth(sign_in=world.authorize, store=store)
    with Client.connect(world.resource_url, auth=oauth) as client:
        world.revoke_all()
        store.full = True
        failed = client.call_tool("test-tool")
        assert isinstance(failed, McpError)
        assert failed.data["step"] == "store"
        assert client.call_tool("test-tool").ok  # with the token that could not be kept
        store.full = False
        world.revoke_all()
        assert client.call_tool("test-tool").ok  # and its refresh token, though the store has the one before
    assert (world.count("authorize"), world.reused_refresh) == (1, 0)


# --- nobody is asked again and again ----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["2026-07-28", "2025-11-25"])
def test_a_server_that_refuses_every_token_sends_a_person_to_sign_in_once(world: OAuthWorld, protocol: str) -> None:
    oauth = OAuth(sign_in=world.authorize, store=MemoryTokenStore())
    with Client.connect(world.resource_url, auth=oauth, protocol=protocol) as client:
        assert client.call_tool("test-tool").ok
        world.refresh = False
        world.revoke_all()
        before = world.count("authorize")
        world.faults["mcp"] = Fault(401, headers={"WWW-Authenticate": "Bearer"})
        for _ in range(5):
            outcome = client.call_tool("test-tool")
            assert isinstance(outcome, McpError)
            assert outcome.reason == "unauthorized"
        assert world.count("authorize") - before <= 1
        del world.faults["mcp"]
        assert oauth.login(world.resource_url).ok  # who asks for it is asked
        assert client.call_tool("test-tool").ok


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_asks_for_the_scope_that_the_server_wants(world: OAuthWorld) -> None:
    store = MemoryTokenStore()
    person = OAuth(sign_in=world.authorize, store=store)
    works_at(world, person)
    cron = OAuth(sign_in="never", store=store, insecure_http=True, redirect_uri="http://localhost:8123/cb")
    with Client.connect(world.resource_url, auth=cron) as client:
        outcome = client.call_tool("admin-tool")
    assert isinstance(outcome, McpError)
    assert outcome.reason == "sign_in_required"
    words = f"login {world.resource_url} --scope admin --redirect-uri http://localhost:8123/cb --insecure-http"
    assert outcome.data["command"] == f"python -m snodo_client.auth {words}"
    assert outcome.data["scope"] == ["admin"]


def test_the_command_does_not_show_the_query(world: OAuthWorld) -> None:
    oauth = OAuth(sign_in="never", store=MemoryTokenStore())
    with pytest.raises(McpError) as caught:
        Client.connect(f"{world.resource_url}?key=hunter2-hunter2", auth=oauth)
    assert caught.value.data["command"].endswith(f"login '{world.resource_url}?...'")
    assert "hunter2" not in f"{caught.value!r} {caught.value.data}"


def test_a_kept_token_of_another_issuer_is_not_used(world: OAuthWorld) -> None:
    store = MemoryTokenStore()
    works_at(world, OAuth(sign_in=world.authorize, store=store))
    error = error_at(world, OAuth(sign_in="never", store=store, issuer="https://as.example"))
    assert error.data["step"] == "server_metadata"
    assert "authorization" not in world.seen("mcp")[-1].headers


def test_an_interrupted_sign_in_registers_again_the_next_time(world: OAuthWorld) -> None:
    store = MemoryTokenStore()
    works_at(world, OAuth(sign_in=world.authorize, store=store))

    def interrupted(page: str) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        OAuth(sign_in=interrupted, store=store).login(world.resource_url)
    assert OAuth(sign_in=world.authorize, store=store).login(world.resource_url).ok
    assert world.count("register") == 2
