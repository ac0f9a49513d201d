"""Strict JSON in and out, and the shapes of JSON-RPC 2.0 messages.

The standard decoder is more generous than JSON (NaN, infinities, nesting up to a crash) and the standard encoder
changes what it is given (keys become strings, half characters become escapes no peer can read). Both are narrowed
here, once, because every message of every transport passes through: the checks lean on C code and cost a small
message next to nothing. What methods and results mean is not known here.
"""

from __future__ import annotations

import json
import re
import sys
from itertools import accumulate
from math import isinf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Literal, NoReturn

MAX_DEPTH = 256
MAX_DIGITS = 4300
MAX_BATCH = 10_000  # messages of one batch that are looked at

_WHITESPACE = " \t\n\r"
_BOM = b"\xef\xbb\xbf"


class Malformed(ValueError):
    """Bytes that are not strict JSON. The text says what is wrong and where, and quotes nothing of the input."""


# --- encoding ---------------------------------------------------------------------------------------------------

_encoder = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_CONTAINERS = (dict, list, tuple)
_LEAVES = frozenset((str, int, float, bool, type(None)))
_SURROGATE_PAIR = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")
_SURROGATE = re.compile(r"\\ud[89a-f]")


def encode(obj: object) -> bytes:
    """The compact JSON text of *obj*: ASCII only, on one line, without a line end.

    Raises `ValueError` for what JSON cannot carry unchanged: NaN and infinities, lone surrogates, keys that are
    not strings, types other than dict, list, tuple, str, int, float, bool and None, and more than 256 levels of
    nesting (an object inside itself among them).
    """
    try:
        if isinstance(obj, _CONTAINERS):
            _check_containers(obj)
        text = _encoder.encode(obj)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"this cannot be sent as JSON: {error}") from None
    if "\\ud" in text and _has_lone_surrogate(text):
        raise ValueError("this cannot be sent as JSON: a string has a lone surrogate (half a character)")
    return text.encode("ascii")


def _check_containers(obj: object, depth: int = 1) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep, or inside itself")
    values = obj
    if isinstance(obj, dict):
        try:
            "".join(obj)  # the cheapest proof that every key is a string
        except TypeError:
            odd = next(type(key).__name__ for key in obj if not isinstance(key, str))
            raise ValueError(f"an object key is {odd}, not str") from None
        values = obj.values()
    for value in values:  # type: ignore[attr-defined]
        if type(value) not in _LEAVES and isinstance(value, _CONTAINERS):
            _check_containers(value, depth + 1)


def _has_lone_surrogate(text: str) -> bool:
    # Escaped backslashes make way first: r"\\ud800" in the text is a backslash and five letters, not an escape.
    return _SURROGATE.search(_SURROGATE_PAIR.sub("", text.replace("\\\\", "-"))) is not None


# --- decoding ---------------------------------------------------------------------------------------------------


def _refuse_constant(name: str) -> NoReturn:
    raise Malformed("NaN and Infinity are not JSON")


def _parse_float(text: str) -> float:
    if len(text) > MAX_DIGITS:
        raise Malformed(f"a number has more than {MAX_DIGITS} digits")
    value = float(text)
    if isinf(value):
        raise Malformed("a number is too large for a double")
    return value


def _parse_int(text: str) -> int:
    if len(text) - text.startswith("-") > MAX_DIGITS:
        raise Malformed(f"a number has more than {MAX_DIGITS} digits")
    return int(text)


_decoder = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_parse_float)
# For interpreters whose own limit on digits is lifted: then only a hook stands between us and quadratic time.
_digit_counting_decoder = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_parse_float, parse_int=_parse_int
)

_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def decode(data: bytes) -> object:
    """The JSON value in *data*: UTF-8, one leading byte order mark allowed.

    Raises `Malformed` for anything that is not strict JSON, for numbers of more than 4300 digits or beyond the
    range of a double, and for more than 256 levels of nesting; the last is decided before parsing starts, since
    the parser is recursive.
    """
    if data.startswith(_BOM):
        data = data[len(_BOM) :]
    decoder = _decoder if 0 < sys.get_int_max_str_digits() <= MAX_DIGITS else _digit_counting_decoder
    # Raised after the handlers, not in them: the foreign exceptions carry the whole input, and would be our context.
    try:
        text = data.decode("utf-8")
        if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH:
            raise Malformed(f"nested more than {MAX_DEPTH} levels deep")
        value, end = decoder.raw_decode(text, len(text) - len(text.lstrip(_WHITESPACE)))
        if end == len(text) or not text[end:].strip(_WHITESPACE):
            return value
        fault = Malformed(f"something follows the JSON value at character {end}")
    except Malformed as error:
        fault = error
    except UnicodeDecodeError as error:
        fault = Malformed(f"not UTF-8 at byte {error.start}")
    except json.JSONDecodeError as error:
        fault = Malformed(f"not JSON: {error.msg} (character {error.pos})")
    except RecursionError:
        fault = Malformed("nested too deeply for what is left of the interpreter's stack")
    except ValueError:  # the interpreter's own limit on the digits of an integer
        fault = Malformed(f"a number has more than {MAX_DIGITS} digits")
    raise fault


def _depth(data: bytes) -> int:
    """How deep brackets nest outside strings. Right for every prefix that is JSON, which is all a parser gets to."""
    # Escapes go before anything else is deleted: deleting the "n" of '\n"' first would fake an escaped quote.
    structure = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_STRUCTURE)
    # Two quotes in a row change nothing for what follows; without them hardly anything is left to split.
    brackets = b"".join(structure.replace(b'""', b"").split(b'"')[::2])
    return max(accumulate(memoryview(brackets.translate(_STEPS)).cast("b")), default=0)


# --- messages ---------------------------------------------------------------------------------------------------


def request(id: int, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """A request message; `params` is left out when None."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": method}
    if params is not None:
        message["params"] = params
    return message


def notification(method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """A notification message; `params` is left out when None."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


def kind_of(message: object) -> Literal["request", "notification", "response"] | None:
    """What *message* is by its shape, or None when it is no valid JSON-RPC message.

    A response has either a `result` object or an `error` with an integer `code` and a text `message`. Only
    an error may lack its id, or have null there: its sender could not read the request. A float passes as the id of
    a response, since some peers write `1.0` for `1`; `same_id` judges it. (spec: basic)
    """
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return None
    has_result, has_error = "result" in message, "error" in message
    id_type = type(message["id"]) if "id" in message else None
    if "method" in message:
        if has_result or has_error or not isinstance(message["method"], str):
            return None
        if id_type is None:
            return "notification"
        return "request" if id_type is int or id_type is str else None
    if has_result:
        valid = not has_error and isinstance(message["result"], dict) and id_type in (int, str, float)
    elif has_error:
        error = message["error"]
        valid = (
            isinstance(error, dict)
            and type(error.get("code")) is int
            and isinstance(error.get("message"), str)
            and id_type in (int, str, float, None, type(None))
        )
    else:
        valid = False
    return "response" if valid else None


def batched(batch: list[Any]) -> list[Any]:
    """The messages of a batch. What lies beyond the bound, and a batch within it, is none."""
    return [part for part in batch[:MAX_BATCH] if not isinstance(part, list)]


def same_id(got: object, ours: int) -> Literal["exact", "loose"] | None:
    """Whether the id a peer sent names our request *ours*: "exact" for the same integer, "loose" for its decimal
    text or an equal float, else None. A boolean is never an id, though Python calls `True == 1`."""
    if type(got) is int:
        return "exact" if got == ours else None
    if (type(got) is str and got == str(ours)) or (type(got) is float and got == ours):
        return "loose"
    return None
