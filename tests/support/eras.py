"""Servers of every era over stdio and HTTP with one interface, and the judge of what a client said to them.

    with playing("stdio", {"era": "legacy"}) as stage, stage.connect() as client: ...

Plans are those of `stdio_servers/eras.py`; each process follows the next, an HTTP server the only one. When the `with`
ends, everything that was received is judged by the rules of its era.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snodo_client import Client, McpError, Ok
from support import mcp_schema
from support.scripted_http import Peer, Request, ScriptedServer, each_request
from support.stdio_servers.eras import META, NEW, OLD, Play
from support.stdio_servers.eras import error as error_message
from support.waiting import until

SCRIPT = str(Path(__file__).parent / "stdio_servers" / "eras.py")
KINDS = ("stdio", "http")
PROBE, INITIALIZE, INITIALIZED, CALL = "server/discover", "initialize", "notifications/initialized", "tools/call"
HANDSHAKE = [INITIALIZE, INITIALIZED]
PATIENT = 10.0  # the limit of what must end long before
Plan = dict[str, Any]


class Stage:
    """What a server has received, and how to connect to it."""

    def __init__(self, connect: Callable[..., Client], record: Callable[[], list[dict[str, Any]]]) -> None:
        self._connect = connect
        self._record = record
        self.clients: list[Client] = []

    def connect(self, **options: Any) -> Client:
        client = self._connect(**{"timeout": PATIENT, **options})
        self.clients.append(client)
        return client

    def failed(self, **options: Any) -> McpError:
        """The error that connecting must raise."""
        try:
            client = self.connect(**options)
        except McpError as error:
            return error.copy()
        raise AssertionError(f"connected: {client!r}")

    @property
    def processes(self) -> int:
        return sum("started" in entry for entry in self._record())

    @property
    def record(self) -> list[dict[str, Any]]:
        """Every message so far, in order, with the version agreed on before it, and whether it ran a tool."""
        return [entry for entry in self._record() if "message" in entry]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [entry["message"] for entry in self.record]

    @property
    def methods(self) -> list[str]:
        return [message.get("method", "answer") for message in self.messages]

    @property
    def runs(self) -> int:
        """How often a tool was run."""
        return sum(entry["ran"] for entry in self.record)

    def saw(self, *methods: str) -> None:
        """Wait until exactly these messages have been received."""
        until(lambda: len(self.methods) >= len(methods))
        assert self.methods == list(methods)


class HttpStage(Stage):
    def __init__(self, server: ScriptedServer, record: Callable[[], list[dict[str, Any]]]) -> None:
        super().__init__(lambda **options: Client.connect(server.url, **options), record)
        self.server = server

    @property
    def lines(self) -> list[str]:
        """The HTTP requests, of which the POSTs with their JSON-RPC method."""
        return [_line(request) for request in list(self.server.requests)]


@contextmanager
def playing(kind: str, *plans: Plan, strict: bool = True, **options: Any) -> Iterator[Any]:
    """A server over "stdio" or "http". Without `strict`, messages of both eras may mix while the era is found out."""
    stage: Stage
    if kind == "stdio":
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "record"
            target = ("stdio", sys.executable, ["-I", "-S", SCRIPT, str(file), *(json.dumps(plan) for plan in plans)])
            stage = Stage(lambda **more: Client.connect(target, **more), lambda: _read(file))
            try:
                yield stage
                judge(stage.record, strict=strict, clients=len(stage.clients))
            finally:
                _close(stage)
    else:
        record: list[dict[str, Any]] = []
        with ScriptedServer(each_request(served(Play(plans[0] if plans else {}), record)), **options) as server:
            stage = HttpStage(server, lambda: list(record))
            try:
                yield stage
                judge(stage.record, strict=strict, clients=len(stage.clients))
                judge_headers(server.requests, stage.record)
            finally:
                _close(stage)


def served(play: Play, record: list[dict[str, Any]]) -> Callable[[Peer, Request], None]:
    """Streamable HTTP around a play, with a session id in the legacy era."""
    lock = threading.Lock()
    sessions: set[str] = set()

    def reply(peer: Peer, request: Request) -> None:
        session = request.header("mcp-session-id")
        if request.line.startswith("GET"):
            return peer.respond("405 Method Not Allowed")
        if request.line.startswith("DELETE"):
            return peer.respond("200 OK")
        with lock:  # what is kept has the order of what was done
            step, entry = play.act(request.message, welcome=session in sessions)
            record.append(entry)
        peer.pause(step.get("wait", 0))
        headers = list(step.get("headers", ()))
        if request.message.get("method") == INITIALIZE and play.agreed:
            with lock:
                name = f"session-{len(sessions) + 1}"
                sessions.add(name)
            headers.append(f"Mcp-Session-Id: {name}")
        return _respond(peer, request, step, headers)

    return reply


def _respond(peer: Peer, request: Request, step: dict[str, Any], headers: list[str]) -> None:
    status = step.get("status", 200)
    line = f"{status} {STATUSES.get(status, 'Status')}"
    if "body" in step:
        return peer.respond(line, step["body"].encode(), *headers, kind=step.get("type"))
    if "id" not in request.message or "method" not in request.message:
        return peer.respond("202 Accepted" if status == 200 else line, b"", *headers)
    if not step["send"]:
        return peer.silence()
    if len(step["send"]) == 1:
        return peer.json(step["send"][0], line, *headers)
    peer.start_sse(*headers)
    for message in step["send"]:
        peer.chunk(b"data: " + json.dumps(message).encode() + b"\n\n")
    return peer.end()


STATUSES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


def _line(request: Request) -> str:
    verb = request.line.split(" ")[0]
    return f"{verb} {request.message.get('method', 'answer')}" if verb == "POST" else verb


def _read(file: Path) -> list[dict[str, Any]]:
    lines = file.read_text().split("\n") if file.exists() else []
    return [json.loads(line) for line in lines[:-1]]


def _close(stage: Stage) -> None:
    for client in stage.clients:
        client.close()


# -- steps of a plan


def say(*messages: Any, **rest: Any) -> Plan:
    """A step that sends these messages."""
    return {"send": list(messages), **rest}


def answers(result: Any, id: Any = "$ID") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def refuses(code: int, data: Any = None, message: str = "no", id: Any = "$ID") -> dict[str, Any]:
    return error_message(id, code, data, message)


def asks(method: str, id: Any, **params: Any) -> dict[str, Any]:
    """A request of the server."""
    return {"jsonrpc": "2.0", "id": id, "method": method} | ({"params": params} if params else {})


def tells(method: str, **params: Any) -> dict[str, Any]:
    """A notification of the server."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def discovered(*versions: str, **members: Any) -> dict[str, Any]:
    return {"resultType": "complete", "supportedVersions": list(versions), "capabilities": {}, **members}


def handshake(version: str = OLD[0], **members: Any) -> dict[str, Any]:
    info = {"name": "eras", "version": "1"}
    return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info, **members}


SILENCE: Plan = {"send": []}


def plan(era: str = "dual", /, **steps: Any) -> Plan:
    """A plan whose steps are named by `discover`, `initialize`, `call`, `answer` and `initialized`; a single step need
    not be in a list.
    """
    names = {"discover": PROBE, "initialized": INITIALIZED, "call": CALL}
    listed = {names.get(name, name): step if isinstance(step, list) else [step] for name, step in steps.items()}
    return {"era": era, "steps": listed}


# -- judging


def assert_speaks(client: Client, version: str, text: str = "hello") -> dict[str, Any]:
    """The client is of use, and it is so by this version."""
    outcome = client.call_tool("ok", {"text": text})
    assert isinstance(outcome, Ok), outcome
    assert outcome.value["content"][0]["text"] == text
    info = client.protocol_info
    assert (info["status"], info["version"], info["error"]) == ("ready", version, None), info
    assert info["era"] == ("modern" if version == NEW else "legacy")
    return info


def judge(record: list[dict[str, Any]], *, strict: bool = True, clients: int = 1) -> None:
    """What any client must keep to: ids are integers that never come twice from one client, nobody cancels a probe or
    a handshake, the handshake is complete before anything else, eras do not mix on one link, and every message is one
    of its revision.
    """
    ids = [entry["message"]["id"] for entry in record if "method" in entry["message"] and "id" in entry["message"]]
    assert all(type(id_) is int for id_ in ids), ids
    assert len(ids) == len(set(ids)) or clients > 1, ids
    for life in {entry.get("life") for entry in record}:
        _judge_link([entry for entry in record if entry.get("life") == life], strict)


def _judge_link(record: list[dict[str, Any]], strict: bool) -> None:
    opening = {entry["message"]["id"] for entry in record if entry["message"].get("method") in (PROBE, INITIALIZE)}
    initialized = False
    for entry in record:
        message, method = entry["message"], entry["message"].get("method", "answer")
        modern = META + "protocolVersion" in ((message.get("params") or {}).get("_meta") or {})
        agreed = entry["agreed"]
        if method == INITIALIZE:
            initialized = False
        if modern:
            assert not (strict and agreed), f"{method} of the modern era after a handshake"
            mcp_schema.check_from_client(message, NEW)
            continue
        version = message["params"]["protocolVersion"] if method == INITIALIZE else agreed or OLD[0]
        mcp_schema.check_from_client(message, version)
        assert META not in json.dumps(message)
        if method == INITIALIZED:
            assert agreed, "initialized before the handshake was answered"
            assert not initialized, "initialized twice"
            initialized = True
        elif method not in (INITIALIZE, "answer"):
            assert initialized or method == "notifications/cancelled", f"{method} before initialized"
        if method == "notifications/cancelled":
            assert message["params"]["requestId"] not in opening


def judge_headers(requests: list[Request], record: list[dict[str, Any]]) -> None:
    """Headers of the modern era go with its messages alone, and those of a version say the right one."""
    agreed = {json.dumps(entry["message"]): entry["agreed"] for entry in record}
    for request in list(requests):
        names = {name for name, _ in request.headers}
        version = request.header("mcp-protocol-version")
        if not request.line.startswith("POST"):
            assert not names & {"mcp-method", "mcp-name"}
            continue
        message = request.message
        meta = (message.get("params") or {}).get("_meta") or {}
        if META + "protocolVersion" in meta:
            assert version == meta[META + "protocolVersion"]
            assert request.header("mcp-method") == message["method"]
            assert "mcp-session-id" not in names
            continue
        assert not {name for name in names if name.startswith(("mcp-method", "mcp-name", "mcp-param"))}
        now = agreed.get(json.dumps(message), "")
        if message.get("method") == INITIALIZE or not now:
            assert not {"mcp-session-id", "mcp-protocol-version"} & names
        elif "method" in message or version is not None:  # what was asked before may be answered before
            assert version == (now if now >= "2025-06-18" else None)


def assert_refused_pin(error: McpError, pin: str, theirs: str) -> None:
    """A pin was refused, and the error names what either side speaks."""
    assert (error.reason, error.code) == ("incompatible_versions", -32602), error
    assert (error.data["requested"], error.data["supported"]) == ([pin], [theirs])
    assert pin in error.message
    assert theirs in error.message
