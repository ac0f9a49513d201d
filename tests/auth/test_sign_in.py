"""The ways a person signs in: a real program as the browser, a real terminal, and functions of the user's."""

from __future__ import annotations

import io
import os
import pty
import shlex
import socket
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from snodo_client.auth.redirects import CALLBACK, MAX_CALLBACK
from snodo_client.auth.sign_in import TRIES, Asked, Browser, Console, Way
from snodo_client.outcome import McpError
from support import leaks
from support.waiting import until

PAGE = "https://as.example/authorize?client_id=me&state=the-state"

# What a person's browser does, run as a command: it goes where the page sends it, and says so on its stdout.
BROWSER = """
import sys, urllib.parse, urllib.request
page = urllib.parse.parse_qs(urllib.parse.urlsplit(sys.argv[1]).query)
print("a browser says hello", flush=True)
back = page["redirect_uri"][0] + "?" + urllib.parse.urlencode({"code": "the-code", "state": page["state"][0]})
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(back, timeout=10).read()
"""


def page_for(redirect_uri: str) -> str:
    return f"{PAGE}&redirect_uri={redirect_uri.replace(':', '%3A').replace('/', '%2F')}"


def patience(seconds: float = 20.0) -> Callable[[], float]:
    end = monotonic() + seconds
    return lambda: end - monotonic()


def cancelled() -> float:
    raise KeyError("cancelled")


def refused(way: Way, wait: Callable[[], float] | None = None, page: str = PAGE) -> McpError:
    with pytest.raises(McpError) as caught:
        way.sign_in(page, wait or patience())
    assert (caught.value.reason, caught.value.data["step"]) == ("authorization_failed", "sign_in")
    assert "the-state" not in str(caught.value)
    return caught.value


@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a Python program the browser of this machine."""

    def become(program: str) -> None:
        script = tmp_path / "browser.py"
        script.write_text(program)
        monkeypatch.setenv("BROWSER", f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} %s")
        # The standard library looks at the environment once.
        monkeypatch.setattr("webbrowser._tryorder", None)
        monkeypatch.setattr("webbrowser._browsers", {})

    return become


@pytest.fixture
def way() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.close()


class TestBrowser:
    def test_it_goes_to_the_page_and_comes_back(
        self, browser: Callable[[str], None], way: Browser, capsys: pytest.CaptureFixture[str]
    ) -> None:
        browser(BROWSER)
        uri = way.redirect_uri(None)
        assert way.sign_in(page_for(uri), patience()) == f"{uri}?code=the-code&state=the-state"
        printed = capsys.readouterr()
        assert f"Sign in at {page_for(uri)}\n" in printed.err
        assert printed.out == ""

    def test_one_that_stays_in_the_foreground_holds_up_nobody(
        self, browser: Callable[[str], None], way: Browser, tmp_path: Path
    ) -> None:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        browser(BROWSER + f"open({str(gate)!r}).read()\n")
        uri = way.redirect_uri(None)
        assert way.sign_in(page_for(uri), patience()).endswith("?code=the-code&state=the-state")
        gate.open("w").close()  # opens once the browser is at its end

    @pytest.mark.parametrize("broken", ["/nonexistent/browser", "false", "no such 'quote"])
    def test_without_a_browser_the_printed_page_is_enough(
        self,
        broken: str,
        browser: Callable[[str], None],
        way: Browser,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        browser("")
        monkeypatch.setenv("BROWSER", broken)
        monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
        uri = way.redirect_uri(None)
        refused(way, patience(0.3), page_for(uri))
        assert f"Sign in at {page_for(uri)}\n" in capsys.readouterr().err

    def test_without_stderr_it_still_works(
        self, browser: Callable[[str], None], way: Browser, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        browser(BROWSER)
        for stderr in (None, _closed()):
            monkeypatch.setattr(sys, "stderr", stderr)
            uri = way.redirect_uri(None)
            assert way.sign_in(page_for(uri), patience()).startswith(uri)

    def test_the_uri_of_the_registration_is_used_again(self, way: Browser) -> None:
        uri = way.redirect_uri(None)
        way.close()
        assert way.redirect_uri(uri) == uri

    def test_a_registration_whose_port_is_taken_gives_another(self, way: Browser) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = f"http://localhost:{other.getsockname()[1]}/callback"
            assert way.redirect_uri(taken) not in (taken, None)

    @pytest.mark.parametrize("stored", ["https://app.example/cb", "http://localhost/cb", "nonsense", "http://[", ""])
    def test_a_registration_nobody_can_listen_for_gives_another(self, way: Browser, stored: str) -> None:
        assert way.redirect_uri(stored).startswith("http://localhost:")

    def test_a_uri_of_the_users_is_the_only_one(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            uri = f"http://localhost:{other.getsockname()[1]}/here"
            way = Browser(uri)
            with pytest.raises(McpError, match="in use") as caught:
                way.redirect_uri("http://localhost:1/callback")
            assert uri in str(caught.value)
        assert way.redirect_uri("http://localhost:1/callback") == uri
        way.close()

    @pytest.mark.parametrize("uri", ["https://app.example/cb", "http://localhost/cb", "com.example.app:/cb", "x"])
    def test_a_uri_that_does_not_come_back_here_is_a_value_error(self, uri: str) -> None:
        with pytest.raises(ValueError, match="redirect_uri"):
            Browser(uri)

    @pytest.mark.parametrize("page", ["file:///etc/passwd", "javascript:alert(1)", "--help", "https://a b/", "\x1b[2J"])
    def test_what_is_no_web_page_is_opened_nowhere(
        self, way: Browser, page: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        way.redirect_uri(None)
        refused(way, page=page)
        assert capsys.readouterr().err == ""

    def test_before_there_is_a_redirect_uri_it_is_a_mistake(self, way: Browser) -> None:
        with pytest.raises(RuntimeError, match="after redirect_uri"):
            way.sign_in(PAGE, patience())

    def test_nothing_is_left(self, browser: Callable[[str], None], way: Browser) -> None:
        browser(BROWSER)

        def once() -> None:
            uri = way.redirect_uri(None)
            way.sign_in(page_for(uri), patience())
            way.close()

        leaks.repeat(2, once)


class Terminal:
    """A terminal of its own as stdin: `type` is the person."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.master, self.slave = pty.openpty()
        os.set_blocking(self.master, False)
        self._file = os.fdopen(self.slave)
        self._monkeypatch = monkeypatch
        self.attributes = termios.tcgetattr(self.slave)
        monkeypatch.setattr(sys, "stdin", self._file)

    def type(self, data: bytes) -> None:
        left = data

        def write() -> bool:
            nonlocal left
            with suppress(BlockingIOError):
                os.read(self.master, 65536)  # the echo
            with suppress(BlockingIOError):
                left = left[os.write(self.master, left[:1000]) :]
            return not left

        until(write)

    def in_lines(self) -> bool:
        """Whether it gathers lines, as it does when nobody asks for an address."""
        return bool(termios.tcgetattr(self.slave)[3] & termios.ICANON)

    def close(self) -> None:
        self._monkeypatch.undo()
        self._file.close()
        os.close(self.master)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal(monkeypatch)
    yield made
    made.close()


ADDRESS = f"{CALLBACK}?code=the-code&state=the-state"


class TestConsole:
    @pytest.mark.parametrize(
        "around", ["{}\n", "  {}\t\n", "'{}'\n", '"{}" \n', "<{}>\n", "x\x7f{}\n", "{}\r", "{}é\x08\n"]
    )
    def test_the_address_is_pasted(self, terminal: Terminal, around: str, capsys: pytest.CaptureFixture[str]) -> None:
        terminal.type(around.replace("é", "y").format(ADDRESS).encode())
        assert Console().sign_in(PAGE, patience()) == ADDRESS
        printed = capsys.readouterr()
        assert f"Sign in at {PAGE}\n" in printed.err
        assert printed.out == ""
        assert termios.tcgetattr(terminal.slave) == terminal.attributes

    def test_a_refusal_is_an_address(self, terminal: Terminal) -> None:
        refusal = f"{CALLBACK}?error=access_denied&state=the-state"
        terminal.type(f"{refusal}\n".encode())
        assert Console().sign_in(PAGE, patience()) == refusal

    def test_a_long_address_is_not_cut_by_the_terminal(self, terminal: Terminal) -> None:
        address = f"{CALLBACK}?code={'c' * 8000}&state=the-state"
        found: list[str] = []
        thread = Thread(target=lambda: found.append(Console().sign_in(PAGE, patience())), daemon=True)
        thread.start()
        until(lambda: not terminal.in_lines())
        terminal.type(address.encode() + b"\n")
        thread.join(20)
        assert found == [address]

    @pytest.mark.parametrize(
        ("pasted", "why"),
        [
            ("", "no URL"),
            ("the-code", "no URL"),
            ("http://[", "no URL"),
            ("http://a b/?code=the-code&state=the-state", "no URL"),
            (PAGE, "neither a code nor an error"),
            (f"{CALLBACK}?code=the-code&state=of-another", "another sign-in"),
        ],
    )
    def test_what_is_no_address_is_told_and_asked_again(
        self, terminal: Terminal, pasted: str, why: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        terminal.type(f"{pasted}\n{ADDRESS}\n".encode())
        assert Console().sign_in(PAGE, patience()) == ADDRESS
        err = capsys.readouterr().err
        assert why in err
        assert "of-another" not in err
        assert "the-code" not in err

    def test_what_is_too_long_is_told(self, terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
        found: list[str] = []
        thread = Thread(target=lambda: found.append(Console().sign_in(PAGE, patience())), daemon=True)
        thread.start()
        until(lambda: not terminal.in_lines())
        terminal.type(b"a" * (3 * MAX_CALLBACK) + b"\n" + ADDRESS.encode() + b"\n")
        thread.join(20)
        assert found == [ADDRESS]
        assert "longer than" in capsys.readouterr().err

    def test_it_is_asked_a_few_times(self, terminal: Terminal) -> None:
        terminal.type(b"no\n" * TRIES)
        assert f"{TRIES} tries" in str(refused(Console()))

    @pytest.mark.parametrize("end", [b"\x04", b"half\x04"])
    def test_an_end_instead_is_told(self, terminal: Terminal, end: bytes) -> None:
        raised: list[McpError] = []
        thread = Thread(target=lambda: raised.append(refused(Console())), daemon=True)
        thread.start()
        until(lambda: not terminal.in_lines())
        terminal.type(end)
        thread.join(20)
        assert "closed before" in str(raised[0])

    def test_a_hung_up_terminal_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = Terminal(monkeypatch)
        raised: list[McpError] = []
        thread = Thread(target=lambda: raised.append(refused(Console())), daemon=True)
        thread.start()
        until(lambda: not terminal.in_lines())
        master, terminal.master = terminal.master, os.open(os.devnull, os.O_RDONLY)
        os.close(master)
        thread.join(20)
        terminal.close()
        assert len(raised) == 1

    def test_nobody_types(self, terminal: Terminal) -> None:
        began = monotonic()
        refused(Console(), patience(0.3))
        assert 0.3 <= monotonic() - began < 2.3
        assert termios.tcgetattr(terminal.slave) == terminal.attributes

    def test_what_wait_raises_gets_out(self, terminal: Terminal) -> None:
        with pytest.raises(KeyError):
            Console().sign_in(PAGE, cancelled)
        assert termios.tcgetattr(terminal.slave) == terminal.attributes

    @pytest.mark.parametrize("kind", ["none", "closed", "pipe"])
    def test_without_a_terminal_it_says_what_to_do(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        stdin: Any = {"none": None, "closed": _closed(), "pipe": io.StringIO(ADDRESS + "\n")}[kind]
        monkeypatch.setattr(sys, "stdin", stdin)
        assert 'sign_in="never"' in str(refused(Console()))

    def test_a_console_without_a_file_is_read_by_lines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Drawn(io.StringIO):
            def isatty(self) -> bool:
                return True

        monkeypatch.setattr(sys, "stdin", Drawn(f"no\n '{ADDRESS}'\n"))
        assert Console().sign_in(PAGE, patience()) == ADDRESS
        assert "closed" in str(refused(Console()))

    def test_where_it_ends(self) -> None:
        assert Console().redirect_uri(None) == CALLBACK
        assert Console().redirect_uri("http://localhost:5555/callback") == "http://localhost:5555/callback"
        assert Console("https://app.example/cb").redirect_uri("http://localhost:1/") == "https://app.example/cb"
        with pytest.raises(ValueError, match="redirect_uri"):
            Console("http://app.example/cb")


class TestAsked:
    def test_its_answer_is_the_answer(self) -> None:
        asked: list[str] = []
        way = Asked(lambda page: asked.append(page) or ADDRESS)  # type: ignore[func-returns-value]
        assert way.sign_in(PAGE, patience()) == ADDRESS
        assert asked == [PAGE]
        way.close()

    def test_what_it_raises_is_told_by_its_type(self) -> None:
        def fails(page: str) -> str:
            raise KeyError(page)

        error = refused(Asked(fails))
        assert "raised KeyError" in str(error)
        assert error.__cause__ is error.__context__ is None

    @pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
    def test_an_interruption_gets_out(self, interruption: type[BaseException]) -> None:
        def interrupted(page: str) -> str:
            raise interruption

        with pytest.raises(interruption):
            Asked(interrupted).sign_in(PAGE, patience())

    @pytest.mark.parametrize("answer", [None, b"http://localhost/", "a" * (MAX_CALLBACK + 1)])
    def test_what_is_no_address_is_told(self, answer: Any) -> None:
        assert "returned" in str(refused(Asked(lambda page: answer)))

    def test_a_cancelled_call_asks_nobody_and_takes_no_answer(self) -> None:
        asked: list[str] = []

        def ask(page: str) -> str:
            asked.append(page)
            return ADDRESS

        with pytest.raises(KeyError):
            Asked(ask).sign_in(PAGE, cancelled)
        assert asked == []
        with pytest.raises(KeyError):
            Asked(ask).sign_in(PAGE, lambda: cancelled() if asked else 1.0)

    def test_it_always_ends_at_the_same_place(self) -> None:
        assert Asked(str).redirect_uri("http://localhost:5555/callback") == CALLBACK
        assert Asked(str, "com.example.app:/cb").redirect_uri(None) == "com.example.app:/cb"
        with pytest.raises(ValueError, match="redirect_uri"):
            Asked(str, "http://app.example/cb")
        with pytest.raises(TypeError, match="callable"):
            Asked("browser")  # type: ignore[arg-type]


def _closed() -> io.StringIO:
    closed = io.StringIO()
    closed.close()
    return closed
