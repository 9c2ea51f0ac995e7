"""What is in the lake, table by table, and how far exporters are behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fetchbox.config.v1.config_pb2 import Config
from kernel.log.offsets import parse_id
from kernel.log.shapes import shapes
from kernel.redis.clients import RedisClients
from pipeline.export.flows_source import FlowsSource
from pipeline.export.source import ExportSource
from pipeline.export.streams import stream_sources
from pipeline.lake.contents import Contents, Day, Raw
from pipeline.lake.epochs import Marker
from pipeline.lake.segments import SegmentFacts
from pipeline.lake.store import LakeStore
from pipeline.tables import TABLES, Table

_AT_ONCE: Final = 32
"""Segments that are asked for their facts at the same time."""
_NOTHING: Final = "0-0"


@dataclass(slots=True)
class TableStatus:
    """One table; everything is about rows that count."""

    table: str
    first_day: str = ""
    last_day: str = ""
    days: int = 0
    compacted_days: int = 0
    segments: int = 0
    """Those that are not compacted."""
    rows: int = 0
    """As far as is known: an entry that was exported twice counts twice until its day is compacted."""
    bytes: int = 0
    """In the object store."""
    exported: dict[int, str] = field(default_factory=dict)
    """How far each partition is in the lake, as ids."""
    quarantined: int = 0
    """Segments of which rows are in quarantine."""
    epochs: list[Marker] = field(default_factory=list)
    """Why epochs began: each is a hole, or a past that was written anew."""


async def look(store: LakeStore, contents: Contents) -> list[TableStatus]:
    """The status of every table. ObjectStoreError where the store does not answer."""
    return [await _table(store, contents, table) for table in TABLES]


async def lags(clients: RedisClients, config: Config, found: Iterable[TableStatus]) -> dict[str, int]:
    """Of each table for how long, in ms, its oldest entry waits that is not in the lake. Raises `UNAVAILABLE`."""
    exported = {status.table: status.exported for status in found}
    sources: list[ExportSource] = [*stream_sources(clients, shapes(config)), FlowsSource(clients, config)]
    longest = dict.fromkeys(exported, 0)
    for source in sources:
        look = await source.look(exported[source.table.name].get(source.partition, _NOTHING))
        waits = look.now_ms - parse_id(look.oldest)[0] if look.oldest else 0
        longest[source.table.name] = max(longest[source.table.name], waits)
    return longest


async def _table(store: LakeStore, contents: Contents, table: Table) -> TableStatus:
    days = [day for (name, _), day in sorted(contents.days.items()) if name == table.name]
    live = {day.day: _live(day) for day in days}
    segments = [raw for raws in live.values() for raw in raws]
    facts = await _facts(store, segments)
    status = TableStatus(table.name, segments=len(segments))
    status.rows = sum(known.rows for known in facts if known)
    status.bytes = sum(raw.info.size for raw in segments)
    for day in days:
        _add(status, day, live[day.day])
    status.exported = await _exported(store, days)
    status.quarantined = sum(raw.segment.table == table.name for raw in contents.quarantine)
    status.epochs = await store.markers(table.name)
    return status


def _add(status: TableStatus, day: Day, live: Sequence[Raw]) -> None:
    """Counts a day, as far as it has rows."""
    done = day.newest.compaction if day.newest else None
    files = done.files if done else ()
    if not live and not files:
        return
    status.first_day = status.first_day or day.day.isoformat()
    status.last_day = day.day.isoformat()
    status.days += 1
    status.compacted_days += bool(files)
    status.rows += done.rows if done else 0
    status.bytes += sum(file.bytes for file in files)


def _live(day: Day) -> list[Raw]:
    """The segments of a day that no compaction replaces."""
    replaced = {key for commit in day.commits if commit.compaction for key in commit.compaction.replaces}
    return [raw for raw in day.raw if raw.info.key not in replaced]


async def _exported(store: LakeStore, days: Iterable[Day]) -> dict[int, str]:
    newest: dict[int, Raw] = {}
    for day in days:
        for raw in day.raw:
            known = newest.get(raw.segment.partition, raw)
            newest[raw.segment.partition] = max(known, raw, key=lambda one: one.segment)
    facts = await _facts(store, newest.values())
    return {partition: known.last for partition, known in zip(newest, facts, strict=True) if known}


async def _facts(store: LakeStore, raws: Iterable[Raw]) -> list[SegmentFacts | None]:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(raw: Raw) -> SegmentFacts | None:
        async with gate:
            return await store.facts(raw.info.key)

    return await asyncio.gather(*(one(raw) for raw in raws))
