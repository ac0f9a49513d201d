"""Tokens in the keyring of the system, through the package keyring (`pip install "snodo_client[keyring]"`).

keyring picks the backend: Keychain, Credential Manager, Secret Service, KWallet. What a backend raises may be anything,
and may quote what it was given, so of it only the name of its class is told.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .faults import failed
from .file_store import KeyLock, default_folder
from .stores import checked

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from ..outcome import McpError


class KeyringTokenStore:
    """Tokens in the keyring of the system, under the name `service`.

    A locked keyring may ask a person to open it, for as long as that takes: it is nothing for a cron job. Credential
    Manager of Windows refuses values of more than about 1200 characters, which many tokens have. The lock between
    processes is a file in the folder where `FileTokenStore` keeps its own by default.

    ValueError when the package is missing; McpError ("authorization_failed") for what the keyring refuses.
    """

    __slots__ = ("_service",)

    def __init__(self, service: str = "snodo_client") -> None:
        if not checked(service, "service"):
            raise ValueError("service must not be empty")
        self._service = service
        _keyring()

    def get(self, key: str, /) -> str | None:
        value: str | None = self._do("read", "get_password", key)
        return value

    def set(self, key: str, value: str, /) -> None:
        self._do("written", "set_password", checked(key, "key"), checked(value, "value"))

    def delete(self, key: str, /) -> None:
        if self.get(key) is not None:  # backends refuse to delete what is not there
            self._do("written", "delete_password", key)

    def lock(self, key: str, wait: Callable[[], float], /) -> AbstractContextManager[None]:
        """As that of `FileTokenStore`."""
        return KeyLock(os.path.join(default_folder(), "keyring"), f"{self._service}\0{key}", wait)

    def _do(self, done: str, method: str, *arguments: str) -> Any:
        try:
            return getattr(_keyring(), method)(self._service, *arguments)
        except Exception as error:
            refused = _refused(done, error)
        raise refused  # out here, so that the error does not keep the backend's as its context

    def __repr__(self) -> str:
        return f"KeyringTokenStore({self._service!r})"


def _keyring() -> Any:
    try:
        import keyring
    except ImportError:
        raise ValueError(
            "the package keyring is missing, which KeyringTokenStore needs: pip install 'snodo_client[keyring]'"
        ) from None
    return keyring


def _refused(done: str, error: Exception) -> McpError:
    from keyring.errors import NoKeyringError

    if isinstance(error, NoKeyringError):
        return failed("store", "this machine has no keyring that could be used: keep tokens in FileTokenStore()")
    return failed("store", f"the keyring cannot be {done} ({type(error).__name__}): open it, or use FileTokenStore()")
