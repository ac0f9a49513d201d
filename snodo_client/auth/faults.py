"""The errors of a flow: which step failed, with whom, and what was said about it.

What an authorization server says is bounded and masked: it has seen every secret of the flow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..masking import Masking, of_headers
from ..outcome import local_error

if TYPE_CHECKING:
    from typing import Any, Literal

    from ..outcome import McpError
    from .steps import Fetch, Reply

    Step = Literal["resource_metadata", "server_metadata", "registration", "sign_in", "token", "store"]

EXCERPT = 300  # characters


def failed(
    step: Step,
    text: str,
    *,
    fetch: Fetch | None = None,
    reply: Reply | None = None,
    cause: McpError | None = None,
    **data: Any,
) -> McpError:
    """The error of a step. With the reply that refused it, what the reply says is added to `text` and to the data:
    `error` and `error_description` of an OAuth error, else an excerpt of the body (RFC 6749, section 5.2).
    """
    found: dict[str, Any] = {"step": step}
    if fetch is not None:
        found["url"] = fetch.endpoint.name
    if reply is not None:
        from ..transports.http_faults import plain

        found["http_status"] = reply.status
        secrets = [] if fetch is None else [*fetch.secrets, *of_headers(_secret_headers(fetch))]
        masking = Masking(secrets)
        said = reply.json()
        error = said.get("error") if isinstance(said, dict) else None
        if isinstance(said, dict) and isinstance(error, str):
            found["error"] = plain(error, masking, 100)
            description = said.get("error_description")
            if isinstance(description, str) and description:
                found["error_description"] = plain(description, masking, EXCERPT)
            text += f": {found['error']}" + (f" ({found['error_description']})" if "error_description" in found else "")
        else:
            excerpt = plain(reply.body.decode("utf-8", "replace"), masking, EXCERPT)
            if excerpt:
                found["excerpt"] = excerpt
                text += f": {excerpt}"
    # Names of servers are in it: nothing that a terminal would obey, or that turns the direction of the text.
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return local_error("authorization_failed", text, data={**found, **data}, cause=cause)


def _secret_headers(fetch: Fetch) -> list[tuple[str, str]]:
    return [(name, value) for name, value in fetch.headers.items() if name in ("Authorization", "DPoP")]
