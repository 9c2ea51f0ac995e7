"""Messages into JSON values, by writers compiled once per message type from its descriptor.

ProtoJSON with the JSON names of the protos and zero values printed; fields with presence are left out while unset.
A field with the option `raw_json` is spliced in, byte for byte; an empty one is `null`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from gateway import scalars, times, wellknown
from gateway.document import is_json
from gateway.message_types import Types
from gateway.mismatch import MismatchError
from gateway.options import Options
from gateway.reader import ANY, is_raw, map_entry

TIMESTAMP = "google.protobuf.Timestamp"


class Writers:
    """The writers of all message types that were needed so far."""

    def __init__(self, types: Types, options: Options) -> None:
        self.options = options
        self._types = types
        self._writers: dict[str, wellknown.Write] = {}

    def of(self, descriptor: Descriptor) -> wellknown.Write:
        """The JSON value of a message of this type; raises `MismatchError` for one that has none."""
        writer = self._writers.get(descriptor.full_name)
        if writer is None:
            form = wellknown.form(descriptor)
            if self.options.milliseconds and descriptor.full_name == TIMESTAMP:
                writer = times.write_timestamp_ms
            elif form is not None:
                writer = form[1]
            elif descriptor.full_name == ANY:
                writer = self._write_any
            else:
                writer = MessageWriter(descriptor, self)
            self._writers[descriptor.full_name] = writer
        return writer

    def field(self, field: FieldDescriptor) -> Callable[[Any], Any]:
        """The JSON value of one field out of its message."""
        name = field.name
        convert = self.converter(field)
        if convert is None:
            return lambda message: getattr(message, name)
        return lambda message: convert(getattr(message, name))

    def converter(self, field: FieldDescriptor) -> scalars.Convert | None:
        """What turns the field's Python value into JSON; None where it is JSON already."""
        entry = map_entry(field)
        if entry is not None:
            return _map_writer(_key_writer(entry[0]), self._convert(entry[1]))
        convert = self._convert(field)
        return _list_writer(convert) if field.is_repeated else convert

    def _convert(self, field: FieldDescriptor) -> scalars.Convert | None:
        """What turns one value of the field into JSON; None where it is JSON already."""
        if is_raw(field):
            return _write_raw
        if field.message_type is not None:
            return self.of(field.message_type)
        if field.enum_type is not None and field.enum_type.full_name == "google.protobuf.NullValue":
            return lambda _value: None
        return scalars.writer(field)

    def _write_any(self, message: Any) -> dict[str, Any]:
        if not message.type_url:
            return {}
        descriptor = self._types.find(message.type_url)
        if descriptor is None:
            raise MismatchError(f"is of the unknown type {message.type_url}")
        try:
            inner = self._types.cls(descriptor).FromString(message.value)
        except DecodeError:
            raise MismatchError(f"holds no valid {descriptor.full_name}") from None
        value = self.of(descriptor)(inner)
        if wellknown.form(descriptor) is None and descriptor.full_name != ANY:
            return {"@type": message.type_url, **value}
        return {"@type": message.type_url, "value": value}


class MessageWriter:
    """Writes the messages of one ordinary type. Its fields are compiled at the first use: types may be recursive."""

    def __init__(self, descriptor: Descriptor, writers: Writers) -> None:
        self._descriptor = descriptor
        self._writers = writers
        self._fields: list[_Entry] | None = None

    def __call__(self, message: Any) -> dict[str, Any]:
        """The JSON object of `message`."""
        if self._fields is None:
            self._fields = [self._entry(field) for field in self._descriptor.fields]
        found: dict[str, Any] = {}
        for name, key, convert, has_presence, is_sparse in self._fields:
            if has_presence and not message.HasField(name):
                continue
            value = getattr(message, name)
            if is_sparse and not value and not _is_negative_zero(value):
                continue
            found[key] = value if convert is None else convert(value)
        return found

    def _entry(self, field: FieldDescriptor) -> "_Entry":
        convert, options = self._writers.converter(field), self._writers.options
        is_sparse = not options.zeros and not field.has_presence
        key = field.name if options.proto_names else field.json_name
        return _Entry(field.name, key, convert, field.has_presence, is_sparse)


class _Entry(NamedTuple):
    """One field: its name, its key, what makes its value JSON, and when it is left out."""

    name: str
    key: str
    convert: scalars.Convert | None
    has_presence: bool
    is_sparse: bool


def _is_negative_zero(value: Any) -> bool:
    """A float that equals the default and is another value all the same."""
    return isinstance(value, float) and math.copysign(1, value) < 0


def _list_writer(convert: scalars.Convert | None) -> scalars.Convert:
    if convert is None:
        return list
    return lambda values: [convert(value) for value in values]


def _map_writer(key: Callable[[Any], str], convert: scalars.Convert | None) -> scalars.Convert:
    if convert is None:
        return lambda values: {key(name): value for name, value in values.items()}
    return lambda values: {key(name): convert(value) for name, value in values.items()}


def _key_writer(field: FieldDescriptor) -> Callable[[Any], str]:
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return lambda key: "true" if key else "false"
    return str


def _write_raw(value: bytes) -> orjson.Fragment | None:
    """The text as it is, once it is known to be JSON: one bad value must not break the document around it."""
    if not value:
        return None
    if not is_json(value):
        raise MismatchError("holds no valid JSON")
    return orjson.Fragment(value)
