"""Entries into the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pipeline.schema import messages
from pipeline.schema.columns import arrow_schema
from pipeline.schema.entries import payload, place
from pipeline.schema.redacting import redacted
from pipeline.schema.rows import Quarantined, Row
from pipeline.tables import Table


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of entries; each of them is in one of the two, and both are in their order."""

    batch: pa.Table
    """The rows, by `arrow_schema`, without secrets."""
    quarantined: list[Quarantined]
    """With their bytes as they are: nobody knows where a secret is in them."""


def decode(table: Table, rows: Sequence[Row]) -> Decoded:
    """The rows of entries. One that is no message of the table costs the others nothing."""
    errors: dict[int, str] = {}
    sent, payloads = [], []
    for index, row in enumerate(rows):
        try:
            payloads.append(payload(table, row))
            sent.append(index)
        except ValueError as error:
            errors[index] = str(error)
    found, broken = messages.decode(table.message, payloads)
    errors |= {sent[index]: error for index, error in broken.items()}
    kept = [row for index, row in enumerate(rows) if index not in errors]
    columns = [*place(table, kept).columns, *redacted(table.message, found).columns]
    batch = pa.Table.from_arrays(columns, schema=arrow_schema(table))
    return Decoded(batch, [Quarantined(rows[index], errors[index]) for index in sorted(errors)])
