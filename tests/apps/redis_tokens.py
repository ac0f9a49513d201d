"""The token store in Redis that docs/authorization.md shows: `python -m redis_tokens PORT USER URL [never]`.

It calls a tool, as a person who signs in where that is needed, or "never", and prints whether it was served.
"""

from __future__ import annotations

import re
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
import requests

from snodo_client import Client
from snodo_client.auth import OAuth

GUIDE = Path(__file__).parents[2] / "docs" / "authorization.md"


def person(url: str) -> str:
    return requests.get(url, allow_redirects=False, timeout=10).headers["Location"]


def shown() -> Any:
    """The class of the guide."""
    (code,) = (each for each in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S) if "RedisTokens" in each)
    names: dict[str, Any] = {"contextmanager": contextmanager, "time": time}
    exec(code, names)
    return names["RedisTokens"]


if __name__ == "__main__":
    port, user, url, *never = sys.argv[1:]
    server = redis.Redis(port=int(port), socket_timeout=5)
    oauth = OAuth(sign_in="never" if never else person, store=shown()(server, user))
    with server, Client.connect(url, auth=oauth) as client:
        print(client.call_tool("test-tool").ok)
