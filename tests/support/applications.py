"""What tests of whole applications share: the environment they run in, and the servers they must not leave behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from support.alive import alive
from support.waiting import until

TESTS = Path(__file__).parents[1]
APPS = TESTS / "apps"


class Surroundings:
    """`environment` for a program in `tests/apps`. `servers()` are the process ids of all servers it has started."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self._starts = folder / "starts"
        path = os.pathsep.join(map(str, (TESTS.parent, APPS)))
        self.environment = {**os.environ, "PYTHONPATH": path, "STARTS": str(self._starts), "TOOLS_URL": url}

    def servers(self) -> list[int]:
        return [int(pid) for pid in self._starts.read_text().split()] if self._starts.exists() else []

    def running(self) -> list[int]:
        return [pid for pid in self.servers() if alive(pid)]

    @contextmanager
    def program(
        self, command: Sequence[str], *, leave: bool = False, **options: Any
    ) -> Iterator[subprocess.Popen[str]]:
        """A program of ours, which has ended by itself when the `with` does, as have all servers, unless it is to
        `leave` those of other programs.
        """
        with TemporaryFile("w+") as errors:
            with subprocess.Popen(
                command, cwd=APPS, env=self.environment, stderr=errors, text=True, **options
            ) as process:
                try:
                    yield process
                    process.wait(20)
                finally:
                    process.kill()
            errors.seek(0)
            said = errors.read()
        until(lambda: leave or not self.running())
        assert "Traceback" not in said, said
