"""A person's machine: programs that use the library, each a process of its own, and the browser that they open.

What the programs store is in a home folder. Whenever one has an address opened, the person signs in there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.waiting import until

if TYPE_CHECKING:
    from support.browser import Browser

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "clients" / "protected_client.py"
NAME, PASSWORD = "ada", "correct horse battery staple"
SECONDS = 40.0  # for a program, with everything the person does meanwhile


class Told:
    """What a program printed, as JSON, and the addresses it had opened in the browser meanwhile."""

    def __init__(self, printed: str, said: str, visited: list[str]) -> None:
        self.visited = visited
        self.said = said
        self._printed: dict[str, Any] = json.loads(printed) if printed.startswith("{") else {"printed": printed}

    @property
    def caller(self) -> dict[str, Any]:
        """Whom the server took the program for."""
        assert "caller" in self._printed, f"{self._printed}\n{self.said}"
        return dict(self._printed["caller"])

    @property
    def error(self) -> str:
        """The text of the error that the program got, instead."""
        assert "error" in self._printed, f"{self._printed}\n{self.said}"
        return str(self._printed["error"])


class Laptop:
    """A person's own machine: a home folder, programs, and a browser that these open."""

    def __init__(self, home: Path, browser: Browser) -> None:
        self.browser = browser
        self.allows = True  # the person, when asked whether the program may
        opener = home / "browser"
        opener.write_text('#!/bin/sh\nprintf %s "$1" > "$0.new" && mv "$0.new" "$0.url"\n')
        opener.chmod(0o700)
        self._opened = opener.with_suffix(".url")
        folders = {name: str(home) for name in ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")}
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        self._environment = {**os.environ, **folders, "PYTHONPATH": path, "BROWSER": str(opener)}

    def call(self, url: str, **options: object) -> Told:
        """Have a program call the tool, with options of `OAuth`."""
        return self.run(str(PROGRAM), url, json.dumps(options))

    def run(self, *arguments: str) -> Told:
        """Run a Python program to its end, and sign in whenever it asks for that."""
        pipe = subprocess.PIPE
        command = [sys.executable, "-W", "error", *arguments]
        visited = []
        with subprocess.Popen(
            command, env=self._environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        ) as process:
            try:
                while process.poll() is None:
                    until(lambda: process.poll() is not None or self._opened.exists(), SECONDS)
                    if self._opened.exists():
                        visited.append(self._opened.read_text())
                        self._opened.unlink()
                        self.sign_in(visited[-1])
                printed, said = process.communicate(timeout=SECONDS)
            finally:
                process.kill()
        assert "Traceback" not in said, said
        return Told(printed, said, visited)

    def sign_in(self, url: str) -> None:
        """Do what the pages ask for, until they ask for nothing."""
        self.browser.open(url)
        for _ in range(5):
            fields = self.browser.fields()
            if "password" in fields:
                self.browser.submit({"username" if "username" in fields else "login": NAME, "password": PASSWORD})
            elif "allow" in fields:
                self.browser.submit({}, "allow" if self.allows else "")
            elif "prompt" in fields:
                self.browser.submit({})
            else:
                return
        raise AssertionError(f"{self.browser.url} still asks: {self.browser.text}")
