"""Messages as producers send them, as protobuf allows them, and as nobody should; and rows as messages again."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st

from fetchbox.operator.v1.job_pb2 import Job
from pipeline.tables import TABLES

KINDS = [*(table.message for table in TABLES), Job]
"""The messages of all tables, and one that has timestamps."""
TEXTS = st.sampled_from(["", "a", "é", "a\0b", "https://h/a?x=1"]) | st.text(max_size=8)
NUMBERS = st.sampled_from([0, 1, -1, 99, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
SECONDS = st.sampled_from([0, 1764374400, -1, -62135596800, -62135596801, 253402300799, 253402300800, 2**62])
NANOS = st.sampled_from([0, 1000, 999999000, 999999999, -1, -1000, 2**31 - 1, -(2**31)])
STRANGE = st.sampled_from(
    [
        b"\x98\x06\x05",  # a field that nobody knows
        b"\x9b\x06\x9c\x06",  # a group
        b"\x0b" * 120,  # groups too deep
        b"\x88\x80\x80\x80\x10\x01",  # a tag of more than 32 bits
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a length of 2^64-1
        b"\x28\x00",  # a default that is spelt out
        b"\x2a\x05\x0a\x01a\x10\x00",  # where a map is: an entry with a third field
        b"\x2a\x06\x0a\x01a\x12\x01b" * 2,  # the same entry twice
        b"\x0a\x01\xff",  # no UTF-8
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",  # more than 64 bits
        b"\x00\x00",
    ]
)
"""Bytes that decoders differ in, or that a newer producer may send."""


@st.composite
def messages(draw: st.DrawFn, kind: type[Message], valid: bool = False) -> Message:
    """Any message of a kind; `valid`: with values that its columns hold without loss."""
    message = kind()
    if isinstance(message, Timestamp):
        _set(message, "seconds", draw(st.sampled_from([0, 1764374400, -1]) if valid else SECONDS))
        _set(message, "nanos", draw(st.sampled_from([0, 1000, 999999000]) if valid else NANOS))
        return message
    for field in kind.DESCRIPTOR.fields:
        if draw(st.booleans()):
            _fill(draw, message, field, valid)
    return message


def _fill(draw: st.DrawFn, message: Message, field: Any, valid: bool) -> None:
    held = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        held.update(draw(st.dictionaries(TEXTS, TEXTS, max_size=3)))
    elif field.is_repeated and field.message_type is not None:
        held.extend(draw(st.lists(messages(field.message_type._concrete_class, valid), max_size=2)))
    elif field.is_repeated:
        held.extend(draw(st.lists(TEXTS, max_size=2)))
    elif field.message_type is not None:
        held.CopyFrom(draw(messages(field.message_type._concrete_class, valid)))
    elif field.type == field.TYPE_STRING:
        setattr(message, field.name, draw(TEXTS))
    elif field.type == field.TYPE_BYTES:
        # A payload is JSON: what is none, and looks as if it held a secret, is hidden whole.
        setattr(message, field.name, json.dumps(draw(TEXTS)).encode() if valid else draw(st.binary(max_size=6)))
    else:
        number = draw(NUMBERS)
        if not (valid and number > 2**63 - 1):
            _set(message, field.name, number)


def _set(message: Message, name: str, number: int) -> None:
    """Sets a number where the field has room for it."""
    try:
        setattr(message, name, number)
    except ValueError:
        setattr(message, name, 1)


@st.composite
def payloads(draw: st.DrawFn, kind: type[Message]) -> bytes:
    """A message of a kind on the wire, with something strange in it or cut off, or neither."""
    payload = draw(messages(kind)).SerializeToString()
    cut = draw(st.integers(0, len(payload)))
    change = draw(st.sampled_from(["none", "none", "behind", "within", "cut", "twice"]))
    if change == "behind":
        return payload + draw(STRANGE)
    if change == "within":
        return payload[:cut] + draw(STRANGE | st.binary(max_size=4)) + payload[cut:]
    return {"none": payload, "cut": payload[:cut], "twice": payload + payload[:cut]}[change]


def in_order(held: Any) -> Any:
    """Rows with the entries of maps in one order: protobuf gives them none."""
    if isinstance(held, pa.Table):
        return [in_order(row) for row in held.to_pylist()]
    if isinstance(held, dict):
        return {name: in_order(value) for name, value in held.items()}
    if isinstance(held, list):
        items = [in_order(item) for item in held]
        return sorted(items) if items and isinstance(items[0], tuple) else items
    return held


def rebuilt(kind: type[Message], row: dict[str, Any]) -> Message:
    """The message that a row is of."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        value = row[field.name]
        if value is not None:
            _put(message, field, value)
    return message


def _put(message: Message, field: Any, value: Any) -> None:
    held = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        held.update(dict(value))
    elif field.is_repeated and field.message_type is not None:
        held.extend(rebuilt(field.message_type._concrete_class, item) for item in value)
    elif field.is_repeated:
        held.extend(value)
    elif isinstance(held, Timestamp):
        held.FromDatetime(value)
    elif field.message_type is not None:
        held.CopyFrom(rebuilt(field.message_type._concrete_class, value))
    elif field.enum_type is not None:
        known = field.enum_type.values_by_name
        setattr(message, field.name, known[value].number if value in known else int(value))
    else:
        setattr(message, field.name, value.encode() if isinstance(held, bytes) and isinstance(value, str) else value)
