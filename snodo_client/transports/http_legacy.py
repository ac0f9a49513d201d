"""What Streamable HTTP has in the revisions before 2026-07-28: a session with an id, a stream for what belongs to no
request, streams that are resumed, and the end of a session (2025-11-25: basic/transports, "Streamable HTTP").

The id comes with the answer to `initialize` and is a secret: it goes with every later message, and nowhere else. A
session is bound to its link, and replaced with it. How a request waits for its answer is in `http_posting`.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from threading import RLock
from typing import TYPE_CHECKING
from weakref import WeakSet

from .. import log
from ..engine.call import Call
from ..outcome import McpError, local_error
from ..protocol import jsonrpc
from ..reasons import REFUSED_METHOD
from .http_answer import EXCERPT_SECONDS
from .http_link import SESSION_ID
from .http_posting import Attempt, Posts, posted
from .http_stream import EventSource, Fetch, Pauses, messages_in, resumable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..engine.deadline import Deadline
    from .events import Event
    from .http_answer import Answer
    from .http_link import HttpLink

    Message = dict[str, Any]

MAX_ID = 8192  # characters of a session id
ATTEND_SECONDS = 1.0  # how long the first stream may take to begin before calls are made without it
DELETE_SECONDS = 5.0
PATIENCE = 0.25  # seconds a server may take to take a request in; many say nothing before the answer
LIVED_SECONDS = 2.0  # a stream that lasted that long was of use
MAX_VAIN = 10  # tries in a row to go on with the stream of an answer that bring nothing

_ID = re.compile(rf"[\x21-\x7e]{{1,{MAX_ID}}}")


def version_header(link: HttpLink) -> dict[str, str]:
    """The version agreed on, in the revisions that have a header for it: from 2025-06-18 on."""
    return {"MCP-Protocol-Version": link.version} if link.version >= "2025-06-18" else {}


class McpSession:
    """The legacy side of one link."""

    def __init__(self, link: HttpLink) -> None:
        self._link = link
        self._id = ""
        self._lost = False  # the server does not know the id any more
        self._over = False  # no stream is opened any more
        self._stream: EventSource | None = None
        self._pauses = Pauses()
        self._attempts: set[Attempt] = set()
        self._posts = Posts(PATIENCE)
        self._lock = RLock()  # guards the fields above
        _all.add(self)

    def headers(self) -> dict[str, str]:
        """Those that go with every message after `initialize`."""
        headers = version_header(self._link)
        if self._id:
            headers[SESSION_ID] = self._id
        return headers

    # -- messages

    def exchange(self, call: Call) -> Iterator[Message]:
        """Send the call's POST and yield what comes back for it, on whichever stream."""
        if call.wire_id is None:
            self._posts.let_pass(call.deadline)
            return self._link.in_owner(call, self._link.converse(call, self._acknowledged, headers=self.headers()))
        return self._ask(call)

    def _acknowledged(self, answer: Answer) -> Iterator[Message]:
        self.check(answer)
        return answer.acknowledged()

    def _ask(self, call: Call) -> Iterator[Message]:
        attempt = Attempt(call, self._link, self._posts)
        with self._lock:
            self._attempts.add(attempt)
        try:
            yield from posted(call, attempt, _Request(self, self._link).run)
        finally:
            with self._lock:
                self._attempts.discard(attempt)

    def check(self, answer: Answer) -> None:
        """Raise McpError when the answer to a POST says that the session is lost."""
        if answer.status == 404 and SESSION_ID in answer.outgoing.secret:
            self._lost = True
            answer.drain(EXCERPT_SECONDS)
            text = f"{answer.said()}: it does not know the session any more"
            raise local_error("session_lost", text, data={"http_status": answer.status})

    def begin(self) -> None:
        """Another `initialize` is sent: it begins a session of its own."""
        self._id = ""

    def adopt(self, answer: Answer) -> None:
        """Take the session id from the answer to `initialize`, if there is one. Raises McpError for a bad one."""
        session_id = answer.raw.headers.get(SESSION_ID, "")
        if session_id and not _ID.fullmatch(session_id):
            raise local_error("malformed", f"{answer.said()} and a session id that is not visible ASCII, or endless")
        if session_id:
            self._id = answer.outgoing.secret[SESSION_ID] = session_id

    def wait_elsewhere(self, attempt: Attempt) -> bool:
        """Whether the answer of an attempt may come on the stream of the session."""
        with self._lock:
            attempt.elsewhere = self._stream is not None and self._stream.was_open
        return attempt.elsewhere

    # -- the stream for what belongs to no request

    def attend(self, deadline: Deadline) -> None:
        """Ask for the stream. Servers need not have one; what they answer instead is not waited for long."""
        stream = EventSource(self._link, self._heard, self._pause, headers=self.headers)
        with self._lock:
            if self._over:
                return
            self._stream = stream
        with suppress(McpError):  # a refusal is told where the stream ends; where no thread is left, calls will tell
            stream.start()
            stream.opened(deadline.sub(min(ATTEND_SECONDS, deadline.left() / 10)))

    def _heard(self, event: Event) -> None:
        for message in messages_in(event, self._link):
            self._link.inbound.deliver(message, self._link)

    def _pause(self, error: McpError) -> float | None:
        """What follows the end of the stream: seconds until it is asked for again, or None."""
        stream = self._stream
        if stream is None:
            return None
        if _passing(error) and (stream.was_open or error.reason != "http_status"):
            return self._pauses.after(stream, vain=stream.lasted < LIVED_SECONDS)
        with self._lock:
            self._stream = None
            waiting = [attempt for attempt in self._attempts if attempt.elsewhere]
        for attempt in waiting:
            attempt.answer(error.copy())
        log.debug("http", "%s: no stream for what belongs to no request (any more): %s", self._link.name, error.message)
        return None

    # -- the end

    def end(self, deadline: Deadline | None) -> None:
        """Let go of the stream. With a deadline, of everything, and tell the server that the session is over."""
        with self._lock:
            self._over = True
            stream, self._stream = self._stream, None
            attempts = list(self._attempts)
        if stream is not None:
            stream.cut()
        if deadline is None:
            return
        headers, lost = self.headers(), self._lost
        self._id = ""
        for attempt in attempts:
            attempt.answer(local_error("closed", f"the connection to {self._link.name} was closed on this side"))
        if SESSION_ID in headers and not lost:
            call = Call(0, Fetch("DELETE"), deadline.sub(DELETE_SECONDS))  # type: ignore[arg-type]
            with suppress(McpError):  # whatever comes of it, and a server need not even offer it
                list(self._link.in_owner(call, self._link.converse(call, _anything, method="DELETE", headers=headers)))

    def forked(self) -> None:
        """In the child of a fork: the session is the parent's."""
        self._lock = RLock()
        self._over, self._id, self._stream = True, "", None
        for attempt in self._attempts:
            attempt.unlock()
        self._link.inbound.lost(local_error("forked"), self._link)


class _Request:
    """One attempt at a request, on the thread of its POST: the POST, and the GETs that go on with its stream."""

    def __init__(self, session: McpSession, link: HttpLink) -> None:
        self._session = session
        self._link = link
        self._answer: Message | None = None
        self._stream: Answer | None = None  # of the POST, where it is an event stream
        self._last_id = ""
        self._retry: float | None = None

    def run(self, attempt: Attempt) -> None:
        broken: McpError | None = None
        try:
            list(self._link.converse(attempt, self._read, headers=self._headers(attempt)))
        except McpError as error:
            if self._stream is None or error.reason != "closed":
                raise
            broken = error.with_traceback(None)
        if self._stream is not None and self._answer is None:
            attempt.check()
            if not self._last_id:
                raise broken or self._stream.cut_short(", and no event of it had an id to go on from")
            self._go_on(attempt)
        if self._answer is not None:  # only now, when the connection is free for the next call
            attempt.answer(self._answer)

    def _headers(self, attempt: Attempt) -> dict[str, str]:
        if attempt.request.method == "initialize":
            self._session.begin()
            return {}
        return self._session.headers()

    # -- the answer to the POST

    def _read(self, answer: Answer) -> Iterator[Message]:
        attempt: Attempt = answer.call  # type: ignore[assignment]
        if answer.status == 404 and SESSION_ID in answer.outgoing.secret:
            self._answer = _unknown_method(answer, attempt)
            if self._answer is not None:
                return iter(())
        self._session.check(answer)
        if attempt.request.method == "initialize" and answer.status < 300:
            self._session.adopt(answer)
        if not answer.is_stream():
            self._read_body(answer, attempt)
        elif answer.status >= 300:
            raise answer.cut_short()
        else:
            self._stream = answer
            for event in answer.events():
                if self._heard(event, attempt):
                    self._link.note_end(answer.drain(self._link.drain_seconds))
                    break
                answer.connection.check()  # a flood of them must not hide the end of the call
        return iter(())

    def _read_body(self, answer: Answer, attempt: Attempt) -> None:
        try:
            messages = list(answer.messages())
        except McpError:
            if answer.status in (202, 204) and answer.blank and self._session.wait_elsewhere(attempt):
                return
            raise
        answers = [message for message in messages if "method" not in message]
        self._answer = next((message for message in answers if _is_for(attempt, message)), answers[0])
        for message in messages:
            if message is not self._answer:
                self._link.inbound.deliver(message, self._link)

    def _heard(self, event: Event, attempt: Attempt) -> bool:
        """Take an event of the stream. True when it was the answer."""
        if event.id is not None:
            self._last_id = resumable(event.id)
        if event.retry is not None:
            self._retry = event.retry / 1000
        for message in messages_in(event, self._link):
            if self._answer is None and _is_for(attempt, message):
                self._answer = message
            else:
                self._link.inbound.deliver(message, self._link)
        return self._answer is not None

    # -- the rest of its stream

    def _go_on(self, attempt: Attempt) -> None:
        """Ask for the rest of the stream until the answer came, or it is of no use."""
        errors: list[McpError] = []
        pauses = Pauses()

        def on_event(event: Event) -> None:
            if self._heard(event, attempt):
                source.cut()

        def on_end(error: McpError) -> float | None:
            errors.append(error)
            pause = pauses.after(source, vain=not source.advanced)
            return pause if _passing(error) and pauses.vain < MAX_VAIN else None

        source = EventSource(
            self._link,
            on_event,
            on_end,
            headers=self._session.headers,
            deadline=attempt.deadline,
            last_id=self._last_id,
            retry=self._retry,
        )
        attempt.wake = source.cut
        attempt.check()
        source.run(pauses.after(source, vain=False))
        if self._answer is None:
            attempt.check()
            raise _gone(self._link, errors[-1])


def _unknown_method(answer: Answer, attempt: Attempt) -> Message | None:
    """The answer of a server that knows the session but not the method, with the status of a lost session."""
    try:
        message = next(iter(answer.messages()), {})
    except McpError:
        return None
    error = message.get("error")
    named = type(message.get("id")) is int and message["id"] == attempt.wire_id
    return message if named and isinstance(error, dict) and error.get("code") == REFUSED_METHOD else None


def _is_for(attempt: Attempt, message: Any) -> bool:
    """Whether a message of the call's own stream is the answer to it."""
    if not isinstance(message, dict) or "method" in message or not ("result" in message or "error" in message):
        return False
    got = message.get("id")
    return got is None or jsonrpc.same_id(got, attempt.wire_id or 0) is not None


def _passing(error: McpError) -> bool:
    """Whether a stream that could not be had may be had later."""
    if error.reason == "http_status":
        return error.data["http_status"] >= 500 or error.data["http_status"] in (408, 429)
    return error.reason in ("closed", "unreachable")


def _gone(link: HttpLink, error: McpError) -> McpError:
    """The error of a call whose stream broke off, and cannot be resumed because of another error."""
    status = error.data.get("http_status")
    if error.reason not in ("http_status", "malformed", "closed", "unreachable"):
        return error
    why = f"was answered {status}" if status is not None else "came to nothing"
    text = f"{link.name} broke off the event stream before the answer, and to ask for the rest of it {why}"
    return local_error("closed", text, data=None if status is None else {"http_status": status})


def _anything(answer: Answer) -> Iterator[Message]:
    return iter(())


_all: WeakSet[McpSession] = WeakSet()


def _forked() -> None:
    for session in list(_all):
        session.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
