"""The cells the contract suite runs in: every connection with every revision it carries. All must behave the same."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from snodo_client import Client
from snodo_client.protocol.versions import KNOWN, LEGACY, MODERN
from snodo_client.testing.demo import demo_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Connect = Callable[..., Client]

CONNECTIONS = {
    "direct": KNOWN,
    "direct-inline": (MODERN[0], LEGACY[0]),
    "stdio": KNOWN,
    "http-json": KNOWN[:-1],
    "http-stream": (MODERN[0], LEGACY[0]),
    "http-stateless": LEGACY[:-1],
    "sse": LEGACY,
    "websocket": LEGACY,
}


class Cell:
    """One connection with one revision. `asks`: the server can ask its client while a call runs."""

    def __init__(self, connection: str, version: str) -> None:
        self.connection = connection
        self.version = version
        self.legacy = version in LEGACY
        self.elicits = version >= "2025-06-18" and self.asks
        self.structured = version >= "2025-06-18"

    @property
    def asks(self) -> bool:
        return self.connection != "http-stateless"

    def __str__(self) -> str:
        return f"{self.connection} {self.version}"


CELLS = [Cell(connection, version) for connection, versions in CONNECTIONS.items() for version in versions]


@pytest.fixture(params=CELLS, ids=str)
def cell(request: pytest.FixtureRequest) -> Cell:
    found: Cell = request.param
    return found


@pytest.fixture
def connect(cell: Cell) -> Iterator[Connect]:
    """Makes clients of a demo server that speaks the one revision; they find that out, and are closed at the end."""
    clients: list[Client] = []

    def made(client: Client) -> Client:
        clients.append(client)
        return client

    kind, version = cell.connection, cell.version
    server = demo_server()
    server.versions = [version]
    try:
        if kind.startswith("direct"):
            inline = kind.endswith("inline")
            yield lambda **options: made(Client.direct(server, inline=inline, **options))
        elif kind == "stdio":
            command = ("stdio", sys.executable, ["-m", "snodo_client.testing", "stdio", "--versions", version])
            yield lambda **options: made(Client.connect(command, **options))
        elif kind.startswith("http"):
            stream = True if kind == "http-stream" else "auto"
            with server.serve_http(sse=stream, sessions=kind != "http-stateless") as http:
                yield lambda **options: made(Client.connect(http.url, **options))
                close(clients)
        else:
            with server.serve_sse() if kind == "sse" else server.serve_websocket() as serving:
                target: Any = (kind, serving.url)
                yield lambda **options: made(Client.connect(target, **options))
                close(clients)
    finally:
        close(clients)


def close(clients: list[Client]) -> None:
    while clients:
        clients.pop().close()


@pytest.fixture
def client(connect: Connect) -> Client:
    return connect(client_capabilities=["elicitation"])


# -- the matrix at the end of a run

_results: dict[tuple[str, str], Counter[str]] = {}
_cells = {str(cell): (cell.connection, cell.version) for cell in CELLS}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "tests/contract/" not in report.nodeid or (report.when != "call" and report.passed):
        return
    name = report.nodeid.rpartition("[")[2].rstrip("]")
    found = next((place for cell, place in _cells.items() if cell in name), None)
    if found is not None:
        _results.setdefault(found, Counter())[report.outcome] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _results:
        return
    terminalreporter.section("contract: connections and revisions, tests passed")
    terminalreporter.write_line(f"{'':<15}" + "".join(f"{version:>16}" for version in KNOWN))
    for connection in CONNECTIONS:
        cells = [_shown(_results.get((connection, version))) for version in KNOWN]
        terminalreporter.write_line(f"{connection:<15}" + "".join(f"{cell:>16}" for cell in cells))


def _shown(results: Counter[str] | None) -> str:
    if results is None:
        return "-"
    return f"{results['passed']}" + (f" ({results['failed']} failed)" if results["failed"] else "")
