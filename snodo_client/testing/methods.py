"""The methods of the 2026-07-28 revision, most of which are older: functions of the server and the call.

They give the result's own members. `resultType` and `_meta` are added by the caller. Refusals are raised as `RpcError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from snodo_client.testing.content import prompt_messages, resource_contents, tool_failure, tool_result
from snodo_client.testing.errors import INVALID_PARAMS, NeedInput, ResourceNotFound, RpcError, ToolError
from snodo_client.testing.signature import problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from snodo_client.testing.call import Call
    from snodo_client.testing.entries import Entry
    from snodo_client.testing.server import Server

Found = TypeVar("Found", bound="Entry")

_MAX_COMPLETIONS = 100  # spec: server/utilities/completion
_NEEDS = {
    "tools": "tools",
    "resources": "resources",
    "prompts": "prompts",
    "completion": "completions",
    "logging": "logging",
}


def served(method: str, capabilities: Mapping[str, Any]) -> bool:
    """Whether a server with these capabilities has the method."""
    needed = _NEEDS.get(method.partition("/")[0])
    return needed is None or needed in capabilities


def _discover(server: Server, call: Call) -> dict[str, Any]:
    result: dict[str, Any] = {
        "supportedVersions": server.modern_versions,
        "capabilities": server.capabilities,
        **server.caching(call),
    }
    if server.instructions is not None:
        result["instructions"] = server.instructions
    return result


def _list(member: str, entries: Callable[[Server], Mapping[str, Entry]]) -> Callable[[Server, Call], dict[str, Any]]:
    """The handler of a list method."""

    def handler(server: Server, call: Call) -> dict[str, Any]:
        listed = [entry.definition for entry in list(entries(server).values())]
        return {**page(member, listed, server.page_size, call), **server.caching(call)}

    return handler


def page(member: str, listed: list[Any], size: int, call: Call) -> dict[str, Any]:
    """The page of a list that is asked for. A cursor is the number of entries before it."""
    cursor = call.params.get("cursor", "0")
    start = int(cursor) if isinstance(cursor, str) and cursor.isascii() and cursor.isdigit() else -1
    if start % size or not 0 <= start <= len(listed):
        raise RpcError(INVALID_PARAMS, "Invalid cursor")
    end = start + size
    told: dict[str, Any] = {member: listed[start:end]}
    return {**told, "nextCursor": str(end)} if end < len(listed) else told


def _call_tool(server: Server, call: Call) -> dict[str, Any]:
    tool = _find(server.tools, call.params.get("name"), "tool")
    arguments = _arguments(call)
    schema = tool.definition["inputSchema"]
    wrong = problem(arguments, schema)
    if wrong:
        return tool_failure((f"Invalid arguments: {wrong}",))
    try:
        return tool_result(tool.run(call, arguments), structured="outputSchema" in tool.definition)
    except ToolError as failure:
        return tool_failure(failure.content)
    except (RpcError, NeedInput):
        raise
    except Exception as bug:
        from snodo_client.log import logger

        logger("testing").warning("tool %s failed", tool.definition["name"], exc_info=True)
        return tool_failure((f"{type(bug).__name__}: {bug}",))


def _read_resource(server: Server, call: Call) -> dict[str, Any]:
    uri = call.params.get("uri")
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "params.uri must be a string")
    entry, arguments = find_resource(server, uri)
    contents = resource_contents(entry.run(call, arguments), uri, entry.definition.get("mimeType"))
    return {"contents": contents, **server.caching(call)}


def find_resource(server: Server, uri: str) -> tuple[Entry, dict[str, str]]:
    """The resource with this URI, or the template that it fits and the values of its parts."""
    if uri in server.resources:
        return server.resources[uri], {}
    for template in list(server.templates.values()):
        arguments = template.match(uri)
        if arguments is not None:
            return template, arguments
    raise ResourceNotFound(uri)


def _get_prompt(server: Server, call: Call) -> dict[str, Any]:
    prompt = _find(server.prompts, call.params.get("name"), "prompt")
    arguments = _arguments(call)
    if not all(isinstance(value, str) for value in arguments.values()):
        raise RpcError(INVALID_PARAMS, "Prompt arguments must be strings")
    missing = [name for name in prompt.signature.required if name not in arguments]
    unknown = [] if prompt.signature.open else [name for name in arguments if name not in prompt.signature.names]
    if missing or unknown:
        raise RpcError(INVALID_PARAMS, f"Missing arguments: {missing}, unknown arguments: {unknown}")
    result: dict[str, Any] = {"messages": prompt_messages(prompt.run(call, arguments))}
    if "description" in prompt.definition:
        result["description"] = prompt.definition["description"]
    return result


def _complete(server: Server, call: Call) -> dict[str, Any]:
    ref, argument, context = (call.params.get(name) for name in ("ref", "argument", "context"))
    chosen = context.get("arguments", {}) if isinstance(context, dict) else {}
    if not isinstance(ref, dict) or not isinstance(argument, dict) or not isinstance(chosen, dict):
        raise RpcError(INVALID_PARAMS, "params.ref, params.argument and params.context must be objects")
    name, value = argument.get("name"), argument.get("value")
    if not isinstance(name, str) or not isinstance(value, str):
        raise RpcError(INVALID_PARAMS, "params.argument must have a name and a value")
    if ref.get("type") == "ref/prompt":
        target = ref.get("name")
        _find(server.prompts, target, "prompt")
    elif ref.get("type") == "ref/resource":
        target = ref.get("uri")
        _find({**server.resources, **server.templates}, target, "resource template")
    else:
        raise RpcError(INVALID_PARAMS, "Unknown reference type")
    completion = server.completions.get((str(target), name))
    values = completion.run(value, chosen) if completion else []
    sent = values[:_MAX_COMPLETIONS]
    return {"completion": {"values": sent, "total": len(values), "hasMore": len(sent) < len(values)}}


def _listen(server: Server, call: Call) -> dict[str, Any]:
    return server.subscriptions.serve(call, server.capabilities)


def _find(entries: Mapping[str, Found], name: Any, kind: str) -> Found:
    entry = entries.get(name) if isinstance(name, str) else None
    if entry is None:
        raise RpcError(INVALID_PARAMS, f"Unknown {kind}: {name}")
    return entry


def _arguments(call: Call) -> dict[str, Any]:
    arguments = call.params.get("arguments", {})
    if not isinstance(arguments, dict):
        raise RpcError(INVALID_PARAMS, "params.arguments must be an object")
    return arguments


METHODS: dict[str, Callable[[Server, Call], dict[str, Any]]] = {
    "server/discover": _discover,
    "tools/list": _list("tools", lambda server: server.tools),
    "tools/call": _call_tool,
    "resources/list": _list("resources", lambda server: server.resources),
    "resources/templates/list": _list("resourceTemplates", lambda server: server.templates),
    "resources/read": _read_resource,
    "prompts/list": _list("prompts", lambda server: server.prompts),
    "prompts/get": _get_prompt,
    "completion/complete": _complete,
    "subscriptions/listen": _listen,
}
