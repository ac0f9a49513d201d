"""The tools of this shop: what is made here is made once, when the module is imported, and used in every request."""

import os
import sys
from pathlib import Path

from snodo_client import ConnectSpec

SERVER = str(Path(__file__).parents[1] / "tool_server.py")
ENVIRONMENT = {"STARTS": os.environ["STARTS"], "PYTHONPATH": os.environ["PYTHONPATH"]}

SPECS = {
    "stdio": ConnectSpec(("stdio", sys.executable, [SERVER]), env=ENVIRONMENT, timeout=15.0),
    "http": ConnectSpec(os.environ["TOOLS_URL"], timeout=15.0),
}

# What people do who have not heard of ConnectSpec. With --preload these are made before the workers are forked.
CLIENTS = {kind: spec.connect() for kind, spec in SPECS.items()}
