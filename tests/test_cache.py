"""The cache and its stores: what is found again, by whom and how long, what a change ends, and what a store may do."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client import cache as module
from snodo_client.cache import Cache, MemoryStore, Store
from support.forking import in_a_child
from support.stores import Clock, DictStore, FolderStore
from support.waiting import until

VERSION = "2026-07-28"
TOOLS = {"resultType": "complete", "tools": [{"name": "a"}], "ttlMs": 60_000, "cacheScope": "public"}
PRIVATE = {**TOOLS, "cacheScope": "private"}
ALICE, BOB = b"alice", b"bob"
UPDATED = "notifications/resources/updated"


def make(store: Store | None = None, endpoint: bytes | None = b"server", **options: Any) -> Cache:
    return Cache(MemoryStore() if store is None else store, options.pop("capabilities", {}), endpoint, **options)


def put(
    cache: Cache,
    result: dict[str, Any] = TOOLS,
    credential: bytes | None = ALICE,
    method: str = "tools/list",
    **params: Any,
) -> None:
    ticket = cache.begin(method, params, VERSION)
    assert ticket is not None
    cache.keep(ticket, result, credential)


def find(cache: Cache, credential: bytes | None = ALICE, method: str = "tools/list", **params: Any) -> Any:
    ticket = cache.begin(method, params, VERSION)
    return ticket and cache.lookup(ticket, credential)


def read(uri: str) -> dict[str, Any]:
    return {"method": "resources/read", "uri": uri}


# -- what is found


def test_what_was_kept_is_found() -> None:
    cache = make()
    assert find(cache) is None
    put(cache)
    assert find(cache) == TOOLS


def test_every_hit_is_of_its_own() -> None:
    cache = make()
    kept = json.loads(json.dumps(TOOLS))
    put(cache, kept)
    kept["tools"].clear()
    find(cache)["tools"].append("mine")
    assert find(cache) == TOOLS


@pytest.mark.parametrize("store", [MemoryStore, DictStore])
def test_it_is_fresh_to_the_millisecond(store: Any) -> None:
    clock, wall = Clock(), Clock(5e9)
    cache = make(store(), clock=clock, wall=wall)
    put(cache, {**TOOLS, "ttlMs": 1500})
    clock.now, wall.now = clock.now + 1.499, wall.now + 1.499
    assert find(cache) is not None
    clock.now, wall.now = clock.now + 0.001, wall.now + 0.001
    assert find(cache) is None


def test_a_clock_set_back_prolongs_nothing_and_a_machine_that_slept_has_no_old_answers() -> None:
    clock, wall = Clock(), Clock(5e9)
    cache = make(DictStore(), clock=clock, wall=wall)
    put(cache, {**TOOLS, "ttlMs": 1500})
    wall.now -= 3600
    assert find(cache) is not None
    clock.now += 1.5
    assert find(cache) is None
    put(cache, {**TOOLS, "ttlMs": 1500})
    wall.now += 1.5
    assert find(cache) is None


@pytest.mark.parametrize(("ms", "seconds"), [(1, 1), (1000, 1), (1001, 2), (1500, 2), (10**12, 86_400)])
def test_a_store_is_told_whole_seconds(ms: int, seconds: int) -> None:
    store = DictStore()
    put(make(store), {**TOOLS, "ttlMs": ms})
    (key,) = store.answers
    assert store.lifetimes[key] == seconds
    assert type(store.lifetimes[key]) is int


def test_what_another_process_kept_is_found_by_the_time_of_day(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from support.stores import FolderStore, Clock\n"
        "from snodo_client.cache import Cache\n"
        "cache = Cache(FolderStore(Path(sys.argv[1])), {}, b'server', wall=Clock(5e9))\n"
        "cache.keep(cache.begin('tools/list', {}, '2026-07-28'), {'ttlMs': 1500, 'cacheScope': 'public'}, None)\n"
    )
    env = {"PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[1]}"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=env, check=True)
    wall = Clock(5e9)
    cache = make(FolderStore(tmp_path), wall=wall)
    assert find(cache) == {"ttlMs": 1500, "cacheScope": "public"}
    for seconds in (1.5, -0.001):  # over; and kept at a time that is still to come
        wall.now = 5e9 + seconds
        assert find(cache) is None


# -- for whom


def test_a_public_answer_is_for_everybody() -> None:
    cache = make()
    put(cache, TOOLS, ALICE)
    assert find(cache, BOB) == find(cache, None) == TOOLS


@pytest.mark.parametrize("scope", ["private", "PUBLIC", "", None, 1, ["public"]])
def test_any_other_is_for_the_credential_it_was_asked_with(scope: Any) -> None:
    cache = make()
    result = {**TOOLS, "cacheScope": scope}
    put(cache, result, ALICE)
    assert find(cache, ALICE) == result
    assert find(cache, BOB) is None
    assert find(cache, None) is None


def test_an_answer_without_a_scope_is_private() -> None:
    cache = make()
    put(cache, {"tools": [], "ttlMs": 1000}, ALICE)
    assert find(cache, ALICE) is not None
    assert find(cache, BOB) is None


def test_a_private_answer_without_a_known_credential_is_not_kept() -> None:
    store = DictStore()
    put(make(store), PRIVATE, None)
    assert store.answers == {}


def test_each_credential_has_its_own_answer() -> None:
    cache = make()
    put(cache, {**PRIVATE, "tools": ["a"]}, ALICE)
    put(cache, {**PRIVATE, "tools": ["b"]}, BOB)
    assert (find(cache, ALICE)["tools"], find(cache, BOB)["tools"]) == (["a"], ["b"])


def test_a_new_credential_finds_nothing_of_the_old_one() -> None:
    cache = make()
    ticket = cache.begin("tools/list", {}, VERSION)
    assert ticket is not None
    assert cache.lookup(ticket, ALICE) is None
    cache.keep(ticket, PRIVATE, BOB)  # signed in meanwhile
    assert find(cache, ALICE) is None
    assert find(cache, BOB) == PRIVATE


# -- of what


def test_other_servers_capabilities_and_metadata_are_other_questions() -> None:
    store = MemoryStore()
    cache = make(store)
    put(cache)
    assert find(make(store)) == TOOLS
    assert find(make(store, b"another")) is None
    assert find(make(store, capabilities={"roots": {}})) is None
    for meta, found in [({"traceparent": "x"}, True), ({"com.example/tenant": "x"}, False)]:
        ticket = cache.begin("tools/list", {}, VERSION, meta)
        assert ticket is not None
        assert (cache.lookup(ticket, ALICE) is not None) is found


def test_clients_of_a_server_that_cannot_be_told_share_nothing() -> None:
    store = MemoryStore()
    one, other = make(store, None), make(store, None)
    put(one)
    assert find(one) == TOOLS
    assert find(other) is None
    one.endpoint = other.endpoint = b"server"
    put(one)
    assert find(other) == TOOLS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.text('ab"\\,:[]{}\u00e9', max_size=3),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text("abu", max_size=2), values, max_size=3),
    max_leaves=6,
)
QUESTION = st.tuples(
    st.sampled_from(["tools/list", "prompts/list", "resources/read", "resources/list"]),
    st.dictionaries(st.sampled_from(["uri", "a", "b"]), JSON, max_size=3),
    st.dictionaries(st.sampled_from(["x.y/a", "x.y/b"]), JSON, max_size=2),
    st.sampled_from([None, b"", b"alice", b"bob"]),
)


@given(QUESTION, QUESTION)
def test_different_questions_never_share_an_answer(one: Any, other: Any) -> None:
    cache = make()
    method, params, meta, credential = one
    ticket = cache.begin(method, params, VERSION, meta)
    assert ticket is not None
    cache.keep(ticket, PRIVATE, credential)
    method, params, meta, credential = other
    ticket = cache.begin(method, params, VERSION, meta)
    assert ticket is not None
    asked = [json.dumps([*question[:3], str(question[3])], sort_keys=True) for question in (one, other)]
    assert (cache.lookup(ticket, credential) is not None) == (asked[0] == asked[1] and credential is not None)


def test_the_order_of_parameters_does_not_matter() -> None:
    cache = make()
    for params in ({"uri": "a:b", "x": {"y": 1, "z": 2}}, {"x": {"z": 2, "y": 1}, "uri": "a:b"}):
        ticket = cache.begin("resources/read", params, VERSION)
        assert ticket is not None
        found = cache.lookup(ticket, ALICE)
        cache.keep(ticket, TOOLS, ALICE)
    assert found == TOOLS


# -- what is not kept


@pytest.mark.parametrize(
    ("method", "params", "version"),
    [
        ("tools/call", {}, VERSION),
        ("prompts/get", {}, VERSION),
        ("tools/list", {"cursor": ""}, VERSION),
        ("resources/read", {"uri": "a:b", "requestState": "s"}, VERSION),
        ("resources/read", {"uri": "a:b", "inputResponses": {}}, VERSION),
        ("tools/list", {}, "2025-11-25"),
    ],
)
def test_there_is_no_ticket_for_what_is_never_kept(method: str, params: dict[str, Any], version: str) -> None:
    store = DictStore()
    assert make(store).begin(method, params, version) is None
    assert store.asked == []


@pytest.mark.parametrize(
    "result",
    [
        {**TOOLS, "ttlMs": 0},
        {**TOOLS, "nextCursor": "2"},
        {**TOOLS, "resultType": "input_required"},
        {**TOOLS, "tools": ["\ud800"]},
        {**TOOLS, "tools": ["x" * module.MAX_VALUE]},
    ],
    ids=["stale at once", "one of several pages", "not complete", "half a character", "too large"],
)
def test_answers_that_are_not_kept(result: dict[str, Any]) -> None:
    store = DictStore()
    put(make(store), result)
    assert store.answers == {}


def test_what_is_forgotten_is_asked_anew() -> None:
    cache = make()
    put(cache, PRIVATE)
    put(cache, TOOLS)
    ticket = cache.begin("tools/list", {}, VERSION)
    assert ticket is not None
    cache.forget(ticket, ALICE)
    assert find(cache) is None


# -- changes

LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]


@pytest.mark.parametrize("store", [MemoryStore, DictStore])
@pytest.mark.parametrize(
    ("change", "ended"),
    [
        ("notifications/tools/list_changed", ["tools/list"]),
        ("notifications/prompts/list_changed", ["prompts/list"]),
        ("notifications/resources/list_changed", ["resources/list", "resources/templates/list"]),
        ("notifications/message", []),
    ],
)
def test_a_changed_list_is_not_found_any_more(change: str, ended: list[str], store: Any) -> None:
    shared = store()
    cache, other = make(shared), make(shared, capabilities={"roots": {}})
    for method in [*LISTS, "server/discover"]:
        put(cache, method=method)
        put(other, PRIVATE, BOB, method=method)
    put(cache, **read("file:///a"))
    cache.changed(change, {})
    for method in [*LISTS, "server/discover"]:
        assert (find(cache, method=method) is None) == (method in ended)
        assert (find(other, BOB, method=method) is None) == (method in ended)
    assert find(cache, **read("file:///a")) is not None


@pytest.mark.parametrize("store", [MemoryStore, DictStore])
def test_an_updated_resource_ends_itself_and_what_is_above_it(store: Any) -> None:
    cache = make(store())
    ended = ["file:///a/b/c", "file:///a/b", "file:///a/", "file:///a/b/c?x", "file:///"]
    others = ["file:///a/b/c/d", "file:///a/x", "file:///x", "memo://a/b"]
    for uri in [*ended, *others]:
        put(cache, **read(uri))
    put(cache, method="resources/list")
    cache.changed(UPDATED, {"uri": "file:///a/b/c?x"})
    cache.changed(UPDATED, {"uri": "\ud800"})
    assert [uri for uri in [*ended, *others] if find(cache, **read(uri)) is None] == ended
    assert find(cache, method="resources/list") is not None


@pytest.mark.parametrize("params", [{}, {"uri": 1}, {"uri": "a://" + "/" * 100}])
def test_an_update_of_nobody_knows_what_ends_all_that_was_read(params: dict[str, Any]) -> None:
    cache = make()
    put(cache, **read("memo://a"))
    cache.changed(UPDATED, params)
    assert find(cache, **read("memo://a")) is None


@pytest.mark.parametrize("store", [MemoryStore, DictStore])
def test_an_answer_on_its_way_when_the_change_came_is_not_found(store: Any) -> None:
    shared = store()
    cache, other = make(shared), make(shared)
    ticket = cache.begin("tools/list", {}, VERSION)
    assert ticket is not None
    other.changed("notifications/tools/list_changed", {})
    cache.keep(ticket, TOOLS, ALICE)
    assert find(cache) is None
    put(cache)
    assert find(cache) == TOOLS


def test_a_change_of_another_server_changes_nothing_here() -> None:
    store = MemoryStore()
    cache = make(store)
    put(cache)
    make(store, b"another").changed("notifications/tools/list_changed", {})
    assert find(cache) == TOOLS


def test_a_generation_that_was_dropped_brings_nothing_back() -> None:
    store = DictStore()
    cache = make(store)
    put(cache)
    (answer,) = store.answers.items()
    store.values = dict([answer])
    assert find(cache) is None
    cache.changed("notifications/tools/list_changed", {})
    until(lambda: len(store.values) == 1)
    assert find(cache) is None


def test_the_end_of_a_subscription_ends_what_it_was_for() -> None:
    cache = make()

    def fill() -> None:
        for method in LISTS:
            put(cache, method=method)
        put(cache, **read("file:///a"))

    def left() -> list[str]:
        found = [method for method in LISTS if find(cache, method=method)]
        return [*found, "read"] if find(cache, **read("file:///a")) else found

    fill()
    cache.stale({})
    cache.stale({"toolsListChanged": False, "resourceSubscriptions": [], "com.example/x": True})
    assert left() == [*LISTS, "read"]
    cache.stale({"toolsListChanged": True, "resourceSubscriptions": ["file:///"]})
    assert left() == ["prompts/list", "resources/list", "resources/templates/list"]
    cache.stale({"promptsListChanged": True, "resourcesListChanged": True})
    assert left() == []


# -- stores that fail


@pytest.mark.parametrize("what", ["get", "set", "delete"])
def test_a_store_that_raises_costs_nothing_but_the_hits(what: str, caplog: pytest.LogCaptureFixture) -> None:
    store = DictStore()
    one, other = make(store), make(store)
    store.broken[what] = OSError("no route, password hunter2")
    for cache in (one, other):
        ticket = cache.begin("tools/list", {}, VERSION)
        if ticket is not None:
            cache.lookup(ticket, ALICE)
            cache.keep(ticket, TOOLS, ALICE)
            cache.forget(ticket, ALICE)
    logged = [record for record in caplog.records if record.name == "snodo_client.cache"]
    assert [record.levelno for record in logged] == [logging.WARNING]
    assert "DictStore failed (OSError)" in logged[0].getMessage()
    assert "hunter2" not in caplog.text
    store.broken.clear()
    put(one)
    assert find(other) == TOOLS


def test_a_store_of_text_is_none(caplog: pytest.LogCaptureFixture) -> None:
    store = DictStore()
    cache = make(store)
    put(cache)
    store.values = dict.fromkeys(store.values, "text")  # type: ignore[arg-type]
    assert find(cache) is None
    assert "it gave a str instead of bytes" in caplog.text


def test_an_interruption_in_a_store_gets_out() -> None:
    store = DictStore()
    cache = make(store)
    store.broken["get"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        cache.begin("tools/list", {}, VERSION)


def test_a_change_that_the_store_could_not_be_told_is_told_later_and_nothing_is_found_until_then() -> None:
    store = DictStore()
    cache, other = make(store), make(store)
    put(cache)
    store.broken["delete"] = OSError()
    cache.changed("notifications/tools/list_changed", {})
    assert find(cache) is None
    assert find(other) is None
    store.broken.clear()
    assert find(other) is None
    put(cache)
    assert find(other) == TOOLS


def test_nobody_waits_for_a_slow_store_to_hear_of_a_change() -> None:
    asked, go_on = Event(), Event()

    class Slow(DictStore):
        def delete(self, key: str) -> None:
            asked.set()
            assert go_on.wait(10)
            super().delete(key)

    store = Slow()
    cache = make(store)
    put(cache)
    cache.changed("notifications/tools/list_changed", {})
    cache.changed("notifications/tools/list_changed", {})
    assert asked.wait(10)
    assert len(store.values) == 2  # it does not know yet
    go_on.set()
    until(lambda: len(store.values) == 1)
    assert find(cache) is None


def test_a_change_that_comes_while_the_store_is_told_of_the_one_before_counts_too() -> None:
    asked, go_on = Event(), Event()

    class Slow(DictStore):
        def delete(self, key: str) -> None:
            super().delete(key)
            if not asked.is_set():
                asked.set()
                assert go_on.wait(10)

    store = Slow()
    cache = make(store)
    put(cache)
    cache.changed("notifications/tools/list_changed", {})
    assert asked.wait(10)
    ticket = cache.begin("tools/list", {}, VERSION)
    assert ticket is not None
    cache.changed("notifications/tools/list_changed", {})
    go_on.set()
    until(lambda: not module._shelves[id(store)].owed)
    cache.keep(ticket, TOOLS, ALICE)
    assert find(cache) is None


def test_a_flood_of_updates_that_a_store_cannot_be_told_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OWED", 20)
    store = DictStore()
    cache = make(store)
    put(cache, **read("memo://other"))
    store.broken["delete"] = OSError()
    for number in range(1000):
        cache.changed(UPDATED, {"uri": f"memo://{number}/x"})
    shelf = module._shelves[id(store)]
    assert len(shelf.owed) <= 25
    store.broken.clear()
    assert find(cache, **read("memo://other")) is None


# -- values that are none


@given(st.data())
def test_a_value_that_is_not_what_was_kept_is_no_answer(data: st.DataObject) -> None:
    store = DictStore()
    cache = make(store)
    put(cache)
    ((key, value),) = store.answers.items()
    start = data.draw(st.integers(0, len(value)))
    changed = value[:start] + data.draw(st.binary(max_size=4)) + value[data.draw(st.integers(start, len(value))) :]
    store.values[key] = changed
    assert find(cache) == (TOOLS if changed == value else None)


@pytest.mark.parametrize("value", [b"", b"\x80\x04N.", b"{}", b"x" * 100, b"x" * (module.MAX_VALUE + 1)])
def test_a_value_of_somebody_else_is_no_answer(value: bytes) -> None:
    store = DictStore()
    cache = make(store)
    put(cache)
    for key in store.answers:
        store.values[key] = value
    assert find(cache) is None


def test_an_answer_under_another_key_is_none() -> None:
    store = DictStore()
    cache = make(store)
    put(cache, PRIVATE, ALICE)
    (alice,) = store.answers
    put(cache, PRIVATE, BOB)
    (bob,) = store.answers.keys() - {alice}
    store.values[bob] = store.values[alice]
    assert find(cache, BOB) is None


def test_keys_are_plain_and_tell_nothing() -> None:
    store = DictStore()
    cache = make(store, b"https://example.test/?key=hunter2")
    put(cache, PRIVATE, b"Bearer hunter2", **read("file:///hunter2"))
    for key in store.values:
        assert key.isascii()
        assert key.isprintable()
        assert " " not in key
        assert len(key) < 100
        assert "hunter2" not in key
    assert not any(b"hunter2" in value for value in store.values.values())


# -- the store in memory


def test_memory_drops_the_least_recently_used() -> None:
    store = MemoryStore(max_entries=3)
    for key in "abc":
        store.set(key, key.encode(), 10)
    assert store.get("a") == b"a"
    store.set("d", b"d", 10)
    assert [store.get(key) for key in "abcd"] == [b"a", None, b"c", b"d"]


def test_memory_is_bounded_in_bytes() -> None:
    store = MemoryStore(max_bytes=10)
    store.set("a", b"1234", 10)
    store.set("b", b"1234", 10)
    store.set("c", b"1234", 10)
    assert [store.get(key) for key in "abc"] == [None, b"1234", b"1234"]
    store.set("b", b"x", 10)
    store.set("d", b"12345", 10)
    assert [store.get(key) for key in "bcd"] == [b"x", b"1234", b"12345"]
    store.set("d", b"x" * 11, 10)
    assert [store.get(key) for key in "bcd"] == [b"x", b"1234", None]
    store.delete("c")
    store.delete("c")
    store.set("e", b"123456789", 10)
    assert [store.get(key) for key in "be"] == [b"x", b"123456789"]


def test_memory_forgets_in_time() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    store.set("a", b"a", 2)
    clock.now += 1.999
    assert store.get("a") == b"a"
    clock.now += 0.001
    assert store.get("a") is None
    clock.now -= 1
    assert store.get("a") is None


@pytest.mark.parametrize("options", [{"max_entries": 0}, {"max_bytes": 0}, {"max_entries": True}, {"max_bytes": 1.5}])
def test_memory_needs_bounds(options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        MemoryStore(**options)


def test_threads_find_what_belongs_to_them_or_nothing() -> None:
    store = MemoryStore(max_entries=20, max_bytes=2000)
    wrong: list[object] = []

    def work(number: int) -> None:
        cache = make(store)
        for turn in range(300):
            uri = f"memo://{(number * 7 + turn) % 12}"
            found = find(cache, **read(uri))
            if found is None:
                put(cache, {**TOOLS, "contents": uri}, **read(uri))
            elif found["contents"] != uri:
                wrong.append(found)
            if turn % 50 == 0:
                cache.changed(UPDATED, {"uri": uri})

    threads = [Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(store._entries) <= 20
    assert store._bytes == sum(len(value) for value, _ in store._entries.values()) <= 2000


@pytest.mark.parametrize("store", [MemoryStore, DictStore])
def test_who_knows_of_a_change_never_finds_an_older_answer(store: Any) -> None:
    shared = store()
    state, known, over = [0], [0], Event()
    wrong: list[tuple[int, int]] = []

    def ask() -> None:
        cache = make(shared)
        while not over.is_set():
            least = known[0]
            ticket = cache.begin("tools/list", {}, VERSION)
            assert ticket is not None
            found = cache.lookup(ticket, ALICE)
            if found is None:
                answer = state[0]
                sleep(0)  # on its way
                cache.keep(ticket, {**TOOLS, "tools": answer}, ALICE)
            elif found["tools"] < least:
                wrong.append((found["tools"], least))

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    cache = make(shared)
    for number in range(1, 60):
        state[0] = number
        cache.changed("notifications/tools/list_changed", {})
        known[0] = number
        sleep(0)
    over.set()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- forks


def test_a_child_of_a_fork_has_an_empty_store_that_works_whoever_held_its_lock() -> None:
    store = MemoryStore()
    cache = make(store)
    put(cache)
    held, go_on = Event(), Event()

    def hold() -> None:
        with store._lock, module._shelves[id(store)]._lock, module._making:
            held.set()
            go_on.wait(20)

    thread = Thread(target=hold)
    thread.start()
    try:
        assert held.wait(10)

        def child() -> list[Any]:
            before = find(cache)
            put(cache)
            cache.changed("notifications/prompts/list_changed", {})
            return [before, find(cache), find(make(store))]

        assert in_a_child(child) == [None, TOOLS, TOOLS]
    finally:
        go_on.set()
        thread.join()
    assert find(cache) == TOOLS


def test_a_child_of_a_fork_tells_of_its_own_changes_alone(tmp_path: Path) -> None:
    class Broken(FolderStore):
        broken = True

        def delete(self, key: str) -> None:
            if self.broken:
                raise OSError
            super().delete(key)

    store = Broken(tmp_path)
    cache = make(store)
    put(cache)
    cache.changed("notifications/tools/list_changed", {})

    def child() -> list[Any]:
        store.broken = False
        found = find(cache)
        cache.changed("notifications/tools/list_changed", {})
        until(lambda: not module._shelves[id(store)].owed)
        return [found, find(cache)]

    assert in_a_child(child) == [TOOLS, None]


def test_a_server_that_cannot_be_told_is_another_one_in_a_child(tmp_path: Path) -> None:
    cache = make(FolderStore(tmp_path), None)
    put(cache)
    assert in_a_child(lambda: find(cache)) is None
    assert find(cache) == TOOLS
