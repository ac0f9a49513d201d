"""Which URLs an HTTP transport may send to: endpoints, their origins, and where a redirect may lead.

A POST that carries credentials goes to one origin only, so every URL, also one a server names, passes through here
before anything is sent. Pure string work; names are not resolved. A rejected URL is never quoted: its query and its
userinfo may be secrets.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address
    from typing import Literal
    from urllib.parse import SplitResult

    Reason = Literal["cross_origin_endpoint", "cross_origin_redirect", "invalid_redirect", "malformed"]

DEFAULT_PORTS = {"http": 80, "https": 443}
REDIRECTS = frozenset({301, 302, 303, 307, 308})  # the statuses that are one
MAX_REDIRECTS = 5
MAX_LOCATION = 8192  # characters

_NOT_IN_A_URL = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"(?!.{254})(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?")
_KEPT = "!#$%&'()*+,-./:;=?@_~"  # what is written in a path or a query as it is; "%" since it is encoded already
_ESCAPE = re.compile(r"%[0-9a-f]{2}", re.IGNORECASE)


class Endpoint:
    """An http(s) URL in parts, all ASCII. `origin` is scheme, host and port (the default port left out), `path` starts
    with a slash, `query` is empty or starts with a question mark.
    """

    __slots__ = ("host", "origin", "path", "query", "scheme")

    def __init__(self, scheme: str, host: str, port: int | None, path: str, query: str) -> None:
        self.scheme = scheme
        self.host = host
        shown = f"[{host}]" if ":" in host else host
        self.origin = f"{scheme}://{shown}" if port in (None, DEFAULT_PORTS[scheme]) else f"{scheme}://{shown}:{port}"
        self.path = path
        self.query = query

    @property
    def name(self) -> str:
        """What errors and logs call the endpoint: the URL without its query."""
        return self.origin + self.path

    @property
    def url(self) -> str:
        return self.origin + self.path + self.query

    def __repr__(self) -> str:
        return f"Endpoint({self.name})"


class Refusal:
    """A place a server names and nothing is sent to: the `reason` of the error, `why` in words, and where it leads, if
    that is known: the origin of another site, or the URL without its query.
    """

    __slots__ = ("location", "reason", "why")

    def __init__(self, reason: Reason, why: str, location: str | None = None) -> None:
        self.reason = reason
        self.why = why
        self.location = location


def endpoint(url: str) -> Endpoint:
    """The endpoint a URL names. Raises ValueError for anything but a plain http(s) URL: no userinfo, no fragment, no
    white space; the path and the query may have characters beyond ASCII.
    """
    if not isinstance(url, str):
        raise TypeError(f"a URL is a string, not {type(url).__name__}")
    if _NOT_IN_A_URL.search(url):
        raise ValueError("a URL has no white space, control characters or backslashes")
    if "#" in url:
        raise ValueError("the URL of an endpoint has no fragment (#)")
    parts = _split(url)
    if parts is None or parts.scheme not in DEFAULT_PORTS or not parts.netloc:
        raise ValueError("the URL of an endpoint is http://host/path or https://host/path")
    if "@" in parts.netloc:
        raise ValueError("a URL with a user name or password is refused: pass auth= or headers= instead")
    host, port = _host(parts), _port(parts)
    if host is None:
        raise ValueError("the URL has no valid host name")
    if port == 0:
        raise ValueError("the URL has no valid port")
    query = f"?{_written(parts.query)}" if parts.query else ""
    return Endpoint(parts.scheme, host, port, _written(parts.path or "/"), query)


def origin(text: str) -> str:
    """The origin that *text* (`https://host` or `https://host:port`) names. Raises ValueError for more or less."""
    named = endpoint(text)
    if named.path != "/" or named.query:
        raise ValueError("an origin is scheme, host and port: https://example.com:8443")
    return named.origin


def is_loopback(host: str) -> bool:
    """Whether only this machine answers at the host of an endpoint, by its spelling: `localhost` and names below it,
    127.0.0.0/8, `::1`.
    """
    name = host.removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = address_of(host)
    return address is not None and address.is_loopback


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is, an IPv4 one inside of an IPv6 one as itself; None for a name."""
    from ipaddress import ip_address

    try:
        address = ip_address(host.removesuffix("."))
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def redirected(base: Endpoint, status: int, location: str | None, hops: int) -> Endpoint | Refusal:
    """Where a POST to *base* goes on after a redirect, the *hops*-th in a row: only by 307 or 308, only to the same
    origin, and only a few times. The other codes would make a GET of it.
    """
    target = _resolved(base, location or "")
    if isinstance(target, str):
        return Refusal("invalid_redirect", target)
    if target.origin != base.origin:
        return Refusal("cross_origin_redirect", f"it leads to {target.origin}", target.origin)
    if status not in (307, 308):
        return Refusal("invalid_redirect", f"it leads to {target.name}, but with this status as a GET", target.name)
    if hops > MAX_REDIRECTS:
        return Refusal("invalid_redirect", f"it leads to {target.name}, the {hops}th in a row", target.name)
    return target


def announced(base: Endpoint, reference: str) -> Endpoint | Refusal:
    """Where messages go, as the server at *base* says in the `endpoint` event of HTTP+SSE: a URL, or a reference
    relative to *base*, of the same origin (2024-11-05: basic/transports).
    """
    target = _resolved(base, reference.strip())
    if isinstance(target, str):
        return Refusal("malformed", target)
    if target.origin != base.origin:
        return Refusal("cross_origin_endpoint", f"it leads to {target.origin}", target.origin)
    return target


def _resolved(base: Endpoint, reference: str) -> Endpoint | str:
    """The endpoint a reference leads to from *base* (RFC 3986, section 5), or in words why it leads nowhere."""
    from urllib.parse import urljoin

    if not reference or len(reference) > MAX_LOCATION:
        return "it names no place to go to"
    try:
        return endpoint(urljoin(base.url, reference.partition("#")[0]))
    except ValueError:
        return "the place it names is no plain http(s) URL"


def _written(part: str) -> str:
    """A path or a query as it is sent, byte by byte: what is signed is what is on the wire."""
    from urllib.parse import quote

    return _ESCAPE.sub(lambda escape: escape[0].upper(), quote(part, safe=_KEPT))


def _split(url: str) -> SplitResult | None:
    from urllib.parse import urlsplit

    try:
        return urlsplit(url)
    except ValueError:
        return None


def _host(parts: SplitResult) -> str | None:
    host = parts.hostname or ""
    if ":" in host:
        return host  # an IPv6 address; the splitter has looked at it
    try:
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        return None
    return host if _HOST.fullmatch(host) else None


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        return 0
