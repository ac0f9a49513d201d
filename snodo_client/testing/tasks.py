"""Tasks of the 2025-11-25 revision: calls of a tool that go on after their request was answered.

Spec: 2025-11-25, basic/utilities/tasks. A session's tasks end with it. What a task says goes with a `tasks/result` that
waits for it, else as what belongs to no request; what cannot be sent then is kept for the next `tasks/result`.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from snodo_client.testing.call import META, Context
from snodo_client.testing.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from snodo_client.testing.legacy import LegacyCall, completed
from snodo_client.testing.methods import page

if TYPE_CHECKING:
    from snodo_client.testing.session import Session

_RELATED = f"{META}related-task"
_POLL_MS = 50  # what clients are told to wait between two `tasks/get`
_MAX_TASKS = 1000  # in one session
_TICK = 0.02  # seconds between looks at whether the caller has gone


class Task:
    """One call that runs as a task, and the context of its handler."""

    def __init__(self, session: Session, call: LegacyCall, ttl: int | None) -> None:
        self.id = os.urandom(16).hex()
        self.status = "working"
        self.status_message: str | None = None
        self.auth = call.auth
        self.waiting: list[Context] = []
        self.changed = threading.Condition()
        self.outcome: dict[str, Any] | RpcError | None = None
        self._session = session
        self._ttl = ttl
        self._created = self._updated = time.time()
        self._unsent: list[dict[str, Any]] = []

    @property
    def over(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    @property
    def expired(self) -> bool:
        return self.over and self._ttl is not None and time.time() > self._created + self._ttl / 1000

    @property
    def cancelled(self) -> bool:
        """True once the task was cancelled or its client has gone: the handler should stop."""
        return self.status == "cancelled" or self._session.ended

    def told(self) -> dict[str, Any]:
        """The task as it is sent."""
        members = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": _timestamp(self._created),
            "lastUpdatedAt": _timestamp(self._updated),
            "ttl": self._ttl,
            "pollInterval": _POLL_MS,
        }
        return members if self.status_message is None else {**members, "statusMessage": self.status_message}

    def become(self, status: str, message: str | None = None, outcome: dict[str, Any] | RpcError | None = None) -> bool:
        """Change the status and tell the client; False when the task is over."""
        with self.changed:
            if self.over:
                return False
            self.status, self.status_message, self.outcome = status, message, outcome
            self._updated = time.time()
            self.changed.notify_all()
        self._session.notify("notifications/tasks/status", self.told())
        return True

    def send(self, message: dict[str, Any], /) -> None:
        """Send what belongs to the task, marked as such."""
        if self.cancelled:
            return
        params = message.get("params", {})
        marked = {**message, "params": {**params, "_meta": {**params.get("_meta", {}), **self.mark()}}}
        with self.changed:
            carrier = self.waiting[-1] if self.waiting else None
            if carrier is None and not self._session.send(marked):
                self._unsent.append(marked)
        if carrier is not None:
            carrier.send(marked)

    def attend(self, context: Context) -> None:
        """A `tasks/result` waits from now on, and can carry what could not be sent before."""
        with self.changed:
            self.waiting.append(context)
            unsent, self._unsent = self._unsent, []
        for message in unsent:
            context.send(message)

    def mark(self) -> dict[str, Any]:
        """The `_meta` of everything that belongs to the task."""
        return {_RELATED: {"taskId": self.id}}


class TaskCall(LegacyCall):
    """The call whose handler runs in the task: waiting for the client changes the status."""

    def __init__(self, call: LegacyCall, task: Task) -> None:
        message = {"id": call.id, "method": call.method, "params": call.params}
        super().__init__(message, task, call.session)
        self._task = task

    def ask_client(self, request: dict[str, Any]) -> dict[str, Any]:
        self._task.become("input_required", "Waiting for the client")
        try:
            return super().ask_client(request)
        finally:
            self._task.become("working")


class Tasks:
    """The tasks of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tasks: dict[str, Task] = {}
        self._lock = threading.Lock()

    @property
    def served(self) -> bool:
        """Whether the session has tasks: its revision does, and a tool can run as one."""
        tools = list(self._session.server.tools.values())
        return self._session.version == "2025-11-25" and any(tool.task_support for tool in tools)

    def marked(self, listed: dict[str, Any]) -> dict[str, Any]:
        """A page of tools that says which of them can run as a task."""
        if not self.served:
            return listed
        tools = self._session.server.tools
        supports = [
            (tool, entry.task_support if (entry := tools.get(tool["name"])) else None) for tool in listed["tools"]
        ]
        marked = [{**tool, "execution": {"taskSupport": support}} if support else tool for tool, support in supports]
        return {**listed, "tools": marked}

    def augments(self, call: LegacyCall) -> bool:
        """Whether this call of a tool is to run as a task. -32601 when it may not, or has to and does not."""
        name = call.params.get("name")
        tool = call.session.server.tools.get(name) if isinstance(name, str) else None
        if tool is None or not self.served:
            return False
        wanted = "task" in call.params
        if wanted and tool.task_support is None:
            raise RpcError(METHOD_NOT_FOUND, f"{name} cannot run as a task")
        if not wanted and tool.task_support == "required":
            raise RpcError(METHOD_NOT_FOUND, f"{name} runs only as a task")
        return wanted

    def create(self, call: LegacyCall) -> dict[str, Any]:
        """Start the task; a CreateTaskResult."""
        wanted = call.params["task"]
        ttl = wanted.get("ttl") if isinstance(wanted, dict) else ""
        if ttl is not None and (type(ttl) is not int or ttl < 0):
            raise RpcError(INVALID_PARAMS, "params.task.ttl must be a number of milliseconds")
        task = Task(self._session, call, ttl)
        with self._lock:
            for old in [old for old in self._tasks.values() if old.expired]:
                del self._tasks[old.id]
            if len(self._tasks) >= _MAX_TASKS:
                raise RpcError(INTERNAL_ERROR, f"A session may have {_MAX_TASKS} tasks")
            self._tasks[task.id] = task
        told = task.told()
        threading.Thread(target=self._run, args=(task, TaskCall(call, task)), daemon=True).start()
        return {"task": told}

    def get(self, call: LegacyCall) -> Task:
        """The task that is asked for."""
        identifier = call.params.get("taskId")
        with self._lock:
            task = self._tasks.get(identifier) if isinstance(identifier, str) else None
        if task is None or task.expired:
            raise RpcError(INVALID_PARAMS, "Unknown task")
        return task

    def wait(self, call: LegacyCall) -> dict[str, Any]:
        """Wait until the task is over, and give its result or raise its error."""
        task = self.get(call)
        task.attend(call.context)
        try:
            with task.changed:
                while not (task.over or call.cancelled):
                    task.changed.wait(_TICK)
        finally:
            task.waiting.remove(call.context)
        if isinstance(task.outcome, RpcError):
            raise task.outcome
        if task.outcome is None:
            raise RpcError(INTERNAL_ERROR, "The task was cancelled")
        return {**task.outcome, "_meta": {**task.outcome.get("_meta", {}), **task.mark()}}

    def list(self, call: LegacyCall) -> dict[str, Any]:
        """One page of the tasks, oldest first."""
        with self._lock:
            tasks = [task.told() for task in self._tasks.values() if not task.expired]
        return page("tasks", tasks, self._session.server.page_size, call)

    def cancel(self, call: LegacyCall) -> dict[str, Any]:
        """Cancel a task that is not over."""
        task = self.get(call)
        if not task.become("cancelled", "The client cancelled it"):
            raise RpcError(INVALID_PARAMS, f"The task is already {task.status}")
        return task.told()

    def end(self) -> None:
        """The client has gone: every task ends without its result."""
        with self._lock:
            tasks = list(self._tasks.values())
        for task in tasks:
            task.become("cancelled")

    def _run(self, task: Task, call: TaskCall) -> None:
        try:
            result = completed(self._session, call)
        except RpcError as error:
            task.become("failed", error.message, error)
            return
        if result.get("isError") is True:
            task.become("failed", "The tool failed", result)
        else:
            task.become("completed", None, result)


def _timestamp(seconds: float) -> str:
    """In UTC, as ISO 8601 with milliseconds."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03}Z"
