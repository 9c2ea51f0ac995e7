"""Entries that are no messages of their table, with their bytes as they are."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pipeline.schema.columns import place_fields
from pipeline.schema.entries import place
from pipeline.schema.rows import Quarantined
from pipeline.tables import Table


def quarantine_schema(table: Table) -> pa.Schema:
    """The columns of a table's quarantine: those of the place of an entry, its fields, and why it is no message."""
    fields = pa.field("fields", pa.map_(pa.string(), pa.binary()))
    return pa.schema([*place_fields(table), fields, pa.field("error", pa.string())])


def quarantine_rows(table: Table, entries: Sequence[Quarantined]) -> pa.Table:
    """The rows of a table's quarantine."""
    places = place(table, [entry.row for entry in entries])
    schema = quarantine_schema(table)
    fields = pa.array([list(entry.row.fields.items()) for entry in entries], schema.field("fields").type)
    errors = pa.array([entry.error for entry in entries], pa.string())
    return pa.Table.from_arrays([*places.columns, fields, errors], schema=schema)
