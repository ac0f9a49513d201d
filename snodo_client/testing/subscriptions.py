"""Who listens for change notifications: the open `subscriptions/listen` requests of a server.

Spec: basic/patterns/subscriptions. Each listener is served by the thread of its request, which sends what other threads
queue; a listener that does not keep up loses notifications rather than holding anybody up.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from snodo_client.testing.call import META
from snodo_client.testing.errors import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from snodo_client.testing.call import Call

_SWITCHES = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
_UPDATED = "notifications/resources/updated"
_TICK = 0.02  # seconds between looks at whether the caller has gone
_QUEUED = 1000  # notifications a slow listener may owe


class _Listener:
    __slots__ = ("accepted", "queue")

    def __init__(self, accepted: dict[str, Any]) -> None:
        self.accepted = accepted
        self.queue: SimpleQueue[tuple[str, dict[str, Any]] | None] = SimpleQueue()

    def wants(self, method: str, params: dict[str, Any]) -> bool:
        if method == _UPDATED:
            return params.get("uri") in self.accepted.get("resourceSubscriptions", ())
        return bool(self.accepted.get(_SWITCHES[method]))


class Listeners:
    """The open subscriptions of one server."""

    def __init__(self) -> None:
        self._open: set[_Listener] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._open)

    def emit(self, method: str, params: dict[str, Any]) -> int:
        """Queue a notification for every listener that asked for it; gives their number."""
        if method != _UPDATED and method not in _SWITCHES:
            raise ValueError(f"{method} is not delivered to subscriptions")
        with self._lock:
            wanting = [listener for listener in self._open if listener.wants(method, params)]
        for listener in wanting:
            if listener.queue.qsize() < _QUEUED:
                listener.queue.put((method, params))
        return len(wanting)

    def end(self) -> None:
        """End every subscription gracefully: its request is answered."""
        with self._lock:
            listeners = list(self._open)
        for listener in listeners:
            listener.queue.put(None)

    def listen(self, call: Call, capabilities: dict[str, Any]) -> dict[str, Any]:
        """Acknowledge, deliver until the caller gives up or `end` is called, and give the closing result."""
        listener = _Listener(_accepted(call.params.get("notifications"), capabilities))
        tag = {f"{META}subscriptionId": call.id}
        with self._lock:
            self._open.add(listener)
        try:
            call.notify("notifications/subscriptions/acknowledged", {"notifications": listener.accepted, "_meta": tag})
            while not call.cancelled:
                try:
                    queued = listener.queue.get(timeout=_TICK)
                except Empty:
                    continue
                if queued is None:
                    break
                method, params = queued
                call.notify(method, {**params, "_meta": {**params.get("_meta", {}), **tag}})
        finally:
            with self._lock:
                self._open.discard(listener)
        return {"_meta": tag}


def _accepted(wanted: Any, capabilities: dict[str, Any]) -> dict[str, Any]:
    """The part of the filter that this server can honour."""
    if not isinstance(wanted, dict):
        raise RpcError(INVALID_PARAMS, "params.notifications must be an object")
    accepted: dict[str, Any] = {}
    for kind in ("tools", "prompts", "resources"):
        switch = f"{kind}ListChanged"
        if wanted.get(switch) is True and capabilities.get(kind, {}).get("listChanged"):
            accepted[switch] = True
    uris = wanted.get("resourceSubscriptions")
    if uris is not None and not (isinstance(uris, list) and all(isinstance(uri, str) for uri in uris)):
        raise RpcError(INVALID_PARAMS, "params.notifications.resourceSubscriptions must be a list of strings")
    if uris and capabilities.get("resources", {}).get("subscribe"):
        accepted["resourceSubscriptions"] = uris
    return accepted
