r"""Regular expressions as schemas have them (ECMA-262), read and written again for Python's `re`.

The two dialects look alike and differ: `\d` and `\w` are ASCII there, `$` is the end and not a last line break, `.`
leaves out four line breaks, `\uXXXX` and `\cX` exist. What looks around or back, what names kinds of characters, and
what might take longer than linear time (see `backtracking`) is refused. (spec: JSON Schema core 2020-12, section 6.4)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .backtracking import price
from .work import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .backtracking import Ranges, Tree

MAX_LENGTH = 1000  # characters of a pattern
MAX_GROUPS = 20  # groups within groups
MAX_REPEATS = 10_000  # the number in braces

_LAST = 0x10FFFF


def readable(pattern: str) -> tuple[re.Pattern[str], int]:
    """The pattern compiled, for `search`, and the most steps of the matcher per character of a text.

    Raises Refused with what is wrong with the pattern.
    """
    if len(pattern) > MAX_LENGTH:
        raise Refused(f"a pattern has more than {MAX_LENGTH} characters")
    shown = repr(pattern if len(pattern) <= 80 else pattern[:80] + "...")
    try:
        tree = _Reader(pattern).tree()
        steps = price(tree)
    except Refused as refused:
        raise Refused(f"the pattern {shown} {refused}") from None
    return re.compile(_written(tree)), steps


# --- sets of characters: ranges of code points, sorted, that do not touch ------------------------------------------


def _set(ranges: Iterable[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return tuple(joined)


def _other_than(ranges: Ranges) -> Ranges:
    found, low = [], 0
    for first, last in ranges:
        if first > low:
            found.append((low, first - 1))
        low = last + 1
    return (*found, (low, _LAST)) if low <= _LAST else tuple(found)


def _of(characters: str) -> Ranges:
    return _set((ord(character), ord(character)) for character in characters)


_DIGIT = _set([(0x30, 0x39)])
_WORD = _set([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
_BREAKS = _of("\n\r\u2028\u2029")
_SPACE = _set([*_BREAKS, *_of("\t\v\f \u00a0\u1680\u202f\u205f\u3000\ufeff"), (0x2000, 0x200A)])
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CLASSES |= {name.upper(): _other_than(ranges) for name, ranges in _CLASSES.items()}
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D}


# --- reading ------------------------------------------------------------------------------------------------------


class _Reader:
    """A pattern and the place in it; each method reads one thing of the grammar and moves on."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def tree(self) -> Tree:
        tree = self._choice(0)
        if self.at < len(self.pattern):
            raise Refused("closes a group that is not open")
        return tree

    def _next(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def _take(self, text: str) -> bool:
        found = self.pattern.startswith(text, self.at)
        self.at += len(text) * found
        return found

    def _match(self, expression: str) -> re.Match[str] | None:
        found = re.compile(expression).match(self.pattern, self.at)
        if found:
            self.at = found.end()
        return found

    def _choice(self, depth: int) -> Tree:
        if depth > MAX_GROUPS:
            raise Refused(f"has groups more than {MAX_GROUPS} deep")
        branches = [self._sequence(depth)]
        while self._take("|"):
            branches.append(self._sequence(depth))
        return ("any", branches) if len(branches) > 1 else branches[0]

    def _sequence(self, depth: int) -> Tree:
        parts: list[Tree] = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom(depth)))
        return ("all", parts)

    def _atom(self, depth: int) -> Tree:
        if self._take("^"):
            return ("start",)
        if self._take("$"):
            return ("end",)
        if self._take("("):
            if self._match(r"\?(?:<?[=!])"):
                raise Refused("looks ahead or behind")
            if self._take("?") and not self._match(r":|<[A-Za-z_][A-Za-z0-9_]*>"):
                raise Refused("has a kind of group that is not known here")
            tree = self._choice(depth + 1)
            if not self._take(")"):
                raise Refused("leaves a group open")
            return tree
        if self._take("["):
            return ("set", self._class())
        if self._take("."):
            return ("set", _other_than(_BREAKS))
        if self._next() in ("*", "+", "?"):
            raise Refused("repeats nothing")
        return ("set", self._character(in_class=False))

    def _repeated(self, tree: Tree) -> Tree:
        found = self._match(r"[*+?]|\{([0-9]+)(?:(,)([0-9]+)?)?\}")
        if not found:
            return tree
        if tree[0] in ("start", "end"):
            raise Refused("repeats a place instead of a text")
        least, comma, most = found.groups()
        low = int(least) if least else int(found[0] == "+")
        high = (1 if found[0] == "?" else None) if not least else low if not comma else int(most) if most else None
        if low > MAX_REPEATS or (high is not None and not low <= high <= MAX_REPEATS):
            raise Refused("repeats something too often, or less than zero times")
        self._take("?")  # lazy: which texts match is the same
        if self._match(r"[*+?]"):
            raise Refused("repeats a repeat")
        return ("repeat", tree, low, high)

    def _class(self) -> Ranges:
        other, found = self._take("^"), []
        while not self._take("]"):
            first = self._character(in_class=True)
            if self._next() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("", "]"):
                self.at += 1
                last = self._character(in_class=True)
                if not _is_one(first) or not _is_one(last) or first[0][0] > last[0][0]:
                    raise Refused("has a range that is none")
                found.append((first[0][0], last[0][0]))
            else:
                found.extend(first)
        ranges = _set(found)
        return _other_than(ranges) if other else ranges

    def _character(self, *, in_class: bool) -> Ranges:
        character = self._next()
        if not character:
            raise Refused("ends within a set or an escape")
        self.at += 1
        if in_class and character == "[" and self._next() == ":":
            raise Refused("has a named set of another dialect")
        return self._escape(in_class=in_class) if character == "\\" else _of(character)

    def _escape(self, *, in_class: bool) -> Ranges:
        pair = self._match(r"u([dD][89abAB][0-9A-Fa-f]{2})\\u([dD][c-fC-F][0-9A-Fa-f]{2})")
        if pair:
            high, low = (int(half, 16) for half in pair.groups())
            return _point(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)
        found = self._match(r"u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,8})\}|x([0-9A-Fa-f]{2})")
        if found:
            return _point(int(found[found.lastindex or 0], 16))
        control = self._match("c([A-Za-z])")
        if control:
            return _point(ord(control[1]) % 32)
        if self._match("0(?![0-9])"):
            return _point(0)
        if in_class and self._take("b"):
            return _point(0x08)
        letter = self._next()
        self.at += 1
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter in _CONTROLS:
            return _point(_CONTROLS[letter])
        if not letter or letter.isalnum():
            raise Refused(f"has the escape \\{letter}, which is not known here")
        return _of(letter)


def _point(number: int) -> Ranges:
    if number > _LAST or 0xD800 <= number <= 0xDFFF:
        raise Refused("has a character that does not exist")
    return ((number, number),)


def _is_one(ranges: Ranges) -> bool:
    return len(ranges) == 1 and ranges[0][0] == ranges[0][1]


# --- writing ------------------------------------------------------------------------------------------------------


def _written(tree: Tree) -> str:
    match tree:
        case ("start",):
            return r"\A"
        case ("end",):
            return r"\Z"
        case ("set", ()):
            return "(?!)"
        case ("set", ranges):
            if _is_one(ranges):
                return _code(ranges[0][0])
            return "[" + "".join(f"{_code(low)}-{_code(high)}" for low, high in ranges) + "]"
        case ("all", parts):
            return "".join(map(_written, parts))
        case ("any", branches):
            return "(?:" + "|".join(map(_written, branches)) + ")"
        case ("repeat", inner, low, high):
            return f"(?:{_written(inner)}){{{low},{'' if high is None else high}}}"
    raise AssertionError(tree)


def _code(point: int) -> str:
    return f"\\U{point:08x}"
