"""What a caller wants of one call beside its outcome in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal


class Wishes:
    """`answer_input`: whether handlers answer what the server asks; None: when there are any. `cache`: "use", "refresh"
    or "bypass". `definition`: that of the tool, as the caller has it.
    """

    __slots__ = ("answer_input", "cache", "definition")

    def __init__(
        self,
        answer_input: bool | None = None,
        cache: Literal["use", "refresh", "bypass"] = "use",
        definition: Mapping[str, Any] | None = None,
    ) -> None:
        self.answer_input = answer_input
        self.cache: Literal["use", "refresh", "bypass"] = cache
        self.definition = definition


PLAIN = Wishes()
