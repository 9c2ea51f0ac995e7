"""Random messages of any type, built from its descriptor."""

from collections.abc import Callable
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import strategies as st

from fetchbox.gateway.v1 import options_pb2

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, depth: int = 3) -> Any:
    """A message of a type; those it may contain nest at most `depth` deep. Fields with raw JSON are left out."""
    special = _WELL_KNOWN.get(descriptor.full_name)
    if special is not None:
        return draw(special(descriptor))
    message = message_factory.GetMessageClass(descriptor)()
    for field in descriptor.fields:
        is_raw = field.GetOptions().Extensions[options_pb2.raw_json]
        if not is_raw and (depth > 0 or field.message_type is None) and draw(st.integers(0, 3)) == 0:
            _put(message, field, draw(_values(field, depth)))
    return message


def _put(message: Any, field: FieldDescriptor, value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if field.message_type is not None and field.message_type.fields_by_name["value"].message_type is not None:
                getattr(message, field.name)[key].CopyFrom(item)
            else:
                getattr(message, field.name)[key] = item
    elif field.is_repeated:
        getattr(message, field.name).extend(value)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def _values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return st.dictionaries(_one(key, depth), _one(value, depth), max_size=2)
    one = _one(field, depth)
    return st.lists(one, max_size=3) if field.is_repeated else one


def _one(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    kind = field.cpp_type
    if field.message_type is not None:
        return messages(field.message_type, depth - 1)
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if kind in _INTEGERS:
        return st.integers(*_INTEGERS[kind])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=9)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return _TEXT
    return st.floats(width=32 if kind == FieldDescriptor.CPPTYPE_FLOAT else 64, allow_nan=False)


def _built(descriptor: Descriptor, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(message_factory.GetMessageClass(descriptor), **fields)


def _struct(descriptor: Descriptor) -> st.SearchStrategy[Any]:
    scalars = st.none() | st.booleans() | st.floats(-1e9, 1e9) | _TEXT
    values = st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2)
    )

    def build(items: dict[str, Any]) -> Any:
        struct = message_factory.GetMessageClass(descriptor)()
        struct.update(items)
        return struct

    return st.dictionaries(_TEXT, values, max_size=3).map(build)


_NANOS = st.sampled_from([0, 1, 1_000, 1_000_000, 100_000_000, 999_999_999])
_WELL_KNOWN: dict[str, Callable[[Descriptor], st.SearchStrategy[Any]]] = {
    "google.protobuf.Timestamp": lambda descriptor: _built(
        descriptor, seconds=st.integers(-62_135_596_800, 253_402_300_799), nanos=_NANOS
    ),
    "google.protobuf.Duration": lambda descriptor: _built(
        descriptor, seconds=st.integers(0, 315_576_000_000 - 1), nanos=_NANOS
    ),
    "google.protobuf.FieldMask": lambda descriptor: _built(
        descriptor, paths=st.lists(st.sampled_from(["a", "some_text", "inner.big_one"]), max_size=2)
    ),
    "google.protobuf.Any": lambda descriptor: st.just(message_factory.GetMessageClass(descriptor)()),
    "google.protobuf.Struct": _struct,
    "google.protobuf.Value": lambda descriptor: _built(descriptor, number_value=st.floats(-1e9, 1e9)),
    "google.protobuf.ListValue": lambda descriptor: st.just(message_factory.GetMessageClass(descriptor)()),
}
