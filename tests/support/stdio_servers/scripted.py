"""A stdio server that does what each request says: the method names the behaviour, the parameters set it up.

Knows nothing of the library under test. Ends at the end of its input.
"""

import json
import os
import sys
import time
from pathlib import Path

held = []


def write(data):
    while data:
        data = data[os.write(1, data) :]


def reply(request, result):
    write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n")


def main():
    for line in sys.stdin.buffer:
        request = json.loads(line)
        params = request.get("params") or {}
        match request["method"]:
            case "echo":
                reply(request, params)
            case "length":
                reply(request, {"length": len(line)})
            case "silence" | "notifications/anything":
                pass
            case "drip":
                for byte in json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {}}).encode():
                    write(bytes([byte]))
                    time.sleep(params["pause"])
                write(b"\n")
            case "line_of":  # a reply of exactly so many bytes, written in pieces
                head = b'{"jsonrpc":"2.0","id":%d,"result":{"text":"' % request["id"]
                data = head + b"x" * (params["size"] - len(head) - 3) + b'"}}\n'
                for start in range(0, len(data), params["piece"]):
                    write(data[start : start + params["piece"]])
            case "raw":  # bytes as they are, and then the reply
                write(params["text"].encode("latin-1"))
                reply(request, {})
            case "raw_only":
                write(params["text"].encode("latin-1").replace(b"$ID", str(request["id"]).encode()))
                if "exit" in params:
                    os._exit(params["exit"])
            case "reverse":  # keep so many requests, then answer the last one first
                held.append(request)
                if len(held) == params["of"]:
                    while held:
                        kept = held.pop()
                        reply(kept, kept["params"])
            case "stderr":
                os.write(2, params["text"].encode("latin-1"))
                reply(request, {})
            case "stderr_flood":
                left = params["size"]
                while left:
                    left -= os.write(2, b"e" * min(left, 65_536))
                reply(request, {})
            case "exit":
                os.write(2, params.get("stderr", "").encode())
                if params.get("reply"):
                    reply(request, {"last": True})
                os._exit(params["code"])
            case "kill":
                os.kill(os.getpid(), params["signal"])
            case "close_stdout":
                os.close(1)
                time.sleep(60)
            case "close_stdin":
                os.close(0)
                reply(request, {})
                time.sleep(60)
            case "stop_reading":  # until the file is there
                reply(request, {})
                while not Path(params["until"]).exists():
                    time.sleep(0.01)
            case "surroundings":
                reply(request, {"env": dict(os.environ), "cwd": os.getcwd(), "sid": os.getsid(0), "pid": os.getpid()})


main()
