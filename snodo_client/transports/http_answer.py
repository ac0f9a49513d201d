"""What an HTTP answer says: JSON-RPC messages out of a JSON body or an event stream, or the error it amounts to.

The body is looked at first, whatever the status: a JSON-RPC message in it is the answer (spec:
basic/transports/streamable-http). Text is UTF-8 whatever the headers claim. Everything is bounded as it arrives, after
decompression: a JSON body and each event of a stream by `max_response_bytes`; a stream as a whole is bounded by the
deadline alone, and takes no memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..masking import EXCERPT, plain
from ..outcome import local_error
from ..protocol import jsonrpc
from ..protocol.origins import Endpoint, redirected
from ..protocol.versions import BATCHING
from .events import EventStream, TooLarge
from .http_faults import FAULTS, media_type, refusal
from .lines import request_id_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Protocol

    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from ..outcome import McpError
    from .events import Event
    from .http_adapter import Outgoing
    from .http_link import HttpLink

    Message = dict[str, Any]

    class Reading(Protocol):
        """Who has the connection: a lease of ours, or of somebody's session."""

        @property
        def reusable(self) -> bool: ...
        def check(self) -> None: ...
        def fault(self, fault: BaseException) -> McpError: ...
        def hurry(self, limit: Deadline) -> None: ...


CHUNK = 65536  # bytes a read may give
DRAIN = 65536  # bytes of an unwanted body that are read to keep the connection
EXCERPT_SECONDS = 1.0  # how long to wait for the text of a refusal

_DECODABLE = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})


class Answer:
    """The answer to one request of `call`, of which the head is there. `complete` is True once it is read to its end,
    `blank` once that end was reached without anything in it.
    """

    __slots__ = ("_encoded", "blank", "call", "complete", "connection", "link", "outgoing", "raw", "status")

    def __init__(self, call: Call, link: HttpLink, outgoing: Outgoing, raw: Any, connection: Reading) -> None:
        self.call = call
        self.link = link
        self.outgoing = outgoing
        self.raw = raw
        self.connection = connection
        self.status: int = raw.status
        self.complete = False
        self.blank = False
        self._encoded = "content-encoding" in raw.headers

    @property
    def content_type(self) -> str:
        """Without parameters, in lower case; empty when there is none."""
        return media_type(self.raw.headers)

    def messages(self) -> Iterator[Message]:
        """What the answer to a request says, up to and including the response. Raises McpError for one that is none."""
        if self.is_stream():
            return self._messages()
        kind = self.content_type
        if self.status < 200:  # the connection is of no use any more: the real answer may follow
            raise self._no_answer(b"", "")
        if "json" in kind or (not kind and self.status not in (202, 204)):
            return self._body()
        data = self._take(DRAIN, EXCERPT_SECONDS)
        message = _json(data) if self.status >= 400 else None  # a refusal may say it whatever it claims to be
        if message is None or not _is_answer(message, self.status):
            raise self._no_answer(data, "and no JSON-RPC message")
        return iter((message,))

    def is_stream(self) -> bool:
        """Whether the body is an event stream. Raises McpError when it cannot be decompressed."""
        self.call.status = self.status
        if self._encoded:
            encoding = self.raw.headers["content-encoding"].lower()
            if not all(name.strip() in _DECODABLE for name in encoding.split(",")):
                raise self._no_answer(
                    b"", f"in content encoding {self._plain(encoding, 40)!r}, which was not asked for"
                )
        return self.content_type == "text/event-stream"

    def events(self) -> Iterator[Event]:
        """The events of the stream. Raises McpError when one is too large, and for how the stream ends, when it is not
        its proper end.
        """
        stream, comments = EventStream(self.link.max_response_bytes), 0
        while chunk := self._read():
            overflow = False
            try:
                events = stream.feed(chunk)
            except TooLarge as too_large:
                events, overflow = too_large.events, True
            if events or stream.comments > comments:
                comments = stream.comments
                self.call.alive()
            yield from events
            if overflow:
                raise self._too_large()

    def no_stream(self) -> McpError:
        """The error of an answer that is no event stream, where one was asked for."""
        return self._no_answer(self._take(DRAIN, EXCERPT_SECONDS), "and no event stream")

    def refused(self) -> McpError:
        """The error of a refusal, whatever is in its body."""
        return self._no_answer(self._take(DRAIN, EXCERPT_SECONDS), "")

    def acknowledged(self) -> Iterator[Message]:
        """The answer to a notification: nothing. Raises McpError when it was refused, with what the server said."""
        self.call.status = self.status
        if not 200 <= self.status < 300:
            raise self._no_answer(self._take(DRAIN, EXCERPT_SECONDS), "")
        self.drain(EXCERPT_SECONDS)
        return iter(())

    def redirected(self, hops: int) -> Endpoint:
        """Where to send the request instead. Raises McpError when it must not be sent there."""
        location = self.raw.headers.get("location")
        target = redirected(self.outgoing.endpoint, self.status, location, hops)
        if isinstance(target, Endpoint):
            self.drain(EXCERPT_SECONDS)
            return target
        data: dict[str, Any] = {"http_status": self.status}
        if target.location is not None:
            data["location"] = self._plain(target.location, 300)
        why = self._plain(target.why, 500)
        raise local_error(target.reason, f"{self.said()}, a redirect that is not followed: {why}", data=data)

    def drain(self, seconds: float) -> bool:
        """Read what is left of the body, so that the connection can be kept; only as much and as long as it is worth.
        True when the end was reached.
        """
        if not self.complete and self.connection.reusable:
            self._take(DRAIN, seconds)
        return self.complete

    # -- a JSON body

    def _body(self) -> Iterator[Message]:
        data = self._whole()
        problem = "and an empty body"
        if data.strip():
            try:
                value = jsonrpc.decode(data)
            except jsonrpc.Malformed as malformed:
                problem = f"and a body that cannot be read: {malformed}"
            else:
                if messages := self._messages_in(value):
                    yield from messages
                    return
                problem = "and JSON that is no JSON-RPC response"
        raise self._no_answer(data, problem)

    def _messages_in(self, value: Any) -> list[Message]:
        """The messages of a body, when a response is among them."""
        if isinstance(value, list) and self.link.version == BATCHING:
            parts = jsonrpc.batched(value)
            answers = [part for part in parts if _is_answer(part, self.status)]
            others = [part for part in parts if isinstance(part, dict) and "method" in part]
            return others + answers if answers else []
        return [value] if _is_answer(value, self.status) else []

    def _whole(self) -> bytes:
        """The body, decompressed."""
        limit = self.link.max_response_bytes
        raw = self.raw
        length: int | None = raw.length_remaining
        if length is not None and not self._encoded:
            if length > limit:
                raise self._too_large()
            error = None
            try:
                data: bytes = raw.read(decode_content=False)
            except FAULTS as fault:
                error = self.connection.fault(fault)
            if error is not None:
                raise error
            self.complete = True
            return data
        parts = []
        while part := self._read():
            limit -= len(part)
            if limit < 0:
                raise self._too_large()
            parts.append(part)
        return b"".join(parts)

    # -- a stream of events

    def _messages(self) -> Iterator[Message]:
        for event in self.events():
            if event.name != "message" or not event.data:
                continue
            message = self._decoded(event.data)
            if message is None:
                continue
            if "method" in message:
                yield message
                self.connection.check()  # a flood of them must not hide the end of the call
                continue
            self.link.note_end(self.drain(self.link.drain_seconds))
            yield message
            return
        raise self.cut_short()

    def cut_short(self, why: str = "") -> McpError:
        """The error of a stream that ended before the answer, or of one that is a refusal."""
        if self.status >= 300:
            return self._no_answer(b"", "and no JSON-RPC message")
        return local_error(
            "closed",
            f"{self.said()}, but the event stream ended before the answer{why}",
            data={"http_status": self.status, "content_type": self._shown_type()},
        )

    def _decoded(self, data: str) -> Message | None:
        """The message of an event, None for what can be skipped. What names our request is not: there will be no other
        answer. Raises McpError.
        """
        body, problem = data.encode(), ""
        try:
            message = jsonrpc.decode(body)
        except jsonrpc.Malformed as malformed:
            if request_id_in(body) != self.call.wire_id:
                self.link.once("an event whose data is not JSON")
                return None
            problem = str(malformed)
        if problem:
            raise local_error("malformed", f"{self.said()} and an answer that cannot be read: {problem}")
        if isinstance(message, dict):
            if isinstance(message.get("method"), str) or _is_answer(message, self.status):
                return message
            if jsonrpc.same_id(message.get("id"), self.call.wire_id or 0) is not None:
                raise local_error("malformed", f"{self.said()} and an answer that is no JSON-RPC message")
        self.link.once("an event whose data is no JSON-RPC message")
        return None

    # -- both

    def _read(self) -> bytes:
        """Some of the body, decompressed; empty at its end."""
        try:
            chunk: bytes = self.raw.read1(CHUNK, decode_content=self._encoded)
        except FAULTS as fault:
            error = self.connection.fault(fault)
        else:
            if chunk:
                return chunk
            self.connection.check()  # a connection cut on purpose may look like the end
            self.complete = True
            return b""
        raise error

    def _take(self, size: int, seconds: float) -> bytes:
        """About *size* more bytes of the body, as far as they come within the time. Raises for nothing that is read."""
        taken: list[bytes] = []
        limit = self.call.deadline.sub(seconds)
        try:
            while size > 0 and not limit.over:
                self.connection.hurry(limit)
                chunk = self.raw.read1(CHUNK, decode_content=self._encoded)
                if not chunk:
                    self.complete = True
                    break
                taken.append(chunk)
                size -= len(chunk)
        except FAULTS:
            self.complete = False
        return b"".join(taken)

    # -- errors

    def _too_large(self) -> McpError:
        limit = self.link.max_response_bytes
        text = f"{self.said()} with more than max_response_bytes={limit}"
        return local_error("too_large", text, data={"limit": limit})

    def _no_answer(self, body: bytes, problem: str) -> McpError:
        """The error of an answer without a JSON-RPC message in it."""
        self.blank = self.complete and not body.strip()
        if not 200 <= self.status < 300:
            outgoing = self.outgoing
            given = bool(outgoing.secret) and not outgoing.renewed
            return refusal(self.said(), self.status, self.raw.headers, body, outgoing.masking(), given)
        data = {
            "http_status": self.status,
            "content_type": self._shown_type(),
            "excerpt": self._plain(body.decode("utf-8", "replace"), EXCERPT),
        }
        shown = f": {data['excerpt']}" if data["excerpt"] else ""
        return local_error("malformed", f"{self.said()} {problem}{shown}", data=data)

    def said(self) -> str:
        """Who answered with which status, in words."""
        reason = self._plain(self.raw.reason or "", 60)
        kind = f" ({self._shown_type()})" if self.content_type else ""
        return f"{self.link.name} answered {self.status}{' ' + reason if reason else ''}{kind}"

    def _shown_type(self) -> str | None:
        return self._plain(self.content_type, 100) or None

    def _plain(self, text: str, limit: int) -> str:
        return plain(text, self.outgoing.masking(), limit)


def _json(data: bytes) -> Any:
    try:
        return jsonrpc.decode(data)
    except jsonrpc.Malformed:
        return None


def _is_answer(message: object, status: int) -> bool:
    """Whether the message is for the session to judge. The JSON of a refusal often has an "error" of its own kind, so
    there the shape must be right.
    """
    if not isinstance(message, dict) or "method" in message or message.get("jsonrpc") != "2.0":
        return False
    if status >= 300:
        return jsonrpc.kind_of(message) == "response"
    return "result" in message or "error" in message
