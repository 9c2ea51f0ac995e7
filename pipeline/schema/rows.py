"""Entries of streams on their way into columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Row(NamedTuple):
    """One entry as it lies on a stream. There are many: a tuple is made in a third of the time of a frozen object."""

    partition: int
    id: str
    """`ms-seq`."""
    fields: Mapping[str, bytes]
    """What the entry holds: `payload` and perhaps `traceparent`; of a timeline, the fields of the envelope."""
    extra: Mapping[str, str] = _NOTHING
    """Columns that the entry itself does not hold: of a timeline `flow_id`, `flow_name` and `tenant`."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """An entry that is no message of its table."""

    row: Row
    error: str
