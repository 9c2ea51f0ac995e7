"""Rows from messages by their descriptors alone: slow, and what the fast decoder is measured against.

Protobuf itself reads the bytes, so what is a message is what protobuf says. A value that its column does not hold is
told by name: the row is then none of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from pipeline.schema.columns import is_json, is_timestamp, map_members, message_schema

Read = Callable[[Any], Any]

_MAX_INT64: Final = (1 << 63) - 1
_FIRST: Final = -62_135_596_800_000_000
"""0001-01-01 in microseconds from 1970, with which the timestamps of protobuf begin, as those of Spark and Python."""
_LAST: Final = 253_402_300_799_999_999
"""9999-12-31, its last microsecond."""


def decode(kind: type[Message], payloads: Sequence[bytes]) -> tuple[pa.Table, dict[int, str]]:
    """The rows of those payloads that are messages, and by their index why the others are none."""
    rows, errors = [], {}
    read = _reader(kind.DESCRIPTOR)
    for index, payload in enumerate(payloads):
        try:
            rows.append(read(kind.FromString(payload)))
        except (DecodeError, ValueError) as error:
            errors[index] = f"{type(error).__name__}: {error}"
    schema = message_schema(kind.DESCRIPTOR)
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema), errors


@cache
def _reader(message: Descriptor) -> Callable[[Message], dict[str, Any]]:
    readers = [(field.name, field.has_presence, _field(field)) for field in message.fields]

    def read(held: Message) -> dict[str, Any]:
        return {
            name: None if presence and not held.HasField(name) else convert(getattr(held, name))
            for name, presence, convert in readers
        }

    return read


def _field(field: FieldDescriptor) -> Read:
    members = map_members(field)
    if members is not None:
        key, value = (_element(member) for member in members)
        return lambda held: [(key(name), value(held[name])) for name in held]
    element = _element(field)
    return (lambda held: [element(item) for item in held]) if field.is_repeated else element


def _element(field: FieldDescriptor) -> Read:
    if is_timestamp(field):
        return lambda held: _micros(field, held)
    if field.message_type is not None:
        return _reader(field.message_type)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return lambda number: _signed(field, number)
    return bytes.decode if is_json(field) else lambda held: held


def _signed(field: FieldDescriptor, number: int) -> int:
    if number > _MAX_INT64:
        raise ValueError(f"{field.full_name} is {number}, which is more than an int64 holds")
    return number


def _micros(field: FieldDescriptor, held: Any) -> int:
    micros = int(held.seconds) * 1_000_000 + int(held.nanos / 1000)
    if not _FIRST <= micros <= _LAST:
        raise ValueError(f"{field.full_name} is {held.seconds} seconds from 1970, outside the years 1 to 9999")
    return micros
