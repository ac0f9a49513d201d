"""Questions to the client: the same function for both eras, and a strict reading of the answers."""

from __future__ import annotations

from typing import Any

import pytest

from snodo_client.testing import Call, NeedInput, Server, inputs
from support.legacy_peer import LegacyPeer
from support.mcp_requests import Caller, request, tool_call
from support.mcp_schema import check

NAME = inputs.form("Your name?", {"name": {"type": "string"}})
PAGE = inputs.url("Sign in", "https://kit.test/sign-in")
WORDS = inputs.sampling("Say a word", max_tokens=5, systemPrompt="Be brief.")
ROOTS = inputs.roots()
ANSWERS: dict[str, Any] = {
    "name": {"action": "accept", "content": {"name": "Ada"}},
    "page": {"action": "accept"},
    "words": {"role": "assistant", "content": {"type": "text", "text": "word"}, "model": "m"},
    "roots": {"roots": [{"uri": "file:///srv"}]},
}
ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


@pytest.fixture
def server() -> Server:
    server = Server(strict=True)

    @server.tool
    def everything(call: Call) -> str:
        name = call.ask("name", NAME)["content"]["name"]
        both = call.ask_all({"page": PAGE, "words": WORDS})
        roots = call.ask("roots", ROOTS)["roots"]
        return f"{name} {both['page']['action']} {both['words']['content']['text']} {roots[0]['uri']}"

    @server.tool
    def twice(call: Call) -> str:
        call.ask("first", NAME)
        call.ask("second", NAME)
        return "done"

    @server.tool
    def plain() -> str:
        return "plain"

    @server.tool
    def forgetful(call: Call) -> str:
        return str(call.ask("name", NAME, state=False)["action"])

    @server.tool
    def chosen(call: Call) -> str:
        return str(call.ask("name", NAME, state='éß \u2028\\"\n')["action"])

    @server.tool
    def endless(call: Call) -> str:
        return str(call.ask(f"again-{call.attempt}", NAME))

    @server.tool
    def sign_in(call: Call) -> str:
        return str(call.visit("page", "Sign in", "https://kit.test/sign-in")["action"])

    return server


@pytest.fixture
def caller() -> Caller:
    return Caller()


def call(name: str, **params: Any) -> dict[str, Any]:
    return request("tools/call", {"name": name, "arguments": {}, **params}, capabilities=ABLE)


def answered(result: dict[str, Any]) -> dict[str, Any]:
    """What a retry adds to the params of the first attempt."""
    keys = result.get("inputRequests", {})
    state = {"requestState": result["requestState"]} if "requestState" in result else {}
    return {"inputResponses": {key: ANSWERS.get(key, ANSWERS["name"]) for key in keys}, **state}


@pytest.mark.parametrize(
    ("asked", "definition"),
    [(NAME, "ElicitRequest"), (PAGE, "ElicitRequest"), (WORDS, "CreateMessageRequest"), (ROOTS, "ListRootsRequest")],
)
def test_what_inputs_makes_is_valid(asked: dict[str, Any], definition: str) -> None:
    check(asked, definition)


def test_fields_are_required_unless_others_are_named() -> None:
    fields = {"a": {"type": "string"}, "b": {"type": "string"}}
    schemas = [inputs.form("m", fields, **required)["params"]["requestedSchema"] for required in ({}, {"required": ()})]
    assert [schema["required"] for schema in schemas] == [["a", "b"], []]


def test_one_function_asks_a_modern_client_in_rounds(server: Server, caller: Caller) -> None:
    rounds = []
    result = caller.result(server, call("everything"))
    while result["resultType"] == "input_required":
        rounds.append(sorted(result["inputRequests"]))
        result = caller.result(server, call("everything", **answered(result)))
    assert rounds == [["name"], ["page", "words"], ["roots"]]
    assert result["content"][0]["text"] == "Ada accept word file:///srv"


def test_the_same_function_asks_a_legacy_client_while_it_waits(server: Server) -> None:
    peer = LegacyPeer(
        server,
        capabilities=ABLE,
        elicitation_create=lambda params: ANSWERS["page" if params["mode"] == "url" else "name"],
        sampling_createMessage=lambda params: ANSWERS["words"],
        roots_list=lambda params: ANSWERS["roots"],
    )
    result = peer.result("tools/call", {"name": "everything"})
    assert result["content"][0]["text"] == "Ada accept word file:///srv"
    methods = ["elicitation/create", "elicitation/create", "sampling/createMessage", "roots/list"]
    assert [asked["method"] for asked in peer.asked] == methods


WRONG: dict[str, Any] = {
    "a key too many": lambda first: {**first, "inputResponses": {**first["inputResponses"], "x": ANSWERS["name"]}},
    "none of the keys": lambda first: {**first, "inputResponses": {}},
    "another key": lambda first: {**first, "inputResponses": {"second": ANSWERS["name"]}},
    "no answers": lambda first: {"requestState": first["requestState"]},
    "no state": lambda first: {"inputResponses": first["inputResponses"]},
    "a changed state": lambda first: {**first, "requestState": first["requestState"].swapcase()},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_strict_server_refuses_what_was_not_asked_for(server: Server, caller: Caller, wrong: str) -> None:
    first = answered(caller.result(server, call("twice")))
    assert caller.error(server, call("twice", **WRONG[wrong](first)))["code"] == -32602
    assert caller.result(server, call("twice", **first))["inputRequests"].keys() == {"second"}


def test_a_strict_server_refuses_the_answers_of_an_earlier_round_again(server: Server, caller: Caller) -> None:
    first = answered(caller.result(server, call("twice")))
    second = answered(caller.result(server, call("twice", **first)))
    both = {**second, "inputResponses": {**first["inputResponses"], **second["inputResponses"]}}
    error = caller.error(server, call("twice", **both))
    assert error["data"] == {"keys": ["first", "second"], "allowed": [["second"]]}
    assert caller.result(server, call("twice", **second))["content"][0]["text"] == "done"


def test_answers_that_stray_into_another_request_are_refused(server: Server, caller: Caller) -> None:
    first = answered(caller.result(server, call("twice")))
    for stray in (first, {"inputResponses": first["inputResponses"]}):
        assert caller.error(server, call("plain", **stray))["code"] == -32602
    assert caller.result(server, call("plain", inputResponses={}))["content"][0]["text"] == "plain"


@pytest.mark.parametrize("wrong", ["a key too many", "none of the keys", "no answers"])
def test_another_server_puts_up_with_it(server: Server, caller: Caller, wrong: str) -> None:
    server.strict = False
    first = answered(caller.result(server, call("twice")))
    result = caller.result(server, call("twice", **WRONG[wrong](first)))
    assert result["inputRequests"].keys() == {
        "second" if "first" in WRONG[wrong](first).get("inputResponses", {}) else "first"
    }


def test_a_round_without_a_state(server: Server, caller: Caller) -> None:
    assert caller.error(server, call("forgetful", inputResponses={"name": ANSWERS["name"]}))["code"] == -32602
    asked = caller.result(server, call("forgetful"))
    assert "requestState" not in asked
    assert caller.error(server, call("forgetful", inputResponses={"other": ANSWERS["name"]}))["code"] == -32602
    assert caller.error(server, call("forgetful", **answered(asked), requestState="mine"))["code"] == -32602
    assert caller.result(server, call("forgetful", **answered(asked)))["content"][0]["text"] == "accept"


def test_a_state_of_ones_own_choice_comes_back_as_it_was(server: Server, caller: Caller) -> None:
    asked = caller.result(server, call("chosen"))
    assert asked["requestState"] == 'éß \u2028\\"\n'
    retry = answered(asked)
    assert caller.error(server, call("chosen", **{**retry, "requestState": 'éß \u2028\\"'}))["code"] == -32602
    assert caller.error(server, call("twice", **retry))["code"] == -32602
    assert caller.result(server, call("chosen", **retry))["content"][0]["text"] == "accept"


def test_rounds_without_end(server: Server, caller: Caller) -> None:
    result = caller.result(server, call("endless"))
    for number in range(1, 30):
        assert list(result["inputRequests"]) == [f"again-{number}"]
        result = caller.result(server, call("endless", **answered(result)))


def test_a_round_must_have_something() -> None:
    with pytest.raises(ValueError, match="a state"):
        NeedInput({}, state=False)


def test_a_page_to_visit_is_an_input_round(server: Server, caller: Caller) -> None:
    asked = caller.result(server, call("sign_in"))
    assert asked["inputRequests"] == {"page": PAGE}
    retry = {**answered(asked), "inputResponses": {"page": {"action": "decline"}}}
    assert caller.result(server, call("sign_in", **retry))["content"][0]["text"] == "decline"


def test_a_page_to_visit_refuses_a_legacy_client_once(server: Server) -> None:
    peer = LegacyPeer(server, capabilities=ABLE)
    error = peer.error("tools/call", {"name": "sign_in"})
    (page,) = error["data"]["elicitations"]
    assert (error["code"], page["mode"], page["url"]) == (-32042, "url", "https://kit.test/sign-in")
    assert [page["elicitationId"]] == list(server.visits.values())
    assert peer.result("tools/call", {"name": "sign_in"})["content"][0]["text"] == "accept"
    other = peer.error("tools/call", {"name": "sign_in", "arguments": {}})
    assert other["data"]["elicitations"][0]["elicitationId"] != page["elicitationId"]
    assert peer.asked == []


@pytest.mark.parametrize(("version", "able"), [("2025-11-25", {"elicitation": {}}), ("2025-06-18", ABLE)])
def test_who_cannot_be_sent_to_a_page(server: Server, version: str, able: dict[str, Any]) -> None:
    assert LegacyPeer(server, version, able).error("tools/call", {"name": "sign_in"})["code"] == -32602


def test_a_client_that_did_not_declare_it_is_not_asked(server: Server, caller: Caller) -> None:
    assert caller.error(server, tool_call("sign_in"))["code"] == -32021
