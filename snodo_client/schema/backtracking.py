"""How long a backtracking matcher may search with a regular expression: linear in the text, or refused.

The expression becomes an automaton with one state per character set written in it (Glushkov's), whose paths are what
the matcher may try. Search is linear when

- no loop can be walked in two ways: what may follow a character inside a loop excludes each other, except for ways out
  that meet no other loop, and so end after a bounded number of characters;
- outside of loops the number of ways multiplies up to a small bound only;
- it starts at one place (`^`), or finds a match as soon as it has entered a loop: else each character of the text may
  start a walk through the whole text.

Simpler than the truth in places, always in the direction of refusing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .work import Refused

if TYPE_CHECKING:
    from typing import Any

    Ranges = tuple[tuple[int, int], ...]  # of code points, sorted, disjoint, both ends included
    # ("set", Ranges) | ("all", [Tree]) | ("any", [Tree]) | ("repeat", Tree, low, high or None) | ("start",) | ("end",)
    Tree = tuple[Any, ...]

MAX_STATES = 400
MAX_STEPS = 10_000  # from state to state, each counted as often as the second one's set has ranges
MAX_WAYS = 64

_TOO_LARGE = "is too large"
_AMBIGUOUS = "can be matched in several ways, which may take more than linear time"


def price(tree: Tree) -> int:
    """The most states a search visits per character of the text. Raises Refused when there is no such bound."""
    automaton = _Automaton()
    whole = automaton.build(tree)
    if whole.loose_first and not (whole.free_empty or automaton.looping <= whole.free_last):
        raise Refused("is not anchored with ^ and has an open repeat before its end, which may take quadratic time")
    return automaton.ways(whole) * (len(automaton.sets) + 1)


class _Part:
    """A part of the expression: the states that it may begin and end with, and whether it matches the empty text.

    `loose_*` leaves out what needs `^` before it, `free_*` what needs an anchor after it.
    """

    __slots__ = ("empty", "first", "free_empty", "free_last", "last", "loose_empty", "loose_first")

    def __init__(self, first: set[int], *, empty: bool, loose: bool = True, free: bool = True) -> None:
        self.first, self.loose_first = first, first
        self.last, self.free_last = first, first
        self.empty, self.loose_empty, self.free_empty = empty, empty and loose, empty and free


class _Automaton:
    def __init__(self) -> None:
        self.sets: list[Ranges] = []  # of each state; states are numbered from left to right
        self.follow: list[set[int]] = []
        self.looping: set[int] = set()
        self.steps = 0

    # --- building -------------------------------------------------------------------------------------------------

    def build(self, tree: Tree) -> _Part:
        match tree:
            case ("set", ranges):
                if len(self.sets) >= MAX_STATES:
                    raise Refused(_TOO_LARGE)
                self.sets.append(ranges)
                self.follow.append(set())
                return _Part({len(self.sets) - 1}, empty=False)
            case ("start",):
                return _Part(set(), empty=True, loose=False, free=False)
            case ("end",):
                return _Part(set(), empty=True, free=False)
            case ("all", parts):
                return self._sequence([self.build(part) for part in parts])
            case ("any", branches):
                return self._choice([self.build(branch) for branch in branches])
            case ("repeat", inner, low, high):
                return self._repeat(inner, low, high)
        raise AssertionError(tree)

    def _sequence(self, parts: list[_Part]) -> _Part:
        whole = _Part(set(), empty=True)
        for part in reversed(parts):
            whole = self._pair(part, whole)
        return whole

    def _pair(self, one: _Part, two: _Part) -> _Part:
        self._link(one.last, two.first)
        both = _Part(set(), empty=one.empty and two.empty)
        both.loose_empty = one.loose_empty and two.loose_empty
        both.free_empty = one.free_empty and two.free_empty
        both.first = one.first | two.first if one.empty else one.first
        both.loose_first = one.loose_first | two.loose_first if one.loose_empty else one.loose_first
        both.last = one.last | two.last if two.empty else two.last
        both.free_last = one.free_last | two.free_last if two.free_empty else two.free_last
        return both

    def _choice(self, branches: list[_Part]) -> _Part:
        if sum(branch.empty for branch in branches) > 1:
            raise Refused(_AMBIGUOUS)
        either = _Part(set(), empty=any(branch.empty for branch in branches))
        either.loose_empty = any(branch.loose_empty for branch in branches)
        either.free_empty = any(branch.free_empty for branch in branches)
        either.first = set().union(*(branch.first for branch in branches))
        either.loose_first = set().union(*(branch.loose_first for branch in branches))
        either.last = set().union(*(branch.last for branch in branches))
        either.free_last = set().union(*(branch.free_last for branch in branches))
        return either

    def _repeat(self, inner: Tree, low: int, high: int | None) -> _Part:
        begin = len(self.sets)
        parts = [self.build(inner)]
        size = len(self.sets) - begin
        if not size:
            raise Refused("repeats a place instead of a text")
        if high == 0:
            return _Part(set(), empty=True)
        # Many copies are taken for a loop: that has all of their ways, and more. It may end too early, so it is no end.
        many = size * (low if high is None else high) > MAX_STATES // 2
        too_early = many and low > 1
        if many:
            high, low = None, min(low, 1)
        parts += [self.build(inner) for _ in range(max(low + (high is None), high or 0) - 1)]
        if parts[0].empty and (high is None or low < high):
            raise Refused(_AMBIGUOUS)
        if high is None:
            loop = parts.pop()
            self._link(loop.last, loop.first)
            self.looping.update(range(len(self.sets) - size, len(self.sets)))
            whole = self._sequence([*parts, self._optional(loop)])
            if too_early:
                whole.free_last = set()
            return whole
        rest = _Part(set(), empty=True)
        for part in reversed(parts[low:]):
            rest = self._optional(self._pair(part, rest))
        return self._sequence([*parts[:low], rest])

    def _optional(self, part: _Part) -> _Part:
        part.empty = part.loose_empty = part.free_empty = True
        return part

    def _link(self, ends: set[int], begins: set[int]) -> None:
        self.steps += len(ends) * sum(len(self.sets[state]) for state in begins)
        if self.steps > MAX_STEPS:
            raise Refused(_TOO_LARGE)
        for state in ends:
            if not self.follow[state].isdisjoint(begins):
                raise Refused(_AMBIGUOUS)  # the same step by an inner and by an outer loop
            self.follow[state] |= begins

    # --- counting -------------------------------------------------------------------------------------------------

    def ways(self, whole: _Part) -> int:
        """The most ways to go on from any place of the text, loops aside."""
        before_loop = set(self.looping)
        ways = [1] * len(self.sets)
        most = 1
        for state in range(len(self.sets) - 1, -1, -1):
            follow = self.follow[state]
            if not before_loop.isdisjoint(follow):
                before_loop.add(state)
            if state not in self.looping:
                ways[state] = max(1, self._overlap(follow, ways))
            elif self._overlap(follow & before_loop, [1] * len(self.sets)) > 1:
                raise Refused(_AMBIGUOUS)
            else:
                ways[state] = most + self._overlap(follow - before_loop, ways)
            most = max(most, ways[state])
        start = max(1, self._overlap(whole.first, ways))
        if max(start, most) > MAX_WAYS:
            raise Refused(_AMBIGUOUS)
        return start

    def _overlap(self, states: set[int], weights: list[int]) -> int:
        """The most that those of these states weigh which one character is in."""
        edges = []
        for state in states:
            for low, high in self.sets[state]:
                edges += [(low, weights[state]), (high + 1, -weights[state])]
        most = depth = 0
        for _, step in sorted(edges):
            depth += step
            most = max(most, depth)
        return most
