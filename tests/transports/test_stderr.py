"""What is kept and shown of a server's stderr."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from snodo_client.transports.stderr import EXCERPT_CHARACTERS, TAIL_BYTES, Stderr

SECRET = "s3cret-value-" * 3


@given(st.lists(st.binary(max_size=200)))
def test_lines_do_not_depend_on_how_they_are_cut(chunks: list[bytes]) -> None:
    def lines(chunks: list[bytes]) -> list[str]:
        seen: list[str] = []
        stderr = Stderr({}, seen.append, "server")
        for chunk in chunks:
            stderr.feed(chunk)
        stderr.finish()
        return seen

    assert lines(chunks) == lines([b"".join(chunks)])


@given(st.lists(st.sampled_from([SECRET, "word ", "\n", "-"]), max_size=700), st.integers(1, 5_000))
def test_no_part_of_a_secret_survives_wherever_the_tail_begins(words: list[str], piece: int) -> None:
    stderr = Stderr({"THE_TOKEN": SECRET}, lambda line: None, "server")
    data = "".join(words).encode()
    for start in range(0, len(data), piece):
        stderr.feed(data[start : start + piece])
    tail = stderr.tail()
    assert "s3cret" not in tail
    assert "value" not in tail
    assert len(tail) <= EXCERPT_CHARACTERS


def test_the_last_words_are_kept() -> None:
    stderr = Stderr({}, lambda line: None, "server")
    for number in range(TAIL_BYTES):
        stderr.feed(b"line %d\n" % number)
    assert stderr.tail().endswith(f"line {TAIL_BYTES - 1}")
