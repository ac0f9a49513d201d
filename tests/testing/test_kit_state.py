"""Sealed input rounds: only what this server sealed, for this request, in time."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snodo_client.testing import state
from snodo_client.testing.state import Sealer

SEALER = Sealer()


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.dictionaries(st.text(), st.booleans())), st.integers(1, 1000))
def test_what_is_sealed_opens(answers: dict[str, dict[str, bool]], attempts: int) -> None:
    assert SEALER.open(SEALER.seal([answers, attempts], ["s"]), ["s"]) == [answers, attempts]


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(1, 255))
def test_no_changed_byte_opens(index: int, change: int) -> None:
    sealed = bytearray(b64decode(SEALER.seal({"a": 1}, "s")))
    sealed[index % len(sealed)] ^= change
    with pytest.raises(ValueError, match="not a state"):
        SEALER.open(b64encode(sealed).decode(), "s")


@pytest.mark.parametrize("text", ["", "A", "####", "é", "QUJD"])
def test_no_foreign_text_opens(text: str) -> None:
    with pytest.raises(ValueError, match="not a state"):
        SEALER.open(text, "s")


def test_another_subject_or_another_key_does_not_open() -> None:
    sealed = SEALER.seal(7, ["a", {"b": 1}])
    assert SEALER.open(sealed, ["a", {"b": 1}]) == 7
    for sealer, subject in ((SEALER, ["a", {"b": 2}]), (Sealer(), ["a", {"b": 1}])):
        with pytest.raises(ValueError, match="not a state"):
            sealer.open(sealed, subject)


def test_states_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "LIFETIME", -1.0)
    sealed = SEALER.seal({}, "s")
    with pytest.raises(ValueError, match="expired"):
        SEALER.open(sealed, "s")


@settings(deadline=None)
@given(st.text())
def test_a_chosen_text_opens_for_its_request_alone(text: str) -> None:
    sealer = Sealer()
    assert sealer.choose(text, [1], "s") == text
    assert sealer.open(text, "s") == [1]
    for other, subject in ((text + "A", "s"), (text, "t")):
        with pytest.raises(ValueError, match="not a state"):
            sealer.open(other, subject)


def test_the_oldest_chosen_texts_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_CHOSEN", 2)
    sealer = Sealer()
    for text in "abc":
        sealer.choose(text, text, "s")
    assert [sealer.open(text, "s") for text in "bc"] == ["b", "c"]
    with pytest.raises(ValueError, match="not a state"):
        sealer.open("a", "s")
