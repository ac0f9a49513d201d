"""What is compared, and the process each of them runs in.

Every contender is a class with `call(token) -> str` (one `tools/call` whose answer carries the token back) and
`close()`. One process holds one contender, so that CPU time is that client's alone and the official SDK can run on its
own interpreter; `run.py` starts them all and lets them work in turn.

    python clients.py CONTENDER CONNECTION TARGET THREADS     CONNECTION: stdio | json | sse | late

reads one JSON command a line on stdin, `{"calls": 300, "threads": 1}`, and answers each with one JSON line,
`{"calls": made, "cpu": seconds, "wall": seconds, "latencies": [p50, p99] in seconds, "wrong": replies mixed up}`.

    python clients.py profile CONNECTION TARGET CALLS

prints where our own calls spend their time instead.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any, Protocol

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "floor", "version": "1.0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": VERSION,
    "Mcp-Method": "tools/call",
    "Mcp-Name": "echo",
}


class Contender(Protocol):
    def call(self, token: str) -> str: ...
    def close(self) -> None: ...


def request(number: int, token: str) -> dict[str, Any]:
    """Build the whole message, as a client has to."""
    params = {"name": "echo", "arguments": {"token": token}, "_meta": META}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def text_of(reply: dict[str, Any], number: int) -> str:
    """Check the id and give the echoed token."""
    if reply["id"] != number:
        raise RuntimeError(f"reply to {reply['id']} instead of {number}")
    text: str = reply["result"]["content"][0]["text"]
    return text


class PipeFloor:
    """The least a stdio call can be: encode, write, read a line, decode, compare the id. One caller at a time."""

    def __init__(self, server: str) -> None:
        import subprocess

        self.process = subprocess.Popen(
            [sys.executable, server, "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.number = 0

    def call(self, token: str) -> str:
        self.number = number = self.number + 1
        self.stdin.write(json.dumps(request(number, token)).encode() + b"\n")
        self.stdin.flush()
        return text_of(json.loads(self.stdout.readline()), number)

    def close(self) -> None:
        self.stdin.close()
        self.process.wait()
        self.stdout.close()


class SharedPipeFloor(PipeFloor):
    """The least that lets many threads have calls on one pipe: a reader thread and a lock for each waiting caller."""

    def __init__(self, server: str) -> None:
        import itertools

        super().__init__(server)
        self.numbers = itertools.count(1)
        self.writing = threading.Lock()
        self.waiting: dict[int, tuple[threading.Lock, list[dict[str, Any]]]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.stdout:
            reply = json.loads(line)
            lock, replies = self.waiting.pop(reply["id"])
            replies.append(reply)
            lock.release()

    def call(self, token: str) -> str:
        number = next(self.numbers)
        lock, replies = threading.Lock(), []  # type: ignore[var-annotated]
        lock.acquire()
        self.waiting[number] = lock, replies
        message = json.dumps(request(number, token)).encode() + b"\n"
        with self.writing:
            self.stdin.write(message)
            self.stdin.flush()
        lock.acquire()
        return text_of(replies[0], number)

    def close(self) -> None:
        self.stdin.close()
        self.process.wait()


class HttpFloor:
    """The same message and headers over http.client, one kept connection for each concurrent caller."""

    def __init__(self, url: str) -> None:
        import functools
        import http.client
        import itertools
        import urllib.parse

        parts = urllib.parse.urlsplit(url)
        self.connect = functools.partial(http.client.HTTPConnection, parts.hostname or "", parts.port)
        self.path = parts.path
        self.numbers = itertools.count(1)
        self.idle: list[http.client.HTTPConnection] = []

    def call(self, token: str) -> str:
        number = next(self.numbers)
        try:
            connection = self.idle.pop()
        except IndexError:
            connection = self.connect()
        connection.request("POST", self.path, json.dumps(request(number, token)).encode(), HEADERS)
        body = connection.getresponse().read()
        self.idle.append(connection)
        return text_of(json.loads(payload(body)), number)

    def close(self) -> None:
        for connection in self.idle:
            connection.close()


def payload(body: bytes) -> bytes:
    """Give the JSON of a body, which is either JSON itself or one server-sent event."""
    return body if body.startswith(b"{") else body.partition(b"data: ")[2]


class Requests:
    """Bare `requests`, as a script without an MCP library would use it: one Session, `post`, only the id checked."""

    def __init__(self, url: str, threads: int) -> None:
        import itertools

        import requests
        from requests.adapters import HTTPAdapter

        self.url = url
        self.session = requests.Session()
        if threads > 1:  # its default of 10 kept connections would make it reconnect
            self.session.mount("http://", HTTPAdapter(pool_maxsize=threads))
        self.numbers = itertools.count(1)

    def call(self, token: str) -> str:
        number = next(self.numbers)
        response = self.session.post(self.url, json=request(number, token), headers=HEADERS)
        return text_of(json.loads(payload(response.content)), number)

    def close(self) -> None:
        self.session.close()


class Snodo:
    """This library, as its README says."""

    def __init__(self, connection: str, target: str, threads: int) -> None:
        from snodo_client import Client

        if connection == "stdio":
            self.client = Client.connect(("stdio", sys.executable, [target, "stdio"]))
        elif threads > 1:
            self.client = Client.connect(("http", target), pool_size=threads)
        else:
            self.client = Client.connect(("http", target))

    def call(self, token: str) -> str:
        text: str = self.client.call_tool("echo", {"token": token}).unwrap()["content"][0]["text"]
        return text

    def close(self) -> None:
        self.client.close()


class Mcp:
    """The official SDK from blocking code: its event loop on a thread of its own, every call handed over to it."""

    def __init__(self, connection: str, target: str) -> None:
        import asyncio

        from mcp import Client, StdioServerParameters  # type: ignore[import-not-found,unused-ignore]

        self.submit = asyncio.run_coroutine_threadsafe
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.over = asyncio.Event()
        server = target
        if connection == "stdio":
            server = StdioServerParameters(command=sys.executable, args=[target, "stdio"])
        connected = threading.Event()

        async def hold() -> None:
            try:
                async with Client(server) as self.client:
                    connected.set()
                    await self.over.wait()
            finally:
                connected.set()

        self.held = self.submit(hold(), self.loop)
        connected.wait()
        if self.held.done():
            self.held.result()

    def call(self, token: str) -> str:
        result = self.submit(self.client.call_tool("echo", {"token": token}), self.loop).result()
        text: str = result.content[0].text
        return text

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.over.set)
        self.held.result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()


def make(contender: str, connection: str, target: str, threads: int) -> Contender:
    """Connect a contender. `threads` is how many will call it at once; more than one asks for what that needs."""
    if contender == "snodo_client":
        return Snodo(connection, target, threads)
    if contender == "mcp":
        return Mcp(connection, target)
    if contender == "requests":
        return Requests(target, threads)
    if connection != "stdio":
        return HttpFloor(target)
    return PipeFloor(target) if threads == 1 else SharedPipeFloor(target)


def measure(contender: Contender, calls: int, threads: int, turn: int) -> dict[str, Any]:
    """Make `calls` calls in all, from `threads` threads at once."""
    latencies: list[float] = []
    wrong: list[str] = []
    failures: list[str] = []

    def work(thread: int, count: int) -> None:
        try:
            for number in range(count):
                token = f"{turn}.{thread}.{number}"
                began = time.perf_counter()
                echoed = contender.call(token)
                latencies.append(time.perf_counter() - began)
                if echoed != token:
                    wrong.append(echoed)
        except Exception as error:  # reported to the process that compares: it leaves the column out and says why
            failures.append(f"{type(error).__name__}: {error}")

    def wait_and_work(thread: int, count: int) -> None:
        start.wait()
        work(thread, count)

    if threads == 1:
        cpu, wall = time.process_time(), time.perf_counter()
        work(0, calls)
    else:
        start = threading.Barrier(threads + 1)
        workers = [threading.Thread(target=wait_and_work, args=(n, calls // threads)) for n in range(threads)]
        for worker in workers:
            worker.start()
        cpu, wall = time.process_time(), time.perf_counter()
        start.wait()
        for worker in workers:
            worker.join()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    if failures:
        return {"error": failures[0]}
    ordered = sorted(latencies)
    ends = [ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]]
    return {"calls": len(ordered), "cpu": cpu, "wall": wall, "latencies": ends, "wrong": len(wrong)}


def profile(connection: str, target: str, calls: int) -> None:
    """Print where `calls` calls of ours spend their CPU time (a wait costs none), every thread counted."""
    import cProfile
    import pstats

    unwatched = make("snodo_client", connection, target, 1)
    measure(unwatched, calls // 10, 1, 0)
    plain = measure(unwatched, calls, 1, 1)
    unwatched.close()

    profiles: list[cProfile.Profile] = []

    def watch(*_: object) -> None:
        profiles.append(cProfile.Profile(time.thread_time))
        profiles[-1].enable()

    # The reader thread of stdio; over HTTP the caller reads. From Python 3.12 on one profiler sees all threads anyway.
    if connection == "stdio" and sys.version_info < (3, 12):
        threading.setprofile(watch)
    contender = make("snodo_client", connection, target, 1)
    own = cProfile.Profile(time.thread_time)
    thread, process = time.thread_time(), time.process_time()
    own.enable()
    measure(contender, calls, 1, 2)
    own.disable()
    thread, process = time.thread_time() - thread, time.process_time() - process
    contender.close()
    print(f"{calls} calls: {plain['cpu'] / calls * 1e6:.0f} us of CPU each without a profiler.")
    print(f"With it, {thread / process:.0%} of the CPU was the calling thread's.")
    stats = pstats.Stats(own)
    for other in profiles:
        stats.add(other)
    stats.sort_stats("tottime").print_stats(30)


def main() -> None:
    # The checkout goes first, so that what stands there is measured and not an installed copy.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    name, connection, target, count = sys.argv[1:]
    if name == "profile":
        profile(connection, target, int(count))
        return
    try:
        contender = make(name, connection, target, int(count))
    except Exception as error:  # the same boundary as above: nothing here may stop the other contenders
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        return
    print(json.dumps({"ready": True}), flush=True)
    for turn, line in enumerate(sys.stdin):
        print(json.dumps(measure(contender, turn=turn, **json.loads(line))), flush=True)
    contender.close()


if __name__ == "__main__":
    main()
