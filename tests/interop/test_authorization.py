"""Servers behind a token, with authorization servers of other people: Django OAuth Toolkit, oidc-provider, and the ones
that two MCP SDKs bring along.

Every call is a program of its own, as a person starts it, with a home folder that holds what is stored; and the person
signs in with the browser that such a program opens. The administrator's hand is the database of the toolkit.

| authorization server | its metadata | its clients | what else |
|---|---|---|---|
| the toolkit, by RFC 8414 | at the root, path inserted | register | RFC 9700: `iss`, rotated refresh tokens |
| the toolkit, by OpenID Connect | below its path, third in order | are known | no `iss`, `none` is not listed |
| oidc-provider | at the root, without a path | register, or have a key | signed tokens, `iss`, 2 seconds |
| FastMCP itself | at the root | register, and get a secret | an issuer that ends in `/` |
| the `mcp` SDK of 2025-03-26 | at the root of the server | the same | no metadata of the resource |
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from interop.laptop import NAME, Laptop
from interop.launch import SERVERS, first_line, listening, running

from snodo_client import Client
from snodo_client.auth import MemoryTokenStore, OAuth, SignIn
from support.browser import Chromium, FormBrowser, find_chromium
from support.waiting import together

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from peers import Peers
ALL_SCOPES = ["admin", "offline_access", "tools"]


# -- the servers


class Toolkit:
    """Django OAuth Toolkit: its issuer, and what its administrator can do."""

    def __init__(self, issuer: str, folder: Path) -> None:
        self.issuer = issuer
        self._database = folder / "database"

    def ask(self, query: str) -> list[Any]:
        """The first column of what a query finds or changes."""
        with closing(sqlite3.connect(self._database, timeout=20)) as connection, connection:
            return [row[0] for row in connection.execute(query)]

    def expire(self) -> None:
        """End the life of every access token."""
        self.ask("UPDATE oauth2_provider_accesstoken SET expires = '2020-01-01 00:00:00'")

    def revoke(self) -> None:
        """Take back every token."""
        self.ask("UPDATE oauth2_provider_refreshtoken SET revoked = '2020-01-01 00:00:00', access_token_id = NULL")
        self.ask("DELETE FROM oauth2_provider_accesstoken")

    def clients(self) -> int:
        """How many there are."""
        return int(self.ask("SELECT count(*) FROM oauth2_provider_application")[0])

    def grants(self) -> int:
        """How often it gave a refresh token, for a code or another refresh token."""
        return int(self.ask("SELECT count(*) FROM oauth2_provider_refreshtoken")[0])


@contextmanager
def toolkit_serving(peers: Peers, folder: Path, kind: str) -> Iterator[Toolkit]:
    with running([str(peers.apps), str(SERVERS / "protected_django.py"), str(folder), kind]) as server:
        yield Toolkit(first_line(server), folder)


@contextmanager
def protected(peers: Peers, kind: str, *arguments: str, port: int | None = None) -> Iterator[str]:
    """The URL of an MCP server of the kind; with a port that of an earlier one."""
    program = [str(peers.modern), str(SERVERS / "protected_mcp_servers.py"), kind]
    with listening(lambda free: [*program, free, *arguments], port) as served:
        yield f"http://127.0.0.1:{served}/mcp"


@pytest.fixture(scope="module")
def toolkit(peers: Peers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolkit]:
    with toolkit_serving(peers, tmp_path_factory.mktemp("toolkit"), "rfc8414") as found:
        yield found


@pytest.fixture(scope="module")
def openid(peers: Peers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolkit]:
    with toolkit_serving(peers, tmp_path_factory.mktemp("openid"), "oidc") as found:
        yield found


class Provider:
    """oidc-provider: its issuer, and the file with the private key of the client `cron`."""

    def __init__(self, issuer: str, key: Path) -> None:
        self.issuer = issuer
        self.key = key


@pytest.fixture(scope="module")
def provider(peers: Peers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    key = tmp_path_factory.mktemp("provider") / "cron.pem"
    program = [str(peers.node), str(SERVERS / "protected_oidc_provider.mjs"), str(peers.packages), str(key)]
    with running(program) as server:
        yield Provider(first_line(server), key)


@pytest.fixture(scope="module")
def server(peers: Peers, toolkit: Toolkit) -> Iterator[str]:
    with protected(peers, "mcp", toolkit.issuer, "tools") as url:
        yield url


@pytest.fixture(scope="module")
def openid_server(peers: Peers, openid: Toolkit) -> Iterator[str]:
    with protected(peers, "fastmcp", openid.issuer, "tools", "admin") as url:
        yield url


@pytest.fixture(scope="module")
def provider_server(peers: Peers, provider: Provider) -> Iterator[str]:
    with protected(peers, "fastmcp-jwt", provider.issuer, "tools") as url:
        yield url


# -- the person


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    return Laptop(tmp_path, FormBrowser())


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = find_chromium()
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    with Chromium(program, tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


def parameters(url: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(url).query)


# -- signing in


def check_sign_in(laptop: Laptop, server: str) -> None:
    refused = laptop.call(server, sign_in="never")
    assert f"python -m snodo_client.auth login {server}" in refused.error
    assert refused.visited == []

    told = laptop.call(server)
    assert (told.caller["user"], told.caller["scopes"]) == (NAME, ["offline_access", "tools"])
    [asked] = map(parameters, told.visited)
    assert asked["resource"] == [server]
    assert asked["code_challenge_method"] == ["S256"]
    assert urlsplit(laptop.browser.url).hostname == "localhost"
    assert "Signed in" in laptop.browser.text

    again = laptop.call(server)
    assert again.caller == told.caller
    assert again.visited == []
    assert laptop.call(server, sign_in="never").caller == told.caller


def test_a_person_signs_in_once(laptop: Laptop, server: str) -> None:
    check_sign_in(laptop, server)


def test_a_person_signs_in_once_with_chromium(
    tmp_path: Path, toolkit: Toolkit, server: str, chromium: Chromium
) -> None:
    chromium.forget()
    check_sign_in(Laptop(tmp_path, chromium), server)
    chromium.screenshot(tmp_path / "signed-in.png")


def test_a_command_signs_in_and_out_for_the_programs(laptop: Laptop, server: str) -> None:
    assert len(laptop.run("-m", "snodo_client.auth", "login", server).visited) == 1
    assert laptop.call(server, sign_in="never").caller["user"] == NAME
    laptop.run("-m", "snodo_client.auth", "logout", server)
    assert "auth login" in laptop.call(server, sign_in="never").error


def test_a_person_says_no(laptop: Laptop, openid_server: str) -> None:
    laptop.allows = False
    told = laptop.call(openid_server, client_id="desk")
    assert "access_denied" in told.error
    assert len(told.visited) == 1
    assert "not signed in" in laptop.browser.text


def test_a_refusal_that_does_not_tell_whose_it_is_is_not_shown(laptop: Laptop, server: str) -> None:
    # The toolkit promises `iss`, and then has none in the answers that hold an error.
    laptop.allows = False
    told = laptop.call(server)
    assert "iss" not in parameters(laptop.browser.url)
    assert "access_denied" not in told.error
    assert "(iss)" in told.error
    assert len(told.visited) == 1


def test_two_servers_share_a_registration_but_no_token(
    laptop: Laptop, peers: Peers, toolkit: Toolkit, server: str
) -> None:
    before = toolkit.clients()
    one = laptop.call(server)
    with protected(peers, "fastmcp", toolkit.issuer, "tools") as other:
        two = laptop.call(other)
        assert [parameters(url)["resource"] for told in (one, two) for url in told.visited] == [[server], [other]]
        assert two.caller["client"] == one.caller["client"]
        assert toolkit.clients() == before + 1
        assert laptop.call(other, sign_in="never").caller == two.caller
        assert laptop.call(server, sign_in="never").caller == one.caller


class Site(BaseHTTPRequestHandler):
    """The page of a web application that people come back to."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    """The address of that page."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as web:
        thread = Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://localhost:{web.server_port}/signed-in"
        web.shutdown()
        thread.join()


def test_a_web_application_signs_a_visitor_in(laptop: Laptop, server: str, site: str) -> None:
    store = MemoryTokenStore()
    begun = OAuth(store=store, sign_in="never").begin(server, redirect_uri=site)
    assert isinstance(begun, SignIn), begun
    laptop.sign_in(begun.url)
    assert laptop.browser.url.startswith(site)

    later = OAuth(store=store, sign_in="never")  # another process of the application might serve this request
    assert later.finish(laptop.browser.url, begun.state).ok
    with Client.connect(server, auth=later) as client:
        assert client.call_tool("caller").unwrap()["structuredContent"]["user"] == NAME


# -- what becomes of tokens


def test_an_expired_token_is_refreshed_without_the_person(laptop: Laptop, toolkit: Toolkit, server: str) -> None:
    first = laptop.call(server)
    for _ in range(2):  # the second time, with a refresh token that came with a refresh
        toolkit.expire()
        told = laptop.call(server, sign_in="never")
        assert told.caller == first.caller
        assert told.visited == []


def test_programs_at_the_same_time_refresh_once(laptop: Laptop, toolkit: Toolkit, server: str) -> None:
    # A second refresh with the same token would be refused: it may be used once.
    first = laptop.call(server)
    toolkit.expire()
    before, told = toolkit.grants(), []
    together([lambda: told.append(laptop.call(server, sign_in="never"))] * 4)
    assert [one.caller for one in told] == [first.caller] * 4
    assert toolkit.grants() == before + 1


def test_a_revoked_token_needs_the_person_again(laptop: Laptop, toolkit: Toolkit, server: str) -> None:
    first = laptop.call(server)
    toolkit.revoke()
    assert "auth login" in laptop.call(server, sign_in="never").error
    told = laptop.call(server)
    assert told.caller == first.caller
    assert len(told.visited) == 1


@pytest.mark.parametrize("kind", ["fastmcp", "mcp"])
def test_what_a_token_lacks_is_asked_for(laptop: Laptop, peers: Peers, openid: Toolkit, kind: str) -> None:
    with protected(peers, kind, openid.issuer, "tools") as url:
        before = laptop.call(url, client_id="desk")
    with protected(peers, kind, openid.issuer, "tools", "admin", port=urlsplit(url).port):
        after = laptop.call(url, client_id="desk")
        again = laptop.call(url, client_id="desk", sign_in="never")
    assert before.caller["scopes"] == ["offline_access", "tools"]
    assert after.caller["scopes"] == again.caller["scopes"] == ALL_SCOPES
    assert [len(told.visited) for told in (before, after, again)] == [1, 1, 0]


# -- other authorization servers


def test_openid_discovery_and_a_known_client(laptop: Laptop, openid: Toolkit, openid_server: str) -> None:
    told = laptop.call(openid_server, client_id="desk")
    assert told.caller == {"client": "desk", "scopes": ALL_SCOPES, "user": NAME}
    openid.expire()
    assert laptop.call(openid_server, client_id="desk", sign_in="never").caller == told.caller


def test_oidc_provider(laptop: Laptop, provider_server: str) -> None:
    told = laptop.call(provider_server)
    assert told.caller["scopes"] == ["tools"]
    again = laptop.call(provider_server, sign_in="never")
    assert again.caller == told.caller


def test_oidc_provider_with_chromium(tmp_path: Path, provider_server: str, chromium: Chromium) -> None:
    chromium.forget()
    laptop = Laptop(tmp_path, chromium)
    assert laptop.call(provider_server).caller["scopes"] == ["tools"]
    assert "Signed in" in chromium.text


@pytest.mark.parametrize(
    ("kind", "options"), [("fastmcp-own", {}), ("mcp-own", {"scope": "tools"})], ids=["fastmcp", "mcp"]
)
def test_servers_that_authorize_themselves(laptop: Laptop, peers: Peers, kind: str, options: dict[str, str]) -> None:
    with protected(peers, kind) as url:
        told = laptop.call(url, **options)  # at 2025-03-26 nothing said which scopes a server wants
        assert told.caller["scopes"] == ["tools"]
        assert len(told.visited) == 1
        assert laptop.call(url, sign_in="never").caller == told.caller


# -- without a person


@pytest.mark.parametrize("kind", ["toolkit", "openid"])
def test_a_job_with_a_secret(request: pytest.FixtureRequest, laptop: Laptop, kind: str) -> None:
    url = request.getfixturevalue({"toolkit": "server", "openid": "openid_server"}[kind])
    told = laptop.call(url, grant="client_credentials", client_id="cron", client_secret="cron secret")
    assert (told.caller["client"], told.caller["user"]) == ("cron", None)
    assert told.visited == []


def test_a_job_with_a_key(laptop: Laptop, provider: Provider, provider_server: str) -> None:
    told = laptop.call(provider_server, grant="client_credentials", client_id="cron", private_key=str(provider.key))
    assert told.caller["client"] == "cron"
