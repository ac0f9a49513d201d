"""Requests as bytes: the metadata of every one, keys the protocol reserves, arguments, and the official schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.protocol import requests, tool_headers
from snodo_client.protocol.requests import PREFIX, Identity, Request

VERSION = "2026-07-28"
SCHEMA = json.loads((Path(__file__).parents[1] / "support" / "schemas" / f"{VERSION}.json").read_text())
IDENTITY = Identity({"name": "test", "version": "1"}, {"elicitation": {"form": {}}})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)  # fmt: skip


def message(request: Request, wire_id: int = 1, identity: Identity = IDENTITY, **options: bool) -> dict[str, Any]:
    """The request as it goes out, decoded; a key that is in an object twice is a failure."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs), pairs
        return dict(pairs)

    body = request.copy(version=VERSION).encode(wire_id, identity, **options)
    assert b"\n" not in body
    return json.loads(body, object_pairs_hook=once)  # type: ignore[no-any-return]


def validate(sent: dict[str, Any], name: str) -> None:
    jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]}).validate(sent)


ASK_BACK = {"inputResponses": {"a": {"action": "accept", "content": {"b": "c"}}}, "requestState": 's" \\u0041\u2028'}
BUILT = [
    ("DiscoverRequest", "server/discover", {}),
    ("ListToolsRequest", "tools/list", requests.list_params(None)),
    ("ListToolsRequest", "tools/list", requests.list_params("")),
    ("ListResourcesRequest", "resources/list", requests.list_params("c")),
    ("ListResourceTemplatesRequest", "resources/templates/list", requests.list_params("c")),
    ("ListPromptsRequest", "prompts/list", requests.list_params("c")),
    ("CallToolRequest", "tools/call", requests.call_tool_params("t", None)),
    ("CallToolRequest", "tools/call", requests.call_tool_params({"name": "t"}, {"a": [None, 1.5, {"b": "\u2028"}]})),
    (
        "CallToolRequest",
        "tools/call",
        requests.call_tool_params("t", {})
        | requests.retry_params(ASK_BACK["inputResponses"], ASK_BACK["requestState"]),  # type: ignore[arg-type]
    ),
    ("ReadResourceRequest", "resources/read", requests.read_resource_params("file:///a")),
    ("GetPromptRequest", "prompts/get", requests.get_prompt_params("p", None)),
    ("GetPromptRequest", "prompts/get", requests.get_prompt_params("p", {"a": "b"})),
    ("CompleteRequest", "completion/complete", requests.complete_params("p", {"name": "a", "value": ""}, None)),
    (
        "CompleteRequest",
        "completion/complete",
        requests.complete_params("file:///{a}", {"name": "a", "value": "x"}, {"arguments": {"b": "c"}}),
    ),
    ("SubscriptionsListenRequest", "subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
]


@pytest.mark.parametrize(("name", "method", "params"), BUILT)
@pytest.mark.parametrize("progress", [False, True])
@pytest.mark.parametrize(
    "extra",
    [{}, {"meta": {"com.example/trace": 1, "a": None}}, {"log_level": "error"}, {"meta": {"x": {}},
    "log_level": "debug"}],
)  # fmt: skip
def test_every_request_follows_the_official_schema(
    name: str, method: str, params: dict[str, Any], progress: bool, extra: dict[str, Any]
) -> None:
    sent = message(Request(method, params, **extra), 12, progress=progress)
    validate(sent, name)
    validate(sent, "ClientRequest")
    validate(sent, "JSONRPCRequest")
    meta = sent["params"]["_meta"]
    validate(meta, "RequestMetaObject")
    assert sent["id"] == 12
    assert sent["method"] == method
    assert {key: value for key, value in sent["params"].items() if key != "_meta"} == params
    assert meta[PREFIX + "protocolVersion"] == VERSION
    assert meta[PREFIX + "clientCapabilities"] == {"elicitation": {"form": {}}}
    assert meta[PREFIX + "clientInfo"] == {"name": "test", "version": "1"}
    assert meta.get("progressToken") == (12 if progress else None)
    assert meta.get(PREFIX + "logLevel") == extra.get("log_level")
    assert {key: meta.get(key) for key in extra.get("meta", {})} == extra.get("meta", {})


def test_the_schema_test_knows_every_request_a_client_may_send() -> None:
    known = {item["$ref"].rpartition("/")[2] for item in SCHEMA["$defs"]["ClientRequest"]["anyOf"]}
    assert {name for name, _, _ in BUILT} == known


def test_a_client_may_be_anonymous_and_without_capabilities() -> None:
    sent = message(Request("tools/list"), identity=Identity(None, {}))
    assert sent["params"] == {"_meta": {PREFIX + "protocolVersion": VERSION, PREFIX + "clientCapabilities": {}}}


def test_attempts_differ_in_id_and_version_only() -> None:
    request = Request("tools/call", {"name": "x", "arguments": {"a": 1}}, meta={"b": 2})
    first, second = request.copy(version="2099-01-01"), request.copy(version=VERSION)
    assert json.loads(first.encode(1, IDENTITY))["params"]["_meta"][PREFIX + "protocolVersion"] == "2099-01-01"
    changed = json.loads(first.encode(1, IDENTITY))
    changed["id"] = 2
    changed["params"]["_meta"][PREFIX + "protocolVersion"] = VERSION
    assert json.loads(second.encode(2, IDENTITY)) == changed
    assert first.headers()["MCP-Protocol-Version"] == "2099-01-01"
    assert second.headers()["MCP-Protocol-Version"] == VERSION


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), JSON, max_size=4))
def test_arguments_arrive_as_given(arguments: dict[str, Any]) -> None:
    sent = message(Request("tools/call", requests.call_tool_params("x", arguments)))
    assert sent["params"]["arguments"] == arguments


def test_what_the_caller_gave_is_not_changed() -> None:
    params, meta, arguments = {"a": 1, "_meta": {"b": 2}}, {"c": 3}, {"d": 4}
    request = Request("x", params, meta=meta, log_level="info")
    requests.call_tool_params("t", arguments) | requests.retry_params({"r": {}}, "s")
    message(request, progress=True)
    assert (params, meta, arguments) == ({"a": 1, "_meta": {"b": 2}}, {"c": 3}, {"d": 4})
    assert message(request)["params"]["_meta"].items() >= {"b": 2, "c": 3}.items()


def test_a_request_is_fixed_when_it_is_made() -> None:
    arguments = {"a": 1}
    request = Request("tools/call", requests.call_tool_params("t", arguments))
    arguments["a"] = 2
    assert message(request)["params"]["arguments"] == {"a": 1}


def test_meta_wins_over_the_meta_of_params_but_not_over_the_library() -> None:
    request = Request("x", {"_meta": {"a": 1, "b": 1}}, meta={"b": 2})
    assert message(request)["params"]["_meta"].items() >= {"a": 1, "b": 2}.items()


# -- keys of _meta


@pytest.mark.parametrize(
    "key",
    [
        "a", "A", "9", "a.b", "a-b", "a_b", "a..b", "a-_.9", "com.example/a", "com.example/", "example/a",
        "e-x.a9/b_c.d",
        "com.example.mcp/x", "mcp/x", "modelcontextprotocol/x", "a.b.modelcontextprotocol/x", "tracestate", "baggage",
        "x" * 300,
    ],
)  # fmt: skip
def test_good_meta_keys(key: str) -> None:
    assert message(Request("x", meta={key: "1"}))["params"]["_meta"][key] == "1"


@pytest.mark.parametrize(
    "key",
    [
        "", " ", "a ", " a", "a\n", "-a", "a-", "_a", ".a", "a.", "ä", "a b", "/", "/a", "a//b", "a/b/c",
        "1a/b", "-a/b",
        "a-/b", "a..b/c", ".a/b", "a./b", "a_b/c", "com.example/-a", "com.example/a-", "com.example/a b", "a\u0660",
        "ab\x00", 5, None, ("a",), b"a",
    ],
)  # fmt: skip
def test_bad_meta_keys(key: Any) -> None:
    with pytest.raises(ValueError, match="meta key"):
        Request("x", meta={key: 1})


@pytest.mark.parametrize(
    "key",
    [
        "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/x",
        "io.modelcontextprotocol/", "dev.mcp/x", "com.mcp.tools/x", "org.modelcontextprotocol.api/x",
    ],
)  # fmt: skip
def test_reserved_meta_keys(key: str) -> None:
    for given_as in ({"meta": {key: 1}}, {"params": {"_meta": {key: 1}}}):
        with pytest.raises(ValueError, match="reserved"):
            Request("x", **given_as)


TRACE = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"


@pytest.mark.parametrize("value", [f"00-{TRACE}-01", f"00-{TRACE}-ff", f"cc-{TRACE}-01", f"cc-{TRACE}-01-what.ever"])
def test_good_trace_parents(value: str) -> None:
    assert message(Request("x", meta={"traceparent": value}))["params"]["_meta"]["traceparent"] == value


@pytest.mark.parametrize(
    "value",
    [
        "", 5, None, {}, f"00-{TRACE}", f"00-{TRACE}-1", f"00-{TRACE}-01-more", f"ff-{TRACE}-01", f"0-{TRACE}-01",
        f"00-{TRACE.upper()}-01", f"00-{TRACE}-01 ", f"00-{TRACE}-01\n", f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01", f"00-{TRACE}-0g",
    ],
)  # fmt: skip
def test_bad_trace_parents(value: object) -> None:
    with pytest.raises(ValueError, match="traceparent"):
        Request("x", meta={"traceparent": value})


@pytest.mark.parametrize("token", ["", "a", "7"])
def test_a_progress_token_of_the_callers_passes(token: object) -> None:
    assert message(Request("x", meta={"progressToken": token}))["params"]["_meta"]["progressToken"] == token


@pytest.mark.parametrize("token", [None, True, 1.5, [], {}, 7])  # integers are what the library itself gives out
def test_progress_tokens_are_strings(token: object) -> None:
    with pytest.raises(ValueError, match="progressToken"):
        Request("x", meta={"progressToken": token})


@pytest.mark.parametrize("level", requests.LOG_LEVELS)
def test_log_levels_are_those_of_the_schema(level: str) -> None:
    assert level in SCHEMA["$defs"]["LoggingLevel"]["enum"]
    assert len(requests.LOG_LEVELS) == len(SCHEMA["$defs"]["LoggingLevel"]["enum"])


# -- parameters


def test_the_first_page_has_no_cursor_and_the_empty_one_is_sent() -> None:
    assert requests.list_params(None) == {}
    assert requests.list_params("") == {"cursor": ""}


def test_state_is_byte_exact_and_absent_when_absent() -> None:
    state = 'é\u2028 "\\/\\u0041" \x7f'
    sent = message(Request("tools/call", {"name": "x", **requests.retry_params(None, state)}))
    assert sent["params"]["requestState"] == state
    assert "inputResponses" not in sent["params"]
    assert requests.retry_params({}, None) == {"inputResponses": {}}
    assert requests.retry_params(None, None) == {}
    assert requests.retry_params(None, "") == {"requestState": ""}


def test_references_for_completion() -> None:
    argument = {"name": "a", "value": ""}
    assert requests.complete_params("greet", argument, None)["ref"] == {"type": "ref/prompt", "name": "greet"}
    assert requests.complete_params("file:///{a}", argument, None)["ref"] == {
        "type": "ref/resource",
        "uri": "file:///{a}",
    }
    own = {"type": "ref/prompt", "name": "greet", "title": "Greet"}
    assert requests.complete_params(own, argument, {"arguments": {}}) == {
        "ref": own,
        "argument": argument,
        "context": {"arguments": {}},
    }


@pytest.mark.parametrize("ref", [{}, {"type": "ref/prompt", "uri": "x"}, {"type": "ref/resource", "name": "x"},
                                 {"type": ["ref/prompt"], "name": "x"}, {"type": "ref/prompt", "name": 5}])  # fmt: skip
def test_other_references_are_refused(ref: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="ref must be"):
        requests.complete_params(ref, {"name": "a", "value": ""}, None)


def test_lists_and_reads_may_be_sent_again_and_nothing_else() -> None:
    again = {method for _, method, _ in BUILT if Request(method).idempotent}
    assert again == {
        "server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list", "resources/read",
        "subscriptions/listen",
    }  # fmt: skip


# -- headers


def test_mirrored_arguments_follow_the_copy() -> None:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    found = tool_headers.scan(schema)
    assert isinstance(found, list)
    request = Request("tools/call", {"name": "t", "arguments": {"region": "eu"}})
    copied = request.copy(version=VERSION, annotations=found)
    assert copied.headers()["Mcp-Param-Region"] == "eu"
    assert copied.copy(version="2099-01-01").headers()["Mcp-Param-Region"] == "eu"
    assert "Mcp-Param-Region" not in request.copy(version=VERSION).headers()
    with pytest.raises(ValueError, match="region"):
        Request("tools/call", {"name": "t", "arguments": {"region": 5}}).copy(annotations=found)


def test_a_request_shows_its_method_only() -> None:
    request = Request("tools/call", {"name": "x", "requestState": "s3cret", "arguments": {"token": "s3cret"}})
    assert repr(request) == "Request('tools/call')"


# -- the older revisions


@pytest.mark.parametrize("version", ["2025-11-25", "2024-11-05"])
def test_an_older_revision_gets_no_metadata_of_the_newer(version: str) -> None:
    def sent(request: Request, **options: bool) -> Any:
        return json.loads(request.copy(version=version).encode(7, IDENTITY, **options))

    assert sent(Request("ping")) == {"jsonrpc": "2.0", "id": 7, "method": "ping"}
    assert sent(Request("tools/list", log_level="debug")) == {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
    assert sent(Request("tools/call", {"name": "t"}))["params"] == {"name": "t"}
    assert sent(Request("x", {"a": 1}, meta={"com.example/t": 1}))["params"] == {"_meta": {"com.example/t": 1}, "a": 1}
    assert sent(Request("x"), progress=True)["params"] == {"_meta": {"progressToken": 7}}
    both = sent(Request("x", {"a": 1}, meta={"com.example/t": ","}), progress=True)
    assert both["params"] == {"_meta": {"com.example/t": ",", "progressToken": 7}, "a": 1}
    assert Request("tools/call", {"name": "t"}).copy(version=version).headers() == {}


@given(st.dictionaries(st.text(), JSON, max_size=3), st.booleans())
def test_whatever_the_parameters_they_arrive_in_an_older_revision(params: dict[str, Any], progress: bool) -> None:
    params.pop("_meta", None)
    body = Request("x", params).copy(version="2025-06-18").encode(1, IDENTITY, progress=progress)
    got = json.loads(body).get("params", {})
    assert got.pop("_meta", None) == ({"progressToken": 1} if progress else None)
    assert got == params


def test_the_handshake_says_who_asks() -> None:
    identity = Identity({"name": "n", "version": "1"}, {"roots": {}}, {"roots": {"listChanged": True}})
    request = identity.initialize("2025-03-26")
    assert (request.method, request.version) == ("initialize", "2025-03-26")
    assert request.params == {
        "protocolVersion": "2025-03-26",
        "capabilities": {"roots": {"listChanged": True}},
        "clientInfo": {"name": "n", "version": "1"},
    }
    assert Identity(None, {}).initialize("2025-11-25").params["clientInfo"] == {"name": "unnamed", "version": "0"}


@pytest.mark.parametrize(("task", "sent"), [(True, {}), ({"ttl": 60_000}, {"ttl": 60_000}), ({}, {})])
def test_tasks_are_asked_for(task: Any, sent: dict[str, Any]) -> None:
    assert requests.task_params(task) == sent


@pytest.mark.parametrize("task", [False, 5, "x", {"ttl": -1}, {"ttl": "1"}, {"ttl": True}, {"ttl": float("inf")}])
def test_a_task_is_a_mapping_with_milliseconds(task: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="task"):
        requests.task_params(task)
