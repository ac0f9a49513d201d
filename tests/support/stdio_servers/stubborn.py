"""A stdio server that does not go away as it should, or leaves others behind. It answers every request with its pids.

Flags: `no-eof` stays after the end of its input, `no-term` ignores SIGTERM, `marker=FILE` writes the file when it ends
by itself. `child` starts another process in its group (`child-no-term` one that ignores SIGTERM), `daemon` one in a
session of its own. With `holds-stdout` that process keeps stdout and stderr open; without, it closes them.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

flags = {flag.partition("=")[0]: flag.partition("=")[2] for flag in sys.argv[1:]}
pids = {"server": os.getpid()}

if "no-term" in flags:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

if flags.keys() & {"child", "child-no-term", "daemon"}:
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        if "child-no-term" in flags:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if "daemon" in flags:
            os.setsid()
        os.close(0)
        if "holds-stdout" not in flags:
            os.close(1)
            os.close(2)
        os.write(told, b".")
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    pids["other"] = pid

for line in sys.stdin.buffer:
    request = json.loads(line)
    os.write(1, json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": pids}).encode() + b"\n")
    if request["method"] == "leave":
        os._exit(3)

if "no-eof" in flags:
    while True:
        time.sleep(60)
if "marker" in flags:
    Path(flags["marker"]).write_text("ended by itself")
