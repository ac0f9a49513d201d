"""Who a client is, how it shows it, and its registration."""

from __future__ import annotations

import json
import pickle
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.auth.clients import BASIC, METHODS, NONE, POST, PRIVATE_KEY, ClientIdentity, register
from snodo_client.auth.steps import Fetch, Reply
from snodo_client.outcome import McpError
from support.oauth_flows import ISSUER, JSON, metadata, reply, run

SECRET = "canary-secret-5d1f"
LOOPBACK = "http://localhost:53682/callback"


@pytest.fixture(scope="module")
def key() -> str:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem.decode()


# -- the identity


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"client_id": None}, "client_id must be a string"),
        ({"client_id": ""}, "client_id must have"),
        ({"client_id": "a\nb"}, "client_id must have"),
        ({"client_id": "é"}, "client_id must have"),
        ({"client_id": "a" * 2049}, "client_id must have"),
        ({"client_secret": b"bytes"}, "client_secret must be a string"),
        ({"client_secret": ""}, "client_secret must have"),
        ({"client_secret": f"{SECRET}\r\nX: y"}, "client_secret must have"),
        ({"client_secret": f"{SECRET}\ud800"}, "client_secret must have"),
        ({"method": "tls_client_auth"}, "method='tls_client_auth' is not one of"),
        ({"method": BASIC}, "client_secret_basic needs a client_secret"),
        ({"method": POST}, "client_secret_post needs a client_secret"),
        ({"method": PRIVATE_KEY, "client_secret": SECRET}, "private_key_jwt needs a private_key"),
        ({"private_key": SECRET}, "private_key must be the text of a PEM file"),
        ({"algorithm": "ES256"}, "goes with a private_key"),
        ({"redirect_uri": 1}, "redirect_uri must be a string"),
        ({"secret_expires_at": "soon"}, "secret_expires_at must be"),
        ({"secret_expires_at": True}, "secret_expires_at must be"),
        ({"source": "found"}, "source='found' is not one of"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words_that_hold_no_secret(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem) as caught:
        ClientIdentity(**{"client_id": "client", **arguments})
    assert "canary" not in str(caught.value)


def test_a_key_that_does_not_go_with_the_algorithm_is_refused(key: str) -> None:
    assert ClientIdentity("client", private_key=key).algorithm == "ES256"
    with pytest.raises(ValueError, match="RS256"):
        ClientIdentity("client", private_key=key, algorithm="RS256")


def test_a_repr_holds_no_secret_and_pickling_keeps_all(key: str) -> None:
    client = ClientIdentity("client", client_secret=SECRET, private_key=key, redirect_uri=LOOPBACK)
    assert "client" in repr(client)
    assert SECRET not in repr(client)
    assert key.splitlines()[1] not in repr(client)
    again = pickle.loads(pickle.dumps(client))
    assert {name: getattr(again, name) for name in client.__slots__} == {
        name: getattr(client, name) for name in client.__slots__
    }


def test_a_registered_client_is_stored_as_json() -> None:
    client = ClientIdentity(
        "client", client_secret=SECRET, method=POST, redirect_uri=LOOPBACK, secret_expires_at=2e9, source="registered"
    )
    again = ClientIdentity.from_dict(json.loads(json.dumps(client.to_dict())))
    assert again.to_dict() == client.to_dict()
    assert again.source == "registered"


@pytest.mark.parametrize("source", ["given", "metadata_document"])
def test_no_other_client_is_stored(source: Any) -> None:
    with pytest.raises(ValueError, match="only a registered client"):
        ClientIdentity("client", client_secret=SECRET, source=source).to_dict()


@given(
    JSON
    | st.fixed_dictionaries(
        {},
        optional={
            "client_id": st.just("client") | JSON,
            "client_secret": JSON,
            "method": st.sampled_from(METHODS) | JSON,
            "redirect_uri": JSON,
            "secret_expires_at": JSON,
        },
    )
)
def test_what_someone_else_wrote_to_a_store_is_a_client_or_a_value_error(stored: object) -> None:
    try:
        client = ClientIdentity.from_dict(stored)
    except ValueError:
        return
    assert isinstance(stored, dict)
    assert all(value == stored.get(name) for name, value in client.to_dict().items())


def test_a_secret_that_is_past_its_time_expires_the_client() -> None:
    def client(**arguments: Any) -> ClientIdentity:
        return ClientIdentity("client", client_secret=SECRET, **arguments)

    assert client(secret_expires_at=1000.0).expired(1000.0)
    assert not client(secret_expires_at=1000.0).expired(999.0)
    assert not client().expired(1e10)
    assert not client(method=NONE, secret_expires_at=1000.0).expired(1000.0)  # the secret is not used


# -- the way it shows who it is


@pytest.mark.parametrize(
    ("has", "offered", "method"),
    [
        ({}, None, NONE),
        ({}, [BASIC], NONE),
        ({"client_secret": SECRET}, None, BASIC),
        ({"client_secret": SECRET}, [POST, BASIC], BASIC),
        ({"client_secret": SECRET}, [NONE, POST], POST),
        ({"client_secret": SECRET}, [NONE], NONE),
        ({"client_secret": SECRET, "method": POST}, [BASIC], POST),
        ({"client_secret": SECRET, "method": NONE}, [BASIC], NONE),
    ],
)
def test_the_method_is_the_given_one_else_what_goes_with_what_there_is(
    has: dict[str, Any], offered: list[str] | None, method: str
) -> None:
    server = metadata(token_endpoint_auth_methods_supported=offered)
    assert ClientIdentity("client", **has).method_at(server) == method


def test_a_private_key_signs_unless_another_method_is_given(key: str) -> None:
    server = metadata(token_endpoint_auth_methods_supported=[BASIC, PRIVATE_KEY])
    assert ClientIdentity("client", client_secret=SECRET, private_key=key).method_at(server) == PRIVATE_KEY
    assert ClientIdentity("client", client_secret=SECRET, private_key=key, method=BASIC).method_at(server) == BASIC


def test_a_server_that_takes_no_secret_is_named_with_what_it_takes() -> None:
    server = metadata(token_endpoint_auth_methods_supported=["tls_client_auth", "private_key_jwt"])
    with pytest.raises(McpError) as caught:
        ClientIdentity("client", client_secret=SECRET).method_at(server)
    assert f"{ISSUER} takes no client secret, only tls_client_auth, private_key_jwt" in caught.value.message
    assert caught.value.reason == "authorization_failed"
    assert caught.value.data["step"] == "token"


def test_basic_credentials_are_encoded_as_in_a_form_before_they_are_joined() -> None:
    client = ClientIdentity("https://app.example/id", client_secret="a:b c%é+")
    headers, form = client.credentials(BASIC, ISSUER, 0.0)
    scheme, _, credentials = headers["Authorization"].partition(" ")
    assert (scheme, form) == ("Basic", {"client_id": "https://app.example/id"})
    assert b64decode(credentials) == b"https%3A%2F%2Fapp.example%2Fid:a%3Ab+c%25%C3%A9%2B"


def test_simple_basic_credentials_are_as_they_are() -> None:
    headers, _ = ClientIdentity("test-client_1.a~", client_secret="test-secret").credentials(BASIC, ISSUER, 0.0)
    assert b64decode(headers["Authorization"][6:]) == b"test-client_1.a~:test-secret"


def test_other_credentials_are_parameters() -> None:
    client = ClientIdentity("client", client_secret=SECRET)
    assert client.credentials(POST, ISSUER, 0.0) == ({}, {"client_id": "client", "client_secret": SECRET})
    assert client.credentials(NONE, ISSUER, 0.0) == ({}, {"client_id": "client"})


def test_an_assertion_is_from_the_client_for_the_issuer(key: str) -> None:
    import jwt

    headers, form = ClientIdentity("client", private_key=key).credentials(PRIVATE_KEY, ISSUER, 1_000_000.0)
    assert headers == {}
    assert form.keys() == {"client_assertion_type", "client_assertion"}  # it names the client itself
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    claims = jwt.decode(form["client_assertion"], options={"verify_signature": False})
    assert (claims["iss"], claims["sub"], claims["aud"], claims["iat"]) == ("client", "client", ISSUER, 1_000_000)


# -- registration


def registered(
    said: object, status: int = 201, redirect_uri: str = LOOPBACK, sent: list[Fetch] | None = None, **members: Any
) -> ClientIdentity:
    answer = said if isinstance(said, Reply) else reply(said, status)
    return run(register(metadata(**members), redirect_uri, "My program"), [answer], sent)


def wishes(redirect_uri: str = LOOPBACK, offered: list[str] | None = None) -> dict[str, Any]:
    sent: list[Fetch] = []
    registered({"client_id": "c"}, 201, redirect_uri, sent, token_endpoint_auth_methods_supported=offered)
    [fetch] = sent
    assert (fetch.method, fetch.endpoint.url) == ("POST", f"{ISSUER}/register")
    assert fetch.headers == {"Accept": "application/json", "Content-Type": "application/json"}
    return json.loads(fetch.body or b"")  # type: ignore[no-any-return]


def test_a_program_on_the_users_machine_registers_as_native_and_public() -> None:
    assert wishes(offered=[BASIC, POST, NONE]) == {
        "client_name": "My program",
        "application_type": "native",
        "redirect_uris": [LOOPBACK],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": NONE,
    }
    assert wishes("com.example.app:/callback")["application_type"] == "native"


def test_an_application_on_the_web_asks_for_a_secret() -> None:
    asked = wishes("HTTPS://app.example/callback", [NONE, POST, BASIC])
    assert (asked["application_type"], asked["token_endpoint_auth_method"]) == ("web", BASIC)


@pytest.mark.parametrize(
    ("offered", "method"),
    [(None, BASIC), ([POST], POST), ([POST, BASIC], BASIC), ([PRIVATE_KEY, POST], POST), ([NONE], NONE)],
)
def test_the_method_asked_for_is_one_that_the_server_takes(offered: list[str] | None, method: str) -> None:
    assert wishes(offered=offered)["token_endpoint_auth_method"] == method


def test_the_scope_is_as_told() -> None:
    sent: list[Fetch] = []
    flow = register(metadata(), LOOPBACK, "My program", scope="a b")
    run(flow, [reply({"client_id": "c"}, 201)], sent)
    asked = json.loads(sent[0].body or b"")
    assert (asked["grant_types"], asked["scope"]) == (["authorization_code", "refresh_token"], "a b")


@pytest.mark.parametrize("status", [200, 201])
@pytest.mark.parametrize(
    ("offered", "said", "method", "secret"),
    [
        ([NONE], {}, NONE, None),
        ([NONE], {"client_secret": SECRET}, NONE, SECRET),
        ([NONE], {"client_secret": SECRET, "token_endpoint_auth_method": POST}, POST, SECRET),
        ([BASIC], {"client_secret": SECRET}, BASIC, SECRET),
        ([BASIC], {"client_secret": SECRET, "token_endpoint_auth_method": NONE}, NONE, SECRET),
        ([POST], {"client_secret": SECRET, "token_endpoint_auth_method": "tls_client_auth"}, POST, SECRET),
        ([POST], {"client_secret": SECRET, "token_endpoint_auth_method": 7}, POST, SECRET),
        ([POST], {"client_secret": "", "token_endpoint_auth_method": POST}, NONE, None),
        (None, {"client_secret": None}, NONE, None),
    ],
)
def test_the_answer_says_how_the_client_shows_who_it_is(
    status: int, offered: list[str] | None, said: dict[str, Any], method: str, secret: str | None
) -> None:
    client = registered({"client_id": "c", **said}, status, token_endpoint_auth_methods_supported=offered)
    assert (client.client_id, client.method, client.client_secret) == ("c", method, secret)
    assert (client.redirect_uri, client.source) == (LOOPBACK, "registered")


@pytest.mark.parametrize(
    ("said", "expires_at"),
    [
        (None, None),
        (0, None),
        (1_900_000_000, 1.9e9),
        (1.9e9, 1.9e9),
        (-1, None),
        (True, None),
        ("x", None),
        (1e300, None),
    ],
)
def test_the_time_of_the_secret_is_kept(said: object, expires_at: float | None) -> None:
    client = registered({"client_id": "c", "client_secret": SECRET, "client_secret_expires_at": said})
    assert client.secret_expires_at == expires_at


def refusal(said: object, status: int, **members: Any) -> McpError:
    with pytest.raises(McpError) as caught:
        registered(said, status, **members)
    error = caught.value
    assert error.__context__ is None
    assert (error.reason, error.kind, error.data["step"]) == ("authorization_failed", "authorization", "registration")
    assert "canary" not in f"{error} {error!r} {error.data}"
    return error


def test_a_refused_redirect_uri_is_told_with_the_option_that_changes_it() -> None:
    error = refusal({"error": "invalid_redirect_uri", "error_description": "no port 53682"}, 400)
    assert f"{ISSUER}/register refused the registration of the client with 400 (pass redirect_uri=" in error.message
    assert "invalid_redirect_uri (no port 53682)" in error.message
    assert (error.data["error"], error.data["error_description"]) == ("invalid_redirect_uri", "no port 53682")
    assert (error.data["http_status"], error.data["url"]) == (400, f"{ISSUER}/register")


def test_a_server_that_registers_only_whom_it_knows_is_told_with_the_option_for_that() -> None:
    error = refusal({"error": "access_denied"}, 401)
    assert "with 401 (pass client_id= of a client that it knows): access_denied" in error.message


@pytest.mark.parametrize(
    ("said", "status", "words"),
    [
        (b"", 307, "answered with a redirect (307), which is not followed"),
        ({"client_id": "c", "client_secret": SECRET}, 302, "answered with a redirect (302)"),
        (b"Bad gateway", 502, "failed with 502, asked for the registration of the client: Bad gateway"),
        ({"client_id": "c", "client_secret": SECRET}, 500, "failed with 500"),
        (
            {"error": "server_error", "error_description": "sorry"},
            200,
            "refused the registration of the client with 200",
        ),
        (b'{"client_id": "c", "client_secret": "canary', 201, "answered 201 with something else in place of a JSON"),
        ([SECRET], 201, "answered 201 with something else"),
        ({}, 201, "registered no usable client: client_id must be a string, not NoneType"),
        ({"client_id": 7}, 201, "client_id must be a string, not int"),
        ({"client_id": ""}, 201, "client_id must have 1 to 2048 printable ASCII characters"),
        ({"client_id": "canary\nid"}, 201, "client_id must have"),
        ({"client_id": "c", "client_secret": [SECRET]}, 201, "client_secret must be a string, not list"),
        ({"client_id": "c", "client_secret": f"{SECRET}\0"}, 201, "client_secret must have"),
    ],
)
def test_every_other_answer_is_an_error_that_says_what_came(said: object, status: int, words: str) -> None:
    error = refusal(said, status)
    assert words in error.message
    assert error.data["url"] == f"{ISSUER}/register"


def test_a_web_page_is_called_one() -> None:
    error = refusal(reply(b"<html>canary", 200, content_type="text/html; charset=utf-8"), 200)
    assert "answered 200 with a web page in place of a JSON object" in error.message
    assert error.data["http_status"] == 200


def test_a_server_without_registration_is_asked_nothing() -> None:
    with pytest.raises(McpError, match=f"{ISSUER} registers no clients by itself: register one there"):
        run(register(metadata(registration_endpoint=None), LOOPBACK, "My program"), [])


def test_a_place_for_registration_that_is_refused_is_told_as_such() -> None:
    with pytest.raises(McpError, match=r"http://as\.example is not https"):
        run(register(metadata(registration_endpoint="http://as.example/register"), LOOPBACK, "My program"), [])


def test_a_server_that_takes_only_keys_is_asked_nothing() -> None:
    server = metadata(token_endpoint_auth_methods_supported=[PRIVATE_KEY, "tls_client_auth"])
    with pytest.raises(McpError, match="takes from clients only private_key_jwt, tls_client_auth: pass client_id="):
        run(register(server, LOOPBACK, "My program"), [])


@given(
    st.one_of(
        JSON.map(lambda value: json.dumps(value).encode()),
        st.fixed_dictionaries(
            {"client_id": st.just("c")},
            optional=dict.fromkeys(
                ("client_secret", "token_endpoint_auth_method", "client_secret_expires_at", "error"), JSON
            ),
        ).map(lambda value: json.dumps(value).encode()),
        st.binary(max_size=50),
    ),
    st.integers(min_value=200, max_value=599),
)
def test_whatever_comes_is_a_client_or_an_error(body: bytes, status: int) -> None:
    try:
        client = registered(Reply(status, {}, body))
    except McpError:
        return
    assert status in (200, 201)
    assert ClientIdentity.from_dict(client.to_dict()).to_dict() == client.to_dict()
