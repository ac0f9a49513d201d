"""mcp-time, exactly as published: written in Go, started in milliseconds, and no revision after 2025-03-26 known."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from interop.scenarios import sent_error, text_of

from snodo_client import Client, Ok

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peers import Peers


@pytest.fixture(scope="module")
def client(peers: Peers) -> Iterator[Client]:
    if peers.mcp_time is None:
        pytest.skip("there is no binary of mcp-time for this machine")
    program, *arguments = peers.mcp_time
    with Client.connect(("stdio", program, arguments)) as client:
        yield client


def test_agreement(client: Client) -> None:
    info = client.protocol_info
    assert (info["status"], info["era"], info["version"]) == ("ready", "legacy", "2025-03-26")
    assert client.server_info == {"name": "mcp-time", "version": "v0.4.0"}
    assert client.server_capabilities == {"tools": {"listChanged": True}}
    assert client.instructions is None


def test_list(client: Client) -> None:
    tools = {tool["name"]: tool for tool in client.list_tools().unwrap()}
    assert tools.keys() == {"add_time", "compare_time", "convert_timezone", "current_time", "relative_time"}
    assert all(tool["annotations"]["readOnlyHint"] is True for tool in tools.values())


def test_calls(client: Client) -> None:
    now = datetime.fromisoformat(text_of(client.call_tool("current_time", {"timezone": "Asia/Kathmandu"})))
    assert now.utcoffset() == timedelta(hours=5, minutes=45)
    arguments = {"time_a": "2026-01-01T00:00:00Z", "time_b": "2026-01-02T00:00:00Z"}
    assert text_of(client.call_tool("compare_time", arguments)) == "-1"


def test_errors(client: Client) -> None:
    outcome = client.call_tool("current_time", {"timezone": "Nowhere/Atlantis"})
    assert isinstance(outcome, Ok)
    assert outcome.is_error
    assert "nobody" in sent_error(client.call_tool("nobody"), -32602).message
    sent_error(client.request("com.example/nothing"), -32601)


def test_what_it_does_not_serve(client: Client) -> None:
    sent_error(client.list_prompts(), -32601)
    sent_error(client.set_log_level("info"), -32601)
    assert client.ping() == Ok({})
