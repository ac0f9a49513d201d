"""One view: call a tool over `kind` with a client got in one `way`, and tell what came of it in which process."""

import os

from django.http import HttpRequest, JsonResponse
from shop.tools import CLIENTS, SPECS

from snodo_client import McpError


def echo(request: HttpRequest, way: str, kind: str) -> JsonResponse:
    client = SPECS[kind].client() if way == "spec" else CLIENTS[kind]
    outcome = client.call_tool("echo", {"text": request.GET["text"]})
    told = {"reason": outcome.reason} if isinstance(outcome, McpError) else outcome.unwrap()["structuredContent"]
    return JsonResponse({"worker": os.getpid(), **told})
