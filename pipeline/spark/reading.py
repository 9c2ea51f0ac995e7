"""Which files hold the rows of a table's days, and which of those rows may be there twice. Pure: listings in, plan out.

What a compaction replaces does not count, whether it was deleted by now, not yet, or came back. Of what is left an
entry can be in two files only where
- its day has segments of two epochs of its partition: an epoch may begin before the end of the one that it follows;
- its day begins in two ways: exporters raced, and the first entry of one was deleted before the other looked;
- its day has both a compaction and segments that came after it.
Only there rows are compared with each other, which is dear.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Final

from pipeline.lake.compaction import Compaction
from pipeline.lake.errors import LakeFileError
from pipeline.lake.layout import LakeSegment
from pipeline.lake.snapshots import LedgerSnapshot
from pipeline.lake.store import LakeStore, Stored
from pipeline.tables import FLOWS, Table

_SEGMENT_AT_LEAST: Final = 12
"""Bytes of the smallest Parquet file: its magic number twice, and the length of a footer."""


@dataclass(frozen=True, slots=True, order=True)
class File:
    """One object in Parquet."""

    key: str
    size: int
    """Bytes in the object store."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The files of some days of a table."""

    single: tuple[File, ...] = ()
    """No entry is in two of them."""
    doubtful: tuple[File, ...] = ()
    """Here one may be, and counts once."""

    @property
    def files(self) -> tuple[File, ...]:
        """All of them."""
        return self.single + self.doubtful


def key_columns(table: Table) -> tuple[str, ...]:
    """The columns that tell entries of a table from each other."""
    return ("tenant", "flow_id", "entry_id") if table is FLOWS else ("entry_partition", "entry_id")


async def look(store: LakeStore, table: Table, days: tuple[date, date]) -> ReadPlan:
    """The plan for the ingest days `days` (first and last, in UTC) as the lake is now."""
    # In this order: what was compacted in between is then in the commit, and its segments are known to be replaced.
    segments = await store.segments(table.name, *days)
    return plan(segments, await store.compactions(table.name, *days))


async def look_at_ledger(store: LakeStore) -> ReadPlan:
    """The plan for the newest snapshot of the ledger that is whole; no files where there is none."""
    found = await store.objects.list(store.bucket, f"{store.layout.root}ledger/", limit=sys.maxsize)
    sizes = {info.key: info.size for info in found}
    for key in sorted((key for key in sizes if key.endswith(".json")), reverse=True):
        document = await store.objects.get(store.bucket, key)
        try:
            snapshot = LedgerSnapshot.from_json(document) if document is not None else None
        except (ValueError, TypeError, KeyError):
            continue  # an older one is better than none
        if snapshot is not None and snapshot.is_whole(sizes):
            return ReadPlan(tuple(_file(file.key, file.bytes) for file in snapshot.files))
    return ReadPlan()


def plan(segments: Sequence[Stored], compactions: Iterable[Compaction]) -> ReadPlan:
    """The files that hold every row of these segments and compactions. LakeFileError for a file that has no room."""
    newest = {done.day: done for done in sorted(compactions, key=lambda done: done.generation)}
    replaced = {key for done in compactions for key in done.replaces}
    left = [stored for stored in segments if stored.key not in replaced]
    doubted = _doubted([stored.segment for stored in left], newest)
    single: list[File] = []
    doubtful: list[File] = []
    for stored in left:
        (doubtful if stored.segment in doubted else single).append(_file(stored.key, stored.size))
    late = {stored.segment.day.isoformat() for stored in left}
    for day, done in newest.items():
        (doubtful if day in late else single).extend(_file(file.key, file.bytes) for file in done.files)
    return ReadPlan(tuple(sorted(single)), tuple(sorted(doubtful)))


def bins(files: Iterable[File], size: int) -> list[list[str]]:
    """Keys in groups of about `size` bytes each; one that is larger is alone."""
    groups: list[list[str]] = []
    room = 0
    for file in sorted(files, key=lambda file: (-file.size, file.key)):
        if not groups or room < file.size:
            groups.append([])
            room = size
        groups[-1].append(file.key)
        room -= file.size
    return groups


def _doubted(segments: Sequence[LakeSegment], compacted: Collection[str]) -> set[LakeSegment]:
    epochs: dict[tuple[int, date], set[int]] = defaultdict(set)
    beginnings: dict[tuple[int, date], int] = defaultdict(int)
    for segment in segments:
        place = (segment.partition, segment.day)
        epochs[place].add(segment.epoch)
        beginnings[place] += segment.start[0] < _midnight(segment.day)
    return {
        segment
        for segment in segments
        if len(epochs[segment.partition, segment.day]) > 1
        or beginnings[segment.partition, segment.day] > 1
        or segment.day.isoformat() in compacted
    }


def _midnight(day: date) -> int:
    return int(datetime.combine(day, time(), UTC).timestamp() * 1000)


def _file(key: str, size: int) -> File:
    if size < _SEGMENT_AT_LEAST:
        raise LakeFileError(key, f"is no Parquet file: it has {size} bytes")
    return File(key, size)
