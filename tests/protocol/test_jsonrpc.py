"""Strict JSON and message shapes. The decoder is compared with a slow parser that shares nothing with it."""

from __future__ import annotations

import datetime
import enum
import json
import math
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snodo_client.protocol import jsonrpc
from snodo_client.protocol.jsonrpc import Malformed, decode, encode, kind_of, same_id

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=30)


def nested(depth: int, opening: str = "[", closing: str = "]", inside: str = "") -> bytes:
    return (opening * depth + inside + closing * depth).encode()


@pytest.fixture
def any_digits() -> Iterator[None]:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(before)


@pytest.fixture
def deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)
    yield
    sys.setrecursionlimit(before)


# --- encode -----------------------------------------------------------------------------------------------------


@given(VALUES)
@example("\u2028\u0085\x7f")
@example("\U0001f600 \ud7ff \ue000")
@example({"\U0001f600": ["\U0001f600"]})
def test_what_is_encoded_decodes_to_itself(value: object) -> None:
    encoded = encode(value)
    assert encoded.isascii()
    assert b"\n" not in encoded
    assert decode(encoded) == value
    assert json.loads(encoded) == value


def test_encoding_is_compact_and_keeps_the_order() -> None:
    assert encode({"b": [1, 2.5, None], "a": (True, "é")}) == b'{"b":[1,2.5,null],"a":[true,"\\u00e9"]}'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_json_lacks_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        encode({"a": [value]})


@pytest.mark.parametrize(
    "text",
    [
        "a\udc00b",
        "\ud83d",
        "\ude00\ud83d",
        "\ud83d\ud83d\ude00",
        "a\ud83d\ude00\ude00",
        "\ud83d\\\ude00",
        "\\\ud800",
        "\\\\\udfff",
    ],
)
@pytest.mark.parametrize("place", ["value", "key"])
def test_lone_surrogates_are_refused(text: str, place: str) -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        encode({"a": text} if place == "value" else {text: 1})


@pytest.mark.parametrize("text", ["\\ud800", "\\\\ud800", "\\\\\\udc00", "\ud83d\ude00", "\ud7ff", "\\\U0001f600"])
def test_what_only_looks_like_a_lone_surrogate_passes(text: str) -> None:
    expected = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    assert decode(encode([text])) == [expected]


@given(st.text(st.sampled_from("\\\ud83d\ude00\U0001f600")) | st.text("\\ud8c0"))
def test_surrogates_are_refused_exactly_when_alone(text: str) -> None:
    try:
        expected = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        with pytest.raises(ValueError, match="lone surrogate"):
            encode(text)
    else:
        assert decode(encode(text)) == expected


@pytest.mark.parametrize("value", [b"x", bytearray(), datetime.date(2000, 1, 1), {1}, object(), 1j, range(2)])
def test_other_types_are_refused_by_name(value: object) -> None:
    with pytest.raises(ValueError, match=type(value).__name__):
        encode({"a": [value]})


@pytest.mark.parametrize("key", [1, 1.5, True, None, b"a", (1,)])
def test_keys_that_are_not_strings_are_refused(key: object) -> None:
    for value in ({key: 1}, {"a": {key: 1}}, [[({"a": 1, key: 2},)]]):
        with pytest.raises(ValueError, match=f"key is {type(key).__name__}"):
            encode(value)


def test_subclasses_are_encoded_as_what_they_are() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    class Level(enum.IntEnum):
        HIGH = 3

    class Table(dict[str, object]):
        pass

    assert encode(Table({Colour.RED: Level.HIGH, "b": Table(c=[Colour.RED])})) == b'{"red":3,"b":{"c":["red"]}}'
    with pytest.raises(ValueError, match="key is int"):
        encode([Table({1: 2})])  # type: ignore[dict-item]


def test_encode_nests_256_levels_and_no_more(deep_recursion: None) -> None:
    value: object = []
    for _ in range(255):
        value = {"a": value}
    assert decode(encode(value)) == value
    for outer in ([value], (value,), {"a": value}):
        with pytest.raises(ValueError, match="256 levels"):
            encode(outer)


def test_an_object_inside_itself_is_refused(deep_recursion: None) -> None:
    table: dict[str, object] = {}
    table["me"] = table
    twice: list[object] = []
    twice += [twice, twice]
    for value in (table, twice):
        with pytest.raises(ValueError, match="inside itself"):
            encode(value)


def test_a_part_used_twice_is_no_cycle() -> None:
    part = {"a": 1}
    assert encode([part, part]) == b'[{"a":1},{"a":1}]'


def fault_with_little_stack(work: Callable[[], object]) -> ValueError | None:
    """The ValueError of *work* called where about 100 more frames fit."""

    def deeper(levels: int) -> object:
        return deeper(levels - 1) if levels else work()

    used = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        used, frame = used + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(used + 250)
    try:
        deeper(150)
    except ValueError as error:
        return error
    finally:
        sys.setrecursionlimit(before)
    return None


def test_too_little_stack_to_encode_is_a_value_error() -> None:
    value: object = []
    for _ in range(200):
        value = [value]
    assert "recursion" in str(fault_with_little_stack(lambda: encode(value)))


# --- decode -----------------------------------------------------------------------------------------------------


class Parser:
    """RFC 8259 by the letter, one character at a time."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def parse(self) -> object:
        value = self.value(0)
        self.space()
        self.require(self.at == len(self.text))
        return value

    @staticmethod
    def require(condition: object) -> None:
        if not condition:
            raise ValueError

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
            self.at += 1

    def peek(self) -> str:
        self.require(self.at < len(self.text))
        return self.text[self.at]

    def take(self, *options: str) -> str:
        character = self.peek()
        self.require(not options or character in options)
        self.at += 1
        return character

    def value(self, depth: int) -> object:
        self.space()
        character = self.peek()
        if character in "[{":
            self.require(depth < 256)
            return self.array(depth + 1) if character == "[" else self.object(depth + 1)
        if character == '"':
            return self.string()
        for name, value in (("true", True), ("false", False), ("null", None)):
            if self.text.startswith(name, self.at):
                self.at += len(name)
                return value
        return self.number()

    def array(self, depth: int) -> list[object]:
        self.take("[")
        self.space()
        items: list[object] = []
        if self.peek() == "]":
            self.take()
            return items
        while True:
            items.append(self.value(depth))
            self.space()
            if self.take(",", "]") == "]":
                return items

    def object(self, depth: int) -> dict[str, object]:
        self.take("{")
        self.space()
        members: dict[str, object] = {}
        if self.peek() == "}":
            self.take()
            return members
        while True:
            self.space()
            key = self.string()
            self.space()
            self.take(":")
            members[key] = self.value(depth)
            self.space()
            if self.take(",", "}") == "}":
                return members

    def string(self) -> str:
        self.take('"')
        units: list[str] = []
        while (character := self.take()) != '"':
            self.require(character >= " ")
            if character == "\\":
                escape = self.take(*'"\\/bfnrtu')
                if escape == "u":
                    digits = self.text[self.at : self.at + 4]
                    self.require(len(digits) == 4 and all(digit in "0123456789abcdefABCDEF" for digit in digits))
                    self.at += 4
                    character = chr(int(digits, 16))
                else:
                    character = dict(zip('"\\/bfnrt', '"\\/\b\f\n\r\t', strict=True))[escape]
            units.append(character)
        return "".join(units)

    def number(self) -> int | float:
        start = self.at
        if self.peek() == "-":
            self.take()
        if self.take(*"0123456789") != "0":
            self.digits()
        whole = True
        if self.text[self.at : self.at + 1] == ".":
            whole = False
            self.take()
            self.take(*"0123456789")
            self.digits()
        if self.text[self.at : self.at + 1] in ("e", "E"):
            whole = False
            self.take()
            if self.peek() in "+-":
                self.take()
            self.take(*"0123456789")
            self.digits()
        text = self.text[start : self.at]
        if whole:
            return int(text)
        self.require(math.isfinite(float(text)))
        return float(text)

    def digits(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in "0123456789":
            self.at += 1


def joined(value: object) -> object:
    """Surrogate escapes that make a pair, as one character: the reference parser leaves them apart."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if isinstance(value, list):
        return [joined(item) for item in value]
    if isinstance(value, dict):
        return {joined(key): joined(item) for key, item in value.items()}
    return value


def same(ours: object, theirs: object) -> bool:
    return repr(ours) == repr(theirs)  # 1, 1.0 and True differ here


PIECES = st.sampled_from(
    [
        *("[", "]", "{", "}", '"', ":", ",", "\\", "\\\\", '\\"', "\\n", "\\u00e9", "\\ud83d\\ude00", "\\ud800"),
        *("0", "1", "-", ".5", "e9", "E+400", "1e999", "true", "false", "null", "NaN", "Infinity", "-Infinity"),
        *('"a":', '"[":', '"{"', "[[", "]]", " ", "\n", "\t", "a", "é", "\x00", "\u2028", "\ufeff"),
    ]
)
DOCUMENTS = st.binary(max_size=20) | st.lists(PIECES, max_size=20).map(lambda pieces: "".join(pieces).encode())


@given(DOCUMENTS)
def test_decoding_agrees_with_the_grammar(data: bytes) -> None:
    try:
        expected = Parser(data.decode("utf-8").removeprefix("\ufeff")).parse()
    except ValueError:
        with pytest.raises(Malformed):
            decode(data)
    else:
        assert same(joined(decode(data)), joined(expected))


@given(VALUES, st.sampled_from([None, 1, "\t"]), st.booleans(), st.booleans())
def test_any_layout_of_json_is_read(value: object, indent: int | str | None, ascii_only: bool, bom: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert same(decode(b"\xef\xbb\xbf" * bom + f" \r\n\t{text} \n".encode()), value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"\xef\xbb\xbf\xef\xbb\xbf1",
        b"\xff",
        b'"\xc3"',
        b'"\xed\xa0\x80"',
        '"x"'.encode("utf-16"),
        b"NaN",
        b"[-Infinity]",
        b'{"a":Infinity}',
        b"1e999",
        b"[-1e400]",
        b"1 2",
        b"{}x",
        b"[1,]",
        b"'a'",
        b'"a\nb"',
        b"\xc2\xa01",
    ],
)
def test_what_is_not_strict_json_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        decode(data)


@pytest.mark.parametrize(
    ("data", "where"), [(b"  xyz", 2), (b'{"a":1} secret', 7), (b'["\xff"]', 2), (b'["a" "b"]', 5)]
)
def test_the_text_says_where(data: bytes, where: int) -> None:
    with pytest.raises(Malformed, match=rf"\b{where}\b"):
        decode(data)


@pytest.mark.parametrize(
    "data",
    [b"s3cret", b'{"k":"s3cret"', b'{"k":"s3cret"} s3cret', b'"s3cret\xff"', b'"s3cret\x01"', b'{"s3cret":NaN}'],
)
def test_nothing_of_the_input_is_in_the_exception(data: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        decode(data)
    assert "s3cret" not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("number", ["9" * 4300, "-" + "9" * 4300, "0." + "3" * 4298])
def test_4300_digits_are_read(number: str, any_digits: None) -> None:
    assert decode(number.encode()) == json.loads(number)


@pytest.mark.parametrize("number", ["9" * 4301, "-" + "9" * 4301, "0." + "3" * 4299, "1" * 1_000_000])
def test_more_digits_are_refused(number: str) -> None:
    with pytest.raises(Malformed, match="4300 digits"):
        decode(f'{{"a":{number}}}'.encode())


@pytest.mark.parametrize("number", ["9" * 4301, "-" + "9" * 4301, "0." + "3" * 4299, "1" * 1_000_000])
def test_more_digits_are_refused_whatever_the_interpreter_allows(number: str, any_digits: None) -> None:
    with pytest.raises(Malformed, match="4300 digits"):
        decode(f'{{"a":{number}}}'.encode())


@pytest.mark.parametrize(
    "data",
    [
        nested(256),
        nested(256, '{"a":', "}", "1"),
        nested(128, '{"[":[', "]}", '"[[[["'),
        b"[" + b"[],{}," * 1000 + b"1]",
        b'["' + b"[" * 1000 + b'"]',
        b'["' + b'\\"[' * 1000 + b'"]',
        b'["\\\\",' + b'"\\\\\\"[",' * 1000 + b"1]",
        b'["\\n",' + b'"\\n","[\\t]",' * 1000 + b"1]",
    ],
)
def test_up_to_256_levels_are_read(data: bytes) -> None:
    assert decode(data) == json.loads(data)


@pytest.mark.parametrize(
    "data",
    [
        nested(257),
        nested(257, '{"a":', "}", "1"),
        b"[" + nested(256) + b"," + b"[]," * 1000 + b"1]",
        b'["\\\\",' + nested(256) + b"]",
        b'["\\n",' + nested(256) + b"]",
        b'["\\\\\\"",' + nested(256) + b"]",
        b'["",""' + b',"]"' * 300 + b"," + nested(256) + b"]",
        b"[" * 100_000,
        b'[{"a":' * 100_000,
        b"[" * 300 + b'"' + b"]" * 300,
    ],
)
def test_more_levels_are_refused_before_they_are_parsed(data: bytes, deep_recursion: None) -> None:
    with pytest.raises(Malformed, match="256 levels"):
        decode(data)


@given(st.recursive(st.text("[]{}\\\"'a\n", max_size=5), lambda inner: st.lists(inner, max_size=3), max_leaves=40))
def test_depth_is_that_of_the_value(value: object) -> None:
    def depth(item: object) -> int:
        return 1 + max(map(depth, item), default=0) if isinstance(item, list) else 0

    for text in (json.dumps(value), json.dumps(value, indent=1)):
        assert jsonrpc._depth(text.encode()) == depth(value)


def test_too_little_stack_to_decode_is_malformed() -> None:
    data = nested(200)
    fault = fault_with_little_stack(lambda: decode(data))
    assert isinstance(fault, Malformed)
    assert "stack" in str(fault)


def test_one_decoder_serves_many_threads() -> None:
    document = {"a": [1.5, {"b": "c"}] * 50, "d": [2.5] * 200}
    data = encode(document)
    wrong: list[object] = []

    def run() -> None:
        for _ in range(100):
            if decode(data) != document:
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


# --- messages ---------------------------------------------------------------------------------------------------


def test_builders() -> None:
    assert jsonrpc.request(1, "ping") == {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert jsonrpc.request(2, "tools/list", {}) == {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    assert jsonrpc.notification("a") == {"jsonrpc": "2.0", "method": "a"}
    assert jsonrpc.notification("a", {"b": 1}) == {"jsonrpc": "2.0", "method": "a", "params": {"b": 1}}
    assert kind_of(jsonrpc.request(1, "ping")) == "request"
    assert kind_of(jsonrpc.notification("a", {})) == "notification"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"id": 1, "method": "m"}, "request"),
        ({"id": "a", "method": "m", "params": []}, "request"),
        ({"id": True, "method": "m"}, None),
        ({"id": None, "method": "m"}, None),
        ({"id": 1.0, "method": "m"}, None),
        ({"id": 1, "method": 5}, None),
        ({"id": 1, "method": "m", "result": {}}, None),
        ({"method": "m"}, "notification"),
        ({"method": "m", "params": 5}, "notification"),
        ({"method": None}, None),
        ({"method": "m", "error": {"code": 1, "message": ""}}, None),
        ({"id": 1, "result": {}}, "response"),
        ({"id": "1", "result": {}}, "response"),
        ({"id": 1.0, "result": {}}, "response"),
        ({"id": True, "result": {}}, None),
        ({"id": [1], "result": {}}, None),
        ({"id": None, "result": {}}, None),
        ({"result": {}}, None),
        ({"id": 1, "result": []}, None),
        ({"id": 1, "result": None}, None),
        ({"id": 1, "result": {}, "error": {"code": 1, "message": ""}}, None),
        ({"id": 1, "result": {}, "error": None}, None),
        ({"id": 1, "error": {"code": 1, "message": ""}}, "response"),
        ({"id": 1, "error": {"code": 1, "message": "", "data": [None]}}, "response"),
        ({"id": None, "error": {"code": 1, "message": ""}}, "response"),
        ({"error": {"code": 1, "message": ""}}, "response"),
        ({"id": False, "error": {"code": 1, "message": ""}}, None),
        ({"id": 1, "error": {"code": "1", "message": ""}}, None),
        ({"id": 1, "error": {"code": True, "message": ""}}, None),
        ({"id": 1, "error": {"code": 1}}, None),
        ({"id": 1, "error": "no"}, None),
        ({"id": 1}, None),
        ({}, None),
    ],
)
def test_kinds_by_shape(message: dict[str, object], kind: str | None) -> None:
    assert kind_of({"jsonrpc": "2.0"} | message) == kind
    assert kind_of(message) is None
    for version in ("1.0", 2.0, None):
        assert kind_of({"jsonrpc": version} | message) is None


@pytest.mark.parametrize("value", [None, 1, "x", [], [{"jsonrpc": "2.0", "id": 1, "result": {}}]])
def test_what_is_no_object_is_no_message(value: object) -> None:
    assert kind_of(value) is None


@given(VALUES)
def test_kind_of_takes_anything(value: object) -> None:
    for message in (value, {"jsonrpc": "2.0", "id": value, "result": value}, {"jsonrpc": "2.0", "error": value}):
        assert kind_of(message) in ("request", "notification", "response", None)


@pytest.mark.parametrize(
    ("got", "ours", "verdict"),
    [
        (7, 7, "exact"),
        (8, 7, None),
        (2**53 + 1, 2**53 + 1, "exact"),
        ("7", 7, "loose"),
        (7.0, 7, "loose"),
        (7.5, 7, None),
        (float(2**53), 2**53 + 1, None),
        ("07", 7, None),
        (" 7", 7, None),
        ("7.0", 7, None),
        ("\u0667", 7, None),
        ("", 0, None),
        (True, 1, None),
        (False, 0, None),
        (None, 0, None),
        ([7], 7, None),
        ({}, 7, None),
    ],
)
def test_same_id(got: object, ours: int, verdict: str | None) -> None:
    assert same_id(got, ours) == verdict
