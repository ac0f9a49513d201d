"""Work handed to other processes, forked and spawned, with a spec, and with a client made at the top of a module."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from snodo_client import Client
from support.alive import alive
from support.applications import Surroundings
from support.http_calls import VERSION
from support.waiting import until

METHODS = [method for method in ("fork", "spawn") if method in multiprocessing.get_all_start_methods()]
STUBBORN = str(Path(__file__).parents[1] / "support" / "stdio_servers" / "stubborn.py")
WAYS = ("argument", "module's spec", "module's client")


@pytest.mark.parametrize("method", METHODS)
def test_worker_processes(method: str, tmp_path: Path) -> None:
    around = Surroundings(tmp_path)
    with around.program([sys.executable, "-m", "pools.run", method], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        printed = program.stdout.read()
    found: dict[str, Any] = json.loads(printed)
    texts = [f"text {number}" for number in range(24)]
    for place in ("in_a_pool", "in_an_executor"):
        for way in WAYS:
            told = found[place][way]
            assert [each["text"] for each in told] == texts
            assert_right(method, way, told)
            pairs = {(each["worker"], each["server"]) for each in told}
            assert len(pairs) == len({worker for worker, _ in pairs}), "a worker has one server, and keeps it"
    assert found["in_a_pool"]["shared"] == [True] * len(texts)

    busy = found["while_a_call_runs"]
    assert busy["wrong"] == []
    assert busy["calls"] > 0
    for way in WAYS:
        for place, expected in ((busy, texts[:3]), (found["in_a_progress_callback"], ["child"])):
            assert [told["text"] for told, _ in place[way]] == expected
            assert [code for _, code in place[way]] == [0] * len(expected)
            assert_right(method, way, [told for told, _ in place[way]])
    assert found["in_a_progress_callback"]["counted"] == 3
    assert len(around.servers()) == len(set(around.servers()))


def assert_right(method: str, way: str, told: list[dict[str, Any]]) -> None:
    if method == "fork" and way == "module's client":
        assert {each["reason"] for each in told} == {"forked"}
        return
    assert {each["reason"] for each in told} == {None}
    by_server = {each["server"]: each["worker"] for each in told}
    assert all(by_server[each["server"]] == each["worker"] for each in told), "two workers share a server"


@pytest.mark.parametrize("method", METHODS)
def test_the_end_of_a_worker_ends_a_server_that_ignores_the_end_of_its_input(method: str) -> None:
    """Such a process may end without exit handlers."""
    context: Any = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=leave_open, args=(queue,))
    process.start()
    pid = queue.get()
    try:
        process.join(20)
        assert process.exitcode == 0
        until(lambda: not alive(pid), 3)
    finally:
        process.kill()


def leave_open(queue: Any) -> None:
    target = ("stdio", sys.executable, ["-I", "-S", STUBBORN, "no-eof", "no-term"])
    client = Client.connect(target, protocol=VERSION, shutdown_timeout=0.4)
    _kept.append(client)
    queue.put(client.request("tools/list").unwrap()["server"])


_kept: list[Client] = []
