"""Operations an era has not: the error for each, and what it says to use instead."""

from __future__ import annotations

import pytest

from snodo_client.protocol import operations, versions

NEW, OLD = "2026-07-28", "2025-11-25"


@pytest.mark.parametrize(
    ("method", "version", "instead"),
    [
        ("ping", NEW, "discover()"),
        ("logging/setLevel", NEW, "log_level="),
        ("resources/subscribe", NEW, "listen"),
        ("resources/unsubscribe", NEW, "close"),
        ("tasks/get", NEW, "without task="),
        ("tasks/cancel", NEW, "without task="),
        ("notifications/roots/list_changed", NEW, "asks for the roots"),
        ("server/discover", OLD, "server_info"),
        ("subscriptions/listen", OLD, "subscribe_resource"),
        ("tasks/get", "2025-06-18", "2025-11-25"),
        ("tasks/result", "2025-03-26", "2025-11-25"),
        ("tasks/list", "2024-11-05", "2025-11-25"),
    ],
)
def test_a_refusal_names_what_to_use_instead(method: str, version: str, instead: str) -> None:
    error = operations.refusal(method, version, "the shop")
    assert error is not None
    assert (error.reason, error.code, error.kind) == ("unsupported_operation", -32601, "protocol")
    assert error.data == {"method": method, "version": version}
    assert instead in error.message
    assert "the shop" in error.message


@pytest.mark.parametrize("version", versions.KNOWN)
@pytest.mark.parametrize("method", ["tools/list", "tools/call", "resources/read", "prompts/get", "x/y", ""])
def test_everything_else_may_be_sent(method: str, version: str) -> None:
    assert operations.refusal(method, version, "x") is None


@pytest.mark.parametrize("version", versions.LEGACY)
@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "resources/subscribe"])
def test_what_the_older_revisions_have(method: str, version: str) -> None:
    assert operations.refusal(method, version, "x") is None
    assert operations.refusal("tasks/get", OLD, "x") is None
