"""The examples that need programs which the package itself does not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from peers import Peers

ROOT = Path(__file__).parents[2]


def test_the_django_view(peers: Peers) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [str(peers.apps), "-W", "error", "examples/django_view.py"],
        cwd=ROOT,  # where the server it starts finds the package
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("200 {'sum': 42}\n", "")
