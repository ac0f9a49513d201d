"""Where tokens are kept between calls: what a store is, and the one that keeps them in this process.

A store is three methods over text. Files are in `file_store.py`, the keyring of the system in `keyring_store.py`; a
Django model or Redis is wrapped in a few lines. What the text says is known only to who puts it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing import Any


class TokenStore(Protocol):
    """Keeps text that is secret. Called from any thread; the arguments go by position.

    A store that processes share may also have `lock(key, wait)`, which gives a context manager that one holder at a
    time is inside of. While it has to wait it calls `wait()` at least four times a second, which gives the seconds that
    are left, and raises when nobody waits any more; at 0 seconds it raises TimeoutError. Without `lock`, each process
    renews a token by itself.
    """

    def get(self, key: str, /) -> str | None:
        """What was last set for *key*; None when there is nothing."""

    def set(self, key: str, value: str, /) -> object:
        """Keep *value* until it is replaced or deleted: a refresh token may be good for months."""

    def delete(self, key: str, /) -> object:
        """Drop what is kept for *key*, if anything is."""


class MemoryTokenStore:
    """A store in this process, for any number of clients and threads.

    A copy is empty, and so is what a pickle gives: the tokens stay in this process. A child of a fork has those that
    were there at the fork.
    """

    __slots__ = ("_values",)

    def __init__(self) -> None:
        # Without a lock, which a fork could leave locked in the child: each method is one step of a dict.
        self._values: dict[str, str] = {}

    def get(self, key: str, /) -> str | None:
        return self._values.get(key)

    def set(self, key: str, value: str, /) -> None:
        self._values[checked(key, "key")] = checked(value, "value")

    def delete(self, key: str, /) -> None:
        self._values.pop(key, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryTokenStore, ()

    def __repr__(self) -> str:
        return f"<MemoryTokenStore, {len(self._values)} entries>"


def as_store(value: Any) -> TokenStore:
    """The value as a store. TypeError when it has not the methods of one."""
    missing = [name for name in ("get", "set", "delete") if not callable(getattr(value, name, None))]
    if isinstance(value, type) or missing:
        lacks = "a class, not an instance of one" if isinstance(value, type) else f"without {', '.join(missing)}"
        raise TypeError(f"a token store has the methods get, set and delete: {type(value).__name__} is {lacks}")
    if not callable(getattr(value, "lock", as_store)):
        raise TypeError(f"lock of the token store {type(value).__name__} must be a method")
    store: TokenStore = value
    return store


def checked(text: object, name: str) -> str:
    """Text that every store can keep. TypeError for what is none, ValueError for text that is no Unicode."""
    if not isinstance(text, str):
        raise TypeError(f"{name} must be str, not {type(text).__name__}")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{name} holds a lone surrogate")
    return text
