"""The main job, on the built-in demo server, over every connection: in process, as a subprocess, over Streamable HTTP,
HTTP+SSE and WebSocket.

Run it with `python examples/quickstart.py`. Everything it needs comes with the package; WebSocket with its extra
`websocket`.
"""

import sys

from snodo_client import Client, InputRequest, McpError, Ok, Progress
from snodo_client.testing.demo import demo_server


def show_progress(step: Progress) -> None:
    print(f"    ... {step.progress}/{step.total} {step.message}")


def confirm(asked: InputRequest) -> dict[str, object]:
    print(f"  asked       {asked.message!r}; answering yes")
    return {"action": "accept", "content": {"confirm": True}}


def tour(client: Client) -> None:
    info = client.protocol_info
    print(f"  speaks      {info['version']}: {info['why']}")

    tools = client.list_tools().unwrap()
    print(f"  listed      {len(tools)} tools: {', '.join(tool['name'] for tool in tools)}")

    match client.call_tool("add", {"a": 19, "b": 23}):
        case Ok(result):
            print(f"  called      add(19, 23) = {result['content'][0]['text']}")
        case McpError(message=text):
            print(f"  called      add failed: {text}")

    result = client.call_tool("count", {"steps": 3}, progress=show_progress).unwrap()
    print(f"  streamed    {result['content'][0]['text']}")

    result = client.call_tool("deploy").unwrap()  # it asks back, and the handler answers
    print(f"              {result['content'][0]['text']}")

    running = client.start_tool_call("sleep", {"seconds": 30})
    report = running.cancel()
    print(f"  cancelled   a call that ran: {report.local} here, the request was {report.request_delivery}")

    if info["era"] == "modern":  # an older server tells on_notification= unasked
        with client.listen(["notifications/tools/list_changed"]).unwrap() as changes:
            client.call_tool("install", {"name": f"tool{len(tools) + 1}"}).unwrap()
            print(f"  told        {changes.next(timeout=10)!r:.65}...")

    match client.call_tool("no_such_tool"):
        case McpError(code=code, message=text):
            print(f"  an error    {code}: {text}")


def main() -> None:
    server = demo_server()
    handlers = {"form": confirm}  # says that this program can be asked to fill in a form, and who does it

    print("in process")
    with Client.direct(server, handlers=handlers) as client:
        tour(client)

    print("stdio: a subprocess")
    with Client.connect(
        ("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio"]), handlers=handlers
    ) as client:
        tour(client)

    with server.serve_http() as serving:
        print(f"Streamable HTTP: {serving.url}")
        with Client.connect(serving.url, handlers=handlers) as client:
            tour(client)
        print("Streamable HTTP, as a client of last year")
        with Client.connect(serving.url, protocol="2025-11-25", handlers=handlers) as client:
            tour(client)

    with server.serve_sse() as sse:
        print(f"HTTP+SSE: {sse.url}")
        with Client.connect(("sse", sse.url), handlers=handlers) as client:
            tour(client)

    try:
        websocket = server.serve_websocket()
    except ImportError as error:
        print(f"WebSocket: {error}")
        return
    with websocket:
        print(f"WebSocket: {websocket.url}")
        with Client.connect(("websocket", websocket.url), handlers=handlers) as client:
            tour(client)


if __name__ == "__main__":
    main()
