"""Keeps answers in a store that was made for other things: `python -m cached STORE WHAT [URL]`.

STORE is `django-memory`, `django-files:FOLDER` or `redis:PORT`, each as its library makes it. WHAT is one of the
functions below, whose result is printed as JSON. `python -m cached serve` is a Redis server of fakeredis, which prints
its port.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from snodo_client import Client, McpError
from snodo_client.cache import Cache, Store

VERSION = "2026-07-28"
TOOLS = {"resultType": "complete", "tools": [{"name": "é"}], "ttlMs": 3_600_000}
PUBLIC = {**TOOLS, "cacheScope": "public"}
PRIVATE = {**TOOLS, "cacheScope": "private"}
CHANGE = "notifications/tools/list_changed"


def make(name: str) -> Store:
    kind, _, where = name.partition(":")
    if kind == "redis":
        import redis

        return redis.Redis(port=int(where), socket_timeout=5)
    import django
    from django.conf import settings

    backend = "locmem.LocMemCache" if kind == "django-memory" else "filebased.FileBasedCache"
    settings.configure(CACHES={"default": {"BACKEND": f"django.core.cache.backends.{backend}", "LOCATION": where}})
    django.setup()
    from django.core.cache import cache

    store: Store = cache
    return store


def find(cache: Cache, credential: bytes | None) -> Any:
    ticket = cache.begin("tools/list", {}, VERSION)
    assert ticket is not None
    return cache.lookup(ticket, credential)


def put(cache: Cache, result: dict[str, Any], credential: bytes | None) -> None:
    ticket = cache.begin("tools/list", {}, VERSION)
    assert ticket is not None
    cache.keep(ticket, result, credential)


def alone(store: Store, _: str) -> dict[str, bool]:
    """All that one process can see of a cache."""
    one, other = (Cache(store, {}, b"alone") for _ in range(2))
    seen = {"empty": find(one, b"a") is None}
    put(one, PRIVATE, b"a")
    seen["private"] = find(other, b"a") == PRIVATE and find(other, b"b") is None
    put(one, PUBLIC, b"a")
    seen["public"] = find(other, None) == PUBLIC
    on_its_way = other.begin("tools/list", {}, VERSION)
    one.changed(CHANGE, {})
    seen["changed"] = find(one, b"a") is find(other, b"a") is None
    assert on_its_way is not None
    other.keep(on_its_way, PUBLIC, None)
    seen["too late"] = find(one, None) is None
    wall, clock = [5e9], [1e3]
    exact = Cache(store, {}, b"exact", clock=lambda: clock[0], wall=lambda: wall[0])
    put(exact, {**PUBLIC, "ttlMs": 1500}, None)
    clock[0] += 1.499
    seen["fresh"] = find(exact, None) is not None
    clock[0] += 0.001
    seen["stale"] = find(exact, None) is None
    put(one, PUBLIC, None)
    ticket = one.begin("tools/list", {}, VERSION)
    assert ticket is not None
    store.set(ticket.public, store.get(ticket.public)[:-1], 60)
    seen["cut"] = find(one, None) is None
    put(one, PUBLIC, None)
    one.forget(ticket, None)
    seen["forgotten"] = find(one, None) is None
    return seen


def keep(store: Store, _: str) -> None:
    put(Cache(store, {}, b"server"), PRIVATE, b"a")


def look(store: Store, _: str) -> bool:
    return bool(find(Cache(store, {}, b"server"), b"a") == PRIVATE)


def change(store: Store, _: str) -> None:
    cache = Cache(store, {}, b"server")
    cache.changed(CHANGE, {})
    find(cache, b"a")  # by now the store knows, whatever becomes of this process


def lifetimes(store: Any, _: str) -> list[int]:
    """How long a Redis server keeps an answer that is fresh for 1.5 s, in seconds."""
    put(Cache(store, {}, b"lifetimes"), {**PUBLIC, "ttlMs": 1500}, None)
    return [store.ttl(key) for key in store.scan_iter() if b":generation:" not in key]


def client(store: Store, url: str) -> list[Any]:
    """What two clients with one credential, and one with another, list and read, each twice."""
    answers = []
    for token in ("one", "one", "two"):
        with Client.connect(url, protocol=VERSION, auth=token, cache=store, timeout=20.0) as client:
            for _ in range(2):
                answers += [client.list_tools(), client.read_resource("memo://1")]
    return [str(answer) if isinstance(answer, McpError) else answer.value for answer in answers]


def serve() -> None:
    from fakeredis import TcpFakeServer

    server = TcpFakeServer(("127.0.0.1", 0))
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        print(json.dumps(globals()[sys.argv[2]](make(sys.argv[1]), *sys.argv[3:] or [""])))
