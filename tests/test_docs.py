"""What docs/authorization.md shows runs as it stands, against real servers; what needs Django is that of the example,
which tests/apps runs, as it does the store in Redis.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import snodo_client
from snodo_client import McpError, Ok, auth
from snodo_client.auth import FileTokenStore, MemoryTokenStore, OAuth
from snodo_client.auth import __main__ as command
from snodo_client.reasons import REASONS
from support.oauth_server import OAuthWorld

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
GUIDE = (ROOT / "docs" / "authorization.md").read_text()
BLOCKS: list[str] = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
URL, ISSUER = "https://mcp.example.com/mcp", "https://login.example.com"
BROWSER = """\
import sys
from urllib.request import urlopen
urlopen(sys.argv[1]).read()
"""


def block(words: str) -> str:
    """The one block with these words."""
    (found,) = (each for each in BLOCKS if words in each)
    return found


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        for name in ("whoami", "tick"):
            world.server.tool(name=name)(lambda: "ada")
        yield world


def run(code: str, world: OAuthWorld, **names: Any) -> dict[str, Any]:
    """Run a block whose servers are those of the world. What it defines."""
    exec(code.replace(URL, world.resource_url).replace(ISSUER, world.issuer), names)
    return names


def call(world: OAuthWorld, auth: Any) -> Any:
    with snodo_client.Client.connect(world.resource_url, auth=auth) as client:
        return client.call_tool("whoami")


# -- the text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).is_file(), target


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.split("\n")[0])
def test_names_and_keywords_of_blocks_exist(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("snodo_client"):
            for alias in node.names:
                assert hasattr(importlib.import_module(str(node.module)), alias.name)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = getattr(auth, node.func.id, None)
            if inspect.isclass(called):
                keywords = {str(keyword.arg): None for keyword in node.keywords}
                inspect.signature(called).bind(*[None] * len(node.args), **keywords)


def test_options_it_speaks_of_exist() -> None:
    known = set(inspect.signature(OAuth).parameters)
    known |= set(inspect.signature(auth.EnterpriseManaged).parameters)
    known |= {"auth", "env", "timeout", "path", "service"}
    prose = re.sub(r"```.*?```", "", GUIDE, flags=re.S)
    assert set(re.findall(r"`(?:\w+\()?(\w+)=[^`]*`", prose)) <= known


def test_the_table_of_failures_has_every_one() -> None:
    table = GUIDE.partition("## When it fails")[2]
    first = " ".join(re.findall(r"^\| (.*?) \|", table, re.M))
    steps = re.search(r"Step = Literal\[(.*?)\]", (ROOT / "snodo_client" / "auth" / "faults.py").read_text(), re.S)
    assert steps is not None
    reasons = [name for name, row in REASONS.items() if row.kind == "authorization"]
    for name in [*re.findall(r'"(\w+)"', steps[1]), *reasons]:
        assert f"`{name}`" in first, name


def test_django_is_that_of_the_example() -> None:
    example = (ROOT / "examples" / "django_sign_in.py").read_text()
    shown = [each for each in BLOCKS if "HttpRequest" in each or "models." in each or "McpToken" in each]
    assert len(shown) == 3
    for each in shown:
        assert f"\n\n{each}\n" in example


def test_the_command_has_the_options_that_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    said = capsys.readouterr().out
    for option in re.findall(r"(?<=[` ])--[a-z-]+", GUIDE.partition("## In Django")[0]):
        assert option in said, option


# -- a laptop and its cron jobs


class Home:
    """Programs of one user, who signs in wherever a browser is opened."""

    def __init__(self, folder: Path, world: OAuthWorld) -> None:
        self.folder = folder
        self._world = world
        (folder / "browser.py").write_text(BROWSER)
        kept = {name: value for name, value in os.environ.items() if name != "XDG_DATA_HOME"}
        browser = f"{sys.executable} {folder / 'browser.py'} %s"
        self._environment = {**kept, "HOME": str(folder), "PYTHONPATH": str(ROOT), "BROWSER": browser}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-W", "error", *(each.replace(URL, self._world.resource_url) for each in arguments)],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def command(self, action: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "snodo_client.auth", action, URL)


@pytest.fixture
def home(tmp_path: Path, world: OAuthWorld) -> Home:
    return Home(tmp_path, world)


def test_a_laptop_signs_in_once(home: Home, world: OAuthWorld) -> None:
    first, second = (home.run("-c", block("OAuth())")) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout == second.stdout == "[{'type': 'text', 'text': 'ada'}]\n"
    assert first.stderr.startswith(f"Sign in at {world.issuer}/authorize?")
    assert second.stderr == ""
    assert world.count("authorize") == 1
    (kept,) = home.folder.rglob("tokens.json")
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_cron_job_after_one_login(home: Home, world: OAuthWorld) -> None:
    job = block("sys.exit(")
    early = home.run("-c", job)
    assert early.returncode == 1
    assert f"python -m snodo_client.auth login {world.resource_url}" in early.stderr
    assert "Traceback" not in early.stderr
    assert world.count("authorize") == 0

    assert home.command("login").returncode == 0
    world.revoke_all()
    done = home.run("-c", job)
    assert (done.returncode, done.stderr) == (0, "")
    assert (world.count("authorize"), world.count("token", grant_type="refresh_token")) == (1, 1)

    assert f"signed in by {world.issuer}" in home.command("status").stdout
    assert home.command("logout").returncode == 0
    assert home.command("status").stdout == "not signed in\n"
    assert home.run("-c", job).returncode == 1


# -- a web application


def test_the_two_views_of_flask(world: OAuthWorld) -> None:
    class App:
        get = staticmethod(lambda path: lambda view: view)

    oauth = OAuth(sign_in="never", store=MemoryTokenStore(), redirect_uri="https://shop.example/mcp/callback")
    names: dict[str, Any] = {"app": App, "session": {"user": "ada"}, "redirect": str, "McpError": McpError}
    views = run(block("@app.get"), world, oauth_of={"ada": oauth}.get, **names)
    views["request"] = SimpleNamespace(url=world.authorize(views["sign_in"]()))
    assert views["callback"]() == "/"
    assert views["callback"]() == ("no sign-in was begun here", 400)
    assert call(world, oauth).ok

    world.consent = "access_denied"
    views["request"] = SimpleNamespace(url=world.authorize(views["sign_in"]()))
    said, status = views["callback"]()
    assert (status, "access_denied" in said) == (403, True)


# -- programs that sign in by themselves


def test_by_a_secret(world: OAuthWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add_client("report", "s3cret")
    monkeypatch.setenv("REPORT_SECRET", "s3cret")
    run(block('client_secret=os.environ["REPORT_SECRET"],'), world, os=os)
    assert world.count("token", grant_type="client_credentials") == 1


def test_by_a_key(world: OAuthWorld, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "report.pem").write_bytes(pem)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    world.add_client("report", key=public.decode())
    code = block("private_key=key").replace("/run/secrets", str(tmp_path))
    assert call(world, run(code, world, Path=Path, OAuth=OAuth)["oauth"]).ok


def test_by_an_enterprise(world: OAuthWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = world.add_authorization_server()
    world.add_client("report-at-mcp", "s3cret")
    own, world.authorization_server = world.authorization_server, provider
    world.add_client("report")
    world.authorization_server = own
    world.subject_tokens = {"of.the.user"}
    monkeypatch.setenv("REPORT_SECRET", "s3cret")
    code = block("EnterpriseManaged(").replace("https://sso.example.com", provider.issuer)
    assert call(world, run(code, world, os=os, id_token="of.the.user")["oauth"]).ok


def test_by_a_platform(world: OAuthWorld, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of.the.platform\n")
    world.workload_assertions = {"of.the.platform"}
    code = block("WorkloadIdentity(").replace("/var/run/secrets/mcp", str(tmp_path))
    assert call(world, run(code, world, Path=Path)["oauth"]).ok


# -- tokens of one's own


class Secrets:
    """Somebody's vault, which keeps a token of the world."""

    def __init__(self, world: OAuthWorld) -> None:
        self._world = world
        self._token = ""
        self.scope: object = None

    def read(self, name: str) -> str:
        return self._token or self.renew(name)

    def renew(self, name: str, scope: object = None) -> str:
        self.scope = scope
        store = MemoryTokenStore()
        oauth = OAuth(sign_in=self._world.authorize, store=store, scope=list(scope or ()))  # type: ignore[call-overload]
        oauth.login(self._world.resource_url).unwrap()
        self._token = next(iter(self._world.authorization_server.access))
        return self._token


def test_a_callable_and_a_provider(world: OAuthWorld) -> None:
    vault = Secrets(world)
    for line in block('auth="token"').splitlines():
        expression = line.replace(URL, world.resource_url).replace('"token"', "vault.read('mcp')")
        with eval(expression, {"Client": snodo_client.Client, "vault": vault}) as client:
            assert client.call_tool("whoami").ok
    client = run(block("class Vault"), world, Client=snodo_client.Client, vault=vault)["client"]
    with client:
        assert client.call_tool("whoami").ok
        world.revoke_all()
        assert client.call_tool("whoami").ok
        world.revoke_all()
        world.challenge_scope = "more"
        assert client.call_tool("whoami").ok
    assert vault.scope == ("more",)


# -- stores


def test_what_is_kept(world: OAuthWorld, tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path / "tokens.json")
    oauth = OAuth(sign_in=world.authorize, store=store)
    assert call(world, oauth).ok
    text = (tmp_path / "tokens.json").read_text()
    assert all(token in text for token in world.issued())
    assert oauth.forget(world.resource_url) == Ok({})
    text = (tmp_path / "tokens.json").read_text()
    assert not any(token in text for token in world.issued())
    assert oauth.status(world.resource_url) is None


def test_where_the_command_finds_nothing_of_other_clients(world: OAuthWorld) -> None:
    world.add_client("report")
    store = MemoryTokenStore()
    OAuth(sign_in=world.authorize, store=store).login(world.resource_url).unwrap()
    with pytest.raises(McpError) as failure:
        call(world, OAuth(client_id="report", sign_in="never", store=store))
    assert failure.value.reason == "sign_in_required"
    OAuth(client_id="report", sign_in=world.authorize, store=store).login(world.resource_url).unwrap()
    assert call(world, OAuth(client_id="report", sign_in="never", store=store)).ok
