"""Filters of subscriptions, what is granted of them, and which notifications are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.protocol.subscriptions import granted, wanted

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
MEMBERS = ["toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "taskIds", "x"]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "toolsListChanged": st.booleans(),
        "promptsListChanged": st.booleans(),
        "resourcesListChanged": st.booleans(),
        "resourceSubscriptions": st.lists(st.sampled_from("abc"), max_size=3),
        "taskIds": st.lists(st.text(max_size=3), max_size=2),
    },
)
GRANTS = st.dictionaries(st.sampled_from(MEMBERS), JSON | st.lists(st.sampled_from("abcd")), max_size=6)


# -- filters


def test_a_filter_of_the_wire_is_sent_as_it_is() -> None:
    filter = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": ["a"], "taskIds": ["t"]}
    sent = wanted(MappingProxyType(filter))
    assert sent == filter
    sent["resourceSubscriptions"].append("b")
    assert filter["resourceSubscriptions"] == ["a"]
    assert wanted({"resourceSubscriptions": ("a", "b")}) == {"resourceSubscriptions": ["a", "b"]}


@pytest.mark.parametrize("names", [[PROMPTS, TOOLS], (TOOLS, PROMPTS), {TOOLS, PROMPTS}, frozenset({PROMPTS, TOOLS})])
def test_names_of_notifications_stand_for_a_filter(names: Any) -> None:
    assert wanted(names) == {"toolsListChanged": True, "promptsListChanged": True}


def test_every_list_has_a_name() -> None:
    assert wanted([RESOURCES]) == {"resourcesListChanged": True}
    assert wanted([]) == wanted({}) == {}


@pytest.mark.parametrize(
    "filter", [None, TOOLS, TOOLS.encode(), 5, True, iter([TOOLS]), [5], [None], [b"x"], [[TOOLS]]]
)
def test_what_is_no_filter(filter: Any) -> None:
    with pytest.raises(TypeError):
        wanted(filter)


@pytest.mark.parametrize("name", ["tools/list_changed", "toolsListChanged", "", "notifications/message"])
def test_other_names_are_told_from_those_there_are(name: str) -> None:
    with pytest.raises(ValueError, match=TOOLS):
        wanted([TOOLS, name])


def test_updates_need_a_uri() -> None:
    with pytest.raises(ValueError, match="resourceSubscriptions"):
        wanted([UPDATED])


@pytest.mark.parametrize("value", [1, "true", None, []])
@pytest.mark.parametrize("member", MEMBERS[:3])
def test_switches_are_booleans(member: str, value: Any) -> None:
    with pytest.raises(TypeError, match=member):
        wanted({member: value})


@pytest.mark.parametrize("value", ["file:///a", None, True, [1], [b"x"], {"a": 1}])
def test_uris_are_a_list_of_strings(value: Any) -> None:
    with pytest.raises(TypeError, match="resourceSubscriptions"):
        wanted({"resourceSubscriptions": value})


# -- what is granted


def test_all_of_it() -> None:
    filter = {"toolsListChanged": True, "resourceSubscriptions": ["a", "b"], "taskIds": ["t"]}
    grant = granted(filter, {"notifications": filter})
    assert grant is not None
    assert (grant.accepted, grant.surplus) == (filter, [])


def test_a_part_of_it() -> None:
    filter = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["a", "b"]}
    told = {"promptsListChanged": True, "toolsListChanged": False, "resourceSubscriptions": ["b"]}
    grant = granted(filter, {"notifications": told})
    assert grant is not None
    assert grant.accepted == {"promptsListChanged": True, "resourceSubscriptions": ["b"]}
    assert grant.surplus == []
    assert [grant.covers(name, {}) for name in (TOOLS, PROMPTS, RESOURCES)] == [False, True, False]


def test_more_than_was_asked_for_is_as_much_as_was_asked_for() -> None:
    told = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["a", "c"], "taskIds": []}
    grant = granted({"toolsListChanged": True, "promptsListChanged": False}, {"notifications": told})
    assert grant is not None
    assert grant.accepted == {"toolsListChanged": True}
    assert grant.surplus == ["promptsListChanged", "resourceSubscriptions", "taskIds"]
    assert not grant.covers(PROMPTS, {})
    assert not grant.covers(UPDATED, {"uri": "a"})


@pytest.mark.parametrize("params", [{}, {"notifications": None}, {"notifications": [TOOLS]}, {"notifications": True}])
def test_an_acknowledgement_that_says_nothing(params: Any) -> None:
    assert granted({"toolsListChanged": True}, params) is None


def test_values_of_another_type_grant_nothing() -> None:
    told = {"toolsListChanged": 1, "promptsListChanged": "true", "resourceSubscriptions": True}
    filter = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["a"]}
    grant = granted(filter, {"notifications": told})
    assert grant is not None
    assert grant.accepted == {}
    assert grant.surplus == list(told)


def test_an_update_may_be_of_something_inside_a_resource() -> None:
    grant = granted(
        {"resourceSubscriptions": ["file:///a"]}, {"notifications": {"resourceSubscriptions": ["file:///a"]}}
    )
    assert grant is not None
    assert grant.covers(UPDATED, {"uri": "file:///a/b.txt"})
    assert not grant.covers(UPDATED, {})
    assert not grant.covers(UPDATED, {"uri": 5})


def test_a_server_may_write_a_uri_in_its_own_way() -> None:
    told = {"notifications": {"resourceSubscriptions": ["http://h/"]}}
    grant = granted({"resourceSubscriptions": ["http://h"]}, told)
    assert grant is not None
    assert (grant.accepted, grant.surplus) == ({"resourceSubscriptions": []}, ["resourceSubscriptions"])
    assert grant.covers(UPDATED, {"uri": "http://h/"})


def test_notifications_of_an_extension_come_with_its_member() -> None:
    told = {"notifications": {"taskIds": ["t"], "toolsListChanged": True}}
    extended = granted({"taskIds": ["t", "u"], "toolsListChanged": True}, told)
    plain = granted({"toolsListChanged": True}, told)
    assert extended is not None
    assert plain is not None
    assert extended.accepted == {"taskIds": ["t"], "toolsListChanged": True}
    assert (extended.covers("notifications/tasks", {}), plain.covers("notifications/tasks", {})) == (True, False)
    for name in ("notifications/progress", "notifications/message", PROMPTS, UPDATED):
        assert not extended.covers(name, {"uri": "a"})


@given(FILTERS, JSON | GRANTS)
def test_whatever_is_acknowledged_no_more_is_accepted_than_was_asked(filter: dict[str, Any], told: Any) -> None:
    grant = granted(filter, {"notifications": told})
    if grant is None:
        assert not isinstance(told, Mapping)
        return
    for member, value in grant.accepted.items():
        if member in MEMBERS[:3]:
            assert value is True
            assert filter[member] is True
        elif member == "resourceSubscriptions":
            assert set(value) <= set(filter[member])
        else:
            assert member in filter
    for name, member in zip((TOOLS, PROMPTS, RESOURCES), MEMBERS, strict=False):
        assert grant.covers(name, {}) == (member in grant.accepted)
    assert grant.covers(UPDATED, {"uri": "a/b"}) == ("resourceSubscriptions" in grant.accepted)
