"""Answers to what a server asks while it serves us: the requests of the revisions before 2026-07-28 (spec: 2025-11-25,
client/elicitation, client/sampling, client/roots, basic/utilities/ping).

Reader threads bring the requests and never wait here: what needs no handler is answered by the control worker, so also
while handlers run, and handlers run on a few threads of their own, started when needed and gone when idle.
"""

from __future__ import annotations

from collections import deque
from threading import Condition, RLock, Thread, get_ident
from typing import TYPE_CHECKING

from .. import log
from ..log import logger
from ..outcome import McpError
from ..protocol import jsonrpc
from ..protocol.requests import PREFIX
from ..reasons import LOCAL_FAILURE, REFUSED_METHOD
from . import threads
from .handlers import InputRequest, InvalidAnswer
from .inbound import weight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..transports.base import Link
    from .deadline import Deadline
    from .handlers import Handlers
    from .worker import Worker

    Object = dict[str, Any]
    Key = tuple[Link, int | str]

MAX_RUNNING = 16
MAX_WAITING = 100
MAX_WAITING_WEIGHT = 16 * 1024 * 1024  # bytes of what the waiting requests hold
IDLE_SECONDS = 5.0

INVALID_REQUEST = -32600
RELATED_TASK = PREFIX + "related-task"


class _Asked:
    """One request of a server that a handler is to answer, in flight until it is answered or cancelled."""

    __slots__ = ("cancelled", "key", "method", "params", "weight")

    def __init__(self, key: Key, method: str, params: Object) -> None:
        self.key = key
        self.method = method
        self.params = params
        self.weight = weight((key[1], params))
        self.cancelled = False


class Answering:
    """What a session does with its server's requests. `send` writes one message and tells why it could not; it has a
    bound of its own. `server_info` tells what is known of the server by now.
    """

    def __init__(
        self,
        handlers: Handlers,
        send: Callable[[Object, Link], McpError | None],
        control: Worker,
        server_info: Callable[[], Object | None],
    ) -> None:
        self._handlers = handlers
        self._send = send
        self._control = control
        self._server_info = server_info
        # Guards the fields here; handlers and sends run without it. Reentrant, for signal handlers.
        self._changed = Condition(RLock())
        self._asked: dict[Key, _Asked] = {}
        self._waiting: deque[_Asked] = deque()
        self._weight = 0
        self._threads = 0
        self._idents: set[int] = set()
        self._busy = 0  # of the threads, those with a request
        self._closed = False

    # -- from reader threads

    def take(self, message: Object, link: Link) -> None:
        """A message with a method and an id arrived on `link`, in whatever phase it is."""
        wire_id, method, params = message.get("id"), message.get("method"), message.get("params")
        if type(wire_id) not in (int, str) or not _is_sendable(wire_id):
            return log.info("handlers", "%s sent a request whose id cannot be sent back; it is ignored", link.name)
        key: Key = (link, wire_id)  # type: ignore[assignment]  # of these two types, as was just asked
        if jsonrpc.kind_of(message) != "request" or not isinstance(method, str):
            return self._refuse(key, "something", INVALID_REQUEST, "this is no JSON-RPC request")
        if method == "ping":
            self._control.submit(lambda: self._tell(key, method, {"result": {}}), weight(wire_id))
            return None
        wrong = self._handlers.check(method, params, link.version)
        if wrong is not None:
            return self._refuse(key, method, wrong.code, wrong.message)
        if not self._handlers.can_answer(method, params):
            return self._refuse(key, method, REFUSED_METHOD, f"this client has no handler for this kind of {method}")
        refused = self._admit(_Asked(key, method, params or {}))
        return self._refuse(key, method, *refused) if refused is not None else None

    def cancel(self, params: Object, link: Link) -> None:
        """The server no longer waits for one of its requests (`notifications/cancelled`). Any other is ignored."""
        wire_id, reason = params.get("requestId"), params.get("reason")
        if type(wire_id) not in (int, str):
            return
        with self._changed:
            asked = self._asked.get((link, wire_id))  # type: ignore[arg-type]
            self._drop([asked] if asked is not None else [])
        if asked is not None:
            told = f": {reason[:200]!r}" if isinstance(reason, str) else ""
            log.info("handlers", "%s no longer waits for %s%s", link.name, asked.method, told)

    def link_lost(self, link: Link) -> None:
        """Nobody waits any more on this link."""
        with self._changed:
            self._drop([asked for asked in self._asked.values() if asked.key[0] is link])

    # -- the end

    def close(self, deadline: Deadline) -> None:
        """Answer nothing more, and wait for the handlers that run; not for one that closes us."""
        with self._changed:
            self._closed = True
            self._drop(list(self._asked.values()))
            self._changed.notify_all()
            while self._threads > (get_ident() in self._idents) and not deadline.over:
                self._changed.wait(deadline.left())

    def forked(self) -> None:
        """In the child of a fork: the threads, the requests, and whoever held the lock stayed with the parent."""
        self._changed = Condition(RLock())
        for asked in self._asked.values():
            asked.cancelled = True
        self._asked.clear()
        self._waiting.clear()
        self._weight = self._threads = self._busy = 0
        self._idents.clear()
        self._handlers.roots.forked()

    # -- inside

    def _admit(self, asked: _Asked) -> tuple[int, str] | None:
        """Let a handler answer it, or the code and text of the refusal."""
        link = asked.key[0]
        with self._changed:
            if self._closed or link.lost is not None:
                return None
            if asked.key in self._asked:
                return INVALID_REQUEST, "another request with this id is not answered yet"
            heavy = self._waiting and self._weight + asked.weight > MAX_WAITING_WEIGHT
            if heavy or len(self._waiting) >= MAX_WAITING + MAX_RUNNING - self._busy:
                return LOCAL_FAILURE, "this client is busy with other requests: ask again later"
            if len(self._waiting) >= self._threads - self._busy and self._threads < MAX_RUNNING:
                self._start()
            if self._threads == 0:
                return LOCAL_FAILURE, "this client cannot run handlers now: ask again later"
            self._asked[asked.key] = asked
            self._waiting.append(asked)
            self._weight += asked.weight
            self._changed.notify()
        return None

    def _drop(self, dropped: Iterable[_Asked]) -> None:
        """Under the lock: what is dropped is not answered."""
        for asked in dropped:
            asked.cancelled = True
            del self._asked[asked.key]
            if asked in self._waiting:
                self._waiting.remove(asked)
                self._weight -= asked.weight

    def _start(self) -> None:
        """Under the lock. Where no thread can be started, those that run take over what waits."""
        if threads.refusal(Thread(target=self._serve, name="snodo-handlers", daemon=True)) is None:
            self._threads += 1

    def _serve(self) -> None:
        with self._changed:
            self._idents.add(get_ident())
        while (asked := self._next()) is not None:
            try:
                self._handle(asked)
            except BaseException:  # a transport that raises what it should not: the next request is not to suffer
                logger("handlers").exception("%s: sending the answer to %s failed", asked.key[0].name, asked.method)
            with self._changed:
                self._busy -= 1
            del asked  # while this thread waits for the next

    def _next(self) -> _Asked | None:
        """What this thread is to answer next. None when it is to end, and counted out."""
        with self._changed:
            while not self._waiting:
                if self._closed or (not self._changed.wait(IDLE_SECONDS) and not self._waiting):
                    self._threads -= 1
                    self._idents.discard(get_ident())
                    self._changed.notify_all()
                    return None
            asked = self._waiting.popleft()
            self._weight -= asked.weight
            self._busy += 1
        return asked

    def _handle(self, asked: _Asked) -> None:
        body = self._answer(asked)
        with self._changed:
            if asked.cancelled:
                return
            del self._asked[asked.key]
        self._tell(asked.key, asked.method, body)

    def _answer(self, asked: _Asked) -> Object:
        """The result or the error for a request. Whatever the handler does, this thread goes on."""
        link = asked.key[0]
        try:
            request = InputRequest(asked.method, asked.params, link.name, self._server_info(), lambda: asked.cancelled)
            return {"result": _related(self._handlers.run(request, link.version), asked.params)}
        except InvalidAnswer as error:
            logger("handlers").error("%s asked for %s, but %s", link.name, asked.method, error)
        except McpError as error:
            if error.reason is None:
                return _error(error.code, error.message)
            # A fault of this library, met by the handler: what it tells of other servers is none of this server's.
            logger("handlers").exception("%s asked for %s, and the handler failed", link.name, asked.method)
        except BaseException:  # SystemExit too: it would end this thread, and the server would wait for ever
            logger("handlers").exception("%s asked for %s, and the handler raised", link.name, asked.method)
        return _error(LOCAL_FAILURE, "the handler of this client failed")

    def _refuse(self, key: Key, method: str, code: int, text: str) -> None:
        def job() -> None:
            log.info("handlers", "%s asked for %s, which is refused: %s", key[0].name, _shown(method), text)
            self._tell(key, method, _error(code, text))

        self._control.submit(job, weight((key[1], method, text)))

    def _tell(self, key: Key, method: str, body: Object) -> None:
        link, wire_id = key
        if link.lost is not None:
            return
        message = {"jsonrpc": "2.0", "id": wire_id, **body}
        if not _is_sendable(message):  # a handler's error with half a character in it
            message = {"jsonrpc": "2.0", "id": wire_id, **_error(LOCAL_FAILURE, "the handler of this client failed")}
        failed = self._send(message, link)
        if failed is not None:
            log.info("handlers", "the answer to %s did not get to %s: %s", _shown(method), link.name, failed)


def _shown(method: str) -> str:
    """A method of the server's choice, for the log: on one line, and not all of a long one."""
    return method[:64] if method.isprintable() else repr(method[:64])


def _error(code: int, text: str) -> Object:
    return {"error": {"code": code, "message": text}}


def _related(result: Object, params: Object) -> Object:
    """The result, with the task of the server's that the request belongs to (spec: 2025-11-25, tasks)."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or RELATED_TASK not in meta:
        return result
    return {**result, "_meta": {**result.get("_meta", {}), RELATED_TASK: meta[RELATED_TASK]}}


def _is_sendable(value: object) -> bool:
    try:
        jsonrpc.encode(value)
    except ValueError:
        return False
    return True
