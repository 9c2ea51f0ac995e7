"""Columns without what must not be shown (`kernel.redaction`): the lake is read by more people than the streams are.

In every text: user information and secret parameters of URLs, and credential headers. The values of headers, log
fields, tags and metadata with secret names are hidden whole. JSON is redacted as such. Other bytes stay as they are:
`undecodable`, of which nobody knows what it is, and `extra`, which is opaque.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from fetchbox.jobs.jobs_pb2 import HttpHeader, QueuedTask
from kernel import redaction
from pipeline.schema import cells
from pipeline.schema.columns import is_json, is_timestamp, map_members

_HEADER: Final = HttpHeader.DESCRIPTOR.full_name
_PAYLOAD: Final = QueuedTask.DESCRIPTOR.fields_by_name["payload"].full_name
"""Bytes that are JSON for as long as ingest has accepted them."""
_GATE: Final = frozenset({"token"})
"""Of an event's data: it names a gate and opens nothing."""


def redacted(kind: type[Message], rows: pa.Table) -> pa.Table:
    """The columns of a message without secrets."""
    fields: Any = kind.DESCRIPTOR.fields  # the stubs have two kinds of descriptors
    columns = [_column(field, rows[field.name]) for field in fields]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _column(field: FieldDescriptor, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([_field(field, chunk) for chunk in column.chunks], column.type)


def _field(field: FieldDescriptor, column: pa.Array) -> pa.Array:
    members = map_members(field)
    if members is not None:
        return _map(members[1], column)
    return _list(field, column) if field.is_repeated else _element(field, column)


def _element(field: FieldDescriptor, column: pa.Array) -> pa.Array:
    if is_timestamp(field):
        return column
    if field.message_type is not None:
        return _struct(field.message_type, column)
    return _change(field)(column)


def _change(field: FieldDescriptor) -> Callable[[pa.Array], pa.Array]:
    if field.type == FieldDescriptor.TYPE_STRING:
        return cells.urls if field.name == "url" else cells.texts
    if is_json(field):
        return partial(cells.each, redact=partial(redaction.json_text, spared=_GATE))
    if field.full_name == _PAYLOAD:
        return partial(cells.each, redact=redaction.json_bytes)
    return lambda column: column


def _struct(message: Descriptor, column: pa.Array) -> pa.Array:
    before = [column.field(index) for index in range(column.type.num_fields)]
    shown = [before[0], _hidden(before[0], before[1])] if message.full_name == _HEADER else before
    after = [_field(field, held) for field, held in zip(message.fields, shown, strict=True)]
    if all(one is other for one, other in zip(before, after, strict=True)):
        return column
    return pa.StructArray.from_arrays(after, fields=list(column.type), mask=pc.is_null(column))


def _list(field: FieldDescriptor, column: pa.Array) -> pa.Array:
    values = column.values
    shown = _element(field, values)
    if shown is values:
        return column
    return pa.ListArray.from_arrays(column.offsets, shown, type=column.type, mask=pc.is_null(column))


def _map(value: FieldDescriptor, column: pa.Array) -> pa.Array:
    items = column.items
    hidden = _hidden(column.keys, items) if value.type == FieldDescriptor.TYPE_STRING else items
    shown = _element(value, hidden)
    if shown is items:
        return column
    return pa.MapArray.from_arrays(column.offsets, column.keys, shown, type=column.type, mask=pc.is_null(column))


def _hidden(names: pa.Array, values: pa.Array) -> pa.Array:
    """The values with those hidden that have a secret name."""
    secret = [name for name in names.unique().to_pylist() if name is not None and redaction.is_secret_name(name)]
    if not secret:
        return values
    return pc.if_else(pc.is_in(names, pa.array(secret, names.type)), redaction.HIDDEN, values)
