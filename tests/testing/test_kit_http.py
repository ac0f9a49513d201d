"""The scriptable server over real sockets, driven by `http.client` and by plain bytes."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import trustme

from snodo_client.testing import Call, Fault, Raw, Server, ToolError
from snodo_client.testing.demo import demo_server
from snodo_client.testing.httpd import HttpServing
from support.mcp_requests import META, VERSION, request, tool_call
from support.mcp_schema import check_from_server

ACCEPT = "application/json, text/event-stream"


class Web:
    """One keep-alive connection to a server."""

    def __init__(self, serving: HttpServing) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", serving.port, timeout=10)

    def post(self, body: Any, headers: dict[str, str] | None = None, path: str = "/mcp") -> http.client.HTTPResponse:
        """Send; `headers` are added to the right ones, None leaves one out."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields: dict[str, Any] = {"Accept": ACCEPT, "Content-Type": "application/json", "MCP-Protocol-Version": VERSION}
        if isinstance(body, dict):
            params = body.get("params", {})
            fields["Mcp-Method"] = body.get("method")
            fields["Mcp-Name"] = params.get("uri", params.get("name"))
        fields |= headers or {}
        self.connection.request("POST", path, data, {name: str(v) for name, v in fields.items() if v is not None})
        return self.connection.getresponse()

    def call(self, body: Any, headers: dict[str, str] | None = None) -> tuple[int, list[dict[str, Any]]]:
        """The status and every message of the answer, held to the schema."""
        response = self.post(body, headers)
        messages = parse(response.getheader("Content-Type", ""), response.read())
        method = body["method"] if isinstance(body, dict) else ""
        return response.status, [check_from_server(message, method) for message in messages]


def parse(content_type: str, data: bytes) -> list[dict[str, Any]]:
    if content_type == "text/event-stream":
        events = data.decode().split("\n\n")
        assert events.pop() == ""
        return [json.loads(event.removeprefix("event: message\ndata: ")) for event in events]
    return [json.loads(data)] if data else []


@pytest.fixture
def serve() -> Iterator[Callable[..., Web]]:
    open_now: list[Any] = []

    def serve_and_connect(server: Server, **options: Any) -> Web:
        serving = server.serve_http(**options)
        web = Web(serving)
        open_now.extend((web.connection, serving))
        return web

    yield serve_and_connect
    for each in open_now:
        each.close()


@pytest.fixture
def web(serve: Callable[..., Web]) -> Web:
    return serve(demo_server())


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


# Answers


def test_one_connection_serves_many_requests(web: Web) -> None:
    web.connection.connect()
    sock = web.connection.sock
    for number in range(3):
        message = tool_call("add", {"a": number, "b": 1})
        status, messages = web.call(message)
        assert (status, messages[0]["id"]) == (200, message["id"])
        status, messages = web.call(tool_call("count", {"steps": 2}, progressToken=1))
        assert (status, len(messages)) == (200, 3)
    assert web.connection.sock is sock


def test_notifications_make_a_stream_and_nothing_else_does(web: Web) -> None:
    response = web.post(tool_call("count", {"steps": 1}))
    assert response.getheader("Content-Type") == "application/json"
    assert int(response.getheader("Content-Length", "")) == len(response.read())
    response = web.post(tool_call("count", {"steps": 1}, progressToken=1))
    assert response.getheader("Content-Type") == "text/event-stream"
    assert response.getheader("X-Accel-Buffering") == "no"
    assert response.getheader("Transfer-Encoding") == "chunked"
    response.read()


@pytest.mark.parametrize(("sse", "kinds"), [(True, ["stream", "stream"]), (False, ["json", "json"])])
def test_the_form_of_the_answer_can_be_fixed(serve: Callable[..., Web], sse: bool, kinds: list[str]) -> None:
    web = serve(demo_server(), sse=sse)
    seen = []
    for message in (request("server/discover"), tool_call("count", {"steps": 1}, progressToken=1)):
        response = web.post(message)
        seen.append("stream" if response.getheader("Content-Type") == "text/event-stream" else "json")
        assert parse(response.getheader("Content-Type", ""), response.read())[-1]["id"] == message["id"]
    assert seen == kinds


def test_errors_of_the_protocol_are_json_even_on_a_server_that_streams(serve: Callable[..., Web]) -> None:
    web = serve(demo_server(), sse=True)
    response = web.post(request("no/such"))
    assert (response.status, response.getheader("Content-Type")) == (404, "application/json")
    response.read()


def test_events_are_sent_as_they_happen(serve: Callable[..., Web]) -> None:
    server, go = Server(), threading.Event()

    @server.tool
    def waits(call: Call) -> str:
        call.progress(1)
        assert go.wait(10)
        return "done"

    web = serve(server)
    response = web.post(tool_call("waits", progressToken=1))
    assert b"event: message" in response.readline()
    assert b"notifications/progress" in response.readline()
    go.set()
    assert b'"done"' in response.read()


def test_notifications_are_accepted_without_a_body(web: Web) -> None:
    response = web.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    assert (response.status, response.read()) == (202, b"")


# Refusals


@pytest.mark.parametrize(
    ("message", "headers", "status", "code"),
    [
        ({"jsonrpc": "2.0", "id": 1, "method": "server/discover"}, {}, 400, -32602),
        (request("server/discover"), {"MCP-Protocol-Version": None}, 400, -32020),
        (request("server/discover"), {"MCP-Protocol-Version": "2025-11-25"}, 400, -32020),
        (request("server/discover"), {"Mcp-Method": None}, 400, -32020),
        (request("server/discover"), {"Mcp-Method": "Server/Discover"}, 400, -32020),
        (tool_call("echo", {"message": "m"}), {"Mcp-Name": None}, 400, -32020),
        (tool_call("echo", {"message": "m"}), {"Mcp-Name": "add"}, 400, -32020),
        (tool_call("weather", {"region": "eu"}), {}, 400, -32020),
        (tool_call("weather", {"region": "eu"}), {"Mcp-Param-Region": "us"}, 400, -32020),
        (tool_call("deploy"), {}, 400, -32021),
        (request("initialize"), {}, 404, -32601),
        (tool_call("unknown"), {}, 200, -32602),
        ([], {}, 400, -32600),
        (b"junk", {}, 400, -32700),
        (b"\xff", {}, 400, -32700),
    ],
)
def test_refusals_have_their_status_and_code(
    web: Web, message: Any, headers: dict[str, Any], status: int, code: int
) -> None:
    assert (lambda answer: (answer[0], answer[1][0]["error"]["code"]))(web.call(message, headers)) == (status, code)
    assert web.call(request("server/discover"))[0] == 200


def test_an_unsupported_version_is_told_from_a_mismatch(web: Web) -> None:
    message = request("server/discover")
    message["params"]["_meta"][f"{META}protocolVersion"] = "2099-01-01"
    status, messages = web.call(message, {"MCP-Protocol-Version": "2099-01-01"})
    assert (status, messages[0]["error"]["code"]) == (400, -32022)


def test_encoded_headers_are_decoded(web: Web) -> None:
    status, messages = web.call(tool_call("weather", {"region": "é"}), {"Mcp-Param-Region": "=?base64?w6k=?="})
    assert (status, messages[0]["result"]["structuredContent"]["region"]) == (200, "é")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Origin": "https://127.0.0.1"}, 200),
        ({"Origin": "http://[::1]:80"}, 200),
        ({"Accept": None}, 406),
        ({"Accept": "application/json"}, 406),
        ({"Accept": "Text/Event-Stream;q=0.5 , application/json; charset=utf-8"}, 200),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
    ],
)
def test_the_door(web: Web, headers: dict[str, Any], status: int) -> None:
    assert web.call(request("server/discover"), headers)[0] == status
    assert web.call(request("server/discover"))[0] == 200


def test_there_is_one_endpoint_and_in_the_modern_era_it_takes_posts(serve: Callable[..., Web]) -> None:
    server = demo_server()
    server.versions = [VERSION]
    web = serve(server)
    response = web.post(request("server/discover"), path="/other")
    assert (response.status, b"id" in response.read()) == (404, False)
    for method in ("GET", "DELETE", "PUT", "HEAD", "OPTIONS"):
        web.connection.request(method, "/mcp")
        response = web.connection.getresponse()
        assert (response.status, response.getheader("Allow")) == (405, "POST")
        response.read()


@pytest.mark.parametrize(
    ("name", "value", "status"), [("Content-Length", "1001", 413), ("Transfer-Encoding", "chunked", 411)]
)
def test_bodies_are_bounded_and_have_a_length(serve: Callable[..., Web], name: str, value: str, status: int) -> None:
    connection = serve(demo_server(), max_body_bytes=1000).connection
    connection.putrequest("POST", "/mcp")
    connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    assert (response.status, response.getheader("Connection")) == (status, "close")
    response.close()


def test_what_was_received_is_recorded_with_its_headers(serve: Callable[..., Web]) -> None:
    server = demo_server()
    serve(server).call(request("server/discover"), {"X-Custom": "a", "Authorization": "Bearer secret"})
    received = server.calls[0]
    assert received.headers["x-custom"] == "a"
    assert received.headers["mcp-method"] == "server/discover"
    assert "secret" not in repr(received)


def test_the_credential_is_the_principal(serve: Callable[..., Web]) -> None:
    server = Server()

    @server.tool
    def who(call: Call) -> str:
        raise ToolError(str(call.auth))

    _, messages = serve(server).call(tool_call("who"), {"Authorization": "Bearer t"})
    assert messages[0]["result"]["content"][0]["text"] == "Bearer t"


# Cancellation and subscriptions


@pytest.mark.parametrize("streaming", [True, False])
def test_a_closed_connection_is_a_cancellation(serve: Callable[..., Web], streaming: bool) -> None:
    server, told = Server(), threading.Event()

    @server.tool
    def waits(call: Call) -> str:
        if streaming:
            call.progress(1)
        running.set()
        if not call.sleep(60):
            told.set()
        return "never"

    running = threading.Event()
    web = serve(server)
    message = tool_call("waits", progressToken=1)
    fields = {
        "Accept": ACCEPT,
        "Content-Type": "application/json",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": message["method"],
        "Mcp-Name": "waits",
    }
    web.connection.request("POST", "/mcp", json.dumps(message), fields)
    assert running.wait(10)
    assert not told.is_set()
    web.connection.close()
    assert told.wait(10)


def test_a_subscription_streams_until_the_server_closes_it(serve: Callable[..., Web]) -> None:
    server = demo_server()
    serving = server.serve_http(sse=False)
    with closing(Web(serving).connection) as connection:
        web = Web(serving)
        web.connection = connection
        listen = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        response = web.post(listen)
        until(lambda: len(server.subscriptions) == 1)
        server.emit("notifications/tools/list_changed")
        threading.Timer(0.05, serving.close).start()
        messages = [check_from_server(m, listen["method"]) for m in parse("text/event-stream", response.read())]
    assert [m.get("method", "result") for m in messages] == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
        "result",
    ]
    serving.close()


def test_a_subscriber_that_leaves_is_noticed(serve: Callable[..., Web]) -> None:
    server = demo_server()
    web = serve(server)
    response = web.post(request("subscriptions/listen", {"notifications": {}}))
    until(lambda: len(server.subscriptions) == 1)
    response.close()
    web.connection.close()
    until(lambda: len(server.subscriptions) == 0)


# Faults


def test_faults_over_http(serve: Callable[..., Web]) -> None:
    server = demo_server()
    web = serve(server)
    discover = request("server/discover")

    server.fault("server/discover", Fault.garbage(b"<html>", status=502, content_type="text/html"), times=1)
    response = web.post(discover)
    assert (response.status, response.getheader("Content-Type"), response.read()) == (502, "text/html", b"<html>")

    server.fault("server/discover", Fault.duplicate(), Fault.wrong_id(5), times=1)
    response = web.post(discover)
    assert [m["id"] for m in parse(response.getheader("Content-Type", ""), response.read())] == [5, 5]

    server.fault("server/discover", Fault.error(-32603, "down", status=503), times=1)
    status, messages = web.call(discover)
    assert (status, messages[0]["error"]) == (503, {"code": -32603, "message": "down"})

    server.fault("server/discover", Fault.drip(0.0005), times=1)
    start = time.monotonic()
    assert web.call(discover)[0] == 200
    assert time.monotonic() - start >= 0.1  # some 300 bytes

    for fault in (Fault.drop(), Fault.crash()):
        server.fault("server/discover", fault, times=1)
        with pytest.raises(http.client.RemoteDisconnected):
            web.post(discover)
        web.connection.close()
    assert web.call(discover)[0] == 200


def test_raw_answers_have_their_own_head(serve: Callable[..., Web]) -> None:
    server = Server()
    raw = Raw(b"gone", status=307, content_type="text/plain", headers={"Location": "/new"})
    server.on("server/discover", check=False)(lambda message, context: raw)
    response = serve(server).post({"jsonrpc": "2.0", "id": 1, "method": "server/discover"})
    assert (response.status, response.getheader("Location"), response.read()) == (307, "/new", b"gone")


# Life and death


def counts() -> tuple[int, int]:
    return threading.active_count(), len(os.listdir("/dev/fd"))


def test_closing_leaves_no_thread_and_no_descriptor() -> None:
    server = demo_server()

    def round_trip(kind: str) -> None:
        with server.serve_http() as serving:
            web = Web(serving)
            web.call(request("server/discover"))
            if kind == "idle":
                web.connection.sock.sendall(b"POST /mcp HTTP/1.1\r\nContent-Le")
            elif kind == "sleep":
                message = tool_call("sleep", {"seconds": 60}, progressToken=1)
                body = json.dumps(message).encode()
                head = f"POST /mcp HTTP/1.1\r\nHost: x\r\nAccept: {ACCEPT}\r\nContent-Type: application/json\r\n"
                head += f"MCP-Protocol-Version: {VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: sleep\r\n"
                web.connection.sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                until(lambda: server.calls[-1].message == message)
            elif kind == "listen":
                response = web.post(request("subscriptions/listen", {"notifications": {}}))
                until(lambda: len(server.subscriptions) == 1)
        serving.close()
        if kind == "listen":
            response.close()
        web.connection.close()

    round_trip("plain")
    before = counts()
    for kind in ("plain", "idle", "sleep", "listen") * 2:
        round_trip(kind)
    until(lambda: all(now <= then for now, then in zip(counts(), before, strict=True)))


def test_a_port_can_be_asked_for_and_is_free_afterwards() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    for _ in range(2):
        with demo_server().serve_http(port=port, path="/elsewhere") as serving:
            assert serving.url == f"http://127.0.0.1:{port}/elsewhere"


def test_tls() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    with demo_server().serve_http(ssl_context=context) as serving:
        assert serving.url.startswith("https://")
        with socket.create_connection(("127.0.0.1", serving.port)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            plain.settimeout(10)
            assert not plain.recv(100).startswith(b"HTTP")
        web = Web(serving)
        web.connection = http.client.HTTPSConnection("127.0.0.1", serving.port, timeout=10, context=client)
        with closing(web.connection):
            for _ in range(2):
                assert len(web.call(tool_call("count", {"steps": 2}, progressToken=1))[1]) == 3


def test_many_connections_at_once() -> None:
    wrong: list[Any] = []
    with demo_server().serve_http() as serving:

        def work(base: int) -> None:
            web = Web(serving)
            with closing(web.connection):
                for number in range(10):
                    _, messages = web.call(tool_call("add", {"a": base, "b": number}, progressToken=base))
                    if messages[-1]["result"]["structuredContent"] != base + number:
                        wrong.append(messages)

        threads = [threading.Thread(target=work, args=(base,)) for base in range(0, 2000, 100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.parametrize("options", [[], ["--sse"]])
def test_the_module_serves_the_demo_and_prints_its_url_first(options: list[str]) -> None:
    command = [sys.executable, "-m", "snodo_client.testing", "http", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            connection = http.client.HTTPConnection("127.0.0.1", int(url.split(":")[2].split("/")[0]), timeout=10)
            web = Web.__new__(Web)
            web.connection = connection
            with closing(connection):
                response = web.post(request("tools/list"))
                kind = response.getheader("Content-Type")
                assert parse(kind or "", response.read())[0]["result"]["nextCursor"] == "5"
                assert kind == ("text/event-stream" if options else "application/json")
        finally:
            process.terminate()
