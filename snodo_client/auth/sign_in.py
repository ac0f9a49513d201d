"""The ways a person signs in: in the system's browser, by carrying addresses over at a terminal, or however a function
of the user's does it.

A way shows a person the page of the authorization server, and gives back the address the browser ended at. It knows
nothing of tokens; what the address says is judged by the flow. A way is used by one thread at a time.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Protocol

from ..engine import threads
from ..log import debug
from ..outcome import McpError
from ..protocol import origins
from .faults import failed
from .receiver import TURN_SECONDS, Receiver, out_of_time
from .redirects import CALLBACK, MAX_CALLBACK, check_redirect_uri, fault, port_of, state_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

TRIES = 3  # at the terminal

_END = b"\x04"  # Ctrl-D
_ERASE = b"\x08\x7f"

# They would take over the terminal from a thread of ours.
_TERMINAL_BROWSERS = frozenset({"www-browser", "links", "links2", "elinks", "lynx", "w3m"})


class Way(Protocol):
    """How a person signs in."""

    def redirect_uri(self, preferred: str | None) -> str:
        """Where the authorization server sends the browser back to; what has to listen there does, until `close`.
        `preferred` is the one of a registration made earlier. Raises McpError ("authorization_failed").
        """

    def sign_in(self, url: str, wait: Callable[[], float]) -> str:
        """Show the page, and give the whole URL the browser was sent back to. `wait()` gives the seconds left and is
        called several times a second; what it raises gets out. Raises McpError ("authorization_failed").
        """

    def close(self) -> None:
        """Listen no more. It may be opened again."""


class Browser:
    """The system's browser, which comes back to a port of this machine: `redirect_uri`, else a free one each time. The
    page is shown on stderr as well, for machines without a browser.
    """

    __slots__ = ("_fixed", "_receiver")

    def __init__(self, redirect_uri: str | None = None) -> None:
        if redirect_uri is not None and port_of(check_redirect_uri(redirect_uri)) is None:
            raise ValueError("redirect_uri of a browser on this machine must be http://localhost:PORT/path")
        self._fixed = redirect_uri
        self._receiver: Receiver | None = None

    def redirect_uri(self, preferred: str | None) -> str:
        self.close()
        if self._fixed is not None:
            try:
                self._receiver = Receiver(self._fixed)
            except OSError as error:
                raise failed("sign_in", f"nothing can listen at {self._fixed}: {_words(error)}") from None
            return self._fixed
        if preferred is not None and port_of(preferred) is not None:
            try:
                self._receiver = Receiver(preferred)
            except OSError as error:
                debug("auth", "the port of the last sign-in cannot be used again: %s", _words(error))
            else:
                return preferred
        try:
            self._receiver = Receiver()
        except OSError as error:
            raise failed("sign_in", f"nothing can listen on this machine: {_words(error)}") from None
        return self._receiver.uri

    def sign_in(self, url: str, wait: Callable[[], float]) -> str:
        page = _page(url)
        if self._receiver is None:
            raise RuntimeError("sign_in() comes after redirect_uri()")
        _say(f"Sign in at {page}")
        try:
            # A browser may stay in the foreground, or hang.
            threads.start("snodo-browser", _open, page)
        except McpError as error:
            debug("auth", "no browser was opened: %s", error)
        return self._receiver.receive(state_of(page), wait)

    def close(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()


class Console:
    """A person at the terminal, who opens the page in any browser and pastes the address it ended at. Nothing listens
    at the redirect URI; that the browser shows an error there does not matter.
    """

    __slots__ = ("_fixed", "_typed")

    def __init__(self, redirect_uri: str | None = None) -> None:
        self._fixed = None if redirect_uri is None else check_redirect_uri(redirect_uri)
        self._typed = bytearray()  # after the last line

    def redirect_uri(self, preferred: str | None) -> str:
        return self._fixed or preferred or CALLBACK

    def sign_in(self, url: str, wait: Callable[[], float]) -> str:
        page = _page(url)
        terminal = sys.stdin
        if terminal is None or terminal.closed or not terminal.isatty():
            raise failed(
                "sign_in",
                'there is no terminal to paste an address at: use sign_in="never" and sign in once elsewhere, '
                "a callable, or OAuth.begin()",
            )
        _say(f"Sign in at {page}\nThe browser ends at an address that may not load. Paste all of it here:")
        state = state_of(page)
        for tries in range(TRIES, 0, -1):
            address = self._line(terminal, wait)
            why = _why_not(address, state)
            if why is None:
                return address
            _say(f"This is not the address: {why}." + (" Paste the one the browser ended at:" if tries > 1 else ""))
        raise failed("sign_in", f"the address the browser ended at was not pasted in {TRIES} tries")

    def close(self) -> None:
        self._typed.clear()

    def _line(self, terminal: TextIO, wait: Callable[[], float]) -> str:
        """One line without white space and quotes around it."""
        descriptor = _descriptor(terminal)
        if descriptor is not None:
            return _bare(_erased(self._read(descriptor, wait)).decode("utf-8", "replace"))
        wait()
        line = terminal.readline(MAX_CALLBACK + 1)
        if not line:
            raise _ended()
        return _bare(line)

    def _read(self, descriptor: int, wait: Callable[[], float]) -> bytes:
        """The next line that is typed, at most a little more than `MAX_CALLBACK` of it. Python's own reading would wait
        for it without an end, also at the exit of the program.
        """
        import select
        import termios

        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        before = None
        try:
            before = termios.tcgetattr(descriptor)
            termios.tcsetattr(descriptor, termios.TCSADRAIN, _without_line_limit(before))
            while (end := self._typed.find(b"\n")) < 0:
                del self._typed[MAX_CALLBACK + 1 :]
                left = wait()
                if left <= 0.0:
                    raise out_of_time()
                if poller.poll(1000 * min(left, TURN_SECONDS)):
                    data = os.read(descriptor, 4096)
                    if not data or _END in data:
                        raise _ended()
                    self._typed += data
        except (OSError, termios.error):  # it was hung up
            raise _ended() from None
        finally:
            if before is not None:
                _restore(descriptor, before)
        line = bytes(self._typed[:end])
        del self._typed[: end + 1]
        return line


class Asked:
    """A function of the user's: it is called with the URL of the page, in the thread of the call that needs the token,
    and returns the URL the browser was sent back to. It cannot be interrupted: its time is its own.
    """

    __slots__ = ("_ask", "_redirect_uri")

    def __init__(self, ask: Callable[[str], str], redirect_uri: str | None = None) -> None:
        if not callable(ask):
            raise TypeError(f"sign_in must be callable, not {type(ask).__name__}")
        self._ask = ask
        self._redirect_uri = CALLBACK if redirect_uri is None else check_redirect_uri(redirect_uri)

    def redirect_uri(self, preferred: str | None) -> str:
        """Always the same: the function may be listening there."""
        return self._redirect_uri

    def sign_in(self, url: str, wait: Callable[[], float]) -> str:
        page = _page(url)
        wait()
        try:
            address = self._ask(page)
        except Exception as error:
            problem = type(error).__name__
        else:
            return self._checked(address, wait)
        # Not where the exception is handled: what it says may hold the address with the code.
        raise failed("sign_in", f"the callable of sign_in= raised {problem}")

    def _checked(self, address: object, wait: Callable[[], float]) -> str:
        wait()
        if not isinstance(address, str):
            raise failed("sign_in", f"the callable of sign_in= returned {type(address).__name__}, not the callback URL")
        if len(address) > MAX_CALLBACK:
            raise failed("sign_in", f"the callable of sign_in= returned more than {MAX_CALLBACK} characters")
        return address

    def close(self) -> None:
        """Nothing was opened."""


def _page(url: str) -> str:
    """The URL in ASCII, http(s) only: it goes to a terminal and to whatever opens URLs."""
    try:
        return origins.endpoint(url).url
    except ValueError as error:
        raise failed("sign_in", f"the page to sign in at cannot be opened: {error}") from None


def _say(text: str) -> None:
    """To the person, who reads stderr. Not a log: the URL is needed whole."""
    if sys.stderr is not None:
        try:
            print(text, file=sys.stderr, flush=True)
        except (OSError, ValueError) as error:  # it is closed
            debug("auth", "stderr cannot be written: %s", type(error).__name__)


def _open(page: str) -> None:
    try:
        import webbrowser

        name = getattr(webbrowser.get(), "name", "")
        if os.environ.get("BROWSER") or os.path.basename(str(name)) not in _TERMINAL_BROWSERS:
            webbrowser.open(page)
    except Exception as error:  # of any program's own controller, too; the page has been shown on stderr
        debug("auth", "no browser was opened: %s", type(error).__name__)


def _words(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _ended() -> McpError:
    return failed("sign_in", "the terminal was closed before the address was pasted")


def _why_not(address: str, state: str | None) -> str | None:
    """Why what was pasted is not the address, in words that quote nothing of it."""
    from urllib.parse import urlsplit

    if len(address) > MAX_CALLBACK:
        return f"it is longer than {MAX_CALLBACK} characters"
    try:
        parts = urlsplit(address)
    except ValueError:
        return "it is no URL"
    if not parts.scheme or not address.isprintable() or " " in address:
        return "it is no URL"
    return fault(parts.query, state)


def _bare(line: str) -> str:
    return line.strip().strip("'\"<>").strip()


def _erased(line: bytes) -> bytes:
    """The line after its erase characters; the terminal leaves them to us once its limit is lifted."""
    kept = bytearray()
    for byte in line:
        if byte in _ERASE:
            del kept[-1:]
        else:
            kept.append(byte)
    return bytes(kept)


def _descriptor(terminal: TextIO) -> int | None:
    """None for a console that a program draws: it can only be asked for a line, and not interrupted."""
    try:
        descriptor = terminal.fileno()
    except (OSError, ValueError):
        return None
    return descriptor if os.isatty(descriptor) else None


def _without_line_limit(attributes: list[Any]) -> list[Any]:
    """Attributes of a terminal that passes on what is typed at once: by the line it takes no more than 1024 bytes
    (macOS) or 4096 (Linux), and an address with a long code has more.
    """
    import termios

    *others, local, input_speed, output_speed, characters = attributes
    characters = [*characters]
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    return [*others, local & ~termios.ICANON, input_speed, output_speed, characters]


def _restore(descriptor: int, attributes: list[Any]) -> None:
    import termios

    try:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, attributes)
    except termios.error as error:
        debug("auth", "the terminal cannot be set: %s", error)
