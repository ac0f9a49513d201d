"""Who answers what a server asks in the result of a call: the caller's handlers, in the thread of the call.

All entries of a round are looked at before any handler runs, so that none runs for nothing. What cannot be answered
goes to the caller as it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import InputRequired, McpError, local_error
from ..protocol import rounds
from .handlers import InputRequest, InvalidAnswer

if TYPE_CHECKING:
    from typing import Any

    from ..transports.base import Link
    from .call import Call
    from .handlers import Handlers

    Object = dict[str, Any]

PAUSE_SECONDS = 0.25  # before a round that asks nothing: the server only wants to be asked again


class Rounds:
    """At most `limit` rounds are answered in one call."""

    def __init__(self, handlers: Handlers, limit: int) -> None:
        self.limit = limit
        self._handlers = handlers

    def wanted(self, answer_input: bool | None) -> bool:
        """Whether a call is to answer by itself: by default when there is anything to answer with."""
        return self._handlers.ready if answer_input is None else answer_input

    def responses(self, call: Call, link: Link, asked: InputRequired) -> Object | InputRequired | McpError:
        """The responses to one round, by id: those of the handlers. What was asked when not all of it has a handler.

        What a handler raises gets out of here. Every error has what was asked as its cause.
        """
        requests = asked.requests
        why = self._problem(link, asked)
        if why is not None:
            text = f"{link.name} asks for input in answer to {call.request.method}, {why}"
            return local_error("invalid_result", text, cause=asked)
        if not all(self._handlers.has_answer(entry["method"], entry.get("params")) for entry in requests.values()):
            return asked
        responses = {}
        for key in sorted(requests):
            response = _over(call, asked) or self._response(call, link, requests[key], asked)
            if isinstance(response, McpError):
                return response
            responses[key] = response
        if link.legacy and any(response.get("action") != "accept" for response in responses.values()):
            method = call.request.method
            text = f"{link.name} waits for a URL to be visited before {method}, and the handler did not accept"
            return local_error("input_handler", text, data={"method": "elicitation/create"}, cause=asked)
        return _over(call, asked) or responses

    def exhausted(self, call: Call, link: Link, asked: InputRequired) -> McpError:
        text = f"{link.name} asked for input more than {self.limit} times in answer to {call.request.method}"
        return local_error("input_rounds", text, data={"max_input_rounds": self.limit}, cause=asked)

    def _problem(self, link: Link, asked: InputRequired) -> str | None:
        """Why this may not be asked, or cannot be answered."""
        for key in sorted(asked.requests):
            entry = asked.requests[key]
            wrong = self._handlers.check(entry["method"], entry.get("params"), link.version)
            if wrong is not None:
                return f"with a request that may not be made: {wrong.message}"
        if not link.legacy and not rounds.can_go_back(asked):
            return "with an id or a requestState that cannot be sent back: it has a lone surrogate (half a character)"
        return None

    def _response(self, call: Call, link: Link, entry: Object, asked: InputRequired) -> Object | McpError:
        method = entry["method"]
        info = link.agreement.server_info if link.agreement is not None else None
        request = InputRequest(
            method, entry.get("params"), link.name, info, lambda: call.outcome is not None or call.deadline.over
        )
        try:
            return self._handlers.run(request, link.version)
        except InvalidAnswer as error:
            why = str(error)
        except McpError as error:
            if error.reason is not None:
                raise  # a fault the handler met, not its answer
            why = f"the handler refused: {error.message}"
        text = f"{link.name} asked for {method} in answer to {call.request.method}, but {why}"
        return local_error("input_handler", text, data={"method": method}, cause=asked)


def _over(call: Call, asked: InputRequired) -> McpError | None:
    """Why nobody waits for the call any more: its time was over before a handler ran or when it had, or somebody
    settled it.
    """
    try:
        call.check()
    except McpError as error:
        error.cause = asked
        return error
    return None
