"""Sampling: the shapes of what is asked of a model and of what it gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.schema import sampling
from support import mcp_schema

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
TEXT = {"type": "text", "text": "hello"}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
USE = {"type": "tool_use", "id": "u1", "name": "add", "input": {}}
RESULT = {"type": "tool_result", "toolUseId": "u1", "content": []}


def message(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def request(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"maxTokens": 10, "messages": list(messages), **more}


@pytest.mark.parametrize(
    "params",
    [
        request(),
        request(message("user", TEXT)),
        request(message("user", [TEXT, IMAGE]), message("assistant", {**IMAGE, "type": "audio"})),
        request(message("assistant", [TEXT, USE]), message("user", [RESULT]), message("assistant", TEXT)),
        request(
            message("assistant", [USE, {**USE, "id": "u2"}]),
            message("user", [{**RESULT, "toolUseId": "u2"}, RESULT]),
        ),
        request(
            systemPrompt="be brief",
            temperature=0,
            stopSequences=["."],
            modelPreferences={},
            metadata={},
            includeContext="none",
            tools=[],
            toolChoice={"mode": "auto"},
        ),
    ],
)
def test_what_may_be_asked(params: dict[str, Any]) -> None:
    mcp_schema.check(params, "CreateMessageRequestParams")
    assert sampling.problem_of_request(params) is None


def test_null_means_left_out() -> None:
    assert sampling.problem_of_request(request(message("user", TEXT), systemPrompt=None, tools=None)) is None


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"messages": []}, "maxTokens"),
        (request(maxTokens=True), "maxTokens"),
        (request(maxTokens="10"), "maxTokens"),
        ({"maxTokens": 1}, "messages are no list"),
        (request(systemPrompt=1), "systemPrompt"),
        (request(temperature="hot"), "temperature"),
        (request(stopSequences="."), "stopSequences"),
        (request(tools={}), "tools"),
        (request(TEXT), "messages/0 has no role"),
        (request("hello"), "messages/0 has no role"),
        (request(message("system", TEXT)), "messages/0 has no role"),
        (request(message("user", TEXT), message("user", "hello")), "messages/1 has content of no known type"),
        (request(message("user", [TEXT, {"type": "video"}])), "messages/0 has content of no known type"),
        (request(message("user", {"type": "text"})), "messages/0 has text content without text"),
        (request(message("user", {**IMAGE, "data": 1})), "messages/0 has image content without data"),
        # Every use of a tool is answered by the next message, of the user, which holds only that.
        (request(message("assistant", USE)), "tools used last"),
        (request(message("assistant", USE), message("user", TEXT)), "messages/1 has not the results"),
        (request(message("assistant", USE), message("user", [RESULT, TEXT])), "messages/1 mixes"),
        (request(message("assistant", USE), message("assistant", RESULT)), "messages/1 mixes"),
        (
            request(message("assistant", [USE, {**USE, "id": "u2"}]), message("user", RESULT)),
            "messages/1 has not the results",
        ),
        (request(message("assistant", USE), message("user", [RESULT, RESULT])), "messages/1 has not the results"),
        (request(message("user", RESULT)), "messages/0 has not the results"),
        (request(message("user", USE), message("user", RESULT)), "messages/0 uses tools"),
    ],
)
def test_what_may_not_be_asked(params: dict[str, Any], why: str) -> None:
    assert why in str(sampling.problem_of_request(params))


@given(st.dictionaries(st.sampled_from(["messages", "maxTokens", "tools", "metadata"]), JSON))
def test_whatever_a_server_sends_is_judged_and_raises_nothing(params: dict[str, Any]) -> None:
    assert isinstance(sampling.problem_of_request(params), (str, type(None)))


BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result"])},
    optional={"text": JSON, "id": JSON, "name": JSON, "input": JSON, "toolUseId": JSON, "content": JSON},
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": BLOCKS | st.lists(BLOCKS, max_size=3)}
)


@given(st.lists(MESSAGES, max_size=3))
def test_whatever_the_messages_are_they_are_judged(messages: list[dict[str, Any]]) -> None:
    assert isinstance(sampling.problem_of_request(request(*messages)), (str, type(None)))


@pytest.mark.parametrize(
    "result",
    [
        {"role": "assistant", "content": TEXT, "model": "m"},
        {"role": "user", "content": [TEXT, USE], "model": "m", "stopReason": "toolUse", "_meta": {}},
    ],
)
def test_what_may_be_answered(result: dict[str, Any]) -> None:
    mcp_schema.check(result, "CreateMessageResult")
    assert sampling.problem(result) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": 1}, "no model"),
        ({"role": "system"}, "no role"),
        ({"role": ["user"]}, "no role"),
        ({"content": "hello"}, "no known type"),
        ({"content": [{"type": "text", "text": 1}]}, "text content without text"),
        ({"stopReason": 1}, "stopReason"),
        ({"id": 1}, "the message around it"),
        ({"resultType": "complete"}, "the message around it"),
    ],
)
def test_what_may_not_be_answered(change: dict[str, Any], why: str) -> None:
    assert why in str(sampling.problem({"role": "assistant", "content": TEXT, "model": "m", **change}))
