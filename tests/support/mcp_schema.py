"""The official JSON Schemas, as judges of what is sent: for what servers send the one of the 2026-07-28 revision, for
what clients send those of all revisions.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema

VERSION = "2026-07-28"
SCHEMAS = Path(__file__).parent / "schemas"
SCHEMA = SCHEMAS / f"{VERSION}.json"
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
def _validator(definition: str, version: str) -> Any:
    schema = json.loads((SCHEMAS / f"{version}.json").read_text())
    where = "$defs" if "$defs" in schema else "definitions"
    judge = jsonschema.validators.validator_for(schema)
    return judge({where: schema[where], "$ref": f"#/{where}/{definition}"})


def check(value: Any, definition: str, version: str = VERSION) -> None:
    """Fail unless the value is what the definition of the revision says."""
    _validator(definition, version).validate(value)


def check_from_client(message: dict[str, Any], version: str) -> None:
    """Fail unless a client of the revision may send this."""
    if "method" in message:
        kind = "Request" if "id" in message else "Notification"
        check(message, f"JSONRPC{kind}", version)
        check(message, f"Client{kind}", version)
    else:
        renamed = version >= "2025-11-25"
        if "error" in message:
            check(message, "JSONRPCErrorResponse" if renamed else "JSONRPCError", version)
        else:
            check(message, "JSONRPCResultResponse" if renamed else "JSONRPCResponse", version)
            check(message["result"], "ClientResult", version)


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
