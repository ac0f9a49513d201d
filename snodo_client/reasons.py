"""Every fault this library reports by itself, in one table.

`McpError.reason` is a key of `REASONS` exactly when the error was made here; an error sent by the server has `reason is
None`. The error reference of the documentation and its test are made from this table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Literal

    Kind = Literal["json_rpc", "protocol", "execution", "transport", "authorization", "validation"]

# Local codes. Programs should branch on `kind` and `reason`: servers may send the same numbers with a meaning of their
# own.
CLOSED = -32000
TIMEOUT = -32001
REFUSED_METHOD = -32601
REFUSED_ARGUMENTS = -32602
LOCAL_FAILURE = -32603

# Codes of revision 2026-07-28 (schema.ts). Nothing else in -32099..-32020 has a meaning.
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

# Of revision 2025-11-25: the call can be made once its user has been to a URL.
URL_ELICITATION_REQUIRED = -32042


class Reason:
    """One row: the code and kind of the error, the keys its `data` may have, what happened, and what to do about it."""

    __slots__ = ("advice", "code", "data", "kind", "meaning")

    def __init__(self, code: int, kind: Kind, meaning: str, advice: str, data: tuple[str, ...] = ()) -> None:
        self.code = code
        self.kind: Kind = kind
        self.meaning = meaning
        self.advice = advice
        self.data = data


REASONS: dict[str, Reason] = {
    "closed": Reason(
        CLOSED,
        "transport",
        "the connection is closed, or ended before the answer",
        "a call that was sent may have run; if later calls fail too, connect again",
        ("http_status", "content_type", "excerpt"),
    ),
    "exited": Reason(
        CLOSED,
        "transport",
        "the server process could not be started, or ended",
        'fix the command, or what its stderr says, and connect again; restart="on_call" does that by itself',
        ("command", "exit_code", "signal", "stderr"),
    ),
    "timeout": Reason(
        TIMEOUT,
        "transport",
        "the answer did not come in time",
        "raise the limit, or find out why the server is slow",
        ("timeout",),
    ),
    "max_total_timeout": Reason(
        TIMEOUT,
        "transport",
        "progress kept the call alive up to its hard limit",
        "raise max_total_timeout=",
        ("max_total_timeout",),
    ),
    "wait_timeout": Reason(
        TIMEOUT,
        "transport",
        "the call goes on: it has no outcome yet",
        "ask for its result again, or cancel it",
        ("timeout",),
    ),
    "cancelled": Reason(
        CLOSED, "transport", "the call was cancelled on this side", "call again if the answer is still wanted", ()
    ),
    "forked": Reason(
        CLOSED,
        "transport",
        "the client belongs to the process it was made in",
        "connect in the child process, as ConnectSpec.client() does",
        (),
    ),
    "unreachable": Reason(
        CLOSED,
        "transport",
        "no connection to the server could be made",
        "check the address, the network and that it runs",
        ("tried",),
    ),
    "tls": Reason(
        CLOSED,
        "transport",
        "the server's TLS certificate or handshake was refused",
        "check the address, or pass verify= with your CA bundle",
        (),
    ),
    "http_status": Reason(
        CLOSED,
        "transport",
        "the server answered with an HTTP status and no JSON-RPC message",
        "check the URL and what the status says",
        ("http_status", "content_type", "excerpt", "retry_after"),
    ),
    "unauthorized": Reason(
        CLOSED,
        "authorization",
        "the server wants (other) credentials",
        "pass auth= or headers= with a valid credential; with OAuth, login() gets another one",
        ("http_status", "content_type", "excerpt", "retry_after", "challenge", "credential"),
    ),
    "authorization_failed": Reason(
        CLOSED,
        "authorization",
        "the credential for the server could not be got",
        "docs/authorization.md says what to do for each data['step']",
        ("step", "url", "http_status", "error", "error_description", "excerpt"),
    ),
    "sign_in_required": Reason(
        CLOSED,
        "authorization",
        "a person has to sign in, and this program asks nobody",
        "run the command once, as the same user and with the Python of this program",
        ("url", "command", "scope"),
    ),
    "malformed": Reason(
        CLOSED,
        "transport",
        "what the server sent is not a JSON-RPC message",
        "check the URL, where a login page or a proxy may answer; else report it to the author of the server",
        ("http_status", "content_type", "excerpt"),
    ),
    "too_large": Reason(
        CLOSED,
        "transport",
        "what the server sent is over a limit of this client",
        "raise the limit named in the message",
        ("limit",),
    ),
    "unexpected_id": Reason(
        CLOSED,
        "transport",
        "the answer carries the id of no request of ours",
        "report it to the author of the server",
        ("expected", "got"),
    ),
    "unknown_result_type": Reason(
        CLOSED,
        "transport",
        "the result has a resultType this client does not know",
        "use a newer client, or report it",
        ("result_type",),
    ),
    "invalid_result": Reason(
        CLOSED,
        "transport",
        "the result has not the shape the protocol gives it",
        "report it to the author of the server",
        (),
    ),
    "repeated_cursor": Reason(
        CLOSED,
        "transport",
        "a list never ends: the server gave the same cursor twice",
        "page by hand with list_page",
        ("method", "pages"),
    ),
    "max_pages": Reason(
        CLOSED,
        "transport",
        "a list has more pages than allowed",
        "raise max_pages=, or page by hand with list_page",
        ("method", "max_pages"),
    ),
    "unsupported_operation": Reason(
        REFUSED_METHOD,
        "protocol",
        "the negotiated protocol version has no such operation",
        "use what the message names instead",
        ("method", "version"),
    ),
    "invalid_arguments": Reason(
        REFUSED_ARGUMENTS,
        "validation",
        "an argument cannot be sent to this tool",
        "change the argument",
        ("method", "path", "rule"),
    ),
    "incompatible_versions": Reason(
        REFUSED_ARGUMENTS,
        "protocol",
        "client and server have no protocol version in common",
        "check the command or the path of the URL, and the versions each side names",
        ("requested", "supported", "http_status", "content_type", "excerpt", "timeout"),
    ),
    "input_handler": Reason(
        LOCAL_FAILURE,
        "execution",
        "the server asks for input, and the handler gave none it can be sent",
        "mend the handler, or answer by hand: cause is the InputRequired",
        ("method",),
    ),
    "input_rounds": Reason(
        CLOSED,
        "transport",
        "the server asks for input again and again",
        "raise max_input_rounds=, or go on by hand: cause is the last InputRequired",
        ("max_input_rounds",),
    ),
    "invalid_structured_content": Reason(
        CLOSED,
        "validation",
        "the result of a tool does not follow the schema its definition gives",
        "data['result'] is the result; report it to the author of the server, or connect with validate=\"off\"",
        ("tool", "path", "rule", "result"),
    ),
    "not_acknowledged": Reason(
        CLOSED,
        "protocol",
        "the subscription ended before the server acknowledged it",
        "ask with list_* meanwhile, and report it to the author of the server",
        (),
    ),
    "cross_origin_redirect": Reason(
        CLOSED,
        "transport",
        "the server redirects to another origin; credentials do not go there",
        "use the final URL in connect",
        ("http_status", "location"),
    ),
    "invalid_redirect": Reason(
        CLOSED,
        "transport",
        "the redirect cannot be followed without changing the request",
        "use the final URL in connect",
        ("http_status", "location"),
    ),
    "cross_origin_endpoint": Reason(
        CLOSED,
        "transport",
        "the server wants messages sent to another origin; credentials do not go there",
        "connect to the server at that origin, or have its endpoint event mended",
        ("endpoint",),
    ),
    "session_lost": Reason(
        CLOSED,
        "transport",
        "the server does not know its session with this client any more",
        "call again: another session is begun",
        ("http_status",),
    ),
    "transport_failure": Reason(
        CLOSED,
        "transport",
        "the transport failed in a way it has no other name for",
        "do what the message says, or report it to the author of the transport",
        (),
    ),
    "handler_failure": Reason(
        LOCAL_FAILURE,
        "execution",
        "the in-process server raised an exception",
        "see the log of snodo_client.direct",
        (),
    ),
}
