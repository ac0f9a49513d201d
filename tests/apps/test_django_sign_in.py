"""examples/django_sign_in.py under real Django, as its users see it in their browsers, and its token store alone.

The site runs in a process of its own; the MCP server and its authorization server are here.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from requests import Response, Session

from peers import Peers
from support.applications import APPS, Surroundings
from support.oauth_server import OAuthWorld

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "django_sign_in.py"


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        world.server.tool(name="whoami")(lambda: "somebody")
        yield world


class Browser:
    """Of one user of the site: keeps cookies, follows redirects."""

    def __init__(self, site: str, name: str) -> None:
        self._session = Session()
        self._session.trust_env = False
        self._session.max_redirects = 8
        self._site = site
        self.open(f"as/{name}", follow=False)

    def open(self, page: str, *, follow: bool = True) -> Response:
        url = page if page.startswith("http") else self._site + page
        return self._session.get(url, allow_redirects=follow, timeout=20)


@pytest.fixture
def browser(peers: Peers, world: OAuthWorld, tmp_path: Path) -> Iterator[Callable[[str], Browser]]:
    with site(peers, world, tmp_path) as address:
        yield lambda name: Browser(address, name)


@contextmanager
def site(peers: Peers, world: OAuthWorld, folder: Path) -> Iterator[str]:
    command = [str(peers.apps), "-W", "error", str(EXAMPLE), world.resource_url, "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    with (
        (folder / "stderr").open("w+") as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address, (folder / "stderr").read_text()
            yield address
        finally:
            process.kill()
    assert "Traceback" not in (folder / "stderr").read_text()


def tokens(world: OAuthWorld) -> set[str]:
    """The tokens that came with requests that were served."""
    return {one.headers["authorization"] for one in world.seen("mcp") if one.status == 200}


def test_each_user_signs_in_once(browser: Callable[[str], Browser], world: OAuthWorld) -> None:
    ada, bob = browser("ada"), browser("bob")
    for each in (ada, bob):
        before = tokens(world)
        shown = each.open("tool/whoami")
        assert shown.json()["content"] == [{"type": "text", "text": "somebody"}]
        assert len(shown.history) == 3  # to the authorization server, back, and to the page again
        assert len(tokens(world) - before) == 1
    assert (ada.open("tool/whoami").json()["user"], bob.open("tool/whoami").json()["user"]) == ("ada", "bob")
    assert world.count("authorize") == len(tokens(world)) == 2


def test_a_new_browser_of_the_same_user(browser: Callable[[str], Browser], world: OAuthWorld) -> None:
    browser("ada").open("tool/whoami")
    assert browser("ada").open("tool/whoami", follow=False).status_code == 200
    assert browser("bob").open("tool/whoami", follow=False).status_code == 302
    assert world.count("authorize") == 1


def test_a_page_that_needs_more(browser: Callable[[str], Browser], world: OAuthWorld) -> None:
    ada = browser("ada")
    ada.open("tool/whoami")
    shown = ada.open("tool/admin-tool")
    assert shown.json()["content"] == [{"type": "text", "text": "administered"}]
    assert world.seen("authorize")[-1].query["scope"] == "admin"


def test_a_token_is_renewed_without_the_user(browser: Callable[[str], Browser], world: OAuthWorld) -> None:
    ada = browser("ada")
    ada.open("tool/whoami")
    for _ in range(2):
        world.revoke_all()
        assert ada.open("tool/whoami", follow=False).status_code == 200
    assert world.count("token", grant_type="refresh_token") == 2
    assert world.reused_refresh == 0


def test_an_older_server(browser: Callable[[str], Browser], world: OAuthWorld) -> None:
    world.server.versions = ["2025-06-18"]  # whose answers the client waits for in threads of its own
    ada = browser("ada")
    assert ada.open("tool/whoami").status_code == 200
    world.revoke_all()
    assert ada.open("tool/whoami", follow=False).status_code == 200
    assert world.count("authorize") == 1


def test_a_user_who_says_no(browser: Callable[[str], Browser], world: OAuthWorld) -> None:
    world.consent = "access_denied"
    ada = browser("ada")
    shown = ada.open("tool/whoami")
    assert (shown.status_code, "access_denied" in shown.text) == (403, True)
    assert shown.headers["Content-Type"] == "text/plain"
    world.consent = "allow"
    assert ada.open("tool/whoami").status_code == 200


def test_the_answer_to_the_sign_in_of_another(browser: Callable[[str], Browser], world: OAuthWorld) -> None:
    ada, bob = browser("ada"), browser("bob")
    back = world.authorize(ada.open("tool/whoami", follow=False).headers["Location"])
    assert bob.open(back).status_code == 400
    bob.open("tool/whoami", follow=False)
    shown = bob.open(back)
    assert (shown.status_code, "not the answer to this sign-in" in shown.text) == (403, True)
    assert world.count("token") == 0
    assert ada.open(back, follow=False).status_code == 302
    assert ada.open(back).status_code == 400  # a second time
    assert world.count("token") == 1


def test_a_server_that_refuses_fresh_tokens(browser: Callable[[str], Browser], world: OAuthWorld) -> None:
    world.token_lifetime = 0.0
    world.token_extra = {"expires_in": None}
    ada = browser("ada")
    assert ada.open("tool/whoami").status_code == 502
    assert world.count("authorize") == 1
    world.token_lifetime = 3600.0
    assert ada.open("tool/whoami").status_code == 200


def test_a_server_without_sign_in(browser: Callable[[str], Browser], world: OAuthWorld) -> None:
    world.registration = False
    shown = browser("ada").open("tool/whoami")
    assert (shown.status_code, "client_id=" in shown.text) == (502, True)


@pytest.fixture
def alone(peers: Peers, world: OAuthWorld, tmp_path: Path) -> Callable[[str], Any]:
    """What a function of tests/apps/django_tokens.py tells."""

    def asking(what: str) -> Any:
        around = Surroundings(tmp_path)
        path = os.pathsep.join([around.environment["PYTHONPATH"], str(EXAMPLE.parent)])
        done = subprocess.run(
            [str(peers.apps), "-W", "error", "-m", "django_tokens", world.resource_url, "0", what],
            env={**around.environment, "PYTHONPATH": path},
            cwd=APPS,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return json.loads(done.stdout)

    return asking


def test_requests_at_once_renew_one_token_once(alone: Callable[[str], Any], world: OAuthWorld) -> None:
    assert alone("at_once") == [True] * 6
    assert world.count("token", grant_type="refresh_token") == 1
    assert world.reused_refresh == 0


def test_a_lock_that_another_holds(alone: Callable[[str], Any]) -> None:
    assert alone("held") == {"waited": 3, "ended": "TimeoutError"}


def test_a_transaction_around_a_call_is_refused(alone: Callable[[str], Any]) -> None:
    assert alone("inside_of_a_transaction") == ["authorization_failed", "store"]


def test_connections_of_other_threads_are_closed(alone: Callable[[str], Any]) -> None:
    assert alone("connections") == {"opened": 6, "left": 0}
