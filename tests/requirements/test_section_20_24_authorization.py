"""Authorization (spec: basic/authorization) and its extensions, from the first 401 to the answer of a tool, in both
eras; `section_20.md` and `section_24.md` have the whole tables, with the tests of other files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from snodo_client import Client, McpError, Ok
from snodo_client.auth import EnterpriseManaged, MemoryTokenStore, OAuth, WorkloadIdentity
from support.oauth_issuer import Registered
from support.oauth_proofs import digest
from support.oauth_server import PRM, Fault, OAuthWorld, Seen

LEGACY = "2025-11-25"
DOCUMENT = "https://app.example/client.json"
REDIRECT_URI = "http://localhost:3000/callback"

each_era = pytest.mark.parametrize("protocol", ["auto", LEGACY])


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        yield world


def person(world: OAuthWorld, **options: Any) -> OAuth:
    return OAuth(**{"sign_in": world.authorize, "store": MemoryTokenStore(), **options})


def connected(world: OAuthWorld, oauth: OAuth, protocol: str = "auto") -> Client:
    return Client.connect(world.resource_url, auth=oauth, protocol=protocol, timeout=10)


def reach(world: OAuthWorld, oauth: OAuth, protocol: str = "auto") -> None:
    """Call a tool in a connection of its own."""
    with connected(world, oauth, protocol) as client:
        outcome = client.call_tool("test-tool")
        assert isinstance(outcome, Ok), outcome


def refused(world: OAuthWorld, oauth: OAuth, protocol: str = "auto") -> McpError:
    with pytest.raises(McpError) as caught:
        reach(world, oauth, protocol)
    return caught.value


def step_of(error: McpError) -> object:
    assert error.reason == "authorization_failed"
    assert isinstance(error.data, dict)
    return error.data["step"]


def asked_scopes(world: OAuthWorld) -> list[str | None]:
    return [seen.query.get("scope") for seen in world.seen("authorize")]


def all_of(seen: Seen) -> str:
    return f"{seen.url} {seen.headers} {seen.body!r}"


# -- finding out whom to ask


@each_era
@pytest.mark.parametrize("place", [f"{PRM}/mcp", PRM, "/elsewhere.json"])
@pytest.mark.parametrize("kind", ["oauth", "oidc", "oidc-appended"])
def test_au02_au05_au12_from_the_challenge_to_the_token(protocol: str, place: str, kind: str) -> None:
    with OAuthWorld(issuer_path="/tenant") as world:
        world.prm_paths, world.challenge_metadata = [place], place == "/elsewhere.json"
        world.metadata_kinds = [kind]
        world.resource = world.origin  # of the whole origin, and without a slash
        world.prm = {"resource": world.origin}
        reach(world, person(world), protocol)

        (authorize,) = world.seen("authorize")
        (token,) = world.seen("token")
        assert authorize.query["resource"] == token.form["resource"] == world.origin
        assert authorize.query["code_challenge_method"] == "S256"
        assert authorize.query["code_challenge"] == digest(token.form["code_verifier"])
        assert [seen.status for seen in world.seen("mcp")].count(401) == 1


@each_era
def test_au03_a_resource_of_another_origin_is_the_end(world: OAuthWorld, protocol: str) -> None:
    world.prm = {"resource": "https://evil.example.com/mcp"}
    assert step_of(refused(world, person(world), protocol)) == "resource_metadata"
    assert world.count("server_metadata") == world.count("authorize") == 0


@each_era
def test_au24_a_server_of_2025_03_26_is_its_own_authorization_server(protocol: str) -> None:
    for kinds in (["oauth"], []):
        with OAuthWorld(same_origin=True) as world:
            world.prm_paths, world.challenge_metadata, world.metadata_kinds = [], False, kinds
            world.redirect_iss = "correct" if kinds else None
            world.resource = None
            reach(world, person(world), protocol)
            (authorize,) = world.seen("authorize")
            assert "resource" not in authorize.query
            assert authorize.query["code_challenge_method"] == "S256"
            assert {seen.path for seen in world.seen("resource_metadata")} == {PRM, f"{PRM}/mcp"}


# -- who we are there


def test_au07_who_we_are_known_by_a_document_before_or_from_now_on(world: OAuthWorld) -> None:
    store = MemoryTokenStore()
    world.client_documents = {DOCUMENT: {"redirect_uris": [REDIRECT_URI]}}
    world.add_client("known")

    def client_id(**options: Any) -> str:
        oauth = person(world, store=store, redirect_uri=REDIRECT_URI, **options)
        reach(world, oauth)
        oauth.forget(world.resource_url)
        return world.seen("authorize")[-1].query["client_id"]

    registered = client_id()
    assert client_id() == registered
    assert client_id(client_metadata_url=DOCUMENT) == DOCUMENT
    assert client_id(client_metadata_url=DOCUMENT, client_id="known") == "known"
    world.client_documents = {}
    assert client_id(client_metadata_url=DOCUMENT) == registered
    assert world.count("register") == 1


@pytest.mark.parametrize("url", ["http://app.example/client.json", "https://app.example", "https://app.example/", "x"])
def test_au08_a_document_has_an_https_url_with_a_path(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|url"):
        OAuth(client_metadata_url=url)


def test_au04_au10_nothing_of_one_authorization_server_reaches_another(world: OAuthWorld) -> None:
    first = world.authorization_server
    with connected(world, person(world)) as client:
        assert client.call_tool("test-tool").ok
        theirs = [*first.access, *first.refresh, *first.clients]
        world.migrate()
        assert client.call_tool("test-tool").ok

    later = [seen for seen in world.log if seen.server == world.authorization_server.origin]
    assert {"register", "authorize", "token"} <= {seen.route for seen in later}
    assert [secret for secret in theirs for seen in later if secret in all_of(seen)] == []


@each_era
@pytest.mark.parametrize("bound", [True, False])
def test_au10_a_client_that_was_given_is_not_shown_to_another_authorization_server(
    world: OAuthWorld, protocol: str, bound: bool
) -> None:
    world.add_client("known", "s3cret-of-known")
    issuer = world.issuer if bound else None
    oauth = person(world, client_id="known", client_secret="s3cret-of-known", issuer=issuer)
    with connected(world, oauth, protocol) as client:
        assert client.call_tool("test-tool").ok
        world.migrate()
        outcome = client.call_tool("test-tool")
    assert isinstance(outcome, McpError)
    assert step_of(outcome) == "server_metadata"
    later = {seen.route for seen in world.log if seen.server == world.authorization_server.origin}
    assert later == (set() if bound else {"server_metadata"})


# -- what is asked for


@pytest.mark.parametrize(
    ("challenge", "published", "expected"),
    [("a b", ["c"], "a b"), (None, ["c", "d"], "c d"), (None, None, None), (None, [], None)],
)
def test_au13_the_challenge_says_what_to_ask_for_else_all_that_is_published(
    world: OAuthWorld, challenge: str | None, published: list[str] | None, expected: str | None
) -> None:
    world.challenge_scope = challenge
    world.prm = {"scopes_supported": published}
    reach(world, person(world))
    assert asked_scopes(world) == [expected]


@each_era
def test_au14_more_is_asked_for_beside_what_was_asked_for_before(world: OAuthWorld, protocol: str) -> None:
    world.challenge_scope, world.scope = "read write", "read"
    with connected(world, person(world), protocol) as client:
        assert client.call_tool("test-tool").ok
        assert client.call_tool("admin-tool").ok
        assert client.call_tool("test-tool").ok
    assert asked_scopes(world) == ["read write", "read write admin"]
    refused_calls = [seen for seen in world.seen("mcp") if seen.status == 403]
    assert len(refused_calls) == 1


@each_era
def test_au14_au26_what_is_never_granted_is_given_up_and_says_nothing_of_the_era(
    world: OAuthWorld, protocol: str
) -> None:
    world.scope, world.granted_scope = "more", "less"
    error = refused(world, person(world), protocol)
    assert error.reason == "unauthorized"
    assert asked_scopes(world) == [None, "more"]
    methods = {b"server/discover" in seen.body for seen in world.seen("mcp")}
    assert methods == {protocol == "auto"}


@each_era
def test_au14_who_wants_more_each_time_is_given_up(world: OAuthWorld, protocol: str) -> None:
    world.scope, world.granted_scope = "more", "less"

    def consent(url: str) -> str:
        world.challenge = f'Bearer error="insufficient_scope", scope="{world.count("authorize")}"'
        return world.authorize(url)

    error = refused(world, person(world, sign_in=consent), protocol)
    assert error.reason == "unauthorized"
    assert asked_scopes(world) == [None, "0", "0 1"]


# -- what comes back


@each_era
@pytest.mark.parametrize("pkce", [None, [], ["plain"]])
def test_au11_nobody_signs_in_where_s256_is_not_known(world: OAuthWorld, protocol: str, pkce: list[str] | None) -> None:
    world.metadata = {"code_challenge_methods_supported": pkce}
    assert step_of(refused(world, person(world), protocol)) == "server_metadata"
    assert world.count("register") == world.count("authorize") == world.count("token") == 0


@pytest.mark.parametrize(
    ("advertised", "issuer", "good"),
    [
        (True, "{}", True),
        (True, None, False),
        (None, "{}", True),
        (None, None, True),
        (True, "{}/", False),
        (None, "https://evil.example.com", False),
    ],
)
@pytest.mark.parametrize("consent", ["allow", "access_denied"])
def test_au15_au16_who_answers_is_who_was_asked(
    world: OAuthWorld, advertised: bool | None, issuer: str | None, good: bool, consent: str
) -> None:
    world.metadata = {"authorization_response_iss_parameter_supported": advertised}
    world.redirect_iss = issuer and issuer.format(world.issuer)
    world.consent = consent
    if good and consent == "allow":
        reach(world, person(world))
        return
    error = refused(world, person(world))
    assert step_of(error) == "sign_in"
    assert (consent in f"{error} {error.data}") is (good and consent != "allow")
    assert world.count("token") == 0


@pytest.mark.parametrize("state", [None, "", "another"])
def test_au17_an_answer_to_another_question_is_not_used(world: OAuthWorld, state: str | None) -> None:
    world.redirect_extra = {"state": state}
    assert step_of(refused(world, person(world))) == "sign_in"
    assert world.count("token") == 0


# -- what is sent with it


@each_era
def test_au19_g40_the_token_goes_with_every_request_to_its_server_and_with_no_other(
    world: OAuthWorld, protocol: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine localhost login someone password else\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    reach(world, person(world), protocol)
    (token,) = world.authorization_server.access
    bearing = [seen for seen in world.log if token in all_of(seen)]
    assert [seen for seen in bearing if seen.headers["authorization"] != f"Bearer {token}" or token in seen.url] == []
    after = [seen for seen in world.log if seen.route == "mcp" and seen.status != 401]
    assert bearing == after
    methods = {seen.method for seen in after}
    assert methods >= ({"POST", "GET", "DELETE"} if protocol == LEGACY else {"POST"})
    assert [seen for seen in world.log if "Basic" in seen.headers.get("authorization", "")] == []


# -- going on


@each_era
def test_au12_au20_au22_a_refused_token_is_refreshed_once_and_the_new_refresh_token_is_kept(
    world: OAuthWorld, protocol: str
) -> None:
    with connected(world, person(world), protocol) as client:
        for _ in range(3):
            assert client.call_tool("test-tool").ok
            world.revoke_all()
        assert client.call_tool("test-tool").ok
    refreshes = world.seen("token", grant_type="refresh_token")
    assert [seen.form["resource"] for seen in refreshes] == [world.resource_url] * 3
    assert len({seen.form["refresh_token"] for seen in refreshes}) == 3
    assert (world.count("authorize"), world.reused_refresh) == (1, 0)


@each_era
def test_au20_au22_without_a_refresh_token_a_person_is_asked_again(world: OAuthWorld, protocol: str) -> None:
    world.refresh = False
    with connected(world, person(world), protocol) as client:
        assert client.call_tool("test-tool").ok
        world.revoke_all()
        assert client.call_tool("test-tool").ok
    assert (world.count("authorize"), world.count("token", grant_type="refresh_token")) == (2, 0)


@each_era
def test_au22_a_server_that_takes_no_token_is_left_after_one_sign_in(world: OAuthWorld, protocol: str) -> None:
    world.faults["mcp"] = Fault(401, headers={"WWW-Authenticate": "Bearer"})
    assert refused(world, person(world), protocol).reason == "unauthorized"
    assert world.count("authorize") == 1
    assert world.count("mcp") == 2


@pytest.mark.parametrize(
    ("status", "header"),
    [(400, ""), (403, "Bearer"), (403, 'Bearer scope="more"'), (403, 'Bearer error="invalid_request", scope="more"')],
)
def test_au22_other_refusals_ask_nobody(world: OAuthWorld, status: int, header: str) -> None:
    oauth = person(world)
    with connected(world, oauth) as client:
        world.faults["mcp"] = Fault(status, headers={"WWW-Authenticate": header})
        assert not client.call_tool("test-tool").ok
    assert world.count("authorize") == world.count("token") == 1


@pytest.mark.parametrize(
    ("supported", "published", "wanted", "expected"),
    [
        (["offline_access", "x"], None, True, "offline_access"),
        (["offline_access", "x"], ["x"], True, "x offline_access"),
        (["x"], ["x", "offline_access"], True, "x"),
        (None, None, True, None),
        (["offline_access"], ["offline_access"], False, None),
    ],
)
def test_au20_offline_access_is_asked_for_where_the_authorization_server_has_it(
    world: OAuthWorld, supported: list[str] | None, published: list[str] | None, wanted: bool, expected: str | None
) -> None:
    world.scopes_supported = supported
    world.prm = {"scopes_supported": published}
    reach(world, person(world, offline_access=wanted))
    assert asked_scopes(world) == [expected]


# -- the extensions


def key_pair() -> tuple[str, str]:
    """A private key and its public key, PEM both."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


def machine_flow(world: OAuthWorld, oauth: OAuth, protocol: str, grant_type: str) -> list[Seen]:
    """The token requests of two calls, of which the second has to get another token."""
    with connected(world, oauth, protocol) as client:
        assert client.call_tool("test-tool").ok
        world.revoke_all()
        assert client.call_tool("test-tool").ok
    assert world.count("authorize") == world.count("register") == 0
    requests = world.seen("token", grant_type=grant_type)
    assert {seen.form["resource"] for seen in requests} == {world.resource_url}
    assert len(requests) == 2
    return requests


@each_era
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_cc1_cc3_cc4_a_client_for_itself(world: OAuthWorld, protocol: str, method: str) -> None:
    world.token_methods = [method]
    world.add_client("service", "s3cret-of-service")
    oauth = OAuth(grant="client_credentials", client_id="service", client_secret="s3cret-of-service")
    for seen in machine_flow(world, oauth, protocol, "client_credentials"):
        assert ("client_secret" in seen.form) is (method == "client_secret_post")
        assert ("authorization" in seen.headers) is (method == "client_secret_basic")


@each_era
def test_cc2_a_client_with_a_key(world: OAuthWorld, protocol: str) -> None:
    private, public = key_pair()
    world.token_methods = ["private_key_jwt"]
    world.add_client("service", key=public)  # the assertions are checked there, and that none comes twice
    oauth = OAuth(grant="client_credentials", client_id="service", private_key=private, signing_algorithm="ES256")
    for seen in machine_flow(world, oauth, protocol, "client_credentials"):
        assert "client_id" not in seen.form


@each_era
def test_em2_em3_em5_an_enterprise_vouches_for_its_user(world: OAuthWorld, protocol: str) -> None:
    provider = world.add_authorization_server("/idp")
    world.add_client("service", "s3cret-of-service")
    provider.clients["at-idp"] = Registered("at-idp", "s3cret-of-at-idp")
    world.subject_tokens = {"the-id-token"}
    grant = EnterpriseManaged(
        idp_token_endpoint=f"{provider.issuer}/token",
        id_token="the-id-token",
        idp_client_id="at-idp",
        idp_client_secret="s3cret-of-at-idp",
    )
    oauth = OAuth(grant=grant, client_id="service", client_secret="s3cret-of-service")
    grants = machine_flow(world, oauth, protocol, "urn:ietf:params:oauth:grant-type:jwt-bearer")
    exchanges = world.seen("token", grant_type="urn:ietf:params:oauth:grant-type:token-exchange")
    assert {seen.form["audience"] for seen in exchanges} == {world.issuer}
    assert {seen.server for seen in exchanges} == {provider.origin}
    assert len({seen.form["assertion"] for seen in grants}) == 2  # each is good once
    assert [seen for seen in world.log if seen.server != provider.origin and "the-id-token" in all_of(seen)] == []


@each_era
def test_wif_a_workload_shows_what_its_platform_gave_it(world: OAuthWorld, protocol: str) -> None:
    told: list[str] = []
    world.workload_assertions = {"a-jwt"}

    def assertion(audience: str) -> str:
        told.append(audience)
        return "a-jwt"

    oauth = OAuth(grant=WorkloadIdentity(assertion=assertion))
    machine_flow(world, oauth, protocol, "urn:ietf:params:oauth:grant-type:jwt-bearer")
    assert told == [f"{world.issuer}/token"] * 2


def test_wif_a_refusal_is_final(world: OAuthWorld) -> None:
    error = refused(world, OAuth(grant=WorkloadIdentity(assertion=lambda audience: "unknown")))
    assert step_of(error) == "token"
    assert (world.count("token"), world.count("authorize"), world.count("register")) == (1, 0, 0)


@each_era
@pytest.mark.parametrize("nonces", [False, True])
def test_dpop_every_request_is_proven_anew(world: OAuthWorld, protocol: str, nonces: bool) -> None:
    world.dpop = world.dpop_required = True  # proofs are checked there, and that none comes twice
    world.as_nonce = world.rs_nonce = nonces
    with connected(world, person(world), protocol) as client:
        assert client.call_tool("test-tool").ok
        world.rotate_nonces()
        assert client.call_tool("test-tool").ok
        world.revoke_all()
        assert client.call_tool("test-tool").ok
    good = [seen for seen in world.seen("mcp") if seen.status < 400]
    assert {seen.headers["authorization"].partition(" ")[0] for seen in good} == {"DPoP"}
    assert [seen for seen in world.seen("mcp") if seen.method != "POST" and seen.status == 401] == []
    assert world.count("authorize") == 1
