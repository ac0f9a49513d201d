"""Input rounds of the 2026-07-28 revision: what an attempt gets from those before it, and the result that ends it.

Spec: basic/patterns/mrtr. It has servers put up with answers that nobody asked for, and with others missing; a server
that is `strict` holds its clients to what they must do.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from snodo_client.testing.errors import INVALID_PARAMS, NeedInput, RpcError
from snodo_client.testing.state import Sealer

if TYPE_CHECKING:
    from snodo_client.testing.call import Call

METHODS = ("tools/call", "prompts/get", "resources/read")
_REMEMBERED = 1000  # requests that were answered by a round without a state


class Rounds:
    """The input rounds of one server."""

    def __init__(self) -> None:
        self._sealer = Sealer()
        self._stateless: OrderedDict[str, set[tuple[str, ...]]] = OrderedDict()

    def begin(self, call: Call, *, strict: bool) -> None:
        """Give an attempt the answers so far, or refuse it."""
        if call.method not in METHODS:
            return
        state, responses = call.params.get("requestState"), call.params.get("inputResponses", {})
        if not isinstance(responses, dict) or not all(isinstance(answer, dict) for answer in responses.values()):
            raise RpcError(INVALID_PARAMS, "inputResponses must map keys to objects")
        if state is not None:
            try:
                call.answers, call.attempt, asked = self._sealer.open(state, subject(call))
            except (ValueError, AttributeError) as problem:
                raise RpcError(INVALID_PARAMS, f"Invalid requestState: {problem}") from None
            allowed = {tuple(asked)}
        else:
            allowed = self._stateless.get(json.dumps(subject(call), sort_keys=True), {()})
        if strict and tuple(sorted(responses)) not in allowed:
            text = "inputResponses has other keys than inputRequests had, or its requestState is missing"
            raise RpcError(INVALID_PARAMS, text, {"keys": sorted(responses), "allowed": [*map(list, allowed)]})
        call.answers.update(responses)

    def required(self, call: Call, need: NeedInput) -> dict[str, Any]:
        """The result of an attempt that ends with questions."""
        if call.method not in METHODS:
            raise TypeError(f"{call.method} cannot ask for input")
        result: dict[str, Any] = {"resultType": "input_required"}
        if need.requests:
            result["inputRequests"] = need.requests
        asked, bound = sorted(need.requests), subject(call)
        held = [call.answers, call.attempt + 1, asked]
        if need.state is True:
            result["requestState"] = self._sealer.seal(held, bound)
        elif need.state is False:
            if len(self._stateless) >= _REMEMBERED:
                self._stateless.popitem(last=False)
            self._stateless.setdefault(json.dumps(bound, sort_keys=True), {()}).add(tuple(asked))
        else:
            result["requestState"] = self._sealer.choose(need.state, held, bound)
        return result


def subject(call: Call) -> list[Any]:
    """What tells a request, and the retries of it, from all others."""
    own = ("_meta", "requestState", "inputResponses")
    params = {name: value for name, value in call.params.items() if name not in own}
    return [call.method, params, None if call.auth is None else repr(call.auth)]
