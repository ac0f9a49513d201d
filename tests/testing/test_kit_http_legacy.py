"""The scriptable server as older clients of Streamable HTTP meet it: sessions, streams, resuming, polling."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from snodo_client.testing import Call, Fault, Server
from snodo_client.testing.demo import demo_server
from snodo_client.testing.http_sessions import HttpSession, Stream
from snodo_client.testing.httpd import HttpServing
from support.leaks import repeat
from support.legacy_web import ACCEPT, LegacyWeb, events, initialize, notification, request, tool_call
from support.mcp_requests import request as modern_request

VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26"]
FORM = {"mode": "form", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}


class Kit:
    """A served server and its clients."""

    def __init__(self) -> None:
        self.open: list[Any] = []
        self.serving: HttpServing

    def serve(self, server: Server | None = None, **options: Any) -> Kit:
        self.serving = (server or demo_server()).serve_http(**options)
        self.open.insert(0, self.serving)
        return self

    def client(self, version: str = "2025-11-25", capabilities: dict[str, Any] | None = None) -> LegacyWeb:
        """An initialized client."""
        web = self.stranger(version)
        web.open(capabilities)
        return web

    def stranger(self, version: str = "2025-11-25") -> LegacyWeb:
        web = LegacyWeb(self.serving.port, version)
        self.open.append(web)
        return web

    @property
    def session(self) -> Any:
        return self.serving.server.sessions[-1]


@pytest.fixture
def kit() -> Iterator[Kit]:
    made = Kit()
    yield made
    for each in made.open:
        each.close()


def blocking_server() -> tuple[Server, threading.Event, threading.Event]:
    """A server with a tool `waits`, which reports progress, says that it runs, and waits until it may go on."""
    server, running, go = Server(), threading.Event(), threading.Event()

    @server.tool
    def waits(call: Call) -> str:
        call.progress(1)
        running.set()
        assert go.wait(20)
        return "done"

    return server, running, go


# Sessions


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sse", [True, False, "auto"])
def test_a_session_from_initialize_to_delete(kit: Kit, version: str, sse: Any) -> None:
    web = kit.serve(sse=sse).stranger(version)
    assert web.open()["protocolVersion"] == version
    assert len(web.headers["Mcp-Session-Id"]) == 32
    assert web.call(tool_call("add", {"a": 1, "b": 2}))[-1]["result"]["content"][0]["text"] == "3"
    assert web.send("DELETE", {}).status == 200
    assert web.error(web.post(request("ping"))) == (404, -32001)
    assert kit.serving.seen == {"POST": 4, "initialize": 1, "DELETE": 1}
    assert kit.serving.server.sessions == []


def test_two_clients_have_two_sessions(kit: Kit) -> None:
    kit.serve()
    first, second = kit.client("2025-06-18"), kit.client("2025-11-25")
    assert first.headers["Mcp-Session-Id"] != second.headers["Mcp-Session-Id"]
    assert [session.version for session in kit.serving.server.sessions] == ["2025-06-18", "2025-11-25"]
    first.send("DELETE", {})
    assert second.call(request("ping"))[0]["result"] == {}


def test_both_eras_at_one_url(kit: Kit) -> None:
    web = kit.serve().client()
    message = modern_request("tools/list")
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list", "Mcp-Session-Id": None}
    answer = web.messages(web.post(message, headers))[0]
    assert answer["result"]["resultType"] == "complete"
    assert "resultType" not in web.call(request("tools/list"))[0]["result"]


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_every_request_is_of_a_session(kit: Kit, method: str) -> None:
    web = kit.serve().client()
    fields = {"Accept": ACCEPT, "Content-Type": "application/json"}
    body = json.dumps(request("ping")).encode() if method == "POST" else None
    assert web.error(web.send(method, {**fields, "Mcp-Session-Id": None}, body)) == (400, -32000)
    assert web.error(web.send(method, {**fields, "Mcp-Session-Id": "x"}, body)) == (404, -32001)


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("wrong", [None, "2025-03-26", "2099-01-01"])
def test_the_version_header_is_checked(kit: Kit, method: str, wrong: str | None) -> None:
    web = kit.serve().client("2025-06-18")
    fields = {"Accept": ACCEPT, "Content-Type": "application/json", "MCP-Protocol-Version": wrong}
    body = json.dumps(request("ping")).encode() if method == "POST" else None
    assert web.error(web.send(method, fields, body)) == (400, -32000)
    assert web.call(request("ping"))[0]["result"] == {}


def test_the_oldest_revision_has_no_version_header(kit: Kit) -> None:
    web = kit.serve().client("2025-03-26")
    assert "MCP-Protocol-Version" not in web.headers
    assert web.call(request("ping"))[0]["result"] == {}


def test_an_expired_session_is_begun_again(kit: Kit) -> None:
    web = kit.serve().client()
    stream = events(web.get())
    assert next(stream).data == ""
    kit.serving.expire_sessions()
    assert list(stream) == []
    assert web.error(web.post(request("ping"))) == (404, -32001)
    web.headers.clear()
    web.open()
    assert web.call(request("ping"))[0]["result"] == {}
    assert kit.serving.seen["initialize"] == 2


def test_initialize_that_fails_leaves_no_session(kit: Kit) -> None:
    web = kit.serve().stranger()
    response = web.post(request("initialize", {}))
    assert response.getheader("Mcp-Session-Id") is None
    assert web.messages(response)[0]["error"]["code"] == -32602


def test_an_old_server_knows_no_probe(kit: Kit) -> None:
    server = Server(versions=["2025-11-25"])
    web = kit.serve(server).stranger()
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}
    assert web.error(web.post(modern_request("server/discover"), headers)) == (400, -32000)

    @server.on("server/discover", check=False)
    def discover(message: dict[str, Any], context: Any) -> Any:
        return {"supportedVersions": ["2025-11-25"]}

    response = web.post(modern_request("server/discover"), headers)
    assert response.getheader("Mcp-Session-Id") is None
    assert web.messages(response)[0]["result"] == {"supportedVersions": ["2025-11-25"]}


def test_a_modern_server_refuses_to_initialize(kit: Kit) -> None:
    web = kit.serve(Server(versions=["2026-07-28"])).stranger()
    answer = json.loads(web.post(initialize("2025-11-25")).read())
    assert "result" not in answer
    response = web.get()
    assert (response.status, response.getheader("Allow")) == (405, "POST")


def test_without_sessions_every_request_stands_alone(kit: Kit) -> None:
    web = kit.serve(sessions=False).client("2025-06-18")
    assert web.headers.keys() == {"MCP-Protocol-Version"}
    assert web.call(tool_call("add", {"a": 1, "b": 2}))[0]["result"]["content"][0]["text"] == "3"
    for method in ("GET", "DELETE"):
        response = web.send(method, {"Accept": ACCEPT})
        assert (response.status, response.getheader("Allow")) == (405, "POST")
    assert kit.serving.server.sessions == []


def test_without_sessions_the_header_alone_tells_the_version(kit: Kit) -> None:
    web = kit.serve(Server(versions=["2025-06-18", "2025-03-26"]), sessions=False).stranger()
    assert web.call(request("ping"))[0]["result"] == {}
    assert web.error(web.post(request("ping"), {"MCP-Protocol-Version": "2025-11-25"})) == (400, -32000)
    assert len(web.call([request("ping")])[0]) == 1
    assert web.post([request("ping")], {"MCP-Protocol-Version": "2025-06-18"}).status == 400


@pytest.mark.parametrize("offered", ["GET", "DELETE"])
def test_what_is_not_offered_is_not_allowed(kit: Kit, offered: str) -> None:
    web = kit.serve(offers=[offered]).client()
    other = {"GET": "DELETE", "DELETE": "GET"}[offered]
    response = web.send(other, {"Accept": ACCEPT})
    assert (response.status, response.getheader("Allow")) == (405, f"POST, {offered}")
    assert web.send(offered, {"Accept": ACCEPT}).status == 200


def test_a_get_must_accept_a_stream_and_come_from_here(kit: Kit) -> None:
    web = kit.serve().client()
    assert web.get(headers={"Accept": "application/json"}).status == 406
    assert web.get(headers={"Origin": "http://evil.example"}).status == 403


# Answers


@pytest.mark.parametrize("version", VERSIONS)
def test_notifications_make_a_stream_with_ids(kit: Kit, version: str) -> None:
    web = kit.serve().client(version)
    response = web.post(tool_call("count", {"steps": 2}, token=7))
    assert response.getheader("Content-Type") == "text/event-stream"
    seen = list(events(response))
    primed = [event for event in seen if not event.data]
    assert [bool(event.id) for event in primed] == ([True] if version == "2025-11-25" else [])
    assert len({event.id for event in seen}) == len(seen)
    messages = [event.message for event in seen if event.data]
    assert [m["params"]["progress"] for m in messages if m.get("method") == "notifications/progress"] == [1, 2]
    assert messages[-1]["result"]["content"][0]["text"] == "counted to 2"


def test_without_notifications_the_answer_is_json(kit: Kit) -> None:
    web = kit.serve().client()
    response = web.post(tool_call("add", {"a": 1, "b": 2}))
    assert response.getheader("Content-Type") == "application/json"
    assert json.loads(response.read())["result"]["content"][0]["text"] == "3"


def test_a_batch_of_the_one_revision_that_has_them(kit: Kit) -> None:
    kit.serve()
    batch = [request("ping"), notification("notifications/cancelled", {"requestId": "x"}), request("ping")]
    web = kit.client("2025-03-26")
    (answers,) = web.call(batch)
    assert [answer["id"] for answer in answers] == [batch[0]["id"], batch[2]["id"]]
    response = web.post([batch[1]])
    assert (response.status, response.read()) == (202, b"")
    response = kit.client("2025-06-18").post(batch)
    assert (response.status, json.loads(response.read())["error"]["code"]) == (400, -32600)


@pytest.mark.parametrize("sse", [True, "auto"])
def test_the_client_is_asked_in_the_stream_of_its_request(kit: Kit, sse: Any) -> None:
    web = kit.serve(sse=sse).client(capabilities={"elicitation": {}})
    stream = (event for event in events(web.post(tool_call("deploy"))) if event.data)
    question = next(stream).message
    assert question["method"] == "elicitation/create"
    answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"confirm": True}}}
    response = web.post(answer)
    assert (response.status, response.read()) == (202, b"")
    assert next(stream).message["result"]["content"][0]["text"] == "deployed"
    assert list(stream) == []


def test_a_server_that_answers_json_asks_in_the_stream_opened_by_get(kit: Kit) -> None:
    web = kit.serve(sse=False).client(capabilities={"elicitation": {}})
    asked = (event for event in events(web.get()) if event.data)
    answers: list[Any] = []
    calling = threading.Thread(target=lambda: answers.extend(web.call(tool_call("deploy"))))
    calling.start()
    question = next(asked).message
    web.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
    calling.join(20)
    assert answers[0]["result"]["content"][0]["text"] == "not deployed"


def test_a_cancelled_request_is_not_answered(kit: Kit) -> None:
    server, running, go = blocking_server()
    web = kit.serve(server).client()
    message = tool_call("waits", token=1)
    stream = events(web.post(message))
    assert running.wait(20)
    web.post(notification("notifications/cancelled", {"requestId": message["id"]}))
    go.set()
    assert [event.message["method"] for event in stream if event.data] == ["notifications/progress"]
    assert web.call(request("ping"))[0]["result"] == {}


def test_the_credential_is_the_principal(kit: Kit) -> None:
    server = Server()
    server.tool(name="who")(_who)
    web = kit.serve(server).client()
    response = web.post(tool_call("who"), {"Authorization": "Bearer t"})
    assert web.messages(response)[0]["result"]["content"][0]["text"] == "Bearer t"


def _who(call: Call) -> str:
    return str(call.auth)


# Streams opened by GET


@pytest.mark.parametrize("version", VERSIONS)
def test_what_belongs_to_no_request_comes_in_a_stream_of_its_own(kit: Kit, version: str) -> None:
    web = kit.serve().client(version)
    stream = (event for event in events(web.get()) if event.data)
    assert kit.session.notify("notifications/message", {"level": "info", "data": 1})
    assert next(stream).message["params"]["data"] == 1
    asking = threading.Thread(target=lambda: replies.append(kit.session.request("ping")))
    replies: list[Any] = []
    asking.start()
    web.post({"jsonrpc": "2.0", "id": next(stream).message["id"], "result": {"pong": 1}})
    asking.join(20)
    assert replies == [{"pong": 1}]
    assert kit.serving.seen["GET"] == 1


def test_messages_wait_for_the_stream_to_open(kit: Kit) -> None:
    web = kit.serve().client()
    for number in range(3):
        kit.session.notify("notifications/message", {"level": "info", "data": number})
    stream = (event for event in events(web.get()) if event.data)
    assert [next(stream).message["params"]["data"] for _ in range(3)] == [0, 1, 2]


def test_a_message_goes_on_one_stream_only(kit: Kit) -> None:
    web = kit.serve().client()
    first, second = events(web.get()), events(web.get())
    assert not next(first).data
    assert not next(second).data
    kit.session.notify("notifications/message", {"level": "info", "data": "once"})
    kit.serving.end_streams()
    assert sorted([len(list(first)), len(list(second))]) == [0, 1]


def test_a_stream_whose_client_has_gone_gets_nothing_more() -> None:
    client = HttpSession(Server(), "id", listening=True)
    first, second = client.open(), client.open()
    assert list(first.follow(client.listen(first), 0, lambda: True)) == []
    assert client.send({"late": 1})
    follower = client.listen(second)
    assert not first.begun
    assert b"late" in next(second.follow(follower, 0, lambda: False)).data


def test_where_get_is_not_offered_nothing_can_be_sent(kit: Kit) -> None:
    kit.serve(offers=[]).client()
    assert kit.session.notify("notifications/message", {"level": "info", "data": 1}) is False


# Resuming


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_outlives_its_connection_and_its_stream_is_resumed(kit: Kit, version: str) -> None:
    server, running, go = blocking_server()
    web = kit.serve(server).client(version)
    response = web.post(tool_call("waits", token=1))
    progress = next(event for event in events(response) if event.data)
    assert running.wait(20)
    web.close()
    resumed = events(web.get(progress.id))
    go.set()
    assert [event.message["result"]["content"][0]["text"] for event in resumed] == ["done"]


def test_a_stream_is_replayed_from_any_of_its_events(kit: Kit) -> None:
    web = kit.serve(sse=True).client()
    other = list(events(web.post(tool_call("count", {"steps": 1}, token=2))))
    seen = list(events(web.post(tool_call("count", {"steps": 3}, token=1))))
    for number, event in enumerate(seen):
        assert list(events(web.get(event.id))) == seen[number + 1 :]
    assert list(events(web.get(other[0].id))) == other[1:]


def test_a_stream_opened_by_get_is_resumed_without_loss(kit: Kit) -> None:
    web = kit.serve().client()
    stream = events(web.get())
    last = next(stream)
    for number in range(5):
        kit.serving.end_streams()
        assert list(stream) == []
        kit.session.notify("notifications/message", {"level": "info", "data": number})
        stream = events(web.get(last.id))
        last = next(stream)
        assert last.message["params"]["data"] == number


def test_a_resumed_stream_leaves_the_connection_that_carried_it(kit: Kit) -> None:
    server, _, go = blocking_server()
    web = kit.serve(server).client()
    first = events(web.post(tool_call("waits", token=1)))
    primed = next(first)
    second = events(web.get(primed.id))
    assert next(second).message["method"] == "notifications/progress"
    assert [event.message["method"] for event in first] in ([], ["notifications/progress"])
    go.set()
    assert "result" in next(second).message


@pytest.mark.parametrize("wrong", ["", "x", "1", "1-", "-1", "1-x", "999-1", "1-1-1", "\xb2-1"])
def test_an_unknown_event_id_is_refused(kit: Kit, wrong: str) -> None:
    web = kit.serve().client()
    assert web.error(web.get(wrong)) == (400, -32000)


def test_the_answer_can_be_had_after_the_server_ended_the_stream(kit: Kit) -> None:
    server = Server()

    @server.tool
    def ends(call: Call) -> str:
        call.progress(1)
        kit.serving.end_streams()
        return "done"

    web = kit.serve(server, sse=True).client("2025-06-18")
    (progress,) = events(web.post(tool_call("ends", token=1)))
    (answer,) = events(web.get(progress.id))
    assert answer.message["result"]["content"][0]["text"] == "done"


def test_replay_is_bounded_but_what_is_sent_is_not(kit: Kit) -> None:
    server = Server()

    @server.tool
    def talks(call: Call) -> str:
        for number in range(5000):
            call.progress(number)
        return "done"

    web = kit.serve(server).client()
    seen = list(events(web.post(tool_call("talks", token=1))))
    assert [event.message["params"]["progress"] for event in seen[1:-1]] == list(range(5000))
    assert list(events(web.get(seen[0].id))) == seen[-1000:]


def test_a_client_that_does_not_read_holds_nobody_up_for_long() -> None:
    stream = Stream(1)
    events_read = stream.follow(stream.attach(), 0, lambda: False)
    for _ in range(1000):
        stream.put(b"{}")
    begun = time.monotonic()
    stream.put(b"{}")
    assert 1.0 <= time.monotonic() - begun < 3.0
    assert next(events_read).number == 2


# Polling


def test_with_polling_every_answer_is_fetched(kit: Kit) -> None:
    server, running, go = blocking_server()
    web = kit.serve(server, polling=0.25).client()
    (primed,) = events(web.post(tool_call("waits")))
    assert (primed.data, primed.retry) == ("", "250")
    assert running.wait(20)
    stream = events(web.get(primed.id))
    go.set()
    assert [event.message["result"]["content"][0]["text"] for event in stream] == ["done"]


def test_clients_of_older_revisions_are_not_told_to_poll(kit: Kit) -> None:
    web = kit.serve(polling=0.25).client("2025-06-18")
    assert web.call(tool_call("add", {"a": 1, "b": 2}))[0]["result"]["content"][0]["text"] == "3"


# Faults


def test_faults_in_streams_and_out_of_them(kit: Kit) -> None:
    server = demo_server()
    web = kit.serve(server).client("2025-06-18")
    count = tool_call("count", {"steps": 1}, token=1)

    server.fault("ping", Fault.garbage(b"<html>", status=502, content_type="text/html"), times=1)
    response = web.post(request("ping"))
    assert (response.status, response.getheader("Content-Type"), response.read()) == (502, "text/html", b"<html>")

    server.fault("ping", Fault.duplicate(), Fault.wrong_id(5), times=1)
    assert [message["id"] for message in web.call(request("ping"))] == [5, 5]

    server.fault("tools/call", Fault.duplicate(3), Fault.drip(0.0005), times=1)
    assert [message.get("id") for message in web.call(count)][-3:] == [count["id"]] * 3

    server.fault("tools/call", Fault.garbage(b"junk\n\n"), times=1)
    assert web.post(count).read().endswith(b"\n\njunk\n\n")

    server.fault("tools/call", Fault.drop(), times=1)
    with pytest.raises(http.client.IncompleteRead):
        web.post(count).read()
    server.fault("ping", Fault.crash(), times=1)
    with pytest.raises(http.client.RemoteDisconnected):
        web.post(request("ping"))
    assert web.call(request("ping"))[0]["result"] == {}


@pytest.mark.parametrize("message", [[], 1, "x", {"jsonrpc": "2.0"}, {"jsonrpc": "2.0", "id": None, "method": "ping"}])
def test_what_is_no_message_is_refused(kit: Kit, message: Any) -> None:
    web = kit.serve().client()
    response = web.post(message)
    assert (response.status, json.loads(response.read())["error"]["code"]) == (400, -32600)
    assert web.call(request("ping"))[0]["result"] == {}


# The end


def _idle(kit: Kit, web: LegacyWeb) -> None:
    web.call(request("ping"))


def _listening(kit: Kit, web: LegacyWeb) -> None:
    next(events(web.get()))


def _running(kit: Kit, web: LegacyWeb) -> None:
    next(events(web.post(tool_call("sleep60", token=1))))


def _left(kit: Kit, web: LegacyWeb) -> None:
    _running(kit, web)
    web.close()


@pytest.mark.parametrize("act", [_idle, _listening, _running, _left])
def test_closing_leaves_nothing_behind(act: Callable[[Kit, LegacyWeb], None]) -> None:
    def once() -> None:
        server = Server()

        @server.tool
        def sleep60(call: Call) -> str:
            call.progress(1)
            call.sleep(60)
            return "over"

        kit = Kit().serve(server)
        act(kit, kit.client())
        kit.serving.close()
        assert server.sessions == []
        for each in kit.open:
            each.close()

    repeat(1, once)


def test_closing_ends_an_idle_stream_in_order(kit: Kit) -> None:
    web = kit.serve().client()
    stream = events(web.get())
    next(stream)
    closing = threading.Thread(target=kit.serving.close)
    closing.start()
    assert list(stream) == []
    closing.join(20)
    assert not closing.is_alive()
