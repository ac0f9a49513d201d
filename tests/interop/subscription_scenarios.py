"""What is tried with the subscriptions of other people's servers, over the public API only.

`SCENARIOS` is all of it; each gets a client of a server of its own. No pytest here: they also run in the peers' own
environment, next to a server in the same process: ``python -m interop.subscription_scenarios`` prints a line of JSON
for each, its name and the traceback when it failed.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from snodo_client import Client, McpError, Ok
from snodo_client.changes import Closed, Notification
from snodo_client.subscription import Subscription
from support.waiting import until

LISTS = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
URI = "peer://greeting"
METHODS = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
    URI: "notifications/resources/updated",
}
TIMEOUT = 2.0  # seconds, of the client
SECONDS = 90  # for all scenarios in one process together

Scenario = Callable[[Client], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def listen(client: Client, filter: Any, **options: Any) -> Subscription:
    subscription = client.listen(filter, **{"timeout": 20, **options})
    assert isinstance(subscription, Subscription), subscription
    return subscription


def use(client: Client, tool: str, **arguments: Any) -> Any:
    outcome = client.call_tool(tool, arguments, timeout=20)
    assert isinstance(outcome, Ok), outcome
    assert not outcome.is_error, outcome
    return outcome.value.get("structuredContent", {}).get("result")


def change(client: Client, *what: str) -> None:
    for each in what:
        use(client, "change", what=each)


def hear(subscription: Subscription, *what: str) -> None:
    """The changes arrive, in this order."""
    for each in what:
        event = subscription.next(20)
        assert isinstance(event, Notification), event
        assert event.method == METHODS[each]
        assert event.params["_meta"]["io.modelcontextprotocol/subscriptionId"] == subscription.id
        assert event.params.get("uri") == (each if each == URI else None)


def closed(subscription: Subscription) -> Closed:
    """How it ended; that comes last, and once."""
    event = subscription.next(20)
    assert isinstance(event, Closed), event
    assert list(subscription) == [event]
    return event


@scenario
def every_kind_of_change(client: Client) -> None:
    filter = {**LISTS, "resourceSubscriptions": [URI]}
    subscription = listen(client, filter)
    assert subscription.accepted == filter
    change(client, *METHODS)
    hear(subscription, *METHODS)
    assert subscription.next(0) is None


@scenario
def names_in_place_of_a_filter(client: Client) -> None:
    subscription = listen(client, [METHODS["tools"], METHODS["resources"]])
    assert subscription.accepted == {"toolsListChanged": True, "resourcesListChanged": True}
    change(client, "prompts", "resources")
    hear(subscription, "resources")


@scenario
def several_at_once(client: Client) -> None:
    tools, prompts = listen(client, {"toolsListChanged": True}), listen(client, {"promptsListChanged": True})
    both = listen(client, {"toolsListChanged": True, "promptsListChanged": True})
    change(client, "tools", "prompts", "tools")
    hear(both, "tools", "prompts", "tools")
    hear(tools, "tools", "tools")
    hear(prompts, "prompts")
    both.close()
    change(client, "prompts")
    hear(prompts, "prompts")
    assert [each.next(0) for each in (tools, prompts)] == [None, None]
    assert closed(both).reason == "closed"


@scenario
def nothing_of_what_was_asked_for(client: Client) -> None:
    """Some keep a subscription to nothing open, some end it at once."""
    subscription = listen(client, {"toolsListChanged": False})
    assert subscription.accepted == {}
    change(client, "tools")
    event = subscription.next(0)
    assert event is None or (isinstance(event, Closed) and event.reason == "complete"), event


@scenario
def a_part_of_what_was_asked_for(client: Client) -> None:
    """No server knows this extension, and each leaves out what it does not honour."""
    subscription = listen(client, {"toolsListChanged": True, "com.example/moons": ["Io"]})
    assert subscription.requested == {"toolsListChanged": True, "com.example/moons": ["Io"]}
    assert subscription.accepted == {"toolsListChanged": True}
    change(client, "tools")
    hear(subscription, "tools")


@scenario
def calls_go_on_meanwhile(client: Client) -> None:
    subscription = listen(client, {"toolsListChanged": True})
    for _ in range(20):
        change(client, "tools")
        assert client.list_prompts(timeout=20).ok
    hear(subscription, *["tools"] * 20)


@scenario
def it_outlives_the_timeout_of_its_client(client: Client) -> None:
    subscription = listen(client, {"toolsListChanged": True}, timeout=None)
    assert subscription.next(TIMEOUT + 0.7) is None
    change(client, "tools")
    hear(subscription, "tools")


@scenario
def a_callback(client: Client) -> None:
    heard: list[Any] = []
    subscription = listen(client, {"toolsListChanged": True}, callback=heard.append)
    change(client, "tools", "tools")
    until(lambda: len(heard) == 2)
    subscription.close()
    until(lambda: len(heard) == 3)
    assert [type(event) for event in heard] == [Notification, Notification, Closed]


@scenario
def the_server_is_told_when_it_is_closed(client: Client) -> None:
    subscriptions = [listen(client, {"toolsListChanged": True}) for _ in range(3)]
    counts = use(client, "opened") == 3
    for subscription in subscriptions:
        subscription.close()
        assert closed(subscription).reason == "closed"
    if counts:
        until(lambda: use(client, "opened") == 0)
    subscription = listen(client, {"toolsListChanged": True})
    change(client, "tools")
    hear(subscription, "tools")


@scenario
def the_server_ends_it(client: Client) -> None:
    """A server that can do so says it; one that leaves is lost."""
    subscriptions = [listen(client, {"toolsListChanged": True}) for _ in range(2)]
    change(client, "tools")
    client.call_tool("end", timeout=20)
    for subscription in subscriptions:
        hear(subscription, "tools")
        end = closed(subscription)
        exits = end.error is not None and end.error.reason == "exited"
        assert end.reason in ("complete", "cancelled") or (end.reason == "lost" and exits), end


@scenario
def closing_the_client(client: Client) -> None:
    subscriptions = [listen(client, {"toolsListChanged": True}) for _ in range(2)]
    begun = monotonic()
    client.close()
    assert [closed(each).reason for each in subscriptions] == ["closed"] * 2
    assert monotonic() - begun < 5
    refused = client.listen({"toolsListChanged": True})
    assert isinstance(refused, McpError)
    assert refused.reason == "closed"


def main() -> None:
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    logging.disable(logging.CRITICAL)
    sys.path.insert(0, str(Path(__file__).parent / "servers"))
    make_server = importlib.import_module("changes_mcp_server").make_server
    for name, run in SCENARIOS.items():
        failure = None
        try:
            with Client.direct(make_server(), timeout=TIMEOUT) as client:
                run(client)
        except Exception:
            failure = traceback.format_exc()
        print(json.dumps({"name": name, "failure": failure}), flush=True)


if __name__ == "__main__":
    main()
