"""Stores for caches: one that tells what it was asked, one that several processes see, and clocks that tests set."""

from __future__ import annotations

from pathlib import Path


class Clock:
    """Seconds, which pass when a test says so."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class DictStore:
    """A store outside the library's knowledge. What stands in `broken` ("get", "set", "delete") raises; nothing
    expires.
    """

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.lifetimes: dict[str, int] = {}
        self.broken: dict[str, BaseException] = {}
        self.asked: list[str] = []

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if what in self.broken:
            raise self.broken[what]

    def get(self, key: str) -> bytes | None:
        self._ask("get")
        return self.values.get(key)

    def set(self, key: str, value: bytes, ttl: int) -> None:
        self._ask("set")
        self.values[key], self.lifetimes[key] = value, ttl

    def delete(self, key: str) -> None:
        self._ask("delete")
        self.values.pop(key, None)

    @property
    def answers(self) -> dict[str, bytes]:
        """The values that are answers, and no generations."""
        return {key: value for key, value in self.values.items() if ":generation:" not in key}


class FolderStore:
    """A file for each value."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str) -> bytes | None:
        path = self._folder / key
        return path.read_bytes() if path.exists() else None

    def set(self, key: str, value: bytes, ttl: int) -> None:
        (self._folder / key).write_bytes(value)

    def delete(self, key: str) -> None:
        (self._folder / key).unlink(missing_ok=True)
