"""What a token store is, and the one in memory."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from snodo_client.auth.file_store import FileTokenStore
from snodo_client.auth.stores import MemoryTokenStore, TokenStore, as_store
from support.forking import in_a_child
from support.waiting import together

CANARY = "geheim-1f0c"

stores = pytest.mark.parametrize(
    "new",
    [lambda folder: MemoryTokenStore(), lambda folder: FileTokenStore(folder / "tokens.json")],
    ids=["memory", "file"],
)


@stores
def test_what_is_set_is_kept_until_it_is_deleted(new: Callable[[Path], TokenStore], tmp_path: Path) -> None:
    store = as_store(new(tmp_path))
    assert store.get("a") is None
    store.delete("a")
    store.set("a", CANARY)
    store.set("b ü\0\n", '{"x": "é\U0001f511"}')
    assert (store.get("a"), store.get("b ü\0\n"), store.get("c")) == (CANARY, '{"x": "é\U0001f511"}', None)
    store.set("a", "")
    assert store.get("a") == ""
    store.delete("a")
    store.delete("a")
    assert (store.get("a"), store.get("b ü\0\n")) == (None, '{"x": "é\U0001f511"}')


@stores
@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (1, "x", TypeError),
        ("k", None, TypeError),
        ("k", CANARY.encode(), TypeError),
        ("k", CANARY + "\ud800", ValueError),
        ("k\udfff", CANARY, ValueError),
    ],
)
def test_only_text_is_kept(
    new: Callable[[Path], TokenStore], tmp_path: Path, key: str, value: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        new(tmp_path).set(key, value)
    assert CANARY not in repr(raised.value)
    assert raised.value.__context__ is None
    assert list(tmp_path.iterdir()) == []


@stores
def test_threads_share_a_store(new: Callable[[Path], TokenStore], tmp_path: Path) -> None:
    store = new(tmp_path)

    def use(name: str) -> None:
        for count in range(5):
            store.set(name, str(count))
            assert store.get(name) == str(count)
        store.delete(name)
        store.set(f"{name} is done", "yes")

    together(partial(use, f"thread {number}") for number in range(32))
    assert all(store.get(f"thread {number}") is None for number in range(32))
    assert all(store.get(f"thread {number} is done") == "yes" for number in range(32))


def test_copies_of_a_store_in_memory_are_empty() -> None:
    store = MemoryTokenStore()
    store.set("a", CANARY)
    data = pickle.dumps(store)
    assert CANARY.encode() not in data
    for other in (pickle.loads(data), copy.copy(store), copy.deepcopy(store)):
        assert isinstance(other, MemoryTokenStore)
        assert other.get("a") is None
    assert store.get("a") == CANARY


def test_a_store_in_memory_shows_how_much_it_holds_and_no_more() -> None:
    store = MemoryTokenStore()
    store.set("https://example.com", CANARY)
    assert repr(store) == "<MemoryTokenStore, 1 entries>"


def test_a_child_of_a_fork_has_what_was_there() -> None:
    store = MemoryTokenStore()
    store.set("a", "old")

    def child() -> str | None:
        found = store.get("a")
        store.set("a", "new")
        return found

    assert in_a_child(child) == "old"
    assert store.get("a") == "old"


class Model:
    def get(self, key: str) -> None: ...
    def set(self, key: str, value: str) -> None: ...
    def delete(self, key: str) -> None: ...


class BadLock(Model):
    lock = 5


def test_three_methods_make_a_store() -> None:
    model = Model()
    assert as_store(model) is model


@pytest.mark.parametrize("value", [None, {}, "tokens.json", Path("tokens.json"), 5, Model, MemoryTokenStore, BadLock()])
def test_what_is_no_store(value: object) -> None:
    with pytest.raises(TypeError, match="token store"):
        as_store(value)
