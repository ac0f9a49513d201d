"""Answers that are used again for as long as their server allows (spec: server/utilities/caching).

Opt-in: `Client.connect(target, cache=True)` has a `MemoryStore` of its own; `cache=store` uses any store of three
methods, which clients, threads and processes may share. A Django cache and a `redis.Redis` are such stores as they are.

What is kept are complete answers to the six cacheable requests whose `ttlMs` is positive (at most 24 hours count, and
an integral float is an integer, as everywhere in JSON). What a server calls "public" serves everybody who asks the same
of the same endpoint, all else only who asks with the same credential. Never kept: errors, answers that took input
rounds, and lists of more than one page, whose pages would be of different times.

Nothing is ever searched for in a store or listed. A change makes what was kept unreachable instead: every key is made
of a random generation, which the store has too; without it a new one begins. Keys are hashes, and a value that is not
exactly what was put there under that key is no answer.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from json import JSONEncoder
from math import ceil
from struct import Struct
from threading import RLock, Thread
from time import monotonic, time
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet, WeakValueDictionary

from . import checks
from .engine import threads
from .fingerprint import fingerprint
from .log import logger
from .protocol import caching, jsonrpc
from .protocol.caching import READ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

GENERATION_LIFETIME = 2 * caching.MAX_LIFETIME
MAX_VALUE = 16 * 1024 * 1024  # bytes
MAX_OWED = 10_000  # above that, a change of one resource is one of all

_PREFIX = "snodo_client:"
_FORMAT = b"1"
# Checksum, the process that wrote it and its monotonic time, the time of day, and the lifetime in seconds.
_HEAD = Struct(">16s8sddd")
_PROCESS = os.urandom(8)
_encode = JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class Store(Protocol):
    """Where answers are kept. Called from any thread; what it raises is logged, and ends nothing.

    The arguments go by position, so their names do not matter. Keys are printable ASCII of less than 100 characters.
    Give a store that is reached over a network a timeout of its own: a call waits for it. Whoever can write to the
    store can make up answers.
    """

    def get(self, key: str, /) -> Any:
        """The bytes last set for *key*, or None when there are none, or no more."""

    def set(self, key: str, value: bytes, ttl: int, /) -> object:
        """Keep *value* for at most *ttl* seconds, which is at least 1. It may be dropped earlier."""

    def delete(self, key: str, /) -> object:
        """Drop what is kept for *key*, if anything is."""


class MemoryStore:
    """A store in this process, for any number of clients and threads. The least recently used is dropped when there
    are more than `max_entries` or `max_bytes` of values. Every resource that is read has two entries, every list too.

    A child of a fork begins with an empty one: of changes only the parent hears.
    """

    def __init__(
        self,
        max_entries: int = 512,
        max_bytes: int = 16 * 1024 * 1024,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._max_entries = checks.count(max_entries, "max_entries")
        self._max_bytes = checks.count(max_bytes, "max_bytes")
        self._clock = clock
        self._begin()
        _stores.add(self)

    def _begin(self) -> None:
        self._lock = RLock()  # reentrant, for signal handlers
        self._entries: OrderedDict[str, tuple[bytes, float]] = OrderedDict()
        self._bytes = 0

    def get(self, key: str, /) -> bytes | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            if self._clock() >= entry[1]:
                self.delete(key)
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def set(self, key: str, value: bytes, ttl: float, /) -> None:
        with self._lock:
            self.delete(key)
            if len(value) > self._max_bytes:
                return
            self._entries[key] = value, self._clock() + ttl
            self._bytes += len(value)
            while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
                self.delete(next(iter(self._entries)))

    def delete(self, key: str, /) -> None:
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._bytes -= len(entry[0])


class Ticket:
    """What one request may find and leave in a cache, in the generation in which it was made."""

    __slots__ = ("_name", "public")

    def __init__(self, name: bytes) -> None:
        self._name = name
        self.public = _key(name, b"public")

    def private(self, credential: bytes) -> str:
        return _key(self._name, b"private", credential)


class Cache:
    """A client's view of a store.

    `endpoint` tells its server from every other one, by the transport's `identity()`; until it is set, and where a
    transport has none, nothing is shared with other clients. `capabilities` are those the client declares.

    For each request: `begin` before it is sent, `lookup` with that ticket and, when nothing was found, `keep` for the
    answer. The credential is that which the request will be, or was, sent with: None when it is not known, and then
    only what is public is found or kept.
    """

    def __init__(
        self,
        store: Store,
        capabilities: Mapping[str, Any],
        endpoint: bytes | None = None,
        *,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time,
    ) -> None:
        self.endpoint = endpoint
        self._shelf = _shelf(store)
        self._capabilities = _encode(capabilities)
        self._own = os.urandom(16)
        self._clock = clock
        self._wall = wall

    def begin(
        self, method: str, params: Mapping[str, Any], version: str, meta: Mapping[str, Any] | None = None
    ) -> Ticket | None:
        """The ticket of a request, None when nothing may be found or kept for it. To be called before it is sent: a
        change that is told from here on makes its answer unreachable, even when it has not come yet.
        """
        if not caching.cacheable(method, params, version):
            return None
        place = self._place()
        try:
            generation = [self._shelf.generation(_generation(place, method))]
            if method == READ:
                generation.append(self._shelf.generation(_generation(place, READ, str(params.get("uri")))))
        except _Unusable:
            return None
        request = _encode([method, params, caching.relevant(meta) if meta else {}])
        return Ticket(fingerprint(_FORMAT, place, version, self._capabilities, request, *generation))

    def lookup(self, ticket: Ticket, credential: bytes | None) -> dict[str, Any] | None:
        """A result that is still fresh, decoded for this caller alone."""
        for key in self._keys(ticket, credential):
            try:
                value = self._shelf.get(key)
            except _Unusable:
                return None
            result = self._opened(key, value) if value is not None else None
            if result is not None:
                return result
        return None

    def keep(self, ticket: Ticket, result: Mapping[str, Any], credential: bytes | None) -> None:
        """Keep a result, if it may be kept: for everybody, or for whoever has the credential it was asked with."""
        seconds = caching.lifetime(result)
        if not seconds:
            return
        if result.get("cacheScope") == "public":
            key = ticket.public
        elif credential is not None:
            key = ticket.private(credential)
        else:
            return
        try:
            value = self._sealed(key, jsonrpc.encode(result), seconds)
            if len(value) <= MAX_VALUE:
                self._shelf.set(key, value, ceil(seconds))
        except (ValueError, _Unusable):  # half a character, which came in as an escape
            return

    def forget(self, ticket: Ticket, credential: bytes | None) -> None:
        """Drop what is kept for a request: it is asked anew."""
        try:
            for key in self._keys(ticket, credential):
                self._shelf.delete(key)
        except _Unusable:
            return

    def changed(self, method: str, params: Mapping[str, Any]) -> None:
        """Something has changed on the server, as this notification tells. From here on nothing from before is found
        by any client in this process that shares the store, and soon by none elsewhere. Never waits for a store.
        """
        place = self._place()
        if method == caching.UPDATED:
            uri = params.get("uri")
            affected = caching.with_parents(uri) if isinstance(uri, str) and len(self._shelf.owed) < MAX_OWED else []
            self._shelf.end([_generation(place, READ, uri) for uri in affected] or [_generation(place, READ)])
        elif method in caching.CHANGED:
            self._shelf.end([_generation(place, name) for name in caching.CHANGED[method]])

    def stale(self, subscribed: Mapping[str, Any]) -> None:
        """Changes of what this subscription was for, a filter as it was granted, are not told any more."""
        place = self._place()
        for member, methods in caching.SUBSCRIBED.items():
            if subscribed.get(member):
                self._shelf.end([_generation(place, method) for method in methods])

    def _place(self) -> bytes:
        # With the process: a server object in a child of a fork goes its own way.
        return self.endpoint or b"%b %d" % (self._own, os.getpid())

    def _keys(self, ticket: Ticket, credential: bytes | None) -> Iterable[str]:
        yield ticket.public
        if credential is not None:
            yield ticket.private(credential)

    def _sealed(self, key: str, payload: bytes, seconds: float) -> bytes:
        head = _HEAD.pack(b"", _PROCESS, self._clock(), self._wall(), seconds)[16:]
        return b"".join((_checksum(key, head, payload), head, payload))

    def _opened(self, key: str, value: bytes) -> dict[str, Any] | None:
        """The result in a value, None when it is not fresh, or not what was put there."""
        if not _HEAD.size <= len(value) <= MAX_VALUE:
            return None
        head, payload = value[16 : _HEAD.size], value[_HEAD.size :]
        checksum, process, ticks, seconds_of_day, seconds = _HEAD.unpack_from(value)
        if checksum != _checksum(key, head, payload):
            return None
        # The time of day may be set back, and a monotonic clock may have slept.
        age = self._wall() - seconds_of_day
        fresh = self._clock() - ticks < seconds if process == _PROCESS else age >= 0
        if not fresh or age >= seconds:
            return None
        try:
            result = jsonrpc.decode(payload)
        except jsonrpc.Malformed:
            return None
        return result if isinstance(result, dict) else None


def _key(*parts: bytes) -> str:
    return _PREFIX + fingerprint(*parts).hex()


def _generation(place: bytes, method: str, uri: str = "") -> str:
    return _PREFIX + "generation:" + fingerprint(place, method, uri).hex()


def _checksum(key: str, head: bytes, payload: bytes) -> bytes:
    return fingerprint(key, head, payload)[:16]


class _Unusable(Exception):
    """The store failed."""


class _Shelf:
    """A store, for all the clients of this process that use it: its faults end here.

    `owed` are the generations that ended, but which the store still has. Nobody in this process uses those any more; a
    thread of its own brings the store up to date, since who hears of a change may be a reader that must not wait.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._said = False
        self.owed: dict[str, object] = {}
        self.forked()

    def forked(self) -> None:
        """In the child of a fork: what is owed is the parent's to do."""
        self._lock = RLock()  # guards what is owed
        self.owed.clear()
        self._settling = False

    def generation(self, key: str) -> bytes:
        if key in self.owed:
            self._settle(key)
        found = self.get(key)
        if found is None:
            found = os.urandom(16)
            self.set(key, found, GENERATION_LIFETIME)
        return found

    def end(self, generations: Iterable[str]) -> None:
        if type(self._store) is MemoryStore:  # not one made from it, which may wait or raise
            for key in generations:
                self._store.delete(key)
            return
        with self._lock:
            for key in generations:
                self.owed[key] = object()
            settling, self._settling = self._settling, True
        if settling:
            return
        started = False
        try:
            started = threads.refusal(Thread(target=self._settle_all, name="snodo-cache", daemon=True)) is None
        finally:
            if not started:
                self._settling = False  # whoever asks next does it, or the next change

    def _settle_all(self) -> None:
        while True:
            with self._lock:
                key = next(iter(self.owed), None)
                if key is None:
                    self._settling = False
                    return
            try:
                self._settle(key)
            except _Unusable:
                self._settling = False
                return

    def _settle(self, key: str) -> None:
        debt = self.owed.get(key)
        self.delete(key)
        with self._lock:
            if self.owed.get(key) is debt:  # else it ended again meanwhile
                self.owed.pop(key, None)

    def get(self, key: str) -> bytes | None:
        try:
            found: object = self._store.get(key)
        except Exception as error:
            raise self._failed(type(error).__name__) from None
        if found is None or isinstance(found, bytes):
            return found
        raise self._failed(f"it gave a {type(found).__name__} instead of bytes")

    def set(self, key: str, value: bytes, ttl: int) -> None:
        try:
            self._store.set(key, value, ttl)
        except Exception as error:
            raise self._failed(type(error).__name__) from None

    def delete(self, key: str) -> None:
        try:
            self._store.delete(key)
        except Exception as error:
            raise self._failed(type(error).__name__) from None

    def _failed(self, why: str) -> _Unusable:
        if not self._said:
            self._said = True
            text = "the store %s failed (%s): requests go to the server when it does, and this is said once"
            logger("cache").warning(text, type(self._store).__name__, why)
        return _Unusable()


_stores: WeakSet[MemoryStore] = WeakSet()
_shelves: WeakValueDictionary[int, _Shelf] = WeakValueDictionary()  # by the id of the store, which they keep alive
_making = RLock()


def _shelf(store: Store) -> _Shelf:
    with _making:
        found = _shelves.get(id(store))
        if found is None:
            found = _shelves[id(store)] = _Shelf(store)
        return found


def _forked() -> None:
    """In the child of a fork, before anything else there: threads that are not here may hold the locks."""
    global _making
    _making = RLock()
    for store in list(_stores):
        store._begin()
    for shelf in list(_shelves.values()):
        shelf.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
