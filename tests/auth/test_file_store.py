"""Tokens in a file: who can read it, what may stand in its place, and what the system may refuse."""

from __future__ import annotations

import json
import logging
import os
import pickle
import resource
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from snodo_client.auth.file_store import LARGEST, FileTokenStore
from snodo_client.outcome import McpError
from support.forking import in_a_child

CANARY = "geheim-77ab"
NOBODY = 65534


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def refusal(path: Path, *words: str) -> None:
    """Neither reading nor writing is done there, and the error says where, why, and nothing of the content."""
    store = FileTokenStore(path)
    works: list[Callable[[], object]] = [lambda: store.get("a"), lambda: store.set("a", CANARY)]
    for work in works:
        with pytest.raises(McpError) as raised:
            work()
        error = raised.value
        assert (error.reason, error.kind, error.data) == ("authorization_failed", "authorization", {"step": "store"})
        assert all(word in error.message for word in (str(path), *words)), error.message
        assert CANARY not in repr(error) + str(error) + repr(error.__context__)


def test_another_object_of_the_same_path_finds_it(path: Path) -> None:
    FileTokenStore(path).set("a", "1")
    FileTokenStore(str(path)).set("b", "2")
    assert json.loads(path.read_bytes()) == {"a": "1", "b": "2"}
    assert pickle.loads(pickle.dumps(FileTokenStore(path))).get("a") == "1"


def test_reading_makes_nothing(tmp_path: Path) -> None:
    store = FileTokenStore(tmp_path / "folder" / "tokens.json")
    assert store.get("a") is None
    store.delete("a")
    assert list(tmp_path.iterdir()) == []


def test_the_repr_is_the_path(path: Path) -> None:
    store = FileTokenStore(path)
    store.set("a", CANARY)
    assert repr(store) == f"FileTokenStore({str(path)!r})"
    assert repr(FileTokenStore()) == "FileTokenStore()"


# --- where ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="the folders of Linux")
def test_the_default_is_a_file_among_the_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other, third = FileTokenStore(), FileTokenStore(), FileTokenStore()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    store.set("a", "1")
    assert store.path == str(tmp_path / ".local/share/snodo_client/tokens.json")
    assert [mode(tmp_path / folder) for folder in (".local", ".local/share", ".local/share/snodo_client")] == [
        0o700
    ] * 3
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert other.get("a") == "1"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert third.path == str(tmp_path / "data/snodo_client/tokens.json")


@pytest.mark.skipif(sys.platform != "linux", reason="the folders of Linux")
def test_a_user_without_a_home_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "relative")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with pytest.raises(McpError, match=r"no home folder: give the token store a path"):
        FileTokenStore().get("a")


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = FileTokenStore("tokens.json")
    monkeypatch.chdir("/")
    store.set("a", "1")
    assert (tmp_path / "tokens.json").exists()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert FileTokenStore("~/tokens.json").get("a") == "1"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [(5, TypeError), (b"tokens.json", TypeError), ("", ValueError), ("folder/", ValueError), ("a\0b", ValueError)],
)
def test_what_is_no_path(wrong: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="path"):
        FileTokenStore(wrong)


# --- for whose eyes ---------------------------------------------------------------------------------------------------


def test_nothing_is_readable_by_others_even_for_a_moment(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "tokens.json"

    def child() -> tuple[list[str], list[int]]:
        changed: list[str] = []
        renamed: list[int] = []

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            if event == "os.chmod":  # what has to be made private was not made so
                changed.append(str(arguments[0]))
            elif event == "os.rename":
                renamed.append(mode(arguments[0]))

        sys.addaudithook(watch)
        os.umask(0)
        store = FileTokenStore(path)
        store.set("a", CANARY)
        store.set("b", CANARY)
        with store.lock("a", lambda: 1.0):
            return changed, renamed

    assert in_a_child(child) == ([], [0o600, 0o600])
    assert mode(path.parent) == 0o700
    files = list(path.parent.iterdir())
    assert len(files) == 3
    assert [mode(file) for file in files] == [0o600] * 3


@pytest.mark.parametrize("loose", [0o644, 0o660, 0o604, 0o640])
def test_a_file_that_others_can_open_is_taken_from_them(
    path: Path, loose: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileTokenStore(path)
    store.set("a", CANARY)
    path.chmod(loose)
    assert store.get("a") == CANARY
    assert store.get("a") == CANARY
    assert mode(path) == 0o600
    records = [record for record in caplog.records if record.name == "snodo_client.auth"]
    assert [record.levelno for record in records] == [logging.WARNING]
    assert str(path) in records[0].getMessage()
    assert CANARY not in caplog.text


def test_a_folder_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    FileTokenStore(tmp_path / "tokens.json").set("a", "1")
    assert mode(tmp_path) == 0o755


def test_a_file_of_another_user_is_refused(path: Path) -> None:
    if os.geteuid() == 0:
        path.write_text('{"a": "of another"}')
        os.chown(path, NOBODY, NOBODY)
    else:
        path = Path("/etc/passwd")
    refusal(path, "of another user")


# --- what may stand in its place --------------------------------------------------------------------------------------


def test_a_link_is_refused(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text('{"a": "of the victim"}')
    path.symlink_to(victim)
    refusal(path, "is a symbolic link")
    assert victim.read_text() == '{"a": "of the victim"}'


def test_a_link_to_nothing_is_refused(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "missing")
    refusal(path, "is a symbolic link")
    assert not (tmp_path / "missing").exists()


def test_a_link_in_place_of_the_lock_is_refused(path: Path, tmp_path: Path) -> None:
    Path(f"{path}.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(McpError, match="is a symbolic link"):
        FileTokenStore(path).set("a", CANARY)
    assert not (tmp_path / "victim").exists()


def test_a_link_in_place_of_the_new_content_is_replaced(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("of the victim")
    Path(f"{path}.new").symlink_to(victim)
    FileTokenStore(path).set("a", CANARY)
    assert victim.read_text() == "of the victim"
    assert not path.is_symlink()
    assert FileTokenStore(path).get("a") == CANARY


def test_a_pipe_or_folder_in_its_place_is_refused_at_once(path: Path) -> None:
    os.mkfifo(path)
    refusal(path, "is no regular file")
    path.unlink()
    path.mkdir()
    refusal(path, "is no regular file")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"a": "1", "b": "2',
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"a": 1}',
        b'{"a": "\\ud800"}',
        b'{"\\udfff": "x"}',
        b"[" * 10_000,
        b'{"a": "' + b"x" * LARGEST + b'"}',
    ],
    ids=lambda content: repr(content[:20]),
)
@pytest.mark.parametrize("first", ["get", "set"])
def test_what_is_no_store_is_moved_aside(
    path: Path, content: bytes, first: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    store = FileTokenStore(path)
    if first == "get":
        assert store.get("a") is None
        assert not path.exists()
    store.set("b", "2")
    assert (store.get("a"), store.get("b")) == (None, "2")
    broken = Path(f"{path}.broken")
    assert broken.read_bytes() == content
    assert mode(broken) == 0o600
    assert len(caplog.records) == 1
    assert str(broken) in caplog.text


# --- what the system refuses ------------------------------------------------------------------------------------------


@pytest.fixture
def locked_folder() -> Iterator[Path]:
    """A folder where nobody may write; outside of those of pytest, which are closed to other users."""
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def become_nobody() -> None:
    if os.geteuid() == 0:  # whom no permission stops
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def outcome(work: Any) -> str:
    try:
        return f"value {work()}"
    except McpError as error:
        return error.message


def test_a_folder_that_is_read_only(locked_folder: Path) -> None:
    path = locked_folder / "tokens.json"
    path.write_text('{"a": "1"}')
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    locked_folder.chmod(0o555)

    def child() -> list[str]:
        become_nobody()
        store = FileTokenStore(path)
        return [
            outcome(work)
            for work in (
                lambda: store.get("a"),
                lambda: store.delete("b"),
                lambda: store.set("a", CANARY),
                lambda: store.delete("a"),
                lambda: store.lock("a", lambda: 0.0).__enter__(),
            )
        ]

    read, absent, written, deleted, locked = in_a_child(child)
    assert (read, absent) == ("value 1", "value None")
    assert f"{path} cannot be written: Permission denied" in written
    assert f"{path} cannot be written: Permission denied" in deleted
    assert "cannot be locked: Permission denied" in locked
    assert CANARY not in written


def test_a_folder_that_cannot_be_entered(locked_folder: Path) -> None:
    locked_folder.chmod(0)

    def child() -> str:
        become_nobody()
        return outcome(lambda: FileTokenStore(locked_folder / "tokens.json").get("a"))

    assert "cannot be read: Permission denied" in in_a_child(child)


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refusal(tmp_path / "file" / "tokens.json", "Not a directory")


def test_a_disk_that_is_full_leaves_the_old_content(path: Path) -> None:
    FileTokenStore(path).set("a", "old")

    def child() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        return outcome(lambda: FileTokenStore(path).set("a", CANARY * 1000))

    said = in_a_child(child)
    assert f"{path} cannot be written: File too large" in said
    assert CANARY not in said
    assert FileTokenStore(path).get("a") == "old"
    assert not Path(f"{path}.new").exists()


def test_more_than_the_bound_is_refused(path: Path) -> None:
    store = FileTokenStore(path)
    store.set("a", "x" * (LARGEST // 2))
    with pytest.raises(McpError, match=f"larger than {LARGEST} bytes"):
        store.set("b", "x" * (LARGEST // 2))
    store.set("b", "small")
    assert store.get("b") == "small"
