"""Caching hints, for a server, a method and a result; and how often a method was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client.testing import Call, Server
from snodo_client.testing.demo import demo_server
from support.legacy_peer import LegacyPeer
from support.mcp_requests import Caller, request
from support.waiting import together

CACHEABLE = {
    "server/discover": {},
    "tools/list": {},
    "resources/list": {},
    "resources/templates/list": {},
    "resources/read": {"uri": "demo://readme"},
    "prompts/list": {},
}


def hints(server: Server, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    result = Caller().result(server, request(method, CACHEABLE.get(method) if params is None else params))
    return {name: result[name] for name in ("ttlMs", "cacheScope") if name in result}


@pytest.mark.parametrize("method", CACHEABLE)
def test_hints_of_a_server_and_of_a_method(method: str) -> None:
    server = demo_server()
    assert hints(server, method) == {"ttlMs": 0, "cacheScope": "private"}
    server.cache(method, 5000, "public")
    assert {other: hints(server, other)["ttlMs"] for other in CACHEABLE} == {
        **dict.fromkeys(CACHEABLE, 0),
        method: 5000,
    }
    assert hints(server, method)["cacheScope"] == "public"


def test_hints_of_one_result() -> None:
    server = Server(ttl_ms=1000, cache_scope="public")

    @server.resource("x://now")
    def now(call: Call) -> str:
        call.cache(7)
        return "now"

    server.resource("x://always")(lambda: "always")
    assert hints(server, "resources/read", {"uri": "x://now"}) == {"ttlMs": 7, "cacheScope": "private"}
    assert hints(server, "resources/read", {"uri": "x://always"}) == {"ttlMs": 1000, "cacheScope": "public"}


def test_hints_that_no_server_should_send() -> None:
    server = Server()
    context: Any = Caller()
    for given, sent in (((None, None), {}), ((True, 5), {"ttlMs": True, "cacheScope": 5}), ((-1, None), {"ttlMs": -1})):
        server.cache("server/discover", *given)
        result = server(request("server/discover"), context)["result"]
        assert {name: result[name] for name in ("ttlMs", "cacheScope") if name in result} == sent


def test_results_that_cannot_be_cached_have_no_hints() -> None:
    server = demo_server()
    server.cache("tools/call", 5000)
    assert hints(server, "tools/call", {"name": "echo", "arguments": {"message": "x"}}) == {}
    assert "ttlMs" not in LegacyPeer(server).result("tools/list")


def test_every_request_is_counted() -> None:
    server = demo_server()
    together([lambda: [hints(server, "tools/list") for _ in range(100)]] * 4)
    server({"jsonrpc": "2.0", "method": "notifications/x"}, Caller())
    server({"jsonrpc": "2.0", "id": 1, "method": 5}, Caller())
    assert server.seen == {"tools/list": 400, "notifications/x": 1}
    assert server.seen["resources/list"] == 0
