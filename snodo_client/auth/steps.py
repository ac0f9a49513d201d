"""What a flow asks for while it runs: HTTP requests, and what came back for them.

Flows are generators. They yield each `Fetch`, are sent the `Reply`, and return what they found. Who drives them does
the I/O, and throws the `McpError` of a request that failed into them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..protocol import jsonrpc

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from typing import TypeAlias

    from ..protocol.origins import Endpoint
    from .faults import Step

    T = TypeVar("T")
    Flow: TypeAlias = Generator["Fetch", "Reply", T]


class Fetch:
    """One request. `what` is what it is for, in words: "the metadata of the authorization server"; `step` says so in
    errors. `secrets` are values in it that are never shown.
    """

    __slots__ = ("body", "endpoint", "headers", "method", "secrets", "step", "what")

    def __init__(
        self,
        method: str,
        endpoint: Endpoint,
        what: str,
        *,
        step: Step = "token",
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
        json: object = None,
        secrets: Iterable[str] = (),
    ) -> None:
        self.method = method
        self.endpoint = endpoint
        self.what = what
        self.step: Step = step
        self.headers = {"Accept": "application/json", **(headers or {})}
        self.body: bytes | None = None
        self.secrets = list(secrets)
        if form is not None:
            from urllib.parse import urlencode

            self.body = urlencode(form).encode()
            self.headers["Content-Type"] = "application/x-www-form-urlencoded"
        elif json is not None:
            self.body = jsonrpc.encode(json)
            self.headers["Content-Type"] = "application/json"

    def __repr__(self) -> str:
        return f"<Fetch {self.method} {self.endpoint.name}>"


class Reply:
    """The answer to a `Fetch`, of any status; the names of its headers are in lower case."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> object:
        """The value of a JSON body, None for anything else."""
        try:
            return jsonrpc.decode(self.body)
        except jsonrpc.Malformed:
            return None

    def __repr__(self) -> str:
        return f"<Reply {self.status}>"
