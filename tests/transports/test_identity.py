"""What transports tell caches: which server this is, and who asks. Equal where both are the same, and nowhere else."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
import trustme
from requests.auth import HTTPBasicAuth

from snodo_client.engine.deadline import Deadline
from snodo_client.transports.stdio import StdioTransport
from support.http_calls import exchange, make_call, opened
from support.scripted_http import ScriptedServer, each_request
from support.stdio_peer import SERVERS, Inbox

Identity = tuple[bytes, bytes | None]
URL = "https://example.test/mcp"


def http(url: str = URL, **options: Any) -> Identity:
    with opened(url, **options) as transport:
        link = transport._link
        assert link is not None
        return transport.identity(link)


def server_of(url: str = URL, **options: Any) -> bytes:
    return http(url, **options)[0]


def credential_of(**options: Any) -> bytes | None:
    return http(**options)[1]


# -- over HTTP


def test_the_same_url_in_other_words_is_the_same_server() -> None:
    assert server_of() == server_of("HTTPS://EXAMPLE.test:443/mcp") == server_of(headers={"X": "1"}, auth="token")


@pytest.mark.parametrize("url", ["https://example.test/mcp?key=1", "https://example.test/", "http://example.test/mcp"])
def test_another_url_is_another_server(url: str) -> None:
    assert server_of(url) != server_of()


def test_what_nobody_verified_is_not_for_those_who_verify() -> None:
    session = requests.Session()
    session.verify = False
    assert server_of(verify=False) == server_of(session=session) != server_of() == server_of(session=requests.Session())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "a.localhost", "example.test"])
def test_a_server_on_this_machine_is_another_one_elsewhere(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = server_of(f"http://{host}:8000/mcp")
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    assert (server_of(f"http://{host}:8000/mcp") == here) is (host == "example.test")


class Key(HTTPBasicAuth):
    def __init__(self, key: str) -> None:
        super().__init__("user", key)


def test_each_credential_is_of_its_own() -> None:
    ways: list[dict[str, Any]] = [
        {},
        {"auth": "one"},
        {"auth": "two"},
        {"auth": Key("one")},
        {"auth": Key("two")},
        {"headers": {"X-Api-Key": "one"}},
        {"headers": {"X-Api-Key": "two"}},
        {"headers": {"X-Other": "one"}},
        {"headers": {"Cookie": "sid=one"}},
        {"headers": {"X-Api-Key": "one"}, "auth": "one"},
    ]
    credentials = [credential_of(**way) for way in ways]
    assert None not in credentials
    assert len(set(credentials)) == len(ways)
    assert [credential_of(**way) for way in ways] == credentials


def test_it_does_not_matter_by_which_option_a_header_is_sent() -> None:
    expected = credential_of(auth="one")
    assert credential_of(headers={"authorization": "Bearer one"}) == expected
    assert credential_of(headers=lambda: {"AUTHORIZATION": "Bearer one"}) == expected


def test_callables_are_asked_each_time() -> None:
    token = ["one"]
    with opened(URL, headers=lambda: {"Authorization": f"Bearer {token[0]}"}) as transport:
        link = transport._link
        assert link is not None
        before = transport.identity(link)
        assert transport.identity(link) == before
        token[0] = "two"
        after = transport.identity(link)
    assert after[0] == before[0]
    assert after[1] != before[1]


def fails(*_: Any) -> Any:
    raise OSError("the vault is closed")


@pytest.mark.parametrize(
    "options",
    [{"headers": fails}, {"auth": fails}, {"headers": lambda: {"X": 1}}],
    ids=["headers that fail", "auth that fails", "headers that are none"],
)
def test_a_credential_that_cannot_be_made_is_not_known(options: dict[str, Any]) -> None:
    assert credential_of(**options) is None


def test_who_a_session_of_the_caller_asks_as_is_not_known() -> None:
    assert credential_of(session=requests.Session(), headers={"X": "1"}) is None


def test_a_client_certificate_counts_by_what_is_in_it(tmp_path: Path) -> None:
    ca = trustme.CA()
    files = [tmp_path / name for name in ("one.pem", "two.pem", "copy.pem")]
    for file in files[:2]:
        ca.issue_cert(file.name).private_key_and_cert_chain_pem.write_to_path(str(file))
    files[2].write_bytes(files[0].read_bytes())
    one, two, copy = (credential_of(cert=str(file)) for file in files)
    assert None not in (one, two)
    assert one == copy != two
    assert credential_of() not in (one, two)


def test_a_cookie_of_the_server_counts_from_the_next_request_on() -> None:
    answers = each_request(lambda peer, request: peer.json({"jsonrpc": "2.0", "id": request.id, "result": {}}, "200 OK",
                                                           "Set-Cookie: sid=one"))  # fmt: skip
    with ScriptedServer(answers) as server, opened(server.url) as transport:
        link = transport._link
        assert link is not None
        before = transport.identity(link)[1]
        exchange(transport, make_call())
        after = transport.identity(link)[1]
    assert None not in (before, after)
    assert after != before


# -- over stdio


def stdio(cwd: Path | None = None, args: list[str] | None = None, **options: Any) -> Identity:
    transport = StdioTransport(sys.executable, args or [str(SERVERS / "scripted.py")], cwd=cwd, **options)
    try:
        return transport.identity(transport.open(Inbox(), Deadline(10)))
    finally:
        transport.close(Deadline(5))


def test_the_same_command_is_the_same_server() -> None:
    assert stdio() == stdio() == stdio(Path.cwd()) == stdio(env={})
    assert stdio()[1] == b""


def test_other_arguments_folders_and_environments_are_other_servers(tmp_path: Path) -> None:
    script = str(SERVERS / "scripted.py")
    ways: list[Callable[[], Identity]] = [
        stdio,
        lambda: stdio(tmp_path),
        lambda: stdio(args=[script, "x"]),
        lambda: stdio(args=[script, "x", "A", "1"]),
        lambda: stdio(args=[script, "x"], env={"A": "1"}),
        lambda: stdio(args=[script, "x"], env={"A": "2"}),
    ]
    servers = [way()[0] for way in ways]
    assert len(set(servers)) == len(servers)


def test_a_variable_that_the_server_inherits_counts_as_it_was_when_the_server_was_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SNODO_TEST_TOKEN", "one")
    assert stdio()[0] != stdio(inherit_env=True)[0]
    transport = StdioTransport(sys.executable, [str(SERVERS / "scripted.py")], inherit_env=True)
    try:
        link = transport.open(Inbox(), Deadline(10))
        monkeypatch.setenv("SNODO_TEST_TOKEN", "two")
        started_with_one = transport.identity(link)
    finally:
        transport.close(Deadline(5))
    assert started_with_one != stdio(inherit_env=True)
    monkeypatch.setenv("SNODO_TEST_TOKEN", "one")
    assert started_with_one == stdio(inherit_env=True)


def test_a_server_on_another_machine_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    here = stdio()
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    assert stdio() != here


def test_a_folder_that_is_gone_is_like_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    one, other = (StdioTransport(sys.executable, [str(SERVERS / "scripted.py")]) for _ in range(2))
    try:
        links = [transport.open(Inbox(), Deadline(10)) for transport in (one, other)]
        os.rmdir(gone)
        identities = [transport.identity(link) for transport, link in zip((one, other), links, strict=True)]
        assert identities[0] != identities[1]
        assert one.identity(links[0]) == identities[0]
    finally:
        one.close(Deadline(5))
        other.close(Deadline(5))
