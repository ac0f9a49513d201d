"""Which redirect URIs there may be, and which addresses are an answer to a sign-in."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.auth.redirects import CALLBACK, check_redirect_uri, fault, is_refusal, port_of, state_of


@pytest.mark.parametrize(
    "uri",
    [
        CALLBACK,
        "http://localhost/callback",
        "http://app.localhost:1/",
        "http://127.0.0.1:8080/cb",
        "http://127.8.9.1:8080/cb",
        "http://[::1]:8080/cb?fixed=1",
        "https://app.example/oauth/callback",
        "com.example.app:/callback",
        "com.example.app:callback",
    ],
)
def test_a_redirect_uri_is_given_back_as_it_is(uri: str) -> None:
    assert check_redirect_uri(uri) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "callback",
        "http://example.com/callback",
        "http://localhost.example.com/callback",
        "http://0.0.0.0:8080/callback",
        "http://[::]:8080/callback",
        "http://192.168.0.1:8080/callback",
        "http://user:pass@localhost:8080/callback",
        "http://localhost:8080/callback#part",
        "http://localhost:99999/callback",
        "http://localhost:0/callback",
        "https:///callback",
        "https://app.example/call back",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "com.example.app:",
        "com.example.app:/cb#part",
        "com.example.app:/c\nb",
        "https://app.example/" + "a" * 2048,
    ],
)
def test_any_other_is_a_value_error_that_does_not_quote_it(uri: str) -> None:
    with pytest.raises(ValueError, match="redirect_uri") as caught:
        check_redirect_uri(uri)
    assert "pass@" not in str(caught.value)


def test_what_is_no_string_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="redirect_uri must be a string, not bytes"):
        check_redirect_uri(b"http://localhost:1/")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("uri", "port"),
    [
        ("http://localhost:8765/callback", 8765),
        ("http://[::1]:1/", 1),
        ("http://localhost/callback", None),
        ("https://localhost:8765/callback", None),
        ("http://0.0.0.0:8765/callback", None),
        ("http://example.com:8765/callback", None),
        ("com.example.app:/callback", None),
        ("nonsense", None),
    ],
)
def test_a_port_to_listen_at_is_of_this_machine_only(uri: str, port: int | None) -> None:
    assert port_of(uri) == port


@pytest.mark.parametrize("query", ["code=c&state=s", "state=s&error=access_denied", "iss=i&code=c&state=s&more="])
def test_a_code_or_an_error_with_the_state_is_an_answer(query: str) -> None:
    assert fault(query, "s") is None


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("", "neither"),
        ("state=s", "neither"),
        ("code=&state=s", "neither"),
        ("code=c", "another sign-in"),
        ("error=access_denied", "another sign-in"),
        ("code=c&state=t", "another sign-in"),
        ("code=c&state=%ff", "another sign-in"),
        ("code=c&code=d&state=s", "code twice"),
        ("code=c&state=s&state=s", "state twice"),
        ("code=c&state=s&iss=a&iss=b", "iss twice"),
        ("code=c&state=s" + "&a=b" * 100, "too many"),
    ],
)
def test_anything_else_is_none(query: str, why: str) -> None:
    found = fault(query, "s")
    assert found is not None
    assert why in found


def test_without_a_state_none_is_compared() -> None:
    assert fault("code=c", None) is None
    assert state_of("https://as.example/authorize?client_id=x") is None
    assert state_of("https://as.example/authorize?state=a%2Bb") == "a+b"


def test_a_refusal_is_told_from_a_code() -> None:
    assert is_refusal("error=access_denied&state=s")
    assert not is_refusal("code=error&state=s")


@given(st.text(max_size=200), st.text(max_size=20))
def test_no_query_raises_and_no_answer_quotes_it(query: str, state: str) -> None:
    why = fault(query, state)
    assert why is None or why.isascii()


@given(st.text(min_size=1, max_size=50), st.text(max_size=50))
def test_every_state_finds_its_own_answer(code: str, state: str) -> None:
    query = urlencode({"code": code, "state": state})
    assert fault(query, state) is None
    assert fault(query, state + "x") is not None
    assert state_of("https://as.example/authorize?state=" + quote(state, safe="")) == (state or None)
