"""What an entry is besides its message: the columns of its place, and the bytes that its message is read from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from kernel import keys
from kernel.flows.codec import event_of
from kernel.log.messages import PAYLOAD, TRACEPARENT
from kernel.log.offsets import parse_id
from pipeline.schema.columns import place_fields
from pipeline.schema.rows import Row
from pipeline.tables import FLOWS, Table

_MAX_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_TRACEPARENT: Final = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def payload(table: Table, row: Row) -> bytes:
    """The message of an entry; ValueError for an entry that has none. Other fields of it are nobody's, and left out."""
    if table is FLOWS:
        return _event(row)
    if PAYLOAD not in row.fields:
        raise ValueError(f"the entry has no field {PAYLOAD}")
    return row.fields[PAYLOAD]


def _event(row: Row) -> bytes:
    try:
        event = event_of(keys.flow_timeline(row.extra["flow_id"]), row.id, row.fields)
    except KeyError as error:
        raise ValueError(f"the entry has no field {error.args[0]}") from None
    if not event.kind:
        raise ValueError("the entry has no kind")
    return event.SerializeToString()


def place(table: Table, rows: Sequence[Row]) -> pa.Table:
    """The columns of a table that are not of its message."""
    columns: dict[str, list[Any]] = {
        "entry_partition": [row.partition for row in rows],
        "entry_id": [row.id for row in rows],
        "entry_time": [_time(row.id) for row in rows],
        "traceparent": [_traceparent(row.fields.get(TRACEPARENT, b"")) for row in rows],
    }
    fields = place_fields(table)
    arrays = [
        pa.array(columns[field.name] if field.name in columns else [row.extra[field.name] for row in rows], field.type)
        for field in fields
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _time(entry_id: str) -> int | None:
    """Microseconds since 1970; None for an id whose time is none that a timestamp has."""
    ms = parse_id(entry_id)[0]
    return ms * 1000 if ms <= _MAX_MS else None


def _traceparent(value: bytes) -> str | None:
    return value.decode() if _TRACEPARENT.fullmatch(value) else None
