"""Secrets in the text of others: found however they are spelt, and nothing else touched."""

from __future__ import annotations

import json
from base64 import b64encode
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.masking import MASK, Masking, of_headers, of_query, of_userinfo

SECRET = 'sekret/+ "x"'


@pytest.mark.parametrize(
    "spelt",
    [SECRET, SECRET.upper(), json.dumps(SECRET), quote(SECRET), quote(SECRET, safe=""), SECRET.replace("/", r"\/")],
)
def test_a_secret_is_found_however_it_is_spelt(spelt: str) -> None:
    shown = Masking([SECRET])(f"before {spelt} after")
    assert "sekret" not in shown.lower()
    assert shown.startswith("before ")
    assert shown.endswith(" after")


def test_a_secret_of_many_lines_is_found_line_by_line() -> None:
    masking = Masking(["-----BEGIN-----\nAAAABBBB\nCCCCDDDD\n"])
    assert masking("x AAAABBBB") == f"x {MASK}"
    assert masking("CCCCDDDD") == MASK


@pytest.mark.parametrize(
    "url", ["http://u:pw@host/x", "https://user:p/w@d@host", "redis://:pw@host", "x http://tok@h y"]
)
def test_users_and_passwords_in_urls(url: str) -> None:
    shown = Masking([])(url)
    assert "pw" not in shown
    assert "tok@" not in shown
    assert f"//{MASK}@h" in shown


def test_the_parts_of_headers_are_secrets() -> None:
    basic = b64encode(b"ada:lovelace").decode()
    secrets = set(of_headers([("Authorization", f"Basic {basic}"), ("Cookie", "sid=abcdef; x=ghijkl")]))
    assert {basic, "ada:lovelace", "lovelace", "abcdef", "ghijkl"} <= secrets
    assert set(of_headers([("Authorization", "Basic ???")])) <= {"Basic ???", "???", ":", ""}


def test_queries_and_proxies() -> None:
    assert {"a%20bcd", "a bcd"} <= set(of_query("key=a%20bcd&plain"))
    secrets = set(of_userinfo("http://us%40er:p%2Fw@proxy:8080"))
    assert {"p/w", b64encode(b"us@er:p/w").decode()} <= secrets
    assert set(of_userinfo("http://proxy:8080")) == set()


@given(st.text(), st.lists(st.text(min_size=4)))
def test_nothing_of_a_secret_is_left_and_nothing_raises(text: str, secrets: list[str]) -> None:
    shown = Masking(secrets)(text)
    lines = [line.strip() for secret in secrets for line in secret.splitlines()]
    assert not any(len(line) >= 4 and line in shown.replace(MASK, "") for line in lines if line in text)
