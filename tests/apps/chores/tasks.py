"""A Celery application: its broker is a folder, its tasks call tools. The workers are forked after this is imported."""

import os
import sys
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded

from snodo_client import ConnectSpec, McpError

FOLDER = Path(os.environ["STARTS"]).parent
SERVER = str(Path(__file__).parents[1] / "tool_server.py")
TOOLS = ConnectSpec(
    ("stdio", sys.executable, [SERVER]),
    env={"STARTS": os.environ["STARTS"], "PYTHONPATH": os.environ["PYTHONPATH"]},
    timeout=15.0,
)
CLIENT = TOOLS.connect() if "worker" in sys.argv else None  # of no use in the workers, and does no harm

app = Celery("chores")
app.conf.update(
    broker_url="filesystem://",
    broker_transport_options={
        "data_folder_in": str(FOLDER / "queue"),
        "data_folder_out": str(FOLDER / "queue"),
        "control_folder": str(FOLDER / "control"),
        "polling_interval": 0.02,
    },
    result_backend=f"file://{FOLDER / 'results'}",
    accept_content=["json", "pickle"],
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
)
for folder in ("queue", "control", "results"):
    (FOLDER / folder).mkdir(exist_ok=True)


def told(outcome: Any, text: str) -> dict[str, Any]:
    if isinstance(outcome, McpError):
        return {"worker": os.getpid(), "text": text, "server": None, "reason": outcome.reason}
    return {"worker": os.getpid(), **outcome.unwrap()["structuredContent"], "reason": None}


@app.task
def with_the_modules_spec(text: str) -> dict[str, Any]:
    return told(TOOLS.client().call_tool("echo", {"text": text}), text)


@app.task(serializer="pickle")
def with_argument(spec: ConnectSpec, text: str) -> dict[str, Any]:
    return told(spec.client().call_tool("echo", {"text": text}), text)


@app.task
def with_the_modules_client(text: str) -> dict[str, Any]:
    return told(CLIENT.call_tool("echo", {"text": text}), text)


@app.task(soft_time_limit=1)
def too_long(text: str) -> dict[str, Any]:
    """Celery ends the call in the middle; the client is as good as before."""
    client = TOOLS.client()
    try:
        client.call_tool("wait", {"seconds": 60.0}, timeout=120.0)
    except SoftTimeLimitExceeded:
        return told(client.call_tool("echo", {"text": text}), text)
    raise AssertionError("the limit was not kept")


@app.task
def last(seconds: float) -> str:
    """Says that it has begun, and ends while the worker is already told to."""
    client = TOOLS.client()
    (FOLDER / "last").touch()
    return str(client.call_tool("wait", {"seconds": seconds}).unwrap()["content"][0]["text"])
