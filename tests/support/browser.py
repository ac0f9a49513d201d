"""Two browsers that a test can sit in front of: Chromium without a window, and one that only knows pages and forms.

Both open addresses, follow redirects, keep cookies and submit forms. Chromium is whatever the machine has; nothing
here installs it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
from contextlib import ExitStack, suppress
from html.parser import HTMLParser
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urljoin

import requests
from websockets.sync.client import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = 20.0  # for a page, and for the start
END_SECONDS = 5.0


class Browser(Protocol):
    """One tab: `url` is the address of its page, `text` what can be read there, `fields()` are the names of inputs."""

    @property
    def url(self) -> str: ...

    @property
    def text(self) -> str: ...

    def open(self, url: str) -> None:
        """Show the page of an address, after all redirects."""

    def fields(self) -> set[str]: ...

    def submit(self, values: dict[str, str], button: str = "") -> None:
        """Fill in the form that has a field of each name and press its button of this name, the first without one."""

    def forget(self) -> None:
        """Drop all cookies."""


class FormBrowser:
    """A browser without scripts and pictures. `text` is the text of the whole page."""

    def __init__(self) -> None:
        self._session = requests.Session()
        self._session.trust_env = False
        self._page = Page()
        self.url = "about:blank"

    def open(self, url: str) -> None:
        self._show(self._session.get(url, timeout=SECONDS))

    @property
    def text(self) -> str:
        return " ".join("".join(self._page.text).split())

    def fields(self) -> set[str]:
        return {name for form in self._page.forms for name in (*form.values, *form.buttons)}

    def submit(self, values: dict[str, str], button: str = "") -> None:
        wanted = {*values, *filter(None, [button])}
        form = next(form for form in self._page.forms if wanted <= {*form.values, *form.buttons})
        pressed = {button: form.buttons[button]} if button else {}
        url = urljoin(self.url, form.action)
        body = {**form.values, **values, **pressed}
        # Django compares where the form came from with the host it was sent to.
        self._show(self._session.post(url, data=body, headers={"Referer": self.url}, timeout=SECONDS))

    def forget(self) -> None:
        self._session.cookies.clear()

    def _show(self, response: requests.Response) -> None:
        self._page = Page()
        self._page.feed(response.text)
        self.url = response.url


class Form:
    """A form of a page: where it is sent, the values of its fields, and the names and values of its buttons."""

    def __init__(self, action: str) -> None:
        self.action = action
        self.values: dict[str, str] = {}
        self.buttons: dict[str, str] = {}


class Page(HTMLParser):
    """The text and the forms of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.text: list[str] = []
        self._unread = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self._unread = self._unread or tag in ("script", "style")
        if tag == "form":
            self.forms.append(Form(found.get("action", "")))
        elif tag in ("input", "button") and "name" in found and self.forms:
            form = self.forms[-1]
            pressed = tag == "button" or found.get("type") == "submit"
            (form.buttons if pressed else form.values)[found["name"]] = found.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        self._unread = self._unread and tag not in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._unread:
            self.text.append(data)


def find_chromium() -> str | None:
    """The program, or None where the machine has none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Chromium:
    """Chromium, driven through its DevTools protocol. Everything it keeps is in `folder`; it ends with the `with`."""

    def __init__(self, program: str, folder: Path) -> None:
        self._command = [
            program,
            "--headless=new",
            "--no-sandbox",  # Chromium refuses to run as root with it, and containers often forbid it
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--no-proxy-server",
            # No page needs more than this machine.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
            "--window-size=800,600",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            "about:blank",
        ]
        self._connected = ExitStack()
        self._events: list[dict[str, Any]] = []
        self._sent = 0

    def __enter__(self) -> Chromium:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            connected = connect(self._devtools(), max_size=None, proxy=None, compression=None)
            self._connection = self._connected.enter_context(connected)
            self._session = ""
            target = self._ask("Target.createTarget", url="about:blank")["targetId"]
            self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self._ask("Page.enable")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._session = ""
        with suppress(Exception):
            self._ask("Browser.close")  # it then ends all its processes by itself
            self._process.wait(END_SECONDS)
        self._end()

    @property
    def url(self) -> str:
        return str(self._run("location.href"))

    @property
    def text(self) -> str:
        return " ".join(str(self._run("document.body.innerText")).split())

    def open(self, url: str) -> None:
        self._loading(lambda: self._ask("Page.navigate", url=url))

    def fields(self) -> set[str]:
        return set(self._run("[...document.querySelectorAll('form [name]')].map(e => e.name)"))

    def submit(self, values: dict[str, str], button: str = "") -> None:
        names = [*values, *filter(None, [button])]
        forms = f"[...document.forms].find(f => {json.dumps(names)}.every(n => f.elements[n]))"
        for name, value in values.items():
            self._run(f"{forms}.elements[{json.dumps(name)}].focus()")
            self._ask("Input.insertText", text=value)
        pressed = f"elements[{json.dumps(button)}]" if button else "querySelector('[type=submit]')"
        self._loading(lambda: self._run(f"{forms}.{pressed}.click()"))

    def forget(self) -> None:
        self._ask("Storage.clearCookies")

    def screenshot(self, file: Path) -> None:
        """Keep the page as a picture (PNG)."""
        file.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))

    def _run(self, script: str) -> Any:
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def _loading(self, action: Callable[[], object]) -> None:
        """Do something that ends with another page."""
        self._events.clear()
        action()
        end = monotonic() + SECONDS
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._receive(end)

    def _ask(self, method: str, **parameters: object) -> dict[str, Any]:
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters}
        self._connection.send(json.dumps({**message, "sessionId": self._session} if self._session else message))
        end = monotonic() + SECONDS
        while (answer := self._receive(end)).get("id") != self._sent:
            pass
        assert "error" not in answer, f"{method}: {answer['error']}"
        return dict(answer["result"])

    def _receive(self, end: float) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._connection.recv(max(0.0, end - monotonic())))
        if "method" in message:
            self._events.append(message)
        return message

    def _devtools(self) -> str:
        for line in self._lines():
            if found := re.search(r"DevTools listening on (ws://\S+)", line):
                return found[1]
        raise AssertionError("Chromium ended without a line about its DevTools")

    def _lines(self) -> Iterator[str]:
        """What it writes to stderr, as long as it still may take to start."""
        assert self._process.stderr is not None
        end = monotonic() + SECONDS
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stderr, selectors.EVENT_READ)
            while True:
                assert selector.select(max(0.0, end - monotonic())), f"Chromium did not start within {SECONDS} s"
                if not (piece := os.read(self._process.stderr.fileno(), 4096)):
                    return
                *lines, rest = (rest + piece).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)

    def _end(self) -> None:
        with self._process, self._connected:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_SECONDS)
