"""Which era an HTTP server is of, found out over real sockets: what was sent, and the verdict. Only what speaks for an
older server leads to `initialize`; trouble never does.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trustme

from snodo_client import Client, McpError, Ok
from support.eras import (
    CALL,
    HANDSHAKE,
    INITIALIZE,
    INITIALIZED,
    PROBE,
    SILENCE,
    answers,
    asks,
    assert_refused_pin,
    assert_speaks,
    discovered,
    handshake,
    judge,
    plan,
    playing,
    refuses,
    say,
    served,
    tells,
)
from support.faulty import AT_ONCE, assert_error
from support.http_calls import Took
from support.scripted_http import Peer, Request, ScriptedServer, each_request
from support.scripted_sse import SseServer
from support.stdio_servers.eras import NEW, OLD, Play
from support.waiting import until

LATER, OLDEST = OLD[0], OLD[-1]
PROBED = [PROBE, *HANDSHAKE, CALL]
HTML = {"body": "<html>no such thing</html>", "type": "text/html"}


def text(status: int, body: str = "no", type: str | None = "text/plain") -> dict[str, Any]:
    """A step that answers with what is no JSON-RPC message."""
    return {"status": status, "body": body, "type": type, "send": []}


def with_status(status: int, message: Any) -> dict[str, Any]:
    return {"status": status, "send": [message]}


# -- every era of server with every wish


@pytest.mark.parametrize(
    ("era", "protocol", "version", "lines"),
    [
        ("modern", "auto", NEW, [PROBE, CALL]),
        ("legacy", "auto", LATER, PROBED),
        ("dual", "auto", NEW, [PROBE, CALL]),
        ("modern", NEW, NEW, [CALL]),
        ("dual", [NEW], NEW, [CALL]),
        ("modern", [NEW, LATER], NEW, [PROBE, CALL]),
        ("legacy", [OLDEST, NEW], OLDEST, PROBED),
        ("dual", OLD, LATER, [*HANDSHAKE, CALL]),
        *[("legacy", version, version, [*HANDSHAKE, CALL]) for version in OLD],
        *[("dual", version, version, [*HANDSHAKE, CALL]) for version in OLD],
    ],
    ids=str,
)
def test_what_is_agreed_on(era: str, protocol: Any, version: str, lines: list[str]) -> None:
    with playing("http", {"era": era}) as stage:
        with stage.connect(protocol=protocol) as client:
            info = assert_speaks(client, version)
            assert info["probed"] == (lines[0] if lines[0] != CALL else None)
            assert info["preference"] == (protocol if isinstance(protocol, str) else list(protocol))
        assert stage.methods == lines
        posts = [f"POST {method}" for method in lines]
        if version == NEW:
            assert stage.lines == posts
        else:
            assert stage.lines == [*posts[:-1], "GET", posts[-1], "DELETE"]


@pytest.mark.parametrize("version", OLD)
def test_a_server_that_is_older_than_what_was_proposed(version: str) -> None:
    with playing("http", {"era": "legacy", "version": version}) as stage, stage.connect() as client:
        assert_speaks(client, version)
        assert stage.messages[1]["params"]["protocolVersion"] == LATER


def test_a_pin_is_enforced_against_the_answer_and_never_crosses_eras() -> None:
    with playing("http", {"era": "legacy", "version": "2025-03-26"}) as stage:
        error = stage.failed(protocol="2025-06-18")
        assert_error(
            error, "incompatible_versions", code=-32602, kind="protocol",
            requested=["2025-06-18"], supported=["2025-03-26"],
        )  # fmt: skip
        assert stage.methods == [INITIALIZE]
    with playing("http", {"era": "modern"}) as stage:
        assert_refused_pin(stage.failed(protocol=LATER), LATER, NEW)
        assert stage.methods == [INITIALIZE]
    with playing("http", {"era": "legacy"}) as stage, stage.connect(protocol=NEW) as client:
        assert stage.lines == []
        outcome = client.call_tool("ok")  # the server's own words: nothing is asked that was not to be
        assert isinstance(outcome, McpError)
        assert (outcome.code, outcome.reason) == (-32000, None)
        assert stage.lines == [f"POST {CALL}"]


# -- signals

UNINITIALIZED = refuses(-32000, message="Bad Request: Server not initialized", id=None)
WRONG_VERSION = refuses(-32000, message="Bad Request: Unsupported protocol version (supported versions: ...)", id=None)
SIGNALS = [
    with_status(400, UNINITIALIZED),
    with_status(400, WRONG_VERSION),
    with_status(400, refuses(-32600, message="Bad Request: Missing session ID", id="server-error")),
    with_status(404, refuses(-32601)),
    with_status(404, refuses(-32001, message="Session not found", id=None)),
    with_status(400, refuses(-32601, id=99)),
    with_status(400, {"jsonrpc": "2.0", "error": {"code": -32600, "message": "no id"}}),
    with_status(406, refuses(-32000, id="server-error")),
    with_status(400, refuses(-32700, id=None)),
    text(400),
    text(400, "", None),
    text(400, "[]", "application/json"),
    text(400, '{"status": 400, "error": "Bad Request"}', "application/json"),
    text(400, '{"jsonrpc": "2.0", "error": {"code": "x"}}', "application/json"),
    text(400, '{"jsonrpc": "2.0", "id": 1, "resu', "application/json"),
    text(400, '{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "as text"}}'),
    *[{"status": status, "send": [], **HTML} for status in (404, 405, 406, 410, 415, 422)],
    *[with_status(200, refuses(code)) for code in (-32601, -32602, -32603, -32000, 1)],
    with_status(200, refuses(-32000, id=None)),
    with_status(200, answers(discovered(LATER, OLDEST))),
    with_status(400, refuses(-32022, {"supported": [LATER], "requested": NEW})),
]


@pytest.mark.parametrize("step", SIGNALS, ids=str)
def test_a_legacy_signal(step: Any) -> None:
    with playing("http", plan("legacy", discover=step)) as stage, stage.connect() as client:
        info = assert_speaks(client, LATER)
        assert stage.methods == PROBED
        assert [each["sent"] for each in info["steps"]] == [f"{PROBE} ({NEW})", f"{INITIALIZE} ({LATER})"]
        said = info["steps"][0]["received"]
        if step.get("body") is not None and "as text" not in step["body"]:
            assert said == f"http status {step['status']}"
        elif step["status"] >= 400:
            assert said.endswith(f"(HTTP {step['status']})")
        assert info["why"]


TROUBLE: list[tuple[Any, str]] = [
    *[(text(status), "http_status") for status in (429, 500, 501, 502, 503, 504)],
    (text(503, '{"jsonrpc": "2.0", "id": 1, "error": "busy"}', "application/json"), "http_status"),
    (text(401), "unauthorized"),
    (text(403), "unauthorized"),
    (text(200, "", None), "malformed"),
    (text(200, "", "application/json"), "malformed"),
    (text(202, "", None), "malformed"),
    (text(204, "", None), "malformed"),
    ({"status": 200, "send": [], **HTML}, "malformed"),
    (text(200, '{"result": {}}', "application/json"), "malformed"),
    (text(200, "{}", "application/json"), "malformed"),
    (text(200, "[]", "application/json"), "malformed"),
    (text(200, "null", "application/json"), "malformed"),
    (text(200, '{"jsonrpc": "2.0", "id": 1, "result": {"supportedVersions"', "application/json"), "malformed"),
    (text(200, "data: {}\n\n", "text/event-stream"), "closed"),
    (text(200, "", "text/event-stream"), "closed"),
    (with_status(200, answers({})), "invalid_result"),
    (with_status(200, answers(discovered(NEW, resultType="odd"))), "unknown_result_type"),
    (with_status(200, answers([])), "malformed"),
    (with_status(200, {"jsonrpc": "2.0", "id": "$ID", "error": []}), "malformed"),
    (with_status(200, answers(discovered(LATER), id=99)), "unexpected_id"),
    (with_status(200, refuses(-32601, id="server-error")), "unexpected_id"),
    (with_status(200, answers(discovered("2099-01-01"))), "incompatible_versions"),
    (text(307), "invalid_redirect"),
    ({**text(302), "headers": ["Location: /elsewhere"]}, "invalid_redirect"),
    ({**text(307), "headers": ["Location: https://elsewhere.test/mcp"]}, "cross_origin_redirect"),
]


@pytest.mark.parametrize(("step", "reason"), TROUBLE, ids=str)
def test_what_is_no_legacy_signal(step: Any, reason: str) -> None:
    with playing("http", plan("dual", discover=step)) as stage:
        with Took() as took:
            error = stage.failed()
        assert (error.reason, took.seconds < AT_ONCE) == (reason, True)
        assert stage.lines == [f"POST {PROBE}"]


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_an_error_of_the_server_with_such_a_status_is_no_signal(status: int) -> None:
    with playing("http", plan("dual", discover=with_status(status, refuses(-32000, message="busy")))) as stage:
        error = stage.failed()
        assert (error.code, error.message, error.reason) == (-32000, "busy", None)
        assert stage.lines == [f"POST {PROBE}"]


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize(
    ("code", "data", "reason"),
    [
        (-32020, None, None),
        (-32021, {"requiredCapabilities": {"sampling": {}}}, None),
        (-32022, None, "incompatible_versions"),
        (-32022, "broken", "incompatible_versions"),
        (-32022, {"supported": "all"}, "incompatible_versions"),
        (-32022, {"supported": [1, 2]}, "incompatible_versions"),
        (-32022, {"supported": ["2099-01-01"]}, "incompatible_versions"),
    ],
)
@pytest.mark.parametrize("id_", ["$ID", None])
def test_an_error_of_the_modern_era_is_none(status: int, code: int, data: Any, reason: str | None, id_: Any) -> None:
    with playing("http", plan("dual", discover=with_status(status, refuses(code, data, id=id_)))) as stage:
        error = stage.failed()
        assert (error.reason, error.code) == (reason, code if reason is None else -32602)
        assert stage.lines == [f"POST {PROBE}"]


def test_a_version_that_is_refused_and_named_is_offered_once_more() -> None:
    refusal = with_status(400, refuses(-32022, {"supported": [NEW, LATER], "requested": NEW}))
    with playing("http", plan("dual", discover=[refusal, {}])) as stage, stage.connect() as client:
        assert_speaks(client, NEW)
        assert stage.methods == [PROBE, PROBE, CALL]
    with playing("http", plan("dual", discover=refusal)) as stage:
        assert_error(stage.failed(), "incompatible_versions", code=-32602, kind="protocol", supported=[NEW, LATER])
        assert stage.methods == [PROBE, PROBE]


def test_a_redirect_within_the_origin_is_followed_in_every_era() -> None:
    def reply(peer: Peer, request: Request) -> None:
        if request.target == "/mcp":
            return peer.respond("307 Temporary Redirect", b"", "Location: /mcp/")
        return right(peer, request)

    for era, version in (("modern", NEW), ("legacy", LATER)):
        record: list[Any] = []
        right = served(Play({"era": era}), record)
        with ScriptedServer(each_request(reply)) as server, Client.connect(server.url, timeout=10) as client:
            assert_speaks(client, version)
        judge(record)


# -- no answer


def failed(url: str, **options: Any) -> McpError:
    with pytest.raises(McpError) as raised:
        Client.connect(url, **{"timeout": 10.0, **options})
    return raised.value.copy()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        port = once.getsockname()[1]
    with Took() as took:
        assert_error(failed(f"http://127.0.0.1:{port}/mcp"), "unreachable")
    assert took.seconds < AT_ONCE


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 404 Not Found\r\nContent-Length: 50\r\n\r\n{"])
def test_a_connection_that_ends_before_the_answer(sent: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.request()
        peer.send(sent)

    with ScriptedServer(script) as server:
        error = failed(server.url)
        assert error.reason == "closed"
        assert {request.message["method"] for request in server.requests} == {PROBE}


def test_what_is_no_http() -> None:
    def script(peer: Peer) -> None:
        peer.send(b"SSH-2.0-OpenSSH_9.9\r\n")
        peer.request()

    with ScriptedServer(script) as server:
        assert failed(server.url).reason in ("malformed", "closed")
        assert {request.message["method"] for request in server.requests} <= {PROBE}


def test_no_tls_on_one_side_or_no_trust() -> None:
    with ScriptedServer(each_request(lambda peer, request: peer.json({}))) as server:
        error = failed(server.url.replace("http:", "https:"), connect_timeout=2)
        assert error.reason in ("tls", "closed", "timeout", "unreachable")
        assert server.requests == []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with ScriptedServer(each_request(lambda peer, request: peer.json({})), context=context) as server:
        assert_error(failed(server.url), "tls")
        assert server.requests == []


@pytest.mark.parametrize("limit", [{"timeout": 0.5}, {"probe_timeout": 0.5}], ids=str)
def test_silence_is_no_signal_over_http(limit: dict[str, float]) -> None:
    with playing("http", plan("legacy", discover=SILENCE)) as stage:
        with Took() as took:
            error = stage.failed(**limit)
        assert 0.5 <= took.seconds < 2.5
        assert_error(error, "timeout", code=-32001, timeout=0.5)
        assert stage.lines == [f"POST {PROBE}"]


def test_one_limit_over_the_probe_and_the_handshake() -> None:
    slow = plan("legacy", discover={"wait": 0.4}, initialize={"wait": 5})
    with playing("http", slow) as stage:
        with Took() as took:
            error = stage.failed(timeout=0.8)
        assert 0.8 <= took.seconds < 2.8
        assert_error(error, "timeout", code=-32001, timeout=0.8)
        assert stage.methods == [PROBE, INITIALIZE]


# -- who asks

TOKEN: dict[str, Any] = {"headers": {"Authorization": "Bearer s3cr3t-t0k3n"}}
SCOPE = 'WWW-Authenticate: Bearer error="insufficient_scope", scope="mcp"'


@pytest.mark.parametrize(
    "given", [TOKEN, {"auth": "s3cr3t-t0k3n"}, {"headers": {"X-Api-Key": "s3cr3t-t0k3n"}}], ids=str
)
@pytest.mark.parametrize("status", [401, 403])
def test_where_a_credential_was_sent_and_only_the_probe_is_refused_the_handshake_decides(
    given: Any, status: int
) -> None:
    with playing("http", plan("legacy", discover=text(status))) as stage, stage.connect(**given) as client:
        info = assert_speaks(client, LATER)
        assert stage.methods == PROBED
        assert info["steps"][0]["received"] == "unauthorized"
        assert "s3cr3t" not in json.dumps(info)


@pytest.mark.parametrize("status", [401, 403])
def test_where_the_handshake_is_refused_as_well_that_is_the_error(status: int) -> None:
    with playing("http", plan("legacy", discover=text(status), initialize=text(status))) as stage:
        error = assert_error(stage.failed(**TOKEN), "unauthorized", kind="authorization", http_status=status)
        assert stage.lines == [f"POST {PROBE}", f"POST {INITIALIZE}"]
        assert "s3cr3t" not in f"{error} {error.data}"


@pytest.mark.parametrize("protocol", ["auto", [NEW, LATER]])
def test_a_scope_that_is_missing_is_never_a_signal(protocol: Any) -> None:
    step = {**text(403), "headers": [SCOPE]}
    with playing("http", plan("legacy", discover=step)) as stage:
        error = stage.failed(protocol=protocol, **TOKEN)
        assert_error(error, "unauthorized", kind="authorization", http_status=403)
        assert stage.lines == [f"POST {PROBE}"]


# -- the handshake


def test_a_refused_handshake_that_names_a_version_is_tried_again_with_it_once() -> None:
    for status in (200, 400):
        refusal = with_status(status, refuses(-32602, {"supported": ["2025-06-18"], "requested": LATER}))
        with playing("http", plan("legacy", initialize=[refusal, {}]) | {"version": "2025-06-18"}) as stage:
            with stage.connect() as client:
                assert_speaks(client, "2025-06-18")
            assert stage.methods == [PROBE, INITIALIZE, *HANDSHAKE, CALL]
        with playing("http", plan("legacy", initialize=refusal)) as stage:
            error = stage.failed()
            assert_error(error, "incompatible_versions", code=-32602, kind="protocol")
            assert stage.methods == [PROBE, INITIALIZE, INITIALIZE]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (with_status(200, answers({})), "invalid_result"),
        (with_status(200, answers({"protocolVersion": LATER})), "invalid_result"),
        (with_status(200, answers(handshake(LATER, capabilities="all"))), "invalid_result"),
        (with_status(200, answers(handshake("2099-01-01"))), "incompatible_versions"),
        (with_status(200, answers(handshake(NEW))), "incompatible_versions"),
        (with_status(200, refuses(-32603, message="broken")), "incompatible_versions"),
        (text(200, '{"result": {}}', "application/json"), "malformed"),
        (text(503), "http_status"),
        (text(429), "http_status"),
        (text(401), "unauthorized"),
        (text(302), "invalid_redirect"),
        (text(422), "incompatible_versions"),
    ],
    ids=str,
)
def test_a_handshake_that_cannot_be_used(step: Any, reason: str) -> None:
    with playing("http", plan("legacy", initialize=step)) as stage:
        assert stage.failed().reason == reason
        assert [line for line in stage.lines if line != "DELETE"] == [f"POST {PROBE}", f"POST {INITIALIZE}"]


def test_a_page_of_a_web_site_is_told_as_what_it_is() -> None:
    """Nothing of MCP at this URL: the status and the text of it are in the error."""
    page = {"status": 404, "send": [], **HTML}
    with playing("http", plan("legacy", discover=page, initialize=page)) as stage:
        with Took() as took:
            error = stage.failed()
        assert_error(
            error, "incompatible_versions", code=-32602, kind="protocol", http_status=404, content_type="text/html"
        )
        assert "404" in error.message
        assert "no such thing" in error.data["excerpt"]
        assert took.seconds < AT_ONCE


EARLY = [
    asks("ping", 1),
    asks("roots/list", 0),
    tells("notifications/message", level="info", data="starting"),
    tells("notifications/unheard-of"),
]


@pytest.mark.parametrize("declared", [False, True])
def test_a_server_may_ask_before_it_answers_the_handshake(declared: bool) -> None:
    step = {"initialize": say(*EARLY, answers(handshake()))}
    logged: list[Any] = []
    options: dict[str, Any] = {"handlers": {"roots": lambda params: {"roots": []}}} if declared else {}
    with playing("http", plan("legacy", **step)) as stage:
        with stage.connect(on_log=lambda *told: logged.append(told), **options) as client:
            assert_speaks(client, LATER)
            until(lambda: logged and stage.methods.count("answer") == 2)
            replies = {message["id"]: message for message in stage.messages if "method" not in message}
        assert logged == [("info", "starting", None)]
        assert replies[1]["result"] == {}
        assert replies[0]["result"] == {"roots": []} if declared else replies[0]["error"]["code"] == -32601
        assert [method for method in stage.methods if method != "answer"] == PROBED


# -- the oldest HTTP


class OldServer(SseServer):
    """Serves 2024-11-05 over HTTP+SSE at the URL where POSTs are refused by the two steps given."""

    def __init__(self, *refusals: Callable[[Peer], None], **options: Any) -> None:
        super().__init__(lambda _, peer, request: self.answer(peer, request), path="/mcp", **options)
        self.play = Play({"era": "legacy", "version": OLDEST})
        self.record: list[dict[str, Any]] = []
        self._refusals = list(refusals)

    def __enter__(self) -> OldServer:
        super().__enter__()
        return self

    def answer(self, peer: Peer, request: Request) -> None:
        if request.target == "/mcp":
            return self._refusals.pop(0)(peer)
        step, entry = self.play.act(request.message)
        self.record.append(entry)
        peer.respond("202 Accepted")
        return self.say(*step["send"])

    @property
    def lines(self) -> list[str]:
        return [
            " ".join([*request.line.split(" ")[:2], *([request.message["method"]] if request.body else [])])
            for request in list(self.requests)
        ]


def refusal(status: int, message: Any = None) -> Callable[[Peer], None]:
    if message is not None:
        return lambda peer: peer.json(message, f"{status} No")
    return lambda peer: peer.respond(f"{status} No", b"no", kind="text/plain")


OLD_LINES = [f"POST /mcp {PROBE}", f"POST /mcp {INITIALIZE}", "GET /mcp"]


@pytest.mark.parametrize("status", [400, 404, 405])
@pytest.mark.parametrize("body", [None, refuses(-32000, id=None), refuses(-32601, id=None)], ids=str)
def test_http_sse_is_tried_last(status: int, body: Any) -> None:
    with OldServer(refusal(405), refusal(status, body)) as server:
        with Took() as took, Client.connect(server.url, timeout=10) as client:
            info = assert_speaks(client, OLDEST)
            to = "POST /messages?sid=1"
            handshake = [f"{to} {INITIALIZE}", f"{to} {INITIALIZED}"]
            assert server.lines == [*OLD_LINES, *handshake, f"{to} {CALL}"]
            assert [step["sent"] for step in info["steps"]] == [
                f"{PROBE} ({NEW})", f"{INITIALIZE} ({LATER})", f"{INITIALIZE} ({LATER}) over HTTP+SSE",
            ]  # fmt: skip
            assert "HTTP+SSE" in info["why"]
            ids = [request.message["id"] for request in server.requests if request.body and b'"id"' in request.body]
            assert ids == sorted(set(ids))
        judge(server.record)
        assert took.seconds < AT_ONCE


@pytest.mark.parametrize("message", [answers(discovered(OLDEST), id=1), refuses(-32022, {"supported": [OLDEST]}, id=1)])
def test_a_server_that_names_older_versions_and_refuses_their_handshake_may_be_of_that_kind(message: Any) -> None:
    with OldServer(lambda peer: peer.json(message), refusal(405)) as server:
        with Client.connect(server.url, timeout=10) as client:
            assert_speaks(client, OLDEST)
        assert server.lines[:3] == OLD_LINES


def test_the_credentials_go_there_too() -> None:
    with OldServer(refusal(404), refusal(404)) as server, Client.connect(server.url, timeout=10, **TOKEN) as client:
        assert_speaks(client, OLDEST)
        assert {request.header("authorization") for request in server.requests} == {"Bearer s3cr3t-t0k3n"}


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (refusal(406), "incompatible_versions"),
        (refusal(500), "http_status"),
        (refusal(503), "http_status"),
        (refusal(429), "http_status"),
        (refusal(401), "unauthorized"),
        (refusal(403), "unauthorized"),
        (refusal(400, refuses(-32020, id=None)), "incompatible_versions"),
        (refusal(400, refuses(-32021, id=None)), "incompatible_versions"),
        (refusal(400, refuses(-32022, {"supported": [NEW]}, id=None)), "incompatible_versions"),
        (lambda peer: peer.respond("200 OK", b"<html>", kind="text/html"), "malformed"),
    ],
)
def test_nothing_else_leads_there(second: Any, reason: str) -> None:
    with OldServer(refusal(404), second) as server:
        assert failed(server.url).reason == reason
        assert server.lines == OLD_LINES[:2]


@pytest.mark.parametrize("protocol", OLD)
def test_a_pin_never_leads_there(protocol: str) -> None:
    with OldServer(refusal(405)) as server:
        assert_error(failed(server.url, protocol=protocol), "http_status", http_status=405)
        assert server.lines == [f"POST /mcp {INITIALIZE}"]


def test_where_there_is_none_either_the_first_refusal_is_told() -> None:
    def stream(server: SseServer, peer: Peer) -> None:
        peer.respond("404 Not Found", b"nothing here", kind="text/plain")

    with OldServer(refusal(404), refusal(405), stream=stream) as server, Took() as took:
        error = failed(server.url)
        assert_error(error, "incompatible_versions", code=-32602, kind="protocol", http_status=405)
        assert "HTTP+SSE" in error.message
        assert server.lines == OLD_LINES
    assert took.seconds < AT_ONCE


def test_a_stream_that_names_no_address_does_not_outlast_the_limit() -> None:
    def stream(server: SseServer, peer: Peer) -> None:
        peer.start_sse()
        peer.silence()

    with OldServer(refusal(404), refusal(404), stream=stream) as server:
        with Took() as took:
            error = failed(server.url, timeout=0.6)
        assert 0.6 <= took.seconds < 2.6
        assert error.reason in ("timeout", "incompatible_versions")
        assert server.lines == OLD_LINES


def test_a_lost_stream_is_opened_again_without_a_probe() -> None:
    with OldServer(refusal(404), refusal(404)) as server, Client.connect(server.url, timeout=10) as client:
        assert_speaks(client, OLDEST)
        before = len(server.requests)
        server.end_stream()
        server.play = Play({"era": "legacy", "version": OLDEST})
        until(lambda: isinstance(client.call_tool("ok"), Ok) and len(server.gets) == 2)
        assert [line for line in server.lines[before:] if "/mcp" in line] == ["GET /mcp"]
        assert_speaks(client, OLDEST)
