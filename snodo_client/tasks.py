"""Tasks of revision 2025-11-25: a tool call that goes on while nobody waits for it, asked about by its id (spec:
2025-11-25, basic/utilities/tasks; experimental there, an extension since 2026-07-28).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .options import call_options
from .outcome import McpError, Ok, local_error
from .protocol import operations, requests
from .protocol.requests import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, Unpack

    from .engine.deadline import Deadline
    from .engine.session import OnProgress, Session
    from .option_types import CallOptions
    from .outcome import Outcome

    Object = dict[str, Any]
    Ask = Callable[[str, Object, Mapping[str, Any]], Outcome]
    Items = Callable[[Literal["tasks"], Mapping[str, Any]], Ok[list[Object]] | McpError]


class Tasks:
    """`client.tasks`: what became of calls made with `call_tool(..., task=...)`.

    A task is an object with `taskId`, `status` ("working", "input_required", "completed", "failed" or "cancelled"),
    `createdAt`, `lastUpdatedAt`, `ttl` (milliseconds it is kept, or None) and maybe `pollInterval` (milliseconds) and
    `statusMessage`. What a server asks for a task reaches the `handlers` of the client while `result` waits; changes of
    its status may reach `on_notification` ("notifications/tasks/status").
    """

    __slots__ = ("_ask", "_items")

    def __init__(self, ask: Ask, items: Items) -> None:
        self._ask = ask
        self._items = items

    def get(self, task_id: str, **options: Unpack[CallOptions]) -> Ok[Object] | McpError:
        """The task as it is now. Ask no more often than its `pollInterval` says."""
        return self._about("tasks/get", task_id, options)

    def result(self, task_id: str, **options: Unpack[CallOptions]) -> Ok[Object] | McpError:
        """Wait until the task ends, within the timeout: what the tool call would have given. A wait that runs out ends
        no task; ask again.
        """
        return self._about("tasks/result", task_id, options)

    def list(self, **options: Unpack[CallOptions]) -> Ok[list[Object]] | McpError:
        """The tasks the server keeps for this client, over all pages."""
        return self._items("tasks", call_options(options))

    def cancel(self, task_id: str, **options: Unpack[CallOptions]) -> Ok[Object] | McpError:
        """End the task: the task, now cancelled. An error of the server when it has ended already, or is unknown."""
        return self._about("tasks/cancel", task_id, options)

    def _about(self, method: str, task_id: str, options: Mapping[str, Any]) -> Ok[Object] | McpError:
        params = requests.task_id_params(task_id)
        return self._ask(method, params, call_options(options))  # type: ignore[return-value]


def begin(
    session: Session, request: Request, tool: str | Mapping[str, Any], deadline: Deadline, progress: OnProgress | None
) -> Outcome:
    """Begin a tool call as a task: `Ok` with the `task` in it. Where the server or the tool has no tasks, nothing is
    called. A tool given by name is looked up in the list first.
    """
    link = session.ready(deadline)
    if isinstance(link, McpError):
        return link
    assert link.agreement is not None
    refused = operations.refusal("tasks/get", link.version, link.name)
    if refused is not None:
        return refused
    if not _offered(link.agreement.capabilities):
        return _unsupported(f"{link.name} runs no tool calls as tasks", link.version)
    if isinstance(tool, str):
        listed = session.lists.whole("tools", Request("tools/list"), deadline)
        if isinstance(listed, McpError):
            return listed
        tool = next((each for each in listed if each.get("name") == tool), {})
    if not allows_task(tool):
        return _unsupported(f"the tool {request.params['name']!r} of {link.name} cannot run as a task", link.version)
    outcome = session.call(request, deadline, progress)
    if isinstance(outcome, Ok):
        task = outcome.value.get("task")
        if not isinstance(task, dict) or not isinstance(task.get("taskId"), str):
            return local_error("invalid_result", f"{link.name} answered a call as a task without a task in the result")
    return outcome


def allows_task(tool: Mapping[str, Any]) -> bool:
    """Whether a tool's definition says that it may run as a task."""
    execution = tool.get("execution")
    return isinstance(execution, Mapping) and execution.get("taskSupport") in ("optional", "required")


def _offered(capabilities: Mapping[str, Any] | None) -> bool:
    found: object = capabilities
    for name in ("tasks", "requests", "tools", "call"):
        found = found.get(name) if isinstance(found, dict) else None
    return isinstance(found, dict)


def _unsupported(what: str, version: str) -> McpError:
    text = f"{what}: call it without task="
    return local_error("unsupported_operation", text, data={"method": "tools/call", "version": version})
