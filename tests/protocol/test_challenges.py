"""`WWW-Authenticate`: what servers write, what they write wrongly, and the bounds."""

from __future__ import annotations

import itertools
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snodo_client.protocol.challenges import (
    MAX_CHALLENGES,
    MAX_LINE,
    MAX_LINES,
    MAX_PARAMETERS,
    Challenge,
    challenges,
    chosen,
)

Parts = tuple[str, dict[str, str]]


def parsed(*lines: str) -> list[Parts]:
    return [(challenge.scheme, challenge.parameters) for challenge in challenges(lines)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Bearer", [("bearer", {})]),
        ('Bearer realm="x"', [("bearer", {"realm": "x"})]),
        ('BEARER Error="invalid_token", SCOPE=read', [("bearer", {"error": "invalid_token", "scope": "read"})]),
        ('Bearer scope = "a b" ,\terror\t=\tx', [("bearer", {"scope": "a b", "error": "x"})]),
        ('Bearer realm="a, Basic realm=\\"b\\", c"', [("bearer", {"realm": 'a, Basic realm="b", c'})]),
        (r'Bearer realm="a\\b\c"', [("bearer", {"realm": r"a\bc"})]),
        ('Bearer realm=""', [("bearer", {"realm": ""})]),
        ('Bearer realm="\u00e9\t"', [("bearer", {"realm": "\u00e9\t"})]),
        ('Bearer realm="1", Realm="2"', [("bearer", {"realm": "1"})]),
        ('Basic realm="a", Bearer scope="b"', [("basic", {"realm": "a"}), ("bearer", {"scope": "b"})]),
        ("Negotiate, Bearer, DPoP", [("negotiate", {}), ("bearer", {}), ("dpop", {})]),
        ('Negotiate abc/+-._~==, DPoP algs="ES256"', [("negotiate", {}), ("dpop", {"algs": "ES256"})]),
        ("Negotiate abc, error=x", [("negotiate", {})]),
        (', ,Bearer ,, realm="x",,error=y , ,', [("bearer", {"realm": "x", "error": "y"})]),
        (
            'Bearer realm="x" error=y Basic realm=z',
            [("bearer", {"realm": "x", "error": "y"}), ("basic", {"realm": "z"})],
        ),
        ("Bearer realm=", [("bearer", {})]),
        ("", []),
        (" , ", []),
    ],
)
def test_a_line(line: str, expected: list[Parts]) -> None:
    assert parsed(line) == expected


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ('Bearer realm="x", error=, scope="a"', [("bearer", {"realm": "x"})]),
        ('Bearer error=, scope="a"', [("bearer", {})]),
        ('Bearer realm="x", scope="a b', [("bearer", {"realm": "x"})]),
        ('Bearer realm="x", scope="a\\', [("bearer", {"realm": "x"})]),
        ('Bearer realm="x", scope="a\\"', [("bearer", {"realm": "x"})]),
        ('Bearer realm="x"y, scope=a', [("bearer", {})]),
        ('Bearer realm="x", resource_metadata=https://example.com/x', [("bearer", {"realm": "x"})]),
        ('Bearer realm="x", scope="a\r\nb"', [("bearer", {"realm": "x"})]),
        ('Bearer realm="x", scope="a\x00b"', [("bearer", {"realm": "x"})]),
        ('Bearer realm="x", scope="a\\\x00b"', [("bearer", {"realm": "x"})]),
        ('Bearer realm="x"\n', [("bearer", {})]),
        ("Bearer abc\n", [("bearer", {})]),
        ("Bearer\n", []),
        ('realm="x", Bearer', []),
        ("Bearer: x", []),
        ("Bearer =x", []),
        ("B\u00e9arer realm=x", []),
    ],
)
def test_what_is_whole_before_a_fault_is_kept(line: str, kept: list[Parts]) -> None:
    assert parsed(line) == kept
    assert parsed(line, "Basic realm=z") == [*kept, ("basic", {"realm": "z"})]


def test_lines_beyond_the_bounds_are_left_out() -> None:
    fits = 'Bearer realm="' + "x" * (MAX_LINE - 15) + '"'
    assert len(fits) == MAX_LINE
    assert parsed(fits + " ", fits)[0] == ("bearer", {"realm": "x" * (MAX_LINE - 15)})
    assert len(parsed(fits + " ", fits)) == 1
    assert [scheme for scheme, _ in parsed(*(f"S{n}" for n in range(40)))] == [f"s{n}" for n in range(MAX_LINES)]
    endless = itertools.repeat("Basic")
    assert len(challenges(endless)) == MAX_LINES


def test_challenges_and_parameters_beyond_the_bounds_are_left_out() -> None:
    schemes = [f"s{n}" for n in range(40)]
    assert [scheme for scheme, _ in parsed(", ".join(schemes), "Bearer")] == schemes[:MAX_CHALLENGES]
    names = [f"p{n}" for n in range(40)]
    line = f"Bearer {', '.join(f'{name}=1' for name in names)}, Basic realm=x"
    assert parsed(line) == [("bearer", dict.fromkeys(names[:MAX_PARAMETERS], "1")), ("basic", {"realm": "x"})]


def test_what_a_challenge_says() -> None:
    [said] = challenges(
        ['Bearer error="e", error_description="d", scope=" a  b a ", resource_metadata="https://example.com/m"']
    )
    assert (said.error, said.error_description, said.scope) == ("e", "d", ("a", "b"))
    assert said.resource_metadata == "https://example.com/m"
    for line in ("Bearer", 'Bearer scope=""', 'Bearer scope=" "'):
        [silent] = challenges([line])
        assert (silent.error, silent.error_description, silent.scope, silent.resource_metadata) == (None,) * 4


def test_the_repr_shows_no_values() -> None:
    assert repr(challenges(['Bearer error_description="canary", scope=canary'])[0]) == (
        "<Challenge bearer: error_description, scope>"
    )


@pytest.mark.parametrize(
    ("line", "scheme", "parameters"),
    [
        ('Basic realm="x", Bearer realm="y"', "bearer", {"realm": "y"}),
        ('Bearer realm="y", DPoP error="invalid_token"', "dpop", {"error": "invalid_token"}),
        ("DPoP algs=ES256, Bearer scope=a", "bearer", {"scope": "a"}),
        ('Basic scope=a, DPoP, Bearer resource_metadata="https://example.com/m"', "bearer", None),
        ("Bearer scope=a, DPoP scope=b", "bearer", {"scope": "a"}),
        ("DPoP algs=ES256, Bearer", "dpop", {"algs": "ES256"}),
    ],
)
def test_the_challenge_to_answer(line: str, scheme: str, parameters: dict[str, str] | None) -> None:
    found = chosen(challenges([line]))
    assert found is not None
    assert found.scheme == scheme
    assert parameters is None or found.parameters == parameters


def test_there_may_be_none_to_answer() -> None:
    assert chosen([]) is None
    assert chosen(challenges(['Basic realm="x", Negotiate abc=, Mutual error=x'])) is None


TOKEN = st.text("abcXYZ019!#$%&'*+.^_`|~-", min_size=1, max_size=8)
VALUE = st.text(st.characters(max_codepoint=0xFF, exclude_categories=["Cc"]) | st.just("\t"), max_size=12)
GAP = st.sampled_from(["", " ", "\t", " \t "])
SEPARATOR = st.sampled_from([",", ", ", " ,", " , ,\t"])


@st.composite
def written(draw: st.DrawFn) -> tuple[list[Parts], str]:
    """Challenges, and a line of them in one of the ways they can be written."""
    expected: list[Parts] = []
    line = ""
    for _ in range(draw(st.integers(1, 4))):
        parameters: dict[str, str] = {}
        line += (draw(SEPARATOR) if expected else "") + (scheme := draw(TOKEN))
        for name, value in draw(st.lists(st.tuples(TOKEN, VALUE), max_size=4)):
            line += draw(SEPARATOR) if parameters else draw(st.sampled_from([" ", "  "]))
            line += name + draw(GAP) + "=" + draw(GAP)
            if re.fullmatch(r"[A-Za-z0-9-]+", value) and draw(st.booleans()):
                line += value
            else:
                escape_all = draw(st.booleans())
                line += '"' + re.sub(r"." if escape_all else r'["\\]', r"\\\g<0>", value) + '"'
            parameters.setdefault(name.lower(), value)
        expected.append((scheme.lower(), parameters))
    return expected, line


@given(st.lists(written(), max_size=4), st.booleans())
def test_what_is_written_by_the_grammar_is_read(several: list[tuple[list[Parts], str]], joined: bool) -> None:
    lines = [line for _, line in several]
    expected = [challenge for challenges, _ in several for challenge in challenges]
    assert parsed(*([", ".join(lines)] if joined else lines)) == expected


FRAGMENTS = st.lists(
    st.sampled_from(
        ["Bearer", "DPoP", "scope", "=", '"', "\\", ",", " ", "\t", "a", "==", "\r\n", "\x00", "\u00e9", "~"]
    )
).map("".join)


@given(st.lists(FRAGMENTS | st.text(), max_size=20))
def test_nothing_raises_or_grows(lines: list[str]) -> None:
    found = challenges(lines)
    assert len(found) <= MAX_CHALLENGES
    for challenge in found:
        assert isinstance(challenge, Challenge)
        assert re.fullmatch(r"[!-~]+", challenge.scheme)
        assert len(challenge.parameters) <= MAX_PARAMETERS
        assert all(not re.search(r"[\x00-\x08\n-\x1f\x7f]", value) for value in challenge.parameters.values())
    chosen(found)


@given(written(), st.data())
def test_a_line_that_is_cut_keeps_what_was_before(made: tuple[list[Parts], str], data: st.DataObject) -> None:
    expected, line = made
    cut = parsed(line[: data.draw(st.integers(0, len(line)))])
    assert len(cut) <= len(expected) + 1  # the start of a parameter's name reads like a scheme
    for (scheme, parameters), (whole, all_parameters) in zip(cut[:-1], expected, strict=False):
        assert scheme == whole
        assert parameters.items() <= all_parameters.items()


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        " ",
        ",",
        "=",
        '"',
        "\\",
        "a ",
        "a,",
        "a=",
        "a=b ",
        'a="',
        'a="\\',
        "a a=b,",
        "Bearer ====",
        "~/",
        "\t=",
        "a\t",
    ],
)
def test_the_time_is_linear(piece: str) -> None:
    lines = [prefix + (piece * MAX_LINE)[: MAX_LINE - 20] for prefix in ("", "Bearer ", 'Bearer a="', "Bearer a=")]
    began = time.process_time()
    challenges(lines * 4)
    assert time.process_time() - began < 1
