"""Streamable HTTP before revision 2026-07-28: how long a client waits for what a server need not give it at all."""

from __future__ import annotations

from snodo_client import Ok
from support.http_calls import Took
from support.legacy_http import came, connect, legacy
from support.scripted_http import ScriptedServer


def test_the_stream_beside_the_calls_is_waited_for_a_second_at_most() -> None:
    with ScriptedServer(legacy(get=lambda peer, _: peer.silence())) as server:
        with Took() as took:
            client = connect(server.url, timeout=30)
        with client:
            assert took.on_time(1.0)
            assert len(came(server, "GET")) == 1
            assert isinstance(client.call_tool("test"), Ok)


def test_to_end_the_session_takes_five_seconds_at_most() -> None:
    with ScriptedServer(legacy(delete=lambda peer, _: peer.silence())) as server:
        client = connect(server.url, timeout=30)
        with Took() as took:
            client.close()
        assert took.on_time(5.0)
        assert len(came(server, "DELETE")) == 1
