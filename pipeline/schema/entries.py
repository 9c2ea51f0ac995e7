"""What an entry is besides its message: the columns of its place, and the bytes that its message is read from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from flows.model.codec import event_of
from kernel.log.messages import PAYLOAD, TRACEPARENT
from kernel.redis import keys
from pipeline.schema.columns import TIMELINE, TIMESTAMP, place_fields
from pipeline.schema.rows import Row
from pipeline.tables import FLOWS, Table

_MAX_MS: Final = pa.scalar(253_402_300_799_999, pa.uint64())
"""The last millisecond of the year 9999."""
_TRACEPARENT: Final = "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"
"""W3C trace context, section 3.2. What is nothing of the kind is no trace, and left out."""


def payload(table: Table, row: Row) -> bytes:
    """The message of an entry; ValueError for an entry that has none. Other fields of it are nobody's, and left out."""
    if table is FLOWS:
        return _event(row)
    if PAYLOAD not in row.fields:
        raise ValueError(f"the entry has no field {PAYLOAD}")
    return row.fields[PAYLOAD]


def _event(row: Row) -> bytes:
    try:
        event = event_of(keys.flow_timeline(keys.run(row.extra["tenant"], row.extra["flow_id"])), row.id, row.fields)
    except KeyError as error:
        raise ValueError(f"the entry has no field {error.args[0]}") from None
    except OverflowError:
        raise ValueError("the entry is of a time after the year 9999") from None
    if not event.kind:
        raise ValueError("the entry has no kind")
    return event.SerializeToString()


def place(table: Table, rows: Sequence[Row]) -> pa.Table:
    """The columns of a table that are not of its message."""
    ids = pa.array([row.id for row in rows], pa.string())
    columns = [pa.array([row.partition for row in rows], pa.int32()), ids, _times(ids), _traceparents(rows)]
    if table is FLOWS:
        columns += [pa.array([row.extra[field.name] for row in rows], field.type) for field in TIMELINE]
    return pa.Table.from_arrays(columns, schema=pa.schema(place_fields(table)))


def _times(ids: pa.Array) -> pa.Array:
    """The times of ids; null for one that no timestamp has, which Redis allows."""
    ms = pc.list_element(pc.split_pattern(ids, "-", max_splits=1), 0).cast(pa.uint64())
    known = pc.if_else(pc.less_equal(ms, _MAX_MS), ms, None)
    return known.cast(pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(TIMESTAMP)


def _traceparents(rows: Sequence[Row]) -> pa.Array:
    values = pa.array([row.fields.get(TRACEPARENT) for row in rows], pa.binary())
    return pc.if_else(pc.match_substring_regex(values, _TRACEPARENT), values, None).cast(pa.string())
