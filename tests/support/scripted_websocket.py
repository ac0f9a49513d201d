"""WebSocket frames by hand, on the connections of a `ScriptedServer`: for peers that no WebSocket library would be."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha1
from typing import Any

from support.scripted_http import Peer, Request, ScriptedServer

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def serving(script: Callable[[Peer], None], **options: Any) -> ScriptedServer:
    """A server whose `url` is a WebSocket's."""
    server = ScriptedServer(script, **options)
    server.url = f"ws{server.url.removeprefix('http')}"
    return server


def upgrade(peer: Peer, *headers: str, protocol: str | None = "mcp", accept: str | None = None) -> Request:
    """Read the handshake and agree to it."""
    request = peer.request()
    key = request.header("sec-websocket-key") or ""
    accept = accept or b64encode(sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Accept: {accept}", *headers]
    if protocol is not None:
        lines.append(f"Sec-WebSocket-Protocol: {protocol}")
    peer.send("\r\n".join([*lines, "", ""]).encode())
    return request


def frame(data: bytes | str | dict[str, Any], opcode: int = TEXT, *, fin: bool = True) -> bytes:
    """A frame as a server sends it: not masked."""
    if isinstance(data, dict):
        data = json.dumps(data)
    if isinstance(data, str):
        data = data.encode()
    head = bytes([opcode | (0x80 if fin else 0)])
    if len(data) < 126:
        return head + bytes([len(data)]) + data
    if len(data) < 65_536:
        return head + b"\x7e" + len(data).to_bytes(2, "big") + data
    return head + b"\x7f" + len(data).to_bytes(8, "big") + data


def close_frame(code: int, reason: str = "") -> bytes:
    return frame(code.to_bytes(2, "big") + reason.encode(), CLOSE)


def read_frame(peer: Peer) -> tuple[int, bytes]:
    """The next frame of the client, which must be masked and whole."""
    first, second = take(peer, 2)
    assert first & 0x80, "a fragment"
    assert second & 0x80, "not masked"
    size = second & 0x7F
    if size >= 126:
        size = int.from_bytes(take(peer, 2 if size == 126 else 8), "big")
    mask = take(peer, 4)
    data = take(peer, size)
    return first & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


def read_message(peer: Peer) -> Any:
    opcode, data = read_frame(peer)
    assert opcode == TEXT
    return json.loads(data)


def until_closed(peer: Peer) -> None:
    """Read on until the client says goodbye."""
    while read_frame(peer)[0] != CLOSE:
        pass


def take(peer: Peer, size: int) -> bytes:
    while len(peer._data) < size:
        peer._data += peer.receive()
    taken, peer._data = peer._data[:size], peer._data[size:]
    return taken


def answer(peer: Peer, message: Any, result: dict[str, Any] | None = None) -> None:
    value = message.get("params", {}) if result is None else result
    peer.send(frame({"jsonrpc": "2.0", "id": message["id"], "result": value}))


def echoes(peer: Peer) -> None:
    """Agree to the handshake, and answer each request with its parameters until the client closes."""
    upgrade(peer)
    while True:
        opcode, data = read_frame(peer)
        if opcode == CLOSE:
            peer.send(frame(data, CLOSE))
            return
        message = json.loads(data)
        if "id" in message:
            answer(peer, message)
