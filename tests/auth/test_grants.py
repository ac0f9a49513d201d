"""Requests to token endpoints and what comes back for them: every grant, proofs, and the flows without a person."""

from __future__ import annotations

import json
import pickle
import time
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, quote_plus, urlencode, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jwt import get_unverified_header

from snodo_client.auth import grants
from snodo_client.auth.clients import BASIC, NONE, POST, PRIVATE_KEY, ClientIdentity, register
from snodo_client.auth.discovery import ServerMetadata, server_metadata
from snodo_client.auth.dpop import ProofKey
from snodo_client.auth.grants import (
    EnterpriseManaged,
    Token,
    WorkloadIdentity,
    authorization_code,
    client_credentials,
    enterprise,
    exchange,
    refresh,
    token_from,
    token_request,
    workload,
)
from snodo_client.auth.steps import Fetch, Reply
from snodo_client.auth.urls import Rules
from snodo_client.outcome import McpError
from support.oauth_flows import ISSUER, JSON, fetched, form, metadata, reply, run
from support.oauth_issuer import Registered
from support.oauth_proofs import thumbprint
from support.oauth_server import Fault, OAuthWorld

RESOURCE = "https://mcp.example/mcp"
IDP = "https://idp.example/token"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CODE, VERIFIER, REFRESH = "canary-code-1", "canary-verifier-2", "canary-refresh-3"
SECRET = "canary secret/4"
SUBJECT, GRANT, ASSERTION = "canary-subject-5", "canary-grant-6", "canary-assertion-7"
ACCESS = "canary-access-8"
CLIENT = ClientIdentity("client", client_secret=SECRET)
PUBLIC = ClientIdentity("client")
BEARER = {"access_token": ACCESS, "token_type": "Bearer"}


def refused(flow: Any, replies: list[Reply], sent: list[Fetch] | None = None) -> McpError:
    """The error that a flow ends with, once it was looked through for what must not be in it."""
    with pytest.raises(McpError) as caught:
        run(flow, replies, sent)
    return harmless(caught.value)


def harmless(error: McpError) -> McpError:
    assert error.__context__ is None
    assert (error.reason, error.kind, error.data["step"]) == ("authorization_failed", "authorization", "token")
    assert "canary" not in f"{error} {error!r} {error.data}"
    return error


# -- what is sent


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        (
            authorization_code("c", "v", "http://localhost/cb", RESOURCE),
            {
                "grant_type": "authorization_code",
                "code": "c",
                "code_verifier": "v",
                "redirect_uri": "http://localhost/cb",
                "resource": RESOURCE,
            },
        ),
        (refresh("r", RESOURCE), {"grant_type": "refresh_token", "refresh_token": "r", "resource": RESOURCE}),
        (
            client_credentials(RESOURCE, "a"),
            {"grant_type": "client_credentials", "resource": RESOURCE, "scope": "a"},
        ),
        (client_credentials(None, None), {"grant_type": "client_credentials"}),
    ],
)
def test_the_parameters_of_a_grant_leave_out_what_is_not_there(
    parameters: dict[str, str], expected: dict[str, str]
) -> None:
    assert parameters == expected


def test_a_token_request_is_a_form_with_the_authentication_of_the_client() -> None:
    fetch = token_request(metadata(), CLIENT, refresh(REFRESH, RESOURCE), now=0.0)
    assert (fetch.method, fetch.endpoint.url) == ("POST", f"{ISSUER}/token")
    assert form(fetch) == {**refresh(REFRESH, RESOURCE), "client_id": "client"}  # and no secret: one way only
    assert b64decode(fetch.headers["Authorization"].removeprefix("Basic ")) == b"client:canary+secret%2F4"

    server = metadata(token_endpoint_auth_methods_supported=[POST])
    fetch = token_request(server, CLIENT, refresh(REFRESH, RESOURCE), now=0.0)
    assert form(fetch) == {**refresh(REFRESH, RESOURCE), "client_id": "client", "client_secret": SECRET}
    assert "Authorization" not in fetch.headers


def test_a_public_client_names_itself_and_none_is_none() -> None:
    assert form(token_request(metadata(), PUBLIC, client_credentials(None, None), now=0.0)) == {
        "grant_type": "client_credentials",
        "client_id": "client",
    }
    assert form(token_request(metadata(), None, client_credentials(None, None), now=0.0)) == {
        "grant_type": "client_credentials"
    }


def test_a_signed_assertion_is_for_the_issuer() -> None:
    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    client = ClientIdentity("client", private_key=pem)
    fetch = token_request(metadata(), client, client_credentials(RESOURCE, None), now=1e6)
    assertion = form(fetch)["client_assertion"]
    claims = jwt.decode(
        assertion,
        key.public_key(),
        algorithms=["ES256"],
        audience=ISSUER,
        options={"verify_exp": False, "verify_iat": False},
    )
    assert claims["sub"] == "client"
    assert assertion in fetch.secrets


def test_what_is_secret_in_a_request_is_known_and_nothing_else() -> None:
    parameters = {**authorization_code(CODE, VERIFIER, "http://localhost/cb", RESOURCE), "scope": "a b"}
    basic = token_request(metadata(), CLIENT, parameters, now=0.0)
    credentials = b64encode(b"client:canary+secret%2F4").decode()
    assert set(basic.secrets) == {CODE, VERIFIER, credentials, SECRET, quote_plus(SECRET)}
    posted = token_request(metadata(token_endpoint_auth_methods_supported=[POST]), CLIENT, parameters, now=0.0)
    assert set(posted.secrets) == {CODE, VERIFIER, SECRET, quote_plus(SECRET)}
    assert set(token_request(metadata(), PUBLIC, refresh(REFRESH, RESOURCE), now=0.0).secrets) == {REFRESH}


# -- what comes back


def asked() -> Fetch:
    return token_request(metadata(), CLIENT, authorization_code(CODE, VERIFIER, "http://localhost/cb", RESOURCE), now=0)


def test_a_token_is_what_the_answer_says() -> None:
    said = {**BEARER, "expires_in": 3600, "refresh_token": REFRESH, "scope": "a b", "id_token": "x"}
    token = token_from(asked(), reply(said))
    assert (token.access_token, token.token_type, token.expires_in) == (ACCESS, "bearer", 3600.0)
    assert (token.refresh_token, token.scope) == (REFRESH, "a b")
    assert "canary" not in repr(token)
    assert pickle.loads(pickle.dumps(token)).access_token == ACCESS


@pytest.mark.parametrize("absent", [{}, {"refresh_token": None, "scope": None, "expires_in": None}, {"scope": ""}])
def test_what_may_be_absent_is_none(absent: dict[str, Any]) -> None:
    token = token_from(asked(), reply({**BEARER, **absent}))
    assert (token.expires_in, token.refresh_token, token.scope) == (None, None, None)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (1, 1.0),
        (0.5, 0.5),
        ("3600", 3600.0),
        ("59.5", 59.5),
        (10**9, 1e9),
        (0, None),
        (-1, None),
        (True, None),
        (10**9 + 1, None),
        (10**4000, None),
        (1e300, None),
        ("", None),
        ("-5", None),
        ("1e3", None),
        ("\u0663", None),
        ("0", None),
        ([60], None),
    ],
)
def test_a_lifetime_is_a_number_of_seconds_or_unknown(said: object, seconds: float | None) -> None:
    assert token_from(asked(), reply({**BEARER, "expires_in": said})).expires_in == seconds


@pytest.mark.parametrize("written", ["bearer", "BEARER", "DPoP", "dpop"])
def test_the_type_of_a_token_has_no_case(written: str) -> None:
    assert token_from(asked(), reply({**BEARER, "token_type": written})).token_type == written.lower()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"access_token": None}, "access_token must be a string, not NoneType"),
        ({"access_token": 7}, "access_token must be a string, not int"),
        ({"access_token": ""}, "access_token must have 1 to"),
        ({"access_token": "canary token"}, "access_token must have"),
        ({"access_token": "canary\r\nX: y"}, "access_token must have"),
        ({"access_token": "canary\u00e9"}, "access_token must have"),
        ({"access_token": "canary" * 11000}, "access_token must have"),
        ({"token_type": None}, "token_type must be bearer or dpop"),
        ({"token_type": "mac"}, "token_type must be bearer or dpop"),
        ({"token_type": ACCESS}, "token_type must be bearer or dpop"),
        ({"refresh_token": [REFRESH]}, "refresh_token must be a string, not list"),
        ({"refresh_token": "canary\n"}, "refresh_token must have"),
        ({"scope": ["canary"]}, "scope must be a string, not list"),
        ({"scope": "canary\x7f"}, "scope must have"),
    ],
)
def test_what_cannot_be_sent_is_no_token(said: dict[str, Any], words: str) -> None:
    with pytest.raises(McpError) as caught:
        token_from(asked(), reply({**BEARER, **said}))
    error = harmless(caught.value)
    assert f"{ISSUER}/token issued no usable token: {words}" in error.message
    assert error.data["url"] == f"{ISSUER}/token"


def test_a_refusal_keeps_the_error_and_the_description_of_the_server() -> None:
    said = {"error": "invalid_grant", "error_description": f"{CODE} was used before"}
    with pytest.raises(McpError) as caught:
        token_from(asked(), reply(said, 400))
    error = harmless(caught.value)
    assert f"{ISSUER}/token refused a token with 400: invalid_grant (*** was used before)" in error.message
    assert error.data["error"] == "invalid_grant"
    assert error.data["error_description"] == "*** was used before"
    assert error.data["http_status"] == 400


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        (b"<html>", 302, "answered with a redirect (302), which is not followed"),
        (BEARER, 307, "answered with a redirect (307)"),
        (b"", 304, "answered with a redirect (304)"),
        (b"Bad gateway", 502, "failed with 502, asked for a token: Bad gateway"),
        (BEARER, 500, "failed with 500"),
        (BEARER, 400, "refused a token with 400"),
        (BEARER, 202, "refused a token with 202"),
        (b"", 204, "refused a token with 204"),
        ({"error": "slow_down"}, 429, "refused a token with 429: slow_down"),
        ({"error": "bad_verification_code"}, 200, "refused a token with 200: bad_verification_code"),
        (b'{"access_token": "canary', 200, "answered 200 with something else in place of a JSON object"),
        (f"access_token={ACCESS}&token_type=bearer".encode(), 200, "answered 200 with something else"),
        ([BEARER], 200, "answered 200 with something else"),
        (b"", 200, "answered 200 with something else"),
        ({}, 200, "issued no usable token: access_token must be a string"),
    ],
)
def test_every_other_answer_is_an_error_that_says_what_came(said: object, status: int, words: str) -> None:
    with pytest.raises(McpError) as caught:
        token_from(asked(), reply(said, status))
    error = harmless(caught.value)
    assert words in error.message
    assert error.data["url"] == f"{ISSUER}/token"
    assert error.data.get("http_status", status) == status


def test_a_web_page_is_called_one() -> None:
    with pytest.raises(McpError, match="answered 200 with a web page in place of a JSON object"):
        token_from(asked(), reply(b"<html>", 200, content_type="Text/HTML"))


@pytest.mark.parametrize("status", [200, 302, 400, 401, 500])
@pytest.mark.parametrize("methods", [[BASIC], [POST]])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_server_that_repeats_all_it_was_sent_shows_none_of_it(status: int, methods: list[str], as_json: bool) -> None:
    parameters = authorization_code(CODE, VERIFIER, "http://localhost/cb", RESOURCE)
    fetch = token_request(metadata(token_endpoint_auth_methods_supported=methods), CLIENT, parameters, now=0)
    authorization = fetch.headers.get("Authorization", "")
    credentials = b64decode(authorization.removeprefix("Basic ")).decode()
    sent = f"{(fetch.body or b'').decode()} {authorization} {credentials} {SECRET} {form(fetch)}"
    assert "canary" in sent
    body: object = {"error": "invalid_request", "error_description": sent} if as_json else sent.encode()
    with pytest.raises(McpError) as caught:
        token_from(fetch, reply(body, status))
    harmless(caught.value)
    assert authorization.removeprefix("Basic ") not in caught.value.message or not authorization


@given(
    st.one_of(
        JSON.map(lambda value: json.dumps(value).encode()),
        st.fixed_dictionaries(
            {"access_token": st.just(ACCESS) | JSON, "token_type": st.sampled_from(["Bearer", "DPoP"]) | JSON},
            optional=dict.fromkeys(("expires_in", "refresh_token", "scope", "error", "error_description"), JSON),
        ).map(lambda value: json.dumps(value).encode()),
        st.binary(max_size=50),
    ),
    st.just(200) | st.integers(min_value=200, max_value=599),
)
def test_whatever_comes_is_a_token_or_an_error(body: bytes, status: int) -> None:
    try:
        token = token_from(asked(), Reply(status, {}, body))
    except McpError as error:
        harmless(error)
    else:
        assert status in (200, 201)
        assert token.access_token.isascii()
        assert token.access_token.isprintable()
        assert " " not in token.access_token
        assert token.expires_in is None or 0 < token.expires_in <= grants.LONGEST_LIFE


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"access_token": "a b"}, "access_token"),
        ({"access_token": None}, "access_token"),
        ({"token_type": "Bearer"}, "token_type"),
        ({"expires_in": "60"}, "expires_in"),
        ({"expires_in": True}, "expires_in"),
        ({"refresh_token": ""}, "refresh_token"),
        ({"scope": 7}, "scope"),
    ],
)
def test_a_token_checks_what_it_is_made_of(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        Token(**{"access_token": ACCESS, **arguments})


# -- an exchange, and proofs


class Proofs:
    """Numbers the proofs, and keeps the nonces they were asked for with."""

    def __init__(self) -> None:
        self.nonces: list[str | None] = []

    def __call__(self, fetch: Fetch, nonce: str | None) -> None:
        self.nonces.append(nonce)
        fetch.headers["DPoP"] = f"canary-proof-{len(self.nonces)}"


NONCE_WANTED = reply({"error": "use_dpop_nonce"}, 400, dpop_nonce="n-1")


def test_without_proof_an_exchange_is_one_request() -> None:
    sent: list[Fetch] = []
    token = run(exchange(metadata(), CLIENT, refresh(REFRESH, RESOURCE), now=0.0), [reply(BEARER)], sent)
    assert (token.access_token, len(sent)) == (ACCESS, 1)
    assert "DPoP" not in sent[0].headers


def test_a_nonce_that_a_server_asks_for_is_in_the_second_proof() -> None:
    sent: list[Fetch] = []
    proofs = Proofs()
    flow = exchange(metadata(), CLIENT, refresh(REFRESH, RESOURCE), proof=proofs, now=0.0)
    token = run(flow, [NONCE_WANTED, reply({**BEARER, "token_type": "DPoP"})], sent)
    assert token.token_type == "dpop"
    assert proofs.nonces == [None, "n-1"]
    assert [fetch.headers["DPoP"] for fetch in sent] == ["canary-proof-1", "canary-proof-2"]
    assert sent[0].body == sent[1].body


def test_a_nonce_may_be_asked_for_with_401() -> None:
    proofs = Proofs()
    flow = exchange(metadata(), CLIENT, refresh(REFRESH, RESOURCE), proof=proofs, now=0.0)
    wanted = reply({"error": "use_dpop_nonce"}, 401, dpop_nonce="n-1")
    assert run(flow, [wanted, reply(BEARER)]).token_type == "bearer"


def test_a_server_that_asks_for_a_nonce_again_is_not_answered_again() -> None:
    sent: list[Fetch] = []
    flow = exchange(metadata(), CLIENT, refresh(REFRESH, RESOURCE), proof=Proofs(), now=0.0)
    again = reply({"error": "use_dpop_nonce", "error_description": "not canary-proof-2"}, 400, dpop_nonce="n-2")
    error = refused(flow, [NONCE_WANTED, again], sent)
    assert error.data["error"] == "use_dpop_nonce"
    assert len(sent) == 2


@pytest.mark.parametrize(
    "answer",
    [
        reply({"error": "use_dpop_nonce"}, 400),
        reply({"error": "invalid_grant"}, 400, dpop_nonce="n-1"),
        reply({"error": "use_dpop_nonce"}, 503, dpop_nonce="n-1"),
        reply(b"use_dpop_nonce", 400, dpop_nonce="n-1"),
        reply(["use_dpop_nonce"], 400, dpop_nonce="n-1"),
    ],
)
def test_nothing_else_is_sent_twice(answer: Reply) -> None:
    refused(exchange(metadata(), CLIENT, refresh(REFRESH, RESOURCE), proof=Proofs(), now=0.0), [answer])


def test_a_nonce_is_of_no_use_without_a_proof() -> None:
    refused(exchange(metadata(), CLIENT, refresh(REFRESH, RESOURCE), now=0.0), [NONCE_WANTED])


def test_a_bound_token_is_refused_when_no_proof_was_sent() -> None:
    flow = exchange(metadata(), CLIENT, refresh(REFRESH, RESOURCE), now=0.0)
    error = refused(flow, [reply({**BEARER, "token_type": "DPoP"})])
    assert "issued a token for proofs (DPoP), and none was sent" in error.message


def test_a_fault_of_the_network_passes_through() -> None:
    flow = exchange(metadata(), CLIENT, refresh(REFRESH, RESOURCE), proof=Proofs(), now=0.0)
    next(flow)
    fault = McpError(-32001, "late", reason="timeout")
    with pytest.raises(McpError) as caught:
        flow.throw(fault)
    assert caught.value is fault


# -- sign-in managed by an enterprise


def managed(**options: Any) -> EnterpriseManaged:
    return EnterpriseManaged(**{"idp_token_endpoint": IDP, "id_token": SUBJECT, **options})


def by_enterprise(options: EnterpriseManaged, **arguments: Any) -> Any:
    given: dict[str, Any] = {"resource": RESOURCE, "scope": "a b", "now": 0.0, **arguments}
    return enterprise(options, metadata(), CLIENT, **given)


GRANTED = reply({"access_token": GRANT, "issued_token_type": ID_JAG, "token_type": "N_A", "expires_in": 60})


def test_the_identity_provider_grants_what_the_authorization_server_takes() -> None:
    sent: list[Fetch] = []
    token = run(by_enterprise(managed(idp_client_id="at-idp")), [GRANTED, reply(BEARER)], sent)
    assert token.access_token == ACCESS
    to_idp, to_server = sent
    assert (to_idp.method, to_idp.endpoint.url) == ("POST", IDP)
    assert form(to_idp) == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": ID_JAG,
        "subject_token": SUBJECT,
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "audience": ISSUER,
        "resource": RESOURCE,
        "scope": "a b",
        "client_id": "at-idp",
    }
    assert to_idp.secrets == [SUBJECT]
    assert to_server.endpoint.url == f"{ISSUER}/token"
    assert form(to_server) == {
        "grant_type": JWT_BEARER,
        "assertion": GRANT,
        "resource": RESOURCE,
        "client_id": "client",
    }
    assert to_server.headers["Authorization"].startswith("Basic ")
    assert GRANT in to_server.secrets


def test_the_secrets_of_one_server_do_not_reach_the_other() -> None:
    sent: list[Fetch] = []
    options = managed(idp_client_id="at-idp", idp_client_secret="canary-idp-9")
    run(by_enterprise(options), [GRANTED, reply(BEARER)], sent)
    to_idp, to_server = sent
    assert b64decode(to_idp.headers["Authorization"].removeprefix("Basic ")) == b"at-idp:canary-idp-9"
    assert form(to_idp)["client_id"] == "at-idp"
    for part in (SECRET, quote_plus(SECRET), "Y2xpZW50"):  # and the client id in Base64
        assert part not in f"{to_idp.headers} {to_idp.body!r}"
    for part in (SUBJECT, "canary-idp-9", "at-idp", to_idp.headers["Authorization"]):
        assert part not in f"{to_server.headers} {to_server.body!r}"


@pytest.mark.parametrize("kind", ["refresh_token", "saml2"])
def test_the_subject_may_be_of_another_type(kind: str) -> None:
    fetch = managed(subject_token_type=kind).request(ISSUER, None, None)
    assert form(fetch)["subject_token_type"] == f"urn:ietf:params:oauth:token-type:{kind}"
    assert form(fetch).keys().isdisjoint({"resource", "scope", "client_id"})


def test_a_grant_is_asked_for_each_time_with_what_the_callable_gives_then() -> None:
    subjects = iter(["first\n", "second"])
    options = managed(id_token=lambda: next(subjects))
    sent: list[Fetch] = []
    for _ in range(2):
        run(by_enterprise(options), [GRANTED, reply(BEARER)], sent)
    assert [form(fetch)["subject_token"] for fetch in sent[::2]] == ["first", "second"]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"access_token": GRANT, "token_type": "N_A"}, f"it is not of the type {ID_JAG}"),
        (
            {"access_token": GRANT, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"},
            f"it is not of the type {ID_JAG}",
        ),
        ({"access_token": GRANT, "issued_token_type": [ID_JAG]}, "it is not of the type"),
        ({"issued_token_type": ID_JAG}, "access_token must be a string"),
        ({"access_token": "canary \n", "issued_token_type": ID_JAG}, "access_token must have"),
    ],
)
def test_what_is_no_grant_goes_nowhere(said: dict[str, Any], words: str) -> None:
    error = refused(by_enterprise(managed()), [reply(said)])
    assert f"{IDP} issued no grant for another server: {words}" in error.message


def test_a_refusal_of_the_identity_provider_names_it_and_nothing_is_sent_on() -> None:
    said = {"error": "invalid_grant", "error_description": f"{SUBJECT} has expired"}
    error = refused(by_enterprise(managed()), [reply(said, 400)])
    assert f"{IDP} refused a grant of the identity provider with 400: invalid_grant (*** has exp" in error.message
    assert error.data["url"] == IDP


def test_a_refusal_of_the_authorization_server_is_final() -> None:
    said = {"error": "invalid_grant", "error_description": f"{GRANT} is not for me"}
    error = refused(by_enterprise(managed()), [GRANTED, reply(said, 400)])
    assert error.data["url"] == f"{ISSUER}/token"


def test_the_last_step_may_be_proven() -> None:
    proofs = Proofs()
    sent: list[Fetch] = []
    flow = by_enterprise(managed(), proof=proofs)
    run(flow, [GRANTED, NONCE_WANTED, reply({**BEARER, "token_type": "DPoP"})], sent)
    assert proofs.nonces == [None, "n-1"]
    assert "DPoP" not in sent[0].headers


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"idp_token_endpoint": "http://idp.example/token"}, ValueError, "idp_token_endpoint must be an https"),
        ({"idp_token_endpoint": "https://user:canary@idp.example/"}, ValueError, "idp_token_endpoint must be an https"),
        ({"idp_token_endpoint": None}, TypeError, "idp_token_endpoint must be a string"),
        ({"id_token": None}, TypeError, "id_token must be a string"),
        ({"id_token": ""}, ValueError, "id_token must have"),
        ({"id_token": "canary token"}, ValueError, "id_token must have"),
        ({"idp_client_secret": "canary"}, ValueError, "goes with idp_client_id="),
        ({"idp_client_id": ""}, ValueError, "client_id must have"),
        ({"idp_client_id": "c", "idp_client_secret": ""}, ValueError, "client_secret must have"),
        ({"subject_token_type": "jwt"}, ValueError, "subject_token_type='jwt' is not one of id_token, refresh_token"),
    ],
)
def test_options_of_the_enterprise_are_checked_at_once(options: dict[str, Any], error: type, problem: str) -> None:
    with pytest.raises(error, match=problem) as caught:
        managed(**options)
    assert "canary" not in str(caught.value)


def test_an_identity_provider_on_this_machine_may_do_without_tls() -> None:
    options = managed(idp_token_endpoint="http://localhost:8080/token")
    assert options.request(ISSUER, None, None).endpoint.url == "http://localhost:8080/token"


def test_options_show_no_secret_and_can_be_pickled() -> None:
    options = managed(idp_client_id="at-idp", idp_client_secret="canary-idp-9")
    assert "canary" not in repr(options)
    again = pickle.loads(pickle.dumps(options)).request(ISSUER, RESOURCE, None)
    expected = options.request(ISSUER, RESOURCE, None)
    assert (again.body, again.headers) == (expected.body, expected.headers)
    supplier = pickle.loads(pickle.dumps(WorkloadIdentity(assertion=assertion_for)))
    assert supplier.assertion("here") == "for-here"
    assert repr(supplier) == "<WorkloadIdentity>"


def assertion_for(audience: str) -> str:
    return f"for-{audience}"


# -- the identity of a workload


def by_workload(assertion: Callable[[str], str], client: ClientIdentity | None = None, **arguments: Any) -> Any:
    given: dict[str, Any] = {"resource": RESOURCE, "scope": None, "now": 0.0, **arguments}
    return workload(WorkloadIdentity(assertion=assertion), metadata(), client, **given)


def test_the_assertion_is_for_the_token_endpoint_and_is_all_there_is() -> None:
    audiences: list[str] = []

    def assertion(audience: str) -> str:
        audiences.append(audience)
        return f" {ASSERTION}\n"

    sent: list[Fetch] = []
    assert run(by_workload(assertion), [reply(BEARER)], sent).access_token == ACCESS
    assert audiences == [f"{ISSUER}/token"]
    assert form(sent[0]) == {"grant_type": JWT_BEARER, "assertion": ASSERTION, "resource": RESOURCE}
    assert "Authorization" not in sent[0].headers
    assert sent[0].secrets == [ASSERTION]


def test_a_client_id_and_a_scope_go_with_it_where_there_are_any() -> None:
    sent: list[Fetch] = []
    run(by_workload(lambda _: ASSERTION, ClientIdentity("client", method=NONE), scope="a"), [reply(BEARER)], sent)
    assert form(sent[0]).items() >= {"client_id": "client", "scope": "a"}.items()


def test_a_refused_workload_is_not_tried_again() -> None:
    said = {"error": "invalid_grant", "error_description": f"{ASSERTION} has expired"}
    error = refused(by_workload(lambda _: ASSERTION), [reply(said, 400)])
    assert error.data["error_description"] == "*** has expired"


def test_an_assertion_must_be_callable() -> None:
    with pytest.raises(TypeError, match="assertion must be callable, with the audience, not str") as caught:
        WorkloadIdentity(assertion=ASSERTION)  # type: ignore[arg-type]
    assert "canary" not in str(caught.value)


def raising(*_: object) -> str:
    raise LookupError(SUBJECT)


@pytest.mark.parametrize(
    ("supplier", "words"),
    [
        (raising, "raised LookupError"),
        (lambda *_: None, "gave NoneType, not a string"),
        (lambda *_: b"canary", "gave bytes, not a string"),
        (lambda *_: " \n", "gave no token"),
        (lambda *_: "canary token", "gave no token"),
        (lambda *_: "canary" * 11000, "gave no token"),
    ],
)
def test_callables_of_the_user_that_fail_are_told_by_name_and_nothing_is_sent(supplier: Any, words: str) -> None:
    assert f"the callable assertion= {words}" in refused(by_workload(supplier), []).message
    assert f"the callable id_token= {words}" in refused(by_enterprise(managed(id_token=supplier)), []).message


def test_an_interrupt_in_a_callable_passes() -> None:
    def interrupted(_: str) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(by_workload(interrupted), [])


# -- with an authorization server on a socket


LOOPBACK = "http://localhost:53682/callback"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[OAuthWorld]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with OAuthWorld() as world:
        yield world


def published(world: OAuthWorld) -> ServerMetadata:
    return fetched(server_metadata(world.issuer, Rules(local=True, insecure_http=False)))


def code_of(world: OAuthWorld, client: ClientIdentity) -> str:
    """The code that the person consents to give."""
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": LOOPBACK,
        "code_challenge": urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).decode().rstrip("="),
        "code_challenge_method": "S256",
        "resource": world.resource_url,
        "scope": "a b",
    }
    back = world.authorize(f"{world.issuer}/authorize?{urlencode(query)}")
    return parse_qs(urlsplit(back).query)["code"][0]


@pytest.mark.parametrize("method", [NONE, BASIC, POST])
def test_a_client_registers_gets_a_token_and_refreshes_it(world: OAuthWorld, method: str) -> None:
    world.token_methods = [method]
    server = published(world)
    client = fetched(register(server, LOOPBACK, "My program"))
    assert client.method == method
    parameters = authorization_code(code_of(world, client), VERIFIER, LOOPBACK, world.resource_url)
    token = fetched(exchange(server, client, parameters, now=0.0))
    assert (token.token_type, token.expires_in, token.scope) == ("bearer", 3600.0, "a b")
    assert token.refresh_token is not None
    again = fetched(exchange(server, client, refresh(token.refresh_token, world.resource_url), now=0.0))
    assert again.access_token in world.authorization_server.access
    assert again.access_token != token.access_token


def test_a_client_with_a_strange_secret_is_recognized(world: OAuthWorld) -> None:
    client = ClientIdentity("https://app.example/c?d=e f", client_secret="a:b c%\u00e9+/", method=BASIC)
    world.add_client(client.client_id, client.client_secret)
    parameters = client_credentials(world.resource_url, None)
    assert fetched(exchange(published(world), client, parameters, now=0.0)).access_token in world.issued()


def test_a_client_with_a_key_is_recognized(world: OAuthWorld) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    world.add_client("client", key=public, method=PRIVATE_KEY)
    client = ClientIdentity("client", private_key=pem)
    parameters = client_credentials(world.resource_url, None)
    assert fetched(exchange(published(world), client, parameters, now=time.time())).access_token in world.issued()


def test_a_bound_token_is_issued_for_a_proof_with_the_nonce(world: OAuthWorld) -> None:
    world.dpop_required = world.as_nonce = True
    world.add_client("client", SECRET)
    key = ProofKey.new()

    def proof(fetch: Fetch, nonce: str | None) -> None:
        fetch.headers["DPoP"] = key.proof(fetch.method, fetch.endpoint.url, time.time(), nonce=nonce)

    parameters = client_credentials(world.resource_url, None)
    token = fetched(exchange(published(world), CLIENT, parameters, proof=proof, now=0.0))
    assert token.token_type == "dpop"
    header = get_unverified_header(key.proof("POST", "https://mcp.example/mcp", 0.0))
    assert world.authorization_server.access[token.access_token].jkt == thumbprint(header["jwk"])
    assert [seen.status for seen in world.seen("token")] == [400, 200]


def test_an_enterprise_and_a_workload_are_let_in(world: OAuthWorld) -> None:
    world.add_client("client", SECRET)
    idp = world.add_authorization_server()
    idp.clients["at-idp"] = Registered("at-idp", "idp-secret")
    world.subject_tokens.add(SUBJECT)
    options = managed(idp_token_endpoint=f"{idp.issuer}/token", idp_client_id="at-idp", idp_client_secret="idp-secret")
    server = published(world)
    flow = enterprise(options, server, CLIENT, resource=world.resource_url, scope="a", now=0.0)
    assert fetched(flow).access_token in world.issued()

    world.workload_assertions.add(ASSERTION)
    supplier = WorkloadIdentity(assertion=lambda _: ASSERTION)
    flow = workload(supplier, server, None, resource=world.resource_url, scope="a", now=0.0)
    assert fetched(flow).access_token in world.issued()


def test_what_is_sent_to_a_token_endpoint_does_not_follow_a_redirect(world: OAuthWorld) -> None:
    thief = world.add_authorization_server()
    world.faults["token"] = Fault(redirect=f"{thief.issuer}/token")
    with pytest.raises(McpError, match="answered with a redirect") as caught:
        fetched(exchange(published(world), CLIENT, client_credentials(None, None), now=0.0))
    harmless(caught.value)
    assert [seen.server for seen in world.seen("token")] == [world.issuer]
