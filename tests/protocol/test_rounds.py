"""The request that brings what was asked for: the original parameters, the last responses and the last state."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client import InputRequired
from snodo_client.protocol import jsonrpc, rounds

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PARAMS = st.dictionaries(st.sampled_from(["name", "arguments", "uri", *rounds.MEMBERS]) | TEXT, JSON, max_size=5)
STATES = st.none() | TEXT


def asked(state: str | None, *keys: str) -> InputRequired:
    requests = {key: {"method": "roots/list"} for key in keys}
    result: dict[str, Any] = {"resultType": "input_required", "inputRequests": requests, "requestState": state}
    return InputRequired({name: value for name, value in result.items() if value is not None})


@given(PARAMS, STATES, st.dictionaries(TEXT, st.dictionaries(TEXT, JSON, max_size=2), max_size=3))
def test_the_next_round_has_the_original_params_the_last_responses_and_the_last_state(
    params: dict[str, Any], state: str | None, responses: dict[str, Any]
) -> None:
    before = copy.deepcopy(params)
    made = rounds.next_params(params, asked(state, *responses), responses)
    assert params == before
    assert rounds.without_members(made) == rounds.without_members(before)
    assert made.get("inputResponses") == (responses or None)
    assert made.get("requestState") == state
    assert ("requestState" in made, "inputResponses" in made) == (state is not None, bool(responses))


@given(PARAMS, st.lists(st.tuples(STATES, st.lists(TEXT, max_size=3, unique=True)), min_size=1, max_size=4))
def test_nothing_is_kept_of_earlier_rounds(params: dict[str, Any], asking: list[tuple[str | None, list[str]]]) -> None:
    made = params
    for state, keys in asking:
        made = rounds.next_params(made, asked(state, *keys), {key: {"roots": []} for key in keys})
    state, keys = asking[-1]
    assert made == rounds.next_params(params, asked(state, *keys), {key: {"roots": []} for key in keys})


@given(st.text())
def test_a_state_goes_back_byte_for_byte_or_not_at_all(state: str) -> None:
    outcome = asked(state)
    if not rounds.can_go_back(outcome):
        assert any("\ud800" <= character <= "\udfff" for character in state)
        return
    sent = jsonrpc.encode(rounds.next_params({}, outcome, {}))
    assert json.loads(sent)["requestState"] == state


@pytest.mark.parametrize(("state", "key"), [("\ud800", "a"), (None, "\udc00"), ("a\ud83d", "a")])
def test_half_a_character_cannot_go_back(state: str | None, key: str) -> None:
    assert not rounds.can_go_back(asked(state, key))


@pytest.mark.parametrize(("state", "key"), [(None, ""), ("", "a"), ("\x00\u2028\U0001f600", "\U0001f600")])
def test_everything_else_can(state: str | None, key: str) -> None:
    assert rounds.can_go_back(asked(state, key))


def test_params_of_a_first_round_are_not_even_copied() -> None:
    params = {"name": "t", "arguments": {"inputResponses": 1, "requestState": 2}}
    assert rounds.without_members(params) is params
