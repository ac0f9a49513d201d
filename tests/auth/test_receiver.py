"""The loopback receiver against browsers, other programs of the machine, and pages of other sites."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest

from snodo_client.auth import receiver as receiver_module
from snodo_client.auth.receiver import MAX_CONNECTIONS, Receiver
from snodo_client.auth.redirects import port_of
from snodo_client.outcome import McpError
from support import leaks
from support.waiting import until

STATE = "the-state"
ANSWER = f"/callback?code=the-code&state={STATE}"


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")


class Waiting:
    """A receiver that is waited at in a thread: `callback` or `error` once it is over."""

    def __init__(self, uri: str | None = None, seconds: float = 20.0) -> None:
        self.receiver = Receiver(uri)
        self.port = port_of(self.receiver.uri) or 0
        self.callback: str | None = None
        self.error: BaseException | None = None
        self.cancelled = Event()
        self.asked: list[float] = []
        self._end = monotonic() + seconds
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _wait(self) -> float:
        self.asked.append(monotonic())
        if self.cancelled.is_set():
            raise KeyError("cancelled")
        return self._end - monotonic()

    def _run(self) -> None:
        try:
            self.callback = self.receiver.receive(STATE, self._wait)
        except BaseException as error:
            self.error = error
        finally:
            self.receiver.close()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def ended(self) -> str | None:
        self._thread.join(20)
        assert self.over
        return self.callback

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection((address, self.port), timeout=10)

    def get(self, target: str = ANSWER, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
        browser = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            browser.request(method, target, headers={"Host": f"localhost:{self.port}", **headers})
            answer = browser.getresponse()
            return answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.getheaders()}
        finally:
            browser.close()


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    made = Waiting()
    yield made
    made.cancelled.set()
    made.ended()


def exchange(connection: socket.socket, data: bytes) -> bytes:
    """Send, and read to the end."""
    with connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_the_answer_is_given_whole_and_the_browser_sees_a_page(waiting: Waiting) -> None:
    status, page, headers = waiting.get(ANSWER + "&iss=https%3A%2F%2Fas.example")
    assert status == 200
    assert "Signed in: you can close this window." in page
    assert waiting.ended() == f"http://localhost:{waiting.port}{ANSWER}&iss=https%3A%2F%2Fas.example"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["connection"] == "close"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "script" not in page
    assert "src=" not in page


def test_a_refusal_is_told_without_its_words(waiting: Waiting) -> None:
    said = "%3Cscript%3Ealert(1)%3C%2Fscript%3E"
    status, page, _ = waiting.get(f"/callback?error=access_denied&error_description={said}&state={STATE}")
    assert status == 200
    assert "not signed in" in page
    assert "alert" not in page
    assert "access_denied" not in page
    callback = waiting.ended()
    assert callback is not None
    assert callback.endswith(f"error_description={said}&state={STATE}")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/favicon.ico", 404),
        ("/callback/", 404),
        ("/", 404),
        ("/callback", 400),
        (f"/callback?state={STATE}", 400),
        ("/callback?code=the-code", 400),
        ("/callback?code=the-code&state=of-another", 400),
        ("/callback?error=access_denied", 400),
        (ANSWER + "&code=another", 400),
        ("http://localhost" + ANSWER, 404),
    ],
)
def test_what_is_no_answer_is_told_so_and_the_wait_goes_on(waiting: Waiting, target: str, status: int) -> None:
    got, page, _ = waiting.get(target)
    assert got == status
    assert "the-code" not in page
    assert "of-another" not in page
    assert not waiting.over
    assert waiting.get()[0] == 200
    assert waiting.ended() == f"http://localhost:{waiting.port}{ANSWER}"


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST", "PUT", "get"])
def test_only_a_get_is_an_answer(waiting: Waiting, method: str) -> None:
    status, _, headers = waiting.get(method=method)
    assert (status, headers["allow"]) == (405, "GET")
    assert "access-control-allow-origin" not in headers
    assert not waiting.over
    waiting.get()
    assert waiting.ended() is not None


def test_a_head_request_gets_no_body(waiting: Waiting) -> None:
    said = exchange(waiting.connect(), f"HEAD / HTTP/1.1\r\nHost: localhost:{waiting.port}\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.1 405 ")
    assert said.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("host", ["evil.example", "localhost", "127.0.0.1:{port}", "localhost:1", "", None, "twice"])
def test_a_page_of_another_host_is_no_answer(waiting: Waiting, host: str | None) -> None:
    right = f"Host: localhost:{waiting.port}\r\n"
    shown = "" if host is None else 2 * right if host == "twice" else f"Host: {host.format(port=waiting.port)}\r\n"
    said = exchange(waiting.connect(), f"GET {ANSWER} HTTP/1.1\r\n{shown}\r\n".encode())
    assert said.startswith(b"HTTP/1.1 400 ")
    assert not waiting.over
    assert waiting.get(Host=f"LocalHost:{waiting.port}")[0] == 200


@pytest.mark.parametrize(
    "head",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET\r\n\r\n",
        b"\r\n\r\n",
        b"GET /callback?code=\xe9 HTTP/1.1\r\n\r\n",
    ],
)
def test_noise_is_refused(waiting: Waiting, head: bytes) -> None:
    assert exchange(waiting.connect(), head).startswith(b"HTTP/1.1 400 ")
    assert waiting.get()[0] == 200


def test_a_head_in_pieces_is_put_together(waiting: Waiting) -> None:
    data = f"GET {ANSWER} HTTP/1.1\r\nHost: localhost:{waiting.port}\r\n\r\n".encode()
    connection = waiting.connect()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for at in range(len(data) - 1):
        connection.send(data[at : at + 1])
    assert exchange(connection, data[-1:]).startswith(b"HTTP/1.1 200 ")
    assert waiting.ended() is not None


def test_an_endless_head_is_cut_off(waiting: Waiting) -> None:
    sent = 0
    with waiting.connect() as connection, suppress(ConnectionError):
        while sent < 10 * 2**20:
            sent += connection.send(b"A" * 65536)
    assert sent < 10 * 2**20
    assert waiting.get()[0] == 200


def test_a_head_just_over_the_limit_is_told(waiting: Waiting) -> None:
    filler = "a" * (receiver_module.MAX_HEAD + 1)
    assert exchange(waiting.connect(), f"GET / HTTP/1.1\r\nX: {filler}".encode()).startswith(b"HTTP/1.1 431 ")


def test_silent_connections_hold_up_nobody(waiting: Waiting) -> None:
    silent = [waiting.connect() for _ in range(3 * MAX_CONNECTIONS)]
    began = monotonic()
    assert waiting.get()[0] == 200
    assert monotonic() - began < 2
    assert waiting.ended() is not None
    for connection in silent:
        connection.close()


def test_more_connections_than_there_is_room_for_end_the_oldest(waiting: Waiting) -> None:
    first = waiting.connect()
    others = [waiting.connect() for _ in range(MAX_CONNECTIONS)]
    assert first.recv(1) == b""
    for connection in [first, *others]:
        connection.close()


def test_a_connection_that_drips_is_ended(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_module, "CONNECTION_SECONDS", 0.3)
    with waiting.connect() as connection:

        def drip() -> bool:
            try:
                connection.send(b"a")
            except OSError:
                return True
            return False

        until(drip, 5)
    assert not waiting.over


def test_two_answers_at_once_are_one(waiting: Waiting) -> None:
    request = f"GET {ANSWER} HTTP/1.1\r\nHost: localhost:{waiting.port}\r\n\r\n".encode()
    one, other = waiting.connect(), waiting.connect()
    one.sendall(request)
    other.sendall(request)
    assert waiting.ended() == f"http://localhost:{waiting.port}{ANSWER}"
    said = []
    for connection in (one, other):
        with connection:
            try:
                said.append(connection.recv(65536)[:12])
            except ConnectionResetError:
                said.append(b"")
    assert said.count(b"HTTP/1.1 200") == 1


def test_a_browser_that_is_gone_has_answered_all_the_same(waiting: Waiting) -> None:
    connection = waiting.connect()
    connection.sendall(f"GET {ANSWER} HTTP/1.1\r\nHost: localhost:{waiting.port}\r\n\r\n".encode())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.shutdown(socket.SHUT_WR)
    assert waiting.ended() is not None
    connection.close()


def test_nobody_comes() -> None:
    began = monotonic()
    waiting = Waiting(seconds=0.3)
    assert waiting.ended() is None
    assert 0.3 <= monotonic() - began < 2.3
    assert isinstance(waiting.error, McpError)
    assert (waiting.error.reason, waiting.error.data["step"]) == ("authorization_failed", "sign_in")


def test_a_cancelled_call_ends_the_wait_at_once() -> None:
    waiting = Waiting()
    until(lambda: len(waiting.asked) > 2)
    assert max(b - a for a, b in zip(waiting.asked, waiting.asked[1:], strict=False)) < 2
    waiting.cancelled.set()
    waiting.ended()
    assert isinstance(waiting.error, KeyError)
    with pytest.raises(ConnectionRefusedError):
        waiting.connect()


def test_nothing_is_left() -> None:
    def once() -> None:
        waiting = Waiting()
        waiting.get("/favicon.ico")
        silent = waiting.connect()
        waiting.get()
        waiting.ended()
        silent.close()

    leaks.repeat(5, once)


@needs_ipv6
def test_localhost_is_heard_in_both_families(waiting: Waiting) -> None:
    request = f"GET {ANSWER} HTTP/1.1\r\nHost: localhost:{waiting.port}\r\n\r\n".encode()
    assert exchange(waiting.connect("::1"), request).startswith(b"HTTP/1.1 200 ")
    assert waiting.ended() is not None


@needs_ipv6
def test_a_port_that_somebody_else_has_in_one_family_is_not_used() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            Receiver(f"http://localhost:{port}/callback")
        socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("[::1]", marks=needs_ipv6)])
def test_an_address_is_heard_under_its_own_name(host: str, free_port: Callable[[], int]) -> None:
    port = free_port()
    waiting = Waiting(f"http://{host}:{port}/back/here?fixed=1")
    target = f"/back/here?fixed=1&code=c&state={STATE}"
    request = f"GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
    assert exchange(waiting.connect(host.strip("[]")), request).startswith(b"HTTP/1.1 200 ")
    assert waiting.ended() == f"http://{host}:{port}{target}"


def test_the_port_is_free_again_at_once(free_port: Callable[[], int]) -> None:
    uri = f"http://localhost:{free_port()}/callback"
    for _ in range(3):
        waiting = Waiting(uri)
        waiting.get()
        assert waiting.ended() is not None


@pytest.mark.parametrize("uri", ["https://localhost:1/", "http://localhost/cb", "http://0.0.0.0:8080/", "nonsense"])
def test_where_nothing_can_listen_is_a_value_error(uri: str) -> None:
    with pytest.raises(ValueError, match="nothing can listen"):
        Receiver(uri)


def test_closing_twice_does_nothing() -> None:
    made: Any = Receiver()
    made.close()
    made.close()


@pytest.fixture
def free_port() -> Callable[[], int]:
    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port: int = listener.getsockname()[1]
            return port

    return find
