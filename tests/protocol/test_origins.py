"""Endpoints, origins and redirects: which URLs a POST with credentials may go to."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.protocol.origins import MAX_REDIRECTS, Endpoint, Refusal, announced, endpoint, origin, redirected

BASE = endpoint("https://example.com/mcp?key=k")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://example.com", "http://example.com/"),
        ("HTTP://EXAMPLE.com:80/A", "http://example.com/A"),
        ("https://example.com:443/mcp", "https://example.com/mcp"),
        ("https://example.com:80/mcp", "https://example.com:80/mcp"),
        ("http://[::1]:8080/mcp/", "http://[::1]:8080/mcp/"),
        ("http://localhost:1/a%20b?x=%2F&y=/", "http://localhost:1/a%20b?x=%2F&y=/"),
        ("https://münchen.example/é?q=ü", "https://xn--mnchen-3ya.example/%C3%A9?q=%C3%BC"),
        ("https://example.com?only=query", "https://example.com/?only=query"),
        ("https://example.com./mcp", "https://example.com./mcp"),
        ("http://my_service:8000/mcp", "http://my_service:8000/mcp"),
    ],
)
def test_an_endpoint_is_written_in_one_way(url: str, expected: str) -> None:
    named = endpoint(url)
    assert named.url == expected
    assert named.url.isascii()
    assert named.name == expected.partition("?")[0]
    assert endpoint(named.url).url == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/mcp",
        "ftp://example.com/",
        "http:///mcp",
        "http:/example.com",
        "//example.com/mcp",
        "http://user@example.com/",
        "http://user:pass@example.com/",
        "http://@example.com/",
        "http://example.com/#top",
        "http://example.com/#",
        "http://example.com:port/",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://[::1/",
        "http://exa mple.com/",
        " http://example.com/",
        "http://example.com/\n",
        "http://example.com\\@evil.example/",
        "http://a..b/",
        f"http://{'a' * 64}.example/",
        f"http://{'a.' * 150}example/",
        "http://ex*mple.com/",
        "http://\N{PILE OF POO}\N{ZERO WIDTH JOINER}.x/\x7f",
        "javascript:alert(1)",
    ],
)
def test_what_is_no_endpoint_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ValueError, match="URL") as caught:
        endpoint(url)
    assert "pass@" not in str(caught.value)
    assert "evil" not in str(caught.value)


def test_a_url_is_a_string() -> None:
    with pytest.raises(TypeError, match="bytes"):
        endpoint(b"http://example.com/")  # type: ignore[arg-type]


def test_representations_leave_the_query_out() -> None:
    assert "key" not in repr(BASE)
    assert "key" not in BASE.name


def test_an_origin_is_no_more_than_that() -> None:
    assert origin("https://Example.com:443") == "https://example.com"
    assert origin("https://example.com/") == "https://example.com"
    for text in ("https://example.com/mcp", "https://example.com?x=1", "example.com"):
        with pytest.raises(ValueError, match=r"origin|URL"):
            origin(text)


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/mcp/", "https://example.com/mcp/"),
        ("mcp/", "https://example.com/mcp/"),
        ("?key=other", "https://example.com/mcp?key=other"),
        ("https://example.com/new", "https://example.com/new"),
        ("https://EXAMPLE.com:443/new#part", "https://example.com/new"),
        ("//example.com/new", "https://example.com/new"),
        ("/é", "https://example.com/%C3%A9"),
    ],
)
def test_a_redirect_within_the_origin_is_followed(status: int, location: str, target: str) -> None:
    followed = redirected(BASE, status, location, 1)
    assert isinstance(followed, Endpoint)
    assert followed.url == target


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("location", "elsewhere"),
    [
        ("http://example.com/mcp", "http://example.com"),
        ("https://example.com:8443/mcp?token=t", "https://example.com:8443"),
        ("https://www.example.com/mcp", "https://www.example.com"),
        ("//evil.example/mcp", "https://evil.example"),
        ("https://example.com.evil.example/", "https://example.com.evil.example"),
    ],
)
def test_another_origin_is_named_and_not_followed(status: int, location: str, elsewhere: str) -> None:
    refusal = redirected(BASE, status, location, 1)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.location) == ("cross_origin_redirect", elsewhere)
    assert "token" not in refusal.why


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_makes_a_get_of_it_is_not_followed(status: int) -> None:
    refusal = redirected(BASE, status, "/mcp/", 1)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "invalid_redirect"


@pytest.mark.parametrize(
    "location",
    [
        None,
        "",
        "https://user:pass@example.com/",
        "https://[::1",
        "/a b",
        "mailto:x@example.com",
        "/" + "a" * 9000,
        "/\\x",
    ],
)
def test_a_location_that_leads_nowhere_is_invalid(location: str | None) -> None:
    refusal = redirected(BASE, 307, location, 1)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.location) == ("invalid_redirect", None)


def test_only_so_many_in_a_row() -> None:
    assert isinstance(redirected(BASE, 307, "/a", MAX_REDIRECTS), Endpoint)
    assert isinstance(redirected(BASE, 307, "/a", MAX_REDIRECTS + 1), Refusal)


@given(st.text(max_size=60))
def test_no_location_leads_out_of_the_origin(location: str) -> None:
    target = redirected(BASE, 307, location, 1)
    if isinstance(target, Endpoint):
        parts = urlsplit(target.url)
        assert (parts.scheme, parts.hostname, parts.port) == ("https", "example.com", None)
        assert target.url.isascii()
        assert target.url.isprintable()


@given(st.text(max_size=60))
def test_endpoint_raises_nothing_but_value_errors(text: str) -> None:
    for url in (text, f"http://{text}", f"https://example.com/{text}"):
        try:
            named = endpoint(url)
        except ValueError:
            continue
        assert endpoint(named.url).url == named.url


# -- the address that an HTTP+SSE server names

STREAM = endpoint("https://example.com/a/sse?key=k")


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("/m?sid=1", "https://example.com/m?sid=1"),
        ("m", "https://example.com/a/m"),
        ("./m", "https://example.com/a/m"),
        ("../../m", "https://example.com/m"),
        ("?sid=2", "https://example.com/a/sse?sid=2"),
        ("//example.com/m", "https://example.com/m"),
        ("https://example.com:443/m", "https://example.com/m"),
        ("HTTPS://EXAMPLE.COM/m", "https://example.com/m"),
        ("/m#part", "https://example.com/m"),
        (" /m \r\n", "https://example.com/m"),
        ("/\u00fc", "https://example.com/%C3%BC"),
    ],
)
def test_an_address_is_resolved_against_the_stream(reference: str, expected: str) -> None:
    found = announced(STREAM, reference)
    assert isinstance(found, Endpoint)
    assert found.url == expected


@pytest.mark.parametrize(
    ("reference", "elsewhere"),
    [
        ("//evil.example/m?SEKRET", "https://evil.example"),
        ("http://example.com/m", "http://example.com"),
        ("https://example.com:444/m", "https://example.com:444"),
        ("https://example.com./m", "https://example.com."),
        ("https://example.com.evil.example/", "https://example.com.evil.example"),
    ],
)
def test_an_address_of_another_origin_is_refused(reference: str, elsewhere: str) -> None:
    found = announced(STREAM, reference)
    assert isinstance(found, Refusal)
    assert (found.reason, found.location) == ("cross_origin_endpoint", elsewhere)
    assert "SEKRET" not in found.why


@pytest.mark.parametrize(
    "reference",
    ["", " \n", "/a b", "\\\\evil.example\\m", "https:\\evil.example", "https://user@example.com/", "ftp://x/",
     "javascript:x", "https://[/", "https://example.com:0/", "/" + "x" * 9000],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(reference: str) -> None:
    found = announced(STREAM, reference)
    assert isinstance(found, Refusal)
    assert (found.reason, found.location) == ("malformed", None)


@given(st.text(max_size=40) | st.from_regex(r"(https?:)?//[^\s]{0,12}example\.com[^\s]{0,12}"))
def test_no_address_leads_elsewhere(reference: str) -> None:
    found = announced(STREAM, reference)
    if isinstance(found, Endpoint):
        parts = urlsplit(found.url)
        assert (parts.scheme, parts.netloc) == ("https", "example.com")
        assert found.url.isascii()
