"""The options of an HTTP endpoint, checked before anything is opened, and the headers every request has.

Cheap to import: requests is not needed to refuse an option.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from .. import checks
from ..outcome import local_error
from ..protocol import headers as http_headers
from ..protocol import origins
from ..version import __version__
from .http_signing import signer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    import requests
    from requests.auth import AuthBase

    from ..auth.oauth import OAuth
    from .http_signing import TokenProvider

    Headers = Mapping[str, str] | Callable[[], Mapping[str, str]]
    Auth: TypeAlias = (
        str
        | Callable[[], str | None]
        | TokenProvider
        | OAuth
        | AuthBase
        | Callable[[requests.PreparedRequest], requests.PreparedRequest]
    )

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
POOL_SIZE = 10

# What can be decoded without optional packages, and nothing else.
BASE_HEADERS = {
    "User-Agent": f"snodo_client/{__version__}",
    "Accept": "application/json, text/event-stream",
    "Accept-Encoding": "gzip, deflate",
    "Content-Type": "application/json",
}

# Of requests without a body: a GET that asks for a stream, and the DELETE of a session.
STREAM_HEADERS = {
    "User-Agent": BASE_HEADERS["User-Agent"],
    "Accept": "text/event-stream",
    "Accept-Encoding": BASE_HEADERS["Accept-Encoding"],
}

_TOKEN = re.compile(r"[\x21-\x7e]+")


class HttpOptions:
    """What `HttpTransport` and `SseTransport` take, and in part `WebSocketTransport`.

    headers: sent with every request: a mapping, or a callable evaluated for each request.
    auth: a bearer token; a callable that gives one, or a `TokenProvider`; a requests authenticator, of which only the
        headers it sets count; or `OAuth`.
    verify: True for the trust store of the system (or the bundle that REQUESTS_CA_BUNDLE names), the path of a CA
        bundle, or False. cert: a client certificate file, or (file, key file).
    proxies: as in requests, instead of those of the environment; an empty mapping for none.
    connect_timeout: seconds for the connection alone, within the call's own limit.
    max_response_bytes: the longest JSON body, and the longest event of a stream, after decompression.
    allowed_origin: the only origin requests go to. It must be that of the URL, which is also the default: a statement
        for those who compose URLs.
    pool_size: idle connections kept; never a limit on calls.
    session: a `requests.Session` to send through, with its own verify, cert and proxies.

    Raises ValueError or TypeError for wrong options; nothing is read or sent before `open`.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Headers | None = None,
        auth: Auth | None = None,
        verify: bool | str | os.PathLike[str] = True,
        cert: str | tuple[str, str] | None = None,
        proxies: Mapping[str, str] | None = None,
        connect_timeout: float | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        allowed_origin: str | None = None,
        pool_size: int = POOL_SIZE,
        session: requests.Session | None = None,
    ) -> None:
        self.endpoint = origins.endpoint(url)
        if allowed_origin is not None and origins.origin(allowed_origin) != self.endpoint.origin:
            raise ValueError(f"allowed_origin must be the origin of the URL, {self.endpoint.origin}")
        self.token = _token(auth) if isinstance(auth, str) else None
        self.authorized = auth is not None  # and nothing else sets the Authorization header
        self.headers = _headers(headers, authorized=self.authorized)
        self.verify = _verify(verify)
        self.cert = _cert(cert)
        self.proxies = _proxies(proxies)
        self.connect_timeout = None if connect_timeout is None else checks.seconds(connect_timeout, "connect_timeout")
        self.max_response_bytes = checks.count(max_response_bytes, "max_response_bytes")
        self.pool_size = checks.count(pool_size, "pool_size", 0)
        self.session = session
        if session is not None:
            if not callable(getattr(session, "prepare_request", None)):
                raise TypeError(f"session must be a requests.Session, not {type(session).__name__}")
            if (verify, cert, proxies, pool_size) != (True, None, None, POOL_SIZE):
                raise ValueError("verify, cert, proxies and pool_size are set on the session when one is passed")
        self.signer = signer(auth, self)

    def own_headers(self) -> dict[str, str]:
        """The caller's headers and token, as they are now: none of their values may be shown. Raises McpError
        ("transport_failure") when a callable gives none that can be sent.
        """
        headers = dict(self._evaluated(self.headers) if callable(self.headers) else self.headers or {})
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    def _evaluated(self, make: Callable[[], Mapping[str, str]]) -> dict[str, str]:
        # Raised after the handlers, not in them: what was caught may hold the headers, and would be our context.
        try:
            made = make()
        except Exception as raised:
            problem = f"headers= raised {type(raised).__name__}"
        else:
            try:
                return spelled(made, authorized=self.authorized)
            except (TypeError, ValueError) as refused:
                problem = f"headers= gave headers that cannot be sent: {refused}"
        raise local_error("transport_failure", problem)


def _headers(headers: Any, *, authorized: bool) -> dict[str, str] | Callable[[], Mapping[str, str]] | None:
    if headers is None:
        return None
    if callable(headers):
        make: Callable[[], Mapping[str, str]] = headers
        return make
    return spelled(headers, authorized=authorized)


def spelled(headers: Any, *, authorized: bool) -> dict[str, str]:
    """The caller's headers, checked, and spelled so that they replace ours. Raises ValueError or TypeError."""
    checked = http_headers.check_user_headers(headers)
    if authorized and any(name.lower() == "authorization" for name in checked):
        raise ValueError("header Authorization is set by auth=")
    return {_OURS.get(name.lower(), name): value for name, value in checked.items()}


_OURS = {name.lower(): name for name in ("Authorization", "Cookie", "User-Agent")}


def _token(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise ValueError("auth= is a bare token of printable ASCII: no spaces, no line ends, and no 'Bearer' before it")
    return token


def _verify(verify: object) -> bool | str:
    if isinstance(verify, bool):
        return verify
    return _file(verify, "verify", "a CA bundle or folder")


def _cert(cert: object) -> str | tuple[str, str] | None:
    if cert is None:
        return None
    if isinstance(cert, (tuple, list)):
        if len(cert) != 2:
            raise ValueError("cert must be a file, or (certificate file, key file)")
        return _file(cert[0], "cert", "a certificate"), _file(cert[1], "cert", "a key")
    return _file(cert, "cert", "a certificate")


def _file(path: object, name: str, what: str) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{name} must be the path of {what}, not {type(path).__name__}")
    path = os.fspath(path)
    if not isinstance(path, str) or not os.path.exists(path):
        raise ValueError(f"{name}: there is no {path!r}")
    return path


def _proxies(proxies: object) -> dict[str, str] | None:
    from collections.abc import Mapping

    if proxies is None:
        return None
    if not isinstance(proxies, Mapping):
        raise TypeError(f"proxies must be a mapping of schemes to URLs, not {type(proxies).__name__}")
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in proxies.items()):
        raise TypeError("proxies maps schemes to URLs, both strings")
    return dict(proxies)
