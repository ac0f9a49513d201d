"""The main job, on the built-in demo server, over every connection: in process, as a subprocess, and over HTTP.

Run it with `python examples/quickstart.py`. Everything it needs comes with the package.
"""

import sys

from snodo_client import Client, InputRequired, McpError, Ok, Progress
from snodo_client.testing.demo import demo_server


def show_progress(step: Progress) -> None:
    print(f"    ... {step.progress}/{step.total} {step.message}")


def tour(client: Client) -> None:
    match client.discover():
        case Ok(found):
            print(f"  discovered  {', '.join(found['supportedVersions'])}: {found['instructions']}")

    tools = client.list_tools().unwrap()
    print(f"  listed      {len(tools)} tools: {', '.join(tool['name'] for tool in tools)}")

    match client.call_tool("add", {"a": 19, "b": 23}):
        case Ok(result):
            print(f"  called      add(19, 23) = {result['structuredContent']}")
        case McpError(message=text):
            print(f"  called      add failed: {text}")

    result = client.call_tool("count", {"steps": 3}, progress=show_progress).unwrap()
    print(f"  streamed    {result['content'][0]['text']}")

    outcome = client.call_tool("deploy")
    if isinstance(outcome, InputRequired):
        question = outcome.requests["confirm"]["params"]["message"]
        print(f"  asked back  {question!r}; answering yes")
        answers = {"confirm": {"action": "accept", "content": {"confirm": True}}}
        outcome = client.call_tool("deploy", input_responses=answers, request_state=outcome.request_state)
    print(f"              {outcome.unwrap()['content'][0]['text']}")

    match client.call_tool("no_such_tool"):
        case McpError(code=code, message=text):
            print(f"  an error    {code}: {text}")


def main() -> None:
    asks = ["elicitation"]  # what this program can be asked for

    print("in process")
    with Client.direct(demo_server(), client_capabilities=asks) as client:
        tour(client)

    print("stdio: a subprocess")
    command = ("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"])
    with Client.connect(command, client_capabilities=asks) as client:
        tour(client)

    with demo_server().serve_http() as serving:
        print(f"Streamable HTTP: {serving.url}")
        with Client.connect(serving.url, client_capabilities=asks) as client:
            tour(client)


if __name__ == "__main__":
    main()
