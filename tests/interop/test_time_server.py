"""`mcp-server-time`: a popular server, exactly as published."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from interop.scenarios import sent_error, text_of

from snodo_client import Client, Ok
from support.waiting import together

if TYPE_CHECKING:
    from collections.abc import Iterator

    from peers import Peers


@pytest.fixture(scope="module")
def client(peers: Peers) -> Iterator[Client]:
    arguments = ["-m", "mcp_server_time", "--local-timezone", "Europe/Oslo"]
    with Client.connect(("stdio", str(peers.modern), arguments)) as client:
        yield client


def test_agreement(client: Client) -> None:
    info = client.protocol_info
    assert (info["status"], info["era"], info["version"]) == ("ready", "modern", "2026-07-28")
    assert client.server_info == {"name": "mcp-time", "version": "2026.10.19"}
    assert client.discover().unwrap()["supportedVersions"] == ["2026-07-28"]


def test_list(client: Client) -> None:
    tools = {tool["name"]: tool for tool in client.list_tools().unwrap()}
    assert tools.keys() == {"get_current_time", "convert_time"}
    for tool in tools.values():
        assert tool["inputSchema"]["type"] == "object"
        assert tool["outputSchema"]["type"] == "object"
        assert tool["annotations"]["readOnlyHint"] is True
    assert "Europe/Oslo" in str(tools["get_current_time"])


def test_structured_content(client: Client) -> None:
    result = client.call_tool("get_current_time", {"timezone": "Asia/Kathmandu"}).unwrap()["structuredContent"]
    assert result["timezone"] == "Asia/Kathmandu"
    assert datetime.fromisoformat(result["datetime"]).utcoffset() == timedelta(hours=5, minutes=45)


def test_call_by_definition(client: Client) -> None:
    convert = next(tool for tool in client.list_tools().unwrap() if tool["name"] == "convert_time")
    arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    result = client.call_tool(convert, arguments).unwrap()["structuredContent"]
    assert result["time_difference"] == "+9.0h"
    assert datetime.fromisoformat(result["target"]["datetime"]).hour == 21


def test_a_tool_error(client: Client) -> None:
    outcome = client.call_tool("get_current_time", {"timezone": "Nowhere/Atlantis"})
    assert isinstance(outcome, Ok)
    assert outcome.is_error
    assert "Invalid timezone" in text_of(outcome)


def test_an_unknown_tool(client: Client) -> None:
    assert "no_such_tool" in sent_error(client.call_tool("no_such_tool"), -32602).message


def test_what_it_does_not_serve(client: Client) -> None:
    sent_error(client.request("com.example/nothing"), -32601)


def test_many_threads(client: Client) -> None:
    def work(zone: str) -> None:
        for _ in range(5):
            result = client.call_tool("get_current_time", {"timezone": zone}).unwrap()
            assert result["structuredContent"]["timezone"] == zone

    zones = ["UTC", "Europe/Oslo", "Asia/Tokyo", "America/Lima", "Africa/Cairo", "Pacific/Apia"]
    together([lambda zone=zone: work(zone) for zone in zones])  # type: ignore[misc]
