"""JSON values without loss: whole numbers of any length stay what they are, and keys keep their order.

orjson reads and writes what it takes; what is beyond 64 bits, half a surrogate pair and deep nesting are left to the
standard library.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final, NoReturn

import orjson

_LONG: Final = re.compile(rb"[0-9]{19}")
"""Numbers that orjson may read as a double."""
_MOST_DIGITS: Final = 4000
"""Python builds no whole numbers of more than 4300 digits from text."""
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]|[\]}]|[^][{}",:\s]++', re.DOTALL)
_STEPS: Final = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_SPACE: Final = re.compile(rb"[ \t\n\r]*")
_END: Final = ord("}")


def load(text: bytes) -> Any:
    """The value of a JSON text; ValueError for what is none.

    A number beyond every double comes as an infinite `Decimal`, which has no JSON form.
    """
    if _LONG.search(text) is None:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # The decoder below takes what JSON's grammar allows, or says what is wrong.
    try:
        return _decoder.decode(text.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dump(value: Any) -> bytes:
    """The JSON text of a value, without spaces. ValueError for what has none, such as a number beyond every double."""
    try:
        return orjson.dumps(value)
    except TypeError:
        pass  # It is beyond what orjson writes; the encoder below writes more, or says what is wrong.
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_unknown).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def members(text: bytes) -> dict[str, bytes]:
    """The members of a JSON object, the text of each byte for byte; of repeated keys the last. ValueError otherwise."""
    return dict(pairs(text))


def pairs(text: bytes) -> list[tuple[str, bytes]]:
    """The members of a JSON object as they stand, repeated keys among them. ValueError for anything else."""
    is_object = isinstance(load(text), dict)
    if not is_object:
        raise ValueError("it is no JSON object")
    return list(_members(text))


def _members(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Key and text of each member of what is known to be a JSON object."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != _END:
        end = _end(text, at)
        key = load(text[at:end])
        at = _skip(text, _skip(text, end) + 1)  # past the colon
        end = _end(text, at)
        yield key, text[at:end]
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] != _END else at


def _end(text: bytes, at: int) -> int:
    """Where the value ends that begins there. It does not recurse, so that depth is no matter."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        depth += _STEPS.get(token.group(), 0)
        if not depth:
            return token.end()
    raise ValueError("it is no JSON")


def is_deeper(text: bytes, levels: int) -> bool:
    """Whether arrays and objects nest deeper than so many levels in a JSON text."""
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += _STEPS.get(token.group(), 0)
        if depth > levels:
            return True
    return False


def _skip(text: bytes, at: int) -> int:
    """Past white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) < _MOST_DIGITS else Decimal(float(text))


def _fraction(text: str) -> float | Decimal:
    value = float(text)
    return value if math.isfinite(value) else Decimal(value)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _unknown(value: object) -> NoReturn:
    raise ValueError(f"{type(value).__name__} {value!r:.40} has no JSON form")


_decoder = json.JSONDecoder(parse_int=_integer, parse_float=_fraction, parse_constant=_constant)
