"""The official JSON Schema of the 2026-07-28 revision, as a judge of what a server sends."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMA = Path(__file__).parent / "schemas" / "2026-07-28.json"
RESULTS = {
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "completion/complete": "CompleteResult",
    "subscriptions/listen": "SubscriptionsListenResult",
}
ERRORS = {
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
}
NOTIFICATIONS = {
    "notifications/message": "LoggingMessageNotification",
    "notifications/progress": "ProgressNotification",
    "notifications/prompts/list_changed": "PromptListChangedNotification",
    "notifications/resources/list_changed": "ResourceListChangedNotification",
    "notifications/resources/updated": "ResourceUpdatedNotification",
    "notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification",
    "notifications/tools/list_changed": "ToolListChangedNotification",
}


@functools.cache
def _validator(definition: str) -> jsonschema.Draft202012Validator:
    schema = json.loads(SCHEMA.read_text())
    return jsonschema.Draft202012Validator({"$defs": schema["$defs"], "$ref": f"#/$defs/{definition}"})


def check(value: Any, definition: str) -> None:
    """Fail unless the value is what the definition says."""
    _validator(definition).validate(value)


def check_from_server(message: dict[str, Any], method: str) -> dict[str, Any]:
    """Fail unless a server may send this while it serves a request of this method; gives the message back."""
    if "method" in message:
        check(message, NOTIFICATIONS[message["method"]])
    elif "error" in message:
        check(message, ERRORS.get(message["error"]["code"], "JSONRPCErrorResponse"))
    else:
        check(message, "JSONRPCResultResponse")
        asks = message["result"]["resultType"] == "input_required"
        check(message["result"], "InputRequiredResult" if asks else RESULTS[method])
        assert not asks or message["result"].keys() & {"inputRequests", "requestState"}
    return message
