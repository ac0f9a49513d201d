"""The scriptable server over WebSocket, driven by the client of the `websockets` package."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import trustme
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from snodo_client.testing import Call, Fault, Server
from snodo_client.testing.demo import demo_server
from snodo_client.testing.websocket import WebSocketServing
from support.leaks import repeat
from support.legacy_web import initialize, notification, request, tool_call
from support.waiting import until

MCP = [Subprotocol("mcp")]


class Socket:
    """One connection."""

    def __init__(self, serving: WebSocketServing, **options: Any) -> None:
        self.serving = serving
        self._stack = ExitStack()
        opening = connect(serving.url, subprotocols=MCP, proxy=None, **options)
        self.connection: ClientConnection = self._stack.enter_context(opening)

    def send(self, message: Any) -> None:
        self.connection.send(json.dumps(message))

    def receive(self) -> Any:
        text = self.connection.recv(timeout=20)
        assert isinstance(text, str)
        return json.loads(text)

    def call(self, message: dict[str, Any]) -> Any:
        self.send(message)
        return self.receive()

    def open(self, version: str = "2025-06-18", capabilities: dict[str, Any] | None = None) -> Socket:
        assert self.call(initialize(version, capabilities))["result"]["protocolVersion"] == version
        self.send(notification("notifications/initialized"))
        return self

    def close(self) -> None:
        self._stack.close()


def patient_server() -> tuple[Server, threading.Event, threading.Event]:
    """A server with a tool that says when it runs and when it was cancelled."""
    server, running, over = Server(), threading.Event(), threading.Event()

    @server.tool
    def patient(call: Call) -> str:
        running.set()
        if not call.sleep(60):
            over.set()
        return ""

    return server, running, over


@pytest.fixture
def serve() -> Iterator[Callable[..., Socket]]:
    open_now: list[Any] = []

    def serve_and_connect(server: Server, **options: Any) -> Socket:
        serving = server.serve_websocket(**options)
        open_now.append(serving)
        client = Socket(serving)
        open_now.append(client)
        return client

    yield serve_and_connect
    for each in reversed(open_now):
        each.close()


@pytest.fixture
def client(serve: Callable[..., Socket]) -> Socket:
    return serve(demo_server())


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_any_older_revision_is_spoken(client: Socket, version: str) -> None:
    assert client.connection.subprotocol == "mcp"
    client.open(version)
    assert client.call(tool_call("add", {"a": 1, "b": 2}))["result"]["content"][0]["text"] == "3"
    assert client.call(request("no/such"))["error"]["code"] == -32601


def test_the_newest_revision_is_not_spoken(client: Socket) -> None:
    assert client.call(initialize("2026-07-28"))["result"]["protocolVersion"] == "2025-11-25"


def test_notifications_and_questions_come_before_the_answer(client: Socket) -> None:
    client.open(capabilities={"elicitation": {}})
    assert client.call(tool_call("count", {"steps": 1}, token=9))["params"]["progressToken"] == 9
    assert [client.receive() for _ in range(2)][-1]["result"]["content"][0]["text"] == "counted to 1"
    question = client.call(tool_call("deploy"))
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"confirm": True}}}
    assert client.call(answer)["result"]["content"][0]["text"] == "deployed"
    (session,) = client.serving.server.sessions
    assert session.notify("notifications/message", {"level": "info", "data": "loose"})
    assert client.receive()["params"]["data"] == "loose"


def test_requests_run_side_by_side_and_can_be_cancelled(serve: Callable[..., Socket]) -> None:
    server, running, over = patient_server()
    client = serve(server).open()
    patient = tool_call("patient")
    client.send(patient)
    assert running.wait(20)
    assert client.call(request("ping"))["result"] == {}
    client.send(notification("notifications/cancelled", {"requestId": patient["id"]}))
    assert over.wait(20)
    assert client.call(request("ping"))["result"] == {}


def test_a_fragmented_message_is_put_together(client: Socket) -> None:
    text = json.dumps(initialize("2025-06-18"))
    client.connection.send([text[:10], text[10:11], text[11:]])
    assert client.receive()["result"]["protocolVersion"] == "2025-06-18"


def test_large_messages_pass_both_ways(client: Socket) -> None:
    client.open()
    text = "\N{SNOWMAN}" * 300_000
    with closing(Socket(client.serving, max_size=None)) as other:
        answer = other.open().call(tool_call("echo", {"message": text}))
    assert answer["result"]["content"][0]["text"] == text


def test_a_message_that_is_too_large_ends_the_connection(serve: Callable[..., Socket]) -> None:
    client = serve(demo_server(), max_message_bytes=1000)
    client.connection.send("x" * 1001)
    with pytest.raises(ConnectionClosed) as closed:
        client.receive()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def test_what_is_not_json_is_refused_and_bytes_end_the_connection(client: Socket) -> None:
    client.open()
    client.connection.send("junk")
    assert client.receive()["error"]["code"] == -32700
    assert client.call(request("ping"))["result"] == {}
    client.connection.send(b"{}")
    with pytest.raises(ConnectionClosed) as closed:
        client.receive()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1003


def test_pings_are_answered(client: Socket) -> None:
    assert client.connection.ping().wait(20)


@pytest.mark.parametrize("offered", [None, [Subprotocol("chat")]])
def test_the_subprotocol_is_required(client: Socket, offered: list[Subprotocol] | None) -> None:
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(client.serving.url, subprotocols=offered, proxy=None),
    ):
        pass
    assert refused.value.response.status_code == 400


@pytest.mark.parametrize(
    ("path", "origin", "status"), [("/other", None, 404), ("/ws", "http://evil.example", 403), ("/ws", None, 0)]
)
def test_the_door(serve: Callable[..., Socket], path: str, origin: str | None, status: int) -> None:
    serving = serve(demo_server(), path="/ws").serving
    url = serving.url.removesuffix("/ws") + path
    options: dict[str, Any] = {"origin": None if origin is None else Origin(origin), "subprotocols": MCP, "proxy": None}
    if not status:
        with connect(url, **options):
            return
    with pytest.raises(InvalidStatus) as refused, connect(url, **options):
        pass
    assert refused.value.response.status_code == status


@pytest.mark.parametrize("abruptly", [False, True])
def test_the_server_can_hang_up(client: Socket, abruptly: bool) -> None:
    client.open()
    client.serving.end_connections(1012, abruptly=abruptly)
    with pytest.raises(ConnectionClosed) as closed:
        client.receive()
    received = closed.value.rcvd
    assert (received and received.code) == (None if abruptly else 1012)
    until(lambda: not client.serving.server.sessions)
    with closing(Socket(client.serving).open()) as again:
        assert again.call(request("ping"))["result"] == {}


def test_a_client_that_leaves_is_noticed_and_its_requests_are_cancelled(serve: Callable[..., Socket]) -> None:
    server, running, over = patient_server()
    client = serve(server).open()
    client.send(tool_call("patient"))
    assert running.wait(20)
    client.close()
    assert over.wait(20)
    until(lambda: not server.sessions)


def test_the_credential_is_the_principal(serve: Callable[..., Socket]) -> None:
    server = Server()

    @server.tool
    def who(call: Call) -> str:
        return str(call.auth)

    serving = serve(server).serving
    with closing(Socket(serving, additional_headers={"Authorization": "Bearer t"}).open()) as client:
        assert client.call(tool_call("who"))["result"]["content"][0]["text"] == "Bearer t"


def test_faults(client: Socket) -> None:
    server = client.serving.server
    client.open()
    server.fault("tools/list", Fault.drop())
    client.send(request("tools/list"))
    server.fault("ping", Fault.duplicate(), Fault.wrong_id(5), times=1)
    assert [client.call(request("ping"))["id"], client.receive()["id"]] == [5, 5]
    server.fault("ping", Fault.garbage(b"junk"), times=1)
    client.send(request("ping"))
    assert client.connection.recv(timeout=20) == "junk"


@pytest.mark.parametrize("kind", ["open", "running", "silent", "no handshake"])
def test_closing_leaves_nothing_behind(kind: str) -> None:
    server = demo_server()

    def once() -> None:
        with server.serve_websocket() as serving:
            if kind == "no handshake":
                client: Any = socket.create_connection(("127.0.0.1", serving.port))
                client.sendall(b"GET / HTTP/1.1\r\n")
            else:
                client = Socket(serving).open()
            if kind == "running":
                client.send(tool_call("sleep", {"seconds": 60}))
            elif kind == "silent":
                client.close()
                client = _silent(serving)
            serving.close()
        client.close()
        assert server.sessions == []

    repeat(1, once)


def _silent(serving: WebSocketServing) -> socket.socket:
    """A client that shakes hands and then neither reads nor says anything."""
    client = socket.create_connection(("127.0.0.1", serving.port))
    client.sendall(
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: mcp\r\n\r\n"
    )
    until(lambda: client.recv(1, socket.MSG_PEEK))
    return client


def test_closing_says_goodbye(client: Socket) -> None:
    client.open()
    closing_thread = threading.Thread(target=client.serving.close)
    closing_thread.start()
    with pytest.raises(ConnectionClosed) as closed:
        client.receive()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001
    closing_thread.join(20)


def test_tls() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with demo_server().serve_websocket(ssl_context=context) as serving:
        assert serving.url.startswith("wss://")
        with closing(Socket(serving, ssl=trusting).open()) as client:
            assert client.call(request("ping"))["result"] == {}


def test_without_the_extra_the_error_names_it() -> None:
    code = (
        "import sys; sys.modules['websockets'] = None\n"
        "from snodo_client.testing import Server\n"
        "try: Server().serve_websocket()\n"
        "except ImportError as error: print(error)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert "snodo_client[websocket]" in printed
