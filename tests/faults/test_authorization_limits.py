"""Authorization that costs time or space: documents without an end, answers by the drop, loops, and challenges by the
thousand. Each ends in time, with an error that names who it was, and after a bounded number of requests.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from threading import Event
from time import monotonic
from typing import Any

import pytest

from snodo_client import Client, McpError
from snodo_client.auth import MemoryTokenStore, OAuth
from support.oauth_server import PRM, Fault, OAuthWorld

LIMIT = 1.0  # seconds a call has
GRACE = 2.0
MEBI = 1024 * 1024
BACK = "http://localhost:8765/callback"

# The step that each route is of.
STEPS = {
    "resource_metadata": "resource_metadata",
    "server_metadata": "server_metadata",
    "register": "registration",
    "token": "token",
}

each_era = pytest.mark.parametrize("protocol", ["auto", "2025-11-25"])
each_route = pytest.mark.parametrize("route", STEPS)


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        yield world


def person(world: OAuthWorld, **options: Any) -> OAuth:
    return OAuth(**{"sign_in": world.authorize, "store": MemoryTokenStore(), **options})


def error_of(world: OAuthWorld, oauth: OAuth | None = None, **options: Any) -> McpError:
    """The error of a call, or of the connection before it."""
    auth = person(world) if oauth is None else oauth
    with (
        pytest.raises(McpError) as caught,
        Client.connect(world.resource_url, auth=auth, **{"timeout": 10, **options}) as client,
    ):
        client.call_tool("test-tool").unwrap()
    return caught.value


def reached(world: OAuthWorld, oauth: OAuth | None = None, **options: Any) -> None:
    auth = person(world) if oauth is None else oauth
    with Client.connect(world.resource_url, auth=auth, **{"timeout": 10, **options}) as client:
        assert client.call_tool("test-tool").ok


def at(world: OAuthWorld, route: str) -> str:
    return world.origin + PRM if route == "resource_metadata" else world.issuer


# --- space ------------------------------------------------------------------------------------------------------------


def bomb() -> Fault:
    return Fault(200, gzip.compress(b" " * 40 * MEBI), headers={"Content-Encoding": "gzip"})


@each_route
@each_era
@pytest.mark.parametrize("fault", [lambda: Fault(size=10 * MEBI), bomb, lambda: Fault(400, size=10 * MEBI)])
def test_a_document_of_ten_megabytes(world: OAuthWorld, protocol: str, route: str, fault: Callable[[], Fault]) -> None:
    world.faults[route] = fault()
    began = monotonic()
    error = error_of(world, protocol=protocol)
    assert monotonic() - began < GRACE
    assert (error.reason, error.data["step"]) == ("authorization_failed", STEPS[route])
    assert at(world, route) in error.message
    assert "262144 bytes" in error.message
    assert world.count(route) == 1


@pytest.mark.parametrize("name", ["scopes_supported", "token_endpoint_auth_signing_alg_values_supported", "x"])
@pytest.mark.parametrize("value", [["x"] * 50_000, "x" * 200_000, [["x"] * 1000] * 50, {"x": {"y": [1] * 50_000}}])
def test_metadata_that_is_long_but_not_too_long(world: OAuthWorld, name: str, value: Any) -> None:
    world.metadata = {name: value}
    world.registered_method = "none"
    began = monotonic()
    reached(world)
    assert monotonic() - began < GRACE


@each_route
@pytest.mark.parametrize(
    "body", [b"[" * 200_000, b'{"a":' * 40_000, b'{"issuer": ' + b"9" * 200_000 + b"}", b'"' + b"\\u0041" * 40_000]
)
def test_json_that_is_hard_to_read(world: OAuthWorld, route: str, body: bytes) -> None:
    world.faults[route] = Fault(200, body)
    began = monotonic()
    error = error_of(world)
    assert monotonic() - began < GRACE
    assert (error.reason, error.data["step"]) == ("authorization_failed", STEPS[route])
    assert len(error.message) < 2000


@pytest.mark.parametrize("name", ["access_token", "refresh_token"])
def test_a_token_that_is_too_long_to_send(world: OAuthWorld, name: str) -> None:
    world.token_extra = {name: "x" * 200_000}
    error = error_of(world)
    assert (error.reason, error.data["step"]) == ("authorization_failed", "token")
    assert f"{world.issuer}/token" in error.message
    assert [seen for seen in world.seen("mcp") if "authorization" in seen.headers] == []


@each_route
def test_a_head_without_an_end(world: OAuthWorld, route: str) -> None:
    for headers in ({"X": "x" * MEBI}, {f"X-{number}": "x" for number in range(1000)}):
        world.faults[route] = Fault(200, b"{}", headers=headers)
        began = monotonic()
        error = error_of(world)
        assert monotonic() - began < GRACE
        assert (error.reason, error.data["step"]) == ("authorization_failed", STEPS[route])
        assert len(error.message) < 2000


@each_era
@pytest.mark.parametrize("size", [20_000, 10 * MEBI])
def test_an_answer_to_the_sign_in_that_is_huge(world: OAuthWorld, protocol: str, size: int) -> None:
    error = error_of(world, person(world, sign_in=lambda page: f"{BACK}?code={'x' * size}"), protocol=protocol)
    assert (error.reason, error.data["step"]) == ("authorization_failed", "sign_in")
    assert len(error.message) < 2000
    assert world.count("token") == 0


# --- challenges -------------------------------------------------------------------------------------------------------


def scopes(count: int) -> str:
    return f'Bearer scope="{" ".join(f"s{number}" for number in range(count))}"'


@each_era
@pytest.mark.parametrize("lines", [["Bearer " + "x" * MEBI], ['Bearer realm="x"'] * 1000])
def test_a_challenge_that_no_client_of_http_reads(world: OAuthWorld, protocol: str, lines: list[str]) -> None:
    world.challenge = lines
    began = monotonic()
    error = error_of(world, protocol=protocol)
    assert monotonic() - began < GRACE
    assert error.reason == "malformed"
    assert world.resource_url in error.message
    assert {seen.route for seen in world.log} == {"mcp"}


@each_era
@pytest.mark.parametrize(
    "lines",
    [
        [", ".join(['Bearer realm="x"'] * 1000)],
        ['Bearer realm="x"'] * 80,
        [scopes(10_000)],
        ['Bearer resource_metadata="https://evil.example/' + "x" * 9000 + '"'],
        ['Bearer realm="' + "\\\\" * 4000],
        ["Bearer " + ", ".join(f"a{number}=b" for number in range(900))],
        ["," * 8000],
        ["Bearer " + "a=" * 4000],
        ['Bearer error="' + "\\" * 8001],
    ],
)
def test_a_challenge_that_says_too_much_says_nothing(world: OAuthWorld, protocol: str, lines: list[str]) -> None:
    """Of a flood of them nothing but the bounds is taken, and the metadata is found where it has to be."""
    world.challenge = lines
    began = monotonic()
    reached(world, protocol=protocol)
    assert monotonic() - began < GRACE
    assert "scope" not in world.seen("authorize")[0].query
    assert {seen.path for seen in world.seen("resource_metadata")} == {f"{PRM}/mcp"}


# --- time -------------------------------------------------------------------------------------------------------------


@each_route
@each_era
@pytest.mark.parametrize("how", ["by the drop", "not at all"])
def test_an_answer_that_takes_its_time(world: OAuthWorld, protocol: str, route: str, how: str) -> None:
    never = Event()
    world.faults[route] = Fault(drip=0.1) if how == "by the drop" else Fault(wait=never)
    began = monotonic()
    error = error_of(world, timeout=LIMIT, protocol=protocol)
    assert LIMIT <= monotonic() - began < LIMIT + GRACE
    assert error.reason == "timeout"
    assert world.count(route) == 1


# --- loops ------------------------------------------------------------------------------------------------------------


@each_era
@pytest.mark.parametrize("error", ["", 'error="invalid_token"', 'error="insufficient_scope", scope="more"'])
def test_a_server_that_takes_no_token(world: OAuthWorld, protocol: str, error: str) -> None:
    world.faults["mcp"] = Fault(401, headers={"WWW-Authenticate": f"Bearer {error}".strip()})
    failed = error_of(world, protocol=protocol)
    assert (failed.reason, failed.data["http_status"]) == ("unauthorized", 401)
    assert world.resource_url in failed.message
    assert (world.count("mcp"), world.count("authorize"), world.count("token")) == (2, 1, 1)


@each_era
def test_a_server_that_stops_taking_tokens(world: OAuthWorld, protocol: str) -> None:
    with Client.connect(world.resource_url, auth=person(world), timeout=10, protocol=protocol) as client:
        assert client.call_tool("test-tool").ok
        world.faults["mcp"] = Fault(401, headers={"WWW-Authenticate": "Bearer"})
        for most in (3, 2, 2):  # as it was, refreshed, and after another sign-in, which is not repeated soon
            before = world.count("mcp")
            outcome = client.call_tool("test-tool")
            assert isinstance(outcome, McpError)
            assert outcome.reason == "unauthorized"
            assert world.count("mcp") - before == most
        assert world.count("authorize") == 2


@each_era
def test_a_server_that_never_has_enough(world: OAuthWorld, protocol: str) -> None:
    """Each refusal wants another scope. After three sign-ins in vain, nobody is asked for the next call either."""
    wanted = 0

    def more(page: str) -> str:
        nonlocal wanted
        wanted += 1
        world.challenge = f'Bearer error="insufficient_scope", scope="s{wanted}"'
        return world.authorize(page)

    world.tool_scopes, world.granted_scope = {"test-tool": "never"}, "less"
    with Client.connect(world.resource_url, auth=person(world, sign_in=more), timeout=10, protocol=protocol) as client:
        for _ in range(3):
            outcome = client.call_tool("test-tool")
            assert isinstance(outcome, McpError)
            assert (outcome.reason, outcome.data["http_status"]) == ("unauthorized", 403)
            assert world.resource_url in outcome.message
            assert wanted == 1 + 3


@each_era
def test_a_server_that_wants_what_is_not_granted_asks_once(world: OAuthWorld, protocol: str) -> None:
    world.tool_scopes, world.granted_scope = {"test-tool": "never"}, "less"
    with Client.connect(world.resource_url, auth=person(world), timeout=10, protocol=protocol) as client:
        for _ in range(3):
            outcome = client.call_tool("test-tool")
            assert isinstance(outcome, McpError)
            assert (outcome.reason, outcome.data["http_status"]) == ("unauthorized", 403)
    assert [seen.query.get("scope") for seen in world.seen("authorize")] == [None, "never"]


@each_era
@pytest.mark.parametrize("nonce", ["the-same", "{}", None, "no\tnonce", "x" * 5000])
def test_a_server_that_wants_another_nonce_each_time(world: OAuthWorld, protocol: str, nonce: str | None) -> None:
    world.dpop = world.dpop_required = True
    oauth = person(world, dpop=True)
    with Client.connect(world.resource_url, auth=oauth, timeout=10, protocol=protocol) as client:
        assert client.call_tool("test-tool").ok
        before = world.count("mcp")
        headers = {"WWW-Authenticate": 'DPoP error="use_dpop_nonce"'}
        if nonce is not None:
            headers["DPoP-Nonce"] = nonce
        world.faults["mcp"] = Fault(401, headers=headers)
        outcome = client.call_tool("test-tool")
        assert isinstance(outcome, McpError)
        assert (outcome.reason, outcome.data["http_status"]) == ("unauthorized", 401)
        assert world.count("mcp") - before <= 3
    assert (world.count("authorize"), world.count("token")) == (1, 1)


@each_era
@pytest.mark.parametrize("nonce", ["another", None, "no\tnonce"])
def test_an_authorization_server_that_wants_another_nonce_each_time(
    world: OAuthWorld, protocol: str, nonce: str | None
) -> None:
    world.dpop = True
    headers = {} if nonce is None else {"DPoP-Nonce": nonce}
    world.faults["token"] = Fault(400, json.dumps({"error": "use_dpop_nonce"}).encode(), headers=headers)
    error = error_of(world, person(world, dpop=True), protocol=protocol)
    assert (error.reason, error.data["error"]) == ("authorization_failed", "use_dpop_nonce")
    assert f"{world.issuer}/token" in error.message
    assert world.count("token") <= 2
    assert world.count("authorize") == 1


@each_era
def test_a_machine_that_is_refused_each_time(world: OAuthWorld, protocol: str) -> None:
    world.add_client("known", "s3cret-of-known")
    oauth = OAuth(grant="client_credentials", client_id="known", client_secret="s3cret-of-known")
    with Client.connect(world.resource_url, auth=oauth, timeout=10, protocol=protocol) as client:
        assert client.call_tool("test-tool").ok
        for header in ("Bearer", 'Bearer error="invalid_token"', 'DPoP error="invalid_token"'):
            before = world.count("token"), world.count("mcp")
            world.faults["mcp"] = Fault(401, headers={"WWW-Authenticate": header})
            outcome = client.call_tool("test-tool")
            assert isinstance(outcome, McpError)
            assert outcome.reason == "unauthorized"
            assert (world.count("token"), world.count("mcp")) <= (before[0] + 1, before[1] + 2)
