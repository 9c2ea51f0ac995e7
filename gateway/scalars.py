"""Scalar values of ProtoJSON: what JSON values a field of each type takes, and how its value is printed.

Source: https://protobuf.dev/programming-guides/json/. Python's own conversions are laxer (`int(" 1_0")`), so each
syntax is checked first.
"""

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from gateway.mismatch import InexactError, MismatchError

Convert = Callable[[Any], Any]

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,19})", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}", re.ASCII)
_URL_SAFE = str.maketrans("-_", "+/")
_SPECIAL: Mapping[str, float] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EXACT = 2**53
_HUGE = 2**64

_RANGES: Mapping[int, tuple[int, int]] = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
LONG: Final = frozenset({FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64})


def reader(field: FieldDescriptor, *, any_case: bool = False) -> Convert:
    """The function that turns a JSON value into the field's Python value, or raises `MismatchError`.

    With `any_case`, the names of enum values are read whatever their case.
    """
    kind = field.cpp_type
    if kind in _RANGES:
        return _integer_reader(*_RANGES[kind])
    if field.enum_type is not None:
        return _enum_reader(field.enum_type, any_case=any_case)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return read_bytes
    return {
        FieldDescriptor.CPPTYPE_BOOL: _read_bool,
        FieldDescriptor.CPPTYPE_STRING: _read_string,
        FieldDescriptor.CPPTYPE_DOUBLE: read_double,
        FieldDescriptor.CPPTYPE_FLOAT: _read_float,
    }[kind]


def text_reader(field: FieldDescriptor) -> Convert:
    """What turns text from a path, a query or a map key into the JSON value: `true` and `2` have no quotes there."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return lambda text: {"true": True, "false": False}.get(text, text)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return lambda text: int(text) if _INTEGER.fullmatch(text) else text
    return str


def writer(field: FieldDescriptor) -> Convert | None:
    """The function that turns the field's Python value into a JSON value; None where it is one already."""
    kind = field.cpp_type
    if kind in LONG:
        return str
    if field.enum_type is not None:
        return _enum_writer(field.enum_type)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda value: base64.b64encode(value).decode("ascii")
    return {FieldDescriptor.CPPTYPE_DOUBLE: write_double, FieldDescriptor.CPPTYPE_FLOAT: _write_float}.get(kind)


def _integer_reader(low: int, high: int) -> Convert:
    def read(value: Any) -> int:
        number = value if type(value) is int else _whole(value)
        if not low <= number <= high:
            raise MismatchError(f"is not between {low} and {high}")
        return number

    return read


def _whole(value: Any) -> int:
    kind = type(value)
    if kind is float:
        if abs(value) >= _EXACT:
            raise InexactError
        exact = Decimal(value)
    elif kind is str and _INTEGER.fullmatch(value):
        return int(value)
    elif kind is str and _NUMBER.fullmatch(value):
        exact = fraction(value)
    elif kind is Decimal:
        exact = value
    else:
        raise MismatchError("is no integer")
    if exact.copy_abs() > _HUGE:  # before int(): `1e999999999` would be built digit by digit
        raise MismatchError("is out of range")
    if exact != exact.to_integral_value():
        raise MismatchError("is no integer")
    return int(exact)


def fraction(text: str) -> Decimal:
    """The exact value of a JSON number; where its exponent is beyond all measure, zero or infinity."""
    try:
        return Decimal(text)
    except ArithmeticError:
        return Decimal(float(text))


def _read_bool(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise MismatchError("is neither true nor false")


def _read_string(value: Any) -> str:
    if type(value) is not str:
        raise MismatchError("is no string")
    return value


def read_double(value: Any) -> float:
    """A number, or the name of one that JSON cannot write."""
    kind = type(value)
    if kind is float:
        return float(value)
    if kind is str:
        special = _SPECIAL.get(value)
        if special is not None:
            return special
        if not _NUMBER.fullmatch(value):
            raise MismatchError("is no number")
    elif kind is not int and kind is not Decimal:
        raise MismatchError("is no number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise MismatchError("is out of range")
    return number


def _read_float(value: Any) -> float:
    """A number that rounds to a finite 32-bit float: its largest is printed with digits that are a little more."""
    number = read_double(value)
    try:
        struct.pack("<f", number)
    except OverflowError:
        raise MismatchError("is out of range") from None
    return number


def read_bytes(value: Any) -> bytes:
    """Base64 in either alphabet, padded or not."""
    if type(value) is not str:
        raise MismatchError("is no base64 string")
    text = value.translate(_URL_SAFE)
    bare = text.rstrip("=")
    if not _BASE64.fullmatch(text) or len(bare) % 4 == 1 or (text != bare and len(text) % 4):
        raise MismatchError("is not valid base64")
    return binascii.a2b_base64(bare + "=" * (-len(bare) % 4))


def _enum_reader(enum: EnumDescriptor, *, any_case: bool) -> Convert:
    numbers = {value.name: value.number for value in enum.values}
    if any_case:
        numbers |= {value.name.lower(): value.number for value in enum.values}
    low, high = _RANGES[FieldDescriptor.CPPTYPE_INT32]

    def read(value: Any) -> int:
        number = numbers.get(value) if type(value) is str else None
        if number is None and any_case and type(value) is str:
            number = numbers.get(value.lower())
        if number is not None:
            return number
        if type(value) is str:
            raise MismatchError(f"is no {enum.name}")
        number = value if type(value) is int else _whole(value)
        if not low <= number <= high:
            raise MismatchError(f"is no {enum.name}")
        return number

    return read


def _enum_writer(enum: EnumDescriptor) -> Convert:
    names = {number: value.name for number, value in enum.values_by_number.items()}

    def write(value: int) -> str | int:
        return names.get(value, value)

    return write


def write_double(value: float) -> float | str:
    """The number; JSON has no literal for those that are none, so they are strings."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _write_float(value: float) -> float | str:
    """The shortest decimal that reads back as the same 32-bit float."""
    if not math.isfinite(value):
        return write_double(value)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return float(f"{value:.9g}")
