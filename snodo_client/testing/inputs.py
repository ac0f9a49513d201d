"""What a handler can ask of its caller, for `Call.ask`: a form, a page to open, words of a model, the roots.

    answer = call.ask("address", inputs.form("Where to?", {"street": {"type": "string"}}))

Plain request objects as both eras know them; anything else can be written by hand. One function for each kind of
handler that a client may have. Spec: client/elicitation, client/sampling, client/roots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def form(
    message: str, properties: Mapping[str, Mapping[str, Any]], *, required: Iterable[str] | None = None
) -> dict[str, Any]:
    """A form with these fields, all of them required unless `required` names some.

    The answer has an `action`: "accept" with the `content`, "decline" or "cancel".
    """
    schema = {"type": "object", "properties": {name: dict(field) for name, field in properties.items()}}
    schema["required"] = list(properties if required is None else required)
    return _elicitation(mode="form", message=message, requestedSchema=schema)


def url(message: str, address: str) -> dict[str, Any]:
    """A page for a person to open. The answer has an `action`, which does not say what was done on the page."""
    return _elicitation(mode="url", message=message, url=address)


def sampling(prompt: str | list[dict[str, Any]], *, max_tokens: int = 100, **params: Any) -> dict[str, Any]:
    """A completion of a text or of messages; `params` are added as they are, as in `systemPrompt="Be brief."`.

    The answer has a `role`, the `content` and the `model`.
    """
    messages = [{"role": "user", "content": {"type": "text", "text": prompt}}] if isinstance(prompt, str) else prompt
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": max_tokens, **params}}


def roots() -> dict[str, Any]:
    """The directories that the client shares. The answer has the `roots`."""
    return {"method": "roots/list", "params": {}}


def _elicitation(**params: Any) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": params}
