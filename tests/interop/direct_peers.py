"""The scenarios with a server object in the process of the client.

``python -m interop.direct_peers NAME``, with the name of one of `quirks.IN_PROCESS`, runs every one in an environment
that has the SDK and prints a line of JSON for each: its name, and the traceback when it failed.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import logging
import sys
import traceback
from pathlib import Path

from interop.legacy_scenarios import make_bench, scenarios_of
from interop.quirks import IN_PROCESS

from snodo_client import Client

SECONDS = 90  # for all scenarios of one server together


def main(name: str) -> None:
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    logging.disable(logging.CRITICAL)
    sys.path.insert(0, str(Path(__file__).parent / "servers"))
    peer = next(peer for peer in IN_PROCESS if peer.name == name)
    server = importlib.import_module(f"{peer.server}_server").make_server()
    bench = make_bench(peer, lambda **options: Client.direct(server, **options))
    for name, scenario in scenarios_of(peer).items():
        try:
            scenario(bench)
            failure = None
        except Exception:
            failure = traceback.format_exc()
        print(json.dumps({"name": name, "failure": failure}), flush=True)
    bench.close()


if __name__ == "__main__":
    main(sys.argv[1])
