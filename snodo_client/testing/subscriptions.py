"""Who listens for change notifications: the open `subscriptions/listen` requests of a server.

Spec: basic/patterns/subscriptions. Each is served by the thread of its request, which sends what other threads queue; a
client that does not keep up loses notifications rather than holding anybody up.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from snodo_client.testing.call import META, keep_alive
from snodo_client.testing.errors import INVALID_PARAMS, NoReply, RpcError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from snodo_client.testing.call import Call

_SWITCHES = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
_UPDATED = "notifications/resources/updated"
_TICK = 0.02  # seconds between looks at whether the caller has gone
_QUEUED = 1000  # notifications that a slow client may be owed


class Subscription:
    """One subscription of a client, for a test to do with as it likes, from any thread.

    `id` is that of its request, `auth` who made it, `requested` the filter that was sent; `accepted` is the one that
    was acknowledged, None until then. A server has its open ones in `Server.subscriptions`, oldest first.
    """

    def __init__(self, call: Call, capabilities: dict[str, Any]) -> None:
        self.id = call.id
        self.auth = call.auth
        self.requested: dict[str, Any] = call.params.get("notifications")  # type: ignore[assignment]  # checked next
        self.accepted: dict[str, Any] | None = None
        self._honoured = _honoured(self.requested, capabilities)
        self._call = call
        self._tag = {f"{META}subscriptionId": call.id}
        self._queue: SimpleQueue[tuple[str, dict[str, Any]] | NoReply | None] = SimpleQueue()

    def __repr__(self) -> str:
        return f"<Subscription {self.id!r}>"

    def acknowledge(self, accepted: dict[str, Any] | None = None) -> None:
        """Say which part of the filter is honoured: by default all that the server can."""
        self.accepted = self._honoured if accepted is None else accepted
        self._say("notifications/subscriptions/acknowledged", {"notifications": self.accepted})

    def notify(self, method: str, params: dict[str, Any] | None = None) -> bool:
        """Send any notification as one of this subscription, wanted or not; False when the client is too far behind."""
        if self._queue.qsize() >= _QUEUED:
            return False
        self._say(method, params or {})
        return True

    def wants(self, method: str, params: dict[str, Any]) -> bool:
        """Whether the client has been promised a notification."""
        if self.accepted is None:
            return False
        if method == _UPDATED:
            return params.get("uri") in self.accepted.get("resourceSubscriptions", ())
        return bool(self.accepted.get(_SWITCHES[method]))

    def end(self) -> None:
        """End it gracefully: its request is answered."""
        self._queue.put(None)

    def cancel(self, reason: str = "The server ends the subscription") -> None:
        """End it by `notifications/cancelled`; its request is never answered."""
        self._queue.put(("notifications/cancelled", {"requestId": self.id, "reason": reason}))
        self._queue.put(NoReply())

    def drop(self) -> None:
        """End its connection without a word. Over stdio that is the end of the process."""
        self._queue.put(NoReply(broken=True))

    def serve(self) -> dict[str, Any]:
        """Send what is queued until there is an end to it, and give the closing result."""
        while not self._call.cancelled:
            try:
                queued = self._queue.get(timeout=_TICK)
            except Empty:
                keep_alive(self._call.context)
                continue
            if queued is None:
                break
            if isinstance(queued, NoReply):
                raise queued
            self._call.notify(*queued)
        return {"_meta": self._tag}

    def _say(self, method: str, params: dict[str, Any]) -> None:
        self._queue.put((method, {**params, "_meta": {**params.get("_meta", {}), **self._tag}}))


class Subscriptions:
    """The open subscriptions of one server, oldest first. `opening` is what is done with a new one."""

    def __init__(self) -> None:
        self.opening: Callable[[Subscription], object] = Subscription.acknowledge
        self._open: list[Subscription] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Subscription]:
        with self._lock:
            return iter(list(self._open))

    def __getitem__(self, index: int) -> Subscription:
        return self._open[index]

    def emit(self, method: str, params: dict[str, Any]) -> int:
        """Queue a notification for every subscription that wants it; gives how many take it."""
        if method != _UPDATED and method not in _SWITCHES:
            raise ValueError(f"{method} is not delivered to subscriptions")
        return sum(each.notify(method, params) for each in self if each.wants(method, params))

    def end(self) -> None:
        """End every subscription gracefully: its request is answered."""
        for each in self:
            each.end()

    def serve(self, call: Call, capabilities: dict[str, Any]) -> dict[str, Any]:
        """Open a subscription, deliver until the caller gives up or it is ended, and give the closing result."""
        subscription = Subscription(call, capabilities)
        with self._lock:
            self._open.append(subscription)
        try:
            self.opening(subscription)
            return subscription.serve()
        finally:
            with self._lock:
                self._open.remove(subscription)


def _honoured(wanted: Any, capabilities: dict[str, Any]) -> dict[str, Any]:
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
