"""A program that forks while it has a stdio server, and prints what both sides find. Argument: the marker file."""

import os
import sys
from pathlib import Path

from snodo_client.engine.deadline import Deadline
from support.stdio_peer import Peer, eventually

marker = Path(sys.argv[1])
peer = Peer("stubborn.py", f"marker={marker}", shutdown_timeout=10)
peer.call("pids")
told, tell = os.pipe()
release, hold = os.pipe()
child = os.fork()
if child == 0:
    os.close(hold)
    peer.transport.forked()
    error = peer.call("pids")
    peer.transport.close(Deadline(5))
    os.write(tell, f"child:{error.reason}".encode())
    os.read(release, 1)  # stays alive, and must not keep the server's stdin open
    os._exit(0)
print(os.read(told, 100).decode(), flush=True)
if peer.call("pids")["server"] == peer.pid:
    print("parent:still-served", flush=True)
peer.transport.close(Deadline(10))
if eventually(marker.exists, 1):
    print("server:ended-by-itself", flush=True)
os.close(hold)
os.waitpid(child, 0)
