"""What may be used again and for how long, and which resources a change reaches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.protocol import caching
from snodo_client.protocol.versions import LEGACY, MODERN

VERSION = MODERN[0]


@pytest.mark.parametrize(
    "method",
    [
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    ],
)
def test_six_requests_are_cacheable_and_only_as_they_were_first_made(method: str) -> None:
    assert caching.cacheable(method, {"uri": "a://b"}, VERSION)
    for name in ("cursor", "inputResponses", "requestState"):
        assert not caching.cacheable(method, {"uri": "a://b", name: None}, VERSION)


@pytest.mark.parametrize(
    "method", ["prompts/get", "tools/call", "completion/complete", "tasks/list", "initialize", "x"]
)
def test_nothing_else_is(method: str) -> None:
    assert not caching.cacheable(method, {}, VERSION)


@pytest.mark.parametrize("version", LEGACY)
def test_revisions_without_the_hints_have_no_cacheable_answers(version: str) -> None:
    assert not caching.cacheable("tools/list", {}, version)


@pytest.mark.parametrize(
    ("ttl", "seconds"),
    [
        (1, 0.001),
        (1500, 1.5),
        (5000.0, 5.0),
        (86_400_000, 86_400.0),
        (86_400_001, 86_400.0),
        (10**4000, 86_400.0),
        (1e300, 86_400.0),
        (0, 0.0),
        (-1, 0.0),
        (-0.0, 0.0),
        (0.5, 0.0),
        (1500.5, 0.0),
        (float("nan"), 0.0),
        (float("inf"), 0.0),
        (True, 0.0),
        (False, 0.0),
        ("1000", 0.0),
        (None, 0.0),
        ([1000], 0.0),
    ],
)
def test_the_lifetime_is_a_positive_integer_of_milliseconds_and_a_day_at_most(ttl: Any, seconds: float) -> None:
    assert caching.lifetime({"ttlMs": ttl}) == seconds


def test_an_answer_without_a_lifetime_has_none() -> None:
    assert caching.lifetime({}) == 0.0


@pytest.mark.parametrize("more", [{"nextCursor": ""}, {"nextCursor": "2"}, {"resultType": "input_required"}])
def test_a_page_of_several_and_what_is_not_complete_have_none(more: dict[str, str]) -> None:
    assert caching.lifetime({"ttlMs": 1000, **more}) == 0.0


@pytest.mark.parametrize("more", [{"nextCursor": None}, {"resultType": "complete"}])
def test_a_whole_list_has_one(more: dict[str, Any]) -> None:
    assert caching.lifetime({"ttlMs": 1000, **more}) == 1.0


def test_metadata_counts_but_for_traces() -> None:
    traces = {"traceparent": "t", "tracestate": "s", "baggage": "b", "progressToken": "p"}
    assert caching.relevant({"com.example/tenant": 1, **traces}) == {"com.example/tenant": 1}


@pytest.mark.parametrize(
    ("uri", "reached"),
    [
        ("file:///a/b.txt", ["file:///a/b.txt", "file:///a/", "file:///a", "file:///", "file://"]),
        ("file:///a/b/", ["file:///a/b/", "file:///a/b", "file:///a/", "file:///a", "file:///", "file://"]),
        ("db://host/t?row=1#c", ["db://host/t?row=1#c", "db://host/t", "db://host/", "db://host"]),
        ("memo://insights", ["memo://insights"]),
        ("urn:isbn:1/2", ["urn:isbn:1/2"]),
        ("", [""]),
    ],
)
def test_a_change_reaches_a_resource_and_what_is_above_it(uri: str, reached: list[str]) -> None:
    assert caching.with_parents(uri) == reached


@pytest.mark.parametrize("uri", ["a://" + "/" * 65, "a://" + "x" * 8192])
def test_a_uri_that_is_too_much_reaches_nothing_in_particular(uri: str) -> None:
    assert caching.with_parents(uri) == []


@given(st.text(st.sampled_from("ab/:?#"), max_size=40))
def test_what_is_reached_is_the_uri_and_beginnings_of_it(uri: str) -> None:
    reached = caching.with_parents(uri)
    assert reached[0] == uri
    assert len(set(reached)) == len(reached)
    assert all(uri.startswith(above) for above in reached)
