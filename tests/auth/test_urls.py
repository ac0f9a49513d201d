"""URLs that servers name: what is asked, and what is not."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.auth.urls import MAX_URL, Rules, leads_here, named
from snodo_client.protocol.origins import Endpoint

REMOTE, LOCAL = Rules(), Rules(local=True)
INSECURE = Rules(insecure_http=True)

LOOPBACK = [
    "localhost",
    "LOCALHOST",
    "localhost.",
    "as.localhost",
    "127.0.0.1",
    "127.0.0.1.",
    "127.255.3.4",
    "0.0.0.0",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "\uff11\uff12\uff17.0.0.1",
]
ELSEWHERE = [
    "example.com",
    "localhost.example.com",
    "notlocalhost",
    "10.0.0.1",
    "128.0.0.1",
    "[2001:db8::1]",
    "1e3.com",
]
ODD = [
    "127.1",
    "0",
    "1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0177.0.0.1",
    "127.0.0.01",
    "127.0.0.256",
    "a.1",
    "a.0x",
]


def refused(url: object, rules: Rules) -> str:
    with pytest.raises(ValueError, match=r"^it |^https?://") as caught:
        named(url, rules)
    return str(caught.value)


@pytest.mark.parametrize("host", LOOPBACK)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_this_machine_is_named_by_servers_on_it_only(host: str, scheme: str) -> None:
    url = f"{scheme}://{host}:8000/x"
    assert leads_here(named(url, LOCAL).host)
    assert "this machine" in refused(url, REMOTE)
    assert "this machine" in refused(url, INSECURE)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_everywhere_else_is_https(host: str) -> None:
    for rules in (REMOTE, LOCAL, INSECURE):
        assert named(f"https://{host}/x?y=z", rules).url == f"https://{host}/x?y=z"
    assert not leads_here(named(f"https://{host}/", REMOTE).host)
    for rules in (REMOTE, LOCAL):
        assert f"http://{host} is not https" in refused(f"http://{host}/x", rules)
    assert named(f"http://{host}/x", INSECURE).origin == f"http://{host}"


@pytest.mark.parametrize("host", ODD)
@pytest.mark.parametrize("rules", [REMOTE, LOCAL, INSECURE], ids=repr)
def test_addresses_that_resolvers_disagree_on_are_refused(host: str, rules: Rules) -> None:
    assert "unusual" in refused(f"https://{host}/", rules)


@pytest.mark.parametrize(
    "url",
    [
        None,
        7,
        True,
        b"https://example.com/",
        ["https://example.com/"],
        {},
        "",
        "/authorize",
        "//example.com/x",
        "https:///x",
        "https://user@example.com/",
        "https://user:canary@example.com/",
        "https://example.com/#canary",
        "https://example.com\\@evil.example/",
        "https://exa mple.com/",
        " https://example.com/",
        "https://example.com/\n",
        "https://example.com/\ud800canary",
        "https://\ud800.example/",
        "https://example.com:99999/",
        "https://[::1/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "ftp://example.com/",
        "https://example.com/".ljust(MAX_URL + 1, "x"),
    ],
    ids=lambda url: ascii(url)[:40],
)
@pytest.mark.parametrize("rules", [REMOTE, LOCAL, INSECURE], ids=repr)
def test_what_is_no_plain_url_is_refused_and_not_quoted(url: object, rules: Rules) -> None:
    with pytest.raises(ValueError, match=r"^it is ") as caught:
        named(url, rules)
    assert caught.value.__context__ is None
    shown = "".join(traceback.format_exception(caught.value, limit=0))
    assert "canary" not in shown


def test_a_refusal_quotes_the_origin_only() -> None:
    assert refused("http://example.com/path-canary?key=canary", REMOTE).count("canary") == 0


def test_the_longest_url_is_taken() -> None:
    url = "https://example.com/".ljust(MAX_URL, "x")
    assert named(url, REMOTE).url == url


@given(st.text() | st.text().map("https://{}".format) | st.text("htps:/.0x127[]%@#?\\l", max_size=20))
def test_any_text_is_an_endpoint_or_a_value_error(text: str) -> None:
    for rules in (REMOTE, LOCAL, INSECURE):
        try:
            found = named(text, rules)
        except ValueError:
            continue
        assert isinstance(found, Endpoint)
        assert found.url.isascii()
        assert found.scheme == "https" or rules.insecure_http or (rules.local and leads_here(found.host))
        assert rules.local or not leads_here(found.host)
