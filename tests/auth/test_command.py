"""`python -m snodo_client.auth`: a person signs in once, for programs of theirs that ask nobody."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.oauth_server import Fault, OAuthWorld

COMMAND = [sys.executable, "-m", "snodo_client.auth"]
CALL = """
import sys
from snodo_client import Client, McpError
from snodo_client.auth import OAuth
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
try:
    with Client.connect(sys.argv[1], auth=OAuth(sign_in="never", **options)) as client:
        print(client.call_tool("test-tool").ok)
except McpError as error:
    print(error.data["command"])
"""
BROWSER = """
import sys, urllib.request
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=10).read()
"""


@pytest.fixture
def world() -> Iterator[OAuthWorld]:
    with OAuthWorld() as world:
        yield world


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user without tokens, whose browser signs in and follows redirects."""
    script = tmp_path / "browser.py"
    script.write_text(BROWSER)
    browser = f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} %s"
    return {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "BROWSER": browser, "COLUMNS": "200"}


@pytest.fixture
def run(environment: dict[str, str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command: its exit code, and what it says on stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        ran = subprocess.run(
            [*COMMAND, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Traceback" not in ran.stderr
        return ran.returncode, ran.stdout.strip(), ran.stderr.strip()

    return run


@pytest.fixture
def cron(environment: dict[str, str], world: OAuthWorld) -> Callable[..., str]:
    """A program that asks nobody, with these options of `OAuth`: whether its call succeeded, else the command."""

    def cron(**options: str) -> str:
        words = [word for option in options.items() for word in option]
        ran = subprocess.run(
            [sys.executable, "-c", CALL, world.resource_url, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return ran.stdout.strip()

    return cron


def test_a_person_signs_in_and_programs_call(
    world: OAuthWorld, run: Callable[..., tuple[int, str, str]], cron: Callable[..., str]
) -> None:
    url = world.resource_url
    assert run("status", url) == (1, "not signed in", "")
    assert cron() == f"python -m snodo_client.auth login {url}"
    code, said, asked = run("login", url, "--scope", "read write")
    assert (code, said) == (0, f"signed in to {url}")
    assert asked.startswith(f"Sign in at {world.issuer}/authorize?")
    assert cron() == "True"
    code, said, _ = run("status", url)
    assert code == 0
    assert re.fullmatch(
        rf"signed in by {re.escape(world.issuer)}; scope: read write; "
        r"until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, renewed by itself",
        said,
    )
    assert not [secret for secret in world.issued() if secret in said]
    assert run("logout", url) == (0, f"signed out of {url}", "")
    assert run("logout", url) == (0, f"signed out of {url}", "")
    assert run("status", url) == (1, "not signed in", "")
    assert cron().startswith("python -m")


def test_a_token_without_an_end_and_without_a_scope(
    world: OAuthWorld, run: Callable[..., tuple[int, str, str]]
) -> None:
    world.token_lifetime, world.refresh = None, False
    assert run("login", world.resource_url)[0] == 0
    assert run("status", world.resource_url)[1] == f"signed in by {world.issuer}; scope: none; until no known end"


def test_the_command_of_the_error_is_enough(
    world: OAuthWorld, environment: dict[str, str], cron: Callable[..., str]
) -> None:
    world.add_client("a client")
    options = {"client_id": "a client", "issuer": world.issuer, "scope": "read"}
    command = cron(**options)
    assert cron(**options) == command
    python, *rest = shlex.split(command)
    assert python == "python"
    subprocess.run([sys.executable, *rest], env=environment, capture_output=True, timeout=60, check=True)
    assert world.seen("authorize")[0].query["scope"] == "read"
    assert cron(**options) == "True"
    assert world.count("register") == 0


def test_a_program_described_by_a_document(
    world: OAuthWorld, run: Callable[..., tuple[int, str, str]], cron: Callable[..., str]
) -> None:
    document = "https://app.example/client.json"
    world.client_documents[document] = {"redirect_uris": ["http://localhost/callback"]}
    assert run("login", world.resource_url, "--client-metadata-url", document)[0] == 0
    assert cron(client_metadata_url=document) == "True"
    assert world.count("register") == 0


def test_another_authorization_server_is_refused(world: OAuthWorld, run: Callable[..., tuple[int, str, str]]) -> None:
    code, said, told = run("login", world.resource_url, "--issuer", "https://as.example")
    assert (code, said) == (1, "")
    assert "issuer=" in told


def test_at_a_terminal(world: OAuthWorld, environment: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, "login", world.resource_url, "--console"],
            env=environment,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("Sign in at ")
            os.write(ours, world.authorize(line.removeprefix("Sign in at ").strip()).encode() + b"\n")
            said, _ = process.communicate(timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (process.returncode, said) == (0, f"signed in to {world.resource_url}\n")


def test_without_a_terminal(world: OAuthWorld, run: Callable[..., tuple[int, str, str]]) -> None:
    code, said, told = run("login", world.resource_url, "--console")
    assert (code, said) == (1, "")
    assert "terminal" in told


def test_a_failure_is_told_in_a_line(world: OAuthWorld, run: Callable[..., tuple[int, str, str]]) -> None:
    world.faults["server_metadata"] = Fault(503)
    code, said, told = run("login", world.resource_url)
    assert (code, said) == (1, "")
    assert len(told.splitlines()) == 1
    assert "503" in told


@pytest.mark.parametrize("action", ["status", "logout", "login"])
def test_a_store_that_cannot_be_used_is_told_in_a_line(
    world: OAuthWorld, run: Callable[..., tuple[int, str, str]], tmp_path: Path, action: str
) -> None:
    (tmp_path / "data").write_text("a file in the place of the folder")
    code, said, told = run(action, world.resource_url)
    assert (code, said) == (1, "")
    assert "tokens.json" in told.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["login"],
        ["dance", "http://localhost/mcp"],
        ["login", "mcp.example"],
        ["status", "http://mcp.example/mcp"],
        ["login", "http://localhost/mcp", "--issuer", "as"],
        ["login", "http://localhost/mcp", "--scope", "é"],
        ["login", "http://localhost/mcp", "--client-id", ""],
        ["login", "http://localhost/mcp", "--client-metadata-url", "http://app.example/x"],
    ],
)
def test_wrong_usage(run: Callable[..., tuple[int, str, str]], arguments: list[str]) -> None:
    code, said, told = run(*arguments)
    assert (code, said) == (2, "")
    assert told.startswith("usage: python -m snodo_client.auth")


def test_help(run: Callable[..., tuple[int, str, str]]) -> None:
    code, said, _ = run("--help")
    assert code == 0
    for word in ("login", "logout", "status", "--console", "--scope", "--client-id", "--issuer"):
        assert word in said
