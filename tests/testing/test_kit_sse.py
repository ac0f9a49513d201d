"""The scriptable server over HTTP+SSE: one stream to the client, POSTs to the server."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
import trustme

from snodo_client.testing import Call, Fault, Server
from snodo_client.testing.demo import demo_server
from snodo_client.testing.sse import SseServing
from support.leaks import repeat
from support.legacy_web import Event, events, initialize, notification, request, tool_call
from support.waiting import until


class SseClient:
    """One stream, and the connection that POSTs go through."""

    def __init__(self, serving: SseServing, context: ssl.SSLContext | None = None) -> None:
        self.serving = serving
        self._connect: Callable[[], http.client.HTTPConnection] = lambda: (
            http.client.HTTPSConnection("127.0.0.1", serving.port, timeout=20, context=context)
            if context
            else http.client.HTTPConnection("127.0.0.1", serving.port, timeout=20)
        )
        self.stream, self.posting = self._connect(), self._connect()
        self.stream.request("GET", urlsplit(serving.url).path, headers={"Accept": "text/event-stream"})
        self.response = self.stream.getresponse()
        self.events: Iterator[Event] = events(self.response)
        self.endpoint = next(self.events)

    def post(self, message: Any, url: str | None = None, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        target = urlsplit(urljoin(self.serving.url, self.endpoint.data if url is None else url))
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        fields = {"Content-Type": "application/json", **(headers or {})}
        self.posting.request("POST", f"{target.path}?{target.query}", body, fields)
        response = self.posting.getresponse()
        return response.status, response.read()

    def call(self, message: dict[str, Any]) -> dict[str, Any]:
        """The next message of the stream after this one was accepted."""
        assert self.post(message) == (202, b"Accepted")
        answer: dict[str, Any] = next(self.events).message
        return answer

    def open(self, version: str = "2024-11-05", capabilities: dict[str, Any] | None = None) -> SseClient:
        assert self.call(initialize(version, capabilities))["result"]["protocolVersion"] == version
        assert self.post(notification("notifications/initialized"))[0] == 202
        return self

    def close(self) -> None:
        self.response.close()
        self.stream.close()
        self.posting.close()


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
def serve() -> Iterator[Callable[..., SseClient]]:
    open_now: list[Any] = []

    def serve_and_connect(server: Server, **options: Any) -> SseClient:
        serving = server.serve_sse(**options)
        open_now.append(serving)
        client = SseClient(serving)
        open_now.append(client)
        return client

    yield serve_and_connect
    for each in reversed(open_now):
        each.close()


@pytest.fixture
def client(serve: Callable[..., SseClient]) -> SseClient:
    return serve(demo_server())


def test_the_first_event_says_where_to_post(client: SseClient) -> None:
    assert client.serving.url.endswith("/sse")
    assert client.endpoint.name == "endpoint"
    assert client.endpoint.data.startswith("/messages?session_id=")
    assert not client.endpoint.id


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_any_older_revision_is_spoken(client: SseClient, version: str) -> None:
    client.open(version)
    answer = client.call(tool_call("add", {"a": 1, "b": 2}))
    assert answer["result"]["content"][0]["text"] == "3"
    assert client.call(request("no/such"))["error"]["code"] == -32601


def test_everything_comes_in_the_one_stream(client: SseClient) -> None:
    client.open("2025-06-18", {"elicitation": {}})
    first = client.call(tool_call("count", {"steps": 1}, token=9))
    assert first["params"]["progressToken"] == 9
    until_answer = [next(client.events).message for _ in range(2)]
    assert until_answer[-1]["result"]["content"][0]["text"] == "counted to 1"
    question = client.call(tool_call("deploy"))
    assert question["method"] == "elicitation/create"
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"confirm": True}}}
    assert client.call(answer)["result"]["content"][0]["text"] == "deployed"
    (session,) = client.serving.server.sessions
    assert session.notify("notifications/message", {"level": "info", "data": "loose"})
    assert next(client.events).message["params"]["data"] == "loose"


def test_requests_run_side_by_side_and_can_be_cancelled(serve: Callable[..., SseClient]) -> None:
    server, running, over = patient_server()
    client = serve(server).open()
    patient = tool_call("patient")
    assert client.post(patient)[0] == 202
    assert running.wait(20)
    assert client.call(request("ping"))["result"] == {}
    client.post(notification("notifications/cancelled", {"requestId": patient["id"]}))
    assert over.wait(20)
    assert client.call(request("ping"))["result"] == {}


def test_the_newest_revision_is_not_spoken(client: SseClient) -> None:
    answer = client.call(initialize("2026-07-28"))
    assert answer["result"]["protocolVersion"] == "2025-11-25"


def test_a_batch_is_answered_in_one_event(client: SseClient) -> None:
    client.open("2025-03-26")
    client.post([request("ping"), request("ping")])
    assert len(next(client.events).message) == 2


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("/messages", 400),
        ("/messages?session_id=x", 404),
        ("/sse", 405),
        ("/other", 404),
        ("/messages?session_id=", 400),
    ],
)
def test_messages_are_posted_to_a_session(client: SseClient, url: str, status: int) -> None:
    assert client.post(request("ping"), url)[0] == status
    assert client.open().call(request("ping"))["result"] == {}


def test_the_door(client: SseClient) -> None:
    assert client.post(b"junk")[0] == 400
    assert client.post(request("ping"), headers={"Content-Type": "text/plain"})[0] == 415
    assert client.post(request("ping"), headers={"Origin": "http://evil.example"})[0] == 403
    for method, path, allowed in (("DELETE", "/sse", "GET"), ("GET", "/messages", "POST")):
        client.posting.request(method, path)
        response = client.posting.getresponse()
        assert (response.status, response.getheader("Allow")) == (405, allowed)
        response.read()


def test_bodies_are_bounded(serve: Callable[..., SseClient]) -> None:
    client = serve(demo_server(), max_body_bytes=1000)
    client.posting.putrequest("POST", client.endpoint.data)
    client.posting.putheader("Content-Length", "1001")
    client.posting.endheaders()
    response = client.posting.getresponse()
    assert (response.status, response.getheader("Connection")) == (413, "close")
    response.close()


@pytest.mark.parametrize(
    ("told", "begins"),
    [("post", "post?"), ("http://other.example/m", "http://other.example/m?"), ("/a/b", "/a/b?")],
)
def test_the_endpoint_is_told_as_it_is(serve: Callable[..., SseClient], told: str, begins: str) -> None:
    client = serve(demo_server(), message_path=told)
    assert client.endpoint.data.startswith(begins)


def test_a_relative_endpoint_works(serve: Callable[..., SseClient]) -> None:
    client = serve(demo_server(), path="/mcp/sse", message_path="post")
    assert client.open().call(request("ping"))["result"] == {}


def test_the_end_of_a_stream_is_the_end_of_its_session(client: SseClient) -> None:
    client.open()
    client.serving.end_streams()
    assert list(client.events) == []
    until(lambda: not client.serving.server.sessions)
    assert client.post(request("ping"))[0] == 404


def test_a_client_that_leaves_is_noticed_and_its_requests_are_cancelled(serve: Callable[..., SseClient]) -> None:
    server, running, over = patient_server()
    client = serve(server).open()
    assert client.post(tool_call("patient"))[0] == 202
    assert running.wait(20)
    client.close()
    assert over.wait(20)
    until(lambda: not server.sessions)


def test_the_credential_is_the_principal(serve: Callable[..., SseClient]) -> None:
    server = Server()

    @server.tool
    def who(call: Call) -> str:
        return str(call.auth)

    client = serve(server).open()
    assert client.call(tool_call("who"))["result"]["content"][0]["text"] == "None"


def test_faults(client: SseClient) -> None:
    server = client.serving.server
    client.open()
    server.fault("tools/list", Fault.drop())
    assert client.post(request("tools/list"))[0] == 202
    server.fault("ping", Fault.duplicate(), Fault.wrong_id(5), Fault.drip(0.0005), times=1)
    assert client.call(request("ping"))["id"] == 5
    assert next(client.events).message["id"] == 5
    server.fault("ping", Fault.garbage(b"junk"), times=1)
    client.post(request("ping"))
    assert next(client.events).data == "junk"


@pytest.mark.parametrize("busy", [False, True])
def test_closing_leaves_nothing_behind(busy: bool) -> None:
    server = demo_server()

    def once() -> None:
        with server.serve_sse() as serving, closing(SseClient(serving).open()) as client:
            if busy:
                client.post(tool_call("sleep", {"seconds": 60}))
            serving.close()
            with pytest.raises(StopIteration):
                next(client.events)
        assert server.sessions == []

    repeat(1, once)


def test_tls() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with demo_server().serve_sse(ssl_context=context) as serving:
        assert serving.url.startswith("https://")
        with closing(SseClient(serving, trusting).open()) as client:
            assert client.call(request("ping"))["result"] == {}


def test_many_clients_at_once() -> None:
    wrong: list[Any] = []
    with demo_server().serve_sse() as serving:

        def work(base: int) -> None:
            with closing(SseClient(serving).open()) as client:
                for number in range(10):
                    answer = client.call(tool_call("add", {"a": base, "b": number}))
                    if answer["result"]["content"][0]["text"] != str(base + number):
                        wrong.append(answer)

        threads = [threading.Thread(target=work, args=(base,)) for base in range(0, 1000, 100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
