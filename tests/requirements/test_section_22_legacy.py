"""The revisions before 2026-07-28, row by row; `section_22.md` has the whole table, with the tests of other files."""

from __future__ import annotations

import json
from threading import Event
from typing import Any

import pytest

from snodo_client import Client, InputRequest, InputRequired, McpError, Ok, Traits
from support.asking import LEGACY, LEGACY_CELLS, ask, asking, received, say
from support.eras import (
    CALL,
    HANDSHAKE,
    INITIALIZE,
    INITIALIZED,
    SILENCE,
    answers,
    asks,
    handshake,
    plan,
    playing,
    refuses,
    tells,
)
from support.eras import say as says
from support.legacy_http import METHOD_NOT_ALLOWED, OK, SESSION_ID, came, connect, initialized, legacy
from support.scripted_http import Peer, Request, ScriptedServer, each_request, event, result
from support.scripted_transport import ScriptedTransport
from support.stdio_peer import reaped
from support.waiting import together, until

NEWEST = LEGACY[0]
CANCELLED = "notifications/cancelled"
TALK: dict[str, Any] = {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}], "maxTokens": 9}
FORM = {"message": "m", "requestedSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}
URL = {"mode": "url", "message": "m", "url": "https://example.test/a", "elicitationId": "e1"}
REPLY = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}

each_cell = pytest.mark.parametrize(("kind", "version"), LEGACY_CELLS)
newest_cells = pytest.mark.parametrize("kind", [kind for kind, version in LEGACY_CELLS if version == NEWEST])
both_wires = pytest.mark.parametrize("kind", ["stdio", "http"])


def methods_of(messages: list[dict[str, Any]]) -> list[str]:
    return [message.get("method", "answer") for message in messages]


def answers_among(client: Client, count: int) -> list[dict[str, Any]]:
    """The answers the client has given, once there are so many."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        found[:] = [message for message in received(client) if "method" not in message]
        return len(found) >= count

    until(there)
    return found


# -- 22.1 lifecycle


@each_cell
def test_le01_le02_le08_the_handshake_comes_first_and_once_however_many_call(kind: str, version: str) -> None:
    with asking(kind, version) as connecting:
        client = connecting(wait=False)
        together([lambda: client.call_tool("echo", {"message": "m"}).unwrap()] * 8)
        messages = [message for message in received(client) if message.get("method") != "server/discover"]
    assert methods_of(messages) == [INITIALIZE, INITIALIZED, *[CALL] * 9]
    params = messages[0]["params"]
    assert params.keys() == {"protocolVersion", "capabilities", "clientInfo"}
    assert params["protocolVersion"] == NEWEST
    ids = [message["id"] for message in messages if "id" in message]
    assert len(set(ids)) == len(ids)


@both_wires
def test_le03_nothing_is_asked_while_the_handshake_takes_its_time(kind: str) -> None:
    with playing(kind, plan("legacy", initialize={"wait": 0.3})) as stage:
        client = stage.connect(protocol=NEWEST, wait=False)
        together([lambda: client.call_tool("ok").unwrap()] * 6)
        assert stage.methods == [*HANDSHAKE, *[CALL] * 6]


def test_le04_a_version_of_nobody_ends_the_process() -> None:
    with playing("stdio", plan("legacy", initialize=says(answers(handshake("2099-01-01"))))) as stage:
        assert stage.failed(protocol=NEWEST).reason == "incompatible_versions"
        assert stage.methods == [INITIALIZE]
        (pid,) = [entry["started"] for entry in stage._record() if "started" in entry]
        assert reaped(pid)


def test_le04_a_version_of_nobody_ends_the_session() -> None:
    with playing("http", plan("legacy", initialize=says(answers(handshake("2099-01-01"))))) as stage:
        assert stage.failed(protocol=NEWEST).reason == "incompatible_versions"
        assert stage.lines == [f"POST {INITIALIZE}", "DELETE"]


@pytest.mark.parametrize(("version", "named"), [(LEGACY[0], True), (LEGACY[1], True), (LEGACY[2], False)])
def test_le06_lh02_answers_and_cancellations_bear_version_and_session(version: str, named: bool) -> None:
    answered = Event()

    def reply(peer: Peer, request: Request) -> None:
        peer.start_sse()
        peer.chunk(event({"jsonrpc": "2.0", "id": "q", "method": "ping"}))
        assert answered.wait(10)
        if request.message["params"]["name"] == "last":
            peer.silence()
        peer.chunk(event(result(request)))
        peer.end()

    def said(peer: Peer, request: Request) -> None:
        peer.respond("202 Accepted")
        if "result" in request.message:
            answered.set()

    with ScriptedServer(legacy(reply, said=said, version=version)) as server, connect(server.url, version) as client:
        client.call_tool("test").unwrap()
        client.call_tool("last", timeout=0.3)
        until(lambda: came(server, CANCELLED))
        posts = [request for request in server.requests if request.line.startswith("POST")]
        bare = [request for request in posts if request.message.get("id") == "q" or "id" not in request.message]
        assert methods_of([request.message for request in bare]) == [INITIALIZED, "answer", "answer", CANCELLED]
        for request in bare:
            assert request.header("mcp-session-id") == SESSION_ID
            assert request.header("mcp-protocol-version") == (version if named else None)


@both_wires
def test_le07_le12_a_handshake_that_is_not_answered_is_an_error_in_time_and_not_cancelled(kind: str) -> None:
    with playing(kind, plan("legacy", initialize=SILENCE)) as stage:
        error = stage.failed(protocol=NEWEST, timeout=0.3)
        assert (error.reason, error.data) == ("timeout", {"timeout": 0.3})
        assert stage.methods == [INITIALIZE]


@each_cell
def test_le12_lh07_whoever_stops_waiting_says_so_by_a_notification(kind: str, version: str) -> None:
    with asking(kind, version) as connecting:
        client = connecting(protocol=version)
        lost = client.call_tool("sleep", {"seconds": 30}, timeout=0.1)
        assert isinstance(lost, McpError)
        assert lost.reason == "timeout"
        until(lambda: CANCELLED in methods_of(received(client)))
        messages = received(client)
    (cancelled,) = [message for message in messages if message["method"] == CANCELLED]
    (slept,) = [each for each in messages if each["method"] == CALL and each["params"]["name"] == "sleep"]
    assert cancelled["params"]["requestId"] == slept["id"]
    assert isinstance(cancelled["params"]["reason"], str)


def test_le13_what_the_server_lacks_is_its_own_error() -> None:
    with asking("stdio", NEWEST) as connecting:
        outcome = connecting().request("resources/never", {"uri": "a:b"})
    assert isinstance(outcome, McpError)
    assert (outcome.code, outcome.reason) == (-32601, None)


@both_wires
@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("members", [{}, {"id": None}], ids=["without", "null"])
def test_le14_an_error_without_an_id_is_of_the_call_that_waits(kind: str, version: str, members: Any) -> None:
    error = {"jsonrpc": "2.0", **members, "error": {"code": -32600, "message": "unreadable"}}
    with playing(kind, plan("legacy", call=says(error, status=400))) as stage:
        outcome = stage.connect(protocol=version).call_tool("ok")
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.message, outcome.reason) == (-32600, "unreadable", None)


@pytest.mark.parametrize("version", LEGACY)
def test_le15_a_custom_transport_keeps_format_and_lifecycle(version: str) -> None:
    def script(call: Any) -> Any:
        about = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        told = about if call.message["method"] == INITIALIZE else {"tools": []}
        yield {"jsonrpc": "2.0", "id": call.wire_id, "result": told}

    transport = ScriptedTransport(script, Traits(eras=("legacy",), cancel="notify"))
    with Client.connect(transport) as client:
        assert transport.sent.get(timeout=10) == {"jsonrpc": "2.0", "method": INITIALIZED}
        assert client.list_tools() == Ok([])
        assert client.protocol_info["version"] == version
    assert methods_of(transport.requests) == [INITIALIZE, "tools/list"]
    assert transport.requests[1] == {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


# -- 22.2 Streamable HTTP


@pytest.mark.parametrize("name", ["MCP-Session-Id", "mcp-session-id", "Mcp-Session-Id"])
def test_lh02_the_session_id_is_known_in_any_spelling(name: str) -> None:
    def serve(peer: Peer, request: Request) -> None:
        if request.line.startswith("POST") and request.message.get("method") == INITIALIZE:
            peer.json(initialized(request), "200 OK", f"{name}: an-id")
        elif request.line.startswith("POST") and "id" in request.message:
            peer.answer(request)
        else:
            peer.respond("405 Method Not Allowed" if request.line.startswith("GET") else "202 Accepted")

    with ScriptedServer(each_request(serve)) as server:
        with connect(server.url) as client:
            client.call_tool("test").unwrap()
        assert [request.header("mcp-session-id") for request in server.requests] == [None, *["an-id"] * 4]


class Forgetful:
    """Knows each session for the handshake only, until it `remembers`. The second handshake may be `silent`."""

    def __init__(self, *, silent: bool = False) -> None:
        self.silent = silent
        self.remembers = Event()
        self.sessions = 0

    def __call__(self, peer: Peer, request: Request) -> None:
        verb, message = request.line.split(" ")[0], request.message if request.body else {}
        if verb == "GET":
            METHOD_NOT_ALLOWED(peer, request)
        elif verb == "DELETE":
            OK(peer, request)
        elif message["method"] == INITIALIZE:
            self.sessions += 1
            if self.sessions == 2:
                self.remembers.set()
                if self.silent:
                    peer.silence()
            peer.json(initialized(request), "200 OK", f"Mcp-Session-Id: session-{self.sessions}")
        elif message["method"] != INITIALIZED and not self.remembers.is_set():
            peer.respond("404 Not Found")
        elif message.get("params", {}).get("name") == "silence":
            peer.silence()
        elif "id" in message:
            peer.answer(request)
        else:
            peer.respond("202 Accepted")


@pytest.mark.parametrize("what", [CALL, "notifications/test"])
def test_lh03_a_session_that_is_lost_is_begun_again_whatever_found_it_out(what: str) -> None:
    with ScriptedServer(each_request(Forgetful())) as server, connect(server.url) as client:
        outcome = client.call_tool("test") if what == CALL else client.notify(what)
        assert isinstance(outcome, Ok), outcome
        sent = [(request.message["method"], request.header("mcp-session-id")) for request in posts(server)]
        assert sent == [
            (INITIALIZE, None),
            (INITIALIZED, "session-1"),
            (what, "session-1"),
            (INITIALIZE, None),
            (INITIALIZED, "session-2"),
            (what, "session-2"),
        ]


def test_lh03_x03_what_a_lost_session_never_ran_is_not_cancelled() -> None:
    with ScriptedServer(each_request(Forgetful(silent=True))) as server, connect(server.url) as client:
        for tool in ("test", "silence"):  # the first finds the session lost, and the next handshake silent
            outcome = client.call_tool(tool, timeout=0.3)
            assert isinstance(outcome, McpError)
            assert outcome.reason == "timeout"
        until(lambda: came(server, CANCELLED))
        sent = methods_of([request.message for request in posts(server)])
        assert sent == [*HANDSHAKE, CALL, INITIALIZE, *HANDSHAKE, CALL, CANCELLED]
        assert posts(server)[-1].message["params"]["requestId"] == posts(server)[-2].id


def posts(server: ScriptedServer) -> list[Request]:
    return [request for request in list(server.requests) if request.line.startswith("POST")]


# -- 22.4 what a server asks


@each_cell
def test_lr01_a_ping_is_answered_also_while_a_handler_is_busy(kind: str, version: str) -> None:
    pinged = Event()

    def busy(request: InputRequest) -> dict[str, Any]:
        assert ask(client, "ping") == {"result": {}}
        pinged.set()
        return REPLY

    with asking(kind, version) as connecting:
        client = connecting(handlers={"sampling": busy})
        assert ask(client, "ping") == {"result": {}}
        assert ask(client, "sampling/createMessage", TALK) == {"result": REPLY}
        assert pinged.is_set()


@each_cell
def test_lr02_lr11_what_was_not_declared_does_not_exist(kind: str, version: str) -> None:
    with asking(kind, version) as connecting:
        client = connecting()
        for method, params in (
            ("roots/list", None),
            ("sampling/createMessage", TALK),
            ("elicitation/create", FORM),
            ("tasks/list", None),
            ("server/discover", None),
            ("", {}),
        ):
            assert ask(client, method, params)["error"]["code"] == -32601, method
        (first,) = [message for message in received(client) if message.get("method") == INITIALIZE]
        assert first["params"]["capabilities"] == {}


@newest_cells
def test_lr03_el02_el03_a_mode_has_to_be_declared_and_none_is_a_form(kind: str) -> None:
    asked: list[Any] = []

    def fill_in(request: InputRequest) -> dict[str, Any]:
        asked.append(request.mode)
        return {"action": "accept", "content": {"a": "b"}}

    with asking(kind, NEWEST) as connecting:
        client = connecting(handlers={"form": fill_in})
        assert ask(client, "elicitation/create", URL)["error"]["code"] == -32602
        assert ask(client, "elicitation/create", {**FORM, "mode": "voice"})["error"]["code"] == -32602
        assert ask(client, "elicitation/create", FORM) == {"result": {"action": "accept", "content": {"a": "b"}}}
        other = connecting(handlers={"url": lambda request: {"action": "accept", "content": {"x": 1}}})
        assert ask(other, "elicitation/create", FORM)["error"]["code"] == -32602
        assert ask(other, "elicitation/create", URL) == {"result": {"action": "accept"}}  # no content, as EL05 has it
    assert asked == ["form"]


@newest_cells
def test_lr04_sa02_sa06_sampling_is_refused_by_its_own_codes(kind: str) -> None:
    def refuse(request: InputRequest) -> dict[str, Any]:
        raise McpError(-1, "User rejected sampling request")

    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "u", "name": "t", "input": {}}]}
    with asking(kind, NEWEST) as connecting:
        client = connecting(handlers={"sampling": refuse})
        error = ask(client, "sampling/createMessage", TALK)["error"]
        assert (error["code"], error["message"]) == (-1, "User rejected sampling request")
        wrong: list[dict[str, Any]] = [
            {"tools": []},
            {"toolChoice": {"mode": "auto"}},
            {"messages": [*TALK["messages"], use]},
        ]
        for more in wrong:
            assert ask(client, "sampling/createMessage", {**TALK, **more})["error"]["code"] == -32602, more


@each_cell
def test_lr05_a_change_of_the_roots_is_told(kind: str, version: str) -> None:
    changed = "notifications/roots/list_changed"
    with asking(kind, version) as connecting:
        client = connecting(client_capabilities=["roots"])
        client.add_root("file:///a").unwrap()
        client.add_root("file:///a").unwrap()  # which changes nothing
        client.remove_root("file:///b").unwrap()
        assert ask(client, "roots/list") == {"result": {"roots": [{"uri": "file:///a"}]}}
        client.clear_roots().unwrap()
        until(lambda: methods_of(received(client)).count(changed) >= 2)
        assert ask(client, "roots/list") == {"result": {"roots": []}}
        messages = received(client)
        assert messages[methods_of(messages).index(INITIALIZE)]["params"]["capabilities"] == {
            "roots": {"listChanged": True}
        }
        assert methods_of(messages).count(changed) == 2


@newest_cells
def test_lr06_a_url_that_is_done_is_told_and_an_unknown_one_harms_nobody(kind: str) -> None:
    told: list[Any] = []
    complete = "notifications/elicitation/complete"
    with asking(kind, NEWEST) as connecting:
        client = connecting(on_notification=lambda *each: told.append(each))
        outcome = say(
            client,
            tells(complete, elicitationId="never heard of"),
            tells(complete, elicitationId=5),
            {"jsonrpc": "2.0", "method": complete},
        )
        assert isinstance(outcome, Ok)
        until(lambda: len(told) == 3)
        assert told[0] == (complete, {"elicitationId": "never heard of"})
        assert "answer" not in methods_of(received(client))


@both_wires
def test_lr07_a_call_whose_user_must_go_elsewhere_first_is_made_again(kind: str) -> None:
    refusal = refuses(-32042, {"elicitations": [URL, {**URL, "elicitationId": "e2"}]})
    with playing(kind, plan("legacy", call=[says(refusal), {}])) as stage:
        client = stage.connect(protocol=NEWEST)
        asked = client.call_tool("ok", {"text": "t"})
        assert isinstance(asked, InputRequired)
        assert [request["params"] for request in asked.requests.values()] == [URL, {**URL, "elicitationId": "e2"}]
        answered = {key: {"action": "accept"} for key in asked.requests}
        again = client.call_tool("ok", {"text": "t"}, input_responses=answered, request_state=asked.request_state)
        assert isinstance(again, Ok)
        first, second = stage.messages[-2:]
        assert first["params"] == second["params"]
        assert first["id"] != second["id"]


@pytest.mark.parametrize(
    "data", [None, {}, {"elicitations": []}, {"elicitations": [{"url": "x"}]}, {"elicitations": 1}]
)
def test_lr07_one_that_names_no_url_is_an_error_like_any_other(data: Any) -> None:
    with playing("stdio", plan("legacy", call=says(refuses(-32042, data)))) as stage:
        outcome = stage.connect(protocol=NEWEST).call_tool("ok")
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.data) == (-32042, data)


@each_cell
def test_lr08_both_sides_count_for_themselves(kind: str, version: str) -> None:
    with asking(kind, version) as connecting:
        client = connecting()
        outcome = say(client, asks("ping", "$ID"), asks("ping", str(10**9)), asks("never/heard", 0))
        assert isinstance(outcome, Ok)
        answered = answers_among(client, 3)
        said = next(each for each in received(client) if each.get("params", {}).get("name") == "say")
        assert {(type(each["id"]), each["id"]) for each in answered} == {(int, said["id"]), (str, str(10**9)), (int, 0)}


@each_cell
def test_lr08_a_server_may_take_its_request_back_and_ends_none_of_ours(kind: str, version: str) -> None:
    asked, gone = Event(), Event()

    def wait(request: InputRequest) -> dict[str, Any]:
        asked.set()
        until(lambda: request.cancelled)
        gone.set()
        return REPLY

    with asking(kind, version) as connecting:
        client = connecting(handlers={"sampling": wait})
        assert isinstance(say(client, asks("sampling/createMessage", "q", **TALK)), Ok)
        assert asked.wait(20)
        outcome = say(
            client,
            tells(CANCELLED, requestId="$ID", reason="ours, which is not the server's to cancel"),
            tells(CANCELLED, requestId="never", reason=None),
            tells(CANCELLED, requestId={}),
            {"jsonrpc": "2.0", "method": CANCELLED},
            tells(CANCELLED, requestId="q", reason="changed my mind"),
        )
        assert isinstance(outcome, Ok)
        assert gone.wait(20)
        assert ask(client, "ping") == {"result": {}}
        assert [each.get("result") for each in received(client) if "method" not in each] == [{}]


@newest_cells
@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage"])
def test_lr12_a_request_for_a_task_that_was_not_declared_is_answered_as_any_other(kind: str, method: str) -> None:
    handlers = {"form": lambda request: {"action": "decline"}, "sampling": lambda request: REPLY}
    with asking(kind, NEWEST) as connecting:
        client = connecting(handlers=handlers)
        params = {**(FORM if method.startswith("e") else TALK), "task": {"ttl": 1000}}
        assert ask(client, method, params) == {"result": {"action": "decline"} if method.startswith("e") else REPLY}


# -- 22.5 batches

BATCH = [asks("ping", "a"), tells("notifications/message", level="info", data="in a batch"), asks("never/heard", "b")]


@pytest.mark.parametrize("kind", [kind for kind, version in LEGACY_CELLS if version == "2025-03-26"])
def test_lb01_batches_of_a_server_are_read_and_answered(kind: str) -> None:
    logged: list[Any] = []
    with asking(kind, "2025-03-26") as connecting:
        client = connecting(on_log=lambda *told: logged.append(told))
        outcome = say(client, BATCH, [tells("notifications/message", level="info", data="alone")], [], [BATCH])
        assert isinstance(outcome, Ok)
        answered = {each["id"]: each for each in answers_among(client, 2)}
        assert (answered["a"]["result"], answered["b"]["error"]["code"]) == ({}, -32601)
        until(lambda: len(logged) == 2)
        assert [data for _, data, _ in logged] == ["in a batch", "alone"]
        assert len(answers_among(client, 2)) == 2


@pytest.mark.parametrize("kind", [kind for kind, version in LEGACY_CELLS if version == "2025-03-26"])
def test_lb01_an_answer_may_come_in_a_batch(kind: str) -> None:
    with asking(kind, "2025-03-26") as connecting:
        client = connecting()
        assert say(client, [BATCH[0], answers({"content": []}), BATCH[1]]) == Ok({"content": []})
        assert isinstance(client.ping(), Ok)


@pytest.mark.parametrize(("kind", "version"), [cell for cell in LEGACY_CELLS if cell[1] != "2025-03-26"])
def test_lb02_no_other_revision_has_batches(kind: str, version: str) -> None:
    with asking(kind, version) as connecting:
        client = connecting()
        assert isinstance(say(client, BATCH), Ok)
        assert ask(client, "ping") == {"result": {}}
        assert len(answers_among(client, 1)) == 1


# -- 22.6 tasks of 2025-11-25


@newest_cells
def test_tasks_only_what_the_server_and_the_tool_allow_is_sent(kind: str) -> None:
    with asking(kind, NEWEST) as connecting:
        client = connecting()
        by_name = {tool["name"]: tool for tool in client.list_tools().unwrap()}
        with pytest.raises(ValueError, match="task="):
            client.call_tool(by_name["add"], {"a": 1, "b": 2}, task=True)
        refused = client.call_tool("add", {"a": 1, "b": 2}, task=True)
        assert isinstance(refused, McpError)
        assert refused.reason == "unsupported_operation"
        assert CALL not in methods_of(received(client))[:-1]
        required = client.call_tool("lasting")  # the server's to refuse: a task has another result
        assert isinstance(required, McpError)
        assert (required.code, required.reason) == (-32601, None)


@newest_cells
def test_tasks_are_cancelled_by_their_own_request_and_outlast_who_waits(kind: str) -> None:
    progress: list[Any] = []
    with asking(kind, NEWEST) as connecting:
        client = connecting(on_notification=lambda *told: progress.append(told))
        begun = client.call_tool("lasting", task=True, meta={"progressToken": "mine"})
        task_id = begun.unwrap()["task"]["taskId"]
        waited = client.tasks.result(task_id, timeout=0.2)
        assert isinstance(waited, McpError)
        assert waited.reason == "timeout"
        assert client.tasks.get(task_id).unwrap()["status"] == "working"
        until(lambda: [params for method, params in progress if params.get("progressToken") == "mine"])
        assert client.tasks.cancel(task_id).unwrap()["status"] == "cancelled"
        messages = received(client)
    ids = {message["id"]: message["method"] for message in messages if "id" in message}
    ended = [ids[message["params"]["requestId"]] for message in messages if message["method"] == CANCELLED]
    assert CALL not in ended
    assert "related-task" not in json.dumps([each for each in messages if each["method"].startswith("tasks/")])


@both_wires
def test_x07_a_call_for_a_task_is_never_cancelled_by_a_notification(kind: str) -> None:
    declares = handshake(NEWEST, capabilities={"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}})
    tool = {"name": "ok", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
    with playing(kind, plan("legacy", initialize=says(answers(declares)), call=[SILENCE, {}])) as stage:
        client = stage.connect(protocol=NEWEST)
        outcome = client.call_tool(tool, task=True, timeout=0.2)
        assert isinstance(outcome, McpError)
        assert outcome.reason == "timeout"
        assert isinstance(client.notify("notifications/progress", {"progressToken": 1, "progress": 1}), Ok)
        until(lambda: "notifications/progress" in stage.methods)
        assert CANCELLED not in stage.methods
