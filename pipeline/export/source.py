"""What the exporter reads from: a partition of a topic, or the runs that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.schema.rows import Row
from pipeline.tables import Table


@dataclass(frozen=True, slots=True)
class SourceLook:
    """How a source stands, at one moment."""

    now_ms: int
    """By the clock of Redis."""
    oldest: str
    """Position of the oldest entry that was not exported; empty where there is none."""
    last: str
    """The highest position that the source ever had; `0-0` where there was none."""
    added: int
    """How many entries it was ever given, if it counts them."""
    gone: int
    """How many of those are not there any more."""
    server: str
    """Redis' replication id: another one after a failover, and after most restarts."""
    counts: bool = False
    """Whether `added` and `gone` are known: runs are not counted, and streams only since Redis 7."""
    exists: bool = True
    kept: bool = True
    """Whether the entry at the cursor is still there, or may rightly be gone."""


@dataclass(frozen=True, slots=True)
class SourcePage:
    """Entries behind a position, in order."""

    rows: Sequence[Row]
    first: str
    """The position of the first of them; empty where there are none."""
    last: str
    """The position behind them; that from which was read where there are none."""
    ended: bool
    """Whether nothing more was there; never of a page that was to end at a position (`until`)."""
    look: SourceLook
    """How the source stood in the moment of the last read."""
    bytes: int = field(default=0)


class ExportSource(Protocol):
    """One partition. Everything raises `UNAVAILABLE` where Redis does not answer, and may be repeated."""

    table: Table
    partition: int
    stream: str
    """The key under whose `keys.cursors` its position is kept."""

    async def look(self, after: str) -> SourceLook:
        """How it stands, for an exporter that has everything up to `after`."""
        ...

    async def read(self, after: str, *, max_rows: int, max_bytes: int, until: str = "") -> SourcePage:
        """Entries behind `after`: of one UTC day, up to the limits, but at least one position's where there are any.

        With `until` none behind that position.
        """
        ...

    async def ids(self, after: str, until: str) -> list[str]:
        """The ids of the entries in `(after, until]` that are there now; none where ids are no positions (flows)."""
        ...
