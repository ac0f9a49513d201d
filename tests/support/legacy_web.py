"""A bare client of the legacy eras for HTTP: `http.client`, messages as plain dictionaries, events as they come."""

from __future__ import annotations

import http.client
import itertools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

ACCEPT = "application/json, text/event-stream"
_ids = itertools.count(1)


class Event(NamedTuple):
    """One server-sent event; `message` is None when its data is empty."""

    name: str
    id: str
    retry: str
    data: str

    @property
    def message(self) -> Any:
        return json.loads(self.data) if self.data else None


def request(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": next(_ids), "method": method}
    return message if params is None else {**message, "params": params}


def notification(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def tool_call(name: str, arguments: dict[str, Any] | None = None, token: Any = None) -> dict[str, Any]:
    params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
    return request("tools/call", params if token is None else {**params, "_meta": {"progressToken": token}})


def initialize(version: str, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    params = {
        "protocolVersion": version,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "tests", "version": "1"},
    }
    return request("initialize", params)


def events(response: http.client.HTTPResponse) -> Iterator[Event]:
    """The events of a stream, each as soon as it is complete."""
    fields: dict[str, str] = {}
    while line := response.readline():
        name, _, value = line.decode().rstrip("\n").partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
            continue
        yield Event(
            fields.get("event", "message"), fields.get("id", ""), fields.get("retry", ""), fields.get("data", "")
        )
        fields = {}


class LegacyWeb:
    """One client of one endpoint. Every request has a connection of its own; `close` closes them all."""

    def __init__(self, port: int, version: str = "2025-11-25", path: str = "/mcp") -> None:
        self.port = port
        self.path = path
        self.version = version
        self.headers: dict[str, str] = {}
        self._connections: list[http.client.HTTPConnection] = []

    def open(self, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
        """Initialize; gives the result."""
        response = self.post(initialize(self.version, capabilities))
        assert response.status == 200
        session_id = response.getheader("Mcp-Session-Id")
        if session_id is not None:
            self.headers["Mcp-Session-Id"] = session_id
        answer: dict[str, Any] = self.messages(response)[-1]["result"]
        self.version = answer["protocolVersion"]
        if self.version >= "2025-06-18":
            self.headers["MCP-Protocol-Version"] = self.version
        accepted = self.post(notification("notifications/initialized"))
        assert (accepted.status, accepted.read()) == (202, b"")
        return answer

    def send(self, method: str, headers: dict[str, Any], body: bytes | None = None) -> http.client.HTTPResponse:
        """Send; a header that is None is left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        self._connections.append(connection)
        fields = {name: value for name, value in {**self.headers, **headers}.items() if value is not None}
        connection.request(method, self.path, body, fields)
        return connection.getresponse()

    def post(self, message: Any, headers: dict[str, Any] | None = None) -> http.client.HTTPResponse:
        fields = {"Accept": ACCEPT, "Content-Type": "application/json", **(headers or {})}
        return self.send("POST", fields, json.dumps(message).encode())

    def get(self, after: str | None = None, headers: dict[str, Any] | None = None) -> http.client.HTTPResponse:
        return self.send("GET", {"Accept": "text/event-stream", "Last-Event-ID": after, **(headers or {})})

    def call(self, message: Any) -> list[Any]:
        """Every message of the answer to a POST."""
        response = self.post(message)
        assert response.status == 200, response.read()
        return self.messages(response)

    def error(self, response: http.client.HTTPResponse) -> tuple[int, int]:
        """The HTTP status and the code of the error in the body, which belongs to no request."""
        body = json.loads(response.read())
        assert body.keys() == {"jsonrpc", "error"}
        return response.status, body["error"]["code"]

    def messages(self, response: http.client.HTTPResponse) -> list[Any]:
        if response.getheader("Content-Type") == "text/event-stream":
            return [event.message for event in events(response) if event.data]
        return [json.loads(response.read())]

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
