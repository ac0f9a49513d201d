"""Server objects of the Python SDKs in this process. They need these SDKs, so what is tested of them is in
`support.direct_sdk` and runs in an environment that has them, once for each; here every scenario is a test of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from snodo_client.transports.sdk import SdkTransport, is_server
from support import direct_sdk

if TYPE_CHECKING:
    from collections.abc import Callable

    from peers import Peers

    Report = dict[str, str | None]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def report(peers: Peers) -> Callable[[str], Report]:
    """What became of every scenario with one SDK: None, or how it failed."""
    reports: dict[str, Report] = {}

    def run(kind: str) -> Report:
        if kind not in reports:
            done = subprocess.run(
                [peers.modern, "-m", "support.direct_sdk", kind],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
                capture_output=True,
                text=True,
                check=False,
            )
            lines = [json.loads(line) for line in done.stdout.splitlines()]
            reports[kind] = {line["name"]: line["failure"] for line in lines}
            missing = dict.fromkeys(
                direct_sdk.SCENARIOS, f"exit code {done.returncode}, stderr:\n{done.stderr[-5000:]}"
            )
            reports[kind] = {**missing, **reports[kind]}
        return reports[kind]

    return run


@pytest.mark.parametrize("scenario", direct_sdk.SCENARIOS)
@pytest.mark.parametrize("kind", ["mcp", "fastmcp"])
def test_a_server_of_an_sdk(report: Callable[[str], Report], kind: str, scenario: str) -> None:
    failure = report(kind)[scenario]
    assert failure is None, failure


class Impostor:
    """Has the attributes, but is nobody's server."""

    def create_initialization_options(self) -> None: ...

    async def run(self) -> None: ...


@pytest.mark.parametrize("other", [print, len, Impostor(), Impostor, None, "mcp", {}, object()])
def test_other_objects_are_no_servers(other: object) -> None:
    assert not is_server(other)
    with pytest.raises(TypeError, match="no server object"):
        SdkTransport(other)


def test_to_ask_imports_no_sdk_and_no_event_loop() -> None:
    program = (
        "import sys\n"
        "from snodo_client.transports.sdk import is_server\n"
        "assert not is_server(print)\n"
        "print([name for name in ('mcp', 'fastmcp', 'anyio', 'asyncio') if name in sys.modules])\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout == "[]\n"
