"""Patterns of schemas: which are read, what they match, and that those which are taken stay linear."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from snodo_client.schema.patterns import _Reader, readable
from snodo_client.schema.work import Refused


def matches(pattern: str, text: str) -> bool:
    return readable(pattern)[0].search(text) is not None


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", ["", "x"], []),
        ("b", ["abc"], ["ac", ""]),
        ("^b", ["bc"], ["abc", "a\nb"]),
        ("b$", ["ab"], ["ba", "ab\n"]),
        (r"^\d{4}-\d{2}-\d{2}$", ["2025-01-31"], ["2025-1-31", "\u0662\u0660\u0662\u0665-01-31"]),
        (r"^\w+$", ["a_1Z"], ["\u00e9", "a-b", ""]),
        (r"^\W$", ["\u00e9", "-"], ["a", "_"]),
        (r"^\s$", [" ", "\t", "\u00a0", "\ufeff", "\u2028"], ["\x1c", "\x85", "a"]),
        (r"^\S$", ["\x85", "a"], ["\ufeff"]),
        (r"^\D$", ["a", "\u0661"], ["1"]),
        ("^.$", ["a", "\x85", "\U0001f600"], ["\n", "\r", "\u2028", "\u2029", "ab"]),
        (r"^[\s\S]$", ["\n", "a"], ["", "ab"]),
        ("^[^]$", ["\n", "a"], [""]),
        ("[]", [], ["", "a", "]"]),
        (r"^[a\-c]$", ["a", "-", "c"], ["b"]),
        (r"^[a-c-]$", ["b", "-"], ["d"]),
        (r"^[\w.+-]+$", ["a.b+c-d"], ["a b"]),
        (r"^[\]\\^]$", ["]", "\\", "^"], ["a"]),
        (r"^[\b]$", ["\x08"], ["b"]),
        (r"^\u0061\x62\u{63}\cJ\0\t$", ["abc\n\x00\t"], ["abc"]),
        (r"^\ud83d\ude00$", ["\U0001f600"], ["\ud83d"]),
        (r"^\/\.\-\_\@$", ["/.-_@"], ["/x-_@"]),
        ("^(get|getAll|list)$", ["get", "getAll"], ["getA", "getlist"]),
        ("^(?:a|b){2,3}$", ["ab", "bba"], ["a", "abab"]),
        ("^(?<year>[0-9]{4})$", ["2025"], ["25"]),
        ("^a{2}$|^b{2,}$|^c{0,1}$", ["aa", "bbb", "", "c"], ["a", "b", "cc"]),
        ("^a+?b*?c??$", ["a", "aabbc"], ["b", "acc"]),
        ("^{a}$", ["{a}"], ["a"]),
        ("^a{,2}$", ["a{,2}"], ["aa", ""]),
        ("^[a-z0-9]+(?:-[a-z0-9]+)*$", ["a-slug-1"], ["-a", "a--b", "a-"]),
        (r"^([01]?\d|2[0-3]):[0-5]\d$", ["7:05", "23:59"], ["24:00"]),
        (r"^https?://\S+$", ["https://example.test/a"], ["ftp://x", "http://a b"]),
        (r"^.*\.json$", ["a.json", ".json.json"], ["a.jso"]),
        (r"\.json$", ["a.json"], ["a.jsonx"]),
        ("^[A-Za-z_][A-Za-z0-9_.-]{0,127}$", ["a" * 128], ["a" * 129, "1"]),
        ("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", ["0" * 8 + "-0000" * 3 + "-" + "0" * 12], ["0" * 36]),
    ],
)
def test_patterns_match_as_ecma_262_says(pattern: str, matching: list[str], others: list[str]) -> None:
    assert [text for text in matching if not matches(pattern, text)] == []
    assert [text for text in others if matches(pattern, text)] == []


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        *[(pattern, "several ways") for pattern in (
            "^(a+)+$", "^(a*)*$", "^(a|a)*$", "^(a|aa)+$", "^(a|b|ab)*c", r"^(\w+\s?)*$", r"^\d+\d+$", "^.*.*x",
            "^(.+)+$", "^(a?){40}a{40}$", "^(a|a?)+$", "^(([a-z])+.)+[A-Z]([a-z])+$", "^(|a|)$", "^((a?)?)$",
            "^(ab?|ba?)*$", "^a{1,500}a{1,500}$", "^(a{1,500}){1,500}$",
        )],
        *[(pattern, "quadratic") for pattern in (r"\d+x", "f.*o", "a*$", "(a|a)*b", "[a-z]{300}", "(ab){999}")],
        *[(pattern, "looks ahead or behind") for pattern in ("(?=a)", "^(?!a)b", "(?<=a)b", "(?<!a)b")],
        *[(pattern, "escape") for pattern in (r"(a)\1", r"\p{L}", r"\k<a>", r"\bword", r"\B", r"\A", r"\Z", r"\u1")],
        *[(pattern, "kind of group") for pattern in ("(?i)a", "(?P<a>b)", "(?>a)", "(?#a)", "(?i:a)")],
        *[(pattern, "repeat") for pattern in ("*", "a**", "^*", "(^)*", "(?:($){99}){99}", "a{3,2}", "a{99999}")],
        *[(pattern, "group") for pattern in ("(", ")", "a)", "(a", "(" * 30 + ")" * 30)],
        *[(pattern, "set") for pattern in ("[a", "[[:alpha:]]")],
        *[(pattern, "range") for pattern in ("[b-a]", r"[\d-z]")],
        *[(pattern, "too large") for pattern in ("(abc){60}" * 9, "^(a{20}b{20}){2}" * 9)],
        (r"\ud83d", "does not exist"),
        (r"\u{110000}", "does not exist"),
        ("a" * 1001, "more than 1000 characters"),
    ],
)  # fmt: skip
def test_other_patterns_are_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        readable(pattern)


# --- linear ---------------------------------------------------------------------------------------------------------

ATOMS = st.sampled_from(["a", "b", "c", "[ab]", "[^a]", "."])
REPEATS = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?"])
PATTERNS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "^"]),
    st.recursive(
        ATOMS,
        lambda inner: (
            st.tuples(inner, inner).map("".join)
            | st.tuples(inner, inner).map("({0[0]}|{0[1]})".format)
            | st.tuples(inner, REPEATS).map("({0[0]}){0[1]}".format)
        ),
        max_leaves=8,
    ),
    st.sampled_from(["", "$"]),
)


def steps_of(tree: Any, text: str, most: int) -> tuple[bool, int]:
    """Search as a backtracking matcher does that knows no shortcuts: whether it finds, and how many steps it took."""
    steps = 0

    def match(tree: Any, at: int, then: Any) -> bool:
        nonlocal steps
        steps += 1
        assert steps <= most, f"more than {most} steps"
        match tree:
            case ("start",):
                return at == 0 and bool(then(at))
            case ("end",):
                return at == len(text) and bool(then(at))
            case ("set", ranges):
                return at < len(text) and any(low <= ord(text[at]) <= high for low, high in ranges) and then(at + 1)
            case ("all", parts):
                return match(parts[0], at, lambda at: match(("all", parts[1:]), at, then)) if parts else then(at)
            case ("any", branches):
                return any(match(branch, at, then) for branch in branches)
            case ("repeat", inner, low, high):
                return again(inner, low, high, 0, at, -1, then)
        raise AssertionError(tree)

    def again(inner: Any, low: int, high: int | None, count: int, at: int, before: int, then: Any) -> bool:
        nonlocal steps
        steps += 1
        more = (high is None or count < high) and (count < low or at != before)
        if more and match(inner, at, lambda end: again(inner, low, high, count + 1, end, at, then)):
            return True
        return count >= low and bool(then(at))

    found = any(match(tree, start, lambda at: True) for start in range(len(text) + 1))
    return found, steps


@settings(max_examples=300, deadline=None)
@given(pattern=PATTERNS, text=st.text("abc!", max_size=24), again=st.sampled_from(["a", "b", "ab", "aab"]))
def test_a_pattern_that_is_taken_is_linear_and_means_the_same(pattern: str, text: str, again: str) -> None:
    try:
        compiled, price = readable(pattern)
    except Refused:
        assume(False)
    tree = _Reader(pattern).tree()
    for searched in (text, again * 8, again * 8 + "!", text + again * 5 + "!"):
        found, _ = steps_of(tree, searched, most=12 * price * (len(searched) + 1))
        assert (compiled.search(searched) is not None) == found
        assert (re.search(pattern.replace("$", r"\Z"), searched) is not None) == found


@pytest.mark.parametrize("pattern", ["^(a|ab)*$", "^(a*)*b", "(a|a?)+b", "^(a|a|b)*c$"])
def test_the_matcher_above_sees_what_is_not_linear(pattern: str) -> None:
    with pytest.raises(AssertionError, match="more than"):
        steps_of(_Reader(pattern.replace("(a|ab)", "(a|aa)")).tree(), "a" * 24 + "!", most=12 * 10 * 26)


@pytest.mark.parametrize(
    "pattern",
    [
        "^[a-z0-9]+(?:-[a-z0-9]+)*$",
        r"^.*\.json$",
        "^(a|ab|abc){0,2}$",
        r"^[\s\S]*?foo$",
        "x[^x]*",
        "[a-z]{1,60}!",
    ],
)
def test_a_search_in_the_longest_text_is_quick(pattern: str) -> None:
    compiled, _ = readable(pattern)
    for text in ("a" * 4096, "a" * 4095 + "!", "ab" * 2048, "x-" * 2048):
        started = time.monotonic()
        compiled.search(text)
        assert time.monotonic() - started < 2
