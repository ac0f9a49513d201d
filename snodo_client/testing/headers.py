"""The server's own reading of the headers that repeat parts of a body (spec: basic/transports/streamable-http).

Written from the specification and kept apart from the client's code on purpose: a misreading there must show here.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64
from typing import TYPE_CHECKING, Any

from snodo_client.testing.call import META

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PREFIX, _SUFFIX = "=?base64?", "?="
_NAME_SOURCE = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_MAX_INTEGER = 2**53 - 1


class HeaderProblem(ValueError):
    """The headers and the body of a request do not agree; the text says where."""


def check(
    message: dict[str, Any], headers: Mapping[str, Sequence[str]], input_schema: Mapping[str, Any] | None
) -> None:
    """Raise `HeaderProblem` unless the headers say what the body says.

    `headers` maps lower-case names to the values received, in order; `input_schema` is that of the tool called, when
    there is one. A body without a protocol version is left to the check of `_meta`, which has its own error.
    """
    method, params = message["method"], message.get("params", {})
    version = params.get("_meta", {}).get(f"{META}protocolVersion")
    if isinstance(version, str):
        _compare("MCP-Protocol-Version", headers, version)
    _compare("Mcp-Method", headers, method)
    name = params.get(_NAME_SOURCE.get(method, ""))
    if isinstance(name, str):
        _compare("Mcp-Name", headers, name, encoded=True)
    if method == "tools/call" and input_schema is not None:
        _check_parameters(headers, input_schema, params.get("arguments", {}))


def _check_parameters(headers: Mapping[str, Sequence[str]], schema: Mapping[str, Any], arguments: Any) -> None:
    for path, name, kind in _annotations(schema, ()):
        value = arguments
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        header = f"Mcp-Param-{name}"
        if value is None:
            if header.lower() in headers:
                raise HeaderProblem(f"{header} is present but the body has no value for it")
            continue
        received = _single(header, headers, encoded=True)
        if not _same(received, value, kind):
            raise HeaderProblem(f"{header} does not match the value in the body")


def _annotations(schema: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Path, header name and type of every annotated property that is reached through `properties` alone."""
    properties = schema.get("properties")
    for key, part in properties.items() if isinstance(properties, dict) else ():
        if not isinstance(part, dict):
            continue
        name, kind = part.get("x-mcp-header"), part.get("type")
        if isinstance(name, str) and kind in ("string", "integer", "boolean"):
            yield (*path, key), name, kind
        yield from _annotations(part, (*path, key))


def _same(received: str, value: Any, kind: str) -> bool:
    if kind == "boolean":
        return isinstance(value, bool) and received == ("true" if value else "false")
    if kind == "string":
        return isinstance(value, str) and received == value
    whole, _, fraction = received.partition(".")  # integers compare as numbers: 42.0 is 42
    if isinstance(value, bool) or not isinstance(value, int | float) or fraction.strip("0"):
        return False
    digits = whole.removeprefix("-")
    return digits.isascii() and digits.isdigit() and abs(int(whole)) <= _MAX_INTEGER and int(whole) == value


def _compare(name: str, headers: Mapping[str, Sequence[str]], expected: str, *, encoded: bool = False) -> None:
    received = _single(name, headers, encoded=encoded)
    if received != expected:
        raise HeaderProblem(f"{name} header value {received!r} does not match body value {expected!r}")


def _single(name: str, headers: Mapping[str, Sequence[str]], *, encoded: bool) -> str:
    values = headers.get(name.lower(), ())
    if len(values) != 1:
        raise HeaderProblem(f"{name} header is {'repeated' if values else 'missing'}")
    value = values[0]
    if any(not (" " <= character <= "~" or character == "\t") for character in value):
        raise HeaderProblem(f"{name} header contains invalid characters")
    if not encoded or not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value
    try:
        return a2b_base64(value[len(_PREFIX) : -len(_SUFFIX)], strict_mode=True).decode("utf-8")
    except (Base64Error, UnicodeDecodeError):
        raise HeaderProblem(f"{name} header is not valid Base64 of UTF-8 text") from None
