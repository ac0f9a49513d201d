"""Options: which connection takes which, what they may be, and that everything wrong is refused before any I/O."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

import snodo_client
from snodo_client import Client, checks, option_types, options
from support.scripted_transport import ScriptedTransport, result


def typed(name: str) -> set[str]:
    """The fields of one of the TypedDicts, without those it inherits."""
    found = set(getattr(option_types, name).__annotations__)
    return found if name == "CommonOptions" else found - set(option_types.CommonOptions.__annotations__)


def opened(**given: Any) -> Any:
    """What connecting to a custom transport with these options raises; that no transport was made is asserted."""
    made = []

    def make() -> ScriptedTransport:
        made.append(1)
        return ScriptedTransport(lambda call: iter([result(call)]))

    with pytest.raises((TypeError, ValueError)) as raised:
        Client.connect(make, **given)
    assert made == []
    return raised


def test_the_names_that_are_checked_are_those_editors_complete() -> None:
    assert set(options.COMMON) == typed("CommonOptions")
    for connection, fields in (
        ("stdio", "StdioOptions"),
        ("http", "HttpOptions"),
        ("sse", "HttpOptions"),
        ("websocket", "WebSocketOptions"),
        ("direct", "DirectOptions"),
    ):
        assert {name for name, owners in options.OWNERS.items() if connection in owners} == typed(fields)


@pytest.mark.parametrize("name", sorted(options.OWNERS))
def test_a_misplaced_option_says_where_it_belongs(name: str) -> None:
    raised = opened(**{name: None})
    assert raised.type is TypeError
    assert f"{name}= belongs to {options.OWNERS[name][0]}" in str(raised.value)


@pytest.mark.parametrize(
    ("target", "name"), [(("stdio", "no-such-command"), "headers"), ("http://127.0.0.1:9/mcp", "env")]
)
def test_misplaced_on_our_own_connections(target: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"{name}= belongs to"):
        Client.connect(target, **{name: {}})


def test_an_unknown_option_is_refused() -> None:
    raised = opened(tiemout=3)
    assert raised.type is TypeError
    assert "tiemout=" in str(raised.value)


@pytest.mark.parametrize(
    ("given", "type_", "text"),
    [
        ({"protocol": "2099-01-01"}, ValueError, "2099-01-01"),
        ({"protocol": []}, ValueError, "empty"),
        ({"protocol": ["2026-07-28", "x"]}, ValueError, "'x'"),
        ({"protocol": [5]}, ValueError, "5"),
        ({"protocol": 5}, TypeError, "protocol"),
        ({"protocol": None}, TypeError, "protocol"),
        ({"client_info": {}}, ValueError, "client_info"),
        ({"client_info": {"name": "x"}}, ValueError, "version"),
        ({"client_info": {"name": "", "version": "1"}}, ValueError, "name"),
        ({"client_info": {"name": "x", "version": 1}}, ValueError, "version"),
        ({"client_info": {"name": "x", "version": "1", "n": math.nan}}, ValueError, "JSON"),
        ({"client_info": {"name": "\ud800", "version": "1"}}, ValueError, "JSON"),
        ({"client_capabilities": "roots"}, TypeError, "client_capabilities"),
        ({"client_capabilities": {"roots": True}}, TypeError, "roots"),
        ({"client_capabilities": [5]}, TypeError, "capability"),
        ({"client_capabilities": [""]}, TypeError, "capability"),
        ({"client_capabilities": {5: {}}}, (TypeError, ValueError), "str"),
        ({"client_capabilities": {"tasks": {"list": {}}}}, ValueError, "tasks"),
        ({"client_capabilities": ["tasks"]}, ValueError, "tasks"),
        ({"handlers": {"forms": print}}, ValueError, "forms"),
        ({"handlers": {"form": "x"}}, TypeError, "callable"),
        ({"handlers": print}, TypeError, "mapping"),
        ({"remembered": "2025-11-25"}, TypeError, "remembered"),
        ({"wait": None}, TypeError, "wait"),
        ({"client_capabilities": None}, TypeError, "client_capabilities"),
        ({"timeout": 0}, ValueError, "timeout"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"timeout": math.nan}, ValueError, "timeout"),
        ({"timeout": True}, TypeError, "timeout"),
        ({"timeout": "3"}, TypeError, "timeout"),
        ({"timeout": None}, TypeError, "timeout"),
        ({"timeout": 10**400}, ValueError, "timeout"),
        ({"probe_timeout": 0}, ValueError, "probe_timeout"),
        ({"max_pages": 0}, ValueError, "max_pages"),
        ({"max_pages": True}, TypeError, "max_pages"),
        ({"max_pages": 2.0}, TypeError, "max_pages"),
        ({"on_log": "print"}, TypeError, "on_log"),
        ({"on_notification": 5}, TypeError, "on_notification"),
    ],
)
def test_wrong_values_are_refused_with_their_name(given: dict[str, Any], type_: Any, text: str) -> None:
    raised = opened(**given)
    assert isinstance(raised.value, type_)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("target", "type_"),
    [
        (5, TypeError), (None, TypeError), (["stdio", "x"], TypeError), ("example.test/mcp", ValueError),
        ("ftp://example.test", ValueError), (("stdio",), ValueError), (("telnet", "x"), ValueError), ((), ValueError),
        (("http", "http://a.test", "b"), ValueError), (lambda: 5, TypeError), (object(), TypeError),
    ],
)  # fmt: skip
def test_targets_that_are_none(target: Any, type_: type[Exception]) -> None:
    with pytest.raises(type_):
        Client.connect(target)


def test_defaults() -> None:
    made = options.Options()
    assert (made.timeout, made.probe_timeout, made.max_pages, made.preference) == (30.0, 10.0, 1000, "auto")
    assert made.identity.info == {"name": "snodo_client", "version": snodo_client.__version__}
    assert made.identity.capabilities == {}
    assert made.allowed[0] == "2026-07-28"


def test_for_ever_is_a_timeout() -> None:
    assert checks.seconds(math.inf, "timeout") == math.inf
    assert checks.seconds(2, "timeout") == 2.0


def test_capabilities_by_name_or_in_full() -> None:
    assert options.Options(client_capabilities=["roots", "elicitation"]).identity.capabilities == {
        "roots": {},
        "elicitation": {},
    }
    full = {"elicitation": {"form": {}}, "extensions": {"com.example/x": {"a": 1}}}
    assert options.Options(client_capabilities=full).identity.capabilities == full


def test_any_mapping_is_a_mapping() -> None:
    full = MappingProxyType({"elicitation": {"form": {}}})
    assert options.Options(client_capabilities=full).identity.capabilities == dict(full)
    info = MappingProxyType({"name": "x", "version": "1"})
    assert options.Options(client_info=info).identity.info == dict(info)


def test_versions_from_any_iterable() -> None:
    made = options.Options(protocol=(version for version in ["2026-07-28"]))  # type: ignore[arg-type]
    assert made.allowed == ("2026-07-28",)


def test_what_the_caller_gave_is_not_changed_and_not_kept() -> None:
    info, capabilities = {"name": "x", "version": "1"}, {"roots": {}}
    made = options.Options(client_info=info, client_capabilities=capabilities)
    before = made.identity.meta("2026-07-28")
    info["name"] = "y"
    capabilities["sampling"] = {}
    assert made.identity.meta("2026-07-28") == before
    assert (info, capabilities) == ({"name": "y", "version": "1"}, {"roots": {}, "sampling": {}})


# -- keywords of calls

CALLS: dict[str, Callable[..., Any]] = {
    "discover": lambda client, **given: client.discover(**given),
    "list_tools": lambda client, **given: client.list_tools(**given),
    "list_page": lambda client, **given: client.list_page("tools", **given),
    "call_tool": lambda client, **given: client.call_tool("x", **given),
    "read_resource": lambda client, **given: client.read_resource("x:y", **given),
    "get_prompt": lambda client, **given: client.get_prompt("x", **given),
    "complete": lambda client, **given: client.complete("x", {"name": "a", "value": ""}, **given),
    "request": lambda client, **given: client.request("com.example/x", {}, **given),
}
WRONG: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"tiemout": 1}, TypeError),
    ({"timeout": "1"}, TypeError),
    ({"timeout": 0}, ValueError),
    ({"max_total_timeout": -1}, ValueError),
    ({"max_total_timeout": "x"}, TypeError),
    ({"meta": []}, TypeError),
    ({"meta": {"": 1}}, ValueError),
    ({"meta": {"io.modelcontextprotocol/x": 1}}, ValueError),
    ({"meta": {"a": math.inf}}, ValueError),
    ({"progress": 5}, TypeError),
    ({"progress": print, "meta": {"progressToken": 7}}, ValueError),
    ({"reset_timeout_on_progress": True, "meta": {"progressToken": 7}}, ValueError),
    ({"log_level": "loud"}, ValueError),
    ({"log_level": 5}, ValueError),
]


@pytest.fixture
def pinned() -> Any:
    transport = ScriptedTransport(lambda call: iter([result(call, tools=[])]))
    with Client.connect(transport, protocol="2026-07-28") as client:
        yield client, transport


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("given", "type_"), WRONG)
def test_wrong_keywords_of_calls_send_nothing(
    pinned: Any, name: str, given: dict[str, Any], type_: type[Exception]
) -> None:
    client, transport = pinned
    with pytest.raises(type_):
        CALLS[name](client, **given)
    assert transport.requests == []


@pytest.mark.parametrize("name", ["call_tool", "read_resource", "get_prompt", "request"])
@pytest.mark.parametrize(
    "given", [{"input_responses": []}, {"request_state": 5}, {"input_responses": {"a": object()}},
    {"request_state": b""}]
)  # fmt: skip
def test_wrong_answers_to_input_requests_send_nothing(pinned: Any, name: str, given: dict[str, Any]) -> None:
    client, transport = pinned
    with pytest.raises((TypeError, ValueError)):
        CALLS[name](client, **given)
    assert transport.requests == []


@pytest.mark.parametrize("name", ["discover", "list_tools", "list_page", "complete"])
@pytest.mark.parametrize("given", [{"input_responses": {"a": {}}}, {"request_state": "s"}])
def test_calls_that_cannot_be_asked_back_take_no_answers(pinned: Any, name: str, given: dict[str, Any]) -> None:
    client, transport = pinned
    with pytest.raises(TypeError):
        CALLS[name](client, **given)
    assert transport.requests == []


@pytest.mark.parametrize(
    ("call", "type_"),
    [
        (lambda c: c.call_tool(5), TypeError),
        (lambda c: c.call_tool({"title": "no name"}), TypeError),
        (lambda c: c.call_tool("x", []), TypeError),
        (lambda c: c.call_tool("x", {"a": b""}), ValueError),
        (lambda c: c.call_tool("x", {1: 2}), ValueError),
        (lambda c: c.call_tool("x", {"a": math.nan}), ValueError),
        (lambda c: c.call_tool("x", {"a": "\ud800"}), ValueError),
        (lambda c: c.call_tool("\ud800"), ValueError),
        (lambda c: c.read_resource(None), TypeError),
        (lambda c: c.get_prompt("x", {"a": 1}), TypeError),
        (lambda c: c.get_prompt("x", {1: "a"}), TypeError),
        (lambda c: c.get_prompt("x", []), TypeError),
        (lambda c: c.get_prompt(None), TypeError),
        (lambda c: c.complete({"type": "ref/tool", "name": "x"}, {"name": "a", "value": ""}), ValueError),
        (lambda c: c.complete({"type": "ref/prompt"}, {"name": "a", "value": ""}), ValueError),
        (lambda c: c.complete(5, {"name": "a", "value": ""}), TypeError),
        (lambda c: c.complete("x", {"name": "a"}), ValueError),
        (lambda c: c.complete("x", "a"), ValueError),
        (lambda c: c.complete("x", {"name": "a", "value": ""}, {"arguments": {"a": 1}}), ValueError),
        (lambda c: c.complete("x", {"name": "a", "value": ""}, []), TypeError),
        (lambda c: c.list_page("tool"), ValueError),
        (lambda c: c.list_page("tools", 5), TypeError),
        (lambda c: c.request(5), TypeError),
        (lambda c: c.request(""), (TypeError, ValueError)),
        (lambda c: c.request("x", []), TypeError),
        (lambda c: c.request("x", {"_meta": 5}), TypeError),
        (lambda c: c.request("x", {"_meta": {"io.modelcontextprotocol/protocolVersion": "1"}}), ValueError),
        (lambda c: c.request("subscriptions/listen", {}), ValueError),
        (lambda c: c.request("initialize", {}), ValueError),
        (lambda c: c.request("notifications/x", {}), ValueError),
        (lambda c: c.notify("tools/list"), ValueError),
        (lambda c: c.notify(5), ValueError),
        (lambda c: c.notify("notifications/initialized"), ValueError),
        (lambda c: c.notify("notifications/x", []), TypeError),
        (lambda c: c.notify("notifications/x", {"a": {1, 2}}), ValueError),
        (lambda c: c.notify("notifications/x", timeout=0), ValueError),
    ],
)  # fmt: skip
def test_wrong_arguments_send_nothing(pinned: Any, call: Callable[[Client], Any], type_: Any) -> None:
    client, transport = pinned
    with pytest.raises(type_):
        call(client)
    assert transport.requests == []
    assert transport.sent.empty()


@pytest.mark.parametrize(
    ("method", "pointer"),
    [("subscriptions/listen", "listen"), ("initialize", "protocol_info"), ("notifications/cancelled", "notify")],
)
def test_request_points_to_the_right_method(pinned: Any, method: str, pointer: str) -> None:
    with pytest.raises(ValueError, match=pointer):
        pinned[0].request(method)
