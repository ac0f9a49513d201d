"""What a review by an attacker's eyes found: secrets that follow a server, text that a terminal obeys, and growth."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from threading import Event
from time import monotonic
from typing import Any

import pytest

from snodo_client import Client, McpError
from snodo_client.auth import MemoryTokenStore, OAuth
from support.oauth_server import Fault, OAuthWorld

SECRET = "s3cret-of-known"
BACK = "http://localhost:8765/callback"
ESCAPES = "\x1b[2J\n\u202e\x9b"


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        yield world


def person(world: OAuthWorld, **options: Any) -> OAuth:
    return OAuth(**{"sign_in": world.authorize, "store": MemoryTokenStore(), **options})


def outcome_of(world: OAuthWorld, oauth: OAuth, **options: Any) -> Any:
    try:
        with Client.connect(world.resource_url, auth=oauth, **{"timeout": 10, **options}) as client:
            return client.call_tool("test-tool")
    except McpError as error:
        return error


def refused(outcome: Any, step: str) -> McpError:
    assert isinstance(outcome, McpError)
    assert (outcome.reason, outcome.data["step"]) == ("authorization_failed", step)
    return outcome


@pytest.mark.parametrize("way", ["login", "begin", "another server"])
def test_a_client_that_was_given_is_bound_to_who_knows_it(world: OAuthWorld, way: str) -> None:
    world.add_client("known", SECRET)
    oauth = person(world, client_id="known", client_secret=SECRET)
    assert outcome_of(world, oauth).ok
    world.migrate()
    world.add_client("known")
    if way == "login":
        outcome: Any = oauth.login(world.resource_url)
    elif way == "begin":
        outcome = oauth.begin(world.resource_url, redirect_uri=BACK)
    else:
        with OAuthWorld() as other:
            outcome = outcome_of(other, oauth)
            assert other.count("authorize") == other.count("token") == 0
    refused(outcome, "server_metadata")
    assert world.count("authorize") == world.count("token") == 1


def test_a_machine_shows_its_secret_to_no_other_server(world: OAuthWorld) -> None:
    world.add_client("known", SECRET)
    oauth = OAuth(grant="client_credentials", client_id="known", client_secret=SECRET)
    assert outcome_of(world, oauth).ok
    with OAuthWorld() as evil:
        assert evil.issuer in refused(outcome_of(evil, oauth), "server_metadata").message
        assert evil.count("token") == 0
    assert outcome_of(world, oauth).ok


def test_who_only_refuses_a_client_is_not_who_knows_it(world: OAuthWorld) -> None:
    store = MemoryTokenStore()
    world.add_client("known", SECRET)

    def machine() -> OAuth:
        return OAuth(grant="client_credentials", client_id="known", client_secret=SECRET, store=store)

    with OAuthWorld() as evil:
        refused(outcome_of(evil, machine()), "token")
    assert outcome_of(world, machine()).ok


@pytest.mark.parametrize("member", ["dpop_signing_alg_values_supported", "token_endpoint_auth_methods_supported"])
def test_nothing_that_a_terminal_obeys_is_in_an_error(world: OAuthWorld, member: str) -> None:
    world.metadata = {member: [ESCAPES]}
    dpop = True if member.startswith("dpop") else None
    step = "token" if dpop else "registration"
    assert refused(outcome_of(world, person(world, dpop=dpop)), step).message.isprintable()


@pytest.mark.parametrize("issuer", [None, "https://good.example"])
@pytest.mark.parametrize("characters", [ESCAPES, "\u202e", "\x9b2J"])
def test_nobody_with_such_a_name_is_asked(world: OAuthWorld, issuer: str | None, characters: str) -> None:
    world.prm = {"authorization_servers": [f"{world.issuer}/{characters}"]}
    assert refused(outcome_of(world, person(world, issuer=issuer)), "server_metadata").message.isprintable()
    assert {seen.route for seen in world.log} == {"mcp", "resource_metadata"}


@pytest.mark.parametrize("parameter", ["state=x", "redirect_uri=https://evil.example/", "client_id=", "scope=x"])
def test_a_page_with_parameters_of_a_sign_in_is_not_opened(world: OAuthWorld, parameter: str) -> None:
    world.metadata = {"authorization_endpoint": f"{world.issuer}/authorize?tenant=1&{parameter}"}
    assert world.issuer in refused(outcome_of(world, person(world)), "server_metadata").message
    assert world.count("register") == world.count("authorize") == 0


def test_scopes_do_not_grow_without_bounds(world: OAuthWorld) -> None:
    world.add_client("known", SECRET)
    world.granted_scope, world.tool_scopes = "less", {"test-tool": "never"}
    oauth = OAuth(grant="client_credentials", client_id="known", client_secret=SECRET)
    with Client.connect(world.resource_url, auth=oauth, timeout=10) as client:
        assert client.list_tools().ok
        for call in range(6):
            wanted = " ".join(f"s{call}-{number}" for number in range(900))
            world.challenge = f'Bearer error="insufficient_scope", scope="{wanted}"'
            assert not client.call_tool("test-tool").ok
    assert max(len(seen.body) for seen in world.seen("token")) < 20_000


def test_the_page_to_open_is_no_longer_than_a_browser_takes(world: OAuthWorld) -> None:
    world.prm = {"scopes_supported": [f"{number}{'x' * 2000}" for number in range(100)]}
    refused(outcome_of(world, person(world)), "resource_metadata")
    assert world.count("authorize") == 0


def test_a_huge_answer_is_no_code_in_the_second_step(world: OAuthWorld) -> None:
    oauth = person(world, redirect_uri=BACK)
    begun = oauth.begin(world.resource_url)
    assert not isinstance(begun, McpError)
    back = re.sub("code=[^&]*", f"code={'x' * 100_000}", world.authorize(begun.url))
    refused(oauth.finish(back, begun.state), "sign_in")
    assert world.count("token") == 0


def test_a_server_that_takes_no_token_does_not_ask_a_person_at_each_call(world: OAuthWorld) -> None:
    oauth = person(world)
    with Client.connect(world.resource_url, auth=oauth, timeout=10) as client:
        world.faults["mcp"] = Fault(401, headers={"WWW-Authenticate": "Bearer"})
        for _ in range(4):
            outcome = client.call_tool("test-tool")
            assert isinstance(outcome, McpError)
            assert outcome.reason == "unauthorized"
        assert world.count("authorize") == 2
        world.faults.clear()
        assert client.call_tool("test-tool").ok
        assert oauth.login(world.resource_url).ok
        world.revoke_all()
        world.revoke_refresh()
        assert client.call_tool("test-tool").ok
    assert world.count("authorize") == 4


def test_the_metadata_of_a_cloud_is_not_asked(world: OAuthWorld) -> None:
    world.challenge_metadata = "http://169.254.169.254/latest/meta-data"
    error = refused(outcome_of(world, person(world, insecure_http=True)), "resource_metadata")
    assert "http://169.254.169.254 is an address" in error.message


@pytest.mark.parametrize("route", ["resource_metadata", "server_metadata", "register", "token"])
def test_who_was_slow_is_told(world: OAuthWorld, route: str) -> None:
    world.faults[route] = Fault(wait=Event())
    began = monotonic()
    error = outcome_of(world, person(world), timeout=1)
    assert 1 <= monotonic() - began < 3
    assert error.reason == "timeout"
    assert (f"{world.origin}/.well-known" if route == "resource_metadata" else world.issuer) in error.message
    assert json.dumps(dict(error.data))
