"""`OAuth` itself: what it refuses, what it shows and shares, and the sign-in in two steps of a web application."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from snodo_client import Client, ConnectSpec, McpError
from snodo_client.auth import (
    EnterpriseManaged,
    FileTokenStore,
    MemoryTokenStore,
    OAuth,
    SignIn,
    WorkloadIdentity,
)
from snodo_client.protocol.origins import endpoint
from support.oauth_flows import works
from support.oauth_server import Fault, OAuthWorld

CANARY = "canary-1f9a"
APP = "https://app.example/callback"

FINISH = """
import sys
from snodo_client.auth import FileTokenStore, OAuth
state, callback_url, store = sys.stdin.read().split("\\n")[:3]
outcome = OAuth(sign_in="never", redirect_uri="https://app.example/callback", store=FileTokenStore(store)).finish(
    callback_url, state
)
print(outcome.value if outcome.ok else outcome.message)
"""


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        yield world


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the default store of this test is."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("something was sent")

    monkeypatch.setattr(socket.socket, "connect", connect)


def call(oauth: OAuth, world: OAuthWorld, tool: str = "test-tool", **options: Any) -> Any:
    with Client.connect(world.resource_url, auth=oauth, timeout=10, **options) as client:
        return client.call_tool(tool)


def person(world: OAuthWorld, **options: Any) -> OAuth:
    return OAuth(sign_in=world.authorize, **{"store": MemoryTokenStore(), **options})


# --- options ----------------------------------------------------------------------------------------------------------

WORKLOAD = WorkloadIdentity(assertion=lambda audience: "jwt")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"grant": "implicit"}, "grant"),
        ({"grant": None}, "grant"),
        ({"grant": WorkloadIdentity}, "grant"),
        ({"sign_in": "telepathy"}, "sign_in"),
        ({"sign_in": None}, "sign_in"),
        ({"sign_in_timeout": 0}, "sign_in_timeout"),
        ({"sign_in_timeout": -1}, "sign_in_timeout"),
        ({"sign_in_timeout": float("nan")}, "sign_in_timeout"),
        ({"sign_in_timeout": "300"}, "sign_in_timeout"),
        ({"sign_in_timeout": True}, "sign_in_timeout"),
        ({"client_id": ""}, "client_id"),
        ({"client_id": "é"}, "client_id"),
        ({"client_id": 5}, "client_id"),
        ({"client_secret": CANARY}, "client_id="),
        ({"private_key": CANARY}, "client_id="),
        ({"signing_algorithm": "ES256"}, "client_id="),
        ({"client_id": "me", "signing_algorithm": "ES256"}, "private_key"),
        ({"client_id": "me", "client_secret": ""}, "client_secret"),
        ({"client_id": "me", "client_secret": f"{CANARY}\n"}, "client_secret"),
        ({"client_id": "me", "client_secret": b"x"}, "client_secret"),
        ({"client_id": "me", "private_key": CANARY}, "private_key"),
        ({"client_id": "me", "private_key": CANARY, "client_secret": CANARY}, "not both"),
        ({"issuer": ""}, "URL"),
        ({"issuer": "as.example"}, "URL"),
        ({"issuer": []}, "issuer"),
        ({"issuer": ["https://as.example", 5]}, "issuer"),
        ({"issuer": f"https://me:{CANARY}@as.example"}, "user name"),
        ({"client_metadata_url": "http://app.example/client.json"}, "client_metadata_url"),
        ({"client_metadata_url": "https://app.example"}, "client_metadata_url"),
        ({"client_metadata_url": "https://app.example/x#y"}, "fragment"),
        ({"client_metadata_url": 5}, "URL"),
        ({"client_name": ""}, "client_name"),
        ({"client_name": None}, "client_name"),
        ({"client_name": "half a character: \ud800"}, "client_name"),
        ({"scope": ["a b"]}, "scope"),
        ({"scope": ["a", ""]}, "scope"),
        ({"scope": 'say "x"'}, "scope"),
        ({"scope": "a\\b"}, "scope"),
        ({"scope": "é"}, "scope"),
        ({"scope": [5]}, "scope"),
        ({"offline_access": 1}, "offline_access"),
        ({"insecure_http": "yes"}, "insecure_http"),
        ({"public_only": None}, "public_only"),
        ({"dpop": "auto"}, "dpop"),
        ({"redirect_uri": "http://app.example/callback"}, "redirect_uri"),
        ({"redirect_uri": "javascript:alert(1)"}, "redirect_uri"),
        ({"redirect_uri": "https://app.example/#x"}, "fragment"),
        ({"redirect_uri": 5}, "redirect_uri"),
        ({"store": {}}, "store"),
        ({"store": MemoryTokenStore}, "store"),
        ({"grant": "client_credentials"}, "client_id="),
        ({"grant": "client_credentials", "client_id": "me"}, "client_secret="),
        ({"grant": WORKLOAD, "sign_in": "never"}, "sign_in="),
        ({"grant": WORKLOAD, "redirect_uri": APP}, "redirect_uri="),
        ({"grant": "client_credentials", "client_id": "me", "client_secret": "x", "sign_in": "console"}, "sign_in="),
    ],
)
def test_what_cannot_be_used_is_refused(options: dict[str, Any], told: str, no_network: None) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        OAuth(**options)
    assert told in str(caught.value)
    assert CANARY not in str(caught.value)


def test_what_else_has_an_extension_names_none_of_ours(world: OAuthWorld) -> None:
    assert person(world).login(world.resource_url).ok

    class Provider:
        extension = True

        def token(self) -> str:
            return next(iter(world.authorization_server.access))

        def refresh(self, challenge: object) -> None:
            return None

    with Client.connect(world.resource_url, auth=Provider()) as client:
        assert client.call_tool("test-tool").ok


@pytest.mark.parametrize("scope", ["a b", ["a", "b"], ("a", "b"), " a  b "])
def test_scopes_are_a_text_or_a_list(world: OAuthWorld, scope: Any) -> None:
    assert call(person(world, scope=scope), world).ok
    assert world.seen("authorize")[0].query["scope"] == "a b"


@pytest.mark.parametrize("url", ["http://mcp.example/mcp", "http://10.0.0.1/mcp"])
def test_no_token_goes_in_the_clear_to_another_machine(url: str, no_network: None) -> None:
    oauth = OAuth(store=MemoryTokenStore(), redirect_uri=APP)
    for what in (oauth.begin, oauth.login, oauth.status, oauth.forget):
        with pytest.raises(ValueError, match="not https"):
            what(url)
    with pytest.raises(ValueError, match="not https"):
        Client.connect(url, auth=oauth)
    assert OAuth(store=MemoryTokenStore(), insecure_http=True).status(url) is None


@pytest.mark.parametrize("url", ["mcp.example", "ftp://mcp.example/", "https://a:b@mcp.example/", "", 5, None])
def test_no_url_is_refused(url: Any, no_network: None) -> None:
    oauth = OAuth(store=MemoryTokenStore(), redirect_uri=APP)
    for what in (oauth.begin, oauth.login, oauth.status, oauth.forget):
        with pytest.raises((ValueError, TypeError)):
            what(url)


@pytest.mark.parametrize("timeout", [0, -1, "5", None])
def test_no_time_is_refused(timeout: Any, no_network: None) -> None:
    oauth = OAuth(store=MemoryTokenStore(), redirect_uri=APP)
    for what in (oauth.begin, oauth.login):
        with pytest.raises((ValueError, TypeError), match="timeout"):
            what("https://mcp.example/", timeout=timeout)


def test_begin_needs_a_person_and_a_page_to_come_back_to(no_network: None) -> None:
    with pytest.raises(ValueError, match="redirect_uri="):
        OAuth(store=MemoryTokenStore()).begin("https://mcp.example/")
    with pytest.raises(ValueError, match="redirect_uri"):
        OAuth(store=MemoryTokenStore()).begin("https://mcp.example/", redirect_uri="http://app.example/")
    with pytest.raises(ValueError, match="authorization_code"):
        OAuth(grant=WORKLOAD).begin("https://mcp.example/", redirect_uri=APP)


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_nothing_secret_is_shown(world: OAuthWorld) -> None:
    world.add_client("me", CANARY, redirect_uris=None)
    store = MemoryTokenStore()
    oauth = person(world, client_id="me", client_secret=CANARY, store=store)
    assert oauth.login(world.resource_url).ok
    shown = f"{oauth!r} {oauth} {store!r} {oauth.status(world.resource_url)}"
    assert not [secret for secret in (CANARY, *world.issued()) if secret in shown]
    managed = OAuth(
        grant=EnterpriseManaged(
            idp_token_endpoint="https://idp.example/token",
            id_token=CANARY,
            idp_client_id="me",
            idp_client_secret=CANARY,
        ),
        client_id="me",
        client_secret=CANARY,
    )
    assert CANARY not in f"{managed!r} {managed.grant!r} {managed.client!r}"


def test_a_sign_in_that_was_begun_shows_no_state(world: OAuthWorld) -> None:
    begun = begin(OAuth(store=MemoryTokenStore(), redirect_uri=APP), world)
    state = json.loads(begun.state)["state"]
    assert state in begun.url
    assert state not in repr(begun)


# --- copies and sharing -----------------------------------------------------------------------------------------------


def test_a_copy_has_the_options_and_the_store_on_disk(world: OAuthWorld, tmp_path: Path) -> None:
    oauth = OAuth(sign_in="never", store=FileTokenStore(tmp_path / "tokens.json"), scope="x", client_name="me")
    person(world, store=oauth.store).login(world.resource_url)
    for twin in (pickle.loads(pickle.dumps(oauth)), copy.copy(oauth), copy.deepcopy(oauth)):
        assert (twin.scope, twin.client_name, twin.sign_in) == (("x",), "me", "never")
        assert call(twin, world).ok


def test_a_copy_has_nothing_that_was_in_memory(world: OAuthWorld) -> None:
    oauth = person(world)
    assert call(oauth, world).ok
    oauth.sign_in = "never"
    twin = pickle.loads(pickle.dumps(oauth))
    assert twin.status(world.resource_url) is None
    assert oauth.status(world.resource_url) is not None


def test_a_client_in_another_process_has_the_token(world: OAuthWorld, tmp_path: Path) -> None:
    oauth = OAuth(sign_in="never", store=FileTokenStore(tmp_path / "tokens.json"))
    person(world, store=oauth.store).login(world.resource_url)
    spec = ConnectSpec(world.resource_url, auth=oauth)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply_async(works, (pickle.loads(pickle.dumps(spec)),)).get(60)
        pool.close()
        pool.join()
    assert world.count("token") == 1


def test_clients_of_one_share_the_token(world: OAuthWorld) -> None:
    oauth = person(world)
    for protocol in ("auto", "2025-11-25"):
        assert call(oauth, world, protocol=protocol).ok
    assert (world.count("authorize"), world.count("token")) == (1, 1)


def test_those_with_the_same_store_share_it_and_other_clients_do_not(world: OAuthWorld) -> None:
    store = MemoryTokenStore()
    for name in ("one", "two"):
        world.add_client(name)
    for client_id, sign_ins in (("one", 1), ("one", 1), ("two", 2), (None, 3), (None, 3)):
        assert call(person(world, client_id=client_id, store=store), world).ok
        assert world.count("authorize") == sign_ins
    assert len({seen.query["client_id"] for seen in world.seen("authorize")}) == 3


def test_servers_do_not_share_it(world: OAuthWorld) -> None:
    oauth = person(world)
    assert oauth.login(world.resource_url).ok
    assert oauth.status(world.resource_url.replace("/mcp", "/other")) is None
    assert oauth.status(f"{world.resource_url}?tenant=x") is None
    with OAuthWorld() as other:
        assert oauth.status(other.resource_url) is None


@pytest.mark.parametrize("dpop", [None, True])
@pytest.mark.parametrize("error", ["use_dpop_nonce", "invalid_dpop_proof"])
def test_a_refresh_whose_proof_is_refused_may_be_tried_again(world: OAuthWorld, error: str, dpop: bool | None) -> None:
    world.dpop = bool(dpop)
    oauth = person(world, dpop=dpop)
    with Client.connect(world.resource_url, auth=oauth) as client:
        world.revoke_all()
        world.faults["token"] = Fault(400, json.dumps({"error": error}).encode())
        outcome: Any = client.call_tool("test-tool")
        assert (outcome.reason, outcome.data["error"]) == ("authorization_failed", error)
        del world.faults["token"]
        assert client.call_tool("test-tool").ok
    assert len({seen.form["refresh_token"] for seen in world.seen("token", grant_type="refresh_token")}) == 1
    assert world.count("authorize") == 1


# --- where it is kept -------------------------------------------------------------------------------------------------


def test_what_a_person_did_is_kept_in_a_file_of_the_user(world: OAuthWorld, data_home: Path) -> None:
    assert call(OAuth(sign_in=world.authorize), world).ok
    file = data_home / "snodo_client" / "tokens.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert call(OAuth(sign_in="never"), world).ok
    assert world.count("token") == 1


def test_what_a_machine_gets_is_kept_in_memory(world: OAuthWorld, data_home: Path) -> None:
    world.add_client("machine", "secret")
    oauth = OAuth(grant="client_credentials", client_id="machine", client_secret="secret")
    assert call(oauth, world).ok
    assert not data_home.exists()


# --- in two steps -----------------------------------------------------------------------------------------------------


def begin(oauth: OAuth, world: OAuthWorld, **options: Any) -> SignIn:
    begun = oauth.begin(world.resource_url, **options)
    assert isinstance(begun, SignIn)
    return begun


def web(**options: Any) -> OAuth:
    return OAuth(**{"sign_in": "never", "redirect_uri": APP, "store": MemoryTokenStore(), **options})


def test_a_web_application_signs_a_person_in(world: OAuthWorld) -> None:
    oauth = web()
    begun = begin(oauth, world, scope="read")
    assert world.seen("register")[0].status == 201
    assert json.loads(world.seen("register")[0].body)["application_type"] == "web"
    callback_url = world.authorize(begun.url)
    assert callback_url.startswith(f"{APP}?")
    done: Any = oauth.finish(callback_url, begun.state)
    assert done.value == {"url": world.resource_url, "scope": ["read"]}
    assert call(oauth, world).ok
    assert world.count("authorize") == 1


def test_the_page_may_be_said_at_once(world: OAuthWorld) -> None:
    begun = begin(web(redirect_uri=None), world, redirect_uri="https://app.example/other")
    assert world.authorize(begun.url).startswith("https://app.example/other?")


def test_two_begin_and_the_registration_is_the_same(world: OAuthWorld) -> None:
    oauth = web()
    first, second = begin(oauth, world), begin(oauth, world)
    assert first.state != second.state
    assert world.count("register") == 1
    answers = world.authorize(second.url), world.authorize(first.url)
    assert oauth.finish(answers[0], second.state).ok
    assert oauth.finish(answers[1], first.state).ok


def test_it_is_finished_in_another_process(world: OAuthWorld, tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path / "tokens.json")
    begun = begin(web(store=store), world)
    given = f"{begun.state}\n{world.authorize(begun.url)}\n{store.path}\n"
    ran = subprocess.run([sys.executable, "-c", FINISH], input=given, capture_output=True, text=True, timeout=60)
    assert (ran.stdout.strip(), ran.stderr) == (str({"url": world.resource_url, "scope": []}), "")
    assert call(web(store=store), world).ok


def test_it_is_finished_once(world: OAuthWorld) -> None:
    oauth = web()
    begun = begin(oauth, world)
    callback_url = world.authorize(begun.url)
    assert oauth.finish(callback_url, begun.state).ok
    again: Any = oauth.finish(callback_url, begun.state)
    assert (again.reason, again.data["step"], again.data["error"]) == ("authorization_failed", "token", "invalid_grant")
    assert call(oauth, world).ok  # and the token that was got is still there


def test_who_lost_the_registration_cannot_finish(world: OAuthWorld) -> None:
    begun = begin(web(), world)
    outcome: Any = web().finish(world.authorize(begun.url), begun.state)
    assert (outcome.reason, outcome.data["step"]) == ("authorization_failed", "token")
    assert world.count("token") == 0


@pytest.mark.parametrize("state", ["", "x", "{}", "[]", "null", '{"state": "x"}', b"x", None, 5, "\ud800"])
def test_another_state_is_refused(state: Any, no_network: None) -> None:
    with pytest.raises(ValueError, match=r"begin\(\)"):
        web().finish(f"{APP}?code=x&state=x", state)


@pytest.mark.parametrize("url", [None, 5, b"https://app.example/"])
def test_another_address_is_refused(world: OAuthWorld, url: Any) -> None:
    oauth = web()
    with pytest.raises(TypeError, match="callback_url"):
        oauth.finish(url, begin(oauth, world).state)


def changed(state: str, /, **members: Any) -> str:
    return json.dumps({**json.loads(state), **members})


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"begun_at": 1000.0}, "600 s ago"),
        ({"state": "another"}, "(state)"),
        ({"issuer": "https://as.example"}, "(iss)"),
    ],
)
def test_nothing_is_asked_for_an_answer_that_is_none(world: OAuthWorld, members: dict[str, Any], told: str) -> None:
    oauth = web()
    begun = begin(oauth, world)
    callback_url, before = world.authorize(begun.url), len(world.log)
    outcome: Any = oauth.finish(callback_url, changed(begun.state, **members))
    assert (outcome.reason, outcome.data["step"]) == ("authorization_failed", "sign_in")
    assert told in outcome.message
    assert len(world.log) == before


def test_an_address_that_cannot_be_text_is_no_answer(world: OAuthWorld) -> None:
    oauth = web()
    begun = begin(oauth, world)
    for end in ("\ud800", f"&code=\ud800&state={json.loads(begun.state)['state']}&iss={world.issuer}"):
        outcome: Any = oauth.finish(f"{APP}?{end}", begun.state)
        assert outcome.reason == "authorization_failed"
    assert world.count("token") == 0


def test_a_secret_goes_to_no_other_authorization_server_in_the_second_step(world: OAuthWorld) -> None:
    world.add_client("me", CANARY)
    other = world.add_authorization_server()
    oauth = web(client_id="me", client_secret=CANARY, issuer=world.issuer)
    begun = begin(oauth, world)
    callback_url = world.authorize(begun.url).partition("&iss=")[0]
    outcome: Any = oauth.finish(callback_url, changed(begun.state, issuer=other.issuer, sends_iss=False))
    assert (outcome.reason, outcome.data["step"]) == ("authorization_failed", "server_metadata")
    assert "issuer=" in outcome.message
    assert not [seen for seen in world.log if seen.server == other.origin]


def test_errors_of_begin_are_values(world: OAuthWorld) -> None:
    world.registration = False
    error = web().begin(world.resource_url)
    assert isinstance(error, McpError)
    assert (error.reason, error.data["step"]) == ("authorization_failed", "registration")


# --- login, status, forget, never -------------------------------------------------------------------------------------


def test_login_status_forget(world: OAuthWorld) -> None:
    oauth = person(world, scope="own")
    assert oauth.status(world.resource_url) is None
    done: Any = oauth.login(world.resource_url, scope=["more"])
    assert done.value == {"url": world.resource_url, "scope": ["own", "more"]}
    known = oauth.status(world.resource_url)
    assert known is not None
    assert not isinstance(known, McpError)
    end = known["expires_at"]
    assert {**known, "expires_at": None} == {
        "issuer": world.issuer,
        "scope": ["own", "more"],
        "expires_at": None,
        "refreshes": True,
    }
    assert end > 0
    assert oauth.forget(world.resource_url).ok
    assert oauth.status(world.resource_url) is None
    assert oauth.forget(world.resource_url).ok
    assert oauth.login(world.resource_url).ok
    assert world.count("register") == 1  # that is kept


def test_login_asks_whatever_there_is(world: OAuthWorld) -> None:
    oauth = person(world)
    for _ in range(2):
        assert oauth.login(world.resource_url).ok
    assert world.count("authorize") == 2


def test_a_client_that_is_open_goes_on_after_login_and_forget(world: OAuthWorld) -> None:
    oauth = person(world)
    with Client.connect(world.resource_url, auth=oauth) as client:
        assert oauth.login(world.resource_url).ok
        assert client.call_tool("test-tool").ok
        assert world.count("authorize") == 2
        assert oauth.forget(world.resource_url).ok
        assert client.call_tool("test-tool").ok
        assert world.count("authorize") == 3


@pytest.mark.parametrize("protocol", ["auto", "2025-11-25"])
def test_never_says_how_a_person_signs_in(world: OAuthWorld, protocol: str) -> None:
    world.challenge_scope = "read"
    oauth = OAuth(sign_in="never", store=MemoryTokenStore())
    with pytest.raises(McpError) as caught:
        call(oauth, world, protocol=protocol)
    error = caught.value
    command = f"python -m snodo_client.auth login {world.resource_url}"
    assert (error.reason, error.kind) == ("sign_in_required", "authorization")
    assert error.data == {"url": world.resource_url, "command": command, "scope": ["read"]}
    assert command in error.message
    assert world.count("register") == world.count("authorize") == 0
    outcome: Any = oauth.login(world.resource_url)
    assert outcome.reason == "sign_in_required"


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({"client_id": "a b"}, " --client-id 'a b'"),
        ({"client_metadata_url": "https://app.example/c"}, " --client-metadata-url https://app.example/c"),
        ({"issuer": "https://as.example"}, " --issuer https://as.example"),
        ({"scope": "a b"}, " --scope 'a b'"),
    ],
)
def test_the_command_signs_in_as_the_program_would(options: dict[str, Any], end: str) -> None:
    oauth = OAuth(sign_in="never", store=MemoryTokenStore(), **options)
    command = oauth.command(endpoint("https://mcp.example/mcp;x"))
    assert command == f"python -m snodo_client.auth login 'https://mcp.example/mcp;x'{end}"


def test_one_of_several_authorization_servers(world: OAuthWorld) -> None:
    other = world.add_authorization_server()
    world.prm["authorization_servers"] = [other.issuer, world.issuer]
    assert call(person(world, issuer=["https://x.example", world.issuer]), world).ok
    refused: Any = person(world, issuer=["https://x.example"]).login(world.resource_url)
    assert (refused.reason, refused.data["step"]) == ("authorization_failed", "server_metadata")
    assert not [seen for seen in world.log if seen.server == other.origin]


def test_a_fixed_redirect_uri_is_used_by_a_callable(world: OAuthWorld) -> None:
    uri = "http://127.0.0.1:4567/back"
    seen: list[str] = []

    def sign_in(url: str) -> str:
        seen.append(world.authorize(url))
        return seen[-1]

    assert call(OAuth(sign_in=sign_in, redirect_uri=uri), world).ok
    assert seen[0].startswith(f"{uri}?")


@pytest.mark.parametrize(
    "answer", [lambda url: None, lambda url: 1 / 0, lambda url: "x" * 20000, lambda url: "http://localhost/?code=x"]
)
def test_a_callable_that_fails_is_an_error(world: OAuthWorld, answer: Callable[[str], Any]) -> None:
    outcome: Any = OAuth(sign_in=answer, store=MemoryTokenStore()).login(world.resource_url)
    assert (outcome.reason, outcome.data["step"]) == ("authorization_failed", "sign_in")
    assert world.count("token") == 0
