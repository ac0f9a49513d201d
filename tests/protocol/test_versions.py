"""Protocol revisions: their eras, what `protocol=` allows, and picking one both sides know."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.protocol import versions

NEW, OLD = "2026-07-28", "2025-11-25"


def test_names_are_unique_and_newest_first() -> None:
    assert sorted(versions.KNOWN, reverse=True) == list(versions.KNOWN)
    assert len(set(versions.KNOWN)) == len(versions.KNOWN)


@pytest.mark.parametrize("version", versions.KNOWN)
def test_only_the_newest_revision_is_modern(version: str) -> None:
    assert versions.era(version) == ("modern" if version == NEW else "legacy")


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ("auto", versions.KNOWN),
        (NEW, (NEW,)),
        ([NEW], (NEW,)),
        ((NEW, NEW), (NEW,)),
        ({NEW}, (NEW,)),
    ],
)
def test_allowed_is_in_order_and_without_repeats(protocol: Any, expected: tuple[str, ...]) -> None:
    assert versions.allowed(protocol) == expected


def test_older_versions_may_be_allowed() -> None:
    assert versions.allowed(OLD) == (OLD,)
    assert versions.allowed([OLD, NEW]) == (NEW, OLD)


@pytest.mark.parametrize("protocol", ["", "2026-07-29", [], (), [NEW, "auto"], [None], [[]], ["2026-07-28 "]])
def test_unknown_versions_are_refused(protocol: Any) -> None:
    with pytest.raises(ValueError, match="protocol="):
        versions.allowed(protocol)


@pytest.mark.parametrize(
    ("supported", "expected"),
    [
        ([NEW], NEW),
        ([OLD, NEW], NEW),
        ([OLD], OLD),
        (["2099-01-01", OLD, 5, None, []], OLD),
        (["2099-01-01"], None),
        ([], None),
        (None, None),
        (NEW, None),
        ({NEW: 1}, None),
    ],
)
def test_mutual_is_the_newest_both_know(supported: object, expected: str | None) -> None:
    assert versions.mutual(versions.KNOWN, supported) == expected


@given(st.recursive(st.none() | st.booleans() | st.text() | st.integers(), st.lists, max_leaves=5))
def test_mutual_takes_anything_a_server_may_send(supported: object) -> None:
    assert versions.mutual(versions.KNOWN, supported) in (None, *versions.KNOWN)
