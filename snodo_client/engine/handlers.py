"""The functions that answer what a server asks of its client: a form or a URL for a person, a model's words, the roots.

One set of them serves every protocol revision: here a request is checked, its handler run in the calling thread, and
what it gives checked. Who asked, how the answer travels and in which thread is the engine's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..outcome import McpError
from ..protocol import capabilities, jsonrpc
from ..reasons import REFUSED_ARGUMENTS, REFUSED_METHOD
from .roots import Roots, problem_of_uri

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from ..protocol.versions import Era

    Object = dict[str, Any]
    Handler = Callable[["InputRequest"], Mapping[str, Any]]

CO_COROUTINE = 0x80  # inspect.CO_COROUTINE, whose module is dear to import
KINDS = ("form", "url", "sampling", "roots")

# What a server may ask, and the capability that says it may (spec: client/elicitation, client/sampling, client/roots).
_CAPABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


class InvalidAnswer(ValueError):
    """A handler gave what the protocol does not allow. The text says what is wrong and quotes nothing of it."""


class InputRequest:
    """What a handler is given.

    `method` and `params` are the server's, the params a copy. `server` is what errors call the server, `server_info`
    the name and version it gave, None when it was not asked. For elicitation, `mode` is "form" or "url", `message`
    tells a person what is asked for and why, `schema` is the form's JSON Schema, and `url` the whole address to show
    before it is opened; elsewhere they are None.
    """

    __slots__ = (
        "_asked",
        "_cancelled",
        "message",
        "method",
        "mode",
        "params",
        "schema",
        "server",
        "server_info",
        "url",
    )

    def __init__(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        server: str,
        server_info: Mapping[str, Any] | None,
        cancelled: Callable[[], bool],
    ) -> None:
        self._asked = params or {}
        self._cancelled = cancelled
        self.method = method
        self.params: Object = _copied(dict(self._asked))
        self.server = server
        self.server_info: Object | None = _copied(dict(server_info)) if server_info is not None else None
        elicits = method == "elicitation/create"
        self.mode: Literal["form", "url"] | None = _mode(self.params) if elicits else None
        self.message: str | None = self.params.get("message") if elicits else None
        self.schema: Object | None = self.params.get("requestedSchema") if self.mode == "form" else None
        self.url: str | None = self.params.get("url") if self.mode == "url" else None

    @property
    def cancelled(self) -> bool:
        """True when nobody waits for the answer any more: a handler that takes long should look, and give up."""
        return self._cancelled()

    def __repr__(self) -> str:
        mode = f" ({self.mode})" if self.mode else ""
        return f"<InputRequest {self.method}{mode} from {self.server}>"


class Handlers:
    """The option `handlers=`: functions by kind, "form", "url", "sampling" or "roots".

    Each is called with an `InputRequest` and gives the protocol's result object: `{"action": "accept", "content":
    {...}}` for a form, without content for a URL, "decline" or "cancel" for both; `{"role", "content", "model"}` for
    sampling; `{"roots": [...]}`. It may raise McpError to refuse, such as `McpError(-1, "User rejected")`.

    `capabilities` are those of the caller with what the handlers need added. `roots` are given where they were declared
    and have no handler. Raises ValueError or TypeError for an unknown kind, and for what cannot be called.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        given: Mapping[str, Any] | None = None,
        roots: Roots | None = None,
    ) -> None:
        if not isinstance(handlers, Mapping):
            raise TypeError(f"handlers must be a mapping, not {type(handlers).__name__}")
        for kind, handler in handlers.items():
            if kind not in KINDS:
                raise ValueError(f"handlers[{kind!r}] answers nothing: there are {', '.join(KINDS)}")
            if not callable(handler):
                raise TypeError(f"handlers[{kind!r}] must be callable, not {type(handler).__name__}")
            if getattr(getattr(handler, "__code__", None), "co_flags", 0) & CO_COROUTINE:
                raise TypeError(
                    f"handlers[{kind!r}] must be a plain function: an async one has no event loop to run in"
                )
        self.roots = roots or Roots()
        self._handlers = dict(handlers)
        self.capabilities = _merged(self._handlers, given or {})

    def has(self, kind: str) -> bool:
        """Whether there is a handler of this kind."""
        return kind in self._handlers

    @property
    def ready(self) -> bool:
        """Whether there is anything to answer with."""
        return bool(self._handlers) or self.roots.given

    def declared(self, era: Era) -> Object:
        """The capabilities as they are sent in an era: changes of the roots are told in the legacy one only."""
        roots = self.capabilities.get("roots")
        if roots is None:
            return dict(self.capabilities)
        if era == "legacy":
            return {**self.capabilities, "roots": {"listChanged": True, **roots}}
        return {
            **self.capabilities,
            "roots": {name: value for name, value in roots.items() if name != "listChanged"},
        }

    def check(self, method: str, params: object, version: str = "") -> McpError | None:
        """The error of a request that may not be asked: unknown (-32601), not declared (-32601; a mode or a use of
        tools -32602) or malformed (-32602). It is what the asking server is told, never the outcome of a call. What is
        declared counts as far as the `version` spoken knows it.
        """
        declared = capabilities.known(self.capabilities, version)
        capability = _CAPABILITIES.get(method)
        if capability is None:
            return McpError(REFUSED_METHOD, f"this client has no method {method[:64]!r}")
        if capability not in declared:
            return McpError(REFUSED_METHOD, f"this client has not declared {capability}")
        why = _problem(capability, params, declared[capability], version)
        return McpError(REFUSED_ARGUMENTS, f"{method}: {why}") if why is not None else None

    def can_answer(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Whether `run` can answer a request that `check` let pass. The roots need no handler: they may be added."""
        kind = _kind(method, params or {})
        return kind == "roots" or self.has(kind)

    def has_answer(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """The same for what the caller could answer as well: the roots only once there are some."""
        kind = _kind(method, params or {})
        return self.has(kind) or (kind == "roots" and self.roots.given)

    def run(self, request: InputRequest, version: str = "") -> Object:
        """The result for a request that `check` let pass, from its handler, completed and checked.

        What the handler raises gets out of here. Raises InvalidAnswer for a wrong result.
        """
        kind = _kind(request.method, request._asked)
        if kind == "roots" and not self.has(kind):
            return {"roots": self.roots.listed()}
        answer = self._handlers[kind](request)
        if isinstance(answer, McpError) and answer.reason is None:
            raise answer  # a refusal; the fault of a call the handler made is none
        if not isinstance(answer, Mapping):
            raise InvalidAnswer(f"the {kind} handler gave {type(answer).__name__}, not a mapping")
        given = {name: value for name, value in answer.items() if value is not None}
        if not isinstance(given.get("_meta", {}), dict):
            raise InvalidAnswer(f"the {kind} handler gave a _meta that is no dict")
        if kind == "sampling":
            from ..schema import sampling

            result = sampling.fitted(given, version)
            why = sampling.problem(result, version)
        elif kind == "roots":
            result, why = _roots(given)
        else:
            result, why = _elicited(given, request._asked.get("requestedSchema") if kind == "form" else None)
        if why is not None:
            raise InvalidAnswer(f"what the {kind} handler gave {why}")
        try:
            jsonrpc.encode([[[result]]])  # as deep as it will stand in the message
        except ValueError as error:
            raise InvalidAnswer(f"what the {kind} handler gave is no JSON: {error}") from None
        return result


def _merged(handlers: Mapping[str, Handler], given: Mapping[str, Any]) -> Object:
    """The caller's capabilities, and what the handlers need besides. A caller's `{}` for elicitation means forms."""
    merged = dict(given)
    modes: Object = {mode: {} for mode in ("form", "url") if mode in handlers}
    elicitation = merged.get("elicitation")
    if elicitation == {} and "url" in modes:
        modes["form"] = {}
    if modes and (elicitation != {} or "url" in modes):
        merged["elicitation"] = {**modes, **(elicitation or {})}
    for name in ("sampling", "roots"):
        if name in handlers:
            merged.setdefault(name, {})
    return merged


def _kind(method: str, params: Mapping[str, Any]) -> str:
    """The kind of handler for a request that passed the check."""
    return _mode(params) if method == "elicitation/create" else _CAPABILITIES[method]


def _mode(params: Mapping[str, Any]) -> Any:
    mode = params.get("mode")
    return "form" if mode is None else mode


# --- what may be asked --------------------------------------------------------------------------------------------


def _problem(capability: str, params: object, declared: Mapping[str, Any], version: str) -> str | None:
    if not isinstance(params, (dict, type(None))):
        return "params are no object"
    params = params or {}
    if capability == "elicitation":
        return _problem_of_elicitation(params, declared, version)
    if capability == "sampling":
        from ..schema import sampling

        uses_tools = params.get("tools") is not None or params.get("toolChoice") is not None
        if uses_tools and "tools" not in declared:
            return "this client has not declared sampling.tools"
        return sampling.problem_of_request(params)
    return None


def _problem_of_elicitation(params: Object, declared: Mapping[str, Any], version: str) -> str | None:
    from ..schema import forms

    mode = _mode(params)
    modes = declared if "form" in declared or "url" in declared else ("form",)
    if mode not in ("form", "url") or mode not in modes:
        return "this client has not declared the mode"
    if not isinstance(params.get("message"), str):
        return "message is no text"
    if mode == "form":
        return forms.problem_of_schema(params.get("requestedSchema"), version)
    return None if _is_web_address(params.get("url")) else "url is no absolute http(s) URL"


def _is_web_address(url: object) -> bool:
    from urllib.parse import urlsplit

    if not isinstance(url, str) or not url.isprintable() or " " in url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


# --- what a handler may give --------------------------------------------------------------------------------------


def _elicited(given: Object, schema: Mapping[str, Any] | None) -> tuple[Object, str | None]:
    """The result of an elicitation, and what is wrong with it. Content goes with an accepted form only."""
    from ..schema import forms

    action = given.get("action")
    if action not in ("accept", "decline", "cancel"):
        return {}, "has no action: accept, decline or cancel"
    result: Object = {name: given[name] for name in ("_meta", "action") if name in given}
    if schema is None or action != "accept":
        return result, None
    content = given.get("content", {})
    if not isinstance(content, Mapping):
        return {}, "has content that is no mapping"
    result["content"] = forms.with_defaults(schema, content)
    why = forms.problem(schema, result["content"])
    return result, f"does not fit the form: {why}" if why is not None else None


def _roots(given: Object) -> tuple[Object, str | None]:
    """The result of `roots/list`, and what is wrong with it."""
    roots = given.get("roots")
    if not isinstance(roots, (list, tuple)) or not all(isinstance(root, Mapping) for root in roots):
        return {}, "has no roots, a list of mappings"
    result: Object = {name: given[name] for name in ("_meta",) if name in given}
    result["roots"] = [
        {name: root[name] for name in ("uri", "name", "_meta") if root.get(name) is not None} for root in roots
    ]
    for number, root in enumerate(result["roots"]):
        problem = problem_of_uri(root.get("uri"))
        if problem is not None:
            return {}, f"has a wrong root, number {number}: {problem}"
        if not isinstance(root.get("name", ""), str) or not isinstance(root.get("_meta", {}), dict):
            return {}, f"has a wrong root, number {number}: its name is no text, or its _meta no dict"
    return result, None


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(member) for name, member in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
