"""Metadata: which places are asked, in which order, what a document has to say, and what ends a flow."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.auth.discovery import (
    MAX_ENTRIES,
    MAX_ENTRY,
    ResourceMetadata,
    ServerMetadata,
    covers,
    origin_metadata,
    resource_metadata,
    server_metadata,
)
from snodo_client.auth.steps import Reply
from snodo_client.auth.urls import Rules
from snodo_client.outcome import McpError, local_error
from snodo_client.protocol.challenges import Challenge, challenges
from snodo_client.protocol.origins import endpoint
from support.oauth_flows import JSON, fetched, reply
from support.oauth_server import OAuthWorld

if TYPE_CHECKING:
    from snodo_client.auth.steps import Flow

T = TypeVar("T")
Web = dict[str, object]  # URL -> its JSON, a Reply, or the error of asking; all others answer 404

REMOTE = Rules()
SERVER = endpoint("https://mcp.example/mcp")
WELL_KNOWN = "https://mcp.example/.well-known/oauth-protected-resource"
ISSUER = "https://as.example"
OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"

HTML = Reply(200, {"content-type": "text/html"}, b"<!doctype html><title>Welcome</title>")
NOT_THERE = [
    Reply(404, {}, b"Not Found"),
    reply({"resource": "https://mcp.example", "issuer": ISSUER, "token_endpoint": f"{ISSUER}/token"}, 404),
    Reply(401, {}, b""),
    Reply(403, {}, b""),
    Reply(405, {}, b""),
    Reply(410, {}, b""),
    Reply(302, {"location": "https://evil.example/"}, b""),
    Reply(204, {}, b""),
    HTML,
    Reply(200, {}, b""),
    Reply(200, {}, b"[]"),
    Reply(200, {}, b"null"),
    Reply(200, {}, b'{"resource": NaN}'),
    Reply(200, {}, b"\xff{}"),
    Reply(200, {}, b"[" * 100_000),
]
FOR_NOW = [Reply(status, {}, b"later") for status in (408, 429, 500, 502, 503, 504, 599)]


def asked(flow: Flow[T], web: Web) -> tuple[T | McpError, list[str]]:
    """What the flow comes to on this web, and the URLs it asks."""
    urls: list[str] = []
    try:
        fetch = next(flow)
        while True:
            urls.append(fetch.endpoint.url)
            assert (fetch.method, fetch.body, fetch.secrets) == ("GET", None, [])
            assert len(urls) < 10
            found = web.get(fetch.endpoint.url, NOT_THERE[0])
            if isinstance(found, McpError):
                fetch = flow.throw(found)
            else:
                fetch = flow.send(found if isinstance(found, Reply) else reply(found))
    except StopIteration as done:
        return done.value, urls
    except McpError as error:
        return error, urls


def error_of(flow: Flow[Any], web: Web, step: str) -> McpError:
    error, _ = asked(flow, web)
    assert isinstance(error, McpError), error
    assert (error.reason, error.kind, error.data["step"]) == ("authorization_failed", "authorization", step)
    assert error.message.isprintable()
    assert len(error.message) < 3000
    return error


def pointing(url: str) -> Challenge:
    return challenges([f'Bearer resource_metadata="{url}"'])[0]


def of_resource(**members: object) -> dict[str, object]:
    return {"resource": "https://mcp.example/mcp", "authorization_servers": [ISSUER], **members}


def of_server(issuer: str = ISSUER, **members: object) -> dict[str, object]:
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        **members,
    }


def resource(document: object, server: str = "https://mcp.example/mcp") -> ResourceMetadata:
    found, _ = asked(
        resource_metadata(endpoint(server), pointing("https://mcp.example/m"), REMOTE),
        {"https://mcp.example/m": document},
    )
    assert isinstance(found, ResourceMetadata), found
    return found


def of(document: object, issuer: str = ISSUER) -> ServerMetadata:
    found, _ = asked(server_metadata(issuer, REMOTE), {f"https://as.example{OAUTH}": document})
    assert isinstance(found, ServerMetadata), found
    return found


# -- of the protected server: where it is


@pytest.mark.parametrize("url", ["https://mcp.example/custom/location.json?v=1", "https://elsewhere.example/m"])
def test_the_place_a_challenge_names_is_the_only_one_asked(url: str) -> None:
    found, urls = asked(
        resource_metadata(SERVER, pointing(url), REMOTE), {url: of_resource(), WELL_KNOWN: of_resource()}
    )
    assert isinstance(found, ResourceMetadata)
    assert (found.resource, found.authorization_servers) == ("https://mcp.example/mcp", [ISSUER])
    assert (found.scopes_supported, found.dpop_required) == (None, False)
    assert urls == [url]


@pytest.mark.parametrize("answer", NOT_THERE + FOR_NOW, ids=lambda answer: f"{answer.status}-{answer.body[:9]}")
def test_nothing_at_the_place_a_challenge_names_is_an_error(answer: Reply) -> None:
    place = "https://mcp.example/m"
    web: Web = {place: answer, WELL_KNOWN: of_resource(), f"{WELL_KNOWN}/mcp": of_resource()}
    error = error_of(resource_metadata(SERVER, pointing(place), REMOTE), web, "resource_metadata")
    assert place in error.message
    assert (error.data["url"], error.data["http_status"]) == (place, answer.status)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://mcp.example/m", "http://mcp.example is not https"),
        ("https://localhost/m", "this machine"),
        ("http://169.254.169.254/latest", "not https"),
        ("https://127.1/m", "unusual"),
        ("/m", "no http"),
        ("file:///etc/passwd", "no http"),
        ("https://user:canary@mcp.example/m", "user name"),
        ("", "no http"),
    ],
)
def test_a_place_that_may_not_be_asked_is_an_error_and_no_reason_to_look_elsewhere(url: str, why: str) -> None:
    flow = resource_metadata(SERVER, pointing(url), REMOTE)
    error, urls = asked(flow, {f"{WELL_KNOWN}/mcp": of_resource()})
    assert isinstance(error, McpError)
    assert urls == []
    assert why in error.message
    assert "canary" not in f"{error.message}{error.data}"
    assert error.__context__ is None


@pytest.mark.parametrize(
    "challenge", [None, *challenges(["Bearer", 'Bearer error="invalid_token", resource_metadata=h://'])]
)
@pytest.mark.parametrize(
    ("server", "places"),
    [
        ("https://mcp.example/mcp", [f"{WELL_KNOWN}/mcp", WELL_KNOWN]),
        ("https://mcp.example/mcp?key=canary", [f"{WELL_KNOWN}/mcp", WELL_KNOWN]),
        ("https://mcp.example/a/b/", [f"{WELL_KNOWN}/a/b/", WELL_KNOWN]),
        ("https://mcp.example/a%2Fb", [f"{WELL_KNOWN}/a%2Fb", WELL_KNOWN]),
        ("https://mcp.example/", [WELL_KNOWN]),
        ("https://mcp.example", [WELL_KNOWN]),
    ],
)
def test_without_a_place_the_path_is_asked_and_then_the_root(
    challenge: Challenge | None, server: str, places: list[str]
) -> None:
    found, urls = asked(resource_metadata(endpoint(server), challenge, REMOTE), {})
    assert found is None
    assert urls == places
    for n, place in enumerate(places):
        document = of_resource(resource="https://mcp.example")
        found, urls = asked(resource_metadata(endpoint(server), challenge, REMOTE), {place: document})
        assert isinstance(found, ResourceMetadata)
        assert urls == places[: n + 1]


@pytest.mark.parametrize("answer", NOT_THERE, ids=lambda answer: f"{answer.status}-{answer.body[:9]}")
def test_a_well_known_place_without_a_document_is_passed_over(answer: Reply) -> None:
    found, urls = asked(
        resource_metadata(SERVER, None, REMOTE), {f"{WELL_KNOWN}/mcp": answer, WELL_KNOWN: of_resource()}
    )
    assert isinstance(found, ResourceMetadata)
    assert urls == [f"{WELL_KNOWN}/mcp", WELL_KNOWN]
    web: Web = {f"{WELL_KNOWN}/mcp": answer, WELL_KNOWN: answer}
    assert asked(resource_metadata(SERVER, None, REMOTE), web)[0] is None


@pytest.mark.parametrize("answer", FOR_NOW, ids=lambda answer: answer.status)
@pytest.mark.parametrize("place", [f"{WELL_KNOWN}/mcp", WELL_KNOWN])
def test_a_well_known_place_that_cannot_be_asked_now_ends_the_flow(answer: Reply, place: str) -> None:
    error, urls = asked(resource_metadata(SERVER, None, REMOTE), {place: answer, f"{WELL_KNOWN}": answer})
    assert isinstance(error, McpError)
    assert (error.data["http_status"], error.data["url"]) == (answer.status, place)
    assert urls[-1] == place


def test_a_network_fault_ends_every_flow_as_it_is() -> None:
    fault = local_error("unreachable", "no connection")
    for flow, place in [
        (resource_metadata(SERVER, None, REMOTE), f"{WELL_KNOWN}/mcp"),
        (server_metadata(ISSUER, REMOTE), ISSUER + OAUTH),
        (origin_metadata(SERVER, REMOTE), f"https://mcp.example{OAUTH}"),
    ]:
        assert asked(flow, {place: fault}) == (fault, [place])


def test_a_server_without_tls_is_asked_for_nothing() -> None:
    plain = endpoint("http://mcp.example/mcp")
    for flow, step in [
        (resource_metadata(plain, None, REMOTE), "resource_metadata"),
        (origin_metadata(plain, REMOTE), "server_metadata"),
    ]:
        assert "not https" in error_of(flow, {}, step).message
    assert asked(resource_metadata(plain, None, Rules(insecure_http=True)), {})[0] is None


# -- of the protected server: what it says


@pytest.mark.parametrize(
    ("identifier", "server"),
    [
        ("https://mcp.example/mcp", "https://mcp.example/mcp"),
        ("https://mcp.example/mcp/", "https://mcp.example/mcp"),
        ("https://mcp.example/mcp", "https://mcp.example/mcp/"),
        ("https://mcp.example", "https://mcp.example/mcp"),
        ("https://mcp.example/", "https://mcp.example/mcp"),
        ("https://mcp.example", "https://mcp.example"),
        ("https://mcp.example/a", "https://mcp.example/a/b?x=y"),
        ("https://mcp.example/a?x=y", "https://mcp.example/a/b?x=y"),
        ("HTTPS://MCP.example:443/mcp", "https://mcp.example/mcp"),
        ("http://localhost:80", "http://localhost/mcp"),
    ],
)
def test_a_resource_covers_the_server(identifier: str, server: str) -> None:
    assert covers(identifier, endpoint(server))
    assert resource(of_resource(resource=identifier), server).resource == identifier


@pytest.mark.parametrize(
    "identifier",
    [
        "https://evil.example.com/mcp",
        "http://mcp.example/mcp",
        "https://mcp.example:444/mcp",
        "https://mcp.example.evil.example/mcp",
        "https://sub.mcp.example/mcp",
        "https://mcp.example/mc",
        "https://mcp.example/mcp/sub",
        "https://mcp.example/mcp/..",
        "https://mcp.example/MCP",
        "https://mcp.example/mcp?x=y",
        "https://mcp.example//",
        "https://user@mcp.example/mcp",
        "https://mcp.example/mcp#x",
        "mcp.example",
        "urn:mcp",
        "",
        "https://mcp.example/mcp\x1b[2J",
        "\ud800",
    ],
    ids=ascii,
)
def test_a_resource_that_is_another_one_is_refused(identifier: str) -> None:
    assert not covers(identifier, SERVER)
    web: Web = {f"{WELL_KNOWN}/mcp": of_resource(resource=identifier), WELL_KNOWN: of_resource()}
    error = error_of(resource_metadata(SERVER, None, REMOTE), web, "resource_metadata")
    assert "not of https://mcp.example/mcp" in error.message
    assert error.data["url"] == f"{WELL_KNOWN}/mcp"


@pytest.mark.parametrize(
    ("members", "lacking"),
    [
        ({"resource": None}, "no resource"),
        ({"resource": ["https://mcp.example"]}, "no resource"),
        ({"resource": 1}, "no resource"),
        ({"resource": "https://mcp.example/mcp" + " " * MAX_ENTRY}, "no resource"),
        ({"authorization_servers": None}, "no authorization server"),
        ({"authorization_servers": []}, "no authorization server"),
        ({"authorization_servers": ISSUER}, "no authorization server"),
        ({"authorization_servers": {"0": ISSUER}}, "no authorization server"),
        ({"authorization_servers": [None, 1, {}, "x" * (MAX_ENTRY + 1)]}, "no authorization server"),
    ],
)
def test_what_the_metadata_of_a_server_must_have(members: dict[str, object], lacking: str) -> None:
    web: Web = {f"{WELL_KNOWN}/mcp": of_resource(**members), WELL_KNOWN: of_resource()}
    assert lacking in error_of(resource_metadata(SERVER, None, REMOTE), web, "resource_metadata").message


def test_lists_are_bounded_and_hold_texts() -> None:
    found = resource(
        of_resource(
            authorization_servers=[1, "https://b.example/", *(f"https://{n}.example" for n in range(200))],
            scopes_supported=["a", None, "b c", "", 'd"', "e\n", "\u00e9", "mcp:read", "x" * (MAX_ENTRY + 1)],
            dpop_bound_access_tokens_required=True,
        )
    )
    assert found.authorization_servers[:2] == ["https://b.example/", "https://0.example"]
    assert len(found.authorization_servers) == MAX_ENTRIES - 1
    assert found.scopes_supported == ("a", "mcp:read")
    assert found.dpop_required
    assert repr(found) == "<ResourceMetadata 'https://mcp.example/mcp'>"


@pytest.mark.parametrize("wrong", ["read write", {}, 1, None, True])
def test_scopes_that_are_no_list_are_none(wrong: object) -> None:
    found = resource(of_resource(scopes_supported=wrong, dpop_bound_access_tokens_required="true"))
    assert (found.scopes_supported, found.dpop_required) == (None, False)
    assert resource(of_resource(scopes_supported=[])).scopes_supported == ()
    assert of(of_server(scopes_supported=wrong)).scopes_supported is None


# -- of an authorization server: where it is


PLACES = [
    (ISSUER, [ISSUER + OAUTH, ISSUER + OPENID]),
    (f"{ISSUER}/", [ISSUER + OAUTH, ISSUER + OPENID]),
    (
        f"{ISSUER}/tenant1",
        [f"{ISSUER}{OAUTH}/tenant1", f"{ISSUER}{OPENID}/tenant1", f"{ISSUER}/tenant1{OPENID}"],
    ),
    (f"{ISSUER}/a/b/", [f"{ISSUER}{OAUTH}/a/b", f"{ISSUER}{OPENID}/a/b", f"{ISSUER}/a/b{OPENID}"]),
]


@pytest.mark.parametrize(("issuer", "places"), PLACES)
def test_the_places_of_an_issuer_are_asked_in_order(issuer: str, places: list[str]) -> None:
    error = error_of(server_metadata(issuer, REMOTE), {}, "server_metadata")
    assert all(f"{place} answered status 404" in error.message for place in places)
    assert asked(server_metadata(issuer, REMOTE), {})[1] == places
    for n, place in enumerate(places):
        found, urls = asked(server_metadata(issuer, REMOTE), {place: of_server(issuer)})
        assert isinstance(found, ServerMetadata)
        assert found.issuer == issuer
        assert urls == places[: n + 1]


@pytest.mark.parametrize("answer", NOT_THERE, ids=lambda answer: f"{answer.status}-{answer.body[:9]}")
def test_a_place_of_an_issuer_without_a_document_is_passed_over(answer: Reply) -> None:
    found, _ = asked(server_metadata(ISSUER, REMOTE), {ISSUER + OAUTH: answer, ISSUER + OPENID: of_server()})
    assert isinstance(found, ServerMetadata)
    error_of(server_metadata(ISSUER, REMOTE), {ISSUER + OAUTH: answer, ISSUER + OPENID: answer}, "server_metadata")


@pytest.mark.parametrize("answer", FOR_NOW, ids=lambda answer: answer.status)
def test_an_issuer_that_cannot_be_asked_now_ends_the_flow(answer: Reply) -> None:
    web: Web = {ISSUER + OAUTH: answer, ISSUER + OPENID: of_server()}
    error = error_of(server_metadata(ISSUER, REMOTE), web, "server_metadata")
    assert error.data["http_status"] == answer.status
    web = {f"https://mcp.example{OAUTH}": answer}
    assert error_of(origin_metadata(SERVER, REMOTE), web, "server_metadata").data["http_status"] == answer.status


@pytest.mark.parametrize(
    "other",
    [
        "https://attacker.example.com",
        f"{ISSUER}/",
        "https://AS.example",
        f"{ISSUER}:443",
        "https://as.example/tenant1",
        "http://as.example",
        f"{ISSUER} ",
        "",
        "\x1b[2J" + "x" * 5000,
        "\ud800",
    ],
    ids=lambda other: ascii(other)[:40],
)
def test_metadata_of_another_issuer_ends_the_flow(other: str) -> None:
    web: Web = {ISSUER + OAUTH: of_server(other), ISSUER + OPENID: of_server()}
    error = error_of(server_metadata(ISSUER, REMOTE), web, "server_metadata")
    assert error.data["url"] == ISSUER + OAUTH
    assert f"not of {ISSUER}" in error.message


@pytest.mark.parametrize("other", [None, 1, [ISSUER], {}, True])
def test_metadata_without_an_issuer_ends_the_flow(other: object) -> None:
    web: Web = {ISSUER + OAUTH: {**of_server(), "issuer": other}, ISSUER + OPENID: of_server()}
    assert "no issuer" in error_of(server_metadata(ISSUER, REMOTE), web, "server_metadata").message


@pytest.mark.parametrize(
    "issuer",
    [
        "http://as.example",
        "https://localhost:1",
        "as.example",
        f"{ISSUER}#x",
        f"{ISSUER}?x=canary",
        "",
        "https://10.1/",
    ],
)
def test_an_issuer_that_may_not_be_asked_is_not(issuer: str) -> None:
    error, urls = asked(server_metadata(issuer, REMOTE), {})
    assert isinstance(error, McpError)
    assert urls == []
    assert "canary" not in error.message


def test_a_local_server_may_have_a_local_issuer() -> None:
    issuer = "http://localhost:9000"
    document = of_server(issuer, token_endpoint=f"{issuer}/token")
    found, _ = asked(server_metadata(issuer, Rules(local=True)), {issuer + OAUTH: document})
    assert isinstance(found, ServerMetadata)
    assert found.token_endpoint.url == f"{issuer}/token"


# -- of an authorization server: what it says


def test_all_that_an_authorization_server_says() -> None:
    found = of(
        of_server(
            registration_endpoint=f"{ISSUER}/register?x=y",
            scopes_supported=["a", "offline_access"],
            token_endpoint_auth_methods_supported=["none", 1, "private_key_jwt"],
            token_endpoint_auth_signing_alg_values_supported=["ES256"],
            code_challenge_methods_supported=["plain", "S256"],
            authorization_response_iss_parameter_supported=True,
            client_id_metadata_document_supported=True,
            dpop_signing_alg_values_supported=["ES256", "RS256"],
            authorization_grant_profiles_supported=["urn:ietf:params:oauth:grant-profile:id-jag"],
            extra={"deep": [1]},
        )
    )
    assert found.required("authorization_endpoint").url == f"{ISSUER}/authorize"
    assert found.required("token_endpoint").url == f"{ISSUER}/token"
    assert found.required("registration_endpoint").url == f"{ISSUER}/register?x=y"
    assert found.scopes_supported == ("a", "offline_access")
    assert found.token_methods == ("none", "private_key_jwt")
    assert found.signing_algorithms == ("ES256",)
    assert found.pkce == ("plain", "S256")
    assert (found.sends_iss, found.takes_metadata_documents, found.assumed) == (True, True, False)
    assert found.dpop_algorithms == ("ES256", "RS256")
    assert found.grant_profiles == ("urn:ietf:params:oauth:grant-profile:id-jag",)
    assert repr(found) == f"<ServerMetadata of '{ISSUER}'>"


def test_an_authorization_server_that_says_little() -> None:
    found = of({"issuer": ISSUER, "token_endpoint": f"{ISSUER}/token"})
    assert (found.authorization_endpoint, found.registration_endpoint) == (None, None)
    assert (found.scopes_supported, found.token_methods, found.signing_algorithms, found.pkce) == (None,) * 4
    assert (found.sends_iss, found.takes_metadata_documents, found.assumed) == (False,) * 3
    assert (found.dpop_algorithms, found.grant_profiles) == ((), ())
    with pytest.raises(McpError, match="has no registration_endpoint") as caught:
        found.required("registration_endpoint")
    assert caught.value.data["step"] == "server_metadata"


REFUSED = [
    ("http://as.example/x", "not https"),
    ("https://localhost/x", "this machine"),
    ("javascript:alert(1)", "no http"),
    (f"{ISSUER}/x#y", "fragment"),
    ("/x", "no http"),
    ("https://as.example/" + "x" * 3000, "longer"),
    (7, "no text"),
    ([f"{ISSUER}/x"], "no text"),
    (False, "no text"),
]


@pytest.mark.parametrize(("url", "why"), REFUSED)
def test_an_endpoint_that_is_refused_is_an_error_when_it_is_needed(url: object, why: str) -> None:
    found = of(of_server(authorization_endpoint=url, registration_endpoint=url))
    assert (found.authorization_endpoint, found.registration_endpoint) == (None, None)
    with pytest.raises(McpError, match=f"the authorization_endpoint of .* is refused: .*{why}"):
        found.required("authorization_endpoint")
    web: Web = {ISSUER + OAUTH: of_server(token_endpoint=url), ISSUER + OPENID: of_server()}
    assert re.search(
        f"the token_endpoint of .* is refused: .*{why}",
        error_of(server_metadata(ISSUER, REMOTE), web, "server_metadata").message,
    )


def test_a_token_endpoint_is_needed() -> None:
    web: Web = {ISSUER + OAUTH: of_server(token_endpoint=None), ISSUER + OPENID: of_server()}
    assert "has no token_endpoint" in error_of(server_metadata(ISSUER, REMOTE), web, "server_metadata").message


@pytest.mark.parametrize("wrong", ["S256", {"S256": True}, 1, True, None])
def test_what_has_the_wrong_type_is_not_said(wrong: object) -> None:
    found = of(
        of_server(
            code_challenge_methods_supported=wrong,
            token_endpoint_auth_methods_supported=wrong,
            token_endpoint_auth_signing_alg_values_supported=wrong,
            dpop_signing_alg_values_supported=wrong,
            authorization_grant_profiles_supported=wrong,
            authorization_response_iss_parameter_supported="true" if wrong is True else wrong,
            client_id_metadata_document_supported="true" if wrong is True else wrong,
        )
    )
    assert (found.pkce, found.token_methods, found.signing_algorithms) == (None,) * 3
    assert (found.dpop_algorithms, found.grant_profiles) == ((), ())
    assert (found.sends_iss, found.takes_metadata_documents) == (False, False)


# -- of a server of 2025-03-26


@pytest.mark.parametrize("issuer", ["https://mcp.example", "https://mcp.example/"])
def test_an_old_server_publishes_metadata_at_its_origin(issuer: str) -> None:
    place = f"https://mcp.example{OAUTH}"
    flow = origin_metadata(SERVER, REMOTE)
    fetch = next(flow)
    assert fetch.endpoint.url == place
    assert fetch.headers == {"Accept": "application/json", "MCP-Protocol-Version": "2025-03-26"}
    flow.close()
    found, urls = asked(origin_metadata(SERVER, REMOTE), {place: of_server(issuer)})
    assert isinstance(found, ServerMetadata)
    assert (found.issuer, found.assumed, urls) == (issuer, False, [place])


@pytest.mark.parametrize("answer", NOT_THERE, ids=lambda answer: f"{answer.status}-{answer.body[:9]}")
def test_an_old_server_without_metadata_has_the_default_endpoints(answer: Reply) -> None:
    place = f"https://mcp.example{OAUTH}"
    found, urls = asked(origin_metadata(SERVER, REMOTE), {place: answer})
    assert isinstance(found, ServerMetadata)
    assert urls == [place]
    assert found.assumed
    assert found.issuer == "https://mcp.example"
    assert found.required("authorization_endpoint").url == "https://mcp.example/authorize"
    assert found.token_endpoint.url == "https://mcp.example/token"
    assert found.required("registration_endpoint").url == "https://mcp.example/register"
    assert (found.pkce, found.token_methods, found.sends_iss) == (None, None, False)


def test_metadata_of_another_issuer_at_the_origin_is_no_reason_for_the_defaults() -> None:
    web: Web = {f"https://mcp.example{OAUTH}": of_server("https://attacker.example.com")}
    assert "attacker" in error_of(origin_metadata(SERVER, REMOTE), web, "server_metadata").message


# -- documents of any kind


MEMBERS = [
    "resource",
    "authorization_servers",
    "scopes_supported",
    "dpop_bound_access_tokens_required",
    "issuer",
    "authorization_endpoint",
    "token_endpoint",
    "registration_endpoint",
    "code_challenge_methods_supported",
    "token_endpoint_auth_methods_supported",
    "token_endpoint_auth_signing_alg_values_supported",
    "dpop_signing_alg_values_supported",
    "authorization_grant_profiles_supported",
    "authorization_response_iss_parameter_supported",
    "client_id_metadata_document_supported",
]
SURROGATES = st.text(st.characters(codec=None), max_size=10)
FINITE = JSON.filter(lambda value: "Infinity" not in json.dumps(value))  # which is no JSON
VALUES = FINITE | SURROGATES | st.lists(SURROGATES, max_size=3) | SURROGATES.map("https://as.example/{}".format)


class _Everywhere(Web):
    """A web with one document, which is everywhere."""

    def __init__(self, document: object) -> None:
        self._document = document

    def get(self, url: str, default: object = None) -> object:
        return self._document


@given(st.dictionaries(st.sampled_from(MEMBERS), VALUES), st.booleans())
def test_any_document_is_metadata_or_an_error(members: dict[str, Any], valid: bool) -> None:
    document = {**of_resource(), **of_server(), **members} if valid else members
    flows: list[Flow[Any]] = [
        resource_metadata(SERVER, pointing("https://mcp.example/m"), REMOTE),
        server_metadata(ISSUER, REMOTE),
        origin_metadata(SERVER, REMOTE),
    ]
    for flow in flows:
        found, urls = asked(flow, _Everywhere(document))
        assert len(urls) == 1
        if isinstance(found, McpError):
            assert found.reason == "authorization_failed"
            assert found.message.isprintable()
        else:
            assert isinstance(found, (ResourceMetadata, ServerMetadata))


@given(st.integers(100, 599), st.binary(max_size=50))
def test_any_reply_is_an_answer(status: int, body: bytes) -> None:
    for flow in (resource_metadata(SERVER, None, REMOTE), server_metadata(ISSUER, REMOTE)):
        found, urls = asked(flow, _Everywhere(Reply(status, {}, body)))
        assert len(urls) in (1, 2)
        assert found is None or isinstance(found, McpError)


@given(st.text("/ab.%2", max_size=8), st.text("/ab.%2", max_size=8))
def test_a_resource_covers_by_whole_segments(above: str, below: str) -> None:
    parent, server = f"https://mcp.example/{above}", endpoint(f"https://mcp.example/{below}")
    first, second = (path.removesuffix("/").split("/") for path in (f"/{above}", f"/{below}"))
    if covers(parent, server):
        assert f"/{below}/".split("/")[: len(first)] == first
    if second[: len(first)] == first:
        assert covers(parent, server)


# -- with real servers


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("direct")
@pytest.mark.parametrize(("path", "kind"), [("", "oauth"), ("", "oidc"), ("/t", "oauth"), ("/t", "oidc-appended")])
@pytest.mark.parametrize("named", [True, False])
def test_a_server_on_a_socket_is_found(path: str, kind: str, named: bool) -> None:
    with OAuthWorld(issuer_path=path) as world:
        world.metadata_kinds = [kind]
        challenge = pointing(f"{world.resource_url.removesuffix('/mcp')}{world.prm_paths[0]}") if named else None
        server, rules = endpoint(world.resource_url), Rules(local=True)
        found = fetched(resource_metadata(server, challenge, rules))
        assert found is not None
        assert found.authorization_servers == [world.issuer]
        metadata = fetched(server_metadata(world.issuer, rules))
        assert metadata.issuer == world.issuer
        assert "S256" in (metadata.pkce or ())
