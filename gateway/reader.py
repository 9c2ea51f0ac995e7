"""JSON values into messages, by readers compiled once per message type from its descriptor.

Strict ProtoJSON: unknown and repeated keys are refused, original and JSON names are both taken, `null` leaves a field
unset. A field with the option `raw_json` takes the text of any JSON value, byte for byte.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fetchbox.gateway.v1 import options_pb2
from gateway import scalars, wellknown
from gateway.document import Member, RawJson, Shape
from gateway.message_types import Types
from gateway.mismatch import MismatchError, check_depth
from gateway.options import Options

Store = Callable[[Any, Any, int], None]
"""Puts a JSON value (second) into a field of a message (first) at a depth (third)."""

ANY = "google.protobuf.Any"
_NULLABLE = frozenset({"google.protobuf.Value"})


def is_raw(field: FieldDescriptor) -> bool:
    """Whether the field holds JSON text."""
    return bool(field.GetOptions().Extensions[options_pb2.raw_json])


def map_entry(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor] | None:
    """Key and value of a map; None for any other field."""
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["key"], entry.fields_by_name["value"]


class Readers:
    """The readers of all message types that were needed so far."""

    def __init__(self, types: Types, options: Options) -> None:
        self.options = options
        self._types = types
        self._readers: dict[str, wellknown.Read] = {}
        self._shapes: dict[str, Shape] = {}

    def of(self, descriptor: Descriptor) -> wellknown.Read:
        """Fills a message of this type from a JSON value; raises `MismatchError`."""
        reader = self._readers.get(descriptor.full_name)
        if reader is None:
            form = wellknown.form(descriptor)
            if form is not None:
                reader = form[0]
            elif descriptor.full_name == ANY:
                reader = self._read_any
            else:
                reader = MessageReader(descriptor, self)
            self._readers[descriptor.full_name] = reader
        return reader

    def field(self, field: FieldDescriptor) -> Store:
        """Stores the JSON value of one field, whatever its kind."""
        entry = map_entry(field)
        if entry is not None:
            return _map_store(field.name, *entry, self)
        if field.message_type is not None:
            return _message_store(field, self.of(field.message_type))
        return _scalar_store(field, _convert(field, self.options))

    def member(self, descriptor: Descriptor) -> Member | None:
        """Where raw JSON is within a message of this type; None for nowhere."""
        return Member(self._shape(descriptor)) if self._leads_to_raw(descriptor, set()) else None

    def _shape(self, descriptor: Descriptor) -> Shape:
        shape = self._shapes.get(descriptor.full_name)
        if shape is not None:
            return shape
        shape = self._shapes[descriptor.full_name] = Shape()
        for field in descriptor.fields:
            member = self.field_member(field)
            if member is not None:
                shape.members[field.name] = shape.members[field.json_name] = member
        return shape

    def field_member(self, field: FieldDescriptor) -> Member | None:
        """The same for one field."""
        if is_raw(field):
            return Member(repeated=field.is_repeated)
        entry = map_entry(field)
        inner = field.message_type if entry is None else entry[1].message_type
        if inner is None or not self._leads_to_raw(inner, set()):
            return None
        keyed = entry is not None
        return Member(self._shape(inner), repeated=field.is_repeated and not keyed, keyed=keyed)

    def _leads_to_raw(self, descriptor: Descriptor, seen: set[str]) -> bool:
        if descriptor.full_name in seen or wellknown.form(descriptor) is not None:
            return False
        seen.add(descriptor.full_name)
        return any(
            is_raw(field) or (field.message_type is not None and self._leads_to_raw(field.message_type, seen))
            for field in descriptor.fields
        )

    def _read_any(self, message: Any, value: Any, depth: int) -> None:
        check_depth(depth)
        if type(value) is not dict:
            raise MismatchError("is no object")
        message.SetInParent()
        if not value:
            return
        url = value.get("@type")
        descriptor = self._types.find(url) if type(url) is str else None
        if descriptor is None:
            raise MismatchError("is no known type").at("@type")
        inner = self._types.new(descriptor)
        fields = {key: item for key, item in value.items() if key != "@type"}
        if wellknown.form(descriptor) is None and descriptor.full_name != ANY:
            self.of(descriptor)(inner, fields, depth + 1)
        elif set(fields) == {"value"}:
            self.of(descriptor)(inner, fields["value"], depth + 1)
        else:
            raise MismatchError("must have `@type` and `value`")
        message.type_url, message.value = url, inner.SerializeToString(deterministic=True)


class MessageReader:
    """Reads the messages of one ordinary type. Its fields are compiled at the first use: types may be recursive."""

    def __init__(self, descriptor: Descriptor, readers: Readers) -> None:
        self._descriptor = descriptor
        self._readers = readers
        self._fields: dict[str, _Entry] = {}
        self._twins: dict[str, str] = {}

    def _compile(self) -> None:
        for field in self._descriptor.fields:
            entry = _Entry(_plain_type(field), field.name, self._readers.field(field), takes_null(field))
            self._fields[field.name] = self._fields[field.json_name] = entry
            if field.name != field.json_name:
                self._twins[field.name] = field.json_name

    def __call__(self, message: Any, value: Any, depth: int) -> None:
        """Fills `message`."""
        check_depth(depth)
        if type(value) is not dict:
            raise MismatchError("is no object")
        if not self._fields:
            self._compile()
        fields = self._fields
        for key, item in value.items():
            if key not in fields:
                raise MismatchError("is an unknown field").at(key)
            plain, name, store, takes_none = fields[key]
            if type(item) is plain:
                setattr(message, name, item)
            elif item is not None or takes_none:
                try:
                    store(message, item, depth)
                except MismatchError as error:
                    raise error.at(key) from None
        if self._twins:
            self._refuse_twins(value)

    def _refuse_twins(self, value: dict[str, Any]) -> None:
        for name, twin in self._twins.items():
            if name in value and twin in value:
                raise MismatchError(f"is given twice, also as {name}").at(twin)


class _Entry(NamedTuple):
    """One key of a message."""

    plain: type | None
    """A JSON value of this type goes into the field as it is."""
    name: str
    store: Store
    takes_null: bool


def _plain_type(field: FieldDescriptor) -> type | None:
    """The type of the JSON values that need no look: they are what the field holds, whatever they are."""
    if field.is_repeated or _oneof_of(field) is not None or is_raw(field):
        return None
    if field.type == FieldDescriptor.TYPE_STRING:
        return str
    return bool if field.type == FieldDescriptor.TYPE_BOOL else None


def takes_null(field: FieldDescriptor) -> bool:
    """Whether `null` is a value of the field and not its absence."""
    if field.is_repeated:
        return False
    if field.message_type is not None:
        return field.message_type.full_name in _NULLABLE
    return _is_null_enum(field)


def _is_null_enum(field: FieldDescriptor) -> bool:
    return field.enum_type is not None and field.enum_type.full_name == "google.protobuf.NullValue"


def _convert(field: FieldDescriptor, options: Options) -> scalars.Convert:
    if is_raw(field):
        return _read_raw
    convert = scalars.reader(field, any_case=options.case_insensitive_enums)
    if _is_null_enum(field):
        return lambda value: 0 if value is None else convert(value)
    return convert


def _read_raw(value: Any) -> bytes:
    if type(value) is not RawJson:
        raise MismatchError("can only be given in a JSON body")
    return bytes(value)


def _oneof_of(field: FieldDescriptor) -> str | None:
    """The oneof of a field, for real ones: `optional` makes one too, with a name that starts with an underscore."""
    oneof = field.containing_oneof
    return oneof.name if oneof is not None and len(oneof.fields) > 1 else None


def _refuse_second(message: Any, oneof: str) -> None:
    other = message.WhichOneof(oneof)
    if other is not None:
        raise MismatchError(f"excludes {other}: only one of them may be given")


def _scalar_store(field: FieldDescriptor, convert: scalars.Convert) -> Store:
    name, oneof = field.name, _oneof_of(field)
    if field.is_repeated:
        return _list_store(name, convert)
    if oneof is None:

        def store(message: Any, value: Any, _depth: int) -> None:
            setattr(message, name, convert(value))

        return store

    def store_member(message: Any, value: Any, _depth: int) -> None:
        _refuse_second(message, oneof)
        setattr(message, name, convert(value))

    return store_member


def _list_store(name: str, convert: scalars.Convert) -> Store:
    def store(message: Any, value: Any, _depth: int) -> None:
        if type(value) is not list:
            raise MismatchError("is no array")
        target = getattr(message, name)
        for index, item in enumerate(value):
            try:
                target.append(convert(item))
            except MismatchError as error:
                raise error.at(index) from None

    return store


def _message_store(field: FieldDescriptor, read: wellknown.Read) -> Store:
    name, oneof = field.name, _oneof_of(field)
    if field.is_repeated:

        def store_all(message: Any, value: Any, depth: int) -> None:
            if type(value) is not list:
                raise MismatchError("is no array")
            target = getattr(message, name)
            for index, item in enumerate(value):
                try:
                    read(target.add(), item, depth + 1)
                except MismatchError as error:
                    raise error.at(index) from None

        return store_all

    def store(message: Any, value: Any, depth: int) -> None:
        if oneof is not None:
            _refuse_second(message, oneof)
        target = getattr(message, name)
        target.SetInParent()
        read(target, value, depth + 1)

    return store


def _map_store(name: str, keys: FieldDescriptor, values: FieldDescriptor, readers: Readers) -> Store:
    key_value, read_key = scalars.text_reader(keys), scalars.reader(keys)
    if values.message_type is not None:
        read = readers.of(values.message_type)

        def put(target: Any, key: Any, value: Any, depth: int) -> None:
            target.get_or_create(key)
            read(target[key], value, depth + 1)

    else:
        convert = _convert(values, readers.options)

        def put(target: Any, key: Any, value: Any, depth: int) -> None:  # noqa: ARG001 - the shape of its twin
            target[key] = convert(value)

    def store(message: Any, value: Any, depth: int) -> None:
        if type(value) is not dict:
            raise MismatchError("is no object")
        target = getattr(message, name)
        for text, item in value.items():
            try:
                put(target, read_key(key_value(text)), item, depth)
            except MismatchError as error:
                raise error.at(text) from None

    return store
