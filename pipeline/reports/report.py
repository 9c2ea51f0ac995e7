"""A finished report: its tables, what they are about, and what is missing in the lake that they were read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Period:
    """Whole days, by the clock of a time zone."""

    first: date
    last: date
    """Inclusive; not before `first`."""
    zone: str = "UTC"
    """As the IANA data base names it."""

    @property
    def days(self) -> int:
        """How many days."""
        return (self.last - self.first).days + 1

    def __iter__(self) -> Iterator[date]:
        """The days in order."""
        return (self.first + timedelta(days=number) for number in range(self.days))


@dataclass(frozen=True, slots=True)
class Hole:
    """An epoch that began since the stream did not go on where the lake ended; what is missing is of the period."""

    table: str
    partition: int
    epoch: int
    reason: str
    """`hole`: entries went before they were exported; `rewritten`: the stream has another history than the lake."""
    missing: int
    """Entries that are not in the lake; 0 where nobody can count them."""
    after: datetime | None
    """Time of the last entry that the lake had, in UTC; None where it had none."""
    until: datetime | None
    """Time of the last entry that the stream had when it was found out: what is missing came before."""
    found: datetime
    """When it was found out, in UTC."""


@dataclass(frozen=True, slots=True)
class Report:
    """What is written down: as Parquet, as CSV, and as one page."""

    period: Period
    created: datetime
    """In UTC."""
    tables: Mapping[str, pa.Table]
    """By name, each with its schema of `pipeline.reports.tables`; empty where nothing happened."""
    tenant: str = ""
    """The only tenant that it tells of; empty: all of them."""
    holes: Sequence[Hole] = field(default=())
    kept_from: Mapping[str, date] = field(default_factory=dict)
    """Tables of the lake whose rows of the first days may be gone by their age, and the first day that is kept."""
