"""Responses into outcomes: what a server answered, judged by the rules of the protocol. Malformed answers become
errors, never exceptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..outcome import InputRequired, McpError, Ok, local_error
from ..reasons import URL_ELICITATION_REQUIRED
from . import jsonrpc, versions

if TYPE_CHECKING:
    from typing import Any

    from ..outcome import Outcome

    Message = dict[str, Any]

# Only these may ask for input (spec: basic/patterns/mrtr).
MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})


def misdirected(message: Message, wire_id: int, server: str, status: int | None = None) -> McpError | None:
    """The error of a response that is not one to `wire_id`, or None.

    A refused HTTP request, and an error about a request the server could not read, may carry no id, null, or a foreign
    one.
    """
    got = message.get("id")
    if type(got) is int and got == wire_id:
        return None
    if "error" in message and (got is None or (status is not None and status >= 400)):
        return None
    if jsonrpc.same_id(got, wire_id) is not None:
        return None
    numeric = isinstance(got, (int, float)) and abs(got) < 2**63
    shown = got if numeric or got is None else f"a {type(got).__name__}"
    return local_error(
        "unexpected_id",
        f"{server} answered request {wire_id} with id {shown}",
        data={"expected": wire_id, "got": shown},
    )


def decode(message: Message, method: str, server: str, status: int | None = None, version: str = "") -> Outcome:
    """The outcome of a response to `method`. `server` is what errors call it; `status` is the HTTP status it came with,
    kept as the cause of a server's error; `version` is that of the request.
    """
    legacy = version in versions.LEGACY
    if message.get("jsonrpc") != "2.0":
        return local_error("malformed", f"{server} answered {method} with no JSON-RPC 2.0 message")
    if "error" in message:
        if "result" in message:
            return local_error("malformed", f"{server} answered {method} with both a result and an error")
        error = _error(message["error"], method, server, status)
        return (legacy and _urls_wanted(error, method)) or error
    result = message.get("result")
    if not isinstance(result, dict):
        return local_error("malformed", f"{server} answered {method} without a result object")
    if legacy:
        return Ok(result)  # a resultType means nothing there
    kind = result.get("resultType", "complete")
    if kind == "complete":
        return Ok(result)
    if kind == "input_required":
        return _input_required(result, method, server)
    shown = kind[:64] if isinstance(kind, str) else type(kind).__name__
    return local_error(
        "unknown_result_type",
        f"{server} answered {method} with a result of unknown type {shown!r}",
        data={"result_type": shown},
    )


def _error(error: object, method: str, server: str, status: int | None) -> McpError:
    if isinstance(error, dict):
        code, text = error.get("code"), error.get("message")
        if type(code) is int and isinstance(text, str):
            refused = status is not None and status >= 400
            return McpError(code, text, data=error.get("data"), cause=("http_status", status) if refused else None)
    return local_error(
        "malformed", f"{server} answered {method} with an error that has no integer code and text message"
    )


def _urls_wanted(error: McpError, method: str) -> InputRequired | None:
    """The error of revision 2025-11-25 that says which URLs a person must visit first, as the input it asks for: the
    call is made again when they have (2025-11-25: client/elicitation).
    """
    wanted = error.data.get("elicitations") if isinstance(error.data, dict) else None
    if error.code != URL_ELICITATION_REQUIRED or method not in MAY_ASK or not isinstance(wanted, list) or not wanted:
        return None
    requests = {}
    for params in wanted:
        if not isinstance(params, dict) or not isinstance(params.get("elicitationId"), str):
            return None
        requests[params["elicitationId"]] = {"method": "elicitation/create", "params": {"mode": "url", **params}}
    return InputRequired({"resultType": "input_required", "inputRequests": requests})


def _input_required(result: dict[str, Any], method: str, server: str) -> Outcome:
    def invalid(why: str) -> McpError:
        return local_error("invalid_result", f"{server} asks for input in answer to {method}, {why}")

    if method not in MAY_ASK:
        return invalid("which cannot ask for any")
    state = result.get("requestState")
    if state is not None and not isinstance(state, str):
        return invalid("with a requestState that is no string")
    requests = result.get("inputRequests")
    if requests is not None:
        if not isinstance(requests, dict):
            return invalid("with inputRequests that are no object")
        for request in requests.values():
            if (
                not isinstance(request, dict)
                or not isinstance(request.get("method"), str)
                or not isinstance(request.get("params", {}), dict)
            ):
                return invalid("with an input request that has no method or malformed params")
    if not requests and state is None:
        return invalid("but asks nothing and gives no requestState")
    return InputRequired(result)
