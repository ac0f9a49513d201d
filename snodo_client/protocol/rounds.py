"""Input rounds: a result that asks for something, and the request that brings it (spec: basic/patterns/mrtr).

Pure: who answers, and when, is the engine's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import jsonrpc

if TYPE_CHECKING:
    from typing import Any

    from ..outcome import InputRequired

# What only the request of a later round has.
MEMBERS = ("inputResponses", "requestState")


def can_go_back(asked: InputRequired) -> bool:
    """Whether the ids and the state can be sent back: a server can write half a character, and no message holds one."""
    try:
        jsonrpc.encode([*asked.requests, asked.request_state])
    except ValueError:
        return False
    return True


def without_members(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of the first round."""
    if params.keys().isdisjoint(MEMBERS):
        return params
    return {name: value for name, value in params.items() if name not in MEMBERS}


def next_params(params: dict[str, Any], asked: InputRequired, responses: dict[str, Any]) -> dict[str, Any]:
    """The parameters of the next round: the original ones, the responses to what was asked last, and the state that
    came with it, byte for byte. Nothing is kept of earlier rounds.
    """
    params = dict(without_members(params))
    if responses:
        params["inputResponses"] = responses
    if asked.request_state is not None:
        params["requestState"] = asked.request_state
    return params
