"""Entries of streams on their way into columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Row:
    """One entry as it lies on a stream."""

    partition: int
    id: str
    """`ms-seq`."""
    fields: Mapping[str, bytes]
    """What the entry holds: `payload` and perhaps `traceparent`; of a timeline, those of seed 003."""
    extra: Mapping[str, str] = field(default_factory=dict)
    """Columns that the entry itself does not hold: of a timeline `flow_id`, `flow_name` and `tenant`."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An entry that is no message of its table."""

    row: Row
    error: str
