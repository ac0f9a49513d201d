"""Clients with a cache: what is asked once, what each time, and for whom an answer is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain, repeat
from threading import Event, Thread
from typing import Any

import pytest
import requests

from snodo_client import Client, McpError, Ok
from snodo_client.cache import MemoryStore
from snodo_client.testing import Server
from support.forking import in_a_child
from support.stores import Clock, DictStore

HOUR = 3_600_000
VERSION = "2026-07-28"
ASKED: dict[str, Callable[..., Any]] = {
    "server/discover": lambda client, **options: client.discover(**options),
    "tools/list": lambda client, **options: client.list_tools(**options),
    "prompts/list": lambda client, **options: client.list_prompts(**options),
    "resources/list": lambda client, **options: client.list_resources(**options),
    "resources/templates/list": lambda client, **options: client.list_resource_templates(**options),
    "resources/read": lambda client, **options: client.read_resource("memo://1", **options),
}
Connect = Callable[..., Client]


def make_server(**options: Any) -> Server:
    server = Server(**{"ttl_ms": HOUR, **options})

    @server.tool(name="first")
    def first() -> str:
        return "done"

    @server.prompt(name="hello")
    def hello() -> str:
        return "Hello"

    @server.resource("memo://1")
    def memo() -> str:
        return "remembered"

    @server.resource_template("memo://{number}")
    def memos(number: str) -> str:
        return number

    return server


def times(server: Server, method: str) -> int:
    return sum(call.method == method for call in server.calls)


def names(outcome: Any) -> list[str]:
    return [tool["name"] for tool in outcome.unwrap()]


@pytest.fixture(params=["direct", "http"])
def connection(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(connection: str) -> Iterator[Connect]:
    """Makes clients that send nothing of their own. Over HTTP those of one server have the same URL."""
    with ExitStack() as stack:
        urls: dict[int, str] = {}

        def made(server: Server, **options: Any) -> Client:
            options = {"cache": True, "protocol": VERSION, "timeout": 10.0, **options}
            if connection == "direct":
                return stack.enter_context(Client.direct(server, **options))
            if id(server) not in urls:
                urls[id(server)] = stack.enter_context(server.serve_http()).url
            return stack.enter_context(Client.connect(urls[id(server)], **options))

        yield made


# -- one client


@pytest.mark.parametrize("method", ASKED)
def test_what_is_fresh_is_asked_once(connect: Connect, method: str) -> None:
    server = make_server()
    client = connect(server)
    first, second, third = (ASKED[method](client) for _ in range(3))
    assert isinstance(first, Ok)
    assert first.value == second.value == third.value
    assert times(server, method) == 1


@pytest.mark.parametrize("method", ASKED)
def test_without_a_cache_everything_is_asked(connect: Connect, method: str) -> None:
    server = make_server()
    for client in (connect(server, cache=None), connect(server, cache=False)):
        ASKED[method](client)
        ASKED[method](client)
    assert times(server, method) == 4


def test_an_answer_belongs_to_whoever_asked(connect: Connect) -> None:
    client = connect(make_server())
    for _ in range(3):
        tools = client.list_tools().unwrap()
        assert [tool["name"] for tool in tools] == ["first"]
        tools[0]["name"] = "mine"
        tools.clear()


def test_other_resources_are_other_answers(connect: Connect) -> None:
    server = make_server()
    client = connect(server)
    for _ in range(2):
        for uri, text in [("memo://1", "remembered"), ("memo://2", "2"), ("memo://3", "3")]:
            assert client.read_resource(uri).unwrap()["contents"][0]["text"] == text
    assert times(server, "resources/read") == 3


@pytest.mark.parametrize("ttl", [0, None, -1, True, 1.5, "1000"])
def test_what_has_no_lifetime_is_asked_each_time(connect: Connect, ttl: Any) -> None:
    server = make_server()
    server.cache("tools/list", ttl, "public")
    client = connect(server)
    for _ in range(3):
        client.list_tools()
    assert times(server, "tools/list") == 3


def test_what_has_become_stale_is_asked_again(connect: Connect) -> None:
    clock = Clock()
    server = make_server(ttl_ms=2000)
    client = connect(server, cache=MemoryStore(clock=clock))
    for seconds, asked in [(0.0, 1), (1.9, 1), (0.1, 2), (1.9, 2)]:
        clock.now += seconds
        client.list_tools()
        assert times(server, "tools/list") == asked


def test_refresh_asks_and_replaces_and_bypass_does_neither(connect: Connect) -> None:
    server = make_server()
    client = connect(server)
    assert names(client.list_tools()) == ["first"]
    server.tool(name="second")(lambda: "")
    assert names(client.list_tools()) == ["first"]
    assert names(client.list_tools(cache="use")) == ["first"]
    assert names(client.list_tools(cache="bypass")) == ["first", "second"]
    assert names(client.list_tools()) == ["first"]
    assert names(client.list_tools(cache="refresh")) == ["first", "second"]
    assert names(client.list_tools()) == ["first", "second"]
    assert times(server, "tools/list") == 3


def test_a_refresh_that_brings_nothing_to_keep_leaves_nothing_old(connect: Connect) -> None:
    server = make_server()
    client = connect(server)
    client.list_tools()
    server.cache("tools/list", 0)
    client.list_tools(cache="refresh")
    client.list_tools()
    assert times(server, "tools/list") == 3


def test_errors_are_not_kept(connect: Connect) -> None:
    server = make_server()
    client = connect(server)
    for _ in range(2):
        assert isinstance(client.read_resource("none://1"), McpError)
    assert times(server, "resources/read") == 2


def test_lists_of_several_pages_are_not_kept(connect: Connect) -> None:
    server = make_server(page_size=1)
    server.tool(name="second")(lambda: "")
    client = connect(server)
    for _ in range(2):
        assert names(client.list_tools()) == ["first", "second"]
    assert times(server, "tools/list") == 4
    cursor = client.list_page("tools").unwrap().next_cursor
    for _ in range(2):
        assert [tool["name"] for tool in client.list_page("tools", cursor).unwrap().items] == ["second"]
    assert times(server, "tools/list") == 7


def test_a_page_that_is_the_whole_list_is_kept(connect: Connect) -> None:
    server = make_server()
    client = connect(server)
    client.list_page("tools")
    assert names(client.list_tools()) == ["first"]
    assert times(server, "tools/list") == 1


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_took_input_is_not_kept(connect: Connect, by_hand: bool) -> None:
    server = make_server()

    @server.on("resources/read")
    def read(message: dict[str, Any], context: Any) -> dict[str, Any]:
        hints = {"ttlMs": HOUR, "cacheScope": "public"}
        if "requestState" not in message["params"]:
            return {"resultType": "input_required", "requestState": "s", **hints}
        return {"resultType": "complete", "contents": [], **hints}

    client = connect(server)
    for _ in range(2):
        if by_hand:
            asked = client.read_resource("memo://1", answer_input=False)
            client.read_resource("memo://1", request_state=asked.request_state)
        else:
            assert isinstance(client.read_resource("memo://1", answer_input=True), Ok)
    assert times(server, "resources/read") == 4


def test_what_is_not_cacheable_is_asked_each_time_whatever_it_says(connect: Connect) -> None:
    server = make_server()
    hints = {"resultType": "complete", "ttlMs": HOUR, "cacheScope": "public"}
    server.on("tools/call")(lambda message, context: {**hints, "content": []})
    server.on("prompts/get")(lambda message, context: {**hints, "messages": []})
    client = connect(server)
    for _ in range(2):
        client.call_tool("first").unwrap()
        client.get_prompt("hello").unwrap()
    assert (times(server, "tools/call"), times(server, "prompts/get")) == (2, 2)


def test_hints_of_older_revisions_mean_nothing(connect: Connect) -> None:
    server = make_server(versions=["2025-11-25"])
    hints = {"ttlMs": HOUR, "cacheScope": "public"}
    server.on("tools/list")(lambda message, context: {"tools": [], **hints})
    client = connect(server, protocol="2025-11-25")
    client.list_tools()
    client.list_tools()
    assert times(server, "tools/list") == 2


def test_metadata_makes_another_question_unless_it_is_a_trace(connect: Connect) -> None:
    server = make_server()
    client = connect(server)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for meta in [None, {"traceparent": trace}, {"com.example/tenant": "a"}, {"com.example/tenant": "b"}]:
        client.list_tools(meta=meta)
    assert times(server, "tools/list") == 3


def test_definitions_from_the_cache_are_as_good_as_listed_ones() -> None:
    server = make_server()

    @server.tool(input_schema={"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}})
    def weather(city: str) -> str:
        return city

    store = MemoryStore()
    with server.serve_http() as http:
        for _ in range(2):
            with Client.connect(http.url, protocol=VERSION, cache=store) as client:
                client.list_tools()
                client.call_tool("weather", {"city": "Oslo"}).unwrap()
        seen = [call.headers.get("mcp-param-city") for call in server.calls if call.method == "tools/call"]
    assert seen == ["Oslo", "Oslo"]
    assert times(server, "tools/list") == 1


def test_the_list_that_a_refused_call_needs_is_no_kept_one() -> None:
    server = make_server()
    schema: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}

    @server.tool(input_schema=schema)
    def weather(city: str) -> str:
        return city

    with server.serve_http() as http, Client.connect(http.url, protocol=VERSION, cache=True) as client:
        client.list_tools()
        schema["properties"]["city"]["x-mcp-header"] = "City"
        assert client.call_tool("weather", {"city": "Oslo"}).unwrap()["content"][0]["text"] == "Oslo"
        listed = {tool["name"]: tool for tool in client.list_tools().unwrap()}
    assert listed["weather"]["inputSchema"] == schema
    assert times(server, "tools/list") == 2


@pytest.mark.parametrize("wrong", ["yes", 1, object(), {}, MemoryStore])
def test_a_cache_is_true_or_a_store(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="cache"):
        Client.connect("http://127.0.0.1:9/mcp", cache=wrong, wait=False).close()


@pytest.mark.parametrize("wrong", ["", "on", True, None])
def test_the_modes_are_three(connect: Connect, wrong: Any) -> None:
    server = make_server()
    client = connect(server)
    with pytest.raises((TypeError, ValueError), match="cache"):
        client.list_tools(cache=wrong)
    assert times(server, "tools/list") == 0


# -- changes


def test_a_subscriber_to_a_change_finds_the_new_list(connect: Connect) -> None:
    server = make_server()
    client = connect(server)
    other = connect(server)  # has a cache of its own
    assert names(client.list_tools()) == names(other.list_tools()) == ["first"]
    client.list_prompts()
    with client.listen({"toolsListChanged": True}) as changes:
        client.list_tools()
        for number in range(5):
            server.tool(name=f"new{number}")(lambda: "")
            server.emit("notifications/tools/list_changed")
            assert changes.next(10).method == "notifications/tools/list_changed"
            assert f"new{number}" in names(client.list_tools())
            assert f"new{number}" in names(client.list_tools())
    client.list_prompts()
    assert names(other.list_tools()) == ["first"]
    assert times(server, "prompts/list") == 1


def test_a_callback_finds_the_new_text_of_a_resource(connect: Connect) -> None:
    server, seen, text, told = make_server(), [], ["old"], Event()
    server.resource("file:///a/b")(lambda: text[0])
    client = connect(server)
    assert client.read_resource("file:///a/b").unwrap()["contents"][0]["text"] == "old"
    client.read_resource("memo://1")

    def hear(event: Any) -> None:
        if getattr(event, "method", "") == "notifications/resources/updated":
            seen.append(client.read_resource("file:///a/b").unwrap()["contents"][0]["text"])
            told.set()

    with client.listen({"resourceSubscriptions": ["file:///a/b"]}, callback=hear):
        client.read_resource("file:///a/b")
        client.read_resource("memo://1")
        asked = times(server, "resources/read")
        text[0] = "new"
        server.emit("notifications/resources/updated", {"uri": "file:///a/b"})
        assert told.wait(10)
        client.read_resource("memo://1")
        assert times(server, "resources/read") == asked + 1
    assert seen == ["new"]


def test_an_answer_that_is_older_than_a_change_is_not_kept(connect: Connect) -> None:
    server = make_server()
    asked, go_on = Event(), Event()
    lists: list[list[str]] = [["old"], ["new"]]

    @server.on("tools/list")
    def tools(message: dict[str, Any], context: Any) -> dict[str, Any]:
        listed = [{"name": name, "inputSchema": {"type": "object"}} for name in lists[0]]
        if not asked.is_set():
            asked.set()
            assert go_on.wait(10)
        return {"resultType": "complete", "tools": listed, "ttlMs": HOUR, "cacheScope": "public"}

    client, got = connect(server), []
    with client.listen({"toolsListChanged": True}) as changes:
        thread = Thread(target=lambda: got.append(names(client.list_tools())))
        thread.start()
        assert asked.wait(10)
        del lists[0]
        server.emit("notifications/tools/list_changed")
        assert changes.next(10) is not None
        go_on.set()
        thread.join(10)
        assert got == [["old"]]
        assert names(client.list_tools()) == ["new"]


def test_what_a_subscription_was_for_is_stale_when_it_ends(connect: Connect) -> None:
    server = make_server()
    client = connect(server)
    subscription = client.listen({"toolsListChanged": True})
    client.list_tools()
    client.list_prompts()
    subscription.close()
    client.list_tools()
    client.list_prompts()
    assert (times(server, "tools/list"), times(server, "prompts/list")) == (2, 1)


# -- several clients


def test_each_client_has_a_cache_of_its_own_by_default(connect: Connect) -> None:
    server = make_server(cache_scope="public")
    for client in (connect(server), connect(server)):
        client.list_tools()
        client.list_tools()
    assert times(server, "tools/list") == 2


def test_a_shared_store_is_no_shared_server(connect: Connect, connection: str) -> None:
    store = MemoryStore()
    one, other = make_server(cache_scope="public"), make_server(cache_scope="public")
    other.tool(name="second")(lambda: "")
    for _ in range(2):
        assert names(connect(one, cache=store).list_tools()) == ["first"]
        assert names(connect(other, cache=store).list_tools()) == ["first", "second"]
    asked = 1 if connection == "http" else 2  # objects in the process cannot be told apart
    assert (times(one, "tools/list"), times(other, "tools/list")) == (asked, asked)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def over_http(server: Server, ways: list[dict[str, Any]], method: str = "tools/list") -> int:
    """How often it is asked when clients made in these ways ask twice each."""
    with server.serve_http() as http:
        for options in ways:
            with Client.connect(http.url, **{"protocol": VERSION, **options}) as client:
                for _ in range(2):
                    assert isinstance(ASKED[method](client), Ok)
    return times(server, method)


WAYS: list[dict[str, Any]] = [
    {},
    {"auth": "one"},
    {"headers": {"Authorization": "Bearer one"}},
    {"auth": "two"},
    {"headers": {"X-Api-Key": "one"}},
    {"auth": "one"},
]


@pytest.mark.parametrize("method", ["tools/list", "resources/read"])
def test_private_answers_are_for_one_credential_and_public_ones_for_all(store: MemoryStore, method: str) -> None:
    ways = [{**way, "cache": store} for way in WAYS]
    assert over_http(make_server(cache_scope="private"), ways, method) == 4
    assert over_http(make_server(cache_scope="public"), ways, method) == 1


@pytest.mark.parametrize("scope", ["PUBLIC", None, 1])
def test_a_scope_that_is_none_is_private(store: MemoryStore, scope: Any) -> None:
    server = make_server()
    server.cache("tools/list", HOUR, scope)
    assert over_http(server, [{"auth": token, "cache": store} for token in ("one", "two")]) == 2


def test_a_token_that_changes_ends_what_was_private(store: MemoryStore) -> None:
    server, token = make_server(), ["one"]
    headers = lambda: {"Authorization": f"Bearer {token[0]}"}  # noqa: E731
    with server.serve_http() as http, Client.connect(http.url, protocol=VERSION, headers=headers, cache=True) as client:
        for now, asked in [("one", 1), ("two", 2), ("one", 2)]:
            token[0] = now
            client.list_tools()
            client.list_tools()
            assert times(server, "tools/list") == asked


@pytest.mark.parametrize("told", ["abcc", "abaa"])
def test_an_answer_belongs_to_the_credential_it_was_really_asked_with(told: str) -> None:
    server, tokens = make_server(), chain(told, repeat(told[-1]))
    headers = lambda: {"Authorization": f"Bearer {next(tokens)}"}  # noqa: E731
    with server.serve_http() as http, Client.connect(http.url, protocol=VERSION, headers=headers, cache=True) as client:
        client.list_tools()  # looked up with the first token, asked with the second
        for _ in range(3):
            client.list_tools()
    assert [call.headers["authorization"] for call in server.calls] == ["Bearer b", f"Bearer {told[-1]}"]


def test_a_tool_call_asks_for_its_credential_once(store: MemoryStore) -> None:
    server, made = make_server(), []

    def headers() -> dict[str, str]:
        made.append(1)
        return {}

    options: dict[str, Any] = {"protocol": VERSION, "headers": headers, "cache": store}
    with server.serve_http() as http, Client.connect(http.url, **options) as client:
        client.call_tool("first").unwrap()
        client.get_prompt("hello").unwrap()
    assert len(made) == 2


def test_through_a_session_of_the_caller_only_public_answers_are_kept(store: MemoryStore) -> None:
    ways = [{"session": requests.Session(), "cache": store}]
    assert over_http(make_server(cache_scope="private"), ways) == 2
    assert over_http(make_server(cache_scope="public"), ways) == 1


def test_what_a_client_declares_counts(store: MemoryStore) -> None:
    ways: list[dict[str, Any]] = [{"cache": store}, {"cache": store, "client_capabilities": ["roots"]}]
    assert over_http(make_server(cache_scope="public"), ways * 2) == 2


def test_no_secret_is_in_the_store_or_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store, server = DictStore(), make_server()
    with server.serve_http() as http:
        url = f"{http.url}?key=SEKRET-query"
        headers = {"X-Api-Key": "SEKRET-header", "Cookie": "sid=SEKRET-cookie"}
        with Client.connect(url, protocol=VERSION, auth="SEKRET-token", headers=headers, cache=store) as client:
            client.list_tools().unwrap()
            client.read_resource("memo://1").unwrap()
            store.broken["get"] = OSError("SEKRET")
            client.list_tools().unwrap()
    assert len(store.answers) == 2
    assert "SEKRET" not in repr(store.values) + caplog.text


@pytest.mark.parametrize("what", ["get", "set", "delete"])
def test_a_broken_store_breaks_no_call(connect: Connect, what: str) -> None:
    store, server = DictStore(), make_server()
    store.broken[what] = ConnectionError()
    client = connect(server, cache=store)
    for mode in ("use", "refresh", "bypass", "use"):
        assert names(client.list_tools(cache=mode)) == ["first"]


def test_a_child_of_a_fork_asks_for_itself() -> None:
    server = make_server()
    with server.serve_http() as http, Client.connect(http.url, protocol=VERSION, cache=True, timeout=10.0) as client:
        client.list_tools()
        assert in_a_child(lambda: [names(client.list_tools()) for _ in range(2)]) == [["first"], ["first"]]
        assert times(server, "tools/list") == 2
        client.list_tools()
        assert times(server, "tools/list") == 2
