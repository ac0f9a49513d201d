"""Requests: what each method sends, and the metadata that every request of the modern era carries (spec: basic,
"_meta").

A `Request` is encoded once, when it is made, so that an argument JSON cannot carry raises before any I/O; each attempt
then only adds its id and the metadata of its version.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from . import capabilities, jsonrpc, tool_headers, versions
from . import headers as http_headers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .tool_headers import Annotation

PREFIX = "io.modelcontextprotocol/"
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

LISTS = {
    "tools": ("tools/list", "tools"),
    "resources": ("resources/list", "resources"),
    "resource_templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
    "tasks": ("tasks/list", "tasks"),
}

# Asking again changes nothing on the server.
IDEMPOTENT = frozenset(
    {"server/discover", "resources/read", "subscriptions/listen", *(method for method, _ in LISTS.values())}
)


NOBODY = {"name": "unnamed", "version": "0"}


class Identity:
    """Who asks: the client's info and capabilities, encoded once for each version they are sent with.

    `legacy_capabilities` are those for `initialize`, when they differ.
    """

    __slots__ = ("_encoded", "capabilities", "info", "legacy_capabilities")

    def __init__(
        self,
        info: Mapping[str, Any] | None,
        declared: Mapping[str, Any],
        legacy_capabilities: Mapping[str, Any] | None = None,
    ) -> None:
        self.info = dict(info) if info is not None else None
        self.capabilities = dict(declared)
        self.legacy_capabilities = self.capabilities if legacy_capabilities is None else dict(legacy_capabilities)
        self._encoded: dict[str, bytes] = {}

    def initialize(self, version: str) -> Request:
        """The request that begins a link of the legacy era, proposing `version` (2025-11-25: basic/lifecycle)."""
        params = {
            "protocolVersion": version,
            "capabilities": capabilities.known(self.legacy_capabilities, version),
            "clientInfo": self.info or NOBODY,  # there it is required
        }
        return Request("initialize", params).copy(version=version)

    def meta(self, version: str) -> bytes:
        """The members of `_meta` that every request of this version has, as JSON without braces."""
        encoded = self._encoded.get(version)
        if encoded is None:
            meta: dict[str, Any] = {
                PREFIX + "protocolVersion": version,
                PREFIX + "clientCapabilities": self.capabilities,
            }
            if self.info is not None:
                meta[PREFIX + "clientInfo"] = self.info
            encoded = self._encoded[version] = jsonrpc.encode(meta)[1:-1]
        return encoded


class Request:
    """One request, independent of id, link and attempt.

    `params` are the parameters without `_meta`; `meta` the caller's additions to it. `version` is the protocol version
    it is sent with, set by the session. `annotations` are those of the tool's definition, None while it is not known:
    they become `Mcp-Param-*` headers over HTTP.
    """

    __slots__ = (
        "_headers",
        "_log_level",
        "_members",
        "_meta",
        "_method",
        "annotations",
        "meta",
        "method",
        "params",
        "version",
    )

    def __init__(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        log_level: str | None = None,
    ) -> None:
        own = dict(checked_object(params, "params"))
        self.method = method
        self.params = own
        self.meta = _merged_meta(own.pop("_meta", None), meta)
        self.version = ""
        self.annotations: Sequence[Annotation] | None = None
        self._method = _encoded_method(method)
        self._members = _encoded_members(own)
        self._meta = jsonrpc.encode(self.meta)[1:-1] + b"," if self.meta else b""
        self._log_level = b"" if log_level is None else _encoded_log_level(log_level)
        self._headers: dict[str, str] | None = None

    def copy(
        self,
        *,
        version: str | None = None,
        annotations: Sequence[Annotation] | None = None,
        params: dict[str, Any] | None = None,
    ) -> Request:
        """The same request for another version, with the annotations of its tool, or with other parameters. Raises
        ValueError for an argument no header can carry.
        """
        new = object.__new__(Request)
        new.method, new.params, new.meta = self.method, self.params, self.meta
        new._method, new._members, new._meta = self._method, self._members, self._meta
        new._log_level = self._log_level
        new.version = self.version if version is None else version
        new.annotations = self.annotations if annotations is None else annotations
        new._headers = None
        if params is not None:
            new.params, new._members = params, _encoded_members(params)
        if annotations:
            tool_headers.param_headers(annotations, self._arguments())
        return new

    @property
    def idempotent(self) -> bool:
        """True for the lists and reads, which may be sent again when no byte of an answer arrived."""
        return self.method in IDEMPOTENT

    def encode(self, wire_id: int, identity: Identity, *, progress: bool = False) -> bytes:
        """The JSON-RPC request of one attempt. With `progress`, its id is the progress token."""
        if self.version in versions.LEGACY:
            return self._encode_legacy(wire_id, progress)
        token = b',"progressToken":%d' % wire_id if progress else b""
        return b'{"jsonrpc":"2.0","id":%d,"method":%s,"params":{"_meta":{%s%s%s%s}%s}}' % (
            wire_id, self._method, self._meta, identity.meta(self.version), self._log_level, token, self._members,
        )  # fmt: skip

    def _encode_legacy(self, wire_id: int, progress: bool) -> bytes:
        """Without the metadata of the modern era; a log level is set for the whole session there."""
        meta = self._meta + b'"progressToken":%d' % wire_id if progress else self._meta[:-1]
        members = b'"_meta":{%s}%s' % (meta, self._members) if meta else self._members[1:]
        params = b',"params":{%s}' % members if members else b""
        return b'{"jsonrpc":"2.0","id":%d,"method":%s%s}' % (wire_id, self._method, params)

    def headers(self) -> dict[str, str]:
        """The headers that mirror this request over HTTP (spec: basic/transports/streamable-http); none in the legacy
        era.
        """
        if self._headers is None:
            if self.version in versions.LEGACY:
                return {}
            self._headers = http_headers.standard_headers(self.method, self.params, self.version)
            if self.annotations:
                self._headers.update(tool_headers.param_headers(self.annotations, self._arguments()))
        return self._headers

    def _arguments(self) -> dict[str, Any]:
        arguments = self.params.get("arguments")
        return arguments if isinstance(arguments, dict) else {}

    def __repr__(self) -> str:
        return f"Request({self.method!r})"


def _encoded_members(params: dict[str, Any]) -> bytes:
    # In a list, since the bound on nesting is the message's, and params stand one level down in it.
    return b"," + jsonrpc.encode([params])[2:-2] if params else b""


class Notification:
    """A notification, or in the legacy era an answer to the server, for transports that send it the way they send a
    request. It is never sent twice.
    """

    __slots__ = ("_message", "method", "version")
    idempotent = False

    def __init__(self, message: dict[str, Any], version: str) -> None:
        self.method: str = message.get("method", "")
        self.version = version
        self._message = message

    def encode(self) -> bytes:
        return jsonrpc.encode(self._message)

    def headers(self) -> dict[str, str]:
        """Those that mirror it over HTTP; none in the legacy era."""
        if self.version in versions.LEGACY:
            return {}
        return http_headers.standard_headers(self.method, {}, self.version)


@lru_cache(maxsize=128)
def _encoded_method(method: str) -> bytes:
    if not isinstance(method, str) or not method:
        raise TypeError("a method is a non-empty string")
    return jsonrpc.encode(method)


def _encoded_log_level(level: str) -> bytes:
    return b',"%slogLevel":"%s"' % (PREFIX.encode(), checked_log_level(level).encode())


def checked_log_level(level: str) -> str:
    if level not in LOG_LEVELS:
        raise ValueError(f"log_level={level!r} is not one of {', '.join(LOG_LEVELS)}")
    return level


def _merged_meta(in_params: object, meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """The caller's additions to `_meta`, checked; `meta` wins over what stands in the params."""
    if in_params is None and meta is None:
        return {}
    merged = {**checked_object(in_params, "params['_meta']"), **checked_object(meta, "meta")}
    check_meta(merged)
    return merged


def check_meta(meta: Mapping[str, Any]) -> None:
    """Refuse keys of `_meta` that break the syntax, or that the protocol owns (spec: basic, "_meta")."""
    import re

    label = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
    name = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
    for key, value in meta.items():
        if not isinstance(key, str) or not re.fullmatch(rf"(?:(?:{label}\.)*{label}/(?:{name})?|{name})", key):
            raise ValueError(
                f"meta key {key!r} must be a name, or a dotted prefix, '/' and a name, such as 'com.example/trace'"
            )
        prefix = key.partition("/")[0].split(".") if "/" in key else []
        if len(prefix) > 1 and prefix[1] in ("modelcontextprotocol", "mcp"):
            raise ValueError(f"meta key {key!r} is reserved by the protocol: use a prefix of your own")
        if key == "progressToken" and not isinstance(value, str):
            raise ValueError("meta['progressToken'] must be a string: integers are the tokens this library gives out")
        if key in ("tracestate", "baggage") and not isinstance(value, str):
            raise ValueError(f"meta[{key!r}] must be a string in the W3C format")
        if key == "traceparent" and not _is_traceparent(value):
            raise ValueError("meta['traceparent'] does not follow the W3C Trace Context format")


def _is_traceparent(value: object) -> bool:
    import re

    match = (
        re.fullmatch(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?", value)
        if isinstance(value, str)
        else None
    )
    if match is None or match[1] == "ff" or (match[1] == "00" and match[4]):
        return False
    return set(match[2]) != {"0"} and set(match[3]) != {"0"}


def checked_object(value: object, what: str) -> Mapping[str, Any]:
    """The mapping a caller gave, an empty one for None."""
    return {} if value is None else _mapping(value, what)


def _mapping(value: object, what: str) -> Mapping[str, Any]:
    if type(value) is not dict and not isinstance(value, Mapping):  # the first question is the cheap one
        raise TypeError(f"{what} must be a mapping, not {type(value).__name__}")
    return value


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, not {type(value).__name__}")
    return value


def retry_params(input_responses: Mapping[str, Any] | None, request_state: str | None) -> dict[str, Any]:
    """What a retry with input has beside the original parameters (spec: basic/patterns/mrtr). None is left out."""
    params: dict[str, Any] = {}
    if input_responses is not None:
        answers = checked_object(input_responses, "input_responses")
        params["inputResponses"] = {
            key: dict(_mapping(answer, f"the answer {key!r} in input_responses")) for key, answer in answers.items()
        }
    if request_state is not None:
        params["requestState"] = _text(request_state, "request_state")
    return params


def list_params(cursor: str | None) -> dict[str, Any]:
    return {} if cursor is None else {"cursor": _text(cursor, "cursor")}


def tool_name(tool: str | Mapping[str, Any]) -> str:
    """The name in a tool definition, or the name itself."""
    if isinstance(tool, str):
        return tool
    if not isinstance(tool, Mapping):
        raise TypeError(f"the tool must be a name or a definition, not {type(tool).__name__}")
    return _text(tool.get("name"), "the definition's name")


def call_tool_params(tool: str | Mapping[str, Any], arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"name": tool_name(tool), "arguments": dict(checked_object(arguments, "arguments"))}


def task_params(task: bool | Mapping[str, Any]) -> dict[str, Any]:
    """The `task` member of a call: True for the server's own `ttl`."""
    if task is True:
        return {}
    wanted = dict(_mapping(task, "task"))
    ttl = wanted.get("ttl", 0)
    if type(ttl) not in (int, float) or not 0 <= ttl < float("inf"):
        raise ValueError("task['ttl'] must be a number of milliseconds, not negative")
    return wanted


def task_id_params(task_id: str) -> dict[str, Any]:
    return {"taskId": _text(task_id, "task_id")}


def read_resource_params(uri: str) -> dict[str, Any]:
    return {"uri": _text(uri, "uri")}


def get_prompt_params(name: str, arguments: Mapping[str, str] | None) -> dict[str, Any]:
    params: dict[str, Any] = {"name": _text(name, "name")}
    if arguments is not None:
        params["arguments"] = {
            _text(key, "an argument's name"): _text(value, f"argument {key!r} of a prompt")
            for key, value in checked_object(arguments, "arguments").items()
        }
    return params


def complete_params(
    ref: Mapping[str, Any] | str, argument: Mapping[str, str], context: Mapping[str, Any] | None
) -> dict[str, Any]:
    """`ref` is a reference object; a string is short for a prompt's name, or with a ':' for a resource template."""
    if isinstance(ref, str):
        ref = {"type": "ref/resource", "uri": ref} if ":" in ref else {"type": "ref/prompt", "name": ref}
    wanted = {"ref/prompt": "name", "ref/resource": "uri"}.get(str(checked_object(ref, "ref").get("type")))
    if wanted is None or not isinstance(ref.get(wanted), str):
        raise ValueError("ref must be {'type': 'ref/prompt', 'name': ...} or {'type': 'ref/resource', 'uri': ...}")
    if (
        not isinstance(argument, Mapping)
        or not isinstance(argument.get("name"), str)
        or not isinstance(argument.get("value"), str)
    ):
        raise ValueError(
            "argument must be {'name': str, 'value': str}: the argument to complete and what is typed so far"
        )
    params: dict[str, Any] = {"ref": dict(ref), "argument": dict(argument)}
    if context is not None:
        arguments = checked_object(context, "context").get("arguments", {})
        if not isinstance(arguments, Mapping) or not all(isinstance(value, str) for value in arguments.values()):
            raise ValueError("context must be {'arguments': {name: str}}: the arguments already chosen")
        params["context"] = dict(context)
    return params
