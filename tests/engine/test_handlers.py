"""The option `handlers=`: what it declares, which requests it lets pass, and what handlers may give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client import McpError
from snodo_client.engine.handlers import Handlers, InputRequest, InvalidAnswer
from snodo_client.engine.roots import Roots
from support import mcp_schema

FORM = {
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "default": 42}},
        "required": ["name"],
    },
}
URL = {"mode": "url", "message": "Sign in", "url": "https://example.org/sign?in=1", "elicitationId": "e1"}
ASK = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 10}
ANSWER = {"role": "assistant", "content": {"type": "text", "text": "hello"}, "model": "m"}
REQUESTS = {
    "form": ("elicitation/create", FORM),
    "url": ("elicitation/create", URL),
    "sampling": ("sampling/createMessage", ASK),
    "roots": ("roots/list", None),
}
SECRET = "5ecret5ecret"


def nothing(request: InputRequest) -> dict[str, Any]:
    raise AssertionError("it was called")


def handlers(*kinds: str, **capabilities: Any) -> Handlers:
    return Handlers(dict.fromkeys(kinds, nothing), capabilities)


def asked(kind: str, **more: Any) -> InputRequest:
    method, params = REQUESTS[kind]
    return InputRequest(method, params if not more else {**(params or {}), **more}, "the server", None, lambda: False)


def run(kind: str, answer: Any, **more: Any) -> dict[str, Any]:
    """What becomes of the answer a handler gives to the request of its kind."""
    return Handlers({kind: lambda request: answer}).run(asked(kind, **more))


# -- the option


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"handlers\['elicitation'\] answers nothing: there are form, url"):
        Handlers({"elicitation": nothing})


@pytest.mark.parametrize("handler", [None, "x", {}])
def test_what_cannot_be_called_is_refused(handler: Any) -> None:
    with pytest.raises(TypeError, match=r"handlers\['form'\] must be callable"):
        Handlers({"form": handler})


def test_the_option_is_a_mapping() -> None:
    with pytest.raises(TypeError, match="must be a mapping, not list"):
        Handlers([("form", nothing)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kinds", "given", "declared"),
    [
        ((), {}, {}),
        (("form",), {}, {"elicitation": {"form": {}}}),
        (("url",), {}, {"elicitation": {"url": {}}}),
        (("form", "url"), {}, {"elicitation": {"form": {}, "url": {}}}),
        (("sampling",), {}, {"sampling": {}}),
        (("roots",), {}, {"roots": {}}),
        # What the caller says stands, and what the handlers need is added.
        ((), {"elicitation": {}, "roots": {}}, {"elicitation": {}, "roots": {}}),
        (("form",), {"elicitation": {}}, {"elicitation": {}}),
        (("url",), {"elicitation": {}}, {"elicitation": {"form": {}, "url": {}}}),
        (("form",), {"elicitation": {"form": {"x": 1}}}, {"elicitation": {"form": {"x": 1}}}),
        (("form",), {"elicitation": {"url": {}}}, {"elicitation": {"form": {}, "url": {}}}),
        (("sampling",), {"sampling": {"tools": {}}}, {"sampling": {"tools": {}}}),
        (("sampling",), {"experimental": {"x": {}}}, {"experimental": {"x": {}}, "sampling": {}}),
    ],
)
def test_what_is_declared(kinds: tuple[str, ...], given: dict[str, Any], declared: dict[str, Any]) -> None:
    before = dict(given)
    made = Handlers(dict.fromkeys(kinds, nothing), given)
    assert made.capabilities == declared
    assert made.declared("modern") == declared
    assert given == before
    mcp_schema.check(made.declared("modern"), "ClientCapabilities")


def test_only_the_legacy_era_is_told_of_changed_roots() -> None:
    assert handlers("roots").declared("legacy") == {"roots": {"listChanged": True}}
    assert handlers("roots").declared("modern") == {"roots": {}}
    assert handlers(roots={"listChanged": False}).declared("legacy") == {"roots": {"listChanged": False}}
    assert handlers(roots={"listChanged": False}).declared("modern") == {"roots": {}}
    assert handlers("form").declared("legacy") == {"elicitation": {"form": {}}}


# -- which requests pass


@pytest.mark.parametrize("kind", REQUESTS)
def test_what_was_declared_passes_and_nothing_else(kind: str) -> None:
    method, params = REQUESTS[kind]
    assert handlers(kind).check(method, params) is None
    assert handlers(kind).can_answer(method, params)
    others = handlers(*(other for other in REQUESTS if other != kind)).check(method, params)
    assert others is not None
    assert others.code == (-32602 if method == "elicitation/create" else -32601)
    assert getattr(handlers().check(method, params), "code", None) == -32601


@pytest.mark.parametrize("method", ["tools/list", "ping", "", "elicitation/" + SECRET * 100])
def test_an_unknown_method_is_told_in_few_words(method: str) -> None:
    error = handlers(*REQUESTS).check(method, None)
    assert error is not None
    assert error.code == -32601
    assert len(error.message) < 120


@pytest.mark.parametrize(
    ("declared", "mode", "passes"),
    [
        ({}, None, True),
        ({}, "form", True),
        ({}, "url", False),
        ({"form": {}}, None, True),
        ({"form": {}}, "url", False),
        ({"url": {}}, "url", True),
        ({"url": {}}, None, False),
        ({"url": {}}, "form", False),
        ({"applyDefaults": True}, "form", True),
        ({"applyDefaults": True}, "url", False),
        ({"applyDefaults": True}, "applyDefaults", False),
        ({"form": {}, "url": {}}, ["form"], False),
    ],
)
def test_a_mode_has_to_be_declared(declared: dict[str, Any], mode: Any, passes: bool) -> None:
    params = {**FORM, **URL, "mode": mode}
    error = handlers(elicitation=declared).check("elicitation/create", params)
    assert (error is None) is passes
    assert error is None or error.code == -32602


def test_declared_without_a_handler_passes_but_cannot_be_answered_except_for_roots() -> None:
    made = handlers(elicitation={"form": {}, "url": {}}, sampling={}, roots={})
    answerable = [kind for kind, (method, params) in REQUESTS.items() if made.can_answer(method, params)]
    assert [made.check(*request) for request in REQUESTS.values()] == [None] * 4
    assert answerable == ["roots"]


@pytest.mark.parametrize(
    ("method", "params", "why"),
    [
        ("roots/list", [], "params are no object"),
        ("elicitation/create", None, "message is no text"),
        ("elicitation/create", {**FORM, "message": 1}, "message is no text"),
        ("elicitation/create", {"message": ""}, "no object schema"),
        ("elicitation/create", {**FORM, "requestedSchema": {"type": "object", "properties": {"a": {}}}}, "'a'"),
        ("sampling/createMessage", {"messages": []}, "maxTokens"),
        ("sampling/createMessage", {**ASK, "tools": []}, "not declared sampling.tools"),
        ("sampling/createMessage", {**ASK, "toolChoice": {}}, "not declared sampling.tools"),
        (
            "sampling/createMessage",
            {
                **ASK,
                "messages": [{"role": "user", "content": {"type": "tool_result", "toolUseId": "1", "content": []}}],
            },
            "results",
        ),
    ],
)
def test_a_malformed_request_is_refused(method: str, params: Any, why: str) -> None:
    error = handlers(*REQUESTS).check(method, params)
    assert error is not None
    assert (error.code, why in error.message) == (-32602, True), error


def test_tools_in_sampling_pass_when_declared() -> None:
    made = handlers("sampling", sampling={"tools": {}})
    assert made.check("sampling/createMessage", {**ASK, "tools": [], "toolChoice": {"mode": "auto"}}) is None


@pytest.mark.parametrize(
    "url", ["http://localhost:8080/x", "HTTPS://example.org", "https://[::1]/", "https://bücher.example"]
)
def test_web_addresses_pass(url: str) -> None:
    assert handlers("url").check("elicitation/create", {**URL, "url": url}) is None


@pytest.mark.parametrize(
    "url",
    [None, 1, "", "example.org", "//example.org", "/x", "javascript:alert(1)", "file:///etc/passwd", "data:text/html,x",
     "ftp://example.org", "https:", "https://", "https:///x", "https://a b/", "https://a/\n", "https://a\\b",
     "https://[::1", "https://a:99999/", "https://a:x/", "https://a\ud800/"],
)  # fmt: skip
def test_other_addresses_do_not(url: Any) -> None:
    error = handlers("url").check("elicitation/create", {**URL, "url": url})
    assert error is not None
    assert error.code == -32602
    assert error.message == "elicitation/create: url is no absolute http(s) URL"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
MEMBERS = ["mode", "message", "requestedSchema", "url", "messages", "maxTokens", "tools", "_meta"]


@given(
    st.sampled_from(["elicitation/create", "sampling/createMessage", "roots/list"]) | st.text(max_size=8),
    JSON | st.dictionaries(st.sampled_from(MEMBERS), JSON | st.sampled_from(["form", "url", "http://["])),
)
def test_whatever_a_server_asks_is_judged_and_raises_nothing(method: str, params: Any) -> None:
    assert isinstance(handlers(*REQUESTS).check(method, params), (McpError, type(None)))


# -- what a handler is given


def test_a_form() -> None:
    request = asked("form", _meta={"x": 1})
    assert request.method == "elicitation/create"
    assert request.params == {**FORM, "_meta": {"x": 1}}
    assert (request.mode, request.message, request.url) == ("form", "Who are you?", None)
    assert request.schema == FORM["requestedSchema"]


def test_a_url() -> None:
    request = asked("url")
    assert (request.mode, request.message, request.schema, request.url) == ("url", "Sign in", None, URL["url"])


@pytest.mark.parametrize("kind", ["sampling", "roots"])
def test_the_others_have_no_mode(kind: str) -> None:
    request = asked(kind, message="x", url="x", requestedSchema={}, mode="form")
    assert (request.mode, request.message, request.schema, request.url) == (None, None, None, None)
    assert request.params["message"] == "x"


def test_who_asks_and_whether_anybody_still_waits() -> None:
    waits = [True]
    info = {"name": "s", "version": "1"}
    request = InputRequest("roots/list", None, "the server", info, lambda: not waits[0])
    assert (request.server, request.server_info, request.params) == ("the server", info, {})
    assert not request.cancelled
    waits.clear()
    waits.append(False)
    assert request.cancelled


def test_its_repr_tells_no_params() -> None:
    request = asked("form", message=SECRET)
    assert repr(request) == "<InputRequest elicitation/create (form) from the server>"
    assert repr(asked("roots", x=SECRET)) == "<InputRequest roots/list from the server>"


def test_the_params_are_a_copy_and_do_not_decide_what_is_checked() -> None:
    def careless(request: InputRequest) -> dict[str, Any]:
        assert request.schema is not None
        request.schema["properties"].clear()
        request.params.clear()
        return {"action": "accept", "content": {"name": 1}}

    with pytest.raises(InvalidAnswer, match="content/name breaks the rule type: string"):
        Handlers({"form": careless}).run(asked("form"))
    assert FORM["requestedSchema"]["properties"] != {}  # type: ignore[index]


# -- what it may give


@pytest.mark.parametrize(
    ("kind", "answer", "result"),
    [
        ("form", {"action": "accept", "content": {"name": "A", "age": 1}}, ...),
        ("form", {"action": "accept", "content": {"name": "A"}},
         {"action": "accept", "content": {"name": "A", "age": 42}}),
        ("form", {"action": "decline"}, ...),
        ("form", {"action": "cancel", "content": {"name": 1}, "x": 1}, {"action": "cancel"}),
        ("form", {"action": "decline", "content": None, "_meta": {"x": 1}}, {"action": "decline", "_meta": {"x": 1}}),
        ("url", {"action": "accept", "content": {}}, {"action": "accept"}),
        ("url", {"action": "decline"}, ...),
        ("sampling", {**ANSWER, "stopReason": "endTurn"}, ...),
        ("sampling", {**ANSWER, "stopReason": None}, ANSWER),
        ("sampling", {**ANSWER, "content": [ANSWER["content"]]}, ...),
        ("roots", {"roots": []}, ...),
        ("roots", {"roots": [{"uri": "file:///a", "name": None}]}, {"roots": [{"uri": "file:///a"}]}),
        ("roots", {"roots": ({"uri": "file:///a", "name": "A", "x": 1},)},
         {"roots": [{"uri": "file:///a", "name": "A"}]}),
    ],
)  # fmt: skip
def test_what_becomes_of_an_answer(kind: str, answer: Any, result: Any) -> None:
    names = {
        "form": "ElicitResult",
        "url": "ElicitResult",
        "sampling": "CreateMessageResult",
        "roots": "ListRootsResult",
    }
    given = run(kind, answer)
    assert given == (answer if result is ... else result)
    mcp_schema.check(given, names[kind])


def test_a_form_without_fields_needs_no_content() -> None:
    empty = {"type": "object", "properties": {}}
    assert run("form", {"action": "accept"}, requestedSchema=empty) == {"action": "accept", "content": {}}


def test_the_answer_of_the_caller_is_not_changed() -> None:
    answer: dict[str, Any] = {"action": "accept", "content": {"name": "A"}}
    run("form", answer)
    assert answer == {"action": "accept", "content": {"name": "A"}}


@pytest.mark.parametrize(
    ("kind", "answer", "why"),
    [
        ("form", None, "the form handler gave NoneType, not a mapping"),
        ("form", "accept", "gave str, not a mapping"),
        ("form", {}, "has no action"),
        ("form", {"action": "ok"}, "has no action"),
        ("form", {"action": ["accept"]}, "has no action"),
        ("form", {"action": "accept"}, "does not fit the form: content lacks 'name'"),
        ("form", {"action": "accept", "content": SECRET}, "has content that is no mapping"),
        ("form", {"action": "accept", "content": {"name": [SECRET]}}, "content/name breaks the rule type"),
        ("form", {"action": "accept", "content": {"name": "A", SECRET: SECRET}}, "does not ask for"),
        ("form", {"action": "accept", "content": {"name": "\ud800"}}, "is no JSON"),
        ("form", {"action": "decline", "_meta": SECRET}, "_meta that is no dict"),
        ("url", {"action": "yes"}, "has no action"),
        ("sampling", {**ANSWER, "model": None}, "has no model"),
        ("sampling", {**ANSWER, "content": SECRET}, "has content of no known type"),
        ("sampling", {**ANSWER, "_meta": {"x": {1, 2}}}, "is no JSON"),
        ("sampling", {**ANSWER, "x": float("nan")}, "is no JSON"),
        ("roots", {}, "has no roots"),
        ("roots", {"roots": {}}, "has no roots"),
        ("roots", {"roots": [SECRET]}, "has no roots"),
        ("roots", {"roots": [{"uri": "file:///a"}, {"uri": f"http://{SECRET}"}]}, "wrong root, number 1: the URI"),
        ("roots", {"roots": [{"name": SECRET}]}, "wrong root, number 0: the URI"),
        ("roots", {"roots": [{"uri": "file:///a", "name": 1}]}, "wrong root, number 0: its name"),
        ("roots", {"roots": [{"uri": "file:///a", "_meta": 1}]}, "wrong root, number 0: its name"),
    ],
)
def test_a_wrong_answer_is_told_and_not_quoted(kind: str, answer: Any, why: str) -> None:
    with pytest.raises(InvalidAnswer) as raised:
        run(kind, answer)
    assert why in str(raised.value)
    assert SECRET not in str(raised.value)


def test_an_answer_too_deep_for_a_message_is_refused() -> None:
    def nested(levels: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for _ in range(levels):
            value = {"x": value}
        return {**ANSWER, "_meta": value}

    assert run("sampling", nested(250))["model"] == "m"
    with pytest.raises(InvalidAnswer, match="nested more than"):
        run("sampling", nested(254))


@pytest.mark.parametrize("error", [McpError(-1, "User rejected"), KeyError("x"), SystemExit(1)], ids=repr)
def test_what_a_handler_raises_gets_out(error: BaseException) -> None:
    def fail(request: InputRequest) -> dict[str, Any]:
        raise error

    with pytest.raises(type(error)) as raised:
        Handlers({"roots": fail}).run(asked("roots"))
    assert raised.value is error


def test_added_roots_are_given_where_there_is_no_handler() -> None:
    roots = Roots()
    made = Handlers({}, {"roots": {}}, roots)
    assert made.run(asked("roots")) == {"roots": []}
    roots.add(Path("/srv"), "Srv")
    assert made.run(asked("roots")) == {"roots": [{"uri": "file:///srv", "name": "Srv"}]}


def test_a_handler_runs_in_the_thread_that_asks() -> None:
    import threading

    seen: list[threading.Thread] = []

    def handler(request: InputRequest) -> dict[str, Any]:
        seen.append(threading.current_thread())
        return {"action": "cancel"}

    Handlers({"form": handler}).run(asked("form"))
    assert seen == [threading.current_thread()]


def test_an_async_handler_is_refused_at_once() -> None:
    async def form(request: InputRequest) -> dict[str, Any]:
        return {"action": "cancel"}

    with pytest.raises(TypeError, match="plain function"):
        Handlers({"form": form})  # type: ignore[dict-item]


def test_an_error_may_be_given_as_well_as_raised() -> None:
    refusal = McpError(-1, "User rejected")
    handlers = Handlers({"sampling": lambda request: refusal})  # type: ignore[dict-item,return-value]
    request = InputRequest("sampling/createMessage", {}, "x", None, lambda: False)
    with pytest.raises(McpError, match="User rejected"):
        handlers.run(request)
