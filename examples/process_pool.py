"""Tools called from worker processes: a `ConnectSpec` is sent along with the work, and each worker connects once.

Run it with `python examples/process_pool.py`. Celery, Dask, Ray and joblib carry a spec in the same way. A client
cannot be sent: its connection belongs to the process that made it.
"""

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from snodo_client import ConnectSpec, McpError, Ok


def add(tools: ConnectSpec, number: int) -> tuple[int, str]:
    """Runs in a worker. All calls of one worker share its client, and so its server."""
    match tools.client().call_tool("add", {"a": number, "b": number}):
        case Ok(result):
            return os.getpid(), result["content"][0]["text"]
        case McpError(message=text):
            return os.getpid(), f"failed: {text}"


def main() -> None:
    tools = ConnectSpec(("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"]), timeout=20)
    for method in multiprocessing.get_all_start_methods()[:2]:
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as executor:
            results = list(executor.map(partial(add, tools), range(10)))
        print(f"{method}: {', '.join(text for _, text in results)}, by {len({pid for pid, _ in results})} processes")


if __name__ == "__main__":
    main()
