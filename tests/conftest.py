"""Fixtures and switches for the whole suite.

Installing the peers can take minutes, so it happens once, before the first test, outside every test's own time limit.
"""

from __future__ import annotations

import os

import pytest

import peers as peer_sets

_installed: pytest.StashKey[peer_sets.Peers | str] = pytest.StashKey()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install the peers when a selected test needs them."""
    wanted = any("peers" in getattr(item, "fixturenames", ()) for item in session.items)
    if not wanted or session.config.option.collectonly:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"peers: {peer_sets.cache_folder()} (installed there on first use)")
    _install(session.config)


def _install(config: pytest.Config) -> peer_sets.Peers | str:
    if _installed not in config.stash:
        try:
            config.stash[_installed] = peer_sets.install()
        except peer_sets.PeersUnavailable as error:
            config.stash[_installed] = str(error)
    return config.stash[_installed]


@pytest.fixture(scope="session")
def peers(pytestconfig: pytest.Config) -> peer_sets.Peers:
    """Other people's servers, SDKs and tools; without a package registry the test is skipped, or fails under CI."""
    installed = _install(pytestconfig)
    if isinstance(installed, peer_sets.Peers):
        return installed
    if os.environ.get("CI") == "true":
        pytest.fail(installed, pytrace=False)
    pytest.skip(installed)
