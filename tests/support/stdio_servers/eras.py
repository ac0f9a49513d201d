"""A server of any era that writes down all it receives, and departs from what is right where its plan says so.

A plan is a mapping: `era` ("modern", "legacy" or "dual") and `version` (the newest older revision it speaks) say what
is right; `behind` is how many messages must wait for it before it takes the first; `exit` ends it before that; `steps`
are, for each method, what to do for the first, second, ... message with it, of which the last stays. A step `send`s
messages in place of the right answer ("$ID" is the id of the message, "$initialize" that of the last message with this
method), after a `wait`; it may `exit` with a code after writing `stderr`. The other keys of a step are for HTTP.
Answers to the server have the method "answer".

Knows nothing of the library under test. Run as a program it serves stdio: its arguments are the file of the record, and
the plans of the first, the second, ... process, of which the last stays.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from itertools import chain
from typing import Any

NEW = "2026-07-28"
OLD = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
META = "io.modelcontextprotocol/"
CAPABILITIES: dict[str, Any] = {"tools": {}, "logging": {}}
INFO = {"name": "eras", "version": "1"}
Message = dict[str, Any]


class Play:
    """One process, or one HTTP server. With `binding`, the first request of the modern era decides for all."""

    def __init__(self, plan: Mapping[str, Any], *, binding: bool = False) -> None:
        self._era = plan.get("era", "dual")
        self._newest = plan.get("version", OLD[0])
        self._steps = plan.get("steps", {})
        self._counts: dict[str, int] = {}
        self._ids: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._binding = binding
        self._bound = False
        self.agreed = ""  # by initialize
        self.initialized = False

    def act(self, message: Message, *, welcome: bool = True) -> tuple[dict[str, Any], Message]:
        """What to do for a message, and what is to be kept of it: the message, the version agreed on before, and
        whether it ran a tool. Without `welcome` it does not belong to the session it should.
        """
        method = message.get("method", "answer")
        with self._lock:
            number = self._counts[method] = self._counts.get(method, 0) + 1
            self._ids["ID"] = self._ids[method] = message.get("id")
            entry = {"message": message, "agreed": self.agreed, "ran": False}
            steps = self._steps.get(method, [{}])
            step = dict(steps[min(number, len(steps)) - 1])
            if "send" in step:
                step["send"] = self._filled(step["send"])
            elif "id" in message and "method" in message:
                status, answer = self._right(message, welcome)
                step = {"status": status, "send": [answer], **step}
                entry["ran"] = method == "tools/call" and "result" in answer
            else:
                step["send"] = []
                self.initialized = self.initialized or method == "notifications/initialized"
            for sent in step["send"]:
                if isinstance(sent, dict) and "protocolVersion" in sent.get("result", {}):
                    self.agreed = sent["result"]["protocolVersion"]
            return step, entry

    def _filled(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._filled(part) for part in value]
        if isinstance(value, dict):
            return {name: self._filled(part) for name, part in value.items()}
        return self._ids[value[1:]] if isinstance(value, str) and value[:1] == "$" else value

    def _right(self, message: Message, welcome: bool) -> tuple[int, Message]:
        """The right answer to a request, and its HTTP status."""
        method, params = message["method"], message.get("params") or {}
        version = params.get("_meta", {}).get(META + "protocolVersion")
        refuse = self._refusal(message, method, version, welcome)
        if refuse is not None:
            return refuse
        result: dict[str, Any] = {} if version is None else {"resultType": "complete"}
        if method == "server/discover":
            supported = [NEW, *OLD] if self._era == "dual" else [NEW]
            result |= {
                "supportedVersions": supported,
                "capabilities": CAPABILITIES,
                "ttlMs": 0,
                "cacheScope": "private",
            }
            result["_meta"] = {META + "serverInfo": INFO}
        elif method == "initialize":
            speaks = OLD[OLD.index(self._newest) :]
            agreed = params["protocolVersion"] if params["protocolVersion"] in speaks else self._newest
            result |= {"protocolVersion": agreed, "capabilities": CAPABILITIES, "serverInfo": INFO}
        elif method == "tools/call":
            result["content"] = [{"type": "text", "text": (params.get("arguments") or {}).get("text", "ok")}]
        elif method == "tools/list":
            result["tools"] = [{"name": "ok", "inputSchema": {"type": "object"}}]
        elif method != "ping":
            return 404, error(message["id"], -32601)
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def _refusal(self, message: Message, method: str, version: Any, welcome: bool) -> tuple[int, Message] | None:
        modern, legacy = self._era in ("modern", "dual"), self._era in ("legacy", "dual")
        uninitialized = 400, error(message["id"] if welcome else None, -32000, message="Server not initialized")
        if method == "initialize":
            supported = {"supported": [NEW], "requested": message["params"]["protocolVersion"]}
            return None if legacy and not self._bound else (400, error(message["id"], -32022, supported))
        if version is not None:
            if not modern or self.agreed:
                return uninitialized
            self._bound = self._binding
            return None if version == NEW else (400, error(message["id"], -32022, {"supported": [NEW]}))
        if not legacy:
            return 400, error(message["id"], -32602)
        return None if self.agreed and welcome else uninitialized


def error(id: Any, code: int, data: Any = None, message: str = "no") -> Message:
    details = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return {"jsonrpc": "2.0", "id": id, "error": details}


def write(file: int, text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(file, data) :]


def perform(step: Mapping[str, Any]) -> None:
    time.sleep(step.get("wait", 0))
    for message in step["send"]:
        write(1, (message if isinstance(message, str) else json.dumps(message)) + "\n")
    end(step)


def end(step: Mapping[str, Any]) -> None:
    if "exit" in step:
        write(2, step.get("stderr", ""))
        os._exit(step["exit"])


def main() -> None:
    record = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    plans = [json.loads(text) for text in sys.argv[2:]]
    lives = os.pread(record, 2**24, 0).count(b'"started"')
    write(record, json.dumps({"started": os.getpid()}) + "\n")
    plan = plans[min(lives, len(plans) - 1)]
    end(plan)
    play = Play(plan, binding=True)
    waiting = [sys.stdin.buffer.readline() for _ in range(plan.get("behind", 0))]
    for line in chain(waiting, sys.stdin.buffer):
        step, entry = play.act(json.loads(line))
        write(record, json.dumps({"life": lives, **entry}) + "\n")
        perform(step)


if __name__ == "__main__":
    main()
