"""Columns from protobuf descriptors: the one place that says which type a field has in the lake, in Arrow and in Spark.

| field | column |
|---|---|
| `uint32`, `uint64` | `int64`: Spark has no unsigned types; a row with a greater `uint64` is no row of the table |
| enum | `string`: the name, or a number that has none in decimal |
| `bytes` | `binary`, with the option `raw_json` `string` |
| `google.protobuf.Timestamp` | `timestamp[us, UTC]`, which every reader of Parquet knows |
| message, repeated, map | `struct`, `list`, `map` |

Every column may be null, so that files of older schemas can be read with newer ones. A field is null only where its
presence is known and it is absent; others hold the default of protobuf then.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from fetchbox.gateway.v1 import options_pb2
from pipeline.tables import FLOWS, Table

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

TIMESTAMP: Final = pa.timestamp("us", "UTC")
ENTRY: Final = (
    pa.field("entry_partition", pa.int32()),
    pa.field("entry_id", pa.string()),
    pa.field("entry_time", TIMESTAMP),
    pa.field("traceparent", pa.string()),
)
"""What every table has first: the place of the entry, the time of its id, and the trace that it belongs to."""
TIMELINE: Final = (
    pa.field("flow_id", pa.string()),
    pa.field("flow_name", pa.string()),
    pa.field("tenant", pa.string()),
)
"""What the table of flows has next: the run whose timeline the entry is in."""

_NUMBERS: Final = {
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.int64(),
}


@cache
def arrow_schema(table: Table) -> pa.Schema:
    """The columns of a table: those of the entry, of a timeline those of its run, and those of the message."""
    return pa.schema([*place_fields(table), *message_schema(table.message.DESCRIPTOR)])


@cache
def spark_schema(table: Table) -> StructType:
    """The same for Spark, which is always told it and never left to guess."""
    return spark_struct(arrow_schema(table))


def place_fields(table: Table) -> tuple[pa.Field, ...]:
    """The columns of a table that are not of its message."""
    return (*ENTRY, *TIMELINE) if table is FLOWS else ENTRY


@cache
def message_schema(message: Descriptor) -> pa.Schema:
    """The columns of a message, in the order of its file. A message that holds itself has none: RecursionError."""
    return pa.schema(_fields(message))


def map_members(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor] | None:
    """Key and value of a map; None for a field that is no map."""
    if field.message_type is None or not field.message_type.GetOptions().map_entry:
        return None
    members = field.message_type.fields_by_name
    return members["key"], members["value"]


def is_json(field: FieldDescriptor) -> bool:
    """Whether a field of type `bytes` holds the text of JSON."""
    return bool(field.GetOptions().Extensions[options_pb2.raw_json])


def is_timestamp(field: FieldDescriptor) -> bool:
    """Whether a field, or each of its elements, is a `google.protobuf.Timestamp`."""
    return field.message_type is not None and field.message_type.full_name == Timestamp.DESCRIPTOR.full_name


def _fields(message: Descriptor) -> list[pa.Field]:
    return [pa.field(field.name, _type(field)) for field in message.fields]


def _type(field: FieldDescriptor) -> pa.DataType:
    members = map_members(field)
    if members is not None:
        return pa.map_(*(_element(member) for member in members))
    return pa.list_(pa.field("element", _element(field))) if field.is_repeated else _element(field)


def _element(field: FieldDescriptor) -> pa.DataType:
    if is_timestamp(field):
        return TIMESTAMP
    if field.message_type is not None:
        return pa.struct(_fields(field.message_type))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return pa.string() if is_json(field) else pa.binary()
    return pa.string() if field.type == FieldDescriptor.TYPE_STRING else _NUMBERS[field.cpp_type]


def spark_struct(schema: pa.Schema | pa.StructType) -> StructType:
    """The type of Spark for columns as this module makes them; KeyError for a type that it does not make."""
    from pyspark.sql import types  # noqa: PLC0415  # Spark is an extra, and the exporter lives without

    return types.StructType([types.StructField(field.name, _spark(field.type), nullable=True) for field in schema])


def _spark(kind: pa.DataType) -> DataType:
    from pyspark.sql import types  # noqa: PLC0415  # as above

    if pa.types.is_struct(kind):
        return spark_struct(kind)
    if pa.types.is_map(kind):
        return types.MapType(_spark(kind.key_type), _spark(kind.item_type), valueContainsNull=True)
    if pa.types.is_list(kind):
        return types.ArrayType(_spark(kind.value_type), containsNull=True)
    return {
        pa.binary(): types.BinaryType(),
        pa.bool_(): types.BooleanType(),
        pa.float32(): types.FloatType(),
        pa.float64(): types.DoubleType(),
        pa.int32(): types.IntegerType(),
        pa.int64(): types.LongType(),
        pa.string(): types.StringType(),
        TIMESTAMP: types.TimestampType(),
    }[kind]
