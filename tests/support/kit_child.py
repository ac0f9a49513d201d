"""The test kit's server as a subprocess: lines in, lines out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from support.mcp_schema import check_from_server

DEMO = [sys.executable, "-m", "snodo_client.testing", "stdio"]


class Child:
    """A server process. Every line it writes is held to the schema, unless a test reads it raw.

    `check(message, method)` does that; the method is the one of the request that the message answers.
    """

    def __init__(self, command: list[str], check: Callable[[Any, str], Any] = check_from_server) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.methods: dict[Any, str] = {}
        self._check = check

    def send(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.methods[message.get("id")] = message.get("method", "")
            self.write(json.dumps(message).encode() + b"\n")

    def write(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def read(self) -> Any:
        message = json.loads(self.stdout.readline())
        method = self.methods.get(message.get("id"), "") if isinstance(message, dict) else ""
        return self._check(message, method)

    def read_all(self, count: int) -> dict[Any, Any]:
        return {message.get("id"): message for message in (self.read() for _ in range(count))}

    def end(self) -> int:
        """Close the input; the exit code."""
        self.stdin.close()
        return self.process.wait(10)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.stdin, self.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
