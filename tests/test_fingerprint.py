"""Different values have different fingerprints, however they are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from snodo_client.fingerprint import fingerprint

PARTS = st.lists(st.one_of(st.binary(max_size=3), st.text(st.characters(codec=None), max_size=3)), max_size=4)


def plain(parts: list[bytes | str]) -> list[bytes]:
    return [part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts]


@given(PARTS, PARTS)
def test_only_the_same_parts_have_the_same_fingerprint(one: list[bytes | str], other: list[bytes | str]) -> None:
    assert (fingerprint(*one) == fingerprint(*other)) == (plain(one) == plain(other))


def test_half_characters_are_told_apart() -> None:
    assert fingerprint("\ud800") != fingerprint("\ud801")
