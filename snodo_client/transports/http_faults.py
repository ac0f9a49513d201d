"""What went wrong over HTTP, in our words: foreign exceptions and refusals into errors.

Exceptions of requests and urllib3 hold the request with its headers: they are looked at and dropped, never chained or
quoted. Bodies of servers may echo it: of them there is only what `masking.plain` leaves.
"""

from __future__ import annotations

import http.client
import re
import ssl
from datetime import UTC
from typing import TYPE_CHECKING

import requests
import urllib3.exceptions as urllib3_errors

from ..masking import plain
from ..outcome import local_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from ..masking import Masking
    from ..outcome import McpError

    Headers = Mapping[str, str] | http.client.HTTPMessage

FAULTS = (OSError, http.client.HTTPException, urllib3_errors.HTTPError, requests.RequestException)

_NO_CONNECTION = (
    urllib3_errors.NewConnectionError,
    urllib3_errors.ConnectTimeoutError,
    urllib3_errors.ProxyError,
    requests.exceptions.ProxyError,
    requests.exceptions.ConnectTimeout,
)
_NOT_HTTP = (
    http.client.BadStatusLine,
    http.client.LineTooLong,
    http.client.UnknownProtocol,
    urllib3_errors.InvalidHeader,
)


def causes(fault: BaseException) -> Iterator[BaseException]:
    """The exception and all it was made of, outermost first."""
    seen: list[BaseException] = []
    waiting: list[object] = [fault]
    while waiting:
        found = waiting.pop(0)
        if isinstance(found, BaseException) and not any(found is known for known in seen):
            seen.append(found)
            yield found
            waiting += [*found.args, getattr(found, "reason", None), found.__cause__, found.__context__]


def error_of(fault: BaseException, what: str, up: bool, masking: Masking) -> McpError:
    """The error for a fault of the connection to *what*; `up`: it was complete when the fault came."""
    chain = list(causes(fault))
    tls = next((cause for cause in chain if isinstance(cause, ssl.SSLError)), None)
    if isinstance(tls, (ssl.SSLEOFError, ssl.SSLZeroReturnError)) and up:
        tls = None  # how a TLS connection ends when the server just goes away
    if tls is not None:
        why = getattr(tls, "verify_message", None) or (tls.reason or "no TLS").replace("_", " ").lower()
        return local_error("tls", f"no TLS connection to {what}: {plain(why, masking)}")
    if not up or any(isinstance(cause, _NO_CONNECTION) for cause in chain):
        said = (cause for cause in reversed(chain) if isinstance(cause, OSError) and cause.args)
        why = next((plain(cause, masking) for cause in said), "it failed")
        return local_error("unreachable", f"no connection to {what}: {why}", data={"tried": [why]})
    if any(isinstance(cause, urllib3_errors.DecodeError) for cause in chain):
        return local_error("malformed", f"{what} sent a body that does not decompress")
    if any(isinstance(cause, _NOT_HTTP) and not isinstance(cause, ConnectionError) for cause in chain) or (
        type(chain[-1]) is http.client.HTTPException
    ):
        return local_error("malformed", f"{what} sent something that is not HTTP")
    return local_error("closed", f"{what} closed the connection before its answer was complete")


def refusal(said: str, status: int, headers: Headers, body: bytes, masking: Masking, credential: bool) -> McpError:
    """The error of an answer that says no: "unauthorized" for 401 and 403, else "http_status". `said` is who answered
    what, `body` the start of its text; `credential`: one had been sent.
    """
    excerpt = plain(body.decode("utf-8", "replace"), masking)
    data: dict[str, Any] = {
        "http_status": status,
        "content_type": plain(media_type(headers), masking, 100) or None,
        "excerpt": excerpt,
    }
    wait = retry_after(headers.get("retry-after"))
    if wait is not None:
        data["retry_after"] = wait
    text = f"{said}: {excerpt}" if excerpt else said
    if status not in (401, 403):
        return local_error("http_status", text, data=data)
    challenge = headers.get("www-authenticate")
    if challenge is not None:
        data["challenge"] = plain(challenge, masking, 1000)
    if credential:
        data["credential"] = True
    return local_error("unauthorized", text, data=data)


def media_type(headers: Headers) -> str:
    """The content type without parameters, in lower case; empty when there is none."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def retry_after(value: str | None) -> float | None:
    """Seconds to wait, from a number or an HTTP date; None for anything else."""
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return float(value)
    from datetime import datetime
    from email.utils import parsedate_to_datetime

    try:
        then = parsedate_to_datetime(value)
        return max((then - datetime.now(then.tzinfo and UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None
