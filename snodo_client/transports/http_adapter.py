"""Where requests and urllib3 are made to work for us: how a slot speaks HTTP.

The one hook into urllib3 is the connection's `_new_conn`: the socket is ours, so that it can be cut at any time, its
name is resolved within the deadline, and every address gets its chance. All else here is the public surface of
`requests.adapters.HTTPAdapter` and `http.client.HTTPConnection`, trimmed to what does not change from call to call:
one endpoint, one trust, one proxy.
"""

from __future__ import annotations

import http.client
import ssl
from contextlib import suppress
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any

import requests.cookies
from requests import PreparedRequest
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from ..masking import Masking, of_headers, of_query, of_userinfo

if TYPE_CHECKING:
    import socket

    from requests import Session

    from ..protocol.origins import Endpoint
    from .http_slots import Slot


ONE_PACKET = 65536  # bytes up to which joining head and body is cheaper than sending them apart

MAX_COOKIES = 50  # of a server that sets more, none is kept

_cookies: Any = requests.cookies  # not everything in there is typed


class Outgoing(PreparedRequest):
    """One request, made by hand: preparing it the usual way costs as much as sending it. `secret` are the headers whose
    values must not be shown; `renewed`: the credential is what was left after others were looked for.
    """

    def __init__(self, method: str, endpoint: Endpoint, headers: dict[str, str], body: bytes | None) -> None:
        super().__init__()
        self.method = method
        self.url = endpoint.url
        self.headers = headers  # type: ignore[assignment]
        self.body = body
        self.endpoint = endpoint
        self.secret: dict[str, str] = {}
        self.proxy = ""
        self.renewed = False

    def masking(self) -> Masking:
        """For text of whoever got this request."""
        return Masking(
            [
                *of_headers(self.secret.items()),
                *of_query(self.endpoint.query[1:]),
                *of_userinfo(self.proxy),
            ]
        )


class _Head:
    """The head of an answer, read by lines. `last` is empty when it was cut off, which http.client takes for an end."""

    __slots__ = ("_source", "last")

    def __init__(self, source: Any) -> None:
        self._source = source
        self.last = b""

    def readline(self, limit: int = -1) -> bytes:
        self.last = line = self._source.readline(limit)
        return line  # type: ignore[no-any-return]

    def close(self) -> None:
        self._source.close()


class _Response(http.client.HTTPResponse):
    def begin(self) -> None:
        source: Any = self.fp
        head: Any = _Head(source)
        self.fp = head
        try:
            super().begin()
        finally:
            if self.fp is head:
                self.fp = source
        if not head.last:
            raise http.client.IncompleteRead(b"")
        if self.msg.defects:
            # urllib3 would log what could not be parsed; a server may have put there what it was sent.
            self.msg.defects.clear()
            self.msg.set_payload("")


class _Connection:
    """What our connections have in common. `slot` is the one they are in."""

    slot: Slot
    response_class = _Response
    _head: bytes | None = None

    def _new_conn(self: Any) -> socket.socket:
        sock: socket.socket = self.slot.dial(self.host, self.port, self.proxy is not None)
        return sock

    def connect(self: Any) -> None:
        super().connect()  # type: ignore[misc]
        trust = getattr(self, "ssl_context", None)
        if trust is not None and trust.verify_mode == ssl.CERT_NONE:
            self.is_verified = True  # verify=False: said once in our log, instead of with every request
        self.slot.lease.connected()

    def putrequest(self: Any, method: str, url: str, *args: Any, **options: Any) -> None:
        # The query joins here, after urllib3 has logged the URL: it may hold a key.
        super().putrequest(method, url + self.slot.query, *args, **options)  # type: ignore[misc]

    def putheader(self: Any, header: str, *values: Any) -> None:
        http.client.HTTPConnection.putheader(self, header, *values)  # urllib3's looks for marks that we never set

    def request(self: Any, *args: Any, **options: Any) -> None:
        self._head = b""
        try:
            super().request(*args, **options)  # type: ignore[misc]
            head, self._head = self._head, None
            if head:  # no body came to go with it
                super().send(head)  # type: ignore[misc]
            self.slot.lease.call.delivery = "accepted"
        finally:
            self._head = None

    def send(self: Any, data: bytes) -> None:
        # Head and body in one packet: it halves the system calls of a small request.
        head = self._head
        if head is not None:
            if not head:
                self._head = data
                return
            self._head = None
            if len(data) <= ONE_PACKET:
                data = head + data
            else:
                super().send(head)  # type: ignore[misc]
        super().send(data)  # type: ignore[misc]


class PlainConnection(_Connection, HTTPConnection):  # type: ignore[misc]
    pass


class TlsConnection(_Connection, HTTPSConnection):  # type: ignore[misc]
    pass


class _Nowhere:
    """A pool's queue that holds nothing: the slot has the connection. What is in a queue is closed by urllib3 when the
    pool goes, at the latest at the interpreter's exit, and would wait there for a thread that reads.
    """

    def __init__(self, size: int) -> None:
        pass

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        pass

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        raise Empty


class _PlainPool(HTTPConnectionPool):
    QueueCls: Any = _Nowhere


class _TlsPool(HTTPSConnectionPool):
    QueueCls: Any = _Nowhere


_POOLS: Any = {"http": _PlainPool, "https": _TlsPool}


class SlotAdapter(HTTPAdapter):
    """The sender of one slot. It gives urllib3's responses as they are: what `requests.Response` adds is not used, and
    its cookie jar alone costs more than reading a small body.
    """

    def __init__(self, slot: Slot, session: Session, trust: ssl.SSLContext | None, proxies: dict[str, str]) -> None:
        self._slot = slot
        self._session = session
        self._trust = trust
        self._proxies = proxies
        self._pool: Any = None
        super().__init__(pool_connections=1, pool_maxsize=1)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:
        super().init_poolmanager(connections, maxsize, block, ssl_context=self._trust, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, ssl_context=self._trust, proxy_ssl_context=self._trust, **options)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def get_connection_with_tls_context(self, request: PreparedRequest, *_: Any, **__: Any) -> Any:
        if self._pool is None:
            verify = self._trust is None or self._trust.verify_mode != ssl.CERT_NONE
            pool: Any = super().get_connection_with_tls_context(request, verify, self._proxies)
            slot, connection = self._slot, TlsConnection if pool.scheme == "https" else PlainConnection

            def make(*args: Any, **options: Any) -> HTTPConnection:
                if slot.connection is not None:
                    slot.connection.close()
                slot.connection = made = connection(*args, **options)
                made.slot = slot
                return made

            pool.ConnectionCls = make
            self._pool = pool
        return self._pool

    def cert_verify(self, *_: Any, **__: Any) -> None:
        """Nothing: certificates are the business of the SSL context."""

    def request_url(self, request: Outgoing, *_: Any) -> str:  # type: ignore[override]
        self._slot.query = request.endpoint.query
        return request.endpoint.name if self._forwarded(request) else request.endpoint.path

    def _forwarded(self, request: Outgoing) -> bool:
        return self._pool.proxy is not None and request.endpoint.scheme == "http"

    def send(self, request: Outgoing, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        """The answer to a request, of which the head is there."""
        if len(self._session.cookies):
            cookie = _cookies.get_cookie_header(self._session.cookies, request)
            if cookie is not None:
                request.headers["Cookie"] = request.secret["Cookie"] = cookie
        connection = self._slot.connection
        if connection is None or not connection.is_connected:
            return super().send(request, *args, **options)
        # A kept connection needs nothing of the pool, whose part of a small request is a fifth of the whole.
        headers = {**request.headers, **self._pool.proxy_headers} if self._forwarded(request) else request.headers
        url, connection.timeout = self.request_url(request), options["timeout"]
        with suppress(BrokenPipeError, ConnectionResetError):  # it may have been answered before it was read
            connection.request(request.method, url, request.body, headers, preload_content=False, decode_content=False)
        return self.build_response(request, connection.getresponse())

    def build_response(self, request: PreparedRequest, raw: Any) -> Any:
        if "set-cookie" in raw.headers:
            _cookies.extract_cookies_to_jar(self._session.cookies, request, raw)
            if len(self._session.cookies) > MAX_COOKIES:
                self._session.cookies.clear()
        return raw

    def close(self) -> None:
        super().close()
        self._pool = None  # and with it the way back to the slot


def sender(session: Session, trust: ssl.SSLContext | None, proxies: dict[str, str]) -> Any:
    """What makes the senders of one endpoint's slots."""
    return partial(SlotAdapter, session=session, trust=trust, proxies=proxies)
