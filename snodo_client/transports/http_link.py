"""A link to an HTTP endpoint: the settings every request shares, and the conversation one request begins.

The `requests.Session` behind the slots is where cookies, headers, proxies and certificates are kept; its environment is
read once, when the slots are made, and netrc never. The conversation is the closed list of what may be sent again: a
redirect within the origin, and what changes nothing on the server when its kept connection had been closed there.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from requests import Session
from requests.cookies import get_cookie_header
from requests.structures import CaseInsensitiveDict
from requests.utils import select_proxy

from ..engine.call import Call
from ..fingerprint import fingerprint, machine
from ..log import logger
from ..outcome import McpError, local_error
from ..protocol.challenges import challenges
from ..protocol.origins import REDIRECTS, is_loopback
from ..protocol.requests import Notification
from ..protocol.versions import LEGACY
from .base import Link
from .http_adapter import Outgoing, sender
from .http_answer import Answer
from .http_options import BASE_HEADERS, STREAM_HEADERS
from .http_session import SessionSlots, relay
from .http_signing import REFUSALS
from .http_slots import Slots
from .http_trust import trust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..engine.deadline import Deadline
    from ..protocol.origins import Endpoint
    from .base import Inbound
    from .http_legacy import McpSession
    from .http_options import HttpOptions

    Message = dict[str, Any]

T = TypeVar("T")

SESSION_ID = "Mcp-Session-Id"

DRAIN_SECONDS = 0.02  # seconds a stream has to end after its answer, for its connection to be kept
LEAST_DRAIN_SECONDS = 0.002


class HttpLink(Link):
    """`name` is the URL without its query. The connections are those of the transport, and outlive the link; what
    arrives outside an exchange goes to `inbound`.
    """

    __slots__ = (
        "_certificate",
        "_mcp_session",
        "_options",
        "_said",
        "drain_seconds",
        "endpoint",
        "inbound",
        "max_response_bytes",
        "slots",
    )

    def __init__(self, options: HttpOptions, slots: Slots | SessionSlots, inbound: Inbound) -> None:
        super().__init__(options.endpoint.name)
        self.endpoint = options.endpoint
        self.max_response_bytes = options.max_response_bytes
        self.drain_seconds = DRAIN_SECONDS
        self.slots = slots
        self.inbound = inbound
        self._options = options
        self._certificate: bytes | None = None
        self._mcp_session: McpSession | None = None
        self._said: set[str] = set()

    def exchange(self, call: Call) -> Iterator[Message]:
        """Send the call's POST and yield what comes back for it."""
        if call.request.version in LEGACY:
            return self.session().exchange(call)
        return self.in_owner(call, self.converse(call, _read))

    def send(self, message: Message, deadline: Deadline) -> None:
        """POST a message nobody waits for. Raises McpError, also for what the server says to refuse it."""
        # Before there is a version only a server of the legacy era is answered.
        notification = Notification(message, self.version or LEGACY[0])
        call = Call(0, notification, deadline)  # type: ignore[arg-type]
        call.body, call.link = notification.encode(), self
        list(self.exchange(call))  # nothing comes of it, unless it fails

    def session(self) -> McpSession:
        """What there is to the link in the legacy era."""
        if self._mcp_session is None:
            from .http_legacy import McpSession

            self._mcp_session = McpSession(self)
        return self._mcp_session

    def end_session(self, deadline: Deadline | None) -> None:
        """The link is not used any more. With a deadline, the server is told."""
        if self._mcp_session is not None:
            self._mcp_session.end(deadline)

    def in_owner(self, call: Call, conversation: Iterator[Message]) -> Iterator[Message]:
        """A conversation in the thread that owns the call, whose wait ends on time whatever is sent through."""
        return relay(call, self.slots, conversation) if isinstance(self.slots, SessionSlots) else conversation

    def on_its_own(self, call: Call) -> None:
        """Let `wake` reach the conversation of a call that has a thread of its own."""
        if isinstance(self.slots, SessionSlots):
            call.wake = partial(self.slots.wake, call)

    def converse(
        self,
        call: Call,
        read: Callable[[Answer], Iterator[T]],
        *,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        endpoint: Endpoint | None = None,
    ) -> Iterator[T]:
        """Send one request and yield what `read` finds in the answer to it, which has any status but a redirect. Only
        a POST has the call's body. `headers` are those of the legacy era. Closing the iterator gives up the connection
        unless the answer is complete. Raises McpError.
        """
        slots: Any = self.slots
        endpoint, hops, resent, fresh = endpoint or self.endpoint, 0, False, False
        signature = None if self._options.signer is None else self._options.signer.begin(call)
        while True:
            outgoing = self._outgoing(call, endpoint, method, headers)
            if signature is not None:
                signature.apply(outgoing)
                outgoing.renewed = signature.renews
            lease = slots.lease(call, resent=resent, fresh=fresh)
            answer = None
            try:
                lease.begin()
                raw = lease.send(outgoing, may_repeat=call.request.idempotent and not fresh)
                if call.credential is not None:
                    call.credential = self.credential(outgoing)
                resent = True
                if raw is None:
                    fresh = True
                    continue
                answer = Answer(call, self, outgoing, raw, lease)
                if answer.status in REDIRECTS:
                    hops += 1
                    endpoint = answer.redirected(hops)
                    continue
                if signature is not None:
                    signature.heard(raw.headers)
                if (
                    signature is None
                    or answer.status not in REFUSALS
                    or not signature.answers(answer.status, challenges(raw.headers.getlist("www-authenticate")))
                ):
                    yield from read(answer)
                    return
                refusal = answer.refused()
                resent, call.delivery = False, "not_sent"  # it was not run
            finally:
                lease.release(answer is not None and answer.complete)
            if not signature.renew():
                raise refusal

    def _outgoing(self, call: Call, endpoint: Endpoint, method: str, legacy: dict[str, str] | None) -> Outgoing:
        body = None
        if method == "POST":
            body = call.body
            headers = {**BASE_HEADERS, **call.request.headers(), "Content-Length": str(len(body))}
        else:
            headers = dict(STREAM_HEADERS)
        outgoing = Outgoing(method, endpoint, headers, body)
        if legacy:
            headers.update(legacy)
            if SESSION_ID in legacy:
                outgoing.secret[SESSION_ID] = legacy[SESSION_ID]
        if isinstance(self.slots, Slots):
            outgoing.proxy = self.slots.proxy
        self._add_own(outgoing)
        return outgoing

    def _add_own(self, outgoing: Outgoing) -> None:
        """Add what the caller wants to be sent with every request."""
        own = self._options.own_headers()
        outgoing.headers.update(own)
        outgoing.secret.update(own)

    # -- for caches

    def identity(self) -> tuple[bytes, bytes | None]:
        """Which server this is, and with which credential a request would be sent to it now; both as fingerprints. None
        for a credential that cannot be told.
        """
        options, endpoint = self._options, self.endpoint
        verify = options.verify if options.session is None else options.session.verify
        believed = b"unverified" if verify is False else b""  # what anybody could have said is not for those who verify
        here = machine() if is_loopback(endpoint.host) else b""
        return fingerprint("http", endpoint.url, believed, here), self._would_send()

    def _would_send(self) -> bytes | None:
        slots = self.slots
        if isinstance(slots, SessionSlots):
            return None
        outgoing = Outgoing("POST", self.endpoint, dict(BASE_HEADERS), b"")
        try:
            self._add_own(outgoing)
            if self._options.signer is not None:
                self._options.signer.begin(None).apply(outgoing)
        except McpError:
            return None
        if len(slots.cookies):
            cookie = get_cookie_header(slots.cookies, outgoing)
            if cookie is not None:
                outgoing.secret["Cookie"] = cookie
        return self.credential(outgoing)

    def credential(self, outgoing: Outgoing) -> bytes | None:
        """Who asked with this request: its headers of the caller, its cookies and the client certificate, as a
        fingerprint. None when that cannot be told, as through a session of the caller.
        """
        if isinstance(self.slots, SessionSlots):
            return None
        if self._certificate is None:
            cert = self._options.cert
            try:
                file = cert if isinstance(cert, str) else cert[0] if cert else None
                self._certificate = b"" if file is None else fingerprint(Path(file).read_bytes())
            except OSError:
                return None
        secret = sorted((name.lower(), value) for name, value in outgoing.secret.items() if name != "DPoP")
        return fingerprint(self._certificate, *(part for header in secret for part in header))

    def note_end(self, ended: bool) -> None:
        """Learn whether the server ends its streams: waiting for one that does not would cost every call."""
        self.drain_seconds = DRAIN_SECONDS if ended else max(self.drain_seconds / 2, LEAST_DRAIN_SECONDS)

    def once(self, what: str) -> None:
        """Say a fault of the server once."""
        if what not in self._said:
            self._said.add(what)
            logger("http").warning("%s sent %s; it is tolerated, and this is said once", self.name, what)


def _read(answer: Answer) -> Iterator[Message]:
    return answer.acknowledged() if answer.call.wire_id is None else answer.messages()


def make_slots(options: HttpOptions) -> Slots | SessionSlots:
    """The connections of a transport, for all its links. Reads the environment and the certificates."""
    endpoint = options.endpoint
    if options.session is not None:
        return SessionSlots(options.session, endpoint.name, options.connect_timeout)
    session = Session()
    session.headers = CaseInsensitiveDict(BASE_HEADERS)
    session.verify, session.cert = options.verify, options.cert
    settings: Any = session.merge_environment_settings(endpoint.url, {}, True, options.verify, options.cert)
    session.proxies = settings["proxies"] if options.proxies is None else dict(options.proxies)
    session.trust_env = False  # from here on nothing is read again
    proxy = select_proxy(endpoint.url, session.proxies)
    scheme = (proxy.lower().partition("://")[0] if "://" in proxy else "http") if proxy else ""
    if scheme not in ("", "http", "https"):
        raise local_error("unreachable", f"a proxy by {scheme!r} needs a requests.Session that knows it: pass session=")
    tls = endpoint.scheme == "https" or scheme == "https"
    context = trust(settings["verify"], settings["cert"]) if tls else None
    if tls and settings["verify"] is False:
        logger("http").warning("%s: certificates are not verified (verify=False)", endpoint.name)
    make_sender = sender(session, context, dict(session.proxies))
    slots = Slots(endpoint.name, make_sender, options.pool_size, options.connect_timeout)
    slots.proxy = proxy or ""
    slots.cookies = session.cookies
    return slots
