"""Tokens in the keyring of the system, with backends of our own making behind the real package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from snodo_client.auth.keyring_store import KeyringTokenStore
from snodo_client.auth.stores import as_store
from snodo_client.outcome import McpError

keyring = pytest.importorskip("keyring")
backend = pytest.importorskip("keyring.backend")
errors = pytest.importorskip("keyring.errors")

CANARY = "geheim-c3d4"


class Dict(backend.KeyringBackend):  # type: ignore[misc, name-defined]
    """A keyring in memory; what is told to be `broken` raises, quoting all it knows."""

    priority = 0

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[tuple[str, str], str] = {}
        self.broken = False

    def _look(self, *known: str) -> None:
        if self.broken:
            raise LookupError(*known, *self.values.values())

    def get_password(self, service: str, username: str) -> str | None:
        self._look()
        return self.values.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._look(password)
        self.values[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._look()
        if (service, username) not in self.values:
            raise errors.PasswordDeleteError("there is none")
        del self.values[service, username]


@pytest.fixture
def ring() -> Iterator[Dict]:
    before = keyring.get_keyring()
    ring = Dict()
    keyring.set_keyring(ring)
    yield ring
    keyring.set_keyring(before)


def test_what_is_set_is_in_the_keyring(ring: Dict) -> None:
    store = as_store(KeyringTokenStore())
    assert store.get("a") is None
    store.delete("a")
    store.set("a", CANARY)
    assert store.get("a") == CANARY
    assert KeyringTokenStore("another").get("a") is None
    assert ring.values == {("snodo_client", "a"): CANARY}
    store.delete("a")
    assert ring.values == {}
    assert repr(store) == "KeyringTokenStore('snodo_client')"


def test_only_text_is_kept(ring: Dict) -> None:
    for wrong in (5, None, CANARY.encode()):
        with pytest.raises(TypeError):
            KeyringTokenStore().set("a", wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="empty"):
        KeyringTokenStore("")
    assert ring.values == {}


def test_what_a_backend_raises_is_told_without_its_words(ring: Dict) -> None:
    store = KeyringTokenStore()
    store.set("a", CANARY)
    ring.broken = True
    works: list[tuple[Callable[[], object], str]] = [
        (lambda: store.get("a"), "read"),
        (lambda: store.set("a", CANARY), "written"),
        (lambda: store.delete("a"), "read"),
    ]
    for work, done in works:
        with pytest.raises(McpError, match=rf"the keyring cannot be {done} \(LookupError\)") as raised:
            work()
        assert raised.value.reason == "authorization_failed"
        assert CANARY not in repr(raised.value) + str(raised.value) + str(raised.value.data)
        assert raised.value.__context__ is None
        assert raised.value.__cause__ is None


def test_a_machine_without_a_keyring_is_told_of_the_file(ring: Dict) -> None:
    keyring.set_keyring(pytest.importorskip("keyring.backends.fail").Keyring())
    store = KeyringTokenStore()
    works: list[Callable[[], object]] = [
        lambda: store.get("a"),
        lambda: store.set("a", CANARY),
        lambda: store.delete("a"),
    ]
    for work in works:
        with pytest.raises(McpError, match=r"no keyring that could be used: keep tokens in FileTokenStore\(\)"):
            work()


def test_a_missing_package_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ValueError, match=r"pip install 'snodo_client\[keyring\]'"):
        KeyringTokenStore()


@pytest.mark.skipif(sys.platform != "linux", reason="the folders of Linux")
def test_the_lock_is_a_file_among_the_users_data(ring: Dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store = KeyringTokenStore()
    with store.lock("a", lambda: 1.0):
        with pytest.raises(TimeoutError), KeyringTokenStore().lock("a", lambda: 0.0):
            pytest.fail("two are inside")
        with KeyringTokenStore("another").lock("a", lambda: 0.0):
            assert len(list((tmp_path / "snodo_client").iterdir())) == 2
