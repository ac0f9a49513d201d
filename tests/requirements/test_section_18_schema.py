"""JSON Schemas of servers (spec: basic, JSON Schema usage) as a client meets them; `section_18.md` has the whole table,
with the tests of other files.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from snodo_client import Client, McpError, Ok
from snodo_client.schema.subschemas import DIALECTS
from support.shaped import CONNECTIONS, shaped, tool

each_connection = pytest.mark.parametrize("connection", CONNECTIONS)

INVALID: list[Any] = [
    {"type": "nothing of the kind"},
    {"type": "object", "properties": []},
    {"$ref": "#/$defs/none"},
    {"$ref": "#"},
    {"pattern": "("},
    {"$schema": "https://example.test/dialect"},
    5,
    None,
]


def give(client: Client, value: Any, name: str = "t") -> Any:
    return client.call_tool(name, {"result": {"content": [], "structuredContent": value}}, timeout=20)


@each_connection
@pytest.mark.parametrize("declared", [None, *DIALECTS])
def test_js01_js02_the_declared_dialect_counts_and_2020_12_where_there_is_none(
    connection: str, declared: str | None
) -> None:
    """Arrays that begin with null: the newest dialect says so by `prefixItems`, which means nothing in the others."""
    schema: dict[str, Any] = {} if declared is None else {"$schema": declared}
    newest = declared is None or "2020-12" in declared
    with shaped(
        connection,
        tool({**schema, "prefixItems": [{"type": "null"}]}, "new"),
        tool({**schema, "items": [{"type": "null"}]}, "old"),
    ) as client:
        assert give(client, [None, 1], "new").ok
        assert give(client, [None, 1], "old").ok
        assert give(client, [1], "new").ok is not newest
        assert give(client, [1], "old").ok is newest, "an array of schemas is no schema of the newest dialect"


@each_connection
@pytest.mark.parametrize("schema", INVALID)
def test_js02_js03_a_schema_that_is_none_costs_the_check_and_nothing_else(
    connection: str, schema: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tools = [tool(schema), tool({"type": "string"}, "other"), {"name": "in", "inputSchema": schema}]
    with caplog.at_level(logging.WARNING), shaped(connection, *tools, validate="all") as client:
        assert give(client, {"any": "thing"}).ok
        assert give(client, {"any": "thing"}, "in").ok
        assert give(client, "text", "other").ok
        assert not give(client, 5, "other").ok
    said = [record.getMessage() for record in caplog.records if record.name == "snodo_client.schema"]
    members = [] if schema is None else ["outputSchema", "inputSchema"]
    assert [member for member in members if not any(f"the {member} of the tool" in text for text in said)] == []
    assert len(said) == len(members)


class Canary(BaseHTTPRequestHandler):
    """Has every schema there is."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"type": "string"}')

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def canary() -> Iterator[tuple[str, list[str]]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Canary) as server:
        asked: list[str] = []
        server.asked = asked  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/schema", asked
        server.shutdown()
        thread.join()


@each_connection
def test_js04_js05_js06_nothing_is_fetched_and_the_reason_is_told(
    connection: str, canary: tuple[str, list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    url, asked = canary
    places = [
        {"$ref": url},
        {"properties": {"a": {"$ref": f"{url}#/$defs/x"}}},
        {"$id": url, "$ref": "other"},
        {"$dynamicRef": f"{url}#node"},
        {"$schema": url},
    ]
    tools = [tool(schema, f"t{number}", inputSchema=schema) for number, schema in enumerate(places)]
    with caplog.at_level(logging.WARNING), shaped(connection, *tools, validate="all") as client:
        for each in tools:
            assert give(client, 5, each["name"]).ok
            assert give(client, 5, each).ok  # type: ignore[arg-type]
    assert asked == []
    said = [record.getMessage() for record in caplog.records if record.name == "snodo_client.schema"]
    assert [text for text in said if "nothing is fetched" not in text and "dialect" not in text] == []
    assert {f"t{number}" for number in range(len(places))} == {text.split("'")[1] for text in said}


@each_connection
def test_js08_numbers_booleans_and_formats(connection: str) -> None:
    cases: list[tuple[Any, list[Any], list[Any]]] = [
        ({"type": "integer"}, [5, 5.0, -0.0], [True, 5.5, "5"]),
        ({"type": "number"}, [5, 1e300], [False]),
        ({"const": 1}, [1, 1.0], [True]),
        ({"format": "date-time"}, ["yesterday"], []),
        ({"properties": {"a": False, "b": True}}, [{"b": None}], [{"a": 1}]),
        (True, [1, None], []),
        (False, [], [1, None]),
    ]
    with shaped(connection, *(tool(schema, f"t{number}") for number, (schema, *_) in enumerate(cases))) as client:
        for number, (schema, valid, invalid) in enumerate(cases):
            for value in valid:
                assert isinstance(give(client, value, f"t{number}"), Ok), (schema, value)
            for value in invalid:
                outcome = give(client, value, f"t{number}")
                assert isinstance(outcome, McpError), (schema, value)
                assert outcome.reason == "invalid_structured_content"
