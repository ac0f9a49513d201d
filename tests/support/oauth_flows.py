"""Drives the flows of authorization: with replies that are at hand, or with real servers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from hypothesis import strategies as st

from snodo_client.auth.discovery import ServerMetadata, server_metadata
from snodo_client.auth.fetching import Fetcher
from snodo_client.auth.steps import Fetch, Reply
from snodo_client.auth.urls import Rules
from snodo_client.engine.deadline import Deadline

if TYPE_CHECKING:
    from snodo_client import ConnectSpec
    from snodo_client.auth.steps import Flow

T = TypeVar("T")
ISSUER = "https://as.example"

# What a server may put into any member.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=10), values, max_size=3),
    max_leaves=6,
)


def reply(said: object, status: int = 200, **headers: str) -> Reply:
    """An answer with a JSON body, or with these very bytes; underscores in names of headers stand for hyphens."""
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    return Reply(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def run(flow: Flow[T], replies: Iterable[Reply], sent: list[Fetch] | None = None) -> T:
    """What the flow returns. Each of its requests goes to `sent`; it must make as many as there are replies."""
    waiting = list(replies)
    sent = [] if sent is None else sent
    try:
        sent.append(next(flow))
        while waiting:
            sent.append(flow.send(waiting.pop(0)))
    except StopIteration as done:
        assert not waiting, f"{len(waiting)} replies were not asked for"
        return done.value  # type: ignore[no-any-return]
    raise AssertionError(f"nothing was left to answer {sent[-1]!r}")


def fetched(flow: Flow[T]) -> T:
    """What the flow returns, with real servers."""
    try:
        fetch = next(flow)
        while True:
            fetch = flow.send(Fetcher().fetch(fetch, Deadline(10), _wanted))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def _wanted() -> None:
    """Nobody cancels."""


def metadata(**members: Any) -> ServerMetadata:
    """What the authorization server `ISSUER` publishes, with these members in place of the usual ones; None removes."""
    document = {
        "issuer": ISSUER,
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        "registration_endpoint": f"{ISSUER}/register",
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        **members,
    }
    published = {name: value for name, value in document.items() if value is not None}
    return run(server_metadata(ISSUER, Rules(local=False, insecure_http=False)), [reply(published)])


def form(fetch: Fetch) -> dict[str, str]:
    """The parameters of a form that is sent."""
    assert fetch.headers["Content-Type"] == "application/x-www-form-urlencoded"
    pairs = parse_qsl((fetch.body or b"").decode("ascii"), keep_blank_values=True, strict_parsing=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def works(spec: ConnectSpec) -> bool:
    """For a process of a pool: whether a call of a tool succeeds."""
    with spec.connect() as client:
        return client.call_tool("test-tool").ok
