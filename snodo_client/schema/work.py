"""What checking one value may cost, counted in steps.

A server writes both the schema and the value, so how long they take together is its choice, unless every step is
counted. A step is about a microsecond of the work that jsonschema does. Nothing here knows schemas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 150  # rules within rules; each is some frames of Python's stack


class Refused(Exception):
    """Checking stops here, and why: a clause to read after "validation is off:"."""


class Work:
    """What is left of the steps of one check, and how deep it stands. Each check has its own."""

    __slots__ = ("depth", "left")

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.depth = 0

    def spend(self, steps: int) -> None:
        """Raises Refused when there are not that many left."""
        self.left -= steps
        if self.left < 0:
            raise Refused("checking the value against the schema takes too long")

    def enter(self) -> None:
        """A rule that holds other rules begins; who enters must leave."""
        if self.depth >= MAX_DEPTH:
            raise Refused(f"the rules that apply to the value nest more than {MAX_DEPTH} deep")
        self.depth += 1

    def leave(self) -> None:
        """A rule that holds other rules ends."""
        self.depth -= 1

    def weigh(self, value: Any, per_step: int = 4) -> None:
        """Spend a step for so many members of the value, at any depth; 64 characters count as a member."""
        most = self.left * per_step
        members, rest = 0, [value]
        while rest and members <= most:
            value = rest.pop()
            members += 1
            if isinstance(value, str):
                members += len(value) >> 6
            elif isinstance(value, dict):
                members += sum(len(name) for name in value if isinstance(name, str)) >> 6  # a schema's may be patterns
                rest.extend(value.values()) if len(value) <= most else self.spend(len(value))
            elif isinstance(value, list):
                rest.extend(value) if len(value) <= most else self.spend(len(value))
            elif isinstance(value, int):
                members += value.bit_length() >> 6
        self.spend(-(-members // per_step))
