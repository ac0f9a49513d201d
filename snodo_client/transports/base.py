"""What a transport is. All of ours implement this protocol, and so can yours, in about thirty lines.

A transport carries encoded JSON-RPC messages and knows nothing of their meaning. It raises `McpError` for its own
faults; the session turns that into a value. A link is one process, session or socket of a transport: it is replaced,
never revived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..protocol.versions import LEGACY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Literal

    from ..engine.call import Call
    from ..engine.deadline import Deadline
    from ..outcome import McpError
    from ..protocol.agreement import Agreement
    from ..protocol.versions import Era

    Message = dict[str, Any]


class Traits:
    """What the session must know of a transport.

    eras: the protocol eras it can carry ("modern" is 2026-07-28, "legacy" everything before it).
    cancel: "notify" when a request of the modern era is cancelled by `notifications/cancelled`, "drop" when ending the
        exchange tells the server. In the legacy era it is always a notification.
    mirrors_headers: True when modern requests carry the `Mcp-*` headers, so that tool definitions matter for sending.
    silence_is_legacy: True when a server that does not answer the probe, or ends at it, may be an old one (stdio).
    reopens: True when a lost link is replaced for the next call; False when the client is of no use after a loss.
    """

    __slots__ = ("cancel", "eras", "mirrors_headers", "reopens", "silence_is_legacy")

    def __init__(
        self,
        *,
        eras: tuple[Era, ...] = ("modern",),
        cancel: Literal["notify", "drop"] = "drop",
        mirrors_headers: bool = False,
        silence_is_legacy: bool = False,
        reopens: bool = False,
    ) -> None:
        self.eras = eras
        self.cancel = cancel
        self.mirrors_headers = mirrors_headers
        self.silence_is_legacy = silence_is_legacy
        self.reopens = reopens


class Link:
    """One process, session or socket. `name` is what errors call the server: no secrets in it. `version` is the
    protocol version agreed on for it, empty until then; the session sets it, and `agreement` with it. `lost` is set
    once, when the link is gone.
    """

    __slots__ = ("__weakref__", "agreement", "lost", "name", "version")

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = ""
        self.agreement: Agreement | None = None
        self.lost: McpError | None = None

    @property
    def legacy(self) -> bool:
        """True when a version before 2026-07-28 was agreed on."""
        return self.version in LEGACY

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Inbound(Protocol):
    """Given to a transport that receives outside an exchange. Callable from any thread; never blocks, never raises."""

    def deliver(self, message: object, link: Link) -> None:
        """A decoded JSON value arrived on `link`; whatever it is."""

    def answer(self, body: bytes, wire_id: int, link: Link) -> bool:
        """A response to request `wire_id` arrived on `link`, still encoded: the thread that waits for it decodes it.

        False when nobody waits for it; then deliver it decoded.
        """

    def reject(self, error: McpError, link: Link, wire_id: int | None) -> None:
        """Something undecodable arrived: fail the call it was for. None when that cannot be told."""

    def lost(self, error: McpError, link: Link) -> None:
        """`link` is gone for good, and why. Reported once; what the link delivers afterwards is ignored."""


class Transport(Protocol):
    """Optional beside these: `attend(link, deadline)`, called in the legacy era once the server knows that the client
    is initialized, opens a stream for what belongs to no request; `older()` gives the transport to fall back on when
    neither era is spoken here, which takes the place of this one; `forked()` is called in the child of a fork;
    `identity(link)` gives two fingerprints for caches, equal when two clients have the same server, and when they ask
    it as the same person (None when that cannot be told): without it clients share nothing.
    """

    traits: Traits

    def open(self, inbound: Inbound, deadline: Deadline) -> Link:
        """Start a link. Called again after a link was lost."""

    def exchange(self, call: Call) -> Iterator[Message]:
        """Send `call.body` on `call.link` and yield what comes back for it, up to and including the response. Runs in
        the owner's thread.

        Keep `call.delivery` true. Everything must end by `call.deadline`; `call.check()` raises when it is over or the
        call was settled by somebody else. Closing the iterator early lets go of the exchange.
        """

    def send(self, message: Message, link: Link, deadline: Deadline) -> None:
        """Send a message nobody waits for: a notification, or in the legacy era the answer to a server's request. A
        message not begun by the deadline is withdrawn.
        """

    def close(self, deadline: Deadline) -> None:
        """Let go of everything. Called from any thread, also while exchanges run; more than once."""
