"""A program with two stdio servers that ends without closing them. Arguments: a file for each, written when it ends."""

import sys

from support.stdio_peer import Peer

peers = [Peer("stubborn.py", f"marker={marker}") for marker in sys.argv[1:]]
for peer in peers:
    peer.call("pids")
print("ready", flush=True)
sys.stdin.read()
