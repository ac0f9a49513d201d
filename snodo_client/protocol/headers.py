"""The HTTP headers that mirror a request, how their values are written, and which headers a user may add.

Values of any text are carried by an encoding of the protocol (spec: basic/transports/streamable-http, "Value
encoding"); what reaches an HTTP library from here is printable ASCII or checked Latin-1, so nothing can smuggle in
a line end. Which tool arguments become headers is decided in `tool_headers`. A rejected value is never quoted:
headers carry credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

# The parameter that names what a method acts on, mirrored as Mcp-Name.
_NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}

# What describes the connection, the body or the negotiated content is the transport's to say.
_OWNED = frozenset({
    "accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
    "keep-alive", "last-event-id", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_FORBIDDEN_IN_VALUE = re.compile(r"[\x00-\x1f\x7f]")


def is_token(text: str) -> bool:
    """Whether *text* can be the name of a header: one or more `tchar` of RFC 9110."""
    return _TOKEN.fullmatch(text) is not None


def encode_value(text: str) -> str:
    """`text` as a header value: itself when it is printable ASCII without spaces at its ends, else in base64.

    A text that looks encoded already is encoded once more, so that decoding gives back exactly *text*. Raises
    `ValueError` for lone surrogates, which no encoding can carry.
    """
    plain = text.isascii() and text.isprintable() and not text.startswith(" ") and not text.endswith(" ")
    if plain and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    from binascii import b2a_base64

    try:  # by way of UTF-16, where two surrogates in a row are one character, as they are in JSON
        data = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le").encode("utf-8")
    except UnicodeDecodeError:
        data = None
    if data is None:  # raised out here, since the decoder's exception carries the text
        raise ValueError("a header value has a lone surrogate (half a character)")
    return f"=?base64?{b2a_base64(data, newline=False).decode('ascii')}?="


def standard_headers(method: str, params: Mapping[str, Any], version: str) -> dict[str, str]:
    """The headers every request carries over HTTP: its protocol version, its method, and for the methods that have
    one the name of what they act on. A name that is not a string is left out: the body is the server's to refuse.

    Raises `ValueError` for lone surrogates.
    """
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": encode_value(method)}
    named_by = _NAMED_BY.get(method)
    name = params.get(named_by) if named_by is not None else None
    if isinstance(name, str):
        headers["Mcp-Name"] = encode_value(name)
    return headers


def check_user_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """A copy of the headers a user wants on every HTTP request, or on a WebSocket handshake, once they are known to be
    safe to send.

    Raises `TypeError` unless names and values are strings. Raises `ValueError` for a name that is not a token,
    is given twice in different case, or belongs to the transport or the protocol (`Host`, `Content-Type`,
    `Mcp-*` and so on), and for a value that is not Latin-1, has control characters (line ends among them), or
    white space at its ends.
    """
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must be a mapping of names to values, not {type(headers).__name__}")
    checked: dict[str, str] = {}
    seen: set[str] = set()
    for name, value in headers.items():
        if not isinstance(name, str):
            raise TypeError(f"a header name must be str, not {type(name).__name__}")
        if not is_token(name):
            shown = re.split(r"[^\w-]", name, maxsplit=1, flags=re.ASCII)[0]  # a whole "Name: value" line, perhaps
            raise ValueError(f"not a header name: the one that starts with {shown!r}")
        if not isinstance(value, str):
            raise TypeError(f"the value of header {name} must be str, not {type(value).__name__}")
        folded = name.lower()
        if folded in seen:
            raise ValueError(f"header {name} is given twice")
        if folded in _OWNED or folded.startswith(("mcp-", "sec-websocket-")):
            raise ValueError(f"header {name} is set by this library")
        if any(character > "\xff" for character in value):
            raise ValueError(f"the value of header {name} has characters beyond Latin-1")
        if _FORBIDDEN_IN_VALUE.search(value):
            raise ValueError(f"the value of header {name} has a control character (a line end, perhaps)")
        if value != value.strip():
            raise ValueError(f"the value of header {name} starts or ends with white space")
        seen.add(folded)
        checked[name] = value
    return checked
