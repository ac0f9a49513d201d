"""What outlives a call, as text: it comes back as it was, or as nothing."""

from __future__ import annotations

import json
from time import gmtime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snodo_client.auth.records import Credential, Pending
from support.oauth_flows import JSON

TEXT = st.text(max_size=30)
SOMETIMES = st.none() | TEXT
TIMES = st.none() | st.floats(0, 1e10) | st.integers(0, 10**10)

CREDENTIAL: dict[str, Any] = {"access_token": "geheim", "issuer": "https://as.example", "requested": ["a"]}
PENDING: dict[str, Any] = {
    "server": "https://mcp.example/mcp",
    "issuer": "https://as.example",
    "client_id": "client",
    "redirect_uri": "http://localhost:8765/callback",
    "state": "geheim-1",
    "verifier": "geheim-2",
    "begun_at": 5.0,
    "requested": ["a"],
}


def members(record: Credential | Pending) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


@given(
    st.builds(
        Credential,
        TEXT,
        issuer=TEXT,
        client_id=SOMETIMES,
        resource=SOMETIMES,
        expires_at=TIMES,
        renew_at=TIMES,
        refresh_token=SOMETIMES,
        scope=SOMETIMES,
        requested=st.lists(TEXT, max_size=3).map(tuple),
        dpop_key=SOMETIMES,
        at_origin=st.booleans(),
    )
)
def test_a_credential_comes_back_as_it_was(credential: Credential) -> None:
    back = Credential.of(credential.text())
    assert back is not None
    assert members(back) == members(credential)


@given(
    st.builds(
        Pending,
        server=TEXT,
        issuer=TEXT,
        client_id=TEXT,
        redirect_uri=TEXT,
        state=TEXT,
        verifier=TEXT,
        begun_at=st.floats(0, 1e10),
        sends_iss=st.booleans(),
        resource=SOMETIMES,
        requested=st.lists(TEXT, max_size=3).map(tuple),
        dpop=st.booleans(),
        at_origin=st.booleans(),
    )
)
def test_a_sign_in_that_was_begun_comes_back_as_it_was(pending: Pending) -> None:
    back = Pending.of(pending.text())
    assert back is not None
    assert members(back) == members(pending)


def usable(record: Credential | Pending | None) -> None:
    """What came back can be used: compared with the time, encoded, shown."""
    if isinstance(record, Credential):
        assert isinstance(record.client_id, str | None)
        assert record.expires(0.0) in (True, False)
        gmtime(record.expires_at or 0)
        record.access_token.encode()
    elif isinstance(record, Pending):
        assert isinstance(1.0 - record.begun_at, float)
        (record.state + record.verifier + record.redirect_uri).encode()
    if record is not None:
        assert type(record).of(record.text()) is not None
        repr(record)


def over(base: dict[str, Any]) -> st.SearchStrategy[str]:
    """The text of a record, some members of which are anything."""
    odd = JSON | st.text(st.characters(), max_size=5) | st.just(10**400)
    changed = st.dictionaries(st.sampled_from([*base, *Credential.__slots__, *Pending.__slots__]), odd, max_size=3)
    return changed.map(lambda members: json.dumps({**base, **members}))


@given(st.text(st.characters(), max_size=50) | JSON.map(json.dumps) | over(CREDENTIAL))
@example(json.dumps({**CREDENTIAL, "expires_at": 10**400}))
@example(json.dumps({**CREDENTIAL, "access_token": "\ud800"}))
@example(json.dumps({**CREDENTIAL, "client_id": 5}))
@example("\ud800")
def test_any_text_is_a_credential_or_none(text: str) -> None:
    usable(Credential.of(text))


@given(st.text(st.characters(), max_size=50) | JSON.map(json.dumps) | over(PENDING))
@example(json.dumps({**PENDING, "begun_at": 10**400}))
@example(json.dumps({**PENDING, "state": "\ud800"}))
@example("\ud800")
def test_any_text_is_a_sign_in_that_was_begun_or_none(text: str) -> None:
    usable(Pending.of(text))


@pytest.mark.parametrize("name", [*CREDENTIAL])
def test_a_credential_needs_what_it_needs(name: str) -> None:
    assert Credential.of(json.dumps(CREDENTIAL)) is not None
    assert Credential.of(json.dumps({**CREDENTIAL, name: None})) is None
    assert Credential.of(json.dumps({key: value for key, value in CREDENTIAL.items() if key != name})) is None


@pytest.mark.parametrize("name", [*PENDING])
def test_a_sign_in_needs_what_it_needs(name: str) -> None:
    assert Pending.of(json.dumps(PENDING)) is not None
    assert Pending.of(json.dumps({**PENDING, name: None})) is None
    assert Pending.of(json.dumps({key: value for key, value in PENDING.items() if key != name})) is None


def test_what_a_later_version_adds_is_passed_over() -> None:
    assert Credential.of(json.dumps({**CREDENTIAL, "new": [1]})) is not None
    assert Pending.of(json.dumps({**PENDING, "new": [1]})) is not None


def test_a_token_is_renewed_before_its_end() -> None:
    token = Credential("x", issuer="https://as.example", expires_at=1000.0, renew_at=970.0)
    assert [token.expires(now) for now in (969.0, 970.0, 1001.0)] == [False, True, True]
    assert [token.expired(now) for now in (999.0, 1000.0)] == [False, True]


def test_a_token_without_an_end_is_not() -> None:
    token = Credential("x", issuer="https://as.example")
    assert not token.expires(1e11)
    assert not token.expired(1e11)


def test_nothing_secret_is_shown() -> None:
    for record in (Credential.of(json.dumps(CREDENTIAL)), Pending.of(json.dumps(PENDING))):
        assert "as.example" in repr(record)
        assert "geheim" not in repr(record)
