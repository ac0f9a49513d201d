"""Which URLs that a server named are asked for anything: its metadata, its authorization servers, their endpoints.

Such a URL may lead a client to places only the client can reach, or send a credential in the clear. So it is https, and
this machine is named only by servers that are on it (spec: docs/tutorials/security/security_best_practices). Names are
not resolved here: that a public name leads to a private address is seen where the connection is made, by `ipaddress`.
(Libraries against request forgery bring a session or a resolver of their own, without the deadlines of ours.)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..protocol.origins import address_of, endpoint, is_loopback

if TYPE_CHECKING:
    from ..protocol.origins import Endpoint

MAX_URL = 2048  # characters

_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


class Rules:
    """What is allowed beyond https: with `local` (the MCP server is on this machine) loopback hosts, also by http; with
    `insecure_http` http to any other host.
    """

    __slots__ = ("insecure_http", "local")

    def __init__(self, local: bool = False, insecure_http: bool = False) -> None:
        self.local = local
        self.insecure_http = insecure_http

    def __repr__(self) -> str:
        return f"Rules(local={self.local}, insecure_http={self.insecure_http})"


def named(url: object, rules: Rules) -> Endpoint:
    """The endpoint at a URL that a server named. Raises ValueError where nothing is to be sent to: the words go on from
    "it is refused:", and never quote more of the URL than its origin.
    """
    if not isinstance(url, str):
        raise ValueError("it is no text")
    if len(url) > MAX_URL:
        raise ValueError(f"it is longer than {MAX_URL} characters")
    found = _endpoint(url)
    if found is None:  # raised out here, since the exceptions of parsers hold the URL
        raise ValueError("it is no http(s) URL, or one with a user name, a fragment or white space")
    if not url.isprintable():
        raise ValueError("it is written with characters that cannot be shown")
    if _is_odd(found.host):
        raise ValueError(f"{found.origin} has an address in an unusual spelling")
    if leads_here(found.host):
        if not rules.local:
            raise ValueError(f"{found.origin} is this machine, where the server is not")
    elif found.scheme != "https" and not rules.insecure_http:
        raise ValueError(f"{found.origin} is not https (insecure_http=True allows that)")
    if _is_link_local(found.host):
        raise ValueError(f"{found.origin} is an address of the network next to this machine")
    return found


def leads_here(host: str) -> bool:
    """Whether who connects to the host of an `Endpoint` gets to this machine, by its spelling: loopback hosts, and the
    addresses of no host, 0.0.0.0 and `::`.
    """
    address = address_of(host)
    return is_loopback(host) or (address is not None and address.is_unspecified)


def _is_link_local(host: str) -> bool:
    """Whether a host is an address that only neighbours have, such as the one of the metadata of a cloud."""
    address = address_of(host)
    return address is not None and address.is_link_local


def _endpoint(url: str) -> Endpoint | None:
    try:
        return endpoint(url)
    except ValueError:
        return None


def _is_odd(host: str) -> bool:
    """Whether a host is an address that only some resolvers understand: 127.1, 0x7f000001, 0177.0.0.1. No name of the
    DNS ends in a number.
    """
    last = host.removesuffix(".").rpartition(".")[2]
    return _NUMBER.fullmatch(last) is not None and address_of(host) is None
