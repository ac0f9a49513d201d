"""Elicitation, sampling and roots in both eras: the same handlers, the same answers on the wire. The tables are
`section_16.md` and `section_17.md`.
"""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest

from snodo_client import Client, InputRequest, McpError, Ok
from snodo_client.testing import inputs
from support import mcp_schema
from support.asking import received
from support.questions import (
    CELLS,
    FILLED,
    FORM,
    LEGACY,
    MODERN,
    NAMED,
    PLACES,
    ROOTS,
    SAMPLING,
    URL,
    WORD,
    answering,
    asks,
    noting,
    questioning,
    turns,
)
from support.scripted_transport import ScriptedTransport, result

each_cell = pytest.mark.parametrize(("kind", "version"), CELLS)
META = "io.modelcontextprotocol/"
ACCEPT: dict[str, Any] = {"action": "accept"}
DECLINE: dict[str, Any] = {"action": "decline"}
CANCEL: dict[str, Any] = {"action": "cancel"}
RIGHT: dict[str, Any] = {"form": NAMED, "url": ACCEPT, "sampling": WORD, "roots": PLACES}
ASKED = {"form": FORM, "url": URL, "sampling": SAMPLING, "roots": ROOTS}
DEFINITIONS = {
    "form": "ElicitResult",
    "url": "ElicitResult",
    "sampling": "CreateMessageResult",
    "roots": "ListRootsResult",
}


def answers_in(messages: list[dict[str, Any]], version: str) -> list[Any]:
    """What the client has answered, in the order it was sent."""
    if version == MODERN:
        brought = [message.get("params", {}).get("inputResponses", {}) for message in messages]
        return [answer for responses in brought for answer in responses.values()]
    return [message["result"] for message in messages if "method" not in message]


def answered(requests: Any, **options: Any) -> Any:
    """The responses a modern client sends to these requests, or the error it ends with."""
    transport = ScriptedTransport(turns(lambda call: [asks(call, requests)], lambda call: [result(call)]))
    with Client.connect(transport, protocol=MODERN, **options) as client:
        outcome = client.call_tool("t")
    if isinstance(outcome, McpError):
        return outcome
    return transport.requests[1]["params"]["inputResponses"]


# -- what all of them have


@each_cell
def test_the_same_handlers_are_asked_the_same_in_both_eras(kind: str, version: str) -> None:
    seen: list[InputRequest] = []
    with questioning(kind, version) as connect:
        client = connect(handlers={own: noting(seen, answer) for own, answer in RIGHT.items()})
        outcome = client.call_tool("everything")
        assert isinstance(outcome, Ok), outcome
        assert outcome.value["content"][0]["text"] == "Ada accept word file:///srv"
        answers = answers_in(received(client), version)
        name = client._session.name
    for request, asked in zip(seen, ASKED.values(), strict=True):
        assert request.method == asked["method"]
        assert {key: request.params.get(key) for key in asked["params"]} == asked["params"]
        assert request.server == name
        assert request.server_info == {"name": "snodo-demo", "version": "1.0"}
    assert [(each.mode, each.message, each.schema, each.url) for each in seen] == [
        ("form", "Your name?", FORM["params"]["requestedSchema"], None),
        ("url", "Sign in", None, "https://example.test/sign?in=1"),
        (None, None, None, None),
        (None, None, None, None),
    ]
    assert answers == [FILLED, ACCEPT, WORD, PLACES]
    for answer, own in zip(answers, ASKED, strict=True):
        mcp_schema.check(answer, DEFINITIONS[own], version)


@each_cell
def test_el01_sa01_ro01_what_may_be_asked_is_declared(kind: str, version: str) -> None:
    with questioning(kind, version) as connect:
        client = connect(handlers=answering())
        client.call_tool("echo", {"message": "m"})
        messages = [message for message in received(client) if message.get("method") != "server/discover"]
    declared: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
    if version == MODERN:
        for message in messages:
            assert message["params"]["_meta"][META + "clientCapabilities"] == declared
    else:
        first, *others = messages
        assert first["params"]["capabilities"] == {**declared, "roots": {"listChanged": True}}
        assert META not in repr(others)


# -- 16 elicitation


@each_cell
@pytest.mark.parametrize(
    ("form", "url", "wanted"),
    [
        (ACCEPT, {**ACCEPT, "content": {}}, [{**ACCEPT, "content": {"age": 7}}, ACCEPT]),
        ({**ACCEPT, "content": {"age": 8}}, DECLINE, [{**ACCEPT, "content": {"age": 8}}, DECLINE]),
        ({**DECLINE, "content": {"name": "x"}}, {**CANCEL, "content": {"a": 1}}, [DECLINE, CANCEL]),
        ({**CANCEL, "content": None}, {**ACCEPT, "content": None}, [CANCEL, ACCEPT]),
    ],
)
def test_el05_el06_content_goes_with_an_accepted_form_only_and_has_its_defaults(
    kind: str, version: str, form: Any, url: Any, wanted: Any
) -> None:
    with questioning(kind, version) as connect:
        client = connect(handlers=answering(form=lambda request: form, url=lambda request: url))
        assert isinstance(client.call_tool("both"), Ok)
        assert answers_in(received(client), version) == wanted


def test_el02_a_request_without_a_mode_is_a_form() -> None:
    params = {name: value for name, value in FORM["params"].items() if name != "mode"}
    seen: list[InputRequest] = []
    form = {"a": {**FORM, "params": params}}
    assert answered(form, handlers={"form": noting(seen, NAMED)}) == {"a": FILLED}
    assert seen[0].mode == "form"
    error = answered(form, handlers={"url": noting(seen, NAMED)})
    assert error.reason == "invalid_result"
    assert len(seen) == 1


@each_cell
def test_el09_a_page_is_neither_fetched_nor_looked_up(kind: str, version: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, questioning(kind, version) as connect:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/page?q=%F0%9F%94%91#end"
        seen: list[InputRequest] = []
        client = connect(handlers=answering(url=noting(seen, {"action": "accept"})))
        assert isinstance(client.call_tool("open", {"address": address}), Ok)
        assert [request.url for request in seen] == [address]  # whole, for a person to read
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "//example.test", "https://a b/", "x"])
def test_el11_other_addresses_reach_no_handler(url: str) -> None:
    seen: list[InputRequest] = []
    error = answered({"u": inputs.url("m", url)}, handlers=answering(url=noting(seen, {"action": "accept"})))
    assert (error.reason, seen) == ("invalid_result", [])


def test_el12_consent_is_all_that_accepting_says() -> None:
    """A server that finds nothing done asks again; the person is asked again, and the rounds have an end."""
    seen: list[InputRequest] = []
    transport = ScriptedTransport(lambda call: [asks(call, {"u": URL})])
    handlers = answering(url=noting(seen, {"action": "accept"}))
    with Client.connect(transport, protocol=MODERN, handlers=handlers, max_input_rounds=3) as client:
        outcome = client.call_tool("t")
        assert isinstance(outcome, McpError)
        assert (outcome.reason, len(seen)) == ("input_rounds", 3)
        declining = client.call_tool("t", input_responses={"u": {"action": "decline"}}, answer_input=False)
        assert not isinstance(declining, McpError)


# -- 17 sampling and roots


def test_sa02_tools_that_were_not_declared_may_not_be_used() -> None:
    tools = inputs.sampling("m", tools=[{"name": "t", "inputSchema": {"type": "object"}}])
    seen: list[InputRequest] = []
    handlers = answering(sampling=noting(seen, WORD))
    for wanted in (tools, inputs.sampling("m", toolChoice={"mode": "auto"})):
        assert answered({"s": wanted}, handlers=handlers).reason == "invalid_result"
    assert seen == []
    able: dict[str, Any] = {"sampling": {"tools": {}}}
    assert answered({"s": tools}, handlers=handlers, client_capabilities=able) == {"s": WORD}
    assert seen[0].params["tools"] == tools["params"]["tools"]


def test_sa03_sa04_sa10_a_handler_gets_the_parameters_of_the_one_request() -> None:
    preferences = {"hints": [{"name": "b"}, {"name": "a"}], "costPriority": 0.5}
    more: dict[str, Any] = {
        "systemPrompt": "p",
        "temperature": 0.1,
        "stopSequences": ["."],
        "modelPreferences": preferences,
    }
    seen: list[InputRequest] = []
    steps = [inputs.sampling(text, max_tokens=number, **more) for number, text in enumerate(("one", "two"), 1)]
    transport = ScriptedTransport(
        turns(*[lambda call, step=step: [asks(call, {"s": step})] for step in steps], lambda call: [result(call)])
    )
    with Client.connect(transport, protocol=MODERN, handlers=answering(sampling=noting(seen, WORD))) as client:
        assert isinstance(client.call_tool("t"), Ok)
    assert [request.params for request in seen] == [step["params"] for step in steps]


@pytest.mark.parametrize(
    "given",
    [
        {**WORD, "role": "system"},
        {**WORD, "model": None},
        {**WORD, "content": {"type": "text"}},
        {**WORD, "content": [{"type": "video"}]},
        {**WORD, "stopReason": 1},
        {**WORD, "resultType": "complete"},
        {**WORD, "id": 1},
    ],
)
def test_sa05_words_that_are_none_are_not_sent(given: Any) -> None:
    error = answered({"s": SAMPLING}, handlers=answering(sampling=lambda request: given))
    assert error.reason == "input_handler"
    assert error.cause.requests == {"s": SAMPLING}


@each_cell
def test_sa08_a_refusal_is_no_answer_of_2026_and_an_error_before(kind: str, version: str) -> None:
    def refuse(request: InputRequest) -> Any:
        raise McpError(-1, "User rejected sampling request")

    with questioning(kind, version) as connect:
        client = connect(handlers=answering(sampling=refuse))
        outcome = client.call_tool("everything")
        messages = received(client)
    if version == MODERN:
        assert isinstance(outcome, McpError)
        assert outcome.reason == "input_handler"
        assert answers_in(messages, version) == [FILLED]
    else:
        assert isinstance(outcome, Ok)
        assert outcome.is_error
        (error,) = [message["error"] for message in messages if "error" in message]
        assert error == {"code": -1, "message": "User rejected sampling request"}


@each_cell
def test_sa09_prompts_and_answers_stand_in_no_log(kind: str, version: str, caplog: pytest.LogCaptureFixture) -> None:
    wrong = {**WORD, "role": "private-role", "content": {"type": "text", "text": "private-words"}}
    with caplog.at_level(logging.DEBUG, "snodo_client"), questioning(kind, version) as connect:
        told: list[Any] = []
        client = connect(handlers=answering(sampling=noting(told, wrong)), on_event=lambda *event: told.append(event))
        outcome = client.call_tool("private", {"prompt": "private-prompt"})
        told += [outcome, getattr(outcome, "message", ""), *(record.getMessage() for record in caplog.records)]
        client.close()
    assert "private-words" not in repr(told)
    assert "private-role" not in repr(told)
    assert "private-prompt" not in repr(told)


@pytest.mark.parametrize("uri", ["http://example.test/", "file:///srv/../etc", "/srv", "file:relative"])
def test_ro01_only_files_are_roots(uri: str) -> None:
    error = answered({"r": ROOTS}, handlers=answering(roots=lambda request: {"roots": [{"uri": uri}]}))
    assert error.reason == "input_handler"


@each_cell
def test_ro01_ro02_what_was_added_is_told_and_nothing_else(kind: str, version: str) -> None:
    with questioning(kind, version) as connect:
        client = connect(client_capabilities=["roots"])
        client.add_root("file:///srv/a", "A")
        client.add_root("file:///srv/b")
        assert isinstance(client.call_tool("where"), Ok)
        client.remove_root("file:///srv/a")
        assert isinstance(client.call_tool("where"), Ok)
        client.clear_roots()
        assert isinstance(client.call_tool("where"), Ok)
        answers = answers_in(received(client), version)
    assert answers == [
        {"roots": [{"uri": "file:///srv/a", "name": "A"}, {"uri": "file:///srv/b"}]},
        {"roots": [{"uri": "file:///srv/b"}]},
        {"roots": []},
    ]
    for answer in answers:
        mcp_schema.check(answer, "ListRootsResult", version)


def test_el01_what_a_handler_needs_is_added_to_what_the_caller_declares() -> None:
    with questioning("stdio", LEGACY) as connect:
        client = connect(handlers=answering(), client_capabilities={"elicitation": {"form": {}}, "roots": {}})
        first = received(client)[1]
    assert first["params"]["capabilities"] == {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {"listChanged": True},
    }
