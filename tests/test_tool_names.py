"""Names of tools that every model's API takes, and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client import tool_names

TAKEN_EVERYWHERE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
NAMES = st.text(st.sampled_from("ab9_-./ é天"), min_size=1, max_size=80) | st.text(min_size=1, max_size=80)


@pytest.mark.parametrize(
    ("server", "prefix"),
    [
        ("weather", "weather"),
        ("Weather-2", "Weather-2"),
        ("my_server", "my_server"),
        ("my server / test", "my_server_test"),
        ("__a__b__", "a_b"),
        ("@scope/name", "scope_name"),
    ],
)
def test_a_plain_name_is_its_own_prefix(server: str, prefix: str) -> None:
    assert tool_names.prefix(server) == prefix


@pytest.mark.parametrize(
    ("one", "other"),
    [("天气", "地图"), ("é", "e"), ("天气-1", "地图-1"), ("1", "2"), ("a" * 40 + "1", "a" * 40 + "2"), ("!", "?")],
)
def test_names_that_lose_something_are_told_apart(one: str, other: str) -> None:
    assert tool_names.prefix(one) != tool_names.prefix(other)


def test_a_tool_keeps_its_name_where_it_can() -> None:
    assert tool_names.joined("weather", "get_forecast") == "weather__get_forecast"
    assert tool_names.joined("a", "_b__c_") == "a___b__c_"
    assert tool_names.split("a___b__c_") == ("a", "_b__c_")
    assert tool_names.joined("a", "files.read") == "a__files_read-db2d8d79"
    assert tool_names.is_marked("files_read-db2d8d79")
    assert not tool_names.is_marked("files_read")


@given(NAMES, NAMES | st.just(""))
def test_every_name_is_taken_and_leads_back_to_its_server(server: str, tool: str) -> None:
    prefix = tool_names.prefix(server)
    name = tool_names.joined(prefix, tool)
    assert TAKEN_EVERYWHERE.fullmatch(name)
    before, after = tool_names.split(name)
    assert before == prefix
    assert after == tool or tool_names.is_marked(after)


@given(st.lists(NAMES, min_size=2, max_size=8, unique=True))
def test_the_tools_of_one_server_are_told_apart(tools: list[str]) -> None:
    assert len({tool_names.joined("server", tool) for tool in tools}) == len(tools)
