"""The messages with a JSON form of their own (ProtoJSON, well-known types), `google.protobuf.Any` aside."""

import math
import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from gateway import scalars
from gateway.mismatch import MismatchError, check_depth

Read = Callable[[Any, Any, int], None]
"""Fills a message (first) from a JSON value (second) at a depth (third)."""
Write = Callable[[Any], Any]
"""The JSON value of a message."""

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_DURATION = re.compile(r"(-?)(\d{1,12})(?:\.(\d{1,9}))?s", re.ASCII)
_MASK_PATH = re.compile(r"[a-zA-Z0-9]+(?:\.[a-zA-Z0-9]+)*", re.ASCII)
_CAMEL = re.compile(r"[A-Z]")
_SNAKE = re.compile(r"_([a-z])")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST, _LATEST = -62_135_596_800, 253_402_300_799
_LONGEST = 315_576_000_000
_EXACT = 2**53


def _text(value: Any) -> str:
    if type(value) is not str:
        raise MismatchError("is no string")
    return value


def _nanos(digits: str | None) -> int:
    return int((digits or "0").ljust(9, "0"))


def _fraction(nanos: int) -> str:
    """0, 3, 6 or 9 digits."""
    if not nanos:
        return ""
    digits = f"{nanos:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f".{digits}"


def read_timestamp(message: Any, value: Any, _depth: int) -> None:
    """RFC 3339 with an offset, at most nine digits, years 1 to 9999."""
    match = _TIMESTAMP.fullmatch(_text(value))
    if match is None:
        raise MismatchError("is no RFC 3339 time")
    year, month, day, hour, minute, second = (int(part) for part in match.group(1, 2, 3, 4, 5, 6))
    if not (year >= 1 and 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]):
        raise MismatchError("is no date")
    if hour > 23 or minute > 59 or second > 59:
        raise MismatchError("is no time of day")
    seconds = int((datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH).total_seconds())
    if match[8]:
        if int(match[9]) > 23 or int(match[10]) > 59:
            raise MismatchError("has no valid offset")
        offset = int(match[9]) * 3600 + int(match[10]) * 60
        seconds -= offset if match[8] == "+" else -offset
    if not _EARLIEST <= seconds <= _LATEST:
        raise MismatchError("is outside the years 1 to 9999")
    message.seconds, message.nanos = seconds, _nanos(match[7])
    message.SetInParent()


def write_timestamp(message: Any) -> str:
    """RFC 3339 in UTC."""
    seconds, nanos = message.seconds, message.nanos
    if not (_EARLIEST <= seconds <= _LATEST and 0 <= nanos < 1_000_000_000):
        raise MismatchError("is outside the years 1 to 9999")
    days, rest = divmod(seconds, 86_400)
    date = datetime.fromordinal(719_163 + days)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{date.year:04d}-{date.month:02d}-{date.day:02d}T{clock}{_fraction(nanos)}Z"


def read_duration(message: Any, value: Any, _depth: int) -> None:
    """Decimal seconds with the suffix `s`, at most nine digits, within 10,000 years."""
    match = _DURATION.fullmatch(_text(value))
    if match is None:
        raise MismatchError("is no duration like `1.5s`")
    sign = -1 if match[1] else 1
    seconds, nanos = int(match[2]), _nanos(match[3])
    if seconds > _LONGEST or (seconds == _LONGEST and nanos):
        raise MismatchError("is longer than 10,000 years")
    message.seconds, message.nanos = sign * seconds, sign * nanos
    message.SetInParent()


def write_duration(message: Any) -> str:
    """Decimal seconds."""
    seconds, nanos = message.seconds, message.nanos
    if abs(seconds) > _LONGEST or abs(nanos) >= 1_000_000_000 or seconds * nanos < 0:
        raise MismatchError("is no valid duration")
    sign = "-" if seconds < 0 or nanos < 0 else ""
    return f"{sign}{abs(seconds)}{_fraction(abs(nanos))}s"


def read_mask(message: Any, value: Any, _depth: int) -> None:
    """Comma-separated paths in lowerCamelCase."""
    text = _text(value)
    paths = text.split(",") if text else []
    for path in paths:
        if not _MASK_PATH.fullmatch(path):
            raise MismatchError(f"has no valid path {path!r}")
        message.paths.append(_CAMEL.sub(lambda match: f"_{match.group().lower()}", path))
    message.SetInParent()


def write_mask(message: Any) -> str:
    """The same; a path that would not read back as it was has no JSON form."""
    paths = []
    for path in message.paths:
        camel = _SNAKE.sub(lambda match: match[1].upper(), path)
        if _CAMEL.search(path) or "_" in camel:
            raise MismatchError(f"has a path without a JSON form: {path!r}")
        paths.append(camel)
    return ",".join(paths)


def read_struct(message: Any, value: Any, depth: int) -> None:
    """Any JSON object; its numbers become doubles."""
    check_depth(depth)
    if type(value) is not dict:
        raise MismatchError("is no object")
    fields = message.fields
    for key, item in value.items():
        try:
            read_value(fields[key], item, depth + 1)
        except MismatchError as error:
            raise error.at(key) from None
    message.SetInParent()


def read_list(message: Any, value: Any, depth: int) -> None:
    """Any JSON array."""
    check_depth(depth)
    if type(value) is not list:
        raise MismatchError("is no array")
    for index, item in enumerate(value):
        try:
            read_value(message.values.add(), item, depth + 1)
        except MismatchError as error:
            raise error.at(index) from None
    message.SetInParent()


def read_value(message: Any, value: Any, depth: int) -> None:
    """Any JSON value, `null` too."""
    kind = type(value)
    if value is None:
        message.null_value = 0
    elif kind is bool:
        message.bool_value = value
    elif kind is str:
        message.string_value = value
    elif kind is dict:
        read_struct(message.struct_value, value, depth)
    elif kind is list:
        read_list(message.list_value, value, depth)
    else:
        message.number_value = float(value)


def write_value(message: Any) -> Any:
    """The JSON value."""
    kind = message.WhichOneof("kind")
    if kind == "struct_value":
        return write_struct(message.struct_value)
    if kind == "list_value":
        return write_list(message.list_value)
    if kind == "number_value":
        return _number(message.number_value)
    if kind is None or kind == "null_value":
        return None
    return getattr(message, kind)


def _number(value: float) -> float | int:
    if not math.isfinite(value):
        raise MismatchError("is a number that JSON cannot express")
    is_whole = value.is_integer() and abs(value) < _EXACT and str(value) != "-0.0"
    return int(value) if is_whole else value


def write_struct(message: Any) -> dict[str, Any]:
    """The JSON object."""
    return {key: write_value(item) for key, item in message.fields.items()}


def write_list(message: Any) -> list[Any]:
    """The JSON array."""
    return [write_value(item) for item in message.values]


def _read_empty(message: Any, value: Any, _depth: int) -> None:
    if type(value) is not dict:
        raise MismatchError("is no object")
    if value:
        raise MismatchError("is an unknown field").at(next(iter(value)))
    message.SetInParent()


def _wrapper_reader(field: FieldDescriptor) -> Read:
    convert = scalars.reader(field)

    def read(message: Any, value: Any, _depth: int) -> None:
        message.value = convert(value)
        message.SetInParent()

    return read


def _wrapper_writer(field: FieldDescriptor) -> Write:
    convert = scalars.writer(field)
    return (lambda message: message.value) if convert is None else (lambda message: convert(message.value))


_FORMS: Mapping[str, tuple[Read, Write]] = {
    "google.protobuf.Timestamp": (read_timestamp, write_timestamp),
    "google.protobuf.Duration": (read_duration, write_duration),
    "google.protobuf.FieldMask": (read_mask, write_mask),
    "google.protobuf.Struct": (read_struct, write_struct),
    "google.protobuf.ListValue": (read_list, write_list),
    "google.protobuf.Value": (read_value, write_value),
    "google.protobuf.Empty": (_read_empty, lambda _message: {}),
}
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
)
TEXTUAL = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask"})
"""Types whose JSON form is a string, so that they may stand in a query."""


def is_wrapper(descriptor: Descriptor) -> bool:
    """Whether the type is one of `google.protobuf.*Value` around a scalar."""
    return descriptor.full_name in _WRAPPERS


def form(descriptor: Descriptor) -> tuple[Read, Write] | None:
    """How such a type is read and written; None for an ordinary message."""
    if is_wrapper(descriptor):
        field = descriptor.fields_by_name["value"]
        return _wrapper_reader(field), _wrapper_writer(field)
    return _FORMS.get(descriptor.full_name)
