"""Redirect URIs, and the addresses a browser comes back to them with (RFC 6749, section 4.1.2; RFC 8252, section 7).

Pure functions, shared by every way to sign in. Whether an answer is accepted (`iss`, the code) is decided by the flow;
here it is only told whether an address is an answer to this sign-in at all.
"""

from __future__ import annotations

import re

from ..protocol import origins

CALLBACK = "http://localhost:8765/callback"  # where nobody listens: the person or the program carries the address over
MAX_CALLBACK = 16 * 1024  # characters; a code may be a few thousand

_MAX_REDIRECT_URI = 2048
_MAX_PARAMETERS = 64
# Of an application: the reverse of a domain name, which tells it from javascript:, data: and file:.
_PRIVATE_USE = re.compile(r"[a-z][a-z0-9+-]*(?:\.[a-z0-9+-]+)+:[!-~]+", re.IGNORECASE)


def check_redirect_uri(uri: str) -> str:
    """The URI as it is: http of a loopback host, https, or a private-use scheme such as `com.example.app:/callback`.
    Raises TypeError or ValueError for another. Spec: basic/authorization.
    """
    if not isinstance(uri, str):
        raise TypeError(f"redirect_uri must be a string, not {type(uri).__name__}")
    if len(uri) > _MAX_REDIRECT_URI:
        raise ValueError(f"redirect_uri is longer than {_MAX_REDIRECT_URI} characters")
    if uri[:5].lower() == "http:" or uri[:6].lower() == "https:":
        try:
            endpoint = origins.endpoint(uri)
        except ValueError as error:
            raise ValueError(f"redirect_uri: {error}") from None
        if endpoint.scheme == "http" and not origins.is_loopback(endpoint.host):
            raise ValueError("redirect_uri must be https, or http of localhost")
    elif not _PRIVATE_USE.fullmatch(uri) or "#" in uri or "\\" in uri:
        raise ValueError(
            "redirect_uri must be http://localhost:PORT/path, https://host/path or, of an application, like "
            "com.example.app:/path"
        )
    return uri


def port_of(uri: str) -> int | None:
    """The port to listen at for a redirect URI on this machine: `http://localhost:PORT/path`. None for any other, also
    when it names no port.
    """
    from urllib.parse import urlsplit

    try:
        endpoint = origins.endpoint(uri)
    except ValueError:
        return None
    return urlsplit(uri).port if endpoint.scheme == "http" and origins.is_loopback(endpoint.host) else None


def state_of(url: str) -> str | None:
    """The `state` an authorization URL carries."""
    from urllib.parse import parse_qs, urlsplit

    return parse_qs(urlsplit(url).query).get("state", [None])[0]


def fault(query: str, state: str | None) -> str | None:
    """Why the query of an address is no answer to the sign-in with this state, in words that quote nothing of it; None
    when it is one.

    An answer with another state, or with none, is no answer: whoever can make a browser come here (any web page), or
    has an old tab open, must not end the sign-in of somebody else.
    """
    from hmac import compare_digest
    from urllib.parse import parse_qsl

    found: dict[str, str] = {}
    try:
        for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS):
            if name in found and name in ("code", "error", "state", "iss"):
                return f"it has {name} twice"
            found[name] = value
    except ValueError:
        return "it has too many parameters"
    if not found.get("code") and not found.get("error"):
        return "it has neither a code nor an error"
    if state is not None and not compare_digest(found.get("state", "").encode(), state.encode()):
        return "it belongs to another sign-in"
    return None


def is_refusal(query: str) -> bool:
    """Whether an answer says no."""
    from urllib.parse import parse_qs

    return "error" in parse_qs(query)
