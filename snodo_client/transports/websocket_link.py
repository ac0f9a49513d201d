"""A WebSocket connection at work: one daemon thread reads and writes, everybody else posts letters to it.

Only that thread touches the socket, so neither a peer that does not read nor an interruption of a caller can hold up or
tear a frame: a letter of which no byte was written can be withdrawn, any other one is written to its end. Framing is
`websockets`' business, without its I/O; what the messages mean is not known here.
"""

from __future__ import annotations

import selectors
import socket
from collections import deque
from contextlib import suppress
from ssl import SSLWantReadError, SSLWantWriteError
from threading import RLock, get_ident
from typing import TYPE_CHECKING

from websockets.exceptions import PayloadTooBig
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State

from ..engine import threads
from ..engine.deadline import Deadline
from ..log import logger
from ..masking import plain
from ..outcome import McpError, local_error
from ..protocol import jsonrpc
from .base import Link
from .lines import request_id_in, response_id
from .websocket_handshake import Handshake

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Thread

    from websockets.client import ClientProtocol

    from ..engine.call import Call
    from ..masking import Masking
    from .base import Inbound
    from .http_options import HttpOptions
    from .websocket import Letter

CHUNK = 65_536  # bytes a read may give; a TLS record is never more
# Seconds without traffic after which a ping goes out, so that what stands between does not forget the connection.
# Nobody waits for the pong: a server may be busy for longer than that.
QUIET_SECONDS = 20.0
GOODBYE_SECONDS = 1.0  # what a server that closes has for closing TCP as well
SETTLING_SECONDS = 0.2  # for the thread to end after a cut
MAX_CONTROL = 65_536  # bytes of pongs that wait to be written; until they are, nothing more is read

_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)  # none that a forked child would share


class WebSocketLink(Link):
    """One connection and the thread that serves it."""

    __slots__ = (
        "_begun", "_binary", "_closing", "_control", "_fault", "_given_up", "_inbound", "_letter", "_limit", "_lock",
        "_masking", "_message", "_protocol", "_queue", "_rest", "_said", "_sock", "_thread", "_waits_for_room",
        "_waker", "_woken",
    )  # fmt: skip

    def __init__(
        self, name: str, sock: socket.socket, protocol: ClientProtocol, inbound: Inbound, masking: Masking, limit: int
    ) -> None:
        super().__init__(name)
        self._sock = sock
        self._protocol = protocol
        self._inbound = inbound
        self._masking = masking
        self._limit = limit
        # Guards the waker, and who lets go of the sockets. Nothing that the thread does for a call needs it: a signal
        # handler may make a call while what it interrupted has the lock.
        self._lock = RLock()
        self._begun = self._given_up = False  # by the thread, or by whoever was to start it
        self._fault: dict[None, McpError] = {}  # why it is lost; `dict.setdefault` decides who is first
        self._queue: deque[Letter] = deque()
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._thread: Thread | None = None
        self._closing: Deadline | None = None  # when to cut, once no more messages are exchanged
        # For the thread alone:
        self._letter: Letter | None = None  # what is being written
        self._rest = memoryview(b"")  # and what is left of it
        self._control = bytearray()  # control frames to be written after it
        self._waits_for_room = False
        self._message: bytearray | None = None  # the fragments of a message so far
        self._binary = False  # it is none of ours
        self._said = False

    # -- for everybody

    def start(self, early: bytes) -> None:
        """Serve the connection; *early* came with the end of the handshake. Raises McpError when no thread starts."""
        try:
            self._thread = threads.start("snodo-websocket", self._run, early)
        except BaseException:  # an interruption: the thread may run all the same
            self._closing = Deadline(0.0)
            with self._lock:
                self._given_up = not self._begun
            self._wake()
            if self._given_up:
                self._let_go()
            raise

    def post(self, letter: Letter) -> None:
        """Have the letter written. Raises McpError when the link is lost."""
        self._queue.append(letter)
        if self._fault:  # asked only now: from here on, whoever loses the link finds the letter
            raise self._fault[None].copy()
        self._wake()

    def withdraw(self, letter: Letter) -> None:
        """Nobody waits for the letter any more: it is not written unless it has been begun."""
        if letter.claim("withdraw"):
            with suppress(ValueError):  # it was never posted, or withdrawn already
                self._queue.remove(letter)
            return
        call, letter.call = letter.call, None
        if call is not None and call.delivery == "not_sent":
            call.delivery = "unknown"

    def lose(self, error: McpError) -> None:
        """Report the end of the link, once; the first reason stays."""
        if self._fault.setdefault(None, error) is error:
            self._settle(error)
            self._inbound.lost(error.copy(), self)

    def _settle(self, error: McpError) -> None:
        """Nothing is written any more."""
        letters = [*filter(None, [self._letter])]
        with suppress(IndexError):
            while True:
                letters.append(self._queue.popleft())
        for letter in letters:
            letter.settle(error.copy())

    def shut(self, seconds: float) -> None:
        """End the connection: a close frame, so many seconds for the server's, then it is cut."""
        self.lose(local_error("closed", f"the connection to {self.name} was closed on this side"))
        self._closing = Deadline(seconds)
        self._wake()
        thread = self._thread
        if thread is not None and thread.ident != get_ident():
            thread.join(seconds + SETTLING_SECONDS)

    def abandon(self) -> None:
        """In the child of a fork: let go of what is the parent's, in silence."""
        self._lock = RLock()
        self._fault.setdefault(None, local_error("forked"))
        self._queue.clear()
        self._sock.close()
        self._waker.close()
        self._woken.close()

    def _wake(self) -> None:
        with self._lock, suppress(OSError):  # it is awake already, or gone
            self._waker.send(b"\0")

    # -- the thread

    def _run(self, early: bytes) -> None:
        with self._lock:
            if self._given_up:
                return
            self._begun = True
        try:
            if early:
                self._take(early)
            self._serve()
        except OSError as fault:
            self.lose(self._ended(f"broke off: {self._plain(fault)}"))
        finally:
            self.lose(self._ended("ended"))
            self._settle(self._fault[None])  # what was taken from the queue, or put there, meanwhile
            self._let_go()

    def _serve(self) -> None:
        with _Selector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            selector.register(self._sock, selectors.EVENT_READ)
            while True:
                closing = self._closing
                if closing is not None and closing.over:
                    return
                if closing is not None and self._protocol.state is State.OPEN:
                    self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
                    self._collect()
                self._write()
                reads = 0 if len(self._control) > MAX_CONTROL else selectors.EVENT_READ
                writes = selectors.EVENT_WRITE if self._waits_for_room else 0
                self._register(selector, reads | writes or selectors.EVENT_READ)
                happened = selector.select(QUIET_SECONDS if closing is None else closing.left())
                self._waits_for_room = False
                with suppress(BlockingIOError):
                    self._woken.recv(CHUNK)
                if not happened and closing is None and not self._rest:
                    self._protocol.send_ping(b"")
                    self._collect()
                if reads and not self._read():
                    return

    def _register(self, selector: selectors.BaseSelector, events: int) -> None:
        if selector.get_key(self._sock).events != events:
            selector.modify(self._sock, events)

    def _let_go(self) -> None:
        with self._lock:
            self._waker.close()
            self._woken.close()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    # -- writing

    def _write(self) -> None:
        """Write what there is, as long as the socket takes it."""
        while self._rest or self._next():
            try:
                self._rest = self._rest[self._sock.send(self._rest) :]
            except (BlockingIOError, SSLWantWriteError):
                self._waits_for_room = True
                return
            except SSLWantReadError:
                return
            except OSError:  # what the server said before may still arrive, and tell why
                self._rest, self._closing = memoryview(b""), self._closing or Deadline(GOODBYE_SECONDS)
                return
            if not self._rest:
                self._finish()

    def _next(self) -> bool:
        if self._control:
            self._rest = memoryview(bytes(self._control))
            self._control.clear()
            return True
        if self._closing is not None or self._protocol.state is not State.OPEN:
            return False
        while True:
            try:
                self._letter = letter = self._queue.popleft()
            except IndexError:
                self._letter = None
                return False
            call = letter.call  # before the claim: whoever withdraws it afterwards takes the call away
            if letter.claim("write") and _is_wanted(call):
                break
        self._protocol.send_text(letter.body)
        self._rest = memoryview(b"".join(self._protocol.data_to_send()))
        return True

    def _finish(self) -> None:
        letter, self._letter = self._letter, None
        if letter is not None:
            call = letter.call
            if call is not None:
                call.delivery = "accepted"
            letter.settle(None)

    def _collect(self) -> None:
        """Control frames that the protocol wants written. An end of the stream is not: closing is the server's part."""
        self._control += b"".join(self._protocol.data_to_send())

    # -- reading

    def _read(self) -> bool:
        """What has arrived; False at the end."""
        try:
            chunk = self._sock.recv(CHUNK)
        except (BlockingIOError, SSLWantReadError):
            return True
        except SSLWantWriteError:
            self._waits_for_room = True
            return True
        if not chunk:
            self.lose(self._ended("ended without a close frame"))
            return False
        self._take(chunk)
        return True

    def _take(self, chunk: bytes) -> None:
        protocol = self._protocol
        protocol.receive_data(chunk)
        for frame in protocol.events_received():
            assert isinstance(frame, Frame)
            self._frame(frame)
        self._collect()
        fault = protocol.parser_exc
        if protocol.state is State.OPEN and fault is None:
            return
        if self._closing is None:
            self._closing = Deadline(GOODBYE_SECONDS)
        if isinstance(fault, PayloadTooBig):
            text = f"{self.name} sent a message longer than max_response_bytes ({self._limit})"
            self.lose(local_error("too_large", text, data={"limit": self._limit}))
        elif fault is not None:
            self.lose(self._ended(f"broke the WebSocket protocol: {self._plain(fault)}"))
        elif protocol.close_rcvd is not None:
            code, reason = int(protocol.close_rcvd.code), self._plain(protocol.close_rcvd.reason)
            self.lose(self._ended(f"was closed by it with code {code}{f' ({reason})' if reason else ''}"))

    def _frame(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._binary = frame.opcode == Opcode.BINARY
            self._message = bytearray()
        message = self._message
        if message is None or frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            return
        if not self._binary:
            message += frame.data
        if not frame.fin:
            return
        self._message = None
        if self._binary:
            self._once_binary()
        else:
            self._deliver(bytes(message))

    def _deliver(self, body: bytes) -> None:
        wire_id = response_id(body)
        if wire_id is not None and self._inbound.answer(body, wire_id, self):
            return
        try:
            message = jsonrpc.decode(body)
        except jsonrpc.Malformed as error:
            text = f"{self.name} sent a message that cannot be read: {error}"
            self._inbound.reject(local_error("malformed", text), self, request_id_in(body))
            return
        self._inbound.deliver(message, self)

    def _once_binary(self) -> None:
        if not self._said:
            self._said = True
            logger("websocket").warning("%s sent a binary message; it is ignored, and this is said once", self.name)

    # -- errors

    def _ended(self, how: str) -> McpError:
        return local_error("closed", f"the connection to {self.name} {how}")

    def _plain(self, text: object) -> str:
        return plain(text or "", self._masking)


def open_link(name: str, options: HttpOptions, inbound: Inbound, check: Callable[[], None]) -> WebSocketLink:
    """Connect, and serve the connection. *check* is called all the while, and may raise. Raises McpError."""
    handshake = Handshake(name, options, check)
    sock, protocol, early = handshake.run()
    try:
        link = WebSocketLink(name, sock, protocol, inbound, handshake.masking, options.max_response_bytes)
    except BaseException:
        sock.close()
        raise
    link.start(early)
    return link


def _is_wanted(call: Call | None) -> bool:
    """Whether the call is still to be sent."""
    if call is not None:
        try:
            call.sending()
        except McpError:
            return False
    return True
