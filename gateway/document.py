"""JSON text as Python values: strict, without repeated keys, and with the raw text of the values that are kept as text.

orjson decides what is JSON. It drops repeated keys and cannot tell where a value stood in the text, so documents that
need either are read once more by the scanner of the standard library.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]  # the typeshed leaves it out
from typing import Any, NoReturn

import orjson

from gateway import scalars
from gateway.mismatch import MismatchError
from kernel.json_count import TOO_MANY, has_too_many_values

_SPACE = re.compile(r"[ \t\n\r]*")
_LONG_NUMBER = 40


class RawJson(bytes):
    """The text of one JSON value, byte for byte."""

    __slots__ = ()


@dataclass(slots=True)
class Shape:
    """Where raw values are within the JSON of a message type: by key, for keys that lead to any."""

    members: dict[str, "Member"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Member:
    """What is behind one key. `shape` is None where the value itself is raw."""

    shape: Shape | None = None
    repeated: bool = False
    keyed: bool = False


def load(body: bytes, member: Member | None = None, *, exact: bool = False) -> Any:
    """The value of a JSON text; raises `MismatchError`.

    Values that `member` marks come as `RawJson`. With `exact`, fractions come as `Decimal`.
    """
    if has_too_many_values(body):
        raise MismatchError(TOO_MANY)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if "infinity" not in str(error):
            raise MismatchError(f"is not valid JSON: {error}") from None
        exact = True  # a number beyond a double: the reader of its field shall say so, by name
    if not exact and member is None and _is_canonical(value, body):
        return value
    try:
        text = body.decode()
        if member is not None:
            return _Walker(text).value(_skip(text, 0), member)[0]
        again = _strict.decode(text)
    except RecursionError:
        raise MismatchError("is nested too deeply") from None
    except MismatchError:
        raise
    except ValueError as error:
        raise MismatchError(f"is not valid JSON: {error}") from None
    return again if exact else value


def is_json(text: bytes) -> bool:
    """Whether a text is one JSON value by its grammar: a number beyond every double and half a surrogate pair are."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return _is_lenient_json(text)
    return True


def _is_lenient_json(text: bytes) -> bool:
    try:
        _lenient.decode(text.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _is_canonical(value: Any, body: bytes) -> bool:
    """Whether the text is what the value would be written as: then no key can have been there twice."""
    try:
        return orjson.dumps(value) == body
    except orjson.JSONEncodeError:
        return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _repeated(key)
            seen.add(key)
    return found


def _repeated(key: str) -> MismatchError:
    return MismatchError("is given twice").at(key)


def _integer(text: str) -> int | Decimal:
    """Python refuses to build integers of thousands of digits; no field has room for them anyway."""
    return int(text) if len(text) < _LONG_NUMBER else scalars.fraction(text)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


_strict = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=scalars.fraction, parse_int=_integer, parse_constant=_refuse
)
_lenient = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_refuse)
"""For raw values: finds their end; what is in them is not ours to judge."""

_Scan = Callable[[str, int], tuple[Any, int]]
_scan: _Scan = _strict.scan_once  # type: ignore[attr-defined]  # the typeshed leaves it out
_scan_raw: _Scan = _lenient.scan_once  # type: ignore[attr-defined]  # the same

_Pick = Callable[[str], Member | None]


class _Walker:
    """Walks the objects of a text that lead to raw values; everything else is left to the scanner."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int, member: Member | None) -> tuple[Any, int]:
        """The value that starts at `at`, and where it ends. The text is known to be JSON."""
        if member is None:
            return _scan(self._text, at)
        if member.keyed:
            one = Member(member.shape)
            return self._object(at, lambda _key: one)
        if member.repeated:
            return self._array(at, Member(member.shape))
        return self._raw(at) if member.shape is None else self._object(at, member.shape.members.get)

    def _raw(self, at: int) -> tuple[RawJson | None, int]:
        value, end = _scan_raw(self._text, at)
        return (None if value is None else RawJson(self._text[at:end].encode())), end

    def _object(self, at: int, pick: _Pick) -> tuple[Any, int]:
        text = self._text
        if text[at] != "{":
            return _scan(text, at)
        found: dict[str, Any] = {}
        at = _skip(text, at + 1)
        while text[at] != "}":
            key, at = scanstring(text, at + 1, True)
            if key in found:
                raise _repeated(key)
            at = _skip(text, _skip(text, at) + 1)
            found[key], at = self.value(at, pick(key))
            at = _next(text, at)
        return found, at + 1

    def _array(self, at: int, member: Member) -> tuple[Any, int]:
        text = self._text
        if text[at] != "[":
            return _scan(text, at)
        found: list[Any] = []
        at = _skip(text, at + 1)
        while text[at] != "]":
            value, at = self.value(at, member)
            found.append(value)
            at = _next(text, at)
        return found, at + 1


def _skip(text: str, at: int) -> int:
    """Past white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _next(text: str, at: int) -> int:
    """Past white space and a comma."""
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at
