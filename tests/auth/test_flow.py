"""The authorization code flow before the browser and after it, with replies at hand."""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snodo_client.auth import flow
from snodo_client.auth.clients import ClientIdentity
from snodo_client.auth.discovery import ServerMetadata, origin_metadata
from snodo_client.auth.flow import Found
from snodo_client.auth.records import SIGN_IN_SECONDS, Pending
from snodo_client.auth.urls import Rules
from snodo_client.outcome import McpError
from snodo_client.protocol.challenges import Challenge
from snodo_client.protocol.origins import endpoint
from support.oauth_flows import ISSUER, metadata, reply, run

SERVER = endpoint("https://mcp.example/mcp")
RULES = Rules()
RESOURCE = "https://mcp.example/mcp"
BACK = "http://localhost:8765/callback"
CLIENT = ClientIdentity("client", method="none")
NOW = 1e9
CANARY = "canary-6d2f"


def signing_in(found: Found | None = None, scope: tuple[str, ...] = ()) -> tuple[dict[str, str], Pending]:
    """The parameters of the address where a person signs in, and what is remembered."""
    url, pending = flow.sign_in(SERVER, found or Found(metadata(), RESOURCE), CLIENT, BACK, scope, NOW)
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True, strict_parsing=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs), pending


def pending(*, sends_iss: bool = False) -> Pending:
    return signing_in(Found(metadata(authorization_response_iss_parameter_supported=sends_iss), RESOURCE))[1]


def callback(begun: Pending, **parameters: str | None) -> str:
    """The address of an answer: as it should be, with these parameters in place of others; None removes."""
    every = {"code": "the-code", "state": begun.state, **parameters}
    return f"{BACK}?{urlencode({name: value for name, value in every.items() if value is not None})}"


def refused(begun: Pending, url: str, now: float = NOW) -> McpError:
    with pytest.raises(McpError) as caught:
        flow.code(begun, url, now)
    error = caught.value
    assert (error.reason, error.data["step"]) == ("authorization_failed", "sign_in")
    for secret in (begun.state, begun.verifier, "the-code"):
        assert secret not in f"{error} {error.data}"
    return error


# --- what came back ---------------------------------------------------------------------------------------------------

ALMOST = [
    "https://as.example/",
    "HTTPS://as.example",
    "https://AS.example",
    "https://as.example:443",
    "https://as%2Eexample",
    " https://as.example",
    "https://as.example?",
    "https://other.example",
    "",
]


@pytest.mark.parametrize("sends_iss", [True, False])
def test_an_answer_that_names_who_was_asked_is_taken(sends_iss: bool) -> None:
    begun = pending(sends_iss=sends_iss)
    assert flow.code(begun, callback(begun, iss=ISSUER), NOW) == "the-code"
    raw = f"{BACK}?iss={ISSUER}&code=the-code&state={begun.state}"  # not encoded more than a URL needs
    assert flow.code(begun, raw, NOW) == "the-code"


def test_an_answer_without_a_name_is_taken_where_none_was_promised() -> None:
    begun = pending()
    assert flow.code(begun, callback(begun), NOW) == "the-code"
    begun = pending(sends_iss=True)
    assert "(iss)" in refused(begun, callback(begun)).message


@pytest.mark.parametrize("said", ALMOST)
@pytest.mark.parametrize("sends_iss", [True, False])
def test_an_answer_of_somebody_else_is_not(sends_iss: bool, said: str) -> None:
    begun = pending(sends_iss=sends_iss)
    assert "(iss)" in refused(begun, callback(begun, iss=said)).message


@pytest.mark.parametrize(("sends_iss", "said"), [(True, None), *[(False, said) for said in ALMOST]])
def test_nothing_is_shown_of_an_error_by_somebody_else(sends_iss: bool, said: str | None) -> None:
    begun = pending(sends_iss=sends_iss)
    shown = {"error": f"e{CANARY}", "error_description": f"d{CANARY}", "error_uri": f"https://{CANARY}/"}
    error = refused(begun, callback(begun, code=None, iss=said, **shown))
    assert CANARY not in f"{error} {error.data}"
    assert "error" not in error.data


def test_an_error_is_told() -> None:
    begun = pending(sends_iss=True)
    said = {"error": "access_denied", "error_description": f"no,\x1b[2J {begun.state} {begun.verifier} {'x' * 500}"}
    error = refused(begun, callback(begun, code=None, iss=ISSUER, **said))
    assert error.data["error"] == "access_denied"
    assert "access_denied" in error.message
    assert len(error.data["error_description"]) <= 300
    assert "\x1b" not in error.message


def test_an_error_counts_more_than_a_code() -> None:
    begun = pending()
    assert refused(begun, callback(begun, error="access_denied")).data["error"] == "access_denied"


@pytest.mark.parametrize("state", [None, "", "another", "é"])
@pytest.mark.parametrize("error", [None, f"e{CANARY}"])
def test_an_answer_to_another_sign_in_is_none(state: str | None, error: str | None) -> None:
    begun = pending()
    told = refused(begun, callback(begun, state=state, error=error))
    assert "(state)" in told.message
    assert CANARY not in f"{told} {told.data}"


def test_a_part_of_the_state_is_not_the_state() -> None:
    begun = pending()
    for state in (begun.state[:-1], begun.state + "x", begun.state.swapcase()):
        refused(begun, callback(begun, state=state))


@pytest.mark.parametrize("code", [None, ""])
def test_an_answer_without_a_code_is_none(code: str | None) -> None:
    begun = pending()
    assert "no code" in refused(begun, callback(begun, code=code)).message


def test_what_stands_in_the_fragment_is_no_answer() -> None:
    begun = pending()
    refused(begun, callback(begun).replace("?", "#"))


@pytest.mark.parametrize("name", ["code", "state", "iss", "anything"])
def test_a_parameter_that_comes_twice_makes_it_none(name: str) -> None:
    begun = pending()
    every = {"code": "the-code", "state": begun.state, "iss": ISSUER, "anything": "x"}
    assert flow.code(begun, callback(begun, **every), NOW) == "the-code"
    assert "twice" in refused(begun, f"{callback(begun, **every)}&{name}={quote(every[name])}").message


def test_an_answer_has_a_number_of_parameters() -> None:
    begun = pending()
    refused(begun, callback(begun) + "".join(f"&p{number}=" for number in range(flow.MAX_PARAMETERS)))


def test_a_code_is_decoded_once() -> None:
    begun = pending()
    assert flow.code(begun, callback(begun, code="a+b/c %2B=&"), NOW) == "a+b/c %2B=&"


def test_an_answer_that_comes_late_is_none() -> None:
    begun = pending()
    assert flow.code(begun, callback(begun), NOW + SIGN_IN_SECONDS) == "the-code"
    assert "600 s ago" in refused(begun, callback(begun), NOW + SIGN_IN_SECONDS + 1).message


BEGUN = pending()
ANY_TEXT = st.text(st.characters(), max_size=30)  # with surrogates
PAIRS = st.lists(
    st.tuples(
        st.sampled_from(["code", "state", "iss", "error", "error_description"]) | ANY_TEXT,
        st.sampled_from([BEGUN.state, ISSUER, "the-code", "%", "%ff"]) | ANY_TEXT,
    ),
    max_size=6,
)


@given(ANY_TEXT | PAIRS.map(lambda pairs: BACK + "?" + "&".join("=".join(pair) for pair in pairs)))
@example("http://[")
@example(f"{BACK}?state=\ud800")
@example(f"{BACK}?state={BEGUN.state}&code=\ud800")
@example(f"{BACK}?state={BEGUN.state}&error=\ud800")
def test_any_text_gives_a_code_or_an_error(url: str) -> None:
    try:
        code = flow.code(BEGUN, url, NOW)
    except McpError as error:
        told = error
    else:
        assert BEGUN.state in url
        assert code.encode()  # can be sent
        return
    assert told.reason == "authorization_failed"
    assert BEGUN.state not in str(told)


# --- where a person signs in ------------------------------------------------------------------------------------------


def test_the_address_to_sign_in_at() -> None:
    asked, begun = signing_in(scope=("read", "write"))
    assert asked.pop("state") == begun.state
    assert asked.pop("code_challenge")
    assert asked == {
        "response_type": "code",
        "client_id": "client",
        "redirect_uri": BACK,
        "code_challenge_method": "S256",
        "resource": RESOURCE,
        "scope": "read write",
    }
    assert (begun.server, begun.issuer, begun.client_id, begun.redirect_uri) == (RESOURCE, ISSUER, "client", BACK)
    assert (begun.resource, begun.requested, begun.begun_at) == (RESOURCE, ("read", "write"), NOW)


def test_what_is_not_known_is_not_asked_for() -> None:
    asked, begun = signing_in(Found(metadata(), None, at_origin=True))
    assert not {"resource", "scope", "prompt"} & set(asked)
    assert (begun.resource, begun.at_origin) == (None, True)


@pytest.mark.parametrize(
    "resource", ["https://MCP.example:443/mcp/", "https://mcp.example", "https://mcp.example/m%7ep"]
)
def test_the_resource_is_what_the_server_wrote(resource: str) -> None:
    asked, begun = signing_in(Found(metadata(), resource))
    assert asked["resource"] == begun.resource == resource


def test_an_endpoint_keeps_its_query() -> None:
    found = Found(metadata(authorization_endpoint=f"{ISSUER}/authorize?tenant=a%20b&x="), RESOURCE)
    url, _ = flow.sign_in(SERVER, found, CLIENT, BACK, (), NOW)
    assert url.startswith(f"{ISSUER}/authorize?tenant=a%20b&x=&response_type=code&")
    assert url.count("?") == 1


def test_the_proof_key_is_that_of_rfc_7636() -> None:
    asked, begun = signing_in()
    assert re.fullmatch(r"[A-Za-z0-9._~-]{43,128}", begun.verifier)
    assert asked["code_challenge"] == urlsafe_b64encode(sha256(begun.verifier.encode()).digest()).decode().rstrip("=")
    assert begun.verifier not in asked.values()


def test_no_two_sign_ins_share_a_secret() -> None:
    every = [signing_in()[1] for _ in range(20)]
    assert len({begun.state for begun in every} | {begun.verifier for begun in every}) == 40
    assert min(len(begun.state) for begun in every) >= 22  # 128 bits


@pytest.mark.parametrize("methods", [None, [], ["plain"], ["s256"], "S256", ["plain", None]])
def test_nobody_is_sent_where_s256_is_not_known(methods: Any) -> None:
    with pytest.raises(McpError, match="S256") as caught:
        signing_in(Found(metadata(code_challenge_methods_supported=methods), RESOURCE))
    assert caught.value.data["step"] == "server_metadata"


def test_who_publishes_nothing_is_trusted_to_know_it() -> None:
    asked, _ = signing_in(Found(assumed(), at_origin=True))
    assert asked["code_challenge_method"] == "S256"


def assumed() -> ServerMetadata:
    return run(origin_metadata(SERVER, RULES), [reply(b"", 404)])


@pytest.mark.parametrize("url", [None, "http://as.example/authorize", "javascript:alert(1)", 5])
def test_without_a_place_to_sign_in_nobody_is_sent(url: Any) -> None:
    with pytest.raises(McpError, match="authorization_endpoint"):
        signing_in(Found(metadata(authorization_endpoint=url), RESOURCE))


@pytest.mark.parametrize(("scope", "prompt"), [(("a",), None), (("a", "offline_access"), "consent")])
def test_consent_is_asked_for_with_a_refresh_token(scope: tuple[str, ...], prompt: str | None) -> None:
    assert signing_in(scope=scope)[0].get("prompt") == prompt


# --- for what -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("challenged", "published", "own", "before", "expected"),
    [
        (None, None, [], [], []),
        (None, ["a", "b"], [], [], ["a", "b"]),
        ("x", ["a", "b"], [], [], ["x"]),
        ("x a", ["a", "b"], [], [], ["x", "a"]),
        ("", ["a"], [], [], ["a"]),
        ("x", None, ["own"], [], ["x", "own"]),
        (None, None, ["own"], [], ["own"]),
        ("x", ["a"], ["own"], ["before", "x"], ["before", "x", "own"]),
        ("x x", None, ["x"], ["x"], ["x"]),
        (None, [], [], ["before"], ["before"]),
    ],
)
def test_scopes_are_those_of_the_challenge_else_all_there_are(
    challenged: str | None, published: list[str] | None, own: list[str], before: list[str], expected: list[str]
) -> None:
    challenge = None if challenged is None else Challenge("bearer", {"scope": challenged})
    found = Found(metadata(), RESOURCE, None if published is None else tuple(published))
    for offline in (True, False):
        assert flow.scopes(challenge, found, own, before, offline=offline) == tuple(expected)


OFFLINE = flow.OFFLINE


@pytest.mark.parametrize(
    ("known", "challenged", "own", "offline", "expected"),
    [
        (["a", OFFLINE], "a", [], True, ("a", OFFLINE)),
        (["a", OFFLINE], f"{OFFLINE} a", [], True, (OFFLINE, "a")),
        (["a"], "a", [], True, ("a",)),
        (None, "a", [], True, ("a",)),
        (["a", OFFLINE], "a", [], False, ("a",)),
        (["a", OFFLINE], f"a {OFFLINE}", [], False, ("a",)),
        (["a"], "a", [OFFLINE], False, ("a", OFFLINE)),
    ],
)
def test_a_refresh_token_is_asked_for_where_that_is_a_scope(
    known: list[str] | None, challenged: str, own: list[str], offline: bool, expected: tuple[str, ...]
) -> None:
    found = Found(metadata(scopes_supported=known), RESOURCE)
    assert flow.scopes(Challenge("bearer", {"scope": challenged}), found, own, (), offline=offline) == expected


# --- as whom ------------------------------------------------------------------------------------------------------

DOCUMENT = "https://app.example/client.json"
GIVEN = ClientIdentity("given")
STORED = ClientIdentity("stored", method="none", redirect_uri=BACK, source="registered")


@pytest.mark.parametrize(
    ("given_one", "document", "taken", "stored", "expected"),
    [
        (GIVEN, DOCUMENT, True, STORED, "given"),
        (GIVEN, None, False, None, "given"),
        (None, DOCUMENT, True, STORED, DOCUMENT),
        (None, DOCUMENT, False, STORED, "stored"),
        (None, None, True, STORED, "stored"),
        (None, DOCUMENT, False, None, "registered"),
        (None, None, True, None, "registered"),
    ],
)
def test_the_order_of_identities(
    given_one: ClientIdentity | None,
    document: str | None,
    taken: bool,
    stored: ClientIdentity | None,
    expected: str,
) -> None:
    found = Found(metadata(client_id_metadata_document_supported=taken), RESOURCE)
    answers = [reply({"client_id": "registered"}, 201)] if expected == "registered" else []
    client = run(flow.identify(found, given_one, document, stored, BACK, "me", ("a", "b")), answers)
    assert client.client_id == expected


def test_a_registration_says_what_it_is_for() -> None:
    sent: list[Any] = []
    talk = flow.identify(Found(metadata(), RESOURCE), None, None, None, BACK, "me", ("a", "b"))
    client = run(talk, [reply({"client_id": "new"}, 201)], sent)
    assert (client.source, client.redirect_uri) == ("registered", BACK)
    assert b'"scope":"a b"' in sent[0].body
    assert b'"application_type":"native"' in sent[0].body


@pytest.mark.parametrize(("url", "told"), [(None, "client_id="), ("http://as.example/register", "is not https")])
def test_who_registers_nobody_wants_somebody_known(url: str | None, told: str) -> None:
    found = Found(metadata(registration_endpoint=url), RESOURCE)
    with pytest.raises(McpError, match=told):
        run(flow.identify(found, None, None, None, BACK, "me", ()), [])


# --- by whom ------------------------------------------------------------------------------------------------------

OTHER = "https://other.example"


def published(*issuers: str) -> Any:
    return reply({"resource": RESOURCE, "authorization_servers": list(issuers), "scopes_supported": ["a"]})


def document(issuer: str) -> Any:
    return reply({"issuer": issuer, "token_endpoint": f"{issuer}/token"})


@pytest.mark.parametrize(
    ("issuers", "chosen"),
    [((), ISSUER), ((OTHER,), OTHER), ((OTHER, ISSUER), ISSUER), (("https://x.example", OTHER), OTHER)],
)
def test_the_first_authorization_server_that_may_be_used(issuers: tuple[str, ...], chosen: str) -> None:
    found = run(flow.discover(SERVER, None, issuers, RULES), [published(ISSUER, OTHER), document(chosen)])
    assert (found.issuer, found.resource, found.scopes, found.at_origin) == (chosen, RESOURCE, ("a",), False)


@pytest.mark.parametrize("issuer", [f"{ISSUER}/", "https://AS.example", "https://x.example"])
def test_none_that_may_be_used_is_the_end(issuer: str) -> None:
    with pytest.raises(McpError, match="issuer=") as caught:
        run(flow.discover(SERVER, None, (issuer,), RULES), [published(ISSUER)])
    assert caught.value.data["step"] == "server_metadata"


def test_a_server_that_publishes_nothing_uses_the_one_that_is_known() -> None:
    nothing = [reply(b"", 404)] * 2
    found = run(flow.discover(SERVER, None, (ISSUER,), RULES), [*nothing, document(ISSUER)])
    assert (found.issuer, found.resource, found.at_origin) == (ISSUER, RESOURCE, False)


def test_a_server_that_publishes_nothing_is_its_own() -> None:
    found = run(flow.discover(SERVER, None, (), RULES), [reply(b"", 404)] * 3)
    assert (found.issuer, found.resource, found.at_origin) == ("https://mcp.example", None, True)


@pytest.mark.parametrize("status", [401, 403])
def test_a_server_is_asked_for_its_challenge(status: int) -> None:
    answer = reply(b"", status, www_authenticate='Basic x="y", Bearer scope="a b"')
    refused, challenge = run(flow.asked(SERVER), [answer])
    assert refused
    assert challenge is not None
    assert challenge.scope == ("a", "b")


@pytest.mark.parametrize(("status", "header"), [(200, ""), (404, ""), (401, "Basic"), (401, "")])
def test_a_server_may_have_none(status: int, header: str) -> None:
    answer = reply(b"", status, www_authenticate=header)
    assert run(flow.asked(SERVER), [answer]) == (status == 401, None)
