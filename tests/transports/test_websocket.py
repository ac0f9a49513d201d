"""The WebSocket transport at work: messages both ways, peers that break the rules, the end of a connection."""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

from snodo_client.engine.call import Call
from snodo_client.engine.deadline import Deadline
from snodo_client.outcome import McpError
from snodo_client.protocol import jsonrpc
from snodo_client.transports import websocket_link
from snodo_client.transports.websocket import WebSocketTransport
from support.duplex import Duplex
from support.http_calls import Took
from support.leaks import repeat
from support.scripted_http import Peer, in_pieces
from support.scripted_websocket import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    PONG,
    TEXT,
    answer,
    close_frame,
    echoes,
    frame,
    read_frame,
    read_message,
    serving,
    until_closed,
    upgrade,
)
from support.waiting import together, until

NOTE = {"jsonrpc": "2.0", "method": "notifications/anything"}


@contextmanager
def connected(script: Any = echoes, **options: Any) -> Iterator[Duplex]:
    with serving(script) as server, Duplex(WebSocketTransport(server.url, **options)) as duplex:
        yield duplex


# -- messages


def test_a_server_of_the_websockets_package() -> None:
    def handle(connection: ServerConnection) -> None:
        for text in connection:
            assert isinstance(text, str)
            connection.send(text.replace('"method":"echo","params"', '"result"'))

    with serve(handle, "127.0.0.1", 0, subprotocols=["mcp"]) as server:  # type: ignore[list-item]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        with Duplex(WebSocketTransport(f"ws://127.0.0.1:{server.socket.getsockname()[1]}/mcp?x=1")) as duplex:
            call = duplex.prepare("echo", {"text": "ü 🦊 \u2028"})
            assert duplex.perform(call) == {"text": "ü 🦊 \u2028"}
            assert call.delivery == "accepted"
        server.shutdown()
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("size", [0, 100, 125, 126, 65_500, 65_536, 3_000_000])
def test_messages_of_any_length(size: int) -> None:
    with connected() as duplex:
        assert duplex.call("echo", {"text": "x" * size}) == {"text": "x" * size}
        assert duplex.call("echo", {"next": 1}) == {"next": 1}


def test_many_threads_get_their_own_answers() -> None:
    with connected() as duplex:

        def ask(number: int) -> None:
            for turn in range(10):
                assert duplex.call("echo", {"number": number, "turn": turn}) == {"number": number, "turn": turn}

        together([lambda number=number: ask(number) for number in range(20)])  # type: ignore[misc]


def test_a_notification_needs_no_answer() -> None:
    with serving(echoes) as server, Duplex(WebSocketTransport(server.url)) as duplex:
        duplex.send("notifications/anything")
        assert duplex.call("echo", {"after": 1}) == {"after": 1}


def test_what_the_server_says_first_is_delivered_even_with_the_handshake() -> None:
    question = {"jsonrpc": "2.0", "id": 0, "method": "roots/list"}

    def script(peer: Peer) -> None:
        sent, peer.send = peer.send, lambda data: sent(data + frame(NOTE) + frame(question)[:5])  # type: ignore[method-assign]
        upgrade(peer)
        sent(frame(question)[5:])
        until_closed(peer)

    with connected(script) as duplex:
        until(lambda: len(duplex.inbox.messages) == 2)
        assert duplex.inbox.messages == [NOTE, question]


@pytest.mark.parametrize("size", [1, 3, 50])
def test_frames_in_pieces_fragments_and_pings_among_them(size: int) -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        message = read_message(peer)
        text = b'{"jsonrpc":"2.0","id":%d,"result":{"text":"%b"}}' % (message["id"], "ü🦊".encode())
        data = frame(text[:20], TEXT, fin=False) + frame(b"now", PING) + frame(b"", CONT, fin=False)
        data += frame(text[20:43], CONT, fin=False) + frame(b"unasked", PONG) + frame(text[43:], CONT)
        for piece in in_pieces(data, size):
            peer.send(piece)
        assert read_frame(peer) == (PONG, b"now")
        answer(peer, read_message(peer))
        until_closed(peer)

    with connected(script) as duplex:
        assert duplex.call() == {"text": "ü🦊"}
        assert duplex.call("echo", {"next": 1}) == {"next": 1}


def test_what_is_no_json_fails_the_call_it_was_for() -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        first, second = read_message(peer), read_message(peer)
        peer.send(frame(b'{"jsonrpc":"2.0", "id": %d, "result": {"a": NaN}}' % second["id"]))
        answer(peer, first)
        answer(peer, read_message(peer))
        peer.send(frame(b'{"broken'))
        peer.send(frame(b"\xff\xfe"))
        until_closed(peer)

    with connected(script) as duplex:
        calls = [duplex.prepare(timeout=10), duplex.prepare(timeout=10)]
        outcomes: list[Any] = [None, None]
        first = threading.Thread(target=lambda: outcomes.__setitem__(0, duplex.perform(calls[0])))
        first.start()
        until(lambda: calls[0].delivery == "accepted")
        outcomes[1] = duplex.perform(calls[1])
        first.join(10)
        assert outcomes[0] == {}
        assert outcomes[1].reason == "malformed"
        assert duplex.call("echo", {"next": 1}) == {"next": 1}
        until(lambda: len(duplex.inbox.rejected) == 3)
        assert [wire_id for _, wire_id in duplex.inbox.rejected] == [calls[1].wire_id, None, None]


def test_batches_and_odd_json_are_delivered() -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        peer.send(frame(b" [%b] \n" % b"{}") + frame(b"5") + frame(b'"text"'))
        until_closed(peer)

    with connected(script) as duplex:
        until(lambda: len(duplex.inbox.messages) == 3)
        assert duplex.inbox.messages == [[{}], 5, "text"]


def test_binary_messages_are_ignored_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        message = read_message(peer)
        peer.send(frame(b"\0\1", BINARY) + frame(b"x", BINARY, fin=False) + frame(b"y", CONT))
        answer(peer, message)
        until_closed(peer)

    with connected(script) as duplex:
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "binary" in caplog.records[0].getMessage()
        assert duplex.inbox.messages == []


def test_a_quiet_connection_is_kept_alive_by_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_link, "QUIET_SECONDS", 0.05)
    pings = threading.Semaphore(0)

    def script(peer: Peer) -> None:
        upgrade(peer)
        while True:
            opcode, _ = read_frame(peer)
            assert opcode == PING
            pings.release()

    with serving(script) as server:
        duplex = Duplex(WebSocketTransport(server.url))
        try:
            for _ in range(3):  # none of them is answered, and nobody minds
                assert pings.acquire(timeout=10)
            assert duplex.inbox.losses == []
        finally:
            duplex.transport.forked()  # without a close frame


# -- too large


@pytest.mark.parametrize("fragments", [1, 7])
def test_a_message_of_just_the_allowed_length_is_one(fragments: int) -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        for size in (1000, 1001):
            message = read_message(peer)
            text = b'{"jsonrpc":"2.0","id":%d,"result":{"text":"' % message["id"]
            text += b"x" * (size - len(text) - 3) + b'"}}'
            pieces = list(in_pieces(text, -(-len(text) // fragments)))
            for at, piece in enumerate(pieces):
                peer.send(frame(piece, TEXT if at == 0 else CONT, fin=at == len(pieces) - 1))
        assert read_frame(peer)[1][:2] == (1009).to_bytes(2, "big")

    with connected(script, max_response_bytes=1000) as duplex:
        assert set(duplex.call()) == {"text"}
        error = duplex.call()
        assert error.reason == "too_large"
        assert error.data == {"limit": 1000}
        assert "max_response_bytes" in error.message
        until(lambda: duplex.inbox.losses)
        assert duplex.call().reason == "too_large"


def test_a_length_that_is_only_announced_costs_no_memory() -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        read_message(peer)
        peer.send(b"\x81\x7f" + (1 << 62).to_bytes(8, "big"))
        peer.silence()

    with connected(script) as duplex:
        assert duplex.call().reason == "too_large"


# -- the end


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (close_frame(1000), "code 1000"),
        (close_frame(1001, "going away, ü"), "code 1001 (going away, ü)"),
        (close_frame(4003, "x\x07" * 60), "code 4003 (x\\x07x"),
        (frame(b"", CLOSE), "code 1005"),
        (b"", "without a close frame"),
        (frame(b"", 3), "broke the WebSocket protocol"),
        (b"\x81\x81mask?", "broke the WebSocket protocol"),
        (frame(b"\x03", CLOSE), "broke the WebSocket protocol"),
        (frame(b"x", CONT), "broke the WebSocket protocol"),
        (b"\xc1\x00", "broke the WebSocket protocol"),
    ],
)
def test_the_end_fails_the_calls_under_way_at_once(end: bytes, says: str) -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        for _ in range(3):
            read_message(peer)
        peer.send(end)

    with connected(script) as duplex:
        errors: list[McpError] = []
        with Took() as took:
            together([lambda: errors.append(duplex.call())] * 3)
        assert took.seconds < 5
        assert {error.reason for error in errors} == {"closed"}
        assert all(says in error.message for error in errors), errors
        until(lambda: duplex.link.lost is not None)
        assert len(duplex.inbox.losses) == 1
        call = duplex.prepare()
        assert duplex.perform(call).reason == "closed"
        assert call.delivery == "not_sent"
        with pytest.raises(McpError, match=says.partition(" (")[0]):
            duplex.send("notifications/anything")


@pytest.mark.parametrize("end", [close_frame(1000), frame(b"", 3)])
def test_a_server_that_ends_it_need_not_hang_up(end: bytes) -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        read_message(peer)
        peer.send(end)
        peer.silence()

    with connected(script) as duplex:
        with Took() as took:
            assert duplex.call().reason == "closed"
        assert took.seconds < 0.9
        thread = duplex.link._thread
        thread.join(5)
        assert not thread.is_alive()


def test_a_reset_is_told() -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        read_message(peer)
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sock.close()

    with connected(script) as duplex:
        error = duplex.call()
        assert error.reason == "closed"
        assert "reset" in error.message.lower()


def test_a_close_frame_of_the_server_is_answered() -> None:
    answered: list[tuple[int, bytes]] = []

    def script(peer: Peer) -> None:
        upgrade(peer)
        read_message(peer)
        peer.send(close_frame(1012, "restart"))
        answered.append(read_frame(peer))

    with connected(script) as duplex:
        assert "1012" in duplex.call().message
        until(lambda: answered)
        assert answered == [(CLOSE, (1012).to_bytes(2, "big") + b"restart")]


def test_a_server_that_leaves_while_it_is_written_to_is_still_heard() -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        while len(peer._data) < 100:  # some of a message that it will not read to its end
            peer._data += peer.receive()
        peer.send(close_frame(1009, "too long"))
        peer.sock.shutdown(socket.SHUT_RDWR)

    with connected(script) as duplex:
        call = duplex.prepare("echo", BIG)
        error = duplex.perform(call)
        assert error.reason == "closed"
        assert "1009 (too long)" in error.message
        assert call.delivery == "unknown"


def test_what_arrived_before_the_end_is_still_delivered() -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        message = read_message(peer)
        peer.send(frame({"jsonrpc": "2.0", "id": message["id"], "result": {"a": 1}}) + close_frame(1000))

    with connected(script) as duplex:
        assert duplex.call() == {"a": 1}


def test_after_a_loss_it_can_be_opened_again() -> None:
    def script(peer: Peer) -> None:
        if peer.number > 1:
            return echoes(peer)
        upgrade(peer)
        read_message(peer)
        return peer.send(close_frame(1001))

    with connected(script) as duplex:
        old = duplex.link
        assert duplex.call().reason == "closed"
        duplex.reopen()
        assert duplex.link is not old
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        assert duplex.link.lost is None


def test_closing_says_goodbye_and_ends_what_runs() -> None:
    goodbyes: list[bytes] = []

    def script(peer: Peer) -> None:
        upgrade(peer)
        read_message(peer)
        goodbyes.append(read_frame(peer)[1])
        peer.send(frame(goodbyes[0], CLOSE))

    with serving(script) as server:
        duplex = Duplex(WebSocketTransport(server.url))
        outcomes: list[Any] = []
        call = duplex.prepare()
        thread = threading.Thread(target=lambda: outcomes.append(duplex.perform(call)))
        thread.start()
        until(lambda: call.delivery == "accepted")
        with Took() as took:
            duplex.transport.close(Deadline(10))
            duplex.transport.close(Deadline(10))
        thread.join(10)
        assert took.seconds < 1
        assert outcomes[0].reason == "closed"
        assert goodbyes == [(1000).to_bytes(2, "big")]
        with pytest.raises(McpError, match="closed on this side"):
            duplex.reopen()


def test_closing_does_not_wait_for_a_server_that_does_not() -> None:
    def script(peer: Peer) -> None:
        upgrade(peer)
        peer.silence()

    with serving(script) as server:
        duplex = Duplex(WebSocketTransport(server.url))
        with Took() as took:
            duplex.transport.close(Deadline(10))
        assert 0.9 < took.seconds < 3
        duplex = Duplex(WebSocketTransport(server.url))
        with Took() as took:
            duplex.transport.close(Deadline(0.1))
        assert took.seconds < 1


def test_nothing_is_left_behind() -> None:
    with serving(echoes) as server:

        def once() -> None:
            with Duplex(WebSocketTransport(server.url)) as duplex:
                assert duplex.call("echo", {"a": 1}) == {"a": 1}
            until(lambda: not server._sockets)

        repeat(10, once)


# -- a server that does not read


class Stuck:
    """A server that agrees to the handshake, and then reads nothing until `go`. What it reads then is in `read`."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.read: list[Any] = []

    def __call__(self, peer: Peer) -> None:
        upgrade(peer)
        while not self.go.wait(0.02):
            peer.pause(0)
        while True:
            opcode, data = read_frame(peer)
            if opcode == CLOSE:
                return
            message = jsonrpc.decode(data)
            assert isinstance(message, dict)
            self.read.append(message["method"])
            if "id" in message:
                answer(peer, message, {"size": len(data)})


BIG = {"text": "x" * 8_000_000}


def test_deadlines_hold_and_frames_stay_whole() -> None:
    stuck = Stuck()
    with connected(stuck) as duplex:
        begun, waiting = duplex.prepare("begun", BIG, 0.5), duplex.prepare("withdrawn", {}, 0.5)
        outcomes: list[Any] = []
        with Took() as took:
            thread = threading.Thread(target=lambda: outcomes.append(duplex.perform(begun)))
            thread.start()
            until(lambda: begun.delivery == "unknown")
            outcomes.append(duplex.perform(waiting))
            thread.join(10)
        assert took.on_time(0.5)
        assert [outcome.reason for outcome in outcomes] == ["timeout", "timeout"]
        assert (begun.delivery, waiting.delivery) == ("unknown", "not_sent")
        with Took() as took, pytest.raises(McpError) as raised:
            duplex.send("notifications/withdrawn", 0.3)
        assert took.on_time(0.3)
        assert raised.value.reason == "timeout"
        stuck.go.set()
        assert duplex.call("next")["size"] < 100
        assert stuck.read == ["begun", "next"]


def test_closing_cuts_what_cannot_be_written() -> None:
    stuck = Stuck()
    with serving(stuck) as server:
        duplex = Duplex(WebSocketTransport(server.url))
        call = duplex.prepare("begun", BIG)
        outcomes: list[Any] = []
        thread = threading.Thread(target=lambda: outcomes.append(duplex.perform(call)))
        thread.start()
        until(lambda: call.delivery == "unknown")
        with Took() as took:
            duplex.transport.close(Deadline(10))
        thread.join(10)
        assert took.seconds < 3
        assert outcomes[0].reason == "closed"
        assert call.delivery == "unknown"


def test_a_server_that_floods_pings_and_reads_no_pongs_costs_no_memory() -> None:
    sent = threading.Event()

    def script(peer: Peer) -> None:
        upgrade(peer)
        peer.sock.settimeout(0.5)
        flood = frame(b"p" * 100, PING) * 1000
        try:
            for _ in range(1000):
                peer.sock.sendall(flood)
        except TimeoutError:  # nobody takes them any more
            sent.set()
        peer.sock.settimeout(None)
        peer.silence()

    with connected(script) as duplex:
        assert sent.wait(30)
        assert len(duplex.link._control) < 200_000


def test_an_interruption_of_a_caller_tears_no_frame() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    def interrupted(duplex: Duplex, call: Call, condition: Callable[[], object]) -> None:
        """Perform the call, and interrupt that once the condition is true."""
        caller = threading.get_ident()

        def strike() -> None:
            until(condition)
            signal.pthread_kill(caller, signal.SIGUSR1)

        thread = threading.Thread(target=strike)
        thread.start()
        with pytest.raises(Interrupted):
            duplex.perform(call)
        thread.join(10)

    stuck = Stuck()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with connected(stuck) as duplex:
            begun, waiting = duplex.prepare("begun", BIG), duplex.prepare("withdrawn")
            interrupted(duplex, begun, lambda: begun.delivery == "unknown")
            interrupted(duplex, waiting, lambda: duplex.link._queue)
            stuck.go.set()
            assert duplex.call("next")["size"] < 100
            assert stuck.read == ["begun", "next"]
            assert waiting.delivery == "not_sent"
    finally:
        signal.signal(signal.SIGUSR1, before)


# -- forks, and what an import costs


def test_a_forked_child_lets_go_without_a_word() -> None:
    with serving(echoes) as server, Duplex(WebSocketTransport(server.url)) as duplex:
        assert duplex.call("echo", {"a": 1}) == {"a": 1}
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                duplex.transport.forked()
                refused = duplex.perform(duplex.prepare())
                fresh = Duplex(duplex.transport)  # the child may have a connection of its own
                same = fresh.call("echo", {"b": 2})
                status = 0 if refused.reason == "forked" and same == {"b": 2} else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert duplex.call("echo", {"c": 3}) == {"c": 3}
        assert server.connections == 2


def run_python(program: str) -> str:
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_making_a_transport_imports_nothing_heavy() -> None:
    printed = run_python(
        "import sys; from snodo_client.transports.websocket import WebSocketTransport;"
        "print(*(name for name in ('websockets', 'requests', 'logging', 'asyncio') if name in sys.modules))"
    )
    assert printed.strip() == ""


def test_a_connection_needs_neither_requests_nor_asyncio() -> None:
    with serving(echoes) as server:
        printed = run_python(
            "import sys; sys.path.insert(0, 'tests')\n"
            "from snodo_client.transports.websocket import WebSocketTransport\n"
            "from snodo_client.engine.deadline import Deadline\n"
            "class Inbox: deliver = answer = reject = lost = lambda *_: None\n"
            f"transport = WebSocketTransport({server.url!r}); transport.open(Inbox(), Deadline(10))\n"
            "transport.close(Deadline(5))\n"
            "print(*(name for name in ('requests', 'asyncio') if name in sys.modules))"
        )
    assert printed.strip() == ""


def test_without_the_package_it_says_what_to_install() -> None:
    printed = run_python(
        "import sys; sys.modules['websockets'] = None\n"
        "from snodo_client.outcome import McpError\n"
        "from snodo_client.transports.websocket import WebSocketTransport\n"
        "from snodo_client.engine.deadline import Deadline\n"
        "transport = WebSocketTransport('ws://127.0.0.1:1/')\n"
        "try: transport.open(None, Deadline(5))\n"
        "except McpError as error: print(error.reason, error.message)"
    )
    assert printed.startswith("transport_failure ")
    assert 'pip install "snodo_client[websocket]"' in printed


def test_the_transport_says_what_it_is() -> None:
    traits = WebSocketTransport.traits
    assert (traits.eras, traits.cancel, traits.reopens) == (("legacy",), "notify", True)


def test_the_package_logs_nothing_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with connected(auth="SEKRET") as duplex:
        assert duplex.call("echo", {"private": 1}) == {"private": 1}
    assert [record for record in caplog.records if record.name.startswith("websockets")] == []
