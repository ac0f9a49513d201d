"""Authorization servers and protected servers that attack, through a client: each is refused with a clear error, at the
point of the decision: no request follows, no page is opened, no token is kept. What costs time or space is in
`test_authorization_limits.py`.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from snodo_client import Client, McpError
from snodo_client.auth import MemoryTokenStore, OAuth
from support.oauth_server import PRM, Fault, OAuthWorld, Seen

SECRET = "s3cret-of-known"
BACK = "http://localhost:8765/callback"

# How far a flow gets: the routes that have been asked.
PUBLISHED = {"resource_metadata"}
DESCRIBED = PUBLISHED | {"server_metadata"}
REGISTERED = DESCRIBED | {"register"}
SIGNED_IN = REGISTERED | {"authorize"}
ASKED = SIGNED_IN | {"token"}

each_era = pytest.mark.parametrize("protocol", ["auto", "2025-11-25"])


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        yield world


class Person:
    """Signs in, and comes back with `answer` of the address where the browser was sent to. `opened` are the pages."""

    def __init__(self, world: OAuthWorld, answer: Callable[[str], str] = str) -> None:
        self.world = world
        self.answer = answer
        self.opened: list[str] = []

    def __call__(self, page: str) -> str:
        self.opened.append(page)
        return self.answer(self.world.authorize(page))


class Attempt:
    """A client that is sent to a hostile world, and what became of it."""

    def __init__(self, world: OAuthWorld, person: Person | None = None, **options: Any) -> None:
        self.world = world
        self.person = Person(world) if person is None else person
        self.store = MemoryTokenStore()
        self.oauth = OAuth(**{"sign_in": self.person, "store": self.store, **options})

    def error(self, server: Any = None, **options: Any) -> McpError:
        """The error of a call, or of the connection before it."""
        with (
            pytest.raises(McpError) as caught,
            Client.connect(server or self.world.resource_url, auth=self.oauth, **{"timeout": 10, **options}) as client,
        ):
            client.call_tool("test-tool").unwrap()
        return caught.value

    def refused(self, step: str, *words: str, reached: set[str], server: Any = None, **options: Any) -> McpError:
        """The error, which names who is to blame; the routes that were asked are these and no others."""
        error = self.error(server, **options)
        assert (error.reason, error.kind) == ("authorization_failed", "authorization")
        assert isinstance(error.data, dict)
        assert error.data["step"] == step
        assert [word for word in words if word not in error.message] == []
        assert {seen.route for seen in self.world.log} == reached | ({"mcp"} if server is None else set())
        assert len(self.person.opened) == self.world.count("authorize") == (1 if reached >= SIGNED_IN else 0)
        assert self.world.count("token") <= 1
        self.assert_nothing_is_kept()
        return error

    def assert_nothing_is_kept(self) -> None:
        assert [key for key in self.store._values if key.startswith("token ")] == []
        assert [seen for seen in self.world.seen("mcp") if "authorization" in seen.headers] == []


def sent_to(world: OAuthWorld, origin: str) -> list[Seen]:
    return [seen for seen in world.log if seen.server == origin]


def holding(world: OAuthWorld, secret: str) -> list[Seen]:
    return [seen for seen in world.log if secret in f"{seen.url} {seen.headers} {seen.body!r}"]


def with_parameters(change: Callable[[str], str]) -> Callable[[str], str]:
    """Changes the query of an address."""

    def changed(url: str) -> str:
        before, _, query = url.partition("?")
        return f"{before}?{change(query)}"

    return changed


# --- whom the protected server names ----------------------------------------------------------------------------------


@each_era
@pytest.mark.parametrize(
    "resource",
    [
        "https://mcp.bank.example/mcp",
        "{origin}.evil.example/mcp",
        "{origin}/mcp-of-somebody-else",
        "{origin}/mc",
        "{origin}/mcp/below",
        "{origin}/mcp?tenant=other",
        "http://127.0.0.1:{port}/mcp",
        "javascript:alert(1)",
        ["{origin}/mcp"],
        None,
    ],
)
def test_metadata_of_another_resource(world: OAuthWorld, protocol: str, resource: Any) -> None:
    if isinstance(resource, str):
        resource = resource.format(origin=world.origin, port=urlsplit(world.origin).port)
    world.prm = {"resource": resource}
    shown = [resource] if isinstance(resource, str) else ["names no resource"]
    Attempt(world).refused("resource_metadata", world.origin + PRM, *shown, reached=PUBLISHED, protocol=protocol)


@each_era
@pytest.mark.parametrize("servers", [None, [], "https://as.example", [17], [{}]])
def test_metadata_without_an_authorization_server(world: OAuthWorld, protocol: str, servers: Any) -> None:
    world.prm = {"authorization_servers": servers}
    Attempt(world).refused("resource_metadata", world.origin + PRM, reached=PUBLISHED, protocol=protocol)


@each_era
@pytest.mark.parametrize(
    ("issuer", "why"),
    [
        ("http://as.example", "not https"),
        ("http://169.254.169.254", "not https"),
        ("http://192.168.0.1", "not https"),
        ("https://user:password@as.example", "user name"),
        ("https://as.example/#tenant", "fragment"),
        ("https://as.example\\@evil.example", "no http(s) URL"),
        ("https://as.example/\nevil", "white space"),
        ("https://as.example?tenant=1", "query"),
        ("https://0x7f.1", "unusual spelling"),
        ("javascript:alert(1)", "no http(s) URL"),
        ("file:///etc/passwd", "no http(s) URL"),
        ("data:application/json,{}", "no http(s) URL"),
        ("//as.example", "no http(s) URL"),
        ("", "no http(s) URL"),
    ],
)
def test_an_authorization_server_that_is_not_asked(world: OAuthWorld, protocol: str, issuer: str, why: str) -> None:
    world.prm = {"authorization_servers": [issuer]}
    error = Attempt(world).refused("server_metadata", why, reached=PUBLISHED, protocol=protocol)
    assert "password" not in f"{error} {error.data}"


@each_era
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("http://mcp.example/metadata", "not https"),
        ("http://169.254.169.254/latest/meta-data", "not https"),
        ("https://user:password@mcp.example/", "user name"),
        ("https://mcp.example/#x", "fragment"),
        ("javascript:alert(1)", "no http(s) URL"),
        ("file:///etc/passwd", "no http(s) URL"),
        ("/metadata", "no http(s) URL"),
        ("https://mcp.example/" + "x" * 3000, "longer than"),
    ],
)
def test_a_challenge_that_names_a_place_that_is_not_asked(
    world: OAuthWorld, protocol: str, place: str, why: str
) -> None:
    world.challenge_metadata = place
    error = Attempt(world).refused("resource_metadata", why, world.origin, reached=set(), protocol=protocol)
    assert "password" not in f"{error} {error.data}"


@each_era
def test_a_challenge_that_names_the_metadata_of_another_server(world: OAuthWorld, protocol: str) -> None:
    with OAuthWorld() as other:
        world.challenge_metadata = f"{other.origin}{PRM}/mcp"
        attempt = Attempt(world)
        attempt.refused("resource_metadata", other.resource_url, world.origin, reached=set(), protocol=protocol)
        assert {seen.route for seen in other.log} == PUBLISHED


@each_era
@pytest.mark.parametrize("redirect", ["https://evil.example/", "{origin}/elsewhere.json"])
def test_metadata_of_the_server_by_a_redirect(world: OAuthWorld, protocol: str, redirect: str) -> None:
    world.prm_paths.append("/elsewhere.json")
    world.faults["resource_metadata"] = Fault(redirect=redirect.format(origin=world.origin))
    Attempt(world).refused("resource_metadata", world.origin + PRM, "307", reached=PUBLISHED, protocol=protocol)
    assert {seen.path for seen in world.seen("resource_metadata")} == {f"{PRM}/mcp"}


@each_era
@pytest.mark.parametrize(
    "fault",
    [Fault(200, b"<html>Sign in</html>", headers={"Content-Type": "text/html"}), Fault(200, b"[]"), Fault(500)],
)
def test_metadata_of_the_server_that_is_none(world: OAuthWorld, protocol: str, fault: Fault) -> None:
    world.faults["resource_metadata"] = fault
    Attempt(world).refused("resource_metadata", world.origin + PRM, reached=PUBLISHED, protocol=protocol)


# --- a server on the internet that names this machine -----------------------------------------------------------------


@pytest.fixture
def public_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names under `.example` lead to this machine, as a server with such a name could have it."""
    real = socket.getaddrinfo

    def resolved(name: Any, *args: Any, **options: Any) -> Any:
        here = isinstance(name, str) and name.endswith(".example") and not options.get("flags")
        return real("127.0.0.1" if here else name, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.fixture
def on_the_internet(world: OAuthWorld, public_names: None) -> str:
    """The URL of the protected server by a public name, which it has everywhere."""
    port = urlsplit(world.origin).port
    url = f"http://mcp.example:{port}/mcp"
    world.prm = {"resource": url}
    world.challenge_metadata = f"http://mcp.example:{port}{PRM}/mcp"
    return url


@each_era
def test_a_server_on_the_internet_names_an_authorization_server_here(
    world: OAuthWorld, on_the_internet: str, protocol: str
) -> None:
    error = Attempt(world, insecure_http=True).error(on_the_internet, protocol=protocol)
    assert (error.reason, error.data["step"]) == ("authorization_failed", "server_metadata")
    assert f"{world.issuer} is this machine" in error.message
    assert sent_to(world, world.issuer) == []


@each_era
@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
def test_a_server_on_the_internet_has_an_endpoint_here(
    world: OAuthWorld, on_the_internet: str, protocol: str, name: str
) -> None:
    public = world.issuer.replace("localhost", "as.example")
    endpoints = {f"{what}_endpoint": f"{public}/{what}" for what in ("authorization", "token", "registration")}
    world.prm["authorization_servers"] = [public]
    world.metadata = {"issuer": public, **endpoints, name: f"{world.issuer}/here"}
    attempt = Attempt(world, insecure_http=True)
    error = attempt.error(on_the_internet, protocol=protocol)
    assert (error.reason, error.data["step"]) == ("authorization_failed", "server_metadata")
    assert f"the {name} of the authorization server {public} is refused: {world.issuer} is this machine" in (
        error.message
    )
    assert {seen.route for seen in sent_to(world, world.issuer)} == {"server_metadata"}
    assert attempt.person.opened == []


@each_era
@pytest.mark.parametrize("host", ["localhost", "127.8.8.8", "app.localhost", "localhost.", "[::1]", "0.0.0.0"])
def test_a_server_on_the_internet_has_its_metadata_here(
    world: OAuthWorld, on_the_internet: str, protocol: str, host: str
) -> None:
    world.challenge_metadata = f"http://{host}:{urlsplit(world.issuer).port}/metadata"
    error = Attempt(world, insecure_http=True).error(on_the_internet, protocol=protocol)
    assert (error.reason, error.data["step"]) == ("authorization_failed", "resource_metadata")
    assert "is this machine" in error.message
    assert {seen.route for seen in world.log} == {"mcp"}


@each_era
def test_a_public_name_that_leads_here_is_seen_where_that_is_wanted(
    world: OAuthWorld, on_the_internet: str, protocol: str
) -> None:
    world.prm["authorization_servers"] = [world.issuer.replace("localhost", "as.example")]
    error = Attempt(world, insecure_http=True, public_only=True).error(on_the_internet, protocol=protocol)
    assert (error.reason, error.data["step"]) == ("authorization_failed", "resource_metadata")
    assert "mcp.example" in error.message
    assert {seen.route for seen in world.log} == {"mcp"}  # its own metadata is at such an address already


# --- what an authorization server says about itself -------------------------------------------------------------------


@each_era
@pytest.mark.parametrize(
    "issuer", ["https://bank.example", "{}/", "{}.evil.example", "{upper}", "{}/tenant", "", None, 17]
)
def test_metadata_of_another_issuer(world: OAuthWorld, protocol: str, issuer: Any) -> None:
    if isinstance(issuer, str):
        issuer = issuer.format(world.issuer, upper=world.issuer.upper())
    world.metadata = {"issuer": issuer}
    Attempt(world).refused("server_metadata", world.issuer, reached=DESCRIBED, protocol=protocol)
    assert world.count("server_metadata") == 1  # no other place is tried


@each_era
@pytest.mark.parametrize("methods", [None, [], ["plain"], ["s256"], "S256", ["S256 "]])
def test_a_proof_of_the_code_that_is_downgraded(world: OAuthWorld, protocol: str, methods: Any) -> None:
    world.metadata = {"code_challenge_methods_supported": methods}
    Attempt(world).refused("server_metadata", world.issuer, "S256", reached=DESCRIBED, protocol=protocol)


@each_era
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("javascript:alert(document.cookie)//", "no http(s) URL"),
        ("data:text/html,<script>1</script>", "no http(s) URL"),
        ("file:///usr/bin/xcalc", "no http(s) URL"),
        ("vbscript:x", "no http(s) URL"),
        ("com.evil.app:/x", "no http(s) URL"),
        ("https://bank.example@evil.example/authorize", "user name"),
        ("https://as.example/authorize#access_token=x", "fragment"),
        ("https://as.example/authorize --help", "white space"),
        ("http://as.example/authorize", "not https"),
        ("-https://as.example/", "no http(s) URL"),
        (["https://as.example/authorize"], "no text"),
    ],
)
def test_a_page_that_is_not_opened(world: OAuthWorld, protocol: str, url: Any, why: str) -> None:
    world.metadata = {"authorization_endpoint": url}
    attempt = Attempt(world)
    attempt.refused(
        "server_metadata", "authorization_endpoint", world.issuer, why, reached=DESCRIBED, protocol=protocol
    )


@each_era
@pytest.mark.parametrize("name", ["token_endpoint", "registration_endpoint"])
@pytest.mark.parametrize(
    "url", ["http://as.example/x", "https://user:password@as.example/x", "https://as.example/x#", "javascript:x", 17]
)
def test_an_endpoint_that_is_not_asked(world: OAuthWorld, protocol: str, name: str, url: Any) -> None:
    world.metadata = {name: url}
    error = Attempt(world).refused("server_metadata", name, world.issuer, reached=DESCRIBED, protocol=protocol)
    assert "password" not in f"{error} {error.data}"


@each_era
def test_metadata_of_an_authorization_server_by_a_redirect(world: OAuthWorld, protocol: str) -> None:
    evil = world.add_authorization_server()
    world.faults["server_metadata"] = Fault(redirect=f"{evil.issuer}/.well-known/oauth-authorization-server")
    Attempt(world).refused("server_metadata", world.issuer, "307", reached=DESCRIBED, protocol=protocol)
    assert sent_to(world, evil.origin) == []


@each_era
@pytest.mark.parametrize("body", [b"<html>Hello</html>", b"[]", b'"x"', b"", b"[" * 5000, b'{"issuer": NaN}', b"\xff"])
def test_metadata_of_an_authorization_server_that_is_none(world: OAuthWorld, protocol: str, body: bytes) -> None:
    world.faults["server_metadata"] = Fault(200, body, headers={"Content-Type": "text/html"})
    Attempt(world).refused("server_metadata", world.issuer, reached=DESCRIBED, protocol=protocol)


# --- the registration -------------------------------------------------------------------------------------------------


@each_era
@pytest.mark.parametrize(
    "fault",
    [
        Fault(200, b"<html>Welcome</html>", headers={"Content-Type": "text/html"}),
        Fault(201, b"{}"),
        Fault(201, b'{"client_id": 17}'),
        Fault(201, b'{"client_id": ""}'),
        Fault(201, b'{"client_id": "x\\u0000y"}'),
        Fault(201, b'{"client_id": "x", "client_secret": {}}'),
        Fault(201, json.dumps({"client_id": "x" * 5000}).encode()),
        Fault(redirect="https://evil.example/register"),
    ],
)
def test_a_registration_that_is_none(world: OAuthWorld, protocol: str, fault: Fault) -> None:
    world.faults["register"] = fault
    Attempt(world).refused("registration", f"{world.issuer}/register", reached=REGISTERED, protocol=protocol)


def test_a_registration_with_the_data_of_somebody_else(world: OAuthWorld) -> None:
    """Of what it says only the id and the secret count: what is sent is what was asked for."""
    world.add_client("of-somebody-else")
    theirs = {
        "client_id": "of-somebody-else",
        "redirect_uris": ["https://evil.example/callback"],
        "token_endpoint_auth_method": "none",
        "authorization_endpoint": "https://evil.example/authorize",
        "token_endpoint": "https://evil.example/token",
        "issuer": "https://evil.example",
        "scope": "everything",
    }
    world.faults["register"] = Fault(201, json.dumps(theirs).encode())
    attempt = Attempt(world)
    with Client.connect(world.resource_url, auth=attempt.oauth, timeout=10) as client:
        assert client.call_tool("test-tool").ok
    (page,) = attempt.person.opened
    assert page.startswith(f"{world.issuer}/authorize?")
    assert "evil" not in page
    assert "scope" not in world.seen("authorize")[0].query
    assert {seen.server for seen in world.log} == {world.origin, world.issuer}


# --- the answer to a sign-in ------------------------------------------------------------------------------------------


def mixing_up(world: OAuthWorld) -> tuple[str, Person]:
    """The protected server names an authorization server of the attacker, whose page is that of an honest one. Its
    issuer, and a person who signs in."""
    honest, evil = world.authorization_server, world.add_authorization_server()
    world.add_client("known-to-both")
    world.prm = {"authorization_servers": [evil.issuer]}
    world.metadata = {"authorization_endpoint": f"{honest.issuer}/authorize"}
    world.faults["register"] = Fault(201, b'{"client_id": "known-to-both"}')
    return evil.issuer, Person(world)


@each_era
@pytest.mark.parametrize("promised", [True, None])
@pytest.mark.parametrize("consent", ["allow", "access_denied"])
def test_a_mix_up(world: OAuthWorld, protocol: str, promised: bool | None, consent: str) -> None:
    evil, person = mixing_up(world)
    world.metadata["authorization_response_iss_parameter_supported"] = promised
    world.consent = consent
    attempt = Attempt(world, person)
    error = attempt.refused("sign_in", f"not from {evil}", "(iss)", reached=SIGNED_IN, protocol=protocol)
    assert "access_denied" not in f"{error} {error.data}"
    codes = [*world.authorization_server.codes]
    assert len(codes) == (consent == "allow")
    assert [code for code in codes if code in f"{error} {error.data}" or holding(world, code)] == []


@each_era
def test_a_mix_up_where_the_honest_one_does_not_say_who_it_is(world: OAuthWorld, protocol: str) -> None:
    evil, person = mixing_up(world)  # which promises to say it: what comes without is not its own
    world.redirect_iss = None
    Attempt(world, person).refused("sign_in", evil, "(iss)", reached=SIGNED_IN, protocol=protocol)


@each_era
@pytest.mark.parametrize("promised", [True, None])
@pytest.mark.parametrize(
    "iss", ["https://bank.example", "{}/", "{upper}", "{}:443", " {}", "{}%2F", "http://127.0.0.1:{port}", ""]
)
def test_who_answers_is_almost_who_was_asked(world: OAuthWorld, protocol: str, promised: bool | None, iss: str) -> None:
    world.metadata = {"authorization_response_iss_parameter_supported": promised}
    port = urlsplit(world.issuer).port
    world.redirect_iss = iss.format(world.issuer, upper=world.issuer.upper(), port=port)
    Attempt(world).refused("sign_in", f"not from {world.issuer}", "(iss)", reached=SIGNED_IN, protocol=protocol)


CODE = "an-injected-code"


@each_era
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda query: re.sub("state=[^&]*", "state=another", query), "(state)"),
        (lambda query: re.sub("state=[^&]*", "state=", query), "(state)"),
        (lambda query: re.sub("&?state=[^&]*", "", query), "(state)"),
        (lambda query: f"code={CODE}", "(state)"),
        (lambda query: f"{query}&code={CODE}", "twice"),
        (lambda query: f"code={CODE}&{query}", "twice"),
        (lambda query: f"{query}&state=another", "twice"),
        (lambda query: f"{query}&iss=https://bank.example", "twice"),
        (lambda query: f"{query}&x=1&x=2", "twice"),
        (lambda query: query.replace("code=", "code=&not_code="), "no code"),
        (lambda query: query + "&a=1" * 3000, "(state)"),
        (lambda query: query.replace("&", ";"), "(state)"),
        (lambda query: f"#{query}", "(state)"),
        (lambda query: "", "(state)"),
    ],
)
def test_an_answer_that_was_tampered_with(
    world: OAuthWorld, protocol: str, change: Callable[[str], str], why: str
) -> None:
    person = Person(world, with_parameters(change))
    error = Attempt(world, person).refused("sign_in", why, reached=SIGNED_IN, protocol=protocol)
    assert CODE not in f"{error} {error.data}"


def test_a_code_of_another_sign_in(world: OAuthWorld) -> None:
    """The code of the attacker's own sign-in, with the state of the victim's: it does not go with the verifier."""
    attackers: list[str] = []

    def keep(url: str) -> str:
        attackers.extend(re.findall("code=([^&]*)", url))
        return f"{BACK}?error=access_denied"

    Attempt(world, Person(world, keep)).error()
    victim = Person(world, lambda url: re.sub("code=[^&]*", f"code={attackers[0]}", url))
    attempt = Attempt(world, victim)
    error = attempt.error()
    assert (error.reason, error.data["step"], error.data["error"]) == ("authorization_failed", "token", "invalid_grant")
    assert f"{world.issuer}/token" in error.message
    attempt.assert_nothing_is_kept()


# --- the token endpoint -----------------------------------------------------------------------------------------------


@each_era
@pytest.mark.parametrize(
    "extra",
    [
        {"token_type": "mac"},
        {"token_type": None},
        {"token_type": "N_A"},
        {"token_type": ["Bearer"]},
        {"token_type": "DPoP"},
        {"access_token": None},
        {"access_token": ""},
        {"access_token": "two words"},
        {"access_token": "x\r\nCookie: y"},
        {"access_token": "\u00e9"},
        {"access_token": {"x": 1}},
        {"refresh_token": "x\u0000"},
        {"scope": ["everything"]},
    ],
)
def test_a_token_that_is_none(world: OAuthWorld, protocol: str, extra: dict[str, Any]) -> None:
    world.token_extra = extra
    Attempt(world).refused("token", f"{world.issuer}/token", reached=ASKED, protocol=protocol)


@each_era
@pytest.mark.parametrize(
    ("fault", "word"),
    [
        (Fault(200, b"<html>Welcome</html>", headers={"Content-Type": "text/html"}, processed=True), "web page"),
        (Fault(200, b"access_token=x&token_type=bearer", processed=True), "something else"),
        (Fault(200, b'{"error": "invalid_grant"}', processed=True), "invalid_grant"),
        (Fault(302, redirect="{evil}/token"), "redirect"),
        (Fault(redirect="{evil}/token"), "redirect"),
        (Fault(308, redirect="{own}/token"), "redirect"),
        (Fault(401, headers={"WWW-Authenticate": "Basic"}), "401"),
        (Fault(500, b"oops", processed=True), "500"),
        (Fault(close=True), "/token"),
    ],
)
def test_a_token_endpoint_without_a_token(world: OAuthWorld, protocol: str, fault: Fault, word: str) -> None:
    evil = world.add_authorization_server()
    there = fault.headers.get("Location", "").format(evil=evil.issuer, own=world.issuer)
    world.faults["token"] = Fault(
        fault.status,
        fault.body,
        headers={**fault.headers, **({"Location": there} if there else {})},
        close=fault.close,
        processed=fault.processed,
    )
    Attempt(world).refused("token", f"{world.issuer}/token", word, reached=ASKED, protocol=protocol)
    assert sent_to(world, evil.origin) == []


@each_era
@pytest.mark.parametrize("where", ["error", "error_description", "error_uri", "page"])
@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_an_error_that_repeats_the_secret(world: OAuthWorld, protocol: str, where: str, status: int) -> None:
    world.add_client("known", SECRET)
    said = {"error": "invalid_client", where: f"we know you: {SECRET}"}
    body = f"<html>{SECRET}" if where == "page" else json.dumps(said)
    world.faults["token"] = Fault(status, body.encode())
    attempt = Attempt(world, client_id="known", client_secret=SECRET, issuer=world.issuer)
    reached = ASKED - {"register"}
    error = attempt.error(protocol=protocol)
    assert (error.reason, error.data["step"]) == ("authorization_failed", "token")
    assert {seen.route for seen in world.log} == reached | {"mcp"}
    assert SECRET not in f"{error!r} {error} {error.data}"
    attempt.assert_nothing_is_kept()


@pytest.mark.parametrize("scope", ["read", "read write everything", "everything"])
def test_a_refresh_with_another_scope(world: OAuthWorld, scope: str) -> None:
    """It changes nothing of what is asked for: a person decided on that."""
    world.challenge_scope = "read write"
    attempt = Attempt(world)
    with Client.connect(world.resource_url, auth=attempt.oauth, timeout=10) as client:
        assert client.call_tool("test-tool").ok
        world.token_extra = {"scope": scope}
        world.revoke_all()
        assert client.call_tool("test-tool").ok
        status = attempt.oauth.status(world.resource_url)
        assert isinstance(status, dict)
        assert status["scope"] == scope.split()  # what the server says is what is told
        world.revoke_refresh()
        world.revoke_all()
        assert client.call_tool("test-tool").ok
    assert [seen.form.get("scope") for seen in world.seen("token", grant_type="refresh_token")] == [None, None]
    assert [seen.query["scope"] for seen in world.seen("authorize")] == ["read write", "read write"]


@each_era
def test_a_refresh_that_is_downgraded(world: OAuthWorld, protocol: str) -> None:
    world.dpop = True
    attempt = Attempt(world, dpop=True)
    with Client.connect(world.resource_url, auth=attempt.oauth, timeout=10, protocol=protocol) as client:
        assert client.call_tool("test-tool").ok
        bearers = len([seen for seen in world.log if seen.headers.get("authorization", "").startswith("Bearer")])
        world.token_extra = {"token_type": "Bearer"}
        world.revoke_all()
        outcome = client.call_tool("test-tool")
    assert isinstance(outcome, McpError)
    assert (outcome.reason, outcome.data["step"]) == ("authorization_failed", "token")
    assert world.issuer in outcome.message
    assert bearers == len([seen for seen in world.log if seen.headers.get("authorization", "").startswith("Bearer")])
    assert len(attempt.person.opened) == 1


# --- the secret of a client -------------------------------------------------------------------------------------------


def machine(world: OAuthWorld, **options: Any) -> OAuth:
    world.add_client("known", SECRET)
    return OAuth(grant="client_credentials", client_id="known", client_secret=SECRET, **options)


def basic(world: OAuthWorld) -> list[Seen]:
    return [seen for seen in world.seen("token") if "authorization" in seen.headers]


@each_era
@pytest.mark.parametrize("issuer", ["{}/", "https://as.example", "{upper}"])
def test_a_secret_goes_to_no_server_that_was_not_named(world: OAuthWorld, protocol: str, issuer: str) -> None:
    oauth = machine(world, issuer=issuer.format(world.issuer, upper=world.issuer.upper()))
    with pytest.raises(McpError) as caught:
        Client.connect(world.resource_url, auth=oauth, protocol=protocol, timeout=10)
    assert (caught.value.reason, caught.value.data["step"]) == ("authorization_failed", "server_metadata")
    assert world.issuer in caught.value.message
    assert {seen.route for seen in world.log} == {"mcp", "resource_metadata"}


@each_era
@pytest.mark.parametrize("named", [True, False])
def test_a_secret_stays_where_it_was_used(world: OAuthWorld, protocol: str, named: bool) -> None:
    oauth = machine(world, issuer=world.issuer if named else None)
    with Client.connect(world.resource_url, auth=oauth, protocol=protocol, timeout=10) as client:
        assert client.call_tool("test-tool").ok
        before = world.issuer
        world.migrate()
        outcome = client.call_tool("test-tool")
    assert isinstance(outcome, McpError)
    assert (outcome.reason, outcome.data["step"]) == ("authorization_failed", "server_metadata")
    assert world.issuer in outcome.message
    assert {seen.server for seen in basic(world)} == {before}


@each_era
def test_a_secret_goes_to_no_endpoint_of_a_copy_of_the_issuer(world: OAuthWorld, protocol: str) -> None:
    """The protected server says that the issuer is at its own place: the issuer's name leads to the issuer alone."""
    evil = world.add_authorization_server()
    oauth = machine(world, issuer=world.issuer)
    world.prm = {"authorization_servers": [evil.issuer]}
    world.metadata = {"issuer": world.issuer, "token_endpoint": f"{evil.issuer}/token"}
    with pytest.raises(McpError) as caught:
        Client.connect(world.resource_url, auth=oauth, protocol=protocol, timeout=10)
    assert evil.issuer in caught.value.message
    assert sent_to(world, evil.origin) == []
    with pytest.raises(McpError) as caught:  # and without issuer= it is not believed
        Client.connect(world.resource_url, auth=machine(world), protocol=protocol, timeout=10)
    assert (caught.value.reason, caught.value.data["step"]) == ("authorization_failed", "server_metadata")
    assert {seen.route for seen in sent_to(world, evil.origin)} == {"server_metadata"}


# --- in two steps, and over HTTP+SSE ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda query: re.sub("state=[^&]*", "state=another", query), "(state)"),
        (lambda query: f"{query}&code={CODE}", "twice"),
        (lambda query: re.sub("iss=[^&]*", "iss=https://bank.example", query), "(iss)"),
        (lambda query: re.sub("&?iss=[^&]*", "", query), "(iss)"),
    ],
)
def test_the_second_step_of_another_sign_in(world: OAuthWorld, change: Callable[[str], str], why: str) -> None:
    attempt = Attempt(world)
    begun = attempt.oauth.begin(world.resource_url, redirect_uri="https://app.example/callback")
    assert not isinstance(begun, McpError)
    before = len(world.log) + 1
    outcome = attempt.oauth.finish(with_parameters(change)(world.authorize(begun.url)), begun.state)
    assert isinstance(outcome, McpError)
    assert (outcome.reason, outcome.data["step"]) == ("authorization_failed", "sign_in")
    assert why in outcome.message
    assert len(world.log) == before
    attempt.assert_nothing_is_kept()


def test_a_link_of_http_and_sse(world: OAuthWorld) -> None:
    server = ("sse", world.resource_url)
    world.prm = {"resource": "https://bank.example/mcp"}
    attempt = Attempt(world)
    attempt.refused("resource_metadata", "bank.example", reached=PUBLISHED | {"mcp"}, server=server)
    assert [seen.method for seen in world.seen("mcp")] == ["GET"]


def test_a_mix_up_over_http_and_sse(world: OAuthWorld) -> None:
    evil, person = mixing_up(world)
    server = ("sse", world.resource_url)
    Attempt(world, person).refused("sign_in", f"not from {evil}", reached=SIGNED_IN | {"mcp"}, server=server)
