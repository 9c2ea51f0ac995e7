"""The messages with a JSON form of their own (ProtoJSON, well-known types), `google.protobuf.Any` aside."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from gateway import scalars, times
from gateway.mismatch import MismatchError, check_depth

Read = Callable[[Any, Any, int], None]
"""Fills a message (first) from a JSON value (second) at a depth (third)."""
Write = Callable[[Any], Any]
"""The JSON value of a message."""

_MASK_PATH = re.compile(r"[a-zA-Z0-9]+(?:\.[a-zA-Z0-9]+)*", re.ASCII)
_CAMEL = re.compile(r"[A-Z]")
_SNAKE = re.compile(r"_([a-z])")
_EXACT = 2**53


def read_mask(message: Any, value: Any, _depth: int) -> None:
    """Comma-separated paths in lowerCamelCase."""
    text = times.text(value)
    paths = text.split(",") if text else []
    for path in paths:
        if not _MASK_PATH.fullmatch(path):
            raise MismatchError(f"has no valid path {path!r}")
        message.paths.append(_CAMEL.sub(lambda match: f"_{match.group().lower()}", path))


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
        message.struct_value.SetInParent()
        read_struct(message.struct_value, value, depth)
    elif kind is list:
        message.list_value.SetInParent()
        read_list(message.list_value, value, depth)
    else:
        message.number_value = scalars.read_double(value)


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


def _read_empty(_message: Any, value: Any, _depth: int) -> None:
    if type(value) is not dict:
        raise MismatchError("is no object")
    if value:
        raise MismatchError("is an unknown field").at(next(iter(value)))


def _wrapper_reader(field: FieldDescriptor) -> Read:
    convert = scalars.reader(field)

    def read(message: Any, value: Any, _depth: int) -> None:
        message.value = convert(value)

    return read


def _wrapper_writer(field: FieldDescriptor) -> Write:
    convert = scalars.writer(field)
    return (lambda message: message.value) if convert is None else (lambda message: convert(message.value))


_FORMS: Mapping[str, tuple[Read, Write]] = {
    "google.protobuf.Timestamp": (times.read_timestamp, times.write_timestamp),
    "google.protobuf.Duration": (times.read_duration, times.write_duration),
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
