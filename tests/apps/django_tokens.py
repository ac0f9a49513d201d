"""The token store of examples/django_sign_in.py without its site: `python -m django_tokens URL 0 WHAT`.

WHAT is one of the functions below, whose result is printed as JSON. The example reads URL too.
"""

from __future__ import annotations

import json
import sys
from threading import Thread
from typing import Any

import django_sign_in as site
import requests
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.db.backends.signals import connection_created

from snodo_client import Client, McpError
from snodo_client.auth import OAuth


def person(url: str) -> str:
    return requests.get(url, allow_redirects=False, timeout=10).headers["Location"]


def called(user: User, sign_in: Any = "never") -> bool:
    with Client.connect(site.URL, auth=OAuth(sign_in=sign_in, store=site.UserTokens(user))) as client:
        return client.call_tool("whoami").ok


def in_threads(job: Any, count: int = 6) -> list[Any]:
    """What the job gives in each, with connections closed as at the end of a request."""
    told: list[Any] = []

    def run() -> None:
        try:
            told.append(job())
        finally:
            connection.close()

    threads = [Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    return told


def at_once(user: User) -> list[bool]:
    """Calls of many requests whose token the server does not take any more."""
    called(user, person)
    row = site.McpToken.objects.get(user=user, key__startswith="token ")
    row.value = json.dumps({**json.loads(row.value), "access_token": "revoked"})
    row.save()
    return in_threads(lambda: called(user))


def held(user: User) -> dict[str, Any]:
    waits: list[float] = []

    def wait() -> float:
        waits.append(0.0)
        return 3.0 - len(waits)

    try:
        with site.UserTokens(user).lock("key", wait), site.UserTokens(user).lock("key", wait):
            ended = "both inside"
    except TimeoutError:
        ended = "TimeoutError"
    with site.UserTokens(user).lock("key", wait):  # it was given back
        return {"waited": len(waits), "ended": ended}


def inside_of_a_transaction(user: User) -> list[str]:
    try:
        with transaction.atomic():
            called(user, person)
    except McpError as error:
        return [str(error.reason), error.data["step"]]
    return []


def connections(user: User) -> dict[str, int]:
    """Those of threads that use the store of a request that another thread serves."""
    opened: list[Any] = []
    left: list[Any] = []
    connection_created.connect(lambda connection, **_: opened.append(connection), weak=False)
    store = site.UserTokens(user)

    def use() -> None:
        store.get("key")
        left.extend([connection] if connection.connection is not None else [])

    in_threads(use)
    return {"opened": len(opened), "left": len(left)}


if __name__ == "__main__":
    with site.FOLDER:
        call_command("migrate", verbosity=0)
        with connection.schema_editor() as editor:
            editor.create_model(site.McpToken)
        print(json.dumps(globals()[sys.argv[3]](User.objects.create(username="ada"))))
        connection.close()
