"""A server that misbehaves on request, and otherwise answers as it should.

What it does wrong is said by the arguments of a call of the tool "fault", or by a plan: method -> list of faults, of
which each request takes the next, and the last stays. A fault is a mapping: `send` are the texts to send in place of
the answer (`$ID` is the id, `$PREV` the one before, `$N` the number of the request); the rest is for the connection.
Knows nothing of the library under test. Run as a program it serves stdio, with a plan as its argument.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

VERSION = "2026-07-28"
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": [VERSION],
    "capabilities": {"tools": {}},
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "faulty", "version": "1"}},
}
TOOLS = {"resultType": "complete", "tools": [{"name": "ok", "inputSchema": {"type": "object"}}]}


class Plan:
    """Decides what comes back for each message, and keeps all that came in."""

    def __init__(self, faults: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self.faults = faults
        self.received: list[dict[str, Any]] = []
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def fault(self, message: dict[str, Any]) -> dict[str, Any]:
        """What to do for a message: a fault, with its texts filled in."""
        method = message["method"]
        with self._lock:
            self.received.append(message)
            number = self._counts[method] = self._counts.get(method, 0) + 1
        params = message.get("params") or {}
        fault: Mapping[str, Any]
        if method in self.faults:
            planned = self.faults[method]
            fault = planned[min(number, len(planned)) - 1]
        elif params.get("name") == "fault":
            fault = params["arguments"]
        else:
            fault = {}
        if "send" not in fault:
            fault = {**fault, "send": [json.dumps(self._answer(message))] if "id" in message else []}
        id_ = message.get("id", 0)
        texts = [
            text.replace("$ID", str(id_)).replace("$PREV", str(id_ - 1)).replace("$N", str(number))
            for text in fault["send"]
        ]
        return {**fault, "send": texts}

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        match message["method"]:
            case "server/discover":
                return {**answer, "result": DISCOVERED}
            case "tools/list":
                return {**answer, "result": TOOLS}
            case "tools/call":
                arguments = message["params"].get("arguments") or {}
                content = [{"type": "text", "text": arguments.get("text", "ok")}]
                seen = self.received if message["params"]["name"] == "seen" else None
                return {**answer, "result": {"resultType": "complete", "content": content, "structuredContent": seen}}
        return {**answer, "error": {"code": -32601, "message": "no such method"}}


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def perform(fault: Mapping[str, Any]) -> None:
    os.write(2, fault.get("stderr", "").encode())
    left = fault.get("stderr_bytes", 0)
    while left:
        left -= os.write(2, b"e" * min(left, 65_536))
    time.sleep(fault.get("wait", 0))
    for text in fault["send"]:
        data = text.encode("latin-1")
        if "fill" in fault:  # a line of exactly so many bytes
            data = data.replace(b"$FILL", b"x" * (fault["fill"] - len(data) + len(b"$FILL")))
        data += fault.get("end", "\n").encode()
        piece = fault.get("piece", len(data) or 1)
        for start in range(0, len(data), piece):
            write(data[start : start + piece])
            time.sleep(fault.get("pause", 0))
    end = time.monotonic() + fault.get("flood_seconds", 0)
    while time.monotonic() < end:
        write((fault["flood"] + "\n").encode() * 50)
    if "signal" in fault:
        os.kill(os.getpid(), fault["signal"])
    if "exit" in fault:
        os._exit(fault["exit"])
    while "deaf_until" in fault and not Path(fault["deaf_until"]).exists():
        time.sleep(0.01)


def main() -> None:
    plan = Plan(json.loads(sys.argv[1]) if sys.argv[1:] else {})
    held: list[dict[str, Any]] = []
    for line in sys.stdin.buffer:
        fault = plan.fault(json.loads(line))
        if "reverse" not in fault:
            perform(fault)
            continue
        held.append(fault)
        if len(held) == fault["reverse"]:
            while held:
                perform(held.pop())


if __name__ == "__main__":
    main()
