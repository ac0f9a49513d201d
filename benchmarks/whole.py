"""What only whole processes show: the CPU time of an import, and of a script from its start to its exit.

Each figure is the CPU time (user and system) of a fresh interpreter and of the server it started and reaped, taken from
the operating system, never from a clock. A long-running HTTP server is not part of it.

The interpreters start without `site`, with the environment's folders on their path: a start-up hook in site-packages
(an editable install leaves one, which imports half of the standard library) would hide what an import costs.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

BARE = "import site"  # what an interpreter without hooks has loaded at its start
IMPORTS = {
    "floor": "import site, json, subprocess, threading",
    "snodo_client": "import site; from snodo_client import Client",
    "requests": "import site; from requests import Session",
    "mcp": "import site; from mcp import Client",
}

_MESSAGES = """
import json, sys
meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "floor", "version": "1.0"},
        "io.modelcontextprotocol/clientCapabilities": {}}
arguments = {"token": sys.argv[2]}
requests = [{"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
             "params": {"name": "echo", "arguments": arguments, "_meta": meta}}]
def headers(method):
    return {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
"""

# Every script connects to argv[1], calls `echo` with argv[2], prints the answer and closes. argv[3] is the interpreter
# of the stdio server, the same for all. The floors make our round trips: `server/discover`, then the call.
SCRIPTS = {
    ("floor", "stdio"): _MESSAGES
    + """
import subprocess
command = [sys.argv[3], "-S", sys.argv[1], "stdio"]
server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for request in requests:
    server.stdin.write(json.dumps(request).encode() + b"\\n")
    server.stdin.flush()
    reply = json.loads(server.stdout.readline())
print(reply["result"]["content"][0]["text"])
server.stdin.close()
server.wait()
""",
    ("floor", "json"): _MESSAGES
    + """
from http.client import HTTPConnection
from urllib.parse import urlsplit
url = urlsplit(sys.argv[1])
connection = HTTPConnection(url.hostname, url.port)
for request in requests:
    more = {"Mcp-Name": "echo"} if request["method"] == "tools/call" else {}
    connection.request("POST", url.path, json.dumps(request).encode(), headers(request["method"]) | more)
    reply = json.loads(connection.getresponse().read())
print(reply["result"]["content"][0]["text"])
connection.close()
""",
    ("requests", "json"): _MESSAGES.replace("requests =", "messages =")
    + """
import requests
with requests.Session() as session:
    for message in messages:
        more = {"Mcp-Name": "echo"} if message["method"] == "tools/call" else {}
        reply = session.post(sys.argv[1], json=message, headers=headers(message["method"]) | more).json()
print(reply["result"]["content"][0]["text"])
""",
    ("snodo_client", "stdio"): """
import sys
from snodo_client import Client
client = Client.connect(("stdio", sys.argv[3], ["-S", sys.argv[1], "stdio"]))
print(client.call_tool("echo", {"token": sys.argv[2]}).unwrap()["content"][0]["text"])
client.close()
""",
    ("snodo_client", "json"): """
import sys
from snodo_client import Client
client = Client.connect(("http", sys.argv[1]))
print(client.call_tool("echo", {"token": sys.argv[2]}).unwrap()["content"][0]["text"])
client.close()
""",
    ("mcp", "stdio"): """
import asyncio, sys
from mcp import Client, StdioServerParameters
async def main():
    async with Client(StdioServerParameters(command=sys.argv[3], args=["-S", sys.argv[1], "stdio"])) as client:
        print((await client.call_tool("echo", {"token": sys.argv[2]})).content[0].text)
asyncio.run(main())
""",
    ("mcp", "json"): """
import asyncio, sys
from mcp import Client
async def main():
    async with Client(sys.argv[1]) as client:
        print((await client.call_tool("echo", {"token": sys.argv[2]})).content[0].text)
asyncio.run(main())
""",
}


def environment() -> dict[str, str]:
    """Give the environment of every measured process: byte code may be kept, and nothing adds to its import path."""
    dropped = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONSTARTUP", "PYTHONPROFILEIMPORTTIME")
    return {name: value for name, value in os.environ.items() if name not in dropped}


@cache
def packages_of(python: str) -> dict[str, str]:
    """Give the environment in which `python -S` finds the packages that `python` does."""
    ask = "import os, sys; print(os.pathsep.join(sys.path[1:]))"
    answer = subprocess.run([python, "-c", ask], env=environment(), capture_output=True, text=True, check=True)
    return environment() | {"PYTHONPATH": answer.stdout.strip()}


class Failed(Exception):
    """A measured process ended badly or printed something else than it should have."""


def cpu_of(python: str, source: str, *arguments: str, prints: str = "") -> float:
    """Run `source` and give the CPU seconds of the process and of the children it waited for.

    The calling process must not reap another child meanwhile.
    """
    found = packages_of(python)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [python, "-S", "-c", source, *arguments],
        cwd=ROOT,  # with -c that makes the checkout importable
        env=found,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise Failed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    if done.stdout.strip() != prints:
        raise Failed(f"printed {done.stdout.strip()[:60]!r} instead of {prints!r}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def import_cost(pythons: Mapping[str, str], name: str) -> float:
    """Give the CPU seconds that the import of a contender adds to its bare interpreter; may be negative by noise."""
    python = pythons.get(name, sys.executable)
    return cpu_of(python, IMPORTS[name]) - cpu_of(python, BARE)


def script_cost(pythons: Mapping[str, str], connection: str, target: str, name: str) -> float:
    """Give the CPU seconds of a whole script: import, connect, one call, close, exit, and of the server it started."""
    python = pythons.get(name, sys.executable)
    token = f"cold-{name}"
    return cpu_of(python, SCRIPTS[name, connection], target, token, sys.executable, prints=token)
