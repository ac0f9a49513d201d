"""Several servers out of one configuration file: their tools in one list for a model, calls by the names in it, and
what becomes of a server that is not there.

Run it with `python examples/many_servers.py`. Everything it needs comes with the package.
"""

import os
import sys
from pathlib import Path

from snodo_client import McpError, Ok
from snodo_client.clients import Clients
from snodo_client.testing.demo import demo_server

CONFIG = Path(__file__).with_suffix(".json")


def main() -> None:
    with demo_server().serve_http() as serving:
        # What the file takes from the environment: here from this program, where all of it is at hand.
        env = {**os.environ, "PYTHON": sys.executable, "WEB_URL": serving.url, "WEB_TOKEN": "not-so-secret"}
        with Clients.from_config(CONFIG, env=env, timeout=20) as clients:
            print(f"configured  {', '.join(clients)}; nothing is connected yet")

            gathered = clients.list_tools(timeout=15)
            print(f"listed      {len(gathered.tools)} tools, such as {gathered.tools[0]['name']}")
            for name, error in gathered.errors.items():
                print(f"failed      {name}: {error.reason}")

            for tool in ("local__add", "web__add"):
                match clients.call_tool(tool, {"a": 19, "b": 23}):
                    case Ok(result):
                        print(f"called      {tool}(19, 23) = {result['content'][0]['text']}")
                    case McpError(message=text):
                        print(f"called      {tool} failed: {text}")

            print(f"one client  {clients['web'].server_info}")

            for name, health in clients.health().items():
                print(f"health      {name}: {health['status']}, {health['version']}")


if __name__ == "__main__":
    main()
