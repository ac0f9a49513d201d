"""A Celery worker with forked processes, whose broker is a folder: specs, a client of no use, limits, the end."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from peers import Peers
from support.applications import Surroundings
from support.http_calls import Took
from support.waiting import until


def test_a_worker_and_its_end(peers: Peers, tmp_path: Path) -> None:
    around = Surroundings(tmp_path)
    around.environment["C_FORCE_ROOT"] = "1"  # Celery takes no pickles as root; these are our own
    python = str(peers.apps)
    worker_command = [python, "-m", "celery", "-A", "chores.tasks", "worker", "--pool", "prefork", "--concurrency", "2"]
    worker_command += ["--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    with around.program(worker_command, stdout=subprocess.DEVNULL) as worker:
        with around.program([python, "-m", "chores.ask", "all"], stdout=subprocess.PIPE, leave=True) as ask:
            found: dict[str, Any] = json.load(ask.stdout)
        texts = [f"text {number}" for number in range(20)]
        served: dict[int, set[int]] = {}
        for name, told in found.items():
            expected = texts[: len(told)]
            assert [each["text"] for each in told] == expected, name
            if name == "module's client":
                assert {each["reason"] for each in told} == {"forked"}
                continue
            assert {each["reason"] for each in told} == {None}, name
            for each in told:
                served.setdefault(each["worker"], set()).add(each["server"])
        assert len(served) == 2
        assert sorted(map(len, served.values())) == [1, 1], "each worker has one server, and keeps it"
        assert len(set.union(*served.values())) == 2, "and shares it with nobody"
        assert len(around.running()) == 3

        with around.program([python, "-m", "chores.ask", "last"], stdout=subprocess.PIPE, leave=True) as ask:
            until((tmp_path / "last").exists)
            worker.terminate()
            assert json.load(ask.stdout) == "waited"
        with Took() as took:
            assert worker.wait(20) == 0
        assert took.seconds < 5
