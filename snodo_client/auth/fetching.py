"""The requests of a flow, sent over the library's own connections: each ends on time, and any thread can cut it.

A request goes to a server that another server named, so it gets nothing of the caller's but `verify` and `proxies`: no
headers, cookies, netrc or client certificate. It has a connection of its own, is sent once, follows no redirect, and
its answer is bounded. What a status means is the flow's to know. The HTTP stack is imported here at module level, so
this is imported when the first request is due.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from ..engine.call import Call
from ..engine.deadline import timed_out
from ..outcome import McpError, local_error
from ..transports.http_adapter import Outgoing
from ..transports.http_faults import FAULTS, error_of
from ..transports.http_link import make_slots
from ..transports.http_options import BASE_HEADERS, HttpOptions
from .steps import Reply

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from typing import Any

    from ..engine.call import Delivery
    from ..engine.deadline import Deadline
    from ..transports.http_slots import Lease, Slots
    from .steps import Fetch

FETCH_SECONDS = 10.0  # that one request may take, within the limit of the call
MAX_REPLY_BYTES = 256 * 1024  # of a body, after decompression

_CHUNK = 65536  # bytes
_OURS = "FETCH_SECONDS"
_HEADERS = {name: BASE_HEADERS[name] for name in ("User-Agent", "Accept-Encoding")}
_DECODED = ("gzip", "x-gzip", "deflate")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class Fetcher:
    """Sends requests. verify and proxies are as in `HttpOptions`. With `public_only`, only public addresses are
    connected to, looked at after the name is resolved. A proxy resolves names itself, where that cannot be seen: both
    together are refused, with the error of an unreachable server (spec: basic/security_best_practices, "Server-Side
    Request Forgery").
    """

    __slots__ = ("_proxies", "_public_only", "_verify")

    def __init__(
        self,
        *,
        verify: bool | str | os.PathLike[str] = True,
        proxies: Mapping[str, str] | None = None,
        public_only: bool = False,
    ) -> None:
        self._verify = verify
        self._proxies = proxies
        self._public_only = public_only

    def fetch(self, fetch: Fetch, deadline: Deadline, owner: Call | Callable[[], None]) -> Reply:
        """The answer to a request, of any status, also a redirect's. Raises McpError, within `FETCH_SECONDS` and
        *deadline*.

        *owner* is the call that this is for, or a function that raises when the reply is not wanted any more. A call
        that is cancelled cuts the connection at once; a function is asked between two reads.
        """
        side = _Side(fetch, deadline, owner.check if isinstance(owner, Call) else owner)
        if not isinstance(owner, Call):
            return self._fetch(fetch, side)
        before, owner.wake = owner.wake, side.cut
        try:
            return self._fetch(fetch, side)
        finally:
            owner.wake = before

    def _fetch(self, fetch: Fetch, side: _Side) -> Reply:
        slots = self._slots(fetch)
        outgoing = _outgoing(fetch, slots.proxy)
        lease = slots.lease(side)  # type: ignore[arg-type]  # it has all of a call that a lease knows
        try:
            lease.begin()
            raw = lease.send(outgoing, may_repeat=False)
            headers = {name.lower(): value for name, value in raw.headers.itermerged()}
            return Reply(raw.status, headers, _body(raw, lease, outgoing))
        finally:
            lease.release(False)

    def _slots(self, fetch: Fetch) -> Slots:
        endpoint = fetch.endpoint
        options = HttpOptions(endpoint.url, verify=self._verify, proxies=self._proxies, pool_size=0)
        slots: Any = make_slots(options)
        slots.what = f"{endpoint.name} ({fetch.what})"
        if self._public_only:
            slots.forbidden = not_public
            if slots.proxy:
                why = "whether its address is public cannot be told through a proxy (public_only=True)"
                raise local_error("unreachable", f"no connection to {slots.what}: {why}", data={"tried": []})
        return slots  # type: ignore[no-any-return]


class _Side:
    """In the place of a call, for the connection: a request beside the one the owner is about. What becomes of it tells
    nothing of the delivery of that one.
    """

    __slots__ = ("_check", "_late", "deadline", "delivery", "wake")

    def __init__(self, fetch: Fetch, deadline: Deadline, check: Callable[[], None]) -> None:
        self._check = check
        self._late = f"{fetch.what} did not come from {fetch.endpoint.name}"
        self.deadline = deadline.sub(FETCH_SECONDS, _OURS)
        self.delivery: Delivery = "not_sent"
        self.wake: Callable[[], None] = _nothing

    def check(self) -> None:
        """Raise what ended the owner, or that time is over; then it is said whose answer was waited for."""
        late = self.deadline.over
        try:
            self._check()
        except McpError as error:
            if error.reason != "timeout" and error.reason != "max_total_timeout":
                raise
            late = True
        if late:
            raise self._slow()

    def _slow(self) -> McpError:
        if self.deadline.name != _OURS:
            return timed_out(self._late, self.deadline)
        text = f"{self._late} within {FETCH_SECONDS:g} s, the time that one request has"
        return local_error("timeout", text, data={"timeout": FETCH_SECONDS})

    def cut(self) -> None:
        """End the request. Any thread, any time."""
        self.wake()


def _nothing() -> None:
    pass


def _outgoing(fetch: Fetch, proxy: str) -> Outgoing:
    headers = {**_HEADERS, **fetch.headers}
    if fetch.body is not None:
        headers["Content-Length"] = str(len(fetch.body))
    outgoing = Outgoing(fetch.method, fetch.endpoint, headers, fetch.body)
    outgoing.proxy = proxy
    shown_nowhere = [*fetch.secrets, *(headers[name] for name in ("Authorization", "DPoP") if name in headers)]
    outgoing.secret = {f"secret {number}": value for number, value in enumerate(shown_nowhere)}
    return outgoing


def _body(raw: Any, lease: Lease, outgoing: Outgoing) -> bytes:
    """The body, decompressed. Raises McpError for one that is too long, as soon as that is known."""
    what = lease.slots.what
    encoding = raw.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", *_DECODED):
        raise local_error("malformed", f"{what} answered {raw.status} in a content encoding that was not asked for")
    length: int | None = raw.length_remaining
    parts: list[bytes] = []
    size = 0
    while length is None or length <= MAX_REPLY_BYTES:
        part = _read(raw, lease, outgoing, decode=encoding in _DECODED)
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > MAX_REPLY_BYTES:
            break
    text = f"{what} answered {raw.status} with more than {MAX_REPLY_BYTES} bytes"
    raise local_error("too_large", text, data={"limit": MAX_REPLY_BYTES})


def _read(raw: Any, lease: Lease, outgoing: Outgoing, *, decode: bool) -> bytes:
    error: McpError | None = None
    try:
        part: bytes = raw.read1(_CHUNK, decode_content=decode)
    except FAULTS as fault:
        error = error_of(fault, lease.slots.what, True, outgoing.masking())
    lease.check()  # a connection cut on purpose may look like the end, and a flood must not hide that it was
    if error is not None:
        raise error
    return part


def not_public(address: str) -> str | None:
    """Why a numeric address is none of the public internet, in words; None when it is one. An IPv4 address inside of an
    IPv6 one counts as itself.
    """
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        found = inner or found
    if found.is_global and not found.is_multicast and not found.is_reserved:
        return None
    return "not a public address (public_only=True)"
