"""Lines out of chunks: the same whatever the cuts, bounded, and linear."""

from __future__ import annotations

import json
import time
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snodo_client.transports.lines import PREFIX_BYTES, Lines, TooLong, request_id_in, response_id

Found = list[bytes | tuple[str, bytes]]


def plain(lines: list[bytes | TooLong]) -> Found:
    return [("too long", line.prefix) if isinstance(line, TooLong) else line for line in lines]


def split(chunks: list[bytes], max_bytes: int) -> Found:
    lines = Lines(max_bytes)
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    return plain(found + lines.finish())


def expected(document: bytes, max_bytes: int) -> Found:
    """The rule, applied to the whole document."""
    *complete, last = document.split(b"\n")
    found: Found = []
    for line in complete + [last] * bool(last):
        text = line[:-1] if line[-1:] == b"\r" else line
        found.append(text if len(text) <= max_bytes else ("too long", line[: min(max_bytes, 65_536)]))
    return found


def cut(document: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(at % (len(document) + 1) for at in cuts), len(document)]
    return [document[start:end] for start, end in pairwise(edges)]


DOCUMENTS = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"bcd", "é\u2028\x85\x0b".encode()])).map(b"".join)


@given(DOCUMENTS | st.binary(), st.lists(st.integers(min_value=0)), st.integers(0, 12))
@example(b"abc\r\n", [3, 4], 3)
@example(b"abc\rd\n", [4], 3)
@example(b"abc\r", [], 3)
@example(b"abcd\r\n\r\n", [], 3)
def test_any_cuts_give_the_same_lines(document: bytes, cuts: list[int], max_bytes: int) -> None:
    assert split(cut(document, cuts), max_bytes) == expected(document, max_bytes)
    assert split([document[at : at + 1] for at in range(len(document))], max_bytes) == expected(document, max_bytes)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_bound_is_exact(end: bytes) -> None:
    assert plain(Lines(5).feed(b"12345" + end)) == [b"12345"]
    assert plain(Lines(5).feed(b"123456" + end)) == [("too long", b"12345")]


def test_a_long_line_is_reported_at_once_and_only_once() -> None:
    lines = Lines(5)
    assert lines.feed(b"1234") == []
    assert plain(lines.feed(b"56")) == [("too long", b"12345")]
    assert lines.feed(b"7" * 1000) == []
    assert lines.feed(b"8\nnext") == []
    assert lines.feed(b"\n") == [b"next"]
    assert lines.finish() == []


def test_the_end_of_a_long_line_is_no_line() -> None:
    lines = Lines(2)
    assert plain(lines.feed(b"1234")) == [("too long", b"12")]
    assert lines.finish() == []


def test_the_prefix_is_64_kib_at_most() -> None:
    (line,) = Lines(1_000_000).feed(b"ab" * 1_000_000)
    assert isinstance(line, TooLong)
    assert line.prefix == b"ab" * (PREFIX_BYTES // 2)


def test_the_last_line_needs_no_end() -> None:
    lines = Lines(10)
    assert lines.feed(b"a\nb\r") == [b"a"]
    assert lines.finish() == [b"b"]
    assert lines.finish() == []


def test_lines_are_bytes_of_their_own() -> None:
    lines = Lines(10)
    found = [*lines.feed(b"a\nb\nc"), *lines.feed(b"d\n"), *lines.feed(b"e"), *lines.finish()]
    assert [type(line) for line in found] == [bytes] * 4


def test_what_is_skipped_is_not_kept() -> None:
    lines = Lines(1000)
    chunk = b"x" * 65_536
    lines.feed(chunk)
    tracemalloc.start()
    try:
        for _ in range(200):
            lines.feed(chunk)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_time_is_linear() -> None:
    lines = Lines(16 * 2**20)
    chunk = b"x" * 64
    started = time.process_time()
    for _ in range(8 * 2**20 // 64):
        assert not lines.feed(chunk)
    (line,) = lines.feed(b"\n")
    assert time.process_time() - started < 5  # 0.1 s; copying what is pending for every chunk takes minutes
    assert line == b"x" * 8 * 2**20


# --- request_id_in ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prefix",
    [
        b'{"jsonrpc":"2.0","id":7,"result":{"content":[{"text":"aaa',
        b'{"id":7,"jsonrpc":"2.0","error":{"co',
        b'\xef\xbb\xbf { "jsonrpc" : "2.0" , "id" : 7 , "result" :',
        b'{"a":"\\"id\\":8,","id":7,"result":{"id":9',
        b'{"a":null,"b":true,"c":-1.5e+3,"\\u0069d":7,"result":1',
        b'{"id":8,"id":7,"result":{',
        b'{"a":"\xff\xfe","id":7,"result":"\xc3',
    ],
)
def test_an_id_before_the_result_is_found(prefix: bytes) -> None:
    assert request_id_in(prefix) == 7


@pytest.mark.parametrize(
    "prefix",
    [
        b"",
        b"{",
        b"[",
        b'{"result":{"id":7',
        b'{"result":{},"id":7}',
        b'{"params":{"id":7,"result":1',
        b'{"jsonrpc":"2.0","id":7',
        b'{"jsonrpc":"2.0","id":7,',
        b'{"jsonrpc":"2.0","id":7,"res',
        b'{"id":7,"method":"ping","result":{}',
        b'{"id":7,"params":{},"result":',
        b'{"id":"7","result":',
        b'{"id":7.0,"result":',
        b'{"id":true,"result":',
        b'{"id":null,"error":',
        b'{"id":07,"result":',
        b'{"id":7 "result":',
        b'{"id":12345678901234567890123,"result":',
        b'[{"id":7,"result":',
        b'{"\\x":1,"id":7,"result":',
        b'"id":7,"result":',
        b'{"a":"' + b"\\" * 65_000,
        b'{"a":"' + b'\\"' * 32_000,
        b'{"a":' + b"[" * 65_000,
        b" " * 65_000,
    ],
)
def test_an_id_that_cannot_be_told(prefix: bytes) -> None:
    assert request_id_in(prefix) is None


@given(st.binary() | st.text('{}[]",:\\ \nidresult7').map(str.encode))
def test_any_bytes_have_an_id_or_none(prefix: bytes) -> None:
    found = request_id_in(prefix)
    assert found is None or b"%d" % found in prefix


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.integers(-(10**18), 10**18), st.dictionaries(st.text(), PLAIN), st.integers(min_value=0), st.booleans())
def test_cutting_a_response_anywhere_never_gives_another_id(
    wire_id: int, members: dict[str, object], cut_at: int, ascii_only: bool
) -> None:
    for name in ("id", "method", "result", "error"):
        members.pop(name, None)
    text = json.dumps({**members, "id": wire_id, "result": {"id": wire_id + 1}}, ensure_ascii=ascii_only)
    data = text.encode("utf-8", "surrogatepass")
    assert request_id_in(data) == wire_id
    assert request_id_in(data[: cut_at % (len(data) + 1)]) in (None, wire_id)


JSON = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
TRICKY = st.sampled_from(['","jsonrpc":"2.0","id":9}', '{"jsonrpc":"2.0","id":9,"result":', "x\\", '"', ',"id":9}'])


@given(
    st.permutations(["jsonrpc", "id", "result", "extra"]),
    st.integers(-5, 10**19),
    st.dictionaries(st.text() | TRICKY, JSON | TRICKY | st.just({"jsonrpc": "2.0", "id": 9})),
    st.booleans(),
)
def test_the_id_of_a_response_told_without_decoding_is_its_id(
    order: list[str], wire_id: int, result: dict[str, object], spaced: bool
) -> None:
    members = {"jsonrpc": "2.0", "id": wire_id, "result": result, "extra": result}
    separators = (", ", ": ") if spaced else (",", ":")
    line = json.dumps({name: members[name] for name in order}, separators=separators).encode()
    assert response_id(line) in (None, wire_id)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{}}', 7),
        (b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""}}', 7),
        (b'{"result":{"id":9},"jsonrpc":"2.0","id":7}', 7),
        (b'{"jsonrpc":"2.0","id":"7","result":{}}', None),
        (b'{"jsonrpc":"2.0","id":7.0,"result":{}}', None),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping"}', None),
        (b'{"method":"roots/list","jsonrpc":"2.0","id":7}', None),
        (b'{"method":"x","params":{"result":1},"jsonrpc":"2.0","id":7}', None),
        (b'{"error":{"code":1,"message":""},"jsonrpc":"2.0","id":7}', 7),
        (b'{"jsonrpc":"2.0","id":null,"error":{}}', None),
        (b'{"result":{"jsonrpc":"2.0","id":7}}', None),
        (b"", None),
    ],
)
def test_the_usual_ways_to_write_a_response(line: bytes, told: int | None) -> None:
    assert response_id(line) == told
