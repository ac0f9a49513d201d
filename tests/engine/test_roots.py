"""The roots a client offers: what may be one, in which order they stand, and what counts as a change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snodo_client.engine.roots import Roots, problem_of_uri
from support import mcp_schema
from support.waiting import together


def test_they_stand_in_the_order_they_were_added_each_once() -> None:
    roots = Roots()
    assert roots.add("file:///b")
    assert roots.add("file:///a", "A")
    assert not roots.add("file:///b")
    assert roots.listed() == [{"uri": "file:///b"}, {"uri": "file:///a", "name": "A"}]
    mcp_schema.check({"roots": roots.listed()}, "ListRootsResult")


def test_another_name_is_a_change_and_keeps_the_place() -> None:
    roots = Roots()
    roots.add("file:///a", "A")
    roots.add("file:///b")
    assert roots.add("file:///a", "Z")
    assert roots.listed() == [{"uri": "file:///a", "name": "Z"}, {"uri": "file:///b"}]
    assert roots.add("file:///a")
    assert roots.listed()[0] == {"uri": "file:///a"}


def test_removing_and_clearing_tell_whether_anything_changed() -> None:
    roots = Roots()
    assert not roots.remove("file:///a")
    assert not roots.clear()
    roots.add("file:///a")
    roots.add("file:///b")
    assert roots.remove("file:///a")
    assert roots.listed() == [{"uri": "file:///b"}]
    assert roots.clear()
    assert roots.listed() == []


def test_a_list_once_given_does_not_change() -> None:
    roots = Roots()
    roots.add("file:///a")
    listed = roots.listed()
    listed[0]["name"] = "mine"
    roots.add("file:///b")
    assert listed == [{"uri": "file:///a", "name": "mine"}]
    assert roots.listed()[0] == {"uri": "file:///a"}


def test_a_path_becomes_its_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ä b#?%"
    roots = Roots()
    assert roots.add(folder)
    assert roots.listed() == [{"uri": folder.as_uri()}]
    monkeypatch.chdir(tmp_path)
    assert not roots.add(Path("x", "..", "ä b#?%"))
    assert roots.remove(folder)


@pytest.mark.parametrize(
    "uri", ["file:///", "file:///a", "file:///a/b.c/", "file:///C:/x", "file://host/a", "file:///%20"]
)
def test_uris_that_may_be_roots(uri: str) -> None:
    assert problem_of_uri(uri) is None


@pytest.mark.parametrize(
    "uri",
    [
        "", "/a", "a", "file:", "file:a", "file:/a", "file://", "file://host", "http://h/a", "https://h/a", "FILE:///a",
        "file:///a b", "file:///%", "file:///%4", "file:///%zz", "file:///ä", "file:///a?b", "file:///a#b",
        "file:///a\\b", "file:///a\n", "file://u@h/a", "file:///a/../b", "file:///..", "file:///a/%2e%2E", "file:///.%2e/",
    ],
)  # fmt: skip
def test_uris_that_may_not(uri: str) -> None:
    roots = Roots()
    with pytest.raises(ValueError, match="the URI of a root"):
        roots.add(uri)
    assert roots.listed() == []


def test_dots_inside_a_name_are_no_way_up() -> None:
    assert problem_of_uri("file:///a..b/..c/d../...") is None


@pytest.mark.parametrize(("root", "name"), [(1, None), (None, None), (b"file:///a", None), ("file:///a", 1)])
def test_wrong_types_are_told(root: Any, name: Any) -> None:
    roots = Roots()
    with pytest.raises(TypeError):
        roots.add(root, name)
    assert roots.listed() == []


def test_a_name_that_no_message_can_carry_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        Roots().add("file:///a", "\ud800")


def test_many_threads_add_and_each_change_is_told_once() -> None:
    roots, told = Roots(), []

    def add() -> None:
        told.extend(roots.add(f"file:///{number}") for number in range(200))

    together([add] * 4)
    assert sum(told) == 200
    assert len(roots.listed()) == 200


def test_after_a_fork_the_lock_of_another_thread_is_no_hindrance() -> None:
    roots = Roots()
    roots.add("file:///a")
    held = roots._lock
    jobs: list[Any] = [roots.forked, roots.listed]

    def in_another_thread() -> None:
        for job in jobs:
            job()

    with held:
        together([in_another_thread], 10)
    assert roots.listed() == [{"uri": "file:///a"}]
