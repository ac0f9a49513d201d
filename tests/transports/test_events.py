"""Server-sent events out of chunks, compared with a slow parser that follows the specification step by step."""

from __future__ import annotations

import time
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snodo_client.transports.events import Event, EventStream, TooLarge

Fields = tuple[str, str | None, str | None, int | None, str]
Found = tuple[list[Fields], int, bool]
MIB = 2**20


def fields(event: Event) -> Fields:
    return (event.name, event.data, event.id, event.retry, event.last_id)


def read(chunks: list[bytes], max_event_bytes: int = MIB, max_event_lines: int = 1024) -> Found:
    """The events, the number of comments, and whether a bound was passed."""
    stream = EventStream(max_event_bytes, max_event_lines)
    events: list[Event] = []
    try:
        for chunk in chunks:
            events += stream.feed(chunk)
    except TooLarge as error:
        return [fields(event) for event in events + error.events], stream.comments, True
    return [fields(event) for event in events], stream.comments, False


def reference(document: bytes, max_event_bytes: int = MIB, max_event_lines: int = 1024) -> Found:
    """WHATWG HTML, "Parsing an event stream", one byte at a time; with our bounds, on bytes and in lines."""
    if document.startswith(b"\xef\xbb\xbf"):
        document = document[3:]
    events: list[Fields] = []
    comments, last_id = 0, ""
    lines: list[bytes] = []
    at, line = 0, b""
    while at < len(document):
        byte = document[at : at + 1]
        at += 1
        if byte not in (b"\r", b"\n"):
            line += byte
            if sum(map(len, lines)) + len(line) > max_event_bytes:
                return events, comments, True
            continue
        if byte == b"\r" and document[at : at + 1] == b"\n":
            at += 1
        if line.startswith(b":"):
            comments += 1
        elif line:
            lines.append(line)
            if len(lines) > max_event_lines:
                return events, comments, True
        else:
            name, data, own_id, retry = "", None, None, None
            for text in (each.decode("utf-8", "replace") for each in lines):
                field, _, value = text.partition(":")
                if value.startswith(" "):
                    value = value[1:]
                if field == "event":
                    name = value
                elif field == "data":
                    data = (data or "") + value + "\n"
                elif field == "id" and "\0" not in value:
                    own_id = last_id = value
                elif field == "retry" and 1 <= len(value) <= 15 and all(digit in "0123456789" for digit in value):
                    retry = int(value)
            if data is not None or own_id is not None or retry is not None:
                events.append((name or "message", data and data[:-1], own_id, retry, last_id))
            lines = []
        line = b""
    return events, comments, False


def cut(document: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(at % (len(document) + 1) for at in cuts), len(document)]
    return [document[start:end] for start, end in pairwise(edges)]


PIECES = st.sampled_from(
    [
        *(b"data: a", b"data:", b"data", b"data:  b", b"datax: c", b"data : c", b" data: x", b"event: e", b"event"),
        *(b"id: 7", b"id", b"id:", b"id: a\0b", b"id\0: x", b"event:message", b": ping", b":", b" ", b"\t", b"x"),
        *(b"retry: 50", b"retry:5", b"retry: 5x", b"retry", b"retry:  5", b"retry: -1", b"retry: 5\0", b"\0"),
        *(b"retry: 123456789012345", b"retry: 1234567890123456", "retry: \u0663".encode(), b"\xef\xbb\xbf"),
        *("data: é\u2028\x85\x0b".encode(), b"data: \xff", b"data: \xe2\x82", b"data: \xed\xa0\x80"),
        *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r\n", b"\n\n", b"\n"),
    ]
)
DOCUMENTS = st.lists(PIECES, max_size=30).map(b"".join) | st.lists(PIECES, max_size=15).map(b"\n".join) | st.binary()
CUTS = st.lists(st.integers(min_value=0), max_size=8)


@given(DOCUMENTS, CUTS)
@example(b"\xef\xbb\xbfdata: a\n\n", [1, 2])
@example(b"\xef\xbbdata: a\n\ndata: b\n\n", [1])
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", [8, 9, 10])
@example(b"data: a\n\r\ndata: b\r\n\n", [])
@example(b"id: 5\nid: a\0b\nretry: 5\nretry: abc\n\n", [])
@example(b'data: {"trunc', [])
def test_any_cuts_give_the_events_of_the_specification(document: bytes, cuts: list[int]) -> None:
    expected = reference(document)
    assert read([document]) == expected
    assert read(cut(document, cuts)) == expected
    assert read([document[at : at + 1] for at in range(len(document))]) == expected


@given(DOCUMENTS, CUTS, st.integers(0, 20), st.integers(0, 4))
def test_bounds_are_passed_at_the_same_place(document: bytes, cuts: list[int], size: int, lines: int) -> None:
    expected = reference(document, size, lines)
    assert read([document], size, lines) == expected
    assert read(cut(document, cuts), size, lines) == expected
    assert read([document[at : at + 1] for at in range(len(document))], size, lines) == expected


def test_fields() -> None:
    stream = EventStream(MIB)
    (event,) = stream.feed(b"event: greet\nid: 7\nretry: 250\ndata: a\ndata:\ndata:  b\nother: x\n\n")
    assert fields(event) == ("greet", "a\n\n b", "7", 250, "7")
    (event,) = stream.feed(b"data\n\n")
    assert fields(event) == ("message", "", None, None, "7")
    (event,) = stream.feed(b"id\ndata:x\n\n")
    assert fields(event) == ("message", "x", "", None, "")
    (event,) = stream.feed(b"event: e\ndata\nid: 8\n\n")
    assert fields(event) == ("e", "", "8", None, "8")


def test_blocks_without_data_count_for_what_they_set() -> None:
    stream = EventStream(MIB)
    events = stream.feed(b"id: 1\n\nretry: 5\n\nevent: x\n\nid: a\0b\n\nretry: soon\n\n: ping\n\ndata:\n\n")
    assert [fields(event) for event in events] == [
        ("message", None, "1", None, "1"),
        ("message", None, None, 5, "1"),
        ("message", "", None, None, "1"),
    ]
    assert stream.comments == 1


def test_an_event_comes_with_the_line_end_that_completes_it() -> None:
    stream = EventStream(MIB)
    assert stream.feed(b"data: a\r\n") == []
    assert [event.data for event in stream.feed(b"\r")] == ["a"]
    assert stream.feed(b"\ndata: b\n") == []
    assert [event.data for event in stream.feed(b"\n")] == ["b"]


def test_comments_are_neither_events_nor_size() -> None:
    stream = EventStream(100, 2)
    for _ in range(1000):
        assert stream.feed(b": keep-alive\r\n:\n") == []
    assert stream.comments == 2000
    assert [event.data for event in stream.feed(b"data: a\n: ping\ndata: b\n\n")] == ["a\nb"]


@pytest.mark.parametrize("tail", [b"", b"\n\n"])
def test_the_byte_bound_is_exact(tail: bytes) -> None:
    document = b"id: 5\r\ndata: 7890"
    assert read([document + tail], 15)[2] is False
    for chunks in ([document + tail], [document[:-1], document[-1:] + tail]):
        assert read(chunks, 14) == ([], 0, True)


def test_the_line_bound_is_exact() -> None:
    document = b"data: x\n" * 1024
    (events, _, over) = read([document + b"\n"])
    assert (len(events), over) == (1, False)
    assert read([document, b"data: x\n"])[2]
    assert read([document + b"id: 1\n"])[2]


def test_an_endless_comment_is_too_large() -> None:
    stream = EventStream(1000)
    stream.feed(b":" + b"x" * 999)
    with pytest.raises(TooLarge, match="1000 bytes"):
        stream.feed(b"x")


def test_events_before_one_that_is_too_large_are_not_lost() -> None:
    stream = EventStream(10)
    assert [event.data for event in stream.feed(b"data: a\n\ndata: b")] == ["a"]
    with pytest.raises(TooLarge, match="10 bytes") as caught:
        stream.feed(b"\n\ndata: c\n\ndata: much too long\n\ndata: d\n\n")
    assert [event.data for event in caught.value.events] == ["b", "c"]
    with pytest.raises(TooLarge, match="10 bytes") as caught:
        stream.feed(b"data: e\n\n")
    assert caught.value.events == []


def test_the_exception_quotes_nothing() -> None:
    with pytest.raises(TooLarge) as caught:
        EventStream(10).feed(b"data: s3cret s3cret\n\n")
    assert "s3cret" not in repr(caught.value)


def test_a_large_event_leaves_nothing_behind() -> None:
    stream = EventStream(16 * MIB)
    stream.feed(b"data: first\n\n")
    tracemalloc.start()
    try:
        for _ in range(64):
            assert stream.feed(b"x" * 65_536) == []
        stream.feed(b"\ndata: " + b"y" * 65_536)
        assert len(stream.feed(b"\n\n")) == 1
        assert tracemalloc.get_traced_memory()[0] < MIB
    finally:
        tracemalloc.stop()


def test_time_is_linear() -> None:
    stream = EventStream(16 * MIB)
    chunk = b"x" * 64
    started = time.process_time()
    stream.feed(b"data: ")
    for _ in range(8 * MIB // 64):
        assert not stream.feed(chunk)
    (event,) = stream.feed(b"\n\n")
    assert time.process_time() - started < 5  # 0.2 s; copying what is pending for every chunk takes minutes
    assert event.data == "x" * 8 * MIB
