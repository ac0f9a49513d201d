"""The errors of a flow: which step failed, with whom, and what was said about it.

What an authorization server says is bounded and masked: it has seen every secret of the flow. None that it issues is in
an error about its answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..masking import EXCERPT, Masking, of_headers, plain, printable
from ..outcome import local_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Literal

    from ..outcome import McpError
    from .steps import Fetch, Reply

    Step = Literal["resource_metadata", "server_metadata", "registration", "sign_in", "token", "store"]

_ISSUED = ("access_token", "refresh_token", "id_token", "client_secret", "registration_access_token")


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
        found["http_status"] = reply.status
        secrets = [] if fetch is None else [*fetch.secrets, *of_headers(_secret_headers(fetch))]
        masking = Masking(secrets)
        said = reply.json()
        error = said.get("error") if isinstance(said, dict) else None
        if isinstance(said, dict) and isinstance(error, str):
            found["error"] = plain(error, masking, 100)
            description = said.get("error_description")
            if isinstance(description, str) and description:
                found["error_description"] = plain(description, masking)
            text += f": {found['error']}" + (f" ({found['error_description']})" if "error_description" in found else "")
        else:
            excerpt = plain(reply.body.decode("utf-8", "replace"), masking)
            if excerpt:
                found["excerpt"] = excerpt
                text += f": {excerpt}"
    # Names of servers are in it: nothing that a terminal would obey, or that turns the direction of the text.
    return local_error("authorization_failed", printable(text), data={**found, **data}, cause=cause)


def answered(step: Step, fetch: Fetch, reply: Reply, *, needed: str) -> dict[str, object]:
    """The JSON object of a successful reply. Raises McpError for every other one: also for a success that has an
    `error` in place of the member that is `needed`, which some servers send.
    """
    said = reply.json()
    name = fetch.endpoint.name
    if reply.status in (200, 201):
        if isinstance(said, dict) and (said.get(needed) or not isinstance(said.get("error"), str)):
            return said
        if not isinstance(said, dict):
            # Nothing of it is shown: a token that was cut off would be found by no mask.
            found = "a web page" if "html" in reply.headers.get("content-type", "").lower() else "something else"
            text = f"{name} answered {reply.status} with {found} in place of a JSON object"
            raise failed(step, text, fetch=fetch, http_status=reply.status)
    raise _refused(step, fetch, reply, said)


def _refused(step: Step, fetch: Fetch, reply: Reply, said: object) -> McpError:
    fetch.secrets.extend(_issued(said))
    text = f"{fetch.endpoint.name} refused {fetch.what} with {reply.status}"
    if 300 <= reply.status < 400:
        text = f"{fetch.endpoint.name} answered with a redirect ({reply.status}), which is not followed from there"
    elif reply.status >= 500:
        text = f"{fetch.endpoint.name} failed with {reply.status}, asked for {fetch.what}"
    elif step == "registration":
        wrong_uri = isinstance(said, dict) and said.get("error") == "invalid_redirect_uri"
        option = "redirect_uri= with one that it takes" if wrong_uri else "client_id= of a client that it knows"
        text += f" (pass {option})"
    return failed(step, text, fetch=fetch, reply=reply)


def shown(text: str) -> str:
    """Text of a server that is none of our secrets, in an error: bounded, and without what a terminal would obey, or
    what looks like something else.
    """
    cut = text if len(text) <= EXCERPT else text[: EXCERPT - 3] + "..."
    return ascii(cut)[1:-1]


def _secret_headers(fetch: Fetch) -> list[tuple[str, str]]:
    return [(name, value) for name, value in fetch.headers.items() if name in ("Authorization", "DPoP")]


def _issued(said: object) -> Iterator[str]:
    """What a server issued, even with a status that says that it did not."""
    if isinstance(said, dict):
        yield from (value for name in _ISSUED if isinstance(value := said.get(name), str))
