"""JSON values without loss: whole numbers of any length stay what they are, and keys keep their order.

orjson reads and writes what it takes; what is beyond 64 bits, half a surrogate pair and deep nesting are left to the
standard library.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]  # the typeshed leaves it out
from typing import Any, Final, NoReturn

import orjson

_DIGITS: Final = bytes(ord("0") if chr(code).isdigit() and code < 128 else ord(" ") for code in range(256))
_LONG: Final = b"0" * 19
"""Numbers of so many digits may be beyond 64 bits: orjson would read them as doubles."""
_MOST_DIGITS: Final = 4000
"""Python builds no whole numbers of more than 4300 digits from text."""
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{]|[\]}]|[^][{}",:\s]++', re.DOTALL)
_STEPS: Final = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_SPACE: Final = re.compile(r"[ \t\n\r]*")


def load(text: bytes) -> Any:
    """The value of a JSON text; ValueError for what is none.

    A number beyond every double comes as an infinite `Decimal`, which has no JSON form.
    """
    if _LONG not in text.translate(_DIGITS):
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


def joined(members: Mapping[str, bytes | None]) -> bytes:
    """An object of members that are JSON already, byte for byte; those that are None are left out."""
    return b"{%s}" % b",".join([b'"%s":%s' % (name.encode(), raw) for name, raw in members.items() if raw is not None])


def members(text: bytes) -> dict[str, bytes]:
    """The members of a JSON object, the text of each byte for byte; of repeated keys the last. ValueError otherwise."""
    return dict(pairs(text))


def pairs(text: bytes) -> list[tuple[str, bytes]]:
    """The members of a JSON object as they stand, repeated keys among them. ValueError for anything else."""
    is_object = isinstance(load(text), dict)
    if not is_object:
        raise ValueError("it is no JSON object")
    return [(key, raw.encode()) for key, raw in _members(text.decode())]


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Key and text of each member of what is known to be a JSON object."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key, at = scanstring(text, at + 1, True)
        at = _skip(text, _skip(text, at) + 1)  # past the colon
        end = _end(text, at)
        yield key, text[at:end]
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at


def _end(text: str, at: int) -> int:
    """Where the value ends that begins there."""
    try:
        return _scan(text, at)[1]
    except RecursionError:
        rest = text[at:].encode()
        return at + len(rest[: next(end for depth, end in _depths(rest) if not depth)].decode())


def _depths(text: bytes) -> Iterator[tuple[int, int]]:
    """How deep each token of a JSON text leads, and where it ends."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += _STEPS.get(token.group(), 0)
        yield depth, token.end()


def is_deeper(text: bytes, levels: int) -> bool:
    """Whether arrays and objects nest deeper than so many levels in a JSON text."""
    if text.count(b"[") + text.count(b"{") <= levels:
        return False
    return any(depth > levels for depth, _ in _depths(text))


def _skip(text: str, at: int) -> int:
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
_finder: Final = json.JSONDecoder(parse_int=str, parse_float=str)
_scan: Final[Callable[[str, int], tuple[Any, int]]] = _finder.scan_once  # type: ignore[attr-defined]  # typeshed's gap
"""Finds where a value ends; what numbers in it come to does not matter."""
